//! Lives through a scenario.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::Drive;
use super::network::Network;
use super::script::{Deed, Expected, Script, Setup, Want};
use super::timeline::{
    Answering, BalancerRow, Checked, EndpointRow, Happened, Held, PoolRow, Stand, Timeline, Track, Who,
};
use crate::authority::Snapshot;
use crate::engine::{BalancerView, Change, EndpointView, Engine, Status};
use crate::health::{Memory, Order, Standing, Verdict};
use crate::model::{LoadBalancer, Model, Name, Pool, Reach, Scope, WhenUnavailable, is_called};
use crate::moment::Moment;

/// How often vantages elsewhere report.
const REPORTS: Duration = Duration::from_secs(5);

/// A scenario that never gets quiet ends so long after its last step.
const LONGEST: Duration = Duration::from_secs(30 * 60);

/// As many probes at once as the server allows where nothing is said.
const MAX_PROBES: usize = 10_000;

/// Lives through `script`; `words` says a change as people read it. More than
/// `most` events are too many.
pub fn play(script: &Script, most: u64, words: fn(&Change) -> String) -> Result<Timeline, String> {
    let mut player = Player::new(script, most, words);
    player.live(script)?;
    Ok(player.timeline)
}

struct Player {
    drive: Drive,
    network: Network,
    setup: Setup,
    words: fn(&Change) -> String,
    /// When the server began to answer.
    zero: Moment,
    timeline: Timeline,
    /// Since when all is as it is.
    changed: Moment,
    reports_at: Moment,
    events: u64,
    most: u64,
    /// Of servers before this one.
    probes: u64,
    /// What the last look was at.
    seen: Option<(Arc<Snapshot>, Arc<Model>)>,
}

impl Player {
    fn new(script: &Script, most: u64, words: fn(&Change) -> String) -> Player {
        let engine = engine(&script.setup, script.start);
        let timeline = Timeline { title: script.title.clone(), ..Timeline::default() };
        Player {
            drive: Drive::new(engine, Arc::clone(&script.setup.model), script.start),
            network: Network::default(),
            setup: script.setup.clone(),
            words,
            zero: script.start,
            timeline,
            changed: script.start,
            reports_at: script.start,
            events: 0,
            most,
            probes: 0,
            seen: None,
        }
    }

    fn live(&mut self, script: &Script) -> Result<(), String> {
        for deed in &script.begin {
            self.happen(deed)?;
        }
        self.get_ready()?;
        self.zero = self.drive.now();
        self.timeline.start = self.zero.elapsed().as_secs();
        self.drive.told.clear(); // so it begins
        self.changed = self.zero;
        self.look(true);
        let mut last = Duration::ZERO;
        for step in &script.steps {
            self.run_until(self.zero + step.at)?;
            for deed in &step.deeds {
                let at = self.time();
                self.timeline.events.push(Happened { at, who: Who::Scenario, text: deed.to_string() });
                self.happen(deed)?;
            }
            self.look(true);
            for expected in &step.expected {
                let checked = self.check(expected);
                self.timeline.checks.push(checked);
            }
            last = self.time();
        }
        let end = match script.run_on {
            Some(time) => last + time,
            None => self.run_until_quiet(last)?,
        };
        self.run_until(self.zero + end)?;
        self.timeline.close(end);
        self.timeline.probes = self.probes + self.drive.probes;
        Ok(())
    }

    /// The time since the server began to answer.
    fn time(&self) -> Duration {
        self.drive.now().since(self.zero)
    }

    /// Goes on until the first round of probes is over.
    fn get_ready(&mut self) -> Result<(), String> {
        self.report();
        self.drive.settle(&mut self.network)?;
        let limit = self.drive.now() + self.setup.startup_wait + Duration::from_secs(1);
        while !self.drive.ready {
            self.count()?;
            if !self.drive.step(limit, &mut self.network)? {
                return Err("the server doesn't get ready".into());
            }
        }
        // what followed from the first round is published as well
        let published = self.drive.now() + Duration::from_millis(20);
        while self.drive.is_behind() && self.drive.step(published, &mut self.network)? {}
        Ok(())
    }

    fn run_until(&mut self, moment: Moment) -> Result<(), String> {
        while self.drive.now() < moment {
            let turns = self.network.turns(self.drive.now());
            let limit = [Some(moment), turns, Some(self.reports_at)].into_iter().flatten().min();
            let limit = limit.expect("one of them is there");
            while self.drive.step(limit, &mut self.network)? {
                self.count()?;
                self.look(false);
            }
            if self.reports_at <= self.drive.now() {
                self.report();
                self.drive.settle(&mut self.network)?;
            }
            self.look(turns.is_some_and(|at| at <= self.drive.now()));
        }
        Ok(())
    }

    /// Goes on until nothing changes any more; gives the end of what is worth
    /// seeing.
    fn run_until_quiet(&mut self, last: Duration) -> Result<Duration, String> {
        let longest = self.zero + last + LONGEST;
        loop {
            let quiet_at = self.changed.max(self.zero + last) + patience(self.drive.engine.model());
            let until = quiet_at.min(longest);
            self.run_until(until)?;
            let still = self.changed.max(self.zero + last) + patience(self.drive.engine.model());
            if self.drive.now() >= longest || still <= self.drive.now() {
                break;
            }
        }
        let ttl = self.timeline.balancers.iter().map(|row| row.ttl).max().unwrap_or(0);
        let moved = self.changed.since(self.zero) + Duration::from_secs(u64::from(ttl));
        let content = last.max(moved);
        let end = content + (content / 12).max(Duration::from_secs(10));
        Ok(Duration::from_secs(end.min(last + LONGEST).as_secs()))
    }

    fn count(&mut self) -> Result<(), String> {
        self.events += 1;
        match self.events > self.most {
            true => Err(format!(
                "at {:?} more than {} events have happened: shorten the scenario, or probe less often in it",
                self.time(),
                self.most
            )),
            false => Ok(()),
        }
    }

    /// Vantages elsewhere tell what is so.
    fn report(&mut self) {
        let now = self.drive.now();
        self.reports_at = now + REPORTS;
        let model = Arc::clone(self.drive.engine.model());
        for pool in &model.pools {
            let vantages = pool.viewpoints.vantages.iter().map(|id| &model.vantage(*id).reach);
            if vantages.into_iter().all(|reach| *reach != Reach::Remote) {
                continue;
            }
            for id in &pool.viewpoints.vantages {
                let vantage = model.vantage(*id);
                if vantage.reach != Reach::Remote || !self.network.is_connected(&vantage.name) {
                    continue;
                }
                for endpoint in &pool.endpoints {
                    let scope = scope_of(pool, &endpoint.name);
                    let verdict = match self.network.works_from(&vantage.name, &scope, endpoint.address, now)
                    {
                        true => Verdict::Healthy,
                        false => Verdict::Unhealthy,
                    };
                    // an endpoint that is switched off has nobody who wants to know
                    let _ = self.drive.engine.report(&scope, &vantage.name, verdict, now, now);
                }
            }
        }
    }

    fn happen(&mut self, deed: &Deed) -> Result<(), String> {
        let now = self.drive.now();
        match deed {
            Deed::Behave { whose, seen, manner } => {
                self.network.behave(whose.clone(), seen.clone(), *manner, now);
            }
            Deed::Lookup { hostname, lookup } => self.network.rename(Arc::clone(hostname), lookup.clone()),
            Deed::Vantage { name, up } => self.network.connect(Arc::clone(name), *up),
            Deed::Order { scope, action } => {
                let order =
                    Order::Set { action: *action, reason: "".into(), by: "the scenario".into(), until: None };
                self.order(scope, order)?;
            }
            Deed::Clear { scope, slots } => {
                for slot in *slots {
                    self.order(scope, Order::Clear(*slot))?;
                }
            }
            Deed::FailBack(name) => drop(self.drive.engine.fail_back(name, now)),
            Deed::Reload(setup) => {
                self.setup = setup.clone();
                self.drive.reload(Arc::clone(&setup.model), &mut self.network)?;
            }
            Deed::Restart(away) => return self.restart(*away),
        }
        self.drive.settle(&mut self.network)
    }

    fn order(&mut self, scope: &Scope, order: Order) -> Result<(), String> {
        let now = self.drive.now();
        let done = self.drive.engine.order(scope, order, now);
        done.map_err(|unknown| format!("at {:?} there is no {}", self.time(), unknown.0))?;
        Ok(())
    }

    /// The server ends, and another one starts a while later.
    fn restart(&mut self, away: Duration) -> Result<(), String> {
        self.look(true);
        let now = self.drive.now();
        let memory = match self.setup.remembers {
            Some(_) => self.drive.engine.memory(now),
            None => Memory::default(),
        };
        let at = self.time();
        let there =
            |row: &&mut BalancerRow| row.track.spans().last().is_some_and(|it| it.value != Held::Absent);
        for row in self.timeline.balancers.iter_mut().filter(there) {
            row.track.note(at, Held::Down);
        }
        for row in &mut self.timeline.pools {
            row.track.note(at, None);
        }
        for row in &mut self.timeline.endpoints {
            row.track.note(at, None);
        }
        let now = now + away;
        let mut engine = engine(&self.setup, now);
        engine.recall(memory, now.before(self.setup.remembers.unwrap_or_default()), now);
        self.probes += self.drive.probes;
        self.drive = Drive::new(engine, Arc::clone(&self.setup.model), now);
        self.get_ready()?;
        self.drive.told.retain(|(_, change)| is_news(change)); // the rest stands as it stood
        Ok(())
    }

    /// Notes what is so, if something may be different.
    fn look(&mut self, anyway: bool) {
        let (published, model) = (self.drive.published(), self.drive.engine.model());
        let same = self
            .seen
            .as_ref()
            .is_some_and(|(snapshot, of)| Arc::ptr_eq(snapshot, published) && Arc::ptr_eq(of, model));
        if same && self.drive.told.is_empty() && !anyway {
            return;
        }
        self.seen = Some((Arc::clone(published), Arc::clone(model)));
        self.tell();
        let status = self.drive.engine.status(self.drive.now());
        let changed = self.note_pools(&status) | self.note_balancers(&status);
        if changed {
            self.changed = self.drive.now();
        }
    }

    /// Writes down what was told.
    fn tell(&mut self) {
        for (at, change) in std::mem::take(&mut self.drive.told) {
            let (at, text) = (at.since(self.zero), (self.words)(&change));
            self.timeline.events.push(Happened { at, who: Who::Server, text });
        }
    }

    /// Notes pools and endpoints; tells whether one stands differently.
    fn note_pools(&mut self, status: &Status) -> bool {
        let (at, now) = (self.time(), self.drive.now());
        let mut changed = false;
        for row in &mut self.timeline.pools {
            let pool = status.pools.iter().find(|pool| pool.name == row.name);
            changed |= row.track.note(at, pool.map(|pool| pool.health.state));
        }
        for pool in &status.pools {
            if !self.timeline.pools.iter().any(|row| row.name == pool.name) {
                let mut row = PoolRow { name: Arc::clone(&pool.name), track: Track::default() };
                begin(&mut row.track, at, None);
                row.track.note(at, Some(pool.health.state));
                self.timeline.pools.push(row);
            }
        }
        let mut order: Vec<(Scope, IpAddr)> = Vec::new();
        let mut there: BTreeMap<(Scope, IpAddr), Standing> = BTreeMap::new();
        for pool in &status.pools {
            for endpoint in &pool.endpoints {
                let scope =
                    Scope { pool: Arc::clone(&pool.name), endpoint: Some(Arc::clone(&endpoint.name)) };
                order.push((scope.clone(), endpoint.address));
                there.insert((scope, endpoint.address), endpoint.standing);
            }
        }
        for row in &mut self.timeline.endpoints {
            let found = there.remove(&(row.scope.clone(), row.address));
            let works = self.network.works(&row.scope, row.address, now);
            changed |= row.track.note(at, found.map(|standing| stand(&standing, works)));
        }
        for (scope, address) in order {
            let Some(standing) = there.remove(&(scope.clone(), address)) else { continue };
            let mut track = Track::default();
            begin(&mut track, at, None);
            track.note(at, Some(stand(&standing, self.network.works(&scope, address, now))));
            self.timeline.endpoints.push(EndpointRow { scope, address, track });
        }
        changed
    }

    /// Notes what is published; tells whether something else is answered.
    fn note_balancers(&mut self, status: &Status) -> bool {
        if self.drive.is_behind() {
            return self.note_unfit(); // what is published goes on
        }
        let (at, model) = (self.time(), Arc::clone(self.drive.engine.model()));
        let declared = model.zones.iter().flat_map(|zone| &zone.load_balancers);
        let published = Arc::clone(self.drive.published());
        let mut changed = false;
        let mut there: Vec<(&LoadBalancer, u32, Answering)> = Vec::new();
        for ((balancer, view), compiled) in declared.zip(&status.balancers).zip(&published.balancers) {
            let ipv4 = compiled.ipv4.addresses().into_iter().map(IpAddr::from);
            let ipv6 = compiled.ipv6.addresses().into_iter().map(IpAddr::from);
            if balancer.enabled {
                let answering = self.answering(&model, balancer, view, ipv4.chain(ipv6).collect());
                there.push((balancer, compiled.ttl, answering));
            }
        }
        for row in &mut self.timeline.balancers {
            let found = there.iter().find(|(balancer, ..)| balancer.name == row.name);
            if let Some((_, ttl, _)) = found {
                row.ttl = row.ttl.max(*ttl);
            }
            let held = found.map_or(Held::Absent, |(.., answering)| Held::Answers(answering.clone()));
            changed |= row.track.note(at, held);
        }
        for (balancer, ttl, answering) in there {
            if !self.timeline.balancers.iter().any(|row| row.name == balancer.name) {
                let mut track = Track::default();
                begin(&mut track, at, Held::Absent);
                track.note(at, Held::Answers(answering));
                let name = balancer.name.clone();
                self.timeline.balancers.push(BalancerRow { name, ttl, track });
                changed = true;
            }
        }
        changed
    }

    fn answering(
        &self,
        model: &Model,
        balancer: &LoadBalancer,
        view: &BalancerView,
        addresses: BTreeSet<IpAddr>,
    ) -> Answering {
        let now = self.drive.now();
        let fallback = match balancer.when_unavailable {
            WhenUnavailable::FallbackPool(pool) => Some(pool),
            WhenUnavailable::Nodata => None,
        };
        let pools = || balancer.default_pools.iter().copied().chain(fallback).map(|id| model.pool(id));
        let serving = pools().filter(|pool| view.serving.contains(&pool.name));
        // those of pools that serve go first: one address may be in several
        let endpoints = serving.chain(pools()).flat_map(|pool| {
            pool.endpoints.iter().map(|endpoint| (scope_of(pool, &endpoint.name), endpoint.address))
        });
        let endpoints: Vec<(Scope, IpAddr)> = endpoints.collect();
        let unfit = addresses.iter().filter_map(|address| {
            let (scope, _) = endpoints.iter().find(|(_, of)| of == address)?;
            (!self.network.works(scope, *address, now)).then(|| (scope.clone(), *address))
        });
        Answering {
            state: view.state,
            pools: view.serving.clone(),
            fallback: view.fallback,
            unfit: unfit.collect(),
            addresses,
        }
    }

    /// Notes which of the answered addresses work, while the answers stay.
    fn note_unfit(&mut self) -> bool {
        let (at, now) = (self.time(), self.drive.now());
        for row in &mut self.timeline.balancers {
            let Some(held) = row.track.spans().last().and_then(|span| span.value.answers()).cloned() else {
                continue;
            };
            let endpoints = self.timeline.endpoints.iter();
            let in_answers = endpoints
                .filter(|end| held.addresses.contains(&end.address) && held.pools.contains(&end.scope.pool));
            let unfit = in_answers.filter(|end| !self.network.works(&end.scope, end.address, now));
            let unfit = unfit.map(|end| (end.scope.clone(), end.address)).collect();
            row.track.note(at, Held::Answers(Answering { unfit, ..held }));
        }
        false
    }

    fn check(&self, expected: &Expected) -> Checked {
        let status = self.drive.engine.status(self.drive.now());
        let balancer = |name: &Name| status.balancers.iter().find(|balancer| balancer.name == *name);
        let nothing = || "nothing of that name".to_owned();
        let (what, wanted, got) = match &expected.what {
            Want::Answers { name, ipv6, addresses } => {
                let row = self.timeline.balancers.iter().find(|row| row.name == *name);
                let last = row.and_then(|row| row.track.spans().last()?.value.answers());
                let of_family = |answering: &Answering| {
                    answering.addresses.iter().copied().filter(|it| it.is_ipv6() == *ipv6).collect()
                };
                let got = last.map_or_else(nothing, |answering| listed(&of_family(answering)));
                (format!("{name} {}", if *ipv6 { "AAAA" } else { "A" }), listed(addresses), got)
            }
            Want::Serving { name, pools } => {
                let got = balancer(name).map_or_else(nothing, |view| named(&view.serving));
                (name.to_string(), named(pools), got)
            }
            Want::Balancer { name, state } => {
                let got = balancer(name).map_or_else(nothing, |view| view.state.to_string());
                (name.to_string(), state.to_string(), got)
            }
            Want::Pool { name, state } => {
                let pool = status.pools.iter().find(|pool| pool.name == *name);
                (
                    name.to_string(),
                    state.to_string(),
                    pool.map_or_else(nothing, |it| it.health.state.to_string()),
                )
            }
            Want::Endpoint { scope, word } => {
                let pool = status.pools.iter().find(|pool| pool.name == scope.pool);
                let mut ends = pool.iter().flat_map(|pool| &pool.endpoints);
                let called = |end: &&EndpointView| {
                    let name = scope.endpoint.as_deref().unwrap_or_default();
                    is_called(&end.name, end.hostname.is_some(), name)
                };
                let end = ends.find(called);
                let got = end.map_or_else(nothing, |end| end.standing.word().to_owned());
                (scope.to_string(), (*word).to_owned(), got)
            }
        };
        Checked { at: self.time(), place: expected.place.clone(), what, expected: wanted, got }
    }
}

fn engine(setup: &Setup, now: Moment) -> Engine {
    let mut engine = Engine::new(setup.max_probes.map_or(MAX_PROBES, |number| number as usize));
    engine.ready_by(now + setup.startup_wait);
    engine
}

/// Whether something is different from before.
fn is_news(change: &Change) -> bool {
    match change {
        Change::Endpoint { from, to, .. } => from.without_share() != to.without_share(),
        Change::Pool { from, to, .. } => *from != to.state,
        Change::Balancer { from, to, .. } => from != to,
        Change::Records { from, to, .. } => from != to,
        Change::Verdict { .. }
        | Change::Gone { .. }
        | Change::CannotProbe { .. }
        | Change::Vantage { .. } => true,
    }
}

/// What appears later was not there before.
fn begin<T: PartialEq>(track: &mut Track<T>, at: Duration, nothing: T) {
    if at > Duration::ZERO {
        track.note(Duration::ZERO, nothing);
    }
}

fn scope_of(pool: &Pool, endpoint: &Arc<str>) -> Scope {
    Scope { pool: Arc::clone(&pool.name), endpoint: Some(Arc::clone(endpoint)) }
}

fn stand(standing: &Standing, works: bool) -> Stand {
    let up = standing.fitness.is_up();
    Stand {
        word: standing.word(),
        up,
        partial: up && standing.percent < 100,
        stale: standing.stale,
        degraded: standing.degraded.is_some(),
        starting: standing.starting,
        measured: standing.verdict != Verdict::Unknown,
        works,
    }
}

fn listed(addresses: &BTreeSet<IpAddr>) -> String {
    match addresses.is_empty() {
        true => "no address".into(),
        false => addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", "),
    }
}

fn named(pools: &[Arc<str>]) -> String {
    if pools.is_empty() { "no pool".into() } else { pools.join(", ") }
}

/// When nothing has changed for so long, nothing changes any more.
fn patience(model: &Model) -> Duration {
    let runs = model.monitors.iter().map(|monitor| {
        let probe = monitor.longest_probe();
        let beat = monitor.interval.max(probe) + probe;
        beat.saturating_mul(monitor.thresholds.up.max(monitor.thresholds.down) + 1)
    });
    let rules = model.pools.iter().map(|pool| {
        let rules = &pool.rules;
        let start = rules.start_period.unwrap_or_default();
        let ejected = rules.ejection.as_ref().map_or(Duration::ZERO, |ejection| ejection.max_ejection_time);
        start
            + rules.stale_after
            + rules.flap_window
            + rules.flap_hold
            + rules.slow_start
            + rules.drain_wait
            + if pool.hosts.is_empty() { Duration::ZERO } else { rules.stale_if_error }
            + ejected
    });
    let balancers = || model.zones.iter().flat_map(|zone| &zone.load_balancers);
    let moves = balancers().map(|balancer| balancer.moves.failover_delay.max(balancer.moves.failback_delay));
    let ttl = balancers().map(|balancer| Duration::from_secs(u64::from(balancer.ttl))).max();
    let longest = |times: &mut dyn Iterator<Item = Duration>| times.max().unwrap_or_default();
    let own = longest(&mut { runs }) + longest(&mut { rules }) + longest(&mut { moves });
    own + ttl.unwrap_or_default() + model.doubt.hold
}
