//! One YAML file → nodes that know their places.
//!
//! A file is read twice: saphyr-parser's events say where everything stands
//! and let nothing slip (a duplicate key, a second document); serde_yaml says
//! what each value is. Laid over each other they make a tree of [`Node`]s.
//!
//! Knows no key of the configuration and no type it is read into.

use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span as Marks};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::place::{Gather, Place, Source, Span, Spot, Stand, Step};
use super::problem::ProblemKind;

/// Deeper nesting has no meaning in a configuration.
const MAX_DEPTH: usize = 32;
const SHALLOWER: &str = "no key of the configuration lies that deep; is a bracket not closed?";
/// How many values aliases may add to those written down.
const MAX_UNFOLDED: usize = 100_000;

/// A value of a file.
#[derive(Debug)]
pub struct Node {
    pub place: Place,
    pub value: Value,
}

/// What a node is.
#[derive(Debug)]
pub enum Value {
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

/// What became of a file.
#[derive(Debug)]
pub enum Parsed {
    Node(Node),
    /// It says nothing.
    Empty,
    /// A problem left nothing to go on with; it is recorded.
    Broken,
}

/// Reads a file's text.
pub fn read(file: usize, gather: &mut Gather) -> Parsed {
    let outline = match outline(file, gather) {
        Ok(Some(outline)) => outline,
        Ok(None) => return Parsed::Empty,
        Err(refusal) => {
            let (span, kind, help) = *refusal;
            gather.refuse_at(file, span, kind, help);
            return Parsed::Broken;
        }
    };
    let values = match serde_yaml::from_str::<Meaning>(&gather.source(file).text) {
        Ok(values) => values,
        Err(error) => {
            let (line, column) = error.location().map_or((1, 1), |at| (at.line(), at.column()));
            let refusal = complaint(&error.to_string(), line, column, gather.source(file));
            let (span, kind, help) = *refusal;
            gather.refuse_at(file, span, kind, help);
            return Parsed::Broken;
        }
    };
    Parsed::Node(unite(&outline, values, None, Step::File(file), None, gather))
}

/// As [`read`], of a file that has to say something.
pub fn read_whole(file: usize, gather: &mut Gather) -> Option<Node> {
    match read(file, gather) {
        Parsed::Node(node) => Some(node),
        Parsed::Empty => {
            refuse_empty(file, gather);
            None
        }
        Parsed::Broken => None,
    }
}

/// Records that a file is empty.
pub fn refuse_empty(file: usize, gather: &Gather) {
    let help = "write a zone, pools or monitors in it, or take it away";
    gather.refuse_file(&gather.source(file).path, ProblemKind::EmptyFile {}, Some(help.into()));
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
    if has("repetition limit") {
        let kind = ProblemKind::AliasBomb { limit: MAX_UNFOLDED };
        return Box::new((span, kind, Some("write the values out, or use fewer aliases of aliases".into())));
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
                let Some(name) = key_text(key, &key_meaning, place, gather) else {
                    gather.tear(place);
                    continue;
                };
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
