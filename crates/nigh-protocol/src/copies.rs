//! The interface of the place where a node's copies are, and a plain table that can be compared and hashed whole.
//!
//! A table stores and finds copies. The cache decides what may be stored; the shell decides what is evicted.

use std::hash::Hash;

use nigh_terms::{ShardId, Version};

use super::message::{ObjectName, Stamp};
use super::table::Table;

/// A copy of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Copy<V> {
    /// The copy's version and that version's token.
    pub stamp: Stamp,
    /// The shell's handle of the bytes.
    pub value: V,
}

/// Copies by their objects.
pub trait CopyStore<O, V> {
    /// The copy of `object`, which counts as used. One look-up.
    fn get(&mut self, object: &O) -> Option<Copy<V>>;

    /// The version of the copy of `object`, without counting as a use.
    fn version(&self, object: &O) -> Option<Version>;

    /// Stores a copy. Returns the values evicted for it, perhaps that of the copy itself.
    fn insert(&mut self, shard: ShardId, object: &O, copy: Copy<V>) -> Vec<V>;

    /// Removes the copy of `object`.
    fn remove(&mut self, object: &O) -> Option<V>;

    /// The number of copies.
    fn len(&self) -> usize;

    /// True if there are no copies.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The objects of `shard` that have copies, in their order. Walks all copies.
    fn objects_of(&self, shard: ShardId) -> Vec<O>;
}

/// Copies in a table, without a limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PlainCopies<O: Eq + Hash, V>(Table<O, (ShardId, Copy<V>)>);

impl<O: Eq + Hash, V> Default for PlainCopies<O, V> {
    fn default() -> Self {
        Self(Table::default())
    }
}

impl<O: ObjectName, V: Clone> CopyStore<O, V> for PlainCopies<O, V> {
    fn get(&mut self, object: &O) -> Option<Copy<V>> {
        self.0.get(object).map(|(_, copy)| copy.clone())
    }

    fn version(&self, object: &O) -> Option<Version> {
        self.0.get(object).map(|(_, copy)| copy.stamp.version)
    }

    fn insert(&mut self, shard: ShardId, object: &O, copy: Copy<V>) -> Vec<V> {
        self.0.insert(object.clone(), (shard, copy)).into_iter().map(|(_, before)| before.value).collect()
    }

    fn remove(&mut self, object: &O) -> Option<V> {
        self.0.remove(object).map(|(_, copy)| copy.value)
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn objects_of(&self, shard: ShardId) -> Vec<O> {
        self.0.keys_where(|(of, _)| *of == shard)
    }
}
