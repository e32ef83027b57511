//! A fetch: it reads at the object's home, here or elsewhere, until the bytes and the home's answer are of one version.

use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use futures::StreamExt;
use nigh_data::conditions::check_read;
use nigh_data::segment::{Segment, SegmentWriter};
use nigh_data::segment_cost::Cost;
use nigh_data::{ByteRange, ByteStream, GetRequest, ObjectError, ObjectId, ObjectMeta};
use nigh_engine::LedgerError;
use nigh_protocol::{Reply, RequestId, Stamp};
use nigh_terms::{Epoch, Version};
use tokio::sync::watch;

use super::ObjectMemoryState;
use super::coherence::BegunFetch;
use super::machines::{EntryVersion, FetchOutcome, RequestState};
use super::room::Reservation;
use crate::cache::CostedCopy;
use crate::eviction::Origin;
use crate::kept::CachedCopy;
use crate::stamps::Stamped as _;
use crate::sync::timeout;

/// A read is retried at most this often when the object changes while it is read.
pub(super) const READ_RETRIES_MAX: usize = 8;
/// How long a read waits until the home was told of a version that the read has found in the store.
pub(super) const TOLD_WITHIN: Duration = Duration::from_secs(10);

/// The result for the reads that joined a fetch; none until the fetch has ended.
pub(super) type SharedFetchResult = Option<Result<FetchedObject, ObjectError>>;

/// What a fetch found.
#[derive(Clone, Debug)]
pub(super) struct FetchedObject {
    pub(super) meta: Arc<ObjectMeta>,
    /// The bytes in memory; none if they were not asked for, are too large, or found no room.
    pub(super) segment: Option<Segment>,
}

impl FetchedObject {
    /// Returns the fetched object with its stamp replaced by `stamp`, which the home gave.
    pub(super) fn stamped(self, stamp: &Stamp) -> Self {
        Self { meta: Arc::new(self.meta.stamped(stamp)), ..self }
    }
}

/// What a read asks an object's home for.
#[derive(Clone, Copy)]
pub(super) enum Wanted<'r> {
    /// Only the metadata.
    Metadata,
    /// The object, to be cached.
    Cached,
    /// The bytes of this request, past the cache.
    Uncached(&'r GetRequest),
}

/// The home's answer; with `Wanted::Uncached` also the bytes.
pub(super) type HomeRead = (FetchedObject, Option<(ByteRange, ByteStream)>);

/// A copy to be cached, and the room for it.
pub(super) type NewCopy = (CachedCopy, Reservation);

/// A fetch that the node has begun. Dropping it abandons the fetch.
pub(super) struct FetchGuard {
    inner: Arc<ObjectMemoryState>,
    pub(super) object: ObjectId,
    request: RequestId,
    stands: watch::Receiver<RequestState>,
    landed: bool,
}

impl FetchGuard {
    pub(super) fn new(inner: &Arc<ObjectMemoryState>, object: &ObjectId, begun: BegunFetch) -> Self {
        let BegunFetch { request, stands } = begun;
        Self { inner: Arc::clone(inner), object: object.clone(), request, stands, landed: false }
    }

    /// The fetch's state now.
    pub(super) fn standing(&mut self) -> RequestState {
        self.stands.borrow_and_update().clone()
    }

    /// Returns when the home has changed and the request must be sent again.
    pub(super) async fn wait_for_retry(&mut self) -> Result<(), ObjectError> {
        self.stands.changed().await.map_err(|_| given_up())
    }

    /// Reading at the home here, which was of `epoch`, has failed with `error`. If the home has moved, returns when the
    /// request must be sent to the next one; else gives the error back.
    async fn moved(&mut self, epoch: Option<Epoch>, error: ObjectError) -> Result<(), ObjectError> {
        let is_fenced = matches!(error, ObjectError::Ledger(LedgerError::Fenced { .. }));
        if !is_fenced || self.inner.coherence.is_alone() {
            return Err(error);
        }
        let shard = self.inner.coherence.shards.of(&self.object);
        if let Some(epoch) = epoch {
            self.inner.depose(shard, epoch);
        }
        while matches!(*self.stands.borrow(), RequestState::AskedLocalHome) && !self.inner.coherence.is_home(shard) {
            timeout(TOLD_WITHIN, self.wait_for_retry()).await.map_err(|_| error.clone())??;
        }
        Ok(())
    }

    /// Takes the answer of a home elsewhere, and the copy to be cached. Returns the stamp with which the bytes may be
    /// shown; none if the read must be retried.
    pub(super) async fn answered_there(
        &mut self,
        reply: Reply<ObjectId>,
        copy: Option<NewCopy>,
    ) -> Result<Option<Stamp>, ObjectError> {
        let copy = copy.map(|(kept, room)| CostedCopy { kept, cost: room.take(), origin: Origin::Read });
        let (answer, dropped) = self.inner.coherence.landing(self.inner.now(), self.request, reply, copy);
        self.inner.settle(dropped);
        self.taken(answer).await
    }

    /// What the home here knows of the object, before its bytes are read.
    fn note(&self) -> EntryVersion {
        self.inner.coherence.note(&self.object, self.request)
    }

    /// Takes the bytes that were read after `noted`, with this metadata; none if there is no object. Returns the stamp
    /// with which the bytes may be shown; none if the read must be retried.
    async fn answered(
        &mut self,
        (epoch, noted): (Option<Epoch>, EntryVersion),
        meta: Option<&ObjectMeta>,
        mut copy: Option<NewCopy>,
    ) -> Result<Option<Stamp>, ObjectError> {
        if !self.inner.coherence.is_alone() {
            // A former home may know less than the store has.
            let shard = self.inner.coherence.shards.of(&self.object);
            if let Err(error) = self.inner.confirm(shard, epoch).await {
                self.moved(epoch, error).await?;
                return Ok(None);
            }
        }
        let found = meta.map_or((Version::OUTSIDE, true), |meta| (meta.version, false));
        // A copy that is not cached releases its room at the end of this function, outside the lock.
        let mut take = || {
            let (kept, room) = copy.take()?;
            Some(CostedCopy { kept, cost: room.take(), origin: Origin::Read })
        };
        let asked = (self.request, noted);
        let (answer, dropped) = self.inner.coherence.found(self.inner.now(), &self.object, asked, found, &mut take);
        self.inner.settle(dropped);
        self.taken(answer).await
    }

    /// Waits until the outcome of a fetch is final. Returns the stamp with which the bytes may be shown; none if the
    /// read must be retried.
    async fn taken(&mut self, answer: FetchOutcome) -> Result<Option<Stamp>, ObjectError> {
        let stamp = match answer {
            FetchOutcome::Installed(stamp) => stamp,
            FetchOutcome::Refetch => return Ok(None),
            FetchOutcome::NewerThanHome(version) => {
                let coherence = &self.inner.coherence;
                coherence.until_told(coherence.shards.of(&self.object), version, TOLD_WITHIN).await?;
                return Ok(None);
            }
            FetchOutcome::InstalledWhenCovered => {
                let late =
                    |_| ObjectError::SlowDown("the node has not caught up with what the object's writer had seen");
                timeout(TOLD_WITHIN, self.stands.changed()).await.map_err(late)?.map_err(|_| given_up())?;
                let RequestState::Done(stamp) = self.stands.borrow().clone() else { return Ok(None) };
                self.inner.coherence.landed(self.request);
                stamp
            }
        };
        self.landed = true;
        Ok(Some(stamp))
    }
}

pub(super) fn given_up() -> ObjectError {
    ObjectError::Memory { operation: "fetch", reason: "the fetch was abandoned; read again".to_owned() }
}

impl Drop for FetchGuard {
    fn drop(&mut self) {
        if !self.landed {
            self.inner.coherence.give_up(self.inner.now(), &self.object, self.request);
        }
    }
}

const fn changes_too_fast() -> ObjectError {
    ObjectError::SlowDown("the object changes faster than it can be read")
}

/// The approximate cost of an entry that is cached without bytes.
pub(super) fn metadata_cost(object: &ObjectId, meta: &ObjectMeta) -> Cost {
    let texts = |map: &std::collections::BTreeMap<String, String>| -> usize {
        map.iter().map(|(key, value)| key.len() + value.len() + 2 * size_of::<String>()).sum()
    };
    let bytes = size_of::<ObjectMeta>()
        + object.key.as_str().len()
        + texts(&meta.attributes.user)
        + texts(&meta.tags)
        + meta.checksums.iter().map(|checksum| checksum.parts.as_bytes().len()).sum::<usize>()
        + meta.parts.len() * size_of::<u64>();
    // Twice, for the entry itself and the allocator.
    Cost { bytes: 2 * bytes as u64, segments: 0 }
}

/// `stream`, which fails at its end if it does not have `length` bytes.
pub(super) fn exactly(stream: ByteStream, length: u64, store: &'static str) -> ByteStream {
    let broken = move |reason: String| ObjectError::Store { store, operation: "read", reason };
    futures::stream::unfold((stream, length, false), move |(mut stream, left, ended)| async move {
        if ended {
            return None;
        }
        match stream.next().await {
            Some(Ok(bytes)) if bytes.len() as u64 <= left => {
                let left = left - bytes.len() as u64;
                Some((Ok(bytes), (stream, left, false)))
            }
            Some(Ok(_)) => Some((Err(broken("more bytes came than the object has".to_owned())), (stream, 0, true))),
            Some(Err(error)) => Some((Err(error), (stream, left, true))),
            None if left > 0 => Some((Err(broken(format!("{left} bytes are missing"))), (stream, 0, true))),
            None => None,
        }
    })
    .boxed()
}

impl ObjectMemoryState {
    /// Fetches an object into memory, and gives the result to the reads that joined.
    #[boxed]
    pub(super) async fn fetch(self: Arc<Self>, fetch: FetchGuard, sender: watch::Sender<SharedFetchResult>) {
        // The copy is cached before the joined reads get the result: a read that follows an answer finds the copy.
        let fetched = self.read_at_home(fetch, Wanted::Cached).await.map(|(fetched, _)| fetched);
        sender.send_replace(Some(fetched));
    }

    /// Reads at the object's home, wherever that is, until the bytes and the home's answer are of one version.
    pub(super) async fn read_at_home(
        self: &Arc<Self>,
        mut fetch: FetchGuard,
        wanted: Wanted<'_>,
    ) -> Result<HomeRead, ObjectError> {
        for _ in 0..READ_RETRIES_MAX {
            let read = match fetch.standing() {
                RequestState::SendToHome(_) => self.read_there(&mut fetch, wanted).await?,
                RequestState::AskedLocalHome | RequestState::Done(_) => self.read_here(&mut fetch, wanted).await?,
            };
            if let Some(read) = read {
                return Ok(read);
            }
        }
        Err(changes_too_fast())
    }

    /// Reads at a home in this process; none if the object or its home has changed meanwhile.
    async fn read_here(
        self: &Arc<Self>,
        fetch: &mut FetchGuard,
        wanted: Wanted<'_>,
    ) -> Result<Option<HomeRead>, ObjectError> {
        let object = fetch.object.clone();
        let epoch = self.coherence.epoch_here(self.coherence.shards.of(&object));
        let noted = fetch.note();
        let (read, copy) = match self.bytes_here(&object, wanted, noted).await {
            Ok(Some((read, copy))) => (Some(read), copy),
            Ok(None) => return Ok(None),
            Err(ObjectError::NoSuchKey(_)) => (None, None),
            Err(error) => {
                fetch.moved(epoch, error).await?;
                return Ok(None);
            }
        };
        let meta = read.as_ref().map(|(found, _)| &*found.meta);
        let Some(stamp) = fetch.answered((epoch, noted), meta, copy).await? else { return Ok(None) };
        let (found, bytes) = read.ok_or(ObjectError::NoSuchKey(object.key))?;
        Ok(Some((found.stamped(&stamp), bytes)))
    }

    /// The wanted part of an object whose home is here, and the copy to be cached; none if the object has changed
    /// between two questions to the store.
    async fn bytes_here(
        self: &Arc<Self>,
        object: &ObjectId,
        wanted: Wanted<'_>,
        noted: EntryVersion,
    ) -> Result<Option<(HomeRead, Option<NewCopy>)>, ObjectError> {
        let (meta, bytes) = match wanted {
            Wanted::Metadata => (self.back.head(object).await?, None),
            Wanted::Cached => {
                let (fetched, copy) = self.bring_bytes(object, noted).await?;
                return Ok(Some(((fetched, None), copy)));
            }
            Wanted::Uncached(request) if request.range.is_none() => {
                let (meta, stream) = self.back.get(object, None, None).await?;
                check_read(&request.conditions, &meta)?;
                let stream = exactly(stream, meta.size, self.back.store().kind());
                let range = 0..meta.size;
                (meta, Some((range, stream)))
            }
            Wanted::Uncached(request) => {
                let meta = self.back.head(object).await?;
                match self.pinned(object, request, &meta).await? {
                    Some(bytes) => (meta, Some(bytes)),
                    None => return Ok(None),
                }
            }
        };
        Ok(Some(((FetchedObject { meta: Arc::new(meta), segment: None }, bytes), None)))
    }

    /// An object's bytes, from a holder or from the store, and the copy to be cached if there is room for one.
    async fn bring_bytes(
        self: &Arc<Self>,
        object: &ObjectId,
        noted: EntryVersion,
    ) -> Result<(FetchedObject, Option<NewCopy>), ObjectError> {
        if let Some((meta, segment)) = self.from_holder(object, noted).await {
            let meta = Arc::new(meta);
            let room = self.reserve(self.account.cost(meta.size));
            let copy = room.map(|room| (CachedCopy::new(&meta, Some(segment.clone())), room));
            return Ok((FetchedObject { meta, segment: Some(segment) }, copy));
        }
        let (meta, stream) = self.back.get(object, None, None).await?;
        let meta = Arc::new(meta);
        if meta.size > self.limits.cached_object.bytes() {
            let room = self.reserve(metadata_cost(object, &meta));
            let copy = room.map(|room| (CachedCopy::new(&meta, None), room));
            return Ok((FetchedObject { meta, segment: None }, copy));
        }
        let Some(room) = self.reserve(self.account.cost(meta.size)) else {
            return Ok((FetchedObject { meta, segment: None }, None));
        };
        let mut filling = SegmentWriter::new(&self.account, meta.size)?;
        // While the bytes come.
        self.make_spares();
        let mut stream = exactly(stream, meta.size, self.back.store().kind());
        while let Some(bytes) = stream.next().await {
            filling.append(&bytes?)?;
        }
        let segment = filling.seal()?;
        let copy = (CachedCopy::new(&meta, Some(segment.clone())), room);
        Ok((FetchedObject { meta, segment: Some(segment) }, Some(copy)))
    }
}
