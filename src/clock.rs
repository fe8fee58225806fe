//! The only reader of the system's clocks.
//!
//! Moments begin with the wall clock's time at the start and go on with the
//! monotonic clock, so a step of the wall clock moves nothing; how far the two
//! have come apart is asked for by [`Clock::step`].

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::moment::{Moment, utc};

/// The process's time line.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    /// Unix time at `start`.
    wall: Duration,
}

impl Clock {
    /// A time line that is at the wall clock's time now.
    pub fn start() -> Clock {
        Clock { start: Instant::now(), wall: unix() }
    }

    /// The present moment.
    pub fn now(&self) -> Moment {
        Moment::from_start(self.wall + self.start.elapsed())
    }

    /// Milliseconds since the start, by the monotonic clock.
    pub fn milliseconds(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// The instant of the monotonic clock at which `moment` comes; now if it
    /// lies before the start.
    pub fn instant(&self, moment: Moment) -> Instant {
        self.start + moment.elapsed().saturating_sub(self.wall)
    }

    /// How many milliseconds the wall clock was set forward since the start;
    /// negative if it was set back.
    pub fn step(&self) -> i64 {
        let (wall, line) = (unix().as_millis() as i64, self.now().elapsed().as_millis() as i64);
        wall - line
    }

    /// `moment` as people write it: UTC, RFC 3339 §5.6, to the second.
    pub fn utc(&self, moment: Moment) -> String {
        utc(moment.elapsed().as_secs())
    }
}

/// The wall clock's Unix time in seconds, as DNS counts it (RFC 1982): it goes
/// round in 2106.
pub fn unix_seconds() -> u32 {
    unix().as_secs() as u32
}

/// The wall clock's Unix time; zero before 1970.
fn unix() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO)
}
