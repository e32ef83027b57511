//! An object with an unpushed write: its newest state, the push under way, and the pushes that got no answer.

use nigh_terms::{Epoch, Monotonic, Version};

use super::state::{Base, ObjectState, UnpushedWrite};
use crate::write_back::policy::WriteMode;

/// The most pushes without an answer that are remembered for one object.
const ATTEMPTS_MAX: usize = 8;

/// The push state of one object.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) newest: UnpushedWrite,
    /// When the oldest state that the store does not have was acknowledged.
    pub(super) since: Monotonic,
    /// When it must be pushed. The queue has it at this time, unless it is being pushed or is ephemeral.
    pub(super) due: Monotonic,
    /// The version that is being pushed; none if no push is under way.
    pub(super) pushing: Option<Version>,
    /// What the last started push leaves in the store.
    pub(super) leaves: Base,
    /// The version that was pushed last; none if none was.
    pub(super) pushed: Option<Version>,
    pub(super) base: Base,
    pub(super) attempts: Vec<Base>,
    /// Until this time a push without an answer may be carried out, even over a later one.
    pub(super) doubt: Monotonic,
    pub(super) failures: u32,
    /// The damaged journal may have lost newer writes of the object; all of them are of epochs before this one.
    pub(super) may_lack: Option<Epoch>,
    /// An outsider has put or removed the object since the write was acknowledged, and the store may show nothing of that:
    /// the write gives way.
    pub(super) contested: bool,
}

impl Entry {
    /// True if the store has the newest state, and the object is only watched.
    pub(super) fn is_watched(&self) -> bool {
        self.pushed == Some(self.newest.version)
    }

    /// True, first, if the object is only in memory, and, second, if it was lost from there.
    pub(super) fn ephemeral_and_lost(&self) -> (bool, bool) {
        let ephemeral = self.newest.mode == WriteMode::Ephemeral;
        (ephemeral, ephemeral && self.newest.becomes == ObjectState::Lost)
    }

    pub(super) fn is_queued(&self) -> bool {
        self.pushing.is_none() && self.newest.is_pushed_at_last()
    }

    /// Records that the store may have `left`, from an earlier push.
    pub(super) fn has_attempted(&mut self, left: Base) {
        if !self.attempts.contains(&left) {
            if self.attempts.len() == ATTEMPTS_MAX {
                self.attempts.remove(0);
            }
            self.attempts.push(left);
        }
    }

    /// True if it may be pushed before it is due: its push has not failed, and it is not only watched.
    pub(super) fn may_hurry(&self) -> bool {
        self.failures == 0 && !self.is_watched()
    }
}
