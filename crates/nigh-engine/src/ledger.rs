//! The ledger: the order of writes to a shard, and where an acknowledged write is durable first.
//!
//! A write is a record; a body that is large goes ahead of it in pieces, and is there only once a record names them. So
//! one durable record is the commit, and the proof that a request was carried out. What a writer knows of an object
//! (`about`) is its own: a ledger keeps it and never reads it. Nothing here is decided by a read.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use nigh_terms::{BucketName, Epoch, Namespace, ObjectKey, Sequence, ShardId, Version};
use thiserror::Error;

/// The longest body that goes inline in its record, bytes; a longer one is staged in pieces.
pub const INLINE_MAX_BYTES: usize = 64 << 10;
/// The longest piece of a body, bytes.
pub const PIECE_MAX_BYTES: usize = 1 << 20;
/// The most pieces that one record names.
pub const PIECES_MAX: usize = 4096;
/// The longest `about` of a change, bytes.
pub const ABOUT_MAX_BYTES: usize = 64 << 10;

/// Names one request to write, whoever repeats it: the same id on the same object is the same write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u128);

/// What a write does to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It has new bytes, the record's body.
    Put {
        /// The writer's own encoding of what it knows of the object.
        about: Bytes,
    },
    /// It is gone.
    Delete {
        /// As above.
        about: Bytes,
    },
    /// Its bytes stay, what is known of them changes.
    Amend {
        /// As above.
        about: Bytes,
    },
    /// No object's: a member of the cluster writes no more.
    Fence {
        /// As above.
        about: Bytes,
    },
    /// No object's: a part of a transaction over several; the record's body is what that writes.
    Transaction {
        /// As above.
        about: Bytes,
    },
}

impl Change {
    /// The writer's own encoding.
    #[must_use]
    pub const fn about(&self) -> &Bytes {
        match self {
            Self::Put { about }
            | Self::Delete { about }
            | Self::Amend { about }
            | Self::Fence { about }
            | Self::Transaction { about } => about,
        }
    }
}

/// One write, as the ledger orders it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The request that asks for it.
    pub request: RequestId,
    /// The tenant.
    pub namespace: Namespace,
    /// The bucket.
    pub bucket: BucketName,
    /// The key.
    pub key: ObjectKey,
    /// What happens to it.
    pub change: Change,
}

/// Names a piece in its ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PieceId(pub u64);

/// Gives the room of a piece free that no record came to name.
pub trait StagedRoom: Send + Sync {
    /// Nobody will name `piece`.
    fn release(&self, piece: PieceId);
}

/// A piece of a body in a ledger that no record names yet. Dropped so, its room is free again.
pub struct StagedPiece {
    piece: PieceId,
    bytes: u32,
    crc: u32,
    room: Option<Arc<dyn StagedRoom>>,
}

impl StagedPiece {
    /// A piece of so many bytes with this CRC-32C, whose room is `room`'s.
    #[must_use]
    pub fn new(piece: PieceId, bytes: u32, crc: u32, room: Arc<dyn StagedRoom>) -> Self {
        Self { piece, bytes, crc, room: Some(room) }
    }

    /// Its name.
    #[must_use]
    pub const fn piece(&self) -> PieceId {
        self.piece
    }

    /// Its length, bytes.
    #[must_use]
    pub const fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Its CRC-32C.
    #[must_use]
    pub const fn crc(&self) -> u32 {
        self.crc
    }

    /// A record names it now: its room goes with that.
    pub fn named(mut self) {
        self.room = None;
    }
}

impl fmt::Debug for StagedPiece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Staged({}, {} bytes)", self.piece.0, self.bytes)
    }
}

impl Drop for StagedPiece {
    fn drop(&mut self) {
        if let Some(room) = self.room.take() {
            room.release(self.piece);
        }
    }
}

/// The bytes of a record.
#[derive(Debug)]
pub enum Body {
    /// In the record itself, at most [`INLINE_MAX_BYTES`]; empty for a change that has none.
    Inline(Bytes),
    /// In pieces staged before, in their order.
    Staged(Vec<StagedPiece>),
}

/// Where a record came to stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendResult {
    /// Its place in the order.
    pub version: Version,
    /// True if its request was carried out before: this is the answer of then, and nothing was written now.
    pub repeated: bool,
}

/// Why a ledger refuses.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LedgerError {
    /// Another home has taken the shard.
    #[error("shard {shard} is fenced: epoch {held} was replaced; the request must go to the new home")]
    Fenced {
        /// The shard.
        shard: ShardId,
        /// The epoch this home held.
        held: Epoch,
    },
    /// The ledger, or the disk below it, has no room until the store has taken what waits.
    #[error("the ledger is full; write again later")]
    Full,
    /// The servers of the ledger do not answer; nothing was written.
    #[error("the ledger cannot be reached ({0}); write again later")]
    Unavailable(String),
    /// A version was given for the write, and the write is not there.
    #[error("the ledger did not take the write ({0}); write again later")]
    NotKept(String),
    /// More than a record holds.
    #[error("{what} of {bytes} bytes is more than the ledger takes ({limit}); write it through to the store")]
    TooLarge {
        /// What is too long.
        what: &'static str,
        /// How long it is.
        bytes: u64,
        /// How long it may be.
        limit: u64,
    },
    /// A piece that this ledger does not hold.
    #[error("piece {0} was not staged in this ledger, or a record names it already")]
    UnknownPiece(u64),
    /// No record of that version, or not any more.
    #[error("the ledger holds no record of version {0}")]
    Unknown(Version),
    /// What is on the medium is not what was written.
    #[error(
        "the ledger's record of version {version} is damaged in {file} at {offset}; `nigh journal verify` lists all"
    )]
    Damaged {
        /// The record.
        version: Version,
        /// The file.
        file: String,
        /// Where the record or its piece begins.
        offset: u64,
    },
    /// A write or a sync failed: what the medium holds is not known before it is read again.
    #[error("the ledger takes nothing since {0}; restart the node")]
    Failed(String),
    /// This ledger orders writes and keeps none.
    #[error("this ledger keeps nothing; the store makes each write durable")]
    KeepsNothing,
}

/// Refuses `what` if it is longer than `limit`.
pub(crate) fn at_most(what: &'static str, bytes: usize, limit: usize) -> Result<(), LedgerError> {
    let (bytes, limit) = (bytes as u64, limit as u64);
    if bytes > limit { Err(LedgerError::TooLarge { what, bytes, limit }) } else { Ok(()) }
}

impl LedgerError {
    /// Whether an append that was refused so may have taken a version, which nobody will tell.
    #[must_use]
    pub const fn may_have_taken_a_version(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Fenced { .. } | Self::NotKept(_))
    }
}

/// The order of writes.
///
/// Versions are dense: under one epoch the sequences that `place` and `append` give are 1, 2, 3, of all shards together
/// where one epoch is of all shards, else of each. One that `append` has taken and not told is lost with an error that
/// [`may_have_taken_a_version`](LedgerError::may_have_taken_a_version), or with the future that was dropped.
#[async_trait]
pub trait Ledger: Send + Sync {
    /// The epoch under which this home appends to `shard`.
    fn epoch(&self, shard: ShardId) -> Epoch;

    /// Whether it takes records of `shard`, as far as is known.
    ///
    /// # Errors
    /// [`LedgerError::Failed`] once a write or a sync has failed.
    fn check(&self, shard: ShardId) -> Result<(), LedgerError>;

    /// A place in the order for a write that the store itself makes durable: nothing is kept. Where the object had
    /// records before, these must be `stored`, and [`settle`](Self::settle) have returned, before the write is
    /// acknowledged: else a restart would push them again, over it. No home is fenced by it: where another may have taken
    /// the shard, `settle` says whether this one still has it.
    fn place(&self, shard: ShardId) -> Version;

    /// Puts a piece of a body on its way to the disk. It is there for readers and restarts only if a record names it.
    ///
    /// # Errors
    /// If there is no room, or the ledger takes nothing.
    async fn stage(&self, shard: ShardId, piece: Bytes) -> Result<StagedPiece, LedgerError>;

    /// Gives `record` the next version of `shard`; durable with its whole body when it returns. A request that was
    /// carried out before gets its answer of then.
    ///
    /// # Errors
    /// If there is no room, or the ledger takes nothing. After [`LedgerError::Failed`] and [`LedgerError::Fenced`] the
    /// record may be there for the next start, or home, or not.
    async fn append(&self, shard: ShardId, record: Record, body: Body) -> Result<AppendResult, LedgerError>;

    /// The store holds `version` durably, or a newer one of its object: its record may go, and those of older versions
    /// of the same object with it. Kept lazily: after a crash such records may be given for recovery again, the older
    /// of an object never without the newer.
    ///
    /// # Errors
    /// If the ledger takes nothing.
    async fn stored(&self, shard: ShardId, version: Version) -> Result<(), LedgerError>;

    /// Returns when all that was told by `stored` is durable, and this home has the shard still.
    ///
    /// # Errors
    /// If the ledger takes nothing; if another home has the shard.
    async fn settle(&self, shard: ShardId) -> Result<(), LedgerError>;

    /// Returns when it is known that this home had `shard` after this was asked: what it has read since its last write there
    /// is no other reign's. Many who ask at once are answered at once.
    ///
    /// # Errors
    /// If another home has the shard, or the ledger cannot say.
    async fn confirm(&self, shard: ShardId) -> Result<(), LedgerError> {
        // Of a ledger that nobody else can take.
        self.check(shard)
    }

    /// The bytes of a record's body from `offset` to the end of the piece in which that lies, checked; empty at the end
    /// of the body. A whole body is read by asking on until then.
    ///
    /// # Errors
    /// If no such record is held, or what is held is damaged.
    async fn read(&self, shard: ShardId, version: Version, offset: u64) -> Result<Bytes, LedgerError>;
}

/// Orders writes and keeps none: each is in the store before it is acknowledged.
///
/// The epoch must be higher than in any earlier life; the node's incarnation is.
#[derive(Debug)]
pub struct WriteThrough {
    epoch: Epoch,
    last: AtomicU64,
}

impl WriteThrough {
    /// A ledger under `epoch`.
    #[must_use]
    pub const fn new(epoch: Epoch) -> Self {
        Self { epoch, last: AtomicU64::new(0) }
    }
}

#[async_trait]
impl Ledger for WriteThrough {
    fn epoch(&self, _shard: ShardId) -> Epoch {
        self.epoch
    }

    fn check(&self, _shard: ShardId) -> Result<(), LedgerError> {
        Ok(())
    }

    fn place(&self, _shard: ShardId) -> Version {
        // One counter for all shards: a version need only be total and increasing within each.
        let sequence = Sequence(self.last.fetch_add(1, Ordering::Relaxed) + 1);
        Version { epoch: self.epoch, sequence }
    }

    async fn stage(&self, _shard: ShardId, _piece: Bytes) -> Result<StagedPiece, LedgerError> {
        Err(LedgerError::KeepsNothing)
    }

    async fn append(&self, _shard: ShardId, _record: Record, _body: Body) -> Result<AppendResult, LedgerError> {
        Err(LedgerError::KeepsNothing)
    }

    async fn stored(&self, _shard: ShardId, _version: Version) -> Result<(), LedgerError> {
        Ok(())
    }

    async fn settle(&self, _shard: ShardId) -> Result<(), LedgerError> {
        Ok(())
    }

    async fn read(&self, _shard: ShardId, version: Version, _offset: u64) -> Result<Bytes, LedgerError> {
        Err(LedgerError::Unknown(version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_grow_within_an_epoch_and_over_epochs() {
        let mut last = Version::OUTSIDE;
        for epoch in 1..3 {
            let ledger = WriteThrough::new(Epoch(epoch));
            for _ in 0..3 {
                let version = ledger.place(ShardId(0));
                assert!(version > last);
                last = version;
            }
        }
    }
}
