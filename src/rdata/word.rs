//! Words of master files and the escapes in them (RFC 1035 §5.1).

use super::RdataError;
use crate::model::unescape;

/// A word of RDATA as a master file has it: the octets as written, escapes
/// still in them, without the quotes around them. Quotes inside, as in
/// `alpn="h2,h3"`, are part of the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word<'a> {
    pub text: &'a [u8],
    pub quoted: bool,
}

impl<'a> Word<'a> {
    /// A word without quotes around it.
    pub fn bare(text: &'a str) -> Word<'a> {
        Word { text: text.as_bytes(), quoted: false }
    }

    /// A word that stood in quotes.
    pub fn quoted(text: &'a str) -> Word<'a> {
        Word { text: text.as_bytes(), quoted: true }
    }
}

/// Takes RDATA on one line apart. Parentheses count as space, and `;` begins a
/// comment, as in a master file.
pub fn words(text: &str) -> Result<Vec<Word<'_>>, RdataError> {
    let octets = text.as_bytes();
    let is_space = |octet: u8| octet.is_ascii_whitespace() || octet == b'(' || octet == b')';
    let mut words = Vec::new();
    let mut at = 0;
    while let Some(&octet) = octets.get(at) {
        if is_space(octet) {
            at += 1;
            continue;
        }
        if octet == b';' {
            at += octets[at..].iter().position(|octet| *octet == b'\n').unwrap_or(octets.len() - at);
            continue;
        }
        let wrong = |why: &str| RdataError { word: Some(words.len()), why: why.into(), instead: None };
        let quoted = octet == b'"';
        let start = at + usize::from(quoted);
        let mut inside = quoted;
        at = start;
        let end = loop {
            match octets.get(at) {
                None if inside => return Err(wrong("a closing quote is missing")),
                None => break at,
                Some(b'\\') if at + 1 == octets.len() => return Err(wrong("it ends in a backslash")),
                Some(b'\\') => at += 2,
                Some(b'"') if quoted => {
                    at += 1;
                    break at - 1;
                }
                Some(b'"') => {
                    inside = !inside;
                    at += 1;
                }
                Some(octet) if !inside && (is_space(*octet) || *octet == b';') => break at,
                Some(_) => at += 1,
            }
        };
        words.push(Word { text: &octets[start..end], quoted });
    }
    Ok(words)
}

/// The octets that a text with escapes means; else why it means none.
pub fn unescaped(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut octets = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&octet, after)) = rest.split_first() {
        rest = after;
        octets.push(if octet == b'\\' { unescape(&mut rest)? } else { octet });
    }
    Ok(octets)
}

/// Octets as they stand within quotes.
pub fn escaped(octets: &[u8]) -> String {
    let mut text = String::with_capacity(octets.len());
    for &octet in octets {
        match octet {
            b'"' | b'\\' => text.extend(['\\', char::from(octet)]),
            b' '..=b'~' => text.push(char::from(octet)),
            _ => text += &format!("\\{octet:03}"),
        }
    }
    text
}

/// Writes octets in quotes.
pub(super) fn quote(octets: &[u8], text: &mut String) {
    text.push('"');
    *text += &escaped(octets);
    text.push('"');
}

/// Writes octets so that they are one word without quotes.
pub(super) fn bare(octets: &[u8], text: &mut String) {
    for &octet in octets {
        match octet {
            b'"' | b'\\' | b';' | b'(' | b')' => text.extend(['\\', char::from(octet)]),
            b'!'..=b'~' => text.push(char::from(octet)),
            _ => *text += &format!("\\{octet:03}"),
        }
    }
}
