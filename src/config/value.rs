//! How single values are written: durations, status codes, weights, sizes,
//! addresses.
//!
//! Text in, value out; who asks says what is wrong and where.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::model::why_unfit;

/// The longest TTL, in seconds (RFC 2181, section 8).
pub const MAX_TTL: u32 = i32::MAX as u32;

/// A duration: seconds (`15`, `0.5`), or a sum of `d`, `h`, `m`, `s`, `ms`
/// from the largest to the smallest (`1h30m`). Neither begins with a zero that
/// means nothing, as an octal number of other programs would.
pub fn duration(text: &str) -> Option<Duration> {
    if padded(text) {
        return None;
    }
    if let Some(seconds) = decimal(text) {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let units = [("d", 86400.0), ("h", 3600.0), ("m", 60.0), ("s", 1.0), ("ms", 0.001)];
    let (mut rest, mut allowed, mut total) = (text, &units[..], 0.0);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number = decimal(&rest[..digits])?;
        let letters = &rest[digits..];
        let end = letters.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(letters.len());
        let at = allowed.iter().position(|(unit, _)| *unit == &letters[..end])?;
        total += number * allowed[at].1;
        allowed = &allowed[at + 1..];
        rest = &letters[end..];
    }
    if text.is_empty() { None } else { Duration::try_from_secs_f64(total).ok() }
}

/// A duration as people write it: `1h30m`, `500ms`.
pub fn show(duration: Duration) -> String {
    let mut rest = duration.as_millis();
    if rest == 0 {
        return "0s".into();
    }
    let mut out = String::new();
    for (unit, size) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)] {
        if rest >= size {
            out += &format!("{}{unit}", rest / size);
            rest %= size;
        }
    }
    out
}

/// Whether zeros stand before a number that needs none.
fn padded(text: &str) -> bool {
    matches!(text.as_bytes(), [b'0', b'0'..=b'9', ..])
}

/// The text without such zeros.
pub fn unpadded(text: &str) -> &str {
    let significant = text.trim_start_matches('0');
    match significant.starts_with(|c: char| c.is_ascii_digit()) || significant.len() == text.len() {
        true => significant,
        false => &text[text.len() - significant.len() - 1..],
    }
}

fn decimal(text: &str) -> Option<f64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.len() < 16 && part.bytes().all(|b| b.is_ascii_digit());
    (digits(whole) && digits(fraction)).then(|| text.parse().ok()).flatten()
}

/// Status codes: `200`, `2xx`, or several with commas between. The error is
/// the part that is none.
pub fn codes(text: &str) -> Result<Vec<RangeInclusive<u16>>, &str> {
    text.split(',')
        .map(str::trim)
        .map(|part| {
            let bytes = part.as_bytes();
            match bytes {
                [class @ b'1'..=b'5', b'x' | b'X', b'x' | b'X'] => {
                    let first = u16::from(class - b'0') * 100;
                    Ok(first..=first + 99)
                }
                [b'1'..=b'5', b'0'..=b'9', b'0'..=b'9'] => {
                    let code = bytes.iter().fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'));
                    Ok(code..=code)
                }
                _ => Err(part),
            }
        })
        .collect()
}

/// A weight of 0 to 1 as hundredths.
pub fn weight(text: &str) -> Option<u8> {
    if padded(text) {
        return None;
    }
    let hundredths = decimal(text)? * 100.0;
    let rounded = hundredths.round();
    ((hundredths - rounded).abs() < 1e-9 && rounded <= 100.0).then_some(rounded as u8)
}

/// What to write instead of a text that is no weight.
pub fn weight_help(text: &str) -> String {
    match weight_meant(text) {
        Some(meant) => format!("write `{meant}`: a weight is 0 to 1, in hundredths"),
        None => "write a number from 0 to 1 in hundredths, such as `0.25`".to_owned(),
    }
}

/// The weight that another way of writing means: percent, a bare fraction,
/// too many digits.
fn weight_meant(text: &str) -> Option<String> {
    let (number, percent) = match text.strip_suffix('%') {
        Some(number) => (number.trim_end(), true),
        None => (text, false),
    };
    let number = number.replace(',', ".");
    let digits = number.chars().all(|c| c.is_ascii_digit() || c == '.');
    let number: f64 = number.parse().ok().filter(|_| digits)?;
    let share = if percent || (number > 1.0 && number.fract() == 0.0) { number / 100.0 } else { number };
    if share > 1.0 {
        return None;
    }
    // what was above 0 stays so
    let least = if share > 0.0 { 0.01 } else { 0.0 };
    Some(format!("{}", ((share * 100.0).round() / 100.0).max(least)))
}

/// A number of octets: `10240`, `10KiB`, `1MiB`.
pub fn size(text: &str) -> Option<usize> {
    let (digits, factor) = match (text.strip_suffix("KiB"), text.strip_suffix("MiB")) {
        (Some(digits), _) => (digits.trim_end(), 1 << 10),
        (_, Some(digits)) => (digits.trim_end(), 1 << 20),
        _ => (text, 1),
    };
    let plain = !padded(digits) && digits.bytes().all(|b| b.is_ascii_digit());
    let number: usize = digits.parse().ok().filter(|_| plain)?;
    number.checked_mul(factor)
}

/// A time of RFC 3339 as Unix seconds; else what to write.
pub fn time(text: &str) -> Result<u64, String> {
    const USUAL: &str = "write date, time and `Z` or an offset, such as `2027-01-31T02:00:00Z`";
    let usual = || USUAL.to_owned();
    let Some((date, clock)) = text.split_once(['T', 't', ' ']) else {
        return Err(match days(text) {
            Some(_) => format!("write the time of day as well: `{text}T00:00:00Z`"),
            None => usual(),
        });
    };
    let days = days(date).ok_or_else(usual)?;
    let (clock, offset) = split_offset(clock);
    let second = of_day(clock).ok_or_else(usual)?;
    let Some(offset) = offset else {
        return Err(format!("write `{date}T{clock}Z` for UTC, or an offset such as `+02:00` behind it"));
    };
    let offset = offset.ok_or_else(usual)?;
    let time = days * 86_400 + i64::from(second) - i64::from(offset);
    u64::try_from(time).map_err(|_| "write a time after 1970".to_owned())
}

/// A day of the week and a time (`sun 02:00`, in UTC unless it has an offset)
/// as seconds since Monday 00:00 UTC.
pub fn weekly(text: &str) -> Option<u32> {
    const WEEK: i32 = 7 * 86_400;
    let (day, clock) = text.split_once(' ')?;
    let days = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
    let day = days.iter().position(|name| name.eq_ignore_ascii_case(day))? as i32;
    let (clock, offset) = split_offset(clock);
    let second = of_day(clock)? as i32;
    let offset = offset.unwrap_or(Some(0))?;
    u32::try_from((day * 86_400 + second - offset).rem_euclid(WEEK)).ok()
}

/// Days from 1 January 1970 to `2027-01-31`.
fn days(date: &str) -> Option<i64> {
    let [year, month, day] = fields::<3>(date, '-', &[4, 2, 2])?;
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=length).contains(&day) {
        return None;
    }
    // years that begin in March have the leap day at their end
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let before = year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    Some(before + (153 * month + 2) / 5 + day - 1 - 719_468)
}

/// Seconds from midnight to `02:00` or `02:00:00`; fractions are left out.
fn of_day(clock: &str) -> Option<u32> {
    let clock = match clock.split_once('.') {
        Some((whole, fraction)) if !fraction.is_empty() && fraction.bytes().all(|b| b.is_ascii_digit()) => {
            whole
        }
        Some(_) => return None,
        None => clock,
    };
    let [hour, minute, second] = fields::<3>(clock, ':', &[2, 2, 2])
        .or_else(|| fields::<3>(&format!("{clock}:00"), ':', &[2, 2, 2]))?;
    let fits = hour < 24 && minute < 60 && second < 60;
    fits.then_some((hour * 3600 + minute * 60 + second) as u32)
}

/// A time of day, and its offset in seconds if it has one; that is none within
/// if it can't be read.
fn split_offset(clock: &str) -> (&str, Option<Option<i32>>) {
    if let Some(clock) = clock.strip_suffix(['Z', 'z']) {
        return (clock, Some(Some(0)));
    }
    let Some(at) = clock.find(['+', '-']) else { return (clock, None) };
    let (clock, offset) = clock.split_at(at);
    let seconds = of_day(&offset[1..]).filter(|_| offset.len() == 6).map(|seconds| seconds as i32);
    (clock, Some(seconds.map(|seconds| if offset.starts_with('-') { -seconds } else { seconds })))
}

/// Numbers of so many digits each, with `between` between them.
fn fields<const N: usize>(text: &str, between: char, lengths: &[usize; N]) -> Option<[i64; N]> {
    let mut parts = text.split(between);
    let mut numbers = [0; N];
    for (number, length) in numbers.iter_mut().zip(lengths) {
        let part = parts.next().filter(|part| part.len() == *length)?;
        *number = part.parse().ok().filter(|_| part.bytes().all(|b| b.is_ascii_digit()))?;
    }
    parts.next().is_none().then_some(numbers)
}

/// Why a text is not an endpoint's address.
#[derive(Debug, PartialEq, Eq)]
pub enum NoAddress {
    /// It looks like a host name.
    Hostname,
    /// It is written wrongly: why, and how to write it if that is clear.
    Malformed(&'static str, Option<String>),
    /// No packet for it reaches an endpoint: why, and what to write if clear.
    Unfit(&'static str, Option<String>),
}

/// An address as text, without a prefix length, brackets, zone or port.
pub fn address(text: &str) -> Result<IpAddr, NoAddress> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let malformed = |why, right: Option<String>| Err(NoAddress::Malformed(why, right));
    let trimmed = text.trim();
    if trimmed != text && trimmed.parse::<IpAddr>().is_ok() {
        return malformed("there are spaces around it", Some(trimmed.into()));
    }
    if let Some((before, length)) = text.split_once('/')
        && before.parse::<IpAddr>().is_ok()
        && length.bytes().all(|b| b.is_ascii_digit())
    {
        return malformed("it is a network, with a prefix length", Some(before.into()));
    }
    if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'))
        && inner.parse::<Ipv6Addr>().is_ok()
    {
        return malformed("brackets belong around it only where a port follows", Some(inner.into()));
    }
    if let Ok(socket) = text.parse::<std::net::SocketAddr>() {
        return malformed(
            "it carries a port",
            Some(format!("{}`, and `port: {}", socket.ip(), socket.port())),
        );
    }
    if let Some((before, _)) = text.split_once('%')
        && before.parse::<Ipv6Addr>().is_ok()
    {
        return malformed("a zone (`%…`) has meaning on one machine only", Some(before.into()));
    }
    let parts: Vec<&str> = text.split('.').collect();
    if parts.iter().all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit())) {
        let plain = parts.iter().map(|part| match part.trim_start_matches('0') {
            "" => "0",
            digits => digits,
        });
        let plain = plain.collect::<Vec<_>>().join(".");
        return match plain.parse::<Ipv4Addr>() {
            Ok(_) => malformed("leading zeros mean octal to some programs", Some(plain)),
            Err(_) if parts.len() != 4 => malformed("an IPv4 address has four numbers", None),
            Err(_) => malformed("each number of an IPv4 address is at most 255", None),
        };
    }
    let named = |c: char| c.is_alphanumeric() || "-._".contains(c);
    if let Some((name, port)) = text.split_once(':')
        && name.contains('.')
        && name.chars().all(named)
        && port.parse::<u16>().is_ok()
    {
        return malformed("it carries a port", Some(format!("{name}`, and `port: {port}")));
    }
    if text.contains("://") {
        return malformed("it is a URL", None);
    }
    if text.contains(':') {
        return malformed("an IPv6 address is eight groups of hexadecimal digits, `::` once", None);
    }
    if !text.is_empty() && text.chars().all(named) && text.contains(|c: char| c.is_alphabetic()) {
        return Err(NoAddress::Hostname);
    }
    malformed("it is neither an IPv4 nor an IPv6 address", None)
}

/// An address that can be an endpoint.
pub fn endpoint_address(text: &str) -> Result<IpAddr, NoAddress> {
    let address = address(text)?;
    if let IpAddr::V6(v6) = address
        && let Some(v4) = v6.to_ipv4_mapped()
    {
        return Err(NoAddress::Unfit("it is an IPv4 address mapped into IPv6", Some(v4.to_string())));
    }
    match why_unfit(address) {
        Some(why) => Err(NoAddress::Unfit(why, None)),
        None => Ok(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_seconds_or_sums() {
        for (text, millis) in [
            ("15", Some(15_000)),
            ("0.5", Some(500)),
            ("0", Some(0)),
            ("500ms", Some(500)),
            ("1h30m", Some(5_400_000)),
            ("1d", Some(86_400_000)),
            ("1.5h", Some(5_400_000)),
            ("2m3s4ms", Some(123_004)),
            ("", None),
            ("-1", None),
            ("1e3", None),
            (".5", None),
            ("5.", None),
            ("30m1h", None),
            ("1m1m", None),
            ("10 s", None),
            ("10S", None),
            ("1w", None),
            ("10:30", None),
            ("010", None),
            ("010s", None),
            ("00", None),
            ("1m05s", Some(65_000)),
            ("1_000", None),
            ("99999999999999999999d", None),
        ] {
            assert_eq!(duration(text).map(|d| d.as_millis()), millis, "{text:?}");
        }
    }

    #[test]
    fn a_shown_duration_reads_back() {
        for text in ["1h30m", "500ms", "15s", "1d1ms", "0s"] {
            assert_eq!(show(duration(text).unwrap()), text);
        }
    }

    #[test]
    fn codes_are_single_ones_and_classes() {
        for (text, ranges) in [
            ("200", Ok(vec![200..=200])),
            ("2xx", Ok(vec![200..=299])),
            ("2XX", Ok(vec![200..=299])),
            ("200,3xx", Ok(vec![200..=200, 300..=399])),
            ("200, 302", Ok(vec![200..=200, 302..=302])),
            ("20x", Err("20x")),
            ("200-299", Err("200-299")),
            ("600", Err("600")),
            ("099", Err("099")),
            ("200,", Err("")),
            ("", Err("")),
        ] {
            assert_eq!(codes(text), ranges, "{text:?}");
        }
    }

    #[test]
    fn weights_are_hundredths() {
        for (text, hundredths) in [
            ("0", Some(0)),
            ("1", Some(100)),
            ("1.0", Some(100)),
            ("0.5", Some(50)),
            ("0.29", Some(29)),
            ("0.57", Some(57)),
            ("0.005", None),
            ("1.01", None),
            ("-1", None),
            ("4294967295", None),
            ("1e-1", None),
            ("01", None),
            ("00.5", None),
        ] {
            assert_eq!(weight(text), hundredths, "{text:?}");
        }
    }

    #[test]
    fn a_weight_written_otherwise_is_understood() {
        for (text, meant) in [
            ("70", Some("0.7")),
            ("70%", Some("0.7")),
            ("70 %", Some("0.7")),
            (".5", Some("0.5")),
            ("0.333", Some("0.33")),
            ("0,5", Some("0.5")),
            ("0.001", Some("0.01")),
            ("0.5%", Some("0.01")),
            ("01", Some("1")),
            ("00", Some("0")),
            ("100", Some("1")),
            ("150", None),
            ("1.5", None),
            ("-1", None),
            ("1e2", None),
            ("half", None),
            ("", None),
        ] {
            let found = weight_meant(text);
            assert_eq!(found.as_deref(), meant, "{text:?}");
            assert!(found.is_none_or(|found| weight(&found).is_some()), "{text:?}");
        }
    }

    #[test]
    fn zeros_before_a_number_are_taken_off() {
        for (text, right) in
            [("010", "10"), ("00", "0"), ("00.5", "0.5"), ("0", "0"), ("0ms", "0ms"), ("5", "5")]
        {
            assert_eq!(unpadded(text), right, "{text}");
        }
    }

    #[test]
    fn times_are_unix_seconds() {
        for (text, unix) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T00:00:00Z", 951_782_400),
            ("2023-11-14T22:13:20Z", 1_700_000_000),
            ("2023-11-14t22:13:20.75z", 1_700_000_000),
            ("2023-11-14 22:13:20Z", 1_700_000_000),
            ("2023-11-15T00:13:20+02:00", 1_700_000_000),
            ("2023-11-14T16:43:20-05:30", 1_700_000_000),
            ("2024-03-01T00:00Z", 1_709_251_200),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
        ] {
            assert_eq!(time(text), Ok(unix), "{text}");
        }
        for (text, help) in [
            ("2027-01-31", "`2027-01-31T00:00:00Z`"),
            ("2027-01-31T02:00:00", "`2027-01-31T02:00:00Z`"),
            ("1969-12-31T23:59:59Z", "after 1970"),
            ("2027-02-29T00:00:00Z", "such as"),
            ("2027-13-01T00:00:00Z", "such as"),
            ("2027-01-31T24:00:00Z", "such as"),
            ("2027-01-31T02:00:00+2:00", "such as"),
            ("2027-01-31T02:00:00 UTC", "such as"),
            ("tomorrow", "such as"),
            ("", "such as"),
        ] {
            assert!(time(text).unwrap_err().contains(help), "{text}: {:?}", time(text));
        }
        for unix in (0..4_200_000_000).step_by(86_400 * 13 + 4711) {
            assert_eq!(time(&crate::moment::utc(unix)), Ok(unix));
        }
    }

    #[test]
    fn weekly_times_count_from_monday_in_utc() {
        for (text, seconds) in [
            ("mon 00:00", Some(0)),
            ("Tue 00:00:01", Some(86_401)),
            ("sun 02:00", Some(6 * 86_400 + 7200)),
            ("sun 02:00Z", Some(6 * 86_400 + 7200)),
            ("sun 02:00+02:00", Some(6 * 86_400)),
            ("mon 00:30+01:00", Some(7 * 86_400 - 1800)),
            ("sun 23:30-01:00", Some(1800)),
            ("sunday 02:00", None),
            ("sun 2:00", None),
            ("sun 24:00", None),
            ("sun", None),
            ("02:00", None),
        ] {
            assert_eq!(weekly(text), seconds, "{text}");
        }
    }

    #[test]
    fn sizes_are_octets_or_binary_multiples() {
        for (text, octets) in [
            ("1", Some(1)),
            ("10KiB", Some(10240)),
            ("1 MiB", Some(1 << 20)),
            ("10KB", None),
            ("+1", None),
            ("010", None),
            ("", None),
        ] {
            assert_eq!(size(text), octets, "{text:?}");
        }
    }

    #[test]
    fn an_endpoint_has_a_plain_address() {
        for text in ["192.0.2.1", "127.0.0.1", "10.0.0.1", "2001:DB8::1", "::1"] {
            assert!(endpoint_address(text).is_ok(), "{text}");
        }
        for (text, right) in [
            ("010.0.0.1", Some("10.0.0.1")),
            ("192.0.2.010", Some("192.0.2.10")),
            ("192.0.2", None),
            ("192.0.2.256", None),
            ("192.0.2.1/32", Some("192.0.2.1")),
            ("[2001:db8::1]", Some("2001:db8::1")),
            ("2001:db8::1%eth0", Some("2001:db8::1")),
            ("192.0.2.1:80", Some("192.0.2.1`, and `port: 80")),
            (" 192.0.2.1", Some("192.0.2.1")),
            ("2001:db8", None),
            ("", None),
        ] {
            match endpoint_address(text) {
                Err(NoAddress::Malformed(_, help)) => assert_eq!(help.as_deref(), right, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
        for text in [
            "169.254.1.1",
            "fe80::1",
            "::ffff:192.0.2.1",
            "0.0.0.0",
            "::",
            "224.0.0.1",
            "255.255.255.255",
            "ff02::1",
        ] {
            assert!(matches!(endpoint_address(text), Err(NoAddress::Unfit(..))), "{text}");
        }
        assert_eq!(endpoint_address("www.example.com"), Err(NoAddress::Hostname));
    }
}
