//! What the service manager is told: readiness, reloads, a line of status, and
//! that everything which answers is alive.
//!
//! Without a service manager, which says where to tell by NOTIFY_SOCKET, all of
//! it does nothing; but what hangs is logged all the same.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::{debug, error, info, warn};

use super::Control;
use crate::engine::Engine;
use crate::moment::Moment;
use crate::serve::Pulse;

/// How often it is looked whether all is alive, unless the watchdog wants it
/// more often.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// It is never looked more often, whatever the watchdog wants,
const LOOK_AT_MOST_EVERY: Duration = Duration::from_millis(50);
/// and the engine has at least so long to take a question.
const PATIENCE: Duration = Duration::from_millis(500);

/// It answers.
pub fn ready() {
    tell(&[NotifyState::Ready]);
}

/// It reads its configuration; [`ready`] follows.
pub fn reloading() {
    let Ok(now) = NotifyState::monotonic_usec_now() else { return };
    tell(&[NotifyState::Reloading, now]);
}

/// It ends.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        debug!("the service manager can't be told: {error}");
    }
}

/// Looks whether engine, workers and acceptor are alive, and as long as they
/// are, feeds the watchdog. Never ends.
pub async fn watch(control: Control, mut pulse: Pulse) {
    let asked = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero());
    let every = look_every(asked);
    if let Some(limit) = asked.filter(|limit| *limit < 2 * every) {
        warn!(
            "the watchdog wants a sign of life within {limit:?} (WATCHDOG_USEC), and gets one each {every:?}: \
             set WatchdogSec to 100 ms or more"
        );
    }
    let told = std::env::var_os("NOTIFY_SOCKET").is_some();
    let mut looks = interval(every);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut last, mut trouble) = (String::new(), None);
    loop {
        looks.tick().await;
        // a question that isn't taken in that time: the engine's task hangs, or is no more
        let status = control.ask(move |engine, now| if told { status(engine, now) } else { String::new() });
        let found = match timeout(PATIENCE.max(every / 2), status).await {
            Ok(Some(status)) => pulse.beats().map(|()| status),
            Ok(None) | Err(_) => Err("the health engine doesn't turn".to_owned()),
        };
        match found {
            Ok(status) => {
                if trouble.take().is_some() {
                    info!("everything that answers is alive again");
                }
                tell(&[NotifyState::Watchdog]);
                if status != last {
                    tell(&[NotifyState::Status(&status)]);
                    last = status;
                }
            }
            Err(what) => {
                if trouble.as_ref() != Some(&what) {
                    let then = if asked.is_some() { "; the watchdog is not fed" } else { "" };
                    error!("{what}{then}");
                    tell(&[NotifyState::Status(&what)]);
                    last.clone_from(&what);
                }
                trouble = Some(what);
            }
        }
    }
}

/// How often to look so that a watchdog with this limit is fed twice in it.
fn look_every(limit: Option<Duration>) -> Duration {
    limit.map_or(LOOK_EVERY, |limit| (limit / 2).clamp(LOOK_AT_MOST_EVERY, LOOK_EVERY))
}

/// One line of what is served.
fn status(engine: &Engine, now: Moment) -> String {
    let zones = engine.model().zones.len();
    let pools = engine.status(now).pools;
    let endpoints = || pools.iter().flat_map(|pool| &pool.endpoints);
    let up = endpoints().filter(|endpoint| endpoint.standing.fitness.is_up()).count();
    format!(
        "{zones} zone{}, {up} of {} endpoint{} fit to serve",
        if zones == 1 { "" } else { "s" },
        endpoints().count(),
        if endpoints().count() == 1 { "" } else { "s" },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watchdog_is_fed_twice_in_its_limit_within_reason() {
        for (limit, every) in [
            (None, 10_000),
            (Some(60_000_000), 10_000),
            (Some(20_000_000), 10_000),
            (Some(3_000_000), 1_500),
            (Some(100_000), 50),
            (Some(99_000), 50),
            (Some(1), 50),
        ] {
            let found = look_every(limit.map(Duration::from_micros));
            assert_eq!(found, Duration::from_millis(every), "{limit:?} µs");
        }
    }
}
