//! The memory behind what a holder holds: handed out, lent, looked at, let go.
//!
//! What may be held is `held`'s decision; here are the segments themselves and the system calls. One lock a holder: a
//! segment is counted and handed out, or looked at and let go, but never both at once.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use nigh_objects::{OpenSegment, Remains, Segment, SegmentName};
use parking_lot::Mutex;

use super::held::{Handle, Held, HeldMax};

/// What is behind a handle.
enum Memory {
    /// Lent to a client that fills it; who has the connection has the segment.
    Lent,
    /// An object's.
    Sealed(Segment),
    /// Given up.
    Given(Remains),
}

impl Memory {
    fn is_held(&self) -> bool {
        match self {
            Self::Lent => true,
            Self::Sealed(segment) => segment.is_held_elsewhere(),
            Self::Given(remains) => remains.is_held_elsewhere(),
        }
    }
}

/// All that one holder holds.
pub(crate) struct Holdings(Mutex<Inner>);

struct Inner {
    held: Held<SegmentName>,
    memory: HashMap<Handle, Memory>,
}

/// A segment that is lent; one dropped was given up.
pub(crate) struct Loan {
    holdings: Arc<Holdings>,
    handle: Handle,
    /// Absent once it is sealed or given up.
    open: Option<OpenSegment>,
}

impl Loan {
    /// Its name to the client.
    pub(crate) const fn handle(&self) -> Handle {
        self.handle
    }

    /// What is lent.
    pub(crate) const fn open(&self) -> Option<&OpenSegment> {
        self.open.as_ref()
    }

    /// Takes what is lent, to seal it.
    pub(crate) const fn take(&mut self) -> Option<OpenSegment> {
        self.open.take()
    }

    /// It could not be sealed yet.
    pub(crate) fn put_back(&mut self, open: OpenSegment) {
        self.open = Some(open);
    }

    /// It is an object's now, and counts until the client lets go.
    pub(crate) fn sealed(self, segment: Segment) {
        if let Some(name) = segment.name() {
            let mut inner = self.holdings.0.lock();
            inner.held.named(self.handle, name);
            inner.memory.insert(self.handle, Memory::Sealed(segment));
        }
    }

    /// It was given up, and counts until the client lets go.
    pub(crate) fn given_up(self, remains: Remains) {
        self.holdings.0.lock().memory.insert(self.handle, Memory::Given(remains));
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            self.holdings.0.lock().memory.insert(self.handle, Memory::Given(open.abandon()));
        }
        // What was lost in sealing: nothing is left to look at.
        let mut inner = self.holdings.0.lock();
        if matches!(inner.memory.get(&self.handle), Some(Memory::Lent)) {
            inner.forget(self.handle);
        }
        inner.look(self.handle);
    }
}

impl Inner {
    fn forget(&mut self, handle: Handle) {
        self.held.freed(handle);
        self.memory.remove(&handle);
    }

    fn look(&mut self, handle: Handle) {
        if self.memory.get(&handle).is_some_and(|memory| !memory.is_held()) {
            self.forget(handle);
        }
    }

    /// Whether there is room, after a look at some if there was none.
    fn make_room(&mut self, bytes: u64) -> bool {
        if self.held.has_room(bytes) {
            return true;
        }
        for handle in self.held.looks() {
            self.look(handle);
        }
        self.held.has_room(bytes)
    }
}

impl Holdings {
    pub(crate) fn new(max: HeldMax) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Inner { held: Held::new(max), memory: HashMap::new() })))
    }

    /// A descriptor of `segment` for the holder, and its handle. None over the cap, where it shares its memory, or where
    /// the system has no descriptor left: its bytes are to come by copy.
    pub(crate) fn hand_out(&self, segment: &Segment) -> Option<(OwnedFd, Handle)> {
        let name = segment.name()?;
        let mut inner = self.0.lock();
        let known = inner.held.handle(name);
        if known.is_none() && !inner.make_room(segment.resident_bytes()) {
            return None;
        }
        let descriptor = match segment.hand_out() {
            Ok(descriptor) => descriptor?,
            Err(error) => {
                tracing::debug!(%error, "a segment is not handed out; its bytes go by copy");
                return None;
            }
        };
        let handle = known.unwrap_or_else(|| {
            let handle = inner.held.count(Some(name), segment.resident_bytes());
            inner.memory.insert(handle, Memory::Sealed(segment.clone()));
            handle
        });
        Some((descriptor, handle))
    }

    /// Whether the holder may be lent so many bytes.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.0.lock().make_room(bytes)
    }

    /// Counts what is lent. None, and it is gone, over the cap.
    pub(crate) fn lend(self: &Arc<Self>, open: OpenSegment) -> Option<Loan> {
        let mut inner = self.0.lock();
        if !inner.make_room(open.resident_bytes()) {
            return None;
        }
        let handle = inner.held.count(None, open.resident_bytes());
        inner.memory.insert(handle, Memory::Lent);
        Some(Loan { holdings: Arc::clone(self), handle, open: Some(open) })
    }

    /// The holder says that it has let go; the kernel is asked.
    pub(crate) fn look_at(&self, handle: Handle) {
        self.0.lock().look(handle);
    }

    /// Looks at some.
    pub(crate) fn look_around(&self) {
        let mut inner = self.0.lock();
        for handle in inner.held.looks() {
            inner.look(handle);
        }
    }

    /// Bytes and segments that count.
    pub(crate) fn totals(&self) -> (u64, usize) {
        let inner = self.0.lock();
        (inner.held.bytes(), inner.held.segments())
    }
}
