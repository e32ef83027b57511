//! Decides this node's next steps for the homes of shards, from the members, the map of homes, and its own shards.
//! Pure.
//!
//! Each node decides for itself: it claims shards that are placed on it and have no living home, and releases its shards
//! that are placed elsewhere. Two nodes may see different members for a while, which does no harm: a claim is a
//! compare-and-set, and only the epoch that a node takes in the journal makes it a home.

use std::collections::{BTreeMap, BTreeSet};

use nigh_engine::nats::ShardHome;
use nigh_engine::{NodeRole, PresentMember, Revision};
use nigh_terms::{Incarnation, Monotonic, NodeId, ShardId};

use super::placement::place_homes;

/// The state of a shard at this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShardState {
    /// The node takes or releases the shard.
    Busy,
    /// The node is the home.
    Held,
    /// The node could not take the shard, and tries again at this time.
    Waits(Monotonic),
}

/// A step for a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Claim the shard and take it.
    Take(ShardId),
    /// Release it: it is placed on another node.
    LetGo(ShardId),
    /// Another node is its home already.
    Lost(ShardId),
}

/// The members on which homes are placed: those with the role `memory` that take work. If none of them takes work, all,
/// because a shard without a home serves nobody.
pub(super) fn may_be_homes(present: &[PresentMember]) -> BTreeSet<NodeId> {
    let named = |fills: fn(&PresentMember) -> bool| {
        let members = present.iter().filter(|member| fills(member));
        members.map(|member| member.node.clone()).collect::<BTreeSet<_>>()
    };
    let available = named(|member| member.has(NodeRole::Memory));
    if available.is_empty() { named(|member| member.could(NodeRole::Memory)) } else { available }
}

/// What a node knows.
pub(super) struct View<'a> {
    pub(super) node: &'a NodeId,
    pub(super) incarnation: Incarnation,
    /// The nodes that shards are placed on. Empty if this node sees no members, or is no member itself.
    pub(super) members: &'a BTreeSet<NodeId>,
    /// True if that incarnation of a node has ended, as far as this node knows; false for one that has just begun.
    pub(super) is_over: &'a dyn Fn(&NodeId, Incarnation) -> bool,
    /// True if this incarnation of this node is still a member.
    pub(super) is_member: bool,
    /// True if this node is cordoned: it keeps the homes that it has, though they are placed elsewhere.
    pub(super) keeps_homes: bool,
    pub(super) shards: u16,
    pub(super) map: &'a BTreeMap<ShardId, (ShardHome, Revision)>,
    pub(super) own: &'a BTreeMap<ShardId, ShardState>,
    pub(super) now: Monotonic,
}

impl View<'_> {
    /// True if the home of an entry lives.
    fn lives(&self, home: &ShardHome) -> bool {
        !home.free && !(self.is_over)(&home.node, home.incarnation)
    }

    /// The shards without a living home.
    pub(super) fn without(&self) -> Vec<ShardId> {
        let served = |home: &ShardHome| home.epoch.is_some() && self.lives(home);
        (0..self.shards)
            .map(ShardId)
            .filter(|shard| !self.map.get(shard).is_some_and(|(home, _)| served(home)))
            .collect()
    }

    /// The steps that are due.
    pub(super) fn steps(&self) -> Vec<Step> {
        let is_own =
            |shard: &ShardId| self.map.get(shard).is_some_and(|(home, _)| home.is_of(self.node, self.incarnation));
        let held = self.own.iter().filter(|(_, own)| **own == ShardState::Held).map(|(shard, _)| shard);
        let mut steps: Vec<Step> = held.filter(|shard| !is_own(shard)).map(|shard| Step::Lost(*shard)).collect();
        if !self.is_member {
            return steps;
        }
        // A restarted node gets the shards of its last incarnation.
        let homes = self.map.iter().filter(|(_, (home, _))| !home.free);
        let current = homes.map(|(shard, (home, _))| (*shard, home.node.clone())).collect();
        let wanted = place_homes(self.members, self.shards, &current);
        for shard in (0..self.shards).map(ShardId) {
            let (own, is_wanted) = (self.own.get(&shard), wanted.get(&shard) == Some(self.node));
            let step = match own {
                Some(ShardState::Busy) => None,
                Some(ShardState::Held) => {
                    (is_own(&shard) && !is_wanted && !self.keeps_homes).then_some(Step::LetGo(shard))
                }
                Some(ShardState::Waits(until)) if *until > self.now => None,
                Some(ShardState::Waits(_)) | None => {
                    let free = is_own(&shard) || self.map.get(&shard).is_none_or(|(home, _)| !self.lives(home));
                    match (is_wanted, free, is_own(&shard)) {
                        (true, true, _) => Some(Step::Take(shard)),
                        (false, _, true) => Some(Step::LetGo(shard)),
                        _ => None,
                    }
                }
            };
            steps.extend(step);
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use nigh_engine::{Availability, Presence};
    use nigh_terms::NodeNumber;
    use serde_json::json;

    use super::*;

    fn node(name: &str) -> NodeId {
        NodeId(name.to_owned())
    }

    fn home(name: &str, life: u64, free: bool) -> (ShardHome, Revision) {
        let home = json!({
            "format": 1, "node": name, "number": 1, "incarnation": life, "epoch": 9, "before": null, "free": free,
        });
        (serde_json::from_value(home).unwrap(), Revision(1))
    }

    struct KeeperCase {
        living: BTreeMap<NodeId, Incarnation>,
        map: BTreeMap<ShardId, (ShardHome, Revision)>,
        own: BTreeMap<ShardId, ShardState>,
        is_member: bool,
        keeps_homes: bool,
    }

    impl KeeperCase {
        /// A case of two shards.
        fn new(living: &[(&str, u64)], homes: [Option<(ShardHome, Revision)>; 2]) -> Self {
            let map = (0..).map(ShardId).zip(homes).filter_map(|(shard, home)| Some((shard, home?))).collect();
            let living = living.iter().map(|(name, life)| (node(name), Incarnation(*life))).collect();
            Self { living, map, own: BTreeMap::new(), is_member: true, keeps_homes: false }
        }

        fn own(mut self, own: &[(u16, ShardState)]) -> Self {
            self.own = own.iter().map(|(shard, own)| (ShardId(*shard), *own)).collect();
            self
        }

        /// The steps of node `a` in its incarnation 2.
        fn steps(&self) -> Vec<Step> {
            let Self { living, map, own, is_member, keeps_homes } = self;
            let node = node("a");
            let (now, incarnation) = (Monotonic(100), Incarnation(2));
            let members = &living.keys().cloned().collect();
            let is_over = &|node: &NodeId, life| living.get(node) != Some(&life);
            let (is_member, keeps_homes, shards) = (*is_member, *keeps_homes, 2);
            View { node: &node, incarnation, members, is_over, is_member, keeps_homes, shards, map, own, now }.steps()
        }
    }

    const BOTH: [Step; 2] = [Step::Take(ShardId(0)), Step::Take(ShardId(1))];

    #[test]
    fn what_nobody_living_has_is_claimed_and_what_a_living_node_has_is_not() {
        assert_eq!(KeeperCase::new(&[("a", 2)], [None, None]).steps(), BOTH);
        assert_eq!(KeeperCase::new(&[("a", 2)], [Some(home("b", 1, false)), Some(home("a", 1, false))]).steps(), BOTH);
        let one_each = [Some(home("a", 2, false)), Some(home("b", 1, false))];
        let held = [(0, ShardState::Held)];
        assert_eq!(KeeperCase::new(&[("a", 2), ("b", 1)], one_each.clone()).own(&held).steps(), []);
        // Node b has restarted, and keeps its shard.
        assert_eq!(KeeperCase::new(&[("a", 2), ("b", 3)], one_each.clone()).own(&held).steps(), []);
        assert_eq!(KeeperCase::new(&[("a", 2)], one_each).own(&held).steps(), [Step::Take(ShardId(1))]);
    }

    #[test]
    fn who_joins_waits_until_the_old_home_has_let_go() {
        let both_mine = [Some(home("a", 2, false)), Some(home("a", 2, false))];
        let known =
            KeeperCase::new(&[("a", 2), ("b", 1)], both_mine).own(&[(0, ShardState::Held), (1, ShardState::Held)]);
        assert!(matches!(known.steps()[..], [Step::LetGo(_)]), "{:?}", known.steps());
        let both_others = [Some(home("b", 1, false)), Some(home("b", 1, false))];
        assert_eq!(KeeperCase::new(&[("a", 2), ("b", 1)], both_others).steps(), []);
        let one_free = [Some(home("b", 1, true)), Some(home("b", 1, false))];
        assert_eq!(KeeperCase::new(&[("a", 2), ("b", 1)], one_free).steps(), [Step::Take(ShardId(0))]);
    }

    #[test]
    fn what_failed_is_tried_again_in_time_and_what_is_under_way_is_left_alone() {
        let mine = || [Some(home("a", 2, false)), Some(home("a", 2, false))];
        let of = |own| KeeperCase::new(&[("a", 2)], mine()).own(&[(0, own), (1, ShardState::Held)]).steps();
        assert_eq!(of(ShardState::Waits(Monotonic(101))), []);
        assert_eq!(of(ShardState::Waits(Monotonic(100))), [Step::Take(ShardId(0))]);
        assert_eq!(of(ShardState::Busy), []);
    }

    #[test]
    fn a_life_that_is_over_claims_nothing_and_knows_what_it_has_lost() {
        let homes = [Some(home("a", 2, false)), Some(home("b", 1, false))];
        let mut known = KeeperCase::new(&[("b", 1)], homes).own(&[(0, ShardState::Held), (1, ShardState::Held)]);
        known.is_member = false;
        assert_eq!(known.steps(), [Step::Lost(ShardId(1))]);
        known.is_member = true;
        assert_eq!(known.steps(), [Step::Lost(ShardId(1)), Step::LetGo(ShardId(0))], "it gave up the role");
    }

    fn member(name: &str, availability: Availability) -> PresentMember {
        let presence = Presence::new(NodeNumber(1), "h:1", [NodeRole::Memory]).with_availability(availability);
        PresentMember { node: node(name), incarnation: Incarnation(1), presence }
    }

    #[test]
    fn homes_are_placed_on_members_that_take_work_and_on_all_if_none_does() {
        let names = |members: &[PresentMember]| -> Vec<String> {
            may_be_homes(members).into_iter().map(|node| node.0).collect()
        };
        let away = [member("a", Availability::Cordoned), member("b", Availability::Draining)];
        assert_eq!(names(&away), ["a", "b"]);
        let [a, b] = away;
        assert_eq!(names(&[a, member("c", Availability::Available), b]), ["c"]);
    }

    #[test]
    fn a_cordoned_node_keeps_its_homes_and_takes_none_and_a_draining_one_lets_go_of_all() {
        // Homes are placed on b alone, because a takes no work.
        let homes = [Some(home("a", 2, false)), None];
        let mut known = KeeperCase::new(&[("b", 1)], homes).own(&[(0, ShardState::Held)]);
        known.living.insert(node("a"), Incarnation(2));
        let steps = |known: &KeeperCase| {
            let (own, members) = (node("a"), BTreeSet::from([node("b")]));
            let is_over = &|of: &NodeId, life| known.living.get(of) != Some(&life);
            let KeeperCase { map, own: shards, keeps_homes, .. } = known;
            let view = View {
                node: &own,
                incarnation: Incarnation(2),
                members: &members,
                is_over,
                is_member: true,
                keeps_homes: *keeps_homes,
                shards: 2,
                map,
                own: shards,
                now: Monotonic(100),
            };
            view.steps()
        };
        known.keeps_homes = true;
        assert_eq!(steps(&known), []);
        known.keeps_homes = false;
        assert_eq!(steps(&known), [Step::LetGo(ShardId(0))]);
    }
}
