//! Counts the segments of the node's memory that one holder (a sandbox, or a key outside sandboxes) holds, and chooses
//! which to check when it is over its cap. Pure.
//!
//! A segment counts from the moment its descriptor is handed out, or it is lent to be filled, until the kernel has
//! shown that no other process has it. A client's report of a release is only a hint when to check. Over the cap, a
//! bounded number of segments is checked at a time, each in turn.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// The most segments that are checked at a time. Each check takes two system calls.
pub(crate) const LOOKS_MAX: usize = 32;

/// Identifies a segment to its holder. Each new segment gets a larger number, and no number is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Handle(pub(crate) u64);

/// The cap: how much one holder may hold at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldMax {
    /// The most memory, in bytes.
    pub(crate) bytes: u64,
    /// The most segments. Each may take a descriptor of the holder, and one of the node to check it with.
    pub(crate) segments: usize,
}

#[derive(Debug)]
struct Entry<N> {
    /// None while the segment is being filled.
    name: Option<N>,
    bytes: u64,
}

/// The segments of one holder, identified by names of type `N`.
#[derive(Debug)]
pub(crate) struct HeldSegments<N> {
    max: HeldMax,
    bytes: u64,
    entries: BTreeMap<Handle, Entry<N>>,
    by_name: HashMap<N, Handle>,
    next: u64,
    /// The handle at which the next checks begin, so that each segment is checked in turn.
    look_from: Handle,
}

impl<N: Copy + Eq + Hash> HeldSegments<N> {
    pub(crate) fn new(max: HeldMax) -> Self {
        let (entries, by_name) = (BTreeMap::new(), HashMap::new());
        Self { max, bytes: 0, entries, by_name, next: 1, look_from: Handle(0) }
    }

    /// The size of all counted segments, in bytes.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of counted segments.
    pub(crate) fn segments(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if one more segment of `bytes` bytes fits under the cap.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.entries.len() < self.max.segments && self.bytes.saturating_add(bytes) <= self.max.bytes
    }

    /// The handle of a segment that is held already. None if it is not held.
    pub(crate) fn handle(&self, name: N) -> Option<Handle> {
        self.by_name.get(&name).copied()
    }

    /// Counts a segment as held; check `has_room` before. A segment that is being filled has no name yet.
    pub(crate) fn count(&mut self, name: Option<N>, bytes: u64) -> Handle {
        let handle = Handle(self.next);
        self.next += 1;
        self.bytes += bytes;
        self.entries.insert(handle, Entry { name, bytes });
        if let Some(name) = name {
            self.by_name.insert(name, handle);
        }
        handle
    }

    /// Records the name of a segment that has been filled.
    pub(crate) fn named(&mut self, handle: Handle, name: N) {
        if let Some(entry) = self.entries.get_mut(&handle) {
            entry.name = Some(name);
            self.by_name.insert(name, handle);
        }
    }

    /// Stops counting a segment that no other process has any more. Returns the segment's size in bytes, or 0 if it was
    /// not counted.
    pub(crate) fn freed(&mut self, handle: Handle) -> u64 {
        let Some(entry) = self.entries.remove(&handle) else { return 0 };
        self.bytes -= entry.bytes;
        if let Some(name) = entry.name
            && self.by_name.get(&name) == Some(&handle)
        {
            self.by_name.remove(&name);
        }
        entry.bytes
    }

    /// Returns the segments to check next, `LOOKS_MAX` at most.
    pub(crate) fn looks(&mut self) -> Vec<Handle> {
        let behind = self.entries.range(self.look_from..).map(|(&handle, _)| handle);
        let before = self.entries.range(..self.look_from).map(|(&handle, _)| handle);
        let looks: Vec<_> = behind.chain(before).take(LOOKS_MAX).collect();
        if let Some(last) = looks.last() {
            self.look_from = Handle(last.0 + 1);
        }
        looks
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn max(bytes: u64, segments: usize) -> HeldMax {
        HeldMax { bytes, segments }
    }

    #[test]
    fn bytes_and_segments_are_both_capped() {
        let mut held: HeldSegments<u8> = HeldSegments::new(max(100, 2));
        assert!(held.has_room(100) && !held.has_room(101) && !held.has_room(u64::MAX));
        held.count(Some(1), 60);
        assert!(held.has_room(40) && !held.has_room(41));
        let second = held.count(Some(2), 1);
        assert!(!held.has_room(0), "two segments");
        held.freed(second);
        assert!(held.has_room(40));
    }

    #[test]
    fn a_segment_counts_once_however_often_it_is_asked_for() {
        let mut held: HeldSegments<u8> = HeldSegments::new(max(100, 9));
        let handle = held.count(Some(1), 60);
        assert_eq!(held.handle(1), Some(handle));
        assert_eq!((held.freed(handle), held.freed(handle)), (60, 0));
        assert_eq!((held.handle(1), held.bytes(), held.segments()), (None, 0, 0));
        assert_ne!(held.count(Some(1), 60), handle, "a handle is used once");
    }

    #[test]
    fn what_was_filled_is_found_by_its_name_and_counts_as_before() {
        let mut held: HeldSegments<u8> = HeldSegments::new(max(100, 9));
        let handle = held.count(None, 60);
        held.named(handle, 7);
        assert_eq!((held.handle(7), held.bytes()), (Some(handle), 60));
        held.named(Handle(99), 8);
        assert_eq!(held.handle(8), None);
    }

    #[test]
    fn all_have_their_turn_to_be_looked_at() {
        let mut held: HeldSegments<usize> = HeldSegments::new(max(1 << 30, 1000));
        let handles: Vec<_> = (0..LOOKS_MAX * 2 + 5).map(|n| held.count(Some(n), 1)).collect();
        let mut looked = Vec::new();
        for _ in 0..3 {
            let looks = held.looks();
            assert_eq!(looks.len(), LOOKS_MAX);
            looked.extend(looks);
        }
        assert_eq!(looked[..handles.len()], handles);
        assert_eq!(looked[handles.len()], handles[0]);
    }

    proptest! {
        #[test]
        fn the_sum_is_that_of_the_entries(steps in prop::collection::vec((0u8..4, 0u64..50), 0..100)) {
            let mut held: HeldSegments<u64> = HeldSegments::new(max(200, 8));
            for (step, value) in steps {
                match step {
                    0 | 1 if held.handle(value).is_none() && held.has_room(value) => {
                        held.count((step == 0).then_some(value), value);
                    }
                    2 => _ = held.freed(Handle(value)),
                    _ => drop(held.looks()),
                }
                let sum: u64 = held.entries.values().map(|entry| entry.bytes).sum();
                prop_assert_eq!(sum, held.bytes());
                prop_assert!(held.bytes() <= 200 && held.segments() <= 8);
                prop_assert!(held.by_name.values().all(|handle| held.entries.contains_key(handle)));
            }
        }
    }
}
