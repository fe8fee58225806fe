//! Chance from a seed.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::health::scramble;

/// A row of numbers that look like chance and follow from a seed.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The row of this seed.
    pub fn new(seed: u64) -> Dice {
        Dice(scramble(seed))
    }

    /// The next number of 64 bits.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        scramble(self.0)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.number() % bound as u64) as usize
    }

    /// A number of a range.
    pub fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        range.start() + self.number() % (range.end() - range.start() + 1)
    }

    /// So many times out of a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.number() % 100 < percent
    }

    /// One of them.
    pub fn pick<'a, T>(&mut self, among: &'a [T]) -> &'a T {
        &among[self.below(among.len())]
    }

    /// A number of milliseconds of a range.
    pub fn millis(&mut self, range: RangeInclusive<u64>) -> Duration {
        Duration::from_millis(self.within(range))
    }

    /// A number of seconds of a range.
    pub fn seconds(&mut self, range: RangeInclusive<u64>) -> Duration {
        Duration::from_secs(self.within(range))
    }
}
