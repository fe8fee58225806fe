//! The control plane as a value: events and the time go in, effects come out.
//!
//! Owns the table of targets, the probe schedule and the compiled answers, and
//! decides when a snapshot is published. Whoever holds an engine carries out
//! its effects, reports what happened, and comes back at `wake_at`: the server
//! does so with sockets and a clock, a scenario with neither.

mod cause;
mod hosts;
mod records;
mod status;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

pub use cause::{Cause, TakenBack};
pub use hosts::{HostMemory, Hosts, Known, Lookup};
pub use records::Answered;
pub use status::{BalancerView, EndpointView, PoolView, RecordsView, Status, TestView, VantageView};

use crate::authority::{
    BalancerState, BalancerStatus, Compiler, InUse, Prepared, Recompiled, Snapshot, Traffic,
};
use crate::health::{
    Gone, Memory, Move, Order, Outcome, Override, PoolHealth, PoolState, ProbeTask, Reason, Record, Rhythm,
    Schedule, ScheduleCounters, Seen, Slot, Standing, Subject, Table, TargetId, Unknown, Verdict,
};
use crate::model::{Model, Monitor, Name, Pool, PoolId, Scope, Serial};
use crate::moment::Moment;

/// After a publication further changes are gathered for so long.
pub const GATHER: Duration = Duration::from_millis(20);

/// A new configuration is held back for as long as the slowest probe of its new
/// targets may take after the last of them was due, so that a renamed pool or a
/// replaced address blanks nothing. Within these bounds; and an endpoint that
/// falls meanwhile ends the wait.
const HOLD: RangeInclusive<Duration> = Duration::from_millis(500)..=Duration::from_secs(5);

/// For how long a configuration with these new tests is held back.
pub fn hold<'a>(tests: impl Iterator<Item = &'a Monitor>) -> Duration {
    let longest = tests.map(Monitor::longest_probe).max();
    longest.unwrap_or_default().clamp(*HOLD.start(), *HOLD.end())
}

/// Changes of answers are gathered for so long before a serial goes up.
const SERIAL_GATHER: Duration = Duration::from_secs(1);

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// The operator declared something else.
    Reload(Prepared),
    /// A probe came to its end.
    Probed { target: TargetId, outcome: Outcome },
    /// The lookup of an endpoint's host name came to its end.
    Resolved { hostname: Arc<str>, lookup: Lookup },
    /// The wall clock differs from the time line by so many milliseconds.
    ClockStepped(i64),
}

/// Something to be done.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Make this probe, and report its outcome.
    Probe { target: TargetId, task: Arc<ProbeTask> },
    /// Nobody waits for this probe any more.
    Abandon { target: TargetId },
    /// Look up the addresses of this host name.
    Resolve { hostname: Arc<str> },
    /// From now on answer from this.
    Publish(Arc<Snapshot>),
    /// The first round is over: there is something to answer. Comes once.
    Ready {
        /// Every target was probed; else the time was up.
        complete: bool,
    },
    /// Tell people.
    Tell(Change),
    /// Keep this over a restart.
    Remember(Record),
}

/// What people want to know, once each time it happens. At the start, and when
/// something is new, `from` and `to` may be the same: so it stands.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The verdict of one monitor at one vantage, where an endpoint has several.
    Verdict {
        scope: Scope,
        monitor: Arc<str>,
        vantage: Arc<str>,
        from: Verdict,
        to: Verdict,
        reason: Reason,
        detail: &'static str,
        status: Option<u16>,
        /// Since when `from` had held.
        since: Moment,
    },
    /// Where an endpoint stands.
    Endpoint {
        scope: Scope,
        from: Standing,
        to: Standing,
        cause: Cause,
        /// Since when `from` had held.
        since: Moment,
    },
    /// An endpoint isn't there any more.
    Gone {
        scope: Scope,
        from: Standing,
        reason: &'static str,
        /// Since when `from` had held.
        since: Moment,
    },
    /// Probes of an endpoint can't be made, for a cause on this side.
    CannotProbe { scope: Scope, monitor: Arc<str>, vantage: Arc<str>, reason: Reason, detail: &'static str },
    /// A vantage doubts itself, or does so no more.
    Vantage { vantage: Arc<str>, suspect: bool },
    /// The state of a pool.
    Pool {
        pool: Arc<str>,
        from: PoolState,
        to: PoolHealth,
        threshold: u32,
        /// How many there are, whoever wants them out.
        endpoints: u32,
        /// What an operator has said of the pool as a whole.
        said: Option<Override>,
        /// It was switched off until an operator took that back.
        taken_back: Option<TakenBack>,
        since: Moment,
    },
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
    /// How much is answered of records whose members follow health.
    Records {
        name: Name,
        rtype: u16,
        from: Answered,
        to: Answered,
        /// Since when `from` had held.
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
    /// The configuration as declared, and the addresses of its host names.
    declared: Prepared,
    hosts: Hosts,
    /// When addresses that have changed are put in force.
    expand_at: Option<Moment>,
    /// Which pools load balancers with delays used in a former run.
    in_use: InUse,
    /// The wall clock's time less the time line's, in milliseconds.
    step: i64,
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
    /// Of RRsets that follow health.
    records_since: Vec<Moment>,
    /// How things stood in a former run, until it is seen how they stand in this one.
    states_before: BTreeMap<Subject, (Arc<str>, Moment)>,
    /// Who takes something back just now.
    taken_back: Option<TakenBack>,
}

impl Engine {
    /// An engine that serves nothing yet and lets `max_probes` run at once.
    pub fn new(max_probes: usize) -> Engine {
        let table = Table::default();
        let declared = Prepared::new(Arc::new(Model::default()));
        Engine {
            compiler: Compiler::new(declared.clone(), &table, &InUse::new(), Moment::ZERO),
            table,
            declared,
            hosts: Hosts::default(),
            expand_at: None,
            in_use: InUse::new(),
            step: 0,
            schedule: Schedule::new(max_probes),
            effects: VecDeque::new(),
            serials: Vec::new(),
            last_serials: HashMap::new(),
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
            records_since: Vec::new(),
            states_before: BTreeMap::new(),
            taken_back: None,
        }
    }

    /// Ends the first round at `at`, complete or not.
    pub fn ready_by(&mut self, at: Moment) {
        self.ready_by = Some(at);
    }

    /// Takes in what a former run left, before the first configuration; what is
    /// older than `oldest` is no verdict any more.
    pub fn recall(&mut self, mut memory: Memory, oldest: Moment, now: Moment) {
        memory.age(oldest, now);
        self.last_serials = std::mem::take(&mut memory.serials).into_iter().collect();
        self.in_use = std::mem::take(&mut memory.balancers);
        self.states_before = std::mem::take(&mut memory.states);
        self.hosts.recall(std::mem::take(&mut memory.hosts));
        self.table.recall(memory);
    }

    /// All that is to be kept over a restart, in the wall clock's time.
    pub fn memory(&self, now: Moment) -> Memory {
        let mut memory = self.table.memory();
        memory.serials = self.last_serials.iter().map(|(zone, serial)| (zone.clone(), *serial)).collect();
        let zones = self.compiler.model().zones.iter().zip(&self.serials);
        memory.serials.extend(zones.map(|(zone, serial)| (zone.apex.clone(), *serial)));
        memory.balancers = self.in_use();
        memory.states = self.states();
        memory.hosts = self.hosts.memory();
        memory.alive = Some(now);
        memory.moved(self.step)
    }

    /// Which pools load balancers with delays use. Before anybody is answered
    /// that is what a former run left, however much is known already: in the
    /// first round nothing has failed, and nothing comes back.
    fn in_use(&self) -> InUse {
        if self.ready { self.compiler.in_use() } else { self.in_use.clone() }
    }

    /// Takes in an event.
    pub fn handle(&mut self, event: Event, now: Moment) {
        match event {
            Event::Reload(prepared) => {
                self.declared = prepared;
                self.reload(now);
            }
            Event::Probed { target, outcome } => self.probed(target, &outcome, now),
            Event::Resolved { hostname, lookup } => {
                let changed = self.hosts.found(&hostname, lookup, now);
                if changed {
                    self.expand_at.get_or_insert(now + GATHER);
                }
                if changed || self.hosts.is_written_late(&hostname) {
                    self.remember_host(&hostname);
                }
                if !self.ready && self.hosts.is_settled() {
                    self.expand_at = self.expand_at.map(|_| now); // nobody waits for others
                }
            }
            Event::ClockStepped(step) => {
                self.step = step;
                // what was written in the wall clock's time of before would end at another time
                let said = self.table.overrides().iter();
                let said: Vec<Record> = said
                    .map(|(of, said)| Record::Override(of.clone(), said.action.slot(), Some(said.clone())))
                    .collect();
                said.into_iter().for_each(|record| self.remember(record));
                self.table.set_step(step, now);
                self.moved(now);
            }
        }
        self.advance(now);
    }

    /// Does what an operator wants of a pool or an endpoint.
    pub fn order(&mut self, scope: &Scope, order: Order, now: Moment) -> Result<(), Unknown> {
        let traffic = order.slot() == Slot::Traffic;
        self.table.order(scope, order, now)?;
        self.moved(now);
        if traffic && self.is_declared_off(scope) {
            self.reload(now); // probes begin, or end
        }
        self.advance(now);
        Ok(())
    }

    /// Takes back what was said of a pool or an endpoint.
    pub fn take_back(
        &mut self,
        scope: &Scope,
        slot: Slot,
        who: TakenBack,
        now: Moment,
    ) -> Result<(), Unknown> {
        self.taken_back = Some(who);
        let done = self.order(scope, Order::Clear(slot), now);
        self.taken_back = None;
        done
    }

    /// Sends a load balancer's traffic back to the pools that are available
    /// again; tells whether there is such a load balancer.
    pub fn fail_back(&mut self, name: &Name, now: Moment) -> bool {
        let Some(changes) = self.compiler.fail_back(name, now) else { return false };
        self.recompiled(changes, None, now);
        self.advance(now);
        true
    }

    /// Takes in the verdict of a vantage elsewhere, reached at `at`.
    pub fn report(
        &mut self,
        scope: &Scope,
        vantage: &str,
        verdict: Verdict,
        at: Moment,
        now: Moment,
    ) -> Result<(), Unknown> {
        self.table.report(scope, vantage, verdict, at, now)?;
        self.moved(now);
        self.advance(now);
        Ok(())
    }

    /// Takes in outcomes seen on real traffic.
    pub fn traffic(&mut self, scope: &Scope, seen: Seen, now: Moment) -> Result<(), Unknown> {
        self.table.traffic(scope, seen, now)?;
        self.moved(now);
        self.advance(now);
        Ok(())
    }

    /// Takes in that an endpoint reports by itself.
    pub fn push(&mut self, scope: &Scope, ok: bool, now: Moment) -> Result<(), Unknown> {
        for target in self.table.push(scope, ok, now)? {
            self.answer(target, now);
        }
        self.advance(now);
        Ok(())
    }

    /// Does what is due by now.
    pub fn advance(&mut self, now: Moment) {
        self.table.advance(now);
        self.moved(now);
        let expired = self.table.take_expired();
        if expired.iter().any(|scope| self.is_declared_off(scope)) {
            self.reload(now); // probes end with what had enabled them
        }
        if self.expand_at.is_some_and(|at| at <= now) {
            self.reload(now);
        }
        if self.compiler.wake_at().is_some_and(|at| at <= now) {
            let changes = self.compiler.advance(now);
            self.recompiled(changes, None, now);
        }
        while let Some(hostname) = self.hosts.begin(now) {
            self.effects.push_back(Effect::Resolve { hostname });
        }
        while let Some(id) = self.schedule.begin(&self.table, now) {
            let task = &self.table.target(id).expect("only targets of the table begin").task;
            if task.monitor.check.is_probed() {
                self.effects.push_back(Effect::Probe { target: id, task: Arc::clone(task) });
            } else {
                self.answer(id, now);
            }
        }
        if self.serials_at.is_some_and(|at| at <= now) {
            self.serials_at = None;
            for zone in std::mem::take(&mut self.changed_zones) {
                self.serials[zone] = next_serial(self.serials[zone], unix(now));
                let apex = self.compiler.model().zones[zone].apex.clone();
                self.remember(Record::Serial(apex, self.serials[zone]));
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
            self.in_use.clear();
            self.remember_in_use();
            self.tell_what_stands(now);
            self.effects.push_back(Effect::Ready { complete });
        }
        for record in self.table.take_records() {
            self.remember(record);
        }
    }

    /// The next thing to be done, in order.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When to call [`Engine::advance`] next, if nothing happens before.
    pub fn wake_at(&self) -> Option<Moment> {
        let ready_by = self.ready_by.filter(|_| !self.ready);
        let parts = [self.schedule.wake_at(), self.table.wake_at(), self.hosts.wake_at()];
        let own = [self.compiler.wake_at(), self.publish_at, self.serials_at, self.expand_at, ready_by];
        parts.into_iter().chain(own).flatten().min()
    }

    /// Whether every target has been probed at least once, and what followed
    /// is published.
    pub fn is_settled(&self) -> bool {
        self.hosts.is_settled()
            && self.expand_at.is_none()
            && self.table.is_settled()
            && self.publish_at.is_none()
    }

    /// The answers as they stand, published or not.
    pub fn snapshot(&self) -> Snapshot {
        self.compiler.snapshot(&self.serials)
    }

    /// Whether nothing waits for its publication.
    pub fn is_published(&self) -> bool {
        self.publish_at.is_none()
    }

    /// Whether it is the newest configuration that is answered from: none is
    /// held back until its new targets are probed, or its host names looked up.
    pub fn is_in_force(&self) -> bool {
        self.hold_until.is_none() && self.expand_at.is_none() && self.hosts.is_settled()
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

    /// The addresses of the endpoints given by host name.
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// Puts the declared configuration in force, with host names' addresses.
    fn reload(&mut self, now: Moment) {
        self.expand_at = None;
        let table = &self.table;
        let model = self.declared.model();
        self.hosts.adopt(model, |pool| table.overridden(&pool.name, now).unwrap_or(pool.enabled), now);
        let prepared = match self.hosts.expand(self.declared.model()) {
            Some(model) => self.declared.with_pools_of(model),
            None => self.declared.clone(),
        };
        self.adopted = now;
        if self.hold_until.is_none() && self.publish_at.take().is_some() && self.published.is_some() {
            // what was to be published of the old configuration is not to wait for the new one
            self.effects.push_back(Effect::Publish(Arc::new(self.snapshot())));
        }
        let new = self.table.adopt(Arc::clone(prepared.model()), now, self.ready);
        for target in self.schedule.adopt(&self.table, now) {
            self.effects.push_back(Effect::Abandon { target });
        }
        for &id in &new {
            let target = self.table.target(id).expect("adopted just now");
            self.schedule.plan(id, target.rhythm.first(now, new.len()));
        }
        let in_use = self.in_use();
        let compiler = Compiler::new(prepared, &self.table, &in_use, now);
        let before = std::mem::replace(&mut self.compiler, compiler);
        let unix = unix(now);
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
        for zone in 0..self.serials.len() {
            let apex = self.compiler.model().zones[zone].apex.clone();
            if self.last_serials.get(&apex) != Some(&self.serials[zone]) {
                self.remember(Record::Serial(apex, self.serials[zone]));
            }
        }
        self.tell_moves(now);
        self.date_endpoints(now);
        self.tell_of_reload(&before, now);
        if self.published.is_some() && !new.is_empty() {
            // a hold that has begun goes on, however many reloads come
            let tests = new.iter().filter_map(|&id| Some(&*self.table.target(id)?.task.monitor));
            self.hold_until.get_or_insert(now + hold(tests) + Rhythm::first_round(new.len()));
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
    fn tell_what_stands(&mut self, now: Moment) {
        self.states_before.clear(); // nobody is like that any more
        let model = self.compiler.model();
        for (pool, id) in model.pools.iter().zip(0..) {
            let (health, since) = (self.compiler.pool(PoolId(id)), self.pool_since[id as usize]);
            let unwell = matches!(health.state, PoolState::Disabled | PoolState::Critical);
            if unwell && since <= self.adopted {
                let said = self.said_of(pool, now);
                let change = pool_change(pool, health.state, health, said, since);
                self.effects.push_back(Effect::Tell(change));
            }
        }
        for (number, (balancer, status)) in self.compiler.balancers().enumerate() {
            let since = self.balancer_since[number];
            if status.state != BalancerState::Healthy && since <= self.adopted {
                let change = balancer_change(model, &balancer.name, status.state, status, since);
                self.effects.push_back(Effect::Tell(change));
            }
        }
        self.tell_of_records();
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
                Some((old, since)) if (old.state, old.taken_out) == (health.state, health.taken_out) => {
                    *since
                }
                Some((old, since)) => {
                    let said = self.said_of(pool, now);
                    let change = pool_change(pool, old.state, health, said, *since);
                    self.effects.push_back(Effect::Tell(change));
                    if old.state == health.state { *since } else { now }
                }
                None => {
                    stood_since(&mut self.states_before, &pool_subject(pool), &health.state.to_string(), now)
                }
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
                    let word = balancer_word(&model, status);
                    stood_since(
                        &mut self.states_before,
                        &Subject::Balancer(balancer.name.clone()),
                        &word,
                        now,
                    )
                }
            });
        }
        self.pool_since = pool_since;
        self.balancer_since = balancer_since;
        self.tell_of_reloaded_records(before, now);
        for id in 0..self.pool_since.len() {
            if self.pool_since[id] == now {
                self.remember_pool(PoolId(id as u32), now);
            }
        }
        for number in 0..self.balancer_since.len() {
            if self.balancer_since[number] == now {
                self.remember_balancer(number, now);
            }
        }
    }

    fn probed(&mut self, id: TargetId, outcome: &Outcome, now: Moment) {
        let observed = self.table.observe(id, outcome, now);
        self.schedule.end(id, &self.table, now);
        let (Some(observed), Some(target)) = (observed, self.table.target(id)) else { return };
        let (task, pool, endpoint) = (Arc::clone(&target.task), target.pool, target.endpoint);
        let (reason, detail) = (outcome.reason, outcome.detail);
        let scope = Scope { pool: Arc::clone(&task.pool), endpoint: Some(Arc::clone(&task.endpoint)) };
        let (monitor, vantage) = (Arc::clone(&task.monitor.name), Arc::clone(&task.vantage.name));
        if let Some(moved) = observed.transition {
            if self.table.targets_of(pool, endpoint).nth(1).is_some() {
                let (from, to, status, since) = (moved.from, moved.to, outcome.status, moved.since);
                let change =
                    Change::Verdict { scope, monitor, vantage, from, to, reason, detail, status, since };
                self.effects.push_back(Effect::Tell(change));
            }
        } else if observed.newly_blocked {
            let change = Change::CannotProbe { scope, monitor, vantage, reason, detail };
            self.effects.push_back(Effect::Tell(change));
        }
        self.moved(now);
        if self.table.is_settled() {
            self.release(now);
        }
    }

    /// Finds without a probe what a check needs none for.
    fn answer(&mut self, id: TargetId, now: Moment) {
        match self.table.answer(id, now) {
            Some(outcome) => self.probed(id, &outcome, now),
            None => self.schedule.end(id, &self.table, now),
        }
    }

    /// Tells of endpoints that stand differently and recompiles what depends on
    /// them. One that was up and isn't any more ends what a reload waits for.
    fn moved(&mut self, now: Moment) {
        let moves = self.tell_moves(now);
        let mut pools = self.table.take_touched();
        pools.extend(moves.iter().map(|moved| moved.pool));
        for pool in pools {
            let changes = self.compiler.refresh(pool, &self.table, now);
            self.recompiled(changes, Some(pool), now);
        }
        if moves.iter().any(|moved| moved.from.fitness.is_up() && !moved.to.fitness.is_up()) {
            self.release(now);
        }
    }

    /// Keeps something over a restart, in the wall clock's time.
    fn remember(&mut self, record: Record) {
        self.effects.push_back(Effect::Remember(record.moved(self.step)));
    }

    fn remember_in_use(&mut self) {
        for (name, pools) in self.compiler.take_moved() {
            self.remember(Record::Balancer(name, pools));
        }
    }

    fn remember_host(&mut self, hostname: &Arc<str>) {
        let (addresses, until) = self.hosts.write_down(hostname);
        self.remember(Record::Host(Arc::clone(hostname), addresses, until));
    }

    /// Why an endpoint isn't there any more that was an address of this host name.
    fn why_gone(&self, scope: &Scope, hostname: Option<&str>) -> &'static str {
        let model = self.declared.model();
        let pool = model.pool_named(&scope.pool).map(|id| model.pool(id));
        let declared = |hostname: &&str| {
            pool.is_some_and(|pool| pool.hosts.iter().any(|host| *host.hostname == **hostname))
        };
        match hostname.filter(declared).map(|hostname| self.hosts.get(hostname)) {
            Some(Some(known)) if known.addresses.is_empty() => "its host name has no address any more",
            Some(Some(_)) => "its host name has this address no more",
            Some(None) => "its host name isn't looked up any more",
            None => "the configuration has it no more",
        }
    }

    /// Has endpoints that are new stand as they do since when a former run says.
    fn date_endpoints(&mut self, now: Moment) {
        for id in (0..self.table.model().pools.len() as u32).map(PoolId) {
            for place in 0..self.table.standings(id).len() {
                if self.table.since(id, place) != now {
                    continue;
                }
                let (of, word, _) = self.endpoint_state(id, place);
                let since = stood_since(&mut self.states_before, &of, &word, now);
                self.table.recall_since(id, place, since);
                if since == now && *word != *Standing::default().word() {
                    self.remember_endpoint(id, place, now);
                }
            }
        }
    }

    /// How everything stands, in a word, and since when.
    fn states(&self) -> BTreeMap<Subject, (Arc<str>, Moment)> {
        let model = self.compiler.model();
        let ids = || (0..model.pools.len() as u32).map(PoolId);
        let endpoints = ids().flat_map(|id| {
            (0..self.table.standings(id).len()).map(move |place| self.endpoint_state(id, place))
        });
        let pools = ids().map(|id| {
            let word = self.compiler.pool(id).state.to_string().into();
            (pool_subject(model.pool(id)), word, self.pool_since[id.0 as usize])
        });
        let balancers = self.compiler.balancers().zip(&self.balancer_since).map(|((of, status), since)| {
            (Subject::Balancer(of.name.clone()), balancer_word(model, status).into(), *since)
        });
        let mut all = self.states_before.clone();
        all.extend(endpoints.chain(pools).chain(balancers).map(|(of, word, since)| (of, (word, since))));
        all
    }

    fn endpoint_state(&self, id: PoolId, place: usize) -> (Subject, Arc<str>, Moment) {
        let pool = self.table.model().pool(id);
        let endpoint = Some(Arc::clone(&pool.endpoints[place].name));
        let scope = Scope { pool: Arc::clone(&pool.name), endpoint };
        let word = self.table.standings(id)[place].word().into();
        (Subject::Scope(scope), word, self.table.since(id, place))
    }

    fn remember_endpoint(&mut self, id: PoolId, place: usize, now: Moment) {
        let (of, word, _) = self.endpoint_state(id, place);
        self.remember(Record::State(of, word, now));
    }

    fn remember_pool(&mut self, id: PoolId, now: Moment) {
        let word = self.compiler.pool(id).state.to_string().into();
        self.remember(Record::State(pool_subject(self.compiler.model().pool(id)), word, now));
    }

    fn remember_balancer(&mut self, number: usize, now: Moment) {
        let (balancer, status) = self.compiler.balancer(number);
        let word = balancer_word(self.compiler.model(), status).into();
        self.remember(Record::State(Subject::Balancer(balancer.name.clone()), word, now));
    }

    fn tell_moves(&mut self, now: Moment) -> Vec<Move> {
        for vantage in self.table.take_doubted() {
            let suspect = self.table.doubts_since(vantage).is_some();
            let vantage = Arc::clone(&self.compiler.model().vantage(vantage).name);
            self.effects.push_back(Effect::Tell(Change::Vantage { vantage, suspect }));
        }
        for Gone { scope, hostname, from, since } in self.table.take_gone() {
            let reason = self.why_gone(&scope, hostname.as_deref());
            self.effects.push_back(Effect::Tell(Change::Gone { scope, from, reason, since }));
        }
        let moves = self.table.take_moves();
        for moved in &moves {
            if moved.from.without_share() != moved.to.without_share() {
                let change = self.endpoint_change(moved, now);
                self.effects.push_back(Effect::Tell(change));
                self.remember_endpoint(moved.pool, moved.endpoint, now);
            }
        }
        moves
    }

    /// Tells what a recompilation changed, and sees to its publication.
    fn recompiled(&mut self, changes: Recompiled, pool: Option<PoolId>, now: Moment) {
        let model = Arc::clone(self.compiler.model());
        if let (Some(before), Some(id)) = (changes.pool, pool) {
            let since = self.pool_since[id.0 as usize];
            if before.state != self.compiler.pool(id).state {
                self.pool_since[id.0 as usize] = now;
                self.remember_pool(id, now);
            }
            let (pool, said) = (model.pool(id), self.said_of(model.pool(id), now));
            let change = pool_change(pool, before.state, self.compiler.pool(id), said, since);
            self.effects.push_back(Effect::Tell(change));
        }
        for (number, before) in changes.balancers {
            let since = std::mem::replace(&mut self.balancer_since[number], now);
            self.remember_balancer(number, now);
            let (balancer, status) = self.compiler.balancer(number);
            let change = balancer_change(&model, &balancer.name, before.state, status, since);
            self.effects.push_back(Effect::Tell(change));
        }
        for (number, before) in changes.records {
            self.records_changed(number, &before, now);
        }
        if self.ready {
            self.remember_in_use();
        }
        if !changes.zones.is_empty() {
            self.changed_zones.extend(changes.zones);
            self.serials_at.get_or_insert(now + SERIAL_GATHER);
            self.publish_soon(now);
        }
        if changes.ttls {
            self.publish_soon(now);
        }
    }

    /// What an operator has said of the traffic of a pool as a whole, and who
    /// takes something back just now.
    fn said_of(&self, pool: &Pool, now: Moment) -> (Option<Override>, Option<TakenBack>) {
        let scope = Scope { pool: Arc::clone(&pool.name), endpoint: None };
        (self.table.overrides().get(&scope, Slot::Traffic, now).cloned(), self.taken_back.clone())
    }

    /// Whether the configuration itself has it switched off.
    fn is_declared_off(&self, scope: &Scope) -> bool {
        let model = self.table.model();
        let Some(pool) = model.pool_named(&scope.pool).map(|id| model.pool(id)) else { return false };
        let is_off = |(_, place): (_, usize)| !pool.endpoints[place].enabled;
        !pool.enabled || scope.endpoint.is_some() && self.table.places_of(scope).into_iter().any(is_off)
    }

    /// At once, unless something was published within the gathering time.
    fn publish_soon(&mut self, now: Moment) {
        let gathered = self.published.map_or(now, |last| now.max(last + GATHER));
        self.publish_at.get_or_insert(self.hold_until.unwrap_or(gathered));
    }
}

/// Unix time in the 32 bits of a serial.
fn unix(now: Moment) -> u32 {
    now.elapsed().as_secs() as u32
}

/// Whether serial `a` comes after `b` (RFC 1982 §3.2).
fn is_newer(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

/// The serial after `last`: the time, unless that would go back.
fn next_serial(last: u32, unix: u32) -> u32 {
    if is_newer(unix, last) { unix } else { last.wrapping_add(1) }
}

fn pool_change(
    pool: &Pool,
    from: PoolState,
    to: PoolHealth,
    (said, taken_back): (Option<Override>, Option<TakenBack>),
    since: Moment,
) -> Change {
    Change::Pool {
        pool: Arc::clone(&pool.name),
        from,
        to,
        threshold: pool.health_threshold,
        endpoints: pool.endpoints.len() as u32,
        said,
        taken_back: taken_back.filter(|_| from == PoolState::Disabled),
        since,
    }
}

/// Since when something stands so, as far as a former run knows: it doesn't if
/// it left it in another state.
fn stood_since(
    before: &mut BTreeMap<Subject, (Arc<str>, Moment)>,
    of: &Subject,
    word: &str,
    now: Moment,
) -> Moment {
    before.remove(of).filter(|(before, _)| **before == *word).map_or(now, |(_, since)| since)
}

fn pool_subject(pool: &Pool) -> Subject {
    Subject::Scope(Scope { pool: Arc::clone(&pool.name), endpoint: None })
}

/// The state of a load balancer and where its traffic goes.
fn balancer_word(model: &Model, status: &BalancerStatus) -> String {
    format!("{} {}", status.state, serving(model, status).join(" "))
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
    fn a29_serials_never_go_back() {
        for (last, unix, next) in
            [(100, 200, 200), (200, 100, 201), (200, 200, 201), (u32::MAX, 5, 5), (u32::MAX, u32::MAX - 9, 0)]
        {
            assert_eq!(next_serial(last, unix), next, "{last} at {unix}");
        }
    }
}
