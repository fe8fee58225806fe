//! How long until clients have moved, computed from the settings.
//!
//! ```text
//! next beat │ probes │ rechecks or beats │ gathering │ delay of the failover │ TTL
//! └──────────────── verdict ─────────────┘└──── in the answers ─────────────┘└ clients
//! ```
//!
//! Owns the arithmetic of the probe schedule, the monitors' runs, their
//! combination and the publication: for each load balancer the least, the
//! typical and the worst time, in named parts. The worst bounds what the engine
//! does as long as probes start when they are due.
//!
//! Knows no verdicts and no history: the same settings give the same figures.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Add;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{self, GATHER};
use crate::health::{Rhythm, Verdict, turns_after};
use crate::model::{
    Check, Combination, HealthSource, LoadBalancer, Model, Monitor, Name, Pool, Reach, TtlPolicy,
    WhenUnavailable, ttl_within,
};

/// What an answer to a probe, or a refusal, takes on its way.
const REPLY: Span =
    Span { least: Duration::ZERO, typical: Duration::from_millis(20), worst: Duration::from_millis(100) };

/// A time as it may turn out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    pub least: Duration,
    pub typical: Duration,
    pub worst: Duration,
}

impl Span {
    /// Always this.
    fn exactly(time: Duration) -> Span {
        Span { least: time, typical: time, worst: time }
    }

    /// Nothing at all up to this, and half of it in the middle.
    fn up_to(worst: Duration) -> Span {
        Span { least: Duration::ZERO, typical: worst / 2, worst }
    }

    /// Nothing as a rule; this when it comes to it.
    fn at_worst(worst: Duration) -> Span {
        Span { worst, ..Span::default() }
    }

    fn is_zero(self) -> bool {
        self == Span::default()
    }
}

impl Add for Span {
    type Output = Span;

    fn add(self, other: Span) -> Span {
        Span {
            least: self.least.saturating_add(other.least),
            typical: self.typical.saturating_add(other.typical),
            worst: self.worst.saturating_add(other.worst),
        }
    }
}

/// What a part of the time is spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The reload's first probes are spread.
    FirstRound,
    /// The next probe is due.
    NextBeat,
    /// An endpoint that reports by itself is not overdue yet.
    Overdue,
    /// Probes run.
    Probes,
    /// The run goes on, from the end of a probe to the next.
    Rechecks,
    /// The run goes on, beat by beat.
    Beats,
    /// A run of passes is due in its start period.
    StartPeriod,
    /// The reload waits for its other new endpoints.
    Reload,
    /// One that was flapping must have been passing for so long.
    FlapHold,
    /// Changes are gathered into one publication.
    Gathering,
    /// A pool that fails goes on answering.
    FailoverDelay,
    /// A pool that comes back waits.
    FailbackDelay,
    /// The share of one that comes back grows.
    SlowStart,
    /// Resolvers and clients keep an answer.
    Ttl,
}

impl Step {
    /// A stable word for programs.
    pub fn id(self) -> &'static str {
        match self {
            Step::FirstRound => "first_round",
            Step::NextBeat => "next_beat",
            Step::Overdue => "overdue",
            Step::Probes => "probes",
            Step::Rechecks => "rechecks",
            Step::Beats => "beats",
            Step::StartPeriod => "start_period",
            Step::Reload => "reload",
            Step::FlapHold => "flap_hold",
            Step::Gathering => "gathering",
            Step::FailoverDelay => "failover_delay",
            Step::FailbackDelay => "failback_delay",
            Step::SlowStart => "slow_start",
            Step::Ttl => "ttl",
        }
    }

    /// A few words for people.
    pub fn words(self) -> &'static str {
        match self {
            Step::FirstRound => "first probes are spread",
            Step::NextBeat => "wait for the next beat",
            Step::Overdue => "until a report is overdue",
            Step::Probes => "probes run",
            Step::Rechecks => "between rechecks",
            Step::Beats => "further beats",
            Step::StartPeriod => "run of passes at the start",
            Step::Reload => "other new endpoints",
            Step::FlapHold => "flap_hold, if it flapped",
            Step::Gathering => "changes are gathered",
            Step::FailoverDelay => "failover_delay of the pool",
            Step::FailbackDelay => "failback_delay of the pool",
            Step::SlowStart => "slow_start, to full share",
            Step::Ttl => "TTL of the answers before",
        }
    }

    /// Whether answers have changed before it begins.
    pub fn is_after_answers(self) -> bool {
        matches!(self, Step::SlowStart | Step::Ttl)
    }
}

/// One part of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub step: Step,
    pub span: Span,
}

/// All parts of the time that something takes, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Course {
    pub parts: Vec<Part>,
}

impl Course {
    /// Without the parts that take no time at all.
    fn of(parts: impl IntoIterator<Item = (Step, Span)>) -> Course {
        let parts = parts.into_iter().map(|(step, span)| Part { step, span });
        Course { parts: parts.filter(|part| !part.span.is_zero()).collect() }
    }

    /// Until answers have it.
    pub fn answers(&self) -> Span {
        let before = self.parts.iter().filter(|part| !part.step.is_after_answers());
        before.fold(Span::default(), |sum, part| sum + part.span)
    }

    /// Until the last client has it.
    pub fn total(&self) -> Span {
        self.parts.iter().fold(Span::default(), |sum, part| sum + part.span)
    }
}

/// What may happen to an endpoint of one pool, and how long it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Courses {
    /// From a failure that is seen at once to the last client moved.
    pub refused: Course,
    /// From a failure that lets every attempt run into its timeout.
    pub hanging: Course,
    /// From the recovery to the last client that may use it again.
    pub back: Course,
    /// From the reload that brings a new endpoint to its first answer.
    pub new: Course,
}

/// One default pool of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolTiming {
    pub pool: Arc<str>,
    /// The monitors that decide.
    pub monitors: Vec<Arc<str>>,
    /// None: a failure is never seen.
    pub courses: Option<Courses>,
    /// What it, or one of its endpoints, depends on, and what that depends on
    /// in turn: a failure there is one here.
    pub needs: Vec<Needed>,
}

/// A pool that another depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needed {
    pub pool: Arc<str>,
    /// The monitors that decide.
    pub monitors: Vec<Arc<str>>,
    /// From a failure there to the last client moved; none: it is never seen.
    pub out: Option<Course>,
}

/// The way that takes longest from a failure to the last client moved.
#[derive(Clone, Copy, Debug)]
pub struct Slowest<'a> {
    /// The pool in which it fails.
    pub pool: &'a str,
    pub monitors: &'a [Arc<str>],
    pub course: &'a Course,
}

/// One load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    pub name: Name,
    pub ttl: Duration,
    pub slo: Option<Duration>,
    /// The enabled default pools, in failover order.
    pub pools: Vec<PoolTiming>,
    /// What no figure holds.
    pub notes: Vec<String>,
}

impl Timing {
    /// From a failure to the last client moved, at worst; none when nothing
    /// watches any of the pools.
    pub fn worst(&self) -> Option<Duration> {
        self.slowest().map(|slowest| slowest.course.total().worst)
    }

    /// Until a failure is out of the answers, at worst.
    pub fn worst_detection(&self) -> Option<Duration> {
        self.slowest().map(|slowest| slowest.course.answers().worst)
    }

    /// The way that takes longest from a failure to the last client moved.
    pub fn slowest(&self) -> Option<Slowest<'_>> {
        let own = self.pools.iter().flat_map(|pool| {
            let courses = pool.courses.iter().flat_map(|courses| [&courses.refused, &courses.hanging]);
            courses.map(|course| Slowest { pool: &pool.pool, monitors: &pool.monitors, course })
        });
        let needs = self.pools.iter().flat_map(|pool| &pool.needs).filter_map(|needed| {
            let course = needed.out.as_ref()?;
            Some(Slowest { pool: &needed.pool, monitors: &needed.monitors, course })
        });
        own.chain(needs).max_by_key(|slowest| slowest.course.total().worst)
    }
}

/// Caches that keep an address for longer than its TTL: who, and for how long.
/// No server can help it, and no figure holds it.
pub const OVERSTAYS: [(&str, &str); 6] = [
    (
        "resolvers with a least TTL",
        "as set: cache-min-ttl of Unbound, min-cache-ttl of BIND (at most 90 s) and dnsmasq",
    ),
    ("resolvers that serve stale answers", "while none of the zone's servers can be reached (RFC 8767)"),
    ("browsers", "about 60 s (Chromium, Firefox), whatever a shorter TTL says"),
    ("Java", "30 s, or for ever under a security manager: networkaddress.cache.ttl"),
    ("programs that look up once", "until they start again"),
    ("connections that stand", "until they close: clients look up when they connect"),
];

/// A change of settings, to see what it would make of the figures.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    /// No interval is longer.
    interval: Option<Duration>,
    /// No timeout is longer.
    timeout: Option<Duration>,
    /// Rechecks are at least as quick.
    recheck: Option<Duration>,
    ttl: Option<Duration>,
    /// No failover is delayed.
    at_once: bool,
}

impl Change {
    fn of(&self, monitor: &Monitor) -> Monitor {
        let cap = |time: Duration, most: Option<Duration>| most.map_or(time, |most| time.min(most));
        let interval = cap(monitor.interval, self.interval);
        let recheck = match (monitor.recheck_interval, self.recheck) {
            (None, recheck) => recheck,
            (Some(time), recheck) => Some(cap(time, recheck)),
        };
        Monitor {
            interval,
            timeout: cap(monitor.timeout, self.timeout),
            recheck_interval: recheck.map(|recheck| recheck.min(interval)),
            ..monitor.clone()
        }
    }
}

/// The figures of every load balancer, in the order of the model.
pub fn all(model: &Model) -> Vec<Timing> {
    let balancers = model.zones.iter().flat_map(|zone| &zone.load_balancers);
    balancers.map(|balancer| of(model, balancer)).collect()
}

/// The figures of one load balancer.
pub fn of(model: &Model, balancer: &LoadBalancer) -> Timing {
    Timing { notes: notes(model, balancer), ..figures(model, balancer) }
}

/// The same without notes.
pub fn figures(model: &Model, balancer: &LoadBalancer) -> Timing {
    changed(model, balancer, Change::default())
}

fn changed(model: &Model, balancer: &LoadBalancer, change: Change) -> Timing {
    let ttl = change.ttl.unwrap_or(Duration::from_secs(balancer.ttl.into()));
    let pools = balancer.default_pools.iter().map(|id| model.pool(*id)).filter(|pool| pool.enabled);
    let pools = pools.map(|pool| {
        let voters = voters(model, pool, change);
        PoolTiming {
            pool: Arc::clone(&pool.name),
            monitors: voters.iter().map(|voter| Arc::clone(&voter.monitor.name)).collect(),
            courses: (!voters.is_empty()).then(|| courses(model, balancer, pool, &voters, change)),
            needs: needs(model, pool).map(|of| needed_by(model, balancer, of, change)).collect(),
        }
    });
    Timing { name: balancer.name.clone(), ttl, slo: balancer.slo, pools: pools.collect(), notes: Vec::new() }
}

fn courses(model: &Model, balancer: &LoadBalancer, pool: &Pool, voters: &[Voter], change: Change) -> Courses {
    let moves = balancer.moves;
    let back = [
        (Step::FlapHold, Span::at_worst(pool.rules.flap_hold)),
        (Step::Gathering, Span::at_worst(GATHER)),
        (
            Step::FailbackDelay,
            Span::at_worst(if moves.manual_failback { Duration::ZERO } else { moves.failback_delay }),
        ),
        (Step::SlowStart, Span::exactly(pool.rules.slow_start)),
        (Step::Ttl, Span::up_to(kept(balancer, pool, voters, Kind::Back, change))),
    ];
    Courses {
        refused: out(model, balancer, pool, voters, Kind::Refused, change),
        hanging: out(model, balancer, pool, voters, Kind::Hanging, change),
        back: Course::of(verdict(model, pool, voters, Kind::Back).into_iter().chain(back)),
        new: Course::of(first(model, pool, voters)),
    }
}

/// The pools that a pool depends on, directly or not.
fn needs<'m>(model: &'m Model, pool: &Pool) -> impl Iterator<Item = &'m Pool> {
    model.needs(pool).into_iter().map(|id| model.pool(id))
}

/// How long a failure of what is depended on takes: it is out with its verdict.
fn needed_by(model: &Model, balancer: &LoadBalancer, pool: &Pool, change: Change) -> Needed {
    let voters = voters(model, pool, change);
    let course = |kind| out(model, balancer, pool, &voters, kind, change);
    let slower = || {
        let (refused, hanging) = (course(Kind::Refused), course(Kind::Hanging));
        if refused.total().worst > hanging.total().worst { refused } else { hanging }
    };
    Needed {
        pool: Arc::clone(&pool.name),
        monitors: voters.iter().map(|voter| Arc::clone(&voter.monitor.name)).collect(),
        out: (!voters.is_empty()).then(slower),
    }
}

/// From a failure to the last client moved.
fn out(
    model: &Model,
    balancer: &LoadBalancer,
    pool: &Pool,
    voters: &[Voter],
    kind: Kind,
    change: Change,
) -> Course {
    let delay = if change.at_once { Duration::ZERO } else { balancer.moves.failover_delay };
    let after = [
        (Step::Gathering, Span::at_worst(GATHER)),
        (Step::FailoverDelay, Span::at_worst(delay)),
        (Step::Ttl, Span::up_to(kept(balancer, pool, voters, kind, change))),
    ];
    Course::of(verdict(model, pool, voters, kind).into_iter().chain(after))
}

/// For how long the answers of before may be kept. A TTL that is derived is no
/// longer than what is left until some voter may change its mind; while answers
/// wait to follow it has already, and what is left of a delay counts.
fn kept(balancer: &LoadBalancer, pool: &Pool, voters: &[Voter], kind: Kind, change: Change) -> Duration {
    let ttl = change.ttl.unwrap_or(Duration::from_secs(balancer.ttl.into()));
    if balancer.ttl_policy == TtlPolicy::Fixed {
        return ttl;
    }
    let (moves, rules) = (&balancer.moves, &pool.rules);
    let (before, after, wait) = match kind {
        Kind::Back if moves.manual_failback || rules.flap_hold.max(rules.slow_start) > Duration::ZERO => {
            (Verdict::Unhealthy, Verdict::Healthy, Duration::MAX)
        }
        Kind::Back => (Verdict::Unhealthy, Verdict::Healthy, moves.failback_delay),
        Kind::Refused | Kind::Hanging if change.at_once => {
            (Verdict::Healthy, Verdict::Unhealthy, Duration::ZERO)
        }
        Kind::Refused | Kind::Hanging => (Verdict::Healthy, Verdict::Unhealthy, moves.failover_delay),
    };
    let longest =
        |voter: &Voter| turns_after(&voter.monitor, before).max(turns_after(&voter.monitor, after).min(wait));
    let all = voters.iter().map(longest);
    // where the first one decides the others think as before, else any may be the last
    let longest = match (pool.tests.combination, kind) {
        (Combination::All, Kind::Refused | Kind::Hanging) => all.min(),
        _ => all.max(),
    };
    longest.map_or(ttl, |time| ttl.min(Duration::from_secs(ttl_within(time).into())))
}

// ---- verdicts -----------------------------------------------------------------------------------

/// What a verdict follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Refused,
    Hanging,
    Back,
}

/// A monitor that decides.
struct Voter {
    monitor: Monitor,
    must_be_healthy: bool,
}

/// Those whose verdict can change at all.
fn voters(model: &Model, pool: &Pool, change: Change) -> Vec<Voter> {
    let votes = pool.tests.members.iter().filter(|member| member.votes);
    let voter = |monitor: &Monitor, must_be_healthy| Voter { monitor: change.of(monitor), must_be_healthy };
    votes
        .map(|member| voter(model.monitor(member.monitor), member.must_be_healthy))
        .filter(|voter| !matches!(voter.monitor.check, Check::Static(_)))
        .collect()
}

/// Of so many vantages the verdict of this one, by speed, decides.
#[derive(Clone, Copy)]
struct Rank {
    place: u32,
    of: u32,
}

/// Whose verdict decides when all see the same.
fn rank(model: &Model, pool: &Pool, kind: Kind) -> Rank {
    let views = &pool.viewpoints;
    let count = match views.sources.first() {
        Some(HealthSource::Local(_)) => 1,
        Some(HealthSource::Regional(region)) => {
            let there = |id: &&_| model.vantage(**id).region.as_ref() == Some(region);
            views.vantages.iter().filter(there).count()
        }
        Some(HealthSource::Global) | None => views.vantages.len(),
    };
    let of = count.max(1) as u32;
    match kind {
        Kind::Back => Rank { place: of / 2 + 1, of },
        Kind::Refused | Kind::Hanging => Rank { place: of.div_ceil(2), of }, // a tie is unhealthy
    }
}

/// The parts up to the verdict on an endpoint, several monitors together.
fn verdict(model: &Model, pool: &Pool, voters: &[Voter], kind: Kind) -> Vec<(Step, Span)> {
    let rank = rank(model, pool, kind);
    let ways: Vec<Vec<(Step, Span)>> = voters.iter().map(|voter| run(&voter.monitor, kind, rank)).collect();
    let sum = |way: &[(Step, Span)]| way.iter().fold(Span::default(), |sum, (_, span)| sum + *span);
    let sums: Vec<Span> = ways.iter().map(|way| sum(way)).collect();
    let needed = |kind| needed(pool.tests.combination, voters.len(), kind);
    let by = |time: fn(&Span) -> Duration| {
        let mut order: Vec<usize> = (0..sums.len()).collect();
        order.sort_by_key(|place| time(&sums[*place]));
        order
    };
    let typical = by(|span| span.typical);
    let least = by(|span| span.least);
    // when all see the same
    let together = |order: &[usize]| {
        let mut vetoes = (0..order.len()).filter(|rank| voters[order[*rank]].must_be_healthy);
        let enough = needed(kind) - 1;
        order[match kind {
            Kind::Back => vetoes.next_back().map_or(enough, |veto| veto.max(enough)),
            Kind::Refused | Kind::Hanging => vetoes.next().map_or(enough, |veto| veto.min(enough)),
        }]
    };
    // one whose failure was seen by no more than had to needs no other to come
    // back; those too few to take the endpoint out bring nothing back either
    let others = voters.iter().filter(|voter| !voter.must_be_healthy).count();
    let decides = |place: &usize| voters[*place].must_be_healthy || others >= needed(Kind::Refused);
    let least = match kind {
        Kind::Back => least.iter().copied().find(decides).unwrap_or(least[0]),
        Kind::Refused | Kind::Hanging => together(&least),
    };
    let typical = together(&typical);
    // a failure that the slowest alone sees, or sees last
    let worst = *by(|span| span.worst).last().expect("a pool with voters");
    (0..ways[0].len())
        .map(|part| {
            let span = |way: usize| ways[way][part].1;
            let (least, typical, worst) = (span(least).least, span(typical).typical, span(worst).worst);
            (ways[0][part].0, Span { least, typical, worst })
        })
        .collect()
}

/// How many of the voters must have changed their minds when all see the same.
fn needed(rule: Combination, voters: usize, kind: Kind) -> usize {
    let needed = match (rule, kind) {
        (Combination::All, Kind::Back) => voters,
        (Combination::All, _) => 1,
        (Combination::AtLeast(least), Kind::Back) => least as usize,
        (Combination::AtLeast(least), _) => (voters + 1).saturating_sub(least as usize),
        (Combination::Majority, Kind::Back) => voters.div_ceil(2),
        (Combination::Majority, _) => voters / 2 + 1,
    };
    needed.clamp(1, voters)
}

/// The parts up to one monitor's verdict; always the same steps.
fn run(monitor: &Monitor, kind: Kind, rank: Rank) -> Vec<(Step, Span)> {
    let beats = Beats { interval: monitor.interval };
    let pass = passing(monitor);
    let fail = failing(monitor, kind);
    // the probe that runs when it happens, and its beat, are of the state before
    let (before, probe, length) = match kind {
        Kind::Back => (failing(monitor, Kind::Hanging), pass, monitor.thresholds.up),
        Kind::Refused | Kind::Hanging => (pass, fail, monitor.thresholds.down),
    };
    let interval = monitor.interval;
    let wait = Span {
        least: Duration::ZERO,
        typical: (interval * beats.usually(before.typical) * rank.place) / (rank.of + 1),
        // a gap of many intervals is a tenth of one longer at most
        worst: interval * beats.most(before.worst) + interval / 10,
    };
    let silent = kind == Kind::Hanging && monitor.check == Check::Push;
    let overdue = if silent { Span::up_to(interval) } else { Span::default() };
    let gaps = length - 1;
    let recheck = monitor.recheck_interval.filter(|_| kind != Kind::Back);
    let quick = recheck.filter(|recheck| probe.worst + *recheck <= interval * beats.most(probe.worst));
    let all = |time: Duration| time.saturating_mul(length);
    let (probes, rechecks, later) = match quick {
        Some(recheck) => {
            let probes =
                Span { least: all(probe.least), typical: all(probe.typical), worst: all(probe.worst) };
            let least = beats.least_rechecks(probe.least, recheck, gaps).saturating_sub(probe.least * gaps);
            (probes, Span { least, ..Span::exactly(recheck * gaps) }, Span::default())
        }
        None => {
            let least = match recheck {
                Some(recheck) => beats.least_rechecks(probe.least, recheck, gaps),
                None => beats.least(probe.least, gaps),
            };
            let typical = interval * beats.usually(probe.typical) * gaps;
            let worst = interval * beats.most(probe.worst) * gaps;
            (probe, Span::default(), Span { least, typical, worst })
        }
    };
    vec![
        (Step::Overdue, overdue),
        (Step::NextBeat, wait),
        (Step::Probes, probes),
        (Step::Rechecks, rechecks),
        (Step::Beats, later),
    ]
}

/// How long a probe of a healthy endpoint lasts.
fn passing(monitor: &Monitor) -> Span {
    match monitor.check {
        Check::Udp(_) => Span { typical: monitor.timeout, ..Span::at_worst(monitor.timeout) }, // silence passes
        Check::Push => Span::default(),
        _ => REPLY,
    }
}

/// How long a probe of a failed endpoint lasts.
fn failing(monitor: &Monitor, kind: Kind) -> Span {
    match kind {
        _ if monitor.check == Check::Push => Span::default(),
        Kind::Hanging => Span::exactly(monitor.longest_probe()),
        Kind::Refused | Kind::Back => REPLY,
    }
}

/// Places of an endless row of beats, as [`Rhythm`] has them: each within a
/// twentieth of the interval around its own place.
#[derive(Clone, Copy)]
struct Beats {
    interval: Duration,
}

impl Beats {
    /// After a probe of this length, so many intervals further at most is the
    /// next one.
    fn most(self, probe: Duration) -> u32 {
        count((probe + self.interval / 10).as_nanos() / self.interval.as_nanos()) + 1
    }

    /// The same, give or take nothing.
    fn usually(self, probe: Duration) -> u32 {
        count(probe.as_nanos().div_ceil(self.interval.as_nanos())).max(1)
    }

    /// The least time over so many gaps.
    fn least(self, probe: Duration, gaps: u32) -> Duration {
        let nanos = probe.saturating_sub(self.interval / 10).as_nanos();
        let each = count(nanos.div_ceil(self.interval.as_nanos())).max(1);
        (self.interval * each * gaps).saturating_sub(self.interval / 10)
    }

    /// The least time over so many gaps with rechecks: a beat may come sooner
    /// than the recheck, but no two within nine tenths of an interval.
    fn least_rechecks(self, probe: Duration, recheck: Duration, gaps: u32) -> Duration {
        let apart = self.interval / 10 * 9;
        let with = |cuts: u32| (apart * cuts).max((probe + recheck) * gaps - recheck * cuts);
        // up to where the two meet it falls, then it rises
        let meet = count((probe + recheck).as_nanos() * u128::from(gaps) / (apart + recheck).as_nanos());
        with(meet.min(gaps)).min(with((meet + 1).min(gaps)))
    }
}

fn count(number: u128) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX - 1)
}

// ---- new endpoints ------------------------------------------------------------------------------

/// The parts from a reload to the first answer with a new endpoint.
fn first(model: &Model, pool: &Pool, voters: &[Voter]) -> Vec<(Step, Span)> {
    let round = Rhythm::first_round(targets(model));
    let longest = voters.iter().map(|voter| voter.monitor.interval).max().unwrap_or_default();
    let spread = round.min(longest);
    let probe = voters.iter().map(|voter| passing(&voter.monitor)).max_by_key(|span| span.worst);
    let probe = probe.unwrap_or_default();
    let monitors = pool.tests.members.iter().map(|member| model.monitor(member.monitor).start_period);
    let period = pool.rules.start_period.or(monitors.max()).unwrap_or_default();
    let starts: Vec<Span> = voters.iter().map(|voter| starting(&voter.monitor, period)).collect();
    let slowest = starts.into_iter().max_by_key(|span| span.worst).unwrap_or_default();
    // it waits for those that come along, not after its own start period
    let hold = engine::hold(model.monitors.iter().map(|monitor| &**monitor));
    let reload = (round + hold).saturating_sub(spread + probe.worst + slowest.worst);
    vec![
        (Step::FirstRound, Span { typical: Duration::ZERO, ..Span::up_to(spread) }),
        (Step::Probes, probe),
        (Step::StartPeriod, slowest),
        (Step::Reload, Span::at_worst(reload)),
        (Step::Gathering, Span::at_worst(GATHER)),
    ]
}

/// How many targets there are, as far as it matters: so many have the longest
/// round, and large configurations have thousands of load balancers.
fn targets(model: &Model) -> usize {
    const MANY: usize = 2000;
    let of = |pool: &Pool| pool.endpoints.len() * pool.tests.members.len() * pool.viewpoints.vantages.len();
    let mut targets = 0;
    for pool in &model.pools {
        targets += of(pool);
        if targets >= MANY {
            break;
        }
    }
    targets
}

/// From the first probe to the verdict in a start period: a run of passes, or
/// the first one afterwards.
fn starting(monitor: &Monitor, period: Duration) -> Span {
    let gaps = monitor.thresholds.up - 1;
    if period.is_zero() || gaps == 0 {
        return Span::default();
    }
    let interval = monitor.interval;
    let run = interval * Beats { interval }.most(passing(monitor).worst) * gaps;
    let over = period + interval;
    Span {
        least: Duration::ZERO,
        typical: (interval * gaps).min(over).saturating_sub(interval / 2),
        worst: run.min(over) + interval / 10,
    }
}

/// How endpoints of one pool were seen to come back after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartUp {
    pub times: u32,
    /// The median of how long they were out.
    pub typical: Duration,
}

/// By the names of pools.
pub type StartUps = BTreeMap<String, StartUp>;

/// Whether an endpoint that was seen to take so long to start is taken out
/// while it starts: its run of failures is over before.
pub fn is_too_quick_for(monitor: &Monitor, start_up: Duration) -> bool {
    let start_up = start_up.saturating_sub(monitor.start_period);
    monitor.interval + monitor.recheck() * (monitor.thresholds.down - 1) < start_up
}

// ---- what no figure holds -----------------------------------------------------------------------

fn notes(model: &Model, balancer: &LoadBalancer) -> Vec<String> {
    let mut notes = Vec::new();
    let pools: Vec<&Pool> = (balancer.default_pools.iter().map(|id| model.pool(*id))).collect();
    for pool in pools.iter().filter(|pool| pool.enabled) {
        if voters(model, pool, Change::default()).is_empty() {
            notes.push(format!(
                "nothing watches the pool {}: a failure of its endpoints is never seen",
                pool.name
            ));
        }
        for needed in needs(model, pool).map(|of| needed_by(model, balancer, of, Change::default())) {
            notes.push(match &needed.out {
                Some(course) => format!(
                    "{} depends on {}: a failure there is out of the answers within {:.1} s, and has left the last client within {:.1} s",
                    pool.name,
                    needed.pool,
                    course.answers().worst.as_secs_f64(),
                    course.total().worst.as_secs_f64()
                ),
                None => format!(
                    "{} depends on {}, which nothing watches: a failure there is never seen",
                    pool.name, needed.pool
                ),
            });
        }
        let remote = |id: &&_| model.vantage(**id).reach == Reach::Remote;
        if pool.viewpoints.vantages.iter().any(|id| remote(&id)) {
            notes.push(format!(
                "the pool {} is seen from other machines, too: what their reports take on the way is not counted",
                pool.name
            ));
        }
    }
    if balancer.ttl_policy == TtlPolicy::Derived {
        let most = balancer.ttl;
        notes.push(format!("its TTL is derived: at most {most} s, less where a verdict may come sooner"));
    }
    if balancer.moves.manual_failback {
        notes.push("a pool that comes back waits until it is told to answer again, or needed".to_owned());
    }
    let doubting =
        model.doubt.share.is_some() || model.vantages.iter().any(|vantage| vantage.canaries.is_some());
    if doubting {
        let hold = model.doubt.hold.as_secs();
        notes
            .push(format!("a vantage that doubts itself holds the verdicts of before, for {hold} s at most"));
    }
    if let WhenUnavailable::FallbackPool(id) = balancer.when_unavailable {
        let name = &model.pool(id).name;
        notes.push(format!(
            "the fallback pool {name} answers whatever its health: its failures are not followed"
        ));
    }
    notes
}

// ---- what would do ------------------------------------------------------------------------------

/// Single changes that bring the worst time within `limit`, as they would be
/// written; if no single one does, one of several together.
pub fn remedies(model: &Model, balancer: &LoadBalancer, limit: Duration) -> Vec<String> {
    let own: Vec<&Pool> =
        balancer.default_pools.iter().map(|id| model.pool(*id)).filter(|pool| pool.enabled).collect();
    let needed = own.iter().flat_map(|pool| needs(model, pool));
    let all: Vec<&Pool> = own.iter().copied().chain(needed).collect();
    let pools = || all.iter().copied();
    let meets = |change: Change| {
        pools().map(|pool| (pool, voters(model, pool, change))).filter(|(_, voters)| !voters.is_empty()).all(
            |(pool, voters)| {
                let worst = |kind| out(model, balancer, pool, &voters, kind, change).total().worst;
                worst(Kind::Refused).max(worst(Kind::Hanging)) <= limit
            },
        )
    };
    let monitors: Vec<Monitor> =
        pools().flat_map(|pool| voters(model, pool, Change::default())).map(|voter| voter.monitor).collect();
    let longest = |time: fn(&Monitor) -> Duration| monitors.iter().map(time).max().unwrap_or_default();
    let interval = longest(|monitor| monitor.interval);
    let timeout = longest(|monitor| monitor.timeout);
    let ttl = Duration::from_secs(balancer.ttl.into());
    let seconds = |below: Duration, least: u64| (least..below.as_secs_f64().ceil() as u64).rev();
    let within = |timeout: Duration| {
        monitors.iter().all(|monitor| {
            let changed = Monitor { timeout: monitor.timeout.min(timeout), ..monitor.clone() };
            changed.longest_probe() <= monitor.interval
        })
    };
    let mut found = Vec::new();
    let on = |above: &dyn Fn(&Monitor) -> bool| {
        let names: BTreeSet<&str> =
            monitors.iter().filter(|monitor| above(monitor)).map(|monitor| &*monitor.name).collect();
        let plural = if names.len() == 1 { "" } else { "s" };
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        format!("on the monitor{plural} {}", names.join(", "))
    };

    let lower = |seconds| Change { ttl: Some(Duration::from_secs(seconds)), ..Change::default() };
    if let Some(seconds) = seconds(ttl, 5).find(|seconds| meets(lower(*seconds))) {
        found.push(format!("`ttl: {seconds}s`"));
    }
    let fits = |seconds: &u64| {
        monitors.iter().all(|monitor| monitor.longest_probe() <= Duration::from_secs(*seconds))
    };
    let oftener = |seconds| Change { interval: Some(Duration::from_secs(seconds)), ..Change::default() };
    let may = seconds(interval, 1).take_while(|seconds| fits(seconds) || !within(timeout));
    if let Some(seconds) = may.into_iter().find(|seconds| meets(oftener(*seconds))) {
        let monitors = on(&|monitor| monitor.interval > Duration::from_secs(seconds));
        found.push(format!("`interval: {seconds}s` {monitors}"));
    }
    let recheck = Change { recheck: Some(Duration::from_secs(2)), ..Change::default() };
    if monitors.iter().any(|monitor| monitor.recheck_interval.is_none()) && meets(recheck) {
        let monitors = on(&|monitor| monitor.recheck_interval.is_none());
        found.push(format!("`recheck_interval: 2s` {monitors}"));
    }
    let sooner = |seconds| Change { timeout: Some(Duration::from_secs(seconds)), ..Change::default() };
    if let Some(seconds) = seconds(timeout, 1).find(|seconds| meets(sooner(*seconds))) {
        let monitors = on(&|monitor| monitor.timeout > Duration::from_secs(seconds));
        found.push(format!("`timeout: {seconds}s` {monitors}"));
    }
    if !balancer.moves.failover_delay.is_zero() && meets(Change { at_once: true, ..Change::default() }) {
        found.push("no `failover_delay`".to_owned());
    }
    if !found.is_empty() {
        return found;
    }
    // several together: all of them smaller by the same part
    let part = |time: Duration, tenths: u64, least: u64| {
        (time.as_secs() * tenths / 10).max(least).min(time.as_secs().max(1))
    };
    (1..10).rev().find_map(|tenths| {
        let (interval, timeout) = (part(interval, tenths, 1), part(timeout, tenths, 1));
        let ttl = part(ttl, tenths, 5);
        let change = Change {
            interval: Some(Duration::from_secs(interval)),
            timeout: Some(Duration::from_secs(timeout)),
            recheck: Some(Duration::from_secs(2)),
            ttl: Some(Duration::from_secs(ttl)),
            at_once: true,
        };
        let delay = if balancer.moves.failover_delay.is_zero() { "" } else { ", no `failover_delay`" };
        let all = format!(
            "`interval: {interval}s`, `timeout: {timeout}s`, `recheck_interval: 2s`{delay} and `ttl: {ttl}s` together"
        );
        meets(change).then_some(vec![all])
    }).unwrap_or_default()
}

#[cfg(test)]
mod tests;
