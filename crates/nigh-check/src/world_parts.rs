//! The parts of a world: nodes, homes, ledgers, the store, invocations.

use std::time::Duration;

use nigh_protocol::{CacheLimits, Gate, GateLimits, Home, Member, NodeCache, ReplayedRecord, RequestId};
use nigh_terms::{Epoch, Monotonic, Sequence, Token, Version};

use crate::configuration::{Configuration, MutatedRules};
use crate::fingerprint::Part;
use crate::ghost::{Object, Op, SeenMarks};

/// A time at which all waits at a gate are over.
pub(crate) const LATER: Monotonic = Monotonic(1);

const CACHE_LIMITS: CacheLimits = CacheLimits { resend: Duration::ZERO, resend_max: Duration::ZERO, requests_max: 8 };
const GATE_LIMITS: GateLimits = GateLimits { wait: Duration::from_nanos(LATER.0), waiting_max: 8 };

pub(crate) type Cache = NodeCache<Object, Op, MutatedRules>;

/// The state of a node's process.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Life {
    pub(crate) cache: Cache,
    pub(crate) gate: Gate<u8, MutatedRules>,
    /// The programs that wait for fetches.
    pub(crate) readers: Vec<(RequestId, u8)>,
    /// The programs that wait for puts, with what they write.
    pub(crate) writers: Vec<(RequestId, u8, Op)>,
}

/// A node: its latest incarnation, and its process while it lives.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Node {
    pub(crate) me: Member,
    pub(crate) life: Option<Part<Life>>,
}

/// The home of a shard, and former homes that do not know that their epoch is over.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Seat {
    pub(crate) home: Part<Home<Object, MutatedRules>>,
    pub(crate) zombies: Vec<Part<Home<Object, MutatedRules>>>,
}

/// A record that the ledger keeps.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Item {
    pub(crate) replayed: ReplayedRecord<Object>,
    pub(crate) op: Op,
    pub(crate) pushed: bool,
    pub(crate) settled: bool,
}

#[derive(Clone, Debug, Hash)]
pub(crate) struct Ledger {
    pub(crate) epoch: Epoch,
    pub(crate) next: Sequence,
    pub(crate) items: Vec<Item>,
}

/// An object in the system of record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StoredState {
    pub(crate) version: Version,
    pub(crate) op: Op,
    pub(crate) absent: bool,
}

/// The phase of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// The program was not called yet.
    Unborn,
    /// The program may be dispatched.
    Idle,
    /// The program is on its way to this node, or waits there.
    Sent(Member),
    /// The program runs on this node.
    Running(Member),
    /// The program has ended on this node. Its end waits for its puts, or is on its way.
    Leaving(Member),
    /// A put from outside is written and waits for its acknowledgement.
    Unacknowledged,
    /// The program has ended.
    Over,
}

#[derive(Clone, Debug, Hash)]
pub(crate) struct Invocation {
    pub(crate) phase: Phase,
    /// True if its end was reported or declared.
    pub(crate) ended: bool,
    pub(crate) at: u8,
    pub(crate) waits: Option<RequestId>,
    pub(crate) seen: SeenMarks,
    /// The token that a put from outside must hand over.
    pub(crate) token: Token,
}

impl Life {
    pub(crate) fn begin(config: &Configuration, me: Member) -> Part<Self> {
        Part::new(Self {
            cache: NodeCache::new(me, CACHE_LIMITS, config.without),
            gate: Gate::new(GATE_LIMITS, config.without),
            readers: Vec::new(),
            writers: Vec::new(),
        })
    }
}
