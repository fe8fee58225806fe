//! What cannot stand together in a zone, and what points nowhere.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::super::place::{Place, Spot};
use super::super::problem::ProblemKind;
use super::Lower;
use super::records::{Sets, Unsure};
use super::zones::Balancers;
use crate::model::Name;
use crate::rdata::rtype::{A, AAAA, CNAME, DNAME, DS, HTTPS, MX, NS, PTR, SRV, SVCB};
use crate::rdata::{self, type_name};

/// The owners of one type of records of a zone, with their places.
struct Above<'a> {
    apex: &'a Name,
    owners: BTreeMap<&'a Name, Place>,
}

impl<'a> Above<'a> {
    fn of(sets: &'a Sets, rtype: u16, apex: &'a Name, at_apex: bool) -> Above<'a> {
        let sets = sets.iter().filter(|((owner, other), _)| *other == rtype && (at_apex || owner != apex));
        Above { apex, owners: sets.map(|((owner, _), set)| (owner, set.place)).collect() }
    }

    /// The closest owner above a name, or the name `itself`.
    fn closest(&self, name: &Name, itself: bool) -> Option<(Name, Place)> {
        let mut at = if itself { Some(name.clone()) } else { name.parent() };
        while let Some(name) = at.filter(|name| name.is_within(self.apex)) {
            if let Some(place) = self.owners.get(&name) {
                return Some((name, *place));
            }
            at = name.parent();
        }
        None
    }
}

impl Lower<'_> {
    /// What cannot stand together at one name or above it.
    pub(super) fn conflicts(
        &self,
        sets: &Sets,
        balancers: &Balancers,
        apex: &Name,
        apexes: &BTreeMap<&Name, Spot>,
    ) {
        let cuts = Above::of(sets, NS, apex, false);
        let dnames = Above::of(sets, DNAME, apex, true);
        let below = |what: String, owner: &Name, spot: Spot, cut: (Name, Place)| {
            self.gather.refuse_with(
                spot,
                ProblemKind::BelowCut { what, owner: owner.to_string(), cut: cut.0.to_string() },
                Some("move it into the delegated zone, or take the NS records away".into()),
                (Spot::Value(cut.1), "the zone cut is here"),
            );
        };
        // The nearest zone answers, so this one never does for names of another.
        let in_child = |what: String, owner: &Name, spot: Spot| {
            let Some((zone, at)) = zone_above(owner, apex, apexes) else { return };
            self.gather.refuse_with(
                spot,
                ProblemKind::InChildZone { what, owner: owner.to_string(), zone: zone.to_string() },
                Some("move it into that zone".into()),
                (at, "that zone is here"),
            );
        };
        let below_dname = |what: String, owner: &Name, spot: Spot, (dname, place): (Name, Place)| {
            self.gather.refuse_with(
                spot,
                ProblemKind::BelowDname { what, owner: owner.to_string(), dname: dname.to_string() },
                Some("move it to where the DNAME leads, or take the DNAME away (RFC 6672 §2.4)".into()),
                (Spot::Value(place), "the DNAME is here"),
            );
        };
        for ((owner, rtype), set) in sets {
            let glue = [A, AAAA].contains(rtype);
            let of_parent = [NS, DS].contains(rtype);
            let what = || format!("the {} record", type_name(*rtype));
            let cut = if glue { None } else { cuts.closest(owner, !of_parent) };
            if let Some(cut) = cut {
                below(what(), owner, Spot::Value(set.place), cut);
            } else if let Some(dname) = dnames.closest(owner, false) {
                below_dname(what(), owner, Spot::Value(set.place), dname);
            } else if !glue && !of_parent {
                in_child(what(), owner, Spot::Value(set.place));
            }
            self.cut_types(sets, owner, *rtype, set.place, apex);
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
            if let Some(cut) = cuts.closest(name, true) {
                below("the load balancer".into(), name, Spot::Key(*place), cut);
            } else if let Some(dname) = dnames.closest(name, false) {
                below_dname("the load balancer".into(), name, Spot::Key(*place), dname);
            } else {
                in_child("the load balancer".into(), name, Spot::Key(*place));
            }
        }
    }

    /// Types that have their meaning at a zone cut, or none at a wildcard.
    fn cut_types(&self, sets: &Sets, owner: &Name, rtype: u16, place: Place, apex: &Name) {
        if [NS, DNAME].contains(&rtype) && owner.is_wildcard() {
            let kind = ProblemKind::WildcardCut { rtype: type_name(rtype).into(), owner: owner.to_string() };
            let help = "write them at each name that is meant: what a wildcard would lead to isn't defined (RFC 4592 §4)";
            self.gather.refuse(Spot::Value(place), kind, Some(help.into()));
        }
        let has_cut = owner != apex && sets.contains_key(&(owner.clone(), NS));
        if rtype == DS && !has_cut {
            let kind = ProblemKind::DsWithoutCut { owner: owner.to_string() };
            let help = match owner == apex {
                true => {
                    "give them to the parent zone: they stand beside its NS records of this zone (RFC 4035 §2.4)"
                }
                false => {
                    "write the NS records of the delegated zone beside them, or take them away (RFC 4035 §2.4)"
                }
            };
            self.gather.refuse(Spot::Value(place), kind, Some(help.into()));
        }
    }

    /// Hints that are left to a load balancer need one at their own name.
    pub(super) fn hints(&self, sets: &Sets, balancers: &Balancers, unsure: &Unsure) {
        for ((owner, rtype), set) in sets {
            if ![SVCB, HTTPS].contains(rtype) || unsure.has(owner) {
                continue;
            }
            for (wire, place) in &set.values {
                if !rdata::service_params(wire).any(|(key, value)| rdata::is_open_hint(key, value)) {
                    continue;
                }
                let why = match (wire.get(2), balancers.contains_key(owner)) {
                    (Some(0), true) => continue,
                    (Some(0), false) => "none is described for that name",
                    _ => "the record leads to another name",
                };
                let kind = ProblemKind::HintFollowsNothing { owner: owner.to_string(), why: why.into() };
                let help = "write `auto` where a load balancer stands at the same name and the target is `.`, \
                            or write the addresses";
                self.gather.refuse(Spot::Value(*place), kind, Some(help.into()));
            }
        }
    }

    /// Names that records point to, as far as this zone knows them.
    pub(super) fn targets(
        &self,
        sets: &Sets,
        balancers: &Balancers,
        unsure: &Unsure,
        apex: &Name,
        apexes: &BTreeMap<&Name, Spot>,
    ) {
        let owners: BTreeSet<&Name> = sets.keys().map(|(owner, _)| owner).collect();
        let cuts = Above::of(sets, NS, apex, false);
        let dnames = Above::of(sets, DNAME, apex, true);
        // every name that exists, those between others too
        let existing = LazyCell::new(|| -> HashSet<&[u8]> {
            owners.iter().copied().chain(balancers.keys()).flat_map(Name::suffixes).collect()
        });
        for ((_, rtype), set) in sets
            .iter()
            .filter(|((_, rtype), _)| [NS, MX, SRV, SVCB, HTTPS, CNAME, DNAME, PTR].contains(rtype))
        {
            for (wire, place) in &set.values {
                let target = rdata::names(*rtype, wire).next().and_then(name_of);
                let Some(target) = target.filter(|target| target.is_within(apex)) else { continue };
                // `.` says that there is none, or the owner itself
                if target == Name::root() {
                    continue;
                }
                let has = |rtype| sets.contains_key(&(target.clone(), rtype));
                let steered = balancers.contains_key(&target);
                let unknown = || {
                    !has(A)
                        && !has(AAAA)
                        && !steered
                        && !unsure.has(&target)
                        && !wildcard(&target, &owners, apex)
                };
                let elsewhere = || {
                    cuts.closest(&target, true).is_some()
                        || dnames.closest(&target, false).is_some()
                        || zone_above(&target, apex, apexes).is_some()
                };
                let rtype_shown = || type_name(*rtype).to_string();
                if [CNAME, DNAME, PTR].contains(rtype) || ([SVCB, HTTPS].contains(rtype) && !has(CNAME)) {
                    let exists = existing.contains(target.wire()) || wildcard(&target, &owners, apex);
                    let known = exists || unsure.has(&target) || elsewhere() || doubled(&target, apex);
                    if !known && !balancers.keys().any(|name| covers(name, &target)) {
                        let kind =
                            ProblemKind::NoSuchTarget { rtype: rtype_shown(), target: target.to_string() };
                        let help = "end a name of another zone with a dot, or write what shall stand there";
                        self.gather.warn(Spot::Value(*place), kind, Some(help.into()), None);
                    }
                } else if has(CNAME) && !steered {
                    let kind = ProblemKind::AliasTarget { target: target.to_string(), rtype: rtype_shown() };
                    let help = match *rtype {
                        SRV => "point to a name with A or AAAA records (RFC 2782)",
                        SVCB | HTTPS => "point to what the CNAME points to: one more step is one more query",
                        _ => "point to a name with A or AAAA records (RFC 2181 §10.3)",
                    };
                    self.gather.warn(Spot::Value(*place), kind, Some(help.to_owned()), None);
                } else if *rtype == NS && unknown() {
                    let kind = ProblemKind::NoNsAddress { target: target.to_string() };
                    let help = "write an A or AAAA record for it, or end a name of another zone with a dot";
                    self.gather.warn(Spot::Value(*place), kind, Some(help.into()), None);
                } else if [MX, SRV].contains(rtype) && unknown() && !elsewhere() && !doubled(&target, apex) {
                    let kind =
                        ProblemKind::NoTargetAddress { rtype: rtype_shown(), target: target.to_string() };
                    let help = "write an A or AAAA record for it, or end a name of another zone with a dot";
                    self.gather.warn(Spot::Value(*place), kind, Some(help.into()), None);
                }
            }
        }
    }
}

/// Whether a name has the zone's name twice at its end, which has a lint of its own.
fn doubled(name: &Name, apex: &Name) -> bool {
    let apex = apex.wire();
    name.wire().ends_with(&[&apex[..apex.len() - 1], apex].concat())
}

/// Whether a load balancer's name is a wildcard above another name.
fn covers(star: &Name, name: &Name) -> bool {
    star.is_wildcard() && star.parent().is_some_and(|above| name.is_within(&above))
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

/// The zone below `apex` that the name is in, if there is one.
fn zone_above(name: &Name, apex: &Name, apexes: &BTreeMap<&Name, Spot>) -> Option<(Name, Spot)> {
    let mut at = Some(name.clone());
    while let Some(name) = at.filter(|name| name != apex) {
        if let Some(spot) = apexes.get(&name) {
            return Some((name, *spot));
        }
        at = name.parent();
    }
    None
}

/// Reads back a name of RDATA.
pub(super) fn name_of(wire: &[u8]) -> Option<Name> {
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
