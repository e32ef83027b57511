//! The storm's one source of chance. Each party of it draws from a stream of its own, so that a fault that is left out
//! moves no other's numbers.

use nigh_sim::llc::SplitMix64;

/// A stream of draws that seed and name decide.
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

    /// From 0 to below `bound`; 0 where that is 0.
    pub(super) const fn below(&mut self, bound: u32) -> u32 {
        self.0.below(bound)
    }

    /// True so often in a thousand.
    pub(super) const fn chance(&mut self, per_mille: u32) -> bool {
        self.below(1000) < per_mille
    }

    /// From `low` to below `high`.
    pub(super) const fn between(&mut self, low: u64, high: u64) -> u64 {
        if high > low { low + self.number() % (high - low) } else { low }
    }

    /// One of `all`; none if there is none.
    pub(super) fn pick<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        all.get(self.below(all.len() as u32) as usize).copied()
    }
}
