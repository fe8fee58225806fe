//! Zones: their names, their SOA, and what they are made of.

use std::collections::BTreeMap;

use super::super::place::{Place, Spot};
use super::super::problem::ProblemKind;
use super::super::reader::{Field, Named, Scalar, brief};
use super::super::shape;
use super::super::value::MAX_TTL;
use super::super::zone_file::{self, Held, ZoneFiles};
use super::records::{Set, Sets, Unsure, ascii_form};
use super::{Definitions, Lower};
use crate::model::{LoadBalancer, Name, RecordSet, Serial, Soa, Zone};
use crate::rdata::rtype::NS;
use crate::rdata::type_name;

const USUAL_TTL: u32 = 3600;

/// A zone's load balancers, with the places of their keys.
pub(super) type Balancers = BTreeMap<Name, (LoadBalancer, Place)>;

/// One zone as written, whichever way.
struct Written<'f> {
    name: &'f str,
    spot: Spot,
    ttl: &'f Field<Scalar>,
    soa: &'f Field<shape::Soa>,
    records: &'f Field<shape::Records>,
    zone_file: &'f Field<Scalar>,
    format: &'f Field<Scalar>,
    load_balancers: &'f Field<Named<shape::LoadBalancer>>,
}

impl Lower<'_> {
    pub(super) fn zones<'f>(
        &self,
        files: impl Iterator<Item = &'f shape::File>,
        pools: &Definitions<'_, shape::Pool>,
        zone_files: &ZoneFiles,
    ) -> Vec<Zone> {
        let mut apexes: BTreeMap<Name, Written> = BTreeMap::new();
        for written in files.flat_map(|file| self.written(file)) {
            let Some(apex) = self.apex(&written) else { continue };
            if let Some(first) = apexes.get(&apex) {
                self.gather.refuse_with(
                    written.spot,
                    ProblemKind::DefinedTwice { what: "zone".into(), name: apex.to_string() },
                    Some("put its records and load balancers into one place".into()),
                    (first.spot, "it is defined first here"),
                );
                continue;
            }
            apexes.insert(apex, written);
        }
        let spots: BTreeMap<&Name, Spot> =
            apexes.iter().map(|(apex, written)| (apex, written.spot)).collect();
        let zones = apexes.iter();
        zones.map(|(apex, written)| self.zone(written, apex, &spots, pools, zone_files)).collect()
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
                zone_file: &file.zone_file,
                format: &file.format,
                load_balancers: &file.load_balancers,
            });
        } else if file.zone.is_absent() {
            let beside = [
                file.ttl.place(),
                file.soa.place(),
                file.records.place(),
                file.zone_file.place(),
                file.format.place(),
                file.load_balancers.place(),
            ];
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
                    zone_file: &zone.zone_file,
                    format: &zone.format,
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

    fn zone(
        &self,
        written: &Written<'_>,
        apex: &Name,
        apexes: &BTreeMap<&Name, Spot>,
        pools: &Definitions<'_, shape::Pool>,
        zone_files: &ZoneFiles,
    ) -> Zone {
        let ttl = self.seconds(written.ttl, MAX_TTL, USUAL_TTL);
        let (mut sets, mut unsure) = self.records(written.records, apex, ttl, pools);
        let file_soa = self.zone_file(written, apex, ttl, (zone_files, pools), &mut sets, &mut unsure);
        let unsure_ns = unsure.has(apex);
        let balancers = self.load_balancers(written.load_balancers, apex, pools, &mut unsure);
        self.conflicts(&sets, &balancers, apex, apexes);
        self.targets(&sets, &balancers, &unsure, apex, apexes);
        self.hints(&sets, &balancers, &unsure);

        let apex_ns = sets.get(&(apex.clone(), NS));
        if apex_ns.is_none() && !unsure_ns {
            let help = match written.zone_file.is_absent() {
                true => {
                    "write under `records`: `'': { type: NS, values: [ns1, ns2] }`, with the names that the \
                     parent zone delegates to"
                }
                false => "write them into the zone file, with the names that the parent zone delegates to",
            };
            let kind = ProblemKind::NoApexNs { zone: apex.to_string() };
            self.gather.refuse(written.spot, kind, Some(help.into()));
        }
        let first_ns = apex_ns.and_then(|set| set.values.first()).map(|(wire, _)| wire.clone());
        let soa = self.soa(written.soa, file_soa, apex, ttl, first_ns);
        let records = sets
            .into_iter()
            .map(|((owner, rtype), set)| {
                let rdata = set.values.into_iter().map(|(wire, _)| wire).collect();
                RecordSet { owner, rtype, ttl: set.ttl, rdata, depends_on: set.depends_on }
            })
            .collect();
        let load_balancers = balancers.into_values().map(|(balancer, _)| balancer).collect();
        Zone { apex: apex.clone(), soa, records, load_balancers }
    }

    /// Adds what the zone's file holds; gives its SOA, if it has one.
    fn zone_file(
        &self,
        written: &Written<'_>,
        apex: &Name,
        ttl: u32,
        (zone_files, pools): (&ZoneFiles, &Definitions<'_, shape::Pool>),
        sets: &mut Sets,
        unsure: &mut Unsure,
    ) -> Option<zone_file::Soa> {
        let named = self.text(written.zone_file);
        if let Some((format, place)) = self.text(written.format) {
            if written.zone_file.is_absent() {
                let help = "write `zone_file: FILE` beside it, or take it away".to_owned();
                self.gather.refuse(Spot::Key(place), ProblemKind::FormatAlone {}, Some(help));
            } else if !["master", "octodns"].contains(&format) {
                self.unknown_value(place, format, &["master", "octodns"]);
            }
        }
        let (text, place) = match named {
            Some(named) => named,
            None if written.zone_file.is_absent() => return None,
            None => {
                unsure.add_everything();
                return None;
            }
        };
        if text.is_empty() {
            self.empty_text(place, "the path of a file");
        }
        let mut add = |key: (Name, u16), set: Set| {
            self.fits_a_message(&key.0, key.1, &set);
            if let Some(first) = sets.get(&key) {
                let (owner, rtype) = (key.0.to_string(), type_name(key.1).into_owned());
                self.gather.refuse_with(
                    Spot::Value(set.place),
                    ProblemKind::SameTypeTwice { owner, rtype },
                    Some("put them into one place: the zone file, or `records`".into()),
                    (Spot::Value(first.place), "the others are here"),
                );
            } else {
                sets.insert(key, set);
            }
        };
        match zone_files.take(place) {
            None | Some(Held::Unread) => unsure.add_everything(),
            Some(Held::Octodns(records)) => {
                let (held, unsure_of_it) = self.records(&records, apex, ttl, pools);
                unsure.add_all(unsure_of_it);
                held.into_iter().for_each(|(key, set)| add(key, set));
            }
            Some(Held::Master(held)) => {
                if !held.whole {
                    unsure.add_everything();
                } else if held.soa.is_none() && written.soa.is_absent() {
                    let kind = ProblemKind::NoSoa { zone: apex.to_string() };
                    let help = "write it into the file, or what is to be known of it under `soa`, such as \
                                `soa: { mname: ns1 }`";
                    self.gather.refuse(Spot::Value(place), kind, Some(help.into()));
                }
                for (key, set) in held.sets {
                    self.stars(&key.0.to_string(), &key.0, set.place, apex);
                    let zone_file::Rrset { place, ttl: own, values } = set;
                    add(key, Set { place, ttl: own.unwrap_or(ttl), values, depends_on: Vec::new() });
                }
                return held.soa;
            }
        }
        None
    }

    /// The SOA: each key as it is given, else as the zone's file has it.
    fn soa(
        &self,
        field: &Field<shape::Soa>,
        file: Option<zone_file::Soa>,
        apex: &Name,
        ttl: u32,
        first_ns: Option<Box<[u8]>>,
    ) -> Soa {
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
        let usual_serial = file.as_ref().map_or(Serial::Auto, |file| Serial::From(file.serial));
        let serial = match soa.serial.get().map(|scalar| scalar.text.as_str()) {
            None => usual_serial,
            Some("auto") => Serial::Auto,
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
        let (file_mname, file_rname) = match &file {
            Some(file) => (Some(file.mname.clone()), Some(file.rname.clone())),
            None => (None, None),
        };
        let root = || Name::root().wire().into();
        Soa {
            ttl: self.seconds(&soa.ttl, MAX_TTL, file.as_ref().and_then(|file| file.ttl).unwrap_or(ttl)),
            mname: mname.or(file_mname).or(first_ns).unwrap_or_else(root),
            rname: rname
                .or(file_rname)
                .unwrap_or_else(|| Name::wire_of("hostmaster", apex).unwrap_or_else(|_| root())),
            serial,
            refresh: self.seconds(&soa.refresh, MAX_TTL, file.as_ref().map_or(3600, |file| file.refresh)),
            retry: self.seconds(&soa.retry, MAX_TTL, file.as_ref().map_or(600, |file| file.retry)),
            expire: self.seconds(&soa.expire, MAX_TTL, file.as_ref().map_or(7 * 86400, |file| file.expire)),
            minimum: self.seconds(&soa.minimum, MAX_TTL, file.as_ref().map_or(30, |file| file.minimum)),
        }
    }
}
