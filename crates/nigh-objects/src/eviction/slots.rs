//! Slots: numbers by which cached values are found in constant time, and lists that link them.
//!
//! This module only stores and links; the policies decide what is evicted. Memory grows by a page of nodes at a time,
//! so nothing is moved, and no memory is reserved for twice as many nodes.

use std::collections::{HashMap, VecDeque};

/// The number of no slot.
const NONE: u32 = u32::MAX;
/// The slots of one page of memory.
const PAGE: usize = 1024;
/// The unit of sizes. A larger one would exceed the smallest cell; with a smaller one sizes would not fit 32 bits.
const UNIT_BYTES: u64 = 64;

/// A slot; valid until its value is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot(u32);

#[derive(Debug)]
enum Entry<T> {
    /// The next free slot.
    Free(u32),
    Used(T),
}

/// Values by their slots.
#[derive(Debug)]
pub struct Slots<T> {
    pages: Vec<Vec<Entry<T>>>,
    free: u32,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { pages: Vec::new(), free: NONE }
    }
}

fn push<T>(pages: &mut Vec<Vec<T>>, value: T) -> u32 {
    if pages.last().is_none_or(|page| page.len() == PAGE) {
        pages.push(Vec::with_capacity(PAGE));
    }
    let page = pages.len() - 1;
    pages[page].push(value);
    (page * PAGE + pages[page].len() - 1) as u32
}

impl<T> Slots<T> {
    /// Stores `value` in a free slot.
    pub fn insert(&mut self, value: T) -> Slot {
        if self.free == NONE {
            return Slot(push(&mut self.pages, Entry::Used(value)));
        }
        let at = self.free;
        let entry = &mut self.pages[at as usize / PAGE][at as usize % PAGE];
        if let Entry::Free(next) = std::mem::replace(entry, Entry::Used(value)) {
            self.free = next;
        }
        Slot(at)
    }

    /// The value at `slot`.
    #[must_use]
    pub fn get(&self, slot: Slot) -> Option<&T> {
        match self.pages.get(slot.0 as usize / PAGE)?.get(slot.0 as usize % PAGE)? {
            Entry::Used(value) => Some(value),
            Entry::Free(_) => None,
        }
    }

    /// The values at the slots from `from` to before `to`. Slots are numbered from 0, and a value keeps its slot.
    pub(crate) fn between(&self, from: u32, to: u32) -> impl Iterator<Item = &T> {
        (from..to.min(self.places())).filter_map(|at| self.get(Slot(at)))
    }

    /// The number of slots, free ones too.
    pub(crate) fn places(&self) -> u32 {
        let last = self.pages.last().map_or(0, Vec::len);
        (self.pages.len().saturating_sub(1) * PAGE + last) as u32
    }

    /// Removes the value at `slot`.
    pub fn remove(&mut self, slot: Slot) -> Option<T> {
        self.get(slot)?;
        let entry = &mut self.pages[slot.0 as usize / PAGE][slot.0 as usize % PAGE];
        match std::mem::replace(entry, Entry::Free(self.free)) {
            Entry::Used(value) => {
                self.free = slot.0;
                Some(value)
            }
            Entry::Free(_) => None,
        }
    }
}

/// The eviction data of one copy: 24 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    newer: u32,
    older: u32,
    /// When the copy was last used, in the policy's own measure.
    pub(super) stamp: f64,
    /// The size in `UNIT_BYTES`.
    units: u32,
    /// The list that the node is in.
    pub(super) list: u8,
    /// The number of uses, as far as the policy counts them.
    pub(super) uses: u8,
    /// A number for the policy's own use.
    pub(super) mark: u16,
}

impl Node {
    /// The copy's size in bytes, rounded up.
    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.units) * UNIT_BYTES
    }
}

/// The nodes of all copies, by their slots.
#[derive(Debug, Default)]
pub struct Nodes {
    pages: Vec<Vec<Node>>,
}

impl Nodes {
    /// Resets the node of `slot` to a copy of `bytes` in no list.
    pub(super) fn begin(&mut self, slot: Slot, bytes: u64) {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        let node = Node { newer: NONE, older: NONE, stamp: 0.0, units, list: 0, uses: 0, mark: 0 };
        // Slots are used one after the other, so at most the next one is new.
        if slot.0 as usize / PAGE >= self.pages.len()
            || slot.0 as usize % PAGE >= self.pages[slot.0 as usize / PAGE].len()
        {
            push(&mut self.pages, node);
        }
        *self.at(slot) = node;
    }

    pub(super) fn at(&mut self, slot: Slot) -> &mut Node {
        &mut self.pages[slot.0 as usize / PAGE][slot.0 as usize % PAGE]
    }

    pub(super) fn get(&self, slot: Slot) -> &Node {
        &self.pages[slot.0 as usize / PAGE][slot.0 as usize % PAGE]
    }
}

/// Slots from the oldest to the newest, and the sum of their bytes.
#[derive(Clone, Debug)]
pub(super) struct List {
    newest: u32,
    oldest: u32,
    bytes: u64,
}

impl Default for List {
    fn default() -> Self {
        Self { newest: NONE, oldest: NONE, bytes: 0 }
    }
}

impl List {
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn oldest(&self) -> Option<Slot> {
        (self.oldest != NONE).then_some(Slot(self.oldest))
    }

    /// The slot that was added after `slot`.
    pub(super) fn newer(&self, nodes: &Nodes, slot: Slot) -> Option<Slot> {
        let newer = nodes.get(slot).newer;
        (newer != NONE).then_some(Slot(newer))
    }

    /// Adds `slot`, which is in no list, as the newest.
    pub(super) fn add(&mut self, nodes: &mut Nodes, slot: Slot) {
        let second = std::mem::replace(&mut self.newest, slot.0);
        let node = nodes.at(slot);
        (node.newer, node.older) = (NONE, second);
        self.bytes += node.bytes();
        match second {
            NONE => self.oldest = slot.0,
            second => nodes.at(Slot(second)).newer = slot.0,
        }
    }

    /// Removes `slot`, which is in this list.
    pub(super) fn take(&mut self, nodes: &mut Nodes, slot: Slot) {
        let Node { newer, older, .. } = *nodes.get(slot);
        self.bytes -= nodes.get(slot).bytes();
        match newer {
            NONE => self.newest = older,
            newer => nodes.at(Slot(newer)).older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => nodes.at(Slot(older)).newer = newer,
        }
    }

    /// Makes `slot`, which is in this list, its newest.
    pub(super) fn renew(&mut self, nodes: &mut Nodes, slot: Slot) {
        if self.newest != slot.0 {
            self.take(nodes, slot);
            self.add(nodes, slot);
        }
    }
}

/// The names of copies that left lately, first in first out, at most `limit`.
#[derive(Debug, Default)]
pub(super) struct Ghosts {
    order: VecDeque<u32>,
    known: HashMap<u32, u32>,
}

impl Ghosts {
    pub(super) fn add(&mut self, name: u32, limit: usize) {
        self.order.push_back(name);
        *self.known.entry(name).or_default() += 1;
        while self.order.len() > limit {
            let Some(gone) = self.order.pop_front() else { break };
            if let Some(count) = self.known.get_mut(&gone) {
                *count -= 1;
                if *count == 0 {
                    self.known.remove(&gone);
                }
            }
        }
    }

    pub(super) fn has(&self, name: u32) -> bool {
        self.known.contains_key(&name)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_list_behaves_as_a_vector_moved_to_its_end(steps in prop::collection::vec((0u8..4, 0usize..8), 0..200)) {
            let (mut slots, mut nodes, mut list) = (Slots::default(), Nodes::default(), List::default());
            // Oldest first.
            let mut model: Vec<(Slot, usize)> = Vec::new();
            for (step, (kind, pick)) in steps.into_iter().enumerate() {
                match kind {
                    0 | 3 => {
                        let slot = slots.insert(step);
                        nodes.begin(slot, 64 * step as u64);
                        list.add(&mut nodes, slot);
                        model.push((slot, step));
                    }
                    1 if !model.is_empty() => {
                        let moved = model.remove(pick % model.len());
                        list.renew(&mut nodes, moved.0);
                        model.push(moved);
                    }
                    2 if !model.is_empty() => {
                        let (slot, value) = model.remove(pick % model.len());
                        list.take(&mut nodes, slot);
                        prop_assert_eq!(slots.remove(slot), Some(value));
                        prop_assert!(slots.get(slot).is_none());
                    }
                    _ => {}
                }
                let mut at = list.oldest();
                for (slot, value) in &model {
                    prop_assert_eq!(at, Some(*slot));
                    prop_assert_eq!(slots.get(*slot), Some(value));
                    at = list.newer(&nodes, *slot);
                }
                prop_assert_eq!(at, None);
                prop_assert_eq!(list.bytes(), model.iter().map(|(_, step)| 64 * *step as u64).sum::<u64>());
            }
        }
    }

    #[test]
    fn ghosts_beyond_the_limit_are_forgotten_oldest_first() {
        let mut ghosts = Ghosts::default();
        for name in [1, 2, 1, 3] {
            ghosts.add(name, 2);
        }
        assert_eq!([1, 2, 3].map(|name| ghosts.has(name)), [true, false, true]);
    }
}
