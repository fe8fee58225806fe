//! What is shown of the engine, as JSON has it. Names and words are stable;
//! times are UTC as in RFC 3339, other numbers say their unit in their name.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::engine;
use crate::health::{self, AgentWish, Fitness, Outcome, PoolState, ProbeResult, ProbeTask, Reason, Verdict};
use crate::model::{Name, Weight};
use crate::moment;
use crate::moment::Moment;
use crate::rdata::type_name;

/// Everything, or what was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    pub at: String,
    pub version: String,
    pub pid: u32,
    pub load_balancers: Vec<Balancer>,
    /// Records whose members follow health.
    #[serde(default)]
    pub records: Vec<Records>,
    pub pools: Vec<Pool>,
    pub vantages: Vec<Vantage>,
    pub probes: Probes,
    /// How that fares which is kept beside the answers.
    #[serde(default)]
    pub kept: Kept,
    /// Of the whole server; none: one pool was asked for, or nothing answers yet.
    #[serde(default)]
    pub served: Option<Served>,
    /// How the files stand that were read last.
    #[serde(default)]
    pub files: Files,
}

/// What was made of the files when they were read last, and what a start would.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Files {
    /// `in_force`, or `refused`: an older configuration is in force.
    pub state: String,
    /// Since when that is in force, or files are refused.
    pub since: String,
    /// How many reasons there are to refuse them, and the first one.
    pub errors: usize,
    pub first_error: Option<String>,
    /// Why an older certificate is in force than the one that they name.
    pub certificate_kept: Option<String>,
    /// What takes effect with the next start.
    pub later: Vec<Later>,
    /// Whether a start with these files would be refused.
    pub start_refused: bool,
}

/// A key of `server:` that waits for a start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Later {
    pub key: String,
    /// The value in force,
    pub from: String,
    /// and the one of the next start.
    pub to: String,
}

impl Files {
    /// Those that a server has started with.
    pub fn in_force(since: String) -> Files {
        Files { since, ..Files::default() }
    }

    /// Whether they are refused.
    pub fn is_refused(&self) -> bool {
        self.state == "refused"
    }
}

impl Default for Files {
    fn default() -> Files {
        Files {
            state: "in_force".to_owned(),
            since: String::new(),
            errors: 0,
            first_error: None,
            certificate_kept: None,
            later: Vec::new(),
            start_refused: false,
        }
    }
}

/// What the transports have counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// Messages received, over all transports.
    pub queries: u64,
    pub over: Over,
    pub replies: u64,
    pub rcodes: Rcodes,
    /// Replies that said TC.
    pub truncated: u64,
    /// Messages without a reply: those that may have none, and those whose reply was dropped.
    pub unanswered: u64,
    /// Replies beyond the rate of their network: sent short,
    pub slipped: u64,
    /// or not at all.
    pub dropped: u64,
    /// Datagrams that the kernel threw away, its buffers being full.
    pub overflows: u64,
    /// Replies that the kernel would not send.
    pub unsent: u64,
    /// Datagrams of proxies without a header of the PROXY protocol,
    pub unproxied: u64,
    /// and connections.
    pub unproxied_connections: u64,
    /// Connections taken, and those of them open now.
    pub connections: u64,
    pub open: u64,
    /// Connections closed to make room for others.
    pub evicted: u64,
    /// Times no connection could be accepted.
    pub accept_errors: u64,
    /// Handshakes of TLS and QUIC that came to nothing.
    pub handshakes_failed: u64,
    /// Times a client over QUIC had to show that it is where it says.
    pub retried: u64,
    /// Connections over QUIC ended because the client broke the protocol.
    pub protocol_errors: u64,
    /// Queries whose answering panicked.
    pub panics: u64,
    /// Threads and tasks that ended by a panic, and were started anew.
    pub restarts: u64,
}

/// Queries over each transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Over {
    pub udp: u64,
    pub tcp: u64,
    pub tls: u64,
    pub https: u64,
    pub quic: u64,
}

/// Replies by the RCODE of their header, where BADVERS looks like NOERROR.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rcodes {
    pub noerror: u64,
    pub formerr: u64,
    pub servfail: u64,
    pub nxdomain: u64,
    pub notimp: u64,
    pub refused: u64,
    pub yxdomain: u64,
}

/// What is missing since the start of what is written and sent, and why nothing
/// can be written at present.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// Events that the history lacks.
    pub events_lost: u64,
    pub history_error: Option<String>,
    /// Notices of alerts that nobody gets.
    pub notices_dropped: u64,
    /// Records that the journal had no room for; a whole file makes up for them.
    pub records_left_out: u64,
    pub journal_error: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Balancer {
    pub name: String,
    pub enabled: bool,
    /// `healthy`, `degraded`, `critical`.
    pub state: String,
    /// The pools that answer; empty: only the SOA.
    pub serving: Vec<String>,
    pub at_fallback: bool,
    pub default_pools: Vec<String>,
    pub since: String,
    /// Why it isn't healthy, and what it waits for.
    #[serde(default)]
    pub why: Vec<String>,
}

/// The records of one name and type whose members follow health.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Records {
    pub name: String,
    #[serde(rename = "type")]
    pub rtype: String,
    pub members: usize,
    /// How many of them are answered.
    pub answered: usize,
    /// No member has what it needs.
    pub at_fallback: bool,
    /// What the others need that isn't there.
    pub why: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    pub name: String,
    /// `healthy`, `degraded`, `critical`, `unknown`, `disabled`.
    pub state: String,
    /// Endpoints that may be in answers.
    pub healthy: u32,
    /// Endpoints that count.
    pub enabled: u32,
    pub health_threshold: u32,
    pub monitored: bool,
    pub since: String,
    pub overrides: Vec<Override>,
    pub endpoints: Vec<Endpoint>,
    /// Endpoints given by host name that have no address.
    #[serde(default)]
    pub unresolved: Vec<Unresolved>,
}

/// An endpoint whose host name has no address, so that nothing is there to be
/// probed or answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unresolved {
    pub name: String,
    pub hostname: String,
    /// `unresolved`.
    pub state: String,
    /// None: it wasn't looked up yet.
    pub since: Option<String>,
    pub reason: String,
    /// What the last lookup met; none: an answer.
    pub error: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Endpoint {
    pub name: String,
    pub address: IpAddr,
    pub hostname: Option<String>,
    /// What holds: an operator's, else the configured one.
    pub weight: f64,
    /// The configured one where an operator's stands in for it.
    #[serde(default)]
    pub configured_weight: Option<f64>,
    /// Node health, as measured: `healthy`, `unhealthy`, `unknown`.
    pub health: String,
    /// Whether it may be in answers.
    pub serves: bool,
    /// `up`, or why it doesn't serve: `weight_0`, `agent_0_percent` and
    /// `pool_disabled` of one that is up in itself.
    pub fitness: String,
    /// The part of its weight that it gets.
    pub percent: u8,
    pub stale: bool,
    pub starting: bool,
    pub flapping: bool,
    pub degraded: Option<String>,
    pub since: String,
    /// Why its health is what it is.
    pub reason: Option<String>,
    /// Why it doesn't serve, or serves all the same, where neither its health
    /// nor an override says so.
    #[serde(default)]
    pub why: Vec<String>,
    pub overrides: Vec<Override>,
    pub vantages: Vec<Seen>,
    pub tests: Vec<Test>,
}

/// What one vantage holds of an endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    pub vantage: String,
    /// None: it is silent.
    pub health: Option<String>,
}

/// One monitor's view from one vantage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Test {
    pub monitor: String,
    pub vantage: String,
    pub votes: bool,
    pub health: String,
    pub since: String,
    /// The last outcome, and how often in a row it was seen.
    pub last_passed: Option<bool>,
    pub in_a_row: Option<u32>,
    /// The last probe could not be made.
    pub blocked: bool,
    pub last_good: Option<Sighting>,
    pub last_bad: Option<Sighting>,
}

/// What a probe found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sighting {
    pub at: String,
    /// `pass`, `fail`, `error`.
    pub result: String,
    pub reason: String,
    pub detail: String,
    pub status: Option<u16>,
    pub took_ms: f64,
    pub attempts: u8,
    pub degraded: Option<String>,
    /// When each phase was over, since the last attempt began.
    pub resolved_ms: Option<f64>,
    pub connected_ms: Option<f64>,
    pub tls_ms: Option<f64>,
    pub first_byte_ms: Option<f64>,
    /// What came first from the endpoint, other octets than printable ASCII escaped.
    pub said: String,
    pub certificate_until: Option<String>,
    pub certificate_days: Option<i64>,
    pub agent: Option<Agent>,
}

/// What an agent wants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Agent {
    pub wish: Option<String>,
    pub percent: Option<u8>,
}

/// One probe that was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probed {
    pub pool: String,
    pub endpoint: String,
    pub address: IpAddr,
    pub port: u16,
    pub monitor: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub vantage: String,
    #[serde(flatten)]
    pub found: Sighting,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Override {
    pub action: String,
    /// Of the action `weight`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    pub reason: String,
    pub by: String,
    pub since: String,
    pub until: Option<String>,
    /// Of a drain: when no client can have the address any more.
    pub drained_at: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Vantage {
    pub name: String,
    pub region: Option<String>,
    pub suspect_since: Option<String>,
}

/// Probes since the start.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probes {
    pub started: u64,
    pub late: u64,
    pub skipped: u64,
}

impl Status {
    /// Puts load balancers and records in the order of their names, those of one
    /// zone together; pools stay as they are configured.
    pub fn sort(&mut self) {
        let order = |name: &str| name.parse::<Name>().map(|name| name.canonical_order()).unwrap_or_default();
        self.load_balancers.sort_by_cached_key(|balancer| order(&balancer.name));
        self.records.sort_by_cached_key(|records| order(&records.name));
    }
}

/// A moment as it is shown.
pub fn time(moment: Moment) -> String {
    moment::utc(moment.elapsed().as_secs())
}

/// The same of what isn't to be told too early.
pub fn time_up(moment: Moment) -> String {
    moment::utc(moment.elapsed().as_millis().div_ceil(1000) as u64)
}

/// Octets as text: what isn't printable ASCII is escaped. Quotes stand as they
/// are: whoever puts text between some, as JSON does, escapes them then.
fn printable(octets: &[u8]) -> String {
    let shown = |octet: &u8| match octet {
        b'"' | b'\'' => char::from(*octet).to_string(),
        _ => octet.escape_ascii().to_string(),
    };
    octets.iter().map(shown).collect()
}

fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn fraction(weight: Weight) -> f64 {
    f64::from(weight.0) / 100.0
}

fn texts(names: &[std::sync::Arc<str>]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}

impl From<engine::Status> for Status {
    fn from(status: engine::Status) -> Status {
        let vantage = |held: engine::VantageView| Vantage {
            name: held.name.to_string(),
            region: held.region.map(|region| region.to_string()),
            suspect_since: held.suspect_since.map(time),
        };
        Status {
            at: time(status.at),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            load_balancers: status.balancers.into_iter().map(Balancer::from).collect(),
            records: status.records.into_iter().map(Records::from).collect(),
            pools: status.pools.into_iter().map(|pool| Pool::of(pool, status.at)).collect(),
            vantages: status.vantages.into_iter().map(vantage).collect(),
            probes: Probes {
                started: status.probes.started,
                late: status.probes.late,
                skipped: status.probes.skipped,
            },
            kept: Kept::default(),
            served: None,
            files: Files::default(),
        }
    }
}

impl From<engine::BalancerView> for Balancer {
    fn from(held: engine::BalancerView) -> Balancer {
        Balancer {
            name: held.name.to_string(),
            enabled: held.enabled,
            state: held.state.to_string(),
            serving: texts(&held.serving),
            at_fallback: held.fallback,
            default_pools: texts(&held.default_pools),
            since: time(held.since),
            why: Vec::new(),
        }
    }
}

impl From<engine::RecordsView> for Records {
    fn from(held: engine::RecordsView) -> Records {
        Records {
            name: held.owner.to_string(),
            rtype: type_name(held.rtype).into_owned(),
            members: held.members,
            answered: held.answered,
            at_fallback: held.fallback,
            why: Vec::new(),
        }
    }
}

impl Pool {
    fn of(held: engine::PoolView, now: Moment) -> Pool {
        let is_off = held.health.state == PoolState::Disabled;
        Pool {
            name: held.name.to_string(),
            state: held.health.state.to_string(),
            healthy: held.health.healthy,
            enabled: held.health.enabled,
            health_threshold: held.health_threshold,
            monitored: held.monitored,
            since: time(held.since),
            overrides: held.overrides.iter().map(Override::from).collect(),
            endpoints: (held.endpoints.into_iter())
                .map(|endpoint| Endpoint::of(endpoint, is_off, now))
                .collect(),
            unresolved: Vec::new(),
        }
    }
}

impl Endpoint {
    /// `is_off`: its pool is disabled as a whole.
    fn of(held: engine::EndpointView, is_off: bool, now: Moment) -> Endpoint {
        let standing = held.standing;
        let weight = standing.weight.unwrap_or(held.weight);
        let fitness = match standing.fitness.is_up() {
            true if is_off => "pool_disabled",
            true if weight == Weight(0) => "weight_0",
            true if standing.percent == 0 => "agent_0_percent",
            _ => standing.fitness.as_str(),
        };
        // of one on its way back the newest probe says nothing of why it is where it is
        let reason = held
            .reason
            .filter(|reason| standing.verdict == Verdict::Healthy || *reason != Reason::NoFailures);
        let seen = |(vantage, verdict): (std::sync::Arc<str>, Option<Verdict>)| Seen {
            vantage: vantage.to_string(),
            health: verdict.map(|verdict| verdict.to_string()),
        };
        Endpoint {
            name: held.name.to_string(),
            address: held.address,
            hostname: held.hostname.map(|name| name.to_string()),
            weight: fraction(weight),
            configured_weight: standing.weight.map(|_| fraction(held.weight)),
            health: standing.verdict.to_string(),
            serves: fitness == Fitness::Up.as_str(),
            fitness: fitness.to_owned(),
            percent: standing.percent,
            stale: standing.stale,
            starting: standing.starting,
            flapping: standing.flapping,
            degraded: standing.degraded.map(|why| why.to_string()),
            since: time(held.since),
            reason: reason.map(|reason| reason.to_string()),
            why: Vec::new(),
            overrides: held.overrides.iter().map(Override::from).collect(),
            vantages: held.views.into_iter().map(seen).collect(),
            tests: held.tests.into_iter().map(|test| Test::of(test, now)).collect(),
        }
    }
}

impl Test {
    fn of(held: engine::TestView, now: Moment) -> Test {
        let sighting = |seen: health::Sighting| Sighting::of(&seen.outcome, seen.at, now);
        Test {
            monitor: held.monitor.to_string(),
            vantage: held.vantage.to_string(),
            votes: held.votes,
            health: held.verdict.to_string(),
            since: time(held.since),
            last_passed: held.run.map(|(pass, _)| pass),
            in_a_row: held.run.map(|(_, length)| length),
            blocked: held.blocked,
            last_good: held.last_pass.map(sighting),
            last_bad: held.last_fail.map(sighting),
        }
    }
}

impl From<&health::Override> for Override {
    fn from(said: &health::Override) -> Override {
        Override {
            action: said.action.as_str().to_owned(),
            weight: said.action.weight().map(fraction),
            reason: said.reason.to_string(),
            by: said.by.to_string(),
            since: time(said.since),
            until: said.until.map(time),
            drained_at: (said.action == health::Action::Drain).then(|| time_up(said.drained_at)),
        }
    }
}

impl Sighting {
    /// What was found at `at`, as it is shown at `now`.
    pub fn of(outcome: &Outcome, at: Moment, now: Moment) -> Sighting {
        let evidence = &outcome.evidence;
        let until = evidence.certificate_until;
        let days = |until: i64| (until - now.elapsed().as_secs() as i64).div_euclid(86400);
        let result = match outcome.result {
            ProbeResult::Pass => "pass",
            ProbeResult::Fail => "fail",
            ProbeResult::Error => "error",
        };
        let wish = |wish| match wish {
            AgentWish::Ready => "ready",
            AgentWish::Drain => "drain",
            AgentWish::Maint => "maint",
        };
        let agent = outcome
            .agent
            .map(|said| Agent { wish: said.wish.map(|said| wish(said).to_owned()), percent: said.percent });
        Sighting {
            at: time(at),
            result: result.to_owned(),
            reason: outcome.reason.to_string(),
            detail: outcome.detail.to_owned(),
            status: outcome.status,
            took_ms: millis(outcome.took),
            attempts: evidence.attempts,
            degraded: outcome.degraded.map(|why| why.to_string()),
            resolved_ms: evidence.resolved.map(millis),
            connected_ms: evidence.connected.map(millis),
            tls_ms: evidence.tls.map(millis),
            first_byte_ms: evidence.first_byte.map(millis),
            said: printable(&evidence.said),
            certificate_until: until.map(|until| moment::utc(u64::try_from(until).unwrap_or_default())),
            certificate_days: until.map(days),
            agent,
        }
    }
}

impl Probed {
    /// What a probe of `task` found.
    pub fn of(task: &ProbeTask, outcome: &Outcome, now: Moment) -> Probed {
        Probed {
            pool: task.pool.to_string(),
            endpoint: task.endpoint.to_string(),
            address: task.address,
            port: task.port,
            monitor: task.monitor.name.to_string(),
            kind: task.monitor.check.type_name().to_owned(),
            vantage: task.vantage.name.to_string(),
            found: Sighting::of(outcome, now, now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_probe_found_is_shown_with_units_and_escapes() {
        let mut outcome = Outcome::new(ProbeResult::Fail, Reason::ResponseBodyMismatch, "not_found");
        outcome.took = Duration::from_micros(12_345);
        outcome.evidence.tls = Some(Duration::from_micros(1_500));
        outcome.evidence.said = b"caf\xc3\xa9\r\n\"x\"".as_slice().into();
        outcome.evidence.certificate_until = Some(86_400 * 10 - 1);
        let now = Moment::from_start(Duration::from_secs(86_400));
        let shown = Sighting::of(&outcome, now, now);
        assert_eq!((shown.took_ms, shown.tls_ms, shown.connected_ms), (12.345, Some(1.5), None));
        assert_eq!(shown.said, r#"caf\xc3\xa9\r\n"x""#);
        assert_eq!((shown.certificate_days, &*shown.at), (Some(8), "1970-01-02T00:00:00Z"));
        let json = serde_json::to_string(&shown).unwrap();
        assert_eq!(serde_json::from_str::<Sighting>(&json).unwrap(), shown);
    }

    #[test]
    fn what_is_not_to_be_told_too_early_is_rounded_up() {
        for (ms, floor, ceiling) in [(1000, 1, 1), (1001, 1, 2), (1999, 1, 2)] {
            let at = Moment::from_start(Duration::from_millis(ms));
            assert_eq!((time(at), time_up(at)), (moment::utc(floor), moment::utc(ceiling)), "{ms}");
        }
    }
}
