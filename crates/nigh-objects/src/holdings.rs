//! What a node tells other processes about its copies: which came and which went, by hashes of the objects' names.
//! Pure.
//!
//! Placement needs to know where bytes are without asking, so each node reports its changes since the last report. A
//! log of fixed length keeps the changes. A listener that begins, or has fallen behind the log, is first told of all
//! copies, page by page, and then of the changes meanwhile. Telling a change twice does no harm.

use std::collections::VecDeque;

use nigh_data::NamePrint;

/// The most changes remembered. A listener that is further behind is told of all copies.
const CHANGES_MAX: usize = 16_384;

/// A copy came, or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldingChange {
    /// The hash of the object's name.
    pub object: NamePrint,
    /// The bytes that the copy takes in memory; none if there is no copy any more.
    pub bytes: Option<u64>,
}

/// How far a listener has been told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoldingsCursor(pub(crate) CursorState);

/// The position of a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CursorState {
    /// The listener was told nothing.
    #[default]
    Begins,
    /// The listener was told of the copies in slots below `place`; after the other copies come the changes from number
    /// `then` on.
    Walks { place: u32, then: u64 },
    /// The listener was told of all changes before this number.
    Follows(u64),
}

/// One page of changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HoldingsPage {
    /// True if the listener must discard everything that it was told before.
    pub anew: bool,
    /// The changes, in order.
    pub changes: Vec<HoldingChange>,
    /// The position after this page; the listener stores it when the page has arrived.
    pub cursor: HoldingsCursor,
}

/// The remembered changes.
#[derive(Debug, Default)]
pub(crate) struct ChangeLog {
    changes: VecDeque<HoldingChange>,
    /// The number of the first remembered change.
    first: u64,
    /// True if somebody listens; until then nothing is remembered.
    followed: bool,
}

impl ChangeLog {
    pub(crate) fn follow(&mut self) {
        self.followed = true;
    }

    /// The number of the next change.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.changes.len() as u64
    }

    /// Adds a change. `print` is computed only if somebody listens.
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

    /// Up to `max` changes from number `from` on; none if that change is no longer remembered.
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
