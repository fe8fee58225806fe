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

/// Looks from outside at workers and at what accepts connections.
pub struct Pulse {
    turns: Vec<Turns>,
    /// The tasks that accept, and what they accept.
    accepting: Vec<(String, AbortHandle)>,
    /// What each worker's number was when it last changed, and when that was.
    seen: Vec<(u64, Instant)>,
}

impl fmt::Debug for Pulse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pulse").field("seen", &self.seen).finish_non_exhaustive()
    }
}

impl Pulse {
    pub(super) fn new(turns: Vec<Turns>, accepting: Vec<(String, AbortHandle)>) -> Pulse {
        let now = Instant::now();
        let seen = turns.iter().map(|turns| (turns(), now)).collect();
        Pulse { turns, accepting, seen }
    }

    /// Looks once; says what hangs or is no more.
    pub fn beats(&mut self) -> Result<(), String> {
        if let Some((what, _)) = self.accepting.iter().find(|(_, task)| task.is_finished()) {
            return Err(format!("no {what} is accepted any more"));
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
        let [tcp, quic] = [(); 2].map(|()| tokio::spawn(std::future::pending::<()>()));
        let accepting =
            vec![("connection".to_owned(), tcp.abort_handle()), ("packet".to_owned(), quic.abort_handle())];
        let mut pulse = Pulse::new(vec![Box::new(move || theirs.load(Relaxed))], accepting);
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
        assert_eq!(pulse.beats(), Ok(()));
        for (task, what) in [(quic, "packet"), (tcp, "connection")] {
            task.abort();
            let _ = task.await;
            assert_eq!(pulse.beats(), Err(format!("no {what} is accepted any more")));
        }
    }
}
