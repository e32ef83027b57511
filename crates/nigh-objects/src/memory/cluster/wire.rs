//! Messages between nodes and homes of different processes: the heads of their calls and answers. Pure.
//!
//! The format is MessagePack with field names, so that a later build may add fields; `FORMAT` changes if an older build
//! would misread it. The bytes of objects are bodies, after the heads.

use std::collections::BTreeSet;

use nigh_data::{ByteRange, ETag, ListedObject, ObjectError, ObjectId, ObjectMeta, RangeSpec, Tags, WriteConditions};
use nigh_engine::LedgerError;
use nigh_protocol::{Member, Outcome, Reply, Request, Ticket, TransactionId};
use nigh_rpc::{BODY_MAX_BYTES, Method};
use nigh_terms::{BucketName, Namespace, ObjectKey, Principal, ShardId, Token, Version};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::memory::draft::PutHead;
use crate::memory::outside::{OutsideAnswer, OutsideReport};
use crate::memory::transactions::{PrepareOutcome, TRANSACTION_BYTES_MAX, WrittenVersions};
use crate::transaction_part::{Part, decode_about, decode_body};

/// The format version of the heads.
const FORMAT: u8 = 1;
/// The longest head of a call.
const HEAD_MAX: u32 = 1 << 20;

const fn method(number: u16, name: &'static str, body_max: u64) -> Method {
    Method { number, name, head_max: HEAD_MAX, body_max }
}

/// A node fetches an object from its home. (The cluster members' own methods have the numbers below 16.)
pub(super) static FETCH: Method = method(16, "fetch", 0);
/// A node reads further bytes of an object whose version it knows.
pub(super) static PINNED: Method = method(17, "pinned", 0);
/// A node writes an object at its home.
pub(super) static WRITE: Method = method(18, "write", BODY_MAX_BYTES);
/// A node or a home sends letters, which need no answer.
pub(super) static POST: Method = method(19, "post", 0);
/// A node asks for a bucket's unpushed writes at homes, for a listing.
pub(super) static WAITING: Method = method(20, "waiting", 0);
/// A node asks for the newest versions of a process's homes.
pub(super) static NEWEST: Method = method(21, "newest", 0);
/// A home must fence a member.
pub(super) static FENCE: Method = method(22, "fence", 0);

/// A home must prepare a transaction; the body is the bytes of its writes there.
pub(super) static PREPARE: Method = method(23, "prepare", TRANSACTION_BYTES_MAX);
/// A home must decide a transaction.
pub(super) static DECIDE: Method = method(24, "decide", 0);
/// Tells or asks the outcome of a transaction.
pub(super) static OUTCOME: Method = method(25, "outcome", 0);
/// A node has dropped copies and asks a home which other node has them.
pub(super) static LET_GO: Method = method(26, "let_go", 0);
/// A home asks a holder for its copy of one version.
pub(super) static HELD: Method = method(27, "held", 0);
/// A node must fetch objects into its memory, unless that evicts hot ones; answered when it has.
pub(super) static BRING: Method = method(28, "bring", 0);
/// A node passes on to an object's home what the store reports of outside readers and writers.
pub(super) static OUTSIDE: Method = method(29, "outside", 0);

/// Every method.
pub(super) static METHODS: [&Method; 14] = [
    &FETCH, &PINNED, &WRITE, &POST, &WAITING, &NEWEST, &FENCE, &PREPARE, &DECIDE, &OUTCOME, &LET_GO, &HELD, &BRING,
    &OUTSIDE,
];

/// The part of an object that is wanted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Want {
    /// The whole object, to be cached, if it is not too large for that.
    Whole,
    /// Only the metadata.
    Known,
    /// These bytes, or all if none, to be passed on.
    Part(Option<RangeSpec>),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Fetch {
    pub(super) request: Request<ObjectId>,
    pub(super) want: Want,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FetchReply {
    pub(super) reply: Reply<ObjectId>,
    /// The metadata; none if there is no object.
    pub(super) meta: Option<ObjectMeta>,
    /// The range of the bytes that follow; none if only `meta` was wanted, or the object is too large.
    pub(super) range: Option<ByteRange>,
    /// True if the object is being written from outside: the node must not cache it.
    #[serde(default)]
    pub(super) uncached: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PinnedRequest {
    pub(super) object: ObjectId,
    pub(super) range: Option<ByteRange>,
    pub(super) etag: ETag,
}

/// What a write does to its object.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum WriteEffect {
    Put(Box<PutHead>),
    Gone {
        conditions: WriteConditions,
    },
    Tagged {
        tags: Tags,
    },
    /// An outside write has changed the object in the store.
    Outside,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Write {
    pub(super) request: Request<ObjectId>,
    /// Whose write it is; none if nobody asked for it.
    pub(super) who: Option<Principal>,
    /// The client's name for its request.
    pub(super) id: Option<u128>,
    pub(super) becomes: WriteEffect,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WriteReply {
    /// None if there is no answer now: the node asks again.
    pub(super) reply: Option<Reply<ObjectId>>,
    /// The error is why the write did not take place. If the write was made before, this is its version, and `reply`
    /// does not acknowledge it.
    pub(super) outcome: Result<Option<Version>, WireError>,
    /// The home's newest version. A refusal shows nothing newer.
    pub(super) newest: Version,
    /// True if the object is being written from outside: the writer's node must not cache it.
    #[serde(default)]
    pub(super) uncached: bool,
}

/// A message without an answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Letter {
    ToHome(ShardId, Request<ObjectId>),
    ToNode(Reply<ObjectId>),
    /// The node has become the holder of these objects.
    Holds(Vec<ObjectId>),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LetGo {
    pub(super) from: Member,
    pub(super) copies: Vec<(ObjectId, Version)>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HeldCopyRequest {
    pub(super) object: ObjectId,
    pub(super) version: Version,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Bring {
    pub(super) objects: Vec<ObjectId>,
}

/// A store's report, from the node that the store told.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct OutsideCall {
    pub(super) from: Member,
    pub(super) object: ObjectId,
    pub(super) report: OutsideReport,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct UnpushedRequest {
    pub(super) namespace: Namespace,
    pub(super) bucket: BucketName,
    pub(super) prefix: String,
    pub(super) after: Option<String>,
    pub(super) limit: usize,
}

/// A page of unpushed writes, in the order of keys: each is an object or a deletion.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WaitingPage {
    pub(super) entries: Vec<(ObjectKey, Option<ListedObject>)>,
    pub(super) more: bool,
    /// The homes that were asked, and their newest versions.
    pub(super) newest: Vec<(ShardId, Version)>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct NewestReply {
    pub(super) homes: Vec<(ShardId, Version)>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Fence {
    pub(super) shard: ShardId,
    pub(super) member: Member,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PrepareRequest {
    pub(super) shard: ShardId,
    pub(super) decider: ShardId,
    pub(super) part: Part,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Decide {
    pub(super) shard: ShardId,
    pub(super) transaction: TransactionId,
    pub(super) ticket: Ticket,
    pub(super) participants: BTreeSet<ShardId>,
}

/// The outcome of a transaction, if it is told; none if it is asked.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct OutcomeMessage {
    pub(super) shard: ShardId,
    pub(super) transaction: TransactionId,
    pub(super) outcome: Option<Outcome>,
}

/// A home's answer about the outcome of a transaction. With none, ask or tell it again.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum EndedAnswer {
    /// The outcome that was asked.
    Known(Option<Outcome>),
    /// The outcome that was told is applied for good, by these writes.
    Applied(Option<WrittenVersions>),
}

/// Why a home refuses, as far as the caller must know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum WireError {
    /// The home is not here, or not any more.
    Elsewhere,
    NoSuchBucket(BucketName),
    NoSuchKey(ObjectKey),
    EphemeralLost(ObjectKey),
    Damaged(ObjectKey),
    PreconditionFailed(String),
    Conflict,
    Undecided,
    InvalidRange(u64),
    InvalidPartNumber(u32),
    EntityTooLarge(u64),
    InvalidArgument(String),
    InvalidRequest(String),
    Busy(String),
    /// The store behind the home was not reached, and nothing happened there.
    StoreUnreached(String),
    /// The store behind the home gave no answer.
    StoreSilent(String),
    /// The home cannot tell whether the write takes place.
    OutcomeUnknown,
    Failed(String),
}

/// The names of the conditions in requests.
const CONDITIONS: [&str; 6] = [
    "If-Match",
    "If-None-Match",
    "If-Modified-Since",
    "If-Unmodified-Since",
    "x-amz-if-match-size",
    "x-amz-if-match-last-modified-time",
];

/// What a home does with its store for another node, as an error's operation.
const AT_HOME: &str = "serve another node";

impl From<ObjectError> for WireError {
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::NoSuchBucket(bucket) => Self::NoSuchBucket(bucket),
            ObjectError::NoSuchKey(key) => Self::NoSuchKey(key),
            ObjectError::EphemeralLost(key) => Self::EphemeralLost(key),
            ObjectError::Damaged(key) => Self::Damaged(key),
            ObjectError::PreconditionFailed(which) => Self::PreconditionFailed(which.to_owned()),
            ObjectError::ConditionalRequestConflict => Self::Conflict,
            ObjectError::TransactionUndecided => Self::Undecided,
            ObjectError::InvalidRange { size } => Self::InvalidRange(size),
            ObjectError::InvalidPartNumber(number) => Self::InvalidPartNumber(number),
            ObjectError::EntityTooLarge { limit } => Self::EntityTooLarge(limit),
            ObjectError::InvalidArgument(why) => Self::InvalidArgument(why),
            ObjectError::InvalidRequest(why) => Self::InvalidRequest(why),
            ObjectError::SlowDown(why) => Self::Busy(why.to_owned()),
            ObjectError::Busy(why) => Self::Busy(why),
            // What mends a home's journal is for the home's log; the caller asks again.
            ObjectError::Ledger(LedgerError::Failed(_) | LedgerError::Fenced { .. }) => {
                Self::Busy("the journal of the object's home gives no answer".to_owned())
            }
            ObjectError::Ledger(error) => Self::Busy(error.to_string()),
            ObjectError::StoreUnreached { .. } => Self::StoreUnreached(error.to_string()),
            ObjectError::StoreSilent { .. } => Self::StoreSilent(error.to_string()),
            ObjectError::OutcomeUnknown(_) => Self::OutcomeUnknown,
            other => Self::Failed(other.to_string()),
        }
    }
}

impl From<WireError> for ObjectError {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Elsewhere => Self::SlowDown("the home of the object is moving"),
            WireError::NoSuchBucket(bucket) => Self::NoSuchBucket(bucket),
            WireError::NoSuchKey(key) => Self::NoSuchKey(key),
            WireError::EphemeralLost(key) => Self::EphemeralLost(key),
            WireError::Damaged(key) => Self::Damaged(key),
            WireError::PreconditionFailed(which) => {
                let known = CONDITIONS.into_iter().find(|known| *known == which);
                Self::PreconditionFailed(known.unwrap_or("a condition of the request"))
            }
            WireError::Conflict => Self::ConditionalRequestConflict,
            WireError::Undecided => Self::TransactionUndecided,
            WireError::InvalidRange(size) => Self::InvalidRange { size },
            WireError::InvalidPartNumber(number) => Self::InvalidPartNumber(number),
            WireError::EntityTooLarge(limit) => Self::EntityTooLarge { limit },
            WireError::InvalidArgument(why) => Self::InvalidArgument(why),
            WireError::InvalidRequest(why) => Self::InvalidRequest(why),
            WireError::Busy(why) => Self::Busy(why),
            WireError::StoreUnreached(reason) => {
                Self::StoreUnreached { store: "of the object's home", operation: AT_HOME, reason }
            }
            WireError::StoreSilent(reason) => {
                Self::StoreSilent { store: "of the object's home", operation: AT_HOME, reason }
            }
            WireError::OutcomeUnknown => Self::OutcomeUnknown("the object's home could not tell"),
            WireError::Failed(why) => Self::AtHome(why),
        }
    }
}

/// Encodes a head.
///
/// # Errors
/// Why it cannot be encoded.
pub(super) fn encode(head: &impl Serialize) -> Result<Vec<u8>, String> {
    let mut bytes = vec![FORMAT];
    let written = rmp_serde::encode::write_named(&mut bytes, head);
    written.map(|()| bytes).map_err(|error| format!("the head of a call cannot be written: {error}"))
}

/// Decodes a head.
///
/// # Errors
/// Why it cannot be decoded.
pub(super) fn decode<T: DeserializeOwned>(head: &[u8]) -> Result<T, String> {
    match head.split_first() {
        Some((&FORMAT, rest)) => rmp_serde::from_slice(rest).map_err(|error| error.to_string()),
        Some((other, _)) => Err(format!(
            "the message head has format {other}, and this process reads {FORMAT}: run the same release of Nigh on both sides"
        )),
        None => Err("the message head is empty".to_owned()),
    }
}

/// Decodes any head, and any record of a transaction, for the fuzzer. Nothing may panic.
#[doc(hidden)]
pub fn fuzz(head: &[u8]) {
    let _ = decode::<Fetch>(head);
    let _ = decode::<Result<FetchReply, WireError>>(head);
    let _ = decode::<PinnedRequest>(head);
    let _ = decode::<Write>(head);
    let _ = decode::<Result<WriteReply, WireError>>(head);
    let _ = decode::<Vec<Letter>>(head);
    let _ = decode::<LetGo>(head);
    let _ = decode::<HeldCopyRequest>(head);
    let _ = decode::<Bring>(head);
    let _ = decode::<OutsideCall>(head);
    let _ = decode::<Result<OutsideAnswer, WireError>>(head);
    let _ = decode::<UnpushedRequest>(head);
    let _ = decode::<Result<WaitingPage, WireError>>(head);
    let _ = decode::<Token>(head);
    let _ = decode_about(head);
    let _ = decode_body(bytes::Bytes::copy_from_slice(head));
    let _ = decode::<PrepareRequest>(head);
    let _ = decode::<Result<PrepareOutcome, WireError>>(head);
    let _ = decode::<Decide>(head);
    let _ = decode::<Result<Option<WrittenVersions>, WireError>>(head);
    let _ = decode::<OutcomeMessage>(head);
    let _ = decode::<Result<EndedAnswer, WireError>>(head);
}

#[cfg(test)]
mod tests;
