//! Numbers nobody can guess ahead of time, a few instructions each.

use std::hash::{BuildHasher, RandomState};

/// A wyrand generator.
#[derive(Clone, Debug)]
pub(super) struct Chance {
    state: u64,
}

impl Chance {
    /// Seeded from the operating system, by way of the standard library's hash keys.
    pub fn new() -> Chance {
        Chance { state: RandomState::new().hash_one(0) }
    }

    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0xa076_1d64_78bd_642f);
        let wide = u128::from(self.state) * u128::from(self.state ^ 0xe703_7ed1_a0b4_28db);
        (wide >> 64) as u64 ^ wide as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bit_is_set_about_half_of_the_time() {
        let mut chance = Chance::new();
        let mut set = [0_u32; 64];
        for _ in 0..10_000 {
            let number = chance.next();
            for (bit, count) in set.iter_mut().enumerate() {
                *count += (number >> bit & 1) as u32;
            }
        }
        assert!(set.iter().all(|count| (4_500..5_500).contains(count)), "{set:?}");
    }

    #[test]
    fn two_workers_draw_different_numbers() {
        assert_ne!(Chance::new().next(), Chance::new().next());
    }
}
