//! Outcomes seen on real traffic, and whom they take out for a while.
//!
//! In Envoy's terms of outlier detection: a run of failures, or a share of
//! failures among enough requests, ejects an endpoint for a time that grows
//! with every ejection. Ejected endpoints are probed all the same.

use std::time::Duration;

use crate::model::Ejection;
use crate::moment::Moment;

/// What is known of one endpoint's traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Failures in a row.
    failures: u32,
    /// How often it was ejected of late.
    pub ejections: u32,
    /// Until when it is ejected, now or last time.
    pub until: Option<Moment>,
}

/// What somebody saw of an endpoint since the last time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub ok: u32,
    pub failed: u32,
}

impl Traffic {
    /// Takes in a report; tells whether it is reason enough to eject.
    pub fn observe(&mut self, seen: Seen, rules: &Ejection) -> bool {
        let all = seen.ok.saturating_add(seen.failed);
        // within a report nobody knows the order: a success among failures ends the run before it
        self.failures = if seen.ok > 0 { seen.failed } else { self.failures.saturating_add(seen.failed) };
        if all == 0 {
            return false;
        }
        let run = rules.consecutive_failures.is_some_and(|limit| seen.ok == 0 && self.failures >= limit);
        let share = rules.failure_percentage.is_some_and(|percent| {
            all >= rules.minimum_requests
                && u64::from(seen.failed) * 100 > u64::from(all) * u64::from(percent)
        });
        run || share
    }

    /// Ejects from `now` on.
    pub fn eject(&mut self, now: Moment, rules: &Ejection) {
        if let Some(until) = self.until {
            // one is forgotten for each time it could have been out and was not
            let unit = rules.ejection_time.max(Duration::from_secs(1));
            let forgotten = now.since(until).as_millis() / unit.as_millis();
            self.ejections = self.ejections.saturating_sub(u32::try_from(forgotten).unwrap_or(u32::MAX));
        }
        self.ejections = self.ejections.saturating_add(1);
        let time = rules.ejection_time.saturating_mul(self.ejections);
        self.until = Some(now + time.min(rules.max_ejection_time.max(rules.ejection_time)));
        self.failures = 0;
    }

    /// When it comes back, while it is ejected.
    pub fn ejected(&self, now: Moment) -> Option<Moment> {
        self.until.filter(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Ejection = Ejection {
        consecutive_failures: Some(5),
        failure_percentage: Some(50),
        minimum_requests: 20,
        ejection_time: Duration::from_secs(30),
        max_ejection_time: Duration::from_secs(80),
        max_ejection_percent: 10,
    };

    #[test]
    fn a_run_of_failures_or_a_share_of_them_ejects() {
        for (reports, ejects, why) in [
            (&[(0, 5)][..], true, "five in a row"),
            (&[(0, 3), (0, 2)], true, "over two reports"),
            (&[(0, 4), (1, 0), (0, 4)], false, "a success between"),
            (&[(0, 4), (1, 4)], false, "a success among them"),
            (&[(9, 11)], true, "11 of 20"),
            (&[(10, 10)], false, "half is no more than half"),
            (&[(8, 11)], false, "too few requests"),
            (&[(0, 0)], false, "nothing"),
        ] {
            let mut traffic = Traffic::default();
            let ejected = reports.iter().any(|&(ok, failed)| traffic.observe(Seen { ok, failed }, &RULES));
            assert_eq!(ejected, ejects, "{why}");
        }
    }

    #[test]
    fn every_ejection_is_longer_and_good_times_are_remembered() {
        let at = |seconds| Moment::from_start(Duration::from_secs(seconds));
        let mut traffic = Traffic::default();
        for (now, until, why) in [
            (0, 30, "the first"),
            (40, 100, "the second"),
            (110, 190, "the third, at the longest"),
            (290, 320, "three good half minutes later, as the first"),
        ] {
            traffic.eject(at(now), &RULES);
            assert_eq!(traffic.ejected(at(now)), Some(at(until)), "{why}");
        }
    }
}
