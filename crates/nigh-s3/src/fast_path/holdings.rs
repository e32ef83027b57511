//! The memory behind what a holder holds: handed out, lent, looked at, let go.
//!
//! `held` decides what may be held; here are the segments and the system calls. One lock a holder: a segment is counted
//! and handed out, or looked at and released, but never both at once.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use nigh_data::{Segment, SegmentName};
use nigh_objects::{AbandonedSegment, OpenSegment};
use nigh_terms::ByteSize;
use parking_lot::Mutex;

use super::held::{Handle, HeldMax, HeldSegments};

/// Pays for what a holder holds, from what a sandbox booked.
pub trait Payer: Send + Sync {
    /// Pays for so many bytes more; false if it cannot.
    fn pay(&self, bytes: ByteSize) -> bool;
    /// So many were let go.
    fn refund(&self, bytes: ByteSize);
}

/// What is behind a handle.
enum Memory {
    /// Lent to a client that fills it; it belongs to the client's connection.
    Lent,
    /// An object's.
    Sealed(Segment),
    /// Given up.
    Given(AbandonedSegment),
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

/// What one holder holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Bytes that count.
    pub(crate) bytes: u64,
    /// Segments that count.
    pub(crate) segments: usize,
    /// What it asked for last had no room.
    pub(crate) is_over: bool,
}

/// All that one holder holds.
pub(crate) struct Holdings(Mutex<HoldingsState>);

struct HoldingsState {
    held: HeldSegments<SegmentName>,
    memory: HashMap<Handle, Memory>,
    /// None outside sandboxes.
    payer: Option<Arc<dyn Payer>>,
    /// There was no room when it was asked for last.
    is_over: bool,
}

/// A segment that is lent; dropped, it is abandoned.
pub(crate) struct Loan {
    holdings: Arc<Holdings>,
    handle: Handle,
    /// Absent once it is sealed or abandoned.
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

    /// The segment is an object's now, and counts until the client lets go.
    pub(crate) fn sealed(self, segment: Segment) {
        if let Some(name) = segment.name() {
            let mut inner = self.holdings.0.lock();
            inner.held.named(self.handle, name);
            inner.memory.insert(self.handle, Memory::Sealed(segment));
        }
    }

    /// The segment was abandoned, and counts until the client lets go.
    pub(crate) fn given_up(self, remains: AbandonedSegment) {
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

impl HoldingsState {
    fn forget(&mut self, handle: Handle) {
        let freed = self.held.freed(handle);
        self.memory.remove(&handle);
        self.refund(freed);
    }

    fn pay(&self, bytes: u64) -> bool {
        self.payer.as_ref().is_none_or(|payer| payer.pay(ByteSize(bytes)))
    }

    fn refund(&self, bytes: u64) {
        if let Some(payer) = &self.payer
            && bytes > 0
        {
            payer.refund(ByteSize(bytes));
        }
    }

    fn look(&mut self, handle: Handle) {
        if self.memory.get(&handle).is_some_and(|memory| !memory.is_held()) {
            self.forget(handle);
        }
    }

    /// Whether `asked` has room, after a look at some if it had none.
    fn make_room(&mut self, asked: impl Fn(&Self) -> bool) -> bool {
        let mut has_room = asked(self);
        if !has_room {
            for handle in self.held.looks() {
                self.look(handle);
            }
            has_room = asked(self);
        }
        self.is_over = !has_room;
        has_room
    }

    /// Takes room for `bytes`, which are to be counted or given back.
    fn take_room(&mut self, bytes: u64) -> bool {
        self.make_room(|this| this.held.has_room(bytes) && this.pay(bytes))
    }
}

impl Holdings {
    pub(crate) fn new(max: HeldMax, payer: Option<Arc<dyn Payer>>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(HoldingsState {
            held: HeldSegments::new(max),
            memory: HashMap::new(),
            payer,
            is_over: false,
        })))
    }

    /// A descriptor of `segment` for the holder, and its handle. None over the cap, if the segment shares its memory
    /// with others, or if the system has no descriptor left: its bytes must be copied then.
    pub(crate) fn hand_out(&self, segment: &Segment) -> Option<(OwnedFd, Handle)> {
        let name = segment.name()?;
        let mut inner = self.0.lock();
        let known = inner.held.handle(name);
        if known.is_none() && !inner.take_room(segment.resident_bytes()) {
            return None;
        }
        let opened = segment.hand_out();
        if known.is_none() && !matches!(opened, Ok(Some(_))) {
            inner.refund(segment.resident_bytes());
        }
        let descriptor = match opened {
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

    /// Whether the holder's cap has room for so many bytes more; whether they are paid for, `lend` finds out.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.0.lock().make_room(|inner| inner.held.has_room(bytes))
    }

    /// Counts a segment that is lent. None over the cap, or if nobody pays for it; the segment is freed then.
    pub(crate) fn lend(self: &Arc<Self>, open: OpenSegment) -> Option<Loan> {
        let mut inner = self.0.lock();
        if !inner.take_room(open.resident_bytes()) {
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

    /// What it holds.
    pub(crate) fn totals(&self) -> Totals {
        let inner = self.0.lock();
        Totals { bytes: inner.held.bytes(), segments: inner.held.segments(), is_over: inner.is_over }
    }
}
