//! Zones: SOA, ordinary records, load balancers, and what conflicts.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::super::file::{Field, Kind, Named, OneOrMany, Scalar, SingleOrMap, brief};
use super::super::place::{Place, Spot};
use super::super::problem::ProblemKind;
use super::super::{shape, value, words};
use super::pools::some_of;
use super::{Definitions, Lower, Switch};
use crate::model::{
    LoadBalancer, Name, PoolId, RecordSet, Serial, Soa, SteeringPolicy, Weight, WhenUnavailable, Zone,
};

const A: u16 = 1;
const NS: u16 = 2;
const CNAME: u16 = 5;
const MX: u16 = 15;
const TXT: u16 = 16;
const AAAA: u16 = 28;

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
const MAX_TTL: u32 = i32::MAX as u32;
const USUAL_TTL: u32 = 3600;
/// Above it a failure is followed late.
const LONG_TTL: u32 = 300;

/// One zone as written, whichever way.
struct Written<'f> {
    name: &'f str,
    spot: Spot,
    ttl: &'f Field<Scalar>,
    soa: &'f Field<shape::Soa>,
    records: &'f Field<Named<OneOrMany<shape::Record>>>,
    load_balancers: &'f Field<Named<shape::LoadBalancer>>,
}

/// An RRset in the making.
struct Set {
    place: Place,
    ttl: u32,
    values: Vec<(Box<[u8]>, Place)>,
}

/// The RRsets of a zone by owner and type.
type Sets = BTreeMap<(Name, u16), Set>;

impl Lower<'_> {
    pub(super) fn zones<'f>(
        &self,
        files: impl Iterator<Item = &'f shape::File>,
        pools: &Definitions<'_, shape::Pool>,
    ) -> Vec<Zone> {
        let mut zones: BTreeMap<Name, (Spot, Zone)> = BTreeMap::new();
        for written in files.flat_map(|file| self.written(file)) {
            let Some(apex) = self.apex(&written) else { continue };
            if let Some((first, _)) = zones.get(&apex) {
                self.gather.refuse_with(
                    written.spot,
                    ProblemKind::DefinedTwice { what: "zone".into(), name: apex.to_string() },
                    Some("put its records and load balancers into one place".into()),
                    (*first, "it is defined first here"),
                );
                continue;
            }
            let zone = self.zone(&written, &apex, pools);
            zones.insert(apex, (written.spot, zone));
        }
        zones.into_values().map(|(_, zone)| zone).collect()
    }

    /// The zones of a file: the one it is, or those it holds.
    fn written<'f>(&self, file: &'f shape::File) -> Vec<Written<'f>> {
        let mut all = Vec::new();
        if let (Some(one), Some(several)) = (file.zone.place(), file.zones.place()) {
            self.gather.refuse_with(
                Spot::Key(several),
                ProblemKind::BothKeys { first: "zone".into(), second: "zones".into() },
                Some("a file is one zone (`zone: NAME`) or holds several (`zones: { NAME: … }`)".into()),
                (Spot::Key(one), "the other one is here"),
            );
        }
        if let Some((name, place)) = self.text(&file.zone) {
            all.push(Written {
                name,
                spot: Spot::Value(place),
                ttl: &file.ttl,
                soa: &file.soa,
                records: &file.records,
                load_balancers: &file.load_balancers,
            });
        } else if file.zone.is_absent() {
            let beside =
                [file.ttl.place(), file.soa.place(), file.records.place(), file.load_balancers.place()];
            for place in beside.into_iter().flatten() {
                let kind = ProblemKind::NoZoneBeside { key: self.gather.key_of(place) };
                let help = "write `zone: gslb.example.com` beside it, or put it below `zones`".to_owned();
                self.gather.refuse(Spot::Key(place), kind, Some(help));
            }
        }
        for (name, field) in file.zones.get().map(|zones| &zones.0[..]).unwrap_or_default() {
            if let Field::Given(place, zone) = field {
                all.push(Written {
                    name,
                    spot: Spot::Key(*place),
                    ttl: &zone.ttl,
                    soa: &zone.soa,
                    records: &zone.records,
                    load_balancers: &zone.load_balancers,
                });
            }
        }
        all
    }

    fn apex(&self, written: &Written<'_>) -> Option<Name> {
        let refuse = |why: String| {
            let kind = ProblemKind::NotName { value: brief(written.name), why };
            let help = ascii_form(written.name)
                .unwrap_or_else(|| "write the zone's full name, such as `gslb.example.com`".into());
            self.gather.refuse(written.spot, kind, Some(help));
            None
        };
        if written.name.is_empty() || written.name == "@" {
            return refuse("a zone has a name of its own".into());
        }
        match written.name.parse::<Name>() {
            Err(error) => refuse(error.to_string()),
            Ok(apex) if apex.is_wildcard() => refuse("a zone's name is no wildcard".into()),
            Ok(apex) => Some(apex),
        }
    }

    fn zone(&self, written: &Written<'_>, apex: &Name, pools: &Definitions<'_, shape::Pool>) -> Zone {
        let ttl = self.seconds(written.ttl, MAX_TTL, USUAL_TTL);
        let (sets, unsure) = self.records(written.records, apex, ttl);
        let balancers = self.load_balancers(written.load_balancers, apex, pools);
        self.conflicts(&sets, &balancers, apex);
        self.targets(&sets, &balancers, apex);

        let apex_ns = sets.get(&(apex.clone(), NS));
        if apex_ns.is_none() && !unsure {
            let help = "write under `records`: `'': { type: NS, values: [ns1, ns2] }`, with the names that the \
                        parent zone delegates to";
            let kind = ProblemKind::NoApexNs { zone: apex.to_string() };
            self.gather.refuse(written.spot, kind, Some(help.into()));
        }
        let first_ns = apex_ns.and_then(|set| set.values.first()).map(|(wire, _)| wire.clone());
        let soa = self.soa(written.soa, apex, ttl, first_ns);
        let records = sets
            .into_iter()
            .map(|((owner, rtype), set)| {
                let rdata = set.values.into_iter().map(|(wire, _)| wire).collect();
                RecordSet { owner, rtype, ttl: set.ttl, rdata }
            })
            .collect();
        let load_balancers = balancers.into_values().map(|(balancer, _)| balancer).collect();
        Zone { apex: apex.clone(), soa, records, load_balancers }
    }

    fn soa(&self, field: &Field<shape::Soa>, apex: &Name, ttl: u32, first_ns: Option<Box<[u8]>>) -> Soa {
        let absent = shape::Soa::default();
        let soa = field.get().unwrap_or(&absent);
        let mname = self.text(&soa.mname).and_then(|(text, place)| self.target(text, place, apex));
        let rname = self.text(&soa.rname).and_then(|(text, place)| {
            if let Some((user, host)) = text.split_once('@').filter(|(user, _)| !user.is_empty()) {
                let kind = ProblemKind::Mailbox { value: brief(text) };
                let user = user.replace('.', "\\.");
                let help = format!("write `{user}.{}.`", host.trim_end_matches('.'));
                self.gather.refuse(Spot::Value(place), kind, Some(help));
                return None;
            }
            self.target(text, place, apex)
        });
        let serial = match soa.serial.get().map(|scalar| scalar.text.as_str()) {
            None | Some("auto") => Serial::Auto,
            Some(text) if text.starts_with(|c: char| c.is_ascii_alphabetic()) => {
                if let Some((other, place)) = self.text(&soa.serial) {
                    self.unknown_value(place, other, &["auto", "a number"]);
                }
                Serial::Auto
            }
            Some(_) => {
                let number = self.number(&soa.serial, 0..=u64::from(u32::MAX), 0);
                Serial::From(number as u32)
            }
        };
        let root = || Name::root().wire().into();
        Soa {
            ttl: self.seconds(&soa.ttl, MAX_TTL, ttl),
            mname: mname.or(first_ns).unwrap_or_else(root),
            rname: rname.unwrap_or_else(|| Name::wire_of("hostmaster", apex).unwrap_or_else(|_| root())),
            serial,
            refresh: self.seconds(&soa.refresh, MAX_TTL, 3600),
            retry: self.seconds(&soa.retry, MAX_TTL, 600),
            expire: self.seconds(&soa.expire, MAX_TTL, 7 * 86400),
            minimum: self.seconds(&soa.minimum, MAX_TTL, 30),
        }
    }

    /// The RRsets, and whether something at the apex couldn't be read.
    fn records(&self, field: &Field<Named<OneOrMany<shape::Record>>>, apex: &Name, ttl: u32) -> (Sets, bool) {
        let mut sets = Sets::new();
        let mut unsure = matches!(field, Field::Broken(_));
        for (key, field) in field.get().map(|named| &named.0[..]).unwrap_or_default() {
            let place = field.place().expect("what a map holds has a place");
            let Some(owner) = self.owner(key, place, apex) else { continue };
            let Field::Given(_, list) = field else {
                unsure |= owner == *apex;
                continue;
            };
            if list.0.is_empty() {
                self.empty_list(place, "write a record such as `{ type: A, value: 192.0.2.1 }`");
            }
            for field in &list.0 {
                let place = field.place().expect("what a list holds has a place");
                let rtype = field.get().and_then(|record| self.record_type(record, place));
                let (Some(record), Some(rtype)) = (field.get(), rtype) else {
                    unsure |= owner == *apex;
                    continue;
                };
                let set = Set {
                    place,
                    ttl: self.seconds(&record.ttl, MAX_TTL, ttl),
                    values: self.values(record, rtype, place, apex),
                };
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
                self.gather.refuse(Spot::Value(place), ProblemKind::WrongShape { found, expected }, None);
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
    fn target(&self, text: &str, place: Place, apex: &Name) -> Option<Box<[u8]>> {
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
    fn owner(&self, key: &str, place: Place, apex: &Name) -> Option<Name> {
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
                Some(name)
            }
        }
    }

    fn load_balancers(
        &self,
        field: &Field<Named<shape::LoadBalancer>>,
        apex: &Name,
        pools: &Definitions<'_, shape::Pool>,
    ) -> BTreeMap<Name, (LoadBalancer, Place)> {
        let mut all: BTreeMap<Name, (LoadBalancer, Place)> = BTreeMap::new();
        for (key, field) in field.get().map(|named| &named.0[..]).unwrap_or_default() {
            let place = field.place().expect("what a map holds has a place");
            let Some(name) = self.owner(key, place, apex) else { continue };
            if let Some((_, first)) = all.get(&name) {
                self.gather.refuse_with(
                    Spot::Key(place),
                    ProblemKind::DefinedTwice { what: "load balancer".into(), name: name.to_string() },
                    Some("two keys make one name; keep one of them".into()),
                    (Spot::Key(*first), "it is defined first here"),
                );
                continue;
            }
            if let Field::Given(place, shape) = field {
                let balancer = self.load_balancer(key, name.clone(), *place, shape, apex, pools);
                all.insert(name, (balancer, *place));
            }
        }
        all
    }

    fn load_balancer(
        &self,
        key: &str,
        name: Name,
        place: Place,
        shape: &shape::LoadBalancer,
        apex: &Name,
        pools: &Definitions<'_, shape::Pool>,
    ) -> LoadBalancer {
        if let Some((text, at)) = self.text(&shape.name) {
            let full = text.parse::<Name>().is_ok_and(|read| read == name);
            let relative = Name::parse(text, apex).is_ok_and(|read| read == name);
            if !full && !relative {
                let kind = ProblemKind::OtherName { key: brief(key), name: brief(text) };
                let help = "take `name` away: the key is the name".to_owned();
                self.gather.refuse(Spot::Value(at), kind, Some(help));
            }
        }
        if self.boolean(&shape.proxied, false)
            && let Some(place) = shape.proxied.place()
        {
            self.proxied_value(place, "true", "write `proxied: false`, or take the key away");
        }
        if let Some((text, place)) = self.text(&shape.session_affinity) {
            match text {
                "" | "none" => {}
                "ip_cookie" | "source_ip" => {
                    self.later_value(place, text, "write `none`, or take the key away");
                }
                "cookie" | "header" => {
                    self.proxied_value(place, text, "write `none`, or take the key away");
                }
                _ => self.unknown_value(place, text, &["none"]),
            }
        }
        let ttl = self.seconds(&shape.ttl, 86400, 30);
        if let Some(place) = shape.ttl.place().filter(|_| ttl > LONG_TTL) {
            let help = format!("30s is usual, above {LONG_TTL}s is for what hardly ever fails");
            self.gather.warn(Spot::Value(place), ProblemKind::LongTtl { ttl }, Some(help), None);
        }
        let listed = self.default_pools(key, place, shape, pools);
        let steering_policy = self.steering_policy(key, place, shape, &listed, pools);
        LoadBalancer {
            name,
            enabled: self.boolean(&shape.enabled, true),
            ttl,
            steering_policy,
            default_pools: listed.iter().map(|(id, _)| *id).collect(),
            when_unavailable: self.when_unavailable(key, place, shape, pools),
        }
    }

    fn default_pools(
        &self,
        key: &str,
        place: Place,
        shape: &shape::LoadBalancer,
        pools: &Definitions<'_, shape::Pool>,
    ) -> Vec<(PoolId, Place)> {
        let help = "list the pools in failover order: `default_pools: [eu, us]`";
        let mut listed: Vec<(PoolId, Place)> = Vec::new();
        match &shape.default_pools {
            Field::Absent => {
                self.missing(place, &format!("the load balancer `{key}`"), "default_pools", help)
            }
            Field::Broken(_) => {}
            Field::Given(place, list) if list.is_empty() => self.empty_list(*place, help),
            Field::Given(_, list) => {
                for field in list {
                    let Some((name, place)) = self.text(field) else { continue };
                    let Some(id) = self.pool_id(name, Spot::Value(place), pools) else { continue };
                    match listed.iter().find(|(other, _)| *other == id) {
                        Some((_, first)) => self.listed_twice(place, *first, &format!("the pool `{name}`")),
                        None => listed.push((id, place)),
                    }
                }
            }
        }
        listed
    }

    fn pool_id(&self, name: &str, spot: Spot, pools: &Definitions<'_, shape::Pool>) -> Option<PoolId> {
        if let Some(id) = pools.id(name) {
            return Some(PoolId(id));
        }
        let help = match words::nearest(name, pools.names()) {
            Some(near) => format!("did you mean `{near}`?"),
            None if pools.sorted.is_empty() => "define it under `pools`".into(),
            None => format!("define it under `pools`, or use one of: {}", some_of(pools.names())),
        };
        self.gather.refuse(spot, ProblemKind::NoSuchPool { name: brief(name) }, Some(help));
        None
    }

    fn steering_policy(
        &self,
        key: &str,
        place: Place,
        shape: &shape::LoadBalancer,
        listed: &[(PoolId, Place)],
        pools: &Definitions<'_, shape::Pool>,
    ) -> SteeringPolicy {
        let absent = shape::RandomSteering::default();
        let random = shape.random_steering.get().unwrap_or(&absent);
        let default = self.weight(&random.default_weight, Weight(100));
        let mut by_pool: Vec<(PoolId, Weight)> = Vec::new();
        for (name, field) in random.pool_weights.get().map(|named| &named.0[..]).unwrap_or_default() {
            let weight = self.weight(field, default);
            let Some(at) = field.place() else { continue };
            let Some(id) = self.pool_id(name, Spot::Key(at), pools) else { continue };
            if !listed.iter().any(|(other, _)| *other == id) {
                let kind = ProblemKind::UnusedWeight { pool: name.clone() };
                let help = "add the pool to `default_pools`, or take the weight away".to_owned();
                self.gather.warn(Spot::Key(at), kind, Some(help), None);
            }
            by_pool.push((id, weight));
        }
        match self.switch(&shape.steering_policy) {
            Switch::Absent | Switch::Off => SteeringPolicy::Off,
            Switch::Other("", _) => SteeringPolicy::Off,
            Switch::Other("random", _) => {
                let weight_of = |id: &PoolId| {
                    by_pool.iter().find(|(other, _)| other == id).map_or(default, |(_, weight)| *weight)
                };
                let weights: Vec<Weight> = listed.iter().map(|(id, _)| weight_of(id)).collect();
                if !weights.is_empty() && weights.iter().all(|weight| weight.0 == 0) {
                    let kind = ProblemKind::AllWeightsZero { of: format!("the load balancer `{key}`") };
                    let help = "raise a weight under `random_steering`".to_owned();
                    self.gather.warn(Spot::Key(place), kind, Some(help), None);
                }
                SteeringPolicy::Random(weights)
            }
            Switch::Other(
                other @ ("geo"
                | "dynamic_latency"
                | "proximity"
                | "least_outstanding_requests"
                | "least_connections"),
                place,
            ) => {
                self.later_value(place, other, "the policies are `off` (failover order) and `random`");
                SteeringPolicy::Off
            }
            Switch::On => {
                if let Field::Given(place, scalar) = &shape.steering_policy {
                    self.unknown_value(*place, &scalar.text, &["off", "random"]);
                }
                SteeringPolicy::Off
            }
            Switch::Other(other, place) => {
                self.unknown_value(place, other, &["off", "random"]);
                SteeringPolicy::Off
            }
        }
    }

    fn when_unavailable(
        &self,
        key: &str,
        place: Place,
        shape: &shape::LoadBalancer,
        pools: &Definitions<'_, shape::Pool>,
    ) -> WhenUnavailable {
        let fallback = self
            .text(&shape.fallback_pool)
            .and_then(|(name, place)| self.pool_id(name, Spot::Value(place), pools));
        match self.text(&shape.when_unavailable) {
            Some(("nodata", at)) => {
                if let Some(fallback) = shape.fallback_pool.place() {
                    self.gather.refuse_with(
                        Spot::Value(at),
                        ProblemKind::BothKeys {
                            first: "fallback_pool".into(),
                            second: "when_unavailable: nodata".into(),
                        },
                        Some("with `nodata` nothing falls back; take one of the two away".into()),
                        (Spot::Key(fallback), "the other one is here"),
                    );
                }
                return WhenUnavailable::Nodata;
            }
            Some(("last_good", at)) => {
                self.later_value(at, "last_good", "write `fallback_pool` or `nodata`");
            }
            None | Some(("fallback_pool", _)) => {
                if shape.fallback_pool.is_absent() && !matches!(shape.when_unavailable, Field::Broken(_)) {
                    let kind = ProblemKind::NoFallback { name: key.into() };
                    let help = "name the pool that answers when no other is available, or write \
                                `when_unavailable: nodata` to answer nothing then";
                    self.gather.refuse(Spot::Key(place), kind, Some(help.into()));
                }
            }
            Some((other, at)) => self.unknown_value(at, other, &["fallback_pool", "nodata"]),
        }
        WhenUnavailable::FallbackPool(fallback.unwrap_or(PoolId(0)))
    }

    /// What cannot stand together at one name or above it.
    fn conflicts(&self, sets: &Sets, balancers: &BTreeMap<Name, (LoadBalancer, Place)>, apex: &Name) {
        let cuts: BTreeMap<&Name, Place> = sets
            .iter()
            .filter(|((owner, rtype), _)| *rtype == NS && owner != apex)
            .map(|((owner, _), set)| (owner, set.place))
            .collect();
        let cut_above = |name: &Name, itself: bool| {
            let mut at = if itself { Some(name.clone()) } else { name.parent() };
            while let Some(name) = at.filter(|name| name.is_within(apex) && name != apex) {
                if let Some((cut, place)) = cuts.get_key_value(&name) {
                    return Some(((*cut).clone(), *place));
                }
                at = name.parent();
            }
            None
        };
        let below = |what: String, owner: &Name, spot: Spot, cut: (Name, Place)| {
            self.gather.refuse_with(
                spot,
                ProblemKind::BelowCut { what, owner: owner.to_string(), cut: cut.0.to_string() },
                Some("move it into the delegated zone, or take the NS records away".into()),
                (Spot::Value(cut.1), "the zone cut is here"),
            );
        };
        for ((owner, rtype), set) in sets {
            let glue = [A, AAAA].contains(rtype);
            let cut = if glue { None } else { cut_above(owner, *rtype != NS) };
            if let Some(cut) = cut {
                below(format!("the {} record", type_name(*rtype)), owner, Spot::Value(set.place), cut);
            }
            let balancer = balancers.get(owner).filter(|(balancer, _)| balancer.enabled);
            if *rtype == CNAME && owner == apex {
                self.gather.refuse(
                    Spot::Value(set.place),
                    ProblemKind::CnameAtApex { zone: apex.to_string() },
                    Some("write A and AAAA records, or a load balancer, which may stand at the apex".into()),
                );
            } else if *rtype == CNAME && balancer.is_none() {
                let range = (owner.clone(), 0)..=(owner.clone(), u16::MAX);
                let other = sets.range(range).find(|((_, other), _)| *other != CNAME);
                if let Some(((_, other_type), other)) = other {
                    self.gather.refuse_with(
                        Spot::Value(set.place),
                        ProblemKind::CnameBeside {
                            owner: owner.to_string(),
                            rtype: type_name(*other_type).into(),
                        },
                        Some(
                            "take one of them away, or write the CNAME's addresses as A and AAAA records"
                                .into(),
                        ),
                        (Spot::Value(other.place), "the other records are here"),
                    );
                }
            }
            if let Some((_, place)) = balancer.filter(|_| glue || *rtype == CNAME) {
                self.gather.warn(
                    Spot::Value(set.place),
                    ProblemKind::RecordsHidden { owner: owner.to_string(), rtype: type_name(*rtype).into() },
                    Some("they are answered only while the load balancer is disabled".into()),
                    Some((Spot::Key(*place), "the load balancer is here")),
                );
            }
        }
        for (name, (_, place)) in balancers {
            if let Some(cut) = cut_above(name, true) {
                below("the load balancer".into(), name, Spot::Key(*place), cut);
            }
        }
    }

    /// Names that records point to, as far as this zone knows them.
    fn targets(&self, sets: &Sets, balancers: &BTreeMap<Name, (LoadBalancer, Place)>, apex: &Name) {
        let owners: BTreeSet<&Name> = sets.keys().map(|(owner, _)| owner).collect();
        for ((_, rtype), set) in sets {
            for (wire, place) in &set.values {
                let wire = match *rtype {
                    NS => &wire[..],
                    MX => &wire[2..],
                    _ => continue,
                };
                let Some(target) = name_of(wire).filter(|target| target.is_within(apex)) else { continue };
                let has = |rtype| sets.contains_key(&(target.clone(), rtype));
                let steered = balancers.contains_key(&target);
                if has(CNAME) && !steered {
                    let kind = ProblemKind::AliasTarget {
                        target: target.to_string(),
                        rtype: type_name(*rtype).into(),
                    };
                    let help = "point to a name with A or AAAA records (RFC 2181 §10.3)".to_owned();
                    self.gather.warn(Spot::Value(*place), kind, Some(help), None);
                } else if *rtype == NS
                    && !has(A)
                    && !has(AAAA)
                    && !steered
                    && !wildcard(&target, &owners, apex)
                {
                    let kind = ProblemKind::NoNsAddress { target: target.to_string() };
                    let help = "write an A or AAAA record for it, or end a name of another zone with a dot";
                    self.gather.warn(Spot::Value(*place), kind, Some(help.into()), None);
                }
            }
        }
    }
}

/// Whether a wildcard may give the name its addresses.
fn wildcard(name: &Name, owners: &BTreeSet<&Name>, apex: &Name) -> bool {
    let mut above = name.parent();
    while let Some(parent) = above.filter(|parent| parent.is_within(apex)) {
        if Name::parse("*", &parent).is_ok_and(|star| owners.contains(&star)) {
            return true;
        }
        above = parent.parent();
    }
    false
}

/// What to write for a name with letters outside ASCII.
fn ascii_form(text: &str) -> Option<String> {
    if text.is_ascii() {
        return None;
    }
    let name = hickory_proto::rr::Name::from_utf8(text).ok()?;
    Some(format!("write `{}`", name.to_ascii()))
}

fn name_help(text: &str) -> String {
    ascii_form(text)
        .unwrap_or_else(|| "write labels of 1 to 63 letters, digits, `-` or `_`, with dots between".into())
}

/// Reads back a name of RDATA.
fn name_of(wire: &[u8]) -> Option<Name> {
    let mut text = String::new();
    let mut rest = wire;
    while let Some((&length, after)) = rest.split_first() {
        if length == 0 {
            break;
        }
        let (label, after) = after.split_at_checked(usize::from(length))?;
        for octet in label {
            text += &format!("\\{octet:03}");
        }
        text.push('.');
        rest = after;
    }
    if text.is_empty() { Some(Name::root()) } else { text.parse().ok() }
}

fn type_name(rtype: u16) -> &'static str {
    TYPES.iter().find(|(_, code)| *code == rtype).map_or("?", |(name, _)| name)
}
