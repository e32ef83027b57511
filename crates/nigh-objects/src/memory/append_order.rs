//! The order in which a home is told of its writes: by version, whichever task wakes first.
//!
//! Versions are dense. Each version that the ledger gives is reported here, or is lost with an append that ended
//! without naming it. A version is held back until the home was told all earlier ones, or they are known to be lost.
//! Pure: it says which version may be told now.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use nigh_terms::{Epoch, Sequence, Version};

/// The most lost appends that are distinguished. One more replaces the last barrier; the first still ends.
const BARRIERS_MAX: usize = 2;

/// Names an append that the ledger was asked for.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Clone, Copy)]
pub struct AppendNumber {
    epoch: Epoch,
    number: u64,
}

/// Once all appends up to `last` have ended, no version below `limit` is reported any more.
#[derive(Debug)]
struct Barrier {
    last: AppendNumber,
    limit: Sequence,
}

/// The versions that the home was not told yet; `T` is what it is told of one.
#[derive(Debug)]
pub struct AppendOrder<T> {
    epoch: Epoch,
    next: Sequence,
    /// By version; none if there is nothing to tell.
    held: BTreeMap<Sequence, Option<T>>,
    under_way: BTreeSet<AppendNumber>,
    asked: u64,
    barriers: VecDeque<Barrier>,
}

impl<T> AppendOrder<T> {
    /// An order in which the home was told all versions up to `version`.
    #[must_use]
    pub const fn after(version: Version) -> Self {
        Self {
            epoch: version.epoch,
            next: version.sequence.next(),
            held: BTreeMap::new(),
            under_way: BTreeSet::new(),
            asked: 0,
            barriers: VecDeque::new(),
        }
    }

    /// True if the home was told `version`, or never will be.
    #[must_use]
    pub fn is_decided(&self, version: Version) -> bool {
        let nothing_waits = self.under_way.is_empty() && self.held.is_empty();
        nothing_waits || version < Version { epoch: self.epoch, sequence: self.next }
    }

    /// The ledger is about to be asked for a version.
    pub fn begins(&mut self) -> AppendNumber {
        self.asked += 1;
        let asked = self.last_asked();
        self.under_way.insert(asked);
        asked
    }

    const fn last_asked(&self) -> AppendNumber {
        AppendNumber { epoch: self.epoch, number: self.asked }
    }

    /// The ledger has answered with a version.
    pub fn appended(&mut self, asked: AppendNumber, version: Version, what: T) {
        self.under_way.remove(&asked);
        self.placed(version, what);
    }

    /// The ledger has answered without giving a version.
    pub fn refused(&mut self, asked: AppendNumber) {
        self.under_way.remove(&asked);
    }

    /// The ledger has given a version of which there is nothing to tell.
    pub fn passed(&mut self, asked: AppendNumber, version: Version) {
        self.under_way.remove(&asked);
        self.skip(version);
    }

    /// The ledger may have given a version that it never reports. `newer` is a version that it gave after that.
    pub fn lost(&mut self, asked: AppendNumber, newer: Version) {
        self.under_way.remove(&asked);
        self.skip(newer);
        if asked.epoch != self.epoch || newer.epoch != self.epoch {
            // Nothing of this epoch is lost, or the ledger is another home's already and this one is about to end.
            return;
        }
        if self.barriers.len() == BARRIERS_MAX {
            self.barriers.pop_back();
        }
        self.barriers.push_back(Barrier { last: self.last_asked(), limit: newer.sequence });
    }

    /// True if `version` is of this order, and nothing was decided of it.
    fn awaits(&self, version: Version) -> bool {
        version.epoch == self.epoch && version.sequence >= self.next
    }

    /// A version was taken without an append; the home is told `what`.
    pub fn placed(&mut self, version: Version, what: T) {
        if self.awaits(version) {
            self.held.insert(version.sequence, Some(what));
        }
    }

    /// A version was taken, and there is nothing to tell.
    pub fn skip(&mut self, version: Version) {
        if self.awaits(version) {
            self.held.insert(version.sequence, None);
        }
    }

    /// The next version that the home may be told.
    pub fn next_to_tell(&mut self) -> Option<(Version, T)> {
        loop {
            if let Some(first) = self.held.first_entry()
                && *first.key() == self.next
            {
                let version = Version { epoch: self.epoch, sequence: self.next };
                self.next = self.next.next();
                match first.remove() {
                    Some(what) => return Some((version, what)),
                    None => continue,
                }
            }
            let barrier = self.barriers.front()?;
            if self.under_way.first().is_some_and(|first| *first <= barrier.last) {
                return None;
            }
            let limit = barrier.limit;
            if self.next <= limit {
                // The barrier's limit itself may be held back.
                self.next = self.held.keys().next().copied().map_or(limit, |held| held.min(limit));
            } else {
                self.barriers.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn version(sequence: u64) -> Version {
        Version { epoch: Epoch(3), sequence: Sequence(sequence) }
    }

    fn all(order: &mut AppendOrder<u64>) -> Vec<u64> {
        std::iter::from_fn(|| order.next_to_tell())
            .map(|(at, what)| if at.sequence.0 == what { what } else { 0 })
            .collect()
    }

    #[test]
    fn what_comes_early_waits_for_what_is_before_it() {
        let mut order = AppendOrder::after(version(0));
        let (one, two) = (order.begins(), order.begins());
        order.placed(version(3), 3);
        order.appended(two, version(2), 2);
        assert_eq!(all(&mut order), [0; 0]);
        order.appended(one, version(1), 1);
        assert_eq!(all(&mut order), [1, 2, 3]);
        order.begins();
        assert!(order.is_decided(version(3)) && !order.is_decided(version(4)));
    }

    #[test]
    fn a_lost_version_holds_others_only_until_those_under_way_have_spoken() {
        let mut order = AppendOrder::after(version(0));
        let (lost, other) = (order.begins(), order.begins());
        order.placed(version(4), 4);
        order.lost(lost, version(5));
        let later = order.begins();
        order.appended(later, version(7), 7);
        assert_eq!(all(&mut order), [0; 0], "the other may be 1, 2 or 3");
        order.appended(other, version(2), 2);
        assert_eq!(all(&mut order), [2, 4], "what is lost is below 5; 6 may yet come");
        order.placed(version(6), 6);
        assert_eq!(all(&mut order), [6, 7]);
    }

    #[test]
    fn a_refusal_loses_nothing_and_many_losses_take_no_room() {
        let mut order = AppendOrder::<u64>::after(version(0));
        let refused = order.begins();
        order.refused(refused);
        let slow = order.begins();
        for sequence in 1..1000 {
            let lost = order.begins();
            order.lost(lost, version(2 * sequence));
        }
        assert!(order.barriers.len() <= BARRIERS_MAX);
        order.refused(slow);
        assert_eq!(all(&mut order), [0; 0]);
        assert!(order.is_decided(version(1998)) && order.held.is_empty());
    }

    /// Two orders of one process, in each of which one append has been asked for.
    fn earlier_and_next() -> ((AppendNumber, Version), AppendOrder<u64>, AppendNumber) {
        let of = |epoch, sequence| Version { epoch: Epoch(epoch), sequence: Sequence(sequence) };
        let (mut earlier, mut next) = (AppendOrder::<u64>::after(of(2, 0)), AppendOrder::after(version(0)));
        let (late, asked) = (earlier.begins(), next.begins());
        ((late, of(2, 1)), next, asked)
    }

    #[test]
    fn a_version_of_an_earlier_epoch_is_not_told_in_place_of_one_of_this() {
        let ((late, version_then), mut order, asked) = earlier_and_next();
        order.appended(late, version_then, 9);
        order.passed(late, version_then);
        assert_eq!(all(&mut order), [0; 0]);
        order.appended(asked, version(1), 1);
        assert_eq!(all(&mut order), [1]);
    }

    #[test]
    fn what_an_earlier_epoch_was_refused_or_lost_ends_no_append_of_this() {
        let ((late, _), mut order, asked) = earlier_and_next();
        order.refused(late);
        // The ledger says its place of now, which no write has.
        order.lost(late, version(2));
        order.placed(version(3), 3);
        assert_eq!(all(&mut order), [0; 0], "1 is under way");
        order.appended(asked, version(1), 1);
        assert_eq!(all(&mut order), [1, 3]);
    }

    #[test]
    fn a_loss_that_is_heard_when_the_next_home_has_the_ledger_takes_no_place_here() {
        let mut order = AppendOrder::<u64>::after(version(0));
        let (lost, other) = (order.begins(), order.begins());
        order.lost(lost, Version { epoch: Epoch(4), sequence: Sequence(1) });
        order.appended(other, version(1), 1);
        assert_eq!(all(&mut order), [1]);
    }

    proptest! {
        /// Some thirty appends and placings, answered in any order, some never: the home is told in order, and in the
        /// end all that was not lost.
        #[test]
        fn everything_that_is_not_lost_is_told_in_order(
            kinds in prop::collection::vec(0u8..4, 1..30),
            picks in prop::collection::vec(any::<usize>(), 30),
        ) {
            let (mut order, mut last, mut told, mut expected) = (AppendOrder::after(version(0)), 0, Vec::new(), Vec::new());
            let mut give = || { last += 1; version(last) };
            let mut open: Vec<(AppendNumber, Version, bool)> = Vec::new();
            let mut answer = |order: &mut AppendOrder<u64>, open: &mut Vec<_>, pick: usize, newer: &mut dyn FnMut() -> Version| {
                if open.is_empty() { return }
                let at = pick % open.len();
                let (asked, version, is_lost): (AppendNumber, Version, bool) = open.remove(at);
                if is_lost {
                    order.lost(asked, newer());
                } else {
                    expected.push(version.sequence.0);
                    order.appended(asked, version, version.sequence.0);
                }
            };
            for (kind, pick) in kinds.iter().zip(picks.iter().copied().cycle()) {
                match kind {
                    0 => { let asked = order.begins(); open.push((asked, give(), false)); }
                    1 => { let asked = order.begins(); open.push((asked, give(), true)); }
                    2 => { let version = give(); order.skip(version); }
                    _ => answer(&mut order, &mut open, pick, &mut give),
                }
                told.extend(all(&mut order));
            }
            while !open.is_empty() {
                answer(&mut order, &mut open, 0, &mut give);
                told.extend(all(&mut order));
            }
            prop_assert!(told.is_sorted_by(|a, b| a < b), "{told:?}");
            expected.sort_unstable();
            prop_assert_eq!(told, expected);
        }
    }
}
