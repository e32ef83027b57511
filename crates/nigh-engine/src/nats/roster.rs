//! Decides which members have expired, from the times of their renewals and from refused connections. Pure.
//!
//! A member expires only if others renewed their entries well after it: when the servers are away, all members fall silent
//! and none has expired. One whose machine refuses connections expires as soon as it has missed a renewal.

use std::collections::BTreeMap;
use std::time::Duration;

use nigh_terms::{Monotonic, NodeId};

use crate::PresentMember;

/// A member that has been silent for longer than this has missed a renewal.
pub(super) const SUSPECTED_AFTER: Duration = Duration::from_millis(1100);

/// A member that has been silent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SilentMember {
    pub(super) node: NodeId,
    /// The revision of its last renewal.
    pub(super) revision: u64,
    pub(super) address: String,
}

/// The last renewal of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RosterEntry {
    member: PresentMember,
    /// The revision of the node's entry.
    revision: u64,
    at: Monotonic,
    /// True if its time was extended because all members were silent.
    is_spared: bool,
    /// True if its machine has refused connections since.
    refuses: bool,
}

/// The known nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct Roster {
    heard: BTreeMap<NodeId, RosterEntry>,
    /// The time of the last renewal of any node at the last check.
    news: Monotonic,
    /// The nodes that have expired since `take_expired`, and how long each had been silent.
    expired: Vec<(NodeId, Duration)>,
}

impl Roster {
    /// Records that the entry of `member` is at `revision`. Ignores a revision older than the known one.
    pub(super) fn heard(&mut self, member: PresentMember, revision: u64, at: Monotonic) {
        if self.heard.get(&member.node).is_none_or(|known| known.revision < revision) {
            self.heard
                .insert(member.node.clone(), RosterEntry { member, revision, at, is_spared: false, refuses: false });
        }
    }

    /// Removes a node that has left.
    pub(super) fn left(&mut self, node: &NodeId, revision: u64) {
        if self.heard.get(node).is_some_and(|known| known.revision < revision) {
            self.heard.remove(node);
        }
    }

    /// Removes nodes without a renewal for `ttl`, if others renewed at least half of `ttl` later. Returns the members.
    pub(super) fn alive(&mut self, now: Monotonic, ttl: Duration) -> Vec<PresentMember> {
        let (news, half) = (self.heard.values().map(|heard| heard.at).max().unwrap_or_default(), ttl / 2);
        if news.since(self.news) > half {
            // All members were silent, so those that are late get half of their time more, too. Only once, because slow
            // servers are silent again and again.
            let least = Monotonic(news.0.saturating_sub(half.as_nanos() as u64));
            for heard in self.heard.values_mut().filter(|heard| heard.at < least && !heard.is_spared) {
                (heard.at, heard.is_spared) = (least, true);
            }
        }
        self.news = news;
        let expired = &mut self.expired;
        self.heard.retain(|node, heard| {
            let is_late = now.since(heard.at) > ttl && news.since(heard.at) >= half;
            // The others have renewed so long after it that it has missed a renewal.
            let is_gone = heard.refuses && news.since(heard.at) > SUSPECTED_AFTER;
            let lives = !is_late && !is_gone;
            if !lives {
                expired.push((node.clone(), now.since(heard.at)));
            }
            lives
        });
        self.all()
    }

    /// The nodes that have expired since the last call, and how long each had been silent.
    pub(super) fn take_expired(&mut self) -> Vec<(NodeId, Duration)> {
        std::mem::take(&mut self.expired)
    }

    /// How long it is until the next node is silent for longer than `span`; none if no node is going to be.
    pub(super) fn next_silence(&self, now: Monotonic, span: Duration) -> Option<Duration> {
        let silences = self.heard.values().map(|heard| now.since(heard.at)).filter(|silence| *silence <= span);
        silences.max().map(|longest| span - longest)
    }

    /// The nodes other than `own` that may be dead: silent for so long that they have missed a renewal.
    pub(super) fn suspects(&self, now: Monotonic, own: &NodeId) -> Vec<SilentMember> {
        let is_suspect =
            |heard: &&RosterEntry| heard.member.node != *own && !heard.refuses && now.since(heard.at) > SUSPECTED_AFTER;
        let silent = |RosterEntry { member, revision, .. }: &RosterEntry| SilentMember {
            node: member.node.clone(),
            revision: *revision,
            address: member.presence.address.clone(),
        };
        self.heard.values().filter(is_suspect).map(silent).collect()
    }

    /// Records that the machine of a silent node refuses connections; ignores it if the node has renewed since it was asked.
    pub(super) fn refused(&mut self, silent: &SilentMember) {
        if let Some(known) = self.heard.get_mut(&silent.node).filter(|known| known.revision == silent.revision) {
            known.refuses = true;
        }
    }

    /// All known nodes, whenever they renewed.
    pub(super) fn all(&self) -> Vec<PresentMember> {
        self.heard.values().map(|heard| heard.member.clone()).collect()
    }

    /// True if `node` has not renewed for `ttl`.
    pub(super) fn is_late(&self, node: &NodeId, now: Monotonic, ttl: Duration) -> bool {
        self.heard.get(node).is_none_or(|heard| now.since(heard.at) > ttl)
    }

    /// Restarts the time of all nodes, because no renewal could be received until now.
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
        for (revision, heard) in [(8, 61), (9, 62), (10, 63)] {
            roster.heard(member("own", 4), revision, at(heard));
            assert_eq!(roster.alive(at(heard), TTL).len(), 2);
        }
        assert_eq!(roster.alive(at(64), TTL), [member("own", 4)]);
    }

    #[test]
    fn while_all_fall_silent_one_after_another_nobody_is_given_up() {
        let mut roster = Roster::default();
        let tenths = |tenths: u64| Monotonic(tenths * 100_000_000);
        roster.heard(member("other", 5), 5, tenths(1));
        roster.heard(member("own", 4), 6, tenths(10));
        for now in 10..41 {
            assert_eq!(roster.alive(tenths(now), TTL).len(), 2, "the servers went away after both, at {now}");
        }
        // The servers are back, and one member is heard first.
        roster.heard(member("own", 4), 7, tenths(41));
        for now in 41..56 {
            assert_eq!(roster.alive(tenths(now), TTL).len(), 2, "the other has time to be heard of, at {now}");
        }
        roster.heard(member("own", 4), 8, tenths(51));
        assert_eq!(roster.alive(tenths(57), TTL), [member("own", 4)], "and no more than that");
    }

    #[test]
    fn who_dies_is_given_up_in_time_though_the_servers_are_slow() {
        let mut roster = Roster::default();
        roster.heard(member("dead", 5), 5, at(0));
        // Each renewal takes two seconds: longer than half of the time.
        for (revision, heard) in [(6, 2), (7, 4)] {
            roster.heard(member("own", 4), revision, at(heard));
            roster.alive(at(heard), TTL);
        }
        assert_eq!(roster.alive(at(5), TTL), [member("own", 4)]);
    }

    #[test]
    fn who_refuses_connections_expires_when_it_has_missed_a_renewal_that_others_made() {
        let mut roster = Roster::default();
        let tenths = |tenths: u64| Monotonic(tenths * 100_000_000);
        roster.heard(member("dead", 5), 5, tenths(0));
        roster.heard(member("own", 4), 6, tenths(5));
        assert_eq!(roster.suspects(tenths(11), &node("own")), []);
        let suspects = roster.suspects(tenths(12), &node("own"));
        assert_eq!(suspects.iter().map(|one| (&one.node, one.revision)).collect::<Vec<_>>(), [(&node("dead"), 5)]);
        roster.refused(&suspects[0]);
        assert_eq!(roster.suspects(tenths(12), &node("own")), [], "it need not be asked again");
        assert_eq!(roster.alive(tenths(14), TTL).len(), 2, "the servers may be away: nobody has renewed since");
        roster.heard(member("own", 4), 7, tenths(15));
        assert_eq!(roster.alive(tenths(15), TTL), [member("own", 4)]);
        // It was not dead: it is a member again, and what was asked before its renewal counts for nothing.
        roster.heard(member("dead", 5), 8, tenths(16));
        roster.refused(&suspects[0]);
        roster.heard(member("own", 4), 9, tenths(28));
        assert_eq!(roster.alive(tenths(28), TTL).len(), 2);
    }

    #[test]
    fn the_next_look_is_when_the_longest_silent_node_expires() {
        let mut roster = Roster::default();
        assert_eq!(roster.next_silence(at(0), TTL), None);
        roster.heard(member("dead", 5), 5, at(1));
        for (revision, heard) in [(6, 2), (7, 3)] {
            roster.heard(member("own", 4), revision, at(heard));
            roster.alive(at(heard), TTL);
        }
        assert_eq!(roster.next_silence(at(3), TTL), Some(Duration::from_secs(1)));
        assert_eq!(
            roster.next_silence(at(4), TTL),
            Some(Duration::ZERO),
            "it is silent for the whole time, and no longer"
        );
        let now = Monotonic(at(4).0 + 1);
        assert_eq!(roster.alive(now, TTL), [member("own", 4)]);
        assert_eq!(roster.take_expired(), [(node("dead"), TTL + Duration::from_nanos(1))]);
        assert_eq!(roster.take_expired(), []);
        assert_eq!(roster.next_silence(now, TTL), Some(Duration::from_secs(2) - Duration::from_nanos(1)));
    }

    #[test]
    fn what_was_known_does_not_count_again_and_a_new_life_replaces_the_old() {
        let mut roster = Roster::default();
        roster.heard(member("a", 9), 9, at(0));
        for (revision, heard) in [(10, 1), (11, 2)] {
            roster.heard(member("own", 2), revision, at(heard));
            assert_eq!(roster.alive(at(heard), TTL).len(), 2);
        }
        roster.heard(member("a", 4), 4, at(2));
        roster.heard(member("a", 9), 9, at(2));
        assert_eq!(roster.alive(at(3), TTL), [member("a", 9), member("own", 2)]);
        roster.heard(member("own", 2), 12, at(3));
        assert_eq!(roster.alive(at(4), TTL), [member("own", 2)], "the watch began anew and told what was heard before");
        roster.heard(member("a", 13), 13, at(5));
        assert_eq!(roster.alive(at(5), TTL), [member("a", 13), member("own", 2)]);
    }
}
