//! The rules around a verdict, and how readily traffic moves.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::super::place::Spot;
use super::super::problem::ProblemKind;
use super::super::reader::{Field, Scalar};
use super::super::shape;
use super::{Lower, Switch};
use crate::model::{Ejection, Moves, Rules};

const fn hours(hours: u64) -> Duration {
    Duration::from_secs(3600 * hours)
}

/// What lasts from nothing to a day.
const A_DAY: RangeInclusive<Duration> = Duration::ZERO..=hours(24);

/// What lasts from nothing to a week.
const A_WEEK: RangeInclusive<Duration> = Duration::ZERO..=hours(24 * 7);

impl Lower<'_> {
    pub(super) fn rules(&self, shape: &shape::Pool) -> Rules {
        let usual = Rules::default();
        let second = Duration::from_secs(1);
        let start_period = self.duration(&shape.start_period, A_DAY, Duration::ZERO);
        Rules {
            start_period: shape.start_period.get().map(|_| start_period),
            stale_after: self.duration(&shape.stale_after, A_WEEK, usual.stale_after),
            flap_limit: self.number(&shape.flap_limit, 1..=1000, u64::from(usual.flap_limit)) as u32,
            flap_window: self.duration(&shape.flap_window, second..=hours(24), usual.flap_window),
            flap_hold: self.duration_or_off(&shape.flap_hold),
            slow_start: self.duration_or_off(&shape.slow_start),
            drain_wait: self.duration(&shape.drain_wait, A_DAY, usual.drain_wait),
            stale_if_error: self.duration(&shape.stale_if_error, A_WEEK, usual.stale_if_error),
            ejection: self.ejection(&shape.ejection),
        }
    }

    fn ejection(&self, field: &Field<shape::Ejection>) -> Option<Ejection> {
        let Field::Given(place, shape) = field else { return None };
        let second = Duration::from_secs(1);
        let consecutive_failures = self.number_or_off(&shape.consecutive_failures, 1..=1000, 5);
        let failure_percentage = self.number_or_off(&shape.failure_percentage, 1..=99, 85);
        if consecutive_failures.is_none() && failure_percentage.is_none() {
            let kind = ProblemKind::NeverEjects {};
            let help = "turn one of the two on, or take `ejection` away".to_owned();
            self.gather.warn(Spot::Key(*place), kind, Some(help), None);
        }
        let usual = Duration::from_secs(30);
        let ejection_time = self.duration(&shape.ejection_time, second..=hours(1), usual);
        let most = Duration::from_secs(300).max(ejection_time);
        Some(Ejection {
            consecutive_failures,
            failure_percentage: failure_percentage.map(|percent| percent as u8),
            minimum_requests: self.number(&shape.minimum_requests, 1..=1_000_000, 50) as u32,
            ejection_time,
            max_ejection_time: self.duration(&shape.max_ejection_time, ejection_time..=hours(24), most),
            max_ejection_percent: self.number(&shape.max_ejection_percent, 1..=100, 10) as u8,
        })
    }

    /// Up to a day; off is no time at all.
    fn duration_or_off(&self, field: &Field<Scalar>) -> Duration {
        match self.switch(field) {
            Switch::Absent | Switch::Off => Duration::ZERO,
            Switch::On | Switch::Other(..) => self.duration(field, A_DAY, Duration::ZERO),
        }
    }

    /// A number, or a rule switched off.
    fn number_or_off(&self, field: &Field<Scalar>, range: RangeInclusive<u64>, usual: u32) -> Option<u32> {
        match self.switch(field) {
            Switch::Absent => Some(usual),
            Switch::Off => None,
            Switch::On | Switch::Other(..) => Some(self.number(field, range, usual.into()) as u32),
        }
    }

    pub(super) fn moves(&self, shape: &shape::LoadBalancer) -> Moves {
        let hour = Duration::ZERO..=hours(1);
        let failback_delay = self.duration(&shape.failback_delay, hour.clone(), Duration::ZERO);
        let manual_failback = match self.text(&shape.failback) {
            None | Some(("auto", _)) => false,
            Some(("manual", _)) => true,
            Some((other, place)) => {
                self.unknown_value(place, other, &["auto", "manual"]);
                false
            }
        };
        if let (Some(at), Some(delay)) = (shape.failback.place(), shape.failback_delay.place())
            && manual_failback
            && !failback_delay.is_zero()
        {
            self.gather.refuse_with(
                Spot::Key(delay),
                ProblemKind::BothKeys { first: "failback: manual".into(), second: "failback_delay".into() },
                Some("traffic comes back when it is told to; take one of the two away".into()),
                (Spot::Key(at), "the other one is here"),
            );
        }
        Moves {
            failover_delay: self.duration(&shape.failover_delay, hour, Duration::ZERO),
            failback_delay,
            manual_failback,
        }
    }
}
