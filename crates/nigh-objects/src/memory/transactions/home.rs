//! The homes in this process: they hold the turns of a transaction's objects, keep its records, carry its writes out.
//!
//! What is done when is the machine's to say (`protocol::TransactionHome`); here it is done, and what came of it told. A
//! transaction holds its turns as long as it is open here, by a task if nobody waits for it; a home that is lost takes all
//! of its transactions with it, and the next finds those that have records.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::{BoxFuture, join_all};
use nigh_engine::journal::RecoveredRecord;
use nigh_engine::{Change, LedgerError, RequestId};
use nigh_terms::{ShardId, Version};
use tokio::sync::watch;

use super::part::{NewObject, Part, PartBecomes, PartWrite, decode_about, decode_body};
use super::{Prepared, Written};
use crate::memory::cluster::HomeUse;
use crate::memory::coherence::moved;
use crate::memory::write_ticket::WriteSource;
use crate::memory::writes::{Draft, Expected, Taken};
use crate::memory::{Inner, to_the_end};
use crate::notification::ObjectChange;
use crate::protocol::{
    Outcome, Stamp, Ticket, TransactionHome, TransactionId, TransactionInput, TransactionOutput, TransactionRecord,
};
use crate::sync::{Mutex, spawn, timeout};
use crate::write_order::Turn;
use crate::{ObjectError, ObjectId, WriteConditions};

/// How long a transaction waits for the turns of its objects.
const TURNS_WITHIN: Duration = Duration::from_secs(5);
/// Without news for so long, who is prepared asks, who holds forgets, and who has decided tells again.
const OVERDUE: Duration = Duration::from_secs(4);
/// How long a deciding home holds turns for a coordinator that says nothing: longer than one that lives takes.
const HELD_WITHIN: Duration = Duration::from_secs(30);
/// How long a coordinator waits to hear that all have applied what was decided.
const APPLIED_WITHIN: Duration = Duration::from_secs(10);
/// Between two tries to carry a decided write out.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// How a decision stands, for who waits for it.
#[derive(Clone, Debug)]
enum Standing {
    Open,
    Committed,
    Refused,
}

/// A transaction that is open at a home here.
struct Open {
    part: Part,
    bytes: Vec<Bytes>,
    /// Whose turns it has, in the order of their names.
    turns: Mutex<Vec<(ObjectId, Arc<Turn>)>>,
    home: Mutex<Option<HomeUse>>,
    /// Its record in the ledger.
    record: Mutex<Option<Version>>,
    written: Mutex<Written>,
    standing: watch::Sender<Standing>,
}

impl Open {
    fn new(part: Part, bytes: Vec<Bytes>, turns: Vec<(ObjectId, Arc<Turn>)>) -> Self {
        Self {
            part,
            bytes,
            turns: Mutex::new(turns),
            home: Mutex::new(None),
            record: Mutex::new(None),
            written: Mutex::default(),
            standing: watch::Sender::new(Standing::Open),
        }
    }

    fn turn(&self, object: &ObjectId) -> Option<Arc<Turn>> {
        self.turns.lock().iter().find(|(of, _)| of == object).map(|(_, turn)| Arc::clone(turn))
    }

    fn release(&self) {
        let turns = std::mem::take(&mut *self.turns.lock());
        let home = self.home.lock().take();
        drop((turns, home));
    }
}

/// The transactions at the home of a shard.
struct Home {
    machine: TransactionHome,
    open: BTreeMap<TransactionId, Arc<Open>>,
}

/// The transactions at all homes in this process.
#[derive(Default)]
pub(in crate::memory) struct TransactionHomes(Mutex<BTreeMap<ShardId, Home>>);

/// A transaction that a home has found in its ledger.
pub(in crate::memory) struct FoundTransaction {
    id: TransactionId,
    record: TransactionRecord,
    version: Version,
}

/// Takes the records of transactions from those that a ledger has.
pub(in crate::memory) fn found_in(records: &mut Vec<RecoveredRecord>) -> Result<Vec<FoundTransaction>, ObjectError> {
    let is_one = |record: &mut RecoveredRecord| matches!(record.record.change, Change::Transaction { .. });
    let found = records.extract_if(.., is_one).map(|RecoveredRecord { version, record, .. }| {
        let (id, record) = decode_about(record.change.about()).map_err(|reason| unreadable(version, &reason))?;
        Ok(FoundTransaction { id, record, version })
    });
    found.collect()
}

/// What of them is damaged nobody can carry on; what it had written for itself is not touched by that.
pub(in crate::memory) fn warn_of_lost(lost: &mut Vec<RecoveredRecord>) {
    let is_one = |record: &mut RecoveredRecord| matches!(record.record.change, Change::Transaction { .. });
    for RecoveredRecord { version, .. } in lost.extract_if(.., is_one) {
        tracing::error!(%version, "a transaction that was not over is damaged in the journal: it may be carried out in part");
    }
}

fn unreadable(version: Version, reason: &str) -> ObjectError {
    let reason = format!("the transaction {version}: {reason}");
    ObjectError::Memory { operation: "read the journal", reason }
}

/// What a step is to answer to who asked.
#[derive(Debug, Default)]
struct Said {
    prepared: Option<Ticket>,
    refused: bool,
    answer: Option<Option<Outcome>>,
    done: bool,
}

impl Inner {
    /// The home of a shard begins here: it has the turns of what it has found before anybody else asks for them.
    pub(in crate::memory) async fn find_transactions(
        self: &Arc<Self>,
        shard: ShardId,
        found: Vec<FoundTransaction>,
    ) -> Result<(), ObjectError> {
        let mut open = BTreeMap::new();
        let mut records = Vec::new();
        for FoundTransaction { id, record, version } in found {
            let body = self.back.transaction_body(shard, version).await?;
            let (part, bytes) = decode_body(body).map_err(|reason| unreadable(version, &reason))?;
            // What an earlier life has acknowledged stands in the ledger beside it: nobody writes these objects yet.
            let turns = self.turns_of(&part).await?;
            let found = Open::new(part, bytes, turns);
            *found.record.lock() = Some(version);
            open.insert(id, Arc::new(found));
            records.push((id, record));
        }
        if !open.is_empty() {
            tracing::info!(%shard, transactions = open.len(), "transactions are found that are not over");
        }
        let machine = TransactionHome::begin(shard, records, None);
        self.transactions.homes.0.lock().insert(shard, Home { machine, open });
        Ok(())
    }

    /// Carries on what `find_transactions` has found; the home is here now.
    pub(in crate::memory) fn resume_transactions(self: &Arc<Self>, shard: ShardId) {
        let found: Vec<(TransactionId, Vec<TransactionOutput>)> = {
            let homes = self.transactions.homes.0.lock();
            let Some(home) = homes.get(&shard) else { return };
            home.open.keys().map(|id| (*id, home.machine.resume(*id))).collect()
        };
        for (id, outputs) in found {
            let inner = Arc::clone(self);
            spawn(async move {
                inner.carry_out(shard, id, outputs).await;
                inner.watch_over(shard, id).await;
            });
        }
    }

    /// The home of a shard is here no more.
    pub(in crate::memory) fn lose_transactions(&self, shard: ShardId) {
        let lost = self.transactions.homes.0.lock().remove(&shard);
        drop(lost);
    }

    async fn turns_of(&self, part: &Part) -> Result<Vec<(ObjectId, Arc<Turn>)>, ObjectError> {
        let mut turns = Vec::new();
        for object in part.objects() {
            let turn = self.order.turn(&object).await?;
            turns.push((object, Arc::new(turn)));
        }
        Ok(turns)
    }

    /// A transaction is to be prepared at the home here; `decider` is the shard that decides it.
    pub(in crate::memory) async fn prepare_here(
        self: &Arc<Self>,
        shard: ShardId,
        decider: ShardId,
        part: Part,
        bytes: Vec<Bytes>,
    ) -> Result<Prepared, ObjectError> {
        let id = part.transaction;
        let home = self.use_home(shard).await.ok_or_else(moved)?;
        for write in &part.writes {
            self.back.find_bucket(&write.object.namespace, &write.object.bucket).await?;
        }
        let late = |_| ObjectError::SlowDown("the objects of the transaction are being written");
        let turns = timeout(TURNS_WITHIN, self.turns_of(&part)).await.map_err(late)??;
        let mut changed = Vec::new();
        for (object, seen) in &part.reads {
            let now = self.current_if_any(object).await?;
            if !seen.holds(now.as_deref()) {
                changed.push(object.clone());
            }
        }
        // A home that was deposed may know less than the next has shown.
        self.confirm(shard).await?;
        if !changed.is_empty() {
            return Ok(Prepared::Changed(changed));
        }
        let open = Arc::new(Open::new(part, bytes, turns));
        *open.home.lock() = Some(home);
        {
            let mut homes = self.transactions.homes.0.lock();
            let home = homes.get_mut(&shard).ok_or_else(moved)?;
            if home.open.contains_key(&id) {
                return Err(ObjectError::SlowDown("the transaction is being prepared"));
            }
            home.open.insert(id, Arc::clone(&open));
        }
        // Half of a random name is as good.
        let ticket = Ticket(uuid::Uuid::new_v4().as_u64_pair().0);
        let said = self.hear_to_the_end(shard, id, TransactionInput::Prepare { decider, ticket }).await?;
        let inner = Arc::clone(self);
        spawn(async move { inner.watch_over(shard, id).await });
        match said.prepared {
            Some(ticket) => Ok(Prepared::Ready(ticket)),
            None => Err(ObjectError::SlowDown("the transaction could not be kept in the ledger")),
        }
    }

    /// All of a transaction's shards are prepared: this one, which decides, and `participants`. Returns when all have
    /// applied it.
    pub(in crate::memory) async fn decide_here(
        self: &Arc<Self>,
        shard: ShardId,
        id: TransactionId,
        ticket: Ticket,
        participants: BTreeSet<ShardId>,
    ) -> Result<Option<Written>, ObjectError> {
        let Some(open) = self.open_transaction(shard, id) else { return Ok(None) };
        let mut standing = open.standing.subscribe();
        let inner = Arc::clone(self);
        spawn(async move {
            let said = inner.hear_transaction(shard, id, TransactionInput::Decide { ticket, participants }).await;
            if said.refused {
                open.standing.send_replace(Standing::Refused);
            }
            // Who waits hears that it was lost.
            drop(open);
        });
        let decided = timeout(APPLIED_WITHIN, standing.wait_for(|now| !matches!(now, Standing::Open))).await;
        let undecided = || ObjectError::TransactionUndecided;
        match decided.map_err(|_| undecided())?.map_err(|_| undecided())?.clone() {
            Standing::Committed => {}
            Standing::Refused | Standing::Open => return Ok(None),
        }
        let written = self.transactions.finished.lock().get(shard, id);
        written.map(Some).ok_or_else(undecided)
    }

    /// A participant asks how a transaction ended; none if it is to ask again.
    pub(in crate::memory) async fn asked_here(
        self: &Arc<Self>,
        shard: ShardId,
        id: TransactionId,
    ) -> Result<Option<Outcome>, ObjectError> {
        if !self.coherence.is_home(shard) {
            return Err(moved());
        }
        let said = self.hear_transaction(shard, id, TransactionInput::Ask).await;
        // A home that was deposed knows nothing of what the next has decided.
        self.confirm(shard).await?;
        if self.transactions.finished.lock().get(shard, id).is_some() {
            return Ok(Some(Outcome::Committed));
        }
        Ok(said.answer.flatten())
    }

    /// It is known how a transaction ended. Gives what it has written here, once it is applied for good.
    pub(in crate::memory) async fn ended_here(
        self: &Arc<Self>,
        shard: ShardId,
        id: TransactionId,
        outcome: Outcome,
    ) -> Result<Option<Written>, ObjectError> {
        if !self.coherence.is_home(shard) {
            return Err(moved());
        }
        let said = self.hear_to_the_end(shard, id, TransactionInput::Ended(outcome)).await?;
        self.confirm(shard).await?;
        Ok(said.done.then(|| self.transactions.finished.lock().get(shard, id).unwrap_or_default()))
    }

    /// As `hear_transaction`; it goes on when who waits for it is gone.
    async fn hear_to_the_end(
        self: &Arc<Self>,
        shard: ShardId,
        id: TransactionId,
        input: TransactionInput,
    ) -> Result<Said, ObjectError> {
        let inner = Arc::clone(self);
        to_the_end(async move { Ok(inner.hear_transaction(shard, id, input).await) }).await
    }

    fn open_transaction(&self, shard: ShardId, id: TransactionId) -> Option<Arc<Open>> {
        self.transactions.homes.0.lock().get(&shard)?.open.get(&id).cloned()
    }

    fn step_transaction(&self, shard: ShardId, id: TransactionId, input: TransactionInput) -> Vec<TransactionOutput> {
        let mut homes = self.transactions.homes.0.lock();
        homes.get_mut(&shard).map(|home| home.machine.step(id, input)).unwrap_or_default()
    }

    /// Tells the home here of something, and does what comes of it.
    async fn hear_transaction(self: &Arc<Self>, shard: ShardId, id: TransactionId, input: TransactionInput) -> Said {
        let outputs = self.step_transaction(shard, id, input);
        self.carry_out(shard, id, outputs).await
    }

    async fn carry_out(self: &Arc<Self>, shard: ShardId, id: TransactionId, outputs: Vec<TransactionOutput>) -> Said {
        let (mut todo, mut said) = (VecDeque::from(outputs), Said::default());
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
                        open.standing.send_replace(Standing::Committed);
                    }
                    None
                }
                TransactionOutput::Append(record) => match &open {
                    Some(open) => self.append_transaction(shard, &record, open).await,
                    None => None,
                },
                TransactionOutput::Apply => match &open {
                    Some(open) => self.apply(shard, open).await,
                    None => None,
                },
                TransactionOutput::Trim => match &open {
                    Some(open) => self.trim(shard, open).await,
                    None => None,
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

    /// The ledger takes nothing of a shard any more. A node alone keeps the turns until it starts again.
    fn loses(&self, shard: ShardId) {
        if !self.coherence.is_alone() {
            self.depose(shard);
        }
    }

    /// Keeps the record of a transaction. A read-only one that has no participants has none: nothing comes of it.
    async fn append_transaction(
        &self,
        shard: ShardId,
        record: &TransactionRecord,
        open: &Open,
    ) -> Option<TransactionInput> {
        let alone = matches!(record, TransactionRecord::Decided { participants } if participants.is_empty());
        if alone && open.part.writes.is_empty() {
            return Some(TransactionInput::Appended);
        }
        let asked = self.coherence.appending(shard)?;
        match self.back.append_transaction(shard, record, &open.part, &open.bytes).await {
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
                    self.loses(shard);
                    return None;
                }
                Some(TransactionInput::NotAppended)
            }
        }
    }

    /// Carries the writes of a committed transaction out, however long that takes.
    async fn apply(self: &Arc<Self>, shard: ShardId, open: &Arc<Open>) -> Option<TransactionInput> {
        let writes =
            open.part.writes.iter().zip(&open.bytes).map(|(write, bytes)| self.apply_one(shard, open, write, bytes));
        let written = join_all(writes).await.into_iter().collect::<Option<Vec<_>>>()?;
        let mut all = open.written.lock();
        all.0.extend(written.into_iter().flatten());
        self.transactions.finished.lock().note(shard, open.part.transaction, all.clone());
        Some(TransactionInput::Applied)
    }

    /// None if the home is here no more: the next does it.
    async fn apply_one(
        self: &Arc<Self>,
        shard: ShardId,
        open: &Arc<Open>,
        write: &PartWrite,
        bytes: &Bytes,
    ) -> Option<Option<(ObjectId, Stamp)>> {
        let mut pause = PAUSE;
        loop {
            if !self.coherence.is_home(shard) {
                return None;
            }
            let turn = open.turn(&write.object)?;
            match self.write_part(&turn, &open.part, write, bytes.clone()).await {
                Ok(stamp) => return Some(Some((write.object.clone(), stamp))),
                Err(ObjectError::Ledger(LedgerError::Fenced { .. } | LedgerError::Failed(_))) => {
                    self.loses(shard);
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
        // The same write, however often a home comes to it.
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
        let expected = Expected { length: Some(size), md5: None, checksum: None, limit, journal };
        let body = futures::stream::iter([Ok(bytes)]).boxed();
        let Taken { content, journal, .. } = self.take_in(body, expected).await?;
        let draft = Draft {
            object,
            conditions: WriteConditions::default(),
            attributes,
            tags,
            content,
            journal,
            size,
            etag,
            checksum,
            parts: Vec::new(),
            change: ObjectChange::Put,
            request,
            modified,
        };
        self.put_here(turn, who, source, draft).await.map(|(stamp, _)| stamp)
    }

    /// Has the ledger say, durably, that a transaction's record is needed no more: before its turns go, or a home that
    /// finds it again would write over what came after it.
    async fn trim(&self, shard: ShardId, open: &Open) -> Option<TransactionInput> {
        let Some(version) = open.record.lock().take() else { return Some(TransactionInput::Trimmed) };
        let mut pause = PAUSE;
        loop {
            match self.back.trim_transaction(shard, version).await {
                Ok(()) => return Some(TransactionInput::Trimmed),
                Err(error) if !self.coherence.is_home(shard) => {
                    tracing::debug!(%shard, %error, "the home is gone before a transaction's record");
                    return None;
                }
                Err(LedgerError::Fenced { .. } | LedgerError::Failed(_)) => {
                    self.loses(shard);
                    return None;
                }
                Err(error) => tracing::warn!(%shard, %error, "a transaction's record stays for now"),
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }

    /// Tells a participant how it ended, until it has applied it for good.
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

    /// Looks at a transaction now and then until it is over.
    async fn watch_over(self: Arc<Self>, shard: ShardId, id: TransactionId) {
        let mut waited = Duration::ZERO;
        loop {
            tokio::time::sleep(OVERDUE / 4).await;
            waited += OVERDUE / 4;
            let Some(open) = self.open_transaction(shard, id) else { return };
            let is_prepared = open.record.lock().is_some();
            drop(open);
            let overdue = if is_prepared { OVERDUE } else { HELD_WITHIN };
            // What is decided is told by tasks that go on until it is heard.
            if waited >= overdue {
                let outputs = self.step_transaction(shard, id, TransactionInput::Overdue);
                let outputs = outputs.into_iter().filter(|output| !matches!(output, TransactionOutput::Tell(..)));
                self.carry_out(shard, id, outputs.collect()).await;
            }
        }
    }
}
