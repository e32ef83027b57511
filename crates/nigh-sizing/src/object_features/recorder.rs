//! Records the features of objects: observes objects that are stored or read into memory, lets parser processes look at
//! their headers in the background, and keeps the result. The shell around `look_queue` and `known_objects`.
//!
//! A data call only adds a name to a bounded queue. The recorder asks the store only for an object whose trigger waits
//! for its features (`trigger_features`).

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use nigh_data::{ObjectError, ObjectEvent, ObjectId, ObjectObserver, ServeOutcome};
use nigh_engine::{Registry, RegistryError};
use nigh_learn::FeatureRow;
use nigh_learn::media::{KIND_BYTES, ObjectHead, Window, is_readable};
use nigh_objects::ObjectMemory;
use nigh_terms::{BucketName, ByteSize, Namespace, ObjectKey, Version};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, timeout_at};
use tokio_util::sync::CancellationToken;

use super::frames::{ParserMessage, permitted};
use super::known_objects::{KnownObject, KnownObjects};
use super::lanes::{Lane, LookEnd, PROCESSES_MAX, make_room};
use super::look_queue::{LookQueue, LookRequest};
use super::object_bytes::ObjectBytes;
use super::parser_process::{ParserError, ParserProcess, ParserProgram};
use super::stored_rows::{self, Changes};
use super::{INPUT_SIZE, ObjectFeatures};

/// The first bytes of an object that a parser gets.
const HEAD_BYTES: u64 = 16 * 1024;
/// Rounds of a look. In all but the last a parser may ask for further bytes.
const ROUNDS_MAX: usize = 4;
/// How often changes are written and idle processes are ended.
const TICK: Duration = Duration::from_millis(500);
/// Counts of a recorder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FeaturesStatus {
    /// Objects with known features.
    pub objects: usize,
    /// The memory that the features take.
    pub bytes: ByteSize,
    /// Objects looked at since the start.
    pub looked: u64,
    /// Looks in which the parser failed. Only the size of these objects is known.
    pub failed: u64,
    /// Objects that were not looked at because the queue was full.
    pub dropped: u64,
    /// Objects in the queue.
    pub waiting: usize,
    /// Parser processes.
    pub processes: usize,
    /// Objects whose features are not stored yet; after a crash they are looked at again.
    #[serde(default)]
    pub unstored: usize,
}

#[derive(Default)]
struct Counts {
    looked: AtomicU64,
    failed: AtomicU64,
    processes: AtomicUsize,
    /// Changes that are being stored, and are among `FeatureRecorderState::changes` no more. Set under its lock.
    storing: AtomicUsize,
}

struct FeatureRecorderState {
    registry: Arc<dyn Registry>,
    program: ParserProgram,
    known: Mutex<KnownObjects>,
    queue: Mutex<LookQueue>,
    changes: Mutex<Changes>,
    /// The queue has an object.
    waiting: Notify,
    /// A look has ended.
    landed: Notify,
    counts: Counts,
}

/// Records features of objects. Clones share one state.
#[derive(Clone)]
pub struct FeatureRecorder(Arc<FeatureRecorderState>);

impl FeatureRecorder {
    /// Loads the recorded features from the registry. `program` parses headers; `memory` bounds the features' memory.
    ///
    /// # Errors
    /// If the registry cannot be read.
    #[boxed]
    pub async fn open(
        registry: Arc<dyn Registry>,
        program: ParserProgram,
        memory: ByteSize,
    ) -> Result<Self, RegistryError> {
        let mut known = KnownObjects::new(memory);
        stored_rows::load(&*registry, &mut known).await?;
        Ok(Self(Arc::new(FeatureRecorderState {
            registry,
            program,
            known: Mutex::new(known),
            queue: Mutex::default(),
            changes: Mutex::default(),
            waiting: Notify::new(),
            landed: Notify::new(),
            counts: Counts::default(),
        })))
    }

    /// The program that parses headers.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.0.program.path
    }

    /// The present counts.
    #[must_use]
    pub fn status(&self) -> FeaturesStatus {
        let (objects, bytes) = self.0.known.lock().usage();
        let (waiting, dropped) = self.0.queue.lock().counts();
        let counts = &self.0.counts;
        let unstored = {
            let changes = self.0.changes.lock();
            changes.len() + counts.storing.load(Ordering::Relaxed)
        };
        FeaturesStatus {
            objects,
            bytes,
            looked: counts.looked.load(Ordering::Relaxed),
            failed: counts.failed.load(Ordering::Relaxed),
            dropped,
            waiting,
            processes: counts.processes.load(Ordering::Relaxed),
            unstored,
        }
    }

    /// An object's features and the version that they describe.
    #[must_use]
    pub fn recorded(&self, object: &ObjectId) -> Option<(Version, Arc<FeatureRow>)> {
        let known = self.0.known.lock();
        known.peek(object).map(|known| (known.version, Arc::clone(&known.row)))
    }

    /// Puts these objects at the head of the queue, reads them from the store if necessary, and waits until all have
    /// features, at most for `within`. True if all have.
    #[boxed]
    pub async fn await_looks(&self, objects: &[ObjectId], within: Duration) -> bool {
        let until = Instant::now() + within;
        let unknown = |inner: &FeatureRecorderState| -> Vec<ObjectId> {
            let known = inner.known.lock();
            objects.iter().filter(|object| known.peek(object).is_none()).cloned().collect()
        };
        for object in unknown(&self.0) {
            self.0.want(object, true);
        }
        loop {
            let landed = self.0.landed.notified();
            tokio::pin!(landed);
            // From here on the end of a look is not missed.
            landed.as_mut().enable();
            if unknown(&self.0).is_empty() {
                return true;
            }
            if timeout_at(until, landed).await.is_err() {
                return false;
            }
        }
    }

    /// Works on the queue until `stop`. Called once.
    #[boxed]
    pub async fn run(self, memory: ObjectMemory, stop: CancellationToken) {
        let inner = self.0;
        let mut lanes: HashMap<Namespace, Lane> = HashMap::new();
        let mut looks: JoinSet<LookEnd> = JoinSet::new();
        let mut busy: HashMap<Id, Namespace> = HashMap::new();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            while busy.len() < PROCESSES_MAX {
                let now = Instant::now();
                let rests = |namespace: &Namespace| {
                    lanes.get(namespace).and_then(|lane| lane.rests_until).is_some_and(|until| until > now)
                };
                let is_busy = |namespace: &Namespace| busy.values().any(|one| one == namespace) || rests(namespace);
                let Some(wanted) = inner.queue.lock().next(is_busy) else { break };
                let namespace = wanted.object.namespace.clone();
                let process = lanes.get_mut(&namespace).and_then(|lane| lane.process.take()).map(|(one, _)| one);
                if process.is_none() {
                    make_room(&mut lanes, busy.len());
                }
                let look = Arc::clone(&inner).look(memory.clone(), wanted, process);
                busy.insert(looks.spawn(look).id(), namespace);
            }
            let idle = lanes.values().filter(|lane| lane.process.is_some()).count();
            inner.counts.processes.store(idle + busy.len(), Ordering::Relaxed);
            let now = Instant::now();
            let rests = lanes.values().filter_map(|lane| lane.rests_until).filter(|until| *until > now);
            let rested = rests.min().map(tokio::time::sleep_until);
            tokio::select! {
                () = stop.cancelled() => break,
                () = async { match rested { Some(rested) => rested.await, None => std::future::pending().await } } => {}
                () = inner.waiting.notified() => {}
                _ = tick.tick() => {
                    let now = Instant::now();
                    lanes.retain(|_, lane| lane.is_of_use(now));
                    inner.write_changes().await;
                }
                Some(ended) = looks.join_next_with_id() => match ended {
                    Ok((id, ended)) => {
                        busy.remove(&id);
                        lanes.entry(ended.namespace.clone()).or_default().look_ended(ended);
                        inner.landed.notify_waiters();
                    }
                    Err(error) => {
                        busy.remove(&error.id());
                        tracing::error!(%error, "a look at an object's header panicked");
                    }
                },
            }
        }
        inner.write_changes().await;
    }
}

impl FeatureRecorderState {
    fn want(&self, object: ObjectId, from_store: bool) {
        // A key with this end marks a folder.
        if !object.key.as_str().ends_with('/') {
            self.queue.lock().push(LookRequest { object, from_store });
            self.waiting.notify_one();
        }
    }

    /// Forgets the features of other versions than `version`; without a version, of all.
    fn forget_other(&self, object: &ObjectId, version: Option<Version>) {
        if self.known.lock().forget_other(object, version) {
            self.changes.lock().set(object, None);
        }
    }

    fn keep(&self, known: KnownObject) {
        // Locked first: whoever sees the features finds them counted as unstored.
        let mut changes = self.changes.lock();
        let gone = self.known.lock().keep(known.clone());
        let object = known.object.clone();
        changes.set(&object, Some(known));
        for object in gone {
            changes.set(&object, None);
        }
    }

    async fn write_changes(&self) {
        let changes = {
            let mut waiting = self.changes.lock();
            self.counts.storing.store(waiting.len(), Ordering::Relaxed);
            std::mem::take(&mut *waiting)
        };
        if let Err(error) = stored_rows::write(&*self.registry, changes).await {
            tracing::warn!(%error, "features of objects cannot be stored; the objects are looked at again after the next start");
        }
        self.counts.storing.store(0, Ordering::Relaxed);
    }

    async fn look(
        self: Arc<Self>,
        memory: ObjectMemory,
        wanted: LookRequest,
        process: Option<ParserProcess>,
    ) -> LookEnd {
        let began = Instant::now();
        let namespace = wanted.object.namespace.clone();
        let mut ended = LookEnd { namespace, process, trouble: false, took: Duration::ZERO };
        self.look_and_keep(&memory, &wanted, &mut ended).await;
        ended.took = began.elapsed();
        ended
    }

    async fn look_and_keep(&self, memory: &ObjectMemory, wanted: &LookRequest, ended: &mut LookEnd) {
        let Some(bytes) = ObjectBytes::of(memory, wanted).await else { return };
        let version = bytes.meta.version;
        if self.known.lock().peek(&wanted.object).is_some_and(|known| known.version == version) {
            return;
        }
        let mut row = match self.look_at(&bytes, wanted, ended).await {
            Ok(row) => row,
            // The object was deleted or overwritten meanwhile.
            Err(error) => {
                return tracing::debug!(object = %wanted.object, %error, "the features of an object are not recorded");
            }
        };
        // A row has room for all features of a header and the size.
        let _full = row.set_number(INPUT_SIZE, bytes.meta.size as f64);
        self.keep(KnownObject { object: wanted.object.clone(), version, row: Arc::new(row) });
        if bytes.is_old() {
            self.forget_other(&wanted.object, None);
        }
    }

    /// The features in an object's header; none if the kind of file is not known or the parser fails.
    async fn look_at(
        &self,
        bytes: &ObjectBytes<'_>,
        wanted: &LookRequest,
        ended: &mut LookEnd,
    ) -> Result<FeatureRow, ObjectError> {
        let size = bytes.meta.size;
        let head = bytes.read(0..size.min(HEAD_BYTES)).await?;
        if !is_readable(&head[..head.len().min(KIND_BYTES)]) {
            return Ok(FeatureRow::default());
        }
        self.counts.looked.fetch_add(1, Ordering::Relaxed);
        let (mut row, mut given) = (FeatureRow::default(), vec![(0, head)]);
        for _ in 0..ROUNDS_MAX {
            let windows: Vec<Window<'_>> = given.iter().map(|(from, bytes)| Window { from: *from, bytes }).collect();
            let content_type = bytes.meta.attributes.content_type.as_deref().unwrap_or_default();
            let head = ObjectHead { size, windows: &windows, name: wanted.object.key.as_str(), content_type };
            let wants = match self.ask(&head, ended).await {
                Ok(ParserMessage::Looked { row: seen, wants }) => {
                    row = seen;
                    wants
                }
                Ok(_) => None,
                Err(error) => {
                    self.counts.failed.fetch_add(1, Ordering::Relaxed);
                    tracing::debug!(object = %wanted.object, %error, "a parser failed; only the object's size is known");
                    return Ok(FeatureRow::default());
                }
            };
            let Some(range) = permitted(wants, size) else { break };
            given.push((range.start, bytes.read(range).await?));
        }
        Ok(row)
    }

    /// Asks the namespace's process, and starts it if there is none.
    async fn ask(&self, head: &ObjectHead<'_>, ended: &mut LookEnd) -> Result<ParserMessage, ParserError> {
        let process = match ended.process.take() {
            Some(process) => Ok(process),
            None => self.program.start().await,
        };
        let mut process = process.inspect_err(|error| {
            ended.trouble = true;
            tracing::warn!(%error, "the parser of objects' headers cannot be started");
        })?;
        let said = process.look(head).await;
        match &said {
            Err(error) if !error.spares_the_process() => ended.trouble = true,
            _ => ended.process = Some(process),
        }
        said
    }
}

impl ObjectObserver for FeatureRecorder {
    fn observe(&self, event: &ObjectEvent) {
        let Some(key) = &event.key else { return };
        let namespace = event.principal.namespace.clone();
        let object = ObjectId { namespace, bucket: event.bucket.clone(), key: key.clone() };
        match event.served {
            ServeOutcome::Delete => self.0.forget_other(&object, None),
            ServeOutcome::Write => {
                self.0.forget_other(&object, event.version);
                self.0.want(object, false);
            }
            ServeOutcome::Hit | ServeOutcome::Miss | ServeOutcome::Past | ServeOutcome::Metadata => {
                let Some(version) = event.version else { return };
                let known = self.0.known.lock().peek(&object).map(|known| known.version);
                // Somebody wrote it outside Nigh, or its tags have changed.
                let is_other = known.is_some_and(|known| known != version);
                if is_other {
                    self.0.forget_other(&object, Some(version));
                }
                // A miss has brought the object into memory, where it can be looked at.
                if is_other || (known.is_none() && event.served == ServeOutcome::Miss) {
                    self.0.want(object, false);
                }
            }
            ServeOutcome::Failed => {}
        }
    }
}

impl ObjectFeatures for FeatureRecorder {
    fn of(&self, namespace: &Namespace, bucket: &BucketName, key: &ObjectKey) -> Option<Arc<FeatureRow>> {
        self.0.known.lock().ask(namespace, bucket, key)
    }
}
