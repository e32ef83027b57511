//! Reads: from memory, by one shared fetch, or past the cache.

use std::sync::Arc;

use futures::StreamExt;
use nigh_terms::{BucketName, ObjectKey, Principal, Token};
use tokio::sync::watch;

use super::{Inner, Reservation, Resident, object};
use crate::cache::{Cost, FetchId, Lookup};
use crate::conditions::check_read;
use crate::kept::Kept;
use crate::range::resolve;
use crate::segment::Filling;
use crate::{Body, ByteRange, ByteStream, GetRequest, Got, ObjectError, ObjectId, ObjectMeta, SegmentSlice, Served};

/// How often a read past the cache begins anew because the object changed under it.
const PIN_ATTEMPTS: usize = 4;

/// How often an ephemeral object is looked for: between the cache and what stands behind it a write may have ended,
/// after which it is in the cache.
pub(super) const EPHEMERAL_ATTEMPTS: usize = 3;

/// What those who joined a fetch wait for.
pub(super) type Flight = watch::Receiver<Option<Result<Fetched, ObjectError>>>;

/// What a fetch found.
#[derive(Clone, Debug)]
pub(super) enum Fetched {
    /// A copy in memory.
    Copy(Resident),
    /// An object that does not go there.
    TooLarge(Arc<ObjectMeta>),
}

/// A read whose conditions hold.
pub(super) struct Read {
    pub(super) meta: Arc<ObjectMeta>,
    pub(super) range: ByteRange,
    pub(super) source: ReadSource,
    pub(super) served: Served,
}

pub(super) enum ReadSource {
    Segment(SegmentSlice),
    Stream(ByteStream),
}

impl ReadSource {
    pub(super) fn into_stream(self) -> ByteStream {
        match self {
            Self::Segment(slice) => futures::stream::iter([Ok(slice.into_bytes())]).boxed(),
            Self::Stream(stream) => stream,
        }
    }
}

/// The right to end a fetch; one dropped ends it without a copy.
struct Ticket {
    inner: Arc<Inner>,
    object: ObjectId,
    fetch: FetchId,
    ended: bool,
}

impl Ticket {
    fn end(mut self, copy: Option<(Resident, Reservation)>) {
        self.ended = true;
        let copy = copy.map(|(resident, room)| (resident.into(), room.take()));
        let dropped = self.inner.cache.lock().fetched(&self.object, self.fetch, copy);
        self.inner.settle(dropped);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.ended {
            self.inner.cache.lock().fetched(&self.object, self.fetch, None);
        }
    }
}

/// What metadata kept without bytes takes, about.
pub(super) fn metadata_cost(object: &ObjectId, meta: &ObjectMeta) -> Cost {
    let texts = |map: &std::collections::BTreeMap<String, String>| -> usize {
        map.iter().map(|(key, value)| key.len() + value.len() + 2 * size_of::<String>()).sum()
    };
    let bytes = size_of::<ObjectMeta>()
        + object.key.as_str().len()
        + texts(&meta.attributes.user)
        + texts(&meta.tags)
        + meta.parts.len() * size_of::<u64>();
    // As much again for the entry itself and the allocator.
    Cost { bytes: 2 * bytes as u64, segments: 0 }
}

/// `stream`, which ends in an error if it does not give `length` bytes.
fn exactly(stream: ByteStream, length: u64, store: &'static str) -> ByteStream {
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

impl Inner {
    pub(super) async fn get(
        self: &Arc<Self>,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        request: GetRequest,
    ) -> Result<Got, ObjectError> {
        let mut call = self.begin(who, bucket, Some(key));
        let read = self.read(&object(who, bucket, key), &request).await.inspect_err(|error| {
            if matches!(error, ObjectError::NotModified { .. }) {
                call.succeeded(Served::Metadata, None, Token::empty());
            }
        })?;
        let Read { meta, range, source, served } = read;
        let (version, token) = (meta.version, meta.token.clone());
        call.succeeded(served, Some(version), token.clone());
        call.of_object(meta.size);
        let body = match source {
            ReadSource::Segment(slice) => Body::segment(slice, call),
            ReadSource::Stream(stream) => Body::stream(stream, call),
        };
        Ok(Got { meta, range, body, version, token })
    }

    pub(super) async fn head(
        self: &Arc<Self>,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        request: GetRequest,
    ) -> Result<Arc<ObjectMeta>, ObjectError> {
        let mut call = self.begin(who, bucket, Some(key));
        let meta = self.current(&object(who, bucket, key)).await?;
        let checked = check_read(&request.conditions, &meta).and_then(|()| resolve(request.range, &meta));
        if matches!(checked, Ok(_) | Err(ObjectError::NotModified { .. })) {
            call.succeeded(Served::Metadata, Some(meta.version), meta.token.clone());
            call.of_object(meta.size);
        }
        checked.map(|_| meta)
    }

    /// Reads, wherever from.
    pub(super) async fn read(self: &Arc<Self>, object: &ObjectId, request: &GetRequest) -> Result<Read, ObjectError> {
        self.revalidate(object).await?;
        let mut attempts = 1;
        loop {
            match self.read_now(object, request).await {
                Err(ObjectError::EphemeralLost(_)) if attempts < EPHEMERAL_ATTEMPTS => attempts += 1,
                other => return other,
            }
        }
    }

    async fn read_now(self: &Arc<Self>, object: &ObjectId, request: &GetRequest) -> Result<Read, ObjectError> {
        let mut sender = None;
        let lookup = {
            let mut cache = self.cache.lock();
            // A doubt arises before its write ends in the cache: under this lock it is seen, or the write is.
            let in_doubt = self.doubts.lock().hold(object, self.clock.monotonic());
            if in_doubt && cache.peek(object).is_none() {
                Lookup::Past
            } else {
                cache.lookup(
                    object,
                    |kept| kept.segment.is_some() || kept.meta.size() > self.limits.cached_object.bytes(),
                    || {
                        let (send, flight) = watch::channel(None);
                        sender = Some(send);
                        flight
                    },
                )
            }
        };
        let mut flight = match lookup {
            Lookup::Hit(Kept { meta, segment: Some(segment) }) => {
                let meta = meta.unpack();
                check_read(&request.conditions, &meta)?;
                let range = resolve(request.range, &meta)?;
                let source = ReadSource::Segment(segment.slice(range.clone()));
                return Ok(Read { meta, range, source, served: Served::Hit });
            }
            Lookup::Hit(Kept { meta, segment: None }) => {
                return self.read_past(object, request, Some(meta.unpack())).await;
            }
            Lookup::Past => return self.read_past(object, request, None).await,
            Lookup::Join(flight) => flight,
            Lookup::Lead(fetch, flight) => {
                let ticket = Ticket { inner: Arc::clone(self), object: object.clone(), fetch, ended: false };
                // On its own, so that it goes on for those who joined when the first to ask hangs up.
                tokio::spawn(Arc::clone(self).fetch(ticket, sender));
                flight
            }
        };
        let landed = flight.wait_for(Option::is_some).await.ok().and_then(|landed| landed.clone());
        let lost = || ObjectError::Memory { operation: "fetch", reason: "it was given up".to_owned() };
        match landed.ok_or_else(lost)?? {
            Fetched::Copy(Resident { meta, segment: Some(segment) }) => {
                check_read(&request.conditions, &meta)?;
                let range = resolve(request.range, &meta)?;
                let source = ReadSource::Segment(segment.slice(range.clone()));
                Ok(Read { meta, range, source, served: Served::Miss })
            }
            Fetched::Copy(Resident { meta, segment: None }) | Fetched::TooLarge(meta) => {
                self.read_past(object, request, Some(meta)).await
            }
        }
    }

    /// Reads without keeping. If it takes more than one question to the store, or begins from metadata `known`,
    /// the bytes are pinned to the entity tag, and it begins anew if that has changed.
    async fn read_past(
        &self,
        object: &ObjectId,
        request: &GetRequest,
        known: Option<Arc<ObjectMeta>>,
    ) -> Result<Read, ObjectError> {
        let mut known = known;
        for _ in 0..PIN_ATTEMPTS {
            let (range, answer) = match (known.take(), request.range) {
                (None, None) => (None, self.back.get(object, None, None).await),
                (known, wanted) => {
                    let meta = match known {
                        Some(meta) => meta,
                        None => Arc::new(self.back.head(object).await?),
                    };
                    check_read(&request.conditions, &meta)?;
                    let range = resolve(wanted, &meta)?;
                    let part = (range != (0..meta.size)).then(|| range.clone());
                    (Some(range), self.back.get(object, part, Some(&meta.etag)).await)
                }
            };
            let (meta, stream) = match answer {
                Err(ObjectError::PreconditionFailed(_)) => continue,
                other => other?,
            };
            let range = match range {
                Some(range) => range,
                None => {
                    check_read(&request.conditions, &meta)?;
                    0..meta.size
                }
            };
            let stream = exactly(stream, range.end - range.start, self.back.store().kind());
            let source = ReadSource::Stream(stream);
            return Ok(Read { meta: Arc::new(meta), range, source, served: Served::Past });
        }
        Err(ObjectError::SlowDown("the object changes faster than it can be read"))
    }

    /// Brings an object into memory, and tells those who wait.
    async fn fetch(
        self: Arc<Self>,
        ticket: Ticket,
        sender: Option<watch::Sender<Option<Result<Fetched, ObjectError>>>>,
    ) {
        let (landed, copy) = match self.bring(&ticket.object).await {
            Ok((fetched, copy)) => (Ok(fetched), copy),
            Err(error) => (Err(error), None),
        };
        // Kept first, told then: who asks after an answer finds the copy.
        ticket.end(copy);
        if let Some(sender) = sender {
            sender.send_replace(Some(landed));
        }
    }

    async fn bring(
        self: &Arc<Self>,
        object: &ObjectId,
    ) -> Result<(Fetched, Option<(Resident, Reservation)>), ObjectError> {
        let (meta, stream) = self.back.get(object, None, None).await?;
        let meta = Arc::new(meta);
        if meta.size > self.limits.cached_object.bytes() {
            let room = self.reserve(metadata_cost(object, &meta));
            let resident = Resident { meta: Arc::clone(&meta), segment: None };
            return Ok((Fetched::TooLarge(meta), room.map(|room| (resident, room))));
        }
        let Some(room) = self.reserve(self.account.cost(meta.size)) else {
            return Ok((Fetched::TooLarge(meta), None));
        };
        let mut filling = Filling::new(&self.account, meta.size)?;
        let mut stream = exactly(stream, meta.size, self.back.store().kind());
        while let Some(bytes) = stream.next().await {
            filling.append(&bytes?)?;
        }
        let resident = Resident { meta, segment: Some(filling.seal()?) };
        Ok((Fetched::Copy(resident.clone()), Some((resident, room))))
    }
}
