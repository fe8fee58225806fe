//! Master files (RFC 1035 §5) → records that know their places.
//!
//! ```text
//! octets ──► lexer (words of one entry) ──► read (directives, owners, TTLs) ──► Entry
//!                                                └── rdata (what the words of a type mean)
//! ```
//!
//! Owns the format: directives, `$INCLUDE`d files, what an entry leaves out,
//! and which records a zone can't have. Every fault says where it is and what
//! to write instead, and the entries after it are read all the same. Time and
//! memory grow with the octets that are read; files that include each other
//! are held on a list, not on the stack.
//!
//! Opens no file: the caller hands out what `$INCLUDE` names. Knows nothing of
//! RRsets and of what can't stand together.

mod generate;
mod lexer;

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::model::{Name, NameError};
use crate::rdata::{self, Word};
use generate::{Range, expand};
use lexer::{Lexer, Token, Wrong};

/// The largest TTL (RFC 2181 §8).
pub const MAX_TTL: u32 = i32::MAX as u32;

/// So many files may be open within each other.
const MAX_DEPTH: usize = 10;
/// So many files may be included in all.
const MAX_INCLUDES: u32 = 10_000;
/// So many octets are read in all.
const MAX_OCTETS: usize = 256 << 20;
/// So many records may be generated in all.
const MAX_GENERATED: u32 = 1_000_000;
/// After so many faults the rest isn't worth reading.
const MAX_FAULTS: usize = 1000;

const DIRECTIVES: [&str; 4] = ["$ORIGIN", "$TTL", "$INCLUDE", "$GENERATE"];

/// Their records prove what another server signed.
const SIGNATURES: [(u16, &str); 7] = [
    (24, "SIG"),
    (30, "NXT"),
    (46, "RRSIG"),
    (47, "NSEC"),
    (50, "NSEC3"),
    (51, "NSEC3PARAM"),
    (63, "ZONEMD"),
];

/// Where something stands: in a file, by the order in which they were opened,
/// at a line from one character up to another, all from 1. What goes on over
/// several lines is shown in its first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    pub file: u32,
    pub line: u32,
    pub column: u32,
    pub end_column: u32,
}

/// What master files hold.
#[derive(Debug, Default)]
pub struct Zone {
    /// All records but the SOA, in the order written.
    pub entries: Vec<Entry>,
    pub soa: Option<Entry>,
    /// What is wrong, and what is worth a second look.
    pub faults: Vec<Fault>,
}

/// One record.
#[derive(Debug)]
pub struct Entry {
    pub owner: Name,
    pub rtype: u16,
    /// None: neither it nor anything before it says one, and there is no SOA.
    pub ttl: Option<u32>,
    pub rdata: Box<[u8]>,
    /// The owner name was written without its final dot.
    pub relative_owner: bool,
    /// So was the last word of the data.
    pub relative_data: bool,
    pub at: At,
    /// Of the words after the type.
    pub data_at: At,
}

/// Something wrong, or worth a second look.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    pub at: At,
    pub what: What,
    /// What to write instead.
    pub instead: Option<String>,
    /// A second place that has part in it, and what is there.
    pub also: Option<(At, &'static str)>,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// An octet that no text has.
    Octet(u8),
    Utf16,
    NotClosed(&'static str),
    Syntax(&'static str),
    NoOwner,
    NotName {
        value: String,
        why: String,
    },
    OutsideZone {
        name: String,
        apex: String,
    },
    NotTtl {
        value: String,
        why: &'static str,
    },
    OtherClass(String),
    NotType(String),
    /// Only queries and messages have it.
    QueryType(String),
    Rdata {
        /// The word that is meant, or all.
        value: String,
        rtype: String,
        why: String,
    },
    NotDirective(String),
    Include(String),
    Generate(&'static str),
    SoaBelowApex(String),
    SecondSoa,
    TooMany(usize),
    /// A string goes on over so many lines; it is taken.
    StringOverLines(u32),
    /// Records that prove what another server signed; the rest is taken.
    SignaturesLeftOut {
        count: usize,
        types: String,
    },
}

impl Fault {
    /// Whether the file can be used all the same.
    pub fn is_lint(&self) -> bool {
        matches!(self.what, What::StringOverLines(_) | What::SignaturesLeftOut { .. })
    }
}

/// A file that `$INCLUDE` names.
#[derive(Clone, Copy, Debug)]
pub struct Include<'a> {
    /// As written, escapes and quotes taken off.
    pub name: &'a str,
    /// The files that are open, by number, the first one first.
    pub open: &'a [u32],
}

/// Why a file isn't included, and what to do.
#[derive(Clone, Debug)]
pub struct Refused {
    pub why: String,
    pub instead: Option<String>,
}

/// Reads a zone, whose apex is `apex`. For each `$INCLUDE` the octets are asked
/// for; files are numbered in the order in which they were handed out, the
/// first one is 0.
pub fn read(
    octets: &[u8],
    apex: &Name,
    include: impl FnMut(Include<'_>) -> Result<Vec<u8>, Refused>,
) -> Zone {
    let mut reader = Reader {
        apex,
        include,
        zone: Zone::default(),
        frames: Vec::new(),
        default_ttl: None,
        last_ttl: None,
        files: 0,
        octets: 0,
        generated: 0,
        signatures: Signatures::default(),
    };
    reader.open(Cow::Borrowed(octets), apex.clone(), Owner::None);
    while reader.zone.faults.len() < MAX_FAULTS && reader.step() {}
    reader.finish()
}

/// One open file.
struct Frame<'a> {
    lexer: Lexer<'a>,
    file: u32,
    origin: Name,
    owner: Owner,
}

/// Whose an entry is that begins with a blank.
#[derive(Clone)]
enum Owner {
    None,
    /// It couldn't be read, which has been told.
    Lost,
    /// And whether it was written without its final dot.
    Known(Name, bool),
}

/// Records left out, by type.
#[derive(Default)]
struct Signatures {
    first: Option<At>,
    count: usize,
    types: BTreeSet<&'static str>,
}

struct Reader<'a, F> {
    apex: &'a Name,
    include: F,
    zone: Zone,
    frames: Vec<Frame<'a>>,
    default_ttl: Option<u32>,
    /// The last one that stood in a record.
    last_ttl: Option<u32>,
    files: u32,
    octets: usize,
    generated: u32,
    signatures: Signatures,
}

/// A word with the place it came from.
struct Written<'w> {
    text: Cow<'w, [u8]>,
    quoted: bool,
    token: Token,
}

impl Written<'_> {
    /// As far as it is UTF-8.
    fn shown(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.text)
    }
}

/// What stands before the data of a record.
struct Head {
    ttl: Option<u32>,
    rtype: u16,
    /// How many words it took.
    words: usize,
}

/// Where the words of an entry come from.
#[derive(Clone, Copy)]
struct Origin<'o> {
    lexer: &'o Lexer<'o>,
    file: u32,
    name: &'o Name,
}

impl Origin<'_> {
    fn at(&self, token: &Token) -> At {
        self.lexer.at(self.file, token)
    }

    /// From the first word up to the last one in the same line.
    fn span(&self, words: &[Written<'_>]) -> Option<At> {
        let first = words.first()?;
        let last = words.iter().take_while(|word| word.token.line == first.token.line).last()?;
        let at = self.at(&first.token);
        Some(At { end_column: self.at(&last.token).end_column, ..at })
    }

    fn fault(&self, token: &Token, what: What, instead: impl Into<Option<String>>) -> Fault {
        Fault { at: self.at(token), what, instead: instead.into(), also: None }
    }
}

impl<'a, F: FnMut(Include<'_>) -> Result<Vec<u8>, Refused>> Reader<'a, F> {
    /// Begins a file, unless it holds what no master file has.
    fn open(&mut self, octets: Cow<'a, [u8]>, origin: Name, owner: Owner) {
        let file = self.files;
        self.files += 1;
        self.octets += octets.len();
        let lexer = Lexer::new(octets);
        if let Some((what, token)) = lexer.no_text() {
            let instead = match what {
                What::Utf16 => "save the file as UTF-8",
                _ => "a master file is a text; write an octet of a string or name as `\\` and three digits",
            };
            let at = lexer.at(file, &token);
            self.zone.faults.push(Fault { at, what, instead: Some(instead.into()), also: None });
            return;
        }
        self.frames.push(Frame { lexer, file, origin, owner });
    }

    /// Takes in one entry; false when all files are read.
    fn step(&mut self) -> bool {
        let Some(mut frame) = self.frames.pop() else { return false };
        let (mut tokens, mut wrong) = (Vec::new(), None);
        let Some(blank) = frame.lexer.entry(&mut tokens, &mut wrong) else { return true };
        let long = tokens.iter().filter(|token| token.end_line > token.line && wrong.is_none());
        for token in long {
            let lines = token.end_line - token.line + 1;
            let at = frame.lexer.at(frame.file, token);
            let instead =
                "is its closing quotation mark missing? if not, write a line break as `\\010`".to_owned();
            let what = What::StringOverLines(lines);
            self.zone.faults.push(Fault { at, what, instead: Some(instead), also: None });
        }
        let inner = self.entry(&mut frame, blank, &tokens, wrong);
        self.frames.push(frame);
        if let Some((octets, origin, owner)) = inner {
            self.open(Cow::Owned(octets), origin, owner);
        }
        true
    }

    /// Takes in an entry; gives the file it includes, if it does.
    fn entry(
        &mut self,
        frame: &mut Frame<'a>,
        blank: bool,
        tokens: &[Token],
        wrong: Option<Wrong>,
    ) -> Option<(Vec<u8>, Name, Owner)> {
        let open: Vec<u32> = self.frames.iter().map(|frame| frame.file).chain([frame.file]).collect();
        let Frame { lexer, file, origin, owner } = frame;
        let from = Origin { lexer, file: *file, name: origin };
        let words: Vec<Written<'_>> = tokens
            .iter()
            .map(|token| Written { text: lexer.text(token), quoted: token.quoted, token: *token })
            .collect();
        let directive = words.first().filter(|word| !blank && !word.quoted && word.text.starts_with(b"$"));
        if let Some(wrong) = wrong {
            let Wrong { token, what, instead } = wrong;
            let first = words.first().map(|word| word.token);
            let lost = !blank && first.is_none_or(|first| first.start == token.start);
            self.zone.faults.push(from.fault(&token, what, instead.map(str::to_owned)));
            // what follows may be meant for this one
            if lost {
                *owner = Owner::Lost;
            } else if directive.is_none() && !blank {
                *owner = self
                    .owner(&words[0], from)
                    .map_or(Owner::Lost, |(name, relative)| Owner::Known(name, relative));
            }
            return None;
        }
        let indented = words.first().filter(|word| blank && DIRECTIVES.contains(&&*word.shown()));
        if let Some(word) = indented {
            let what = What::Syntax("a directive with a blank before it");
            let instead = format!("begin the line with `{}`", word.shown());
            self.zone.faults.push(from.fault(&word.token, what, instead));
            return None;
        }
        let Some(word) = directive else {
            let (owner_word, rest) = if blank { (None, &words[..]) } else { (words.first(), &words[1..]) };
            if let Some(word) = owner_word {
                *owner = match self.owner(word, from) {
                    Some((name, relative)) => Owner::Known(name, relative),
                    None => Owner::Lost,
                };
            }
            let (name, relative) = match owner {
                Owner::Known(name, relative) => (name.clone(), *relative),
                Owner::Lost => return None,
                Owner::None => {
                    let fault = from.fault(
                        &words[0].token,
                        What::NoOwner,
                        "begin the line with the record's name; `@` is the origin".to_owned(),
                    );
                    self.zone.faults.push(fault);
                    return None;
                }
            };
            let whole = from.span(&words).expect("an entry has a word");
            if let Err(fault) = self.record(from, (name, relative), rest, whole, owner_word) {
                self.zone.faults.push(*fault);
            }
            return None;
        };
        let done = match word.shown().to_ascii_uppercase().as_str() {
            "$ORIGIN" => self.set_origin(from, &words).map(|name| {
                *origin = name;
                None
            }),
            "$TTL" => self.set_ttl(from, &words).map(|()| None),
            "$INCLUDE" => self
                .included(from, &words, &open)
                .map(|(octets, origin)| Some((octets, origin, owner.clone()))),
            "$GENERATE" => self.generate(from, &words).map(|()| None),
            other => Err(Box::new(from.fault(
                &word.token,
                What::NotDirective(brief(other)),
                format!(
                    "the directives are $ORIGIN, $TTL, $INCLUDE and $GENERATE; a name that begins with `$` is \
                     written `\\{}`",
                    brief(&word.shown())
                ),
            ))),
        };
        match done {
            Ok(inner) => inner,
            Err(fault) => {
                self.zone.faults.push(*fault);
                None
            }
        }
    }

    /// An owner name, and whether it is relative; what is wrong is told.
    fn owner(&mut self, word: &Written<'_>, from: Origin<'_>) -> Option<(Name, bool)> {
        match self.owner_of(word, from) {
            Ok(owner) => Some(owner),
            Err(fault) => {
                self.zone.faults.push(*fault);
                None
            }
        }
    }

    fn owner_of(&self, word: &Written<'_>, from: Origin<'_>) -> Result<(Name, bool), Box<Fault>> {
        let name = name(word, from)?;
        let relative = !ends_in_dot(&word.text) && *word.text != *b"@";
        if name.is_within(self.apex) {
            return Ok((name, relative));
        }
        let instead = match relative {
            true => format!("it is relative to the origin and becomes {name}"),
            false => "records of another zone go into a file of their own".to_owned(),
        };
        let what = What::OutsideZone { name: brief(&word.shown()), apex: self.apex.to_string() };
        Err(Box::new(from.fault(&word.token, what, instead)))
    }

    /// TTL, class and type: the first two in either order, or absent.
    fn head(
        &mut self,
        from: Origin<'_>,
        words: &[Written<'_>],
        owner: Option<&Written<'_>>,
        whole: At,
    ) -> Result<Head, Box<Fault>> {
        let mut ttl = None;
        let mut class = false;
        for (i, word) in words.iter().enumerate() {
            let fault = |what, instead: String| Err(Box::new(from.fault(&word.token, what, instead)));
            let text = &*word.shown();
            if word.quoted {
                let what = What::NotType(brief(text));
                return fault(what, "write the type of the record before its data".into());
            }
            if text.starts_with(|c: char| c.is_ascii_digit()) && ttl.is_none() {
                match seconds(text) {
                    Ok(value) => ttl = Some(value),
                    Err(why) => {
                        // the type has been forgotten, or stands where the owner is due
                        let misplaced = owner.and_then(|owner| misplaced_type(owner, words, from));
                        return match misplaced {
                            Some(fault) => Err(fault),
                            None => fault(What::NotTtl { value: brief(text), why }, ttl_help(text)),
                        };
                    }
                }
                continue;
            }
            match class_of(text) {
                Some(true) if !class => {
                    class = true;
                    continue;
                }
                Some(true) => {
                    return fault(What::NotType(brief(text)), "the class stands there already".into());
                }
                Some(false) => {
                    let instead = "write `IN`, or take the class away".into();
                    return fault(What::OtherClass(brief(text)), instead);
                }
                None => {}
            }
            if let Some(rtype) = rdata::type_code(text) {
                if !rdata::is_data(rtype) {
                    let instead = "it is asked for, or signs messages; take the record away".into();
                    return fault(What::QueryType(brief(text)), instead);
                }
                if ttl.is_some() {
                    self.last_ttl = ttl;
                }
                return Ok(Head { ttl: ttl.or(self.default_ttl).or(self.last_ttl), rtype, words: i + 1 });
            }
            if let Some(fault) = owner.and_then(|owner| misplaced_type(owner, words, from)) {
                return Err(fault);
            }
            let instead = "write a type such as A, or one without a name as `TYPE65280`".into();
            return fault(What::NotType(brief(text)), instead);
        }
        let instead = "write the record's type and data after it, such as `A 192.0.2.1`".to_owned();
        let what = What::Syntax("the record has no type");
        Err(Box::new(Fault { at: whole, what, instead: Some(instead), also: None }))
    }

    /// One record, from the word after its owner.
    fn record(
        &mut self,
        from: Origin<'_>,
        (owner, relative_owner): (Name, bool),
        words: &[Written<'_>],
        whole: At,
        owner_word: Option<&Written<'_>>,
    ) -> Result<(), Box<Fault>> {
        let Head { ttl, rtype, words: head } = self.head(from, words, owner_word, whole)?;
        let data = &words[head..];
        if let Some((_, left_out)) = SIGNATURES.iter().find(|(code, _)| *code == rtype) {
            self.signatures.first.get_or_insert(whole);
            self.signatures.count += 1;
            self.signatures.types.insert(left_out);
            return Ok(());
        }
        let rdata = rdata::parse(rtype, &parts(data), from.name).map_err(|error| {
            let word = error.word.and_then(|i| data.get(i));
            let all = if data.is_empty() { words } else { data };
            let all = || all.iter().map(Written::shown).collect::<Vec<_>>().join(" ");
            let value = brief(&word.map_or_else(all, |word| word.shown().into_owned()));
            let rtype = rdata::type_name(rtype).into_owned();
            let what = What::Rdata { value, rtype, why: error.why };
            let at = match word {
                Some(word) => from.at(&word.token),
                None => from.span(data).unwrap_or(whole),
            };
            Box::new(Fault { at, what, instead: error.instead, also: None })
        })?;
        let entry = Entry {
            owner,
            rtype,
            ttl,
            rdata,
            relative_owner,
            relative_data: data.last().is_some_and(|word| !word.quoted && !ends_in_dot(&word.text)),
            at: whole,
            data_at: from.span(data).unwrap_or(whole),
        };
        if rtype == rdata::rtype::SOA {
            return self.take_soa(entry);
        }
        self.zone.entries.push(entry);
        Ok(())
    }

    /// The SOA: one, at the apex. The same once more is how transfers end.
    fn take_soa(&mut self, entry: Entry) -> Result<(), Box<Fault>> {
        let at = entry.at;
        if entry.owner != *self.apex {
            let what = What::SoaBelowApex(brief(&entry.owner.to_string()));
            let instead = format!("give it the name {}, or make that a zone of its own", self.apex);
            return Err(Box::new(Fault { at, what, instead: Some(instead), also: None }));
        }
        match &self.zone.soa {
            None => self.zone.soa = Some(entry),
            Some(first) if first.rdata == entry.rdata => {}
            Some(first) => {
                let also = Some((first.at, "the first one is here"));
                let instead = Some("keep one of the two".to_owned());
                return Err(Box::new(Fault { at, what: What::SecondSoa, instead, also }));
            }
        }
        Ok(())
    }

    fn set_origin(&mut self, from: Origin<'_>, words: &[Written<'_>]) -> Result<Name, Box<Fault>> {
        let [_, word] = words else {
            return Err(number_of_words(
                from,
                words,
                "`$ORIGIN` takes one name",
                "write `$ORIGIN example.com.`",
            ));
        };
        name(word, from)
    }

    fn set_ttl(&mut self, from: Origin<'_>, words: &[Written<'_>]) -> Result<(), Box<Fault>> {
        let [_, word] = words else {
            return Err(number_of_words(from, words, "`$TTL` takes one TTL", "write `$TTL 1h`"));
        };
        match seconds(&word.shown()) {
            Ok(ttl) => {
                self.default_ttl = Some(ttl);
                Ok(())
            }
            Err(why) => {
                let what = What::NotTtl { value: brief(&word.shown()), why };
                Err(Box::new(from.fault(&word.token, what, ttl_help(&word.shown()))))
            }
        }
    }

    fn included(
        &mut self,
        from: Origin<'_>,
        words: &[Written<'_>],
        open: &[u32],
    ) -> Result<(Vec<u8>, Name), Box<Fault>> {
        let (file, origin) = match words {
            [_, file] => (file, from.name.clone()),
            [_, file, origin] => (file, name(origin, from)?),
            _ => {
                let what = "`$INCLUDE` takes a file, and perhaps an origin";
                return Err(number_of_words(
                    from,
                    words,
                    what,
                    "write `$INCLUDE FILE`, or `$INCLUDE FILE ORIGIN`",
                ));
            }
        };
        let refuse = |why: String, instead: &str| {
            Err(Box::new(from.fault(&file.token, What::Include(why), instead.to_owned())))
        };
        if open.len() >= MAX_DEPTH {
            let why = format!("{MAX_DEPTH} files are within each other already");
            return refuse(why, "include it from a file further out");
        }
        if self.files > MAX_INCLUDES {
            return refuse(
                format!("{MAX_INCLUDES} files have been included already"),
                "put several of them into one",
            );
        }
        let name = match rdata::unescaped(&file.text).map(String::from_utf8) {
            Ok(Ok(name)) => name,
            Ok(Err(_)) => return refuse("its name is not UTF-8".into(), "give the file another name"),
            Err(why) => {
                return refuse(why, r"write `\` and three digits for an octet, and `\\` for a backslash");
            }
        };
        let octets = match (self.include)(Include { name: &name, open }) {
            Ok(octets) => octets,
            Err(Refused { why, instead }) => {
                return Err(Box::new(from.fault(&file.token, What::Include(why), instead)));
            }
        };
        if self.octets + octets.len() > MAX_OCTETS {
            let why = format!("all files of the zone together have more than {MAX_OCTETS} octets");
            return refuse(why, "make several zones of it");
        }
        Ok((octets, origin))
    }

    /// BIND's `$GENERATE RANGE OWNER [TTL] [CLASS] TYPE DATA`.
    fn generate(&mut self, from: Origin<'_>, words: &[Written<'_>]) -> Result<(), Box<Fault>> {
        let [_, range, templates @ ..] = words else {
            let what = "`$GENERATE` takes a range, a name, a type and data";
            return Err(number_of_words(
                from,
                words,
                what,
                "write such as `$GENERATE 1-9 host$ A 192.0.2.$`",
            ));
        };
        let fault = |token: &Token, why| {
            let instead = "write such as `$GENERATE 1-9 host$ A 192.0.2.$`".to_owned();
            Box::new(from.fault(token, What::Generate(why), instead))
        };
        let range_token = range.token;
        let range = Range::parse(&range.shown()).map_err(|why| fault(&range_token, why))?;
        let whole = from.span(words).expect("a directive has a word");
        for number in range {
            if self.generated == MAX_GENERATED {
                return Err(fault(&range_token, "more than a million records are generated"));
            }
            self.generated += 1;
            let mut made = Vec::with_capacity(templates.len());
            for word in templates {
                let text = expand(&word.shown(), number).map_err(|why| fault(&word.token, why))?;
                made.push(Written { text: text.into_bytes().into(), quoted: word.quoted, token: word.token });
            }
            let Some((owner, rest)) = made.split_first() else {
                return Err(fault(&range_token, "the name is missing"));
            };
            let name = self.owner_of(owner, from)?;
            self.record(from, name, rest, whole, None)?;
        }
        Ok(())
    }

    fn finish(mut self) -> Zone {
        if self.zone.faults.len() >= MAX_FAULTS
            && let Some(last) = self.zone.faults.last()
        {
            let at = last.at;
            let instead = Some("is this a master file? put these right first".to_owned());
            self.zone.faults.push(Fault { at, what: What::TooMany(MAX_FAULTS), instead, also: None });
        }
        let Signatures { first, count, types } = self.signatures;
        if let Some(at) = first {
            let types = types.into_iter().collect::<Vec<_>>().join(", ");
            let instead = Some("give the file that the signer reads, instead of what it writes".to_owned());
            let what = What::SignaturesLeftOut { count, types };
            self.zone.faults.push(Fault { at, what, instead, also: None });
        }
        // RFC 2308 §4 gives the default by $TTL; before it was the SOA's minimum.
        let minimum = self.zone.soa.as_ref().and_then(|soa| soa.rdata.last_chunk::<4>());
        let minimum = minimum.map(|octets| u32::from_be_bytes(*octets).min(MAX_TTL));
        for entry in self.zone.entries.iter_mut().chain(&mut self.zone.soa) {
            entry.ttl = entry.ttl.or(minimum);
        }
        self.zone
    }
}

/// A domain name as it is written.
fn name(word: &Written<'_>, from: Origin<'_>) -> Result<Name, Box<Fault>> {
    // in quotes `@` and nothing have no meaning of their own
    let parsed = match (word.quoted, str::from_utf8(&word.text)) {
        (true, Ok("")) => Name::parse("..", from.name),
        (true, Ok("@")) => Name::parse("\\@", from.name),
        (_, Ok(text)) => Name::parse(text, from.name),
        (_, Err(_)) => Err(NameError::NotAscii),
    };
    parsed.map_err(|error| {
        let what = What::NotName { value: brief(&word.shown()), why: error.to_string() };
        Box::new(from.fault(&word.token, what, None))
    })
}

/// A line that begins with the type, since the blank before it is missing:
/// what follows is the data of that type.
fn misplaced_type(owner: &Written<'_>, words: &[Written<'_>], from: Origin<'_>) -> Option<Box<Fault>> {
    let rtype = rdata::type_code(&owner.shown()).filter(|_| !owner.quoted)?;
    rdata::parse(rtype, &parts(words), from.name).ok()?;
    let what = What::Syntax("a type stands where the owner name is due");
    let instead = format!("begin the line with a name or a blank: `    {} …`", brief(&owner.shown()));
    Some(Box::new(from.fault(&owner.token, what, instead)))
}

/// Words as `rdata` takes them.
fn parts<'w>(words: &'w [Written<'_>]) -> Vec<Word<'w>> {
    words.iter().map(|word| Word { text: &word.text, quoted: word.quoted }).collect()
}

fn number_of_words(from: Origin<'_>, words: &[Written<'_>], what: &'static str, instead: &str) -> Box<Fault> {
    let at = from.span(words).expect("a directive has a word");
    Box::new(Fault { at, what: What::Syntax(what), instead: Some(instead.into()), also: None })
}

/// Whether it is the class IN, if it is a class.
fn class_of(text: &str) -> Option<bool> {
    let upper = text.to_ascii_uppercase();
    match upper.as_str() {
        "IN" | "CLASS1" => Some(true),
        "CH" | "HS" | "CS" | "CHAOS" | "HESIOD" | "NONE" => Some(false),
        _ => {
            let digits = upper.strip_prefix("CLASS")?;
            (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())).then_some(false)
        }
    }
}

/// A TTL: seconds, or a sum such as BIND writes it.
pub fn seconds(text: &str) -> Result<u32, &'static str> {
    let mut sum = 0u64;
    let mut number: Option<u64> = None;
    let mut units = false;
    for octet in text.bytes() {
        if octet.is_ascii_digit() {
            let next = number.unwrap_or(0) * 10 + u64::from(octet - b'0');
            number = Some(next.min(u64::from(u32::MAX)));
            continue;
        }
        let unit = match octet.to_ascii_lowercase() {
            b's' => 1,
            b'm' => 60,
            b'h' => 3600,
            b'd' => 86400,
            b'w' => 7 * 86400,
            _ => return Err("it is a number of seconds, or a sum of the units w, d, h, m and s"),
        };
        let Some(number) = number.take() else { return Err("a unit has no number before it") };
        sum = sum.saturating_add(number * unit);
        units = true;
    }
    match number {
        Some(_) if units => return Err("its last number has no unit"),
        Some(number) => sum = number,
        None if !units => return Err("it is empty"),
        None => {}
    }
    u32::try_from(sum).ok().filter(|ttl| *ttl <= MAX_TTL).ok_or("the most are 2147483647 seconds")
}

fn ttl_help(text: &str) -> String {
    match text.starts_with(|c: char| c.is_ascii_digit()) && text.contains('.') {
        true => "a TTL is such as `3600` or `1h30m`; before an address the type is due, such as `A`".into(),
        false => "write such as `3600` or `1h30m`".into(),
    }
}

/// Whether a name is absolute.
fn ends_in_dot(text: &[u8]) -> bool {
    let Some(before) = text.strip_suffix(b".") else { return false };
    let backslashes = before.iter().rev().take_while(|octet| **octet == b'\\').count();
    backslashes.is_multiple_of(2)
}

/// A text cut to what a message can carry.
fn brief(text: &str) -> String {
    const MOST: usize = 60;
    let shown = |text: &str| text.replace(|c: char| c.is_control(), " ");
    match text.char_indices().nth(MOST) {
        Some((cut, _)) => shown(&text[..cut]) + "…",
        None => shown(text),
    }
}

#[cfg(test)]
mod tests;
