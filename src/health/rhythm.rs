//! When one target is probed: its own beats, spread over the interval.
//!
//! Beats stand at fixed places of the time line, given by a stable hash, so a
//! reload or a slow probe never moves a target's phase, thousands of targets
//! never fall into step, and no random numbers are needed.

use std::time::Duration;

use crate::moment::Moment;

/// The longest time over which a first round is spread.
const FIRST_ROUND: Duration = Duration::from_secs(2);

/// A first round is no denser than one probe in this time, as far as that goes.
const FIRST_GAP: Duration = Duration::from_millis(1);

/// The beats of one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rhythm {
    interval: Duration,
    /// A stable hash of the target.
    hash: u64,
}

/// The n-th beat of a target, counted from the beginning of the time line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Beat {
    pub number: u64,
    pub at: Moment,
}

impl Rhythm {
    /// Beats every `interval`, placed by `hash`.
    pub fn new(interval: Duration, hash: u64) -> Rhythm {
        Rhythm { interval, hash }
    }

    /// When a target that appeared at `now`, one of `count` new ones, is probed
    /// first: a few at once, many spread over the interval or two seconds.
    pub fn first(&self, now: Moment, count: usize) -> Moment {
        now + share(self.interval.min(Rhythm::first_round(count)), scramble(self.hash))
    }

    /// Over how long the first probes of `count` new targets are spread.
    pub fn first_round(count: usize) -> Duration {
        FIRST_GAP.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX)).min(FIRST_ROUND)
    }

    /// The first beat later than `now`.
    pub fn after(&self, now: Moment) -> Beat {
        let phase = share(self.interval, self.hash);
        let passed = now.elapsed().saturating_sub(phase).as_nanos() / self.interval.as_nanos();
        let passed = u64::try_from(passed).expect("a time line shorter than 2^64 intervals");
        (passed..)
            .map(|number| Beat { number, at: self.beat(number) })
            .find(|beat| beat.at > now)
            .expect("beats go on without end")
    }

    /// The place of one beat: its phase and a jitter of ±5 % of the interval.
    fn beat(&self, number: u64) -> Moment {
        let tenth = self.interval / 10;
        let jitter = share(tenth, scramble(self.hash ^ scramble(number)));
        let middle = Duration::from_nanos_u128(self.interval.as_nanos() * u128::from(number))
            + share(self.interval, self.hash);
        Moment::from_start((middle + jitter).saturating_sub(tenth / 2))
    }
}

/// The part of `whole` that `chance` stands for, from nothing to nearly all.
fn share(whole: Duration, chance: u64) -> Duration {
    Duration::from_nanos_u128((whole.as_nanos() * u128::from(chance)) >> 64)
}

/// Turns a number into one that looks like chance (the finaliser of SplitMix64).
pub fn scramble(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beats_come_once_an_interval_give_or_take_the_jitter() {
        let interval = Duration::from_secs(10);
        for seed in 0..200 {
            let rhythm = Rhythm::new(interval, scramble(seed));
            let mut now = Moment::ZERO + Duration::from_secs(seed);
            let mut last = rhythm.after(now);
            for _ in 0..50 {
                now = last.at;
                let next = rhythm.after(now);
                assert_eq!(next.number, last.number + 1);
                let gap = next.at.since(last.at);
                assert!(gap >= interval * 9 / 10 && gap <= interval * 11 / 10, "{gap:?}");
                last = next;
            }
        }
    }

    #[test]
    fn targets_are_spread_over_the_interval() {
        let interval = Duration::from_secs(10);
        let mut buckets = [0; 100];
        for seed in 0..10_000 {
            let beat = Rhythm::new(interval, scramble(seed)).after(Moment::ZERO + Duration::from_secs(100));
            buckets[(beat.at.since(Moment::ZERO).as_millis() % 10_000 / 100) as usize] += 1;
        }
        assert!(buckets.iter().all(|&n| n < 500), "no tenth of a second holds 5 %: {buckets:?}");
    }

    #[test]
    fn the_first_round_is_quick_for_a_few_and_spread_for_many() {
        for (count, interval, longest) in [(100_000, 30, 2000), (100_000, 1, 1000), (100, 30, 100)] {
            let rounds: Vec<_> = (0..1000)
                .map(|seed| {
                    Rhythm::new(Duration::from_secs(interval), scramble(seed)).first(Moment::ZERO, count)
                })
                .collect();
            let latest = rounds.iter().max().unwrap().elapsed().as_millis();
            assert!(latest < longest && latest > longest * 9 / 10, "{latest}");
        }
    }
}
