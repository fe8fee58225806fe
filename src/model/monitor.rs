//! Monitors: how endpoints are tested, and what a probe must find.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use regex::bytes::{Regex, RegexBuilder};

use super::Name;

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

    /// How long a probe may last, all its attempts together.
    pub fn longest_probe(&self) -> Duration {
        self.timeout * (u32::from(self.retries) + 1)
    }

    /// For how long after an outcome a target is taken to be reporting: three
    /// intervals and a probe; an interval is no shorter than a probe may last.
    pub fn patience(&self) -> Duration {
        let longest = self.longest_probe();
        self.interval.max(longest) * 3 + longest
    }

    /// From one failure of a run to the next probe.
    pub fn recheck(&self) -> Duration {
        self.recheck_interval.map_or(self.interval, |recheck| recheck.min(self.interval))
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
