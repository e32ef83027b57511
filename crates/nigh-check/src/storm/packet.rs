//! The messages between the parties of a storm, and the events without a message.

use nigh_protocol::{AppendId, Dispatch, Member, Reply, Request, RequestId};
use nigh_terms::{Epoch, ShardId, Token, Version};

use super::ledger::Turn;
use super::observer::{Author, Op};
use super::store::{StoreAnswer, StoreCall};
use crate::ghost::Object;

/// The number of a machine: first come nodes, then the machines of schedulers, homes, ledgers and the store.
pub(super) type Host = u8;

pub(super) const SCHEDULERS: Host = 8;
pub(super) const HOMES: Host = 12;
/// The number of machines for homes that are not in a node.
pub(super) const HOMES_MAX: Host = 6;
pub(super) const LEDGERS: Host = 20;
pub(super) const STORE: Host = 24;
pub(super) const HOSTS: usize = 25;

/// A process that is or was the home of a shard, one for each epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct HomeProcess {
    pub(super) shard: ShardId,
    pub(super) epoch: Epoch,
}

/// Identifies a home's request for its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ticket(pub(super) u64);

/// A listing that a node asks a home for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ListId(pub(super) u32);

/// One home's part of a listing: the objects of its shard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ListPart {
    pub(super) present: Vec<Object>,
    /// The newest version of the listing, and what all its writers had seen.
    pub(super) seen: Token,
}

/// The content of a message on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Packet {
    ToHome {
        at: HomeProcess,
        request: Request<Object>,
        op: Option<Op>,
    },
    ToNode {
        reply: Reply<Object>,
        value: Option<Op>,
    },
    AskList {
        at: HomeProcess,
        from: Member,
        list: ListId,
        namespace: u8,
    },
    Listed {
        at: HomeProcess,
        to: Member,
        list: ListId,
        part: ListPart,
    },

    Dispatch {
        attempt: Author,
        dispatch: Dispatch,
    },
    Returned {
        attempt: Author,
    },
    Ended {
        attempt: Author,
        token: Token,
    },
    EndHeard {
        attempt: Author,
        to: Member,
    },
    Call {
        parent: Author,
        from: Member,
        place: u32,
        token: Token,
    },
    Answer {
        parent: Author,
        to: Member,
        place: u32,
        callee: Option<Author>,
        token: Token,
    },
    HandOver {
        put: Op,
        from: Member,
        namespace: u8,
        token: Token,
    },
    HandedOver {
        put: Op,
        to: Member,
    },

    ReadHome {
        at: HomeProcess,
        namespace: u8,
        term: u64,
    },
    HomeRead {
        namespace: u8,
        term: u64,
        shard: ShardId,
        newest: Version,
    },
    Fence {
        at: HomeProcess,
        member: Member,
    },
    Fenced {
        namespace: u8,
        shard: ShardId,
        member: Member,
        through: Version,
    },

    Append {
        at: HomeProcess,
        place: usize,
        asked: Turn,
    },
    Appended {
        at: HomeProcess,
        append: AppendId,
        version: Option<Version>,
    },
    Trim {
        at: HomeProcess,
        stored: Vec<Version>,
        settled: Vec<Version>,
    },
    Trimmed {
        at: HomeProcess,
        stored: Vec<Version>,
        settled: Vec<Version>,
    },
    /// Asks whether the home's epoch is valid.
    Stand {
        at: HomeProcess,
        ticket: Ticket,
    },
    Stands {
        at: HomeProcess,
        ticket: Ticket,
    },
    /// The sender is a former home: another home has the shard.
    Deposed {
        at: HomeProcess,
    },
    AskStore {
        at: HomeProcess,
        ticket: Ticket,
        call: StoreCall,
    },
    StoreSays {
        at: HomeProcess,
        ticket: Ticket,
        answer: StoreAnswer,
    },
}

impl Packet {
    /// True if the network may duplicate the message. A request to a store belongs to one connection: it arrives once or never.
    pub(super) const fn may_be_doubled(&self) -> bool {
        !matches!(self, Self::AskStore { .. } | Self::StoreSays { .. })
    }
}

/// An event without a message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Event {
    Arrive(Host, Packet),
    TickNode(Member),
    TickSeat(HomeProcess),
    TickScheduler(u8, u64),
    /// A client begins its next operation.
    Act(u8),
    /// An attempt of an invocation continues.
    Step(Author, Member),
    Strike(usize),
    Relieve(usize),
    Join(u8),
    /// The engine finds that a shard needs another home.
    FailOver(ShardId),
    /// A home that has taken its epoch begins.
    Seat(HomeProcess, Host),
    /// A node learns which home a shard has.
    MapNews(u8, ShardId),
    /// The engine reports an incarnation as lost.
    Lost(Member),
    Sync(ShardId),
    /// The ledger executes a request to append that it has had for a while.
    Append(HomeProcess, usize, Turn),
    /// The ledger answers an append that it executed a while ago.
    Answer(HomeProcess, Packet),
    /// The store executes a write that it has not answered.
    Land(StoreCall),
    /// A node is notified of an outside write.
    Notice(u8, Object, Op),
    /// The final reads begin.
    Verify,
}

/// Who waits for a request of a node's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requester {
    Attempt(Author),
    Client(u8, Author),
    /// The node, which was notified of an outside write.
    Notice,
}

/// A put of a node that is not acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writer {
    pub(super) who: Requester,
    pub(super) object: Object,
    pub(super) op: Op,
    pub(super) delete: bool,
}

/// A read of a node that is not answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader {
    pub(super) request: RequestId,
    pub(super) who: Requester,
}
