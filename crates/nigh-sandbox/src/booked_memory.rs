//! A sandbox's booking pays for the sandbox's own memory and for the node's segments that it holds.
//!
//! The rule: the memory that the kernel charges to a sandbox and the segments that the sandbox holds are together never
//! more than the booking. The kernel charges segments to the node, not to the sandbox that holds them. So the sandbox's
//! limit is lowered by the held bytes and raised when they are released. If the grant is below that limit, the grant is
//! the limit. A sandbox with little left to grow gets no segments to hold, and its data by copy: the fast path must not
//! end a function that is near its limit. Grants are decided elsewhere (`hooks`), and the data door reports releases.

use std::sync::{Arc, Weak};

use nigh_schedule::memory::grant::{Grant, SandboxMemory, SandboxMemoryError};
use nigh_terms::{ByteSize, invariant};
use parking_lot::Mutex;

use crate::data_door::HeldMemory;
use crate::sandbox::Sandbox;

/// A sandbox that gets a segment keeps at least one part in `LEFT_SHARE` of its booking free.
const LEFT_SHARE: u64 = 8;

/// What the grant, the booking and the held bytes allow. Pure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Books {
    /// The grant and the booking.
    grant: Grant,
    /// The bytes of the node's segments that the sandbox holds.
    held: ByteSize,
}

impl Books {
    /// The most that the sandbox's own memory may ever use.
    const fn ceiling(&self) -> ByteSize {
        ByteSize(self.grant.booked.bytes().saturating_sub(self.held.bytes()))
    }

    /// The most that the sandbox's own memory may use now.
    fn limit(&self) -> ByteSize {
        self.grant.memory.min(self.ceiling())
    }

    /// The books with `bytes` more held; none if too little stays free beside the `used` bytes of the sandbox's own
    /// memory.
    fn with(&self, bytes: ByteSize, used: ByteSize) -> Option<Self> {
        let held = self.held.bytes().checked_add(bytes.bytes())?;
        let left = self.grant.booked.bytes() / LEFT_SHARE;
        let needed = held.checked_add(used.bytes())?.checked_add(left)?;
        (needed <= self.grant.booked.bytes()).then_some(Self { held: ByteSize(held), ..*self })
    }

    /// The books with `bytes` less held.
    const fn without(&self, bytes: ByteSize) -> Self {
        Self { held: ByteSize(self.held.bytes().saturating_sub(bytes.bytes())), ..*self }
    }
}

/// The booking of one sandbox, shared with its data door.
pub struct BookedMemory {
    /// Weak, so that the data door does not keep the sandbox alive.
    sandbox: Weak<dyn Sandbox>,
    books: Mutex<Books>,
}

impl BookedMemory {
    /// The booking of a sandbox that started with `grant`.
    pub fn new(sandbox: &Arc<dyn Sandbox>, grant: Grant) -> Self {
        let books = Books { grant, held: ByteSize::ZERO };
        Self { sandbox: Arc::downgrade(sandbox), books: Mutex::new(books) }
    }

    /// Sets the grant of the next run. Returns the present grant: the former one if the kernel cannot reclaim enough
    /// memory.
    pub fn grant(&self, grant: Grant) -> ByteSize {
        let Some(sandbox) = self.sandbox.upgrade() else { return grant.memory };
        let mut books = self.books.lock();
        let grant = Grant { memory: grant.memory.min(grant.booked), ..grant };
        let wanted = Books { grant, ..*books };
        match set(sandbox.memory(), *books, wanted) {
            Ok(()) => *books = wanted,
            Err(SandboxMemoryError::CannotShrink { current, .. }) => books.grant.memory = current,
            Err(error) => tracing::warn!(%error, sandbox = %sandbox.id(), "a sandbox's memory limit cannot be set"),
        }
        books.grant.memory
    }
}

impl HeldMemory for BookedMemory {
    fn hold(&self, bytes: ByteSize) -> bool {
        let Some(sandbox) = self.sandbox.upgrade() else { return false };
        let memory = sandbox.memory();
        let mut books = self.books.lock();
        let used = match memory.used() {
            Ok(used) => used,
            // Without a cgroup only the held bytes count against the booking.
            Err(SandboxMemoryError::NotControlled(_)) => ByteSize::ZERO,
            Err(error) => {
                tracing::debug!(%error, sandbox = %sandbox.id(), "a sandbox's memory use cannot be read; it gets no segment");
                return false;
            }
        };
        let Some(wanted) = books.with(bytes, used) else { return false };
        match set(memory, *books, wanted) {
            Ok(()) => {
                *books = wanted;
                true
            }
            Err(error) => {
                tracing::debug!(%error, sandbox = %sandbox.id(), "a sandbox's memory limit cannot be lowered; it gets no segment");
                false
            }
        }
    }

    fn let_go(&self, bytes: ByteSize) {
        // An ended sandbox needs no limit.
        let Some(sandbox) = self.sandbox.upgrade() else { return };
        let mut books = self.books.lock();
        let wanted = books.without(bytes);
        if let Err(error) = set(sandbox.memory(), *books, wanted) {
            tracing::debug!(%error, sandbox = %sandbox.id(), "a sandbox's memory limit cannot be raised; the sandbox may have ended");
        }
        // The bytes are released in any case; the next limit takes them into account.
        *books = wanted;
    }
}

/// Changes the kernel's limits from `from` to `to`. After an error the limit is that of `from`.
fn set(memory: &dyn SandboxMemory, from: Books, to: Books) -> Result<(), SandboxMemoryError> {
    let limit = |limit| match limit == from.limit() {
        true => Ok(()),
        false => memory.set_limit(limit),
    };
    let ceiling = |ceiling| match ceiling == from.ceiling() {
        true => Ok(()),
        false => memory.set_ceiling(ceiling),
    };
    // The limit is never above the ceiling: at the limit a sandbox waits for memory, at the ceiling the kernel kills
    // it.
    invariant!(to.limit() <= to.ceiling() && to.ceiling() <= to.grant.booked, "{to:?} exceeds what was booked");
    let outcome = if to.ceiling() < from.ceiling() {
        limit(to.limit()).and_then(|()| ceiling(to.ceiling()))
    } else {
        ceiling(to.ceiling()).and_then(|()| limit(to.limit()))
    };
    match outcome {
        Err(SandboxMemoryError::NotControlled(_)) => Ok(()),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn books(memory: u64, booked: u64, held: u64) -> Books {
        Books {
            grant: Grant { memory: ByteSize::mib(memory), booked: ByteSize::mib(booked) },
            held: ByteSize::mib(held),
        }
    }

    #[test]
    fn the_limit_is_the_grant_or_what_is_left_of_the_booked_whichever_is_less() {
        assert_eq!(books(128, 128, 0).limit(), ByteSize::mib(128));
        assert_eq!(books(128, 128, 40).limit(), ByteSize::mib(88));
        assert_eq!(books(64, 128, 40).limit(), ByteSize::mib(64));
        assert_eq!(books(64, 128, 100).limit(), ByteSize::mib(28));
    }

    #[test]
    fn who_would_have_too_little_left_gets_nothing_to_hold() {
        let now = books(128, 128, 0);
        assert_eq!(now.with(ByteSize::mib(62), ByteSize::mib(50)), Some(books(128, 128, 62)));
        assert_eq!(now.with(ByteSize::mib(63), ByteSize::mib(50)), None, "16 MiB of 128 stay free");
        assert_eq!(books(128, 128, 62).with(ByteSize(1), ByteSize::mib(50)), None);
        assert_eq!(now.with(ByteSize(u64::MAX), ByteSize::ZERO), None);
        assert_eq!(books(128, 128, 62).without(ByteSize::mib(62)), now);
    }

    proptest! {
        #[test]
        fn what_is_used_and_held_is_never_more_than_was_booked(
            steps in prop::collection::vec((0u64..4, 0u64..60, 0u64..130), 0..40),
        ) {
            let mut now = books(128, 128, 0);
            let mut used = ByteSize::ZERO;
            for (step, bytes, grown) in steps {
                match step {
                    0 | 1 => now = now.with(ByteSize::mib(bytes), used).unwrap_or(now),
                    2 => now = now.without(ByteSize::mib(bytes)),
                    // The kernel keeps the limit.
                    _ => used = ByteSize::mib(grown).min(now.limit()),
                }
                prop_assert!(used.bytes() + now.held.bytes() <= now.grant.booked.bytes());
                prop_assert!(used <= now.limit() && now.limit() <= now.ceiling());
            }
        }
    }
}
