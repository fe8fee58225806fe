//! Ordinary records in OctoDNS's schema → RRsets in wire form.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::super::file::Kind;
use super::super::place::{Place, Spot};
use super::super::problem::ProblemKind;
use super::super::reader::{Field, Named, Scalar, SingleOrMap, brief};
use super::super::{shape, value, words};
use super::Lower;
use crate::model::Name;

pub(super) const A: u16 = 1;
pub(super) const NS: u16 = 2;
pub(super) const CNAME: u16 = 5;
pub(super) const MX: u16 = 15;
pub(super) const TXT: u16 = 16;
pub(super) const AAAA: u16 = 28;

const TYPES: [(&str, u16); 6] =
    [("A", A), ("AAAA", AAAA), ("CNAME", CNAME), ("TXT", TXT), ("MX", MX), ("NS", NS)];
/// Types of OctoDNS that only some providers know.
const PROVIDER_TYPES: [(&str, &str); 3] = [
    ("ALIAS", "write A and AAAA records, or a load balancer, which may stand at the apex"),
    ("URLFWD", "let a web server redirect"),
    ("DNAME-ALIAS", "write a CNAME"),
];
const LATER_TYPES: [&str; 14] = [
    "CAA",
    "DS",
    "DNAME",
    "HTTPS",
    "LOC",
    "NAPTR",
    "OPENPGPKEY",
    "PTR",
    "SOA",
    "SPF",
    "SRV",
    "SSHFP",
    "SVCB",
    "TLSA",
];
const TYPES_SHOWN: &str = "the types are A, AAAA, CNAME, MX, NS and TXT";

/// An RRset in the making.
pub(super) struct Set {
    pub place: Place,
    pub ttl: u32,
    pub values: Vec<(Box<[u8]>, Place)>,
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
    pub(super) fn records(&self, field: &Field<shape::Records>, apex: &Name, ttl: u32) -> (Sets, Unsure) {
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
                let set = Set {
                    place,
                    ttl: self.seconds(&record.ttl, value::MAX_TTL, ttl),
                    values: self.values(record, rtype, place, apex),
                };
                self.fits_a_message(&owner, rtype, &set);
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

    fn record_type(&self, record: &shape::Record, place: Place) -> Option<u16> {
        if record.r#type.is_absent() {
            self.missing(place, "a record", "type", TYPES_SHOWN);
        }
        let (text, place) = self.text(&record.r#type)?;
        if let Some((_, code)) = TYPES.iter().find(|(name, _)| *name == text) {
            return Some(*code);
        }
        let upper = text.to_ascii_uppercase();
        let generic = text.strip_prefix("TYPE").is_some_and(|code| code.bytes().all(|b| b.is_ascii_digit()));
        let provider = PROVIDER_TYPES.iter().find(|(name, _)| *name == upper);
        let (kind, help) = if upper != text && TYPES.iter().any(|(name, _)| *name == upper) {
            let expected = TYPES.map(|(name, _)| format!("`{name}`")).join(", ");
            (ProblemKind::UnknownValue { value: brief(text), expected }, format!("write `{upper}`"))
        } else if let Some((name, help)) = provider {
            (ProblemKind::ProviderType { rtype: (*name).into() }, (*help).to_owned())
        } else if upper == "SOA" {
            (ProblemKind::RecordType { rtype: upper }, "write the zone's `soa` key instead".into())
        } else if generic || LATER_TYPES.contains(&upper.as_str()) {
            (ProblemKind::RecordType { rtype: brief(text) }, TYPES_SHOWN.into())
        } else {
            let names = TYPES.map(|(name, _)| name);
            let help = match words::nearest(text, names.into_iter()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "write the type of the record in capitals".into(),
            };
            let expected = names.map(|name| format!("`{name}`")).join(", ");
            (ProblemKind::UnknownValue { value: brief(text), expected }, help)
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
    ) -> Vec<(Box<[u8]>, Place)> {
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
                if rtype == CNAME && list.0.len() > 1 {
                    let kind = ProblemKind::SeveralValues { count: list.0.len() };
                    let help = "keep one, or let a load balancer choose among addresses".to_owned();
                    self.gather.refuse(Spot::Value(*place), kind, Some(help));
                }
                &list.0[..]
            }
            _ => &[],
        };
        let single = std::iter::once(&record.value).filter(|field| !field.is_absent());
        let mut values: Vec<(Box<[u8]>, Place)> = Vec::new();
        for field in single.chain(several) {
            let Field::Given(place, value) = field else { continue };
            let Some(wire) = self.rdata(value, rtype, *place, apex) else { continue };
            // Names are the same whatever the case of their letters.
            let same = |other: &[u8]| match rtype {
                NS | CNAME | MX => other.eq_ignore_ascii_case(&wire),
                _ => *other == *wire,
            };
            match values.iter().find(|(other, _)| same(other)) {
                Some((_, first)) => self.listed_twice(*place, *first, "the same value"),
                None => values.push((wire, *place)),
            }
        }
        values
    }

    fn rdata(&self, value: &shape::RecordValue, rtype: u16, place: Place, apex: &Name) -> Option<Box<[u8]>> {
        let scalar = match value {
            SingleOrMap::Map(map) if rtype == MX => return self.mail_exchange(map, place, apex),
            SingleOrMap::Single(scalar) if rtype != MX => scalar,
            SingleOrMap::Single(scalar) => {
                let found = format!("the single value `{}`", brief(&scalar.text));
                let expected = "a map such as `{ preference: 10, exchange: mail }`".into();
                let words: Vec<&str> = scalar.text.split_whitespace().collect();
                let help = match words[..] {
                    [preference, exchange] if preference.parse::<u16>().is_ok() => {
                        Some(format!("write `{{ preference: {preference}, exchange: {} }}`", brief(exchange)))
                    }
                    [exchange] if exchange.parse::<f64>().is_err() => {
                        Some(format!("write `{{ preference: 10, exchange: {} }}`", brief(exchange)))
                    }
                    _ => None,
                };
                self.gather.refuse(Spot::Value(place), ProblemKind::WrongShape { found, expected }, help);
                return None;
            }
            SingleOrMap::Map(_) => {
                let expected = format!("the value of a record of type {}", type_name(rtype));
                let kind = ProblemKind::WrongShape { found: "a map".into(), expected };
                self.gather.refuse(Spot::Value(place), kind, None);
                return None;
            }
        };
        if scalar.kind == Kind::Boolean {
            let kind = ProblemKind::Unquoted { value: scalar.text.clone() };
            let help = format!("put it into quotes to make it a text: \"{}\"", scalar.text);
            self.gather.refuse(Spot::Value(place), kind, Some(help));
            return None;
        }
        let text = scalar.text.as_str();
        match rtype {
            A => match text.parse::<Ipv4Addr>() {
                Ok(address) => Some(address.octets().into()),
                Err(_) => self.not_address(text, place, true),
            },
            AAAA => match text.parse::<Ipv6Addr>() {
                Ok(address) if address.to_ipv4_mapped().is_none() => Some(address.octets().into()),
                _ => self.not_address(text, place, false),
            },
            TXT => self.character_strings(text, place),
            _ => self.target(text, place, apex),
        }
    }

    fn not_address(&self, text: &str, place: Place, ipv4: bool) -> Option<Box<[u8]>> {
        let (why, help): (&str, Option<String>) = match value::address(text) {
            Ok(IpAddr::V4(_)) => ("an AAAA record has an IPv6 address", Some("write `type: A`".into())),
            Ok(IpAddr::V6(v6)) => match v6.to_ipv4_mapped() {
                Some(v4) => {
                    ("it is an IPv4 address mapped into IPv6", Some(format!("write `{v4}` in an A record")))
                }
                None => ("an A record has an IPv4 address", Some("write `type: AAAA`".into())),
            },
            Err(value::NoAddress::Malformed(why, right) | value::NoAddress::Unfit(why, right)) => {
                (why, right.map(|right| format!("write `{right}`")))
            }
            Err(value::NoAddress::Hostname) => {
                ("it is a host name", Some("write `type: CNAME`, or the addresses".into()))
            }
        };
        let usual = if ipv4 {
            "write an address such as `192.0.2.10`"
        } else {
            "write an address such as `2001:db8::10`"
        };
        let kind = ProblemKind::NotAddress { value: brief(text), why: why.into() };
        self.gather.refuse(Spot::Value(place), kind, Some(help.unwrap_or_else(|| usual.into())));
        None
    }

    /// A domain name inside RDATA.
    pub(super) fn target(&self, text: &str, place: Place, apex: &Name) -> Option<Box<[u8]>> {
        if text.trim_end_matches('.').parse::<IpAddr>().is_ok() {
            let kind = ProblemKind::AddressAsName { value: brief(text) };
            let help = "give the address a name by an A or AAAA record, and write that name here".to_owned();
            self.gather.refuse(Spot::Value(place), kind, Some(help));
            return None;
        }
        match Name::wire_of(text, apex) {
            Ok(wire) => {
                self.repeated(text, Spot::Value(place), apex);
                Some(wire)
            }
            Err(error) => {
                let kind = ProblemKind::NotName { value: brief(text), why: error.to_string() };
                self.gather.refuse(Spot::Value(place), kind, Some(name_help(text)));
                None
            }
        }
    }

    /// The classic slip: a full name without its final dot.
    fn repeated(&self, text: &str, spot: Spot, apex: &Name) {
        if text.is_empty() || text == "@" || text.ends_with('.') || *apex == Name::root() {
            return;
        }
        let (Ok(full), Ok(read)) = (text.parse::<Name>(), Name::parse(text, apex)) else { return };
        if full.is_within(apex) {
            let kind = ProblemKind::ZoneRepeated { name: brief(text), owner: read.to_string() };
            let help = format!("write `{text}.` if {full} is meant");
            self.gather.warn(spot, kind, Some(help), None);
        }
    }

    pub(super) fn stars(&self, key: &str, name: &Name, place: Place, apex: &Name) {
        if key.contains('\\') {
            return; // who escapes a letter knows what it is
        }
        let mut above = Some(name.clone());
        let labels: Vec<&[u8]> = name.labels().collect();
        let Some(last) = labels.iter().copied().enumerate().rposition(is_literal_star) else { return };
        for _ in 0..=last {
            above = above.and_then(|name| name.parent());
        }
        let kind = ProblemKind::StarInsideName { name: brief(key) };
        let right = above.filter(|above| above.is_within(apex)).map(|above| match above == *apex {
            true => "`*`".to_owned(),
            false => format!("`*.{above}`"),
        });
        let help = match right {
            Some(right) => format!("write {right} for every name there, or take the `*` away"),
            None => "take the `*` away".into(),
        };
        self.gather.warn(Spot::Key(place), kind, Some(help), None);
    }

    fn mail_exchange(&self, map: &Named<Scalar>, place: Place, apex: &Name) -> Option<Box<[u8]>> {
        for (key, field) in &map.0 {
            if ["preference", "priority", "exchange", "value"].contains(&key.as_str()) {
                continue;
            }
            let kind = ProblemKind::UnknownKey { of: words::of("Mx").name.into(), key: brief(key) };
            let help = match words::nearest(key, ["preference", "exchange"].into_iter()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "the keys of an MX value are: preference, exchange".into(),
            };
            if let Some(place) = field.place() {
                self.gather.refuse(Spot::Key(place), kind, Some(help));
            }
        }
        // OctoDNS's older files say `priority` and `value`.
        let absent = Field::Absent;
        let get = |name: &str| map.0.iter().find(|(key, _)| key == name).map_or(&absent, |(_, field)| field);
        let preference = self.either(get("preference"), get("priority"));
        let exchange = self.either(get("exchange"), get("value"));
        for (field, key, help) in [
            (preference, "preference", "write a number such as 10; the smallest is tried first"),
            (exchange, "exchange", "write the name of the mail server"),
        ] {
            if field.is_absent() {
                self.missing(place, "an MX value", key, help);
            }
        }
        let preference = self.optional_number(preference, 0..=65535)? as u16;
        let (text, place) = self.text(exchange)?;
        let exchange = self.target(text, place, apex)?;
        Some([&preference.to_be_bytes()[..], &exchange].concat().into())
    }

    /// TXT data: as OctoDNS writes it, cut to strings of 255 octets.
    fn character_strings(&self, text: &str, place: Place) -> Option<Box<[u8]>> {
        let text = match text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
            Some(inner) => inner.replace("\" \"", ""),
            None => text.to_owned(),
        };
        let text = text.replace("\\;", ";");
        let octets = text.as_bytes();
        let length = octets.len() + octets.len().div_ceil(255).max(1);
        if length > usize::from(u16::MAX) {
            let kind =
                ProblemKind::NotText { value: brief(&text), why: "it is longer than 65535 octets".into() };
            self.gather.refuse(Spot::Value(place), kind, None);
            return None;
        }
        let mut wire = Vec::with_capacity(length);
        if octets.is_empty() {
            wire.push(0);
        }
        for string in octets.chunks(255) {
            wire.push(string.len() as u8); // chunks are at most 255 long
            wire.extend_from_slice(string);
        }
        Some(wire.into())
    }

    /// The name a key of `records` or `load_balancers` stands for.
    pub(super) fn owner(&self, key: &str, place: Place, apex: &Name) -> Option<Name> {
        match Name::parse(key, apex) {
            Err(error) => {
                let kind = ProblemKind::NotName { value: brief(key), why: error.to_string() };
                self.gather.refuse(Spot::Key(place), kind, Some(name_help(key)));
                None
            }
            Ok(name) if !name.is_within(apex) => {
                let kind = ProblemKind::OutsideZone { name: brief(key), zone: apex.to_string() };
                let help = "a final dot makes a name absolute; without it the name is relative to the zone";
                self.gather.refuse(Spot::Key(place), kind, Some(help.into()));
                None
            }
            Ok(name) => {
                self.repeated(key, Spot::Key(place), apex);
                self.stars(key, &name, place, apex);
                Some(name)
            }
        }
    }
}

/// A star that looks like a wildcard and is a letter (RFC 4592 §2.1.1).
fn is_literal_star((index, label): (usize, &[u8])) -> bool {
    label.contains(&b'*') && (index > 0 || label != b"*")
}

/// What to write for a name with letters outside ASCII.
pub(super) fn ascii_form(text: &str) -> Option<String> {
    if text.is_ascii() {
        return None;
    }
    let name = hickory_proto::rr::Name::from_utf8(text).ok()?;
    Some(format!("write `{}`", name.to_ascii()))
}

/// What to write for what is not a name.
pub fn name_help(text: &str) -> String {
    ascii_form(text)
        .unwrap_or_else(|| "write labels of 1 to 63 letters, digits, `-` or `_`, with dots between".into())
}

pub(super) fn type_name(rtype: u16) -> &'static str {
    TYPES.iter().find(|(_, code)| *code == rtype).map_or("?", |(name, _)| name)
}
