//! Names and addresses in records: what is refused, and what is rarely meant.

use std::net::IpAddr;

use super::super::super::place::{Place, Spot};
use super::super::super::problem::ProblemKind;
use super::super::super::reader::brief;
use super::super::super::value;
use super::super::Lower;
use crate::model::Name;

impl Lower<'_> {
    /// The name a key of `records` or `load_balancers` stands for.
    pub(in super::super) fn owner(&self, key: &str, place: Place, apex: &Name) -> Option<Name> {
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

    /// A domain name inside RDATA.
    pub(in super::super) fn target(&self, text: &str, place: Place, apex: &Name) -> Option<Box<[u8]>> {
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

    /// A `*` that is a letter.
    pub(in super::super) fn stars(&self, key: &str, name: &Name, place: Place, apex: &Name) {
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

    pub(super) fn not_address(&self, text: &str, place: Place, ipv4: bool) {
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
    }
}

/// A star that looks like a wildcard and is a letter (RFC 4592 §2.1.1).
fn is_literal_star((index, label): (usize, &[u8])) -> bool {
    label.contains(&b'*') && (index > 0 || label != b"*")
}

/// What to write for a name with letters outside ASCII.
pub(in super::super) fn ascii_form(text: &str) -> Option<String> {
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
