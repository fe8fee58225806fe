//! A scenario: what the network and its operators do, and when.
//!
//! Names in it are those of the configuration in force at that time; whoever
//! makes a script has looked that up.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::authority::BalancerState;
use crate::engine::Lookup;
use crate::health::{Action, DownCause, Fitness, OutCause, PoolState, Slot};
use crate::model::{Model, Name, Scope};
use crate::moment::Moment;

/// A scenario.
#[derive(Clone, Debug)]
pub struct Script {
    pub title: Option<String>,
    pub setup: Setup,
    /// When the server starts.
    pub start: Moment,
    /// What is so from the start.
    pub begin: Vec<Deed>,
    /// In the order of time.
    pub steps: Vec<Step>,
    /// So long it goes on after the last step; none: until all is quiet.
    pub run_on: Option<Duration>,
}

/// A configuration, and how a server runs with it.
#[derive(Clone, Debug)]
pub struct Setup {
    /// As messages name it.
    pub name: String,
    pub model: Arc<Model>,
    pub startup_wait: Duration,
    pub max_probes: Option<u32>,
    /// What it held survives a restart, if it is not older.
    pub remembers: Option<Duration>,
}

/// What happens at one moment.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// Since the server began to answer.
    pub at: Duration,
    pub deeds: Vec<Deed>,
    /// Looked at after the deeds.
    pub expected: Vec<Expected>,
}

/// One thing that happens.
#[derive(Clone, Debug)]
pub enum Deed {
    /// From now on endpoints do this.
    Behave { whose: Subject, seen: Seen, manner: Manner },
    /// From now on lookups of a host name find this.
    Lookup { hostname: Arc<str>, lookup: Lookup },
    /// The network at a vantage is there, or not.
    Vantage { name: Arc<str>, up: bool },
    /// An operator says something of a pool or an endpoint.
    Order { scope: Scope, action: Action },
    /// An operator takes that back, all of these.
    Clear { scope: Scope, slots: &'static [Slot] },
    /// An operator sends a load balancer's traffic back.
    FailBack(Name),
    /// Another configuration.
    Reload(Setup),
    /// The server ends, and another starts so much later.
    Restart(Duration),
}

/// Whose behaviour is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Every endpoint of which nothing else was said.
    Default,
    Scope(Scope),
    Address(IpAddr),
}

/// Who sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    Everybody,
    /// One monitor.
    By(Arc<str>),
    /// One vantage.
    From(Arc<str>),
}

/// What an endpoint does to probes and clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// What every monitor wants of it.
    Up,
    /// It refuses connections.
    Refused,
    /// It says nothing.
    Hang,
    /// It resets connections.
    Reset,
    /// Probes of it can't be made, for a cause on this side.
    Error,
    /// It works, and takes so long.
    Slow(Duration),
    /// It refuses for so long, then works for so long, and so on.
    Flap(Duration),
    /// It answers HTTP with this code.
    Code(u16),
}

/// What should be so.
#[derive(Clone, Debug)]
pub struct Expected {
    /// Where the scenario says it: file, line and column.
    pub place: String,
    pub what: Want,
}

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub enum Want {
    /// All addresses of a family that answers may carry.
    Answers { name: Name, ipv6: bool, addresses: BTreeSet<IpAddr> },
    /// The pools that answer for a name, in failover order; none: only the SOA.
    Serving { name: Name, pools: Vec<Arc<str>> },
    /// A load balancer's state.
    Balancer { name: Name, state: BalancerState },
    /// A pool's state.
    Pool { name: Arc<str>, state: PoolState },
    /// How an endpoint stands, in one word.
    Endpoint { scope: Scope, word: &'static str },
}

impl Manner {
    /// Whether clients are served, `elapsed` after it began to do so.
    pub fn works(self, elapsed: Duration) -> bool {
        match self {
            Manner::Up | Manner::Error | Manner::Slow(_) => true,
            Manner::Refused | Manner::Hang | Manner::Reset => false,
            Manner::Flap(period) => !half(elapsed, period).is_multiple_of(2),
            Manner::Code(code) => (200..400).contains(&code),
        }
    }

    /// When it next changes by itself, if it does.
    pub fn turns(self, since: Moment, now: Moment) -> Option<Moment> {
        let Manner::Flap(period) = self else { return None };
        let next = half(now.since(since), period) + 1;
        Some(since + Duration::from_millis(next.saturating_mul(millis(period))))
    }
}

/// The number of the period that has come.
fn half(elapsed: Duration, period: Duration) -> u64 {
    millis(elapsed) / millis(period)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// Every word for how an endpoint stands.
pub fn standings() -> impl Iterator<Item = &'static str> {
    let down = [
        DownCause::Unhealthy,
        DownCause::Unknown,
        DownCause::Forced,
        DownCause::Ejected,
        DownCause::FlapHold,
        DownCause::Dependency, // and the same word for one that was taken out
    ];
    let out = [
        OutCause::Disabled,
        OutCause::Draining,
        OutCause::Drained,
        OutCause::Maintenance,
        OutCause::AgentDrain,
        OutCause::AgentMaint,
    ];
    let fitness = [Fitness::Up].into_iter().chain(down.map(Fitness::Down)).chain(out.map(Fitness::Out));
    ["healthy"].into_iter().chain(fitness.map(Fitness::as_str))
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Default => f.write_str("all others"),
            Subject::Scope(scope) => write!(f, "{scope}"),
            Subject::Address(address) => write!(f, "{address}"),
        }
    }
}

impl fmt::Display for Manner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Manner::Up => f.write_str("up"),
            Manner::Refused => f.write_str("refused"),
            Manner::Hang => f.write_str("hang"),
            Manner::Reset => f.write_str("reset"),
            Manner::Error => f.write_str("error"),
            Manner::Slow(time) => write!(f, "slow {time:?}"),
            Manner::Flap(time) => write!(f, "flap {time:?}"),
            Manner::Code(code) => write!(f, "{code}"),
        }
    }
}

impl fmt::Display for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Deed::Behave { whose, seen, manner } => {
                write!(f, "{whose}")?;
                match seen {
                    Seen::Everybody => {}
                    Seen::By(monitor) => write!(f, " by {monitor}")?,
                    Seen::From(vantage) => write!(f, " from {vantage}")?,
                }
                write!(f, ": {manner}")
            }
            Deed::Lookup { hostname, lookup } => match lookup {
                Lookup::Found { addresses, .. } => {
                    let all: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
                    write!(f, "{hostname} has {}", all.join(", "))
                }
                Lookup::NoSuchName => write!(f, "{hostname} has no address"),
                Lookup::Failed => write!(f, "lookups of {hostname} fail"),
            },
            Deed::Vantage { name, up } => write!(f, "vantage {name}: {}", if *up { "up" } else { "down" }),
            Deed::Order { scope, action } if Slot::FORCED.contains(&action.slot()) => {
                write!(f, "override {scope}: {action}")
            }
            Deed::Order { scope, action } => write!(f, "{action} {scope}"),
            Deed::Clear { scope, slots: [Slot::Traffic] } => write!(f, "undrain {scope}"),
            Deed::Clear { scope, .. } => write!(f, "override {scope}: none"),
            Deed::FailBack(name) => write!(f, "failback {name}"),
            Deed::Reload(setup) => write!(f, "reload {}", setup.name),
            Deed::Restart(Duration::ZERO) => f.write_str("restart"),
            Deed::Restart(away) => write!(f, "restart, away for {away:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flapping_endpoint_is_down_first() {
        let period = Duration::from_secs(5);
        for (seconds, works, turns) in
            [(0, false, 5), (4, false, 5), (5, true, 10), (9, true, 10), (10, false, 15)]
        {
            let manner = Manner::Flap(period);
            let at = |seconds| Moment::from_start(Duration::from_secs(100 + seconds));
            assert_eq!(manner.works(Duration::from_secs(seconds)), works, "{seconds}");
            assert_eq!(manner.turns(at(0), at(seconds)), Some(at(turns)), "{seconds}");
        }
    }
}
