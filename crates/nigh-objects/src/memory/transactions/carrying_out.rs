//! Does what the machine of a home says about a transaction, and tells the machine the result.
//!
//! Committed writes are ordinary writes under the locks that the transaction holds. They are retried until they
//! succeed, by the next home if this one is lost.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::{BoxFuture, join_all};
use nigh_data::digest::TagDigest;
use nigh_data::{ObjectError, ObjectId, WriteConditions};
use nigh_engine::{LedgerError, RequestId};
use nigh_protocol::{Outcome, Stamp, TransactionId, TransactionInput, TransactionOutput, TransactionRecord};
use nigh_terms::{Epoch, ShardId};

use super::home::{DecisionState, OpenTransaction, StepAnswer};
use crate::memory::ObjectMemoryState;
use crate::memory::draft::{Draft, PutHead, ReceivedBody};
use crate::memory::intake::BodyClaims;
use crate::memory::write_ticket::WriteSource;
use crate::notification::ObjectChange;
use crate::sync::spawn;
use crate::transaction_part::{NewObject, Part, PartBecomes, PartWrite};
use crate::write_order::Turn;

/// The pause between two tries of a committed write.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

impl ObjectMemoryState {
    pub(super) async fn carry_out(
        self: &Arc<Self>,
        shard: ShardId,
        id: TransactionId,
        outputs: Vec<TransactionOutput>,
    ) -> StepAnswer {
        let (mut todo, mut said) = (VecDeque::from(outputs), StepAnswer::default());
        // Of a home that has ended nothing is appended: the next one finds what the ledger has.
        let home = self.coherence.epoch_here(shard).map(|epoch| (shard, epoch));
        while let Some(output) = todo.pop_front() {
            let open = self.open_transaction(shard, id);
            let heard = match output {
                TransactionOutput::Prepared(ticket) => {
                    said.prepared = Some(ticket);
                    None
                }
                TransactionOutput::Refused => {
                    said.refused = true;
                    None
                }
                TransactionOutput::Answer(outcome) => {
                    said.answer = Some(outcome);
                    None
                }
                TransactionOutput::Done => {
                    said.done = true;
                    None
                }
                TransactionOutput::Committed => {
                    if let Some(open) = &open {
                        self.transactions.finished.lock().note(shard, id, open.written.lock().clone());
                        open.standing.send_replace(DecisionState::Committed);
                    }
                    None
                }
                TransactionOutput::Append(record) => match (&open, home) {
                    (Some(open), Some(home)) => self.append_transaction(home, &record, open).await,
                    _ => None,
                },
                TransactionOutput::Apply => match (&open, home) {
                    (Some(open), Some(home)) => self.apply(home, open).await,
                    _ => None,
                },
                TransactionOutput::Trim => match (&open, home) {
                    (Some(open), Some(home)) => self.trim(home, open).await,
                    _ => None,
                },
                TransactionOutput::Tell(participant, outcome) => {
                    spawn(Arc::clone(self).tell_participant((shard, participant), id, outcome));
                    None
                }
                TransactionOutput::Ask(decider) => {
                    spawn(Arc::clone(self).ask_decider((shard, decider), id));
                    None
                }
                TransactionOutput::Release => {
                    let open = {
                        let mut homes = self.transactions.homes.0.lock();
                        homes.get_mut(&shard).and_then(|home| home.open.remove(&id))
                    };
                    if let Some(open) = open {
                        open.release();
                    }
                    None
                }
            };
            if let Some(input) = heard {
                todo.extend(self.step_transaction(shard, id, input));
            }
        }
        said
    }

    /// The ledger takes nothing of a home any more. A node alone keeps the turns until it starts again.
    fn loses(&self, (shard, epoch): (ShardId, Epoch)) {
        if !self.coherence.is_alone() {
            self.depose(shard, epoch);
        }
    }

    fn is_over(&self, (shard, epoch): (ShardId, Epoch)) -> bool {
        self.coherence.epoch_here(shard) != Some(epoch)
    }

    /// Appends the record of a transaction. A read-only transaction without participants needs none.
    async fn append_transaction(
        &self,
        (shard, epoch): (ShardId, Epoch),
        record: &TransactionRecord,
        open: &OpenTransaction,
    ) -> Option<TransactionInput> {
        let alone = matches!(record, TransactionRecord::Decided { participants } if participants.is_empty());
        if alone && open.part.writes.is_empty() {
            return Some(TransactionInput::Appended);
        }
        let asked = self.coherence.appending(shard, epoch)?;
        match self.back.append_transaction((shard, epoch), record, &open.part, &open.bytes).await {
            Ok(version) => {
                let dropped = self.coherence.passed(self.now(), shard, asked, version);
                self.settle(dropped);
                *open.record.lock() = Some(version);
                Some(TransactionInput::Appended)
            }
            Err(error) => {
                tracing::warn!(%shard, %error, "the record of a transaction could not be kept");
                let lost = match &error {
                    ObjectError::Ledger(error) => error.may_have_taken_a_version(),
                    _ => false,
                };
                let dropped = self.coherence.refused(self.now(), shard, asked, lost);
                self.settle(dropped);
                if let ObjectError::Ledger(LedgerError::Fenced { .. } | LedgerError::Failed(_)) = error {
                    // What became of it the next home knows.
                    self.loses((shard, epoch));
                    return None;
                }
                Some(TransactionInput::NotAppended)
            }
        }
    }

    /// Carries the writes of a committed transaction out, however long that takes.
    async fn apply(self: &Arc<Self>, home: (ShardId, Epoch), open: &Arc<OpenTransaction>) -> Option<TransactionInput> {
        let writes =
            open.part.writes.iter().zip(&open.bytes).map(|(write, bytes)| self.apply_one(home, open, write, bytes));
        let written = join_all(writes).await.into_iter().collect::<Option<Vec<_>>>()?;
        let mut all = open.written.lock();
        all.0.extend(written.into_iter().flatten());
        self.transactions.finished.lock().note(home.0, open.part.transaction, all.clone());
        Some(TransactionInput::Applied)
    }

    /// Applies one write. None if the home is no longer here: the next home does it.
    async fn apply_one(
        self: &Arc<Self>,
        home: (ShardId, Epoch),
        open: &Arc<OpenTransaction>,
        write: &PartWrite,
        bytes: &Bytes,
    ) -> Option<Option<(ObjectId, Stamp)>> {
        let mut pause = PAUSE;
        loop {
            if self.is_over(home) {
                return None;
            }
            let turn = open.turn(&write.object)?;
            match self.write_part(&turn, &open.part, write, bytes.clone()).await {
                Ok(stamp) => return Some(Some((write.object.clone(), stamp))),
                Err(ObjectError::Ledger(LedgerError::Fenced { .. } | LedgerError::Failed(_))) => {
                    self.loses(home);
                    return None;
                }
                Err(ObjectError::NoSuchBucket(bucket)) => {
                    tracing::warn!(object = %write.object, %bucket, "a bucket was removed under a transaction");
                    return Some(None);
                }
                Err(error) => tracing::warn!(object = %write.object, %error, "a committed write is tried again"),
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }

    async fn write_part(
        self: &Arc<Self>,
        turn: &Turn,
        part: &Part,
        write: &PartWrite,
        bytes: Bytes,
    ) -> Result<Stamp, ObjectError> {
        // The request's name makes it the same write, however often a home tries it.
        let request = Some(RequestId(part.transaction.0));
        let (who, source) = (Some(part.who.clone()), WriteSource::Own(Arc::new(part.token.clone())));
        let object = write.object.clone();
        let PartBecomes::Put(new) = &write.becomes else {
            let none = WriteConditions::default();
            return self.delete_here(turn, who, source, &object, &none, request).await;
        };
        let NewObject { attributes, tags, size, etag, checksum, modified } = NewObject::clone(new);
        let limit = self.limits.object.bytes();
        let journal = self.goes_to_journal(&object, &tags);
        let expected =
            BodyClaims { length: Some(size), md5: None, checksum: None, tag: TagDigest::Md5, limit, journal };
        let body = futures::stream::iter([Ok(bytes)]).boxed();
        let ReceivedBody { content, journal, .. } = self.take_in(body, expected).await?;
        let (conditions, parts, change) = (WriteConditions::default(), Vec::new(), ObjectChange::Put);
        let head = PutHead { conditions, attributes, tags, size, etag, checksum, parts, change, modified };
        let draft = Draft { object, head, content, journal, request };
        self.put_here(turn, who, source, draft).await.map(|(stamp, _)| stamp)
    }

    /// Has the ledger say, durably, that a transaction's record is needed no more: before its turns go, or a home that
    /// finds it again would write over what came after it.
    async fn trim(&self, home: (ShardId, Epoch), open: &OpenTransaction) -> Option<TransactionInput> {
        let Some(version) = open.record.lock().take() else { return Some(TransactionInput::Trimmed) };
        let (mut pause, shard) = (PAUSE, home.0);
        loop {
            match self.back.trim_transaction(shard, version).await {
                Ok(()) => return Some(TransactionInput::Trimmed),
                Err(error) if self.is_over(home) => {
                    tracing::debug!(%shard, %error, "the home is gone before a transaction's record");
                    return None;
                }
                Err(LedgerError::Fenced { .. } | LedgerError::Failed(_)) => {
                    self.loses(home);
                    return None;
                }
                Err(error) => tracing::warn!(%shard, %error, "a transaction's record stays for now"),
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }

    /// Tells a participant the outcome, until it has applied it for good.
    fn tell_participant(
        self: Arc<Self>,
        (shard, participant): (ShardId, ShardId),
        id: TransactionId,
        outcome: Outcome,
    ) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            while let Some(open) = self.open_transaction(shard, id) {
                match self.end_at(participant, id, outcome).await {
                    Ok(Some(written)) => {
                        open.written.lock().0.extend(written.0);
                        drop(open);
                        self.hear_transaction(shard, id, TransactionInput::Done(participant)).await;
                        return;
                    }
                    Ok(None) => {}
                    Err(error) => tracing::debug!(%participant, %error, "a participant is told again"),
                }
                drop(open);
                tokio::time::sleep(PAUSE).await;
            }
        })
    }

    fn ask_decider(self: Arc<Self>, (shard, decider): (ShardId, ShardId), id: TransactionId) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            match self.ask_at(decider, id).await {
                Ok(Some(outcome)) => {
                    self.hear_transaction(shard, id, TransactionInput::Ended(outcome)).await;
                }
                Ok(None) => {}
                Err(error) => tracing::debug!(%decider, %error, "a deciding shard is asked again"),
            }
        })
    }
}
