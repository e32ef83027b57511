//! A hash map that can be compared and hashed whole, and whose iteration order nobody can depend on.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A hash map that iterates only in the order of its keys.
#[derive(Clone, Debug)]
pub struct Table<K, V>(HashMap<K, V>);

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash, V> Table<K, V> {
    /// The value at `key`.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.0.get(key)
    }

    /// The value at `key`, mutable.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(key)
    }

    /// Sets the value at `key`. Returns the former value.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.0.insert(key, value)
    }

    /// Removes the value at `key`.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.0.remove(key)
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K: Eq + Hash + Clone, V> Table<K, V> {
    /// The value at `key`, made by `make` if there is none.
    pub fn get_or_insert_with(&mut self, key: &K, make: impl FnOnce() -> V) -> &mut V {
        self.0.entry(key.clone()).or_insert_with(make)
    }
}

impl<K: Eq + Hash + Clone + Ord, V> Table<K, V> {
    /// The keys whose values `wanted` picks, in order. Walks the whole table.
    pub fn keys_where(&self, mut wanted: impl FnMut(&V) -> bool) -> Vec<K> {
        let mut keys: Vec<K> = self.0.iter().filter(|(_, value)| wanted(value)).map(|(key, _)| key.clone()).collect();
        keys.sort_unstable();
        keys
    }
}

impl<K: Eq + Hash, V: PartialEq> PartialEq for Table<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<K: Eq + Hash, V: Eq> Eq for Table<K, V> {}

impl<K: Eq + Hash, V: Hash> Hash for Table<K, V> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // A sum does not depend on the order of what is summed.
        let sum = self.0.iter().fold(0u64, |sum, entry| {
            let mut hasher = DefaultHasher::new();
            entry.hash(&mut hasher);
            sum.wrapping_add(hasher.finish())
        });
        state.write_usize(self.0.len());
        state.write_u64(sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash_of(table: &Table<u32, u32>) -> u64 {
        let mut hasher = DefaultHasher::new();
        table.hash(&mut hasher);
        hasher.finish()
    }

    #[test]
    fn equal_tables_hash_alike_in_whatever_order_they_were_filled() {
        let (mut up, mut down) = (Table::default(), Table::default());
        for key in 0..100 {
            up.insert(key, key * 7);
            down.insert(99 - key, (99 - key) * 7);
        }
        assert_eq!(up, down);
        assert_eq!(hash_of(&up), hash_of(&down));
        down.insert(5, 0);
        assert_ne!(hash_of(&up), hash_of(&down));
        assert_eq!(up.keys_where(|value| *value < 21), [0, 1, 2]);
    }
}
