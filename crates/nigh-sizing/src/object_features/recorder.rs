//! Records what objects are: hears of them as they are stored or brought into memory, has their headers looked at in the
//! background, and keeps what was seen. The shell around `look_queue` and `known_objects`.
//!
//! It never slows a data call down, whose end it hears of on the call's own thread: an object that waits is a name in a
//! bounded queue. Nor does it ask the store, but for an object whose own trigger waits (`trigger_features`).

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use nigh_data::{ObjectError, ObjectEvent, ObjectId, ObjectObserver, ServeOutcome};
use nigh_engine::{Registry, RegistryError};
use nigh_learn::FeatureRow;
use nigh_learn::media::{KIND_BYTES, ObjectHead, Window, is_readable};
use nigh_objects::ObjectMemory;
use nigh_terms::{BucketName, ByteSize, Namespace, ObjectKey, Version};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, timeout_at};
use tokio_util::sync::CancellationToken;

use super::frames::{ParserMessage, permitted};
use super::known_objects::{KnownObject, KnownObjects};
use super::look_queue::{LookQueue, LookRequest};
use super::object_bytes::ObjectBytes;
use super::parser_process::{ParserError, ParserProcess, ParserProgram};
use super::stored_rows::{self, Changes};
use super::{INPUT_SIZE, ObjectFeatures};

/// Processes at a time, of as many namespaces.
const PROCESSES_MAX: usize = 4;
/// Bytes of an object that are looked at first.
const HEAD_BYTES: u64 = 16 * 1024;
/// How often a process may be asked about one object: it may wish for further bytes all but the last time.
const ROUNDS_MAX: usize = 4;
/// How long a process is kept without work.
const IDLE: Duration = Duration::from_secs(10);
/// How often what has changed is written, and idle processes end.
const TICK: Duration = Duration::from_millis(500);
/// How long a namespace rests after its process had to be ended, at first and at most.
const REST: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(60);
/// How many times as long as a look took its namespace rests after it: looks take a fifth of one core for it at most.
const PACE: u32 = 4;

/// What has been recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeaturesStatus {
    /// Objects of which something is known now.
    pub objects: usize,
    /// What that takes.
    pub bytes: ByteSize,
    /// Objects whose header was looked at since the start.
    pub looked: u64,
    /// Those among them at which a parser failed: of them only the size is known.
    pub failed: u64,
    /// Objects that were not looked at, as too many waited.
    pub dropped: u64,
    /// Objects that wait now.
    pub waiting: usize,
    /// Processes that look at headers now.
    pub processes: usize,
}

#[derive(Default)]
struct Counts {
    looked: AtomicU64,
    failed: AtomicU64,
    processes: AtomicUsize,
}

struct FeatureRecorderState {
    registry: Arc<dyn Registry>,
    program: ParserProgram,
    known: Mutex<KnownObjects>,
    queue: Mutex<LookQueue>,
    changes: Mutex<Changes>,
    /// Something waits.
    waiting: Notify,
    /// A look has ended.
    landed: Notify,
    counts: Counts,
}

/// Records what objects are. A clone is another handle to the same.
#[derive(Clone)]
pub struct FeatureRecorder(Arc<FeatureRecorderState>);

/// A namespace's process, and how long the namespace rests.
#[derive(Default)]
struct Lane {
    process: Option<(ParserProcess, Instant)>,
    rests_until: Option<Instant>,
    rest: Duration,
}

/// How a look has ended.
struct LookEnd {
    namespace: Namespace,
    /// The process, if it can be asked again.
    process: Option<ParserProcess>,
    /// It had to be ended.
    trouble: bool,
    took: Duration,
}

impl FeatureRecorder {
    /// Takes up what the registry has. `program` looks at headers; `memory` is what the rows may take.
    ///
    /// # Errors
    /// If the registry cannot be read.
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

    /// The program that looks at headers.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.0.program.path
    }

    /// What has been recorded.
    #[must_use]
    pub fn status(&self) -> FeaturesStatus {
        let (objects, bytes) = self.0.known.lock().usage();
        let (waiting, dropped) = self.0.queue.lock().counts();
        let counts = &self.0.counts;
        FeaturesStatus {
            objects,
            bytes,
            looked: counts.looked.load(Ordering::Relaxed),
            failed: counts.failed.load(Ordering::Relaxed),
            dropped,
            waiting,
            processes: counts.processes.load(Ordering::Relaxed),
        }
    }

    /// What is known of an object, and of which version.
    #[must_use]
    pub fn recorded(&self, object: &ObjectId) -> Option<(Version, Arc<FeatureRow>)> {
        let known = self.0.known.lock();
        known.peek(object).map(|known| (known.version, Arc::clone(&known.row)))
    }

    /// Has these objects looked at next, asking the store where it must, and waits until they have been, but not longer
    /// than `within`. True if something is known of each.
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
            // From here on no end of a look is missed.
            landed.as_mut().enable();
            if unknown(&self.0).is_empty() {
                return true;
            }
            if timeout_at(until, landed).await.is_err() {
                return false;
            }
        }
    }

    /// Looks at what waits, until `stop`. To be run once.
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
                        lanes.entry(ended.namespace.clone()).or_default().has_ended(ended);
                        inner.landed.notify_waiters();
                    }
                    Err(error) => {
                        busy.remove(&error.id());
                        tracing::error!(%error, "looking at an object's header failed");
                    }
                },
            }
        }
        inner.write_changes().await;
    }
}

/// Ends the process that has been idle longest, if with `busy` ones there are as many as may be.
fn make_room(lanes: &mut HashMap<Namespace, Lane>, busy: usize) {
    let idle = lanes.values().filter(|lane| lane.process.is_some()).count();
    if idle + busy < PROCESSES_MAX {
        return;
    }
    let longest = lanes.values_mut().filter(|lane| lane.process.is_some());
    if let Some(lane) = longest.min_by_key(|lane| lane.process.as_ref().map(|(_, since)| *since)) {
        lane.process = None;
    }
}

impl Lane {
    fn has_ended(&mut self, ended: LookEnd) {
        let now = Instant::now();
        self.process = ended.process.filter(|process| !process.is_worn()).map(|process| (process, now));
        if ended.trouble {
            self.rest = (self.rest * 2).clamp(REST, REST_MAX);
            self.rests_until = Some(now + self.rest);
        } else {
            if self.process.is_some() {
                self.rest = Duration::ZERO;
            }
            self.rests_until = Some(now + ended.took * PACE);
        }
    }

    /// Ends its process if that is idle; false if nothing of it is left.
    fn is_of_use(&mut self, now: Instant) -> bool {
        if self.process.as_ref().is_some_and(|(_, since)| now.duration_since(*since) > IDLE) {
            self.process = None;
        }
        // A namespace that was in trouble is remembered a while longer than it rests, so that the next rest is longer.
        self.process.is_some() || self.rests_until.is_some_and(|until| now < until + REST_MAX)
    }
}

impl FeatureRecorderState {
    fn want(&self, object: ObjectId, from_store: bool) {
        // A name that ends so is a folder's mark.
        if !object.key.as_str().ends_with('/') {
            self.queue.lock().push(LookRequest { object, from_store });
            self.waiting.notify_one();
        }
    }

    /// Forgets what is known of another version than this; of every one without.
    fn forget_other(&self, object: &ObjectId, version: Option<Version>) {
        if self.known.lock().forget_other(object, version) {
            self.changes.lock().set(object, None);
        }
    }

    fn keep(&self, known: KnownObject) {
        let gone = self.known.lock().keep(known.clone());
        let mut changes = self.changes.lock();
        let object = known.object.clone();
        changes.set(&object, Some(known));
        for object in gone {
            changes.set(&object, None);
        }
    }

    async fn write_changes(&self) {
        let changes = std::mem::take(&mut *self.changes.lock());
        if let Err(error) = stored_rows::write(&*self.registry, changes).await {
            tracing::warn!(%error, "features of objects are not kept; they are looked at again after the next start");
        }
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
            // It is gone or another by now.
            Err(error) => return tracing::debug!(object = %wanted.object, %error, "an object was not looked at"),
        };
        // A row has room for all that is told of a header and its size.
        let _full = row.set_number(INPUT_SIZE, bytes.meta.size as f64);
        self.keep(KnownObject { object: wanted.object.clone(), version, row: Arc::new(row) });
        if bytes.is_old() {
            self.forget_other(&wanted.object, None);
        }
    }

    /// What the object's header says; nothing, if its first bytes are of no kind that is known, or a parser fails at it.
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
                    tracing::debug!(object = %wanted.object, %error, "of an object only the size is known");
                    return Ok(FeatureRow::default());
                }
            };
            let Some(range) = permitted(wants, size) else { break };
            given.push((range.start, bytes.read(range).await?));
        }
        Ok(row)
    }

    /// Asks the namespace's process, which is started if there is none.
    async fn ask(&self, head: &ObjectHead<'_>, ended: &mut LookEnd) -> Result<ParserMessage, ParserError> {
        let process = match ended.process.take() {
            Some(process) => Ok(process),
            None => self.program.start().await,
        };
        let mut process = process.inspect_err(|error| {
            ended.trouble = true;
            tracing::warn!(%error, "headers of objects are not looked at");
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
                // Others wrote it, or its tags have changed.
                let is_other = known.is_some_and(|known| known != version);
                if is_other {
                    self.0.forget_other(&object, Some(version));
                }
                // What was not in memory could not be looked at; now it is.
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
