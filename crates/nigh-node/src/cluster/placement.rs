//! Places the homes of shards on nodes. Pure.
//!
//! Rendezvous hashing with quotas: every node gets its share of the shards, or one more. A shard stays where it is while its
//! home lives and is within its quota; the others go to the node with the highest score that has room. So a joining node
//! takes its share from nodes above their quota, a leaving node gives away only its own, and all nodes compute the same map.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use nigh_terms::{NodeId, ShardId};

/// The score of `node` for `shard`: a hash of both, the same everywhere (FNV-1a, then the finish of SplitMix64).
fn score(node: &NodeId, shard: ShardId) -> u64 {
    let bytes = node.0.bytes().chain(shard.0.to_le_bytes());
    let mut hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// The homes of all `shards` on these living `members`, if the homes are `current` now; empty without members.
#[must_use]
pub fn place_homes(
    members: &BTreeSet<NodeId>,
    shards: u16,
    current: &BTreeMap<ShardId, NodeId>,
) -> BTreeMap<ShardId, NodeId> {
    if members.is_empty() {
        return BTreeMap::new();
    }
    let mut had: BTreeMap<&NodeId, Vec<ShardId>> = members.iter().map(|member| (member, Vec::new())).collect();
    let mut loose = BTreeSet::new();
    for shard in (0..shards).map(ShardId) {
        match current.get(&shard).and_then(|home| had.get_mut(home)) {
            Some(had) => had.push(shard),
            None => drop(loose.insert(shard)),
        }
    }
    // The nodes with most shards may have one more than their share, so the remainder of the division moves no shard.
    let mut by_count: Vec<(Reverse<usize>, &NodeId)> =
        had.iter().map(|(node, had)| (Reverse(had.len()), *node)).collect();
    by_count.sort();
    let (share, rest) = (usize::from(shards) / members.len(), usize::from(shards) % members.len());
    let quotas = by_count.into_iter().enumerate();
    let mut room: BTreeMap<&NodeId, usize> =
        quotas.map(|(at, (_, node))| (node, share + usize::from(at < rest))).collect();
    let mut homes = BTreeMap::new();
    for (node, mut shards) in had {
        shards.sort_by_key(|&shard| Reverse(score(node, shard)));
        for shard in shards {
            match room.get_mut(node) {
                Some(room) if *room > 0 => {
                    *room -= 1;
                    homes.insert(shard, node.clone());
                }
                _ => drop(loose.insert(shard)),
            }
        }
    }
    for shard in loose {
        let free = room.iter_mut().filter(|(_, room)| **room > 0);
        if let Some((node, room)) = free.max_by_key(|(node, _)| score(node, shard)) {
            *room -= 1;
            homes.insert(shard, (*node).clone());
        }
    }
    homes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn node(number: usize) -> NodeId {
        NodeId(format!("node-{number}"))
    }

    fn nodes(numbers: impl IntoIterator<Item = usize>) -> BTreeSet<NodeId> {
        numbers.into_iter().map(node).collect()
    }

    fn moved(before: &BTreeMap<ShardId, NodeId>, after: &BTreeMap<ShardId, NodeId>) -> usize {
        after.iter().filter(|(shard, node)| before.get(shard) != Some(node)).count()
    }

    fn count(homes: &BTreeMap<ShardId, NodeId>, node: &NodeId) -> usize {
        homes.values().filter(|home| *home == node).count()
    }

    proptest! {
        #[test]
        fn every_shard_has_a_living_home_and_every_node_its_share(
            members in proptest::collection::btree_set(0_usize..12, 1..9),
            shards in 1_u16..200,
            current in proptest::collection::btree_map(0_u16..220, 0_usize..12, 0..200),
        ) {
            let members = nodes(members);
            let current = current.into_iter().map(|(shard, at)| (ShardId(shard), node(at))).collect();
            let homes = place_homes(&members, shards, &current);
            prop_assert_eq!(homes.len(), usize::from(shards));
            let share = usize::from(shards) / members.len();
            for member in &members {
                let has = count(&homes, member);
                prop_assert!(has == share || has == share + 1, "{} has {} of {}", member, has, shards);
            }
            prop_assert_eq!(&place_homes(&members, shards, &homes), &homes, "it stays");
        }

        #[test]
        fn who_joins_gets_its_share_and_nothing_else_moves(count_before in 1_usize..9, shards in 1_u16..200) {
            let before = place_homes(&nodes(0..count_before), shards, &BTreeMap::new());
            let after = place_homes(&nodes(0..=count_before), shards, &before);
            let gained = count(&after, &node(count_before));
            prop_assert_eq!(moved(&before, &after), gained);
            prop_assert!(gained <= usize::from(shards).div_ceil(count_before + 1));
        }

        #[test]
        fn who_leaves_gives_its_own_and_nothing_else_moves(
            count_before in 2_usize..9,
            shards in 1_u16..200,
            leaves in 0_usize..9,
        ) {
            let gone = leaves % count_before;
            let before = place_homes(&nodes(0..count_before), shards, &BTreeMap::new());
            let after = place_homes(&nodes((0..count_before).filter(|&at| at != gone)), shards, &before);
            prop_assert_eq!(moved(&before, &after), count(&before, &node(gone)));
        }

        /// Homes move one after the other, in any order, and each step uses the map of that moment.
        #[test]
        fn moves_one_by_one_come_to_an_end_and_move_no_shard_twice(
            members in proptest::collection::btree_set(0_usize..8, 1..7),
            shards in 1_u16..80,
            current in proptest::collection::btree_map(0_u16..80, 0_usize..8, 0..80),
            order in any::<u64>(),
        ) {
            let members = nodes(members);
            let mut homes: BTreeMap<_, _> =
                current.into_iter().filter(|(shard, _)| *shard < shards).map(|(s, at)| (ShardId(s), node(at))).collect();
            let mut already = BTreeSet::new();
            let mut random = order;
            loop {
                let wanted = place_homes(&members, shards, &homes);
                let open: Vec<_> = wanted.iter().filter(|(shard, node)| homes.get(shard) != Some(node)).collect();
                let Some((shard, to)) = open.get(random as usize % open.len().max(1)) else { break };
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // The shard is released first, so it has no home for a while, and others use that map too.
                homes.remove(shard);
                let meanwhile = place_homes(&members, shards, &homes);
                prop_assert_eq!(meanwhile.get(shard), Some(*to), "as long as it is free");
                prop_assert!(already.insert(**shard), "{} moves again", shard);
                homes.insert(**shard, (*to).clone());
            }
        }
    }
}
