//! What happened, as one record: for the history, for alerts, for programs.
//!
//! A [`Change`] says what moved. A [`Recorder`] puts beside it what the engine
//! holds at that time: all endpoints of the pool, the evidence of the newest
//! probes, the state of the load balancer. The shape is that of Cloudflare's
//! load balancing events, with more fields.
//!
//! The types here are the only form events have outside the engine; they read
//! back what they write. Knows no files and no receivers.

mod words;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::authority::BalancerState;
use crate::engine::{Cause, Change, Engine};
use crate::health::{
    DownCause, Fitness, OutCause, PoolHealth, PoolState, ProbeResult, Reason, Sighting, Standing, Target,
    Verdict,
};
use crate::model::{Name, Pool, PoolId, Scope};
use crate::moment::{Moment, utc, utc_millis};
use crate::rdata::type_name;

pub use words::{balancer_reason, headline, pool_reason, records_reason};

/// Of a larger pool an event lists only the endpoint that moved.
pub const MOST_ORIGINS: usize = 50;

/// An event lists no more tests than these, those of all endpoints together.
pub const MOST_TESTS: usize = 50;

/// An event lists no more records that are not answered.
const MOST_LEFT_OUT: usize = 20;

/// The longest text that somebody wrote; what is more is cut off.
const MOST_TEXT: usize = 1000;

/// Where an endpoint stands before its first verdict.
const UNKNOWN: &str = Fitness::Down(DownCause::Unknown).as_str();

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Unique; later events have greater ones.
    pub id: String,
    /// RFC 3339, UTC, to the millisecond.
    pub timestamp: String,
    pub kind: Kind,
    /// What it happened to: `POOL/ENDPOINT`, or the name of the rest.
    pub object: String,
    pub from: String,
    pub to: String,
    /// False: it was so from the beginning, and is told once.
    pub changed: bool,
    /// What else is true of an endpoint: `stale`, `starting`, `flapping`,
    /// `degraded`, an operator's `weight`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<String>,
    pub new_health: NewHealth,
    /// For how long `from` had held; 0: not known.
    pub lasted_ms: u64,
    /// For people, in one line.
    pub summary: String,
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<CauseRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<Arc<Origin>>,
    /// So many more endpoints the pool has.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub origins_left_out: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balancer: Option<BalancerRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<RecordsRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vantage: Option<VantageRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<TestEvidence>,
}

/// What sort of thing an event happened to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Endpoint,
    Pool,
    LoadBalancer,
    /// Records whose members follow health.
    Records,
    Vantage,
    /// One monitor's word on an endpoint, from one vantage.
    Test,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 6] =
        [Kind::Endpoint, Kind::Pool, Kind::LoadBalancer, Kind::Records, Kind::Vantage, Kind::Test];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Endpoint => "endpoint",
            Kind::Pool => "pool",
            Kind::LoadBalancer => "load_balancer",
            Kind::Records => "records",
            Kind::Vantage => "vantage",
            Kind::Test => "test",
        }
    }

    /// So many of them, in words.
    pub fn plural(self) -> &'static str {
        match self {
            Kind::Endpoint => "endpoints",
            Kind::Pool => "pools",
            Kind::LoadBalancer => "load balancers",
            Kind::Records => "records",
            Kind::Vantage => "vantages",
            Kind::Test => "tests",
        }
    }
}

/// What an event means to somebody who waits for bad news.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NewHealth {
    Healthy,
    Unhealthy,
    /// Somebody wants it out: neither good nor bad.
    Out,
    /// It says nothing about that.
    Unknown,
}

/// What made it happen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CauseRecord {
    /// `probe`, `report`, `traffic`, `time`, `operator`, `dependency`, `doubt`, `reload`.
    pub r#type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monitor: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vantage: Option<String>,
    /// Who said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// The pool, as it stands after the event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolRecord {
    pub id: String,
    pub name: String,
    pub healthy: bool,
    pub changed: bool,
    pub minimum_origins: u32,
    pub state: String,
    pub origins_total: u32,
    pub origins_enabled: u32,
    pub origins_healthy: u32,
}

/// An endpoint of the pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    pub name: String,
    /// As configured: a host name or an address.
    pub address: String,
    pub ip: String,
    pub enabled: bool,
    pub healthy: bool,
    pub changed: bool,
    pub failure_reason: String,
    /// 0: none came.
    pub response_code: u16,
    /// One word for where it stands.
    pub state: String,
    /// What is made of it, whatever is measured.
    pub fitness: String,
    /// What is measured.
    pub verdict: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub monitors: Vec<MonitorRecord>,
    /// So many more tests it has.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub monitors_left_out: u32,
}

/// One monitor's view of an endpoint, where there are several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MonitorRecord {
    pub id: String,
    pub vantage: String,
    pub healthy: bool,
    pub verdict: String,
    pub failure_reason: String,
    pub response_code: u16,
    pub must_be_healthy: bool,
    pub monitoring_only: bool,
}

/// A load balancer, as it stands after the event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BalancerRecord {
    pub name: String,
    pub state: String,
    pub serving: Vec<String>,
    pub fallback: bool,
    pub changed: bool,
}

/// Records whose members follow health, as they are answered after the event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordsRecord {
    pub name: String,
    pub r#type: String,
    /// How many there are, and how many of them are answered.
    pub members: u32,
    pub answered: u32,
    /// None has what it needs.
    pub at_fallback: bool,
    /// The data of those that are not answered, the first few.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    pub changed: bool,
}

/// A vantage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VantageRecord {
    pub name: String,
    pub suspect: bool,
    pub changed: bool,
}

/// What the newest probes of one test saw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TestEvidence {
    pub monitor: String,
    pub vantage: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_good: Option<ProbeRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_bad: Option<ProbeRecord>,
}

/// One probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeRecord {
    /// When its outcome came.
    pub at: String,
    /// `pass`, `fail`, or `error`: it could not be made.
    pub result: String,
    pub reason: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    pub attempts: u8,
    /// When each phase of the last attempt was over, in milliseconds since it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connected_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_ms: Option<f64>,
    /// The whole probe, retries included.
    pub total_ms: f64,
    /// What came first from the endpoint, odd octets escaped.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub said: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_until: Option<String>,
}

impl Event {
    /// One JSON object on one line.
    pub fn line(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers are always JSON")
    }

    /// What a line says; none: it is no event, or only the beginning of one.
    pub fn read(line: &[u8]) -> Option<Event> {
        serde_json::from_slice(line).ok()
    }

    /// About how much room it takes, in octets.
    pub fn octets(&self) -> usize {
        const FEW: usize = 1500; // what every event has
        const ORIGIN: usize = 350;
        const TEST: usize = 250;
        let tests: usize = self.origins.iter().map(|origin| origin.monitors.len()).sum();
        let texts = [&self.object, &self.summary, &self.reason].map(String::len);
        let balancer = self.load_balancer.iter().flat_map(|of| &of.serving).map(String::len);
        let records = self.records.iter().flat_map(|of| &of.left_out).map(String::len);
        let texts = texts.into_iter().chain(balancer).chain(records).sum::<usize>();
        FEW + texts + ORIGIN * self.origins.len() + TEST * tests
    }

    /// The same without the endpoints that did not move and without tests: all
    /// that a notice needs, and small enough to be held for long.
    pub fn brief(mut self) -> Event {
        self.origins.retain(|origin| origin.changed);
        for origin in &mut self.origins {
            let origin = Arc::make_mut(origin);
            origin.monitors = Vec::new();
            origin.monitors_left_out = 0;
        }
        self.origins_left_out = 0;
        self
    }

    /// When it happened, in Unix time.
    pub fn unix(&self) -> Duration {
        crate::moment::parse_utc(&self.timestamp).unwrap_or_default()
    }
}

/// Makes events of changes.
#[derive(Debug, Default)]
pub struct Recorder {
    /// The newest id: Unix milliseconds, and a count within one of them.
    last: (u64, u16),
    /// Where each load balancer's traffic went when it was last told of.
    serving: HashMap<Name, Vec<Arc<str>>>,
    /// Since when each vantage doubts itself or not, as far as it was seen to begin.
    doubts: HashMap<Arc<str>, (bool, Moment)>,
    /// Endpoints of pools, as long as the engine stands still.
    origins: HashMap<PoolId, Vec<Arc<Origin>>>,
}

/// Which tests an endpoint is listed with.
#[derive(Clone, Copy, Debug)]
enum Tests<'a> {
    None,
    /// All, or those that don't pass before the others.
    First,
    /// The one of this monitor and vantage.
    Only((&'a str, &'a str)),
}

impl Recorder {
    /// The event for a change that the engine has told of just now; `step` is
    /// how many milliseconds the wall clock is ahead of the time line.
    pub fn record(&mut self, change: &Change, engine: &Engine, now: Moment, step: i64) -> Event {
        let wall = Wall(step);
        let (milliseconds, count) = self.next_id(wall.unix(now));
        let mut event = Event {
            id: format!("{milliseconds:012x}-{count:04x}"),
            timestamp: utc_millis(wall.unix(now)),
            kind: Kind::Test,
            object: String::new(),
            from: String::new(),
            to: String::new(),
            changed: true,
            marks: Vec::new(),
            new_health: NewHealth::Unknown,
            lasted_ms: 0,
            summary: headline(change),
            reason: String::new(),
            cause: None,
            pool: None,
            origins: Vec::new(),
            origins_left_out: 0,
            load_balancer: None,
            records: None,
            vantage: None,
            evidence: None,
        };
        let lasted = |since: &Moment| now.since(*since).as_millis() as u64;
        match change {
            Change::Endpoint { scope, from, to, cause, since } => {
                event.kind = Kind::Endpoint;
                (event.from, event.to) = (from.word().to_owned(), to.word().to_owned());
                event.changed = from.without_share() != to.without_share();
                event.marks = marks(to);
                event.new_health = endpoint_health(from, to, cause);
                event.lasted_ms = lasted(since);
                event.reason = cause.reason();
                event.cause = Some(cause_record(cause));
                let test = match cause {
                    Cause::Probe { monitor, vantage, .. } => Some((&**monitor, &**vantage)),
                    _ => None,
                };
                self.put_endpoint(&mut event, engine, scope, test, wall);
            }
            Change::Gone { scope, from, reason, since } => {
                event.kind = Kind::Endpoint;
                (event.from, event.to) = (from.word().to_owned(), "gone".to_owned());
                event.new_health = NewHealth::Out;
                event.lasted_ms = lasted(since);
                event.reason = (*reason).to_owned();
                self.put_endpoint(&mut event, engine, scope, None, wall);
            }
            Change::Verdict { scope, monitor, vantage, from, to, reason, since, .. } => {
                (event.from, event.to) = (from.to_string(), to.to_string());
                event.lasted_ms = lasted(since);
                event.reason = reason.to_string();
                self.put_endpoint(&mut event, engine, scope, Some((monitor, vantage)), wall);
            }
            Change::CannotProbe { scope, monitor, vantage, reason, detail } => {
                let test = Some((&**monitor, &**vantage));
                self.put_endpoint(&mut event, engine, scope, test, wall);
                event.from = "probed".to_owned();
                event.to = "blocked".to_owned();
                event.reason = format!("{reason} ({detail})");
            }
            Change::Pool { pool, from, to, threshold, endpoints, said, taken_back, since } => {
                event.kind = Kind::Pool;
                event.object = pool.to_string();
                (event.from, event.to) = (from.to_string(), to.state.to_string());
                event.changed = *from != to.state;
                event.new_health = pool_health(to);
                event.lasted_ms = lasted(since);
                event.reason = pool_reason(to, *threshold, *endpoints, said.as_ref(), taken_back.as_ref());
                let changed = event.changed;
                self.put_pool(&mut event, engine, pool, None, Tests::First, changed);
            }
            Change::Balancer { name, from, to, serving, fallback, since } => {
                event.kind = Kind::LoadBalancer;
                event.object = name.to_string();
                (event.from, event.to) = (from.to_string(), to.to_string());
                let before = self.serving.insert(name.clone(), serving.clone());
                event.changed = from != to || before.is_some_and(|before| before != *serving);
                event.new_health = match to {
                    BalancerState::Critical => NewHealth::Unhealthy,
                    BalancerState::Healthy | BalancerState::Degraded => NewHealth::Healthy,
                };
                event.lasted_ms = lasted(since);
                event.reason = balancer_reason(serving, *fallback);
                event.load_balancer = Some(BalancerRecord {
                    name: name.to_string(),
                    state: to.to_string(),
                    serving: serving.iter().map(|pool| pool.to_string()).collect(),
                    fallback: *fallback,
                    changed: event.changed,
                });
            }
            Change::Records { name, rtype, from, to, since } => {
                event.kind = Kind::Records;
                event.object = format!("{name} {}", type_name(*rtype));
                (event.from, event.to) = (from.to_string(), to.to_string());
                event.changed = from != to;
                event.new_health = if to.at_fallback { NewHealth::Unhealthy } else { NewHealth::Healthy };
                event.lasted_ms = lasted(since);
                event.reason = records_reason(to);
                event.records = Some(RecordsRecord {
                    name: name.to_string(),
                    r#type: type_name(*rtype).into_owned(),
                    members: to.of as u32,
                    answered: to.count as u32,
                    at_fallback: to.at_fallback,
                    left_out: to.left_out.iter().take(MOST_LEFT_OUT).map(|text| short(text)).collect(),
                    changed: event.changed,
                });
            }
            Change::Vantage { vantage, suspect } => {
                event.kind = Kind::Vantage;
                event.object = vantage.to_string();
                event.lasted_ms = self.doubt_before(vantage, *suspect, now).as_ref().map_or(0, lasted);
                let word = |suspect| if suspect { "suspect" } else { "trusted" }.to_owned();
                (event.from, event.to) = (word(!suspect), word(*suspect));
                event.new_health = if *suspect { NewHealth::Unhealthy } else { NewHealth::Healthy };
                event.reason = match suspect {
                    true => "too much fails there at once",
                    false => "what fails there counts again",
                }
                .to_owned();
                let name = vantage.to_string();
                event.vantage = Some(VantageRecord { name, suspect: *suspect, changed: true });
            }
        }
        event.summary = short(&event.summary);
        event.reason = short(&event.reason);
        event
    }

    /// Says that the engine has moved on since the last event.
    pub fn moved_on(&mut self) {
        self.origins.clear();
    }

    /// Since when it had been as it was before a change to `suspect`; none: that
    /// is not known.
    fn doubt_before(&mut self, vantage: &Arc<str>, suspect: bool, now: Moment) -> Option<Moment> {
        match self.doubts.get(vantage) {
            Some((before, since)) if *before == suspect => Some(*since), // so it stands
            None if !suspect => None,                                    // it may have been so for long
            _ => self.doubts.insert(Arc::clone(vantage), (suspect, now)).map(|(_, since)| since),
        }
    }

    fn next_id(&mut self, unix: Duration) -> (u64, u16) {
        let milliseconds = unix.as_millis() as u64;
        self.last = match self.last {
            (last, _) if milliseconds > last => (milliseconds, 0),
            (last, u16::MAX) => (last + 1, 0),
            (last, count) => (last, count + 1), // a clock that was set back counts on
        };
        self.last
    }

    fn put_endpoint(
        &mut self,
        event: &mut Event,
        engine: &Engine,
        scope: &Scope,
        test: Option<(&str, &str)>,
        wall: Wall,
    ) {
        event.object = scope.to_string();
        let Some(id) = engine.model().pool_named(&scope.pool) else { return }; // gone meanwhile
        let endpoints = &engine.model().pool(id).endpoints;
        let place = endpoints.iter().position(|endpoint| Some(&endpoint.name) == scope.endpoint.as_ref());
        let listed = match (event.kind, test) {
            (Kind::Test, Some(names)) => Tests::Only(names),
            _ => Tests::First,
        };
        self.put_pool(event, engine, &scope.pool, place, listed, false);
        let Some(place) = place else { return };
        let test = match test {
            Some(names) => tests(engine, id, place).find(|target| is_of(target, names)),
            None => deciding(engine, id, place),
        };
        event.evidence = test.map(|test| TestEvidence {
            monitor: test.task.monitor.name.to_string(),
            vantage: test.task.vantage.name.to_string(),
            last_good: test.last_pass().map(|seen| probe_record(seen, wall)),
            last_bad: test.last_fail().map(|seen| probe_record(seen, wall)),
        });
    }

    /// The pool and its endpoints, the one at `place` marked as moved.
    fn put_pool(
        &mut self,
        event: &mut Event,
        engine: &Engine,
        pool: &str,
        place: Option<usize>,
        listed: Tests,
        changed: bool,
    ) {
        let Some(id) = engine.model().pool_named(pool) else { return };
        let pool = engine.model().pool(id);
        let health = engine.compiled().pool(id);
        event.pool = Some(PoolRecord {
            id: pool.name.to_string(),
            name: pool.name.to_string(),
            healthy: matches!(health.state, PoolState::Healthy | PoolState::Degraded),
            changed,
            minimum_origins: pool.health_threshold,
            state: health.state.to_string(),
            origins_total: pool.endpoints.len() as u32,
            origins_enabled: health.enabled,
            origins_healthy: health.healthy,
        });
        let moved = event.kind == Kind::Endpoint && event.changed;
        let own = place.map(|place| Origin { changed: moved, ..origin(engine, id, place, listed) });
        // a start tells of every endpoint: with all others beside each, that would fill the history
        let first = event.kind == Kind::Endpoint && event.from == UNKNOWN;
        if pool.endpoints.len() > MOST_ORIGINS || first || event.kind == Kind::Test {
            event.origins = own.map(Arc::new).into_iter().collect();
        } else {
            event.origins = self.origins.entry(id).or_insert_with(|| all_origins(engine, id)).clone();
            if let (Some(place), Some(own)) = (place, own) {
                event.origins[place] = Arc::new(own);
            }
        }
        event.origins_left_out = (pool.endpoints.len() - event.origins.len()) as u32;
    }
}

/// From the time line to the wall clock, in milliseconds.
#[derive(Clone, Copy)]
struct Wall(i64);

impl Wall {
    fn unix(self, moment: Moment) -> Duration {
        let milliseconds = (moment.elapsed().as_millis() as u64).saturating_add_signed(self.0);
        Duration::from_millis(milliseconds)
    }
}

fn marks(standing: &Standing) -> Vec<String> {
    let Standing { stale, starting, flapping, degraded, .. } = standing;
    let flags = [("stale", *stale), ("starting", *starting), ("flapping", *flapping)];
    let mut marks: Vec<String> =
        flags.iter().filter(|(_, set)| *set).map(|(mark, _)| (*mark).to_owned()).collect();
    marks.extend(degraded.map(|why| format!("degraded: {why}")));
    marks.extend(standing.weight.map(|weight| format!("weight {weight}")));
    marks
}

/// An endpoint that somebody wants out is no bad news, and neither is one that
/// has no verdict yet; one that nobody reports on any more is.
fn endpoint_health(from: &Standing, to: &Standing, cause: &Cause) -> NewHealth {
    match to.fitness {
        Fitness::Out(
            OutCause::Disabled
            | OutCause::Draining
            | OutCause::Drained
            | OutCause::Maintenance
            | OutCause::AgentDrain
            | OutCause::AgentMaint,
        )
        | Fitness::Down(DownCause::Forced | DownCause::DependencyOut) => NewHealth::Out,
        Fitness::Up | Fitness::Down(_) if to.stale => NewHealth::Unhealthy,
        Fitness::Up => NewHealth::Healthy,
        Fitness::Down(DownCause::Unknown) if from.fitness.is_up() && *cause != Cause::Reload => {
            NewHealth::Unhealthy
        }
        Fitness::Down(DownCause::Unknown) => NewHealth::Unknown,
        Fitness::Down(
            DownCause::Unhealthy | DownCause::Ejected | DownCause::FlapHold | DownCause::Dependency,
        ) => NewHealth::Unhealthy,
    }
}

/// A pool that lacks only endpoints that somebody took out is no bad news. One
/// that has none is: nobody wanted that. One that nothing tests is as well as
/// its endpoints, while any of them serves.
fn pool_health(health: &PoolHealth) -> NewHealth {
    match health.state {
        PoolState::Healthy | PoolState::Degraded => NewHealth::Healthy,
        PoolState::Critical if health.taken_out => NewHealth::Out,
        PoolState::Critical => NewHealth::Unhealthy,
        PoolState::Disabled => NewHealth::Out,
        PoolState::Unknown if health.healthy > 0 => NewHealth::Healthy,
        PoolState::Unknown => NewHealth::Unknown,
    }
}

fn cause_record(cause: &Cause) -> CauseRecord {
    let text = |text: &str| Some(short(text)).filter(|text| !text.is_empty());
    let of = |kind: &str| CauseRecord { r#type: kind.to_owned(), ..CauseRecord::default() };
    match cause {
        Cause::Probe { monitor, vantage, detail, .. } => CauseRecord {
            monitor: text(monitor),
            vantage: text(vantage),
            detail: text(detail),
            ..of("probe")
        },
        Cause::Report { vantage } => CauseRecord { vantage: text(vantage), ..of("report") },
        Cause::Traffic => of("traffic"),
        Cause::Time => of("time"),
        Cause::Window { reason } => CauseRecord { detail: text(reason), ..of("time") },
        Cause::Operator { by, reason } => {
            CauseRecord { by: text(by), detail: text(reason), ..of("operator") }
        }
        Cause::TakenBack { who, .. } => {
            CauseRecord { by: text(&who.by), detail: text(&who.reason), ..of("operator") }
        }
        Cause::Dependency { needed } => CauseRecord { detail: text(needed), ..of("dependency") },
        Cause::Doubt { vantage } => CauseRecord { vantage: text(vantage), ..of("doubt") },
        Cause::Reload => of("reload"),
    }
}

/// A text that somebody wrote, cut where it is too long for a line of many.
fn short(text: &str) -> String {
    match text.char_indices().nth(MOST_TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Whether nothing is left out.
fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn tests(engine: &Engine, id: PoolId, place: usize) -> impl Iterator<Item = &Target> {
    engine.table().targets_of(id, place).map(|(_, target)| target)
}

fn is_of(target: &Target, (monitor, vantage): (&str, &str)) -> bool {
    &*target.task.monitor.name == monitor && &*target.task.vantage.name == vantage
}

/// The test whose verdict is the endpoint's.
fn deciding(engine: &Engine, id: PoolId, place: usize) -> Option<&Target> {
    let members = &engine.model().pool(id).tests.members;
    let verdict = engine.table().standings(id)[place].verdict;
    tests(engine, id, place)
        .find(|target| members[target.member].votes && target.machine().verdict() == verdict)
}

/// Why a verdict is what it is, and the code that came with it.
fn reason_of(test: Option<&Target>) -> (String, u16) {
    let Some(seen) = test.and_then(Target::last) else { return (String::new(), 0) };
    let healthy = test.is_some_and(|test| test.machine().verdict() == Verdict::Healthy);
    // one failure does not make a healthy endpoint a failed one
    let reason = if healthy { Reason::NoFailures } else { seen.outcome.reason };
    (reason.to_string(), seen.outcome.status.unwrap_or(0))
}

/// All endpoints of a pool, with their tests if those are few.
fn all_origins(engine: &Engine, id: PoolId) -> Vec<Arc<Origin>> {
    let places = 0..engine.model().pool(id).endpoints.len();
    let all: usize = places.clone().map(|place| tests(engine, id, place).count()).sum();
    let listed = if all > MOST_TESTS { Tests::None } else { Tests::First };
    places.map(|place| Arc::new(origin(engine, id, place, listed))).collect()
}

fn origin(engine: &Engine, id: PoolId, place: usize, listed: Tests) -> Origin {
    let pool = engine.model().pool(id);
    let (endpoint, standing) = (&pool.endpoints[place], engine.table().standings(id)[place]);
    let (failure_reason, response_code) = reason_of(deciding(engine, id, place));
    let (monitors, monitors_left_out) = monitors(engine, id, place, listed);
    Origin {
        name: endpoint.name.to_string(),
        address: match &endpoint.hostname {
            Some(hostname) => hostname.to_string(),
            None => endpoint.address.to_string(),
        },
        ip: endpoint.address.to_string(),
        enabled: standing.fitness.counts(),
        healthy: standing.fitness.is_up(),
        changed: false,
        failure_reason,
        response_code,
        state: standing.word().to_owned(),
        fitness: standing.fitness.to_string(),
        verdict: standing.verdict.to_string(),
        monitors,
        monitors_left_out,
    }
}

/// An endpoint's tests where it has several, and how many are left out.
fn monitors(engine: &Engine, id: PoolId, place: usize, listed: Tests) -> (Vec<MonitorRecord>, u32) {
    let mut all: Vec<&Target> = tests(engine, id, place).collect();
    let number = all.len();
    if number < 2 {
        return (Vec::new(), 0);
    }
    match listed {
        Tests::None => all.clear(),
        Tests::Only(names) => all.retain(|target| is_of(target, names)),
        Tests::First if number <= MOST_TESTS => {}
        Tests::First => {
            all.sort_by_key(|target| target.machine().verdict() == Verdict::Healthy); // stable
            all.truncate(MOST_TESTS);
        }
    }
    let pool = engine.model().pool(id);
    let records: Vec<MonitorRecord> = all.into_iter().map(|target| monitor_record(target, pool)).collect();
    let left_out = (number - records.len()) as u32;
    (records, left_out)
}

fn monitor_record(test: &Target, pool: &Pool) -> MonitorRecord {
    let (failure_reason, response_code) = reason_of(Some(test));
    let (member, verdict) = (&pool.tests.members[test.member], test.machine().verdict());
    MonitorRecord {
        id: test.task.monitor.name.to_string(),
        vantage: test.task.vantage.name.to_string(),
        healthy: verdict == Verdict::Healthy,
        verdict: verdict.to_string(),
        failure_reason,
        response_code,
        must_be_healthy: member.must_be_healthy,
        monitoring_only: !member.votes,
    }
}

fn probe_record(seen: &Sighting, wall: Wall) -> ProbeRecord {
    let Sighting { at, outcome } = seen;
    let evidence = &outcome.evidence;
    let ms = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
    ProbeRecord {
        at: utc_millis(wall.unix(*at)),
        result: match outcome.result {
            ProbeResult::Pass => "pass",
            ProbeResult::Fail => "fail",
            ProbeResult::Error => "error",
        }
        .to_owned(),
        reason: outcome.reason.to_string(),
        detail: outcome.detail.to_owned(),
        status: outcome.status,
        attempts: evidence.attempts,
        resolved_ms: evidence.resolved.map(ms),
        connected_ms: evidence.connected.map(ms),
        tls_ms: evidence.tls.map(ms),
        first_byte_ms: evidence.first_byte.map(ms),
        total_ms: ms(outcome.took),
        said: evidence.said.escape_ascii().to_string(),
        certificate_until: evidence.certificate_until.map(|until| utc(until.max(0) as u64)),
    }
}
