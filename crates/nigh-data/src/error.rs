//! Why the object memory refuses; each maps to one error of the S3 API.

use nigh_engine::LedgerError;
use nigh_terms::{BucketName, ObjectKey, Timestamp};
use thiserror::Error;

use crate::{ETag, UploadId};

/// Why a request on objects fails.
#[derive(Clone, Debug, Error)]
#[expect(missing_docs, reason = "each message says what the fields hold")]
pub enum ObjectError {
    #[error("the bucket {0} does not exist")]
    NoSuchBucket(BucketName),
    #[error("the bucket {0} exists already and is yours")]
    BucketAlreadyOwnedByYou(BucketName),
    #[error("the bucket {0} is not empty; delete its objects first")]
    BucketNotEmpty(BucketName),
    #[error("the key {0} does not exist")]
    NoSuchKey(ObjectKey),
    #[error("the ephemeral object {0} is lost: its memory was needed, or its node ended; run again what made it")]
    EphemeralLost(ObjectKey),
    #[error("the last acknowledged write of {0} is damaged in the journal; write or delete it anew")]
    Damaged(ObjectKey),
    #[error("the upload {} does not exist; it may have been completed or aborted", .0.0)]
    NoSuchUpload(UploadId),
    #[error("a condition does not hold: {0}")]
    PreconditionFailed(&'static str),
    #[error("not modified")]
    NotModified { etag: ETag, modified: Timestamp },
    #[error("a write to the same key is under way; try again")]
    ConditionalRequestConflict,
    #[error("the range is not satisfiable: the object has {size} bytes")]
    InvalidRange { size: u64 },
    #[error("the object has no part {0}")]
    InvalidPartNumber(u32),
    #[error("the {claim} given does not match the bytes received")]
    BadDigest { claim: &'static str },
    #[error("{expected} bytes were announced, {received} came")]
    IncompleteBody { expected: u64, received: u64 },
    #[error("the body broke off: {0}")]
    Body(String),
    #[error("the object would have more than the {limit} bytes allowed")]
    EntityTooLarge { limit: u64 },
    #[error("part {part} has {size} bytes; all but the last need at least 5 MiB")]
    EntityTooSmall { part: u32, size: u64 },
    #[error("part {0} was not uploaded, or has another entity tag or checksum")]
    InvalidPart(u32),
    #[error("the parts are not in ascending order")]
    InvalidPartOrder,
    #[error("{0}")]
    InvalidArgument(String),
    #[error("{0}")]
    InvalidRequest(String),
    #[error("{0}")]
    InvalidTag(String),
    #[error("user metadata has more than 2 KiB")]
    MetadataTooLarge,
    #[error("changed since the transaction has seen it: {}; begin it again", .0.join(", "))]
    TransactionConflict(Vec<String>),
    #[error(
        "there is no transaction {0} here: it has ended, its time was over, or its node was started again; begin it again"
    )]
    NoSuchTransaction(String),
    #[error("the transaction {transaction} is kept by node {node}; send its requests there")]
    TransactionElsewhere { transaction: String, node: u32 },
    #[error(
        "whether the transaction is committed is not known yet; it takes place whole or not at all: commit it again to hear"
    )]
    TransactionUndecided,
    #[error("busy: {0}; try again later")]
    SlowDown(&'static str),
    #[error("busy: {0}; try again later")]
    Busy(String),
    #[error("the object's home: {0}")]
    AtHome(String),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("store {store}: {operation}: {reason}")]
    Store { store: &'static str, operation: &'static str, reason: String },
    #[error("store {store}: {operation}: it was not reached, and nothing happened there: {reason}")]
    StoreUnreached { store: &'static str, operation: &'static str, reason: String },
    #[error("store {store}: {operation}: no answer, and whether it happened is not known: {reason}")]
    StoreSilent { store: &'static str, operation: &'static str, reason: String },
    #[error("whether the write took place is not known: {0}; read the object, then write again")]
    OutcomeUnknown(&'static str),
    #[error("memory: {operation}: {reason}")]
    Memory { operation: &'static str, reason: String },
}

impl ObjectError {
    /// Whether the outcome of a write with this error is unknown: it may have taken place, or may yet.
    #[must_use]
    pub const fn is_in_doubt(&self) -> bool {
        matches!(
            self,
            Self::Store { .. }
                | Self::StoreSilent { .. }
                | Self::OutcomeUnknown(_)
                | Self::Memory { .. }
                | Self::AtHome(_)
        )
    }
}
