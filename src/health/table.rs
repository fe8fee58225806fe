//! All targets and what is held of the endpoints they test.
//!
//! ```text
//! Outcome ─► target's machine ─► vantage: combine ─► all vantages: quorum ─► verdict ─► standing
//!                                   ▲ reports, doubt           overrides, windows, traffic ─┘
//! ```
//!
//! The table owns all facts about endpoints and judges an endpoint anew when a
//! fact changes or a time has come; it gathers what moved until it is asked.
//! It carries what it holds over a reload. It does not know when probes are
//! due: that is the schedule's business.

mod adopt;
mod judge;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::doubt::{Horizon, Tally, VantageDoubt};
use super::ejection::{Seen, Traffic};
use super::memory::{EndpointKey, EndpointMemory, Memory, Record, TargetKey, TargetMemory};
use super::overrides::{Action, Override, Overrides, Slot};
use super::{
    AgentWish, Outcome, PoolHealth, ProbeResult, Reason, Standing, Target, TargetId, Transition, Verdict,
    pool_health,
};
use crate::model::{Check, Endpoint, Model, Pool, PoolId, Reach, Scope, VantageId, Window};
use crate::moment::Moment;

/// What an outcome changed of its target.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// The target's own verdict changed.
    pub transition: Option<Transition>,
    /// Probes of this target can't be made any more.
    pub newly_blocked: bool,
}

/// An endpoint that stands differently.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Move {
    pub pool: PoolId,
    /// Its place in the pool.
    pub endpoint: usize,
    pub from: Standing,
    pub to: Standing,
    /// Since when `from` had held, its share apart.
    pub since: Moment,
    pub why: Why,
}

/// An endpoint that isn't there any more.
#[derive(Clone, Debug, PartialEq)]
pub struct Gone {
    pub scope: Scope,
    /// The host name whose address it was.
    pub hostname: Option<Arc<str>>,
    pub from: Standing,
    /// Since when `from` had held.
    pub since: Moment,
}

/// What made an endpoint stand differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    Probe(TargetId),
    Report(VantageId),
    Traffic,
    /// Something has lasted long enough, or begins or ends now.
    Time,
    Operator,
    /// An operator takes back what was said.
    TakenBack,
    Dependency,
    /// A vantage doubts itself, or does so no more.
    Doubt(VantageId),
    Reload,
}

/// What an operator wants.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    Set {
        action: Action,
        reason: Arc<str>,
        by: Arc<str>,
        until: Option<Moment>,
    },
    /// Takes back what was said of traffic, of health or of the weight.
    Clear(Slot),
}

impl Order {
    /// What it is about.
    pub fn slot(&self) -> Slot {
        match self {
            Order::Set { action, .. } => action.slot(),
            Order::Clear(slot) => *slot,
        }
    }
}

/// There is no such pool or endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown(pub Scope);

/// All targets, by pool and endpoint.
#[derive(Clone, Debug, Default)]
pub struct Table {
    model: Arc<Model>,
    targets: HashMap<TargetId, Target>,
    pools: Vec<PoolRow>,
    overrides: Overrides,
    doubts: Vec<VantageDoubt>,
    /// What each vantage sees, as far as it may doubt itself.
    horizons: Vec<Horizon>,
    /// The wall clock's time less the time line's, in milliseconds.
    step: i64,
    timers: BinaryHeap<Reverse<(Moment, PoolId, usize)>>,
    moves: Vec<Move>,
    gone: Vec<Gone>,
    /// Pools that were switched on or off, perhaps.
    touched: BTreeSet<PoolId>,
    records: Vec<Record>,
    /// Vantages that changed their minds about themselves.
    doubted: Vec<VantageId>,
    /// Of whom an override has ended by itself.
    expired: Vec<Scope>,
    /// What a former run left, until it is taken up or found unfit.
    memory: Memory,
    next_id: u64,
    unseen: usize,
}

/// One pool's part of the table, in the order of its endpoints.
#[derive(Clone, Debug, Default)]
struct PoolRow {
    rows: Vec<Row>,
    verdicts: Vec<Verdict>,
    standings: Vec<Standing>,
    /// What its endpoints are called and where they stand, by name: one given
    /// by host name has the name of all of that name's addresses, too.
    names: Vec<(Arc<str>, usize)>,
    /// How each of the pool's vantages sees it.
    tallies: Vec<Tally>,
    start_period: Duration,
    /// For how long after a report a vantage is taken to be reporting.
    patience: Duration,
    /// The longest TTL under which its addresses are handed out, or records that
    /// depend on it.
    longest_ttl: Duration,
    /// Until when answers of a former configuration may be kept.
    kept_until: Moment,
    /// How many of its endpoints are up.
    up: usize,
    /// Of how many of them nothing is known.
    unknown: usize,
    /// Something depends on one of its endpoints.
    named: bool,
    /// TTLs go by when its next verdict may come.
    paces: bool,
    /// The pools that depend on this one.
    dependents: Vec<PoolId>,
}

/// One endpoint.
#[derive(Clone, Debug)]
struct Row {
    /// One for each of the pool's vantages.
    sights: Vec<Sight>,
    /// It appeared while others were served.
    fresh: bool,
    verdict: Verdict,
    verdict_since: Moment,
    /// When its verdict changed of late.
    flaps: VecDeque<Moment>,
    /// It was flapping and has not been healthy for `flap_hold` since.
    flap_out: bool,
    traffic: Traffic,
    /// When it is worked on.
    windows: Vec<Window>,
    wish: Option<AgentWish>,
    agent_percent: u8,
    /// When its slow start began, unless it is over.
    slow_since: Option<Moment>,
    /// Since when it stands as it does, its share apart.
    since: Moment,
    /// The timer that is set for it.
    timer: Option<Moment>,
}

/// What one vantage holds of an endpoint.
#[derive(Clone, Debug, Default)]
struct Sight {
    targets: Vec<TargetId>,
    /// What a vantage elsewhere last reported.
    told: Option<(Verdict, Moment)>,
    verdict: Verdict,
    /// When it fell from healthy, until it is healthy again.
    fell: Option<Moment>,
    /// How many probes have failed since its vantage's doubts grew less.
    failures: u32,
}

impl Table {
    /// The configuration it has adopted.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Takes in what a former run left, for the first configuration.
    pub fn recall(&mut self, memory: Memory) {
        for ((scope, _), said) in &memory.overrides {
            self.overrides.set(scope.clone(), said.clone());
        }
        self.memory = memory;
    }

    /// Takes in what a probe found; none if the target is gone.
    pub fn observe(&mut self, id: TargetId, outcome: &Outcome, now: Moment) -> Option<Observed> {
        let target = self.targets.get_mut(&id)?;
        if !std::mem::replace(&mut target.seen, true) {
            self.unseen -= 1;
        }
        let (pool, place, sight) = (target.pool, target.endpoint, target.sight);
        let row = &mut self.pools[pool.0 as usize];
        let was_blocked = target.blocked;
        // a verdict that nobody vouched for so long is no verdict any more
        let rules = &self.model.pool(pool).rules;
        let void = target
            .reported
            .is_some_and(|at| now.since(at) > target.task.monitor.patience() + rules.stale_after)
            && target.machine.verdict() != Verdict::Unknown;
        if void {
            target.machine = super::Machine::new(now);
        }
        let paced = row.paces.then(|| target.next_verdict());
        let transition = target.observe(outcome, now, row.start_period);
        if paced.is_some_and(|before| before != target.next_verdict()) {
            self.touched.insert(pool);
        }
        let newly_blocked = target.blocked && !was_blocked;
        let sighted = &mut row.rows[place].sights[sight];
        match outcome.result {
            ProbeResult::Fail => sighted.failures = sighted.failures.saturating_add(1),
            ProbeResult::Pass => sighted.failures = 0,
            ProbeResult::Error => {}
        }
        let mut agent_moved = false;
        if let Some(agent) = outcome.agent {
            let row = &mut row.rows[place];
            let before = (row.wish, row.agent_percent);
            row.wish = match agent.wish {
                Some(AgentWish::Ready) => None,
                wish => wish.or(row.wish),
            };
            row.agent_percent = agent.percent.unwrap_or(row.agent_percent);
            agent_moved = before != (row.wish, row.agent_percent);
        }
        if agent_moved {
            self.remember_endpoint(pool, place);
        }
        if transition.is_some() || void {
            let (key, memory) = self.target_record(id);
            self.records.push(Record::Target(key, memory));
        }
        self.look(pool, place, sight, Why::Probe(id), now);
        Some(Observed { transition, newly_blocked })
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
        let unknown = || Unknown(scope.clone());
        let (pool, place) = self.place_of(scope)?;
        let vantage = self.model.vantage_named(vantage).ok_or_else(unknown)?;
        if self.model.vantage(vantage).reach != Reach::Remote {
            return Err(unknown()); // it makes its own probes
        }
        let vantages = &self.model.pool(pool).viewpoints.vantages;
        let sight = vantages.iter().position(|id| *id == vantage).ok_or_else(unknown)?;
        let held = &mut self.pools[pool.0 as usize].rows[place].sights[sight];
        if held.told.is_none_or(|(_, before)| before <= at) {
            held.told = Some((verdict, at.min(now)));
            self.look(pool, place, sight, Why::Report(vantage), now);
        }
        Ok(())
    }

    /// Takes in outcomes seen on real traffic.
    pub fn traffic(&mut self, scope: &Scope, seen: Seen, now: Moment) -> Result<(), Unknown> {
        let (pool, place) = self.place_of(scope)?;
        let Some(rules) = self.model.pool(pool).rules.ejection else { return Ok(()) };
        let row = &mut self.pools[pool.0 as usize].rows[place];
        if row.traffic.observe(seen, &rules)
            && row.traffic.ejected(now).is_none()
            && self.may_eject(pool, place, now)
        {
            self.pools[pool.0 as usize].rows[place].traffic.eject(now, &rules);
            self.remember_endpoint(pool, place);
            self.rejudge(pool, place, Why::Traffic, now);
        }
        Ok(())
    }

    /// Takes in that an endpoint reports by itself; tells which targets that
    /// decides at once.
    pub fn push(&mut self, scope: &Scope, ok: bool, now: Moment) -> Result<Vec<TargetId>, Unknown> {
        let (pool, place) = self.place_of(scope)?;
        let ids = self.pools[pool.0 as usize].rows[place].sights.iter().flat_map(|sight| &sight.targets);
        let pushed = |id: &&TargetId| self.targets[id].task.monitor.check == Check::Push;
        let ids: Vec<TargetId> = ids.filter(pushed).copied().collect();
        for id in &ids {
            self.targets.get_mut(id).expect("a row's target").pushed = Some((now, ok));
        }
        Ok(ids)
    }

    /// What is found without a probe, for checks that need none.
    pub fn answer(&self, id: TargetId, now: Moment) -> Option<Outcome> {
        let target = self.targets.get(&id)?;
        let passed = || Outcome::new(ProbeResult::Pass, Reason::NoFailures, "");
        match target.task.monitor.check {
            Check::Static(true) => Some(passed()),
            Check::Static(false) => {
                Some(Outcome::new(ProbeResult::Fail, Reason::ReportedDown, "static_unhealthy"))
            }
            Check::Push => Some(match target.pushed {
                Some((at, true)) if now.since(at) <= target.task.monitor.interval => passed(),
                Some((at, false)) if now.since(at) <= target.task.monitor.interval => {
                    Outcome::new(ProbeResult::Fail, Reason::ReportedDown, "reported_down")
                }
                None if now.since(target.created) < target.task.monitor.interval => return None,
                _ => Outcome::new(ProbeResult::Fail, Reason::ReportOverdue, "report_overdue"),
            }),
            _ => None,
        }
    }

    /// Does what an operator wants of a pool or an endpoint.
    pub fn order(&mut self, scope: &Scope, order: Order, now: Moment) -> Result<(), Unknown> {
        let unknown = || Unknown(scope.clone());
        let pool = self.model.pool_named(&scope.pool);
        let why = match &order {
            Order::Set { .. } => Why::Operator,
            Order::Clear(_) => Why::TakenBack,
        };
        match order {
            Order::Set { action, reason, by, until } => {
                let pool = pool.ok_or_else(unknown)?;
                if scope.endpoint.is_some() && self.places_of(scope).is_empty() {
                    return Err(unknown());
                }
                let held = &self.pools[pool.0 as usize];
                let kept = (now + held.longest_ttl).max(held.kept_until);
                let drained_at = kept + self.model.pool(pool).rules.drain_wait;
                let said = Override { action, reason, by, since: now, until, drained_at };
                self.records.push(Record::Override(scope.clone(), action.slot(), Some(said.clone())));
                self.overrides.set(scope.clone(), said);
            }
            Order::Clear(slot) => {
                // of what is gone from the configuration it can be taken back, too
                let cleared = self.overrides.clear(scope, slot);
                if cleared.is_none()
                    && self.places_of(scope).is_empty()
                    && (scope.endpoint.is_some() || pool.is_none())
                {
                    return Err(unknown());
                }
                self.records.push(Record::Override(scope.clone(), slot, None));
            }
        }
        self.rejudge_scope(scope, why, now);
        Ok(())
    }

    /// Takes in that the wall clock differs from the time line by so many
    /// milliseconds: windows go by the wall clock.
    pub fn set_step(&mut self, step: i64, now: Moment) {
        self.step = step;
        let windows = self.model.maintenance.iter();
        let pools: BTreeSet<PoolId> =
            windows.filter_map(|window| self.model.pool_named(&window.of.pool)).collect();
        for pool in pools {
            self.rejudge_pool(pool, Why::Time, now);
        }
    }

    /// Judges anew what is due by now.
    pub fn advance(&mut self, now: Moment) {
        while let Some((scope, slot)) = self.overrides.expire(now) {
            self.records.push(Record::Override(scope.clone(), slot, None));
            self.rejudge_scope(&scope, Why::Time, now);
            self.expired.push(scope);
        }
        self.end_doubts(now);
        while self.timers.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            let Reverse((at, pool, place)) = self.timers.pop().expect("peeked at it just now");
            let row = self.pools.get_mut(pool.0 as usize).and_then(|pool| pool.rows.get_mut(place));
            if let Some(row) = row.filter(|row| row.timer == Some(at)) {
                row.timer = None;
                self.rejudge(pool, place, Why::Time, now);
            }
        }
    }

    /// When [`Table::advance`] has something to do.
    pub fn wake_at(&self) -> Option<Moment> {
        let timer = self.timers.peek().map(|Reverse((at, ..))| *at);
        let doubts = self.doubts.iter().filter_map(|doubt| doubt.ends(self.model.doubt.hold)).min();
        [timer, self.overrides.next_end(), doubts].into_iter().flatten().min()
    }

    /// What moved since it was last asked for, in order.
    pub fn take_moves(&mut self) -> Vec<Move> {
        std::mem::take(&mut self.moves)
    }

    /// What isn't there any more since it was last asked for.
    pub fn take_gone(&mut self) -> Vec<Gone> {
        std::mem::take(&mut self.gone)
    }

    /// The pools of which something may be different, endpoints' standings
    /// apart, since it was last asked for.
    pub fn take_touched(&mut self) -> BTreeSet<PoolId> {
        std::mem::take(&mut self.touched)
    }

    /// What is to be remembered since it was last asked for.
    pub fn take_records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }

    /// Of whom overrides have ended by themselves since it was last asked for.
    pub fn take_expired(&mut self) -> Vec<Scope> {
        std::mem::take(&mut self.expired)
    }

    /// The vantages that began or ceased to doubt themselves.
    pub fn take_doubted(&mut self) -> Vec<VantageId> {
        std::mem::take(&mut self.doubted)
    }

    /// Since when a vantage doubts itself, while it does.
    pub fn doubts_since(&self, vantage: VantageId) -> Option<Moment> {
        self.doubts.get(vantage.0 as usize)?.suspect_since()
    }

    /// Whether what fell at a vantage may be held: it doubts itself, or did a
    /// moment ago.
    pub fn holds(&self, vantage: VantageId, now: Moment) -> bool {
        self.doubts[vantage.0 as usize].holds(&self.model.doubt, now).is_some()
    }

    /// All that is to be remembered.
    pub fn memory(&self) -> Memory {
        // what no endpoint has taken up yet may still be wanted: its address isn't known
        let mut memory = Memory { overrides: Default::default(), ..self.memory.clone() };
        for id in self.pools.iter().flat_map(|pool| &pool.rows).flat_map(Row::targets) {
            let (key, held) = self.target_record(id);
            memory.targets.insert(key, held);
        }
        for (pool, id) in self.pools.iter().zip(0..) {
            for place in 0..pool.rows.len() {
                let (key, held) = self.endpoint_record(PoolId(id), place);
                memory.endpoints.insert(key, held);
            }
        }
        for (scope, said) in self.overrides.iter() {
            memory.overrides.insert((scope.clone(), said.action.slot()), said.clone());
        }
        memory
    }

    /// The target of this id, while it exists.
    pub fn target(&self, id: TargetId) -> Option<&Target> {
        self.targets.get(&id)
    }

    /// The targets of one endpoint, vantage by vantage.
    pub fn targets_of(&self, pool: PoolId, place: usize) -> impl Iterator<Item = (TargetId, &Target)> {
        let ids = self.pools[pool.0 as usize].rows[place].targets();
        ids.map(|id| (id, &self.targets[&id]))
    }

    /// How many targets there are.
    pub fn len(&self) -> usize {
        self.targets.len()
    }

    /// Whether there is nothing to probe.
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// Whether every target has been probed at least once.
    pub fn is_settled(&self) -> bool {
        self.unseen == 0
    }

    /// The verdicts on a pool's endpoints, in their order. An endpoint without
    /// a target is unknown: it is disabled, or nothing tests it.
    pub fn verdicts(&self, pool: PoolId) -> &[Verdict] {
        &self.pools[pool.0 as usize].verdicts
    }

    /// The least time from an outcome to another verdict on one of a pool's
    /// endpoints; none: there is never another, or nobody asks.
    pub fn next_verdict(&self, pool: PoolId) -> Option<Duration> {
        let held = &self.pools[pool.0 as usize];
        if !held.paces {
            return None;
        }
        let declared = self.model.pool(pool);
        let own = held.rows.iter().flat_map(Row::targets).map(|id| &self.targets[&id]);
        let own = own.filter(|target| declared.tests.members[target.member].votes);
        // another machine probes what is enabled, and its beats aren't known here
        let is_told = |id: &VantageId| self.model.vantage(*id).reach == Reach::Remote;
        let is_probed = declared.enabled && declared.endpoints.iter().any(|endpoint| endpoint.enabled);
        let told = is_probed && declared.viewpoints.vantages.iter().any(is_told);
        let voters = declared.tests.members.iter().filter(|member| told && member.votes);
        let intervals = voters.map(|member| self.model.monitor(member.monitor).interval);
        own.filter_map(Target::next_verdict).chain(intervals).min()
    }

    /// Where a pool's endpoints stand, in their order.
    pub fn standings(&self, pool: PoolId) -> &[Standing] {
        &self.pools[pool.0 as usize].standings
    }

    /// Since when an endpoint stands as it does, its share apart.
    pub fn since(&self, pool: PoolId, place: usize) -> Moment {
        self.pools[pool.0 as usize].rows[place].since
    }

    /// Says since when an endpoint stands as it does, which a former run knows.
    pub fn recall_since(&mut self, pool: PoolId, place: usize, since: Moment) {
        self.pools[pool.0 as usize].rows[place].since = since;
    }

    /// What each of the pool's vantages holds of an endpoint; none: it is
    /// silent.
    pub fn views(&self, pool: PoolId, place: usize, now: Moment) -> Vec<(VantageId, Option<Verdict>)> {
        let vantages = &self.model.pool(pool).viewpoints.vantages;
        let reports = self.reports(pool, place, now);
        vantages.iter().copied().zip(reports.into_iter().map(|report| report.verdict)).collect()
    }

    /// What operators have said.
    pub fn overrides(&self) -> &Overrides {
        &self.overrides
    }

    /// Whether the pool takes part at all.
    pub fn is_enabled(&self, pool: PoolId, now: Moment) -> bool {
        let declared = self.model.pool(pool);
        self.overridden(&declared.name, now).unwrap_or(declared.enabled)
    }

    /// Whether an operator has a pool of this name enabled or disabled.
    pub fn overridden(&self, pool: &Arc<str>, now: Moment) -> Option<bool> {
        let scope = Scope { pool: Arc::clone(pool), endpoint: None };
        match self.overrides.get(&scope, Slot::Traffic, now)?.action {
            Action::Enable => Some(true),
            Action::Disable => Some(false),
            _ => None,
        }
    }

    /// A pool's state.
    pub fn pool(&self, pool: PoolId, now: Moment) -> PoolHealth {
        pool_health(self.model.pool(pool), self.is_enabled(pool, now), self.standings(pool))
    }

    /// Where an endpoint of this name stands in the table.
    pub fn place_of(&self, scope: &Scope) -> Result<(PoolId, usize), Unknown> {
        let found = || {
            let pool = self.model.pool_named(&scope.pool)?;
            let place = self.pools[pool.0 as usize].called(scope.endpoint.as_ref()?).next()?;
            Some((pool, place))
        };
        found().ok_or_else(|| Unknown(scope.clone()))
    }

    /// Where the endpoints stand that a scope names: one, all addresses of a
    /// host name, or the whole pool.
    pub fn places_of(&self, scope: &Scope) -> Vec<(PoolId, usize)> {
        let Some(pool) = self.model.pool_named(&scope.pool) else { return Vec::new() };
        let held = &self.pools[pool.0 as usize];
        match &scope.endpoint {
            Some(name) => held.called(name).map(|place| (pool, place)).collect(),
            None => (0..held.rows.len()).map(|place| (pool, place)).collect(),
        }
    }

    /// What an operator has said of an endpoint, or of all addresses of its
    /// host name.
    pub fn said(&self, pool: &Pool, endpoint: &Endpoint, slot: Slot, now: Moment) -> Option<&Override> {
        if self.overrides.is_empty() {
            return None; // the usual case, without names put together
        }
        let scope = |name| Scope { pool: Arc::clone(&pool.name), endpoint: Some(name) };
        let own = self.overrides.get(&scope(Arc::clone(&endpoint.name)), slot, now);
        own.or_else(|| self.overrides.get(&scope(endpoint.of_all()?.into()), slot, now))
    }

    /// All that operators have said of an endpoint.
    pub fn all_said<'a>(
        &'a self,
        pool: &'a Pool,
        endpoint: &'a Endpoint,
        now: Moment,
    ) -> impl Iterator<Item = &'a Override> {
        Slot::ALL.into_iter().filter_map(move |slot| self.said(pool, endpoint, slot, now))
    }

    fn target_record(&self, id: TargetId) -> (TargetKey, TargetMemory) {
        let target = &self.targets[&id];
        let task = &target.task;
        let endpoint = EndpointKey {
            pool: Arc::clone(&task.pool),
            endpoint: Arc::clone(&task.endpoint),
            address: task.address,
        };
        let key = TargetKey {
            endpoint,
            monitor: Arc::clone(&task.monitor.name),
            vantage: Arc::clone(&task.vantage.name),
        };
        let memory =
            TargetMemory { test: target.test, machine: target.machine.remember(), reported: target.reported };
        (key, memory)
    }

    fn endpoint_record(&self, pool: PoolId, place: usize) -> (EndpointKey, EndpointMemory) {
        let declared = self.model.pool(pool);
        let endpoint = &declared.endpoints[place];
        let row = &self.pools[pool.0 as usize].rows[place];
        let key = EndpointKey {
            pool: Arc::clone(&declared.name),
            endpoint: Arc::clone(&endpoint.name),
            address: endpoint.address,
        };
        let memory = EndpointMemory {
            verdict: row.verdict,
            since: row.verdict_since,
            flaps: row.flaps.iter().copied().collect(),
            ejections: row.traffic.ejections,
            ejected_until: row.traffic.until,
            wish: row.wish,
            percent: row.agent_percent,
        };
        (key, memory)
    }

    fn remember_endpoint(&mut self, pool: PoolId, place: usize) {
        let (key, memory) = self.endpoint_record(pool, place);
        self.records.push(Record::Endpoint(key, memory));
    }
}

/// A pool as a whole.
fn whole(pool: &Pool) -> Scope {
    Scope { pool: Arc::clone(&pool.name), endpoint: None }
}

impl PoolRow {
    /// Where the endpoints stand that are called so, in their order.
    fn called(&self, name: &str) -> impl Iterator<Item = usize> {
        let first = self.names.partition_point(|(other, _)| **other < *name);
        let same = self.names[first..].iter().take_while(move |(other, _)| **other == *name);
        same.map(|(_, place)| *place)
    }
}

impl Row {
    fn targets(&self) -> impl Iterator<Item = TargetId> {
        self.sights.iter().flat_map(|sight| sight.targets.iter().copied())
    }
}
