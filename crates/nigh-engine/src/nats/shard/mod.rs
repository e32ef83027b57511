//! The journal of one shard at its home: publishes writes under the home's epoch, all waiting writes in one message, and
//! keeps an index of the stream.
//!
//! A server decides messages with an expectation on the epoch's subject one after another, so one such message is under way
//! at a time, with all waiting writes (`committing`). Chunks of bodies have no expectation and are published concurrently
//! (`appending`): they count only once a write names them. A version is assigned before its message is sent; if the message
//! fails, the version is lost and the caller learns it.

mod appending;
mod committing;
mod reading;
mod settling;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use async_nats::HeaderMap;
use async_nats::header::{HeaderName, NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_EXPECTED_STREAM, NATS_MESSAGE_ID};
use bytes::Bytes;
use nigh_terms::{Epoch, Sequence, ShardId, Version};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::timeout;

use self::committing::Job;
use super::Cluster;
use super::envelope::{Frame, Record, encode};
use super::link::{MessagePlace, NotPublished};
use super::settings::LedgerSettings;
use super::stream_index::StreamIndex;
use super::taking::room_of;
use super::witness::Witness;
use crate::ledger::{self, AppendResult, LedgerError, PieceId, StagedRoom};
use crate::requests::{RequestKey, Requests};

/// The header that names the subject whose last message is expected (JetStream's own; the client has no constant).
const EXPECTED_SUBJECT: HeaderName = HeaderName::from_static("Nats-Expected-Last-Subject-Sequence-Subject");

/// The outcome of an append, for all callers of the same request.
type AppendEnd = watch::Receiver<Option<Result<AppendResult, LedgerError>>>;

/// The state that changes, under one lock.
struct State {
    index: StreamIndex,
    requests: Requests,
    /// Requests that are being carried out.
    begun: HashMap<RequestKey, AppendEnd>,
    /// The numbers of the messages under way, each with its start.
    under_way: BTreeMap<u64, Instant>,
    /// Room that is reserved for writes that wait or are being sent.
    promised_bytes: u64,
    last_number: u64,
    last_sequence: u64,
    last_piece: u64,
    failure: Option<LedgerError>,
}

/// A shard and its home here.
pub(super) struct Shard {
    cluster: Cluster,
    settings: LedgerSettings,
    id: ShardId,
    epoch: Epoch,
    stream: String,
    epoch_subject: String,
    subject: String,
    /// The subject of all messages, and the subject of the expectation.
    headers: HeaderMap,
    fenced: HeaderMap,
    state: Mutex<State>,
    witness: Witness,
    /// The jobs to commit, in the order of their versions.
    jobs: mpsc::UnboundedSender<Job>,
    /// Limit the writes, and the pieces, under way.
    turns: Arc<Semaphore>,
    piece_turns: Arc<Semaphore>,
    /// Notified when there is no room: stored writes must be trimmed at once.
    crowded: Notify,
}

/// A message with its number.
struct NumberedMessage {
    number: u64,
    message: Bytes,
}

impl Shard {
    /// A shard that was just taken.
    pub(super) fn new(
        cluster: Cluster,
        settings: LedgerSettings,
        id: ShardId,
        epoch: Epoch,
        witness: Witness,
        index: StreamIndex,
        answered: &[(ledger::Record, Version)],
    ) -> Arc<Self> {
        let names = cluster.settings();
        let [epoch_subject, subject] = names.ledger_subjects(id);
        let stream = names.ledger_stream(id);
        let mut headers = HeaderMap::new();
        headers.insert(NATS_EXPECTED_STREAM, stream.as_str());
        let mut fenced = headers.clone();
        fenced.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, epoch.0.to_string());
        fenced.insert(EXPECTED_SUBJECT, epoch_subject.as_str());
        let mut requests = Requests::default();
        for (record, version) in answered {
            requests.insert(requests.key(id, record), *version);
        }
        let state = State {
            index,
            requests,
            begun: HashMap::new(),
            under_way: BTreeMap::new(),
            promised_bytes: 0,
            last_number: 0,
            last_sequence: 0,
            last_piece: 0,
            failure: None,
        };
        let [turns, piece_turns] =
            [settings.under_way_max, settings.pieces_under_way_max].map(|most| Arc::new(Semaphore::new(most)));
        let (state, crowded) = (Mutex::new(state), Notify::new());
        // The turns bound the queue: each job but a `Settle` has one.
        let (jobs, queue) = mpsc::unbounded_channel();
        let every = settings.settle_every;
        let shard = Arc::new(Self {
            cluster,
            settings,
            id,
            epoch,
            stream,
            epoch_subject,
            subject,
            headers,
            fenced,
            state,
            witness,
            jobs,
            turns,
            piece_turns,
            crowded,
        });
        tokio::spawn(Self::commit_all(Arc::downgrade(&shard), queue));
        tokio::spawn(Self::tend(Arc::downgrade(&shard), every));
        shard
    }

    pub(super) const fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(super) fn check(&self) -> Result<(), LedgerError> {
        self.state.lock().failure.clone().map_or(Ok(()), Err)
    }

    /// The next version.
    pub(super) fn place(&self) -> Version {
        self.state.lock().next_version(self.epoch)
    }

    /// The number of unpushed records, and the bytes of all messages.
    pub(super) fn usage(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.index.records() as u64, state.index.bytes())
    }

    /// Waits for a turn to send, within a time limit; fails at once if servers do not answer earlier messages.
    async fn turn(&self, turns: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, LedgerError> {
        self.check()?;
        let slow = || LedgerError::Unavailable("the servers have not answered for a while".to_owned());
        let oldest = self.state.lock().under_way.values().next().copied();
        if oldest.is_some_and(|since| since.elapsed() > self.settings.wait) {
            return Err(slow());
        }
        match timeout(self.settings.wait, Arc::clone(turns).acquire_owned()).await {
            Ok(Ok(turn)) => Ok(turn),
            Ok(Err(_)) | Err(_) => Err(slow()),
        }
    }

    /// Assigns a number to a message. When the message is written, the messages before `trimmed` may be removed.
    fn number(&self, state: &mut State, records: &[Record], trimmed: Option<u64>) -> NumberedMessage {
        state.last_number += 1;
        let number = state.last_number;
        let trimmed = trimmed.unwrap_or(state.index.trimmed());
        let message = encode(&Frame { shard: self.id, epoch: self.epoch, number, trimmed }, records);
        state.under_way.insert(number, Instant::now());
        NumberedMessage { number, message }
    }

    /// Publishes a message and records its place. `fenced`: only under this home's epoch. Runs `noted` under the same lock.
    async fn deliver<T>(
        &self,
        NumberedMessage { number, message }: NumberedMessage,
        fenced: bool,
        noted: impl FnOnce(&mut State, MessagePlace) -> T,
    ) -> Result<T, LedgerError> {
        let mut headers = if fenced { self.fenced.clone() } else { self.headers.clone() };
        headers.insert(NATS_MESSAGE_ID, format!("{}.{}.{number}", self.stream, self.epoch));
        let within = self.cluster.settings().answer_within;
        let published = self.cluster.publish(&self.subject, &headers, &message, within).await;
        let room = room_of(&self.subject, message.len());
        let mut state = self.state.lock();
        state.under_way.remove(&number);
        let failure = match published {
            Ok(published) if published.place > self.epoch.0 && state.index.add(published.place, room) => {
                return Ok(noted(&mut state, published));
            }
            Ok(MessagePlace { place, .. }) => LedgerError::Failed(format!(
                "the stream {} gave place {place} twice: it has lost what was acknowledged",
                self.stream
            )),
            Err(NotPublished::Full) => return Err(LedgerError::NotKept(format!("the stream {} is full", self.stream))),
            Err(NotPublished::NotTaken(reason)) => return Err(LedgerError::NotKept(reason)),
            Err(NotPublished::Condition) => LedgerError::Fenced { shard: self.id, held: self.epoch },
            Err(NotPublished::Unknown(reason)) => {
                LedgerError::Failed(format!("it is not known whether {} has a message: {reason}", self.stream))
            }
            Err(NotPublished::Refused(reason)) => {
                LedgerError::Failed(format!("{} refused a message: {reason}", self.stream))
            }
        };
        Err(self.fail(&mut state, failure))
    }

    /// Stops accepting writes; the first reason stays.
    fn fail(&self, state: &mut State, failure: LedgerError) -> LedgerError {
        if state.failure.is_none() {
            tracing::error!(shard = %self.id, epoch = %self.epoch, %failure, "the home accepts no more writes");
            state.failure = Some(failure.clone());
            self.crowded.notify_one();
        }
        failure
    }
}

impl State {
    fn next_version(&mut self, epoch: Epoch) -> Version {
        self.last_sequence += 1;
        Version { epoch, sequence: Sequence(self.last_sequence) }
    }

    /// True if `bytes` more fit within `limit`.
    fn has_room(&self, bytes: u64, limit: u64) -> bool {
        self.index.bytes() + self.promised_bytes + bytes <= limit
    }
}

impl StagedRoom for Shard {
    fn release(&self, piece: PieceId) {
        self.state.lock().index.release(piece);
    }
}
