//! S3-FIFO (Yang et al., SOSP 2023): a small queue that most copies leave unread, a main queue, and the names of copies
//! that left the small queue lately.
//!
//! New copies enter the small queue; copies whose name is remembered enter the main queue. A copy that was read more
//! than once in the small queue moves on to the main queue; one that was read in the main queue goes round again.

use super::slots::{Ghosts, List, Nodes, Slot};
use super::{EvictionPolicy, Facts};

/// The small queue's share of the bytes: one part in this many.
const SMALL_SHARE: u64 = 10;
/// Reads beyond this number are not counted.
const USES_MAX: u8 = 3;
/// The reads in the small queue that move a copy to the main queue.
const USES_TO_STAY: u8 = 2;
/// The least number of remembered names.
const GHOSTS_MIN: usize = 1024;
/// The most remembered names, at some 20 bytes each.
const GHOSTS_MAX: usize = 65_536;

const SMALL: u8 = 0;
const MAIN: u8 = 1;

/// The two queues.
#[derive(Debug, Default)]
pub struct S3Fifo {
    small: List,
    main: List,
    mains: usize,
    ghosts: Ghosts,
}

impl S3Fifo {
    fn queue(&mut self, list: u8) -> &mut List {
        if list == SMALL { &mut self.small } else { &mut self.main }
    }

    fn put(&mut self, nodes: &mut Nodes, slot: Slot, list: u8) {
        self.mains += usize::from(list == MAIN);
        nodes.at(slot).list = list;
        self.queue(list).add(nodes, slot);
    }
}

impl EvictionPolicy for S3Fifo {
    fn insert(&mut self, nodes: &mut Nodes, slot: Slot, facts: &Facts) {
        // 32 bits of the hash distinguish names well enough, and a float holds them exactly.
        let name = facts.name as u32;
        nodes.at(slot).stamp = f64::from(name);
        let list = if self.ghosts.has(name) { MAIN } else { SMALL };
        self.put(nodes, slot, list);
    }

    fn touch(&mut self, nodes: &mut Nodes, slot: Slot) {
        let node = nodes.at(slot);
        node.uses = (node.uses + 1).min(USES_MAX);
    }

    fn remove(&mut self, nodes: &mut Nodes, slot: Slot) {
        let list = nodes.get(slot).list;
        self.mains -= usize::from(list == MAIN);
        self.queue(list).take(nodes, slot);
    }

    fn is_hot(&self, nodes: &Nodes, slot: Slot) -> bool {
        nodes.get(slot).list == MAIN
    }

    fn victim(&mut self, nodes: &mut Nodes) -> Option<Slot> {
        // Each turn returns, moves a copy out of the small queue, or takes one use off a copy, so the loop ends.
        loop {
            let all = self.small.bytes() + self.main.bytes();
            let small = self.small.oldest().filter(|_| self.small.bytes() * SMALL_SHARE > all);
            let slot = small.or_else(|| self.main.oldest()).or_else(|| self.small.oldest())?;
            let uses = nodes.get(slot).uses;
            if nodes.get(slot).list == SMALL {
                if uses < USES_TO_STAY {
                    self.ghosts.add(nodes.get(slot).stamp as u32, self.mains.clamp(GHOSTS_MIN, GHOSTS_MAX));
                    return Some(slot);
                }
                nodes.at(slot).uses = 0;
            } else {
                if uses == 0 {
                    return Some(slot);
                }
                nodes.at(slot).uses = uses - 1;
            }
            self.remove(nodes, slot);
            self.put(nodes, slot, MAIN);
        }
    }
}
