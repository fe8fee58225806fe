//! Whom the server believes and how it treats clients: proxies, limits of
//! rates, and the user it runs as.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use ipnet::IpNet;

use super::super::place::{Place, Spot};
use super::super::problem::ProblemKind;
use super::super::reader::{Field, OneOrMany, Scalar, brief};
use super::super::shape;
use super::Lower;
use crate::model::RateLimit;

/// BIND's bounds.
const RATES: RangeInclusive<u64> = 0..=1000;
const WINDOW: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

impl Lower<'_> {
    /// Networks, each `ADDRESS/LENGTH`, or an address that stands for itself.
    pub(super) fn networks(&self, field: &Field<OneOrMany<Scalar>>) -> Vec<IpNet> {
        let Field::Given(place, list) = field else { return Vec::new() };
        if list.0.is_empty() {
            self.empty_list(*place, "write a network such as `192.0.2.0/24`, or take the key away");
        }
        let mut seen: Vec<(IpNet, Place)> = Vec::new();
        for item in &list.0 {
            let Some((text, place)) = self.text(item) else { continue };
            let single = || text.parse::<IpAddr>().map(IpNet::from).ok();
            let Some(network) = text.parse::<IpNet>().ok().or_else(single) else {
                let why = "a network is an address and the length of its prefix";
                self.not_network(
                    place,
                    text,
                    why,
                    "write for example `192.0.2.0/24` or `\"2001:db8::/32\"`".into(),
                );
                continue;
            };
            if network.trunc() != network {
                let why = "its address has bits beyond the prefix";
                self.not_network(place, text, why, format!("write `{}`", network.trunc()));
                continue;
            }
            match seen.iter().find(|(other, _)| *other == network) {
                Some((_, first)) => self.listed_twice(place, *first, &format!("`{network}`")),
                None => seen.push((network, place)),
            }
        }
        seen.into_iter().map(|(network, _)| network).collect()
    }

    fn not_network(&self, place: Place, text: &str, why: &str, help: String) {
        let kind = ProblemKind::NotNetwork { value: brief(text), why: why.into() };
        self.gather.refuse(Spot::Value(place), kind, Some(help));
    }

    /// None when replies are not limited.
    pub(super) fn rate_limit(&self, field: &Field<shape::RateLimit>) -> Option<RateLimit> {
        let Field::Given(place, shape) = field else { return None };
        let usual = RateLimit::default();
        if shape.responses_per_second.is_absent() {
            let kind =
                ProblemKind::MissingKey { of: "`rate_limit`".into(), key: "responses_per_second".into() };
            let help = "write for example `responses_per_second: 20`: what one network may ask for one name";
            self.gather.refuse(Spot::Key(*place), kind, Some(help.into()));
        }
        let rate = |field, usual: u32| self.number(field, RATES, usual.into()) as u32;
        let responses = rate(&shape.responses_per_second, 0);
        Some(RateLimit {
            responses_per_second: responses,
            nodata_per_second: rate(&shape.nodata_per_second, responses),
            nxdomains_per_second: rate(&shape.nxdomains_per_second, responses),
            referrals_per_second: rate(&shape.referrals_per_second, responses),
            errors_per_second: rate(&shape.errors_per_second, responses),
            window: self.duration(&shape.window, WINDOW, usual.window),
            slip: self.number(&shape.slip, 0..=10, usual.slip.into()) as u32,
            ipv4_prefix_length: self.number(
                &shape.ipv4_prefix_length,
                1..=32,
                usual.ipv4_prefix_length.into(),
            ) as u8,
            ipv6_prefix_length: self.number(
                &shape.ipv6_prefix_length,
                1..=64,
                usual.ipv6_prefix_length.into(),
            ) as u8,
            exempt: self.networks(&shape.exempt),
            log_only: self.boolean(&shape.log_only, usual.log_only),
        })
    }

    /// A user's name, as it stands in the system's list of users.
    pub(super) fn user(&self, field: &Field<Scalar>) -> Option<String> {
        let (text, place) = self.text(field)?;
        if text.is_empty() {
            self.empty_text(place, "a user's name");
            return None;
        }
        Some(text.to_owned())
    }
}
