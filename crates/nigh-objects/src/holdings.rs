//! What a node tells other processes about its copies: which came and which went, by the prints of their objects'
//! names. Pure.
//!
//! Placement needs to know where bytes are without asking: each node tells what has changed since it told last. Changes
//! are kept in a log of fixed length. Who follows it from the beginning, or has fallen behind it, is first told of all
//! copies, page by page; what changes meanwhile comes after. What was told may be told again, and ends the same.

use std::collections::VecDeque;

use nigh_data::NamePrint;

/// Changes that are remembered; who is further behind is told everything.
const CHANGES_MAX: usize = 16_384;

/// A copy came, or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldingChange {
    /// Of which object.
    pub object: NamePrint,
    /// What it takes in memory; none where there is no copy any more.
    pub bytes: Option<u64>,
}

/// How far somebody has been told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoldingsCursor(pub(crate) CursorState);

/// Where one who is told stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CursorState {
    /// Nothing was told.
    #[default]
    Begins,
    /// Of the copies at places below `place` it was told; then come the changes from `then` on.
    Walks { place: u32, then: u64 },
    /// Of all changes before this one.
    Follows(u64),
}

/// What is told at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HoldingsPage {
    /// What was told before counts no more: this begins from nothing.
    pub anew: bool,
    /// In this order.
    pub changes: Vec<HoldingChange>,
    /// Where it goes on; it is to be kept when what stands here has arrived.
    pub cursor: HoldingsCursor,
}

/// The changes that are remembered.
#[derive(Debug, Default)]
pub(crate) struct ChangeLog {
    changes: VecDeque<HoldingChange>,
    /// The number of the first that is remembered.
    first: u64,
    /// Somebody is told: until then nothing is remembered.
    followed: bool,
}

impl ChangeLog {
    pub(crate) fn follow(&mut self) {
        self.followed = true;
    }

    /// The number that the next change will have.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.changes.len() as u64
    }

    /// Something changed; `print` is asked for only where somebody is told.
    pub(crate) fn push(&mut self, print: impl FnOnce() -> NamePrint, bytes: Option<u64>) {
        if !self.followed {
            return;
        }
        if self.changes.len() >= CHANGES_MAX {
            self.changes.pop_front();
            self.first += 1;
        }
        self.changes.push_back(HoldingChange { object: print(), bytes });
    }

    /// Up to `max` changes from the one numbered `from` on; none if it is not remembered.
    pub(crate) fn since(&self, from: u64, max: usize) -> Option<Vec<HoldingChange>> {
        let at = usize::try_from(from.checked_sub(self.first)?).ok()?;
        (at <= self.changes.len()).then(|| self.changes.iter().skip(at).take(max).copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_told_from_any_that_is_remembered_and_no_other() {
        let mut log = ChangeLog::default();
        log.push(|| NamePrint(1), Some(1));
        assert_eq!(log.next(), 0, "nobody is told");
        log.follow();
        (0..CHANGES_MAX as u64 + 10).for_each(|at| log.push(|| NamePrint(at), Some(at)));
        assert_eq!(log.since(9, 1), None);
        assert_eq!(log.since(10, 1), Some(vec![HoldingChange { object: NamePrint(10), bytes: Some(10) }]));
        assert_eq!(log.since(log.next(), 5), Some(Vec::new()));
        assert_eq!(log.since(log.next() + 1, 5), None, "of another life");
    }
}
