//! Nodes → typed shapes, past every problem.
//!
//! serde's types say which keys there are. [`shape`] goes on after each error:
//! a value that does not fit is recorded and becomes [`Field::Broken`], a key
//! that does not fit is recorded and left out.
//!
//! Knows no key of the configuration: `shape` and `words` have them.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};

use super::file::{Kind, Node, Value};
use super::place::{Gather, Place, Spot};
use super::problem::ProblemKind;
use super::words::{self, Fate};

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

/// A value of any shape, each part of it with its place.
#[derive(Clone, Debug)]
pub enum Tree {
    Null,
    Single(Scalar),
    List(Vec<Branch>),
    Map(Vec<(String, Branch)>),
}

/// A part of a [`Tree`].
#[derive(Clone, Debug)]
pub struct Branch {
    pub place: Place,
    pub tree: Tree,
}

/// Reads a node into a type; whatever does not fit is recorded.
pub fn shape<'a, T: Deserialize<'a>>(node: &'a Node, gather: &'a Gather) -> Field<T> {
    Field::deserialize(Reader { node, gather, broken: false }).unwrap_or(Field::Broken(node.place))
}

const PLACED: &str = "haledns::Field";
const MANY: &str = "haledns::OneOrMany";
const SCALAR: &str = "haledns::Scalar";
const EITHER: &str = "haledns::SingleOrMap";
const TREE: &str = "haledns::Tree";
const BRANCH: &str = "haledns::Branch";

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
            (Value::Single(_, text), "a list") if self.gather.key_of(self.node.place) == "command" => {
                // no shell takes it apart
                let words: Vec<&str> = text.split_whitespace().collect();
                Some(format!("write `[{}]`", brief(&words.join(", "))))
            }
            (Value::Single(_, text), "a list") => Some(format!("write `[{}]`", brief(text))),
            (Value::Single(_, text), "a map") => {
                let pair = text.split_once(':').filter(|(key, _)| !key.trim().is_empty());
                pair.map(|(key, value)| {
                    format!("write `{{ {}: {} }}`", brief(key.trim()), brief(value.trim()))
                })
            }
            (Value::Single(_, text), _) => words::wrapped_in(&self.gather.key_of(self.node.place))
                .map(|key| format!("write `{{ {key}: {} }}`", brief(text))),
            (Value::List(items), "a single value") => match &items[..] {
                [Node { value: Value::Single(_, text), .. }] => Some(format!("write `{}`", brief(text))),
                [] | [_] => None,
                _ => Some(words::one_of_several(&self.gather.key_of(self.node.place)).into()),
            },
            (Value::Map(_), "a single value") => words::apart(&self.gather.key_of(self.node.place)),
            (Value::Map(_), "a list") => Some("begin each item with `- `, or put `[ ]` around".into()),
            (Value::List(items), "a map") if !items.is_empty() => {
                match items.iter().map(pair).collect::<Option<Vec<_>>>() {
                    Some(pairs) if words::is_of_pairs(&self.gather.key_of(self.node.place)) => {
                        Some(format!("write `{{ {} }}`", brief(&pairs.join(", "))))
                    }
                    _ => Some("give each item its name as a key: `NAME: …`".into()),
                }
            }
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
            Some(Fate::Elsewhere { instead }) => {
                let kind = ProblemKind::UnknownKey { of: words.name.into(), key: key.into() };
                self.gather.refuse(at, kind, Some(instead.to_owned()));
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

/// A map of one key with a single value, without its braces.
fn pair(node: &Node) -> Option<String> {
    let Value::Map(entries) = &node.value else { return None };
    let [(key, Node { value: Value::Single(_, text), .. })] = &entries[..] else { return None };
    Some(format!("{key}: {text}"))
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
            (PLACED, _) => visitor.visit_seq(Placed { reader: self, next: 0, nullable: false }),
            (BRANCH, _) => visitor.visit_seq(Placed { reader: self, next: 0, nullable: true }),
            (TREE, Value::Single(kind, text)) => visitor.visit_str(&format!("{}{text}", kind_code(*kind))),
            (TREE, _) => self.deserialize_any(visitor),
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
                            self.reader.gather.tear(self.reader.node.place);
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
    /// Null is a value, too.
    nullable: bool,
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
        if !self.nullable && matches!(node.value, Value::Null) {
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

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tree, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Tree;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }
            fn visit_unit<E>(self) -> Result<Tree, E> {
                Ok(Tree::Null)
            }
            // its kind, then what is written
            fn visit_str<E>(self, text: &str) -> Result<Tree, E> {
                let (kind, text) = text.split_at_checked(1).unwrap_or_default();
                Ok(Tree::Single(Scalar { kind: kind_of(kind), text: text.to_owned() }))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Tree, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(Tree::List(items))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Tree::Map(entries))
            }
        }
        deserializer.deserialize_newtype_struct(TREE, Visit)
    }
}

impl<'de> Deserialize<'de> for Branch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Branch, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Branch;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Branch, A::Error> {
                let place = seq.next_element()?.map(Place).expect("a place comes first");
                let tree = seq.next_element()?.expect("a tree has any shape");
                Ok(Branch { place, tree })
            }
        }
        deserializer.deserialize_newtype_struct(BRANCH, Visit)
    }
}

fn kind_of(code: &str) -> Kind {
    match code {
        "b" => Kind::Boolean,
        "i" => Kind::Integer,
        "f" => Kind::Float,
        _ => Kind::Text,
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
    let kind = kind_of(kind.as_deref().unwrap_or_default());
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
