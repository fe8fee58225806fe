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

    /// The moment that lies so many milliseconds later, or earlier.
    pub fn moved(self, milliseconds: i64) -> Moment {
        let by = Duration::from_millis(milliseconds.unsigned_abs());
        if milliseconds < 0 { self.before(by) } else { self + by }
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

/// Unix time, in seconds, in RFC 3339 form.
pub fn utc(unix: u64) -> String {
    format!("{}Z", date_and_time(unix))
}

/// Unix time in RFC 3339 form, to the millisecond: texts of the same length,
/// whose order is that of their times.
pub fn utc_millis(unix: Duration) -> String {
    format!("{}.{:03}Z", date_and_time(unix.as_secs()), unix.subsec_millis())
}

fn date_and_time(unix: u64) -> String {
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
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

/// The Unix time of a date, or of a date and a time, in UTC: `2026-11-30`,
/// `2026-11-30T04:50`, `2026-11-30 04:50:17`, `2026-11-30T04:50:17.250Z`.
pub fn parse_utc(text: &str) -> Option<Duration> {
    let text = text.trim().trim_end_matches(['Z', 'z']);
    let (date, time) = text.split_once(['T', 't', ' ']).unwrap_or((text, "00:00"));
    let digits = |part: &str, length: usize| -> Option<u64> {
        let plain = part.len() == length && part.bytes().all(|octet| octet.is_ascii_digit());
        plain.then(|| part.parse().ok()).flatten()
    };
    let mut date = date.split('-');
    let year = digits(date.next()?, 4)?;
    let month = digits(date.next()?, 2).filter(|month| (1..=12).contains(month))?;
    let day = digits(date.next()?, 2).filter(|day| (1..=days_of(year, month)).contains(day))?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut time = time.split(':');
    let hour = digits(time.next()?, 2).filter(|hour| *hour < 24)?;
    let minute = digits(time.next()?, 2).filter(|minute| *minute < 60)?;
    let second = match time.next() {
        None => 0,
        Some(second) => digits(second, 2).filter(|second| *second < 60)?,
    };
    if date.next().is_some() || time.next().is_some() || year < 1970 {
        return None;
    }
    let fraction: String = fraction.chars().chain("00".chars()).take(3).collect();
    let millis = digits(&fraction, 3)?;
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    let seconds = days * 86400 + hour * 3600 + minute * 60 + second;
    Some(Duration::from_millis(seconds * 1000 + millis))
}

fn days_of(year: u64, month: u64) -> u64 {
    match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
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
            assert_eq!(parse_utc(shown), Some(Duration::from_secs(unix)), "{shown}");
        }
        assert_eq!(utc_millis(Duration::from_millis(1_709_251_200_007)), "2024-03-01T00:00:00.007Z");
    }

    #[test]
    fn dates_are_read_in_several_lengths() {
        let millis = |text| parse_utc(text).map(|time| time.as_millis());
        for (text, unix) in [
            ("2024-03-01", Some(1_709_251_200_000)),
            ("2024-03-01T01:02", Some(1_709_254_920_000)),
            ("2024-03-01 01:02:03", Some(1_709_254_923_000)),
            ("2024-03-01T01:02:03.5Z", Some(1_709_254_923_500)),
            ("2024-03-01T01:02:03.123456789Z", Some(1_709_254_923_123)),
            ("2023-02-29", None),
            ("2024-13-01", None),
            ("2024-03-01T24:00", None),
            ("2024-03-01T01:02:03+01:00", None),
            ("2024-03-01T01:02:03.5xZ", None),
            ("yesterday", None),
            ("1h", None),
            ("", None),
        ] {
            assert_eq!(millis(text), unix, "{text}");
        }
    }
}
