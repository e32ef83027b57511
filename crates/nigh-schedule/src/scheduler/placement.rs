//! An invocation to place, and the facts about it for each node.

use std::time::Duration;

use nigh_terms::ByteSize;

use super::Fingerprint;
use super::node_view::NodeIndex;

/// Facts about some nodes, in the order of the nodes, so that the scheduler walks through them beside its own list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerNode<T>(Vec<(NodeIndex, T)>);

impl<T> Default for PerNode<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> PerNode<T> {
    /// The fact about `node`.
    #[must_use]
    pub fn get(&self, node: NodeIndex) -> Option<&T> {
        let at = self.0.binary_search_by_key(&node, |(of, _)| *of).ok()?;
        self.0.get(at).map(|(_, value)| value)
    }

    /// The fact about `node`, mutable; `T`'s default if there was none.
    pub fn entry(&mut self, node: NodeIndex) -> &mut T
    where
        T: Default,
    {
        let at = self.0.partition_point(|(of, _)| *of < node);
        if self.0.get(at).is_none_or(|(of, _)| *of != node) {
            self.0.insert(at, (node, T::default()));
        }
        &mut self.0[at].1
    }

    /// Removes the fact about `node`.
    pub fn remove(&mut self, node: NodeIndex) -> Option<T> {
        let at = self.0.binary_search_by_key(&node, |(of, _)| *of).ok()?;
        Some(self.0.remove(at).1)
    }

    /// Removes all facts; the list keeps its memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// All facts, in the order of the nodes.
    pub fn iter(&self) -> impl Iterator<Item = (NodeIndex, &T)> {
        self.0.iter().map(|(node, value)| (*node, value))
    }

    /// A walk that is asked for nodes in their order, each once: one step for each node.
    pub(super) fn walk(&self) -> Walk<'_, T> {
        Walk(&self.0)
    }
}

/// See [`PerNode::walk`].
pub(super) struct Walk<'a, T>(&'a [(NodeIndex, T)]);

impl<'a, T> Walk<'a, T> {
    pub(super) fn at(&mut self, node: NodeIndex) -> Option<&'a T> {
        while let [(of, value), rest @ ..] = self.0 {
            if *of > node {
                return None;
            }
            self.0 = rest;
            if *of == node {
                return Some(value);
            }
        }
        None
    }
}

/// A node's idle sandboxes of one function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WarmSandboxes {
    /// Number of sandboxes.
    pub sandboxes: u32,
    /// The grant of the one used last.
    pub granted: ByteSize,
    /// How long the one used last has been idle.
    pub idle_for: Duration,
}

/// The part of an invocation's inputs that a node probably caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldInputs {
    /// Number of objects.
    pub objects: u32,
    /// Size of these objects, in bytes.
    pub bytes: u64,
}

/// The objects that an invocation will read: those that its arguments and its trigger name, and its predecessors'
/// outputs that it is known to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    all: HeldInputs,
    by_node: PerNode<HeldInputs>,
}

impl Inputs {
    /// Adds an object of `bytes` bytes that `holders` probably cache. A node that is named twice counts twice.
    pub fn add(&mut self, bytes: u64, holders: impl IntoIterator<Item = NodeIndex>) {
        let add = |held: &mut HeldInputs| {
            held.objects += 1;
            held.bytes += bytes;
        };
        add(&mut self.all);
        holders.into_iter().for_each(|node| add(self.by_node.entry(node)));
    }

    /// Removes all inputs; the list keeps its memory.
    pub fn clear(&mut self) {
        self.all = HeldInputs::default();
        self.by_node.clear();
    }

    /// All inputs, cached or not.
    #[must_use]
    pub const fn all(&self) -> HeldInputs {
        self.all
    }

    /// The inputs that each node probably caches.
    #[must_use]
    pub const fn by_node(&self) -> &PerNode<HeldInputs> {
        &self.by_node
    }
}

/// An invocation to place.
#[derive(Clone, Copy, Debug)]
pub struct Placement<'a> {
    /// The fingerprint of namespace and function.
    pub function: Fingerprint,
    /// The memory that a new sandbox would book.
    pub booked: ByteSize,
    /// The predicted memory; the booking if there is no prediction.
    pub expected: ByteSize,
    /// The usual duration of a run; zero if unknown.
    pub run: Duration,
    /// The duration of a cold start.
    pub cold_start: Duration,
    /// Number of last-level cache ways that it is predicted to need for itself; 0 if it needs none.
    pub ways: u8,
    /// The function's idle sandboxes.
    pub warm: &'a PerNode<WarmSandboxes>,
    /// The objects that it will read.
    pub inputs: &'a Inputs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_walked_in_the_order_of_nodes_whatever_it_was_filled_in() {
        let mut list: PerNode<u32> = PerNode::default();
        for node in [7, 2, 9, 2] {
            *list.entry(NodeIndex(node)) += u32::from(node);
        }
        assert_eq!(list.iter().map(|(node, value)| (node.0, *value)).collect::<Vec<_>>(), [(2, 4), (7, 7), (9, 9)]);
        let mut walk = list.walk();
        let met: Vec<u32> = (0..12).filter_map(|node| walk.at(NodeIndex(node)).copied()).collect();
        assert_eq!(met, [4, 7, 9]);
        assert_eq!(
            (list.remove(NodeIndex(7)), list.get(NodeIndex(7)), list.get(NodeIndex(9))),
            (Some(7), None, Some(&9))
        );
    }

    #[test]
    fn inputs_are_summed_by_node() {
        let mut inputs = Inputs::default();
        inputs.add(100, [NodeIndex(1), NodeIndex(2)]);
        inputs.add(10, [NodeIndex(2)]);
        inputs.add(1, []);
        assert_eq!(inputs.all(), HeldInputs { objects: 3, bytes: 111 });
        assert_eq!(inputs.by_node().get(NodeIndex(2)), Some(&HeldInputs { objects: 2, bytes: 110 }));
        inputs.clear();
        assert_eq!(inputs, Inputs::default());
    }
}
