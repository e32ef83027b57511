//! What the node keeps in memory, and who may see it: the cache's decisions, without its bytes.
//!
//! It decides which copy answers a request, which requests share one fetch, how much must go to make room (which copies
//! these are, `eviction` says), and which late answer may no longer be kept. It never fetches, allocates or waits;
//! `memory` does.
//!
//! Floors: while work on an object is outstanding the cache remembers the one fetch that may still be joined
//! and kept. A write forgets it when it begins, so no fetch begun before can be joined or kept after; while
//! the write lasts nothing is fetched for keeping, and readers go past the cache. That is the version floor of
//! the consistency contract for a node that is the home of all its objects.
//!
//! Room: `kept + reserved <= budget`, in bytes as the kernel counts them and in segments (each takes a file
//! descriptor and a mapping). Only a budget lowered below what is reserved breaks it, until that is released;
//! nothing is kept or reserved meanwhile. Bytes that readers still hold of evicted copies come in as
//! `lingering` and count against the budget too; what copies take together beyond their own costs is `slack`, which
//! counts as well and goes when they go.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use nigh_terms::{BucketName, Namespace, ObjectKey};

use crate::ObjectId;
use crate::eviction::{Chosen, DEFAULT_DOUBTFUL, Facts, Order, Origin, Slot, Slots, fetch_us};

/// What a copy takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// In memory, rounded to pages.
    pub(crate) bytes: u64,
    /// In file descriptors and mappings.
    pub(crate) segments: u64,
}

impl Cost {
    const fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, segments: self.segments + other.segments }
    }

    pub(crate) const fn minus(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_sub(other.bytes), segments: self.segments.saturating_sub(other.segments) }
    }

    const fn fits(self, room: Self) -> bool {
        self.bytes <= room.bytes && self.segments <= room.segments
    }
}

/// What counts against the budget beside copies and reservations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Beyond {
    /// What readers hold of copies that are gone.
    pub(crate) lingering: Cost,
    /// What goes by itself when copies go.
    pub(crate) slack: Cost,
}

/// One fetch from the store; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FetchId(u64);

/// How a read is to be served.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lookup<V, F> {
    /// By this copy.
    Hit(V),
    /// By a fetch that is under way.
    Join(F),
    /// By a fetch that the caller now begins, and ends with `fetched`.
    Lead(FetchId, F),
    /// By the store, without keeping: a write is under way.
    Past,
}

#[derive(Debug)]
struct Kept<V> {
    name: PackedName,
    value: V,
    cost: Cost,
}

/// An object's full name in one piece of memory: neither of the first two parts has a zero byte.
#[derive(Debug)]
struct PackedName(Box<str>);

impl PackedName {
    fn new(object: &ObjectId) -> Self {
        Self([object.namespace.as_str(), object.bucket.as_str(), object.key.as_str()].join("\0").into())
    }

    fn object(&self) -> Option<ObjectId> {
        let [namespace, bucket, key] = self.parts();
        Some(ObjectId {
            namespace: Namespace::new(namespace).ok()?,
            bucket: BucketName::new(bucket).ok()?,
            key: ObjectKey::new(key).ok()?,
        })
    }

    fn parts(&self) -> [&str; 3] {
        let mut parts = self.0.splitn(3, '\0');
        std::array::from_fn(|_| parts.next().unwrap_or_default())
    }
}

fn parts(object: &ObjectId) -> [&str; 3] {
    [object.namespace.as_str(), object.bucket.as_str(), object.key.as_str()]
}

/// Where each copy is, by its name, which the copy itself has.
#[derive(Debug, Default)]
struct Index {
    slots: HashTable<Slot>,
    hasher: RandomState,
}

impl Index {
    fn find<V>(&self, object: &ObjectId, slots: &Slots<Kept<V>>) -> Option<Slot> {
        let name = parts(object);
        let is_it = |slot: &Slot| slots.get(*slot).is_some_and(|kept| kept.name.parts() == name);
        self.slots.find(self.hasher.hash_one(name), is_it).copied()
    }

    /// Enters `slot`; its name's hash is told.
    fn insert<V>(&mut self, slot: Slot, slots: &Slots<Kept<V>>) -> u64 {
        let hash = |slot: &Slot| slots.get(*slot).map_or(0, |kept| self.hasher.hash_one(kept.name.parts()));
        let name = hash(&slot);
        self.slots.insert_unique(name, slot, hash);
        name
    }

    fn remove(&mut self, slot: Slot, name: &PackedName) {
        if let Ok(found) = self.slots.find_entry(self.hasher.hash_one(name.parts()), |found| *found == slot) {
            found.remove();
        }
    }
}

/// Work outstanding on one object.
#[derive(Debug)]
struct Work<F> {
    /// The fetch that may be joined and kept; none while a write is under way.
    fetch: Option<(FetchId, F)>,
    writing: bool,
}

/// Copies `V` and fetches `F` (what those who join one wait for).
#[derive(Debug)]
pub(crate) struct Cache<V, F> {
    budget: Cost,
    kept: Cost,
    reserved: Cost,
    index: Index,
    slots: Slots<Kept<V>>,
    order: Order<Chosen>,
    work: HashMap<ObjectId, Work<F>>,
    fetches: u64,
    /// Copies that were evicted and had no other, until their owner is told.
    orphans: Vec<(ObjectId, V)>,
}

/// What left the cache. It is handed out so that it can be freed without holding the cache's lock.
pub(crate) type Dropped<V> = Vec<V>;

impl<V: Clone, F: Clone> Cache<V, F> {
    pub(crate) fn new(budget: Cost) -> Self {
        Self {
            budget,
            kept: Cost::default(),
            reserved: Cost::default(),
            index: Index::default(),
            slots: Slots::default(),
            order: Order::new(Chosen::default(), DEFAULT_DOUBTFUL),
            work: HashMap::new(),
            fetches: 0,
            orphans: Vec::new(),
        }
    }

    /// What the copies take.
    pub(crate) const fn kept(&self) -> Cost {
        self.kept
    }

    /// What is set aside for copies in the making.
    pub(crate) const fn reserved(&self) -> Cost {
        self.reserved
    }

    /// What all of it may take.
    pub(crate) const fn budget(&self) -> Cost {
        self.budget
    }

    /// How many copies there are.
    pub(crate) fn copies(&self) -> usize {
        self.index.slots.len()
    }

    /// The copy of `object`, without counting as a use.
    pub(crate) fn peek(&self, object: &ObjectId) -> Option<&V> {
        Some(&self.slots.get(self.index.find(object, &self.slots)?)?.value)
    }

    /// Decides how a read of `object` is served. A copy serves if it is `usable`; `begin` makes what those who
    /// will join the caller's fetch wait for.
    pub(crate) fn lookup(
        &mut self,
        object: &ObjectId,
        usable: impl FnOnce(&V) -> bool,
        begin: impl FnOnce() -> F,
    ) -> Lookup<V, F> {
        if let Some(slot) = self.index.find(object, &self.slots)
            && let Some(kept) = self.slots.get(slot)
            && usable(&kept.value)
        {
            let value = kept.value.clone();
            self.order.touch(slot);
            return Lookup::Hit(value);
        }
        match self.work.get(object) {
            Some(Work { writing: true, .. }) => Lookup::Past,
            Some(Work { fetch: Some((_, flight)), .. }) => Lookup::Join(flight.clone()),
            Some(Work { fetch: None, .. }) | None => {
                self.fetches += 1;
                let (fetch, flight) = (FetchId(self.fetches), begin());
                let work = Work { fetch: Some((fetch, flight.clone())), writing: false };
                self.work.insert(object.clone(), work);
                Lookup::Lead(fetch, flight)
            }
        }
    }

    /// Decides how a read of `object` is served whose reader gains nothing from the cache: by what is there or on its
    /// way, else past it. It counts as no use of the copy.
    pub(crate) fn look(&self, object: &ObjectId, usable: impl FnOnce(&V) -> bool) -> Lookup<V, F> {
        if let Some(value) = self.peek(object).filter(|value| usable(value)) {
            return Lookup::Hit(value.clone());
        }
        match self.work.get(object) {
            Some(Work { fetch: Some((_, flight)), .. }) => Lookup::Join(flight.clone()),
            Some(Work { fetch: None, .. }) | None => Lookup::Past,
        }
    }

    /// Sets `cost` aside, dropping copies for it. Refused, and nothing is dropped, if
    /// not even an empty cache had the room.
    pub(crate) fn reserve(&mut self, cost: Cost, beyond: Beyond) -> (bool, Dropped<V>) {
        let budget = self.budget.minus(beyond.lingering);
        if !self.reserved.plus(cost).fits(budget) {
            return (false, Vec::new());
        }
        let dropped = self.shrink(budget.minus(beyond.slack).minus(self.reserved).minus(cost));
        self.reserved = self.reserved.plus(cost);
        (true, dropped)
    }

    /// Gives back what `reserve` set aside.
    pub(crate) fn release(&mut self, cost: Cost) {
        self.reserved = self.reserved.minus(cost);
    }

    /// Ends a fetch. Its copy, whose cost was reserved, is kept unless a write has begun since.
    pub(crate) fn fetched(&mut self, object: &ObjectId, fetch: FetchId, copy: Option<(V, Cost)>) -> Dropped<V> {
        let current = match self.work.get(object) {
            Some(Work { fetch: Some((current, _)), .. }) => *current == fetch,
            Some(_) | None => false,
        };
        if current {
            self.work.remove(object);
        }
        match copy {
            Some((value, cost)) if current => self.keep(object, value, cost, Origin::Read),
            Some((value, cost)) => {
                self.release(cost);
                vec![value]
            }
            None => Vec::new(),
        }
    }

    /// A write of `object` begins: what was kept or was being fetched is no longer to be had.
    /// Writes of one object follow each other; the caller orders them.
    pub(crate) fn begin_write(&mut self, object: &ObjectId) -> Option<V> {
        self.work.insert(object.clone(), Work { fetch: None, writing: true });
        self.forget(object)
    }

    /// The write has ended. `copy`, whose cost was reserved, is what it wrote; none if that does not fit, is gone
    /// or is not known.
    /// `origin` says where else it is.
    pub(crate) fn end_write(&mut self, object: &ObjectId, copy: Option<(V, Cost)>, origin: Origin) -> Dropped<V> {
        self.work.remove(object);
        copy.map_or_else(Vec::new, |(value, cost)| self.keep(object, value, cost, origin))
    }

    /// Somebody else has changed `object`: what was kept or was being fetched is no longer to be had. A write under way
    /// goes on.
    pub(crate) fn invalidate(&mut self, object: &ObjectId) -> Option<V> {
        if self.work.get(object).is_some_and(|work| !work.writing) {
            self.work.remove(object);
        }
        self.forget(object)
    }

    /// Changes the budget; a lower one holds at once.
    pub(crate) fn set_budget(&mut self, budget: Cost, beyond: Beyond) -> Dropped<V> {
        self.budget = budget;
        self.shrink(budget.minus(beyond.lingering).minus(beyond.slack).minus(self.reserved))
    }

    fn keep(&mut self, object: &ObjectId, value: V, cost: Cost, origin: Origin) -> Dropped<V> {
        let mut dropped: Vec<V> = self.forget(object).into_iter().collect();
        self.release(cost);
        // The room was there when it was reserved; the budget may have been lowered since.
        if !self.kept.plus(self.reserved).plus(cost).fits(self.budget) {
            if origin == Origin::Ephemeral {
                self.orphans.push((object.clone(), value.clone()));
            }
            dropped.push(value);
            return dropped;
        }
        self.kept = self.kept.plus(cost);
        let slot = self.slots.insert(Kept { name: PackedName::new(object), value, cost });
        let name = self.index.insert(slot, &self.slots);
        self.order.insert(slot, &facts(cost, name, origin));
        dropped
    }

    fn forget(&mut self, object: &ObjectId) -> Option<V> {
        let slot = self.index.find(object, &self.slots)?;
        Some(self.take(slot)?.value)
    }

    /// Takes a copy out.
    fn take(&mut self, slot: Slot) -> Option<Kept<V>> {
        let kept = self.slots.remove(slot)?;
        self.order.remove(slot);
        self.index.remove(slot, &kept.name);
        self.kept = self.kept.minus(kept.cost);
        Some(kept)
    }

    /// Takes a copy out to make room; one that has no other is an orphan.
    fn evict(&mut self, slot: Slot) -> Option<V> {
        let is_ephemeral = self.order.is_ephemeral(slot);
        let Kept { name, value, .. } = self.take(slot)?;
        if is_ephemeral {
            self.orphans.extend(name.object().map(|object| (object, value.clone())));
        }
        Some(value)
    }

    /// The copies without another that were evicted since this was asked last.
    pub(crate) fn take_orphans(&mut self) -> Vec<(ObjectId, V)> {
        std::mem::take(&mut self.orphans)
    }

    fn shrink(&mut self, room: Cost) -> Dropped<V> {
        let mut dropped = Vec::new();
        while !self.kept.fits(room) {
            let Some(gone) = self.order.victim().and_then(|slot| self.evict(slot)) else { break };
            dropped.push(gone);
        }
        dropped
    }

    /// Drops copies that take `bytes`, but for those that `is_held` says would free nothing, and looks at `looks` of them at
    /// most. Copies that have no other go last; who asks again is not shown first what was passed over.
    pub(crate) fn give_back(&mut self, bytes: u64, looks: usize, is_held: impl Fn(&V) -> bool) -> GivenBack<V> {
        let (mut dropped, mut held, mut aside) = (Vec::new(), 0, Vec::new());
        let (mut wanted, mut looked) = (bytes, 0);
        while wanted > 0 && looked < looks {
            let Some(slot) = self.order.victim() else { break };
            let Some(kept) = self.slots.get(slot) else { break };
            looked += 1;
            let cost = kept.cost;
            wanted = if is_held(&kept.value) {
                held += cost.bytes;
                // As one that was read now: somebody reads it.
                let origin = if self.order.is_ephemeral(slot) { Origin::Ephemeral } else { Origin::Read };
                let name = self.index.hasher.hash_one(kept.name.parts());
                self.order.remove(slot);
                aside.push((slot, facts(cost, name, origin)));
                wanted
            } else {
                dropped.extend(self.evict(slot));
                wanted.saturating_sub(cost.bytes)
            };
        }
        for (slot, facts) in aside {
            self.order.insert(slot, &facts);
        }
        GivenBack { dropped, held, looked }
    }
}

/// What `give_back` has done.
#[derive(Debug)]
pub(crate) struct GivenBack<V> {
    pub(crate) dropped: Dropped<V>,
    /// The bytes of copies that were passed over, as somebody holds them.
    pub(crate) held: u64,
    /// Copies that were looked at.
    pub(crate) looked: usize,
}

/// What the order is to know of a copy.
fn facts(cost: Cost, name: u64, origin: Origin) -> Facts {
    Facts { bytes: cost.bytes, fetch_us: fetch_us(cost.bytes), name, origin }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn object(namespace: &str, key: u8) -> ObjectId {
        ObjectId {
            namespace: Namespace::new(namespace).unwrap(),
            bucket: BucketName::new("bucket").unwrap(),
            key: ObjectKey::new(&format!("k{key}")).unwrap(),
        }
    }

    const fn bytes(bytes: u64) -> Cost {
        Cost { bytes, segments: 1 }
    }

    fn cache(budget: u64, segments: u64) -> Cache<u64, u64> {
        Cache::new(Cost { bytes: budget, segments })
    }

    fn lead(cache: &mut Cache<u64, u64>, object: &ObjectId) -> FetchId {
        match cache.lookup(object, |_| true, || 0) {
            Lookup::Lead(fetch, _) => fetch,
            other => panic!("{other:?}"),
        }
    }

    fn put(cache: &mut Cache<u64, u64>, object: &ObjectId, value: u64, cost: Cost) -> Vec<u64> {
        let (granted, mut dropped) = cache.reserve(cost, Beyond::default());
        assert!(granted);
        dropped.extend(cache.begin_write(object));
        dropped.extend(cache.end_write(object, Some((value, cost)), Origin::Written));
        dropped
    }

    #[test]
    fn concurrent_misses_join_one_fetch_and_hit_after_it() {
        let (mut cache, object) = (cache(100, 10), object("n", 1));
        let Lookup::Lead(fetch, flight) = cache.lookup(&object, |_| true, || 7) else { panic!() };
        assert_eq!(flight, 7);
        assert_eq!(cache.lookup(&object, |_| true, || 8), Lookup::Join(7));
        assert!(cache.reserve(bytes(10), Beyond::default()).0);
        assert_eq!(cache.fetched(&object, fetch, Some((42, bytes(10)))), Vec::<u64>::new());
        assert_eq!(cache.lookup(&object, |_| true, || 9), Lookup::Hit(42));
        assert_eq!(cache.reserved(), Cost::default());
    }

    #[test]
    fn a_copy_of_one_namespace_does_not_serve_another() {
        let mut cache = cache(100, 10);
        put(&mut cache, &object("n", 1), 42, bytes(1));
        assert!(matches!(cache.lookup(&object("m", 1), |_| true, || 0), Lookup::Lead(..)));
    }

    #[test]
    fn a_fetch_begun_before_a_write_is_neither_kept_nor_joined_after_it() {
        let (mut cache, object) = (cache(100, 10), object("n", 1));
        let old = lead(&mut cache, &object);
        assert!(cache.reserve(bytes(10), Beyond::default()).0);
        assert_eq!(cache.begin_write(&object), None);
        assert_eq!(cache.lookup(&object, |_| true, || 0), Lookup::Past);
        assert_eq!(cache.end_write(&object, None, Origin::Written), Vec::<u64>::new());
        let new = lead(&mut cache, &object);
        assert_eq!(cache.fetched(&object, old, Some((1, bytes(10)))), [1]);
        assert!(matches!(cache.lookup(&object, |_| true, || 0), Lookup::Join(_)), "the new fetch is still on");
        assert!(cache.reserve(bytes(10), Beyond::default()).0);
        assert_eq!(cache.fetched(&object, new, Some((2, bytes(10)))), Vec::<u64>::new());
        assert_eq!(cache.lookup(&object, |_| true, || 0), Lookup::Hit(2));
    }

    #[test]
    fn a_fetch_begun_before_somebody_elses_change_is_not_kept_and_a_write_under_way_goes_on() {
        let (mut cache, object) = (cache(100, 10), object("n", 1));
        let old = lead(&mut cache, &object);
        assert_eq!(cache.invalidate(&object), None);
        lead(&mut cache, &object);
        assert!(cache.reserve(bytes(10), Beyond::default()).0);
        assert_eq!(cache.fetched(&object, old, Some((1, bytes(10)))), [1]);
        put(&mut cache, &object, 2, bytes(10));
        assert_eq!(cache.invalidate(&object), Some(2));
        cache.begin_write(&object);
        assert_eq!(cache.invalidate(&object), None);
        assert_eq!(cache.lookup(&object, |_| true, || 0), Lookup::Past);
    }

    #[test]
    fn a_fetch_that_ends_while_a_write_lasts_is_not_kept() {
        let (mut cache, object) = (cache(100, 10), object("n", 1));
        let old = lead(&mut cache, &object);
        cache.begin_write(&object);
        assert!(cache.reserve(bytes(10), Beyond::default()).0);
        assert_eq!(cache.fetched(&object, old, Some((1, bytes(10)))), [1]);
        assert_eq!(cache.lookup(&object, |_| true, || 0), Lookup::Past);
        assert_eq!((cache.kept(), cache.reserved()), (Cost::default(), Cost::default()));
    }

    #[test]
    fn what_was_written_and_not_read_goes_before_what_was_read() {
        let mut cache = cache(30, 10);
        for key in 1..=3 {
            put(&mut cache, &object("n", key), u64::from(key), bytes(10));
        }
        assert_eq!(cache.lookup(&object("n", 1), |_| true, || 0), Lookup::Hit(1));
        assert_eq!(put(&mut cache, &object("n", 4), 4, bytes(10)), [2]);
        assert_eq!(cache.set_budget(Cost { bytes: 10, segments: 10 }, Beyond::default()), [3, 4]);
        assert_eq!(cache.set_budget(Cost { bytes: 9, segments: 10 }, Beyond::default()), [1]);
    }

    #[test]
    fn what_is_given_back_spares_held_copies_and_takes_ephemeral_ones_last() {
        let mut cache = cache(100, 10);
        for key in 1..=4 {
            put(&mut cache, &object("n", key), u64::from(key), bytes(10));
        }
        let ephemeral = object("n", 5);
        assert!(cache.reserve(bytes(10), Beyond::default()).0);
        cache.begin_write(&ephemeral);
        cache.end_write(&ephemeral, Some((5, bytes(10))), Origin::Ephemeral);
        let given = cache.give_back(15, 9, |value| *value == 1);
        assert_eq!((given.dropped, given.held), (vec![2, 3], 10));
        assert_eq!(cache.lookup(&object("n", 1), |_| true, || 0), Lookup::Hit(1));
        let given = cache.give_back(100, 2, |value| *value == 1);
        assert_eq!((given.dropped, given.held, given.looked), (vec![4], 10, 2));
        let given = cache.give_back(100, 9, |value| *value == 1);
        assert_eq!((given.dropped, given.held), (vec![5], 10));
        assert_eq!((cache.copies(), cache.kept()), (1, bytes(10)));
    }

    #[test]
    fn the_number_of_segments_is_limited_too() {
        let mut cache = cache(1000, 2);
        for key in 1..=3 {
            put(&mut cache, &object("n", key), u64::from(key), bytes(1));
        }
        assert_eq!(cache.copies(), 2);
    }

    #[test]
    fn what_readers_still_hold_counts_against_the_budget() {
        let mut cache = cache(30, 10);
        put(&mut cache, &object("n", 1), 1, bytes(10));
        let held = |lingering| Beyond { lingering: bytes(lingering), slack: Cost::default() };
        assert_eq!(cache.reserve(bytes(10), held(25)), (false, vec![]));
        assert_eq!(cache.reserve(bytes(10), held(20)), (true, vec![1]));
    }

    #[test]
    fn who_gains_nothing_is_served_by_what_is_there_and_brings_nothing_in() {
        let (mut cache, object) = (cache(100, 10), object("n", 1));
        assert_eq!(cache.look(&object, |_| true), Lookup::Past);
        let fetch = lead(&mut cache, &object);
        assert_eq!(cache.look(&object, |_| true), Lookup::Join(0));
        assert!(cache.reserve(bytes(10), Beyond::default()).0);
        cache.fetched(&object, fetch, Some((7, bytes(10))));
        assert_eq!(cache.look(&object, |_| true), Lookup::Hit(7));
        cache.begin_write(&object);
        assert_eq!(cache.look(&object, |_| true), Lookup::Past);
    }

    #[test]
    fn what_goes_with_the_copies_makes_room_by_their_going_and_refuses_nothing() {
        let mut cache = cache(30, 10);
        put(&mut cache, &object("n", 1), 1, bytes(5));
        put(&mut cache, &object("n", 2), 2, bytes(5));
        let beyond = Beyond { lingering: Cost::default(), slack: bytes(15) };
        assert_eq!(cache.reserve(bytes(10), beyond), (true, vec![1]));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Read(u8),
        Arrive(usize, u64),
        BeginWrite(u8),
        EndWrite(usize, Option<u64>),
        Budget(u64, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u8..4).prop_map(Step::Read),
            3 => (any::<usize>(), 1u64..40).prop_map(|(n, cost)| Step::Arrive(n, cost)),
            2 => (0u8..4).prop_map(Step::BeginWrite),
            2 => (any::<usize>(), prop::option::of(1u64..40)).prop_map(|(n, cost)| Step::EndWrite(n, cost)),
            1 => (0u64..120, 0u64..5).prop_map(|(bytes, segments)| Step::Budget(bytes, segments)),
        ]
    }

    proptest! {
        /// The store's content is a number for each key that grows with every write and is read by a fetch when
        /// it begins (the worst case). No hit may then be older than the last write that has ended.
        #[test]
        fn never_above_budget_and_never_below_the_floor(steps in prop::collection::vec(step(), 0..120)) {
            let mut cache: Cache<u64, u64> = cache(100, 4);
            let mut stored: BTreeMap<u8, u64> = BTreeMap::new();
            let mut fetches: Vec<(u8, FetchId, u64)> = Vec::new();
            let mut writes: Vec<u8> = Vec::new();
            let mut clock = 0;
            for step in steps {
                match step {
                    Step::Read(key) => {
                        let now = stored.get(&key).copied().unwrap_or(0);
                        match cache.lookup(&object("n", key), |_| true, || now) {
                            Lookup::Hit(value) => {
                                prop_assert_eq!(value, now);
                                prop_assert!(!writes.contains(&key), "a hit while a write lasts");
                            }
                            Lookup::Join(read) => prop_assert_eq!(read, now),
                            Lookup::Lead(fetch, _) => fetches.push((key, fetch, now)),
                            Lookup::Past => prop_assert!(writes.contains(&key)),
                        }
                    }
                    Step::Arrive(pick, cost) if !fetches.is_empty() => {
                        let (key, fetch, value) = fetches.remove(pick % fetches.len());
                        let granted = cache.reserve(bytes(cost), Beyond::default()).0;
                        cache.fetched(&object("n", key), fetch, granted.then_some((value, bytes(cost))));
                    }
                    Step::BeginWrite(key) if !writes.contains(&key) => {
                        cache.begin_write(&object("n", key));
                        writes.push(key);
                    }
                    Step::EndWrite(pick, cost) if !writes.is_empty() => {
                        let key = writes.remove(pick % writes.len());
                        clock += 1;
                        stored.insert(key, clock);
                        let copy = cost.filter(|cost| cache.reserve(bytes(*cost), Beyond::default()).0);
                        cache.end_write(&object("n", key), copy.map(|cost| (clock, bytes(cost))), Origin::Written);
                    }
                    Step::Budget(bytes, segments) => {
                        cache.set_budget(Cost { bytes, segments }, Beyond::default());
                    }
                    Step::Arrive(..) | Step::BeginWrite(_) | Step::EndWrite(..) => {}
                }
                prop_assert!(cache.kept().plus(cache.reserved()).fits(cache.budget()));
                prop_assert_eq!(cache.reserved(), Cost::default());
                prop_assert_eq!(cache.kept().segments as usize, cache.copies());
                prop_assert!(cache.work.len() <= fetches.len() + writes.len(), "work is remembered for nothing");
            }
        }
    }
}
