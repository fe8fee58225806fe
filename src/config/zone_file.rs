//! The files that `zone_file` names: master files, and OctoDNS's YAML.
//!
//! Owns which files these are, how they are found and looked at, and where in
//! them each record stands. A YAML file that some zone names is no
//! configuration, wherever it lies.
//!
//! What the records of both formats mean together is `lower`'s.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use super::file::{self, Kind, Node, Parsed, Value};
use super::find::true_path;
use super::lower::{PROVIDER_TYPES, name_help};
use super::place::{Gather, Place, Source, Span, Spot, Stand, Step};
use super::problem::ProblemKind;
use super::reader::{self, Field, Scalar, brief};
use super::{MAX_FILE, shape, words};
use crate::master::{self, At, Entry, Fault, Include, Refused, What};
use crate::model::Name;
use crate::os::read_regular;
use crate::rdata::{self, rtype, type_name};

/// So many lints of one kind are told of one file.
const MAX_LINTS: usize = 20;

/// What zones' files hold, by the place of the name of each.
#[derive(Default)]
pub struct ZoneFiles {
    named: BTreeSet<PathBuf>,
    /// Those among the files of the configuration.
    claimed: BTreeMap<PathBuf, (usize, Parsed)>,
    held: RefCell<BTreeMap<Place, Held>>,
    paths: Vec<PathBuf>,
}

/// What one file holds.
pub enum Held {
    Master(Master),
    Octodns(Field<shape::Records>),
    /// It couldn't be read, which is recorded.
    Unread,
}

/// What a master file holds.
pub struct Master {
    pub sets: BTreeMap<(Name, u16), Rrset>,
    pub soa: Option<Soa>,
    /// All of it could be read.
    pub whole: bool,
}

/// An RRset of a master file.
pub struct Rrset {
    pub place: Place,
    /// None: nothing in the file says it.
    pub ttl: Option<u32>,
    pub values: Vec<(Box<[u8]>, Place)>,
}

/// The SOA of a master file.
#[derive(Clone, Debug)]
pub struct Soa {
    pub ttl: Option<u32>,
    pub mname: Box<[u8]>,
    pub rname: Box<[u8]>,
    pub serial: u32,
    pub refresh: u32,
    pub retry: u32,
    pub expire: u32,
    pub minimum: u32,
}

/// A file to be read.
struct Wanted {
    place: Place,
    path: PathBuf,
    apex: Option<Name>,
    octodns: bool,
}

impl ZoneFiles {
    /// Finds out which files are named, before any is taken for configuration.
    pub fn named(parsed: &[(usize, Parsed)], gather: &Gather) -> ZoneFiles {
        let mut named = BTreeSet::new();
        for (file, parsed) in parsed {
            let source = gather.source(*file);
            let beside = source.path.parent().unwrap_or(Path::new(""));
            let texts = match parsed {
                Parsed::Node(node) => names_in(node),
                Parsed::Empty => Vec::new(),
                // what it names shall not be reported as a configuration gone wrong
                Parsed::Broken => names_in_text(&source.text),
            };
            let itself = true_path(&source.path);
            let others = texts.iter().map(|text| true_path(&beside.join(text)));
            named.extend(others.filter(|path| *path != itself));
        }
        ZoneFiles { named, ..ZoneFiles::default() }
    }

    /// Keeps a file that a zone names; gives back what is configuration.
    pub fn claim(&mut self, file: usize, parsed: Parsed, gather: &Gather) -> Option<Parsed> {
        let path = true_path(&gather.source(file).path);
        if !self.named.contains(&path) {
            return Some(parsed);
        }
        self.claimed.insert(path, (file, parsed));
        None
    }

    /// Reads them all; whether each could be read.
    pub fn read_all(&mut self, files: &[Field<shape::File>], gather: &mut Gather) -> bool {
        let mut complete = true;
        for wanted in wanted(files, gather) {
            let (place, held) = (wanted.place, self.read(&wanted, gather));
            complete &= !matches!(held, Held::Unread);
            self.held.borrow_mut().insert(place, held);
        }
        complete
    }

    /// Hands out what the file named at `place` holds.
    pub fn take(&self, place: Place) -> Option<Held> {
        self.held.borrow_mut().remove(&place)
    }

    /// The files that were read, or could not be, in their order.
    pub fn into_paths(self) -> Vec<PathBuf> {
        let mut known = BTreeSet::new();
        let mut paths = self.paths;
        paths.retain(|path| known.insert(path.clone()));
        paths
    }

    fn read(&mut self, wanted: &Wanted, gather: &mut Gather) -> Held {
        let path = &wanted.path;
        gather.look_at(path);
        self.paths.push(path.clone());
        if true_path(path) == true_path(gather.path(wanted.place)) {
            let help = "write the records under `records` if they shall be in this file".to_owned();
            return refuse(wanted, "it is the file that names it", Some(help), gather);
        }
        match self.claimed.get(&true_path(path)) {
            Some((_, parsed)) if wanted.octodns => return octodns(parsed, wanted, gather),
            Some((file, _)) => gather.forget(*file), // it was never meant to be YAML
            None => {}
        }
        let octets = match octets(path) {
            Ok(octets) => octets,
            Err((why, help)) => return refuse(wanted, &why, help, gather),
        };
        if wanted.octodns {
            let Some(file) = super::decode(path.clone(), octets, gather) else { return Held::Unread };
            let parsed = file::read(file, gather);
            return octodns(&parsed, wanted, gather);
        }
        // without a name that could be read, nothing can be relative to it
        let Some(apex) = &wanted.apex else { return Held::Unread };
        self.master(path, &octets, apex, gather)
    }

    fn master(&mut self, path: &Path, octets: &[u8], apex: &Name, gather: &mut Gather) -> Held {
        let mut files = vec![(source(path, octets, gather), path.to_owned())];
        let paths = &mut self.paths;
        let zone = master::read(octets, apex, |include| {
            let (path, octets) = included(include, &files, paths, gather)?;
            files.push((source(&path, &octets, gather), path));
            Ok(octets)
        });
        let numbers: Vec<usize> = files.into_iter().map(|(number, _)| number).collect();
        let mut gathering = Gathering { gather, files: numbers, apex, told: HashMap::new() };
        let whole = zone.faults.iter().all(Fault::is_lint);
        for fault in zone.faults {
            gathering.tell(fault);
        }
        let sets = gathering.sets(zone.entries);
        let soa = zone.soa.map(|entry| gathering.soa(&entry));
        Held::Master(Master { sets, soa, whole })
    }
}

/// The files that zones name, with what is known of the zones.
fn wanted(files: &[Field<shape::File>], gather: &Gather) -> Vec<Wanted> {
    let mut all = Vec::new();
    let mut add = |name: &str, file: &Field<Scalar>, format: &Field<Scalar>| {
        let Field::Given(place, text) = file else { return };
        if text.kind == Kind::Boolean || text.text.is_empty() {
            return;
        }
        let path = gather.directory(*place).join(&text.text);
        let yaml = path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
        let octodns = format.get().map_or(yaml, |format| match format.text.as_str() {
            "octodns" => true,
            "master" => false,
            _ => yaml,
        });
        all.push(Wanted {
            place: *place,
            path,
            apex: name.parse().ok().filter(|_| !name.is_empty()),
            octodns,
        });
    };
    for file in files.iter().filter_map(Field::get) {
        let name = file.zone.get().map_or("", |name| name.text.as_str());
        add(name, &file.zone_file, &file.format);
        for (name, zone) in file.zones.get().map(|zones| &zones.0[..]).unwrap_or_default() {
            if let Some(zone) = zone.get() {
                add(name, &zone.zone_file, &zone.format);
            }
        }
    }
    all
}

/// The values of `zone_file` in a file of the configuration.
fn names_in(node: &Node) -> Vec<String> {
    let Value::Map(entries) = &node.value else { return Vec::new() };
    let single = |key: &str, node: &Node| match &node.value {
        Value::Single(Kind::Text, text) if key == "zone_file" => Some(text.clone()),
        _ => None,
    };
    let mut names: Vec<String> = entries.iter().filter_map(|(key, node)| single(key, node)).collect();
    for (_, zones) in entries.iter().filter(|(key, _)| key == "zones") {
        let Value::Map(zones) = &zones.value else { continue };
        for (_, zone) in zones {
            let Value::Map(keys) = &zone.value else { continue };
            names.extend(keys.iter().filter_map(|(key, node)| single(key, node)));
        }
    }
    names
}

/// The same of a file that is not YAML, as far as it can be seen.
fn names_in_text(text: &str) -> Vec<String> {
    let after_key = text.lines().filter_map(|line| line.split_once("zone_file:"));
    after_key
        .map(|(_, value)| {
            let value = value.split(" #").next().unwrap_or_default();
            let value = value.split([',', '}']).next().unwrap_or_default();
            value.trim().trim_matches(['"', '\'']).to_owned()
        })
        .collect()
}

fn refuse(wanted: &Wanted, why: &str, help: Option<String>, gather: &Gather) -> Held {
    let kind = ProblemKind::ZoneFile { path: wanted.path.display().to_string(), why: why.into() };
    gather.refuse(Spot::Value(wanted.place), kind, help);
    Held::Unread
}

/// A file's octets; else why there are none, and what to do.
fn octets(path: &Path) -> Result<Vec<u8>, (String, Option<String>)> {
    let readable = "see that the user who runs this may read it".to_owned();
    let data = fs::metadata(path).map_err(|error| {
        let help = match error.kind() {
            std::io::ErrorKind::NotFound => {
                "a path is relative to the file in which it is written".to_owned()
            }
            _ => readable.clone(),
        };
        (error.to_string(), Some(help))
    })?;
    if !data.is_file() {
        // a pipe or a device lets its reader wait, for ever perhaps
        let why = if data.is_dir() { "it is a directory" } else { "it is no regular file" };
        return Err((why.into(), Some("give the path of a file".into())));
    }
    if data.len() > MAX_FILE {
        let why = format!("it has {} octets, and at most {MAX_FILE} are read", data.len());
        return Err((why, Some("split it into several files, and put them together by `$INCLUDE`".into())));
    }
    // it may have become a pipe's name since
    read_regular(path, MAX_FILE).map_err(|error| (error.to_string(), Some(readable)))
}

/// Takes in a master file's text; octets that are not UTF-8 are shown as such.
fn source(path: &Path, octets: &[u8], gather: &mut Gather) -> usize {
    let text = octets.strip_prefix("\u{feff}".as_bytes()).unwrap_or(octets);
    gather.add_source(Source::master(path.into(), String::from_utf8_lossy(text).into_owned()))
}

/// The file that an `$INCLUDE` names, which is relative to the one it stands in.
fn included(
    include: Include<'_>,
    files: &[(usize, PathBuf)],
    paths: &mut Vec<PathBuf>,
    gather: &Gather,
) -> Result<(PathBuf, Vec<u8>), Refused> {
    let open = || include.open.iter().map(|number| &files[*number as usize].1);
    let from = open().next_back().expect("the file with the directive is open");
    let path = from.parent().unwrap_or(Path::new("")).join(include.name);
    gather.look_at(&path);
    paths.push(path.clone());
    let itself = true_path(&path);
    if let Some(first) = open().position(|open| true_path(open) == itself) {
        let chain: Vec<String> =
            open().skip(first).chain([&path]).map(|path| path.display().to_string()).collect();
        let why = format!("the files include each other in a circle: {}", chain.join(" → "));
        return Err(Refused { why, instead: Some("take the directive away in one of them".into()) });
    }
    let octets = octets(&path).map_err(|(why, instead)| {
        let why = format!("`{}`: {why}", path.display());
        Refused { why, instead }
    })?;
    Ok((path, octets))
}

/// What OctoDNS's file holds.
fn octodns(parsed: &Parsed, wanted: &Wanted, gather: &Gather) -> Held {
    match parsed {
        Parsed::Node(node) => Held::Octodns(reader::shape(node, gather)),
        Parsed::Empty => Held::Octodns(Field::Given(wanted.place, shape::Records::default())),
        Parsed::Broken => Held::Unread,
    }
}

/// What is known of an RRset with several records.
struct Several {
    /// Where each stands.
    listed: HashMap<Box<[u8]>, Place>,
    ttls_differ: bool,
}

/// Entries → RRsets with places.
struct Gathering<'a> {
    gather: &'a mut Gather,
    /// The sources of the files, in the order in which they were opened.
    files: Vec<usize>,
    apex: &'a Name,
    /// How many lints of a kind were told.
    told: HashMap<&'static str, usize>,
}

impl Gathering<'_> {
    fn place(&mut self, at: At) -> Place {
        let value = Span {
            line: at.line as usize,
            column: at.column as usize,
            end_line: at.line as usize,
            end_column: at.end_column as usize,
        };
        let step = Step::File(self.files[at.file as usize]);
        self.gather.add_place(Stand { above: None, step, key: None, value, single: true })
    }

    fn tell(&mut self, fault: Fault) {
        let lint = fault.is_lint();
        let spot = Spot::Value(self.place(fault.at));
        let also = fault.also.map(|(at, label)| (Spot::Value(self.place(at)), label));
        let (kind, help) = kind(fault.what, fault.instead);
        match (lint, also) {
            (true, also) => self.gather.warn(spot, kind, help, also),
            (false, None) => self.gather.refuse(spot, kind, help),
            (false, Some(also)) => self.gather.refuse_with(spot, kind, help, also),
        }
    }

    /// A lint of which a whole file may be full.
    fn warn(&mut self, place: Place, kind: ProblemKind, help: &str, also: Option<(Place, &'static str)>) {
        let told = self.told.entry(kind.id()).or_default();
        *told += 1;
        if *told <= MAX_LINTS {
            let also = also.map(|(place, label)| (Spot::Value(place), label));
            self.gather.warn(Spot::Value(place), kind, Some(help.to_owned()), also);
        }
    }

    fn sets(&mut self, entries: Vec<Entry>) -> BTreeMap<(Name, u16), Rrset> {
        let mut all: BTreeMap<(Name, u16), Rrset> = BTreeMap::new();
        let mut several: HashMap<(Name, u16), Several> = HashMap::new();
        for entry in entries {
            let Entry { owner, rtype, ttl, rdata, .. } = entry;
            let value = self.place(entry.data_at);
            if entry.relative_owner {
                let place = self.place(entry.at);
                self.repeated(&owner, place);
            }
            if entry.relative_data {
                self.names_inside(rtype, &rdata, value);
            }
            let place = self.place(entry.at);
            let Some(set) = all.get_mut(&(owner.clone(), rtype)) else {
                let values = vec![(rdata, value)];
                all.insert((owner, rtype), Rrset { place, ttl, values });
                continue;
            };
            let folded = |rdata: &[u8]| rdata::folded(rtype, rdata).into_owned().into_boxed_slice();
            let several = several.entry((owner.clone(), rtype)).or_insert_with(|| Several {
                listed: set.values.iter().map(|(rdata, _)| (folded(rdata), set.place)).collect(),
                ttls_differ: false,
            });
            if set.ttl != ttl && !std::mem::replace(&mut several.ttls_differ, true) {
                let kind = ProblemKind::TtlsDiffer {
                    owner: owner.to_string(),
                    rtype: type_name(rtype).into_owned(),
                };
                let help = "give them one TTL (RFC 2181 §5.2)";
                let first = set.place;
                self.warn(place, kind, help, Some((first, "the first one is here")));
            }
            set.ttl = set.ttl.into_iter().chain(ttl).min();
            match several.listed.get(&folded(&rdata)) {
                Some(first) => {
                    let (owner, rtype) = (owner.to_string(), type_name(rtype).into_owned());
                    let kind = ProblemKind::DuplicateRecord { owner, rtype };
                    let first = *first;
                    self.warn(place, kind, "take one of the two away", Some((first, "it stands first here")));
                }
                None if [rtype::CNAME, rtype::DNAME].contains(&rtype) => {
                    let (rtype, count) = (type_name(rtype).into_owned(), set.values.len() + 1);
                    let kind = ProblemKind::SeveralValues { rtype, count };
                    let help = "keep one".to_owned();
                    let also = (Spot::Value(set.place), "the first one is here");
                    self.gather.refuse_with(Spot::Value(place), kind, Some(help), also);
                }
                None => {
                    several.listed.insert(folded(&rdata), place);
                    set.values.push((rdata, value));
                }
            }
        }
        all
    }

    /// The slips that are made with names: no final dot, an address in its place.
    fn names_inside(&mut self, rtype: u16, rdata: &[u8], place: Place) {
        let names: Vec<Name> = rdata::names(rtype, rdata).filter_map(Name::from_wire).collect();
        for name in names {
            self.repeated(&name, place);
            let arpa = "in-addr.arpa".parse().expect("it is a name");
            let written = below(&name, self.apex);
            let Some(address) = written.filter(|text| text.parse::<Ipv4Addr>().is_ok()) else { continue };
            if !self.apex.is_within(&arpa) {
                let kind = ProblemKind::AddressAsName { value: address };
                let help = "give the address a name by an A record, and write that name here".to_owned();
                self.gather.refuse(Spot::Value(place), kind, Some(help));
            }
        }
    }

    /// A full name of this zone with the zone's name once more.
    fn repeated(&mut self, name: &Name, place: Place) {
        let Some(written) = below(name, self.apex) else { return };
        if written.parse::<Name>().is_ok_and(|full| full.is_within(self.apex)) {
            let kind = ProblemKind::ZoneRepeated { name: brief(&written), owner: name.to_string() };
            self.warn(place, kind, &format!("write `{written}.` if {written}. is meant"), None);
        }
    }

    fn soa(&mut self, entry: &Entry) -> Soa {
        let mut names = rdata::names(rtype::SOA, &entry.rdata).map(Box::from);
        let (mname, rname) = (names.next().unwrap_or_default(), names.next().unwrap_or_default());
        let numbers = entry.rdata.last_chunk::<20>().expect("an SOA ends in five numbers");
        let number = |i: usize| {
            let octets = numbers[4 * i..].first_chunk::<4>().expect("it has five of them");
            u32::from_be_bytes(*octets)
        };
        for (i, name) in [(1, "refresh"), (2, "retry"), (3, "expire"), (4, "minimum")] {
            if number(i) > master::MAX_TTL {
                let value = format!("{name} {}", number(i));
                let kind =
                    ProblemKind::OutOfRange { value, range: format!("0 to {} seconds", master::MAX_TTL) };
                let place = self.place(entry.data_at);
                self.gather.refuse(Spot::Value(place), kind, None);
            }
        }
        Soa {
            ttl: entry.ttl,
            mname,
            rname,
            serial: number(0),
            refresh: number(1),
            retry: number(2),
            expire: number(3),
            minimum: number(4),
        }
    }
}

/// A name of the zone as it is written in it; none for the apex and beyond.
fn below(name: &Name, apex: &Name) -> Option<String> {
    if *apex == Name::root() || name == apex || !name.is_within(apex) {
        return None;
    }
    let (name, apex) = (name.to_string(), apex.to_string());
    Some(name.strip_suffix(&format!(".{apex}"))?.to_owned())
}

/// A fault in the words of reports.
fn kind(what: What, help: Option<String>) -> (ProblemKind, Option<String>) {
    let kind = match what {
        What::Octet(octet) => ProblemKind::ControlCharacter { code: format!("U+{octet:04X}") },
        What::Utf16 => ProblemKind::NotUtf8 { why: "it begins like UTF-16".into() },
        What::NotClosed(what) => ProblemKind::NotClosed { what: what.into() },
        What::Syntax(what) => ProblemKind::NotMaster { what: what.into() },
        What::NoOwner => ProblemKind::NoOwner {},
        What::NotName { value, why } => {
            let help = help.or_else(|| Some(name_help(&value)));
            return (ProblemKind::NotName { value, why }, help);
        }
        What::OutsideZone { name, apex } => ProblemKind::OutsideZone { name, zone: apex },
        What::NotTtl { value, why } => ProblemKind::NotTtl { value, why: why.into() },
        What::OtherClass(value) => ProblemKind::OtherClass { value },
        What::NotType(value) => {
            let upper = value.to_ascii_uppercase();
            if let Some((name, instead)) = PROVIDER_TYPES.iter().find(|(name, _)| *name == upper) {
                return (ProblemKind::ProviderType { rtype: (*name).into() }, Some((*instead).into()));
            }
            let known: Vec<_> = rdata::known_types().map(type_name).collect();
            let near = words::nearest(&upper, known.iter().map(|name| &**name));
            let help = near.map(|near| format!("did you mean `{near}`?")).or(help);
            return (ProblemKind::NotRecordType { value }, help);
        }
        What::QueryType(value) => ProblemKind::QueryType { value },
        What::Rdata { value, rtype, why } => ProblemKind::NotRdata { value, rtype, why },
        What::NotDirective(value) => ProblemKind::NotDirective { value },
        What::Include(why) => ProblemKind::Include { why },
        What::Generate(why) => ProblemKind::Generate { why: why.into() },
        What::SoaBelowApex(owner) => ProblemKind::SoaBelowApex { owner },
        What::SecondSoa => ProblemKind::SecondSoa {},
        What::TooMany(limit) => ProblemKind::TooManyProblems { limit },
        What::StringOverLines(lines) => ProblemKind::StringOverLines { lines },
        What::SignaturesLeftOut { count, types } => ProblemKind::SignaturesLeftOut { count, types },
    };
    (kind, help)
}
