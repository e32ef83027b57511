//! The copies that take most memory, for people. Pure.

use nigh_data::ObjectId;
use nigh_terms::Namespace;

use super::Shelf;
use super::index::PackedName;

/// A cached copy and the memory that it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LargeCopy {
    /// The object.
    pub object: ObjectId,
    /// The bytes that the copy takes, as the kernel counts them.
    pub bytes: u64,
}

/// The largest copies of one namespace among those that were offered, largest first.
#[derive(Debug)]
pub(crate) struct LargestCopies {
    namespace: Namespace,
    count: usize,
    found: Vec<LargeCopy>,
}

impl LargestCopies {
    /// At most `count` copies of `namespace`; none yet.
    pub(crate) fn new(namespace: &Namespace, count: usize) -> Self {
        Self { namespace: namespace.clone(), count, found: Vec::new() }
    }

    pub(crate) fn found(self) -> Vec<LargeCopy> {
        self.found
    }

    fn offer(&mut self, name: &PackedName, bytes: u64) {
        let is_large = self.found.len() < self.count || self.found.last().is_some_and(|least| least.bytes < bytes);
        if !is_large || name.parts()[0] != self.namespace.as_str() {
            return;
        }
        let Some(object) = name.object() else { return };
        // A copy that got another slot meanwhile is offered twice.
        if self.found.iter().any(|one| one.object == object) {
            return;
        }
        let at = self.found.partition_point(|one| one.bytes >= bytes);
        self.found.insert(at, LargeCopy { object, bytes });
        self.found.truncate(self.count);
    }
}

impl<V> Shelf<V> {
    /// Offers the copies of `slots` slots, from slot `from` on, to `largest`. Returns the slot behind these; none if there
    /// are no more.
    pub(crate) fn offer_to(&self, largest: &mut LargestCopies, from: u32, slots: u32) -> Option<u32> {
        let to = from.saturating_add(slots);
        for placed in self.slots.between(from, to) {
            largest.offer(&placed.name, placed.cost.bytes);
        }
        (to < self.slots.places()).then_some(to)
    }
}
