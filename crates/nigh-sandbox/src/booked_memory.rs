//! What a sandbox booked: for its own memory, and for what it holds of the node's.
//!
//! The rule: what the kernel charges a sandbox for and what it holds of the node's segments is together never more than
//! it booked. Segments are charged to the node, so the kernel does not count them for who holds them. So a sandbox's limit
//! is lowered by what it holds, and raised when it lets go; a grant below that counts as it is. A sandbox that would be
//! left with little to grow into gets nothing to hold, and its bytes by copy: near its limit the fast path shall not be
//! what ends a function. It decides nothing about grants (`hooks`) nor about what is let go (the data door sees that).

use std::sync::{Arc, Weak};

use nigh_schedule::memory::grant::{Grant, SandboxMemory, SandboxMemoryError};
use nigh_terms::ByteSize;
use parking_lot::Mutex;

use crate::data_door::HeldMemory;
use crate::sandbox::Sandbox;

/// What a sandbox has left to grow into when it is given something to hold: one in so many of what it booked.
const LEFT_SHARE: u64 = 8;

/// How what was booked is used. Pure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Books {
    /// What it may use now, and what it may grow to.
    grant: Grant,
    /// What it holds of the node's.
    held: ByteSize,
}

impl Books {
    /// What its own memory may come to at most.
    const fn ceiling(&self) -> ByteSize {
        ByteSize(self.grant.booked.bytes().saturating_sub(self.held.bytes()))
    }

    /// What its own memory may come to now.
    fn limit(&self) -> ByteSize {
        self.grant.memory.min(self.ceiling())
    }

    /// With `bytes` more to hold; none if that leaves too little beside the `used` bytes of its own.
    fn with(&self, bytes: ByteSize, used: ByteSize) -> Option<Self> {
        let held = self.held.bytes().checked_add(bytes.bytes())?;
        let left = self.grant.booked.bytes() / LEFT_SHARE;
        let needed = held.checked_add(used.bytes())?.checked_add(left)?;
        (needed <= self.grant.booked.bytes()).then_some(Self { held: ByteSize(held), ..*self })
    }

    /// With `bytes` less.
    const fn without(&self, bytes: ByteSize) -> Self {
        Self { held: ByteSize(self.held.bytes().saturating_sub(bytes.bytes())), ..*self }
    }
}

/// What one sandbox booked, shared with its data door.
pub struct BookedMemory {
    /// Not kept alive by who serves it.
    sandbox: Weak<dyn Sandbox>,
    books: Mutex<Books>,
}

impl BookedMemory {
    /// Of a sandbox that began with `grant`.
    pub fn new(sandbox: &Arc<dyn Sandbox>, grant: Grant) -> Self {
        let books = Books { grant, held: ByteSize::ZERO };
        Self { sandbox: Arc::downgrade(sandbox), books: Mutex::new(books) }
    }

    /// Sets what it may use for the next run and returns what it may: where the kernel cannot take so much back, what it
    /// had before.
    pub fn grant(&self, grant: Grant) -> ByteSize {
        let Some(sandbox) = self.sandbox.upgrade() else { return grant.memory };
        let mut books = self.books.lock();
        let grant = Grant { memory: grant.memory.min(grant.booked), ..grant };
        let wanted = Books { grant, ..*books };
        match set(sandbox.memory(), *books, wanted) {
            Ok(()) => *books = wanted,
            Err(SandboxMemoryError::CannotShrink { current, .. }) => books.grant.memory = current,
            Err(error) => tracing::warn!(%error, sandbox = %sandbox.id(), "the memory limit cannot be set"),
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
            // Nobody counts it: what it holds is bounded by what it booked.
            Err(SandboxMemoryError::NotControlled(_)) => ByteSize::ZERO,
            Err(error) => {
                tracing::debug!(%error, sandbox = %sandbox.id(), "what is in use is not known; nothing is handed out");
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
                tracing::debug!(%error, sandbox = %sandbox.id(), "the memory limit is not lowered; nothing is handed out");
                false
            }
        }
    }

    fn let_go(&self, bytes: ByteSize) {
        // One that has ended needs no limit.
        let Some(sandbox) = self.sandbox.upgrade() else { return };
        let mut books = self.books.lock();
        let wanted = books.without(bytes);
        if let Err(error) = set(sandbox.memory(), *books, wanted) {
            tracing::debug!(%error, sandbox = %sandbox.id(), "the memory limit is not raised; the sandbox may have ended");
        }
        // It has let go in any case: the next limit that is set says so.
        *books = wanted;
    }
}

/// Has the kernel keep `to` in place of `from`. On an error the limit is that of `from`.
fn set(memory: &dyn SandboxMemory, from: Books, to: Books) -> Result<(), SandboxMemoryError> {
    let limit = |limit| match limit == from.limit() {
        true => Ok(()),
        false => memory.set_limit(limit),
    };
    let ceiling = |ceiling| match ceiling == from.ceiling() {
        true => Ok(()),
        false => memory.set_ceiling(ceiling),
    };
    // The limit is never above the ceiling: at the one a sandbox waits for more, at the other it is ended.
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
