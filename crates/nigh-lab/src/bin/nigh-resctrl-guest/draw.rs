//! Seeded choice: the same seed draws the same commands on every machine.

use nigh_sim::llc::SplitMix64;

/// A source of choices.
#[derive(Debug)]
pub(crate) struct Draw(SplitMix64);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// A number below `limit`, which is not zero.
    pub(crate) fn below(&mut self, limit: u32) -> u32 {
        (self.0.next_u64() % u64::from(limit.max(1))) as u32
    }

    /// True in `percent` of cases.
    pub(crate) fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }

    /// One of `choices`, which are not empty.
    pub(crate) fn of<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len() as u32) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_published_sequence() {
        let mut draw = Draw::new(0);
        assert_eq!([draw.0.next_u64(), draw.0.next_u64()], [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]);
    }
}
