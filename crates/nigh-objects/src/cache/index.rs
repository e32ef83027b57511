//! The index of the shelf: finds a copy's slot by the object's name.
//!
//! The name is stored once, in the copy's entry; the index has only hashes and slots.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use nigh_data::{Cost, NamePrint, ObjectId};
use nigh_terms::{BucketName, Namespace, ObjectKey};

use crate::eviction::{Slot, Slots};

#[derive(Debug)]
pub(super) struct CacheEntry<V> {
    pub(super) name: PackedName,
    pub(super) value: V,
    pub(super) cost: Cost,
}

/// An object's full name in one piece of memory: neither of the first two parts has a zero byte.
#[derive(Debug)]
pub(crate) struct PackedName(Box<str>);

impl PackedName {
    pub(super) fn new(object: &ObjectId) -> Self {
        Self([object.namespace.as_str(), object.bucket.as_str(), object.key.as_str()].join("\0").into())
    }

    pub(super) fn parts(&self) -> [&str; 3] {
        let mut parts = self.0.splitn(3, '\0');
        std::array::from_fn(|_| parts.next().unwrap_or_default())
    }

    pub(super) fn print(&self) -> NamePrint {
        NamePrint::of_text([&*self.0])
    }

    pub(crate) fn object(&self) -> Option<ObjectId> {
        let [namespace, bucket, key] = self.parts();
        let names = (Namespace::new(namespace), BucketName::new(bucket), ObjectKey::new(key));
        let (Ok(namespace), Ok(bucket), Ok(key)) = names else { return None };
        Some(ObjectId { namespace, bucket, key })
    }
}

fn parts(object: &ObjectId) -> [&str; 3] {
    [object.namespace.as_str(), object.bucket.as_str(), object.key.as_str()]
}

/// Finds a copy's slot by the object's name, which is stored in the copy.
#[derive(Debug, Default)]
pub(super) struct Index {
    slots: HashTable<Slot>,
    hasher: RandomState,
}

impl Index {
    /// The number of slots.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// All slots, in no order.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.slots.iter().copied()
    }

    /// The hash of a name.
    pub(super) fn hash(&self, name: &PackedName) -> u64 {
        self.hasher.hash_one(name.parts())
    }

    pub(super) fn find<V>(&self, object: &ObjectId, slots: &Slots<CacheEntry<V>>) -> Option<Slot> {
        let name = parts(object);
        let is_it = |slot: &Slot| slots.get(*slot).is_some_and(|kept| kept.name.parts() == name);
        self.slots.find(self.hasher.hash_one(name), is_it).copied()
    }

    /// Adds `slot`. Returns the hash of its name.
    pub(super) fn insert<V>(&mut self, slot: Slot, slots: &Slots<CacheEntry<V>>) -> u64 {
        let hash = |slot: &Slot| slots.get(*slot).map_or(0, |kept| self.hasher.hash_one(kept.name.parts()));
        let name = hash(&slot);
        self.slots.insert_unique(name, slot, hash);
        name
    }

    pub(super) fn remove(&mut self, slot: Slot, name: &PackedName) {
        if let Ok(found) = self.slots.find_entry(self.hasher.hash_one(name.parts()), |found| *found == slot) {
            found.remove();
        }
    }
}
