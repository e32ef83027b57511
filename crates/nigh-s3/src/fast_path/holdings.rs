//! The memory that a holder holds: it is handed out, lent, checked and released here.
//!
//! `held` decides what may be held; this module has the segments and the system calls. Each holder has one lock, so
//! that a segment is never handed out while it is checked and released.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use nigh_data::{Segment, SegmentName};
use nigh_objects::{AbandonedSegment, OpenSegment};
use nigh_terms::ByteSize;
use parking_lot::Mutex;

use super::held::{Handle, HeldMax, HeldSegments};

/// Pays for the memory that a holder holds, out of the memory that a sandbox has reserved.
pub trait Payer: Send + Sync {
    /// Pays for `bytes` more. Returns false if the reservation does not suffice.
    fn pay(&self, bytes: ByteSize) -> bool;
    /// Returns `bytes` that the holder has released to the reservation.
    fn refund(&self, bytes: ByteSize);
}

/// The memory that a handle stands for.
enum Memory {
    /// The segment is lent to a client, which fills it; the client's connection owns it.
    Lent,
    /// The segment belongs to an object.
    Sealed(Segment),
    /// The segment was abandoned.
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

/// The sums over one holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Size of all counted segments, in bytes.
    pub(crate) bytes: u64,
    /// Number of counted segments.
    pub(crate) segments: usize,
    /// True if the holder's last request for memory found no room.
    pub(crate) is_over: bool,
}

/// All segments that one holder holds.
pub(crate) struct Holdings(Mutex<HoldingsState>);

struct HoldingsState {
    held: HeldSegments<SegmentName>,
    memory: HashMap<Handle, Memory>,
    /// None outside sandboxes.
    payer: Option<Arc<dyn Payer>>,
    /// True if the holder's last request for memory found no room.
    is_over: bool,
}

/// A segment that is lent to a client. If this is dropped, the segment is abandoned.
pub(crate) struct Loan {
    holdings: Arc<Holdings>,
    handle: Handle,
    /// None once the segment is sealed or abandoned.
    open: Option<OpenSegment>,
}

impl Loan {
    /// The handle by which the client names the segment.
    pub(crate) const fn handle(&self) -> Handle {
        self.handle
    }

    /// The lent segment. None once it is sealed or abandoned.
    pub(crate) const fn open(&self) -> Option<&OpenSegment> {
        self.open.as_ref()
    }

    /// Takes the lent segment out, to seal it.
    pub(crate) const fn take(&mut self) -> Option<OpenSegment> {
        self.open.take()
    }

    /// Puts the lent segment back, because it could not be sealed yet.
    pub(crate) fn put_back(&mut self, open: OpenSegment) {
        self.open = Some(open);
    }

    /// Records that the segment belongs to an object now. It counts until the client lets it go.
    pub(crate) fn sealed(self, segment: Segment) {
        if let Some(name) = segment.name() {
            let mut inner = self.holdings.0.lock();
            inner.held.named(self.handle, name);
            inner.memory.insert(self.handle, Memory::Sealed(segment));
        }
    }

    /// Records that the segment was abandoned. It counts until the client lets it go.
    pub(crate) fn given_up(self, remains: AbandonedSegment) {
        self.holdings.0.lock().memory.insert(self.handle, Memory::Given(remains));
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            self.holdings.0.lock().memory.insert(self.handle, Memory::Given(open.abandon()));
        }
        // The segment was lost while it was sealed, so there is nothing left to check.
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

    /// Returns true if `asked` finds room. If it finds none at first, some segments are checked and it is asked again.
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

    /// Takes room for `bytes` and pays for it. Returns false if there is no room. The caller must count or refund the
    /// bytes.
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

    /// Opens a descriptor of `segment` for the holder, and returns it with the segment's handle. None over the cap, if
    /// the segment shares its memory with others, or if the system has no descriptor left; the caller must then copy
    /// the bytes.
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

    /// Returns true if the holder's cap has room for `bytes` more. Whether they can be paid for is only checked by
    /// `lend`.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.0.lock().make_room(|inner| inner.held.has_room(bytes))
    }

    /// Counts a segment and lends it to the holder. None over the cap or if the payer does not pay; the segment is
    /// freed then.
    pub(crate) fn lend(self: &Arc<Self>, open: OpenSegment) -> Option<Loan> {
        let mut inner = self.0.lock();
        if !inner.take_room(open.resident_bytes()) {
            return None;
        }
        let handle = inner.held.count(None, open.resident_bytes());
        inner.memory.insert(handle, Memory::Lent);
        Some(Loan { holdings: Arc::clone(self), handle, open: Some(open) })
    }

    /// Checks a segment that the holder says it has released: the kernel decides.
    pub(crate) fn look_at(&self, handle: Handle) {
        self.0.lock().look(handle);
    }

    /// Checks some of the holder's segments.
    pub(crate) fn look_around(&self) {
        let mut inner = self.0.lock();
        for handle in inner.held.looks() {
            inner.look(handle);
        }
    }

    /// The sums over this holder.
    pub(crate) fn totals(&self) -> Totals {
        let inner = self.0.lock();
        Totals { bytes: inner.held.bytes(), segments: inner.held.segments(), is_over: inner.is_over }
    }
}
