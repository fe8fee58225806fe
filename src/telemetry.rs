//! Logs: one line for every change of a verdict, a pool or a load balancer.

use tracing::{info, warn};
use tracing_subscriber::EnvFilter;

use crate::authority::BalancerState;
use crate::clock::Clock;
use crate::engine::Change;
use crate::health::{PoolState, Reason, ScheduleCounters, Verdict};

/// Sends log lines to standard error: JSON objects, or text for people with or
/// without colours. `HALE_LOG` filters them in the syntax of tracing's
/// directives, such as `haledns=debug`. Only the first call counts.
pub fn start_log(json: bool, colours: bool) {
    let asked = std::env::var("HALE_LOG").unwrap_or_default();
    let asked = if asked.is_empty() { "info" } else { &asked };
    let (filter, error) = match EnvFilter::try_new(asked) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new("info"), Some(error)),
    };
    let log =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    let started = match json {
        false => log.with_ansi(colours).try_init(),
        true => log.json().flatten_event(true).try_init(),
    };
    drop(started); // a log that runs already goes on
    if let Some(error) = error {
        warn!("HALE_LOG is ignored: {error}; write for example `warn` or `haledns=debug`");
    }
}

/// Writes the line for one change.
pub fn tell(change: &Change, clock: &Clock) {
    // the level is part of a call site in tracing, so each line has two
    macro_rules! line {
        ($good:expr, $($fields:tt)*) => {
            if $good { info!($($fields)*) } else { warn!($($fields)*) }
        };
    }
    let headline = headline(change);
    match change {
        Change::Verdict { pool, endpoint, monitor, from, to, reason, detail, status, since } => {
            let since = clock.utc(*since);
            let good = *to == Verdict::Healthy;
            line!(good, %pool, %endpoint, %monitor, %from, %to, %reason, detail, status, since, "{headline}");
        }
        Change::CannotProbe { pool, endpoint, monitor, reason, detail } => {
            warn!(%pool, %endpoint, %monitor, %reason, detail, "{headline}");
        }
        Change::Pool { pool, from, to, threshold, since } => {
            let since = clock.utc(*since);
            let reason =
                format!("{} of {} enabled endpoints healthy, threshold {threshold}", to.healthy, to.enabled);
            let to = to.state;
            line!(to == PoolState::Healthy, %pool, %from, %to, reason, since, "{headline}");
        }
        Change::Balancer { name, from, to, serving, fallback, since } => {
            let since = clock.utc(*since);
            let reason = match (serving.is_empty(), *fallback) {
                (true, _) => "no pool available and no fallback: only the SOA is answered".to_owned(),
                (false, true) => format!("no pool available: fallback pool {}", serving.join(", ")),
                (false, false) => format!("answers from {}", serving.join(", ")),
            };
            let good = *to == BalancerState::Healthy;
            line!(good, load_balancer = %name, %from, %to, reason, since, "{headline}");
        }
    }
}

/// A change in a few words.
pub fn headline(change: &Change) -> String {
    match change {
        Change::Verdict { pool, endpoint, to, reason: Reason::NoFailures, .. } => {
            format!("endpoint {pool}/{endpoint} is {to}")
        }
        Change::Verdict { pool, endpoint, to, reason, .. } => {
            format!("endpoint {pool}/{endpoint} is {to}: {reason}")
        }
        Change::CannotProbe { pool, endpoint, reason, .. } => {
            format!("endpoint {pool}/{endpoint} can't be probed from here: {reason}")
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

/// Writes what the probe schedule has counted.
pub fn tell_probes(counters: ScheduleCounters) {
    let ScheduleCounters { started, late, skipped } = counters;
    info!(started, late, skipped, "probes since the start");
}

/// Writes what the transports have counted.
pub fn tell_queries(queries: u64, replies: u64) {
    info!(queries, replies, "queries since the start");
}
