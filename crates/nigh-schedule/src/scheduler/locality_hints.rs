//! Which nodes probably cache which object, in twelve bytes a copy, in a table of fixed size.
//!
//! These are only hints: reports may be late or lost, two names may share a fingerprint, and copies that do not fit are
//! forgotten. The node that has a copy decides whether the copy may be read. The table consists of lines of eight
//! entries, each as long as a line of the processor's cache, and all entries of an object are in one line: a look-up is
//! one access to memory. If a line is full, the smallest copy is forgotten, because its place matters least.

use super::Fingerprint;
use super::NodeIndex;

/// The entries of a line; also the most known nodes of one object.
const WAYS: usize = 8;
/// The steps of the size's logarithmic scale for each doubling.
const STEPS: f64 = 4.0;

/// One copy: 32 bits of the object's fingerprint, the node and its generation, and the size by its logarithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Entry {
    tag: u32,
    node: u16,
    generation: u8,
    /// The code of the size; 0 if the entry is empty.
    size: u8,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Line([Entry; WAYS]);

/// The table of copies.
#[derive(Clone, Debug)]
pub struct LocalityHints {
    lines: Vec<Line>,
    /// The generation of each node. Entries of an earlier generation are empty.
    generations: Vec<u8>,
}

fn step_of(bytes: u64) -> u8 {
    ((bytes as f64 + 1.0).log2() * STEPS).round() as u8 + 1
}

fn bytes_of(step: u8) -> u64 {
    (f64::from(step.saturating_sub(1)) / STEPS).exp2() as u64
}

impl LocalityHints {
    /// An empty table for `copies` copies, with room for half as many again, so that few lines are full.
    #[must_use]
    pub fn new(copies: usize) -> Self {
        let lines = (copies + copies / 2).div_ceil(WAYS).max(1);
        Self { lines: vec![Line::default(); lines], generations: Vec::new() }
    }

    /// The bytes of the table.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.lines.len() * size_of::<Line>() + self.generations.len()
    }

    /// `node` has a copy of `object` of `bytes` bytes.
    pub fn installed(&mut self, object: Fingerprint, node: NodeIndex, bytes: u64) {
        let at = usize::from(node.0);
        if self.generations.len() <= at {
            self.generations.resize(at + 1, 0);
        }
        let entry = Entry { tag: tag(object), node: node.0, generation: self.generations[at], size: step_of(bytes) };
        let line = self.line(object);
        let generations = &self.generations;
        let Line(entries) = &mut self.lines[line];
        let same = |one: &Entry| (one.tag, one.node) == (entry.tag, entry.node);
        let worth = |one: &Entry| if lives(one, generations) { one.size } else { 0 };
        let place = match entries.iter().position(same) {
            Some(place) => Some(place),
            None => (0..WAYS).min_by_key(|place| worth(&entries[*place])),
        };
        if let Some(place) = place {
            entries[place] = entry;
        }
    }

    /// `node` no longer has a copy of `object`.
    pub fn dropped(&mut self, object: Fingerprint, node: NodeIndex) {
        let line = self.line(object);
        for entry in &mut self.lines[line].0 {
            if (entry.tag, entry.node) == (tag(object), node.0) {
                *entry = Entry::default();
            }
        }
    }

    /// `node` has no copies any more: it has left, or restarted.
    pub fn node_lost(&mut self, node: NodeIndex) {
        let Some(generation) = self.generations.get_mut(usize::from(node.0)) else { return };
        *generation = generation.wrapping_add(1);
        if *generation == 0 {
            // The generation wraps around, so entries of the first one would count again.
            let entries = self.lines.iter_mut().flat_map(|line| &mut line.0);
            entries.filter(|entry| entry.node == node.0).for_each(|entry| *entry = Entry::default());
        }
    }

    /// The nodes that probably cache `object`, each with the object's size within a tenth.
    pub fn holders(&self, object: Fingerprint) -> impl Iterator<Item = (NodeIndex, u64)> + '_ {
        let Line(entries) = &self.lines[self.line(object)];
        let held = move |entry: &&Entry| entry.tag == tag(object) && lives(entry, &self.generations);
        entries.iter().filter(held).map(|entry| (NodeIndex(entry.node), bytes_of(entry.size)))
    }

    fn line(&self, object: Fingerprint) -> usize {
        // The bits of the tag are not used here.
        (((object.0 >> 32) * self.lines.len() as u64) >> 32) as usize
    }
}

const fn tag(object: Fingerprint) -> u32 {
    object.0 as u32
}

fn lives(entry: &Entry, generations: &[u8]) -> bool {
    entry.size > 0 && generations.get(usize::from(entry.node)) == Some(&entry.generation)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn object(number: u64) -> Fingerprint {
        Fingerprint::of(&["tenant", "bucket", &number.to_string()])
    }

    fn holders(hints: &LocalityHints, of: u64) -> BTreeSet<u16> {
        hints.holders(object(of)).map(|(node, _)| node.0).collect()
    }

    #[test]
    fn sizes_are_told_within_a_tenth_from_nothing_to_petabytes() {
        assert_eq!(bytes_of(step_of(0)), 1);
        for bytes in [10, 1000, 123_456, 7 << 20, 9 << 40, 1 << 50] {
            let told = bytes_of(step_of(bytes)) as f64 / bytes as f64;
            assert!((0.9..=1.1).contains(&told), "{bytes}: {told}");
        }
        assert_eq!(size_of::<Line>(), 64);
    }

    #[test]
    fn a_million_copies_take_twelve_bytes_each_and_nearly_all_are_known() {
        let mut hints = LocalityHints::new(1_000_000);
        assert!(hints.bytes() < 12_100_000);
        (0..1_000_000).for_each(|number| hints.installed(object(number), NodeIndex((number % 100) as u16), 1000));
        let known = (0..1_000_000).filter(|number| holders(&hints, *number) == [(number % 100) as u16].into()).count();
        assert!(known > 955_000, "{known}");
    }

    #[test]
    fn where_there_is_no_room_the_smallest_copy_is_forgotten() {
        let mut hints = LocalityHints::new(5);
        (0..8).for_each(|number| hints.installed(object(number), NodeIndex(0), 1 << (20 - number)));
        hints.installed(object(100), NodeIndex(3), 1 << 30);
        assert!(
            holders(&hints, 7).is_empty() && holders(&hints, 6) == [0].into() && holders(&hints, 100) == [3].into()
        );
    }

    proptest! {
        /// With room for all, the table returns what it was told, except of lost nodes.
        #[test]
        fn it_knows_what_it_was_told(steps in prop::collection::vec((0u64..4, 0u16..4, 0u8..5), 0..1000)) {
            let mut hints = LocalityHints::new(1024);
            let mut model: BTreeSet<(u64, u16)> = BTreeSet::new();
            for (number, node, what) in steps {
                match what {
                    0..=2 => {
                        hints.installed(object(number), NodeIndex(node), 1 + number);
                        model.insert((number, node));
                    }
                    3 => {
                        hints.dropped(object(number), NodeIndex(node));
                        model.remove(&(number, node));
                    }
                    _ => {
                        hints.node_lost(NodeIndex(node));
                        model.retain(|(_, of)| *of != node);
                    }
                }
                for number in 0..4 {
                    let told: BTreeSet<u16> = model.iter().filter(|(of, _)| *of == number).map(|(_, node)| *node).collect();
                    prop_assert_eq!(holders(&hints, number), told);
                }
            }
        }
    }

    #[test]
    fn a_generation_that_comes_again_has_no_copies() {
        let mut hints = LocalityHints::new(64);
        hints.installed(object(1), NodeIndex(2), 10);
        (0..256).for_each(|_| hints.node_lost(NodeIndex(2)));
        assert!(holders(&hints, 1).is_empty());
    }
}
