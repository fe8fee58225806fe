//! How readily traffic moves between the pools of a load balancer.
//!
//! Without delays it goes where health says, at once. With them a pool that
//! fails goes on answering for a while, and one that comes back waits; but
//! nobody waits while nothing else is there to answer.

use crate::model::Moves;
use crate::moment::Moment;

/// Whether one pool takes traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Nothing is known of it yet.
    New,
    /// It does; until when at most, once it has failed.
    In(Option<Moment>),
    /// It doesn't; from when on it may, once it has come back.
    Out(Option<Moment>),
}

/// Which pools of one load balancer take traffic, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    pools: Vec<Use>,
    moves: Moves,
}

impl Hold {
    /// One that knows nothing of `count` pools.
    pub fn new(count: usize, moves: Moves) -> Hold {
        Hold { pools: vec![Use::New; count], moves }
    }

    /// One that goes on where another stood: true for pools that took traffic.
    pub fn recall(took: impl Iterator<Item = Option<bool>>, moves: Moves) -> Hold {
        let of = |took| match took {
            None => Use::New,
            Some(true) => Use::In(None),
            Some(false) => Use::Out(None),
        };
        Hold { pools: took.map(of).collect(), moves }
    }

    /// Takes in which pools are available; none: it isn't known yet.
    pub fn look(&mut self, available: impl Iterator<Item = Option<bool>> + Clone, now: Moment) {
        let Moves { failover_delay, failback_delay, manual_failback } = self.moves;
        for (pool, available) in self.pools.iter_mut().zip(available.clone()) {
            *pool = match (*pool, available) {
                (Use::New, Some(true)) => Use::In(None),
                (Use::New, Some(false)) => Use::Out(None),
                (Use::In(_), Some(true)) | (Use::In(None), None) => Use::In(None),
                (Use::In(due), _) => match due.unwrap_or(now + failover_delay) {
                    due if due <= now => Use::Out(None),
                    due => Use::In(Some(due)),
                },
                (Use::Out(_), Some(true)) if manual_failback => Use::Out(None),
                (Use::Out(due), Some(true)) => match due.unwrap_or(now + failback_delay) {
                    due if due <= now => Use::In(None),
                    due => Use::Out(Some(due)),
                },
                (Use::Out(_), _) => Use::Out(None),
                (Use::New, None) => Use::New,
            };
        }
        if !self.pools.iter().any(|pool| matches!(pool, Use::In(_)))
            && let Some(place) = available.clone().position(|available| available == Some(true))
        {
            self.pools[place] = Use::In(None); // it is needed
        }
    }

    /// Lets every pool in that is available, whatever it waits for.
    pub fn fail_back(&mut self, available: impl Iterator<Item = bool>) {
        for (pool, _) in self.pools.iter_mut().zip(available).filter(|(_, available)| *available) {
            *pool = Use::In(None);
        }
    }

    /// Whether the pool at this place takes traffic.
    pub fn takes(&self, place: usize) -> bool {
        matches!(self.pools[place], Use::In(_))
    }

    /// When [`Hold::look`] would see something else by itself.
    pub fn wake_at(&self) -> Option<Moment> {
        let due = |pool: &Use| match pool {
            Use::In(due) | Use::Out(due) => *due,
            Use::New => None,
        };
        self.pools.iter().filter_map(due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64) -> Moment {
        Moment::from_start(Duration::from_secs(seconds))
    }

    /// What takes traffic after each look (a second and the available pools).
    fn trace(moves: Moves, looks: &[(u64, &str)]) -> Vec<String> {
        let mut hold = Hold::new(2, moves);
        let look = |&(second, pools): &(u64, &str)| {
            let available = pools.chars().map(|c| match c {
                '+' => Some(true),
                '-' => Some(false),
                _ => None,
            });
            hold.look(available, at(second));
            (0..2).map(|place| if hold.takes(place) { '+' } else { '-' }).collect()
        };
        looks.iter().map(look).collect()
    }

    #[test]
    fn s12_delays_of_failover_and_failback() {
        let seconds = Duration::from_secs;
        let delays = |failover, failback| Moves {
            failover_delay: seconds(failover),
            failback_delay: seconds(failback),
            manual_failback: false,
        };
        let manual = Moves { manual_failback: true, ..Moves::default() };
        for (moves, looks, expected, why) in [
            (
                delays(10, 0),
                &[(0, "++"), (5, "-+"), (14, "-+"), (15, "-+"), (16, "++")][..],
                &["++", "++", "++", "-+", "++"][..],
                "a failed pool goes on for the delay",
            ),
            (
                delays(10, 0),
                &[(0, "++"), (5, "-+"), (9, "++"), (19, "++")],
                &["++"; 4],
                "it came back in time",
            ),
            (
                delays(0, 60),
                &[(0, "++"), (5, "-+"), (10, "++"), (69, "++"), (70, "++")],
                &["++", "-+", "-+", "-+", "++"],
                "one that comes back waits",
            ),
            (
                delays(0, 60),
                &[(0, "++"), (5, "-+"), (10, "++"), (40, "-+"), (50, "++"), (109, "++"), (110, "++")],
                &["++", "-+", "-+", "-+", "-+", "-+", "++"],
                "anew each time",
            ),
            (
                delays(0, 60),
                &[(0, "++"), (5, "-+"), (10, "++"), (20, "+-")],
                &["++", "-+", "-+", "+-"],
                "unless it is needed",
            ),
            (
                delays(9, 60),
                &[(0, "??"), (1, "?+"), (2, "++")],
                &["--", "-+", "++"],
                "the start waits for nobody",
            ),
            (delays(9, 60), &[(0, "-+"), (1, "++")], &["-+", "-+"], "but one known to be down comes back"),
            (
                manual,
                &[(0, "++"), (1, "-+"), (2, "++"), (9999, "++"), (10_000, "+-")],
                &["++", "-+", "-+", "-+", "+-"],
                "by hand, or when it is needed",
            ),
        ] {
            assert_eq!(trace(moves, looks), expected, "{why}");
        }
    }

    #[test]
    fn failback_by_hand() {
        let mut hold = Hold::new(2, Moves { manual_failback: true, ..Moves::default() });
        for available in [[true, true], [false, true], [true, true]] {
            hold.look(available.into_iter().map(Some), at(1));
        }
        assert!(!hold.takes(0));
        hold.fail_back([true, true].into_iter());
        assert!(hold.takes(0));
    }
}
