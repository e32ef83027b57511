//! The order in which kept things were last used: a doubly linked list in one vector.
//!
//! It only orders; what may stay is decided in `cache`. Every operation takes constant time and, once the
//! vector has grown, allocates nothing: a hit moves one node.

/// No node.
const NONE: u32 = u32::MAX;

/// A place in the list; valid until it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(u32);

#[derive(Debug)]
struct Node<T> {
    value: Option<T>,
    newer: u32,
    older: u32,
}

/// Values from the most to the least recently used.
#[derive(Debug)]
pub(crate) struct Recency<T> {
    nodes: Vec<Node<T>>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
}

impl<T> Recency<T> {
    pub(crate) const fn new() -> Self {
        Self { nodes: Vec::new(), free: Vec::new(), newest: NONE, oldest: NONE }
    }

    /// Adds `value` as the most recently used.
    pub(crate) fn insert(&mut self, value: T) -> Slot {
        let node = Node { value: Some(value), newer: NONE, older: NONE };
        let at = if let Some(at) = self.free.pop() {
            self.nodes[at as usize] = node;
            at
        } else {
            self.nodes.push(node);
            (self.nodes.len() - 1) as u32
        };
        self.link_newest(at);
        Slot(at)
    }

    /// The value at `slot`.
    pub(crate) fn get(&self, slot: Slot) -> Option<&T> {
        self.nodes.get(slot.0 as usize)?.value.as_ref()
    }

    /// Makes the value at `slot` the most recently used.
    pub(crate) fn touch(&mut self, slot: Slot) {
        if self.newest != slot.0 {
            self.unlink(slot.0);
            self.link_newest(slot.0);
        }
    }

    /// Takes the value at `slot` out.
    pub(crate) fn remove(&mut self, slot: Slot) -> Option<T> {
        let value = self.nodes.get_mut(slot.0 as usize)?.value.take()?;
        self.unlink(slot.0);
        self.free.push(slot.0);
        Some(value)
    }

    /// Takes the least recently used value out.
    pub(crate) fn remove_oldest(&mut self) -> Option<T> {
        if self.oldest == NONE { None } else { self.remove(Slot(self.oldest)) }
    }

    fn unlink(&mut self, at: u32) {
        let (newer, older) = (self.nodes[at as usize].newer, self.nodes[at as usize].older);
        match newer {
            NONE => self.newest = older,
            newer => self.nodes[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.nodes[older as usize].newer = newer,
        }
    }

    fn link_newest(&mut self, at: u32) {
        let second = std::mem::replace(&mut self.newest, at);
        self.nodes[at as usize].newer = NONE;
        self.nodes[at as usize].older = second;
        match second {
            NONE => self.oldest = at,
            second => self.nodes[second as usize].newer = at,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_list_behaves_as_a_vector_moved_to_front(steps in prop::collection::vec((0u8..4, 0usize..8), 0..200)) {
            let mut list = Recency::new();
            // Newest first.
            let mut model: Vec<(Slot, usize)> = Vec::new();
            for (step, (kind, pick)) in steps.into_iter().enumerate() {
                match kind {
                    0 => model.insert(0, (list.insert(step), step)),
                    1 if !model.is_empty() => {
                        let moved = model.remove(pick % model.len());
                        list.touch(moved.0);
                        model.insert(0, moved);
                    }
                    2 if !model.is_empty() => {
                        let (slot, value) = model.remove(pick % model.len());
                        prop_assert_eq!(list.remove(slot), Some(value));
                        prop_assert!(list.get(slot).is_none());
                    }
                    3 => prop_assert_eq!(list.remove_oldest(), model.pop().map(|(_, value)| value)),
                    _ => {}
                }
                for (slot, value) in &model {
                    prop_assert_eq!(list.get(*slot), Some(value));
                }
            }
            while let Some((_, value)) = model.pop() {
                prop_assert_eq!(list.remove_oldest(), Some(value));
            }
            prop_assert_eq!(list.remove_oldest(), None);
        }
    }
}
