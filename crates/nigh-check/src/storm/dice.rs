//! The storm's random numbers. Each party draws from a stream of its own, so that leaving out one fault does not change
//! the numbers of others.

use nigh_sim::llc::SplitMix64;

/// A stream of draws, determined by seed and name.
#[derive(Clone, Debug)]
pub(super) struct Dice(SplitMix64);

impl Dice {
    pub(super) const fn new(seed: u64, stream: u64) -> Self {
        let mut mixed = SplitMix64::new(seed ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93));
        Self(SplitMix64::new(mixed.next_u64()))
    }

    pub(super) const fn number(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number from 0 to below `bound`; 0 if `bound` is 0.
    pub(super) const fn below(&mut self, bound: u32) -> u32 {
        self.0.below(bound)
    }

    /// True with this probability in a thousand.
    pub(super) const fn chance(&mut self, per_mille: u32) -> bool {
        self.below(1000) < per_mille
    }

    /// A number from `low` to below `high`.
    pub(super) const fn between(&mut self, low: u64, high: u64) -> u64 {
        if high > low { low + self.number() % (high - low) } else { low }
    }

    /// One of `all`; none if it is empty.
    pub(super) fn pick<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        all.get(self.below(all.len() as u32) as usize).copied()
    }
}
