//! Which nodes live, as far as one that watches can tell. Pure: what was heard, and when, goes in.

use std::collections::BTreeMap;
use std::time::Duration;

use nigh_terms::{Monotonic, NodeId};

use crate::PresentMember;

/// What was heard of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Heard {
    member: PresentMember,
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
    /// The entry of `member` came to be at `revision`, or is as it was. One that is older than what is known is passed over.
    pub(super) fn heard(&mut self, member: PresentMember, revision: u64, at: Monotonic) {
        if self.heard.get(&member.node).is_none_or(|known| known.revision < revision) {
            self.heard.insert(member.node.clone(), Heard { member, revision, at });
        }
    }

    /// The node has left.
    pub(super) fn left(&mut self, node: &NodeId, revision: u64) {
        if self.heard.get(node).is_some_and(|known| known.revision < revision) {
            self.heard.remove(node);
        }
    }

    /// Forgets whom nothing was heard of for `ttl`, and gives who lives.
    pub(super) fn alive(&mut self, now: Monotonic, ttl: Duration) -> Vec<PresentMember> {
        self.heard.retain(|_, heard| now.since(heard.at) <= ttl);
        self.all()
    }

    /// All that are known, whenever they were heard of.
    pub(super) fn all(&self) -> Vec<PresentMember> {
        self.heard.values().map(|heard| heard.member.clone()).collect()
    }

    /// Whether nothing was heard of `node` for `ttl`.
    pub(super) fn is_late(&self, node: &NodeId, now: Monotonic, ttl: Duration) -> bool {
        self.heard.get(node).is_none_or(|heard| now.since(heard.at) > ttl)
    }

    /// Nobody could be heard of until now: everybody's time begins anew.
    pub(super) fn all_heard(&mut self, now: Monotonic) {
        self.heard.values_mut().for_each(|heard| heard.at = now);
    }
}

#[cfg(test)]
mod tests {
    use nigh_terms::{Incarnation, NodeNumber};

    use super::*;
    use crate::Presence;

    const TTL: Duration = Duration::from_secs(3);

    fn at(seconds: u64) -> Monotonic {
        Monotonic(seconds * 1_000_000_000)
    }

    fn node(name: &str) -> NodeId {
        NodeId(name.to_owned())
    }

    fn member(name: &str, life: u64) -> PresentMember {
        let presence = Presence::new(NodeNumber(1), "127.0.0.1:1", []);
        PresentMember { node: node(name), incarnation: Incarnation(life), presence }
    }

    #[test]
    fn a_node_lives_until_nothing_was_heard_of_it_for_the_whole_time_or_it_left() {
        let mut roster = Roster::default();
        roster.heard(member("a", 4), 4, at(0));
        roster.heard(member("b", 5), 5, at(0));
        roster.heard(member("a", 4), 6, at(2));
        assert_eq!(roster.alive(at(3), TTL), [member("a", 4), member("b", 5)]);
        assert_eq!(roster.alive(at(4), TTL), [member("a", 4)]);
        roster.left(&node("a"), 6);
        assert_eq!(roster.alive(at(4), TTL).len(), 1, "its entry is as new as what is told");
        roster.left(&node("a"), 7);
        assert_eq!(roster.alive(at(4), TTL), []);
    }

    #[test]
    fn who_hears_of_nobody_gives_nobody_up_and_counts_anew_when_it_hears_again() {
        let mut roster = Roster::default();
        roster.heard(member("own", 4), 4, at(0));
        roster.heard(member("other", 5), 5, at(0));
        assert!(!roster.is_late(&node("own"), at(3), TTL) && roster.is_late(&node("own"), at(4), TTL));
        assert_eq!(roster.all().len(), 2);
        roster.heard(member("own", 4), 7, at(60));
        roster.all_heard(at(60));
        assert_eq!(roster.alive(at(63), TTL).len(), 2);
        assert_eq!(roster.alive(at(64), TTL), []);
    }

    #[test]
    fn what_was_known_does_not_count_again_and_a_new_life_replaces_the_old() {
        let mut roster = Roster::default();
        roster.heard(member("a", 9), 9, at(0));
        roster.heard(member("a", 4), 4, at(2));
        roster.heard(member("a", 9), 9, at(2));
        assert_eq!(roster.alive(at(3), TTL), [member("a", 9)]);
        assert_eq!(roster.alive(at(4), TTL), [], "the watch began anew and told what was heard before");
        roster.heard(member("a", 12), 12, at(5));
        assert_eq!(roster.alive(at(5), TTL), [member("a", 12)]);
    }
}
