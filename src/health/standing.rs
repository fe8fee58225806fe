//! Where an endpoint stands: what is measured, and what is made of it.
//!
//! Node health and fitness to serve are two things: a draining endpoint is
//! healthy and out, a forced one is in whatever probes say.

use std::fmt;

use super::{Degraded, Verdict};
use crate::model::{Endpoint, Weight};

/// What is held of an endpoint, and whether it serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// What probes and reports say, all vantages together.
    pub verdict: Verdict,
    /// Nobody has reported for long: it is the verdict of before.
    pub stale: bool,
    /// It is in its start period.
    pub starting: bool,
    /// Its verdict changes too often.
    pub flapping: bool,
    /// It passes, but not well.
    pub degraded: Option<Degraded>,
    pub fitness: Fitness,
    /// The part of its weight that it gets, in hundredths.
    pub percent: u8,
    /// The weight that an operator has given it over the configuration's.
    pub weight: Option<Weight>,
}

impl Standing {
    /// One word for where it stands: `healthy`, `unhealthy` and `unknown` as
    /// measured, unless something lies over that.
    pub fn word(&self) -> &'static str {
        match self.fitness {
            Fitness::Up if self.verdict == Verdict::Healthy => "healthy",
            fitness => fitness.as_str(),
        }
    }

    /// The weight of `endpoint`, which stands so.
    pub fn weight_of(&self, endpoint: &Endpoint) -> Weight {
        self.weight.unwrap_or(endpoint.weight)
    }

    /// The same but for its share.
    pub fn without_share(self) -> Standing {
        Standing { percent: 0, ..self }
    }
}

/// Whether an endpoint may be in answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fitness {
    Up,
    /// It counts for its pool, as one that is not healthy.
    Down(DownCause),
    /// It doesn't count: somebody wants it out.
    Out(OutCause),
}

impl Default for Fitness {
    fn default() -> Fitness {
        Fitness::Down(DownCause::Unknown)
    }
}

/// Why an endpoint counts as not healthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownCause {
    /// No verdict yet, or none any more: its own, or one on what it depends on.
    Unknown,
    Unhealthy,
    /// An operator says so.
    Forced,
    /// Real traffic failed there.
    Ejected,
    /// It was flapping, and has not been healthy for long enough.
    FlapHold,
    /// What it depends on isn't available.
    Dependency,
    /// The same, and that was taken out by somebody.
    DependencyOut,
}

/// Why an endpoint is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutCause {
    /// By the configuration or an operator.
    Disabled,
    /// An operator drains it; clients may still have its address.
    Draining,
    /// No client can have its address any more.
    Drained,
    Maintenance,
    /// Its own agent wants no new traffic.
    AgentDrain,
    /// Its own agent is in maintenance.
    AgentMaint,
}

impl Fitness {
    /// Whether it may be in answers.
    pub fn is_up(self) -> bool {
        self == Fitness::Up
    }

    /// Whether it may yet turn out to be up.
    pub fn is_unknown(self) -> bool {
        self == Fitness::Down(DownCause::Unknown)
    }

    /// Whether it counts for its pool.
    pub fn counts(self) -> bool {
        !matches!(self, Fitness::Out(_))
    }

    /// Whether it doesn't serve because somebody wants that, of it or of what it
    /// depends on.
    pub fn is_taken_out(self) -> bool {
        match self {
            Fitness::Out(_) | Fitness::Down(DownCause::Forced | DownCause::DependencyOut) => true,
            Fitness::Up
            | Fitness::Down(
                DownCause::Unknown
                | DownCause::Unhealthy
                | DownCause::Ejected
                | DownCause::FlapHold
                | DownCause::Dependency,
            ) => false,
        }
    }

    /// One word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Fitness::Up => "up",
            Fitness::Down(DownCause::Unknown) => "unknown",
            Fitness::Down(DownCause::Unhealthy) => "unhealthy",
            Fitness::Down(DownCause::Forced) => "forced_unhealthy",
            Fitness::Down(DownCause::Ejected) => "ejected",
            Fitness::Down(DownCause::FlapHold) => "flap_hold",
            Fitness::Down(DownCause::Dependency | DownCause::DependencyOut) => "dependency_down",
            Fitness::Out(OutCause::Disabled) => "disabled",
            Fitness::Out(OutCause::Draining) => "draining",
            Fitness::Out(OutCause::Drained) => "drained",
            Fitness::Out(OutCause::Maintenance) => "maintenance",
            Fitness::Out(OutCause::AgentDrain) => "agent_drain",
            Fitness::Out(OutCause::AgentMaint) => "agent_maint",
        }
    }
}

impl fmt::Display for Fitness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
