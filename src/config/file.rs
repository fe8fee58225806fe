//! One YAML file → nodes that know their places → typed shapes.
//!
//! A file is read twice: saphyr-parser's events say where everything stands
//! and let nothing slip (a duplicate key, a second document); serde_yaml says
//! what each value is. Laid over each other they make a tree of [`Node`]s.
//!
//! [`shape`] reads that tree into serde types and goes on after each error:
//! a value that does not fit is recorded and becomes [`Field::Broken`], a key
//! that does not fit is recorded and left out.
//!
//! Knows no key of the configuration: `shape` and `words` have them.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span as Marks};
use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};

use super::place::{Gather, Place, Source, Span, Spot, Stand, Step};
use super::problem::ProblemKind;
use super::words::{self, Fate};

/// Deeper nesting has no meaning in a configuration.
const MAX_DEPTH: usize = 32;
const SHALLOWER: &str = "no key of the configuration lies that deep; is a bracket not closed?";
/// How many values aliases may add to those written down.
const MAX_UNFOLDED: usize = 100_000;

/// A value of a file.
#[derive(Debug)]
pub struct Node {
    place: Place,
    value: Value,
}

#[derive(Debug)]
enum Value {
    Null,
    Single(Kind, String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

/// What YAML takes a single value for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Boolean,
    Integer,
    Float,
    Text,
}

/// A single value: what it is, and the characters of it. Numbers and truth
/// values keep the form they were written in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scalar {
    pub kind: Kind,
    pub text: String,
}

/// The value of a key or the item of a list, with its place.
#[derive(Debug, Default)]
pub enum Field<T> {
    #[default]
    Absent,
    /// Something is here, and a problem with it has been recorded.
    Broken(Place),
    Given(Place, T),
}

impl<T> Field<T> {
    pub fn get(&self) -> Option<&T> {
        match self {
            Field::Given(_, value) => Some(value),
            _ => None,
        }
    }

    pub fn place(&self) -> Option<Place> {
        match self {
            Field::Absent => None,
            Field::Broken(place) | Field::Given(place, _) => Some(*place),
        }
    }

    pub fn is_absent(&self) -> bool {
        matches!(self, Field::Absent)
    }
}

/// A map with names of the operator's choice, in the order written.
#[derive(Debug)]
pub struct Named<T>(pub Vec<(String, Field<T>)>);

impl<T> Default for Named<T> {
    fn default() -> Named<T> {
        Named(Vec::new())
    }
}

/// A list, or one value that stands for a list of one.
#[derive(Debug)]
pub struct OneOrMany<T>(pub Vec<Field<T>>);

/// A single value, or a map of a known shape.
#[derive(Debug)]
pub enum SingleOrMap<T> {
    Single(Scalar),
    Map(T),
}

/// Reads a file's text; None when a problem left nothing to go on with.
pub fn read(file: usize, gather: &mut Gather) -> Option<Node> {
    let outline = match outline(file, gather) {
        Ok(Some(outline)) => outline,
        Ok(None) => {
            let help = "write a zone, pools or monitors in it, or take it away";
            gather.refuse_file(
                &gather.source(file).path.clone(),
                ProblemKind::EmptyFile {},
                Some(help.into()),
            );
            return None;
        }
        Err(refusal) => {
            let (span, kind, help) = *refusal;
            gather.refuse_at(file, span, kind, help);
            return None;
        }
    };
    let values = match serde_yaml::from_str::<Meaning>(&gather.source(file).text) {
        Ok(values) => values,
        Err(error) => {
            let (line, column) = error.location().map_or((1, 1), |at| (at.line(), at.column()));
            let refusal = complaint(&error.to_string(), line, column, gather.source(file));
            let (span, kind, help) = *refusal;
            gather.refuse_at(file, span, kind, help);
            return None;
        }
    };
    Some(unite(&outline, values, None, Step::File(file), None, gather))
}

type Refusal = Box<(Span, ProblemKind, Option<String>)>;

/// Where everything stands. Aliases share the node they refer to.
struct Outline {
    span: Span,
    form: Form,
    /// Nodes below and this one, aliases unfolded.
    size: usize,
}

enum Form {
    /// With the text as written, quotes taken off.
    Single {
        text: String,
        plain: bool,
    },
    List(Vec<Rc<Outline>>),
    Map(Vec<(Rc<Outline>, Rc<Outline>)>),
}

/// A list or map that isn't finished.
struct Open {
    start: Span,
    anchor: usize,
    map: bool,
    children: Vec<Rc<Outline>>,
    size: usize,
}

fn outline(file: usize, gather: &Gather) -> Result<Option<Rc<Outline>>, Refusal> {
    let source = gather.source(file);
    let mut parser = Parser::new_from_str(&source.text);
    let mut anchors: HashMap<usize, Rc<Outline>> = HashMap::new();
    let mut open: Vec<Open> = Vec::new();
    let mut top: Option<Rc<Outline>> = None;
    let mut documents = 0;
    let mut written = 0;

    while let Some(event) = parser.next_event() {
        let (event, marks) = event.map_err(|error| syntax(&error, source, &open))?;
        let span = span_of(marks);
        written += 1;
        let (node, anchor) = match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => continue,
            Event::DocumentStart(_) => {
                documents += 1;
                if documents > 1 {
                    let help = "put it into a file of its own, or take the line `---` away";
                    return Err(Box::new((span, ProblemKind::SecondDocument {}, Some(help.into()))));
                }
                continue;
            }
            Event::Scalar(_, _, _, Some(tag))
            | Event::SequenceStart(_, Some(tag))
            | Event::MappingStart(_, Some(tag)) => {
                let tag = if tag.is_yaml_core_schema() {
                    format!("!!{}", tag.suffix)
                } else {
                    format!("{}{}", tag.handle, tag.suffix)
                };
                let help = "take the tag away; put a text that looks like a number into quotes";
                return Err(Box::new((span, ProblemKind::Tag { tag }, Some(help.into()))));
            }
            Event::SequenceStart(anchor, None) | Event::MappingStart(anchor, None) => {
                if open.len() == MAX_DEPTH {
                    return Err(Box::new((
                        span,
                        ProblemKind::TooDeep { limit: MAX_DEPTH },
                        Some(SHALLOWER.into()),
                    )));
                }
                let map = matches!(event, Event::MappingStart(..));
                open.push(Open { start: span, anchor, map, children: Vec::new(), size: 1 });
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let done = open.pop().expect("the parser ends only what it began");
                let end = if span.end_line > 0 { span } else { done.start };
                let span = Span { end_line: end.end_line, end_column: end.end_column, ..done.start };
                let form = if done.map {
                    let mut children = done.children.into_iter();
                    let pairs = std::iter::from_fn(|| Some((children.next()?, children.next()?)));
                    Form::Map(pairs.collect())
                } else {
                    Form::List(done.children)
                };
                (Rc::new(Outline { span, form, size: done.size }), done.anchor)
            }
            Event::Scalar(text, style, anchor, None) => {
                let plain = style == ScalarStyle::Plain;
                let form = Form::Single { text: text.into_owned(), plain };
                (Rc::new(Outline { span, form, size: 1 }), anchor)
            }
            Event::Alias(anchor) => {
                let Some(node) = anchors.get(&anchor) else {
                    let what = "an alias within the very value it stands for".into();
                    let help = "write the value out";
                    return Err(Box::new((span, ProblemKind::Syntax { what }, Some(help.into()))));
                };
                (Rc::clone(node), 0)
            }
        };
        if anchor > 0 {
            anchors.insert(anchor, Rc::clone(&node));
        }
        match open.last_mut() {
            Some(parent) => {
                parent.size = parent.size.saturating_add(node.size);
                if parent.size > written + MAX_UNFOLDED {
                    let help = "write the values out, or use fewer aliases of aliases";
                    let kind = ProblemKind::AliasBomb { limit: MAX_UNFOLDED };
                    return Err(Box::new((span, kind, Some(help.into()))));
                }
                parent.children.push(node);
            }
            None => top = Some(node),
        }
    }
    // A file of comments is a document without a value.
    let empty = |node: &Rc<Outline>| match &node.form {
        Form::Single { text, plain } => *plain && (text.is_empty() || text == "~"),
        Form::List(items) => items.is_empty(),
        Form::Map(pairs) => pairs.is_empty(),
    };
    Ok(top.filter(|node| !empty(node)))
}

fn span_of(marks: Marks) -> Span {
    Span {
        line: marks.start.line(),
        column: marks.start.col() + 1,
        end_line: marks.end.line(),
        end_column: marks.end.col() + 1,
    }
}

fn syntax(error: &ScanError, source: &Source, open: &[Open]) -> Refusal {
    let mark = error.marker();
    // A line outside of brackets says that the innermost was never closed.
    if error.info() == "invalid indentation" || error.info().contains("flow construct") {
        let bracket = |span: Span| {
            let found = source.line(span.line).chars().nth(span.column - 1);
            found.filter(|c| matches!(c, '[' | '{')).map(|c| (span, c))
        };
        if let Some((span, found)) = open.iter().rev().find_map(|node| bracket(node.start)) {
            let close = if found == '[' { ']' } else { '}' };
            let what = format!("this `{found}` is never closed");
            let help = format!("write `{close}` where it ends");
            return Box::new((span, ProblemKind::Syntax { what }, Some(help)));
        }
    }
    complaint(error.info(), mark.line().max(1), mark.col() + 1, source)
}

/// A parser's complaint in plain words.
fn complaint(info: &str, line: usize, column: usize, source: &Source) -> Refusal {
    let mut span = Span { line, column, end_line: line, end_column: column + 1 };
    let text = source.line(line);
    let indent: &str = &text[..text.len() - text.trim_start_matches([' ', '\t']).len()];
    if let Some(tab) = indent.find('\t') {
        let span = Span { column: tab + 1, end_column: tab + 2, ..span };
        let help = "indent with spaces, two for each level";
        return Box::new((span, ProblemKind::TabIndentation {}, Some(help.into())));
    }
    let has = |part: &str| info.contains(part);
    if has("simple key expect") && column == 1 {
        // The line before is the one that ends without a colon.
        let above = (1..line).rev().find(|number| !source.line(*number).trim().is_empty());
        if let Some(above) = above {
            let text = source.line(above);
            let column = text.chars().take_while(|c| c.is_whitespace()).count() + 1;
            let end_column = text.trim_end().chars().count() + 1;
            span = Span { line: above, column, end_line: above, end_column };
        }
    }
    let (what, help) = if has("mapping values are not allowed") {
        (
            "a `: ` where no key can begin",
            "is the line above indented differently, or does a text with `: ` want quotes?",
        )
    } else if has("flow construct") || info == "invalid indentation" {
        ("a `[` or `{` above is not closed", "close it with `]` or `}`, and indent what is within")
    } else if has("unexpected end of stream") || has("in quoted scalar") {
        ("a quotation mark is never closed", "close the text with the quotation mark it began with")
    } else if has("block mapping, did not find expected key") {
        ("this line is indented like nothing above it", "keys of one map begin in one column")
    } else if has("simple key expect") {
        ("a key without `: ` after it", "write `key: value`, with a space after the colon")
    } else if has("flow mapping, did not find") {
        ("`,` or `}` is missing", "close the `{` with `}`, and put `, ` between its keys")
    } else if has("flow sequence, expected") {
        ("`,` or `]` is missing", "close the `[` with `]`, and put `, ` between its items")
    } else if has("unknown escape character") {
        (
            "an escape that double quotes don't know",
            "in double quotes write `\\\\` for a backslash, or use single quotes",
        )
    } else if has("unknown anchor") {
        (
            "an alias (`*name`) of an anchor that is not defined above",
            "put a text that begins with `*` into quotes",
        )
    } else if has("anchor or alias") {
        ("`*` or `&` with no name after it", "put a text that begins with `*` or `&` into quotes")
    } else if has("did not find expected node content") || has("unexpected character") {
        (
            "a character that cannot begin a value",
            "put a text that begins with `:`, `@`, `%`, `,` or a backquote into quotes",
        )
    } else if has("recursion limit") {
        return Box::new((span, ProblemKind::TooDeep { limit: MAX_DEPTH }, Some(SHALLOWER.into())));
    } else {
        return Box::new((span, ProblemKind::Syntax { what: info.into() }, None));
    };
    Box::new((span, ProblemKind::Syntax { what: what.into() }, Some(help.into())))
}

/// What serde_yaml takes the values for, duplicates kept.
enum Meaning {
    Null,
    Boolean,
    Integer,
    Float,
    Text,
    List(Vec<Meaning>),
    Map(Vec<(Meaning, Meaning)>),
}

impl<'de> Deserialize<'de> for Meaning {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Meaning, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Meaning;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }
            fn visit_unit<E>(self) -> Result<Meaning, E> {
                Ok(Meaning::Null)
            }
            fn visit_bool<E>(self, _: bool) -> Result<Meaning, E> {
                Ok(Meaning::Boolean)
            }
            fn visit_i64<E>(self, _: i64) -> Result<Meaning, E> {
                Ok(Meaning::Integer)
            }
            fn visit_u64<E>(self, _: u64) -> Result<Meaning, E> {
                Ok(Meaning::Integer)
            }
            fn visit_i128<E>(self, _: i128) -> Result<Meaning, E> {
                Ok(Meaning::Integer)
            }
            fn visit_u128<E>(self, _: u128) -> Result<Meaning, E> {
                Ok(Meaning::Integer)
            }
            fn visit_f64<E>(self, _: f64) -> Result<Meaning, E> {
                Ok(Meaning::Float)
            }
            fn visit_str<E>(self, _: &str) -> Result<Meaning, E> {
                Ok(Meaning::Text)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Meaning, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(Meaning::List(items))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Meaning, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Meaning::Map(pairs))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// Lays the two readings over each other, and refuses keys that cannot be.
fn unite(
    outline: &Outline,
    meaning: Meaning,
    above: Option<Place>,
    step: Step,
    key: Option<Span>,
    gather: &mut Gather,
) -> Node {
    let single = matches!(outline.form, Form::Single { .. });
    let place = gather.add_place(Stand { above, step, key, value: outline.span, single });
    let value = match (&outline.form, meaning) {
        (Form::List(items), Meaning::List(meanings)) => {
            let pairs = items.iter().zip(meanings).enumerate();
            Value::List(
                pairs
                    .map(|(i, (item, meaning))| {
                        unite(item, meaning, Some(place), Step::Index(i), None, gather)
                    })
                    .collect(),
            )
        }
        (Form::Map(pairs), Meaning::Map(meanings)) => {
            let mut entries: Vec<(String, Node)> = Vec::with_capacity(pairs.len());
            let mut seen: HashMap<String, Place> = HashMap::with_capacity(pairs.len());
            for ((key, value), (key_meaning, meaning)) in pairs.iter().zip(meanings) {
                let Some(name) = key_text(key, &key_meaning, place, gather) else { continue };
                let step = Step::Key(name.as_str().into());
                let node = unite(value, meaning, Some(place), step, Some(key.span), gather);
                if let Some(first) = seen.get(&name) {
                    gather.refuse_with(
                        Spot::Key(node.place),
                        ProblemKind::DuplicateKey { key: name },
                        Some("keep one of the two, or give one another name".into()),
                        (Spot::Key(*first), "it stands first here"),
                    );
                    continue;
                }
                seen.insert(name.clone(), node.place);
                entries.push((name, node));
            }
            Value::Map(entries)
        }
        (Form::Single { text, .. }, meaning) => match meaning {
            Meaning::Null => Value::Null,
            Meaning::Boolean => Value::Single(Kind::Boolean, text.clone()),
            Meaning::Integer => Value::Single(Kind::Integer, text.clone()),
            Meaning::Float => Value::Single(Kind::Float, text.clone()),
            Meaning::Text | Meaning::List(_) | Meaning::Map(_) => Value::Single(Kind::Text, text.clone()),
        },
        // Two readers of one grammar; should they ever differ, say so.
        (Form::List(_) | Form::Map(_), _) => {
            let what = "two readers understand this differently".into();
            gather.refuse(Spot::Value(place), ProblemKind::Syntax { what }, None);
            Value::Null
        }
    };
    Node { place, value }
}

fn key_text(key: &Outline, meaning: &Meaning, map: Place, gather: &mut Gather) -> Option<String> {
    let mut refuse = |kind, help: Option<String>| {
        let step = Step::Key("?".into());
        let single = true;
        let stand = Stand { above: Some(map), step, key: Some(key.span), value: key.span, single };
        let place = gather.add_place(stand);
        gather.refuse(Spot::Key(place), kind, help);
        None
    };
    match (&key.form, meaning) {
        (Form::Single { text, plain: true }, _) if text == "<<" => refuse(
            ProblemKind::MergeKey {},
            Some("write the keys out; an alias can still stand for a whole value".into()),
        ),
        (Form::Single { text, .. }, Meaning::Text | Meaning::Integer | Meaning::Float) => Some(text.clone()),
        (Form::Single { text, .. }, Meaning::Boolean) => refuse(
            ProblemKind::OddKey { found: format!("the boolean `{text}`") },
            Some(format!("put it into quotes to make it a text: \"{text}\"")),
        ),
        (Form::Single { text, .. }, _) => refuse(
            ProblemKind::OddKey { found: "null".into() },
            Some(match text.as_str() {
                "" => "write '' for the apex of a zone".into(),
                _ => format!("put it into quotes to make it a text: \"{text}\""),
            }),
        ),
        (Form::List(_), _) => refuse(
            ProblemKind::OddKey { found: "a list".into() },
            Some("put a text with brackets into quotes".into()),
        ),
        (Form::Map(_), _) => refuse(
            ProblemKind::OddKey { found: "a map".into() },
            Some("put a text with braces into quotes".into()),
        ),
    }
}

/// Reads a node into a type; whatever does not fit is recorded.
pub fn shape<'a, T: Deserialize<'a>>(node: &'a Node, gather: &'a Gather) -> Field<T> {
    Field::deserialize(Reader { node, gather, broken: false }).unwrap_or(Field::Broken(node.place))
}

const PLACED: &str = "haledns::Field";
const MANY: &str = "haledns::OneOrMany";
const SCALAR: &str = "haledns::Scalar";
const EITHER: &str = "haledns::SingleOrMap";

#[derive(Clone, Copy)]
struct Reader<'a> {
    node: &'a Node,
    gather: &'a Gather,
    /// A key that was meant to be this one has been recorded.
    broken: bool,
}

/// Why a value didn't fit.
#[derive(Debug)]
enum Misfit {
    /// It has been recorded.
    Recorded,
    /// What is due in its place.
    Due(String),
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Misfit::Recorded => f.write_str("recorded"),
            Misfit::Due(what) => write!(f, "{what} is due"),
        }
    }
}

impl std::error::Error for Misfit {}

impl de::Error for Misfit {
    fn custom<T: fmt::Display>(message: T) -> Misfit {
        Misfit::Due(message.to_string())
    }

    fn invalid_type(_: de::Unexpected<'_>, expected: &dyn de::Expected) -> Misfit {
        Misfit::Due(expected.to_string())
    }
}

impl<'a> Reader<'a> {
    fn wrong_shape(&self, expected: &str) -> Misfit {
        let found = match &self.node.value {
            Value::Null => "nothing".into(),
            Value::Single(_, text) => format!("the single value `{}`", brief(text)),
            Value::List(_) => "a list".into(),
            Value::Map(_) => "a map".into(),
        };
        let help = match (&self.node.value, expected) {
            (Value::Single(_, text), "a list") => Some(format!("write `[{}]`", brief(text))),
            (Value::Map(_), "a list") => Some("begin each item with `- `, or put `[ ]` around".into()),
            (Value::List(_), "a map") => Some("give each item its name as a key: `NAME: …`".into()),
            _ => None,
        };
        let kind = ProblemKind::WrongShape { found, expected: expected.into() };
        self.gather.refuse(Spot::Value(self.node.place), kind, help);
        Misfit::Recorded
    }

    /// What becomes of an entry of a fixed map; what does not fit is recorded.
    fn admit(&self, shape: &str, fields: &'static [&'static str], key: &str, node: &Node) -> Admission {
        let words = words::of(shape);
        let at = Spot::Key(node.place);
        let null = matches!(node.value, Value::Null);
        if fields.contains(&key) {
            return match null && words.null.contains(&key) {
                true => Admission::LeftOut,
                false => Admission::Read,
            };
        }
        let kind = match words.fate(key) {
            Some(Fate::Ignored) => return Admission::LeftOut,
            Some(Fate::Later { harmless, instead }) => {
                if null || is_harmless(node, harmless) {
                    return Admission::LeftOut;
                }
                let kind = ProblemKind::LaterKey { key: key.into() };
                self.gather.refuse(at, kind, (!instead.is_empty()).then(|| instead.to_owned()));
                return Admission::LeftOut;
            }
            Some(Fate::Proxied { harmless, instead }) => {
                if null || is_harmless(node, harmless) {
                    return Admission::LeftOut;
                }
                let kind = ProblemKind::ProxiedKey { key: key.into() };
                self.gather.refuse(at, kind, Some(instead.to_owned()));
                return Admission::LeftOut;
            }
            None => ProblemKind::UnknownKey { of: words.name.into(), key: key.into() },
        };
        let near = words::nearest(key, fields.iter().copied());
        let help = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => {
                let listed: Vec<_> = fields.iter().filter(|f| !words.aliases.contains(f)).copied().collect();
                format!("the keys of {} are: {}", words.name, listed.join(", "))
            }
        };
        self.gather.refuse(at, kind, Some(help));
        near.map_or(Admission::LeftOut, Admission::MeantAs)
    }
}

/// What becomes of an entry of a fixed map.
enum Admission {
    Read,
    LeftOut,
    /// A slip for this key, which therefore isn't missing too.
    MeantAs(&'static str),
}

/// Whether a value says no more than the absence of its key.
fn is_harmless(node: &Node, harmless: &[&str]) -> bool {
    match &node.value {
        Value::Null => true,
        Value::Single(_, text) => text.is_empty() || harmless.contains(&text.as_str()),
        Value::List(items) => items.is_empty(),
        Value::Map(entries) if harmless.is_empty() => entries.is_empty(),
        Value::Map(entries) => entries.iter().all(|(_, node)| is_harmless(node, harmless)),
    }
}

impl Scalar {
    /// As a message shows it: a text that looks like something else in quotes.
    pub fn shown(&self) -> String {
        let text = brief(&self.text);
        let odd = |c: char| c.is_ascii_digit() || c == '-' || c == '.';
        let number = text.chars().all(odd) && (text == "0" || !text.starts_with('0'));
        let word = ["true", "false", "null"].contains(&text.as_str());
        let quoted = self.kind == Kind::Text && (number || word);
        if quoted { format!("`\"{text}\"`") } else { format!("`{text}`") }
    }
}

/// A text cut to what a message can carry.
pub fn brief(text: &str) -> String {
    const MOST: usize = 60;
    let text = text.replace(|c: char| c.is_control(), " ");
    match text.char_indices().nth(MOST) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}

impl<'a> Deserializer<'a> for Reader<'a> {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match &self.node.value {
            Value::Null => visitor.visit_unit(),
            Value::Single(_, text) => visitor.visit_borrowed_str(text),
            Value::List(items) => visitor.visit_seq(Items { items: items.iter(), gather: self.gather }),
            Value::Map(entries) => {
                visitor.visit_map(Entries { entries, next: 0, value: None, reader: self, fixed: None })
            }
        }
    }

    fn deserialize_seq<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match &self.node.value {
            Value::List(_) => self.deserialize_any(visitor),
            _ => Err(self.wrong_shape("a list")),
        }
    }

    fn deserialize_map<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match &self.node.value {
            Value::Map(_) => self.deserialize_any(visitor),
            _ => Err(self.wrong_shape("a map")),
        }
    }

    fn deserialize_struct<V: Visitor<'a>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        match &self.node.value {
            Value::Map(entries) => visitor.visit_map(Entries {
                entries,
                next: 0,
                value: None,
                reader: self,
                fixed: Some((name, fields)),
            }),
            _ => Err(self.wrong_shape(&format!("a map with the keys of {}", words::of(name).name))),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'a>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        match (name, &self.node.value) {
            (PLACED, _) => visitor.visit_seq(Placed { reader: self, next: 0 }),
            (MANY, Value::List(items)) => {
                visitor.visit_seq(Items { items: items.iter(), gather: self.gather })
            }
            (MANY, _) => visitor
                .visit_seq(Items { items: std::slice::from_ref(self.node).iter(), gather: self.gather }),
            (SCALAR, Value::Single(kind, text)) => {
                let parts = [kind_code(*kind).to_string(), text.clone()];
                visitor.visit_seq(de::value::SeqDeserializer::new(parts.into_iter()))
            }
            (SCALAR, _) => Err(self.wrong_shape("a single value")),
            (EITHER, Value::Single(kind, text)) => {
                let parts = [kind_code(*kind).to_string(), text.clone()];
                visitor.visit_seq(de::value::SeqDeserializer::new(parts.into_iter()))
            }
            (EITHER, Value::List(_)) => Err(self.wrong_shape("one value")),
            _ => visitor.visit_newtype_struct(self),
        }
    }

    serde::forward_to_deserialize_any! {
        <V: Visitor<'a>>
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct tuple tuple_struct enum identifier ignored_any
    }
}

struct Items<'a> {
    items: std::slice::Iter<'a, Node>,
    gather: &'a Gather,
}

impl<'a> SeqAccess<'a> for Items<'a> {
    type Error = Misfit;

    fn next_element_seed<S: DeserializeSeed<'a>>(&mut self, seed: S) -> Result<Option<S::Value>, Misfit> {
        let Some(node) = self.items.next() else { return Ok(None) };
        seed.deserialize(Reader { node, gather: self.gather, broken: false }).map(Some)
    }
}

struct Entries<'a> {
    entries: &'a [(String, Node)],
    next: usize,
    value: Option<Reader<'a>>,
    reader: Reader<'a>,
    /// The name and keys of the type that is read, unless names are free.
    fixed: Option<(&'static str, &'static [&'static str])>,
}

impl<'a> MapAccess<'a> for Entries<'a> {
    type Error = Misfit;

    fn next_key_seed<S: DeserializeSeed<'a>>(&mut self, seed: S) -> Result<Option<S::Value>, Misfit> {
        while let Some((key, node)) = self.entries.get(self.next) {
            let before = &self.entries[..self.next];
            self.next += 1;
            let mut reader = Reader { node, broken: false, ..self.reader };
            let mut key = key.as_str();
            if let Some((shape, fields)) = self.fixed {
                match self.reader.admit(shape, fields, key, node) {
                    Admission::Read => {}
                    Admission::LeftOut => continue,
                    Admission::MeantAs(near) => {
                        let is_near = |(other, _): &(String, Node)| {
                            other == near || words::nearest(other, std::iter::once(near)).is_some()
                        };
                        let there = self.entries.iter().any(|(other, _)| other == near);
                        if there || before.iter().any(is_near) {
                            continue;
                        }
                        key = near;
                        reader.broken = true;
                    }
                }
            }
            self.value = Some(reader);
            return seed.deserialize(key.into_deserializer()).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'a>>(&mut self, seed: S) -> Result<S::Value, Misfit> {
        seed.deserialize(self.value.take().expect("serde asks for a value after its key"))
    }
}

/// A node as two elements: its place, then its value.
struct Placed<'a> {
    reader: Reader<'a>,
    next: u8,
}

impl<'a> SeqAccess<'a> for Placed<'a> {
    type Error = Misfit;

    fn next_element_seed<S: DeserializeSeed<'a>>(&mut self, seed: S) -> Result<Option<S::Value>, Misfit> {
        let Reader { node, gather, broken } = self.reader;
        self.next += 1;
        if self.next == 1 {
            return seed.deserialize(node.place.0.into_deserializer()).map(Some);
        }
        if broken {
            return Err(Misfit::Recorded);
        }
        if matches!(node.value, Value::Null) {
            let kind = ProblemKind::NullValue { key: gather.key_of(node.place) };
            let help = "write a value, or take the key away".to_owned();
            gather.refuse(Spot::Value(node.place), kind, Some(help));
            return Err(Misfit::Recorded);
        }
        seed.deserialize(self.reader).map(Some).map_err(|misfit| match misfit {
            Misfit::Recorded => Misfit::Recorded,
            Misfit::Due(expected) => self.reader.wrong_shape(&expected),
        })
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Field<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Field<T>, D::Error> {
        struct Visit<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Visit<T> {
            type Value = Field<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Field<T>, A::Error> {
                let place = seq.next_element()?.map(Place).expect("a place comes first");
                Ok(match seq.next_element() {
                    Ok(Some(value)) => Field::Given(place, value),
                    Ok(None) | Err(_) => Field::Broken(place),
                })
            }
        }
        deserializer.deserialize_newtype_struct(PLACED, Visit(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Named<T>, D::Error> {
        struct Visit<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Visit<T> {
            type Value = Named<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Named<T>, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Named(entries))
            }
        }
        deserializer.deserialize_map(Visit(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OneOrMany<T>, D::Error> {
        struct Visit<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Visit<T> {
            type Value = OneOrMany<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value or a list")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<OneOrMany<T>, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(OneOrMany(items))
            }
        }
        deserializer.deserialize_newtype_struct(MANY, Visit(PhantomData))
    }
}

fn kind_code(kind: Kind) -> char {
    match kind {
        Kind::Boolean => 'b',
        Kind::Integer => 'i',
        Kind::Float => 'f',
        Kind::Text => 't',
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Scalar, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Scalar;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a single value")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Scalar, A::Error> {
                scalar_of(seq)
            }
        }
        deserializer.deserialize_newtype_struct(SCALAR, Visit)
    }
}

fn scalar_of<'de, A: SeqAccess<'de>>(mut parts: A) -> Result<Scalar, A::Error> {
    let kind: Option<String> = parts.next_element()?;
    let text: Option<String> = parts.next_element()?;
    let kind = match kind.as_deref() {
        Some("b") => Kind::Boolean,
        Some("i") => Kind::Integer,
        Some("f") => Kind::Float,
        _ => Kind::Text,
    };
    Ok(Scalar { kind, text: text.unwrap_or_default() })
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for SingleOrMap<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SingleOrMap<T>, D::Error> {
        struct Visit<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Visit<T> {
            type Value = SingleOrMap<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value or a map")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<SingleOrMap<T>, A::Error> {
                scalar_of(seq).map(SingleOrMap::Single)
            }
            fn visit_newtype_struct<D: Deserializer<'de>>(
                self,
                deserializer: D,
            ) -> Result<SingleOrMap<T>, D::Error> {
                T::deserialize(deserializer).map(SingleOrMap::Map)
            }
        }
        deserializer.deserialize_newtype_struct(EITHER, Visit(PhantomData))
    }
}
