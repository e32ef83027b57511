//! The scheduler's part of the protocol: the token of what a namespace's invocations have seen, which its next dispatch
//! carries.
//!
//! The frontier decides when a scheduler may dispatch at all, with which token, and when the invocations of a lost node
//! count as ended. It chooses no node.

use std::collections::{BTreeMap, BTreeSet};

use nigh_terms::{Epoch, ShardId, Token, Version};

use super::message::Member;
use super::rules::{Contract, Rule, Rules};

/// An invocation on its way to a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dispatch {
    /// The incarnation that may run it; any other refuses it.
    pub to: Member,
    /// The token of all that the scheduler has seen.
    pub token: Token,
}

/// What one scheduler has seen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frontier<R = Contract> {
    rules: R,
    token: Token,
    /// Homes that were not read since the start, each with the epoch that the engine names.
    unread: BTreeMap<ShardId, Epoch>,
    /// Lost nodes, each with the homes that have not fenced it.
    lost: BTreeMap<Member, BTreeSet<ShardId>>,
}

impl<R: Rules> Frontier<R> {
    /// A scheduler that starts, or takes a namespace over: it must read each home, at least in the epoch that
    /// the engine names, before its first dispatch.
    #[must_use]
    pub fn begin(shards: impl IntoIterator<Item = (ShardId, Epoch)>, rules: R) -> Self {
        let unread = if rules.hold(Rule::RestartBarrier) { shards.into_iter().collect() } else { BTreeMap::default() };
        Self { rules, token: Token::empty(), unread, lost: BTreeMap::new() }
    }

    /// The homes that must still be read.
    pub fn unread(&self) -> impl Iterator<Item = ShardId> + '_ {
        self.unread.keys().copied()
    }

    /// Records the newest version that a home has answered with. An answer under an older epoch is ignored.
    pub fn read(&mut self, shard: ShardId, newest: Version) {
        if self.unread.get(&shard).is_some_and(|epoch| newest.epoch >= *epoch) {
            self.unread.remove(&shard);
            self.token.see(shard, newest);
        }
    }

    /// Adds `token`: what an invocation that has ended, or a put from outside before its acknowledgement, saw and wrote.
    pub fn see(&mut self, token: &Token) {
        self.token.join(token);
    }

    /// The token of all that has been seen.
    #[must_use]
    pub const fn token(&self) -> &Token {
        &self.token
    }

    /// Makes a dispatch to `to`; none while a home is unread.
    #[must_use]
    pub fn dispatch(&self, to: Member) -> Option<Dispatch> {
        self.unread.is_empty().then(|| Dispatch { to, token: self.token.clone() })
    }

    /// Records that a node is lost: the homes of `shards` must fence it. Its invocations count as running until `fenced`
    /// returns true.
    pub fn lose(&mut self, member: Member, shards: impl IntoIterator<Item = ShardId>) {
        self.lost.entry(member).or_insert_with(|| shards.into_iter().collect());
    }

    /// The homes that have not fenced `member`.
    pub fn unfenced(&self, member: Member) -> impl Iterator<Item = ShardId> + '_ {
        self.lost.get(&member).into_iter().flatten().copied()
    }

    /// Records that a home has fenced `member`, whose writes there end at `through`. True if that was the last home: then the
    /// invocations of this incarnation have ended.
    pub fn fenced(&mut self, member: Member, shard: ShardId, through: Version) -> bool {
        let Some(homes) = self.lost.get_mut(&member) else { return false };
        if homes.remove(&shard) {
            self.token.see(shard, through);
        }
        homes.is_empty() && self.lost.remove(&member).is_some()
    }

    /// The rules that the frontier follows.
    pub const fn rules(&self) -> &R {
        &self.rules
    }
}

#[cfg(test)]
mod tests {
    use nigh_terms::{Incarnation, Sequence};

    use super::*;
    use crate::NodeNumber;

    const fn version(epoch: u64, sequence: u64) -> Version {
        Version { epoch: Epoch(epoch), sequence: Sequence(sequence) }
    }

    const MEMBER: Member = Member { node: NodeNumber(1), incarnation: Incarnation(1) };

    #[test]
    fn a_scheduler_dispatches_when_every_home_of_today_was_read() {
        let mut frontier = Frontier::begin([(ShardId(0), Epoch(2)), (ShardId(1), Epoch(1))], Contract);
        frontier.read(ShardId(1), version(1, 3));
        frontier.read(ShardId(0), version(1, 900));
        assert_eq!(frontier.dispatch(MEMBER), None, "the home of the old epoch counts for nothing");
        frontier.read(ShardId(0), version(2, 1));
        let token = frontier.dispatch(MEMBER).unwrap().token;
        assert_eq!([token.get(ShardId(0)), token.get(ShardId(1))], [Some(version(2, 1)), Some(version(1, 3))]);
    }

    #[test]
    fn a_lost_nodes_invocations_have_ended_when_every_home_has_fenced_it() {
        let mut frontier = Frontier::begin([], Contract);
        frontier.lose(MEMBER, [ShardId(0), ShardId(1)]);
        assert!(!frontier.fenced(MEMBER, ShardId(0), version(1, 7)));
        assert!(!frontier.fenced(MEMBER, ShardId(0), version(1, 7)), "one home does not stand for two");
        assert!(frontier.fenced(MEMBER, ShardId(1), version(1, 2)));
        assert_eq!(frontier.token().get(ShardId(0)), Some(version(1, 7)));
    }
}
