//! The inputs, outputs and limits of a home.

use std::sync::Arc;
use std::time::Duration;

use nigh_terms::{Epoch, ShardId, Token, Version};

use super::super::message::{Member, Reply, Request, RequestId, Write};

/// The limits of a home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HomeLimits {
    /// An invalidation without an acknowledgement for this long is sent again, then ever more rarely.
    pub resend: Duration,
    /// An incarnation that acknowledges nothing for this long is declared dead.
    pub give_up: Duration,
    /// An incarnation with this many unacknowledged invalidations is declared dead.
    pub owed_max: usize,
    /// The most puts of one incarnation that are remembered, to recognise a put that is sent again. Further ones are
    /// dropped until the node has settled some.
    pub puts_max: usize,
    /// The most fetches that wait for the store's answer about one object. Further ones are dropped, and their nodes
    /// send them again.
    pub loads_max: usize,
    /// With more entries in its directory, the home outputs `Crowded`.
    pub directory_max: usize,
}

impl Default for HomeLimits {
    fn default() -> Self {
        Self {
            resend: Duration::from_millis(20),
            give_up: Duration::from_secs(10),
            owed_max: 65_536,
            puts_max: 4096,
            loads_max: 4096,
            directory_max: 16_000_000,
        }
    }
}

/// Names one request to the ledger. It has the home's epoch: a late answer to a request of an earlier home in the same
/// process names none of this home's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AppendId {
    /// Of the home that asks.
    pub epoch: Epoch,
    /// Which request of that home.
    pub number: u64,
}

/// A record that a home appends to the ledger.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LedgerRecord<O> {
    /// A write. Its record may be trimmed when the store has the write and the home has output `Settled` for it.
    Write {
        /// The object.
        object: O,
        /// What happens to the object.
        write: Write,
        /// What the writer had seen.
        token: Arc<Token>,
        /// The incarnation that wrote.
        writer: Member,
        /// The writer's request.
        request: RequestId,
    },
    /// `member` and its earlier incarnations can no longer write.
    Fence {
        /// The last fenced incarnation.
        member: Member,
    },
}

/// A record found in the ledger by a new home.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReplayedRecord<O> {
    /// The version that the ledger gave it.
    pub version: Version,
    /// The record.
    pub record: LedgerRecord<O>,
}

/// What a new home begins with when it has taken its epoch in the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Takeover<O> {
    /// The id of the shard.
    pub shard: ShardId,
    /// The epoch that the ledger granted.
    pub epoch: Epoch,
    /// The shard's records that the ledger still has, in order.
    pub records: Vec<ReplayedRecord<O>>,
    /// The current sequences of all other shards: the most that writers of trimmed records can have seen.
    pub summary: Token,
    /// The node in whose process the home is, if any. No message between the two is lost or doubled. The local node is
    /// told of every write by others, so the directory needs no entry for objects that only it may have.
    pub resident: Option<Member>,
}

/// What a home takes in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HomeInput<O> {
    /// A node's message.
    Request(Request<O>),
    /// The answer to `HomeOutput::Load`.
    Loaded {
        /// The object.
        object: O,
        /// The store has no such object.
        absent: bool,
    },
    /// `Load` has failed. Nobody is answered; a node that still wants the object asks again.
    NotLoaded(O),
    /// The ledger has the record durably. The shell reports records in the order of their versions.
    Appended {
        /// The id of the append.
        append: AppendId,
        /// The record's version.
        version: Version,
    },
    /// The ledger has not appended the record, and never will.
    NotAppended {
        /// The id of the append.
        append: AppendId,
    },
    /// The ledger has a higher epoch, so this is a former home.
    Deposed,
    /// Declare an incarnation dead.
    GiveUp(Member),
    /// Declare an incarnation dead and write a durable fence, so that the node's invocations may be declared ended.
    /// Answered by `Fenced`.
    Fence(Member),
    /// The store has the object's `version`.
    Pushed {
        /// The object.
        object: O,
        /// The version that the store has.
        version: Version,
    },
    /// Drop the entry of this object, if the store has its newest version.
    Forget(O),
    /// Time has passed.
    Tick,
}

/// What a home wants done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HomeOutput<O> {
    /// Send this message.
    Send(Reply<O>),
    /// Append this record under the home's epoch. Answer by `Appended`, `NotAppended` or `Deposed`.
    Append {
        /// The name to answer with.
        append: AppendId,
        /// The record to append.
        record: LedgerRecord<O>,
    },
    /// Look the object up in the store. Answer by `Loaded` or `NotLoaded`.
    Load(O),
    /// The incarnation is fenced: each of its puts that has happened has a version of at most `through`.
    Fenced {
        /// The fenced incarnation.
        member: Member,
        /// The home's newest version at the fence.
        through: Version,
    },
    /// The ledger could not store the fence; ask again.
    NotFenced(Member),
    /// The home has declared the incarnation dead, because it was silent or owed too many acknowledgements. Tell
    /// membership.
    GaveUp(Member),
    /// Nobody sends the write of this version again.
    Settled(Version),
    /// The directory is over its limit: have entries forgotten by `Forget`.
    Crowded,
    /// This is a former home: it answers nothing any more.
    Retired,
}
