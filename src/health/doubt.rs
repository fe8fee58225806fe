//! When a vantage doubts itself rather than the endpoints.
//!
//! When most of what it saw healthy fails at once, or its canaries do, it is
//! more likely that its own uplink has a fault than that all of them have:
//! what fell within the window counts as healthy, for a bounded time.

use std::time::Duration;

use crate::model::Doubt;
use crate::moment::Moment;

/// How a vantage sees its pools; those of one pool count as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Pools that are seen healthy, or were within the window.
    pub pools: usize,
    /// Those of them that are seen so no more, in no endpoint.
    pub fallen: usize,
    /// All canaries fail.
    pub canaries: bool,
}

/// The self-doubt of one vantage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VantageDoubt {
    /// Since when it suspects itself, or did when things looked better again
    /// before the time was over.
    since: Option<Moment>,
    /// Since when things look better: what is held is still to be probed again.
    better: Option<Moment>,
}

impl VantageDoubt {
    /// Takes in how things look; tells whether it changed its mind.
    pub fn look(&mut self, sample: Sample, rules: &Doubt, now: Moment) -> bool {
        let many = rules
            .share
            .is_some_and(|share| sample.pools > 1 && sample.fallen * 100 > sample.pools * usize::from(share));
        match (self.since, self.better, many || sample.canaries) {
            (None, _, true) => self.since = Some(now),
            (Some(_), Some(_), true) => self.better = None,
            (Some(_), None, false) => self.better = Some(now),
            _ => return false,
        }
        true
    }

    /// Since when it suspects itself, while it does.
    pub fn suspect_since(&self) -> Option<Moment> {
        self.since.filter(|_| self.better.is_none())
    }

    /// Whether things look better, and what is held waits for its next probes.
    pub fn is_better(&self) -> bool {
        self.better.is_some()
    }

    /// Since when what fell is held, while it is.
    pub fn holds(&self, rules: &Doubt, now: Moment) -> Option<Moment> {
        self.since.filter(|since| now < *since + rules.hold).map(|since| since.before(rules.window))
    }

    /// Since when falls are looked at, at `now`.
    pub fn window(&self, rules: &Doubt, now: Moment) -> Moment {
        self.since.unwrap_or(now).before(rules.window)
    }

    /// When verdicts apply in any case.
    pub fn ends(&self, hold: Duration) -> Option<Moment> {
        self.since.map(|since| since + hold)
    }

    /// The time is over: verdicts apply. Tells whether it had suspected itself
    /// until now.
    pub fn end(&mut self) -> bool {
        let suspected = self.suspect_since().is_some();
        *self = VantageDoubt::default();
        suspected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubt_begins_with_many_falls_or_the_canaries_and_is_bounded() {
        let at = |seconds| Moment::from_start(Duration::from_secs(seconds));
        let rules = Doubt { share: Some(50), ..Doubt::default() };
        let sample = |pools, fallen, canaries| Sample { pools, fallen, canaries };
        for (seen, doubts, why) in [
            (sample(4, 2, false), false, "half is not more than half"),
            (sample(4, 3, false), true, "three of four"),
            (sample(1, 1, false), false, "one pool is no majority of anything"),
            (sample(4, 0, true), true, "the canaries"),
        ] {
            let mut doubt = VantageDoubt::default();
            assert_eq!(doubt.look(seen, &rules, at(100)), doubts, "{why}");
            assert_eq!(doubt.holds(&rules, at(219)), doubts.then_some(at(85)), "{why}");
            assert_eq!(doubt.holds(&rules, at(220)), None, "{why}: then the verdicts apply");
        }
        let mut off = VantageDoubt::default();
        assert!(!off.look(sample(4, 4, false), &Doubt::default(), at(1)), "off unless asked for");
    }
}
