//! What homes and nodes say to each other.
//!
//! A message may be lost, doubled and overtaken; nothing here relies on order. Each names the sender's epoch or
//! the receiver's incarnation, so that what is meant for another life is recognised. Bytes of objects travel
//! beside the messages, in the shell's hands.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

pub use nigh_terms::NodeNumber;
use nigh_terms::{Epoch, Incarnation, ShardId, Token, Version};
use serde::{Deserialize, Serialize};

/// What names an object: cheap to clone, totally ordered.
pub trait ObjectName: Clone + Ord + Hash + fmt::Debug {}

impl<T: Clone + Ord + Hash + fmt::Debug> ObjectName for T {}

/// One life of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Member {
    /// The node.
    pub node: NodeNumber,
    /// Its life.
    pub incarnation: Incarnation,
}

/// What a node asked for; never reused by one incarnation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId(pub u64);

/// One attempt of a request. A later attempt is for an answer that the earlier one can no longer give; a message that
/// is sent again because it may be lost is the same attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Attempt {
    /// The request.
    pub request: RequestId,
    /// Which attempt, from 0.
    pub number: u32,
}

/// How many invalidations a home has sent to one incarnation under one epoch: dense, the first is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Counter(pub u64);

/// A home's claim: a node that has applied the invalidations up to `counter` covers all versions up to `through`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cover {
    /// The invalidations sent so far.
    pub counter: Counter,
    /// The newest version the home has applied.
    pub through: Version,
}

/// A version with its token: itself in its own shard, and what its writer had seen of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Stamp {
    /// The version.
    pub version: Version,
    /// What goes beyond it; absent if nothing does, as always where there is one shard.
    pub others: Option<Arc<Token>>,
}

impl Stamp {
    /// The stamp of a `version` in `shard` whose writer had seen `seen`.
    #[must_use]
    pub fn new(shard: ShardId, version: Version, seen: &Token) -> Self {
        let beyond = seen.beyond(shard, version);
        Self { version, others: (!beyond.is_empty()).then(|| Arc::new(beyond)) }
    }

    /// Adds all that the stamp says, as a version of `shard`, to `token`.
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
    /// It gives the object new bytes.
    Put,
    /// It takes the object away; its version stays as a tombstone until the store has none of it.
    Delete,
    /// Somebody else has given the object in the store new bytes: what they are is asked of the store.
    Outside,
}

/// A node's message to the home of a shard.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Request<O> {
    /// Who asks.
    pub from: Member,
    /// The highest epoch of the shard that the node has met. A home below it is a former home.
    pub epoch: Epoch,
    /// What it wants.
    pub body: ToHome<O>,
}

/// What a node tells a home.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ToHome<O> {
    /// Give me the object.
    Fetch {
        /// To be matched by the answer.
        attempt: Attempt,
        /// Which.
        object: O,
        /// The answer may be kept or shared: from here on the node is told of newer versions.
        shared: bool,
    },
    /// Write the object.
    Put {
        /// To be matched by the answer, and recognised when it comes again.
        request: RequestId,
        /// Which.
        object: O,
        /// How.
        write: Write,
        /// What the writer had seen.
        token: Arc<Token>,
        /// Every put below this one has been answered: its answer need not be remembered.
        settled: RequestId,
    },
    /// How far must I have come to have caught up?
    Ask {
        /// What is to be covered.
        need: Version,
    },
    /// I have applied every invalidation up to this one.
    Applied {
        /// The last of the contiguous ones.
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
    /// Whom it is for: another incarnation ignores it.
    pub to: Member,
    /// What it says.
    pub body: FromHome<O>,
}

/// What a home tells a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum FromHome<O> {
    /// The object as it is now.
    Found {
        /// What is answered.
        attempt: Attempt,
        /// Which object.
        object: O,
        /// Its newest version.
        stamp: Stamp,
        /// There is none: the version is a tombstone's, or none was ever written.
        absent: bool,
        /// How far the node must have come.
        cover: Cover,
    },
    /// The write is durable and in its place.
    Written {
        /// What is answered.
        request: RequestId,
        /// What was written.
        stamp: Stamp,
        /// As in `Found`; the acknowledgement does not wait for it.
        cover: Cover,
    },
    /// The answer to `Ask`.
    Covers {
        /// The claim.
        cover: Cover,
    },
    /// Copies of the object older than `version` are stale.
    Invalidate {
        /// The place of this message among those sent to the node.
        counter: Counter,
        /// Which object.
        object: O,
        /// Its new version.
        version: Version,
        /// The home forgets who has copies: any copy goes, also one of `version` itself.
        recall: bool,
    },
    /// No.
    Refused {
        /// The put that is refused; absent for all else.
        request: Option<RequestId>,
        /// Why.
        reason: Refusal,
        /// What the put may have become, if it did happen under an earlier asking, is at most this.
        through: Version,
    },
}

/// Why a home refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// The incarnation was given up, or a later one has been met.
    #[error("the home has given this incarnation of the node up; the node must join again")]
    GivenUp,
    /// The ledger did not take it; it did not happen.
    #[error("the ledger did not take the write; write again later")]
    NotTaken,
}
