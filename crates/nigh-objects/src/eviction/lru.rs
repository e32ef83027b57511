//! LRU: evicts the least recently used copy.

use super::slots::{List, Nodes, Slot};
use super::{EvictionPolicy, Facts};

/// The order of last use.
#[derive(Debug, Default)]
pub struct Lru {
    used: List,
}

impl EvictionPolicy for Lru {
    fn insert(&mut self, nodes: &mut Nodes, slot: Slot, _facts: &Facts) {
        self.used.add(nodes, slot);
    }

    fn touch(&mut self, nodes: &mut Nodes, slot: Slot) {
        self.used.renew(nodes, slot);
    }

    fn remove(&mut self, nodes: &mut Nodes, slot: Slot) {
        self.used.take(nodes, slot);
    }

    fn victim(&mut self, _nodes: &mut Nodes) -> Option<Slot> {
        self.used.oldest()
    }
}
