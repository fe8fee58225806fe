//! The parts that RDATA is made of: each from words, in octets, as text.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use data_encoding::{BASE64, DecodeKind, Encoding, HEXLOWER, HEXLOWER_PERMISSIVE};

use super::word::{bare, quote, unescaped};
use super::{Flaw, Word, location, number, service, type_code, type_name};

/// One part of the RDATA of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    U8,
    U16,
    U32,
    /// A time of the SOA: seconds, or with units.
    Seconds,
    V4,
    V6,
    Name,
    /// A character-string of at most 255 octets.
    Text,
    /// One or more character-strings.
    Texts,
    /// Octets to the end, in hexadecimal digits; at least one.
    Hex,
    /// Octets to the end, in base 64; at least one.
    Base64,
    /// A DNSSEC algorithm, by its number or mnemonic.
    Algorithm,
    /// A type of certificate, by its number or mnemonic.
    Certificate,
    /// Types of records, as a bitmap.
    Types,
    /// So many octets in pairs of hexadecimal digits with `-` between.
    Eui(usize),
    /// The tag of a CAA record.
    Tag,
    /// One word of any length, to the end.
    Value,
    Location,
    Parameters,
}

/// RFC 4034 appendix A.1 and what IANA has added.
const ALGORITHMS: &[(&str, u8)] = &[
    ("DELETE", 0),
    ("RSAMD5", 1),
    ("DH", 2),
    ("DSA", 3),
    ("RSASHA1", 5),
    ("DSA-NSEC3-SHA1", 6),
    ("NSEC3DSA", 6),
    ("RSASHA1-NSEC3-SHA1", 7),
    ("NSEC3RSASHA1", 7),
    ("RSASHA256", 8),
    ("RSASHA512", 10),
    ("ECC-GOST", 12),
    ("ECCGOST", 12),
    ("ECDSAP256SHA256", 13),
    ("ECDSAP384SHA384", 14),
    ("ED25519", 15),
    ("ED448", 16),
    ("SM2SM3", 17),
    ("ECC-GOST12", 23),
    ("INDIRECT", 252),
    ("PRIVATEDNS", 253),
    ("PRIVATEOID", 254),
];

/// RFC 4398 §2.1.
const CERTIFICATES: &[(&str, u16)] = &[
    ("PKIX", 1),
    ("SPKI", 2),
    ("PGP", 3),
    ("IPKIX", 4),
    ("ISPKI", 5),
    ("IPGP", 6),
    ("ACPKIX", 7),
    ("IACPKIX", 8),
    ("URI", 253),
    ("OID", 254),
];

impl Part {
    /// Whether all words that are left belong to it.
    pub(super) fn takes_rest(self) -> bool {
        use Part::*;
        matches!(self, Texts | Hex | Base64 | Types | Location | Parameters)
    }

    pub(super) fn least_words(self) -> usize {
        usize::from(!matches!(self, Part::Types | Part::Parameters))
    }

    /// The numbers it takes, if it is one.
    pub fn range(self) -> Option<RangeInclusive<u64>> {
        match self {
            Part::U8 => Some(0..=u64::from(u8::MAX)),
            Part::U16 => Some(0..=u64::from(u16::MAX)),
            Part::U32 => Some(0..=u64::from(u32::MAX)),
            _ => None,
        }
    }

    /// Appends the octets that words mean; of a flaw, the place is the number
    /// of the word.
    pub(super) fn encode(
        self,
        name: &str,
        words: &[Word<'_>],
        origin: &crate::model::Name,
        wire: &mut Vec<u8>,
    ) -> Result<(), Flaw> {
        let word = words.first().copied().unwrap_or(Word { text: b"", quoted: false });
        let is = |what: &str| Flaw::new(0, format!("the {name} is {what}"));
        let numbered = || {
            let range = self.range().expect("asked of numbers alone");
            is(&format!("a number from {} to {}", range.start(), range.end()))
        };
        match self {
            Part::U8 => wire.push(number::decimal(word.text).ok_or_else(numbered)?),
            Part::U16 => {
                let number: u16 = number::decimal(word.text).ok_or_else(numbered)?;
                wire.extend(number.to_be_bytes());
            }
            Part::U32 => {
                let number: u32 = number::decimal(word.text).ok_or_else(numbered)?;
                wire.extend(number.to_be_bytes());
            }
            Part::Seconds => {
                let what = "a number of seconds, or a sum such as `1h30m`, of at most 4294967295 s";
                wire.extend(number::seconds(word.text).ok_or_else(|| is(what))?.to_be_bytes());
            }
            Part::V4 => {
                let address: Option<Ipv4Addr> = text_of(word).and_then(|text| text.parse().ok());
                wire.extend(
                    address
                        .ok_or_else(|| {
                            Flaw::new(0, "an IPv4 address is due").with("write for example `192.0.2.1`")
                        })?
                        .octets(),
                );
            }
            Part::V6 => {
                let address: Option<Ipv6Addr> = text_of(word).and_then(|text| text.parse().ok());
                wire.extend(
                    address
                        .ok_or_else(|| {
                            Flaw::new(0, "an IPv6 address is due").with("write for example `2001:db8::1`")
                        })?
                        .octets(),
                );
            }
            Part::Name => {
                let Ok(text) = str::from_utf8(word.text) else {
                    return Err(Flaw::new(0, crate::model::NameError::NotAscii.to_string()));
                };
                let name = crate::model::Name::wire_of(text, origin);
                wire.extend(name.map_err(|error| Flaw::new(0, error.to_string()))?);
            }
            Part::Text => character_string(0, name, word, None, wire)?,
            Part::Texts => {
                for (at, word) in words.iter().enumerate() {
                    character_string(
                        at,
                        name,
                        *word,
                        Some("cut it into several texts, each in quotes"),
                        wire,
                    )?;
                }
            }
            Part::Hex => hexadecimal(words, wire)?,
            Part::Base64 => base64(words, wire)?,
            Part::Algorithm => {
                let code = number::decimal(word.text).or_else(|| mnemonic(ALGORITHMS, word));
                let what = "a number from 0 to 255 or a mnemonic such as `ECDSAP256SHA256`";
                wire.push(code.ok_or_else(|| is(what))?);
            }
            Part::Certificate => {
                let code = number::decimal(word.text).or_else(|| mnemonic(CERTIFICATES, word));
                let what = "a number from 0 to 65535 or a mnemonic such as `PKIX`";
                wire.extend(code.ok_or_else(|| is(what))?.to_be_bytes());
            }
            Part::Types => {
                let mut codes = Vec::with_capacity(words.len());
                for (at, word) in words.iter().enumerate() {
                    let code = text_of(*word).and_then(type_code);
                    codes.push(code.ok_or_else(|| {
                        Flaw::new(at, "this is not a type of records")
                            .with("write for example `A`, or `TYPE65280`")
                    })?);
                }
                bitmap(codes, wire);
            }
            Part::Eui(length) => {
                let pairs: Vec<Option<u8>> = word.text.split(|octet| *octet == b'-').map(pair).collect();
                let octets: Option<Vec<u8>> = pairs.into_iter().collect();
                let octets = octets.filter(|octets| octets.len() == length);
                let what = format!("{length} pairs of hexadecimal digits with `-` between");
                wire.extend(octets.ok_or_else(|| is(&what))?);
            }
            Part::Tag => {
                let length = u8::try_from(word.text.len()).map_err(|_| is("1 to 255 letters and digits"))?;
                wire.push(length);
                wire.extend_from_slice(word.text);
            }
            Part::Value => wire.extend(unescaped(word.text).map_err(|why| Flaw::new(0, why))?),
            Part::Location => wire.extend(location::encode(words)?),
            Part::Parameters => service::encode(words, wire)?,
        }
        Ok(())
    }

    /// How many octets at the beginning of `rdata` are this part; else what is
    /// wrong with it, to be said after its name.
    pub(super) fn length(self, rdata: &[u8]) -> Result<usize, String> {
        let fixed = |length: usize| match rdata.len() >= length {
            true => Ok(length),
            false => Err(format!("has {length} octets, and {} are left", rdata.len())),
        };
        match self {
            Part::U8 | Part::Algorithm => fixed(1),
            Part::U16 | Part::Certificate => fixed(2),
            Part::U32 | Part::Seconds | Part::V4 => fixed(4),
            Part::V6 => fixed(16),
            Part::Eui(length) => fixed(length),
            Part::Name => name_length(rdata).ok_or_else(|| "is not a whole domain name".into()),
            Part::Text | Part::Tag => match rdata.split_first() {
                Some((length, rest)) if rest.len() >= usize::from(*length) => Ok(1 + usize::from(*length)),
                _ => Err("is longer than the data".into()),
            },
            Part::Texts => match texts(rdata).map(|text| text.is_some()).collect::<Vec<_>>()[..] {
                [] => Err("is missing".into()),
                [.., false] => Err("is longer than the data".into()),
                _ => Ok(rdata.len()),
            },
            Part::Hex | Part::Base64 if rdata.is_empty() => Err("is missing".into()),
            Part::Hex | Part::Base64 | Part::Value => Ok(rdata.len()),
            Part::Types => match types_in(rdata) {
                Some(_) => Ok(rdata.len()),
                None => Err("are not a bitmap (RFC 4034 §4.1.2)".into()),
            },
            Part::Location => location::check(rdata).map(|()| rdata.len()),
            Part::Parameters => service::flaw_in(rdata).map_or(Ok(rdata.len()), Err),
        }
    }

    /// Whether its text says all that is in octets that have been measured.
    pub(super) fn has_text(self, octets: &[u8]) -> bool {
        self != Part::Location || location::has_text(octets)
    }

    /// Shows octets that [`Part::length`] has measured.
    pub(super) fn show(self, octets: &[u8], text: &mut String) {
        match self {
            Part::U8 | Part::U16 | Part::U32 | Part::Seconds | Part::Algorithm | Part::Certificate => {
                let number = octets.iter().fold(0u64, |sum, octet| sum << 8 | u64::from(*octet));
                *text += &number.to_string();
            }
            Part::V4 => {
                let octets: [u8; 4] = octets.try_into().expect("it was measured");
                *text += &Ipv4Addr::from(octets).to_string();
            }
            Part::V6 => {
                let octets: [u8; 16] = octets.try_into().expect("it was measured");
                *text += &Ipv6Addr::from(octets).to_string();
            }
            Part::Name => show_name(octets, text),
            Part::Text => quote(&octets[1..], text),
            Part::Texts => {
                for (number, string) in texts(octets).flatten().enumerate() {
                    if number > 0 {
                        text.push(' ');
                    }
                    quote(string, text);
                }
            }
            Part::Hex => *text += &HEXLOWER.encode(octets),
            Part::Base64 => *text += &BASE64.encode(octets),
            Part::Types => {
                let codes = types_in(octets).unwrap_or_default();
                *text += &codes.into_iter().map(type_name).collect::<Vec<_>>().join(" ");
            }
            Part::Eui(_) => {
                let pairs: Vec<String> = octets.iter().map(|octet| format!("{octet:02x}")).collect();
                *text += &pairs.join("-");
            }
            Part::Tag => bare(&octets[1..], text),
            Part::Value => quote(octets, text),
            Part::Location => *text += &location::show(octets),
            Part::Parameters => service::show(octets, text),
        }
    }
}

fn text_of(word: Word<'_>) -> Option<&str> {
    str::from_utf8(word.text).ok()
}

fn mnemonic<T: Copy>(of: &[(&str, T)], word: Word<'_>) -> Option<T> {
    let text = text_of(word)?;
    of.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, code)| *code)
}

fn character_string(
    at: usize,
    name: &str,
    word: Word<'_>,
    instead: Option<&str>,
    wire: &mut Vec<u8>,
) -> Result<(), Flaw> {
    let octets = unescaped(word.text).map_err(|why| Flaw::new(at, why))?;
    let length = u8::try_from(octets.len()).map_err(|_| {
        let why = format!("the {name} has at most 255 octets, this one has {}", octets.len());
        Flaw { at, why, instead: instead.map(str::to_owned) }
    })?;
    wire.push(length);
    wire.extend(octets);
    Ok(())
}

/// The strings one after the other; none for one that isn't whole.
fn texts(octets: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let mut rest = octets;
    std::iter::from_fn(move || {
        let (length, after) = rest.split_first()?;
        let whole = after.split_at_checked(usize::from(*length));
        rest = whole.map_or(&[][..], |(_, after)| after);
        Some(whole.map(|(string, _)| string))
    })
}

/// Appends octets written in hexadecimal digits, over several words.
pub(super) fn hexadecimal(words: &[Word<'_>], wire: &mut Vec<u8>) -> Result<(), Flaw> {
    encoded(&HEXLOWER_PERMISSIVE, "hexadecimal digit", "two hexadecimal digits", words, wire)
}

fn base64(words: &[Word<'_>], wire: &mut Vec<u8>) -> Result<(), Flaw> {
    encoded(&BASE64, "character of base 64", "four characters of base 64, `=` at the end", words, wire)
}

/// Appends octets in an encoding; words don't end groups of its characters.
fn encoded(
    encoding: &Encoding,
    character: &str,
    group: &str,
    words: &[Word<'_>],
    wire: &mut Vec<u8>,
) -> Result<(), Flaw> {
    let characters: Vec<u8> = words.iter().flat_map(|word| word.text).copied().collect();
    let octets = encoding.decode(&characters).map_err(|error| {
        let mut position = error.position;
        let word = words.iter().position(|word| {
            let here = position < word.text.len();
            position -= if here { 0 } else { word.text.len() };
            here
        });
        let at = word.unwrap_or(words.len().saturating_sub(1));
        match (error.kind, words.get(at).and_then(|word| word.text.get(position))) {
            (DecodeKind::Symbol, Some(octet)) => {
                let shown = if octet.is_ascii_graphic() { char::from(*octet) } else { '\u{fffd}' };
                Flaw::new(at, format!("`{shown}` is not a {character}"))
            }
            _ => Flaw::new(at, format!("it ends within an octet: they are written in groups of {group}")),
        }
    })?;
    wire.extend(octets);
    Ok(())
}

fn pair(digits: &[u8]) -> Option<u8> {
    let octets = HEXLOWER_PERMISSIVE.decode(digits).ok()?;
    octets.first().copied().filter(|_| octets.len() == 1)
}

/// The length of an uncompressed name at the beginning of octets.
pub(super) fn name_length(octets: &[u8]) -> Option<usize> {
    let mut length = 0;
    loop {
        let label = usize::from(*octets.get(length)?);
        length += 1 + label;
        if label > 63 || length > 255 || length > octets.len() {
            return None;
        }
        if label == 0 {
            return Some(length);
        }
    }
}

/// Shows a name in wire form: absolute, with the case of its letters.
fn show_name(octets: &[u8], text: &mut String) {
    if octets.len() == 1 {
        text.push('.');
    }
    let mut rest = octets;
    while let Some((length, after)) = rest.split_first().filter(|(length, _)| **length > 0) {
        let (label, after) = after.split_at(usize::from(*length));
        for &octet in label {
            match octet {
                b'.' | b'@' | b'$' => text.extend(['\\', char::from(octet)]),
                _ => bare(&[octet], text),
            }
        }
        text.push('.');
        rest = after;
    }
}

/// Types in windows of 256 (RFC 4034 §4.1.2).
fn bitmap(mut codes: Vec<u16>, wire: &mut Vec<u8>) {
    codes.sort_unstable();
    for window in codes.chunk_by(|one, other| one >> 8 == other >> 8) {
        let mut bits = [0u8; 32];
        for code in window {
            bits[usize::from(code & 0xff) / 8] |= 0x80 >> (code & 7);
        }
        let used = bits.iter().rposition(|bits| *bits != 0).map_or(0, |last| last + 1);
        wire.push((window[0] >> 8) as u8); // the upper half of a u16
        wire.push(used as u8); // at most 32
        wire.extend_from_slice(&bits[..used]);
    }
}

/// The types of a bitmap; none if it isn't well-formed.
fn types_in(octets: &[u8]) -> Option<Vec<u16>> {
    let mut codes = Vec::new();
    let (mut rest, mut least) = (octets, 0u16);
    while let [window, length, after @ ..] = rest {
        let (bits, after) = after.split_at_checked(usize::from(*length))?;
        if !(1..=32).contains(length) || bits.last() == Some(&0) || u16::from(*window) < least {
            return None;
        }
        for (at, octet) in (0u16..).zip(bits) {
            let set = (0..8).filter(|bit| octet & (0x80 >> bit) != 0);
            codes.extend(set.map(|bit| (u16::from(*window) << 8) | (at * 8 + bit)));
        }
        (rest, least) = (after, u16::from(*window) + 1);
    }
    rest.is_empty().then_some(codes)
}
