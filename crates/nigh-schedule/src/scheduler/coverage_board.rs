//! Which nodes have shown that they cover the token of a namespace's next dispatch.
//!
//! A dispatch carries the whole frontier (SEMANTICS.md). Comparing it with every node's token, shard by shard, would
//! take longer than the rest of a decision. So the board stores the comparison: a node's report changes one cell, a
//! newer version of a shard one column, and a decision reads one number for each node. The board knows what nodes have
//! shown, not what they cover since: a node that is behind here waits at its own gate.

use std::collections::BTreeMap;

use nigh_terms::{ShardId, Token, Version};

use super::NodeIndex;

/// One shard: the version that the dispatch carries, and the version that each node has shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Column {
    needed: Version,
    covered: Vec<Version>,
}

/// The board of one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoverageBoard {
    columns: BTreeMap<ShardId, Column>,
    /// For each node: the number of shards in which it is behind.
    behind: Vec<u16>,
}

impl CoverageBoard {
    /// A board of `nodes` nodes that have shown nothing.
    #[must_use]
    pub fn new(nodes: u16) -> Self {
        Self { columns: BTreeMap::new(), behind: vec![0; usize::from(nodes)] }
    }

    fn column(columns: &mut BTreeMap<ShardId, Column>, shard: ShardId, nodes: usize) -> &mut Column {
        let new = || Column { needed: Version::default(), covered: vec![Version::default(); nodes] };
        columns.entry(shard).or_insert_with(new)
    }

    /// Adds `token` to what the next dispatch will carry.
    pub fn need(&mut self, token: &Token) {
        for (shard, version) in token.iter() {
            let column = Self::column(&mut self.columns, shard, self.behind.len());
            if version <= column.needed {
                continue;
            }
            let before = std::mem::replace(&mut column.needed, version);
            for (covered, behind) in column.covered.iter().zip(&mut self.behind) {
                *behind += u16::from(*covered >= before && *covered < version);
            }
        }
    }

    /// `node` has shown that it covers `version` of `shard`.
    pub fn shown(&mut self, node: NodeIndex, shard: ShardId, version: Version) {
        let at = usize::from(node.0);
        let column = Self::column(&mut self.columns, shard, self.behind.len());
        let (Some(covered), Some(behind)) = (column.covered.get_mut(at), self.behind.get_mut(at)) else { return };
        if version > *covered {
            *behind -= u16::from(*covered < column.needed && version >= column.needed);
            *covered = version;
        }
    }

    /// Another incarnation, or another node, has this index from now on and has shown nothing. Adds indexes up to it.
    pub fn restart(&mut self, node: NodeIndex) {
        let at = usize::from(node.0);
        if self.behind.len() <= at {
            self.behind.resize(at + 1, 0);
            self.columns.values_mut().for_each(|column| column.covered.resize(at + 1, Version::default()));
        }
        self.columns.values_mut().for_each(|column| column.covered[at] = Version::default());
        let needed = self.columns.values().filter(|column| column.needed > Version::default()).count();
        self.behind[at] = u16::try_from(needed).unwrap_or(u16::MAX);
    }

    /// The number of shards in which `node` has not shown that it covers the next dispatch; for `NodeView`.
    #[must_use]
    pub fn shards_behind(&self, node: NodeIndex) -> u16 {
        self.behind.get(usize::from(node.0)).copied().unwrap_or(u16::MAX)
    }
}

#[cfg(test)]
mod tests {
    use nigh_terms::{Epoch, Sequence};
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Need(u16, u64, u64),
        Shown(u16, u16, u64, u64),
        Restart(u16),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let (shard, node) = (0u16..3, 0u16..4);
        let (epoch, sequence) = (0u64..3, 0u64..6);
        prop::collection::vec(
            prop_oneof![
                (shard.clone(), epoch.clone(), sequence.clone()).prop_map(|(s, e, q)| Step::Need(s, e, q)),
                (node.clone(), shard, epoch, sequence).prop_map(|(n, s, e, q)| Step::Shown(n, s, e, q)),
                node.prop_map(Step::Restart),
            ],
            0..60,
        )
    }

    const fn version(epoch: u64, sequence: u64) -> Version {
        Version { epoch: Epoch(epoch), sequence: Sequence(sequence) }
    }

    proptest! {
        #[test]
        fn a_node_is_open_only_if_what_it_has_shown_covers_the_token(steps in steps()) {
            let mut board = CoverageBoard::new(2);
            let mut needed = Token::empty();
            let mut shown: BTreeMap<u16, Token> = BTreeMap::new();
            (2..4).for_each(|node| board.restart(NodeIndex(node)));
            for step in steps {
                match step {
                    Step::Need(shard, epoch, sequence) => {
                        let mut token = Token::empty();
                        token.see(ShardId(shard), version(epoch, sequence));
                        needed.join(&token);
                        board.need(&token);
                    }
                    Step::Shown(node, shard, epoch, sequence) => {
                        shown.entry(node).or_default().see(ShardId(shard), version(epoch, sequence));
                        board.shown(NodeIndex(node), ShardId(shard), version(epoch, sequence));
                    }
                    Step::Restart(node) => {
                        shown.remove(&node);
                        board.restart(NodeIndex(node));
                    }
                }
                for node in 0..4 {
                    let covered = shown.get(&node).cloned().unwrap_or_default();
                    let lacks = needed.iter().filter(|(shard, version)| {
                        *version > Version::default() && covered.get(*shard).unwrap_or_default() < *version
                    });
                    prop_assert_eq!(usize::from(board.shards_behind(NodeIndex(node))), lacks.count());
                }
            }
        }
    }

    #[test]
    fn a_node_that_nobody_has_named_covers_nothing() {
        assert_eq!(CoverageBoard::new(2).shards_behind(NodeIndex(2)), u16::MAX);
    }
}
