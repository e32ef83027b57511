//! The order in which kept things were last used: a doubly linked list in pages of memory.
//!
//! It only orders; what may stay is decided in `cache`. Every operation takes constant time and, once the list has
//! grown, allocates nothing: a hit moves one node. It grows by a page at a time: nodes are never moved, and no room is
//! kept for as many again.

/// No node.
const NONE: u32 = u32::MAX;
/// Nodes of one page.
const PAGE: usize = 1024;

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
    pages: Vec<Vec<Node<T>>>,
    /// The first node without a value; each names the next by `older`.
    free: u32,
    newest: u32,
    oldest: u32,
}

impl<T> Recency<T> {
    pub(crate) const fn new() -> Self {
        Self { pages: Vec::new(), free: NONE, newest: NONE, oldest: NONE }
    }

    /// Adds `value` as the most recently used.
    pub(crate) fn insert(&mut self, value: T) -> Slot {
        let node = Node { value: Some(value), newer: NONE, older: NONE };
        let at = match self.free {
            NONE => self.push(node),
            at => {
                self.free = std::mem::replace(self.node(at), node).older;
                at
            }
        };
        self.link_newest(at);
        Slot(at)
    }

    /// The value at `slot`.
    pub(crate) fn get(&self, slot: Slot) -> Option<&T> {
        self.pages.get(slot.0 as usize / PAGE)?.get(slot.0 as usize % PAGE)?.value.as_ref()
    }

    fn node(&mut self, at: u32) -> &mut Node<T> {
        &mut self.pages[at as usize / PAGE][at as usize % PAGE]
    }

    fn push(&mut self, node: Node<T>) -> u32 {
        if self.pages.last().is_none_or(|page| page.len() == PAGE) {
            self.pages.push(Vec::with_capacity(PAGE));
        }
        let page = self.pages.len() - 1;
        self.pages[page].push(node);
        (page * PAGE + self.pages[page].len() - 1) as u32
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
        self.get(slot)?;
        let value = self.node(slot.0).value.take()?;
        self.unlink(slot.0);
        self.node(slot.0).older = std::mem::replace(&mut self.free, slot.0);
        Some(value)
    }

    /// Takes the least recently used value out, and says where it was.
    pub(crate) fn remove_oldest(&mut self) -> Option<(Slot, T)> {
        let slot = Slot(self.oldest);
        Some((slot, self.remove(slot)?))
    }

    fn unlink(&mut self, at: u32) {
        let (newer, older) = (self.node(at).newer, self.node(at).older);
        match newer {
            NONE => self.newest = older,
            newer => self.node(newer).older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.node(older).newer = newer,
        }
    }

    fn link_newest(&mut self, at: u32) {
        let second = std::mem::replace(&mut self.newest, at);
        self.node(at).newer = NONE;
        self.node(at).older = second;
        match second {
            NONE => self.oldest = at,
            second => self.node(second).newer = at,
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
                    3 => prop_assert_eq!(list.remove_oldest(), model.pop()),
                    _ => {}
                }
                for (slot, value) in &model {
                    prop_assert_eq!(list.get(*slot), Some(value));
                }
            }
            while let Some(last) = model.pop() {
                prop_assert_eq!(list.remove_oldest(), Some(last));
            }
            prop_assert_eq!(list.remove_oldest(), None);
        }
    }
}
