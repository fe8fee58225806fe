//! What operators ask of a running server, carried out.
//!
//! The engine is asked by its task; probes that an operator wants run beside
//! those of the schedule and count for nothing.

mod orders;
mod why;

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{Duration, Instant, sleep};

use super::lookups::Lookups;
use super::reload::{Request as ReloadRequest, Told};
use super::threads::Places;
use super::{Control, Serving};
use crate::clock::Clock;
use crate::config::Loaded;
use crate::control::{Answer, Done, Operator, Refusal, Request, view};
use crate::engine::{self, Engine, Hosts};
use crate::health::{ProbeTask, Seen, Table};
use crate::model::{LoadBalancer, Name, PoolId, is_called, names_host};
use crate::moment::Moment;
use crate::probe::Prober;
use crate::{history, notify, serve, state};
use why::Whys;

/// So many probes that operators ask for run at once.
const PROBES: usize = 64;

/// How often it is tried to have an order on the disk before its answer says
/// that it isn't, and after which pauses.
const SAVES: u32 = 3;
const SAVE_GAP: Duration = Duration::from_millis(50);

/// A new configuration is in force within this time, whatever it waits for.
const IN_FORCE: Duration = Duration::from_secs(30);

/// How all that fares which is kept beside the answers.
pub(super) struct Upkeep {
    pub history: Option<Arc<history::Counts>>,
    pub notices: Arc<notify::Counts>,
    pub journal: Option<Arc<state::Counts>>,
}

impl Upkeep {
    fn view(&self) -> view::Kept {
        let (history, journal) = (self.history.as_ref(), self.journal.as_ref());
        view::Kept {
            events_lost: history.map_or(0, |counts| counts.lost()),
            history_error: history.and_then(|counts| counts.trouble()),
            notices_dropped: self.notices.dropped(),
            records_left_out: journal.map_or(0, |counts| counts.left_out()),
            journal_error: journal.and_then(|counts| counts.trouble()),
        }
    }
}

/// Where requests are answered.
pub(super) struct Desk {
    pub control: Control,
    pub clock: Clock,
    pub prober: Arc<Prober>,
    pub probes: Places,
    pub reloads: mpsc::Sender<ReloadRequest>,
    pub places: Arc<Semaphore>,
    pub lookups: Arc<Lookups>,
    pub upkeep: Upkeep,
    /// What was made of the files when they were read last.
    pub files: Arc<Mutex<view::Files>>,
    /// Gone with the server.
    pub serving: Weak<Serving>,
}

impl Desk {
    pub fn places() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(PROBES))
    }

    /// Asks the engine, and waits until what follows is published and handed to
    /// the journal.
    async fn change(
        &self,
        change: impl FnOnce(&mut Engine, Moment) -> Result<Done, Refusal> + Send + 'static,
    ) -> Answer {
        let outcome = match self.control.ask(change).await {
            Some(Ok(done)) => Answer::Done(done),
            Some(Err(refusal)) => return Answer::Refused(refusal),
            None => return stopping(),
        };
        for _ in 0..20 {
            // the engine's task carries out all effects before it takes the next question
            match self.control.ask(|engine, _| engine.is_published()).await {
                Some(false) => sleep(Duration::from_millis(5)).await,
                Some(true) | None => break,
            }
        }
        outcome
    }

    /// The same of what is to outlive a restart: says also if it would not.
    async fn order(
        &self,
        change: impl FnOnce(&mut Engine, Moment) -> Result<Done, Refusal> + Send + 'static,
    ) -> Answer {
        let mut answer = self.change(change).await;
        if let Answer::Done(done) = &mut answer
            && let Some(why) = self.not_saved().await
        {
            done.notes
                .insert(0, format!("in force, but not saved: {why}; a restart now would not know of it"));
            done.not_saved = Some(why);
        }
        answer
    }

    /// Why what was done just now is not on the disk, if it isn't.
    async fn not_saved(&self) -> Option<String> {
        let mut why = None;
        for attempt in 0..SAVES {
            if attempt > 0 {
                sleep(SAVE_GAP).await; // a directory that was removed is made anew meanwhile
            }
            why = match self.control.confirm().await? {
                Ok(()) => return None,
                Err(why) => Some(why),
            };
        }
        why
    }

    /// What the transports have counted.
    fn served(&self) -> Option<view::Served> {
        let serving = self.serving.upgrade()?;
        let totals = serving.lock().as_ref()?.counters();
        Some(served(&totals))
    }

    async fn status(&self, of: Option<String>) -> Answer {
        let served = if of.is_none() { self.served() } else { None };
        let asked = self.control.ask(move |engine, now| status(engine, of.as_deref(), now)).await;
        match asked {
            // made into texts here, not where the engine waits
            Some(Ok((status, whys))) => {
                let mut shown = view::Status::from(status);
                whys.put_into(&mut shown, &self.lookups);
                shown.sort();
                shown.kept = self.upkeep.view();
                shown.served = served;
                shown.files = self.files.lock().clone();
                Answer::Status(Box::new(shown))
            }
            Some(Err(refusal)) => Answer::Refused(refusal),
            None => stopping(),
        }
    }

    async fn probe(&self, of: String) -> Answer {
        let tasks = match self.control.ask(move |engine, _| orders::tasks(engine.table(), &of)).await {
            Some(Ok(tasks)) => tasks,
            Some(Err(refusal)) => return Answer::Refused(refusal),
            None => return stopping(),
        };
        let mut running = Vec::with_capacity(tasks.len());
        for task in tasks {
            let (prober, places, clock) = (Arc::clone(&self.prober), Arc::clone(&self.places), self.clock);
            running.push(self.probes.of(&task.monitor.check).spawn(async move {
                let _place = places.acquire().await;
                let outcome = prober.run(&task).await;
                view::Probed::of(&task, &outcome, clock.now())
            }));
        }
        let mut found = Vec::with_capacity(running.len());
        for probe in running {
            match probe.await {
                Ok(probed) => found.push(probed),
                Err(_) => return Answer::Refused(Refusal::new("defect", "a probe was given up by a defect")),
            }
        }
        Answer::Probed(found)
    }

    async fn reload(&self, force: bool) -> Answer {
        let (told, hears) = oneshot::channel();
        if self.reloads.send(ReloadRequest { force, told }).await.is_err() {
            return stopping();
        }
        match hears.await {
            Ok(Ok(Told { message, mut notes })) => {
                notes.extend(self.in_force().await);
                Answer::Done(Done { message, notes, ..Done::default() })
            }
            Ok(Err(why)) => Answer::Refused(Refusal::new("not_reloaded", why)),
            Err(_) => stopping(),
        }
    }

    /// Waits until the newest configuration is what is answered from; says so if
    /// that isn't to be waited for.
    async fn in_force(&self) -> Vec<String> {
        let begun = Instant::now();
        while let Some(false) = self.control.ask(|engine, _| engine.is_in_force()).await {
            if begun.elapsed() > IN_FORCE {
                return vec![
                    "it isn't all answered from yet: new endpoints are being looked up or probed".to_owned(),
                ];
            }
            sleep(Duration::from_millis(5)).await;
        }
        Vec::new()
    }
}

impl Operator for Desk {
    async fn carry_out(&self, request: Request, by: Arc<str>) -> Answer {
        match request {
            Request::Status { of } => self.status(of).await,
            Request::Order { what, of, reason, for_ms, weight } => {
                let limit = for_ms.map(Duration::from_millis);
                let order = move |engine: &mut Engine, now| {
                    let saying = orders::Saying { weight, reason: reason.into(), by, limit };
                    orders::order(engine, what, &of, &saying, now)
                };
                self.order(order).await
            }
            Request::Failback { load_balancer } => {
                self.order(move |engine, now| orders::fail_back(engine, &load_balancer, now)).await
            }
            Request::Report { of, up } => {
                self.change(move |engine, now| orders::push(engine, &of, up, now)).await
            }
            Request::Traffic { of, ok, failed } => {
                self.change(move |engine, now| orders::traffic(engine, &of, Seen { ok, failed }, now)).await
            }
            Request::Probe { of } => self.probe(of).await,
            Request::Reload { force } => self.reload(force).await,
        }
    }
}

/// Counts as they are shown.
fn served(totals: &serve::Totals) -> view::Served {
    let serve::Transports { udp, tcp, tls, https, quic } = totals.over;
    let [noerror, formerr, servfail, nxdomain, notimp, refused, yxdomain, ..] = totals.rcodes;
    view::Served {
        queries: totals.queries,
        over: view::Over { udp, tcp, tls, https, quic },
        replies: totals.replies(),
        rcodes: view::Rcodes { noerror, formerr, servfail, nxdomain, notimp, refused, yxdomain },
        truncated: totals.truncated,
        unanswered: totals.dropped(),
        slipped: totals.rate_slipped,
        dropped: totals.rate_dropped,
        overflows: totals.overflows,
        unsent: totals.refused,
        unproxied: totals.unproxied,
        unproxied_connections: totals.proxy_errors,
        connections: totals.accepted,
        open: totals.open,
        evicted: totals.evicted,
        accept_errors: totals.accept_errors,
        handshakes_failed: totals.handshakes_failed,
        retried: totals.retried,
        protocol_errors: totals.protocol_errors,
        panics: totals.panics,
        restarts: totals.restarts,
    }
}

fn stopping() -> Answer {
    Answer::Refused(Refusal::new("stopping", "the server is stopping"))
}

/// Everything, or one pool or endpoint and what has to do with it.
fn status(engine: &Engine, of: Option<&str>, now: Moment) -> Result<(engine::Status, Whys), Refusal> {
    let Some(of) = of else {
        let status = engine.status(now);
        let whys = Whys::of(engine, &status);
        return Ok((status, whys));
    };
    let model = engine.model();
    if model.pool_named(&orders::scope_as_written(of).pool).is_none() {
        return status_of_name(engine, of, now);
    }
    let scope = match orders::scope(model, of) {
        Err(refusal) if refusal.kind != orders::UNRESOLVED => return Err(refusal),
        Err(_) => orders::scope_as_written(of),
        Ok(scope) => scope,
    };
    let pool = model.pool_named(&scope.pool).expect("found just now");
    let mut shown = engine.pool_view(pool, now);
    if let Some(name) = &scope.endpoint {
        shown.endpoints.retain(|endpoint| is_called(&endpoint.name, endpoint.hostname.is_some(), name));
    }
    let mut status = engine.status_without_pools(now);
    status.balancers.retain(|balancer| {
        balancer.default_pools.contains(&shown.name) || balancer.serving.contains(&shown.name)
    });
    status.records.retain(|records| records.depends_on.iter().any(|needed| needed.pool == pool));
    status.pools = vec![shown];
    let mut whys = Whys::of(engine, &status);
    whys.keep_unresolved(scope.endpoint.as_deref());
    Ok((status, whys))
}

/// A load balancer, or records that follow health, and the pools that they use.
fn status_of_name(engine: &Engine, of: &str, now: Moment) -> Result<(engine::Status, Whys), Refusal> {
    let model = engine.model();
    let unknown = |name: Option<&Name>| orders::unknown_name(model, of, name);
    let name: Name = of.parse().map_err(|_| unknown(None))?;
    let mut status = engine.status_without_pools(now);
    status.balancers.retain(|balancer| balancer.name == name);
    status.records.retain(|records| records.owner == name);
    if status.balancers.is_empty() && status.records.is_empty() {
        return Err(unknown(Some(&name)));
    }
    let balancers = model.zones.iter().flat_map(|zone| &zone.load_balancers);
    let used = balancers.filter(|balancer| balancer.name == name).flat_map(LoadBalancer::pools);
    let needed = status.records.iter().flat_map(|records| &records.depends_on).map(|needed| needed.pool);
    let pools: BTreeSet<PoolId> = used.chain(needed).collect(); // in the order of the configuration
    status.pools = pools.into_iter().map(|pool| engine.pool_view(pool, now)).collect();
    let whys = Whys::of(engine, &status);
    Ok((status, whys))
}

/// The probes that an operator may ask for of `of` when this is configured and
/// nothing runs, its host names looked up now; and which of those have no
/// address, and why.
pub async fn tasks_of(loaded: &Loaded, of: &str) -> Result<(Vec<Arc<ProbeTask>>, Vec<String>), String> {
    let clock = Clock::start();
    let (now, scope) = (clock.now(), orders::scope_as_written(of));
    let (mut hosts, mut model) = (Hosts::default(), Arc::clone(&loaded.model));
    let mut failures = Vec::new();
    if let Some(pool) = model.pool_named(&scope.pool).map(|id| model.pool(id)) {
        hosts.adopt(&model, |other| other.name == pool.name, now);
        let lookups = Arc::new(Lookups::new(&loaded.settings.resolvers, clock));
        let is_wanted = |name: &Arc<str>| scope.endpoint.as_ref().is_none_or(|of| names_host(of, name));
        let wanted: Vec<_> = pool.hosts.iter().filter(|host| is_wanted(&host.endpoint.name)).collect();
        let running = wanted.iter().map(|host| {
            let (lookups, hostname) = (Arc::clone(&lookups), Arc::clone(&host.hostname));
            tokio::spawn(async move { lookups.look_up(&hostname).await })
        });
        for (lookup, host) in running.collect::<Vec<_>>().into_iter().zip(&wanted) {
            let lookup = lookup.await.unwrap_or(engine::Lookup::Failed);
            hosts.found(&host.hostname, lookup, now);
            if let Some(failure) = lookups.failure(&host.hostname) {
                let (pool, name) = (&pool.name, &host.endpoint.name);
                failures.push(format!("{pool}/{name} ({}) can't be probed: {failure}", host.hostname));
            }
        }
        model = hosts.expand(&model).map_or(Arc::clone(&model), Arc::new);
    }
    let mut table = Table::default();
    table.adopt(model, Moment::ZERO, false);
    match orders::tasks(&table, of) {
        Ok(tasks) => Ok((tasks, failures)),
        Err(_) if !failures.is_empty() => Err(failures.join("\n")),
        Err(refusal) => Err(refusal.message),
    }
}
