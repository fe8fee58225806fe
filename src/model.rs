//! What the operator declared, already valid.
//!
//! Values of these types satisfy every rule of the configuration: references
//! are ids that exist, names lie inside their zone, ranges hold. `config`
//! makes them from files, tests write them down; everything else only reads.
//!
//! Knows no files and no YAML: these are not serde types.

mod name;

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

pub use name::{Name, NameError};

/// The whole configuration of what is served and what is probed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    /// Indexed by [`MonitorId`], sorted by name.
    pub monitors: Vec<Arc<Monitor>>,
    /// Indexed by [`PoolId`], sorted by name.
    pub pools: Vec<Pool>,
    /// Sorted by apex.
    pub zones: Vec<Zone>,
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
}

/// How long a run of equal outcomes must be to turn a verdict; at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Passes in a row that make an unhealthy endpoint healthy.
    pub up: u32,
    /// Failures in a row that make a healthy endpoint unhealthy.
    pub down: u32,
}

/// What a probe tests. Two equal checks are the same test: a verdict gained
/// by one holds for the other.
#[derive(Clone, Debug, PartialEq)]
pub enum Check {
    /// The TCP handshake completes.
    Tcp { port: Option<u16> },
    /// One HTTP request is answered as expected.
    Http(HttpCheck),
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
    pub expected_codes: Codes,
    /// A substring, case-insensitive in ASCII; none: the body isn't tested.
    pub expected_body: Option<Vec<u8>>,
    /// How many octets of the body are searched.
    pub body_limit: usize,
    pub follow_redirects: bool,
}

/// How the TLS session of a probe is made and judged.
#[derive(Clone, Debug, PartialEq)]
pub struct TlsCheck {
    /// The certificate isn't verified; SNI is sent all the same.
    pub allow_insecure: bool,
    /// Sent as SNI and checked against the certificate, whatever `Host` says.
    pub server_name: Option<String>,
    /// Further trusted roots, PEM, read when the configuration was loaded.
    pub extra_roots: Option<Arc<[u8]>>,
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
    /// All must pass; none: the pool isn't monitored.
    pub monitors: Vec<MonitorId>,
    /// With fewer healthy endpoints the pool is Critical.
    pub health_threshold: u32,
    pub answer: AnswerShape,
    /// The most addresses one answer carries; 1 to [`MAX_ANSWERS`].
    pub max_answers: u8,
    /// Fewer healthy endpoints of a family make the pool unavailable for it.
    pub family_threshold: FamilyThreshold,
    /// At least one; names and addresses are unique.
    pub endpoints: Vec<Endpoint>,
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
}

/// A share in hundredths, 0 to 100: equal weights are exactly equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(pub u8);

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
