//! Reads and writes of objects whose home is in another process.
//!
//! A request is sent again until it is answered, to wherever the home has moved: the machines say when
//! (`RequestState`), after some time or with a new epoch. Without an answer the outcome of a write stays unknown.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use nigh_data::conditions::check_read;
use nigh_data::range::resolve;
use nigh_data::segment::Segment;
use nigh_data::{ByteRange, ByteStream, GetRequest, ObjectError, ObjectId, ObjectMeta, PutDone, Tags, WriteConditions};
use nigh_engine::{LedgerError, RequestId};
use nigh_protocol::{self, FromHome, PutFailure, Request, Stamp};
use nigh_rpc::{Body, BodyError, IncomingBody};
use nigh_terms::{Admission, Epoch, ShardId, Token, Version};
use tokio::time::{Instant, timeout_at};
use tokio_util::io::{ReaderStream, StreamReader};

use super::neighbours::NotAnswered;
use super::wire::{
    FETCH, Fetch, FetchReply, PINNED, PinnedRequest, WRITE, Want, WireError, Write, WriteEffect, WriteReply,
};
use super::{CopyUse, Neighbours, segment_of};
use crate::cache::CostedCopy;
use crate::eviction::Origin;
use crate::kept::CachedCopy;
use crate::memory::ObjectMemoryState;
use crate::memory::coherence::{BegunWrite, moved};
use crate::memory::draft::{Content, Draft, PutHead};
use crate::memory::fetch::{FetchGuard, FetchedObject, HomeRead, NewCopy, Wanted, metadata_cost};
use crate::memory::invocations::WriteCall;
use crate::memory::machines::RequestState;
use crate::memory::reads::CheckedRead;
use crate::memory::write_ticket::WriteSource;

/// How long a read tries to find a home that answers.
const READ_WITHIN: Duration = Duration::from_secs(20);
/// How long a refused request waits until its node covers the versions that the refusal shows.
const COVERED_WITHIN: Duration = Duration::from_secs(5);

/// The outcome of a write that began here while its home was elsewhere.
enum RemoteWriteOutcome {
    /// The home has answered.
    Wrote(Result<Stamp, PutFailure>, WriteReply),
    /// The home is in this process now.
    Here(BegunWrite),
}

fn no_home() -> ObjectError {
    ObjectError::SlowDown("the home of the object does not answer")
}

/// A received body as a stream of bytes.
fn stream_of(body: IncomingBody<'static>) -> ByteStream {
    let broken = |error: std::io::Error| ObjectError::AtHome(format!("the bytes of the object broke off: {error}"));
    ReaderStream::with_capacity(body, 256 << 10).map_err(broken).boxed()
}

impl ObjectMemoryState {
    fn neighbours(&self) -> Result<&Arc<Neighbours>, ObjectError> {
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
            match neighbours.ask_home::<FetchReply>(shard, &FETCH, &fetch, Body::empty()).await {
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
        let Some((_, FetchReply { reply, meta, range }, mut body)) = self.ask_there(fetch, &want).await? else {
            return Ok(None);
        };
        let Some(meta) = meta.map(Arc::new) else {
            let stamp = fetch.answered_there(reply, None).await?;
            return if stamp.is_some() { Err(ObjectError::NoSuchKey(fetch.object.key.clone())) } else { Ok(None) };
        };
        let (segment, copy) = match wanted {
            Wanted::Cached => self.copy_from(&fetch.object, &meta, range.is_some(), &mut body).await?,
            Wanted::Metadata | Wanted::Uncached(_) => (None, None),
        };
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
        let broken = |error: BodyError| ObjectError::AtHome(error.to_string());
        let segment = segment_of(&self.account, body, meta.size, broken).await?;
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

    /// Makes the write of `call` at a home elsewhere.
    pub(in crate::memory) async fn put_there(
        self: &Arc<Self>,
        call: &mut WriteCall,
        draft: Draft,
    ) -> Result<(Stamp, PutDone), ObjectError> {
        let (seen, who) = (call.seen(), call.principal().cloned());
        let becomes = || WriteEffect::Put(Box::new(draft.head.clone()));
        let write = |request| Write { request, who: who.clone(), id: draft.request.map(|id| id.0), becomes: becomes() };
        let (write_kind, object) = (nigh_protocol::Write::Put, draft.object.clone());
        let begun = self.begin_there(&object, write_kind, &seen)?;
        let keep = |inner: &Arc<Self>| inner.copy_there(&draft);
        let carried = self.carry(&object, begun, write, || body_of(&draft.content, draft.head.size), keep).await?;
        let (ended, wrote) = match carried {
            RemoteWriteOutcome::Wrote(ended, wrote) => (ended, wrote),
            RemoteWriteOutcome::Here(begun) => {
                let turn = self.order.turn(&object).await?;
                let number = begun.request;
                let written = self.put_here(&turn, who, WriteSource::Begun(begun, seen), draft).await;
                self.end_begun(&object, number);
                return written;
            }
        };
        let stamp = self.outcome(&object, ended, wrote).await?;
        let (version, token) = (stamp.version, stamp.others.as_deref().cloned().unwrap_or_default());
        let PutHead { etag, size, modified, checksum, .. } = draft.head;
        Ok((stamp, PutDone { etag, size, modified, checksum, version, token }))
    }

    pub(in crate::memory) async fn delete_there(
        self: &Arc<Self>,
        call: &mut WriteCall,
        object: ObjectId,
        conditions: WriteConditions,
        id: Option<RequestId>,
    ) -> Result<Stamp, ObjectError> {
        let (seen, who) = (call.seen(), call.principal().cloned());
        let write = |request| {
            let becomes = WriteEffect::Gone { conditions: conditions.clone() };
            Write { request, who: who.clone(), id: id.map(|id| id.0), becomes }
        };
        let begun = self.begin_there(&object, nigh_protocol::Write::Delete, &seen)?;
        match self.carry(&object, begun, write, || Ok(Body::empty()), |_| None).await? {
            RemoteWriteOutcome::Wrote(ended, wrote) => self.outcome(&object, ended, wrote).await,
            RemoteWriteOutcome::Here(begun) => {
                let turn = self.order.turn(&object).await?;
                let number = begun.request;
                let source = WriteSource::Begun(begun, seen);
                let deleted = self.delete_here(&turn, who, source, &object, &conditions, id).await;
                self.end_begun(&object, number);
                deleted
            }
        }
    }

    pub(in crate::memory) async fn tag_there(
        self: &Arc<Self>,
        call: &mut WriteCall,
        object: ObjectId,
        tags: Tags,
    ) -> Result<Option<Stamp>, ObjectError> {
        let (seen, who) = (call.seen(), call.principal().cloned());
        let write = |request| Write {
            request,
            who: who.clone(),
            id: None,
            becomes: WriteEffect::Tagged { tags: tags.clone() },
        };
        let begun = self.begin_there(&object, nigh_protocol::Write::Put, &seen)?;
        match self.carry(&object, begun, write, || Ok(Body::empty()), |_| None).await? {
            RemoteWriteOutcome::Wrote(ended, wrote) => self.outcome(&object, ended, wrote).await.map(Some),
            RemoteWriteOutcome::Here(begun) => {
                let turn = self.order.turn(&object).await?;
                let number = begun.request;
                let tagged = self.tag_here(&turn, WriteSource::Begun(begun, seen), &object, &tags).await;
                self.end_begun(&object, number);
                tagged
            }
        }
    }

    /// Tells the home elsewhere of an outside write of the object.
    pub(in crate::memory) fn outside_there(self: &Arc<Self>, object: &ObjectId) {
        let (inner, object, seen) = (Arc::clone(self), object.clone(), Arc::new(Token::empty()));
        let Ok(begun) = self.begin_there(&object, nigh_protocol::Write::Outside, &seen) else { return };
        crate::sync::spawn(async move {
            let write = |request| Write { request, who: None, id: None, becomes: WriteEffect::Outside };
            match inner.carry(&object, begun, write, || Ok(Body::empty()), |_| None).await {
                Ok(RemoteWriteOutcome::Wrote(..)) => {}
                Ok(RemoteWriteOutcome::Here(begun)) => {
                    inner.coherence.withdraw_write(begun.request);
                    inner.written_by_others(&object);
                }
                Err(error) => tracing::warn!(%object, %error, "the object's home was not told of a change"),
            }
        });
    }

    /// Ends a write whose home came here. If the write was refused before it began there, the home learns that.
    fn end_begun(self: &Arc<Self>, object: &ObjectId, number: nigh_protocol::RequestId) {
        let dropped = self.coherence.end_begun(self.now(), object, number);
        self.settle(dropped);
    }

    fn begin_there(
        self: &Arc<Self>,
        object: &ObjectId,
        write: nigh_protocol::Write,
        seen: &Arc<Token>,
    ) -> Result<BegunWrite, ObjectError> {
        let (begun, dropped) = self.coherence.write(self.now(), object, write, Arc::clone(seen))?;
        self.settle(dropped);
        Ok(begun)
    }

    /// The copy of a write whose home is elsewhere, with its bytes if they are in memory.
    fn copy_there(self: &Arc<Self>, draft: &Draft) -> Option<NewCopy> {
        let Content::Memory(segment, _) = &draft.content else { return None };
        if self.compared().copies_are() == CopyUse::Unused {
            return None;
        }
        let room = self.reserve(segment.cost())?;
        Some((CachedCopy::new(&draft.head.meta(), Some(segment.clone())), room))
    }

    /// Sends a write to its home until the home has answered, or is here.
    async fn carry(
        self: &Arc<Self>,
        object: &ObjectId,
        mut begun: BegunWrite,
        write: impl Fn(Request<ObjectId>) -> Write,
        body: impl Fn() -> Result<Body, ObjectError>,
        keep: impl Fn(&Arc<Self>) -> Option<NewCopy>,
    ) -> Result<RemoteWriteOutcome, ObjectError> {
        let (neighbours, shard) = (self.neighbours()?, self.coherence.shards.of(object));
        loop {
            let standing = begun.stands.borrow_and_update().clone();
            let RequestState::SendToHome(request) = standing else {
                if let Ok(ended) = begun.done.try_recv() {
                    return Ok(RemoteWriteOutcome::Wrote(
                        ended,
                        WriteReply { reply: None, outcome: Ok(None), newest: Version::OUTSIDE },
                    ));
                }
                begun.append = self.coherence.append_of(begun.request);
                return Ok(RemoteWriteOutcome::Here(begun));
            };
            match neighbours.ask_home::<WriteReply>(shard, &WRITE, &write(request), body()?).await {
                Ok((wrote, _)) => {
                    if let Some(reply) = wrote.reply.clone() {
                        if matches!(reply.body, FromHome::Written { .. })
                            && let Some((kept, room)) = keep(self)
                        {
                            let copy = CostedCopy { kept, cost: room.take(), origin: Origin::Written };
                            self.coherence.deposit(begun.request, copy);
                        }
                        self.hear(reply);
                    }
                    if let Ok(ended) = begun.done.try_recv() {
                        return Ok(RemoteWriteOutcome::Wrote(ended, wrote));
                    }
                }
                Err(NotAnswered::Refused(error)) => {
                    tracing::warn!(%object, ?error, "the home of a write does not understand it; it is sent again");
                }
                Err(NotAnswered::Away(why)) => tracing::debug!(%shard, %why, "a write is sent again"),
            }
            tokio::select! {
                ended = &mut begun.done => {
                    // The channel ends if the home has said in a letter that the node was declared dead.
                    let ended = ended.map_err(|_| moved())?;
                    let wrote = WriteReply { reply: None, outcome: Ok(None), newest: Version::OUTSIDE };
                    return Ok(RemoteWriteOutcome::Wrote(ended, wrote));
                }
                changed = begun.stands.changed() => changed.map_err(|_| moved())?,
            }
        }
    }

    /// The answer to a write whose home has answered.
    async fn outcome(
        &self,
        object: &ObjectId,
        ended: Result<Stamp, PutFailure>,
        wrote: WriteReply,
    ) -> Result<Stamp, ObjectError> {
        match (ended, wrote.outcome) {
            (Ok(stamp), _) => Ok(stamp),
            // The write was made before, under another name.
            (Err(_), Ok(Some(version))) => Ok(Stamp { version, others: None }),
            (Err(_), Err(error)) => {
                // A refusal shows the newest version: the node must cover it first.
                self.until_covered(object, wrote.newest).await?;
                Err(error.into())
            }
            (Err(failure), Ok(None)) => Err(ObjectError::AtHome(failure.to_string())),
        }
    }

    async fn until_covered(&self, object: &ObjectId, newest: Version) -> Result<(), ObjectError> {
        let mut token = Token::empty();
        token.see(self.coherence.shards.of(object), newest);
        self.cover(&token, COVERED_WITHIN).await
    }
}

/// The bytes of a write, as a body to send.
fn body_of(content: &Content, size: u64) -> Result<Body, ObjectError> {
    let files = match content {
        Content::Memory(segment, _) => return Ok(Body::pieces([segment.slice(0..u64::MAX).into_bytes()])),
        Content::File(file) => vec![file.path().to_owned()],
        Content::Parts(files) => files.clone(),
    };
    let failed = |error: std::io::Error| ObjectError::Memory { operation: "read a body", reason: error.to_string() };
    let open = |file| std::fs::File::open(file).map(tokio::fs::File::from_std).map_err(failed);
    let files = files.into_iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let bytes = futures::stream::iter(files).flat_map(|file| ReaderStream::with_capacity(file, 256 << 10));
    Ok(Body::reader(size, StreamReader::new(bytes)))
}

impl From<NotAnswered> for WireError {
    fn from(error: NotAnswered) -> Self {
        match error {
            NotAnswered::Refused(error) => error,
            NotAnswered::Away(why) => Self::Busy(why),
        }
    }
}
