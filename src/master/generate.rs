//! `$GENERATE`: a range of numbers, and texts with a `$` for the number.

/// A longer text is no name and no address.
const MAX_TEXT: usize = 1024;
const MAX_WIDTH: usize = 255;

/// `START-STOP` or `START-STOP/STEP`; an iterator over its numbers.
pub(super) struct Range {
    next: Option<u32>,
    stop: u32,
    step: u32,
}

impl Range {
    pub fn parse(text: &str) -> Result<Range, &'static str> {
        let (range, step) = text.split_once('/').unwrap_or((text, "1"));
        let (start, stop) =
            range.split_once('-').ok_or("its range is not `START-STOP` or `START-STOP/STEP`")?;
        let number = |text: &str| match text.parse::<u32>() {
            Ok(number) if number <= i32::MAX as u32 => Ok(number),
            _ => Err("its range has numbers from 0 to 2147483647"),
        };
        let (start, stop, step) = (number(start)?, number(stop)?, number(step)?);
        match (start <= stop, step) {
            (false, _) => Err("its range ends before it begins"),
            (true, 0) => Err("its step is 0"),
            (true, _) => Ok(Range { next: Some(start), stop, step }),
        }
    }
}

impl Iterator for Range {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let number = self.next?;
        self.next = number.checked_add(self.step).filter(|next| *next <= self.stop);
        Some(number)
    }
}

/// A text with the number in place of each `$` that is not escaped;
/// `${OFFSET,WIDTH,BASE}` says how it is written.
pub(super) fn expand(template: &str, number: u32) -> Result<String, &'static str> {
    let mut text = String::with_capacity(template.len() + 8);
    let mut rest = template;
    while let Some(at) = rest.find(['$', '\\']) {
        text.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if rest.as_bytes()[at] == b'\\' {
            let escaped = after.chars().next().map_or(0, char::len_utf8);
            text.push('\\');
            text.push_str(&after[..escaped]);
            rest = &after[escaped..];
        } else if let Some(after) = after.strip_prefix('$') {
            text.push_str("\\$"); // the older way to write it
            rest = after;
        } else if let Some(after) = after.strip_prefix('{') {
            let (how, after) = after.split_once('}').ok_or("a `${` has no `}` after it")?;
            text += &written(number, how)?;
            rest = after;
        } else {
            text += &number.to_string();
            rest = after;
        }
        if text.len() > MAX_TEXT {
            break;
        }
    }
    text.push_str(rest);
    if text.len() > MAX_TEXT { Err("a text becomes longer than 1024 octets") } else { Ok(text) }
}

/// The number by `OFFSET,WIDTH,BASE`.
fn written(number: u32, how: &str) -> Result<String, &'static str> {
    let mut parts = how.splitn(3, ',');
    let offset = parts.next().unwrap_or_default().parse::<i64>().ok();
    let offset =
        offset.filter(|offset| offset.abs() <= i64::from(i32::MAX)).ok_or("an offset is no whole number")?;
    let width = match parts.next() {
        None => 0,
        Some(width) => {
            width.parse().ok().filter(|width| *width <= MAX_WIDTH).ok_or("a width is no number up to 255")?
        }
    };
    let value =
        u32::try_from(i64::from(number) + offset).map_err(|_| "a number lies below 0 or above 4294967295")?;
    match parts.next().unwrap_or("d") {
        "d" => Ok(format!("{value:0width$}")),
        "o" => Ok(format!("{value:0width$o}")),
        "x" => Ok(format!("{value:0width$x}")),
        "X" => Ok(format!("{value:0width$X}")),
        "n" => Ok(nibbles(value, width)),
        "N" => Ok(nibbles(value, width).to_ascii_uppercase()),
        _ => Err("a base is none of d, o, x, X, n and N"),
    }
}

/// Hexadecimal digits, the last one first, with dots between, as names below
/// `ip6.arpa` have them. The width counts the dots.
fn nibbles(mut value: u32, width: usize) -> String {
    let mut text = String::new();
    loop {
        text += &format!("{:x}", value & 15);
        value >>= 4;
        if value == 0 && text.len() >= width {
            return text;
        }
        text.push('.');
        if value == 0 && text.len() >= width {
            return text;
        }
    }
}
