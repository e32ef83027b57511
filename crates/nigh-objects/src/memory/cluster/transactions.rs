//! Transactions over homes of different processes: the calls that prepare, decide and end them.
//!
//! Each call is made, or served, once; the machines decide what follows from a call without an answer.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use nigh_data::ObjectError;
use nigh_protocol::{Outcome, Ticket, TransactionId};
use nigh_rpc::{Body, Call};
use nigh_terms::ShardId;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::neighbours::NotAnswered;
use super::wire::{DECIDE, Decide, EndedAnswer, OUTCOME, OutcomeMessage, PREPARE, PrepareRequest, WireError};
use crate::memory::ObjectMemoryState;
use crate::memory::coherence::moved;
use crate::memory::transactions::{PrepareOutcome, WrittenVersions};
use crate::transaction_part::Part;

/// The result of a question to a home.
pub(in crate::memory) enum HomeReply<T> {
    /// The home has answered.
    Answered(T),
    /// The home has refused: none of the writes takes place there.
    Refused(ObjectError),
    /// No answer came.
    Lost(ObjectError),
}

impl ObjectMemoryState {
    async fn ask_about<T: DeserializeOwned>(
        &self,
        shard: ShardId,
        method: &nigh_rpc::Method,
        head: &impl Serialize,
        body: Body,
    ) -> HomeReply<T> {
        let Some(neighbours) = &self.neighbours else { return HomeReply::Refused(moved()) };
        match neighbours.ask_home::<T>(shard, method, head, body).await {
            Ok((answer, _)) => HomeReply::Answered(answer),
            Err(NotAnswered::Refused(WireError::Undecided)) => HomeReply::Lost(ObjectError::TransactionUndecided),
            Err(NotAnswered::Refused(error)) => HomeReply::Refused(error.into()),
            Err(NotAnswered::Away(why)) => HomeReply::Lost(ObjectError::Busy(why)),
        }
    }

    /// Asks the home of `shard`, wherever it is, to prepare a transaction.
    pub(in crate::memory) async fn prepare_at(
        self: &Arc<Self>,
        shard: ShardId,
        decider: ShardId,
        part: Part,
        bytes: Vec<Bytes>,
    ) -> HomeReply<PrepareOutcome> {
        if self.coherence.is_home(shard) {
            return match self.prepare_here(shard, decider, part, bytes).await {
                Ok(prepared) => HomeReply::Answered(prepared),
                Err(error) => HomeReply::Refused(error),
            };
        }
        let prepare = PrepareRequest { shard, decider, part };
        self.ask_about(shard, &PREPARE, &prepare, Body::pieces(bytes)).await
    }

    /// Tells the home of `shard`, wherever it is, to decide a transaction.
    pub(in crate::memory) async fn decide_at(
        self: &Arc<Self>,
        shard: ShardId,
        transaction: TransactionId,
        ticket: Ticket,
        participants: BTreeSet<ShardId>,
    ) -> HomeReply<Option<WrittenVersions>> {
        if self.coherence.is_home(shard) {
            return match self.decide_here(shard, transaction, ticket, participants).await {
                Ok(decided) => HomeReply::Answered(decided),
                Err(error) => HomeReply::Lost(error),
            };
        }
        let decide = Decide { shard, transaction, ticket, participants };
        self.ask_about(shard, &DECIDE, &decide, Body::empty()).await
    }

    /// Asks the home of `shard`, wherever it is, for the outcome of a transaction.
    pub(in crate::memory) async fn ask_at(
        self: &Arc<Self>,
        shard: ShardId,
        transaction: TransactionId,
    ) -> Result<Option<Outcome>, ObjectError> {
        if self.coherence.is_home(shard) {
            return self.asked_here(shard, transaction).await;
        }
        let ended = OutcomeMessage { shard, transaction, outcome: None };
        match self.ask_about(shard, &OUTCOME, &ended, Body::empty()).await {
            HomeReply::Answered(EndedAnswer::Known(outcome)) => Ok(outcome),
            HomeReply::Answered(EndedAnswer::Applied(_)) => Ok(None),
            HomeReply::Refused(error) | HomeReply::Lost(error) => Err(error),
        }
    }

    /// Tells the home of `shard`, wherever it is, the outcome of a transaction; none if it must be told again.
    pub(in crate::memory) async fn end_at(
        self: &Arc<Self>,
        shard: ShardId,
        transaction: TransactionId,
        outcome: Outcome,
    ) -> Result<Option<WrittenVersions>, ObjectError> {
        if self.coherence.is_home(shard) {
            return self.ended_here(shard, transaction, outcome).await;
        }
        let ended = OutcomeMessage { shard, transaction, outcome: Some(outcome) };
        match self.ask_about(shard, &OUTCOME, &ended, Body::empty()).await {
            HomeReply::Answered(EndedAnswer::Applied(written)) => Ok(written),
            HomeReply::Answered(EndedAnswer::Known(_)) => Ok(None),
            HomeReply::Refused(error) | HomeReply::Lost(error) => Err(error),
        }
    }

    fn is_served_here(&self, shard: ShardId) -> Result<(), WireError> {
        if self.coherence.is_home(shard) { Ok(()) } else { Err(WireError::Elsewhere) }
    }

    pub(super) async fn serve_prepare(
        self: &Arc<Self>,
        prepare: PrepareRequest,
        mut call: Call<'_>,
    ) -> Result<PrepareOutcome, WireError> {
        let PrepareRequest { shard, decider, part } = prepare;
        self.is_served_here(shard)?;
        let is_of = |object: &nigh_data::ObjectId| self.coherence.shards.of(object) == shard;
        let announced = call.body.len();
        if !part.objects().iter().all(is_of) || part.bytes() != announced {
            return Err(WireError::InvalidRequest(
                "a transaction's part names another shard, or has a wrong length".to_owned(),
            ));
        }
        let mut all = Vec::with_capacity(announced as usize);
        while let Some(piece) = call.body.next().await.map_err(|error| WireError::Busy(error.to_string()))? {
            all.extend_from_slice(&piece);
        }
        let bytes = part.split(all.into());
        let bytes = bytes.ok_or_else(|| WireError::InvalidRequest("bytes of no object".to_owned()))?;
        self.prepare_here(shard, decider, part, bytes).await.map_err(WireError::from)
    }

    pub(super) async fn serve_decide(self: &Arc<Self>, decide: Decide) -> Result<Option<WrittenVersions>, WireError> {
        let Decide { shard, transaction, ticket, participants } = decide;
        self.is_served_here(shard)?;
        self.decide_here(shard, transaction, ticket, participants).await.map_err(WireError::from)
    }

    pub(super) async fn serve_ended(self: &Arc<Self>, ended: OutcomeMessage) -> Result<EndedAnswer, WireError> {
        let OutcomeMessage { shard, transaction, outcome } = ended;
        self.is_served_here(shard)?;
        Ok(match outcome {
            None => EndedAnswer::Known(self.asked_here(shard, transaction).await?),
            Some(outcome) => EndedAnswer::Applied(self.ended_here(shard, transaction, outcome).await?),
        })
    }
}
