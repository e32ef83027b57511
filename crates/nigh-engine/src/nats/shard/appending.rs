//! Assigns versions to writes, and publishes the pieces of bodies.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};
use tokio::task::JoinSet;

use super::super::envelope::{CHUNK_MAX_BYTES, Content, HEAD_BYTES, Record};
use super::super::taking::room_of;
use super::committing::{AppendJob, Job, commit_bytes};
use super::{AppendEnd, NumberedMessage, Shard, State};
use crate::commit_format::{Commit, PieceRef, crc32c};
use crate::ledger::{self, AppendResult, Body, LedgerError, PieceId, StagedPiece, StagedRoom};

/// The next step of an append.
enum AppendDecision {
    Repeated(AppendResult),
    /// An append of the same request is in progress; its end answers this one too.
    Follow(AppendEnd),
    Begun(AppendEnd),
}

impl Shard {
    /// Appends `record`; its lengths were checked.
    pub(in super::super) async fn append(
        self: &Arc<Self>,
        record: ledger::Record,
        body: Body,
    ) -> Result<AppendResult, LedgerError> {
        let turn = self.turn(&self.turns).await?;
        match self.admit(record, body, turn)? {
            AppendDecision::Repeated(appended) => Ok(appended),
            AppendDecision::Follow(ending) => {
                let AppendResult { version, .. } = ended(ending).await?;
                Ok(AppendResult { version, repeated: true })
            }
            AppendDecision::Begun(ending) => ended(ending).await,
        }
    }

    /// Assigns a version and a place in the queue to a record, unless its request was carried out or is under way.
    fn admit(
        &self,
        record: ledger::Record,
        body: Body,
        turn: OwnedSemaphorePermit,
    ) -> Result<AppendDecision, LedgerError> {
        // Before the lock, which a piece takes that is dropped: one that is refused is dropped after the lock.
        let (inline, staged) = match body {
            Body::Inline(inline) => (inline, Vec::new()),
            Body::Staged(staged) => (Bytes::new(), staged),
        };
        let mut state = self.state.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        let key = state.requests.key(self.id, &record);
        if let Some(version) = state.requests.get(&key) {
            return Ok(AppendDecision::Repeated(AppendResult { version, repeated: true }));
        }
        if let Some(ending) = state.begun.get(&key) {
            return Ok(AppendDecision::Follow(ending.clone()));
        }
        if let Some(foreign) = staged.iter().find(|piece| !piece.is_of(self)) {
            // It was staged under another epoch of this shard, where its identifier is another piece's.
            return Err(LedgerError::UnknownPiece(foreign.piece().0));
        }
        let chunks = staged.iter().map(|piece| (piece.bytes() as usize).div_ceil(CHUNK_MAX_BYTES)).sum();
        let room = room_of(&self.subject, commit_bytes(&record, chunks, &inline));
        if !state.has_room(room, self.settings.limit.bytes()) {
            self.crowded.notify_one();
            return Err(LedgerError::Full);
        }
        let named: Vec<_> = staged.iter().map(|piece| (piece.piece(), u64::from(piece.bytes()))).collect();
        let pieces = state.index.name_pieces(&named).map_err(|PieceId(id)| LedgerError::UnknownPiece(id))?;
        staged.into_iter().for_each(StagedPiece::named);
        let commit = Commit { shard: self.id, version: state.next_version(self.epoch), record, pieces };
        let (done, ending) = watch::channel(None);
        state.begun.insert(key, ending.clone());
        state.promised_bytes += room;
        // Under the lock, so that the queue has the order of the versions. The receiver exists as long as the shard.
        let _ = self.jobs.send(Job::Append(AppendJob { commit, inline, key, room, done, _turn: turn }));
        Ok(AppendDecision::Begun(ending))
    }

    /// Puts a piece into chunks of the stream.
    pub(in super::super) async fn stage(self: &Arc<Self>, piece: Bytes) -> Result<StagedPiece, LedgerError> {
        let turn = self.turn(&self.piece_turns).await?;
        let chunks: Vec<Bytes> = chunks_of(&piece).collect();
        let room = chunks.iter().map(|chunk| room_of(&self.subject, HEAD_BYTES + chunk.len())).sum();
        let (id, numbered) = {
            let mut state = self.state.lock();
            if !state.has_room(room, self.settings.limit.bytes()) {
                self.crowded.notify_one();
                return Err(LedgerError::Full);
            }
            state.promised_bytes += room;
            state.last_piece += 1;
            let id = PieceId(state.last_piece);
            (id, self.number_chunks(&mut state, chunks))
        };
        let (send, staged) = oneshot::channel();
        let shard = Arc::clone(self);
        tokio::spawn(async move {
            let _turn = turn;
            let chunks = shard.deliver_chunks(numbered).await;
            shard.state.lock().promised_bytes -= room;
            let staged = chunks.map(|chunks| {
                shard.state.lock().index.add_piece(id, chunks);
                StagedPiece::new(id, piece.len() as u32, crc32c(&piece), Arc::clone(&shard) as Arc<dyn StagedRoom>)
            });
            // If nobody waits, the piece is dropped, which frees its room.
            let _ = send.send(staged);
        });
        let gone = |_| LedgerError::Failed("a task of the ledger has ended".to_owned());
        staged.await.map_err(gone)?.map_err(|error| match error {
            // A piece takes no version.
            LedgerError::NotKept(reason) => LedgerError::Unavailable(reason),
            other => other,
        })
    }

    pub(super) fn number_chunks(&self, state: &mut State, chunks: Vec<Bytes>) -> Vec<NumberedMessage> {
        let record = |body| [Record { content: Content::Chunk, body }];
        chunks.into_iter().map(|chunk| self.number(state, &record(chunk), None)).collect()
    }

    /// Publishes chunks concurrently and returns their places. If one fails, none is needed.
    pub(super) async fn deliver_chunks(
        self: &Arc<Self>,
        chunks: Vec<NumberedMessage>,
    ) -> Result<Vec<PieceRef>, LedgerError> {
        let mut deliveries = JoinSet::new();
        for (at, numbered) in chunks.into_iter().enumerate() {
            let shard = Arc::clone(self);
            deliveries.spawn(async move {
                let body = numbered.message.slice(HEAD_BYTES..);
                let (bytes, crc) = (body.len() as u32, crc32c(&body));
                let delivered = shard.deliver(numbered, false, |state, published| {
                    let chunk = PieceRef { id: PieceId(published.place), bytes, crc };
                    state.index.need_chunks(&[chunk]);
                    chunk
                });
                (at, delivered.await)
            });
        }
        let mut delivered = deliveries.join_all().await;
        delivered.sort_by_key(|(at, _)| *at);
        let (mut whole, mut failed) = (Vec::new(), None);
        for (_, one) in delivered {
            match one {
                Ok(chunk) => whole.push(chunk),
                Err(error) => failed = Some(error),
            }
        }
        let Some(error) = failed else { return Ok(whole) };
        self.state.lock().index.release_chunks(&whole);
        Err(error)
    }
}

fn chunks_of(piece: &Bytes) -> impl Iterator<Item = Bytes> + '_ {
    (0..piece.len()).step_by(CHUNK_MAX_BYTES).map(|from| piece.slice(from..piece.len().min(from + CHUNK_MAX_BYTES)))
}

async fn ended(mut ending: AppendEnd) -> Result<AppendResult, LedgerError> {
    let gone = || LedgerError::Failed("a task of the ledger has ended".to_owned());
    let ended = ending.wait_for(Option::is_some).await.map_err(|_| gone())?;
    ended.clone().unwrap_or_else(|| Err(gone()))
}
