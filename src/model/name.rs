//! Domain names in wire form, lower-case: comparing them is comparing octets.

use std::fmt;
use std::str::FromStr;

/// A fully qualified domain name: length-prefixed labels in lower case, the
/// root's empty label last (RFC 1035 §3.1, RFC 4343).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Box<[u8]>);

/// Why a text is not a domain name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameError {
    /// Not a name at all: an empty label, a label over 63 octets, a bad escape.
    Malformed(String),
    /// Letters outside ASCII; DNS carries the A-label (`xn--…`, RFC 5890).
    NotAscii,
    /// More than 255 octets on the wire (RFC 1035 §2.3.4).
    TooLong(usize),
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameError::Malformed(why) => write!(f, "not a domain name: {why}"),
            NameError::NotAscii => write!(f, "a domain name is written in ASCII (its A-label, xn--…)"),
            NameError::TooLong(octets) => {
                write!(f, "a domain name has at most 255 octets, this one has {octets}")
            }
        }
    }
}

impl std::error::Error for NameError {}

impl Name {
    /// The root of the tree.
    pub fn root() -> Name {
        Name(Box::new([0]))
    }

    /// Reads a name as people write it. A final dot makes it absolute; else it
    /// is relative to `origin`. The empty text and `@` are `origin` itself.
    /// Escapes are those of master files (RFC 1035 §5.1).
    pub fn parse(text: &str, origin: &Name) -> Result<Name, NameError> {
        Ok(Name(Name::wire_of(text, origin)?.to_ascii_lowercase().into()))
    }

    /// As [`Name::parse`], keeping the case as written: for names inside RDATA.
    pub fn wire_of(text: &str, origin: &Name) -> Result<Box<[u8]>, NameError> {
        if text.is_empty() || text == "@" {
            return Ok(origin.0.clone());
        }
        if !text.is_ascii() {
            return Err(NameError::NotAscii);
        }
        if text == "." {
            return Ok(Name::root().0);
        }
        let mut wire = Vec::with_capacity(64);
        let mut rest = text.as_bytes();
        let mut absolute = false;
        while !rest.is_empty() {
            let start = wire.len();
            wire.push(0);
            absolute = false;
            while let Some((&octet, after)) = rest.split_first() {
                rest = after;
                match octet {
                    b'.' => {
                        absolute = true;
                        break;
                    }
                    b'\\' => wire.push(unescape(&mut rest).map_err(NameError::Malformed)?),
                    b'!'..=b'~' => wire.push(octet),
                    _ => {
                        let why = "a space or control character is written as \\ and three digits";
                        return Err(NameError::Malformed(why.into()));
                    }
                }
            }
            wire[start] = match wire.len() - start - 1 {
                0 => return Err(NameError::Malformed("a label is empty".into())),
                length @ 1..=63 => length as u8,
                length => {
                    return Err(NameError::Malformed(format!(
                        "a label has {length} octets, 63 are the most"
                    )));
                }
            };
        }
        match absolute {
            true => wire.push(0),
            false => wire.extend_from_slice(&origin.0),
        }
        if wire.len() > 255 {
            return Err(NameError::TooLong(wire.len()));
        }
        Ok(wire.into())
    }

    /// Reads a name in wire form, uncompressed; none when the octets are not one.
    pub fn from_wire(wire: &[u8]) -> Option<Name> {
        let mut rest = wire;
        while let Some((&length @ 1..=63, after)) = rest.split_first() {
            rest = after.get(usize::from(length)..)?;
        }
        (rest == [0] && wire.len() <= 255).then(|| Name(wire.to_ascii_lowercase().into()))
    }

    /// The octets as they stand in a message, without compression.
    pub fn wire(&self) -> &[u8] {
        &self.0
    }

    /// The labels from the left, without the root's.
    pub fn labels(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let length = usize::from(rest[0]);
            if length == 0 {
                return None;
            }
            let (label, after) = rest[1..].split_at(length);
            rest = after;
            Some(label)
        })
    }

    /// What names are put in order by for people: their labels from the right
    /// (RFC 4034 §6.1), so that those of one zone stand together.
    pub fn canonical_order(&self) -> Vec<Box<[u8]>> {
        let mut labels: Vec<Box<[u8]>> = self.labels().map(Box::from).collect();
        labels.reverse();
        labels
    }

    /// The name itself and all its ancestors up to the root, in wire form.
    pub fn suffixes(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = Some(&self.0[..]);
        std::iter::from_fn(move || {
            let suffix = rest?;
            let length = usize::from(suffix[0]);
            rest = (length > 0).then(|| &suffix[1 + length..]);
            Some(suffix)
        })
    }

    /// The name without its leftmost label; none for the root.
    pub fn parent(&self) -> Option<Name> {
        let length = usize::from(self.0[0]);
        (length > 0).then(|| Name(self.0[1 + length..].into()))
    }

    /// Whether this is `ancestor` or lies below it.
    pub fn is_within(&self, ancestor: &Name) -> bool {
        let mut rest = &self.0[..];
        while rest.len() > ancestor.0.len() {
            rest = &rest[1 + usize::from(rest[0])..];
        }
        rest == &ancestor.0[..]
    }

    /// Whether the leftmost label is `*` (RFC 4592 §2.1.1).
    pub fn is_wildcard(&self) -> bool {
        self.0.starts_with(&[1, b'*'])
    }
}

/// The octet that what follows a backslash means: three decimal digits, or any
/// character as it stands (RFC 1035 §5.1); else why it means none. Leaves
/// `rest` behind it.
pub(crate) fn unescape(rest: &mut &[u8]) -> Result<u8, String> {
    let (octet, after) = match **rest {
        [a @ b'0'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', ..] => {
            let number = [a, b, c].iter().fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
            let octet = u8::try_from(number).map_err(|_| format!("the escape \\{number} is above 255"))?;
            (octet, &rest[3..])
        }
        [digit @ b'0'..=b'9', ..] => {
            let digit = char::from(digit);
            return Err(format!(
                "a digit after a backslash begins three digits, the number of an octet; a backslash itself is \
                 `\\\\`, as in `\\\\{digit}`"
            ));
        }
        [octet, ..] => (octet, &rest[1..]),
        [] => return Err("it ends in a backslash".into()),
    };
    *rest = after;
    Ok(octet)
}

impl FromStr for Name {
    type Err = NameError;

    /// Reads an absolute name; the final dot may be left out.
    fn from_str(text: &str) -> Result<Name, NameError> {
        Name::parse(text, &Name::root())
    }
}

impl fmt::Display for Name {
    /// Absolute, with the final dot; odd octets escaped as in master files.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.len() == 1 {
            return f.write_str(".");
        }
        for label in self.labels() {
            for &octet in label {
                match octet {
                    b'.' | b'\\' | b'"' | b';' | b'(' | b')' | b'@' | b'$' => {
                        write!(f, "\\{}", octet as char)?
                    }
                    b'!'..=b'~' => write!(f, "{}", octet as char)?,
                    _ => write!(f, "\\{octet:03}")?,
                }
            }
            f.write_str(".")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_put_in_order_from_the_right() {
        // the example of RFC 4034 §6.1
        let ordered = [
            "example.",
            "a.example.",
            "yljkjljk.a.example.",
            "z.a.example.",
            "zabc.a.example.",
            "z.example.",
            "\\001.z.example.",
            "*.z.example.",
            "\\200.z.example.",
        ];
        let mut names: Vec<Name> = ordered.iter().rev().map(|name| name.parse().unwrap()).collect();
        names.sort_by_cached_key(Name::canonical_order);
        assert_eq!(names.iter().map(Name::to_string).collect::<Vec<_>>(), ordered);
    }

    #[test]
    fn a_final_dot_makes_a_name_absolute() {
        let origin: Name = "gslb.example.com".parse().unwrap();
        for (text, full) in [
            ("www", "www.gslb.example.com."),
            ("a.b", "a.b.gslb.example.com."),
            ("WWW.Example.NET.", "www.example.net."),
            ("", "gslb.example.com."),
            ("@", "gslb.example.com."),
            ("*", "*.gslb.example.com."),
            ("_dmarc", "_dmarc.gslb.example.com."),
            (r"a\.b", r"a\.b.gslb.example.com."),
            (r"a\046\032\200b.", r"a\.\032\200b."),
            (".", "."),
        ] {
            assert_eq!(Name::parse(text, &origin).unwrap().to_string(), full, "{text:?}");
        }
    }

    #[test]
    fn what_is_not_a_name_is_refused() {
        let origin: Name = "example.com".parse().unwrap();
        let long_label = "a".repeat(64);
        let long_name = vec!["a".repeat(63); 4].join(".");
        for text in ["a..b", ".a", "a b", &long_label, &long_name, "bücher", r"a\", r"\25", r"\256"] {
            assert!(Name::parse(text, &origin).is_err(), "{text:?}");
        }
    }

    #[test]
    fn within_goes_by_whole_labels() {
        let apex: Name = "example.com".parse().unwrap();
        for (name, inside) in [
            ("example.com", true),
            ("a.example.com", true),
            ("a.b.example.com", true),
            ("badexample.com", false),
            ("com", false),
            (".", false),
        ] {
            assert_eq!(name.parse::<Name>().unwrap().is_within(&apex), inside, "{name}");
        }
    }
}
