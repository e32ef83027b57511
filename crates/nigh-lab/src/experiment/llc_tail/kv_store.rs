//! A single-threaded key-value store in the manner of MICA (NSDI 2014): a lossy index of one-line buckets over a circular log.
//!
//! A key of 8 bytes hashes to one bucket of 16 slots; a slot holds a position of the log and 6 bits of the hash, so that a
//! lookup touches the bucket's line and, but for a chance match in 63, one line of the log. A bucket that is full forgets one
//! of its keys, a log that is full its oldest items: it is a cache. An update of a key that is there goes in place.

use nigh_sim::llc::SplitMix64;

use super::touch::{Region, Touch};

const SLOTS: usize = 16;
/// Bits of a slot that are the item's position.
const POSITION_BITS: u32 = 26;
/// Items at most: what the position of a slot can name.
pub(super) const ENTRIES_MAX: u32 = 1 << POSITION_BITS;
/// Items for each bucket: half its slots, so that few keys are forgotten.
const ENTRIES_PER_BUCKET: u32 = 8;
pub(super) const ITEM_BYTES: u64 = 16;
pub(super) const BUCKET_BYTES: u64 = 64;
/// No item: its tag would be 63, which no key has.
const EMPTY: u32 = u32::MAX;

#[derive(Clone)]
#[repr(align(64))]
struct Bucket([u32; SLOTS]);

#[derive(Clone, Copy, Default)]
struct Item {
    key: u64,
    value: u64,
}

pub(super) struct KvStore {
    index: Vec<Bucket>,
    log: Vec<Item>,
    /// Where the next new item goes.
    head: u32,
}

/// How many items a store is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entries(u32);

impl Entries {
    /// 2 MiB of items and 1 MiB of index.
    pub(super) const SMALL: Self = Self(131_072);
    /// 1 GiB of items and 512 MiB of index.
    pub(super) const LARGE: Self = Self(ENTRIES_MAX);

    /// A power of two, from 8 to [`ENTRIES_MAX`].
    pub(super) fn new(entries: u32) -> Option<Self> {
        let fits = entries.is_power_of_two() && (ENTRIES_PER_BUCKET..=ENTRIES_MAX).contains(&entries);
        fits.then_some(Self(entries))
    }

    pub(super) const fn get(self) -> u32 {
        self.0
    }

    pub(super) const fn buckets(self) -> u32 {
        self.0 / ENTRIES_PER_BUCKET
    }
}

const fn position(slot: u32) -> u32 {
    slot & (ENTRIES_MAX - 1)
}

impl KvStore {
    pub(super) fn new(entries: Entries) -> Self {
        Self {
            index: vec![Bucket([EMPTY; SLOTS]); entries.buckets() as usize],
            log: vec![Item::default(); entries.get() as usize],
            head: 0,
        }
    }

    /// A store that holds keys 0, 1, ... up to its size, each its own value.
    pub(super) fn filled(entries: Entries) -> Self {
        let mut store = Self::new(entries);
        for key in 0..u64::from(entries.get()) {
            store.put(key, key, &mut super::touch::NoRecording);
        }
        store
    }

    /// The bucket of a key, and the tag its slot has.
    fn place(&self, key: u64) -> (usize, u32) {
        // One to one, and every bit of it depends on every bit of the key.
        let hash = SplitMix64::new(key).next_u64();
        let tag = ((hash >> 48) % 63) as u32;
        ((hash & (self.index.len() as u64 - 1)) as usize, tag)
    }

    /// Where the key's item is.
    fn find(&self, key: u64, bucket: usize, tag: u32, touch: &mut impl Touch) -> Option<u32> {
        touch.touch(Region::Index, bucket as u64 * BUCKET_BYTES, BUCKET_BYTES, false);
        for &slot in self.index[bucket].0.iter().filter(|&&slot| slot >> POSITION_BITS == tag) {
            let at = position(slot);
            touch.touch(Region::Items, u64::from(at) * ITEM_BYTES, ITEM_BYTES, false);
            if self.log[at as usize].key == key {
                return Some(at);
            }
        }
        None
    }

    pub(super) fn get(&self, key: u64, touch: &mut impl Touch) -> Option<u64> {
        let (bucket, tag) = self.place(key);
        self.find(key, bucket, tag, touch).map(|at| self.log[at as usize].value)
    }

    pub(super) fn put(&mut self, key: u64, value: u64, touch: &mut impl Touch) {
        let (bucket, tag) = self.place(key);
        if let Some(at) = self.find(key, bucket, tag, touch) {
            touch.touch(Region::Items, u64::from(at) * ITEM_BYTES, ITEM_BYTES, true);
            self.log[at as usize].value = value;
            return;
        }
        let at = self.head;
        self.head = (at + 1) % self.log.len() as u32;
        touch.touch(Region::Items, u64::from(at) * ITEM_BYTES, ITEM_BYTES, true);
        self.log[at as usize] = Item { key, value };
        touch.touch(Region::Index, bucket as u64 * BUCKET_BYTES, BUCKET_BYTES, true);
        let slots = &mut self.index[bucket].0;
        let free = slots.iter().position(|&slot| slot == EMPTY).unwrap_or(at as usize % SLOTS);
        slots[free] = tag << POSITION_BITS | at;
    }
}

#[cfg(test)]
mod tests {
    use super::super::touch::{NoRecording, Recorder};
    use super::*;

    #[test]
    fn nearly_every_key_of_a_full_store_is_found_with_its_value() {
        let store = KvStore::filled(Entries::SMALL);
        let found = (0..131_072).filter(|&key| store.get(key, &mut NoRecording) == Some(key)).count();
        // 16 slots for 8 keys on average (Poisson): 0.4 % of the buckets overflow, by a key or two each.
        assert!((130_500..131_072).contains(&found), "{found}");
        assert_eq!(store.get(131_072, &mut NoRecording), None);
    }

    #[test]
    fn an_update_stays_in_place_and_new_keys_push_out_the_oldest() {
        let mut store = KvStore::new(Entries::new(64).unwrap());
        for key in 0..64 {
            store.put(key, key, &mut NoRecording);
        }
        let head = store.head;
        store.put(3, 77, &mut NoRecording);
        assert_eq!((store.get(3, &mut NoRecording), store.head), (Some(77), head));
        for key in 1000..1004 {
            store.put(key, key, &mut NoRecording);
        }
        assert!((0..4).all(|key| store.get(key, &mut NoRecording).is_none()));
        assert_eq!(store.get(1003, &mut NoRecording), Some(1003));
    }

    #[test]
    fn a_lookup_touches_its_bucket_and_mostly_one_item() {
        let store = KvStore::filled(Entries::new(4096).unwrap());
        let mut recorder = Recorder::default();
        assert_eq!((0..4096).filter(|&key| store.get(key, &mut recorder).is_none()).count() / 100, 0);
        let of = |region| recorder.runs.iter().filter(|run| run.region == region).count();
        assert_eq!(of(Region::Index), 4096);
        // Half of a bucket's seven other keys are looked at first, one in 63 matches by chance.
        assert!((4060..4500).contains(&of(Region::Items)), "{}", of(Region::Items));
        assert!(recorder.runs.iter().all(|run| run.lines == 1));
    }

    #[test]
    fn a_size_that_cannot_be_is_refused() {
        assert_eq!(Entries::new(100), None);
        assert_eq!(Entries::new(4), None);
        assert_eq!(Entries::new(1 << 27), None);
        assert_eq!(Entries::new(1 << 26), Some(Entries::LARGE));
    }
}
