//! Endpoints given by host name.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::place::{Place, Spot};
use super::super::problem::ProblemKind;
use super::super::reader::brief;
use super::Lower;
use super::conflicts::name_of;
use super::records::ascii_form;
use crate::model::{Name, Zone};
use crate::rdata::rtype::CNAME;

/// So many CNAMEs are followed.
const MAX_ALIASES: usize = 8;

impl Lower<'_> {
    /// A host name in small letters, without its final dot.
    pub(super) fn host_name(&self, text: &str, place: Place) -> Option<Arc<str>> {
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let label = |label: &str| {
            let letters = label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
            letters && (1..=63).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-')
        };
        let usual = "write the machine's whole name, such as `web-1.example.net`, or its address";
        let (why, help) = match () {
            _ if !name.is_ascii() => {
                let help = ascii_form(text).unwrap_or_else(|| usual.into());
                ("host names are written in ASCII", help)
            }
            _ if !name.split('.').all(label) => (
                "labels have 1 to 63 letters, digits and `-`, which neither begins nor ends one",
                usual.into(),
            ),
            _ if name.len() > 253 => ("a host name has at most 253 letters", usual.into()),
            _ if !name.contains('.') => {
                ("there is no dot in it, and nothing is added to names here", usual.into())
            }
            _ => return Some(name.into()),
        };
        let kind = ProblemKind::NotHostName { value: brief(text), why: why.into() };
        self.gather.refuse(Spot::Value(place), kind, Some(help));
        None
    }

    /// Host names that this server itself answers for: what a load balancer
    /// answers can't be its own endpoint.
    pub(super) fn own_names(&self, hosts: &[(Arc<str>, Place)], zones: &[Zone]) {
        if hosts.is_empty() {
            return;
        }
        let known = Answers::of(zones);
        for (host, place) in hosts {
            let Ok(name) = format!("{host}.").parse::<Name>() else { continue };
            let (kind, help) = match known.find(&name) {
                Found::Elsewhere => continue,
                Found::Balancer(owner) => {
                    let kind = ProblemKind::OwnBalancer { value: host.to_string(), owner };
                    (kind, "name the machine itself, or write its address")
                }
                Found::Zone(zone) => {
                    let kind = ProblemKind::OwnZone { value: host.to_string(), zone };
                    let help = "write the machine's address, so that no lookup comes back to this server";
                    self.gather.warn(Spot::Value(*place), kind, Some(help.into()), None);
                    continue;
                }
            };
            self.gather.refuse(Spot::Value(*place), kind, Some(help.into()));
        }
    }
}

enum Found {
    Elsewhere,
    /// The name itself, or what it is an alias of, is a load balancer.
    Balancer(String),
    Zone(String),
}

/// What the zones answer, as far as it matters here.
struct Answers<'a> {
    zones: BTreeMap<&'a Name, &'a Zone>,
    names: BTreeMap<&'a Name, Kind>,
}

enum Kind {
    Balancer,
    Alias(Option<Name>),
    Records,
}

impl<'a> Answers<'a> {
    fn of(zones: &'a [Zone]) -> Answers<'a> {
        let mut names = BTreeMap::new();
        for set in zones.iter().flat_map(|zone| &zone.records) {
            let alias = (set.rtype == CNAME).then(|| set.rdata.first().and_then(|rdata| name_of(rdata)));
            names.insert(&set.owner, alias.map_or(Kind::Records, Kind::Alias));
        }
        let balancers = zones.iter().flat_map(|zone| &zone.load_balancers);
        names.extend(balancers.filter(|b| b.enabled).map(|balancer| (&balancer.name, Kind::Balancer)));
        Answers { zones: zones.iter().map(|zone| (&zone.apex, zone)).collect(), names }
    }

    fn find(&self, name: &Name) -> Found {
        let Some(zone) = self.zone_of(name) else { return Found::Elsewhere };
        let mut at = name.clone();
        for _ in 0..MAX_ALIASES {
            match self.owner(&at) {
                Some((owner, Kind::Balancer)) => return Found::Balancer(owner.to_string()),
                Some((_, Kind::Alias(Some(target)))) => at = target.clone(),
                Some((_, Kind::Alias(None) | Kind::Records)) | None => break,
            }
        }
        Found::Zone(zone.apex.to_string())
    }

    fn zone_of(&self, name: &Name) -> Option<&'a Zone> {
        let mut at = Some(name.clone());
        while let Some(name) = at {
            if let Some(zone) = self.zones.get(&name) {
                return Some(zone);
            }
            at = name.parent();
        }
        None
    }

    /// Whose records a name has: its own, or the wildcard's above it.
    fn owner(&self, name: &Name) -> Option<(&'a Name, &Kind)> {
        if let Some((owner, kind)) = self.names.get_key_value(name) {
            return Some((owner, kind));
        }
        let apex = &self.zone_of(name)?.apex;
        let mut above = name.parent();
        while let Some(parent) = above.filter(|parent| parent.is_within(apex)) {
            let star = Name::parse("*", &parent).ok()?;
            if let Some((owner, kind)) = self.names.get_key_value(&star) {
                return Some((owner, kind));
            }
            if self.names.contains_key(&parent) {
                return None; // the closest encloser has no wildcard (RFC 4592)
            }
            above = parent.parent();
        }
        None
    }
}
