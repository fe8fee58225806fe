//! What of a certificate is looked at: its version, until when it is valid, and
//! whether it vouches for itself (RFC 5280 §4.1).
//!
//! Knows nothing of trust; whether a chain leads anywhere is for rustls to say.

use crate::moment;

/// The fields of a certificate that are looked at (RFC 5280 §4.1), as DER.
struct Fields<'a> {
    /// None where it stands for the least, version 1.
    version: Option<&'a [u8]>,
    issuer: &'a [u8],
    validity: &'a [u8],
    subject: &'a [u8],
}

fn fields(certificate: &[u8]) -> Option<Fields<'_>> {
    const SEQUENCE: u8 = 0x30;
    const VERSION: u8 = 0xa0;
    let (_, certificate, _) = element(certificate)?;
    let (_, fields, _) = element(certificate)?;
    let (version, rest) = match element(fields)? {
        (VERSION, version, rest) => (Some(version), rest),
        _ => (None, fields),
    };
    let (_, _serial, rest) = element(rest)?;
    let (_, _algorithm, rest) = element(rest)?;
    let (SEQUENCE, issuer, rest) = element(rest)? else { return None };
    let (SEQUENCE, validity, rest) = element(rest)? else { return None };
    let (SEQUENCE, subject, _) = element(rest)? else { return None };
    Some(Fields { version, issuer, validity, subject })
}

/// Which version a certificate is of, 1 to 3; None if it is none.
pub fn version(certificate: &[u8]) -> Option<u8> {
    match fields(certificate)?.version {
        None => Some(1),
        Some(version) => match element(version)? {
            (0x02, [number @ 0..=2], []) => Some(number + 1), // INTEGER
            _ => None,
        },
    }
}

/// Whether issuer and subject are the same name.
pub fn is_self_issued(certificate: &[u8]) -> bool {
    fields(certificate).is_some_and(|fields| fields.issuer == fields.subject)
}

/// From when to when a certificate is valid, in Unix seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    pub from: i64,
    /// The last second.
    pub until: i64,
}

/// When a certificate is valid; None if it is none.
pub fn validity(certificate: &[u8]) -> Option<Validity> {
    let (tag, text, rest) = element(fields(certificate)?.validity)?;
    let from = time(tag, text)?;
    let (tag, text, _) = element(rest)?;
    Some(Validity { from, until: time(tag, text)? })
}

impl Validity {
    /// What is wrong with it at `now`, if something is.
    pub fn complaint(self, now: i64) -> Option<String> {
        let shown = |seconds: i64| moment::utc(seconds.try_into().unwrap_or(0));
        match self {
            Validity { until, .. } if until < now => Some(format!("expired at {}", shown(until))),
            Validity { from, .. } if now < from => Some(format!("is valid only from {} on", shown(from))),
            Validity { .. } => None,
        }
    }
}

/// UTCTime or GeneralizedTime, both to the second and in UTC (RFC 5280 §4.1.2.5).
fn time(tag: u8, text: &[u8]) -> Option<i64> {
    const UTC_TIME: u8 = 0x17;
    const GENERALIZED_TIME: u8 = 0x18;
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (year_digits, length) = match tag {
        UTC_TIME => (2, 12),
        GENERALIZED_TIME => (4, 14),
        _ => return None,
    };
    if text.len() != length || !text.bytes().all(|octet| octet.is_ascii_digit()) {
        return None;
    }
    let (year, rest) = text.split_at(year_digits);
    let year = match (tag, year.parse::<i64>().ok()?) {
        (UTC_TIME, year @ 0..50) => 2000 + year,
        (UTC_TIME, year) => 1900 + year,
        (_, year) => year,
    };
    let part = |n: usize| rest[2 * n..2 * n + 2].parse::<i64>().ok();
    let (month, day) = (part(0)?, part(1)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    Some(days(year, month, day) * 86_400 + part(2)? * 3600 + part(3)? * 60 + part(4)?)
}

/// Days since 1970-01-01 in the Gregorian calendar. Years begin in March, so
/// that the leap day comes last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let months = (month + 9) % 12;
    let of_year = (153 * months + 2) / 5 + day - 1;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + of_year - 719_468
}

/// Tag, contents and what follows of the first element of DER.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x83 => {
            let (octets, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (octets.iter().fold(0, |length, &octet| length << 8 | usize::from(octet)), rest)
        }
        _ => return None,
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    Some((tag, contents, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_certificates_are_read_in_both_forms() {
        for (tag, text, seconds) in [
            (0x17, "700101000000Z", Some(0)),
            (0x17, "240229235959Z", Some(1_709_251_199)),
            (0x17, "491231235959Z", Some(2_524_607_999)),
            (0x17, "500101000000Z", Some(-631_152_000)),
            (0x18, "20500101000000Z", Some(2_524_608_000)),
            (0x18, "21000301000000Z", Some(4_107_542_400)),
            (0x18, "99991231235959Z", Some(253_402_300_799)),
            (0x17, "2402292359Z", None),
            (0x17, "240229235959+0000", None),
            (0x17, "241329235959Z", None),
            (0x18, "2024022923595\u{e9}", None),
            (0x16, "240229235959Z", None),
        ] {
            assert_eq!(time(tag, text.as_bytes()), seconds, "{text}");
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_dates() {
        for octets in [&b""[..], b"\x30", b"\x30\x05\x30\x03\x02\x01\x01", b"\x30\x84\xff\xff\xff\xff"] {
            assert_eq!((validity(octets), version(octets)), (None, None), "{octets:?}");
        }
    }

    #[test]
    fn a_certificate_says_its_version_unless_it_is_the_first() {
        let of = |version: &[u8]| {
            let mut fields = version.to_vec();
            // serial, algorithm, issuer, validity, subject
            fields.extend(b"\x02\x01\x01\x30\x00\x30\x00\x30\x00\x30\x00");
            let within = |octets: Vec<u8>| [&[0x30, octets.len() as u8], &octets[..]].concat();
            within(within(fields))
        };
        for (fields, expected) in [
            (&b""[..], Some(1)),
            (b"\xa0\x03\x02\x01\x01", Some(2)),
            (b"\xa0\x03\x02\x01\x02", Some(3)),
            (b"\xa0\x03\x02\x01\x03", None),
            (b"\xa0\x00", None),
        ] {
            assert_eq!(version(&of(fields)), expected, "{fields:?}");
        }
    }

    #[test]
    fn a_certificate_is_complained_of_outside_its_time() {
        let validity = Validity { from: 1000, until: 2000 };
        for (now, complaint) in [
            (999, Some("is valid only from 1970-01-01T00:16:40Z on")),
            (1000, None),
            (2000, None),
            (2001, Some("expired at 1970-01-01T00:33:20Z")),
        ] {
            assert_eq!(validity.complaint(now).as_deref(), complaint, "{now}");
        }
    }
}
