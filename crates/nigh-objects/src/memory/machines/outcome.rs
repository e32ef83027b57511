//! The results of a step of the machines: events for others, dropped copies, and what became of fetched bytes.

use nigh_data::ObjectId;
use nigh_protocol::{AppendId, Member, Reply, Request, Stamp};
use nigh_terms::{Epoch, ShardId, Version};

use crate::cache::CostedCopy;

/// The outputs of the machines for others than the caller.
#[derive(Debug)]
pub(in crate::memory) enum MachineEvent {
    /// The node sends this to a home elsewhere.
    Said(ShardId, Request<ObjectId>),
    /// A home here sends this to another node.
    Told(Reply<ObjectId>),
    /// The writer of this version never sends its write again.
    Settled(ShardId, Version),
    /// A home here wants a fence appended.
    Fences(ShardId, AppendId, Member),
    /// A home here has declared a node dead.
    GaveUp(Member),
    /// This epoch of a home here is over.
    Retired(ShardId, Epoch),
    /// A home has declared this node dead: the node must join again.
    Rejoin,
}

/// The results of a step.
#[derive(Default)]
pub(in crate::memory) struct Outcome {
    /// The caller frees these when it holds no lock.
    pub(in crate::memory) dropped: Vec<CostedCopy>,
    pub(in crate::memory) happened: Vec<MachineEvent>,
    /// Homes whose directories are over their limit.
    pub(super) crowded: Vec<ShardId>,
}

/// What the cache did with the bytes of a fetch.
pub(in crate::memory) enum FetchOutcome {
    /// The bytes are of this version.
    Installed(Stamp),
    /// The cache has taken the bytes; the fetch ends when the node covers their version.
    InstalledWhenCovered,
    /// The bytes may be of another version: the object is to be fetched again.
    Refetch,
    /// The bytes are of this version, which the home has not been told of yet.
    NewerThanHome(Version),
}

/// The home's response to the bytes that were fetched for another node.
pub(in crate::memory) enum ForeignAnswer {
    /// The reply goes to the node, with the bytes.
    Found(Reply<ObjectId>),
    /// As in `FetchOutcome`.
    Refetch,
    /// As in `FetchOutcome`.
    NewerThanHome(Version),
}
