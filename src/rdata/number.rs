//! Numbers as master files write them.

/// A number in decimal digits.
pub(super) fn decimal<T: TryFrom<u64>>(text: &[u8]) -> Option<T> {
    if text.is_empty() || text.len() > 18 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = text.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    T::try_from(number).ok()
}

/// Seconds, or a sum with the units of BIND (`1h30m`), in letters of any case.
pub(super) fn seconds(text: &[u8]) -> Option<u32> {
    if let Some(number) = decimal(text) {
        return Some(number);
    }
    let (mut total, mut digits) = (0u64, &text[..0]);
    for (at, octet) in text.iter().enumerate() {
        let unit: u64 = match octet.to_ascii_lowercase() {
            b'0'..=b'9' => {
                let start = at - digits.len();
                digits = &text[start..=at];
                continue;
            }
            b'w' => 604_800,
            b'd' => 86_400,
            b'h' => 3600,
            b'm' => 60,
            b's' => 1,
            _ => return None,
        };
        total = total.checked_add(decimal::<u64>(digits)?.checked_mul(unit)?)?;
        digits = &text[..0];
    }
    u32::try_from(total).ok().filter(|_| digits.is_empty() && !text.is_empty())
}

/// A decimal number with at most so many digits after its point, as a whole
/// number of its last digit: `12.5` with two is 1250.
pub(super) fn fixed(text: &[u8], places: usize) -> Option<i64> {
    let (negative, text) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        (b'+', rest) => (false, rest),
        _ => (false, text),
    };
    let mut halves = text.splitn(2, |octet| *octet == b'.');
    let (whole, fraction) = (halves.next()?, halves.next());
    let fraction = fraction.unwrap_or_default();
    if whole.len() > 12 || fraction.len() > places || whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut number = 0;
    let padding = std::iter::repeat_n(&b'0', places - fraction.len());
    for digit in whole.iter().chain(fraction).chain(padding) {
        if !digit.is_ascii_digit() {
            return None;
        }
        number = number * 10 + i64::from(digit - b'0');
    }
    Some(if negative { -number } else { number })
}

/// Shows a number of [`fixed`], without zeros at its end.
pub(super) fn show_fixed(number: i64, places: u32) -> String {
    let unit = 10i64.pow(places);
    let sign = if number < 0 { "-" } else { "" };
    let (whole, fraction) = (number.abs() / unit, number.abs() % unit);
    let text = format!("{sign}{whole}.{fraction:0width$}", width = places as usize);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_or_none() {
        for (text, seconds_) in [
            ("3600", Some(3600)),
            ("1h", Some(3600)),
            ("1H30M", Some(5400)),
            ("1w2d3h4m5s", Some(788_645)),
            ("4294967295", Some(u32::MAX)),
            ("4294967296", None),
            ("7102w", None),
            ("1h30", None),
            ("h", None),
            ("1x", None),
            ("-1", None),
            ("", None),
        ] {
            assert_eq!(seconds(text.as_bytes()), seconds_, "{text}");
        }
    }

    #[test]
    fn fractions_are_exact() {
        for (text, places, number, shown) in [
            ("10.00", 2, 1000, "10"),
            ("-24.5", 2, -2450, "-24.5"),
            (".5", 2, 50, "0.5"),
            ("-.05", 2, -5, "-0.05"),
            ("59.999", 3, 59_999, "59.999"),
            ("7.", 3, 7000, "7"),
        ] {
            assert_eq!(fixed(text.as_bytes(), places), Some(number), "{text}");
            assert_eq!(show_fixed(number, places as u32), shown);
        }
        for text in ["", ".", "-", "1.234", "1e3", "0x1", "1.2.3", "--1", "1000000000000000"] {
            assert_eq!(fixed(text.as_bytes(), 2), None, "{text}");
        }
    }
}
