//! The shelf: the cached copies of a node, without their bytes.
//!
//! The shelf decides how many bytes must be evicted; `eviction` says which copies go. The protocol decides which copies
//! may be cached and shown (`nigh_protocol::NodeCache`, which keeps its copies here). The shelf never fetches,
//! allocates or waits.
//!
//! Room: `kept + reserved <= budget`, in bytes as the kernel counts them and in segments (each takes a file descriptor
//! and a mapping). Only a budget lowered below what is reserved breaks this, until the reservations are released;
//! meanwhile nothing is cached or reserved. Bytes of evicted copies that readers still hold are `lingering` and count
//! against the budget too. So does `slack`: what copies take together beyond their own costs, and free when they go.

mod index;
mod largest;

use nigh_data::{Cost, ObjectId, fetch_us};
use nigh_protocol::{Copy, CopyStore};
use nigh_terms::{ShardId, Version};

use self::index::{CacheEntry, Index, PackedName};
pub use self::largest::LargeCopy;
pub(crate) use self::largest::LargestCopies;
use crate::eviction::{DEFAULT_DOUBTFUL, DefaultPolicy, Facts, Order, Origin, Slot, Slots};
use crate::holdings::{ChangeLog, CursorState, HoldingChange, HoldingsCursor, HoldingsPage};
use crate::kept::CachedCopy;
use crate::shards::Shards;

/// Memory that counts against the budget and is neither a cached copy nor reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OverheadCost {
    /// The cost of evicted copies that readers still hold.
    pub(crate) lingering: Cost,
    /// What copies take together beyond their own costs; it is freed when they are dropped.
    pub(crate) slack: Cost,
}

/// A copy on its way to the shelf, or from it.
#[derive(Clone, Debug)]
pub(crate) struct CostedCopy {
    pub(crate) kept: CachedCopy,
    pub(crate) cost: Cost,
    /// How the copy came here.
    pub(crate) origin: Origin,
}

/// The cached copies `V`, with their costs.
#[derive(Debug)]
pub(crate) struct Shelf<V> {
    shards: Shards,
    budget: Cost,
    kept: Cost,
    reserved: Cost,
    index: Index,
    slots: Slots<CacheEntry<V>>,
    order: Order<DefaultPolicy>,
    /// Evicted ephemeral copies, whose objects have no other bytes, until `take_orphans`.
    orphans: Vec<(ObjectId, V)>,
    /// The changes that other processes are told of.
    told: ChangeLog,
}

/// Values that left the shelf. The caller frees them without holding a lock.
pub(crate) type DroppedCopies<V> = Vec<V>;

impl<V: Clone> Shelf<V> {
    pub(crate) fn new(shards: Shards, budget: Cost) -> Self {
        Self {
            shards,
            budget,
            kept: Cost::default(),
            reserved: Cost::default(),
            index: Index::default(),
            slots: Slots::default(),
            order: Order::new(DefaultPolicy::default(), DEFAULT_DOUBTFUL),
            orphans: Vec::new(),
            told: ChangeLog::default(),
        }
    }

    /// The cost of the copies.
    pub(crate) const fn kept(&self) -> Cost {
        self.kept
    }

    /// The cost reserved for copies that are being made.
    pub(crate) const fn reserved(&self) -> Cost {
        self.reserved
    }

    /// The most that copies and reservations may cost.
    pub(crate) const fn budget(&self) -> Cost {
        self.budget
    }

    /// True while at most half of the budget is used.
    pub(crate) const fn is_spare(&self) -> bool {
        self.kept.plus(self.reserved).bytes <= self.budget.bytes / 2
    }

    /// True if another copy would evict nothing hot: at most half of the budget is used, or the next victim was not
    /// read more than once.
    pub(crate) fn takes_guests(&mut self) -> bool {
        self.is_spare() || self.order.victim().is_none_or(|next| !self.order.is_hot(next))
    }

    /// The number of copies.
    pub(crate) fn copies(&self) -> usize {
        self.index.len()
    }

    /// The copy of `object`, without counting as a use.
    pub(crate) fn peek(&self, object: &ObjectId) -> Option<&V> {
        Some(&self.slots.get(self.index.find(object, &self.slots)?)?.value)
    }

    /// The copy of `object`, which counts as used now, and its cost.
    fn touch(&mut self, object: &ObjectId) -> Option<(&V, Cost)> {
        let slot = self.index.find(object, &self.slots)?;
        self.order.touch(slot);
        self.slots.get(slot).map(|placed| (&placed.value, placed.cost))
    }

    /// Counts the copy of `object` as used now, if there is one.
    pub(crate) fn used(&mut self, object: &ObjectId) {
        let _used_or_gone = self.touch(object);
    }

    /// Reserves `cost`, and evicts copies for it. Returns false, and evicts nothing, if even an empty cache had no
    /// room.
    pub(crate) fn reserve(&mut self, cost: Cost, beyond: OverheadCost) -> (bool, DroppedCopies<V>) {
        let budget = self.budget.minus(beyond.lingering);
        if !self.reserved.plus(cost).fits(budget) {
            return (false, Vec::new());
        }
        let dropped = self.shrink(budget.minus(beyond.slack).minus(self.reserved).minus(cost));
        self.reserved = self.reserved.plus(cost);
        (true, dropped)
    }

    /// Releases a reservation.
    pub(crate) fn release(&mut self, cost: Cost) {
        self.reserved = self.reserved.minus(cost);
    }

    /// Changes the budget; a lower one holds at once.
    pub(crate) fn set_budget(&mut self, budget: Cost, beyond: OverheadCost) -> DroppedCopies<V> {
        self.budget = budget;
        self.shrink(budget.minus(beyond.lingering).minus(beyond.slack).minus(self.reserved))
    }

    /// Caches a copy whose room was reserved and released for it. Returns the values that leave: the former copy's, or
    /// `value` itself if there is no room.
    pub(crate) fn keep(&mut self, object: &ObjectId, value: V, cost: Cost, origin: Origin) -> DroppedCopies<V> {
        let mut dropped: Vec<V> = self.forget(object).into_iter().collect();
        // The room was there when it was reserved, but the budget may have been lowered since.
        if !self.kept.plus(self.reserved).plus(cost).fits(self.budget) {
            if origin == Origin::Ephemeral {
                self.orphans.push((object.clone(), value.clone()));
            }
            dropped.push(value);
            return dropped;
        }
        self.kept = self.kept.plus(cost);
        let placed = CacheEntry { name: PackedName::new(object), value, cost };
        self.told.push(|| placed.name.print(), Some(cost.bytes));
        let slot = self.slots.insert(placed);
        let name = self.index.insert(slot, &self.slots);
        self.order.insert(slot, &facts(cost, name, origin));
        dropped
    }

    /// Removes the copy of `object`.
    pub(crate) fn forget(&mut self, object: &ObjectId) -> Option<V> {
        let slot = self.index.find(object, &self.slots)?;
        Some(self.take(slot)?.value)
    }

    /// Removes the copy at `slot`.
    fn take(&mut self, slot: Slot) -> Option<CacheEntry<V>> {
        let kept = self.slots.remove(slot)?;
        self.order.remove(slot);
        self.index.remove(slot, &kept.name);
        self.kept = self.kept.minus(kept.cost);
        self.told.push(|| kept.name.print(), None);
        Some(kept)
    }

    /// Evicts a copy. An ephemeral one becomes an orphan.
    fn evict(&mut self, slot: Slot) -> Option<(V, PackedName)> {
        let is_ephemeral = self.order.is_ephemeral(slot);
        let CacheEntry { name, value, .. } = self.take(slot)?;
        if is_ephemeral {
            self.orphans.extend(name.object().map(|object| (object, value.clone())));
        }
        Some((value, name))
    }

    /// The ephemeral copies that were evicted since the last call.
    pub(crate) fn take_orphans(&mut self) -> Vec<(ObjectId, V)> {
        std::mem::take(&mut self.orphans)
    }

    /// The next changes for a listener at `cursor`: at most `max` changes, or `max` slots walked.
    pub(crate) fn holdings(&mut self, cursor: HoldingsCursor, max: u32) -> HoldingsPage {
        self.told.follow();
        let followed = match cursor.0 {
            CursorState::Follows(from) => self.told.since(from, max as usize).map(|changes| (from, changes)),
            CursorState::Begins | CursorState::Walks { .. } => None,
        };
        if let Some((from, changes)) = followed {
            let cursor = HoldingsCursor(CursorState::Follows(from + changes.len() as u64));
            return HoldingsPage { anew: false, changes, cursor };
        }
        let (anew, place, then) = match cursor.0 {
            CursorState::Walks { place, then } => (false, place, then),
            CursorState::Begins | CursorState::Follows(_) => (true, 0, self.told.next()),
        };
        let held =
            |placed: &CacheEntry<V>| HoldingChange { object: placed.name.print(), bytes: Some(placed.cost.bytes) };
        let to = place.saturating_add(max);
        let changes = self.slots.between(place, to).map(held).collect();
        let is_all = to >= self.slots.places();
        let cursor = if is_all { CursorState::Follows(then) } else { CursorState::Walks { place: to, then } };
        HoldingsPage { anew, changes, cursor: HoldingsCursor(cursor) }
    }

    fn shrink(&mut self, room: Cost) -> DroppedCopies<V> {
        let mut dropped = Vec::new();
        while !self.kept.fits(room) {
            let Some((gone, _)) = self.order.victim().and_then(|slot| self.evict(slot)) else { break };
            dropped.push(gone);
        }
        dropped
    }

    /// Evicts copies until `bytes` are freed, and looks at `looks` copies at most. Skips copies that `is_held` says
    /// would free nothing; the next call does not look at these first. Ephemeral copies go last. With `named`, the
    /// result names the evicted copies that are not ephemeral.
    pub(crate) fn give_back(
        &mut self,
        bytes: u64,
        looks: usize,
        named: bool,
        is_held: impl Fn(&V) -> bool,
    ) -> GivenBack<V> {
        let (mut dropped, mut held, mut aside, mut gone) = (Vec::new(), 0, Vec::new(), Vec::new());
        let (mut wanted, mut looked) = (bytes, 0);
        while wanted > 0 && looked < looks {
            let Some(slot) = self.order.victim() else { break };
            let Some(kept) = self.slots.get(slot) else { break };
            looked += 1;
            let cost = kept.cost;
            wanted = if is_held(&kept.value) {
                held += cost.bytes;
                // A held copy moves as if it was read now, because somebody reads it.
                let origin = if self.order.is_ephemeral(slot) { Origin::Ephemeral } else { Origin::Read };
                let name = self.index.hash(&kept.name);
                self.order.remove(slot);
                aside.push((slot, facts(cost, name, origin)));
                wanted
            } else {
                let is_named = named && !self.order.is_ephemeral(slot);
                let is_hot = self.order.is_hot(slot);
                if let Some((value, name)) = self.evict(slot) {
                    if is_named {
                        gone.push(EvictedCopy { at: dropped.len(), name, bytes: cost.bytes, is_hot });
                    }
                    dropped.push(value);
                }
                wanted.saturating_sub(cost.bytes)
            };
        }
        for (slot, facts) in aside {
            self.order.insert(slot, &facts);
        }
        GivenBack { dropped, gone, held, looked }
    }
}

impl CopyStore<ObjectId, CostedCopy> for Shelf<CachedCopy> {
    fn get(&mut self, object: &ObjectId) -> Option<Copy<CostedCopy>> {
        let (kept, cost) = self.touch(object)?;
        let value = CostedCopy { kept: kept.clone(), cost, origin: Origin::Read };
        Some(Copy { stamp: kept.meta.stamp(), value })
    }

    fn version(&self, object: &ObjectId) -> Option<Version> {
        self.peek(object).map(|kept| kept.meta.version())
    }

    fn insert(&mut self, _shard: ShardId, object: &ObjectId, copy: Copy<CostedCopy>) -> Vec<CostedCopy> {
        let Copy { stamp, value: CostedCopy { kept: CachedCopy { meta, segment }, cost, origin } } = copy;
        let gone = self.keep(object, CachedCopy { meta: meta.stamped(&stamp), segment }, cost, origin);
        gone.into_iter().map(|kept| CostedCopy { kept, cost, origin }).collect()
    }

    fn remove(&mut self, object: &ObjectId) -> Option<CostedCopy> {
        let slot = self.index.find(object, &self.slots)?;
        let placed = self.take(slot)?;
        Some(CostedCopy { kept: placed.value, cost: placed.cost, origin: Origin::Read })
    }

    fn len(&self) -> usize {
        self.copies()
    }

    fn objects_of(&self, shard: ShardId) -> Vec<ObjectId> {
        let names = self.index.slots().filter_map(|slot| self.slots.get(slot)?.name.object());
        let mut objects: Vec<ObjectId> = names.filter(|object| self.shards.of(object) == shard).collect();
        objects.sort_unstable();
        objects
    }
}

/// A copy that was evicted.
#[derive(Debug)]
pub(crate) struct EvictedCopy {
    /// The copy's index in `GivenBack::dropped`.
    pub(crate) at: usize,
    pub(crate) name: PackedName,
    pub(crate) bytes: u64,
    /// True if it was read more than once.
    pub(crate) is_hot: bool,
}

/// What `give_back` has done.
#[derive(Debug)]
pub(crate) struct GivenBack<V> {
    pub(crate) dropped: DroppedCopies<V>,
    /// The evicted copies, if they were to be named.
    pub(crate) gone: Vec<EvictedCopy>,
    /// The bytes of copies that were skipped because somebody holds them.
    pub(crate) held: u64,
    /// Number of copies that were looked at.
    pub(crate) looked: usize,
}

/// What the eviction order needs to know of a copy.
fn facts(cost: Cost, name: u64, origin: Origin) -> Facts {
    Facts { bytes: cost.bytes, fetch_us: fetch_us(cost.bytes), name, origin }
}

#[cfg(test)]
mod tests;
