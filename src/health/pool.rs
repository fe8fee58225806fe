//! From the verdicts on a pool's endpoints to the pool's state.

use std::fmt;

use super::{Fitness, Standing};
use crate::model::Pool;

/// A pool's state in the words of Cloudflare's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolState {
    /// Every enabled endpoint is healthy.
    Healthy,
    /// Some endpoint isn't, but enough are: the pool still takes traffic.
    Degraded,
    /// Fewer healthy endpoints than the health threshold: no traffic.
    Critical,
    /// No monitor, or no verdict yet.
    Unknown,
    /// Switched off by the operator.
    Disabled,
}

impl fmt::Display for PoolState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PoolState::Healthy => "healthy",
            PoolState::Degraded => "degraded",
            PoolState::Critical => "critical",
            PoolState::Unknown => "unknown",
            PoolState::Disabled => "disabled",
        })
    }
}

/// A pool's state, and the counts it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolHealth {
    pub state: PoolState,
    /// Endpoints that count: nobody wants them out.
    pub enabled: u32,
    /// Those among them that may be in answers.
    pub healthy: u32,
    /// Those among them of which nothing is known.
    pub unknown: u32,
    /// It is critical, and only because somebody wants that.
    pub taken_out: bool,
}

impl PoolHealth {
    /// Whether `pool`, if it isn't available at this health, may be once all that
    /// is unknown turns out well: what is healthy already may have no weight.
    pub fn is_awaited(&self, pool: &Pool) -> bool {
        let may_be = self.state != PoolState::Disabled && self.healthy + self.unknown >= pool.needed();
        may_be && self.unknown > 0
    }
}

/// The state of `pool` when its endpoints stand so, in order.
pub fn pool_health(pool: &Pool, is_enabled: bool, standings: &[Standing]) -> PoolHealth {
    let count = |of: fn(&Fitness) -> bool| standings.iter().filter(|held| of(&held.fitness)).count() as u32;
    let enabled = count(|fitness| fitness.counts());
    let healthy = count(|fitness| fitness.is_up());
    let unknown = count(|fitness| fitness.is_unknown());
    let unmonitored = !pool.is_monitored();
    let state = if !is_enabled {
        PoolState::Disabled
    } else if unmonitored && healthy > 0 || enabled > 0 && unknown == enabled {
        PoolState::Unknown
    } else if enabled == 0 || healthy < pool.health_threshold || unmonitored {
        PoolState::Critical
    } else if healthy == enabled {
        PoolState::Healthy
    } else {
        PoolState::Degraded
    };
    let taken_out = state == PoolState::Critical && are_taken_out(standings.iter());
    PoolHealth { state, enabled, healthy, unknown, taken_out }
}

/// Whether some of these don't serve, and each of those was taken out.
pub(super) fn are_taken_out<'a>(standings: impl Iterator<Item = &'a Standing>) -> bool {
    let mut idle = standings.map(|standing| standing.fitness).filter(|fitness| !fitness.is_up()).peekable();
    idle.peek().is_some() && idle.all(Fitness::is_taken_out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::{DownCause, OutCause};
    use crate::model::{Endpoint, MonitorId, Tests};

    /// A pool of one endpoint a letter: `H`ealthy, `U`nhealthy, `?`, `d`isabled,
    /// `f`orced, or needing what `w`as taken out or `n`ot.
    fn health(endpoints: &str, health_threshold: u32) -> PoolHealth {
        held(endpoints, health_threshold).1
    }

    fn held(endpoints: &str, health_threshold: u32) -> (Pool, PoolHealth) {
        let standings: Vec<Standing> = endpoints
            .chars()
            .map(|c| Standing {
                fitness: match c {
                    'H' => Fitness::Up,
                    'U' => Fitness::Down(DownCause::Unhealthy),
                    'd' => Fitness::Out(OutCause::Disabled),
                    'f' => Fitness::Down(DownCause::Forced),
                    'w' => Fitness::Down(DownCause::DependencyOut),
                    'n' => Fitness::Down(DownCause::Dependency),
                    _ => Fitness::Down(DownCause::Unknown),
                },
                ..Standing::default()
            })
            .collect();
        let number = |n: u8| Endpoint::new(&n.to_string(), [192, 0, 2, n].into());
        let endpoints = (1..=standings.len() as u8).map(number).collect();
        let tests = Tests::all([MonitorId(0)]);
        let pool = Pool { tests, health_threshold, ..Pool::new("p", endpoints) };
        let health = pool_health(&pool, true, &standings);
        (pool, health)
    }

    #[test]
    fn a_pool_is_awaited_while_what_is_unknown_could_make_it_available() {
        for (endpoints, threshold, expected) in [
            ("??", 1, true),
            ("U?", 1, true),
            ("H?", 2, true),
            ("HU?", 3, false),
            ("H?", 1, true),
            ("HU", 1, false),
            ("UU", 1, false),
            ("U?", 0, true),
            ("dd", 1, false),
        ] {
            let (pool, health) = held(endpoints, threshold);
            assert_eq!(health.is_awaited(&pool), expected, "{endpoints} {threshold}");
        }
    }

    #[test]
    fn p1_to_p7_pool_states() {
        for (id, endpoints, threshold, expected) in [
            ("P1", "HHH", 1, PoolState::Healthy),
            ("P2", "HHU", 1, PoolState::Degraded),
            ("P3", "HHU", 3, PoolState::Critical),
            ("P4", "UUU", 1, PoolState::Critical),
            ("P5", "UUU", 0, PoolState::Degraded),
            ("P6", "HHd", 3, PoolState::Critical),
            ("P7", "ddd", 1, PoolState::Critical),
            ("no verdict yet", "???", 1, PoolState::Unknown),
            ("one verdict", "?H?", 1, PoolState::Degraded),
        ] {
            assert_eq!(health(endpoints, threshold).state, expected, "{id}");
        }
    }

    #[test]
    fn a_pool_is_taken_out_if_nothing_else_keeps_an_endpoint_from_serving() {
        for (endpoints, threshold, expected) in [
            ("ff", 1, true),
            ("fdw", 1, true),
            ("Hd", 2, true),
            ("fU", 1, false),
            ("f?", 1, false),
            ("wn", 1, false),
            ("H", 2, false),
            ("", 1, false),
            ("Hf", 1, false),
        ] {
            assert_eq!(health(endpoints, threshold).taken_out, expected, "{endpoints} {threshold}");
        }
    }
}
