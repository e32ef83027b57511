//! What one node covers of one shard.
//!
//! A node covers a version when the home has said that the node covers it after its k-th invalidation, and the node has
//! applied all invalidations up to the k-th. Invalidations may come in any order; only the contiguous ones count. A
//! higher epoch begins from nothing and covers all lower ones, for the node drops their copies.

use std::collections::{BTreeMap, BTreeSet};

use nigh_terms::{Epoch, Sequence, Version, invariant};

use super::message::{Counter, Cover};
use super::rules::{Rule, Rules};

/// The most invalidations remembered that arrived before an earlier one. The home sends further ones again.
const AHEAD_MAX: usize = 4096;
/// The most claims remembered that wait for invalidations. Beyond it the farthest is dropped, and asked for again.
const CLAIMS_MAX: usize = 64;

/// One node's progress in one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Coverage {
    epoch: Epoch,
    /// All invalidations up to here have been applied.
    applied: Counter,
    /// Invalidations that were applied although one before them is missing.
    ahead: BTreeSet<Counter>,
    /// Claims whose counter has not been reached.
    claims: BTreeMap<Counter, Sequence>,
    covered: Sequence,
}

impl Coverage {
    /// The home's epoch; the lowest if the node has met no home.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The last of the contiguous invalidations.
    #[must_use]
    pub const fn applied(&self) -> Counter {
        self.applied
    }

    /// Begins a higher epoch.
    pub fn begin(&mut self, epoch: Epoch) {
        // Otherwise the node would forget its coverage, and a covered token would no longer be covered.
        invariant!(epoch > self.epoch, "the coverage of epoch {:?} begins anew under {epoch:?}", self.epoch);
        *self = Self { epoch, ..Self::default() };
    }

    /// An invalidation of this epoch was applied. True if coverage may have grown.
    pub fn apply(&mut self, counter: Counter, rules: &impl Rules) -> bool {
        if counter <= self.applied || self.ahead.contains(&counter) {
            return false;
        }
        if counter.0 != self.applied.0 + 1 {
            if self.ahead.len() < AHEAD_MAX {
                self.ahead.insert(counter);
            }
        } else {
            self.applied = counter;
            while self.ahead.first().is_some_and(|next| next.0 == self.applied.0 + 1) {
                self.applied.0 += 1;
                self.ahead.pop_first();
            }
        }
        // Otherwise `applied` would never advance past the next contiguous counter.
        let (applied, ahead) = (self.applied, self.ahead.first());
        invariant!(ahead.is_none_or(|ahead| ahead.0 > applied.0 + 1), "{ahead:?} is ahead of {applied:?}");
        self.redeem(rules)
    }

    /// The home of this epoch has made a claim. True if coverage has grown.
    pub fn claim(&mut self, cover: Cover, rules: &impl Rules) -> bool {
        if cover.through.epoch != self.epoch || cover.through.sequence <= self.covered {
            return false;
        }
        let claimed = self.claims.entry(cover.counter).or_default();
        *claimed = (*claimed).max(cover.through.sequence);
        let grown = self.redeem(rules);
        if self.claims.len() > CLAIMS_MAX {
            self.claims.pop_last();
        }
        grown
    }

    /// The newest version that the node covers.
    #[must_use]
    pub const fn covered(&self) -> Version {
        Version { epoch: self.epoch, sequence: self.covered }
    }

    /// True if the node covers `version`.
    #[must_use]
    pub fn covers(&self, version: Version, rules: &impl Rules) -> bool {
        if rules.hold(Rule::EpochInTokens) {
            version <= Version { epoch: self.epoch, sequence: self.covered }
        } else {
            version.sequence <= self.covered
        }
    }

    fn redeem(&mut self, rules: &impl Rules) -> bool {
        let reached = if rules.hold(Rule::ContiguousPrefix) {
            self.applied
        } else {
            self.ahead.last().map_or(self.applied, |last| self.applied.max(*last))
        };
        let before = self.covered;
        while let Some(claim) = self.claims.first_entry()
            && *claim.key() <= reached
        {
            self.covered = self.covered.max(claim.remove());
        }
        self.covered > before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Contract;

    const fn version(epoch: u64, sequence: u64) -> Version {
        Version { epoch: Epoch(epoch), sequence: Sequence(sequence) }
    }

    const fn cover(counter: u64, epoch: u64, sequence: u64) -> Cover {
        Cover { counter: Counter(counter), through: version(epoch, sequence) }
    }

    #[test]
    fn a_claim_counts_when_every_invalidation_before_it_is_applied() {
        let mut coverage = Coverage::default();
        coverage.begin(Epoch(1));
        assert!(!coverage.claim(cover(2, 1, 9), &Contract));
        assert!(!coverage.apply(Counter(2), &Contract), "the first is missing");
        assert!(!coverage.covers(version(1, 9), &Contract));
        assert!(coverage.apply(Counter(1), &Contract));
        assert!(coverage.covers(version(1, 9), &Contract) && !coverage.covers(version(1, 10), &Contract));
        assert_eq!(coverage.applied(), Counter(2));
        assert!(!coverage.apply(Counter(1), &Contract), "one that comes again changes nothing");
    }

    #[test]
    fn a_new_epoch_covers_all_old_ones_and_nothing_of_its_own() {
        let mut coverage = Coverage::default();
        coverage.begin(Epoch(1));
        assert!(coverage.claim(cover(0, 1, 5), &Contract));
        assert!(!coverage.covers(version(2, 1), &Contract));
        coverage.begin(Epoch(2));
        assert!(coverage.covers(version(1, 900), &Contract));
        assert!(!coverage.covers(version(2, 1), &Contract));
        assert!(!coverage.claim(cover(0, 1, 1000), &Contract), "a claim of the old home says nothing");
    }

    #[test]
    fn what_is_remembered_is_bounded_and_forgetting_only_costs_another_question() {
        let mut coverage = Coverage::default();
        coverage.begin(Epoch(1));
        for counter in 2..2 * AHEAD_MAX as u64 {
            coverage.apply(Counter(counter), &Contract);
            coverage.claim(cover(counter, 1, counter), &Contract);
        }
        assert_eq!((coverage.ahead.len(), coverage.claims.len()), (AHEAD_MAX, CLAIMS_MAX));
        assert!(coverage.apply(Counter(1), &Contract));
        assert!(coverage.covers(version(1, 2), &Contract) && !coverage.covers(version(1, 2000), &Contract));
        assert!(coverage.claim(cover(coverage.applied().0, 1, 2000), &Contract));
        assert!(coverage.covers(version(1, 2000), &Contract));
    }
}
