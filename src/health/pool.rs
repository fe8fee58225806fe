//! From the verdicts on a pool's endpoints to the pool's state.

use std::fmt;

use super::Verdict;
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
    /// Enabled endpoints.
    pub enabled: u32,
    /// Healthy ones among the enabled.
    pub healthy: u32,
}

/// The state of `pool` when its endpoints have these verdicts, in order.
pub fn pool_health(pool: &Pool, verdicts: &[Verdict]) -> PoolHealth {
    let of = |wanted: Verdict| {
        let both = pool.endpoints.iter().zip(verdicts);
        both.filter(|(endpoint, verdict)| endpoint.enabled && **verdict == wanted).count() as u32
    };
    let healthy = of(Verdict::Healthy);
    let unknown = of(Verdict::Unknown);
    let enabled = healthy + unknown + of(Verdict::Unhealthy);
    let state = if !pool.enabled {
        PoolState::Disabled
    } else if pool.monitors.is_empty() || (enabled > 0 && unknown == enabled) {
        PoolState::Unknown
    } else if healthy < pool.health_threshold || enabled == 0 {
        PoolState::Critical
    } else if healthy == enabled {
        PoolState::Healthy
    } else {
        PoolState::Degraded
    };
    PoolHealth { state, enabled, healthy }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{AnswerShape, Endpoint, MonitorId, Weight};

    /// A pool of one endpoint a letter: `H`ealthy, `U`nhealthy, `?`, `d`isabled.
    fn state(endpoints: &str, health_threshold: u32) -> PoolState {
        let verdicts: Vec<Verdict> = endpoints
            .chars()
            .map(|c| match c {
                'H' => Verdict::Healthy,
                'U' => Verdict::Unhealthy,
                _ => Verdict::Unknown,
            })
            .collect();
        let pool = Pool {
            name: "p".into(),
            enabled: true,
            monitors: vec![MonitorId(0)],
            health_threshold,
            answer: AnswerShape::ByWeight,
            max_answers: 8,
            family_threshold: Default::default(),
            endpoints: (endpoints.chars().zip(1u8..))
                .map(|(c, n)| Endpoint {
                    name: n.to_string().into(),
                    address: [192, 0, 2, n].into(),
                    enabled: c != 'd',
                    weight: Weight(100),
                    port: None,
                    host: None,
                })
                .collect(),
        };
        pool_health(&pool, &verdicts).state
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
            assert_eq!(state(endpoints, threshold), expected, "{id}");
        }
    }
}
