//! A value of a record → the words that a master file has → RDATA.
//!
//! Each word keeps the place that it was written at, so that what `rdata` says
//! of a word is told of the key it came from.

use std::borrow::Cow;

use super::super::super::place::{Place, Spot};
use super::super::super::problem::ProblemKind;
use super::super::super::reader::{Branch, Scalar, Tree, brief};
use super::super::super::words;
use super::super::Lower;
use super::FOLLOWING;
use super::keys::{Form, Key, example, form};
use crate::model::Name;
use crate::rdata::rtype::{A, AAAA};
use crate::rdata::{self, Part, RdataError, SERVICE_KEYS, Word, type_name};

/// The key of a value that isn't data of the record.
const DEPENDS_ON: &str = "depends_on";

/// So many octets are one string.
const LONGEST_STRING: usize = 255;

/// A word with its place.
struct Placed<'v> {
    text: Cow<'v, str>,
    quoted: bool,
    place: Place,
}

impl<'v> Placed<'v> {
    fn bare(text: impl Into<Cow<'v, str>>, place: Place) -> Placed<'v> {
        Placed { text: text.into(), quoted: false, place }
    }

    fn quoted(text: impl Into<Cow<'v, str>>, place: Place) -> Placed<'v> {
        Placed { text: text.into(), quoted: true, place }
    }

    fn word(&self) -> Word<'_> {
        Word { text: self.text.as_bytes(), quoted: self.quoted }
    }
}

impl Lower<'_> {
    /// The RDATA that a value says; what is wrong has been recorded if none.
    pub(super) fn rdata(&self, value: &Tree, rtype: u16, place: Place, apex: &Name) -> Option<Box<[u8]>> {
        let value = &*data_of(value);
        if let Tree::Single(scalar) = value
            && scalar.text.split_whitespace().next() == Some(r"\#")
        {
            let line = self.line(&scalar.text, rtype, place)?;
            return self.encode(&line, rtype, place, apex);
        }
        let entries = match value {
            Tree::Map(entries) => &entries[..],
            _ => &[],
        };
        let words = match (form(rtype, |key| entries.iter().any(|(name, _)| name == key)), value) {
            (Form::Texts, Tree::Single(scalar)) => text_words(self.text_in(scalar, place)?, place),
            (Form::Texts, Tree::Map(entries)) => self.string_words(entries, rtype, place)?,
            (Form::Word, Tree::Single(scalar)) => {
                vec![Placed::bare(self.text_in(scalar, place)?, place)]
            }
            (Form::Line, Tree::Single(scalar)) => self.line(self.text_in(scalar, place)?, rtype, place)?,
            (Form::Keys(keys), Tree::Map(entries)) => self.key_words(keys, entries, rtype, place)?,
            (Form::Service, Tree::Map(entries)) => self.service_words(entries, rtype, place)?,
            (form, _) => {
                self.wrong_form(form, value, rtype, place);
                return None;
            }
        };
        self.names_are_right(&words, rtype, apex)?;
        self.encode(&words, rtype, place, apex)
    }

    fn encode(&self, words: &[Placed<'_>], rtype: u16, place: Place, apex: &Name) -> Option<Box<[u8]>> {
        let bare: Vec<Word<'_>> = words.iter().map(Placed::word).collect();
        match rdata::parse(rtype, &bare, apex) {
            // it would be sent as the IPv4 address it holds, and never be asked for
            Ok(wire) if rtype == AAAA && wire.starts_with(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]) => {
                self.not_address(&shown(words), place, false);
                None
            }
            Ok(wire) => Some(wire),
            Err(_) if matches!(rtype, A | AAAA) && words.len() == 1 => {
                self.not_address(&shown(words), place, rtype == A);
                None
            }
            Err(error) => {
                self.not_rdata(error, words, rtype, place);
                None
            }
        }
    }

    fn not_rdata(&self, error: RdataError, words: &[Placed<'_>], rtype: u16, place: Place) {
        let word = error.word.and_then(|word| words.get(word));
        let kind = ProblemKind::NotRdata {
            value: brief(&word.map_or_else(|| shown(words), |word| word.text.to_string())),
            rtype: type_name(rtype).into(),
            why: error.why,
        };
        self.gather.refuse(Spot::Value(word.map_or(place, |word| word.place)), kind, error.instead);
    }

    /// Looks at the words that are names as at every other name.
    fn names_are_right(&self, words: &[Placed<'_>], rtype: u16, apex: &Name) -> Option<()> {
        let parts = rdata::parts(rtype);
        let names = words.iter().zip(parts).filter(|(_, (_, part))| *part == Part::Name);
        let wrong = names.filter(|(word, _)| self.target(&word.text, word.place, apex).is_none()).count();
        (wrong == 0).then_some(())
    }

    /// The words of a text, as a master file has them.
    fn line<'v>(&self, text: &'v str, rtype: u16, place: Place) -> Option<Vec<Placed<'v>>> {
        match rdata::words(text) {
            Ok(words) => {
                let text = |word: &Word<'v>| String::from_utf8_lossy(word.text);
                Some(
                    words
                        .iter()
                        .map(|word| Placed { text: text(word), quoted: word.quoted, place })
                        .collect(),
                )
            }
            Err(error) => {
                self.not_rdata(error, &[Placed::bare(text, place)], rtype, place);
                None
            }
        }
    }

    /// The strings of `{ strings: [ … ] }`, each as it is.
    fn string_words<'v>(
        &self,
        entries: &'v [(String, Branch)],
        rtype: u16,
        place: Place,
    ) -> Option<Vec<Placed<'v>>> {
        self.only_keys(entries, &["strings"], &[], rtype)?;
        let Some((_, strings)) = entries.first() else {
            self.missing(place, &of(rtype), "strings", "write for example `{ strings: [one, two] }`");
            return None;
        };
        let items = match &strings.tree {
            Tree::List(items) => &items[..],
            Tree::Single(_) => std::slice::from_ref(strings),
            Tree::Null | Tree::Map(_) => {
                self.wrong_tree(strings, "a list of texts", "write for example `[one, two]`");
                return None;
            }
        };
        if items.is_empty() {
            self.empty_list(strings.place, "write a string; '' is one, too");
            return None;
        }
        // all of them are looked at, whatever is wrong with one
        let words: Vec<Option<Placed<'v>>> = (items.iter())
            .map(|item| {
                let text = self.text_in(self.single(item)?, item.place)?;
                Some(Placed::quoted(rdata::escaped(text.replace("\\;", ";").as_bytes()), item.place))
            })
            .collect();
        words.into_iter().collect()
    }

    fn key_words<'v>(
        &self,
        keys: &'static [Key],
        entries: &'v [(String, Branch)],
        rtype: u16,
        place: Place,
    ) -> Option<Vec<Placed<'v>>> {
        let names: Vec<&str> = keys.iter().map(|key| key.name).collect();
        let aliases: Vec<&str> = keys.iter().filter_map(|key| key.alias).collect();
        let known = self.only_keys(entries, &names, &aliases, rtype);
        let range = |at: usize| rdata::parts(rtype).get(at).and_then(|(_, part)| part.range());
        let words: Vec<Option<Placed<'v>>> = (keys.iter().enumerate())
            .map(|(at, key)| {
                let scalar = match (self.entry(entries, key), key.default) {
                    (Some(branch), _) => (self.single(branch)?, branch.place),
                    (None, Some(default)) => return Some(Placed::bare(default, place)),
                    (None, None) => {
                        // one that was misspelt is no second problem
                        if known.is_some() {
                            let help = format!("write for example `{}`", example(rtype));
                            self.missing(place, &of(rtype), key.name, &help);
                        }
                        return None;
                    }
                };
                let (scalar, place) = scalar;
                if let Some(range) = range(at) {
                    self.number_in(scalar, place, range)?;
                }
                let text = self.text_in(scalar, place)?;
                Some(Placed { text: text.into(), quoted: key.quoted, place })
            })
            .collect();
        known?;
        words.into_iter().collect()
    }

    /// Priority, target name, and each parameter.
    fn service_words<'v>(
        &self,
        entries: &'v [(String, Branch)],
        rtype: u16,
        place: Place,
    ) -> Option<Vec<Placed<'v>>> {
        const KEYS: [&str; 3] = ["svcpriority", "targetname", "svcparams"];
        let known = self.only_keys(entries, &KEYS, &[], rtype);
        let get = |name: &str| entries.iter().find(|(key, _)| key == name).map(|(_, branch)| branch);
        let mut words = Vec::new();
        let mut wrong = known.is_none();
        for (at, key) in KEYS[..2].iter().enumerate() {
            let Some(branch) = get(key) else {
                if known.is_some() {
                    let help = format!("write for example `{}`", example(rtype));
                    self.missing(place, &of(rtype), key, &help);
                }
                wrong = true;
                continue;
            };
            let range = rdata::parts(rtype)[at].1.range();
            let text = self.single(branch).and_then(|scalar| {
                if let Some(range) = range {
                    self.number_in(scalar, branch.place, range)?;
                }
                self.text_in(scalar, branch.place)
            });
            wrong |= text.is_none();
            words.push(Placed::bare(text.unwrap_or_default(), branch.place));
        }
        let parameters = match get("svcparams").map(|branch| (branch, &branch.tree)) {
            None | Some((_, Tree::Null)) => &[],
            Some((_, Tree::Map(parameters))) => &parameters[..],
            Some((branch, _)) => {
                self.wrong_tree(branch, "a map", "write for example `{ alpn: [h2, h3], port: 8443 }`");
                return None;
            }
        };
        for (name, branch) in parameters {
            let word = self.parameter(name, branch, rtype);
            wrong |= word.is_none();
            words.extend(word);
        }
        (!wrong).then_some(words)
    }

    fn parameter<'v>(&self, name: &'v str, branch: &'v Branch, rtype: u16) -> Option<Placed<'v>> {
        let numbered = name.strip_prefix("key").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()));
        if !SERVICE_KEYS.contains(&name) && !numbered {
            let kind = ProblemKind::UnknownKey { of: "`svcparams`".into(), key: brief(name) };
            let help = match words::nearest(name, SERVICE_KEYS.into_iter()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the keys are: {}, and `key65280` for others", SERVICE_KEYS.join(", ")),
            };
            self.gather.refuse(Spot::Key(branch.place), kind, Some(help));
            return None;
        }
        let value = match &branch.tree {
            Tree::Single(scalar)
                if matches!(name, "no-default-alpn" | "ohttp") && !scalar.text.is_empty() =>
            {
                let kind = ProblemKind::NotRdata {
                    value: format!("{name}: {}", brief(&scalar.text)),
                    rtype: type_name(rtype).into(),
                    why: format!("`{name}` has no value"),
                };
                let help = format!("write `{name}:` with nothing behind it, or take it away");
                self.gather.refuse(Spot::Value(branch.place), kind, Some(help));
                return None;
            }
            Tree::Null => return Some(Placed::bare(name, branch.place)),
            Tree::Single(scalar) => self.text_in(scalar, branch.place)?.to_owned(),
            Tree::List(items) => {
                if items.is_empty() {
                    self.empty_list(branch.place, "write a value, or take the key away");
                    return None;
                }
                let items = items.iter().map(|item| self.text_in(self.single(item)?, item.place));
                items.collect::<Option<Vec<&str>>>()?.join(",")
            }
            Tree::Map(_) => {
                self.wrong_tree(branch, "a value or a list", "write for example `[h2, h3]`");
                return None;
            }
        };
        match value.is_empty() {
            true => Some(Placed::bare(name, branch.place)),
            false => Some(Placed::bare(format!("{name}={value}"), branch.place)),
        }
    }

    /// The value of a key, under the one or the other of its names.
    fn entry<'v>(&self, entries: &'v [(String, Branch)], key: &Key) -> Option<&'v Branch> {
        let get = |name: &str| entries.iter().find(|(key, _)| key == name).map(|(_, branch)| branch);
        let (first, second) = (get(key.name), key.alias.and_then(get));
        if let (Some(one), Some(other), Some(alias)) = (first, second, key.alias) {
            self.gather.refuse_with(
                Spot::Key(other.place),
                ProblemKind::BothKeys { first: key.name.into(), second: alias.into() },
                Some(format!("keep `{}`", key.name)),
                (Spot::Key(one.place), "the other one is here"),
            );
        }
        first.or(second)
    }

    /// Refuses keys that the value of a type hasn't.
    fn only_keys(
        &self,
        entries: &[(String, Branch)],
        names: &[&str],
        aliases: &[&str],
        rtype: u16,
    ) -> Option<()> {
        let mut wrong = false;
        for (key, branch) in entries {
            if names.contains(&key.as_str()) || aliases.contains(&key.as_str()) {
                continue;
            }
            wrong = true;
            let kind = ProblemKind::UnknownKey { of: of(rtype), key: brief(key) };
            let further = FOLLOWING.contains(&rtype).then_some(DEPENDS_ON);
            let names: Vec<&str> = names.iter().copied().chain(further).collect();
            let free = names.iter().copied().filter(|name| !entries.iter().any(|(key, _)| key == name));
            let help = match words::nearest(key, free.clone())
                .or_else(|| words::nearest(key, names.iter().copied()))
            {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the keys are: {}", names.join(", ")),
            };
            self.gather.refuse(Spot::Key(branch.place), kind, Some(help));
        }
        (!wrong).then_some(())
    }

    pub(in super::super) fn single<'v>(&self, branch: &'v Branch) -> Option<&'v Scalar> {
        match &branch.tree {
            Tree::Single(scalar) => Some(scalar),
            Tree::Null => {
                let kind = ProblemKind::NullValue { key: self.gather.key_of(branch.place) };
                let help = "write a value, or take the key away".to_owned();
                self.gather.refuse(Spot::Value(branch.place), kind, Some(help));
                None
            }
            Tree::List(_) | Tree::Map(_) => {
                self.wrong_tree(branch, "a single value", "write one value");
                None
            }
        }
    }

    pub(in super::super) fn wrong_tree(&self, branch: &Branch, expected: &str, help: &str) {
        let kind = ProblemKind::WrongShape { found: found(&branch.tree), expected: expected.into() };
        self.gather.refuse(Spot::Value(branch.place), kind, Some(help.to_owned()));
    }

    /// Refuses a map where a text is due, and the reverse.
    fn wrong_form(&self, form: Form, value: &Tree, rtype: u16, place: Place) {
        let (expected, help) = match (form, value) {
            (Form::Keys(keys), Tree::Single(scalar)) => {
                let help = as_map(keys, &scalar.text, rtype);
                (format!("a map such as `{}`", example(rtype)), help)
            }
            (Form::Keys(_) | Form::Service, _) => (format!("a map such as `{}`", example(rtype)), None),
            (Form::Texts, Tree::List(items)) => {
                let items: Vec<String> = (items.iter())
                    .filter_map(|item| match &item.tree {
                        Tree::Single(scalar) => Some(scalar.text.clone()),
                        _ => None,
                    })
                    .collect();
                let help = format!(
                    "write `{{ strings: [{}] }}` for one record of several strings",
                    items.join(", ")
                );
                ("a text".to_owned(), Some(brief_help(help)))
            }
            (Form::Texts, _) => ("a text".to_owned(), None),
            (Form::Word | Form::Line, Tree::List(_)) => ("one value".to_owned(), None),
            (Form::Word | Form::Line, _) => {
                (format!("the value of a record of type {}", type_name(rtype)), None)
            }
        };
        let help = match (help, form) {
            (None, Form::Word | Form::Line) => Some(format!("write for example `{}`", example(rtype))),
            (help, _) => help,
        };
        self.gather.refuse(
            Spot::Value(place),
            ProblemKind::WrongShape { found: found(value), expected },
            help,
        );
    }
}

/// What a value depends on, as written.
pub(super) fn follows(value: &Tree) -> Option<&Branch> {
    let Tree::Map(entries) = value else { return None };
    entries.iter().find(|(key, _)| key == DEPENDS_ON).map(|(_, branch)| branch)
}

/// A value without what it depends on: its data.
fn data_of(value: &Tree) -> Cow<'_, Tree> {
    match value {
        Tree::Map(entries) if follows(value).is_some() => {
            let data = entries.iter().filter(|(key, _)| key != DEPENDS_ON);
            Cow::Owned(Tree::Map(data.cloned().collect()))
        }
        _ => Cow::Borrowed(value),
    }
}

/// As messages name the value of a type.
fn of(rtype: u16) -> String {
    format!("a value of type {}", type_name(rtype))
}

fn found(tree: &Tree) -> String {
    match tree {
        Tree::Null => "nothing".into(),
        Tree::Single(scalar) => format!("the single value `{}`", brief(&scalar.text)),
        Tree::List(_) => "a list".into(),
        Tree::Map(_) => "a map".into(),
    }
}

fn shown(words: &[Placed<'_>]) -> String {
    words.iter().map(|word| &*word.text).collect::<Vec<_>>().join(" ")
}

fn brief_help(help: String) -> String {
    if help.chars().count() < 120 {
        help
    } else {
        "write `{ strings: [ … ] }` for one record of several strings".into()
    }
}

/// The map that the words of a master file mean, if they mean one.
fn as_map(keys: &[Key], text: &str, rtype: u16) -> Option<String> {
    let words = rdata::words(text).ok()?;
    let root = Name::root();
    let whole = words.len() == keys.len() && rdata::parse(rtype, &words, &root).is_ok();
    // a name alone, where a number comes before it
    let pairs: Vec<(&str, String)> = match &words[..] {
        _ if whole => {
            keys.iter().zip(&words).map(|(key, word)| (key.name, plain(word, key.quoted))).collect()
        }
        [name] if keys.len() == 2 && text.parse::<f64>().is_err() => {
            vec![(keys[0].name, "10".to_owned()), (keys[1].name, plain(name, false))]
        }
        _ => return None,
    };
    let pairs: Vec<String> = pairs.into_iter().map(|(key, value)| format!("{key}: {value}")).collect();
    Some(format!("write `{{ {} }}`", pairs.join(", ")))
}

/// A word as YAML has it.
fn plain(word: &Word<'_>, quoted: bool) -> String {
    let text = brief(&String::from_utf8_lossy(word.text));
    match quoted {
        true => format!("'{}'", text.replace('\'', "''")),
        false => text,
    }
}

/// The strings of a text as OctoDNS has it: quotes around it and between its
/// parts are taken off, `\;` is `;`, and every 255 octets are a string.
fn text_words<'v>(text: &str, place: Place) -> Vec<Placed<'v>> {
    let joined = match text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(inner) => inner.replace("\" \"", ""),
        None => text.to_owned(),
    };
    let octets = joined.replace("\\;", ";").into_bytes();
    if octets.is_empty() {
        return vec![Placed::quoted("", place)];
    }
    octets.chunks(LONGEST_STRING).map(|string| Placed::quoted(rdata::escaped(string), place)).collect()
}
