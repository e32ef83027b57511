//! The commit of a transaction: its coordinator at this node, and the outcome that the client gets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use nigh_data::{ETag, ObjectError, ObjectId, ServeOutcome};
use nigh_protocol::{Coordinator, CoordinatorInput, CoordinatorOutput, Outcome, Stamp, TransactionId};
use nigh_terms::{Principal, ShardId, Token, Version};

use super::open::{Commit, StagedWrite, TransactionName};
use super::{PrepareOutcome, WrittenVersions};
use crate::memory::cluster::HomeReply;
use crate::memory::invocations::WriteCall;
use crate::memory::{ObjectMemory, ObjectMemoryState, to_the_end};
use crate::sync::spawn;
use crate::transaction_part::{ObservedObject, Part, PartBecomes, PartWrite};

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
