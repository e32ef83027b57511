//! The periodic rule of OFC (section 6.3), corrected, as a baseline: every five minutes it evicts copies that were read
//! fewer than five times since the last sweep, or not for half an hour.
//!
//! The rule as printed evicts everything at every sweep: it compares a time stamp as if it were an idle time, and never
//! resets its count. Here the idle time is now minus the last access, reads are those of one period, and a copy has one
//! full period before it is judged. `OfcCondition::Both` asks for few reads *and* an idle half hour. Between sweeps,
//! when room is short, the least recently used copy goes, as in the paper's section 6.4.

use super::slots::{List, Nodes, Slot};
use super::{EvictionPolicy, Facts};

/// The seconds from one sweep to the next.
const PERIOD_S: f64 = 300.0;
/// The reads in a period that let a copy stay.
const READS_MIN: u8 = 5;
/// The seconds without an access after which a copy goes.
const IDLE_MAX_S: f64 = 30.0 * 60.0;

/// Which of the two conditions evict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfcCondition {
    /// One of them suffices, as in the paper.
    Either,
    /// Both must hold.
    Both,
}

/// Copies in the order of their last use, with the sweep.
#[derive(Debug)]
pub struct PeriodicSweep {
    judged: OfcCondition,
    used: List,
    now_s: f64,
    next_s: f64,
}

impl PeriodicSweep {
    /// No copies, at time 0.
    #[must_use]
    pub fn new(judged: OfcCondition) -> Self {
        Self { judged, used: List::default(), now_s: 0.0, next_s: PERIOD_S }
    }
}

impl EvictionPolicy for PeriodicSweep {
    fn insert(&mut self, nodes: &mut Nodes, slot: Slot, _facts: &Facts) {
        nodes.at(slot).stamp = self.now_s;
        self.used.add(nodes, slot);
    }

    fn touch(&mut self, nodes: &mut Nodes, slot: Slot) {
        let node = nodes.at(slot);
        node.uses = node.uses.saturating_add(1);
        node.stamp = self.now_s;
        self.used.renew(nodes, slot);
    }

    fn remove(&mut self, nodes: &mut Nodes, slot: Slot) {
        self.used.take(nodes, slot);
    }

    fn victim(&mut self, _nodes: &mut Nodes) -> Option<Slot> {
        self.used.oldest()
    }

    fn advance(&mut self, nodes: &mut Nodes, now_s: f64) -> Vec<Slot> {
        self.now_s = now_s;
        if now_s < self.next_s {
            return Vec::new();
        }
        self.next_s = now_s + PERIOD_S;
        let (mut going, mut next) = (Vec::new(), self.used.oldest());
        while let Some(slot) = next {
            next = self.used.newer(nodes, slot);
            let node = nodes.at(slot);
            let (few, idle) = (node.uses < READS_MIN, now_s - node.stamp > IDLE_MAX_S);
            // The mark says that an earlier sweep has seen the copy. A newer copy has its full period first.
            let judged = std::mem::replace(&mut node.mark, 1) == 1;
            node.uses = 0;
            let goes = match self.judged {
                OfcCondition::Either => few || idle,
                OfcCondition::Both => few && idle,
            };
            if judged && goes {
                going.push(slot);
            }
        }
        going
    }
}
