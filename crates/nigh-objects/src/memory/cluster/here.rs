//! Calls of other processes to the homes in this one.
//!
//! A call takes the same steps as the node's own reads and writes: the home is asked, the bytes are read, and both must
//! be of one version. A fetch ends when its caller has gone; a write goes on (`writes`).

mod writes;

use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use futures::TryStreamExt;
use nigh_data::range::resolve;
use nigh_data::{ByteRange, ByteStream, ObjectError, ObjectId, ObjectMeta};
use nigh_engine::LedgerError;
use nigh_protocol::{Member, Reply, Request, ToHome};
use nigh_rpc::{Body, Call, Hello, Method, Refusal, RefusalKind, Reply as Answer};
use nigh_stores::check_pin;
use nigh_terms::Version;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::io::StreamReader;

use super::wire::{
    BRING, Bring, DECIDE, FETCH, Fence, Fetch, FetchReply, HELD, HeldCopyRequest, LET_GO, LetGo, Letter, METHODS,
    NEWEST, NewestReply, OUTCOME, OUTSIDE, OutsideCall, PINNED, POST, PREPARE, PinnedRequest, PrepareRequest,
    UnpushedRequest, WAITING, WRITE, Want, WireError, Write, decode, encode,
};
use crate::memory::fetch::{READ_RETRIES_MAX, TOLD_WITHIN};
use crate::memory::foreign::Asker;
use crate::memory::machines::{EntryVersion, ForeignAnswer};
use crate::memory::{ObjectMemory, ObjectMemoryState};

/// The answer to a call.
type ServeResult<T> = Result<(T, Body), WireError>;

/// The fetch of another node at a home here. Dropping it abandons the fetch.
struct RemoteFetchGuard {
    inner: Arc<ObjectMemoryState>,
    object: ObjectId,
    asker: Asker,
}

impl Drop for RemoteFetchGuard {
    fn drop(&mut self) {
        self.inner.coherence.foreign_give_up(self.inner.now(), &self.object, self.asker);
    }
}

/// A stream of `bytes` bytes, as a body.
fn body_of(stream: ByteStream, bytes: u64) -> Body {
    Body::reader(bytes, StreamReader::new(stream.map_err(std::io::Error::other)))
}

fn answer<T: Serialize>(given: ServeResult<T>) -> Result<Answer, Refusal> {
    let (head, body) = match given {
        Ok((head, body)) => (encode(&Ok::<_, WireError>(head)), body),
        Err(error) => (encode(&Err::<(), _>(error)), Body::empty()),
    };
    Ok(Answer { head: head.map_err(Refusal::failed)?.into(), body })
}

fn read<T: DeserializeOwned>(call: &Call<'_>) -> Result<T, Refusal> {
    decode(&call.head).map_err(|why| Refusal::failed(format!("the head of a call to {}: {why}", call.method.name)))
}

impl ObjectMemory {
    /// The method with this number, if `answer` answers it.
    #[must_use]
    pub fn method(number: u16) -> Option<&'static Method> {
        METHODS.into_iter().find(|method| method.number == number)
    }

    /// Answers a call of another process of the cluster.
    ///
    /// # Errors
    /// If the call cannot be read, or its caller may not make it.
    #[boxed]
    pub async fn answer<'a>(&'a self, call: Call<'a>) -> Result<Answer, Refusal> {
        let inner = &self.0;
        let number = call.method.number;
        match number {
            _ if number == FETCH.number => {
                let fetch: Fetch = read(&call)?;
                inner.is_from(call.peer, &fetch.request)?;
                answer(inner.serve_fetch(fetch).await)
            }
            _ if number == PINNED.number => answer(inner.serve_pinned(read(&call)?).await),
            _ if number == WRITE.number => {
                let write: Write = read(&call)?;
                inner.is_from(call.peer, &write.request)?;
                answer(inner.serve_write(write, call).await.map(|wrote| (wrote, Body::empty())))
            }
            _ if number == POST.number => {
                let letters: Vec<Letter> = read(&call)?;
                for letter in letters {
                    inner.take_letter(call.peer, letter)?;
                }
                answer(Ok(((), Body::empty())))
            }
            _ if number == WAITING.number => {
                let waiting: UnpushedRequest = read(&call)?;
                answer(Ok((inner.waiting_here(&waiting).await, Body::empty())))
            }
            _ if number == PREPARE.number => {
                let prepare: PrepareRequest = read(&call)?;
                answer(inner.serve_prepare(prepare, call).await.map(|prepared| (prepared, Body::empty())))
            }
            _ if number == DECIDE.number => {
                answer(inner.serve_decide(read(&call)?).await.map(|decided| (decided, Body::empty())))
            }
            _ if number == OUTCOME.number => {
                answer(inner.serve_ended(read(&call)?).await.map(|ended| (ended, Body::empty())))
            }
            _ if number == LET_GO.number => {
                let let_go: LetGo = read(&call)?;
                inner.is_member(call.peer, let_go.from)?;
                answer(Ok((inner.elect_here(let_go), Body::empty())))
            }
            _ if number == HELD.number => {
                let held: HeldCopyRequest = read(&call)?;
                answer(Ok(match inner.copy_held(&held) {
                    Some((meta, segment)) => {
                        let body = Body::pieces([segment.slice(0..meta.size).into_bytes()]);
                        (Some(meta), body)
                    }
                    None => (None, Body::empty()),
                }))
            }
            _ if number == BRING.number => {
                let bring: Bring = read(&call)?;
                answer(Ok((self.bring(&bring.objects).await, Body::empty())))
            }
            _ if number == OUTSIDE.number => {
                let report: OutsideCall = read(&call)?;
                inner.is_member(call.peer, report.from)?;
                answer(inner.serve_outside(report).await.map(|acted| (acted, Body::empty())))
            }
            _ if number == NEWEST.number => answer(Ok((NewestReply { homes: inner.newest_here() }, Body::empty()))),
            _ => {
                let Fence { shard, member } = read(&call)?;
                answer(inner.fence_here(shard, member).await.map(|through| (through, Body::empty())))
            }
        }
    }
}

impl ObjectMemoryState {
    /// Refuses a request whose sender is not `peer`.
    fn is_from(&self, peer: &Hello, request: &Request<ObjectId>) -> Result<(), Refusal> {
        self.is_member(peer, request.from)
    }

    fn is_member(&self, peer: &Hello, from: Member) -> Result<(), Refusal> {
        if self.neighbours.as_ref().is_some_and(|neighbours| neighbours.is(peer, from)) {
            return Ok(());
        }
        let why = format!("{} is not known as this life of node {}", peer.identity, from.node.0);
        Err(Refusal::new(RefusalKind::Forbidden, why))
    }

    async fn serve_fetch(self: &Arc<Self>, fetch: Fetch) -> ServeResult<FetchReply> {
        let Fetch { mut request, want } = fetch;
        let from = request.from;
        let ToHome::Fetch { attempt, object, shared } = &mut request.body else {
            return Err(WireError::InvalidRequest("a fetch that fetches nothing".to_owned()));
        };
        let tells_readers = self.compared().tells_readers();
        *shared &= tells_readers;
        let (asker, shared, object) = ((from, *attempt), *shared, object.clone());
        self.home_here(&object, Some(from)).await?;
        let _fetching = RemoteFetchGuard { inner: Arc::clone(self), object: object.clone(), asker };
        self.until_dropped(&object).await;
        for _ in 0..READ_RETRIES_MAX {
            // The home may have moved meanwhile: then the reader asks the next one.
            let shard = self.home_here(&object, Some(from)).await?;
            let epoch = self.coherence.epoch_here(shard);
            self.coherence.foreign_fetch(self.now(), &object, request.clone());
            let noted = self.coherence.foreign_noted(&object, asker);
            let (found, is_copy) = match self.bytes_for(&object, noted, &want).await {
                Ok((found, is_copy)) => (Some(found), is_copy),
                Err(ObjectError::NoSuchKey(_)) => (None, false),
                Err(error) => return Err(error.into()),
            };
            let known = found.as_ref().map_or((Version::OUTSIDE, true), |found| (found.meta.version, false));
            let reply = match self.coherence.foreign_found(self.now(), &object, (asker, noted), known) {
                ForeignAnswer::Found(reply) => reply,
                ForeignAnswer::Refetch => continue,
                ForeignAnswer::NewerThanHome(version) => {
                    self.coherence.until_told(shard, version, TOLD_WITHIN).await?;
                    continue;
                }
            };
            // The home here may be a former home, which knows less than the store has.
            if !(is_copy && (shared || !tells_readers)) {
                match self.confirm(shard, epoch).await {
                    // Between two epochs of this node, another node can have had the home.
                    Err(ObjectError::Ledger(LedgerError::Fenced { .. })) => return Err(WireError::Elsewhere),
                    confirmed => confirmed?,
                }
            }
            let (meta, range, body) = match found {
                None => (None, None, Body::empty()),
                Some(FoundBytes { meta, range, body }) => (Some(ObjectMeta::clone(&meta)), range, body),
            };
            // A write that begins outside after this drops the copies at the nodes.
            let uncached = self.is_written_outside(&object);
            return Ok((FetchReply { reply, meta, range, uncached }, body));
        }
        Err(WireError::Busy("the object changes faster than it can be read".to_owned()))
    }

    /// The wanted part of an object, and whether it comes from a cached copy.
    async fn bytes_for(
        self: &Arc<Self>,
        object: &ObjectId,
        noted: EntryVersion,
        want: &Want,
    ) -> Result<(FoundBytes, bool), ObjectError> {
        let kept = self.shelf().peek(object).cloned();
        if let Some(kept) = kept {
            let meta = kept.meta.unpack();
            let range = match want {
                Want::Known => None,
                Want::Whole => Some(0..meta.size),
                // If the range is unsatisfiable, the reader gets the metadata only.
                Want::Part(part) => resolve(*part, &meta).ok(),
            };
            match (range, kept.segment) {
                (None, _) => return Ok((FoundBytes { meta, range: None, body: Body::empty() }, true)),
                (Some(range), Some(segment)) => {
                    let body = Body::pieces([segment.slice(range.clone()).into_bytes()]);
                    return Ok((FoundBytes { meta, range: Some(range), body }, true));
                }
                (Some(_), None) => {}
            }
        }
        if matches!(want, Want::Whole)
            && let Some((meta, segment)) = self.from_holder(object, noted).await
        {
            let (range, body) = (0..meta.size, Body::pieces([segment.slice(0..meta.size).into_bytes()]));
            return Ok((FoundBytes { meta: Arc::new(meta), range: Some(range), body }, false));
        }
        let found = match want {
            Want::Known => {
                let meta = self.back.head(object).await?;
                FoundBytes { meta: Arc::new(meta), range: None, body: Body::empty() }
            }
            Want::Whole | Want::Part(None) => {
                let (meta, stream) = self.back.get(object, None, None).await?;
                let is_large = matches!(want, Want::Whole) && meta.size > self.limits.cached_object.bytes();
                let (range, body) =
                    if is_large { (None, Body::empty()) } else { (Some(0..meta.size), body_of(stream, meta.size)) };
                FoundBytes { meta: Arc::new(meta), range, body }
            }
            Want::Part(part) => {
                let meta = self.back.head(object).await?;
                match resolve(*part, &meta) {
                    Err(_) => FoundBytes { meta: Arc::new(meta), range: None, body: Body::empty() },
                    Ok(range) => {
                        let (_, stream) = self.back.get(object, Some(range.clone()), Some(&meta.etag)).await?;
                        let body = body_of(stream, range.end - range.start);
                        FoundBytes { meta: Arc::new(meta), range: Some(range), body }
                    }
                }
            }
        };
        Ok((found, false))
    }

    async fn serve_pinned(self: &Arc<Self>, pinned: PinnedRequest) -> ServeResult<()> {
        let PinnedRequest { object, range, etag } = pinned;
        self.home_here(&object, None).await?;
        let kept = self.shelf().peek(&object).cloned();
        if let Some(segment) = kept.as_ref().and_then(|kept| kept.segment.clone()) {
            let meta = kept.as_ref().map(|kept| kept.meta.unpack());
            if let Some(meta) = meta {
                check_pin(&meta, Some(&etag))?;
                let body = Body::pieces([segment.slice(range.unwrap_or(0..meta.size)).into_bytes()]);
                return Ok(((), body));
            }
        }
        let (meta, stream) = self.back.get(&object, range.clone(), Some(&etag)).await?;
        let range = range.unwrap_or(0..meta.size);
        Ok(((), body_of(stream, range.end - range.start)))
    }

    /// Delivers a letter of another process.
    fn take_letter(self: &Arc<Self>, peer: &Hello, letter: Letter) -> Result<(), Refusal> {
        match letter {
            Letter::ToHome(shard, request) => {
                self.is_from(peer, &request)?;
                let dropped = self.coherence.said(self.now(), shard, request);
                self.settle(dropped);
            }
            Letter::ToNode(reply) => self.hear(reply),
            Letter::Holds(objects) => self.holds(&objects),
        }
        Ok(())
    }

    /// Delivers a message of a home elsewhere to this node.
    pub(super) fn hear(self: &Arc<Self>, reply: Reply<ObjectId>) {
        let dropped = self.coherence.hear(self.now(), reply);
        self.settle(dropped);
    }
}

/// The part of an object that another node gets.
struct FoundBytes {
    meta: Arc<ObjectMeta>,
    range: Option<ByteRange>,
    body: Body,
}
