//! What a namespace with a quota uses now, at this node.
//!
//! Memory is booked until the booking is dropped. Stored bytes are those of the last listing, and what was accepted here
//! since that listing began; writes at other nodes and removals count from the next listing on.

use std::sync::Arc;

use nigh_terms::{ByteSize, Monotonic, Namespace};
use parking_lot::Mutex;

use super::quota::{NamespaceQuota, OverQuota};
use super::token_bucket::TokenBucket;

/// A point before which accepted bytes are part of a listing.
#[derive(Clone, Copy, Debug)]
pub struct ListingStart(u64);

#[derive(Debug)]
struct Used {
    requests: TokenBucket,
    booked: u64,
    /// Bytes of objects in the last listing.
    listed: u64,
    /// Bytes accepted here since the node started.
    accepted: u64,
    /// `accepted` when the last listing began.
    accepted_before: u64,
}

/// A namespace's quota and use.
#[derive(Debug)]
pub(super) struct NamespaceUsage {
    namespace: Namespace,
    quota: Mutex<NamespaceQuota>,
    used: Mutex<Used>,
}

/// Memory that an invocation books; given back when this is dropped.
#[derive(Debug)]
pub struct MemoryBooking {
    usage: Arc<NamespaceUsage>,
    bytes: u64,
}

impl Drop for MemoryBooking {
    fn drop(&mut self) {
        let mut used = self.usage.used.lock();
        used.booked = used.booked.saturating_sub(self.bytes);
    }
}

impl NamespaceUsage {
    pub(super) fn new(namespace: Namespace, quota: NamespaceQuota) -> Self {
        let requests = TokenBucket::full();
        let used = Used { requests, booked: 0, listed: 0, accepted: 0, accepted_before: 0 };
        Self { namespace, quota: Mutex::new(quota), used: Mutex::new(used) }
    }

    pub(super) fn quota(&self) -> NamespaceQuota {
        *self.quota.lock()
    }

    pub(super) fn set_quota(&self, quota: NamespaceQuota) {
        *self.quota.lock() = quota;
    }

    /// Counts a request at one of `nodes` nodes.
    pub(super) fn take_request(&self, nodes: usize, now: Monotonic) -> Result<(), OverQuota> {
        let Some(limit) = self.quota().requests else { return Ok(()) };
        let share = f64::from(limit) / nodes.max(1) as f64;
        if self.used.lock().requests.take(share, now) {
            return Ok(());
        }
        Err(OverQuota::Requests { namespace: self.namespace.clone(), limit })
    }

    /// Books memory for an invocation. An invocation that books more than the whole quota is refused too.
    pub(super) fn book(self: &Arc<Self>, memory: ByteSize) -> Result<MemoryBooking, OverQuota> {
        let limit = self.quota().memory;
        let mut used = self.used.lock();
        let after = used.booked.saturating_add(memory.bytes());
        if let Some(limit) = limit.filter(|limit| after > limit.bytes()) {
            let (namespace, booked) = (self.namespace.clone(), ByteSize(used.booked));
            return Err(OverQuota::Memory { namespace, limit, booked, wanted: memory });
        }
        used.booked = after;
        Ok(MemoryBooking { usage: Arc::clone(self), bytes: memory.bytes() })
    }

    /// Accepts so many bytes more.
    pub(super) fn store(&self, bytes: u64) -> Result<(), OverQuota> {
        let limit = self.quota().stored;
        let mut used = self.used.lock();
        let stored = used.stored();
        if let Some(limit) = limit.filter(|limit| stored.saturating_add(bytes) > limit.bytes()) {
            return Err(OverQuota::Stored { namespace: self.namespace.clone(), limit, used: ByteSize(stored) });
        }
        used.accepted = used.accepted.saturating_add(bytes);
        Ok(())
    }

    pub(super) fn listing_starts(&self) -> ListingStart {
        ListingStart(self.used.lock().accepted)
    }

    pub(super) fn listed(&self, bytes: u64, since: ListingStart) {
        let mut used = self.used.lock();
        (used.listed, used.accepted_before) = (bytes, since.0);
    }

    /// The memory booked and the bytes stored.
    pub(super) fn now(&self) -> (ByteSize, ByteSize) {
        let used = self.used.lock();
        (ByteSize(used.booked), ByteSize(used.stored()))
    }
}

impl Used {
    const fn stored(&self) -> u64 {
        self.listed.saturating_add(self.accepted.saturating_sub(self.accepted_before))
    }
}
