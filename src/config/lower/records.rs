//! Ordinary records in OctoDNS's schema → RRsets in wire form.

mod keys;
mod names;
mod values;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::super::place::{Place, Spot};
use super::super::problem::ProblemKind;
use super::super::reader::{Field, Tree, brief};
use super::super::{shape, value, words};
use super::balancers::LONG_TTL;
use super::{Definitions, Lower};
use crate::model::{Dependency, Name};
use crate::rdata::rtype::{
    A, AAAA, CNAME, DNAME, HTTPS, MX, NAPTR, NSEC, NSEC3, NSEC3PARAM, RRSIG, SOA, SRV, SVCB,
};
use crate::rdata::{self, type_code, type_name};
use keys::{OCTODNS, URI};
use values::follows;

pub(super) use names::ascii_form;
pub use names::name_help;

/// Types of OctoDNS that only some providers know.
pub const PROVIDER_TYPES: [(&str, &str); 3] = [
    ("ALIAS", "write A and AAAA records, or a load balancer, which may stand at the apex"),
    ("URLFWD", "let a web server redirect"),
    ("DNAME-ALIAS", "write a CNAME"),
];

/// The types of whose members clients choose some, so that one may be left out.
const FOLLOWING: [u16; 6] = [MX, SRV, NAPTR, URI, SVCB, HTTPS];

/// RDATA, and where each stands.
type Values = Vec<(Box<[u8]>, Place)>;

/// An RRset in the making.
pub(super) struct Set {
    pub place: Place,
    pub ttl: u32,
    pub values: Values,
    /// What each value depends on; empty where none does on anything.
    pub depends_on: Vec<Vec<Dependency>>,
}

/// The RRsets of a zone by owner and type.
pub(super) type Sets = BTreeMap<(Name, u16), Set>;

/// Where something stands that couldn't be read, so that nothing follows from
/// what is missing there.
#[derive(Default)]
pub(super) struct Unsure {
    everywhere: bool,
    owners: BTreeSet<Name>,
}

impl Unsure {
    pub(super) fn add(&mut self, owner: &Name) {
        self.owners.insert(owner.clone());
    }

    pub(super) fn add_everything(&mut self) {
        self.everywhere = true;
    }

    pub(super) fn add_all(&mut self, others: Unsure) {
        self.everywhere |= others.everywhere;
        self.owners.extend(others.owners);
    }

    pub(super) fn has(&self, owner: &Name) -> bool {
        self.everywhere || self.owners.contains(owner)
    }
}

impl Lower<'_> {
    /// The RRsets, and where something couldn't be read.
    pub(super) fn records(
        &self,
        field: &Field<shape::Records>,
        apex: &Name,
        ttl: u32,
        pools: &Definitions<'_, shape::Pool>,
    ) -> (Sets, Unsure) {
        let mut sets = Sets::new();
        let mut unsure = Unsure::default();
        if self.is_torn(field) {
            unsure.add_everything();
        }
        for (key, field) in field.get().map(|named| &named.0[..]).unwrap_or_default() {
            let place = field.place().expect("what a map holds has a place");
            let Some(owner) = self.owner(key, place, apex) else {
                unsure.add_everything();
                continue;
            };
            let Field::Given(_, list) = field else {
                unsure.add(&owner);
                continue;
            };
            if list.0.is_empty() {
                self.empty_list(place, "write a record such as `{ type: A, value: 192.0.2.1 }`");
            }
            for field in &list.0 {
                let place = field.place().expect("what a list holds has a place");
                let rtype = field.get().and_then(|record| self.record_type(record, place));
                let (Some(record), Some(rtype)) = (field.get(), rtype) else {
                    unsure.add(&owner);
                    continue;
                };
                let ttl = self.seconds(&record.ttl, value::MAX_TTL, ttl);
                let (values, depends_on) = self.values(record, rtype, place, apex, pools);
                let set = Set { place, ttl, values, depends_on };
                self.fits_a_message(&owner, rtype, &set);
                self.follows_late(record, &set);
                self.follows_nothing(record, rtype, &set);
                match sets.get(&(owner.clone(), rtype)) {
                    None => {
                        sets.insert((owner.clone(), rtype), set);
                    }
                    Some(first) => self.gather.refuse_with(
                        Spot::Value(place),
                        ProblemKind::SameTypeTwice {
                            owner: owner.to_string(),
                            rtype: type_name(rtype).into(),
                        },
                        Some("put the values into one list of `values`".into()),
                        (Spot::Value(first.place), "the others are here"),
                    ),
                }
            }
        }
        (sets, unsure)
    }

    /// An RRset is answered as a whole, over TCP at the latest.
    pub(super) fn fits_a_message(&self, owner: &Name, rtype: u16, set: &Set) {
        const HEADER: usize = 12;
        const OPT: usize = 11;
        // as any name that a wildcard covers may be asked for
        let question = 4 + if owner.is_wildcard() { 255 } else { owner.wire().len() };
        let heads = set.values.len() * (owner.wire().len() + 10);
        let data: usize = set.values.iter().map(|(wire, _)| wire.len()).sum();
        let octets = HEADER + question + heads + data + OPT;
        let limit = usize::from(u16::MAX);
        if octets > limit {
            let kind = ProblemKind::RrsetTooLarge {
                owner: brief(&owner.to_string()),
                rtype: type_name(rtype).into(),
                octets,
                limit,
            };
            let help = "take values away, or spread them over several names".to_owned();
            self.gather.refuse(Spot::Value(set.place), kind, Some(help));
        }
    }

    /// Warns of members that follow health under a TTL under which nobody sees it.
    fn follows_late(&self, record: &shape::Record, set: &Set) {
        if set.depends_on.is_empty() || set.ttl <= LONG_TTL {
            return;
        }
        let place = record.ttl.place().or(record.r#type.place()).unwrap_or(set.place);
        let help = format!("write `ttl: 60` or so for these records, {LONG_TTL} at most");
        self.gather.warn(Spot::Value(place), ProblemKind::LongTtl { ttl: set.ttl }, Some(help), None);
    }

    /// Warns of members that are all answered whatever happens.
    fn follows_nothing(&self, record: &shape::Record, rtype: u16, set: &Set) {
        let written = match &record.values {
            Field::Given(_, list) => list.0.len(),
            _ => 1,
        };
        if set.depends_on.is_empty() || set.values.len() != written {
            return; // or some of it couldn't be read
        }
        let needs = |list: &Vec<Dependency>| -> BTreeSet<_> {
            list.iter().map(|needed| (needed.pool, needed.endpoint.clone())).collect()
        };
        let first = needs(&set.depends_on[0]);
        let (why, help) = match set.values.len() {
            1 => (
                "it is the only value",
                "add a value that depends on something else, or take `depends_on` away",
            ),
            _ if set.depends_on.iter().all(|other| needs(other) == first) => (
                "all values depend on the same",
                "let each value depend on its own server, such as `mail/mx1`, or take `depends_on` away",
            ),
            _ => return,
        };
        let kind = ProblemKind::AlwaysAnswered { rtype: type_name(rtype).into(), why: why.into() };
        let place = record.r#type.place().unwrap_or(set.place);
        self.gather.warn(Spot::Value(place), kind, Some(help.into()), None);
    }

    fn record_type(&self, record: &shape::Record, place: Place) -> Option<u16> {
        if record.r#type.is_absent() {
            let help = format!("the types are: {}, and others as `TYPE65280`", OCTODNS.join(", "));
            self.missing(place, "a record", "type", &help);
        }
        let (text, place) = self.text(&record.r#type)?;
        let upper = text.to_ascii_uppercase();
        let provider = PROVIDER_TYPES.iter().find(|(name, _)| *name == upper);
        let unknown = |help: String| {
            let shown = OCTODNS.map(|name| format!("`{name}`")).join(", ");
            let expected = format!("{shown}, and others as `TYPE65280`");
            (ProblemKind::UnknownValue { value: brief(text), expected }, help)
        };
        let (kind, help) = match (provider, type_code(text)) {
            (Some((name, help)), _) => {
                (ProblemKind::ProviderType { rtype: (*name).into() }, (*help).to_owned())
            }
            (None, Some(_)) if upper != text => unknown(format!("write `{upper}`")),
            (None, Some(SOA)) => {
                (ProblemKind::RecordType { rtype: upper }, "write the zone's `soa` key instead".into())
            }
            (None, Some(RRSIG | NSEC | NSEC3 | NSEC3PARAM)) => {
                let help = "take them away: signatures are made, not written".to_owned();
                (ProblemKind::RecordType { rtype: upper }, help)
            }
            (None, Some(code)) if !rdata::is_data(code) => {
                let help = "it stands in messages and questions, and in no zone".to_owned();
                (ProblemKind::RecordType { rtype: upper }, help)
            }
            (None, Some(code)) => return Some(code),
            (None, None) => match words::nearest(text, OCTODNS.into_iter()) {
                Some(near) => unknown(format!("did you mean `{near}`?")),
                None => {
                    unknown("write the type of the record in capitals, or its number as `TYPE65280`".into())
                }
            },
        };
        self.gather.refuse(Spot::Value(place), kind, Some(help));
        None
    }

    fn values(
        &self,
        record: &shape::Record,
        rtype: u16,
        place: Place,
        apex: &Name,
        pools: &Definitions<'_, shape::Pool>,
    ) -> (Values, Vec<Vec<Dependency>>) {
        if let (Some(one), Some(several)) = (record.value.place(), record.values.place()) {
            self.gather.refuse_with(
                Spot::Key(several),
                ProblemKind::BothKeys { first: "value".into(), second: "values".into() },
                Some("put all of them into `values`".into()),
                (Spot::Key(one), "the other one is here"),
            );
        } else if record.value.is_absent() && record.values.is_absent() {
            let help = "write `value: …`, or `values: [ … ]` for several";
            self.missing(place, &format!("this {} record", type_name(rtype)), "value", help);
        }
        let several = match &record.values {
            Field::Given(place, list) => {
                if list.0.is_empty() {
                    self.empty_list(*place, "write a value, or take the record away");
                }
                if [CNAME, DNAME].contains(&rtype) && list.0.len() > 1 {
                    let kind =
                        ProblemKind::SeveralValues { rtype: type_name(rtype).into(), count: list.0.len() };
                    let help = match rtype {
                        CNAME => "keep one, or let a load balancer choose among addresses",
                        _ => "keep one",
                    };
                    self.gather.refuse(Spot::Value(*place), kind, Some(help.to_owned()));
                }
                &list.0[..]
            }
            _ => &[],
        };
        let single = std::iter::once(&record.value).filter(|field| !field.is_absent());
        let mut values = Values::new();
        let mut depends_on = Vec::new();
        let mut seen: HashMap<Box<[u8]>, Place> = HashMap::new();
        for field in single.chain(several) {
            let Field::Given(place, value) = field else { continue };
            let Some(needed) = self.needed(value, rtype, pools) else { continue };
            let Some(wire) = self.rdata(value, rtype, *place, apex) else { continue };
            // names are the same whatever the case of their letters
            match seen.entry(rdata::folded(rtype, &wire).into()) {
                Entry::Occupied(first) => self.listed_twice(*place, *first.get(), "the same value"),
                Entry::Vacant(free) => {
                    free.insert(*place);
                    values.push((wire, *place));
                    depends_on.push(needed);
                }
            }
        }
        if depends_on.iter().all(Vec::is_empty) {
            depends_on.clear();
        }
        (values, depends_on)
    }

    /// What a value depends on; none if it can't depend on anything.
    fn needed(
        &self,
        value: &Tree,
        rtype: u16,
        pools: &Definitions<'_, shape::Pool>,
    ) -> Option<Vec<Dependency>> {
        let Some(branch) = follows(value) else { return Some(Vec::new()) };
        if FOLLOWING.contains(&rtype) {
            return Some(self.record_depends_on(branch, pools));
        }
        let kind = ProblemKind::CannotFollow { rtype: type_name(rtype).into() };
        let types = FOLLOWING.map(|rtype| type_name(rtype).into_owned()).join(", ");
        let help = match rtype {
            A | AAAA | CNAME => {
                "take it away, or write a load balancer, whose addresses follow health".into()
            }
            _ => format!("take it away; values of these types can: {types}"),
        };
        self.gather.refuse(Spot::Key(branch.place), kind, Some(help));
        None
    }
}
