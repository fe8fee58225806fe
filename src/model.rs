//! What the operator declared, already valid.
//!
//! Values of these types satisfy every rule of the configuration: references
//! are ids that exist, names lie inside their zone, ranges hold. `config`
//! makes them from files, tests write them down; everything else only reads.
//!
//! Knows no files and no YAML: these are not serde types.

mod address;
mod alerts;
mod name;
mod rate;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use regex::bytes::{Regex, RegexBuilder};

pub use address::why_unfit;
pub use alerts::{Form, Receiver, Route, Secret, Subjects, Url};
pub use name::{Name, NameError};
pub use rate::RateLimit;

/// The whole configuration of what is served and what is probed.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Indexed by [`MonitorId`], sorted by name.
    pub monitors: Vec<Arc<Monitor>>,
    /// Indexed by [`PoolId`], sorted by name.
    pub pools: Vec<Pool>,
    /// Sorted by apex.
    pub zones: Vec<Zone>,
    /// Indexed by [`VantageId`], sorted by name; at least one.
    pub vantages: Vec<Arc<Vantage>>,
    pub doubt: Doubt,
    pub maintenance: Vec<Maintenance>,
    /// Sorted by name.
    pub alerts: Vec<Arc<Route>>,
}

impl Default for Model {
    /// Nothing to serve, seen from this process.
    fn default() -> Model {
        Model {
            monitors: Vec::new(),
            pools: Vec::new(),
            zones: Vec::new(),
            vantages: vec![Arc::default()],
            doubt: Doubt::default(),
            maintenance: Vec::new(),
            alerts: Vec::new(),
        }
    }
}

/// A monitor's place in [`Model::monitors`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonitorId(pub u32);

/// A pool's place in [`Model::pools`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub u32);

impl Model {
    /// The monitor with this id.
    pub fn monitor(&self, id: MonitorId) -> &Arc<Monitor> {
        &self.monitors[id.0 as usize]
    }

    /// The pool with this id.
    pub fn pool(&self, id: PoolId) -> &Pool {
        &self.pools[id.0 as usize]
    }

    /// The vantage with this id.
    pub fn vantage(&self, id: VantageId) -> &Arc<Vantage> {
        &self.vantages[id.0 as usize]
    }

    /// The pool of this name.
    pub fn pool_named(&self, name: &str) -> Option<PoolId> {
        let place = self.pools.binary_search_by(|pool| (*pool.name).cmp(name)).ok()?;
        Some(PoolId(place as u32))
    }

    /// The vantage of this name.
    pub fn vantage_named(&self, name: &str) -> Option<VantageId> {
        let place = self.vantages.iter().position(|vantage| &*vantage.name == name)?;
        Some(VantageId(place as u32))
    }
}

/// A vantage's place in [`Model::vantages`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VantageId(pub u32);

/// A place that endpoints are probed from.
#[derive(Clone, Debug, PartialEq)]
pub struct Vantage {
    pub name: Arc<str>,
    /// Vantages of one region form one opinion; none: a region of its own.
    pub region: Option<Arc<str>>,
    pub reach: Reach,
    /// When all endpoints of this pool fail from here, it is the vantage that
    /// has a fault.
    pub canaries: Option<PoolId>,
}

/// How a vantage's probes are made.
#[derive(Clone, Debug, PartialEq)]
pub enum Reach {
    /// By this process.
    Here {
        source: Source,
        /// A network namespace by name, as `ip netns` has them, or by path.
        namespace: Option<Arc<str>>,
    },
    /// By another machine, which reports its verdicts.
    Remote,
}

impl Default for Vantage {
    /// This process, without a region.
    fn default() -> Vantage {
        let reach = Reach::Here { source: Source::default(), namespace: None };
        Vantage { name: "local".into(), region: None, reach, canaries: None }
    }
}

/// When a vantage doubts itself rather than the endpoints.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Doubt {
    /// When more than so many hundredths of the pools seen healthy fail within
    /// `window` at one vantage; none: no such rule.
    pub share: Option<u8>,
    pub window: Duration,
    /// For how long the verdicts of before are held at most.
    pub hold: Duration,
}

impl Default for Doubt {
    fn default() -> Doubt {
        Doubt { share: None, window: Duration::from_secs(15), hold: Duration::from_secs(120) }
    }
}

/// A time in which something is worked on: it leaves the answers, and nobody
/// is alerted.
#[derive(Clone, Debug, PartialEq)]
pub struct Maintenance {
    pub of: Scope,
    pub when: Window,
    pub reason: Arc<str>,
}

/// A pool or one of its endpoints, by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope {
    pub pool: Arc<str>,
    /// None: the pool as a whole.
    pub endpoint: Option<Arc<str>>,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.pool)?;
        self.endpoint.as_ref().map_or(Ok(()), |endpoint| write!(f, "/{endpoint}"))
    }
}

/// A window of wall-clock time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// From one Unix time to another, in seconds; the end lies outside.
    Once { from: u64, until: u64 },
    /// So long from each of these: seconds since Monday 00:00 UTC.
    Weekly { from: u32, length: u32 },
}

/// How endpoints are tested, how often, and what a run of outcomes means.
#[derive(Clone, Debug, PartialEq)]
pub struct Monitor {
    pub name: Arc<str>,
    pub check: Check,
    /// From the start of one probe to the start of the next.
    pub interval: Duration,
    /// For one attempt, redirects included.
    pub timeout: Duration,
    /// Further attempts, made at once, after a timeout and nothing else.
    pub retries: u8,
    /// After a first failure of a healthy endpoint: from the end of a probe to
    /// the start of the next, until the run is decided. None: the interval.
    pub recheck_interval: Option<Duration>,
    pub thresholds: Thresholds,
    /// How outcomes are read; part of the test.
    pub reading: Reading,
    /// For so long a new or returning endpoint may fail without its counting.
    pub start_period: Duration,
}

impl Monitor {
    /// One that tests `check` with everything else as it is when a
    /// configuration says nothing.
    pub fn new(name: &str, check: Check) -> Monitor {
        Monitor {
            name: name.into(),
            check,
            interval: Duration::from_secs(15),
            timeout: Duration::from_secs(5),
            retries: 0,
            recheck_interval: Some(Duration::from_secs(2)),
            thresholds: Thresholds { up: 2, down: 3 },
            reading: Reading::default(),
            start_period: Duration::ZERO,
        }
    }
}

/// How long a run of equal outcomes must be to turn a verdict; at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Passes in a row that make an unhealthy endpoint healthy.
    pub up: u32,
    /// Failures in a row that make a healthy endpoint unhealthy.
    pub down: u32,
}

/// What is made of a probe's ending before it counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// A failure passes and a pass fails; an error stays an error.
    pub invert: bool,
    /// A pass that took longer is marked degraded.
    pub degraded_above: Option<Duration>,
    /// A pass that took longer is a failure.
    pub fail_above: Option<Duration>,
    /// Probes leave from this address where the family is the same, whatever
    /// the vantage says.
    pub source: Source,
}

/// Addresses that probes leave from; none: the system chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Source {
    pub ipv4: Option<Ipv4Addr>,
    pub ipv6: Option<Ipv6Addr>,
}

/// What a probe tests. Two equal checks are the same test: a verdict gained
/// by one holds for the other.
#[derive(Clone, Debug, PartialEq)]
pub enum Check {
    Tcp(TcpCheck),
    /// One HTTP request is answered as expected.
    Http(HttpCheck),
    /// An ICMP echo request is answered.
    Icmp,
    Udp(UdpCheck),
    Smtp(SmtpCheck),
    Tls(TlsSession),
    Dns(DnsCheck),
    Grpc(GrpcCheck),
    Agent(AgentCheck),
    /// The endpoint reports by itself, within every interval.
    Push,
    Exec(ExecCheck),
    Prometheus(PrometheusCheck),
    /// Always this: the endpoint passes, or fails.
    Static(bool),
}

impl Check {
    /// The word that `type` has for it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Check::Tcp(_) => "tcp",
            Check::Http(http) if http.tls.is_some() => "https",
            Check::Http(_) => "http",
            Check::Icmp => "icmp_ping",
            Check::Udp(_) => "udp_icmp",
            Check::Smtp(_) => "smtp",
            Check::Tls(_) => "tls",
            Check::Dns(_) => "dns",
            Check::Grpc(_) => "grpc",
            Check::Agent(_) => "agent",
            Check::Push => "push",
            Check::Exec(_) => "exec",
            Check::Prometheus(_) => "prometheus",
            Check::Static(_) => "static",
        }
    }

    /// The port that the monitor names.
    pub fn port(&self) -> Option<u16> {
        match self {
            Check::Tcp(check) => check.port,
            Check::Http(check) => check.port,
            Check::Udp(check) => check.port,
            Check::Smtp(check) => check.port,
            Check::Tls(check) => check.port,
            Check::Dns(check) => check.port,
            Check::Grpc(check) => check.port,
            Check::Agent(check) => check.port,
            Check::Icmp | Check::Push | Check::Exec(_) | Check::Prometheus(_) | Check::Static(_) => None,
        }
    }

    /// The port to use when neither monitor nor endpoint names one; none: one
    /// of them must, unless [`Check::needs_port`] says otherwise.
    pub fn usual_port(&self) -> Option<u16> {
        match self {
            Check::Http(http) if http.tls.is_none() => Some(80),
            Check::Http(_) | Check::Tls(_) => Some(443),
            Check::Smtp(smtp) if smtp.session == SmtpSession::Tls => Some(465),
            Check::Smtp(_) => Some(25),
            Check::Dns(_) => Some(53),
            _ => None,
        }
    }

    /// Whether there is nothing to test without a port.
    pub fn needs_port(&self) -> bool {
        !matches!(self, Check::Icmp | Check::Push | Check::Exec(_) | Check::Prometheus(_) | Check::Static(_))
    }

    /// Whether a probe is made, or the answer comes without one.
    pub fn is_probed(&self) -> bool {
        !matches!(self, Check::Push | Check::Static(_))
    }
}

/// The TCP handshake completes; if told to, octets are sent and others awaited.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TcpCheck {
    pub port: Option<u16>,
    /// Sent at once; none: nothing.
    pub send: Option<Box<[u8]>>,
    /// To be found in what comes back, its first 10 KiB; none: nothing is read.
    pub expect: Option<Box<[u8]>>,
}

impl TcpCheck {
    /// So many octets are looked through for what is expected.
    pub const EXPECTED_WITHIN: usize = 10 * 1024;
}

/// An ICMP echo passes, and then a datagram is not refused by an ICMP error
/// within the timeout. Silence passes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UdpCheck {
    pub port: Option<u16>,
    pub payload: Box<[u8]>,
}

/// A greeting, EHLO or HELO, if told to STARTTLS, and QUIT (RFC 5321).
#[derive(Clone, Debug, PartialEq)]
pub struct SmtpCheck {
    pub port: Option<u16>,
    /// The name given with EHLO; empty: the address literal of our end.
    pub hello: String,
    pub session: SmtpSession,
    pub tls: TlsCheck,
}

/// Where TLS stands in an SMTP session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmtpSession {
    Plain,
    /// RFC 3207.
    StartTls,
    /// From the beginning (RFC 8314 §3.3).
    Tls,
}

/// A TLS handshake, its name and its certificate's dates.
#[derive(Clone, Debug, PartialEq)]
pub struct TlsSession {
    pub port: Option<u16>,
    pub tls: TlsCheck,
}

/// One DNS query is answered as expected.
#[derive(Clone, Debug, PartialEq)]
pub struct DnsCheck {
    pub port: Option<u16>,
    pub name: Name,
    /// The RR TYPE code.
    pub rtype: u16,
    /// RD is set.
    pub recursion: bool,
    pub tcp: bool,
    /// Low 4 bits and extended ones together; one of these is due.
    pub rcodes: Vec<u16>,
    /// RDATA in canonical form (RFC 4034 §6.2): no compression, names in lower
    /// case. Each must be among the answer's records of the type asked for.
    pub data: Vec<Box<[u8]>>,
}

/// The health service of gRPC says SERVING.
#[derive(Clone, Debug, PartialEq)]
pub struct GrpcCheck {
    pub port: Option<u16>,
    /// None: HTTP/2 with prior knowledge.
    pub tls: Option<TlsCheck>,
    /// Empty: the server as a whole.
    pub service: String,
    /// The `:authority` of the request; none: as the Host of an HTTP probe.
    pub authority: Option<String>,
}

/// HAProxy's agent check: a line of words over TCP.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentCheck {
    pub port: Option<u16>,
    /// Sent at once; none: nothing.
    pub send: Option<Box<[u8]>>,
}

/// A program that exits 0.
#[derive(Clone, Debug, PartialEq)]
pub struct ExecCheck {
    /// The program and its arguments; no shell sees them. At least one.
    pub command: Vec<String>,
}

/// An instant query of Prometheus whose value lies within bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct PrometheusCheck {
    /// Where the API is, without `/api/v1/query`.
    pub url: String,
    pub tls: TlsCheck,
    /// `{address}`, `{endpoint}` and `{pool}` in it are replaced.
    pub query: String,
    pub at_least: Option<f64>,
    pub at_most: Option<f64>,
}

/// An HTTP request and what its answer must be.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpCheck {
    /// Some for `https`.
    pub tls: Option<TlsCheck>,
    pub port: Option<u16>,
    /// A token of RFC 9110 §9, such as `GET` or `HEAD`.
    pub method: String,
    /// The origin-form request target: begins with `/`, may hold a query.
    pub path: String,
    /// Headers in the order written, names as written; `Host` and
    /// `User-Agent` among them replace the defaults.
    pub headers: Vec<(String, String)>,
    /// The request's content; none: no content.
    pub body: Option<Box<[u8]>>,
    /// HTTP/2 (RFC 9113) instead of HTTP/1.1: by ALPN over TLS, with prior
    /// knowledge without.
    pub http2: bool,
    pub expected_codes: Codes,
    /// A substring, case-insensitive in ASCII; none: the body isn't tested.
    pub expected_body: Option<Vec<u8>>,
    /// A regular expression that matches somewhere in the body.
    pub expected_regex: Option<String>,
    /// JSON pointers (RFC 6901) into the body and the values due there.
    pub expected_json: Vec<(String, String)>,
    /// Names of headers that must be there, and what their values must
    /// contain, case-insensitive in ASCII; empty: any value.
    pub expected_headers: Vec<(String, String)>,
    /// How many octets of the body are looked at.
    pub body_limit: usize,
    pub follow_redirects: bool,
}

impl Default for HttpCheck {
    /// `GET /` over HTTP/1.1, answered with 200.
    fn default() -> HttpCheck {
        HttpCheck {
            tls: None,
            port: None,
            method: "GET".into(),
            path: "/".into(),
            headers: Vec::new(),
            body: None,
            http2: false,
            expected_codes: Codes(vec![200..=200]),
            expected_body: None,
            expected_regex: None,
            expected_json: Vec::new(),
            expected_headers: Vec::new(),
            body_limit: 10 * 1024,
            follow_redirects: false,
        }
    }
}

/// The octets that an [`HttpCheck::expected_regex`] may have compiled: at
/// worst every state is looked at for every octet of the body, so a larger body
/// allows fewer.
pub fn pattern_limit(body_limit: usize) -> usize {
    const MOST: usize = 64 << 10;
    const LEAST: usize = 2 << 10;
    const BODY: usize = 64 << 10;
    (MOST * BODY / body_limit.max(BODY)).max(LEAST)
}

/// Compiles [`HttpCheck::expected_regex`] for bodies of `body_limit`; what it
/// may cost is limited.
pub fn body_pattern(text: &str, body_limit: usize) -> Result<Regex, regex::Error> {
    RegexBuilder::new(text).size_limit(pattern_limit(body_limit)).dfa_size_limit(1 << 20).build()
}

/// How the TLS session of a probe is made and judged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TlsCheck {
    /// The certificate isn't verified; SNI is sent all the same.
    pub allow_insecure: bool,
    /// Sent as SNI and checked against the certificate, whatever `Host` says.
    pub server_name: Option<String>,
    /// Further trusted roots, PEM, read when the configuration was loaded.
    pub extra_roots: Option<Arc<[u8]>>,
    /// What the probe shows of itself.
    pub client: Option<ClientIdentity>,
    /// A certificate with less time left is marked degraded.
    pub degraded_below: Option<Duration>,
    /// A certificate with less time left fails.
    pub fail_below: Option<Duration>,
}

/// A client certificate and its key, PEM, read when the configuration was loaded.
#[derive(Clone, PartialEq)]
pub struct ClientIdentity {
    pub certificates: Arc<[u8]>,
    pub key: Arc<[u8]>,
}

impl fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientIdentity") // a key is nothing to show
    }
}

/// A set of HTTP status codes: single ones and classes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Codes(pub Vec<RangeInclusive<u16>>);

impl Codes {
    /// Whether `code` is one of them.
    pub fn contains(&self, code: u16) -> bool {
        self.0.iter().any(|range| range.contains(&code))
    }
}

/// A set of endpoints that steering chooses as a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    pub name: Arc<str>,
    pub enabled: bool,
    pub tests: Tests,
    pub viewpoints: Viewpoints,
    pub rules: Rules,
    /// While one of these isn't available, neither is the pool.
    pub depends_on: Vec<Dependency>,
    /// With fewer healthy endpoints the pool is Critical.
    pub health_threshold: u32,
    pub answer: AnswerShape,
    /// The most addresses one answer carries; 1 to [`MAX_ANSWERS`].
    pub max_answers: u8,
    /// Fewer healthy endpoints of a family make the pool unavailable for it.
    pub family_threshold: FamilyThreshold,
    /// Names and addresses are unique. At least one, or one of `hosts`.
    pub endpoints: Vec<Endpoint>,
    /// Endpoints given by host name, whose addresses join `endpoints` when they
    /// are found.
    pub hosts: Vec<Host>,
}

impl Pool {
    /// One of these endpoints that nothing tests, with everything else as it is
    /// when a configuration says nothing.
    pub fn new(name: &str, endpoints: Vec<Endpoint>) -> Pool {
        Pool {
            name: name.into(),
            enabled: true,
            tests: Tests::default(),
            viewpoints: Viewpoints::default(),
            rules: Rules::default(),
            depends_on: Vec::new(),
            health_threshold: 1,
            answer: AnswerShape::ByWeight,
            max_answers: 8,
            family_threshold: FamilyThreshold::default(),
            endpoints,
            hosts: Vec::new(),
        }
    }

    /// How many healthy endpoints make it available.
    pub fn needed(&self) -> u32 {
        if self.is_monitored() { self.health_threshold.max(1) } else { 1 }
    }

    /// Whether health counts at all: without a test that votes every endpoint
    /// is available.
    pub fn is_monitored(&self) -> bool {
        self.tests.members.iter().any(|member| member.votes)
    }
}

/// The monitors of a pool, and how their verdicts become one.
#[derive(Clone, Debug, PartialEq)]
pub struct Tests {
    pub members: Vec<Member>,
    pub combination: Combination,
}

impl Default for Tests {
    fn default() -> Tests {
        Tests { members: Vec::new(), combination: Combination::All }
    }
}

impl Tests {
    /// All of these must pass.
    pub fn all(monitors: impl IntoIterator<Item = MonitorId>) -> Tests {
        let member = |monitor| Member { monitor, votes: true, must_be_healthy: false };
        Tests { members: monitors.into_iter().map(member).collect(), combination: Combination::All }
    }
}

/// One monitor of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    pub monitor: MonitorId,
    /// False: it is probed and told of, and decides nothing.
    pub votes: bool,
    /// Its failure alone makes the endpoint unhealthy.
    pub must_be_healthy: bool,
}

/// How the verdicts of a pool's monitors become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combination {
    /// All must be healthy.
    All,
    /// At least so many must be.
    AtLeast(u32),
    /// Unhealthy when more than half are (a monitor group).
    Majority,
}

/// Where a pool's endpoints are seen from, and whose word counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Viewpoints {
    /// At least one.
    pub vantages: Vec<VantageId>,
    pub quorum: Quorum,
    /// The first that has a verdict decides; the last is [`HealthSource::Global`].
    pub sources: Vec<HealthSource>,
}

impl Default for Viewpoints {
    /// From the first vantage alone.
    fn default() -> Viewpoints {
        Viewpoints {
            vantages: vec![VantageId(0)],
            quorum: Quorum::Vantages,
            sources: vec![HealthSource::Global],
        }
    }
}

/// Of whom the majority is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quorum {
    /// Of all vantages that report.
    Vantages,
    /// Of regions, each of which is the majority of its vantages.
    Regions,
}

/// Whose verdict on an endpoint counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthSource {
    /// This server's own vantage.
    Local(VantageId),
    /// This server's region.
    Regional(Arc<str>),
    /// All of them, by quorum.
    Global,
}

/// The rules around a verdict.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// None: the longest of the pool's monitors.
    pub start_period: Option<Duration>,
    /// How long the last verdict is held when nobody reports.
    pub stale_after: Duration,
    /// More changes within `flap_window` are flapping.
    pub flap_limit: u32,
    pub flap_window: Duration,
    /// So long a flapping endpoint must have been passing before it serves;
    /// zero: flapping is only told.
    pub flap_hold: Duration,
    /// Over so long a returning endpoint's share grows; zero: at once.
    pub slow_start: Duration,
    /// After the longest TTL handed out, so much longer an endpoint drains.
    pub drain_wait: Duration,
    /// So long after their TTL the addresses of host names serve while lookups
    /// fail.
    pub stale_if_error: Duration,
    pub ejection: Option<Ejection>,
}

impl Default for Rules {
    fn default() -> Rules {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        Rules {
            start_period: None,
            stale_after: minutes(10),
            flap_limit: 5,
            flap_window: minutes(10),
            flap_hold: Duration::ZERO,
            slow_start: Duration::ZERO,
            drain_wait: Duration::ZERO,
            stale_if_error: minutes(60),
            ejection: None,
        }
    }
}

/// When outcomes seen on real traffic take an endpoint out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ejection {
    /// So many failures in a row; none: no such rule.
    pub consecutive_failures: Option<u32>,
    /// More than so many hundredths of a report's requests; none: no such rule.
    pub failure_percentage: Option<u8>,
    /// Reports with fewer requests are not taken for a percentage.
    pub minimum_requests: u32,
    /// Times how often it was ejected of late.
    pub ejection_time: Duration,
    pub max_ejection_time: Duration,
    /// No more than so many hundredths of a pool's endpoints at once, but one.
    pub max_ejection_percent: u8,
}

/// What something needs in order to be of use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    pub pool: PoolId,
    /// None: the pool as a whole.
    pub endpoint: Option<Arc<str>>,
}

/// The largest [`Pool::max_answers`].
pub const MAX_ANSWERS: usize = 64;

/// Least numbers of healthy endpoints by address family; 0: no such rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FamilyThreshold {
    pub ipv4: u32,
    pub ipv6: u32,
}

/// How many of a pool's addresses an answer carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerShape {
    /// All while the weights are equal, else one drawn by weight.
    ByWeight,
    /// All, whatever their weights (as far as they are above 0).
    All,
    /// So many, drawn by weight without replacement; at least 1.
    Number(u8),
}

/// An address that answers may carry.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    pub name: Arc<str>,
    pub address: IpAddr,
    pub enabled: bool,
    pub weight: Weight,
    /// Where probes go when the monitor names no port.
    pub port: Option<u16>,
    /// Host of HTTP probes; goes before the monitor's.
    pub host: Option<Arc<str>>,
    /// The host name that the address was found under.
    pub hostname: Option<Arc<str>>,
    pub depends_on: Vec<Dependency>,
}

impl Endpoint {
    /// An enabled one of full weight.
    pub fn new(name: &str, address: IpAddr) -> Endpoint {
        Endpoint {
            name: name.into(),
            address,
            enabled: true,
            weight: Weight(100),
            port: None,
            host: None,
            hostname: None,
            depends_on: Vec::new(),
        }
    }

    /// What the configuration calls all addresses of its host name.
    pub fn of_all(&self) -> Option<&str> {
        self.hostname.as_ref().and_then(|_| self.name.rsplit_once('@')).map(|(of_all, _)| of_all)
    }

    /// Whether the configuration calls it so: by its own name, or by that of
    /// the host name it is one of the addresses of.
    pub fn is_called(&self, name: &str) -> bool {
        is_called(&self.name, self.hostname.is_some(), name)
    }
}

/// Whether an endpoint of this name, which a host name has or not, is called
/// `name` by the configuration.
pub fn is_called(own: &str, by_host_name: bool, name: &str) -> bool {
    own == name || by_host_name && own.rsplit_once('@').is_some_and(|(of_all, _)| of_all == name)
}

/// Whether `name` is that of an endpoint given by host name, whose own name is
/// `own`, or of one of its addresses.
pub fn names_host(name: &str, own: &str) -> bool {
    is_called(name, true, own)
}

/// An endpoint given by host name.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// Its place among the pool's endpoints.
    pub place: usize,
    /// Absolute, in lower case, without the final dot.
    pub hostname: Arc<str>,
    /// What each of its addresses becomes; the address itself says nothing.
    pub endpoint: Endpoint,
}

/// A share in hundredths, 0 to 100: equal weights are exactly equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(pub u8);

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", f64::from(self.0) / 100.0)
    }
}

/// A zone this server is authoritative for.
#[derive(Clone, Debug, PartialEq)]
pub struct Zone {
    pub apex: Name,
    pub soa: Soa,
    /// Without the SOA; no two with one owner and type, none empty. A CNAME
    /// stands alone at its owner, unless a load balancer hides it.
    pub records: Vec<RecordSet>,
    /// No two with one name.
    pub load_balancers: Vec<LoadBalancer>,
}

/// The zone's SOA (RFC 1035 §3.3.13); times in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Soa {
    pub ttl: u32,
    /// Wire form, case as written.
    pub mname: Box<[u8]>,
    /// Wire form, case as written.
    pub rname: Box<[u8]>,
    pub serial: Serial,
    pub refresh: u32,
    pub retry: u32,
    pub expire: u32,
    pub minimum: u32,
}

/// Where the SOA's serial starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serial {
    /// At Unix time.
    Auto,
    /// At this number; health changes raise it.
    From(u32),
}

/// An ordinary RRset.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordSet {
    pub owner: Name,
    /// The RR TYPE code, such as 1 for A.
    pub rtype: u16,
    /// Seconds, at most 2^31 - 1 (RFC 2181 §8).
    pub ttl: u32,
    /// RDATA in wire form, without compression.
    pub rdata: Vec<Box<[u8]>>,
    /// What each of these needs in order to be answered, in the same order;
    /// empty where nothing follows health.
    pub depends_on: Vec<Vec<Dependency>>,
}

impl RecordSet {
    /// Whether what is answered of it follows health.
    pub fn follows(&self) -> bool {
        !self.depends_on.is_empty()
    }

    /// Whether it says the same, whatever it depends on.
    pub fn says_the_same(&self, other: &RecordSet) -> bool {
        (&self.owner, self.rtype, self.ttl, &self.rdata)
            == (&other.owner, other.rtype, other.ttl, &other.rdata)
    }
}

/// A name answered by steering.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadBalancer {
    pub name: Name,
    /// A disabled one shows the ordinary records of its name.
    pub enabled: bool,
    /// Seconds, 0 to 86400.
    pub ttl: u32,
    pub steering_policy: SteeringPolicy,
    /// In failover order; at least one.
    pub default_pools: Vec<PoolId>,
    pub when_unavailable: WhenUnavailable,
    pub moves: Moves,
    /// From a failure to the last client moved; checked when it is loaded.
    pub slo: Option<Duration>,
}

/// How readily traffic moves between pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// A pool that becomes unavailable goes on answering for so long.
    pub failover_delay: Duration,
    /// A pool that comes back waits for so long.
    pub failback_delay: Duration,
    /// A pool that comes back waits until it is told, or needed.
    pub manual_failback: bool,
}

/// How a pool is chosen among the available ones.
#[derive(Clone, Debug, PartialEq)]
pub enum SteeringPolicy {
    /// The first in failover order.
    Off,
    /// Drawn by weight: one for each of the default pools, in their order.
    Random(Vec<Weight>),
}

/// What answers when no pool is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenUnavailable {
    /// The enabled endpoints of this pool, whatever their health.
    FallbackPool(PoolId),
    /// Nothing: NOERROR with the SOA.
    Nodata,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_called_by_its_name_or_its_host_names() {
        let address = [192, 0, 2, 1].into();
        let found = |name: &str| Endpoint {
            hostname: Some("web.example.net".into()),
            ..Endpoint::new(name, address)
        };
        assert!(Endpoint::new("web", address).is_called("web"));
        assert!(found("web").is_called("web"));
        assert!(found("web@192.0.2.1").is_called("web"));
        assert!(found("web@192.0.2.1").is_called("web@192.0.2.1"));
        assert!(!found("web2").is_called("web"));
        assert!(!Endpoint::new("web@192.0.2.1", address).is_called("web"), "it is written so");
    }
}
