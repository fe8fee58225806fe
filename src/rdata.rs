//! Record types and their data: how a master file writes them, and what stands
//! in a message.
//!
//! Owns the mnemonics and numbers of types, and for each type that is more than
//! octets the layout of its RDATA: a list of parts, each of which knows how it
//! is read from words, measured in wire form, and shown. Whatever isn't known
//! is written in the form of RFC 3597.
//!
//! Knows nothing of files, zones, owner names and TTLs: who reads a master file
//! or another format makes [`Word`]s of it.

mod check;
mod layout;
mod location;
mod number;
mod part;
mod service;
mod types;
mod word;

use std::borrow::Cow;
use std::fmt;

use crate::model::Name;
use layout::Layout;

pub use part::Part;
pub use service::{
    IPV4_HINT, IPV6_HINT, KEYS as SERVICE_KEYS, is_open_hint, service_params, service_params_at,
};
pub use types::{is_data, type_code, type_name};
pub use word::{Word, escaped, unescaped, words};

/// Numbers of the types that have a meaning of their own in a zone or a query.
pub mod rtype {
    pub const A: u16 = 1;
    pub const NS: u16 = 2;
    pub const CNAME: u16 = 5;
    pub const SOA: u16 = 6;
    pub const PTR: u16 = 12;
    pub const MX: u16 = 15;
    pub const TXT: u16 = 16;
    pub const AAAA: u16 = 28;
    pub const SRV: u16 = 33;
    pub const NAPTR: u16 = 35;
    pub const DNAME: u16 = 39;
    pub const OPT: u16 = 41;
    pub const DS: u16 = 43;
    pub const RRSIG: u16 = 46;
    pub const NSEC: u16 = 47;
    pub const NSEC3: u16 = 50;
    pub const NSEC3PARAM: u16 = 51;
    pub const SVCB: u16 = 64;
    pub const HTTPS: u16 = 65;
    pub const SPF: u16 = 99;
    pub const IXFR: u16 = 251;
    pub const AXFR: u16 = 252;
    pub const ANY: u16 = 255;
}

/// Why words are not the data of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdataError {
    /// The number of the word that is wrong, from 0; one more than there are
    /// when one is missing, none when it is no single one.
    pub word: Option<usize>,
    pub why: String,
    /// What to write.
    pub instead: Option<String>,
}

impl fmt::Display for RdataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)?;
        match &self.instead {
            Some(instead) => write!(f, "; {instead}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for RdataError {}

/// What is wrong with one part of RDATA.
#[derive(Debug)]
struct Flaw {
    /// The number of the part, or of the word among those of the part.
    at: usize,
    why: String,
    instead: Option<String>,
}

impl Flaw {
    fn new(at: usize, why: impl Into<String>) -> Flaw {
        Flaw { at, why: why.into(), instead: None }
    }

    fn with(self, instead: impl Into<String>) -> Flaw {
        Flaw { instead: Some(instead.into()), ..self }
    }
}

/// RDATA in wire form: names uncompressed, with the case of their letters.
/// Relative names are completed by `origin`. The form of RFC 3597
/// (`\# 4 0a000001`) is taken for each type, and looked into if it is known.
pub fn parse(rtype: u16, words: &[Word<'_>], origin: &Name) -> Result<Box<[u8]>, RdataError> {
    let whole = |why: String, instead: Option<String>| RdataError { word: None, why, instead };
    if !is_data(rtype) {
        let why = format!("{} is asked for and stands in no zone", type_name(rtype));
        return Err(whole(why, None));
    }
    if let Some((first, rest)) = words.split_first()
        && !first.quoted
        && first.text == br"\#"
    {
        let wire = generic(rest)?;
        return match check(rtype, &wire) {
            Ok(()) => Ok(wire),
            Err(flaw) => Err(whole(flaw.why, flaw.instead)),
        };
    }
    let Some(layout) = layout::of(rtype) else {
        let why = format!("the data of type {} is written in octets (RFC 3597)", type_name(rtype));
        return Err(whole(why, Some(r"write `\# LENGTH HEX`, such as `\# 4 0a000001`".into())));
    };
    layout.parse(words, origin)
}

/// Whether octets are well-formed RDATA of a type; what isn't known always is.
fn check(rtype: u16, rdata: &[u8]) -> Result<(), Flaw> {
    match layout::of(rtype) {
        Some(layout) => layout.split(rdata).and_then(|parts| (layout.check)(&parts)),
        None => Ok(()),
    }
}

/// Whether octets are well-formed RDATA of a type, and if not, why.
pub fn validate(rtype: u16, rdata: &[u8]) -> Result<(), RdataError> {
    check(rtype, rdata).map_err(|flaw| RdataError { word: None, why: flaw.why, instead: flaw.instead })
}

/// A length and so many octets in hexadecimal digits (RFC 3597 §5).
fn generic(words: &[Word<'_>]) -> Result<Box<[u8]>, RdataError> {
    let wrong =
        |word: usize, why: String, instead: Option<String>| RdataError { word: Some(word), why, instead };
    let Some((length, digits)) = words.split_first() else {
        let usual = r"write for example `\# 4 0a000001`".to_owned();
        return Err(wrong(1, r"a length and octets follow `\#`".into(), Some(usual)));
    };
    let length: u16 = number::decimal(length.text)
        .ok_or_else(|| wrong(1, "the length is a number of octets from 0 to 65535".into(), None))?;
    let mut octets = Vec::new();
    part::hexadecimal(digits, &mut octets).map_err(|flaw| wrong(flaw.at + 2, flaw.why, flaw.instead))?;
    if octets.len() != usize::from(length) {
        let announced = count(usize::from(length), "is", "are");
        let why = format!("{announced} announced, and {} follow", octets.len());
        return Err(wrong(1, why, Some(format!("write `{}` if the octets are right", octets.len()))));
    }
    Ok(octets.into())
}

/// The names of a type's parts, as messages and keys call them, in the order
/// of the words; none for types without a layout.
pub fn parts(rtype: u16) -> &'static [(&'static str, Part)] {
    layout::of(rtype).map_or(&[], |layout| layout.parts)
}

/// RDATA of a type as a master file writes it, to show how it looks.
pub fn example(rtype: u16) -> &'static str {
    layout::of(rtype).map_or(r"\# 4 0a000001", |layout| layout.example)
}

/// The types that have a layout.
pub fn known_types() -> impl Iterator<Item = u16> {
    layout::ALL.iter().map(|layout| layout.rtype)
}

/// The domain names inside the RDATA of a known type, in wire form.
pub fn names(rtype: u16, rdata: &[u8]) -> impl Iterator<Item = &[u8]> {
    let parts = layout::of(rtype).and_then(|layout| Some((layout, layout.split(rdata).ok()?)));
    let named = parts.map(|(layout, octets)| {
        let both = layout.parts.iter().zip(octets);
        both.filter(|((_, part), _)| *part == Part::Name).map(|(_, octets)| octets)
    });
    named.into_iter().flatten()
}

/// RDATA with the letters of its names in lower case: equal for equal records.
pub fn folded(rtype: u16, rdata: &[u8]) -> Cow<'_, [u8]> {
    let parts = layout::of(rtype).and_then(|layout| Some((layout, layout.split(rdata).ok()?)));
    let Some((layout, octets)) = parts else { return Cow::Borrowed(rdata) };
    let mut folded = Vec::with_capacity(rdata.len());
    for ((_, part), octets) in layout.parts.iter().zip(octets) {
        match part {
            Part::Name => folded.extend(octets.to_ascii_lowercase()),
            _ => folded.extend_from_slice(octets),
        }
    }
    Cow::Owned(folded)
}

/// RDATA as a master file writes it; what isn't known, or isn't well-formed, in
/// the form of RFC 3597.
pub fn show(rtype: u16, rdata: &[u8]) -> String {
    let known = layout::of(rtype).and_then(|layout| layout.show(rdata));
    known.unwrap_or_else(|| {
        let digits = data_encoding::HEXLOWER.encode(rdata);
        format!(r"\# {} {digits}", rdata.len()).trim_end().to_owned()
    })
}

/// `1 octet is`, `2 octets are`.
fn count(octets: usize, one: &str, several: &str) -> String {
    match octets {
        1 => format!("1 octet {one}"),
        _ => format!("{octets} octets {several}"),
    }
}

impl Layout {
    fn parse(&self, words: &[Word<'_>], origin: &Name) -> Result<Box<[u8]>, RdataError> {
        let mut wire = Vec::new();
        let mut next = 0;
        // of each part, its first word
        let mut firsts = Vec::with_capacity(self.parts.len());
        for (name, part) in self.parts {
            let left = &words[next..];
            let of_part = if part.takes_rest() { left } else { &left[..left.len().min(1)] };
            if of_part.len() < part.least_words() {
                let why = format!("the {name} is missing");
                let instead = Some(format!("write for example `{}`", self.example));
                return Err(RdataError { word: Some(words.len()), why, instead });
            }
            firsts.push(next);
            part.encode(name, of_part, origin, &mut wire).map_err(|flaw| {
                let word = next + flaw.at;
                RdataError { word: Some(word), why: flaw.why, instead: flaw.instead }
            })?;
            next += of_part.len();
        }
        if next < words.len() {
            let (last, _) = self.parts.last().expect("each layout has a part");
            let why = format!("nothing follows the {last}");
            let instead = Some(format!("write for example `{}`", self.example));
            return Err(RdataError { word: Some(next), why, instead });
        }
        if wire.len() > usize::from(u16::MAX) {
            let why = format!("the data of a record has at most 65535 octets, these are {}", wire.len());
            return Err(RdataError { word: None, why, instead: None });
        }
        let flawless = self.split(&wire).and_then(|parts| (self.check)(&parts));
        flawless.map_err(|flaw| {
            let word = firsts.get(flaw.at).copied();
            RdataError { word, why: flaw.why, instead: flaw.instead }
        })?;
        Ok(wire.into())
    }

    /// The octets of each part.
    fn split<'r>(&self, rdata: &'r [u8]) -> Result<Vec<&'r [u8]>, Flaw> {
        let mut rest = rdata;
        let mut split = Vec::with_capacity(self.parts.len());
        for (number, (name, part)) in self.parts.iter().enumerate() {
            let length = part.length(rest).map_err(|why| Flaw::new(number, format!("the {name} {why}")))?;
            let (octets, after) = rest.split_at(length);
            split.push(octets);
            rest = after;
        }
        if !rest.is_empty() {
            let last = self.parts.len() - 1;
            let (name, _) = self.parts[last];
            let left = count(rest.len(), "is", "are");
            return Err(Flaw::new(last, format!("{left} left over behind the {name}")));
        }
        Ok(split)
    }

    fn show(&self, rdata: &[u8]) -> Option<String> {
        let octets = self.split(rdata).ok()?;
        (self.check)(&octets).ok()?;
        if !self.parts.iter().zip(&octets).all(|((_, part), octets)| part.has_text(octets)) {
            return None;
        }
        let mut text = String::new();
        for ((_, part), octets) in self.parts.iter().zip(octets) {
            if !text.is_empty() && !text.ends_with(' ') {
                text.push(' ');
            }
            part.show(octets, &mut text);
        }
        Some(text.trim_end_matches(' ').to_owned())
    }
}

#[cfg(test)]
mod tests;
