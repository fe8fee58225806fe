//! Octets → the words of one entry (RFC 1035 §5.1).
//!
//! Owns blanks, comments, quotes, parentheses and line ends; an escape keeps
//! its backslash, so that a dot in a label stays apart from one between two.
//! Words are places in the octets, and their texts are made when asked for.
//!
//! Knows nothing of what the words mean.

use std::borrow::Cow;

use super::{At, What};

/// More words make no record: data ends at 65535 octets.
const MAX_WORDS: usize = 70_000;

/// One file, and how far it is read.
pub(super) struct Lexer<'a> {
    octets: Cow<'a, [u8]>,
    at: usize,
    line: u32,
    line_start: usize,
}

/// A word, its quotation marks included.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub start: usize,
    end: usize,
    pub line: u32,
    /// Where a quoted string ends.
    pub end_line: u32,
    line_start: usize,
    pub quoted: bool,
}

/// Why an entry is no entry.
#[derive(Debug)]
pub(super) struct Wrong {
    pub token: Token,
    pub what: What,
    pub instead: Option<&'static str>,
}

impl<'a> Lexer<'a> {
    /// Begins a file; its byte order mark is taken off.
    pub fn new(octets: Cow<'a, [u8]>) -> Lexer<'a> {
        let at = if octets.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        Lexer { octets, at, line: 1, line_start: at }
    }

    /// The first octet that says that this is no text.
    pub fn no_text(&self) -> Option<(What, Token)> {
        let utf16 = self.octets.starts_with(&[0xff, 0xfe]) || self.octets.starts_with(&[0xfe, 0xff]);
        let at = match utf16 {
            true => 0,
            false => self.octets.iter().position(|octet| *octet == 0)?,
        };
        let before = &self.octets[..at];
        let line = 1 + before.iter().filter(|octet| **octet == b'\n').count() as u32; // files end far below 2^32 octets
        let line_start = before.iter().rposition(|octet| *octet == b'\n').map_or(self.line_start, |i| i + 1);
        let token = Token { start: at, end: at + 1, line, end_line: line, line_start, quoted: false };
        Some((if utf16 { What::Utf16 } else { What::Octet(0) }, token))
    }

    /// The words of the next entry that has any, and whether a blank stands
    /// before them; None at the end. With `wrong` it is none, and `tokens` has
    /// what could be read of it.
    pub fn entry(&mut self, tokens: &mut Vec<Token>, wrong: &mut Option<Wrong>) -> Option<bool> {
        let mut blank = self.begins_blank();
        let mut open: Option<Token> = None;
        while let Some(&octet) = self.octets.get(self.at) {
            match octet {
                b' ' | b'\t' => self.at += 1,
                b'\r' if self.ends_line() => self.at += 1,
                b'\n' => {
                    self.next_line();
                    if open.is_some() {
                        continue;
                    }
                    if !tokens.is_empty() || wrong.is_some() {
                        return Some(blank);
                    }
                    blank = self.begins_blank();
                }
                b';' => {
                    let rest = &self.octets[self.at..];
                    self.at += rest.iter().position(|octet| *octet == b'\n').unwrap_or(rest.len());
                }
                b'(' => {
                    let token = self.here(1);
                    if open.is_some() {
                        let instead = "one pair goes around all lines of a record";
                        note(wrong, token, What::Syntax("a `(` within parentheses"), instead);
                    }
                    open.get_or_insert(token);
                    self.at += 1;
                }
                b')' => {
                    if open.take().is_none() {
                        let instead = "take it away, or write `(` where the record goes on over lines";
                        note(wrong, self.here(1), What::Syntax("a `)` without its `(`"), instead);
                    }
                    self.at += 1;
                }
                _ => {
                    let token = if octet == b'"' { self.string(wrong) } else { self.word(wrong) };
                    if tokens.len() < MAX_WORDS {
                        tokens.push(token);
                    } else {
                        let instead = "is a parenthesis before it not closed?";
                        note(
                            wrong,
                            open.unwrap_or(token),
                            What::Syntax("a record with too many words"),
                            instead,
                        );
                    }
                }
            }
        }
        if let Some(open) = open {
            note(wrong, open, What::NotClosed("this parenthesis"), "write `)` where the record ends");
        }
        (!tokens.is_empty() || wrong.is_some()).then_some(blank)
    }

    /// The octets of a word, escapes as written and quotation marks taken off. A
    /// line break in a string is a line feed.
    pub fn text(&self, token: &Token) -> Cow<'_, [u8]> {
        let inner = match token.quoted {
            true => token.start + 1..token.end.max(token.start + 2) - 1,
            false => token.start..token.end,
        };
        let octets = &self.octets[inner];
        if token.line == token.end_line {
            return Cow::Borrowed(octets);
        }
        let after = octets.iter().skip(1).chain(&[0]);
        let breaks = octets.iter().zip(after).filter(|pair| *pair != (&b'\r', &b'\n'));
        Cow::Owned(breaks.map(|(octet, _)| *octet).collect())
    }

    /// Where a word stands, as far as its first line goes.
    pub fn at(&self, file: u32, token: &Token) -> At {
        let line = &self.octets[token.line_start..];
        let offset = token.start - token.line_start;
        let word = &line[offset..token.end - token.line_start];
        let word = word.split(|octet| *octet == b'\n').next().unwrap_or_default();
        let word = word.strip_suffix(b"\r").unwrap_or(word);
        let column = characters(&line[..offset]) + 1;
        At { file, line: token.line, column, end_column: column + characters(word).max(1) }
    }

    fn begins_blank(&self) -> bool {
        matches!(self.octets.get(self.at), Some(b' ' | b'\t'))
    }

    /// Whether a carriage return belongs to a line's end.
    fn ends_line(&self) -> bool {
        matches!(self.octets.get(self.at + 1), None | Some(b'\n'))
    }

    fn next_line(&mut self) {
        self.at += 1;
        self.line += 1;
        self.line_start = self.at;
    }

    fn here(&self, length: usize) -> Token {
        Token {
            start: self.at,
            end: self.at + length,
            line: self.line,
            end_line: self.line,
            line_start: self.line_start,
            quoted: false,
        }
    }

    /// Up to a blank, or what else ends a word.
    fn word(&mut self, wrong: &mut Option<Wrong>) -> Token {
        let begin = self.here(1);
        while let Some(&octet) = self.octets.get(self.at) {
            match octet {
                b' ' | b'\t' | b'\n' | b';' | b'(' | b')' => break,
                b'\r' if self.ends_line() => break,
                // the value of a key: one word with it (RFC 9460 §2.1)
                b'"' if self.at > begin.start && self.octets[self.at - 1] == b'=' => {
                    self.string(wrong);
                }
                b'"' => break,
                b'\\' => self.escape(wrong),
                0..=31 | 127 => self.odd(octet, wrong),
                _ => self.at += 1,
            }
        }
        Token { end: self.at, end_line: self.line, ..begin }
    }

    /// From one quotation mark to the next.
    fn string(&mut self, wrong: &mut Option<Wrong>) -> Token {
        let begin = self.here(1);
        self.at += 1;
        loop {
            match self.octets.get(self.at) {
                None => {
                    let instead = "close the string with a quotation mark; one within it is written `\\\"`";
                    note(wrong, begin, What::NotClosed("this quotation mark"), instead);
                    break;
                }
                Some(b'"') => {
                    self.at += 1;
                    break;
                }
                Some(b'\n') => self.next_line(),
                Some(b'\r') if self.ends_line() => self.at += 1,
                Some(b'\\') => self.escape(wrong),
                Some(&octet @ (0..=8 | 10..=31 | 127)) => self.odd(octet, wrong),
                Some(_) => self.at += 1,
            }
        }
        Token { end: self.at, end_line: self.line, quoted: true, ..begin }
    }

    fn escape(&mut self, wrong: &mut Option<Wrong>) {
        match self.octets.get(self.at + 1) {
            Some(32..=126 | 128..) => self.at += 2,
            _ => {
                let instead =
                    "write `\\\\` for a backslash, and an octet without a letter as `\\` and three digits";
                note(wrong, self.here(1), What::Syntax("a backslash with nothing after it"), instead);
                self.at += 1;
            }
        }
    }

    fn odd(&mut self, octet: u8, wrong: &mut Option<Wrong>) {
        let instead = "take it away; in a string or name write it as `\\` and three digits";
        note(wrong, self.here(1), What::Octet(octet), instead);
        self.at += 1;
    }
}

/// The first thing wrong with an entry is told.
fn note(wrong: &mut Option<Wrong>, token: Token, what: What, instead: &'static str) {
    wrong.get_or_insert(Wrong { token, what, instead: Some(instead) });
}

/// How many characters are shown for these octets.
fn characters(octets: &[u8]) -> u32 {
    let count = match octets.is_ascii() {
        true => octets.len(),
        false => String::from_utf8_lossy(octets).chars().count(),
    };
    count as u32 // files end far below 2^32 octets
}
