//! The room of pre-warmed sandboxes, beside that of the functions' sandboxes. Pure.

use std::hash::Hash;

use nigh_terms::{ByteSize, invariant};

use super::SandboxPool;

impl<S: Clone + Eq + Hash> SandboxPool<S> {
    /// Books a pre-warmed sandbox of `memory`, if there is free room and no invocation waits for it.
    pub fn book_prewarmed(&mut self, memory: ByteSize) -> bool {
        let room = &self.state.room;
        let fits = !self.closed
            && self.queue.is_empty()
            && room.sandboxes + self.stems < self.state.limits.sandboxes_max
            && room.free(&self.state.limits) >= self.prewarmed + memory;
        if fits {
            self.stems += 1;
            self.prewarmed += memory;
        }
        fits
    }

    /// A pre-warmed sandbox of `memory` has ended, or has become a function's, whose booking counts instead.
    pub fn release_prewarmed(&mut self, memory: ByteSize) {
        // `PrewarmedRoom` releases each booking once.
        invariant!(
            self.stems > 0 && self.prewarmed >= memory,
            "a pre-warmed sandbox of {memory} is released: {} with {} are booked",
            self.stems,
            self.prewarmed
        );
        self.stems -= 1;
        self.prewarmed = self.prewarmed.saturating_sub(memory);
    }

    /// The number of pre-warmed sandboxes of `memory` each that must end because functions' sandboxes have booked their
    /// room.
    #[must_use]
    pub fn prewarmed_in_the_way(&self, memory: ByteSize) -> usize {
        let (room, limits) = (&self.state.room, &self.state.limits);
        let beyond = (room.taken() + self.prewarmed).saturating_sub(limits.memory());
        let for_memory = beyond.bytes().div_ceil(memory.bytes().max(1));
        let for_number = (room.sandboxes + self.stems).saturating_sub(limits.sandboxes_max);
        usize::try_from(for_memory).unwrap_or(usize::MAX).max(for_number).min(self.stems)
    }
}
