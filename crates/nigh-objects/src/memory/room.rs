//! Room in the cache: reserved, released, and freed when copies leave.

use std::sync::Arc;

use nigh_data::segment_cost::Cost;
use nigh_terms::Admission;

use super::ObjectMemoryState;
use super::coherence::ShelfGuard;
use crate::cache::{DroppedCopies, OverheadCost, Shelf};
use crate::kept::CachedCopy;
use crate::sync::spawn_blocking;

/// Reserved room in the cache. Dropping it releases the room.
pub(super) struct Reservation {
    inner: Arc<ObjectMemoryState>,
    cost: Cost,
}

impl Reservation {
    /// The room, for the copy that the caller now caches.
    pub(super) fn take(mut self) -> Cost {
        std::mem::take(&mut self.cost)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.cost != Cost::default() {
            self.inner.shelf().release(self.cost);
        }
    }
}

impl ObjectMemoryState {
    /// Locks the cached copies.
    pub(super) fn shelf(&self) -> ShelfGuard<'_> {
        self.coherence.shelf()
    }

    /// Updates the meter, and frees what left the cache, without the cache's lock.
    pub(super) fn settle<T>(&self, dropped: Vec<T>) {
        let (kept, budget, orphans) = {
            let mut shelf = self.shelf();
            (shelf.kept(), shelf.budget(), shelf.take_orphans())
        };
        self.meter.holds(kept, budget);
        for (object, orphan) in orphans {
            self.back.gone_from_memory(&object, orphan.meta.unpack().version);
        }
        drop(dropped);
    }

    /// Counts copies as evicted, and settles them.
    pub(super) fn evict(&self, dropped: DroppedCopies<CachedCopy>) {
        self.meter.evicted(dropped.len());
        self.settle(dropped);
    }

    /// The memory of all segments and of the pages that wait for another object, in bytes.
    pub(super) fn taken(&self) -> u64 {
        self.account.living().plus(self.account.pooled()).bytes
    }

    /// The cost that counts beside the copies: what readers hold of evicted copies, and what is freed with the copies.
    pub(super) fn beyond(&self, cache: &Shelf<CachedCopy>) -> OverheadCost {
        let slack = self.account.slack();
        let lingering = self.account.living().minus(slack).minus(cache.kept()).minus(cache.reserved());
        OverheadCost { lingering, slack }
    }

    /// Makes spare pages beside the caller's work, if the last objects have taken all that there were.
    pub(super) fn make_spares(&self) {
        if self.account.wants_spares() {
            let account = Arc::clone(&self.account);
            drop(spawn_blocking(move || account.make_spares()));
        }
    }

    /// True if an object that is read with `admission` may be cached now.
    pub(super) fn admits(&self, admission: Admission) -> bool {
        match admission {
            Admission::Always => true,
            Admission::Spare => self.shelf().is_spare(),
            Admission::Never => false,
        }
    }

    /// Reserves `cost`, if the cache has or can make the room.
    pub(super) fn reserve(self: &Arc<Self>, cost: Cost) -> Option<Reservation> {
        let (granted, dropped) = {
            let mut cache = self.shelf();
            let beyond = self.beyond(&cache);
            cache.reserve(cost, beyond)
        };
        if !dropped.is_empty() {
            self.evict(dropped);
        }
        granted.then(|| Reservation { inner: Arc::clone(self), cost })
    }
}
