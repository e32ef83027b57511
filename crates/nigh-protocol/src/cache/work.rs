//! The requests that a node has under way, and what it remembers of their objects meanwhile.

use std::sync::Arc;
use std::time::Duration;

use nigh_terms::{Monotonic, ShardId, Token, Version, invariant};

use super::super::message::{Attempt, ObjectName, RequestId, Stamp, ToHome, Write};

/// What is remembered of an object with requests under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Work {
    /// The oldest version that may be cached or served.
    pub(super) floor: Version,
    /// The fetch that new reads may join; none if they must not join one.
    pub(super) fetch: Option<RequestId>,
    /// Number of writes under way.
    pub(super) writes: u32,
    /// Number of fetches and writes under way.
    pub(super) outstanding: u32,
    /// The home has recalled this node's copies; fetches under way were sent before that.
    pub(super) recalled: bool,
}

impl Work {
    /// One request has ended. True if it was the last.
    pub(super) fn end(&mut self, request: RequestId, write: bool) -> bool {
        // A request that ended twice would end the floor while another still needs it.
        invariant!(
            self.outstanding > 0 && self.writes >= u32::from(write),
            "{request:?} ended (a write: {write}), and {} requests with {} writes were outstanding",
            self.outstanding,
            self.writes
        );
        self.outstanding -= 1;
        self.writes -= u32::from(write);
        if self.fetch == Some(request) {
            self.fetch = None;
        }
        self.outstanding == 0
    }
}

/// The version that a home found, and the shell's value for it: none if there is no object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct FoundVersion<V> {
    pub(super) stamp: Stamp,
    pub(super) value: Option<V>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Want {
    Fetch { shared: bool },
    Put { write: Write, token: Arc<Token> },
}

/// A request that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PendingRequest<O, V> {
    pub(super) object: O,
    pub(super) shard: ShardId,
    want: Want,
    /// True if the answer may be cached.
    pub(super) keep: bool,
    pub(super) attempt: u32,
    pub(super) sent: Monotonic,
    /// How long after that it is sent again.
    pub(super) pause: Duration,
    /// The answer, while it waits for coverage.
    pub(super) landed: Option<FoundVersion<V>>,
}

impl<O: ObjectName, V> PendingRequest<O, V> {
    pub(super) const fn fetch(object: O, shard: ShardId, shared: bool, now: Monotonic) -> Self {
        Self::new(object, shard, Want::Fetch { shared }, shared, now)
    }

    pub(super) fn put(object: O, shard: ShardId, write: Write, token: Arc<Token>, now: Monotonic) -> Self {
        let keep = write == Write::Put;
        Self::new(object, shard, Want::Put { write, token }, keep, now)
    }

    /// It is about to be sent.
    const fn new(object: O, shard: ShardId, want: Want, keep: bool, now: Monotonic) -> Self {
        Self { object, shard, want, keep, attempt: 0, sent: now, pause: Duration::ZERO, landed: None }
    }

    pub(super) fn message(&self, request: RequestId, settled: RequestId) -> ToHome<O> {
        match &self.want {
            Want::Fetch { shared } => ToHome::Fetch {
                attempt: Attempt { request, number: self.attempt },
                object: self.object.clone(),
                shared: *shared,
            },
            Want::Put { write, token } => {
                ToHome::Put { request, object: self.object.clone(), write: *write, token: Arc::clone(token), settled }
            }
        }
    }
}
