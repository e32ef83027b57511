//! Room in the cache: reserved, given back, and freed when copies leave.

use std::sync::Arc;

use nigh_data::segment_cost::Cost;
use nigh_terms::Admission;

use super::ObjectMemoryState;
use super::coherence::ShelfGuard;
use crate::cache::{DroppedCopies, OverheadCost, Shelf};
use crate::kept::CachedCopy;

/// Room in the cache, until it is used or dropped.
pub(super) struct Reservation {
    inner: Arc<ObjectMemoryState>,
    cost: Cost,
}

impl Reservation {
    /// The room, which the caller now gives to a copy.
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
    /// The copies in memory.
    pub(super) fn shelf(&self) -> ShelfGuard<'_> {
        self.coherence.shelf()
    }

    /// Tells the meter what is cached now, and frees what left the cache, without the cache's lock.
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

    /// As `settle`, for copies that were evicted.
    pub(super) fn evict(&self, dropped: DroppedCopies<CachedCopy>) {
        self.meter.evicted(dropped.len());
        self.settle(dropped);
    }

    /// What readers hold beyond the cache, and what is freed with the copies beside it.
    pub(super) fn beyond(&self, cache: &Shelf<CachedCopy>) -> OverheadCost {
        let slack = self.account.slack();
        let lingering = self.account.living().minus(slack).minus(cache.kept()).minus(cache.reserved());
        OverheadCost { lingering, slack }
    }

    /// Whether an object that is read with `admission` may be cached now.
    pub(super) fn admits(&self, admission: Admission) -> bool {
        match admission {
            Admission::Always => true,
            Admission::Spare => self.shelf().is_spare(),
            Admission::Never => false,
        }
    }

    /// Room for `cost`, if the cache can give it.
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
