//! A point on the process's time line.
//!
//! The line begins with the Unix epoch: a moment is Unix time as it was known
//! at the start of the process, and goes on evenly from there, so that moments
//! outlive a restart and no step of the wall clock moves them.
//!
//! Knows no clock: it has no `now`. The `clock` shell makes moments from the
//! system's clocks, tests and scenarios make them from thin air.

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

    /// The moment that lies `time` before this one, or the beginning of the line.
    pub fn before(self, time: Duration) -> Moment {
        Moment(self.0.saturating_sub(time))
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
