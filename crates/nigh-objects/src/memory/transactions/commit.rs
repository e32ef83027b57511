//! The requests of a client in a transaction: reads, which the commit checks; writes, which wait for the commit; the commit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use futures::StreamExt;
use nigh_data::attributes::check_tags;
use nigh_data::conditions::{check_read, check_write};
use nigh_data::range::resolve;
use nigh_data::{
    Body, Digest, ETag, GetReply, GetRequest, ObjectError, ObjectId, ObjectMeta, PutDone, PutRequest, ReadConditions,
    Segment, ServeOutcome, WriteConditions,
};
use nigh_protocol::{Coordinator, CoordinatorInput, CoordinatorOutput, Outcome, Stamp, TransactionId};
use nigh_terms::{BucketName, ObjectKey, Principal, ShardId, Token, Version};

use super::open::{Commit, NewTransaction, StagedWrite, TransactionName};
use super::{PrepareOutcome, TRANSACTION_BYTES_MAX, WrittenVersions};
use crate::memory::cluster::HomeReply;
use crate::memory::invocations::WriteCall;
use crate::memory::{ObjectMemory, ObjectMemoryState, object, to_the_end};
use crate::sync::spawn;
use crate::transaction_part::{NewObject, ObservedObject, Part, PartBecomes, PartWrite};

/// How long the committing node waits until it covers the transaction's writes.
const COVERED_WITHIN: Duration = Duration::from_secs(5);
/// How many times, with the same pause, the deciding home is asked for the outcome of a decision without an answer.
const ASKED_TIMES: usize = 20;
const ASKED_PAUSE: Duration = Duration::from_millis(250);

/// A transaction that was committed.
#[derive(Clone, Debug)]
pub struct CommittedTransaction {
    /// The objects that it has written, ordered by name.
    pub written: Vec<WrittenObject>,
    /// Covers what the transaction wrote; the client carries it in its next requests.
    token: Token,
}

/// An object that a transaction has written.
#[derive(Clone, Debug)]
pub struct WrittenObject {
    /// The object.
    pub object: ObjectId,
    /// The entity tag; none if the object was deleted.
    pub etag: Option<ETag>,
    /// The version of the write.
    pub version: Version,
}

/// The part of a transaction at each of its shards.
type Parts = BTreeMap<ShardId, (Part, Vec<bytes::Bytes>)>;

/// The outcome of asking the homes.
enum CommitOutcome {
    Committed(WrittenVersions),
    Refused(ObjectError),
    /// The home of this shard did not answer, and may have committed.
    Unknown(ShardId),
}

impl ObjectMemory {
    /// Begins a transaction for `who`.
    ///
    /// # Errors
    /// `SlowDown` if there are too many transactions.
    pub fn begin_transaction(&self, who: &Principal) -> Result<NewTransaction, ObjectError> {
        let inner = &self.0;
        let id = TransactionId(uuid::Uuid::new_v4().as_u128());
        let name = TransactionName { node: inner.coherence.member().node, id };
        inner.transactions.open.lock().begin(inner.now(), name, who)
    }

    /// Reads an object in a transaction: the transaction's own write, or the current object. If the current object
    /// changes later, the commit is refused.
    ///
    /// # Errors
    /// The same as for `get`; `NoSuchTransaction`; `TransactionConflict` if the transaction was shown another version
    /// before.
    #[boxed]
    pub async fn get_in(
        &self,
        name: TransactionName,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        request: GetRequest,
    ) -> Result<GetReply, ObjectError> {
        let inner = &self.0;
        let object = object(who, bucket, key);
        let (meta, own) = inner.shown_in(name, who, &object).await?;
        check_read(&request.conditions, &meta)?;
        let range = resolve(request.range, &meta)?;
        let Some(own) = own else {
            let request = GetRequest { conditions: ReadConditions::default(), range: request.range };
            let got = match self.get(who, bucket, key, request).await {
                Err(ObjectError::NoSuchKey(_)) => {
                    return Err(ObjectError::TransactionConflict(vec![format!("{bucket}/{key}")]));
                }
                got => got?,
            };
            // The object may have changed since its metadata was read.
            inner.transactions.open.lock().sees(inner.now(), name, who, &object, Some(&got.meta))?;
            return Ok(got);
        };
        let mut call = inner.begin(who, bucket, Some(key));
        call.succeeded(ServeOutcome::Hit, None, Token::empty());
        call.of_object(meta.size);
        let slice = Segment::copy_of(&own)?.slice(range.clone());
        Ok(GetReply { meta, range, body: Body::segment(slice, call), version: Version::OUTSIDE, token: Token::empty() })
    }

    /// Reads the metadata of an object in a transaction, as `get_in` reads the object.
    ///
    /// # Errors
    /// As `get_in`.
    #[boxed]
    pub async fn head_in(
        &self,
        name: TransactionName,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        request: GetRequest,
    ) -> Result<Arc<ObjectMeta>, ObjectError> {
        let meta = self.0.shown_in(name, who, &object(who, bucket, key)).await?.0;
        check_read(&request.conditions, &meta)?;
        resolve(request.range, &meta).map(|_| meta)
    }

    /// Writes an object in a transaction. Nobody else sees the write before the commit, or ever if there is none.
    ///
    /// # Errors
    /// As of a put; `EntityTooLarge` if the transaction would write too much; `InvalidRequest` for an object that
    /// cannot be in one.
    #[boxed]
    pub async fn put_in(
        &self,
        name: TransactionName,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        request: PutRequest,
    ) -> Result<PutDone, ObjectError> {
        let inner = &self.0;
        let PutRequest { attributes, tags, conditions, mut body, length, md5, checksum, request: _ } = request;
        attributes.check()?;
        check_tags(&tags)?;
        let limit = TRANSACTION_BYTES_MAX.min(inner.limits.cached_object.bytes());
        let too_large = || ObjectError::EntityTooLarge { limit };
        if length.is_some_and(|length| length > limit) {
            return Err(too_large());
        }
        let object = object(who, bucket, key);
        inner.check_in(name, who, &object, &conditions, &tags).await?;
        let checksum = checksum.unwrap_or_default();
        let mut digest = Digest::new(Some(checksum.algorithm));
        let mut bytes = Vec::new();
        while let Some(piece) = body.next().await {
            let piece = piece?;
            digest.update(&piece);
            bytes.extend_from_slice(&piece);
            if bytes.len() as u64 > limit {
                return Err(too_large());
            }
        }
        let size = bytes.len() as u64;
        if let Some(expected) = length.filter(|length| *length != size) {
            return Err(ObjectError::IncompleteBody { expected, received: size });
        }
        let verified = digest.verify(md5, Some(checksum))?;
        let (etag, checksum, modified) = (verified.etag(), verified.checksum, inner.clock.wall());
        let new = NewObject { attributes, tags, size, etag: etag.clone(), checksum: checksum.clone(), modified };
        let staged = StagedWrite { becomes: PartBecomes::Put(Box::new(new)), bytes: bytes.into() };
        inner.transactions.open.lock().stage(inner.now(), name, who, &object, staged)?;
        Ok(PutDone { etag, size, modified, checksum, version: Version::OUTSIDE, token: Token::empty() })
    }

    /// Deletes an object in a transaction.
    ///
    /// # Errors
    /// As `put_in`.
    #[boxed]
    pub async fn delete_in(
        &self,
        name: TransactionName,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        conditions: WriteConditions,
    ) -> Result<(), ObjectError> {
        let (inner, object) = (&self.0, object(who, bucket, key));
        inner.check_in(name, who, &object, &conditions, &nigh_data::Tags::new()).await?;
        let staged = StagedWrite { becomes: PartBecomes::Gone, bytes: bytes::Bytes::new() };
        inner.transactions.open.lock().stage(inner.now(), name, who, &object, staged)
    }

    /// Commits a transaction: all of its writes take place, durably and for every reader, or none does. A repeated
    /// commit gets the same answer.
    ///
    /// # Errors
    /// `TransactionConflict` with the objects that have changed since they were read; `TransactionUndecided` if the
    /// outcome is unknown: commit again; and the errors of the homes.
    #[boxed]
    pub async fn commit_transaction(
        &self,
        name: TransactionName,
        who: &Principal,
    ) -> Result<Arc<CommittedTransaction>, ObjectError> {
        let inner = &self.0;
        inner.is_kept_here(name)?;
        let commit = inner.transactions.open.lock().commit(inner.now(), name, who)?;
        let ended = match commit {
            Commit::Ended(ended) => ended,
            Commit::Ask => return Err(ObjectError::TransactionUndecided),
            Commit::Begin { reads, writes } => {
                let (inner, who) = (Arc::clone(inner), who.clone());
                to_the_end(async move { Ok(inner.commit_begun(name, who, reads, writes).await) }).await?
            }
        };
        let committed = ended?;
        if !inner.coherence.is_alone() {
            // From now on this node shows what the transaction wrote in other processes, too.
            inner.cover(&committed.token, COVERED_WITHIN).await?;
        }
        Ok(committed)
    }

    /// Aborts a transaction: none of its writes takes place.
    ///
    /// # Errors
    /// `NoSuchTransaction`; `InvalidRequest` if it is being committed.
    pub fn abort_transaction(&self, name: TransactionName, who: &Principal) -> Result<(), ObjectError> {
        let inner = &self.0;
        inner.is_kept_here(name)?;
        inner.transactions.open.lock().abort(inner.now(), name, who)
    }
}

impl ObjectMemoryState {
    fn is_kept_here(&self, name: TransactionName) -> Result<(), ObjectError> {
        let node = name.node;
        if node == self.coherence.member().node {
            return Ok(());
        }
        Err(ObjectError::TransactionElsewhere { transaction: name.to_string(), node: node.0 })
    }

    /// What a transaction sees of an object, and its own bytes of the object.
    async fn shown_in(
        self: &Arc<Self>,
        name: TransactionName,
        who: &Principal,
        object: &ObjectId,
    ) -> Result<(Arc<ObjectMeta>, Option<bytes::Bytes>), ObjectError> {
        self.is_kept_here(name)?;
        let none = || ObjectError::NoSuchKey(object.key.clone());
        let staged = self.transactions.open.lock().staged(self.now(), name, who, object)?;
        if let Some(StagedWrite { becomes, bytes }) = staged {
            return match becomes {
                PartBecomes::Put(new) => Ok((Arc::new(new.meta()), Some(bytes))),
                PartBecomes::Gone => Err(none()),
            };
        }
        let current = match self.current(who, object).await {
            Ok(meta) => Some(meta),
            Err(ObjectError::NoSuchKey(_)) => None,
            Err(error) => return Err(error),
        };
        self.transactions.open.lock().sees(self.now(), name, who, object, current.as_deref())?;
        current.map(|meta| (meta, None)).ok_or_else(none)
    }

    /// Refuses an object that a transaction cannot write, or a failed condition. A condition is checked on what the
    /// transaction sees; the commit checks that this is unchanged.
    async fn check_in(
        self: &Arc<Self>,
        name: TransactionName,
        who: &Principal,
        object: &ObjectId,
        conditions: &WriteConditions,
        tags: &nigh_data::Tags,
    ) -> Result<(), ObjectError> {
        self.is_kept_here(name)?;
        self.find_bucket(who, &object.bucket).await?;
        self.back.check_in_transaction(object, tags)?;
        if *conditions == WriteConditions::default() {
            return self.transactions.open.lock().staged(self.now(), name, who, object).map(|_| ());
        }
        let current = match self.shown_in(name, who, object).await {
            Ok((meta, _)) => Some(meta),
            Err(ObjectError::NoSuchKey(_)) => None,
            Err(error) => return Err(error),
        };
        check_write(conditions, object, current.as_deref())
    }

    async fn commit_begun(
        self: Arc<Self>,
        name: TransactionName,
        who: Principal,
        reads: BTreeMap<ObjectId, ObservedObject>,
        writes: BTreeMap<ObjectId, StagedWrite>,
    ) -> Result<Arc<CommittedTransaction>, ObjectError> {
        // The invocation's end waits for these as for every write.
        let begin = |(object, staged): (&ObjectId, &StagedWrite)| {
            let call = self.begin_write(&who, &object.bucket, &object.key);
            (object.clone(), (call, staged.becomes.clone()))
        };
        let mut calls: BTreeMap<ObjectId, (WriteCall, PartBecomes)> = writes.iter().map(begin).collect();
        let seen = calls.first_key_value().map_or_else(Token::empty, |(_, (call, _))| Token::clone(&call.seen()));
        let parts = self.parts(name.id, &who, &seen, reads, writes);
        let written = match self.coordinate(name.id, parts).await {
            CommitOutcome::Committed(written) => Ok(written),
            CommitOutcome::Refused(error) => Err(error),
            CommitOutcome::Unknown(decider) => match self.ask_until_known(decider, name.id).await {
                Some(written) => Ok(written),
                None => {
                    // A client that commits again gets the outcome, if it is known by then.
                    self.clone().keep_asking(decider, name.id);
                    return Err(ObjectError::TransactionUndecided);
                }
            },
        };
        let ended = match written {
            Ok(written) => self.wrote_all(&mut calls, written).await.map(Arc::new),
            Err(error) => Err(error),
        };
        self.transactions.open.lock().ended(self.now(), name.id, ended.clone());
        ended
    }

    /// Continues to ask when no client waits any more.
    fn keep_asking(self: Arc<Self>, decider: ShardId, id: TransactionId) {
        spawn(async move {
            let ended = match self.ask_until_known(decider, id).await {
                Some(WrittenVersions(written)) => {
                    let mut token = Token::empty();
                    let written = written.into_iter().map(|(object, stamp)| {
                        stamp.join_into(self.coherence.shards.of(&object), &mut token);
                        WrittenObject { object, etag: None, version: stamp.version }
                    });
                    let written = written.collect();
                    Ok(Arc::new(CommittedTransaction { written, token }))
                }
                None => Err(ObjectError::TransactionUndecided),
            };
            self.transactions.open.lock().ended(self.now(), id, ended);
        });
    }

    /// The parts of a transaction, by shard.
    fn parts(
        &self,
        transaction: TransactionId,
        who: &Principal,
        token: &Token,
        reads: BTreeMap<ObjectId, ObservedObject>,
        writes: BTreeMap<ObjectId, StagedWrite>,
    ) -> Parts {
        let mut parts = Parts::new();
        let part = || {
            let (reads, writes) = (Vec::new(), Vec::new());
            (Part { transaction, who: who.clone(), token: token.clone(), reads, writes }, Vec::new())
        };
        for (object, seen) in reads {
            parts.entry(self.coherence.shards.of(&object)).or_insert_with(part).0.reads.push((object, seen));
        }
        for (object, StagedWrite { becomes, bytes }) in writes {
            let (part, all) = parts.entry(self.coherence.shards.of(&object)).or_insert_with(part);
            part.writes.push(PartWrite { object, becomes });
            all.push(bytes);
        }
        parts
    }

    /// Asks the homes in the order of the coordinator.
    async fn coordinate(self: &Arc<Self>, id: TransactionId, mut parts: Parts) -> CommitOutcome {
        let shards: BTreeSet<ShardId> = parts.keys().copied().collect();
        let Some(&decider) = shards.first() else { return CommitOutcome::Committed(WrittenVersions::default()) };
        let (mut coordinator, mut todo) = Coordinator::begin(&shards);
        let (mut why, mut all) = (ObjectError::TransactionUndecided, WrittenVersions::default());
        loop {
            let mut heard = None;
            for output in std::mem::take(&mut todo) {
                match output {
                    CoordinatorOutput::Prepare(shard) => {
                        let Some((part, bytes)) = parts.remove(&shard) else { continue };
                        let (input, refusal) = match self.prepare_at(shard, decider, part, bytes).await {
                            HomeReply::Answered(PrepareOutcome::Ready(ticket)) => {
                                (CoordinatorInput::Prepared(ticket), None)
                            }
                            HomeReply::Answered(PrepareOutcome::Changed(changed)) => {
                                let names = changed.iter().map(|object| format!("{}/{}", object.bucket, object.key));
                                let conflict = ObjectError::TransactionConflict(names.collect());
                                (CoordinatorInput::Refused, Some(conflict))
                            }
                            HomeReply::Refused(error) => (CoordinatorInput::Refused, Some(error)),
                            HomeReply::Lost(error) => (CoordinatorInput::Lost, Some(error)),
                        };
                        why = refusal.unwrap_or(why);
                        heard = Some(input);
                    }
                    CoordinatorOutput::Decide { shard, ticket, participants } => {
                        heard = Some(match self.decide_at(shard, id, ticket, participants).await {
                            HomeReply::Answered(Some(written)) => {
                                all = written;
                                CoordinatorInput::Committed
                            }
                            HomeReply::Answered(None) => {
                                why = ObjectError::SlowDown(
                                    "the transaction took too long, or its ledger takes no record",
                                );
                                CoordinatorInput::Refused
                            }
                            HomeReply::Refused(error) | HomeReply::Lost(error) => {
                                tracing::debug!(%shard, %error, "a decision has no answer");
                                CoordinatorInput::Lost
                            }
                        });
                    }
                    CoordinatorOutput::Abort(shard) => {
                        let inner = Arc::clone(self);
                        spawn(async move { inner.end_at(shard, id, Outcome::Aborted).await });
                    }
                    CoordinatorOutput::Over(Some(Outcome::Committed)) => return CommitOutcome::Committed(all),
                    CoordinatorOutput::Over(Some(Outcome::Aborted)) => return CommitOutcome::Refused(why),
                    CoordinatorOutput::Over(None) => return CommitOutcome::Unknown(decider),
                }
            }
            let Some(heard) = heard else { return CommitOutcome::Unknown(decider) };
            todo = coordinator.step(heard);
        }
    }

    /// Asks the deciding home for the outcome of a decision that was not answered, repeatedly for some time. If the home does
    /// not know the transaction, that decides nothing: all homes may have applied it, and this home may have restarted since.
    async fn ask_until_known(self: &Arc<Self>, decider: ShardId, id: TransactionId) -> Option<WrittenVersions> {
        for _ in 0..ASKED_TIMES {
            if let Ok(Some(Outcome::Committed)) = self.ask_at(decider, id).await
                && let Ok(Some(written)) = self.end_at(decider, id, Outcome::Committed).await
            {
                return Some(written);
            }
            tokio::time::sleep(ASKED_PAUSE).await;
        }
        None
    }

    /// Adds the versions of all writes to the token of the writer.
    async fn wrote_all(
        &self,
        calls: &mut BTreeMap<ObjectId, (WriteCall, PartBecomes)>,
        written: WrittenVersions,
    ) -> Result<CommittedTransaction, ObjectError> {
        let (mut token, mut all) = (Token::empty(), Vec::new());
        let stamps: BTreeMap<ObjectId, Stamp> = written.0.into_iter().collect();
        for (object, stamp) in stamps {
            let shard = self.coherence.shards.of(&object);
            stamp.join_into(shard, &mut token);
            let Some((call, becomes)) = calls.get_mut(&object) else { continue };
            let (etag, size, served) = match becomes {
                PartBecomes::Put(new) => (Some(new.etag.clone()), new.size, ServeOutcome::Write),
                PartBecomes::Gone => (None, 0, ServeOutcome::Delete),
            };
            let version = stamp.version;
            self.wrote(call, shard, stamp).await?;
            call.succeeded(served, Some(version), Token::empty());
            call.served(size);
            call.of_object(size);
            all.push(WrittenObject { object, etag, version });
        }
        Ok(CommittedTransaction { written: all, token })
    }
}
