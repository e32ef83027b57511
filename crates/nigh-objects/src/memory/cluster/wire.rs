//! What nodes and homes of different processes say to each other: the heads of their calls and answers. Pure.
//!
//! The form is MessagePack with names, so that a later build may add to it; `FORMAT` changes where an older one would
//! misread it. The bytes of objects are bodies, beside the heads.

use std::collections::BTreeSet;

use nigh_data::{ByteRange, ETag, ListedObject, ObjectError, ObjectId, ObjectMeta, RangeSpec, Tags, WriteConditions};
use nigh_protocol::{Member, Outcome, Reply, Request, Ticket, TransactionId};
use nigh_rpc::{BODY_MAX_BYTES, Method};
use nigh_terms::{BucketName, Namespace, ObjectKey, Principal, ShardId, Token, Version};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::memory::draft::PutHead;
use crate::memory::transactions::{PrepareOutcome, TRANSACTION_BYTES_MAX, WrittenVersions};
use crate::transaction_part::{Part, decode_about, decode_body};

/// The form of the heads.
const FORMAT: u8 = 1;
/// The longest head of a call.
const HEAD_MAX: u32 = 1 << 20;

const fn method(number: u16, name: &'static str, body_max: u64) -> Method {
    Method { number, name, head_max: HEAD_MAX, body_max }
}

/// A node fetches an object from its home. (The numbers below 16 are those of the members themselves.)
pub(super) static FETCH: Method = method(16, "fetch", 0);
/// A node reads on an object that it knows.
pub(super) static PINNED: Method = method(17, "pinned", 0);
/// A node writes an object at its home.
pub(super) static WRITE: Method = method(18, "write", BODY_MAX_BYTES);
/// A node or a home says what needs no answer.
pub(super) static POST: Method = method(19, "post", 0);
/// What waits at homes of a bucket, for a listing.
pub(super) static WAITING: Method = method(20, "waiting", 0);
/// How far the homes of a process have come.
pub(super) static NEWEST: Method = method(21, "newest", 0);
/// A home is to fence a member.
pub(super) static FENCE: Method = method(22, "fence", 0);

/// A transaction is to be prepared at a home; the bytes of its writes there are the body.
pub(super) static PREPARE: Method = method(23, "prepare", TRANSACTION_BYTES_MAX);
/// A home is to decide a transaction.
pub(super) static DECIDE: Method = method(24, "decide", 0);
/// How a transaction has ended, said or asked.
pub(super) static OUTCOME: Method = method(25, "outcome", 0);
/// A node has given copies up, and a home is to say who else has them.
pub(super) static LET_GO: Method = method(26, "let_go", 0);
/// A home asks a holder for its copy of one version.
pub(super) static HELD: Method = method(27, "held", 0);
/// A node is to bring objects into its memory, unless that drives out what is hot; answered when it has.
pub(super) static BRING: Method = method(28, "bring", 0);

/// All of them.
pub(super) static METHODS: [&Method; 13] =
    [&FETCH, &PINNED, &WRITE, &POST, &WAITING, &NEWEST, &FENCE, &PREPARE, &DECIDE, &OUTCOME, &LET_GO, &HELD, &BRING];

/// What of an object is wanted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Want {
    /// All of it, to be kept, if it is not too large for that.
    Whole,
    /// What is known of it.
    Known,
    /// These bytes, or all, to be passed on.
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
    /// None if there is no object.
    pub(super) meta: Option<ObjectMeta>,
    /// The bytes that follow; none if only `meta` was wanted, or the object is too large.
    pub(super) range: Option<ByteRange>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PinnedRequest {
    pub(super) object: ObjectId,
    pub(super) range: Option<ByteRange>,
    pub(super) etag: ETag,
}

/// What a write makes of its object.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum WriteEffect {
    Put(Box<PutHead>),
    Gone {
        conditions: WriteConditions,
    },
    Tagged {
        tags: Tags,
    },
    /// What somebody else has made of it in the store.
    Outside,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Write {
    pub(super) request: Request<ObjectId>,
    /// On whose behalf; none for what nobody asked for.
    pub(super) who: Option<Principal>,
    /// The client's name for its request.
    pub(super) id: Option<u128>,
    pub(super) becomes: WriteEffect,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WriteReply {
    /// None if nothing can be said now: the node asks again.
    pub(super) reply: Option<Reply<ObjectId>>,
    /// Why the write did not take place. Without a reply that says that it did, and without an error, it was made
    /// before, as this version.
    pub(super) outcome: Result<Option<Version>, WireError>,
    /// The home's newest version: what a refusal shows is no newer.
    pub(super) newest: Version,
}

/// What needs no answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Letter {
    ToHome(ShardId, Request<ObjectId>),
    ToNode(Reply<ObjectId>),
    /// The node is the holder of these objects now.
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

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct UnpushedRequest {
    pub(super) namespace: Namespace,
    pub(super) bucket: BucketName,
    pub(super) prefix: String,
    pub(super) after: Option<String>,
    pub(super) limit: usize,
}

/// A part of what waits, in the order of keys: of each whether it is there, or gone.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WaitingPage {
    pub(super) entries: Vec<(ObjectKey, Option<ListedObject>)>,
    pub(super) more: bool,
    /// The homes that were asked, and how far they had come.
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

/// How a transaction has ended, if it is said; else that is asked.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct OutcomeMessage {
    pub(super) shard: ShardId,
    pub(super) transaction: TransactionId,
    pub(super) outcome: Option<Outcome>,
}

/// What a home says of how a transaction has ended: nothing if it is to be asked, or told, again.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum EndedAnswer {
    /// As it was asked.
    Known(Option<Outcome>),
    /// As it was told: applied for good, by these writes.
    Applied(Option<WrittenVersions>),
}

/// Why a home refuses, as far as who asked is to know it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum WireError {
    /// The home is not here (any more).
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
    Failed(String),
}

/// The conditions by their names in requests.
const CONDITIONS: [&str; 6] = [
    "If-Match",
    "If-None-Match",
    "If-Modified-Since",
    "If-Unmodified-Since",
    "x-amz-if-match-size",
    "x-amz-if-match-last-modified-time",
];

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
            ObjectError::Ledger(error) => Self::Busy(error.to_string()),
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
            WireError::Failed(why) => Self::AtHome(why),
        }
    }
}

/// Writes a head.
///
/// # Errors
/// Why it cannot be written.
pub(super) fn encode(head: &impl Serialize) -> Result<Vec<u8>, String> {
    let mut bytes = vec![FORMAT];
    let written = rmp_serde::encode::write_named(&mut bytes, head);
    written.map(|()| bytes).map_err(|error| format!("the head of a call cannot be written: {error}"))
}

/// Reads a head.
///
/// # Errors
/// Why it is none.
pub(super) fn decode<T: DeserializeOwned>(head: &[u8]) -> Result<T, String> {
    match head.split_first() {
        Some((&FORMAT, rest)) => rmp_serde::from_slice(rest).map_err(|error| error.to_string()),
        Some((other, _)) => Err(format!(
            "the message head has format {other}, and this process reads {FORMAT}: run the same release of Nigh on both sides"
        )),
        None => Err("the message head is empty".to_owned()),
    }
}

/// Reads any head, and any record of a transaction, for the fuzzer: none may panic.
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
