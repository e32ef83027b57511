//! The homes in this process: they hold the write locks of a transaction's objects, and answer coordinators and other
//! homes.
//!
//! `nigh_protocol::TransactionHome` decides what is done when; `carrying_out` does it. A transaction holds its write
//! locks as long as it is open here, and a task watches it if nobody waits for it. A home that ends forgets its
//! transactions, and the next home finds those that have records (`found`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use nigh_data::{ObjectError, ObjectId};
use nigh_protocol::{Outcome, Ticket, TransactionHome, TransactionId, TransactionInput, TransactionOutput};
use nigh_terms::{Epoch, ShardId, Version};
use tokio::sync::watch;

use super::{PrepareOutcome, WrittenVersions};
use crate::memory::cluster::HomeUse;
use crate::memory::coherence::moved;
use crate::memory::{ObjectMemoryState, to_the_end};
use crate::sync::{Mutex, spawn, timeout};
use crate::transaction_part::Part;
use crate::write_order::Turn;

/// How long a transaction waits for the write locks of its objects.
pub(super) const TURNS_WITHIN: Duration = Duration::from_secs(5);
/// A prepared home that hears nothing for this long asks the deciding home.
const OVERDUE: Duration = Duration::from_secs(4);
/// How long a deciding home holds write locks for a silent coordinator: longer than a living one takes.
const HELD_WITHIN: Duration = Duration::from_secs(30);
/// How long a coordinator waits for the answer that all shards have applied the decision.
const APPLIED_WITHIN: Duration = Duration::from_secs(10);

/// The state of a decision, for the coordinator's call.
#[derive(Clone, Debug)]
pub(super) enum DecisionState {
    Open,
    Committed,
    Refused,
}

/// A transaction that is open at a home here.
pub(super) struct OpenTransaction {
    pub(super) part: Part,
    pub(super) bytes: Vec<Bytes>,
    /// The objects whose write locks it holds, in the order of their names.
    turns: Mutex<Vec<(ObjectId, Arc<Turn>)>>,
    home: Mutex<Option<HomeUse>>,
    /// The version of its record in the ledger; none if it has no record.
    pub(super) record: Mutex<Option<Version>>,
    pub(super) written: Mutex<WrittenVersions>,
    pub(super) standing: watch::Sender<DecisionState>,
}

impl OpenTransaction {
    pub(super) fn new(part: Part, bytes: Vec<Bytes>, turns: Vec<(ObjectId, Arc<Turn>)>) -> Self {
        Self {
            part,
            bytes,
            turns: Mutex::new(turns),
            home: Mutex::new(None),
            record: Mutex::new(None),
            written: Mutex::default(),
            standing: watch::Sender::new(DecisionState::Open),
        }
    }

    pub(super) fn turn(&self, object: &ObjectId) -> Option<Arc<Turn>> {
        self.turns.lock().iter().find(|(of, _)| of == object).map(|(_, turn)| Arc::clone(turn))
    }

    pub(super) fn release(&self) {
        let turns = std::mem::take(&mut *self.turns.lock());
        let home = self.home.lock().take();
        drop((turns, home));
    }
}

/// The transactions at the home of a shard.
pub(super) struct Home {
    pub(super) epoch: Epoch,
    pub(super) machine: TransactionHome,
    pub(super) open: BTreeMap<TransactionId, Arc<OpenTransaction>>,
}

/// The transactions at all homes in this process.
#[derive(Default)]
pub(in crate::memory) struct TransactionHomes(pub(super) Mutex<BTreeMap<ShardId, Home>>);

/// What a step answers to the caller.
#[derive(Debug, Default)]
pub(super) struct StepAnswer {
    pub(super) prepared: Option<Ticket>,
    pub(super) refused: bool,
    pub(super) answer: Option<Option<Outcome>>,
    pub(super) done: bool,
}

impl ObjectMemoryState {
    /// The home of a shard under `epoch` is here no more.
    pub(in crate::memory) fn lose_transactions(&self, shard: ShardId, epoch: Epoch) {
        let lost = {
            let mut homes = self.transactions.homes.0.lock();
            let is_here = homes.get(&shard).is_some_and(|home| home.epoch == epoch);
            if is_here { homes.remove(&shard) } else { None }
        };
        drop(lost);
    }

    pub(super) async fn turns_of(&self, part: &Part) -> Result<Vec<(ObjectId, Arc<Turn>)>, ObjectError> {
        let mut turns = Vec::new();
        for object in part.objects() {
            let turn = self.order.turn(&object).await?;
            turns.push((object, Arc::new(turn)));
        }
        Ok(turns)
    }

    /// Prepares a transaction at the home here. The shard `decider` decides it.
    pub(in crate::memory) async fn prepare_here(
        self: &Arc<Self>,
        shard: ShardId,
        decider: ShardId,
        part: Part,
        bytes: Vec<Bytes>,
    ) -> Result<PrepareOutcome, ObjectError> {
        let id = part.transaction;
        let home = self.use_home(shard).await.ok_or_else(moved)?;
        let epoch = self.coherence.epoch_here(shard);
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
        // A former home may know less than the next home has shown.
        self.confirm(shard, epoch).await?;
        if !changed.is_empty() {
            return Ok(PrepareOutcome::Changed(changed));
        }
        let open = Arc::new(OpenTransaction::new(part, bytes, turns));
        *open.home.lock() = Some(home);
        {
            let mut homes = self.transactions.homes.0.lock();
            let home = homes.get_mut(&shard).filter(|home| Some(home.epoch) == epoch).ok_or_else(moved)?;
            if home.open.contains_key(&id) {
                return Err(ObjectError::SlowDown("the transaction is being prepared"));
            }
            home.open.insert(id, Arc::clone(&open));
        }
        // Half of a random UUID is random enough.
        let ticket = Ticket(uuid::Uuid::new_v4().as_u64_pair().0);
        let said = self.hear_to_the_end(shard, id, TransactionInput::Prepare { decider, ticket }).await?;
        let inner = Arc::clone(self);
        spawn(async move { inner.watch_over(shard, id).await });
        match said.prepared {
            Some(ticket) => Ok(PrepareOutcome::Ready(ticket)),
            None => Err(ObjectError::SlowDown("the transaction could not be kept in the ledger")),
        }
    }

    /// Decides a transaction whose shards are all prepared: this one and `participants`. Returns when all have applied
    /// it.
    pub(in crate::memory) async fn decide_here(
        self: &Arc<Self>,
        shard: ShardId,
        id: TransactionId,
        ticket: Ticket,
        participants: BTreeSet<ShardId>,
    ) -> Result<Option<WrittenVersions>, ObjectError> {
        let Some(open) = self.open_transaction(shard, id) else { return Ok(None) };
        let mut standing = open.standing.subscribe();
        let inner = Arc::clone(self);
        spawn(async move {
            let said = inner.hear_transaction(shard, id, TransactionInput::Decide { ticket, participants }).await;
            if said.refused {
                open.standing.send_replace(DecisionState::Refused);
            }
            // The caller is told that the request was lost.
            drop(open);
        });
        let decided = timeout(APPLIED_WITHIN, standing.wait_for(|now| !matches!(now, DecisionState::Open))).await;
        let undecided = || ObjectError::TransactionUndecided;
        match decided.map_err(|_| undecided())?.map_err(|_| undecided())?.clone() {
            DecisionState::Committed => {}
            DecisionState::Refused | DecisionState::Open => return Ok(None),
        }
        let written = self.transactions.finished.lock().get(shard, id);
        written.map(Some).ok_or_else(undecided)
    }

    /// The outcome of a transaction, for a participant; none if it must ask again.
    pub(in crate::memory) async fn asked_here(
        self: &Arc<Self>,
        shard: ShardId,
        id: TransactionId,
    ) -> Result<Option<Outcome>, ObjectError> {
        let epoch = self.coherence.epoch_here(shard).ok_or_else(moved)?;
        let said = self.hear_transaction(shard, id, TransactionInput::Ask).await;
        // A former home does not know what the next home has decided.
        self.confirm(shard, Some(epoch)).await?;
        if self.transactions.finished.lock().get(shard, id).is_some() {
            return Ok(Some(Outcome::Committed));
        }
        Ok(said.answer.flatten())
    }

    /// Takes the outcome of a transaction. Returns what the transaction has written here, once that is durable.
    pub(in crate::memory) async fn ended_here(
        self: &Arc<Self>,
        shard: ShardId,
        id: TransactionId,
        outcome: Outcome,
    ) -> Result<Option<WrittenVersions>, ObjectError> {
        let epoch = self.coherence.epoch_here(shard).ok_or_else(moved)?;
        let said = self.hear_to_the_end(shard, id, TransactionInput::Ended(outcome)).await?;
        self.confirm(shard, Some(epoch)).await?;
        Ok(said.done.then(|| self.transactions.finished.lock().get(shard, id).unwrap_or_default()))
    }

    /// Hears a transaction as `hear_transaction` does, and continues if its caller disconnects.
    async fn hear_to_the_end(
        self: &Arc<Self>,
        shard: ShardId,
        id: TransactionId,
        input: TransactionInput,
    ) -> Result<StepAnswer, ObjectError> {
        let inner = Arc::clone(self);
        to_the_end(async move { Ok(inner.hear_transaction(shard, id, input).await) }).await
    }

    pub(super) fn open_transaction(&self, shard: ShardId, id: TransactionId) -> Option<Arc<OpenTransaction>> {
        self.transactions.homes.0.lock().get(&shard)?.open.get(&id).cloned()
    }

    pub(super) fn step_transaction(
        &self,
        shard: ShardId,
        id: TransactionId,
        input: TransactionInput,
    ) -> Vec<TransactionOutput> {
        let mut homes = self.transactions.homes.0.lock();
        homes.get_mut(&shard).map(|home| home.machine.step(id, input)).unwrap_or_default()
    }

    /// Gives an input to the home here, and carries out its outputs.
    pub(super) async fn hear_transaction(
        self: &Arc<Self>,
        shard: ShardId,
        id: TransactionId,
        input: TransactionInput,
    ) -> StepAnswer {
        let outputs = self.step_transaction(shard, id, input);
        self.carry_out(shard, id, outputs).await
    }

    /// Checks a transaction from time to time until it is over.
    pub(super) async fn watch_over(self: Arc<Self>, shard: ShardId, id: TransactionId) {
        let mut waited = Duration::ZERO;
        loop {
            tokio::time::sleep(OVERDUE / 4).await;
            waited += OVERDUE / 4;
            let Some(open) = self.open_transaction(shard, id) else { return };
            let is_prepared = open.record.lock().is_some();
            drop(open);
            let overdue = if is_prepared { OVERDUE } else { HELD_WITHIN };
            // Tasks of their own tell the participants of a decision until they have answered.
            if waited >= overdue {
                let outputs = self.step_transaction(shard, id, TransactionInput::Overdue);
                let outputs = outputs.into_iter().filter(|output| !matches!(output, TransactionOutput::Tell(..)));
                self.carry_out(shard, id, outputs.collect()).await;
            }
        }
    }
}
