//! How the server treats clients, and the user it runs as.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::super::place::Spot;
use super::super::problem::ProblemKind;
use super::super::reader::{Field, Scalar};
use super::super::shape;
use super::Lower;
use crate::model::RateLimit;

/// BIND's bounds.
const RATES: RangeInclusive<u64> = 0..=1000;
const WINDOW: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

impl Lower<'_> {
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
