//! What the operator declared, already valid.
//!
//! Values of these types satisfy every rule of the configuration: references
//! are ids that exist, names lie inside their zone, ranges hold. `config`
//! makes them from files, tests write them down; everything else only reads.
//!
//! Knows no files and no YAML: these are not serde types.

mod address;
mod alerts;
mod monitor;
mod name;
mod pool;
mod rate;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use address::why_unfit;
pub use alerts::{Form, Receiver, Route, Secret, Subjects, Url};
pub use monitor::{
    AgentCheck, Check, ClientIdentity, Codes, DnsCheck, ExecCheck, GrpcCheck, HttpCheck, Monitor,
    PrometheusCheck, Reading, SmtpCheck, SmtpSession, Source, TcpCheck, Thresholds, TlsCheck, TlsSession,
    UdpCheck, body_pattern, pattern_limit,
};
pub(crate) use name::unescape;
pub use name::{Name, NameError};
pub use pool::{
    AnswerShape, Combination, Dependency, Ejection, Endpoint, FamilyThreshold, HealthSource, Host,
    MAX_ANSWERS, Member, Pool, Quorum, Rules, Tests, Viewpoints, Weight, is_called, names_host,
};
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

    /// The pools that a pool depends on, directly or not, in order; circles are
    /// refused.
    pub fn needs(&self, pool: &Pool) -> Vec<PoolId> {
        let mut found: BTreeSet<PoolId> = BTreeSet::new();
        let mut left = vec![pool];
        while let Some(pool) = left.pop() {
            let of_endpoints = pool.endpoints.iter().flat_map(|endpoint| &endpoint.depends_on);
            let of_hosts = pool.hosts.iter().flat_map(|host| &host.endpoint.depends_on);
            for needed in pool.depends_on.iter().chain(of_endpoints).chain(of_hosts) {
                if found.insert(needed.pool) {
                    left.push(self.pool(needed.pool));
                }
            }
        }
        found.into_iter().collect()
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
    pub ttl_policy: TtlPolicy,
    pub steering_policy: SteeringPolicy,
    /// In failover order; at least one.
    pub default_pools: Vec<PoolId>,
    pub when_unavailable: WhenUnavailable,
    pub moves: Moves,
    /// From a failure to the last client moved; checked when it is loaded.
    pub slo: Option<Duration>,
}

impl LoadBalancer {
    /// The pools whose addresses it may hand out, the fallback pool last.
    pub fn pools(&self) -> impl Iterator<Item = PoolId> {
        let fallback = match self.when_unavailable {
            WhenUnavailable::FallbackPool(pool) => Some(pool),
            WhenUnavailable::Nodata => None,
        };
        self.default_pools.iter().copied().chain(fallback)
    }
}

/// Under which TTL a load balancer answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TtlPolicy {
    /// Always its own.
    #[default]
    Fixed,
    /// Its own, but no longer than until the next possible verdict, or a delay
    /// that is known to end.
    Derived,
}

/// The longest TTL that ends within a time; at least a second.
pub fn ttl_within(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX).max(1)
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
