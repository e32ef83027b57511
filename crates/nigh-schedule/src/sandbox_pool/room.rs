//! The memory and number of a node's sandboxes: pure.
//!
//! A sandbox that is being made or is not frozen takes its function's booking, because it may grow to that. A frozen
//! one takes what it uses, because it cannot grow. All together never take more than the node's memory for sandboxes
//! and what the cache lends, so growth always succeeds. The memory of ending sandboxes may be promised to an
//! invocation: it is counted once, and the invocation begins when they are gone.

use nigh_terms::{ByteSize, invariant};

use super::PoolLimits;

/// The room that all sandboxes take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Room {
    /// Number of sandboxes, from the start's command until they are gone.
    pub(super) sandboxes: usize,
    /// The memory of sandboxes that are being made, run, or are not frozen yet.
    pub(super) busy: ByteSize,
    /// The memory of frozen sandboxes.
    pub(super) resting: ByteSize,
    /// The memory of ending sandboxes.
    pub(super) ending: ByteSize,
    /// The part of the ending ones' memory and number that is promised already.
    pub(super) promised: RoomShortage,
}

/// The room that is missing for a sandbox to be made, or to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RoomShortage {
    pub(super) memory: ByteSize,
    pub(super) sandboxes: usize,
}

impl RoomShortage {
    pub(super) fn is_none(self) -> bool {
        self == Self::default()
    }

    /// Subtracts the room that an ended sandbox of `memory` frees. Returns that part.
    pub(super) fn made_up(&mut self, memory: ByteSize) -> Self {
        let part = Self { memory: self.memory.min(memory), sandboxes: self.sandboxes.min(1) };
        *self = self.less(part);
        part
    }

    pub(super) fn less(self, other: Self) -> Self {
        Self {
            memory: self.memory.saturating_sub(other.memory),
            sandboxes: self.sandboxes.saturating_sub(other.sandboxes),
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self { memory: self.memory + other.memory, sandboxes: self.sandboxes + other.sandboxes }
    }
}

impl Room {
    /// Subtracts `memory` of a sandbox from `part` (busy, resting or ending memory), which includes it.
    pub(super) fn take_off(part: &mut ByteSize, memory: ByteSize) {
        // Each part is the sum over its sandboxes, so a sandbox that leaves was added before.
        invariant!(*part >= memory, "a sandbox stops taking {memory}, and all of its kind take {part}");
        *part = part.saturating_sub(memory);
    }

    /// A sandbox is gone.
    pub(super) fn leave(&mut self) {
        // Each sandbox is counted once, from its start's command on.
        invariant!(self.sandboxes > 0, "a sandbox is gone and none was counted: {self:?}");
        self.sandboxes -= 1;
    }

    /// Checks the law that holds after every change: growth always succeeds.
    pub(super) fn check(&self, limits: &PoolLimits) {
        // `lack` and `victims` have made room before anything is booked, so no booking exceeds the node's memory.
        invariant!(self.taken() <= limits.memory(), "sandboxes take more than {}: {self:?}", limits.memory());
        invariant!(self.busy <= limits.memory(), "busy sandboxes book more than {}: {self:?}", limits.memory());
    }

    /// The memory of all sandboxes, without the promised part.
    pub(super) fn taken(&self) -> ByteSize {
        (self.busy + self.resting + self.ending).saturating_sub(self.promised.memory)
    }

    /// The room that is missing for a new sandbox that books `booked`. None if it does not fit beside the busy ones.
    pub(super) fn for_start(&self, booked: ByteSize, limits: &PoolLimits) -> Option<RoomShortage> {
        let number = (self.sandboxes + 1).saturating_sub(self.promised.sandboxes);
        let sandboxes = number.saturating_sub(limits.sandboxes_max);
        Some(RoomShortage { sandboxes, ..self.for_run(booked, ByteSize::ZERO, limits)? })
    }

    /// The room that is missing for a frozen sandbox that takes `held` to run with `booked`. None if it does not fit
    /// beside the busy ones.
    pub(super) fn for_run(&self, booked: ByteSize, held: ByteSize, limits: &PoolLimits) -> Option<RoomShortage> {
        if self.busy + booked > limits.memory() {
            return None;
        }
        let taken = self.taken().saturating_sub(held) + booked;
        let memory = taken.saturating_sub(limits.memory());
        Some(RoomShortage { memory, sandboxes: 0 })
    }

    /// The memory that a sandbox may book without ending another.
    pub(super) fn free(&self, limits: &PoolLimits) -> ByteSize {
        limits.memory().saturating_sub(self.taken())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: PoolLimits = PoolLimits {
        sandboxes_max: 2,
        memory_max: ByteSize::mib(512),
        lent_max: ByteSize::mib(64),
        ..PoolLimits::LAMBDA
    };

    #[test]
    fn busy_ones_and_those_that_rest_stay_within_the_nodes_memory_and_what_the_cache_lends() {
        let mib = ByteSize::mib;
        let room = Room { sandboxes: 1, busy: mib(256), resting: mib(100), ..Room::default() };
        assert_eq!(room.for_start(mib(256), &LIMITS), Some(RoomShortage { memory: mib(36), sandboxes: 0 }));
        assert_eq!(room.for_start(mib(321), &LIMITS), None);
        assert_eq!(room.for_run(mib(256), mib(50), &LIMITS), Some(RoomShortage::default()));
        assert_eq!(room.free(&LIMITS), mib(220));
        let full = Room { sandboxes: 2, ..room };
        assert_eq!(full.for_start(mib(1), &LIMITS), Some(RoomShortage { memory: mib(0), sandboxes: 1 }));
    }

    #[test]
    fn what_is_being_ended_is_free_for_whom_it_was_promised_to_only() {
        let mib = ByteSize::mib;
        let mut lack = RoomShortage { memory: mib(60), sandboxes: 1 };
        let room = Room { sandboxes: 2, busy: mib(512), ending: mib(80), promised: lack, ..Room::default() };
        assert_eq!(room.taken(), mib(532));
        assert_eq!(lack.made_up(mib(80)), RoomShortage { memory: mib(60), sandboxes: 1 });
        assert!(lack.is_none());
    }
}
