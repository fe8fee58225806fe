//! The control plane as a value: events and the time go in, effects come out.
//!
//! Owns the table of targets, the probe schedule and the compiled answers, and
//! decides when a snapshot is published. Whoever holds an engine carries out
//! its effects, reports what happened, and comes back at `wake_at`: the server
//! does so with sockets and a clock, a scenario with neither.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::authority::{BalancerState, BalancerStatus, Compiler, Prepared, Snapshot, Traffic};
use crate::health::{
    Outcome, PoolHealth, PoolState, ProbeTask, Reason, Rhythm, Schedule, ScheduleCounters, Table, TargetId,
    Verdict,
};
use crate::model::{Model, Name, PoolId, Serial};
use crate::moment::Moment;

/// After a publication further changes are gathered for so long.
const GATHER: Duration = Duration::from_millis(20);

/// A new configuration is held back at most so long after the last of its new
/// targets was due, so that a renamed pool or a replaced address blanks nothing.
/// An endpoint that falls meanwhile ends the wait.
const HOLD: Duration = Duration::from_millis(500);

/// Changes of answers are gathered for so long before a serial goes up.
const SERIAL_GATHER: Duration = Duration::from_secs(1);

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// The operator declared something else.
    Reload(Prepared),
    /// A probe came to its end.
    Probed { target: TargetId, outcome: Outcome },
}

/// Something to be done.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Make this probe, and report its outcome.
    Probe { target: TargetId, task: Arc<ProbeTask> },
    /// Nobody waits for this probe any more.
    Abandon { target: TargetId },
    /// From now on answer from this.
    Publish(Arc<Snapshot>),
    /// The first round is over: there is something to answer. Comes once.
    Ready {
        /// Every target was probed; else the time was up.
        complete: bool,
    },
    /// Tell people.
    Tell(Change),
}

/// What people want to know, once each time it happens. At the start, and when
/// something is new, `from` and `to` may be the same: so it stands.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The verdict of one monitor on an endpoint.
    Verdict {
        pool: Arc<str>,
        endpoint: Arc<str>,
        monitor: Arc<str>,
        from: Verdict,
        to: Verdict,
        reason: Reason,
        detail: &'static str,
        status: Option<u16>,
        /// Since when `from` had held.
        since: Moment,
    },
    /// Probes of an endpoint can't be made, for a cause on this side.
    CannotProbe {
        pool: Arc<str>,
        endpoint: Arc<str>,
        monitor: Arc<str>,
        reason: Reason,
        detail: &'static str,
    },
    /// The state of a pool.
    Pool { pool: Arc<str>, from: PoolState, to: PoolHealth, threshold: u32, since: Moment },
    /// The state of a load balancer, or where its traffic goes.
    Balancer {
        name: Name,
        from: BalancerState,
        to: BalancerState,
        /// The pools that answer now; empty: only the SOA.
        serving: Vec<Arc<str>>,
        /// Those are the fallback pool.
        fallback: bool,
        since: Moment,
    },
}

/// The whole control plane.
#[derive(Debug)]
pub struct Engine {
    compiler: Compiler,
    table: Table,
    schedule: Schedule,
    effects: VecDeque<Effect>,
    serials: Vec<u32>,
    /// Of every zone ever served: one that comes back goes on where it was.
    last_serials: HashMap<Name, u32>,
    /// Unix time, in seconds, at the beginning of the time line.
    epoch: u64,
    /// When something unpublished goes out.
    publish_at: Option<Moment>,
    published: Option<Moment>,
    /// When the configuration in force was taken on.
    adopted: Moment,
    /// A reload waits for its new targets, until then at most.
    hold_until: Option<Moment>,
    ready: bool,
    /// When the first round is over in any case.
    ready_by: Option<Moment>,
    /// Zones whose answers changed, and when their serials go up.
    changed_zones: BTreeSet<usize>,
    serials_at: Option<Moment>,
    pool_since: Vec<Moment>,
    balancer_since: Vec<Moment>,
}

impl Engine {
    /// An engine that serves nothing yet and lets `max_probes` run at once.
    /// `epoch` is the Unix time, in seconds, at [`Moment::ZERO`].
    pub fn new(max_probes: usize, epoch: u64) -> Engine {
        let table = Table::default();
        Engine {
            compiler: Compiler::new(Prepared::new(Arc::default()), &table),
            table,
            schedule: Schedule::new(max_probes),
            effects: VecDeque::new(),
            serials: Vec::new(),
            last_serials: HashMap::new(),
            epoch,
            publish_at: None,
            published: None,
            adopted: Moment::ZERO,
            hold_until: None,
            ready: false,
            ready_by: None,
            changed_zones: BTreeSet::new(),
            serials_at: None,
            pool_since: Vec::new(),
            balancer_since: Vec::new(),
        }
    }

    /// Ends the first round at `at`, complete or not.
    pub fn ready_by(&mut self, at: Moment) {
        self.ready_by = Some(at);
    }

    /// Takes in an event.
    pub fn handle(&mut self, event: Event, now: Moment) {
        match event {
            Event::Reload(prepared) => self.reload(prepared, now),
            Event::Probed { target, outcome } => self.probed(target, &outcome, now),
        }
        self.advance(now);
    }

    /// Does what is due by now.
    pub fn advance(&mut self, now: Moment) {
        while let Some(id) = self.schedule.begin(&self.table, now) {
            let task = &self.table.target(id).expect("only targets of the table begin").task;
            self.effects.push_back(Effect::Probe { target: id, task: Arc::clone(task) });
        }
        if self.serials_at.is_some_and(|at| at <= now) {
            self.serials_at = None;
            for zone in std::mem::take(&mut self.changed_zones) {
                self.serials[zone] = next_serial(self.serials[zone], self.unix(now));
            }
            self.publish_soon(now);
        }
        if self.publish_at.is_some_and(|at| at <= now) {
            self.publish_at = None;
            self.hold_until = None;
            self.published = Some(now);
            self.effects.push_back(Effect::Publish(Arc::new(self.snapshot())));
        }
        let complete = self.is_settled();
        if !self.ready && (complete || self.ready_by.is_some_and(|at| at <= now)) {
            self.ready = true;
            self.tell_what_stands();
            self.effects.push_back(Effect::Ready { complete });
        }
    }

    /// The next thing to be done, in order.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When to call [`Engine::advance`] next, if nothing happens before.
    pub fn wake_at(&self) -> Option<Moment> {
        let ready_by = self.ready_by.filter(|_| !self.ready);
        [self.schedule.wake_at(), self.publish_at, self.serials_at, ready_by].into_iter().flatten().min()
    }

    /// Whether every target has been probed at least once, and what followed
    /// is published.
    pub fn is_settled(&self) -> bool {
        self.table.is_settled() && self.publish_at.is_none()
    }

    /// The answers as they stand, published or not.
    pub fn snapshot(&self) -> Snapshot {
        self.compiler.snapshot(&self.serials)
    }

    /// The configuration in force.
    pub fn model(&self) -> &Arc<Model> {
        self.compiler.model()
    }

    /// The targets and what is held of them.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The compiled pools and load balancers.
    pub fn compiled(&self) -> &Compiler {
        &self.compiler
    }

    /// What the probe schedule has counted.
    pub fn counters(&self) -> ScheduleCounters {
        self.schedule.counters()
    }

    fn reload(&mut self, prepared: Prepared, now: Moment) {
        self.adopted = now;
        if self.hold_until.is_none() && self.publish_at.take().is_some() && self.published.is_some() {
            // what was to be published of the old configuration is not to wait for the new one
            self.effects.push_back(Effect::Publish(Arc::new(self.snapshot())));
        }
        let new = self.table.adopt(prepared.model(), now);
        for target in self.schedule.adopt(&self.table, now) {
            self.effects.push_back(Effect::Abandon { target });
        }
        for &id in &new {
            let target = self.table.target(id).expect("adopted just now");
            self.schedule.plan(id, target.rhythm.first(now, new.len()));
        }
        let compiler = Compiler::new(prepared, &self.table);
        let before = std::mem::replace(&mut self.compiler, compiler);
        let unix = self.unix(now);
        let zones_before = &before.model().zones;
        let place_before = |apex: &Name| zones_before.binary_search_by(|zone| zone.apex.cmp(apex)).ok();
        for (zone, serial) in zones_before.iter().zip(&self.serials) {
            self.last_serials.insert(zone.apex.clone(), *serial);
        }
        // answers that changed just before still wait for their serial
        let unchanged = |place: usize, old: usize| {
            !self.changed_zones.contains(&old) && self.compiler.answers_alike(place, &before, old)
        };
        self.serials = (self.compiler.model().zones.iter().enumerate())
            .map(|(place, zone)| match (self.last_serials.get(&zone.apex), zone.soa.serial) {
                (None, Serial::Auto) => unix,
                (None, Serial::From(number)) => number,
                (Some(&last), _) if place_before(&zone.apex).is_some_and(|old| unchanged(place, old)) => last,
                (Some(&last), Serial::From(number)) if is_newer(number, last) => number,
                (Some(&last), _) => next_serial(last, unix),
            })
            .collect();
        self.changed_zones.clear();
        self.serials_at = None;
        self.tell_of_reload(&before, now);
        if self.published.is_some() && !new.is_empty() {
            // a hold that has begun goes on, however many reloads come
            self.hold_until.get_or_insert(now + HOLD + Rhythm::first_round(new.len()));
        }
        self.publish_at = Some(self.hold_until.unwrap_or(now));
    }

    /// Lets out what a reload has held back.
    fn release(&mut self, now: Moment) {
        if self.hold_until.take().is_some() {
            self.publish_at = Some(now);
        }
    }

    /// Tells of every pool and load balancer that isn't well: what was so from
    /// the beginning never changed, and would not be heard of.
    fn tell_what_stands(&mut self) {
        let model = self.compiler.model();
        for (pool, id) in model.pools.iter().zip(0..) {
            let (health, since) = (self.compiler.pool(PoolId(id)), self.pool_since[id as usize]);
            let unwell = matches!(health.state, PoolState::Disabled | PoolState::Critical);
            if unwell && since == self.adopted {
                let change = pool_change(pool, health.state, health, since);
                self.effects.push_back(Effect::Tell(change));
            }
        }
        for (number, (balancer, status)) in self.compiler.balancers().enumerate() {
            let since = self.balancer_since[number];
            if status.state != BalancerState::Healthy && since == self.adopted {
                let change = balancer_change(model, &balancer.name, status.state, status, since);
                self.effects.push_back(Effect::Tell(change));
            }
        }
    }

    /// Tells how states moved by the reload, and keeps since when they hold.
    fn tell_of_reload(&mut self, before: &Compiler, now: Moment) {
        let model = Arc::clone(self.compiler.model());
        let old_pools: HashMap<_, _> = (before.model().pools.iter().zip(0..))
            .map(|(pool, id)| (&*pool.name, (before.pool(PoolId(id)), self.pool_since[id as usize])))
            .collect();
        let mut pool_since = Vec::with_capacity(model.pools.len());
        for (pool, id) in model.pools.iter().zip(0..) {
            let health = self.compiler.pool(PoolId(id));
            pool_since.push(match old_pools.get(&*pool.name) {
                Some((old, since)) if old.state == health.state => *since,
                Some((old, since)) => {
                    self.effects.push_back(Effect::Tell(pool_change(pool, old.state, health, *since)));
                    now
                }
                None => now,
            });
        }
        let old_balancers: HashMap<_, _> = (before.balancers().enumerate())
            .map(|(number, (balancer, status))| {
                let serving = serving(before.model(), status);
                (&balancer.name, (status.state, serving, self.balancer_since[number]))
            })
            .collect();
        let mut balancer_since = Vec::new();
        for (balancer, status) in self.compiler.balancers() {
            let now_serving = serving(&model, status);
            balancer_since.push(match old_balancers.get(&balancer.name) {
                Some((state, serving, since)) if *state == status.state && *serving == now_serving => *since,
                Some((state, _, since)) => {
                    let change = balancer_change(&model, &balancer.name, *state, status, *since);
                    self.effects.push_back(Effect::Tell(change));
                    now
                }
                None => {
                    if self.ready && status.state != BalancerState::Healthy {
                        let change = balancer_change(&model, &balancer.name, status.state, status, now);
                        self.effects.push_back(Effect::Tell(change));
                    }
                    now
                }
            });
        }
        self.pool_since = pool_since;
        self.balancer_since = balancer_since;
    }

    fn probed(&mut self, id: TargetId, outcome: &Outcome, now: Moment) {
        let observed = self.table.observe(id, outcome, now);
        self.schedule.end(id, &self.table, now);
        let (Some(observed), Some(target)) = (observed, self.table.target(id)) else { return };
        let task = &target.task;
        let (pool, endpoint) = (Arc::clone(&task.pool), Arc::clone(&task.endpoint));
        let monitor = Arc::clone(&task.monitor.name);
        let pool_id = target.pool;
        let fell = observed.transition.is_some_and(|moved| moved.from == Verdict::Healthy);
        if let Some(moved) = observed.transition {
            self.effects.push_back(Effect::Tell(Change::Verdict {
                pool,
                endpoint,
                monitor,
                from: moved.from,
                to: moved.to,
                reason: outcome.reason,
                detail: outcome.detail,
                status: outcome.status,
                since: moved.since,
            }));
        } else if observed.newly_blocked {
            let (reason, detail) = (outcome.reason, outcome.detail);
            self.effects.push_back(Effect::Tell(Change::CannotProbe {
                pool,
                endpoint,
                monitor,
                reason,
                detail,
            }));
        }
        if observed.endpoint_changed {
            self.refresh(pool_id, now);
        }
        if fell || self.table.is_settled() {
            self.release(now);
        }
    }

    /// An endpoint's verdict changed: recompiles what depends on it.
    fn refresh(&mut self, id: PoolId, now: Moment) {
        let changes = self.compiler.refresh(id, &self.table);
        let model = Arc::clone(self.compiler.model());
        if let Some(before) = changes.pool {
            let since = std::mem::replace(&mut self.pool_since[id.0 as usize], now);
            let change = pool_change(model.pool(id), before.state, self.compiler.pool(id), since);
            self.effects.push_back(Effect::Tell(change));
        }
        for (number, before) in changes.balancers {
            let since = std::mem::replace(&mut self.balancer_since[number], now);
            let (balancer, status) = self.compiler.balancer(number);
            let change = balancer_change(&model, &balancer.name, before.state, status, since);
            self.effects.push_back(Effect::Tell(change));
        }
        if !changes.zones.is_empty() {
            self.changed_zones.extend(changes.zones);
            self.serials_at.get_or_insert(now + SERIAL_GATHER);
            self.publish_soon(now);
        }
    }

    /// At once, unless something was published within the gathering time.
    fn publish_soon(&mut self, now: Moment) {
        let gathered = self.published.map_or(now, |last| now.max(last + GATHER));
        self.publish_at.get_or_insert(self.hold_until.unwrap_or(gathered));
    }

    /// Unix time in the 32 bits of a serial.
    fn unix(&self, now: Moment) -> u32 {
        (self.epoch + now.elapsed().as_secs()) as u32
    }
}

/// Whether serial `a` comes after `b` (RFC 1982 §3.2).
fn is_newer(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

/// The serial after `last`: the time, unless that would go back.
fn next_serial(last: u32, unix: u32) -> u32 {
    if is_newer(unix, last) { unix } else { last.wrapping_add(1) }
}

fn pool_change(pool: &crate::model::Pool, from: PoolState, to: PoolHealth, since: Moment) -> Change {
    Change::Pool { pool: Arc::clone(&pool.name), from, to, threshold: pool.health_threshold, since }
}

/// The names of the pools that answer.
fn serving(model: &Model, status: &BalancerStatus) -> Vec<Arc<str>> {
    let name = |pool: &PoolId| Arc::clone(&model.pool(*pool).name);
    match &status.traffic {
        Traffic::Pools(pools) => pools.iter().map(name).collect(),
        Traffic::Fallback(pool) => vec![name(pool)],
        Traffic::Nowhere => Vec::new(),
    }
}

fn balancer_change(
    model: &Model,
    name: &Name,
    from: BalancerState,
    status: &BalancerStatus,
    since: Moment,
) -> Change {
    Change::Balancer {
        name: name.clone(),
        from,
        to: status.state,
        serving: serving(model, status),
        fallback: matches!(status.traffic, Traffic::Fallback(_)),
        since,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serials_never_go_back() {
        for (last, unix, next) in
            [(100, 200, 200), (200, 100, 201), (200, 200, 201), (u32::MAX, 5, 5), (u32::MAX, u32::MAX - 9, 0)]
        {
            assert_eq!(next_serial(last, unix), next, "{last} at {unix}");
        }
    }
}
