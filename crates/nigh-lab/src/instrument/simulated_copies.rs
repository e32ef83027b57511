//! A cache's copies without their bytes, under the node's own eviction code.

use std::collections::HashMap;

use nigh_data::fetch_us;
use nigh_objects::eviction::{EvictionPolicy, Facts, Order, Origin, Slot, Slots};

/// The copies, as the cache has them.
pub(crate) struct SimulatedCopies<P> {
    slots: Slots<(u64, u64)>,
    order: Order<P>,
    by_object: HashMap<u64, Slot>,
    bytes: u64,
    budget: u64,
}

impl<P: EvictionPolicy> SimulatedCopies<P> {
    /// No copies, and room for `budget` bytes.
    pub(crate) fn new(order: Order<P>, budget: u64) -> Self {
        Self { slots: Slots::default(), order, by_object: HashMap::new(), bytes: 0, budget }
    }

    /// Advances the time to `at_s`, at which the policy may evict copies.
    pub(crate) fn advance(&mut self, at_s: f64) {
        for slot in self.order.advance(at_s) {
            self.remove(slot);
        }
    }

    /// True if there is a copy of `object`, which is used now.
    pub(crate) fn touch(&mut self, object: u64) -> bool {
        self.by_object.get(&object).map(|slot| self.order.touch(*slot)).is_some()
    }

    /// True if there is a copy of `object`.
    pub(crate) fn has(&self, object: u64) -> bool {
        self.by_object.contains_key(&object)
    }

    /// True if one more copy would evict nothing that is hot. The cache decides alike.
    pub(crate) fn takes_guests(&mut self) -> bool {
        self.bytes <= self.budget / 2 || self.order.victim().is_none_or(|next| !self.order.is_hot(next))
    }

    fn remove(&mut self, slot: Slot) -> Option<u64> {
        self.order.remove(slot);
        let (object, bytes) = self.slots.remove(slot)?;
        self.by_object.remove(&object);
        self.bytes -= bytes;
        Some(object)
    }

    /// Caches a copy of `object` and calls `gone` for each copy that it evicts. False if there is no room.
    pub(crate) fn insert(&mut self, object: u64, bytes: u64, origin: Origin, mut gone: impl FnMut(u64)) -> bool {
        if bytes > self.budget {
            return false;
        }
        while self.bytes + bytes > self.budget {
            let Some(victim) = self.order.victim() else { return false };
            self.remove(victim).into_iter().for_each(&mut gone);
        }
        let slot = self.slots.insert((object, bytes));
        self.order.insert(slot, &Facts { bytes, fetch_us: fetch_us(bytes), name: object, origin });
        self.by_object.insert(object, slot);
        self.bytes += bytes;
        true
    }
}
