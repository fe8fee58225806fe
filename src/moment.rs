//! A point on the process's time line.
//!
//! Knows no clock: it has no `now`. The `clock` shell makes moments from the
//! system's monotonic clock, tests and scenarios make them from thin air.

use std::ops::Add;
use std::time::Duration;

/// Time since the line began. Ordered, copyable, never negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// Where the time line begins.
    pub const ZERO: Moment = Moment(Duration::ZERO);

    /// The moment that lies `elapsed` after the beginning of the line.
    pub const fn from_start(elapsed: Duration) -> Moment {
        Moment(elapsed)
    }

    /// How far this moment lies from the beginning of the line.
    pub const fn elapsed(self) -> Duration {
        self.0
    }

    /// The time from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, later: Duration) -> Moment {
        Moment(self.0.saturating_add(later))
    }
}
