//! What a home is told, what it wants done, and its limits.

use std::sync::Arc;
use std::time::Duration;

use nigh_terms::{Epoch, ShardId, Token, Version};

use super::super::message::{Member, Reply, Request, RequestId, Write};

/// The limits of a home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HomeLimits {
    /// An invalidation that was not acknowledged for so long is sent again.
    pub resend: Duration,
    /// An incarnation that acknowledges nothing for so long is declared dead.
    pub give_up: Duration,
    /// An incarnation that owes so many acknowledgements is declared dead.
    pub owed_max: usize,
    /// So many puts of one incarnation are remembered, to recognise one that is sent again; further ones are dropped
    /// until the node has settled some.
    pub puts_max: usize,
    /// So many fetches wait for one object of the store; further ones are dropped, and their nodes send them again.
    pub loads_max: usize,
    /// With more entries in its directory, the home asks the shell to have some forgotten.
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

/// What a home has the ledger keep.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LedgerRecord<O> {
    /// A write. Its record may be trimmed when the store has the write and `Settled` was said of it.
    Write {
        /// The object.
        object: O,
        /// What happens to it.
        write: Write,
        /// What the writer had seen.
        token: Arc<Token>,
        /// Who wrote.
        writer: Member,
        /// By which request.
        request: RequestId,
    },
    /// This incarnation and those before it can no longer write.
    Fence {
        /// The last of them.
        member: Member,
    },
}

/// A record found in the ledger by a new home.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReplayedRecord<O> {
    /// Its place.
    pub version: Version,
    /// What it says.
    pub record: LedgerRecord<O>,
}

/// What a new home begins with, after it has taken its epoch in the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Takeover<O> {
    /// The shard.
    pub shard: ShardId,
    /// The epoch that the ledger granted.
    pub epoch: Epoch,
    /// What the ledger still has of it, in order.
    pub records: Vec<ReplayedRecord<O>>,
    /// The current sequences of all other shards: what forgotten writers can have seen.
    pub summary: Token,
    /// The node in whose process the home is, if it is one's. Between the two nothing is lost or doubled. It is told
    /// of every write that is not its own, so that the directory has no entry for what nobody else has.
    pub resident: Option<Member>,
}

/// What happens to a home.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HomeInput<O> {
    /// A node's message.
    Request(Request<O>),
    /// The answer to `Load`.
    Loaded {
        /// The object.
        object: O,
        /// The store has none.
        absent: bool,
    },
    /// `Load` has failed: nobody is answered, and a node that still wants the object asks again.
    NotLoaded(O),
    /// The ledger holds a record durably. The shell says so in the order of the versions.
    Appended {
        /// The asking.
        append: AppendId,
        /// The record's place.
        version: Version,
    },
    /// The ledger has not taken a record, and never will.
    NotAppended {
        /// The asking.
        append: AppendId,
    },
    /// The ledger has a higher epoch: this is a former home.
    Deposed,
    /// An incarnation is declared dead.
    GiveUp(Member),
    /// As `GiveUp`, durably, so that the node's invocations may be declared ended: answered by `Fenced`.
    Fence(Member),
    /// The store holds the object's `version`.
    Pushed {
        /// The object.
        object: O,
        /// What was pushed.
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
    /// Send this.
    Send(Reply<O>),
    /// Append this, under the home's epoch; answer by `Appended`, `NotAppended` or `Deposed`.
    Append {
        /// To be answered with.
        append: AppendId,
        /// What.
        record: LedgerRecord<O>,
    },
    /// Look an object up in the store; answer by `Loaded`.
    Load(O),
    /// The incarnation is fenced: every put of it that has happened is at most `through`.
    Fenced {
        /// Which.
        member: Member,
        /// The home's newest version then.
        through: Version,
    },
    /// The ledger could not keep a fence; ask again.
    NotFenced(Member),
    /// The home has declared the incarnation dead, for it was silent or owed too much; membership is to know.
    GaveUp(Member),
    /// Nobody sends the write of this version again.
    Settled(Version),
    /// The directory is over its limit: have entries forgotten.
    Crowded,
    /// This is a former home: it answers nothing from now on.
    Retired,
}
