//! What cannot stand together in a zone, and what points nowhere.

use std::collections::{BTreeMap, BTreeSet};

use super::super::place::{Place, Spot};
use super::super::problem::ProblemKind;
use super::Lower;
use super::records::{A, AAAA, CNAME, MX, NS, Sets, Unsure, type_name};
use super::zones::Balancers;
use crate::model::Name;

impl Lower<'_> {
    /// What cannot stand together at one name or above it.
    pub(super) fn conflicts(
        &self,
        sets: &Sets,
        balancers: &Balancers,
        apex: &Name,
        apexes: &BTreeMap<&Name, Spot>,
    ) {
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
        for ((owner, rtype), set) in sets {
            let glue = [A, AAAA].contains(rtype);
            let cut = if glue { None } else { cut_above(owner, *rtype != NS) };
            if let Some(cut) = cut {
                below(format!("the {} record", type_name(*rtype)), owner, Spot::Value(set.place), cut);
            } else if !glue && *rtype != NS {
                in_child(format!("the {} record", type_name(*rtype)), owner, Spot::Value(set.place));
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
            } else {
                in_child("the load balancer".into(), name, Spot::Key(*place));
            }
        }
    }

    /// Names that records point to, as far as this zone knows them.
    pub(super) fn targets(&self, sets: &Sets, balancers: &Balancers, unsure: &Unsure, apex: &Name) {
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
                    && !unsure.has(&target)
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
