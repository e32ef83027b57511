//! What a node's cache answers and wants done, and its limits.

use std::time::Duration;

use nigh_terms::{ShardId, Version};

use super::super::copies::Copy;
use super::super::message::{Request, RequestId, Stamp};

/// The limits of a node's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheLimits {
    /// After so long what was asked for is asked for again.
    pub resend: Duration,
    /// Fetches and puts under way beyond which the shell begins no more: they wait in its queues.
    pub requests_max: usize,
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self { resend: Duration::from_millis(200), requests_max: 65_536 }
    }
}

/// How a read is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadDecision<V> {
    /// By this copy.
    Hit(Copy<V>),
    /// By the fetch of this name, which others may share: `CacheOutput::Landed` will name it.
    Shared(RequestId),
    /// By a fetch of its own: the object is being written here, or what the home has was asked for.
    Private(RequestId),
}

/// Why an own write has not been acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum PutFailure {
    /// It did not happen, and will not.
    #[error("the ledger did not take the write; write again later")]
    NotTaken,
    /// The node's incarnation was given up. If it happened, then no later than `through`.
    #[error("the home has given this node up; the write may have happened, up to version {through}")]
    GivenUp {
        /// The home's newest version when it refused.
        through: Version,
    },
}

/// What a node's cache wants done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CacheOutput<O, V> {
    /// Send this to the home of the shard.
    Send(ShardId, Request<O>),
    /// A fetch has ended: whoever reads by it is served this.
    Landed {
        /// The fetch.
        request: RequestId,
        /// Which object.
        object: O,
        /// The version found: each reader's token joins it.
        stamp: Stamp,
        /// What came with it; none if there is no object.
        value: Option<V>,
        /// The value is kept, and is the cache's too.
        kept: bool,
    },
    /// An own write has ended.
    Wrote {
        /// The write.
        request: RequestId,
        /// Its version, or why there is none.
        outcome: Result<Stamp, PutFailure>,
        /// What came with the acknowledgement is kept.
        kept: bool,
    },
    /// This left the cache, or came and was not wanted.
    Dropped(V),
    /// The node covers more than before: the gate may look again.
    Grown,
    /// The node was given up: it must end what runs and begin a new incarnation with an empty cache.
    Rejoin,
}
