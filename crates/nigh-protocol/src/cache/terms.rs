//! The inputs' answers, the outputs and the limits of a node's cache.

use std::time::Duration;

use nigh_terms::{ShardId, Version};

use super::super::copies::Copy;
use super::super::message::{Request, RequestId, Stamp};

/// The limits of a node's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheLimits {
    /// A request without an answer for this long is sent again; after each time it waits twice as long,
    pub resend: Duration,
    /// and at most this long. A new epoch of its home has it sent at once.
    pub resend_max: Duration,
    /// At this many fetches and puts under way, the shell begins no more: they wait in its queues.
    pub requests_max: usize,
}

impl Default for CacheLimits {
    fn default() -> Self {
        let (resend, resend_max) = (Duration::from_millis(200), Duration::from_millis(1600));
        Self { resend, resend_max, requests_max: 65_536 }
    }
}

/// How a read is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadDecision<V> {
    /// The cached copy serves it.
    Hit(Copy<V>),
    /// This fetch serves it, and later reads may join. `CacheOutput::Landed` will name the fetch.
    Shared(RequestId),
    /// A fetch for this read alone serves it: the object is being written here, or the read asked for the home's
    /// version.
    Private(RequestId),
}

/// Why an own write has not been acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum PutFailure {
    /// The write did not happen, and will not.
    #[error("the ledger did not take the write; write again later")]
    NotTaken,
    /// The incarnation was declared dead. If the write happened, its version is at most `through`.
    #[error(
        "the home declared this node dead; the outcome of the write is unknown (its version is at most {through}); \
         read the object before you write again"
    )]
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
    /// A fetch has ended. Every read that waits for it gets this result.
    Landed {
        /// The request id of the fetch.
        request: RequestId,
        /// The fetched object.
        object: O,
        /// The version found. Each reader adds it to its token.
        stamp: Stamp,
        /// The fetched value; none if there is no object.
        value: Option<V>,
        /// True if the cache keeps the value too.
        kept: bool,
    },
    /// An own write has ended.
    Wrote {
        /// The request id of the write.
        request: RequestId,
        /// The write's version, or why there is none.
        outcome: Result<Stamp, PutFailure>,
        /// True if the cache keeps the written copy.
        kept: bool,
    },
    /// A value that left the cache, or that arrived and was not cached.
    Dropped(V),
    /// The node covers more than before: the gate must look again.
    Grown,
    /// The node was declared dead: it must end what runs, and begin a new incarnation with an empty cache.
    Rejoin,
}
