//! One endpoint tested by one monitor from one vantage.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use super::{Machine, MachineMemory, Outcome, ProbeResult, ProbeTask, Rhythm, Transition, Verdict};
use crate::model::{Check, Endpoint, Monitor, Pool, PoolId, Vantage};
use crate::moment::Moment;

/// Names a target for as long as it exists; never used again afterwards, so
/// that a late outcome for a removed target is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetId(pub(super) u64);

/// The part of a test's hash that is the monitor's, and the same for all it
/// tests.
pub(super) struct TestHash(DefaultHasher);

impl TestHash {
    pub fn of(monitor: &Monitor) -> TestHash {
        let mut hasher = DefaultHasher::new();
        // a check has floats in it and no hash of its own; its words are as good
        format!("{:?}", (&monitor.check, monitor.reading.invert)).hash(&mut hasher);
        TestHash(hasher)
    }

    fn at(&self, port: u16, host: &Option<Arc<str>>) -> u64 {
        let mut hasher = self.0.clone();
        (port, host).hash(&mut hasher);
        hasher.finish()
    }
}

/// A probe's outcome, and when it came.
#[derive(Clone, Debug, PartialEq)]
pub struct Sighting {
    pub at: Moment,
    pub outcome: Outcome,
}

/// The least time from an outcome to another verdict than this one while
/// nothing speaks against it.
pub fn turns_after(monitor: &Monitor, verdict: Verdict) -> Duration {
    let machine = Machine::recall(MachineMemory { verdict, since: Moment::ZERO, run: None });
    next_verdict(monitor, &machine)
}

/// The least time from the last outcome to another verdict, as beats and
/// rechecks go.
fn next_verdict(monitor: &Monitor, machine: &Machine) -> Duration {
    let outcomes = machine.outcomes_to_change(monitor.thresholds);
    match machine.verdict() {
        Verdict::Healthy if machine.is_doubtful() => monitor.recheck() * outcomes,
        Verdict::Healthy => monitor.interval + monitor.recheck() * (outcomes - 1),
        Verdict::Unhealthy | Verdict::Unknown => monitor.interval * outcomes,
    }
}

/// One endpoint tested by one monitor from one vantage.
#[derive(Clone, Debug)]
pub struct Target {
    pub pool: PoolId,
    /// Its place in the pool.
    pub endpoint: usize,
    /// The vantage's place among the pool's.
    pub sight: usize,
    /// The monitor's place among the pool's.
    pub member: usize,
    pub task: Arc<ProbeTask>,
    /// A stable hash of what is tested, for who remembers a verdict.
    pub test: u64,
    pub rhythm: Rhythm,
    pub(super) machine: Machine,
    /// Whether any probe has come to an end, be it with an error.
    pub(super) seen: bool,
    /// Whether the last probe could not be made.
    pub(super) blocked: bool,
    /// The last outcome that says something about the endpoint.
    pub(super) reported: Option<Moment>,
    pub(super) last_pass: Option<Box<Sighting>>,
    pub(super) last_fail: Option<Box<Sighting>>,
    /// What the endpoint said of itself, and when.
    pub(super) pushed: Option<(Moment, bool)>,
    /// When it came to be: before an interval has passed no report is overdue.
    pub(super) created: Moment,
}

impl Target {
    pub(super) fn new(
        pool: &Pool,
        endpoint: &Endpoint,
        monitor: &Arc<Monitor>,
        test: &TestHash,
        vantage: &Arc<Vantage>,
        now: Moment,
    ) -> Target {
        let check = &monitor.check;
        let port = check.port().or(endpoint.port).or(check.usual_port()).unwrap_or_default();
        let task = ProbeTask {
            pool: Arc::clone(&pool.name),
            endpoint: Arc::clone(&endpoint.name),
            address: endpoint.address,
            hostname: endpoint.hostname.clone(),
            port,
            host: endpoint.host.clone(),
            monitor: Arc::clone(monitor),
            vantage: Arc::clone(vantage),
        };
        let mut hasher = DefaultHasher::new(); // its keys are constant: the same hash in every process
        (&task.pool, &task.endpoint, task.address, &monitor.name, &vantage.name).hash(&mut hasher);
        Target {
            pool: PoolId(0),
            endpoint: 0,
            sight: 0,
            member: 0,
            rhythm: Rhythm::new(monitor.interval, hasher.finish()),
            test: test.at(task.port, &task.host),
            task: Arc::new(task),
            machine: Machine::new(now),
            seen: monitor.check == Check::Push, // nobody waits for what comes by itself
            blocked: false,
            created: now,
            reported: None,
            last_pass: None,
            last_fail: None,
            pushed: None,
        }
    }

    /// When to probe again after a probe that ended `now`.
    pub fn next_after(&self, now: Moment) -> Moment {
        let beat = self.rhythm.after(now).at;
        match self.task.monitor.recheck_interval {
            Some(recheck) if self.machine.is_doubtful() => beat.min(now + recheck),
            _ => beat,
        }
    }

    /// The least time from its last outcome to another verdict; none: there is
    /// never another.
    pub fn next_verdict(&self) -> Option<Duration> {
        let monitor = &self.task.monitor;
        (!matches!(monitor.check, Check::Static(_))).then(|| next_verdict(monitor, &self.machine))
    }

    /// What this monitor holds of the endpoint.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Whether the last probe could not be made, for a cause on this side.
    pub fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// The last outcome that says something about the endpoint.
    pub fn reported(&self) -> Option<Moment> {
        self.reported
    }

    /// The evidence of the last probe that passed.
    pub fn last_pass(&self) -> Option<&Sighting> {
        self.last_pass.as_deref()
    }

    /// The evidence of the last probe that failed, or could not be made.
    pub fn last_fail(&self) -> Option<&Sighting> {
        self.last_fail.as_deref()
    }

    /// The newest of the two.
    pub fn last(&self) -> Option<&Sighting> {
        let both = [self.last_pass(), self.last_fail()].into_iter().flatten();
        both.max_by_key(|sighting| sighting.at)
    }

    /// Takes in an outcome; tells whether the verdict changed.
    pub(super) fn observe(
        &mut self,
        outcome: &Outcome,
        now: Moment,
        start_period: Duration,
    ) -> Option<Transition> {
        self.blocked = outcome.result == ProbeResult::Error;
        let sighting = Some(Box::new(Sighting { at: now, outcome: outcome.clone() }));
        let pass = match outcome.result {
            ProbeResult::Pass => {
                self.last_pass = sighting;
                true
            }
            ProbeResult::Fail => {
                self.last_fail = sighting;
                false
            }
            ProbeResult::Error => {
                self.last_fail = sighting;
                return None;
            }
        };
        self.reported = Some(now);
        self.machine.observe(pass, now, self.task.monitor.thresholds, start_period)
    }

    /// Whether an outcome of one is an outcome of the other.
    pub(super) fn same_test(&self, other: &Target) -> bool {
        let (a, b) = (&self.task, &other.task);
        a.vantage.name == b.vantage.name
            && a.monitor.check == b.monitor.check
            && a.monitor.reading.invert == b.monitor.reading.invert
            && a.port == b.port
            && a.host == b.host
    }

    /// Of two targets the one whose verdict decided more: unhealthy first.
    pub(super) fn rank(&self) -> u8 {
        match self.machine.verdict() {
            Verdict::Unhealthy => 0,
            Verdict::Unknown => 1,
            Verdict::Healthy => 2,
        }
    }
}
