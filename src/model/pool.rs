//! Pools: their endpoints, and the rules by which these serve.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::{MonitorId, PoolId, VantageId};

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
