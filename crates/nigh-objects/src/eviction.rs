//! Which copy goes when room is short: the order of copies, and the policies that make it.
//!
//! It decides the next victim and nothing else: no clock, no bytes, no locks. `cache` says how much must go and evicts
//! the victims; `nigh experiment eviction` replays a trace through the same code, and the default (`DefaultPolicy`) is
//! what won there. Two kinds of copies are outside the policy's order. Copies that are unlikely to be read again
//! (written here and never read since) go first. Ephemeral copies go last, because their objects have no other bytes.
//! Objects that only functions without a benefit from caching read are not cached at all (`memory`).
//!
//! OFC (section 6.4) evicts all outputs before any input. In a full cache an output that the next function is about to
//! read would then be lost, so a share of the bytes is left to such copies (`UnreadCopyRule`).

mod greedy_dual;
mod lru;
mod ofc;
mod s3_fifo;
mod slots;

pub use self::greedy_dual::GreedyDual;
pub use self::lru::Lru;
pub use self::ofc::{OfcCondition, PeriodicSweep};
pub use self::s3_fifo::S3Fifo;
use self::slots::List;
pub use self::slots::{Nodes, Slot, Slots};

/// The policy that the cache uses.
pub type DefaultPolicy = S3Fifo;

/// The lists beside the policy's own lists, which are numbered from 0.
const DOUBTFUL: u8 = 254;
const EPHEMERAL: u8 = 255;

/// How a copy came to be here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Read from the store or the journal.
    Read,
    /// Written here; the store or the journal has the bytes too.
    Written,
    /// Written here; the bytes are nowhere else.
    Ephemeral,
}

/// What is known of a copy when it is inserted.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// The memory that the copy takes.
    pub bytes: u64,
    /// The time to fetch the copy again, in microseconds.
    pub fetch_us: f64,
    /// A hash of the object's name, the same whenever the object is inserted.
    pub name: u64,
    /// How the copy came here.
    pub origin: Origin,
}

/// An order of copies. Each call takes constant time (amortised where it looks at several copies), except `advance`. A
/// slot is inserted before it is touched or removed, and removed once.
pub trait EvictionPolicy {
    /// A copy is inserted.
    fn insert(&mut self, nodes: &mut Nodes, slot: Slot, facts: &Facts);
    /// The copy was read.
    fn touch(&mut self, nodes: &mut Nodes, slot: Slot);
    /// The copy is removed.
    fn remove(&mut self, nodes: &mut Nodes, slot: Slot);
    /// The next copy to evict; the caller removes it.
    fn victim(&mut self, nodes: &mut Nodes) -> Option<Slot>;
    /// True if the copy was read more than once, so that it would be missed.
    fn is_hot(&self, _nodes: &Nodes, _slot: Slot) -> bool {
        true
    }
    /// The copies that must go at `now_s`, in seconds since a fixed time, for their age alone. The caller removes them.
    fn advance(&mut self, _nodes: &mut Nodes, _now_s: f64) -> Vec<Slot> {
        Vec::new()
    }
}

/// How copies that are unlikely to be read again are evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreadCopyRule {
    /// In the policy's order, like every other copy.
    AsOthers,
    /// First, except for this share of all bytes, in percent.
    FirstBeyond(u8),
}

/// The rule with the default policy. The share is that of S3-FIFO's small queue, which has the same purpose.
pub const DEFAULT_DOUBTFUL: UnreadCopyRule = UnreadCopyRule::FirstBeyond(10);

/// Packs a copy's fetch cost and the half of its name hash that policies use into the node's stamp.
fn noted(facts: &Facts) -> f64 {
    f64::from_bits(u64::from((facts.fetch_us as f32).to_bits()) << 32 | u64::from(facts.name as u32))
}

/// Unpacks what `noted` has packed, for a copy that was read after all.
fn recalled(note: f64, bytes: u64) -> Facts {
    let bits = note.to_bits();
    let (fetch_us, name) = (f64::from(f32::from_bits((bits >> 32) as u32)), u64::from(bits as u32));
    Facts { bytes, fetch_us, name, origin: Origin::Read }
}

/// Copies in the order of their eviction.
#[derive(Debug)]
pub struct Order<P> {
    nodes: Nodes,
    policy: P,
    rule: UnreadCopyRule,
    doubtful: List,
    ephemeral: List,
    bytes: u64,
}

impl<P: EvictionPolicy> Order<P> {
    /// An order without copies.
    pub fn new(policy: P, rule: UnreadCopyRule) -> Self {
        let (nodes, doubtful, ephemeral) = (Nodes::default(), List::default(), List::default());
        Self { nodes, policy, rule, doubtful, ephemeral, bytes: 0 }
    }

    /// Inserts a copy.
    pub fn insert(&mut self, slot: Slot, facts: &Facts) {
        let nodes = &mut self.nodes;
        nodes.begin(slot, facts.bytes);
        self.bytes += nodes.get(slot).bytes();
        let doubtful = facts.origin == Origin::Written;
        if facts.origin == Origin::Ephemeral {
            nodes.at(slot).list = EPHEMERAL;
            self.ephemeral.add(nodes, slot);
        } else if doubtful && self.rule != UnreadCopyRule::AsOthers {
            let node = nodes.at(slot);
            node.list = DOUBTFUL;
            // The policy gets these facts if the copy is read after all.
            node.stamp = noted(facts);
            self.doubtful.add(nodes, slot);
        } else {
            self.policy.insert(nodes, slot, facts);
        }
    }

    /// Counts a read of the copy.
    pub fn touch(&mut self, slot: Slot) {
        let nodes = &mut self.nodes;
        let node = *nodes.get(slot);
        match node.list {
            EPHEMERAL => self.ephemeral.renew(nodes, slot),
            DOUBTFUL => {
                self.doubtful.take(nodes, slot);
                nodes.begin(slot, node.bytes());
                let facts = recalled(node.stamp, node.bytes());
                self.policy.insert(nodes, slot, &facts);
            }
            _ => self.policy.touch(nodes, slot),
        }
    }

    /// Removes the copy.
    pub fn remove(&mut self, slot: Slot) {
        let nodes = &mut self.nodes;
        self.bytes -= nodes.get(slot).bytes();
        match nodes.get(slot).list {
            EPHEMERAL => self.ephemeral.take(nodes, slot),
            DOUBTFUL => self.doubtful.take(nodes, slot),
            _ => self.policy.remove(nodes, slot),
        }
    }

    /// The next copy to evict, of any kind; the caller removes it.
    pub fn victim(&mut self) -> Option<Slot> {
        let spared = match self.rule {
            UnreadCopyRule::FirstBeyond(percent) => self.bytes * u64::from(percent) / 100,
            UnreadCopyRule::AsOthers => 0,
        };
        let first = self.doubtful.oldest().filter(|_| self.doubtful.bytes() > spared);
        first
            .or_else(|| self.policy.victim(&mut self.nodes))
            .or_else(|| self.doubtful.oldest())
            .or_else(|| self.ephemeral.oldest())
    }

    /// True if the copy is its object's only one.
    #[must_use]
    pub fn is_ephemeral(&self, slot: Slot) -> bool {
        self.nodes.get(slot).list == EPHEMERAL
    }

    /// True if the copy was read more than once, as far as the policy knows.
    #[must_use]
    pub fn is_hot(&self, slot: Slot) -> bool {
        !matches!(self.nodes.get(slot).list, EPHEMERAL | DOUBTFUL) && self.policy.is_hot(&self.nodes, slot)
    }

    /// The copies that must go at `now_s` for their age alone. The caller removes them.
    pub fn advance(&mut self, now_s: f64) -> Vec<Slot> {
        self.policy.advance(&mut self.nodes, now_s)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use nigh_data::fetch_us;

    use super::*;

    const FIRST: UnreadCopyRule = UnreadCopyRule::FirstBeyond(0);

    fn facts(name: u64, bytes: u64, origin: Origin) -> Facts {
        Facts { bytes, fetch_us: fetch_us(bytes), name, origin }
    }

    /// An order with its slots; the value of a copy is its name.
    struct Copies<P>(Slots<u64>, Order<P>);

    impl<P: EvictionPolicy> Copies<P> {
        fn new(policy: P, rule: UnreadCopyRule) -> Self {
            Self(Slots::default(), Order::new(policy, rule))
        }

        fn add(&mut self, facts: Facts) -> Slot {
            let slot = self.0.insert(facts.name);
            self.1.insert(slot, &facts);
            slot
        }

        fn evict(&mut self) -> Option<u64> {
            let slot = self.1.victim()?;
            self.1.remove(slot);
            self.0.remove(slot)
        }

        fn rest(&mut self) -> Vec<u64> {
            std::iter::from_fn(|| self.evict()).collect()
        }
    }

    #[test]
    fn outputs_nobody_read_go_first_then_inputs_and_ephemeral_ones_last() {
        let mut copies = Copies::new(Lru::default(), FIRST);
        copies.add(facts(1, 64, Origin::Ephemeral));
        copies.add(facts(2, 64, Origin::Read));
        copies.add(facts(3, 64, Origin::Written));
        let read = copies.add(facts(4, 64, Origin::Written));
        copies.add(facts(5, 64, Origin::Written));
        copies.1.touch(read);
        assert_eq!(copies.rest(), [3, 5, 2, 4, 1]);
    }

    #[test]
    fn outputs_within_their_share_stay_while_there_is_anything_else() {
        let mut copies = Copies::new(Lru::default(), UnreadCopyRule::FirstBeyond(50));
        for name in 0..4 {
            copies.add(facts(name, 64, Origin::Read));
        }
        copies.add(facts(4, 64, Origin::Written));
        copies.add(facts(5, 64, Origin::Written));
        assert_eq!(copies.rest(), [0, 1, 2, 4, 3, 5]);
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut copies = Copies::new(Lru::default(), FIRST);
        let slots = [1, 2, 3].map(|name| copies.add(facts(name, 64, Origin::Read)));
        copies.1.touch(slots[0]);
        assert_eq!(copies.rest(), [2, 3, 1]);
    }

    #[test]
    fn greedy_dual_gives_up_the_large_before_the_small_and_what_is_not_used_as_others_go() {
        let mut copies = Copies::new(GreedyDual::default(), FIRST);
        copies.add(facts(1, 100, Origin::Read));
        copies.add(facts(2, 10 << 20, Origin::Read));
        let used = copies.add(facts(3, 10 << 20, Origin::Read));
        (0..20).for_each(|_| copies.1.touch(used));
        assert_eq!(copies.evict(), Some(2));
        // Small new copies, each used once: in the end the age exceeds that of the copy that is no longer used.
        for name in 10..10_000 {
            copies.add(facts(name, 100_000, Origin::Read));
            if copies.evict() == Some(3) {
                return;
            }
        }
        panic!("what was used once stays for ever");
    }

    #[test]
    fn s3_fifo_keeps_what_is_read_again_over_what_passes_through_once() {
        let mut copies = Copies::new(S3Fifo::default(), FIRST);
        let read: Vec<Slot> = (0..5).map(|name| copies.add(facts(name, 64, Origin::Read))).collect();
        for slot in read.iter().chain(&read) {
            copies.1.touch(*slot);
        }
        for name in 100..200 {
            copies.add(facts(name, 64, Origin::Read));
            let gone = copies.evict().unwrap();
            assert!(gone >= 100, "{gone}");
        }
        // A copy whose name has left the small queue goes to the main queue.
        let back = copies.add(facts(100, 64, Origin::Read));
        assert_eq!(copies.1.nodes.get(back).list, 1);
    }

    #[test]
    fn the_mended_rule_gives_one_full_period_of_grace_and_counts_reads_of_one_period() {
        let mut copies = Copies::new(PeriodicSweep::new(OfcCondition::Either), FIRST);
        assert!(copies.1.advance(200.0).is_empty());
        let slots = [1, 2].map(|name| copies.add(facts(name, 64, Origin::Read)));
        assert!(copies.1.advance(301.0).is_empty(), "they have been here for less than a period");
        (0..5).for_each(|_| copies.1.touch(slots[0]));
        assert_eq!(copies.1.advance(602.0), [slots[1]]);
        copies.1.remove(slots[1]);
        assert_eq!(copies.1.advance(903.0), [slots[0]], "reads of an earlier period do not count");

        let mut copies = Copies::new(PeriodicSweep::new(OfcCondition::Both), FIRST);
        let slot = copies.add(facts(1, 64, Origin::Read));
        let swept: Vec<f64> =
            (1..9).map(|n| f64::from(n) * 301.0).filter(|now| !copies.1.advance(*now).is_empty()).collect();
        assert_eq!(swept, [6.0 * 301.0, 7.0 * 301.0, 8.0 * 301.0], "idle for half an hour");
        copies.1.remove(slot);
    }

    /// Whatever the steps, each copy is a victim exactly once.
    fn none_is_lost(
        policy: impl EvictionPolicy,
        rule: UnreadCopyRule,
        steps: &[(u8, usize, u64)],
    ) -> Result<(), TestCaseError> {
        let mut copies = Copies::new(policy, rule);
        let (mut slots, mut there): (Vec<(Slot, u64)>, BTreeSet<u64>) = (Vec::new(), BTreeSet::new());
        for (name, (kind, pick, bytes)) in steps.iter().enumerate() {
            let name = name as u64;
            match kind {
                0..=3 => {
                    let origin = [Origin::Read, Origin::Read, Origin::Written, Origin::Ephemeral][usize::from(*kind)];
                    slots.push((copies.add(facts(name, *bytes, origin)), name));
                    there.insert(name);
                }
                4 | 5 if !slots.is_empty() => copies.1.touch(slots[pick % slots.len()].0),
                6 if !slots.is_empty() => {
                    let (slot, name) = slots.remove(pick % slots.len());
                    copies.1.remove(slot);
                    prop_assert_eq!(copies.0.remove(slot), Some(name));
                    there.remove(&name);
                }
                7 => {
                    if let Some(gone) = copies.evict() {
                        prop_assert!(there.remove(&gone));
                        slots.retain(|(_, name)| *name != gone);
                    }
                }
                _ => {}
            }
        }
        prop_assert_eq!(copies.rest().into_iter().collect::<BTreeSet<_>>(), there);
        prop_assert_eq!(copies.1.bytes, 0);
        Ok(())
    }

    proptest! {
        #[test]
        fn every_policy_gives_each_copy_up_exactly_once(
            steps in prop::collection::vec((0u8..8, any::<usize>(), 1u64..5_000_000), 0..150)
        ) {
            for rule in [FIRST, DEFAULT_DOUBTFUL, UnreadCopyRule::AsOthers] {
                none_is_lost(Lru::default(), rule, &steps)?;
                none_is_lost(GreedyDual::default(), rule, &steps)?;
                none_is_lost(S3Fifo::default(), rule, &steps)?;
                none_is_lost(PeriodicSweep::new(OfcCondition::Either), rule, &steps)?;
            }
        }
    }
}
