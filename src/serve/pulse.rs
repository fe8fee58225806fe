//! Whether everything that answers is alive.

use std::fmt;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::Instant;

/// A worker turns at least every two seconds; without a turn for so long it
/// hangs.
const HANGS: Duration = Duration::from_secs(10);

/// How often a worker has turned.
pub(super) type Turns = Box<dyn Fn() -> u64 + Send + Sync>;

/// Looks at workers and the acceptor from outside.
pub struct Pulse {
    turns: Vec<Turns>,
    acceptor: AbortHandle,
    /// What each worker's number was when it last changed, and when that was.
    seen: Vec<(u64, Instant)>,
}

impl fmt::Debug for Pulse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pulse").field("seen", &self.seen).finish_non_exhaustive()
    }
}

impl Pulse {
    pub(super) fn new(turns: Vec<Turns>, acceptor: AbortHandle) -> Pulse {
        let now = Instant::now();
        let seen = turns.iter().map(|turns| (turns(), now)).collect();
        Pulse { turns, acceptor, seen }
    }

    /// Looks once; says what hangs or is no more.
    pub fn beats(&mut self) -> Result<(), String> {
        if self.acceptor.is_finished() {
            return Err("no connection is accepted any more".to_owned());
        }
        self.workers_beat(Instant::now())
    }

    fn workers_beat(&mut self, now: Instant) -> Result<(), String> {
        for (number, (turns, seen)) in self.turns.iter().zip(&mut self.seen).enumerate() {
            let turned = turns();
            if turned != seen.0 {
                *seen = (turned, now);
            } else if now - seen.1 > HANGS {
                return Err(format!("UDP worker {number} hangs"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    #[tokio::test]
    async fn a_worker_that_does_not_turn_hangs_and_an_acceptor_that_has_ended_is_missed() {
        let turns = Arc::new(AtomicU64::new(0));
        let theirs = Arc::clone(&turns);
        let acceptor = tokio::spawn(std::future::pending::<()>());
        let mut pulse = Pulse::new(vec![Box::new(move || theirs.load(Relaxed))], acceptor.abort_handle());
        let mut now = Instant::now();
        for (after, turn, expected) in [
            (0, false, Ok(())),
            (9, false, Ok(())),
            (2, false, Err("UDP worker 0 hangs".to_owned())),
            (0, true, Ok(())),
            (10, false, Ok(())),
            (2, true, Ok(())),
        ] {
            now += Duration::from_secs(after);
            turns.fetch_add(u64::from(turn), Relaxed);
            assert_eq!(pulse.workers_beat(now), expected, "{after} s later");
        }
        acceptor.abort();
        let _ = acceptor.await;
        assert_eq!(pulse.beats(), Err("no connection is accepted any more".to_owned()));
    }
}
