//! What homes and nodes say to each other.
//!
//! A message may be lost, doubled and overtaken; nothing here relies on order. Each names the sender's epoch or the
//! receiver's incarnation, so that a message for another epoch or incarnation is recognised. The shell carries the
//! objects' bytes beside the messages.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

pub use nigh_terms::NodeNumber;
use nigh_terms::{Epoch, Incarnation, ShardId, Token, Version};
use serde::{Deserialize, Serialize};

/// The name of an object: cheap to clone, totally ordered.
pub trait ObjectName: Clone + Ord + Hash + fmt::Debug {}

impl<T: Clone + Ord + Hash + fmt::Debug> ObjectName for T {}

/// One incarnation of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Member {
    /// The number of the node.
    pub node: NodeNumber,
    /// The incarnation.
    pub incarnation: Incarnation,
}

/// Names a node's request. One incarnation never uses a number twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId(pub u64);

/// One attempt of a request. A node begins a new attempt when the answer to the earlier one is of no use any more. A
/// message that is sent again because it may be lost is the same attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Attempt {
    /// The id of the request.
    pub request: RequestId,
    /// The attempt's number, from 0.
    pub number: u32,
}

/// How many invalidations a home has sent to one incarnation under one epoch: dense, the first is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Counter(pub u64);

/// A home's claim: a node that has applied the invalidations up to `counter` covers all versions up to `through`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cover {
    /// The number of invalidations sent so far.
    pub counter: Counter,
    /// The newest version the home has applied.
    pub through: Version,
}

/// A version with its token. The token is the version itself in its own shard, and what the writer had seen of the
/// others.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Stamp {
    /// The version.
    pub version: Version,
    /// The token's part of other shards. None if it is empty, as it always is with one shard.
    pub others: Option<Arc<Token>>,
}

impl Stamp {
    /// The stamp of a `version` in `shard` whose writer had seen `seen`.
    #[must_use]
    pub fn new(shard: ShardId, version: Version, seen: &Token) -> Self {
        let beyond = seen.beyond(shard, version);
        Self { version, others: (!beyond.is_empty()).then(|| Arc::new(beyond)) }
    }

    /// Adds the token of this stamp, whose version is of `shard`, to `token`.
    pub fn join_into(&self, shard: ShardId, token: &mut Token) {
        token.see(shard, self.version);
        if let Some(others) = &self.others {
            token.join(others);
        }
    }
}

/// What a write does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Write {
    /// The object gets new bytes.
    Put,
    /// The object is deleted. The version stays as a tombstone until the store has deleted the object.
    Delete,
    /// Somebody outside has written the object in the store; the bytes must be read from the store.
    Outside,
}

/// A node's message to the home of a shard.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Request<O> {
    /// The sender.
    pub from: Member,
    /// The highest epoch of the shard that the node has met. A home below it is a former home.
    pub epoch: Epoch,
    /// What the node asks or reports.
    pub body: ToHome<O>,
}

/// What a node tells a home.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ToHome<O> {
    /// Fetch the object.
    Fetch {
        /// The answer names this attempt.
        attempt: Attempt,
        /// The object.
        object: O,
        /// True if the node may cache or share the answer: from here on it is told of newer versions.
        shared: bool,
    },
    /// Write the object.
    Put {
        /// The answer names this request; the home recognises it when it is sent again.
        request: RequestId,
        /// The object.
        object: O,
        /// What happens to the object.
        write: Write,
        /// What the writer had seen.
        token: Arc<Token>,
        /// The node has the answers to all puts below this one, so the home may forget them.
        settled: RequestId,
    },
    /// Asks which invalidations the node must apply to cover `need`.
    Ask {
        /// The version to be covered.
        need: Version,
    },
    /// The node has applied every invalidation up to this one.
    Applied {
        /// The last of the contiguous invalidations.
        counter: Counter,
    },
}

/// A home's message to a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Reply<O> {
    /// The home's shard.
    pub shard: ShardId,
    /// The home's epoch.
    pub epoch: Epoch,
    /// The receiver; another incarnation ignores the message.
    pub to: Member,
    /// The answer, or the invalidation.
    pub body: FromHome<O>,
}

/// What a home tells a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum FromHome<O> {
    /// The object's current state.
    Found {
        /// The attempt that this answers.
        attempt: Attempt,
        /// The object.
        object: O,
        /// The object's newest version.
        stamp: Stamp,
        /// True if there is no object: the version is a tombstone's, or the object was never written.
        absent: bool,
        /// What the node must apply before it shows the version.
        cover: Cover,
    },
    /// The write is durable and has its version.
    Written {
        /// The request that this answers.
        request: RequestId,
        /// The version written, with its token.
        stamp: Stamp,
        /// What the node must apply before it shows the version. The acknowledgement does not wait for it.
        cover: Cover,
    },
    /// The answer to `Ask`.
    Covers {
        /// What the node must apply to cover `through`.
        cover: Cover,
    },
    /// Copies of the object older than `version` are stale.
    Invalidate {
        /// This message's number among the invalidations sent to the node.
        counter: Counter,
        /// The object.
        object: O,
        /// The object's new version.
        version: Version,
        /// True if the home forgets who has copies: the node drops any copy, also one of `version` itself.
        recall: bool,
    },
    /// The request is refused.
    Refused {
        /// The put that is refused; none for any other request.
        request: Option<RequestId>,
        /// Why the home refuses.
        reason: Refusal,
        /// If an earlier attempt of the put did happen, its version is at most this.
        through: Version,
    },
}

/// Why a home refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// The incarnation was declared dead, or a later one has been met.
    #[error("the home declared this incarnation of the node dead; the node must join again")]
    GivenUp,
    /// The ledger did not append the write; it did not happen.
    #[error("the ledger did not take the write; write again later")]
    NotTaken,
}
