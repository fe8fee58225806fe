//! All targets and what is held of them.
//!
//! A target is one endpoint of one pool tested by one monitor. The table owns
//! the machines, combines a pool's monitors into one verdict an endpoint (all
//! must pass), and carries verdicts over a reload. It does not know when
//! probes are due: that is the schedule's business.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::{Machine, Outcome, PoolHealth, ProbeResult, ProbeTask, Rhythm, Transition, Verdict, pool_health};
use crate::model::{Endpoint, Model, Monitor, Pool, PoolId};
use crate::moment::Moment;

/// Names a target for as long as it exists; never used again afterwards, so
/// that a late outcome for a removed target is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetId(u64);

/// One endpoint tested by one monitor.
#[derive(Clone, Debug)]
pub struct Target {
    pub pool: PoolId,
    /// Its place in the pool.
    pub endpoint: usize,
    pub task: Arc<ProbeTask>,
    pub rhythm: Rhythm,
    machine: Machine,
    /// Whether any probe has come to an end, be it with an error.
    seen: bool,
    /// Whether the last probe could not be made.
    blocked: bool,
}

impl Target {
    /// When to probe again after a probe that ended `now`.
    pub fn next_after(&self, now: Moment) -> Moment {
        let beat = self.rhythm.after(now).at;
        match self.task.monitor.recheck_interval {
            Some(recheck) if self.machine.is_doubtful() => beat.min(now + recheck),
            _ => beat,
        }
    }
}

/// What an outcome changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// The target's own verdict changed.
    pub transition: Option<Transition>,
    /// The verdict on the endpoint, all monitors together, changed.
    pub endpoint_changed: bool,
    /// Probes of this target can't be made any more.
    pub newly_blocked: bool,
}

/// All targets, by pool and endpoint.
#[derive(Clone, Debug, Default)]
pub struct Table {
    targets: HashMap<TargetId, Target>,
    pools: Vec<PoolRow>,
    next_id: u64,
    unseen: usize,
}

/// One pool's part of the table, in the order of its endpoints.
#[derive(Clone, Debug, Default)]
struct PoolRow {
    targets: Vec<Vec<TargetId>>,
    verdicts: Vec<Verdict>,
}

impl Table {
    /// Takes on another configuration. A target whose pool, endpoint, address
    /// and test are the same keeps its id and its run; one whose test changed
    /// keeps the verdict until the new test's first outcome; the rest start
    /// unknown. Returns the targets that are new, in the order of the model.
    pub fn adopt(&mut self, model: &Model, now: Moment) -> Vec<TargetId> {
        let mut old = self.by_endpoint();
        let mut kept = HashMap::with_capacity(self.targets.len());
        let mut new = Vec::new();
        let mut rows = Vec::with_capacity(model.pools.len());
        for (pool, number) in model.pools.iter().zip(0..) {
            let mut row = PoolRow::default();
            for (endpoint, place) in pool.endpoints.iter().zip(0..) {
                let monitors: &[_] = if pool.enabled && endpoint.enabled { &pool.monitors } else { &[] };
                let before = old.remove(&key(&pool.name, endpoint)).unwrap_or_default();
                let targets: Vec<Target> = monitors
                    .iter()
                    .map(|&monitor| Target {
                        pool: PoolId(number),
                        endpoint: place,
                        ..Target::new(pool, endpoint, model.monitor(monitor), now)
                    })
                    .collect();
                let known = worst(&before);
                let before = predecessors(before, &targets);
                let ids = targets.into_iter().zip(before).map(|(target, before)| {
                    let (id, target) = match before {
                        Some((id, old)) if same_test(&old, &target) => (
                            id,
                            Target { machine: old.machine, seen: old.seen, blocked: old.blocked, ..target },
                        ),
                        Some((_, old)) => {
                            (self.fresh_id(), Target { machine: old.machine.carry_over(), ..target })
                        }
                        None => {
                            let machine = known.map_or(target.machine, Machine::carry_over);
                            (self.fresh_id(), Target { machine, ..target })
                        }
                    };
                    if !self.targets.contains_key(&id) {
                        new.push(id);
                    }
                    kept.insert(id, target);
                    id
                });
                row.targets.push(ids.collect());
            }
            rows.push(row);
        }
        self.targets = kept;
        self.pools = rows;
        self.unseen = self.targets.values().filter(|target| !target.seen).count();
        for pool in 0..self.pools.len() {
            for endpoint in 0..self.pools[pool].targets.len() {
                let verdict = self.combined(pool, endpoint);
                self.pools[pool].verdicts.push(verdict);
            }
        }
        new
    }

    /// Takes in what a probe found; none if the target is gone.
    pub fn observe(&mut self, id: TargetId, outcome: &Outcome, now: Moment) -> Option<Observed> {
        let target = self.targets.get_mut(&id)?;
        if !std::mem::replace(&mut target.seen, true) {
            self.unseen -= 1;
        }
        let blocked = outcome.result == ProbeResult::Error;
        let was_blocked = std::mem::replace(&mut target.blocked, blocked);
        let newly_blocked = blocked && !was_blocked;
        let limits = target.task.monitor.thresholds;
        let transition = match outcome.result {
            ProbeResult::Pass => target.machine.observe(true, now, limits),
            ProbeResult::Fail => target.machine.observe(false, now, limits),
            ProbeResult::Error => None,
        };
        let (pool, endpoint) = (target.pool.0 as usize, target.endpoint);
        let verdict = self.combined(pool, endpoint);
        let held = std::mem::replace(&mut self.pools[pool].verdicts[endpoint], verdict);
        Some(Observed { transition, endpoint_changed: held != verdict, newly_blocked })
    }

    /// The target of this id, while it exists.
    pub fn target(&self, id: TargetId) -> Option<&Target> {
        self.targets.get(&id)
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

    /// A pool's state.
    pub fn pool(&self, model: &Model, pool: PoolId) -> PoolHealth {
        pool_health(model.pool(pool), self.verdicts(pool))
    }

    /// All monitors must pass; one failure decides.
    fn combined(&self, pool: usize, endpoint: usize) -> Verdict {
        let verdicts = || {
            let ids = self.pools[pool].targets[endpoint].iter();
            ids.map(|id| self.targets[id].machine.verdict())
        };
        if verdicts().any(|verdict| verdict == Verdict::Unhealthy) {
            Verdict::Unhealthy
        } else if verdicts().all(|verdict| verdict == Verdict::Healthy) && verdicts().next().is_some() {
            Verdict::Healthy
        } else {
            Verdict::Unknown
        }
    }

    fn fresh_id(&mut self) -> TargetId {
        self.next_id += 1;
        TargetId(self.next_id)
    }

    /// The targets as they stand, under what identifies their endpoint.
    fn by_endpoint(&self) -> HashMap<EndpointKey, Vec<(TargetId, Target)>> {
        let mut all: HashMap<EndpointKey, Vec<_>> = HashMap::new();
        for row in &self.pools {
            for &id in row.targets.iter().flatten() {
                let target = &self.targets[&id];
                let key =
                    (Arc::clone(&target.task.pool), Arc::clone(&target.task.endpoint), target.task.address);
                all.entry(key).or_default().push((id, target.clone()));
            }
        }
        all
    }
}

/// A verdict belongs to a pool's name, an endpoint's name and its address.
type EndpointKey = (Arc<str>, Arc<str>, std::net::IpAddr);

fn key(pool: &Arc<str>, endpoint: &Endpoint) -> EndpointKey {
    (Arc::clone(pool), Arc::clone(&endpoint.name), endpoint.address)
}

/// Which target of `before` each of an endpoint's new targets carries on: the
/// one with the same test, else the one of the same monitor, else any that no
/// other target carries on.
fn predecessors(mut before: Vec<(TargetId, Target)>, targets: &[Target]) -> Vec<Option<(TargetId, Target)>> {
    let same_monitor = |old: &Target, new: &Target| old.task.monitor.name == new.task.monitor.name;
    let rules: [fn(&Target, &Target) -> bool; 3] = [same_test, same_monitor, |_, _| true];
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
fn worst(before: &[(TargetId, Target)]) -> Option<Machine> {
    let rank = |machine: &Machine| match machine.verdict() {
        Verdict::Unhealthy => 0,
        Verdict::Unknown => 1,
        Verdict::Healthy => 2,
    };
    before.iter().map(|(_, target)| target.machine).min_by_key(rank)
}

/// Whether an outcome of one is an outcome of the other.
fn same_test(a: &Target, b: &Target) -> bool {
    let (a, b) = (&a.task, &b.task);
    a.monitor.check == b.monitor.check && a.port == b.port && a.host == b.host
}

impl Target {
    fn new(pool: &Pool, endpoint: &Endpoint, monitor: &Arc<Monitor>, now: Moment) -> Target {
        let check = &monitor.check;
        let port = check.port().or(endpoint.port).or(check.usual_port()).unwrap_or_default();
        let task = ProbeTask {
            pool: Arc::clone(&pool.name),
            endpoint: Arc::clone(&endpoint.name),
            address: endpoint.address,
            hostname: None,
            port,
            host: endpoint.host.clone(),
            monitor: Arc::clone(monitor),
            vantage: Arc::default(),
        };
        let mut hasher = DefaultHasher::new(); // its keys are constant: the same hash in every process
        (&task.pool, &task.endpoint, task.address, &monitor.name).hash(&mut hasher);
        Target {
            pool: PoolId(0),
            endpoint: 0,
            rhythm: Rhythm::new(monitor.interval, hasher.finish()),
            task: Arc::new(task),
            machine: Machine::new(now),
            seen: false,
            blocked: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::Reason;
    use crate::model::{AnswerShape, Check, MonitorId, TcpCheck, Thresholds, Weight};

    fn monitor(name: &str, port: u16) -> Arc<Monitor> {
        let check = Check::Tcp(TcpCheck { port: Some(port), ..TcpCheck::default() });
        Arc::new(Monitor { thresholds: Thresholds { up: 2, down: 2 }, ..Monitor::new(name, check) })
    }

    fn model(monitors: &[Arc<Monitor>], endpoints: &[(&str, u8)]) -> Model {
        let endpoints = endpoints.iter().map(|&(name, last)| Endpoint {
            name: name.into(),
            address: [192, 0, 2, last].into(),
            enabled: true,
            weight: Weight(100),
            port: None,
            host: None,
        });
        Model {
            monitors: monitors.to_vec(),
            pools: vec![Pool {
                name: "p".into(),
                enabled: true,
                monitors: (0..monitors.len() as u32).map(MonitorId).collect(),
                health_threshold: 1,
                answer: AnswerShape::ByWeight,
                max_answers: 8,
                family_threshold: Default::default(),
                endpoints: endpoints.collect(),
            }],
            zones: Vec::new(),
        }
    }

    fn outcome(result: ProbeResult) -> Outcome {
        Outcome::new(result, Reason::NoFailures, "")
    }

    fn verdicts(table: &Table) -> Vec<Verdict> {
        table.verdicts(PoolId(0)).to_vec()
    }

    use Verdict::{Healthy, Unhealthy, Unknown};

    #[test]
    fn all_monitors_of_a_pool_must_pass() {
        let mut table = Table::default();
        let ids = table.adopt(&model(&[monitor("a", 1), monitor("b", 2)], &[("x", 1)]), Moment::ZERO);
        for (n, result, verdict) in [
            (0, ProbeResult::Pass, Unknown),
            (1, ProbeResult::Fail, Unhealthy),
            (1, ProbeResult::Pass, Unhealthy),
        ] {
            table.observe(ids[n], &outcome(result), Moment::ZERO);
            assert_eq!(verdicts(&table), [verdict]);
        }
        assert!(table.observe(ids[1], &outcome(ProbeResult::Pass), Moment::ZERO).unwrap().endpoint_changed);
        assert_eq!(verdicts(&table), [Healthy]);
    }

    #[test]
    fn an_error_says_nothing_about_the_endpoint() {
        let mut table = Table::default();
        let ids = table.adopt(&model(&[monitor("a", 1)], &[("x", 1)]), Moment::ZERO);
        assert!(!table.is_settled());
        let seen = table.observe(ids[0], &outcome(ProbeResult::Error), Moment::ZERO).unwrap();
        assert!(seen.newly_blocked && !seen.endpoint_changed && table.is_settled());
        assert_eq!(verdicts(&table), [Unknown]);
        let again = table.observe(ids[0], &outcome(ProbeResult::Error), Moment::ZERO).unwrap();
        assert!(!again.newly_blocked, "said once, not with every probe");
        table.observe(ids[0], &outcome(ProbeResult::Pass), Moment::ZERO);
        let anew = table.observe(ids[0], &outcome(ProbeResult::Error), Moment::ZERO).unwrap();
        assert!(anew.newly_blocked, "and again after a probe that could be made");
    }

    #[test]
    fn verdicts_survive_a_reload_by_name_address_and_test() {
        let mut table = Table::default();
        let ids = table.adopt(&model(&[monitor("a", 1)], &[("x", 1), ("y", 2), ("z", 3)]), Moment::ZERO);
        for (id, result) in ids.iter().zip([ProbeResult::Pass, ProbeResult::Fail, ProbeResult::Pass]) {
            table.observe(*id, &outcome(result), Moment::ZERO);
        }
        let reordered = model(&[monitor("a", 1)], &[("y", 2), ("x", 1), ("z", 4)]);
        let new = table.adopt(&reordered, Moment::ZERO);
        assert_eq!(verdicts(&table), [Unhealthy, Healthy, Unknown], "z has another address");
        assert_eq!(new.len(), 1, "unchanged targets keep their ids");
        let renamed = model(&[monitor("other", 1)], &[("y", 2), ("x", 1), ("z", 4)]);
        assert_eq!(table.adopt(&renamed, Moment::ZERO), [], "the test counts, not the monitor's name");
    }

    #[test]
    fn a_test_that_stays_is_carried_on_by_itself_wherever_it_stands() {
        for before in [vec![monitor("b", 2)], vec![monitor("a", 9), monitor("b", 2)]] {
            let mut table = Table::default();
            table.adopt(&model(&before, &[("x", 1)]), Moment::ZERO);
            let new = table.adopt(&model(&[monitor("a", 1), monitor("b", 2)], &[("x", 1)]), Moment::ZERO);
            assert_eq!(new.len(), 1, "the test on port 2 keeps its run");
            let swapped = model(&[monitor("a", 2), monitor("b", 1)], &[("x", 1)]);
            assert_eq!(table.adopt(&swapped, Moment::ZERO), [], "the test counts, not the monitor's name");
        }
    }

    #[test]
    fn a_monitor_added_to_a_monitored_endpoint_moves_nothing_before_its_first_outcome() {
        let mut table = Table::default();
        let ids = table.adopt(&model(&[monitor("a", 1)], &[("x", 1)]), Moment::ZERO);
        table.observe(ids[0], &outcome(ProbeResult::Pass), Moment::ZERO);
        let both = model(&[monitor("a", 1), monitor("b", 2)], &[("x", 1)]);
        let new = table.adopt(&both, Moment::ZERO);
        assert_eq!((new.len(), verdicts(&table)), (1, vec![Healthy]));
        table.observe(new[0], &outcome(ProbeResult::Fail), Moment::ZERO);
        assert_eq!(verdicts(&table), [Unhealthy], "the first outcome decides alone");
    }

    #[test]
    fn a_changed_test_keeps_the_verdict_until_its_first_outcome() {
        let mut table = Table::default();
        let ids = table.adopt(&model(&[monitor("a", 1)], &[("x", 1)]), Moment::ZERO);
        table.observe(ids[0], &outcome(ProbeResult::Pass), Moment::ZERO);
        let new = table.adopt(&model(&[monitor("a", 9)], &[("x", 1)]), Moment::ZERO);
        assert_eq!(verdicts(&table), [Healthy]);
        assert_eq!(
            table.observe(ids[0], &outcome(ProbeResult::Fail), Moment::ZERO),
            None,
            "a late outcome of the old test is nobody's"
        );
        table.observe(new[0], &outcome(ProbeResult::Fail), Moment::ZERO);
        assert_eq!(verdicts(&table), [Unhealthy], "the first outcome decides alone");
    }
}
