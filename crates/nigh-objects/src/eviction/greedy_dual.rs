//! Greedy-dual with size, frequency and fetch cost (Cherkasova 1998): a copy is worth `uses * cost / bytes`.
//!
//! A copy's priority is its worth plus the age of the cache at its last use. The copy of the lowest priority is
//! evicted, and its priority is the new age. Worths are rounded to half powers of two. Copies of one rounded worth are
//! evicted in the order of their use, so each class is a list, and the victim is the best of the lists' oldest:
//! constant time, no heap.

use super::slots::{List, Nodes, Slot};
use super::{EvictionPolicy, Facts};

/// The number of classes of rounded worths.
const CLASSES: usize = 96;
/// The worth of the lowest class is two to the power of minus half of this, in microseconds per byte.
const LOWEST: f64 = 60.0;

/// Copies in classes of worth.
#[derive(Debug)]
pub struct GreedyDual {
    classes: Vec<List>,
    age: f64,
}

impl Default for GreedyDual {
    fn default() -> Self {
        Self { classes: vec![List::default(); CLASSES], age: 0.0 }
    }
}

/// The class of a worth, in microseconds per byte.
fn class_of(worth: f64) -> usize {
    // The cast saturates, and turns NaN into 0.
    ((worth.log2() * 2.0 + LOWEST).round() as usize).min(CLASSES - 1)
}

fn worth_of(class: usize) -> f64 {
    ((class as f64 - LOWEST) / 2.0).exp2()
}

impl GreedyDual {
    fn place(&mut self, nodes: &mut Nodes, slot: Slot) {
        let age = self.age;
        let node = nodes.at(slot);
        node.stamp = age;
        // `mark` is the class of one use. More uses raise the class by the logarithm of their number.
        let above = (f64::from(node.uses).log2() * 2.0).round() as usize;
        let class = (usize::from(node.mark) + above).min(CLASSES - 1);
        node.list = class as u8;
        self.classes[class].add(nodes, slot);
    }
}

impl EvictionPolicy for GreedyDual {
    fn insert(&mut self, nodes: &mut Nodes, slot: Slot, facts: &Facts) {
        let node = nodes.at(slot);
        node.uses = 1;
        node.mark = class_of(facts.fetch_us / facts.bytes.max(1) as f64) as u16;
        self.place(nodes, slot);
    }

    fn touch(&mut self, nodes: &mut Nodes, slot: Slot) {
        self.remove(nodes, slot);
        let node = nodes.at(slot);
        node.uses = node.uses.saturating_add(1);
        self.place(nodes, slot);
    }

    fn remove(&mut self, nodes: &mut Nodes, slot: Slot) {
        let class = usize::from(nodes.get(slot).list);
        self.classes[class].take(nodes, slot);
    }

    fn victim(&mut self, nodes: &mut Nodes) -> Option<Slot> {
        let oldest = self.classes.iter().enumerate().filter_map(|(class, list)| Some((class, list.oldest()?)));
        let priorities = oldest.map(|(class, slot)| (nodes.get(slot).stamp + worth_of(class), slot));
        let (priority, slot) = priorities.min_by(|one, other| one.0.total_cmp(&other.0))?;
        self.age = self.age.max(priority);
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounded_worths_are_within_a_fifth_of_what_they_round() {
        for worth in [1e-6, 0.003, 0.7, 1.0, 40.0, 9000.0] {
            let rounded = worth_of(class_of(worth));
            assert!((0.8..1.25).contains(&(rounded / worth)), "{worth} {rounded}");
        }
        assert_eq!(class_of(0.0), 0);
        assert_eq!(class_of(f64::INFINITY), CLASSES - 1);
    }
}
