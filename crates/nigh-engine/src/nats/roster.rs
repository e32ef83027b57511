//! Which nodes live, as far as one that watches can tell. Pure: what was heard, and when, goes in.

use std::collections::BTreeMap;
use std::time::Duration;

use nigh_terms::{Incarnation, Monotonic, NodeId};

/// What was heard of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Heard {
    incarnation: Incarnation,
    /// The revision of its entry.
    revision: u64,
    at: Monotonic,
}

/// The nodes heard of.
#[derive(Clone, Debug, Default)]
pub(super) struct Roster {
    heard: BTreeMap<NodeId, Heard>,
}

impl Roster {
    /// The entry of `node` came to be at `revision`, or is as it was. One that is older than what is known is passed over.
    pub(super) fn heard(&mut self, node: NodeId, incarnation: Incarnation, revision: u64, at: Monotonic) {
        if self.heard.get(&node).is_none_or(|known| known.revision < revision) {
            self.heard.insert(node, Heard { incarnation, revision, at });
        }
    }

    /// The node has left.
    pub(super) fn left(&mut self, node: &NodeId, revision: u64) {
        if self.heard.get(node).is_some_and(|known| known.revision < revision) {
            self.heard.remove(node);
        }
    }

    /// Forgets whom nothing was heard of for `ttl`, and gives who lives.
    pub(super) fn alive(&mut self, now: Monotonic, ttl: Duration) -> Vec<(NodeId, Incarnation)> {
        self.heard.retain(|_, heard| now.since(heard.at) <= ttl);
        self.heard.iter().map(|(node, heard)| (node.clone(), heard.incarnation)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(3);

    fn at(seconds: u64) -> Monotonic {
        Monotonic(seconds * 1_000_000_000)
    }

    fn node(name: &str) -> NodeId {
        NodeId(name.to_owned())
    }

    #[test]
    fn a_node_lives_until_nothing_was_heard_of_it_for_the_whole_time_or_it_left() {
        let mut roster = Roster::default();
        roster.heard(node("a"), Incarnation(4), 4, at(0));
        roster.heard(node("b"), Incarnation(5), 5, at(0));
        roster.heard(node("a"), Incarnation(4), 6, at(2));
        assert_eq!(roster.alive(at(3), TTL), [(node("a"), Incarnation(4)), (node("b"), Incarnation(5))]);
        assert_eq!(roster.alive(at(4), TTL), [(node("a"), Incarnation(4))]);
        roster.left(&node("a"), 6);
        assert_eq!(roster.alive(at(4), TTL).len(), 1, "its entry is as new as what is told");
        roster.left(&node("a"), 7);
        assert_eq!(roster.alive(at(4), TTL), []);
    }

    #[test]
    fn what_was_known_does_not_count_again_and_a_new_life_replaces_the_old() {
        let mut roster = Roster::default();
        roster.heard(node("a"), Incarnation(9), 9, at(0));
        roster.heard(node("a"), Incarnation(4), 4, at(2));
        roster.heard(node("a"), Incarnation(9), 9, at(2));
        assert_eq!(roster.alive(at(3), TTL), [(node("a"), Incarnation(9))]);
        assert_eq!(roster.alive(at(4), TTL), [], "the watch began anew and told what was heard before");
        roster.heard(node("a"), Incarnation(12), 12, at(5));
        assert_eq!(roster.alive(at(5), TTL), [(node("a"), Incarnation(12))]);
    }
}
