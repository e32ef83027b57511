//! The ledger: the order of writes to a shard, and the first place where an acknowledged write is durable.
//!
//! A write is a record. A large body is staged before it in pieces, which count only once a record names them. So one
//! durable record is the commit, and the proof that a request was carried out. A ledger stores the writer's data on an
//! object (`about`) and never reads it. No read decides anything here.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use nigh_terms::{BucketName, Epoch, Namespace, ObjectKey, Sequence, ShardId, Version};
use thiserror::Error;

/// The most bytes of a body within its record; a longer one is staged in pieces.
pub const INLINE_MAX_BYTES: usize = 64 << 10;
/// The most bytes of a piece of a body.
pub const PIECE_MAX_BYTES: usize = 1 << 20;
/// The most pieces that one record names.
pub const PIECES_MAX: usize = 4096;
/// The most bytes of the `about` of a change.
pub const ABOUT_MAX_BYTES: usize = 64 << 10;

/// The identifier of a write request: the same id on the same object is the same write, even from another sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u128);

/// What a write does to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The object gets new bytes: the record's body.
    Put {
        /// The writer's own data about the object.
        about: Bytes,
    },
    /// The object is deleted.
    Delete {
        /// The writer's own data about the deletion.
        about: Bytes,
    },
    /// The object's bytes stay, and the data about it changes.
    Amend {
        /// The writer's own data about the object.
        about: Bytes,
    },
    /// A fence, which is no object's: a member of the cluster writes no more.
    Fence {
        /// The writer's own data about the fence.
        about: Bytes,
    },
    /// A part of a transaction over several objects; the record's body is what the transaction writes.
    Transaction {
        /// The writer's own data about the transaction.
        about: Bytes,
    },
}

impl Change {
    /// The writer's own data about the change.
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
    /// The request of the writer.
    pub request: RequestId,
    /// The object's namespace.
    pub namespace: Namespace,
    /// The object's bucket.
    pub bucket: BucketName,
    /// The object's key.
    pub key: ObjectKey,
    /// The change.
    pub change: Change,
}

/// The identifier of a piece in its ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PieceId(pub u64);

/// Frees the room of a piece that no record names.
pub trait StagedRoom: Send + Sync {
    /// Frees the room of `piece`, which no record will name.
    fn release(&self, piece: PieceId);
}

/// A piece of a body that no record names yet. Dropping it frees its room.
pub struct StagedPiece {
    piece: PieceId,
    bytes: u32,
    crc: u32,
    room: Option<Arc<dyn StagedRoom>>,
}

impl StagedPiece {
    /// A piece of `bytes` bytes with this CRC-32C, whose room `room` frees.
    #[must_use]
    pub fn new(piece: PieceId, bytes: u32, crc: u32, room: Arc<dyn StagedRoom>) -> Self {
        Self { piece, bytes, crc, room: Some(room) }
    }

    /// The piece's id.
    #[must_use]
    pub const fn piece(&self) -> PieceId {
        self.piece
    }

    /// The piece's length in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u32 {
        self.bytes
    }

    /// The piece's CRC-32C.
    #[must_use]
    pub const fn crc(&self) -> u32 {
        self.crc
    }

    /// Whether `room` staged it. Identifiers of pieces begin anew whenever a shard is taken.
    #[must_use]
    pub fn is_of<R: StagedRoom>(&self, room: &R) -> bool {
        self.room.as_ref().is_some_and(|own| std::ptr::addr_eq(Arc::as_ptr(own), std::ptr::from_ref(room)))
    }

    /// Marks that a record names the piece: its room is freed with the record.
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
    /// In the record itself, at most [`INLINE_MAX_BYTES`]; empty for a change without a body.
    Inline(Bytes),
    /// In pieces that were staged before, in this order.
    Staged(Vec<StagedPiece>),
}

/// The outcome of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendResult {
    /// The version of the write.
    pub version: Version,
    /// True if the request was carried out before: this is its first outcome, and nothing was written now.
    pub repeated: bool,
}

/// Why a ledger refuses a request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LedgerError {
    /// Another home has taken the shard.
    #[error("shard {shard} is fenced: epoch {held} was replaced; the request must go to the new home")]
    Fenced {
        /// The id of the shard.
        shard: ShardId,
        /// The epoch of this home.
        held: Epoch,
    },
    /// The ledger or its disk has no room until the store has more of its writes.
    #[error("the ledger is full: its writes are not in the store yet; write again later")]
    Full,
    /// The servers of the ledger did not answer; nothing was written.
    #[error("the ledger cannot be reached ({0}); write again later")]
    Unavailable(String),
    /// The write got a version, but is not in the ledger.
    #[error("the ledger did not take the write ({0}); write again later")]
    NotKept(String),
    /// A part of the record is too long.
    #[error("{what} of {bytes} bytes is too long for the ledger (limit {limit}); write it through to the store")]
    TooLarge {
        /// The name of the part.
        what: &'static str,
        /// The part's length in bytes.
        bytes: u64,
        /// The most bytes allowed.
        limit: u64,
    },
    /// The ledger has no such piece without a record.
    #[error("piece {0} was not staged in this ledger, or a record names it already")]
    UnknownPiece(u64),
    /// The ledger has no record of that version, or no longer has it.
    #[error("the ledger has no record of version {0}")]
    Unknown(Version),
    /// The record on the disk differs from what was written.
    #[error(
        "the ledger's record of version {version} is damaged in {file} at {offset}; `nigh journal verify` lists all"
    )]
    Damaged {
        /// The version of the record.
        version: Version,
        /// The name of the file.
        file: String,
        /// The offset of the record, or of its piece, in the file.
        offset: u64,
    },
    /// A write or a sync failed: the content of the disk is unknown until it is read again.
    #[error("the ledger accepts no more writes after a failure: {0}; restart the node")]
    Failed(String),
    /// The ledger orders writes and stores no bytes.
    #[error("this ledger stores nothing; the store makes each write durable")]
    KeepsNothing,
}

/// Rejects `what` if it is longer than `limit`.
pub(crate) fn at_most(what: &'static str, bytes: usize, limit: usize) -> Result<(), LedgerError> {
    let (bytes, limit) = (bytes as u64, limit as u64);
    if bytes > limit { Err(LedgerError::TooLarge { what, bytes, limit }) } else { Ok(()) }
}

impl LedgerError {
    /// True if an append that failed with this error may have used up a version.
    #[must_use]
    pub const fn may_have_taken_a_version(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Fenced { .. } | Self::NotKept(_))
    }
}

/// The order of writes.
///
/// Versions are dense: under one epoch `place` and `append` assign the sequences 1, 2, 3, ..., for each shard, or for
/// all shards together if they share the epoch. A sequence that `append` assigned and did not return is lost, after an
/// error with [`may_have_taken_a_version`](LedgerError::may_have_taken_a_version) or when its future is dropped.
#[async_trait]
pub trait Ledger: Send + Sync {
    /// The epoch under which this home appends to `shard`.
    fn epoch(&self, shard: ShardId) -> Epoch;

    /// Checks that the ledger accepts records of `shard`, as far as is known.
    ///
    /// # Errors
    /// [`LedgerError::Failed`] once a write or a sync has failed.
    fn check(&self, shard: ShardId) -> Result<(), LedgerError>;

    /// Assigns a version to a write that the store itself makes durable; stores nothing. If the object has older
    /// records, call `stored` for them and await [`settle`](Self::settle) before acknowledging the write; otherwise a
    /// restart would push them over it. This does not check that the home still has the shard; `settle` does.
    fn place(&self, shard: ShardId) -> Version;

    /// Stages a piece of a body. Readers and restarts find it only if a record names it.
    ///
    /// # Errors
    /// If there is no room, or the ledger accepts no writes.
    async fn stage(&self, shard: ShardId, piece: Bytes) -> Result<StagedPiece, LedgerError>;

    /// Appends `record` with the next version of `shard`; it is durable with its whole body when this returns. A request
    /// that was carried out before gets its first outcome.
    ///
    /// # Errors
    /// If there is no room, or the ledger accepts no writes. After [`LedgerError::Failed`] and [`LedgerError::Fenced`] the
    /// outcome is unknown: the next start, or home, may find the record.
    async fn append(&self, shard: ShardId, record: Record, body: Body) -> Result<AppendResult, LedgerError>;

    /// As [`append`](Self::append), for the home that began under `epoch`. This process may have taken the shard again since
    /// that home asked; the home of now does not know the write.
    ///
    /// # Errors
    /// [`LedgerError::Fenced`] if the ledger appends under another epoch; then nothing was appended. Else as `append`.
    async fn append_under(
        &self,
        shard: ShardId,
        epoch: Epoch,
        record: Record,
        body: Body,
    ) -> Result<AppendResult, LedgerError> {
        // A local ledger has one epoch as long as it is open.
        if self.epoch(shard) != epoch {
            return Err(LedgerError::Fenced { shard, held: epoch });
        }
        self.append(shard, record, body).await
    }

    /// Tells the ledger that the store has `version`, or a newer one of its object: its record, and those of older
    /// versions of the object, may be trimmed. This becomes durable later: after a crash, recovery may return such
    /// records again, but never an older one of an object without the newer.
    ///
    /// # Errors
    /// If the ledger accepts no writes.
    async fn stored(&self, shard: ShardId, version: Version) -> Result<(), LedgerError>;

    /// Returns when all calls of `stored` are durable and this home still has the shard.
    ///
    /// # Errors
    /// If the ledger accepts no writes, or another home has the shard.
    async fn settle(&self, shard: ShardId) -> Result<(), LedgerError>;

    /// Returns when it is certain that this home had `shard` after the call: no other epoch has written since this home's
    /// last write. Concurrent calls share one check.
    ///
    /// # Errors
    /// If another home has the shard, or the ledger does not know.
    async fn confirm(&self, shard: ShardId) -> Result<(), LedgerError> {
        // Nobody else can take the shards of a local ledger.
        self.check(shard)
    }

    /// The verified bytes of a record's body from `offset` to the end of the piece there; empty at the end of the body.
    ///
    /// # Errors
    /// If the ledger has no such record, or the record is damaged.
    async fn read(&self, shard: ShardId, version: Version, offset: u64) -> Result<Bytes, LedgerError>;
}

/// Orders writes and stores none: each write is in the store before it is acknowledged.
///
/// The epoch must be higher than in any earlier incarnation; the node's incarnation number is.
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
