//! A change in a few words: what happened, and why.

use std::sync::Arc;

use crate::engine::{Cause, Change};
use crate::health::{PoolHealth, PoolState, Reason, Standing};
use crate::model::Scope;

/// A change in a few words.
pub fn headline(change: &Change) -> String {
    match change {
        Change::Verdict { scope, monitor, vantage, to, reason: Reason::NoFailures, .. } => {
            format!("endpoint {scope} is {to} by {monitor} from {vantage}")
        }
        Change::Verdict { scope, monitor, vantage, to, reason, .. } => {
            format!("endpoint {scope} is {to} by {monitor} from {vantage}: {reason}")
        }
        Change::Endpoint { scope, from, to, cause, .. } => endpoint_headline(scope, from, to, cause),
        Change::CannotProbe { scope, reason, .. } => {
            format!("endpoint {scope} can't be probed from here: {reason}")
        }
        Change::Vantage { vantage, suspect: true } => {
            format!("vantage {vantage} doubts itself: what fails there is held for a while")
        }
        Change::Vantage { vantage, suspect: false } => format!("vantage {vantage} doubts itself no more"),
        Change::Pool { pool, to, .. } if to.state == PoolState::Unknown => {
            format!("the health of pool {pool} is unknown")
        }
        Change::Pool { pool, to, .. } => format!("pool {pool} is {}", to.state),
        Change::Balancer { name, to, serving, fallback, .. } => match (serving.is_empty(), *fallback) {
            (true, _) => format!("load balancer {name} is {to}, answers with the SOA alone"),
            (false, true) => {
                format!("load balancer {name} is {to}, at its fallback pool {}", serving.join(", "))
            }
            (false, false) => format!("load balancer {name} is {to}, answers from {}", serving.join(", ")),
        },
    }
}

fn endpoint_headline(scope: &Scope, from: &Standing, to: &Standing, cause: &Cause) -> String {
    let is = |what: &str| format!("endpoint {scope} is {what}");
    if from.word() != to.word() {
        return match cause {
            Cause::Probe { reason: Reason::NoFailures, .. } => is(to.word()),
            cause => is(&format!("{}: {}", to.word(), cause.reason())),
        };
    }
    match (from, to) {
        (_, Standing { stale: true, .. }) if !from.stale => is("stale: nobody reports on it any more"),
        (Standing { stale: true, .. }, _) if !to.stale => is("reported on again"),
        (_, Standing { flapping: true, .. }) if !from.flapping => is("flapping"),
        (Standing { flapping: true, .. }, _) if !to.flapping => is("flapping no more"),
        (_, Standing { degraded: Some(why), .. }) if from.degraded.is_none() => {
            is(&format!("degraded: {why}"))
        }
        (Standing { degraded: Some(_), .. }, Standing { degraded: None, .. }) => is("degraded no more"),
        (_, Standing { starting: true, .. }) if !from.starting => is("starting"),
        (Standing { starting: true, .. }, _) if !to.starting => is("no longer starting"),
        _ => is(&format!("{}, probes say {}", to.word(), to.verdict)),
    }
}

/// Why a pool is in its state.
pub fn pool_reason(health: &PoolHealth, threshold: u32) -> String {
    match health.state {
        PoolState::Disabled => "switched off in the configuration".to_owned(),
        PoolState::Unknown => "no monitor, or no verdict yet".to_owned(),
        _ => {
            format!(
                "{} of {} enabled endpoints healthy, threshold {threshold}",
                health.healthy, health.enabled
            )
        }
    }
}

/// Why a load balancer is in its state.
pub fn balancer_reason(serving: &[Arc<str>], fallback: bool) -> String {
    match (serving.is_empty(), fallback) {
        (true, _) => "no pool available and no fallback: only the SOA is answered".to_owned(),
        (false, true) => format!("no pool available: fallback pool {}", serving.join(", ")),
        (false, false) => format!("answers from {}", serving.join(", ")),
    }
}
