//! Where every key and value stands, and the problems found so far.
//!
//! A [`Place`] is one node of one file. It knows the node above it, so that a
//! path such as `pools.eu.endpoints[2]` is made only when it is shown.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::allow;
use super::find::look;
use super::problem::{Also, Excerpt, Look, Problem, ProblemKind, Severity};

/// A node of a file: a value and, in a map, its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(pub u32);

/// What of a place is meant.
#[derive(Clone, Copy, Debug)]
pub enum Spot {
    Key(Place),
    Value(Place),
}

/// From one character up to another; lines and columns from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub line: usize,
    pub column: usize,
    pub end_line: usize,
    pub end_column: usize,
}

/// How a node is reached from the one above.
#[derive(Clone, Debug)]
pub enum Step {
    /// The top of a file.
    File(usize),
    Key(Box<str>),
    Index(usize),
}

/// All that is known of one place.
#[derive(Debug)]
pub struct Stand {
    pub above: Option<Place>,
    pub step: Step,
    pub key: Option<Span>,
    pub value: Span,
    /// A single value, not a list or map.
    pub single: bool,
}

/// One file as it was read.
#[derive(Debug)]
pub struct Source {
    pub path: PathBuf,
    pub text: String,
    /// What a comment begins with.
    pub comment: char,
    /// Octet offsets of the lines' beginnings.
    lines: Vec<usize>,
}

impl Source {
    /// Takes in a YAML file's text.
    pub fn new(path: PathBuf, text: String) -> Source {
        Source::with(path, text, '#')
    }

    /// Takes in a master file's text.
    pub fn master(path: PathBuf, text: String) -> Source {
        Source::with(path, text, ';')
    }

    fn with(path: PathBuf, text: String, comment: char) -> Source {
        let breaks = text.bytes().enumerate().filter(|(_, octet)| *octet == b'\n');
        let lines = std::iter::once(0).chain(breaks.map(|(i, _)| i + 1)).collect();
        Source { path, text, comment, lines }
    }

    /// The line with this number, without its end; empty when there is none.
    pub fn line(&self, number: usize) -> &str {
        let Some(&start) = number.checked_sub(1).and_then(|i| self.lines.get(i)) else { return "" };
        let end = self.lines.get(number).map_or(self.text.len(), |next| next - 1);
        self.text[start..end].trim_end_matches('\r')
    }
}

/// The files, the places in them, and what was found wrong.
#[derive(Debug, Default)]
pub struct Gather {
    sources: Vec<Source>,
    stands: Vec<Stand>,
    problems: RefCell<Vec<Found>>,
    /// Maps of which a key couldn't be read.
    torn: RefCell<BTreeSet<Place>>,
    /// A file couldn't be read.
    partial: Cell<bool>,
    /// Files that are named, and what could be seen of each before it was read.
    looks: RefCell<BTreeMap<PathBuf, u64>>,
}

/// A problem, with what decides its place in the report.
#[derive(Debug)]
struct Found {
    /// Of a file as a whole; these come first.
    whole: bool,
    file: usize,
    problem: Problem,
}

impl Gather {
    /// Takes in a file; the number is for [`Step::File`].
    pub fn add_source(&mut self, source: Source) -> usize {
        self.sources.push(source);
        self.sources.len() - 1
    }

    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    pub fn source(&self, file: usize) -> &Source {
        &self.sources[file]
    }

    pub fn add_place(&mut self, stand: Stand) -> Place {
        self.stands.push(stand);
        Place(u32::try_from(self.stands.len() - 1).expect("file sizes are capped far below 2^32 nodes"))
    }

    /// The file a place is in.
    pub fn path(&self, place: Place) -> &Path {
        &self.sources[self.file_of(place)].path
    }

    /// The directory of the file a place is in.
    pub fn directory(&self, place: Place) -> &Path {
        self.path(place).parent().unwrap_or(Path::new(""))
    }

    /// Where something is written: file, line and column.
    pub fn written_at(&self, spot: Spot) -> String {
        let (file, span, _) = self.locate(spot);
        format!("{}:{}:{}", self.sources[file].path.display(), span.line, span.column)
    }

    /// The last step to a place, as shown in messages.
    pub fn key_of(&self, place: Place) -> String {
        let stand = self.stand(place);
        match &stand.step {
            Step::Key(key) => key.to_string(),
            Step::Index(i) => match stand.above {
                Some(above) => format!("{}[{i}]", self.key_of(above)),
                None => format!("[{i}]"),
            },
            Step::File(_) => "the file".into(),
        }
    }

    /// Records an error.
    pub fn refuse(&self, spot: Spot, kind: ProblemKind, help: impl Into<Option<String>>) {
        self.record(Severity::Error, spot, kind, help.into(), None);
    }

    /// Records an error that two places have part in.
    pub fn refuse_with(
        &self,
        spot: Spot,
        kind: ProblemKind,
        help: impl Into<Option<String>>,
        also: (Spot, &'static str),
    ) {
        self.record(Severity::Error, spot, kind, help.into(), Some(also));
    }

    /// Records a lint at a place that no node stands for.
    pub fn warn_at(&self, file: usize, span: Span, kind: ProblemKind, help: String) {
        self.refuse_at(file, span, kind, Some(help));
        if let Some(found) = self.problems.borrow_mut().last_mut() {
            found.whole = false;
            found.problem.severity = Severity::Warning;
        }
    }

    /// Records a lint, unless what couldn't be read may have the answer to it.
    pub fn warn(
        &self,
        spot: Spot,
        kind: ProblemKind,
        help: impl Into<Option<String>>,
        also: Option<(Spot, &'static str)>,
    ) {
        if !self.is_partial() {
            self.record(Severity::Warning, spot, kind, help.into(), also);
        }
    }

    /// Records an error at a place that no node stands for.
    pub fn refuse_at(&self, file: usize, span: Span, kind: ProblemKind, help: impl Into<Option<String>>) {
        let problem = Problem {
            severity: Severity::Error,
            file: self.sources[file].path.clone(),
            line: span.line,
            column: span.column,
            place: String::new(),
            kind,
            help: help.into(),
            also: None,
            excerpt: self.excerpt(file, span),
        };
        self.problems.borrow_mut().push(Found { whole: true, file, problem });
    }

    /// Records an error of a file or directory as a whole.
    pub fn refuse_file(&self, path: &Path, kind: ProblemKind, help: impl Into<Option<String>>) {
        let file = self.sources.iter().position(|source| source.path == path);
        let problem = Problem {
            severity: Severity::Error,
            file: path.into(),
            line: 0,
            column: 0,
            place: String::new(),
            kind,
            help: help.into(),
            also: None,
            excerpt: None,
        };
        let file = file.unwrap_or(usize::MAX);
        self.problems.borrow_mut().push(Found { whole: true, file, problem });
    }

    /// Takes back what was recorded of a file.
    pub fn forget(&self, file: usize) {
        self.problems.borrow_mut().retain(|found| found.file != file);
    }

    /// To be called before a file is read that the configuration names, so that a
    /// change of it is noticed.
    pub fn look_at(&self, path: &Path) {
        self.looks.borrow_mut().entry(path.to_owned()).or_insert_with(|| look(path));
    }

    /// What was looked at so far.
    pub fn looks(&self) -> Vec<Look> {
        let looks = self.looks.borrow();
        looks.iter().map(|(path, seen)| Look { path: path.clone(), seen: *seen }).collect()
    }

    /// Remembers that a file couldn't be read, so that absence proves nothing.
    pub fn set_partial(&self) {
        self.partial.set(true);
    }

    pub fn is_partial(&self) -> bool {
        self.partial.get()
    }

    /// Remembers that a key of this map couldn't be read.
    pub fn tear(&self, map: Place) {
        self.torn.borrow_mut().insert(map);
    }

    pub fn is_torn(&self, map: Place) -> bool {
        self.torn.borrow().contains(&map)
    }

    pub fn has_problems(&self) -> bool {
        !self.problems.borrow().is_empty()
    }

    /// Whether there is an error that may leave its mark on the rest. What is wrong
    /// with the server's certificate doesn't.
    pub fn has_errors(&self) -> bool {
        let marks = |problem: &Problem| {
            problem.severity == Severity::Error && !problem.kind.is_of_server_certificate()
        };
        self.problems.borrow().iter().any(|found| marks(&found.problem))
    }

    /// All problems: of whole files first, then in the order of the files.
    /// Lints that are allowed, for all or at their line, are left out.
    pub fn into_problems(self, allowed: &BTreeSet<String>) -> Vec<Problem> {
        let mut all = self.problems.into_inner();
        all.retain(|Found { file, problem, .. }| {
            let id = problem.kind.id();
            let here = || self.sources.get(*file).is_some_and(|source| allow::at(source, problem.line, id));
            problem.severity == Severity::Error || !(allowed.contains(id) || here())
        });
        let order = |found: &Found| {
            let problem = &found.problem;
            (!found.whole, found.file, problem.line, problem.column, problem.severity as u8)
        };
        all.sort_by_key(order);
        // A value that aliases repeat is one problem, as is a path given twice.
        all.dedup_by(|b, a| {
            let (a, b) = (&a.problem, &b.problem);
            (a.line, a.column, &a.kind, &a.file) == (b.line, b.column, &b.kind, &b.file)
        });
        all.into_iter().map(|found| found.problem).collect()
    }

    fn record(
        &self,
        severity: Severity,
        spot: Spot,
        kind: ProblemKind,
        help: Option<String>,
        also: Option<(Spot, &'static str)>,
    ) {
        let (file, span, place) = self.locate(spot);
        let also = also.map(|(spot, label)| {
            let (file, span, _) = self.locate(spot);
            Also {
                file: self.sources[file].path.clone(),
                line: span.line,
                column: span.column,
                label,
                excerpt: self.excerpt(file, span),
            }
        });
        let problem = Problem {
            severity,
            file: self.sources[file].path.clone(),
            line: span.line,
            column: span.column,
            place,
            kind,
            help,
            also,
            excerpt: self.excerpt(file, span),
        };
        self.problems.borrow_mut().push(Found { whole: false, file, problem });
    }

    fn locate(&self, spot: Spot) -> (usize, Span, String) {
        let (Spot::Key(place) | Spot::Value(place)) = spot;
        let stand = self.stand(place);
        let span = match (spot, stand.key) {
            (Spot::Key(_), Some(key)) => key,
            (Spot::Value(_), Some(key)) if !stand.single && stand.value.line != stand.value.end_line => key,
            _ => stand.value,
        };
        (self.file_of(place), span, self.path_of(place))
    }

    fn path_of(&self, place: Place) -> String {
        let stand = self.stand(place);
        let mut path = stand.above.map(|above| self.path_of(above)).unwrap_or_default();
        match &stand.step {
            Step::File(_) => {}
            Step::Index(i) => path += &format!("[{i}]"),
            Step::Key(key) => {
                if !path.is_empty() {
                    path.push('.');
                }
                if key.is_empty() || key.contains(|c: char| ".[]' ".contains(c)) {
                    path += &format!("'{}'", key.replace('\'', "''"));
                } else {
                    path += key;
                }
            }
        }
        path
    }

    fn file_of(&self, mut place: Place) -> usize {
        loop {
            let stand = self.stand(place);
            match (&stand.step, stand.above) {
                (Step::File(file), _) => return *file,
                (_, Some(above)) => place = above,
                (_, None) => unreachable!("only the top of a file has nothing above"),
            }
        }
    }

    fn stand(&self, place: Place) -> &Stand {
        &self.stands[place.0 as usize]
    }

    fn excerpt(&self, file: usize, span: Span) -> Option<Excerpt> {
        const AROUND: usize = 100;
        if span.line == 0 {
            return None;
        }
        let line = self.sources[file].line(span.line);
        let skipped = if span.column > 2 * AROUND { span.column - 1 - AROUND } else { 0 };
        let text: String = line.chars().skip(skipped).take(4 * AROUND).collect();
        let octet = |column: usize| {
            let characters = column.saturating_sub(1 + skipped);
            text.char_indices().nth(characters).map_or(text.len(), |(i, _)| i)
        };
        let start = octet(span.column);
        let end = if span.end_line == span.line { octet(span.end_column) } else { text.len() };
        let meant = text.get(start..end).unwrap_or_default().trim_end();
        Some(Excerpt { span: start..start + meant.len(), text })
    }
}
