//! Reads of objects whose home is in another process.
//!
//! A fetch is sent again until it is answered, to wherever the home has moved: the machines say when (`RequestState`),
//! after some time or with a new epoch.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use nigh_data::conditions::check_read;
use nigh_data::range::resolve;
use nigh_data::segment::Segment;
use nigh_data::{ByteRange, ByteStream, GetRequest, ObjectError, ObjectId, ObjectMeta};
use nigh_engine::LedgerError;
use nigh_protocol::Request;
use nigh_rpc::{Body, BodyError, IncomingBody};
use nigh_terms::{Admission, Epoch, ShardId};
use tokio::time::{Instant, timeout_at};
use tokio_util::io::ReaderStream;

use super::neighbours::NotAnswered;
use super::wire::{FETCH, Fetch, FetchReply, PINNED, PinnedRequest, Want, WireError};
use super::{Neighbours, segment_of};
use crate::kept::CachedCopy;
use crate::memory::ObjectMemoryState;
use crate::memory::coherence::moved;
use crate::memory::fetch::{FetchGuard, FetchedObject, HomeRead, NewCopy, Wanted, metadata_cost};
use crate::memory::machines::RequestState;
use crate::memory::reads::CheckedRead;

/// How long a read tries to find a home that answers.
const READ_WITHIN: Duration = Duration::from_secs(20);

pub(super) fn no_home() -> ObjectError {
    ObjectError::SlowDown("the home of the object does not answer")
}

/// The home, or the way to it, has failed while it sent an object's bytes.
fn broke_off(reason: &dyn std::fmt::Display) -> ObjectError {
    tracing::debug!(%reason, "the bytes of an object broke off on their way from its home");
    ObjectError::SlowDown("the bytes of the object broke off on their way from its home")
}

/// A received body as a stream of bytes.
fn stream_of(body: IncomingBody<'static>) -> ByteStream {
    ReaderStream::with_capacity(body, 256 << 10).map_err(|error| broke_off(&error)).boxed()
}

impl ObjectMemoryState {
    pub(super) fn neighbours(&self) -> Result<&Arc<Neighbours>, ObjectError> {
        self.neighbours.as_ref().ok_or_else(moved)
    }

    /// Asks the home elsewhere for an object until it answers; none once the home is here.
    async fn ask_there(
        &self,
        asking: &mut FetchGuard,
        want: &Want,
    ) -> Result<Option<(Request<ObjectId>, FetchReply, IncomingBody<'static>)>, ObjectError> {
        let neighbours = self.neighbours()?;
        let shard = self.coherence.shards.of(&asking.object);
        let deadline = Instant::now() + READ_WITHIN;
        loop {
            let RequestState::SendToHome(request) = asking.standing() else { return Ok(None) };
            let fetch = Fetch { request, want: want.clone() };
            // While the home does not answer, the fetch is due to be sent again all the time: the call has the limit too.
            let asked = neighbours.ask_home::<FetchReply>(shard, &FETCH, &fetch, Body::empty());
            match timeout_at(deadline, asked).await.map_err(|_| no_home())? {
                Ok((found, body)) => return Ok(Some((fetch.request, found, body))),
                Err(NotAnswered::Refused(error)) => return Err(error.into()),
                Err(NotAnswered::Away(why)) => tracing::debug!(%shard, %why, "a fetch is asked again"),
            }
            timeout_at(deadline, asking.wait_for_retry()).await.map_err(|_| no_home())??;
        }
    }

    /// Reads at a home elsewhere; none if the read must be retried.
    pub(in crate::memory) async fn read_there(
        self: &Arc<Self>,
        fetch: &mut FetchGuard,
        wanted: Wanted<'_>,
    ) -> Result<Option<HomeRead>, ObjectError> {
        let want = match wanted {
            Wanted::Metadata => Want::Known,
            Wanted::Cached => Want::Whole,
            Wanted::Uncached(request) => Want::Part(request.range),
        };
        let Some((_, found, mut body)) = self.ask_there(fetch, &want).await? else { return Ok(None) };
        let FetchReply { reply, meta, range, uncached } = found;
        let Some(meta) = meta.map(Arc::new) else {
            let stamp = fetch.answered_there(reply, None).await?;
            return if stamp.is_some() { Err(ObjectError::NoSuchKey(fetch.object.key.clone())) } else { Ok(None) };
        };
        let (segment, copy) = match wanted {
            Wanted::Cached => self.copy_from(&fetch.object, &meta, range.is_some(), &mut body).await?,
            Wanted::Metadata | Wanted::Uncached(_) => (None, None),
        };
        let copy = copy.filter(|_| !uncached);
        let Some(stamp) = fetch.answered_there(reply, copy).await? else { return Ok(None) };
        let found = FetchedObject { meta, segment }.stamped(&stamp);
        let Wanted::Uncached(request) = wanted else { return Ok(Some((found, None))) };
        check_read(&request.conditions, &found.meta)?;
        let range = resolve(request.range, &found.meta)?;
        Ok(Some((found, Some((range, stream_of(body))))))
    }

    /// Receives the bytes of an object, if they follow and there is room for them, and makes the copy to be cached.
    async fn copy_from(
        self: &Arc<Self>,
        object: &ObjectId,
        meta: &ObjectMeta,
        bytes_follow: bool,
        body: &mut IncomingBody<'static>,
    ) -> Result<(Option<Segment>, Option<NewCopy>), ObjectError> {
        let room = if bytes_follow { self.reserve(self.account.cost(meta.size)) } else { None };
        let Some(room) = room else {
            let room = self.reserve(metadata_cost(object, meta));
            return Ok((None, room.map(|room| (CachedCopy::new(meta, None), room))));
        };
        let broken = |error: BodyError| broke_off(&error);
        let segment = segment_of(&self.account, body, meta.size, broken).await?;
        self.make_spares();
        let copy = (CachedCopy::new(meta, Some(segment.clone())), room);
        Ok((Some(segment), Some(copy)))
    }

    /// The bytes of an object from a home elsewhere, if it has this entity tag; `PreconditionFailed` if it has another.
    pub(in crate::memory) async fn pinned_there(
        &self,
        object: &ObjectId,
        range: Option<ByteRange>,
        meta: &ObjectMeta,
    ) -> Result<ByteStream, ObjectError> {
        let (neighbours, shard) = (self.neighbours()?, self.coherence.shards.of(object));
        let pinned = PinnedRequest { object: object.clone(), range, etag: meta.etag.clone() };
        let deadline = Instant::now() + READ_WITHIN;
        loop {
            match neighbours.ask_home::<()>(shard, &PINNED, &pinned, Body::empty()).await {
                Ok(((), body)) => return Ok(stream_of(body)),
                Err(NotAnswered::Refused(error)) => return Err(error.into()),
                Err(NotAnswered::Away(why)) => tracing::debug!(%shard, %why, "a read is asked again"),
            }
            if self.coherence.is_home(shard) || Instant::now() >= deadline {
                return Err(no_home());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Reads as `read_of` does, for a client outside any invocation. The client carries no token, so the home is asked
    /// even if there is a copy.
    pub(in crate::memory) async fn read_from_outside(
        self: &Arc<Self>,
        object: &ObjectId,
        request: &GetRequest,
        admission: Admission,
    ) -> Result<CheckedRead, ObjectError> {
        let shard = self.coherence.shards.of(object);
        if let Some(epoch) = self.coherence.epoch_here(shard) {
            let read = self.read_of(object, request, admission).await;
            if self.still_has(shard, epoch).await? {
                return read;
            }
        }
        let newest = self.look(object).await?.version;
        if self.shelf().peek(object).is_some_and(|kept| kept.meta.version() >= newest) {
            return self.read_of(object, request, admission).await;
        }
        let asked = self.coherence.ask(self.now(), object)?;
        self.read_past(FetchGuard::new(self, object, asked), request).await
    }

    /// True if the home of a shard is still here, in the same epoch: between two epochs of this node another node can
    /// have had the home.
    async fn still_has(&self, shard: ShardId, epoch: Epoch) -> Result<bool, ObjectError> {
        match self.confirm(shard, Some(epoch)).await {
            Err(ObjectError::Ledger(LedgerError::Fenced { .. })) => Ok(false),
            confirmed => confirmed.map(|()| self.coherence.epoch_here(shard) == Some(epoch)),
        }
    }

    /// The current object for a client outside any invocation; otherwise as `current_of`.
    pub(in crate::memory) async fn current_from_outside(
        self: &Arc<Self>,
        object: &ObjectId,
    ) -> Result<Arc<ObjectMeta>, ObjectError> {
        let shard = self.coherence.shards.of(object);
        if let Some(epoch) = self.coherence.epoch_here(shard) {
            let current = self.current_of(object).await;
            if self.still_has(shard, epoch).await? {
                return current;
            }
        }
        self.look(object).await
    }
}

impl From<NotAnswered> for WireError {
    fn from(error: NotAnswered) -> Self {
        match error {
            NotAnswered::Refused(error) => error,
            NotAnswered::Away(why) => Self::Busy(why),
        }
    }
}
