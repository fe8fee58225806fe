//! Taking on another configuration, with what was held before.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::super::doubt::VantageDoubt;
use super::super::ejection::Traffic;
use super::super::memory::{EndpointKey, EndpointMemory, TargetKey};
use super::super::overrides::{Action, Override, Slot};
use super::super::standing::Standing;
use super::super::target::{TestHash, turns_after};
use super::super::{Machine, Record, Target, TargetId, Verdict};
use super::{Gone, PoolRow, Row, Sight, Table, Why, whole};
use crate::model::{
    Check, Endpoint, LoadBalancer, Model, Pool, PoolId, Reach, Rules, Scope, TtlPolicy, VantageId, ttl_within,
};
use crate::moment::Moment;

/// What was held of one endpoint.
struct Former {
    row: Row,
    standing: Standing,
    targets: Vec<(TargetId, Target)>,
    /// The names of the vantages, in the order of the row's sights.
    vantages: Vec<Arc<str>>,
    hostname: Option<Arc<str>>,
}

impl Table {
    /// Takes on another configuration; `serving` if answers are given already.
    /// A target whose pool, endpoint, address, vantage and test are the same
    /// keeps its id and its run; one whose test changed keeps the verdict until
    /// the new test's first outcome; the rest start unknown. Returns the targets
    /// that are new, in the order of the model.
    pub fn adopt(&mut self, model: Arc<Model>, now: Moment, serving: bool) -> Vec<TargetId> {
        let kept_until = self.kept_until(now);
        let mut former = self.former();
        let mut kept = HashMap::with_capacity(self.targets.len());
        let mut new = Vec::new();
        let mut moved = Vec::new();
        let tests: Vec<TestHash> = model.monitors.iter().map(|monitor| TestHash::of(monitor)).collect();
        self.doubts = self.doubts_of(&model);
        self.timers.clear();
        self.touched.clear(); // all pools are compiled anew
        let links = Links::of(&model);
        let mut pools = Vec::with_capacity(model.pools.len());
        for (pool, id) in model.pools.iter().zip(0..) {
            let id = PoolId(id);
            let mut held = PoolRow::new(pool, &model, &links, id);
            held.kept_until = kept_until.get(&pool.name).copied().unwrap_or_default();
            for place in 0..pool.endpoints.len() {
                let before = former.remove(&key(pool, place));
                let known = before.as_ref().map(|before| before.row.since);
                let (row, standing) =
                    self.adopt_endpoint(&model, id, place, before, &tests, serving, now, &mut kept, &mut new);
                held.verdicts.push(row.verdict);
                held.up += usize::from(standing.fitness.is_up());
                held.unknown += usize::from(standing.fitness.is_unknown());
                held.rows.push(row);
                held.standings.push(standing);
                if let Some(since) = known {
                    moved.push((id, place, standing, since));
                }
            }
            pools.push(held);
        }
        // what goes on under another name, or was carried over, is to outlive a crash, too
        let goes_on = |(id, target): &(&TargetId, &Target)| {
            let same = |old: &Target| old.task.monitor.name == target.task.monitor.name;
            target.machine.verdict() != Verdict::Unknown && !self.targets.get(id).is_some_and(same)
        };
        let mut told: Vec<TargetId> = kept.iter().filter(goes_on).map(|(id, _)| *id).collect();
        told.sort();
        self.targets = kept;
        self.pools = pools;
        self.model = model;
        if serving {
            for id in told {
                let (key, memory) = self.target_record(id);
                self.records.push(Record::Target(key, memory));
            }
        }
        self.note_gone(former);
        self.unseen = self.targets.values().filter(|target| !target.seen).count();
        if serving {
            self.memory = super::Memory::default(); // it is of the first configuration alone
        }
        let model = Arc::clone(&self.model);
        for window in &model.maintenance {
            for (pool, place) in self.places_of(&window.of) {
                self.pools[pool.0 as usize].rows[place].windows.push(window.when);
            }
        }
        let moves = self.moves.len();
        // dependencies look at each other: twice round is enough for what was known before
        for round in 0..2 {
            for id in (0..self.pools.len() as u32).map(PoolId) {
                for place in 0..self.pools[id.0 as usize].rows.len() {
                    if round == 0 || self.has_dependencies(id, place) {
                        self.judge_at_first(id, place, now);
                    }
                }
            }
        }
        self.count_horizons();
        for vantage in (0..self.doubts.len() as u32).map(VantageId) {
            if self.has_doubts(vantage) {
                self.reconsider(vantage, now); // what it doubted itself for may be gone
            }
        }
        self.moves.truncate(moves);
        for (pool, endpoint, from, since) in moved {
            let to = self.pools[pool.0 as usize].standings[endpoint];
            if from.without_share() != to.without_share() {
                self.moves.push(super::Move { pool, endpoint, from, to, since, why: Why::Reload });
            }
        }
        new
    }

    /// Keeps what of this has no successor; one of another address has.
    fn note_gone(&mut self, former: HashMap<EndpointKey, Former>) {
        let gone = former.into_iter().map(|(key, Former { row, standing, hostname, .. })| {
            let scope = Scope { pool: key.pool, endpoint: Some(key.endpoint) };
            Gone { scope, hostname, from: standing, since: row.since }
        });
        let mut gone: Vec<Gone> = gone.filter(|gone| self.places_of(&gone.scope).is_empty()).collect();
        gone.sort_by(|one, other| one.scope.cmp(&other.scope));
        self.gone.extend(gone);
    }

    /// Judges an endpoint whose facts were put together just now.
    fn judge_at_first(&mut self, pool: PoolId, place: usize, now: Moment) {
        let sights = self.pools[pool.0 as usize].rows[place].sights.len();
        for sight in 0..sights {
            let verdict = self.sighted(pool, &self.pools[pool.0 as usize].rows[place].sights[sight]);
            self.pools[pool.0 as usize].rows[place].sights[sight].verdict = verdict;
        }
        let since = self.pools[pool.0 as usize].rows[place].since;
        let before = self.pools[pool.0 as usize].standings[place].fitness;
        self.rejudge(pool, place, Why::Reload, now);
        let held = &mut self.pools[pool.0 as usize];
        if held.standings[place].fitness == before {
            held.rows[place].since = since;
        }
    }

    fn has_dependencies(&self, pool: PoolId, place: usize) -> bool {
        let declared = self.model.pool(pool);
        !declared.depends_on.is_empty() || !declared.endpoints[place].depends_on.is_empty()
    }

    #[allow(clippy::too_many_arguments)] // the parts of one walk over the model
    fn adopt_endpoint(
        &mut self,
        model: &Arc<Model>,
        pool: PoolId,
        place: usize,
        before: Option<Former>,
        tests: &[TestHash],
        serving: bool,
        now: Moment,
        kept: &mut HashMap<TargetId, Target>,
        new: &mut Vec<TargetId>,
    ) -> (Row, Standing) {
        let declared = model.pool(pool);
        let targets = self.targets_for(model, pool, place, tests, now);
        let (mut row, standing, before) = match before {
            Some(Former { row, standing, targets, vantages, .. }) => (
                Row {
                    sights: sights_of(model, declared, &row, &vantages),
                    windows: Vec::new(),
                    timer: None,
                    ..row
                },
                standing,
                targets,
            ),
            None => (
                Row::new(declared, serving, now),
                Standing { percent: 100, ..Standing::default() },
                Vec::new(),
            ),
        };
        if before.is_empty()
            && let Some(memory) = self.memory.endpoints.get(&key(declared, place))
            && row.verdict == Verdict::Unknown
        {
            row.recall(memory, &declared.rules, now);
        }
        let agents = declared.tests.members.iter().map(|member| &model.monitor(member.monitor).check);
        if !agents.into_iter().any(|check| matches!(check, Check::Agent(_))) {
            (row.wish, row.agent_percent) = (None, 100); // nobody speaks for it any more
        }
        let start = start_period(model, declared);
        let known = worst(&before);
        let predecessors = predecessors(before, &targets);
        for (mut target, before) in targets.into_iter().zip(predecessors) {
            let id = match before {
                Some((id, old)) => {
                    let same = old.same_test(&target);
                    target.machine = if same { old.machine } else { old.machine.carry_over() };
                    target.reported = old.reported;
                    if same {
                        (target.seen, target.blocked, target.pushed) = (old.seen, old.blocked, old.pushed);
                        target.created = old.created;
                        (target.last_pass, target.last_fail) = (old.last_pass, old.last_fail);
                        id
                    } else {
                        self.fresh_id()
                    }
                }
                None => {
                    if let Some((machine, reported)) = known {
                        (target.machine, target.reported) = (machine.carry_over(), reported);
                    } else if !self.recall_target(&mut target, declared, place) && serving && !start.is_zero()
                    {
                        target.machine = target.machine.start(now + start);
                    }
                    self.fresh_id()
                }
            };
            if !self.targets.contains_key(&id) {
                new.push(id); // one that is remembered, too: probed all the same, though nobody waits for it
            }
            row.sights[target.sight].targets.push(id);
            kept.insert(id, target);
        }
        (row, standing)
    }

    /// The targets that an endpoint has under `model`, as if nothing were known.
    fn targets_for(
        &self,
        model: &Model,
        pool: PoolId,
        place: usize,
        tests: &[TestHash],
        now: Moment,
    ) -> Vec<Target> {
        let declared = model.pool(pool);
        let endpoint = &declared.endpoints[place];
        let enables = |said: Option<&Override>| said.is_some_and(|said| said.action == Action::Enable);
        if !declared.enabled && !enables(self.overrides.get(&whole(declared), Slot::Traffic, now))
            || !endpoint.enabled && !enables(self.said(declared, endpoint, Slot::Traffic, now))
        {
            return Vec::new();
        }
        let mut targets = Vec::new();
        for (sight, vantage) in declared.viewpoints.vantages.iter().enumerate() {
            let vantage = model.vantage(*vantage);
            if vantage.reach == Reach::Remote {
                continue;
            }
            for (number, member) in declared.tests.members.iter().enumerate() {
                let monitor = model.monitor(member.monitor);
                let test = &tests[member.monitor.0 as usize];
                let target = Target::new(declared, endpoint, monitor, test, vantage, now);
                targets.push(Target { pool, endpoint: place, sight, member: number, ..target });
            }
        }
        targets
    }

    /// Goes on where a former run stood; tells whether it could.
    fn recall_target(&self, target: &mut Target, pool: &Pool, place: usize) -> bool {
        let key = TargetKey {
            endpoint: key(pool, place),
            monitor: Arc::clone(&target.task.monitor.name),
            vantage: Arc::clone(&target.task.vantage.name),
        };
        let Some(memory) = self.memory.targets.get(&key) else { return false };
        let machine = Machine::recall(memory.machine);
        if machine.verdict() == Verdict::Unknown {
            return false;
        }
        let same = memory.test == target.test;
        target.machine = if same { machine } else { machine.carry_over() };
        target.seen = same;
        // that it is as old as the former run's end was looked at when it was read
        target.reported = memory.reported.max(self.memory.alive);
        true
    }

    /// Until when answers that were given under the configuration so far may
    /// be kept, by pool.
    fn kept_until(&self, now: Moment) -> HashMap<Arc<str>, Moment> {
        let both = self.pools.iter().zip(&self.model.pools);
        both.map(|(held, pool)| (Arc::clone(&pool.name), held.kept_until.max(now + held.longest_ttl)))
            .collect()
    }

    fn fresh_id(&mut self) -> TargetId {
        self.next_id += 1;
        TargetId(self.next_id)
    }

    /// A vantage's doubt goes with its name.
    fn doubts_of(&self, model: &Model) -> Vec<VantageDoubt> {
        let former = |name: &str| {
            let id = self.model.vantage_named(name)?;
            self.doubts.get(id.0 as usize).copied()
        };
        model.vantages.iter().map(|vantage| former(&vantage.name).unwrap_or_default()).collect()
    }

    /// What is held now, by what identifies an endpoint.
    fn former(&mut self) -> HashMap<EndpointKey, Former> {
        let mut all = HashMap::new();
        for (held, pool) in std::mem::take(&mut self.pools).into_iter().zip(&self.model.pools) {
            let name = |id: &VantageId| Arc::clone(&self.model.vantage(*id).name);
            let vantages: Vec<_> = pool.viewpoints.vantages.iter().map(name).collect();
            for (place, (row, standing)) in held.rows.into_iter().zip(held.standings).enumerate() {
                let targets = row.targets().map(|id| (id, self.targets[&id].clone())).collect();
                let hostname = pool.endpoints[place].hostname.clone();
                let former = Former { row, standing, targets, vantages: vantages.clone(), hostname };
                all.insert(key(pool, place), former);
            }
        }
        all
    }
}

impl PoolRow {
    fn new(pool: &Pool, model: &Model, links: &Links, id: PoolId) -> PoolRow {
        let voters = pool.tests.members.iter().filter(|member| member.votes);
        let called = |(endpoint, place): (&Endpoint, usize)| {
            let of_all = endpoint.of_all().map(|name| (name.into(), place));
            std::iter::once((Arc::clone(&endpoint.name), place)).chain(of_all)
        };
        let mut names: Vec<(Arc<str>, usize)> = pool.endpoints.iter().zip(0..).flat_map(called).collect();
        names.sort();
        PoolRow {
            names,
            start_period: start_period(model, pool),
            patience: voters.map(|member| model.monitor(member.monitor).patience()).max().unwrap_or_default(),
            longest_ttl: links.ttls.get(&id).copied().unwrap_or_default(),
            dependents: links.dependents.get(&id).cloned().unwrap_or_default(),
            named: links.named.contains(&id),
            paces: links.paces.contains(&id),
            ..PoolRow::default()
        }
    }
}

impl Row {
    fn new(pool: &Pool, fresh: bool, now: Moment) -> Row {
        Row {
            sights: vec![Sight::default(); pool.viewpoints.vantages.len()],
            fresh,
            verdict: Verdict::Unknown,
            verdict_since: now,
            flaps: VecDeque::new(),
            flap_out: false,
            traffic: Traffic::default(),
            windows: Vec::new(),
            wish: None,
            agent_percent: 100,
            slow_since: None,
            since: now,
            timer: None,
        }
    }

    fn recall(&mut self, memory: &EndpointMemory, rules: &Rules, now: Moment) {
        (self.verdict, self.verdict_since) = (memory.verdict, memory.since);
        (self.since, self.flaps) = (memory.since, memory.flaps.iter().copied().collect());
        self.flap_out = self.flaps.len() > rules.flap_limit as usize && !rules.flap_hold.is_zero();
        // a clock that was ahead may have made it too long
        let longest =
            rules.ejection.map(|ejection| now + ejection.max_ejection_time.max(ejection.ejection_time));
        self.traffic.ejections = memory.ejections;
        self.traffic.until = memory.ejected_until.zip(longest).map(|(until, longest)| until.min(longest));
        (self.wish, self.agent_percent) = (memory.wish, memory.percent);
    }
}

/// The sights of an endpoint under `pool`, with what vantages of the same
/// names have told and when they saw it fall.
fn sights_of(model: &Model, pool: &Pool, row: &Row, before: &[Arc<str>]) -> Vec<Sight> {
    let of = |vantage: &VantageId| {
        let name = &model.vantage(*vantage).name;
        let old = before.iter().position(|other| other == name).map(|place| &row.sights[place]);
        let told = old.and_then(|old| old.told).filter(|_| model.vantage(*vantage).reach == Reach::Remote);
        old.map_or_else(Sight::default, |old| Sight {
            targets: Vec::new(),
            told,
            verdict: old.verdict,
            fell: old.fell,
            failures: old.failures,
        })
    };
    pool.viewpoints.vantages.iter().map(of).collect()
}

fn start_period(model: &Model, pool: &Pool) -> Duration {
    let longest = pool.tests.members.iter().map(|member| model.monitor(member.monitor).start_period).max();
    pool.rules.start_period.or(longest).unwrap_or_default()
}

fn key(pool: &Pool, place: usize) -> EndpointKey {
    let endpoint = &pool.endpoints[place];
    EndpointKey {
        pool: Arc::clone(&pool.name),
        endpoint: Arc::clone(&endpoint.name),
        address: endpoint.address,
    }
}

/// Who has to do with a pool.
#[derive(Default)]
struct Links {
    ttls: HashMap<PoolId, Duration>,
    dependents: HashMap<PoolId, Vec<PoolId>>,
    /// Pools of which something needs one endpoint.
    named: HashSet<PoolId>,
    /// Pools whose next possible verdict some TTL goes by.
    paces: HashSet<PoolId>,
}

impl Links {
    fn of(model: &Model) -> Links {
        let mut links = Links::default();
        for balancer in model.zones.iter().flat_map(|zone| &zone.load_balancers) {
            for pool in balancer.pools() {
                let ttl = links.ttls.entry(pool).or_default();
                *ttl = (*ttl).max(Duration::from_secs(longest_ttl(model, balancer, pool).into()));
            }
            if balancer.ttl_policy == TtlPolicy::Derived {
                for pool in &balancer.default_pools {
                    if links.paces.insert(*pool) {
                        links.paces.extend(model.needs(model.pool(*pool)));
                    }
                }
            }
        }
        for set in model.zones.iter().flat_map(|zone| &zone.records) {
            for needed in set.depends_on.iter().flatten() {
                let ttl = links.ttls.entry(needed.pool).or_default();
                *ttl = (*ttl).max(Duration::from_secs(set.ttl.into()));
            }
        }
        for (pool, id) in model.pools.iter().zip(0..) {
            let own = pool.endpoints.iter().flat_map(|endpoint| &endpoint.depends_on);
            let needed: Vec<_> = own.chain(&pool.depends_on).collect();
            links
                .named
                .extend(needed.iter().filter(|needed| needed.endpoint.is_some()).map(|needed| needed.pool));
            let mut needed: Vec<PoolId> = needed.into_iter().map(|needed| needed.pool).collect();
            needed.sort();
            needed.dedup();
            for needed in needed {
                links.dependents.entry(needed).or_default().push(PoolId(id));
            }
        }
        links
    }
}

/// The longest TTL under which a load balancer hands out a pool's addresses: a
/// derived one is no longer than any verdict of that pool can be away.
fn longest_ttl(model: &Model, balancer: &LoadBalancer, id: PoolId) -> u32 {
    let pool = model.pool(id);
    let is_probed = pool.endpoints.iter().any(|endpoint| endpoint.enabled);
    if balancer.ttl_policy == TtlPolicy::Fixed || !balancer.default_pools.contains(&id) || !is_probed {
        return balancer.ttl;
    }
    let voters = pool.tests.members.iter().filter(|member| member.votes);
    let monitors = voters.map(|member| model.monitor(member.monitor));
    let turning = monitors.filter(|monitor| !matches!(monitor.check, Check::Static(_)));
    let away = turning.flat_map(|monitor| {
        [Verdict::Healthy, Verdict::Unhealthy].map(|verdict| turns_after(monitor, verdict))
    });
    away.max().map_or(balancer.ttl, |time| balancer.ttl.min(ttl_within(time)))
}

/// Which target of `before` each of an endpoint's new targets carries on: the
/// one with the same test, else the one of the same monitor, else any of the
/// same vantage that no other target carries on.
fn predecessors(mut before: Vec<(TargetId, Target)>, targets: &[Target]) -> Vec<Option<(TargetId, Target)>> {
    fn same_vantage(old: &Target, new: &Target) -> bool {
        old.task.vantage.name == new.task.vantage.name
    }
    fn same_monitor(old: &Target, new: &Target) -> bool {
        same_vantage(old, new) && old.task.monitor.name == new.task.monitor.name
    }
    let rules: [fn(&Target, &Target) -> bool; 3] = [Target::same_test, same_monitor, same_vantage];
    let mut found: Vec<Option<_>> = targets.iter().map(|_| None).collect();
    for rule in rules {
        for (target, found) in targets.iter().zip(&mut found).filter(|(_, found)| found.is_none()) {
            *found = before.iter().position(|(_, old)| rule(old, target)).map(|place| before.remove(place));
        }
    }
    found
}

/// What was held of an endpoint: of its targets the one that decided. A monitor
/// that comes to an endpoint already monitored begins there, so that adding a
/// test moves no traffic before the test has said anything.
fn worst(before: &[(TargetId, Target)]) -> Option<(Machine, Option<Moment>)> {
    let decided = before.iter().map(|(_, target)| target).min_by_key(|target| target.rank());
    decided.map(|target| (target.machine, target.reported))
}
