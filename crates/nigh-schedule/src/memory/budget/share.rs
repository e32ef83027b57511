//! One sandbox's share of the node's memory. Pure.

use nigh_terms::{ByteSize, Monotonic};

use crate::memory::value::SandboxUse;

/// The state of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The sandbox is being made, or runs an invocation.
    Busy,
    /// The sandbox has been idle since this time.
    Idle(Monotonic),
    /// The sandbox was idle and will end.
    Ending,
}

#[derive(Clone, Copy, Debug)]
/// The memory of one sandbox.
pub(super) struct Share {
    pub(super) booked: ByteSize,
    pub(super) granted: ByteSize,
    /// The limit that it wants, if that is above its grant.
    pub(super) wanted: ByteSize,
    /// The memory reserved for its next run, while it is idle.
    pub(super) ahead: ByteSize,
    pub(super) state: State,
    pub(super) usage: SandboxUse,
}

impl Share {
    pub(super) fn missing(&self) -> ByteSize {
        self.wanted.saturating_sub(self.granted)
    }

    /// True if it has a grant and wants more.
    pub(super) fn grows(&self) -> bool {
        self.granted > ByteSize::ZERO && self.missing() > ByteSize::ZERO
    }
}
