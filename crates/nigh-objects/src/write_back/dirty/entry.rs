//! One object that waits: its newest state, the push under way, and the pushes that got no answer.

use nigh_terms::{Epoch, Monotonic, Version};

use super::state::{Base, ObjectState, UnpushedWrite};
use crate::write_back::policy::WriteMode;

/// Pushes without an answer that are remembered of one object.
const ATTEMPTS_MAX: usize = 8;

/// One of them.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) newest: UnpushedWrite,
    /// When the oldest state that the store does not have was acknowledged.
    pub(super) since: Monotonic,
    /// When it is to be pushed. It stands in the queue under this, unless it is being pushed or is ephemeral.
    pub(super) due: Monotonic,
    /// The state that is being pushed.
    pub(super) pushing: Option<Version>,
    /// What the last push that began leaves in the store.
    pub(super) leaves: Base,
    /// The state that was pushed last.
    pub(super) pushed: Option<Version>,
    pub(super) base: Base,
    pub(super) attempts: Vec<Base>,
    /// Until then a push without an answer may land, over a later one too.
    pub(super) doubt: Monotonic,
    pub(super) failures: u32,
    /// The damaged journal may have lost newer writes of the object; all of them are of epochs before this one.
    pub(super) may_lack: Option<Epoch>,
}

impl Entry {
    /// Whether the store has its newest state, and it is only looked after.
    pub(super) fn is_watched(&self) -> bool {
        self.pushed == Some(self.newest.version)
    }

    /// Whether it is kept in memory alone, and whether it was.
    pub(super) fn ephemeral_and_lost(&self) -> (bool, bool) {
        let ephemeral = self.newest.mode == WriteMode::Ephemeral;
        (ephemeral, ephemeral && self.newest.becomes == ObjectState::Lost)
    }

    pub(super) fn is_queued(&self) -> bool {
        self.pushing.is_none() && self.newest.is_pushed_at_last()
    }

    /// The store may hold this, left by an earlier push.
    pub(super) fn has_attempted(&mut self, left: Base) {
        if !self.attempts.contains(&left) {
            if self.attempts.len() == ATTEMPTS_MAX {
                self.attempts.remove(0);
            }
            self.attempts.push(left);
        }
    }

    /// Whether it may be pushed before it is due: it has not failed, and is not only looked after.
    pub(super) fn may_hurry(&self) -> bool {
        self.failures == 0 && !self.is_watched()
    }
}
