//! The messages under way: a multiset, from which any may be delivered next.

use nigh_protocol::{AppendId, Dispatch, FromHome, LedgerRecord, Member, Reply, Request, ToHome};
use nigh_terms::{Epoch, ShardId, Token, Version};

use crate::fingerprint::Part;
use crate::ghost::{Object, Op};

/// A message under way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Packet {
    /// From a node to the home of a shard, with the bytes of a put.
    ToHome(ShardId, Request<Object>, Option<Op>),
    /// From a home to a node, with the bytes of what was found.
    ToNode(Reply<Object>, Option<Op>),
    /// From the scheduler to a node: dispatch this program.
    Dispatch(u8, Dispatch),
    /// From a node to the scheduler: the program was not admitted.
    Returned(u8),
    /// From a node to the scheduler: the program has ended.
    Ended(u8, Token),
    /// From the home of this epoch to the ledger.
    Append(ShardId, Epoch, AppendId, LedgerRecord<Object>, Option<Op>),
    /// From the ledger: the version; none for a former home.
    Appended(ShardId, Epoch, AppendId, Option<Version>),
    /// From a home to the store: look up an object.
    Load(ShardId, Epoch, Object),
    /// From the store: true if it has no such object.
    Loaded(ShardId, Epoch, Object, bool),
}

impl Packet {
    /// True if it travels between nodes and homes, where messages may be lost and doubled.
    #[must_use]
    pub(crate) const fn is_message(&self) -> bool {
        matches!(self, Self::ToHome(..) | Self::ToNode(..))
    }

    /// True if this node sent it to a home, or a home to it.
    #[must_use]
    pub(crate) fn is_of(&self, node: Member) -> bool {
        match self {
            Self::ToHome(_, request, _) => request.from == node,
            Self::ToNode(reply, _) => reply.to == node,
            _ => false,
        }
    }

    /// True if it is an invalidation or the acknowledgement of one.
    #[must_use]
    pub(crate) const fn is_of_invalidation(&self) -> bool {
        match self {
            Self::ToHome(_, request, _) => matches!(request.body, ToHome::Applied { .. }),
            Self::ToNode(reply, _) => matches!(reply.body, FromHome::Invalidate { .. }),
            _ => false,
        }
    }
}

/// All packets under way, sorted.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Network(Vec<Part<Packet>>);

impl Network {
    /// The packets.
    #[must_use]
    pub(crate) fn packets(&self) -> &[Part<Packet>] {
        &self.0
    }

    /// Adds a packet.
    pub(crate) fn send(&mut self, packet: Packet) {
        let at = self.0.partition_point(|one| **one < packet);
        self.0.insert(at, Part::new(packet));
    }

    /// Adds a resent message unless an equal one is on its way.
    pub(crate) fn send_again(&mut self, packet: Packet) {
        if let Err(at) = self.0.binary_search_by(|one| (**one).cmp(&packet)) {
            self.0.insert(at, Part::new(packet));
        }
    }

    /// Doubles the packet at `at`.
    pub(crate) fn double(&mut self, at: usize) {
        let packet = self.0[at].clone();
        self.0.insert(at, packet);
    }

    /// Removes the packet at `at`.
    pub(crate) fn take(&mut self, at: usize) -> Packet {
        self.0.remove(at).into_inner()
    }

    /// Removes all packets that `lost` picks.
    pub(crate) fn lose(&mut self, mut lost: impl FnMut(&Packet) -> bool) {
        self.0.retain(|packet| !lost(packet));
    }

    /// Whether the packet at `at` may arrive next. Only requests to the ledger and its responses keep their order.
    #[must_use]
    pub(crate) fn may_arrive(&self, at: usize) -> bool {
        let first = |before: &Packet| match (before, &*self.0[at]) {
            (Packet::Append(shard, epoch, ..), Packet::Append(other, other_epoch, ..))
            | (Packet::Appended(shard, epoch, ..), Packet::Appended(other, other_epoch, ..)) => {
                shard == other && epoch == other_epoch
            }
            _ => false,
        };
        !self.0[..at].iter().any(|before| first(before))
    }
}
