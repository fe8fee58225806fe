//! Places on the earth (LOC, RFC 1876).

use super::number::{fixed, show_fixed};
use super::{Flaw, Word};

/// The equator and the prime meridian, in thousandths of a second of arc.
const MIDDLE: u32 = 1 << 31;
/// 100 km below the sea, in centimetres.
const DEEPEST: i64 = 10_000_000;
const HIGHEST: i64 = u32::MAX as i64 - DEEPEST;
/// The largest size, in centimetres: a mantissa and an exponent of 9.
const LARGEST: i64 = 9_000_000_000;

/// A direction in which degrees are counted.
struct Axis {
    name: &'static str,
    most: i64,
    /// To the north or east, and to the south or west.
    letters: [u8; 2],
}

const LATITUDE: Axis = Axis { name: "latitude", most: 90, letters: *b"NS" };
const LONGITUDE: Axis = Axis { name: "longitude", most: 180, letters: *b"EW" };

const HELP: &str = "write for example `52 22 23 N 4 53 32 E -2m`";

pub(super) fn encode(words: &[Word<'_>]) -> Result<[u8; 16], Flaw> {
    let mut at = 0;
    let latitude = angle(words, &mut at, &LATITUDE)?;
    let longitude = angle(words, &mut at, &LONGITUDE)?;
    let altitude = match words.get(at) {
        None => return Err(Flaw::new(at, "the altitude is missing").with(HELP)),
        Some(word) => metres(word.text).filter(|number| (-DEEPEST..=HIGHEST).contains(number)),
    };
    let altitude = altitude
        .ok_or_else(|| Flaw::new(at, "the altitude is a number of metres from -100000.00 to 42849672.95"))?;
    let mut sizes = [0x12, 0x16, 0x13]; // 1 m, 10 km, 10 m
    let names = ["size", "horizontal precision", "vertical precision"];
    for (size, name) in sizes.iter_mut().zip(names) {
        at += 1;
        let Some(word) = words.get(at) else { break };
        let number = metres(word.text).filter(|number| (0..=LARGEST).contains(number));
        *size = packed(number.ok_or_else(|| {
            Flaw::new(at, format!("the {name} is a number of metres from 0.00 to 90000000.00"))
        })?);
    }
    if words.len() > at + 1 {
        return Err(Flaw::new(at + 1, "nothing follows the vertical precision").with(HELP));
    }
    let mut wire = [0; 16];
    wire[1..4].copy_from_slice(&sizes);
    wire[4..8].copy_from_slice(&latitude.to_be_bytes());
    wire[8..12].copy_from_slice(&longitude.to_be_bytes());
    let altitude = u32::try_from(altitude + DEEPEST).expect("it is within its bounds");
    wire[12..].copy_from_slice(&altitude.to_be_bytes());
    Ok(wire)
}

/// Degrees, minutes, seconds and a direction; minutes and seconds may be left out.
fn angle(words: &[Word<'_>], at: &mut usize, axis: &Axis) -> Result<u32, Flaw> {
    let name = axis.name;
    let [positive, negative] = axis.letters.map(char::from);
    let mut total = 0;
    for (unit, most, places, factor) in
        [("degrees", axis.most, 0, 3_600_000), ("minutes", 59, 0, 60_000), ("seconds", 59_999, 3, 1)]
    {
        let missing = || Flaw::new(*at, format!("the {name} ends in {positive} or {negative}")).with(HELP);
        let word = words.get(*at).ok_or_else(missing)?;
        if unit != "degrees" && direction(word.text, axis).is_some() {
            break;
        }
        let number = fixed(word.text, places).filter(|number| (0..=most).contains(number));
        let most = if places == 3 { "59.999".into() } else { most.to_string() };
        let wrong = || Flaw::new(*at, format!("the {unit} of the {name} are a number from 0 to {most}"));
        total += number.ok_or_else(wrong)? * factor;
        *at += 1;
    }
    let wrong = || {
        Flaw::new(*at, format!("the {name} ends in {positive} or {negative}"))
            .with(format!("write {positive} or {negative}"))
    };
    let sign = words.get(*at).and_then(|word| direction(word.text, axis)).ok_or_else(wrong)?;
    if total > axis.most * 3_600_000 {
        return Err(Flaw::new(*at - 1, format!("the {name} is at most {} degrees", axis.most)));
    }
    *at += 1;
    Ok(u32::try_from(i64::from(MIDDLE) + sign * total).expect("180 degrees fit"))
}

fn direction(text: &[u8], axis: &Axis) -> Option<i64> {
    let [letter] = text else { return None };
    let place = axis.letters.iter().position(|known| letter.eq_ignore_ascii_case(known))?;
    Some(if place == 0 { 1 } else { -1 })
}

/// Metres, with or without their `m`, as centimetres.
fn metres(text: &[u8]) -> Option<i64> {
    let number = text.strip_suffix(b"m").or(text.strip_suffix(b"M")).unwrap_or(text);
    fixed(number, 2)
}

/// A size as its first digit and a power of ten; what follows that digit is
/// lost (RFC 1876 §2).
fn packed(centimetres: i64) -> u8 {
    let (mut mantissa, mut exponent) = (centimetres, 0);
    while mantissa > 9 {
        mantissa /= 10;
        exponent += 1;
    }
    (mantissa as u8) << 4 | exponent // one digit, and at most nine of them
}

fn unpacked(octet: u8) -> i64 {
    i64::from(octet >> 4) * 10i64.pow(u32::from(octet & 15))
}

/// What is wrong with octets, to be said after `the location`.
pub(super) fn check(octets: &[u8]) -> Result<(), String> {
    let Ok(octets) = <&[u8; 16]>::try_from(octets) else {
        return Err(format!("has 16 octets, and {} are left", octets.len()));
    };
    if octets[0] != 0 {
        return Err(format!("is of version {}; only 0 is known", octets[0]));
    }
    if octets[1..4].iter().any(|octet| octet >> 4 > 9 || octet & 15 > 9) {
        return Err("has a size that is no digit and power of ten".into());
    }
    for (at, axis) in [(4, LATITUDE), (8, LONGITUDE)] {
        let angle = number_at(octets, at).abs_diff(MIDDLE);
        if i64::from(angle) > axis.most * 3_600_000 {
            return Err(format!("has a {} above {} degrees", axis.name, axis.most));
        }
    }
    Ok(())
}

/// Whether a text says all of it: no 0 has a power of ten.
pub(super) fn has_text(octets: &[u8]) -> bool {
    octets.iter().skip(1).take(3).all(|octet| *octet == 0 || octet >> 4 > 0)
}

fn number_at(octets: &[u8; 16], at: usize) -> u32 {
    let four = octets[at..].first_chunk().expect("four of sixteen octets");
    u32::from_be_bytes(*four)
}

/// Shows octets that have been checked.
pub(super) fn show(octets: &[u8]) -> String {
    let octets: &[u8; 16] = octets.try_into().expect("they were checked");
    let mut text = String::new();
    for (at, axis) in [(4, LATITUDE), (8, LONGITUDE)] {
        let number = number_at(octets, at);
        let (angle, negative) = (i64::from(number.abs_diff(MIDDLE)), number < MIDDLE);
        let letter = char::from(axis.letters[usize::from(negative)]);
        let (degrees, minutes) = (angle / 3_600_000, angle / 60_000 % 60);
        let seconds = show_fixed(angle % 60_000, 3);
        text += &format!("{degrees} {minutes} {seconds} {letter} ");
    }
    let altitude = i64::from(number_at(octets, 12)) - DEEPEST;
    text += &format!("{}m", show_fixed(altitude, 2));
    for octet in &octets[1..4] {
        text += &format!(" {}m", show_fixed(unpacked(*octet), 2));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_keep_their_first_digit() {
        for (centimetres, octet) in [
            (0, 0x00),
            (1, 0x10),
            (9, 0x90),
            (10, 0x11),
            (99, 0x91),
            (100, 0x12),
            (1234, 0x13),
            (1_000_000, 0x16),
            (LARGEST, 0x99),
        ] {
            assert_eq!(packed(centimetres), octet, "{centimetres}");
        }
    }
}
