//! When a vantage doubts itself rather than the endpoints.
//!
//! When most of what it saw healthy fails at once, or its canaries do, it is
//! more likely that its own uplink has a fault than that all of them have:
//! what fell within the window counts as healthy, for a bounded time.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Verdict;
use crate::model::{Doubt, PoolId};
use crate::moment::Moment;

/// How a vantage sees the endpoints of one pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    healthy: usize,
    pub unhealthy: usize,
    /// When one of them last fell from healthy.
    pub fell: Option<Moment>,
}

impl Tally {
    /// One of these endpoints: what is seen of each, and when it fell.
    pub fn of(endpoints: impl Iterator<Item = (Verdict, Option<Moment>)>) -> Tally {
        let mut tally = Tally::default();
        for (verdict, fell) in endpoints {
            tally.healthy += usize::from(verdict == Verdict::Healthy);
            tally.unhealthy += usize::from(verdict == Verdict::Unhealthy);
            tally.fell = tally.fell.max(fell);
        }
        tally
    }

    /// Takes in what is seen of one endpoint now.
    pub fn change(&mut self, from: Verdict, to: Verdict, now: Moment) {
        self.healthy += usize::from(to == Verdict::Healthy);
        self.healthy -= usize::from(from == Verdict::Healthy);
        self.unhealthy += usize::from(to == Verdict::Unhealthy);
        self.unhealthy -= usize::from(from == Verdict::Unhealthy);
        if from == Verdict::Healthy {
            self.fell = Some(now);
        }
    }
}

/// All pools that a vantage sees, its canaries apart, counted so that one
/// endpoint's change needs no look at the others.
#[derive(Clone, Debug, Default)]
pub struct Horizon {
    /// How many have anything healthy.
    healthy: usize,
    /// Those that have nothing healthy any more, and since when.
    fallen: BTreeSet<(Moment, PoolId)>,
}

impl Horizon {
    /// Counts a pool.
    pub fn add(&mut self, pool: PoolId, tally: &Tally) {
        match tally.fell {
            _ if tally.healthy > 0 => self.healthy += 1,
            Some(fell) => drop(self.fallen.insert((fell, pool))),
            None => {}
        }
    }

    /// Takes back what was counted.
    pub fn remove(&mut self, pool: PoolId, tally: &Tally) {
        match tally.fell {
            _ if tally.healthy > 0 => self.healthy -= 1,
            Some(fell) => drop(self.fallen.remove(&(fell, pool))),
            None => {}
        }
    }

    /// Counts what has fallen no more: it is taken as judged.
    pub fn forget_fallen(&mut self) {
        self.fallen.clear();
    }

    /// How things look when falls count that are not older than `since`,
    /// which never goes back.
    pub fn sample(&mut self, since: Moment, canaries: bool) -> Sample {
        while self.fallen.first().is_some_and(|(fell, _)| *fell < since) {
            self.fallen.pop_first();
        }
        let fallen = self.fallen.len();
        Sample { pools: self.healthy + fallen, fallen, canaries }
    }
}

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
    fn a_pool_has_fallen_when_nothing_in_it_is_healthy_any_more_and_not_for_long() {
        use Verdict::{Healthy, Unhealthy, Unknown};
        let at = |seconds| Moment::from_start(Duration::from_secs(seconds));
        let mut tallies = [Tally::of([(Healthy, None), (Healthy, None)].into_iter()), Tally::default()];
        let mut horizon = Horizon::default();
        for (tally, id) in tallies.iter().zip(0..) {
            horizon.add(PoolId(id), tally);
        }
        for (second, pool, from, to, expected, why) in [
            (100, 0, Healthy, Unhealthy, (1, 0), "the other one is healthy"),
            (110, 1, Unknown, Healthy, (2, 0), "two pools are seen healthy"),
            (112, 0, Healthy, Unknown, (2, 1), "nothing is left of the first"),
            (114, 1, Healthy, Unhealthy, (2, 2), "nor of the second"),
            (120, 0, Unhealthy, Healthy, (2, 1), "the first is back"),
            (130, 0, Healthy, Unhealthy, (1, 1), "the second fell too long ago"),
            (131, 1, Unhealthy, Healthy, (2, 1), "it comes back all the same"),
        ] {
            let tally: &mut Tally = &mut tallies[pool];
            horizon.remove(PoolId(pool as u32), tally);
            tally.change(from, to, at(second));
            horizon.add(PoolId(pool as u32), tally);
            let sample = horizon.sample(at(second - 15), false);
            assert_eq!((sample.pools, sample.fallen), expected, "{second}: {why}");
        }
    }

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
