//! Writes of objects whose home is in another process.
//!
//! A write is sent again until it is answered, to wherever the home has moved: the machines say when (`RequestState`),
//! after some time or with a new epoch. A node may not give a write up that a home may have taken: the home would count
//! the writer's node among those that have the new bytes. So the caller's wait has a limit, and the write has none.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use nigh_data::{ObjectError, ObjectId, PutDone, Tags, WriteConditions};
use nigh_engine::RequestId;
use nigh_protocol::{self, FromHome, PutFailure, Request, Stamp};
use nigh_rpc::Body;
use nigh_terms::{Token, Version};
use tokio::time::timeout;
use tokio_util::io::{ReaderStream, StreamReader};

use super::CopyUse;
use super::neighbours::NotAnswered;
use super::wire::{WRITE, Write, WriteEffect, WriteReply};
use crate::cache::CostedCopy;
use crate::eviction::Origin;
use crate::kept::CachedCopy;
use crate::memory::ObjectMemoryState;
use crate::memory::coherence::BegunWrite;
use crate::memory::detached::stop_waiting;
use crate::memory::draft::{Content, Draft, PutHead};
use crate::memory::fetch::NewCopy;
use crate::memory::invocations::WriteCall;
use crate::memory::machines::RequestState;
use crate::memory::write_ticket::WriteSource;

/// How long the caller of a write waits for a home that does not answer.
const ANSWERED_WITHIN: Duration = Duration::from_secs(15);
/// The bytes for which the caller of a write waits a second longer: the home may store them before it answers.
const BYTES_A_SECOND: u64 = 8 << 20;
/// The most writes to one home that go on without their callers; further ones are refused until the home answers.
const UNANSWERED_MAX: usize = 128;
/// How long a refused write waits until its node covers the versions that the refusal shows.
const COVERED_WITHIN: Duration = Duration::from_secs(5);

/// The outcome of a write that began here while its home was elsewhere.
enum RemoteWriteOutcome {
    /// The home has answered.
    Wrote(Result<Stamp, PutFailure>, WriteReply),
    /// The home is in this process now.
    Here(BegunWrite),
}

impl RemoteWriteOutcome {
    /// The home has answered by a letter, which has nothing but the outcome.
    const fn without_reply(ended: Result<Stamp, PutFailure>) -> Self {
        Self::Wrote(ended, WriteReply { reply: None, outcome: Ok(None), newest: Version::OUTSIDE, uncached: false })
    }
}

/// How long the caller of a write of so many bytes waits for the home's answer.
const fn patience(size: u64) -> Duration {
    ANSWERED_WITHIN.saturating_add(Duration::from_secs(size / BYTES_A_SECOND))
}

/// The error of a write that was under way when a home has declared this node dead.
const fn declared_dead() -> ObjectError {
    ObjectError::OutcomeUnknown("the cluster has declared this node dead, and it starts again")
}

impl ObjectMemoryState {
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
        let begun = self.begin_asked_for(&object, write_kind, &seen)?;
        let keep = |inner: &Arc<Self>| inner.copy_there(&draft);
        let size = draft.head.size;
        let carried = self.carry(&object, begun, write, size, || body_of(&draft.content, size), keep).await?;
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
        let begun = self.begin_asked_for(&object, nigh_protocol::Write::Delete, &seen)?;
        match self.carry(&object, begun, write, 0, || Ok(Body::empty()), |_| None).await? {
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
        let begun = self.begin_asked_for(&object, nigh_protocol::Write::Put, &seen)?;
        match self.carry(&object, begun, write, 0, || Ok(Body::empty()), |_| None).await? {
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
            match inner.carry(&object, begun, write, 0, || Ok(Body::empty()), |_| None).await {
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

    /// Begins a write that a caller asked for, unless too many writes wait for its home already.
    fn begin_asked_for(
        self: &Arc<Self>,
        object: &ObjectId,
        write: nigh_protocol::Write,
        seen: &Arc<Token>,
    ) -> Result<BegunWrite, ObjectError> {
        if self.uses.unanswered(self.coherence.shards.of(object)) >= UNANSWERED_MAX {
            return Err(ObjectError::SlowDown("too many writes wait for the object's home, which does not answer"));
        }
        self.begin_there(object, write, seen)
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

    /// Makes a write at its home: sends it until the home has answered, or is here. Whoever has waited for the write as
    /// long as `patience` says is told that the outcome is unknown, and the write goes on: it stays under way at this
    /// node until its home says how it has ended.
    async fn carry(
        self: &Arc<Self>,
        object: &ObjectId,
        begun: BegunWrite,
        write: impl Fn(Request<ObjectId>) -> Write,
        size: u64,
        body: impl Fn() -> Result<Body, ObjectError>,
        keep: impl Fn(&Arc<Self>) -> Option<NewCopy>,
    ) -> Result<RemoteWriteOutcome, ObjectError> {
        let mut sending = pin!(self.send_until_answered(object, begun, write, body, keep));
        if let Ok(sent) = timeout(patience(size), sending.as_mut()).await {
            return sent;
        }
        let _unanswered = self.begin_unanswered(self.coherence.shards.of(object));
        tracing::warn!(%object, "the home of a write does not answer; the write is sent again until it does");
        stop_waiting();
        sending.await
    }

    async fn send_until_answered(
        self: &Arc<Self>,
        object: &ObjectId,
        mut begun: BegunWrite,
        write: impl Fn(Request<ObjectId>) -> Write,
        body: impl Fn() -> Result<Body, ObjectError>,
        keep: impl Fn(&Arc<Self>) -> Option<NewCopy>,
    ) -> Result<RemoteWriteOutcome, ObjectError> {
        let (neighbours, shard) = (self.neighbours()?, self.coherence.shards.of(object));
        let mut was_sent = false;
        loop {
            let standing = begun.stands.borrow_and_update().clone();
            let RequestState::SendToHome(request) = standing else {
                if let Ok(ended) = begun.done.try_recv() {
                    return Ok(RemoteWriteOutcome::without_reply(ended));
                }
                begun.append = self.coherence.append_of(begun.request);
                return Ok(RemoteWriteOutcome::Here(begun));
            };
            match body() {
                Ok(body) => {
                    was_sent = true;
                    match neighbours.ask_home::<WriteReply>(shard, &WRITE, &write(request), body).await {
                        Ok((wrote, _)) => {
                            self.take_reply(&wrote, begun.request, &keep);
                            if let Ok(ended) = begun.done.try_recv() {
                                return Ok(RemoteWriteOutcome::Wrote(ended, wrote));
                            }
                        }
                        Err(NotAnswered::Refused(error)) => {
                            tracing::warn!(%object, ?error, "the home of a write does not understand it; it is sent again");
                        }
                        Err(NotAnswered::Away(why)) => tracing::debug!(%shard, %why, "a write is sent again"),
                    }
                }
                Err(error) if was_sent => {
                    tracing::warn!(%object, %error, "the bytes of a write cannot be read to send them again");
                }
                Err(error) => {
                    self.coherence.withdraw_write(begun.request);
                    return Err(error);
                }
            }
            tokio::select! {
                ended = &mut begun.done => {
                    return Ok(RemoteWriteOutcome::without_reply(ended.map_err(|_| declared_dead())?));
                }
                changed = begun.stands.changed() => changed.map_err(|_| declared_dead())?,
            }
        }
    }

    /// Takes what a home says of a write of this node, with the copy to be cached if the write took place.
    fn take_reply(
        self: &Arc<Self>,
        wrote: &WriteReply,
        request: nigh_protocol::RequestId,
        keep: impl Fn(&Arc<Self>) -> Option<NewCopy>,
    ) {
        let Some(reply) = wrote.reply.clone() else { return };
        if matches!(reply.body, FromHome::Written { .. })
            && !wrote.uncached
            && wrote.outcome.is_ok()
            && let Some((kept, room)) = keep(self)
        {
            let copy = CostedCopy { kept, cost: room.take(), origin: Origin::Written };
            self.coherence.deposit(request, copy);
        }
        self.hear(reply);
    }

    /// The answer to a write whose home has answered.
    async fn outcome(
        &self,
        object: &ObjectId,
        ended: Result<Stamp, PutFailure>,
        wrote: WriteReply,
    ) -> Result<Stamp, ObjectError> {
        match (ended, wrote.outcome) {
            (Ok(stamp), Ok(_)) => Ok(stamp),
            // The write was made before, under another name.
            (Err(_), Ok(Some(version))) => Ok(Stamp { version, others: None }),
            // Also if the home has the write: it has not done for it what its mode promises.
            (_, Err(error)) => {
                // A refusal shows the newest version: the node must cover it first.
                self.until_covered(object, wrote.newest).await?;
                Err(error.into())
            }
            // The answer that had the reason was lost. A store may have the write although the home has no version of it.
            (Err(PutFailure::NotTaken), Ok(None)) => {
                Err(ObjectError::OutcomeUnknown("its home did not acknowledge it, and the reason was lost"))
            }
            (Err(PutFailure::GivenUp { .. }), Ok(None)) => Err(declared_dead()),
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
