//! The only reader of the system's clocks.
//!
//! Moments begin with the wall clock's time at the start and go on with the
//! monotonic clock, so a step of the wall clock moves nothing; how far the two
//! have come apart is asked for by [`Clock::step`].

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::moment::Moment;

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

/// The wall clock's Unix time; zero before 1970.
fn unix() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO)
}

/// Unix time, in seconds, in RFC 3339 form.
pub fn utc(unix: u64) -> String {
    let (days, second) = (unix / 86400, unix % 86400);
    // the calendar in years that begin in March, so that a leap day comes last
    let era_day = days + 719_468;
    let (era, day) = (era_day / 146_097, era_day % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_time_is_shown_as_a_date() {
        for (unix, shown) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(unix), shown);
        }
    }
}
