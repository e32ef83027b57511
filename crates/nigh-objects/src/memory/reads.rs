//! Reads: from memory, by a shared fetch, or past the cache.

use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use futures::StreamExt;
use nigh_data::conditions::check_read;
use nigh_data::range::resolve;
use nigh_data::{
    Body, ByteRange, ByteStream, DataOperation, GetReply, GetRequest, ObjectError, ObjectId, ObjectMeta, SegmentSlice,
    ServeOutcome,
};
use nigh_terms::{Admission, BucketName, ObjectKey, Principal, Token};

use super::cluster::CopyUse;
use super::coherence::FetchStart;
use super::fetch::{FetchGuard, FetchedObject, Wanted, exactly, given_up};
use super::{ObjectMemory, ObjectMemoryState, object};
use crate::kept::CachedCopy;
use crate::sync::spawn;

/// How many times an ephemeral object is looked for: a write that ends between the look into the cache and the next one
/// puts the object into the cache.
pub(super) const EPHEMERAL_ATTEMPTS: usize = 3;

/// A read whose conditions were checked.
pub(super) struct CheckedRead {
    pub(super) meta: Arc<ObjectMeta>,
    pub(super) range: ByteRange,
    pub(super) source: ReadSource,
    pub(super) served: ServeOutcome,
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

impl ObjectMemory {
    /// Reads an object from memory. If it is not there it is fetched into memory, or streamed past the cache if it is
    /// too large or being written.
    ///
    /// # Errors
    /// `NoSuchBucket`, `NoSuchKey`, a condition's or the range's, or the store's.
    pub async fn get(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        request: GetRequest,
    ) -> Result<GetReply, ObjectError> {
        let mut call = self.0.begin(who, DataOperation::Read, bucket, Some(key));
        let object = object(who, bucket, key);
        let read = nigh_trace::scope(call.trace(), self.0.read(who, &object, &request)).await;
        let read = read.inspect_err(|error| {
            if matches!(error, ObjectError::NotModified { .. }) {
                call.succeeded(ServeOutcome::Metadata, None, Token::empty());
            }
        })?;
        let CheckedRead { meta, range, source, served } = read;
        let (version, token) = (meta.version, meta.token.clone());
        call.succeeded(served, Some(version), token.clone());
        call.of_object(meta.size);
        let body = match source {
            ReadSource::Segment(slice) => Body::segment(slice, call),
            ReadSource::Stream(stream) => Body::stream(stream, call),
        };
        Ok(GetReply { meta, range, body, version, token })
    }

    /// Reads an object's metadata, with the conditions and the range of a get.
    ///
    /// # Errors
    /// As of a get.
    #[boxed]
    pub async fn head(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        request: GetRequest,
    ) -> Result<Arc<ObjectMeta>, ObjectError> {
        let mut call = self.0.begin(who, DataOperation::Metadata, bucket, Some(key));
        let object = object(who, bucket, key);
        let meta = nigh_trace::scope(call.trace(), self.0.current(who, &object)).await?;
        let checked = check_read(&request.conditions, &meta).and_then(|()| resolve(request.range, &meta));
        if matches!(checked, Ok(_) | Err(ObjectError::NotModified { .. })) {
            call.succeeded(ServeOutcome::Metadata, Some(meta.version), meta.token.clone());
            call.of_object(meta.size);
        }
        checked.map(|_| meta)
    }
}

impl ObjectMemoryState {
    /// Reads for `who`. An object that is not in memory is cached if the reader's admission allows that.
    pub(super) async fn read(
        self: &Arc<Self>,
        who: &Principal,
        object: &ObjectId,
        request: &GetRequest,
    ) -> Result<CheckedRead, ObjectError> {
        let read = if who.invocation.is_none() && !self.coherence.is_alone() {
            self.read_from_outside(object, request, who.admission).await
        } else {
            self.read_of(object, request, who.admission).await
        };
        match &read {
            Ok(read) => self.shows(who, object, &read.meta),
            Err(_) => self.shows_newest(who),
        }
        read
    }

    pub(super) async fn read_of(
        self: &Arc<Self>,
        object: &ObjectId,
        request: &GetRequest,
        admission: Admission,
    ) -> Result<CheckedRead, ObjectError> {
        self.revalidate(object).await?;
        match self.copies_are(object) {
            CopyUse::Shown => self.until_dropped(object).await,
            CopyUse::Checked => self.check_copy(object).await?,
            CopyUse::Unused => return self.read_from_home(object, request).await,
        }
        let mut attempts = 1;
        loop {
            match self.read_now(object, request, admission).await {
                Err(ObjectError::EphemeralLost(_)) if attempts < EPHEMERAL_ATTEMPTS => attempts += 1,
                other => return other,
            }
        }
    }

    async fn read_now(
        self: &Arc<Self>,
        object: &ObjectId,
        request: &GetRequest,
        admission: Admission,
    ) -> Result<CheckedRead, ObjectError> {
        let is_admitted = self.admits(admission);
        // Only the store knows an object that is written from outside, or whose last write has an unknown outcome.
        let past = || !is_admitted || self.is_written_outside(object) || self.doubts.lock().hold(object, self.now());
        let mut landing = match self.coherence.read(self.now(), object, past)? {
            FetchStart::Hit(CachedCopy { meta, segment: Some(segment) }) => {
                let meta = meta.unpack();
                check_read(&request.conditions, &meta)?;
                let range = resolve(request.range, &meta)?;
                let source = ReadSource::Segment(segment.slice(range.clone()));
                return Ok(CheckedRead { meta, range, source, served: ServeOutcome::Hit });
            }
            FetchStart::Hit(CachedCopy { meta, segment: None }) => {
                return self.read_known(object, request, meta.unpack()).await;
            }
            FetchStart::Private(asked) => return self.read_past(FetchGuard::new(self, object, asked), request).await,
            FetchStart::Join(landing) => landing,
            FetchStart::Shared(asked, sender) => {
                let landing = sender.subscribe();
                // A separate task: it continues for the reads that joined when the first reader hangs up.
                spawn(nigh_trace::follow(Arc::clone(self).fetch(FetchGuard::new(self, object, asked), sender)));
                landing
            }
        };
        let landed = landing.wait_for(Option::is_some).await.ok().and_then(|landed| landed.clone());
        match landed.ok_or_else(given_up)?? {
            FetchedObject { meta, segment: Some(segment) } => {
                check_read(&request.conditions, &meta)?;
                let range = resolve(request.range, &meta)?;
                let source = ReadSource::Segment(segment.slice(range.clone()));
                Ok(CheckedRead { meta, range, source, served: ServeOutcome::Miss })
            }
            FetchedObject { meta, segment: None } => self.read_known(object, request, meta).await,
        }
    }

    /// Reads the bytes of an object with the metadata `known`, without caching them. If the entity tag has changed, the
    /// current object is read.
    #[boxed]
    async fn read_known<'a>(
        self: &'a Arc<Self>,
        object: &'a ObjectId,
        request: &'a GetRequest,
        known: Arc<ObjectMeta>,
    ) -> Result<CheckedRead, ObjectError> {
        match self.pinned(object, request, &known).await? {
            Some((range, stream)) => {
                Ok(CheckedRead { meta: known, range, source: ReadSource::Stream(stream), served: ServeOutcome::Past })
            }
            None => {
                let asked = self.coherence.ask(self.now(), object)?;
                self.read_past(FetchGuard::new(self, object, asked), request).await
            }
        }
    }

    /// The bytes of an object, if its entity tag is still that of `meta`; none if not.
    pub(super) async fn pinned(
        &self,
        object: &ObjectId,
        request: &GetRequest,
        meta: &ObjectMeta,
    ) -> Result<Option<(ByteRange, ByteStream)>, ObjectError> {
        check_read(&request.conditions, meta)?;
        let range = resolve(request.range, meta)?;
        let part = (range != (0..meta.size)).then(|| range.clone());
        let read = if self.coherence.is_home(self.coherence.shards.of(object)) {
            self.back.get(object, part, Some(&meta.etag)).await.map(|(_, stream)| stream)
        } else {
            self.pinned_there(object, part, meta).await
        };
        match read {
            Ok(stream) => {
                let stream = exactly(stream, range.end - range.start, self.back.store().kind());
                Ok(Some((range, stream)))
            }
            Err(ObjectError::PreconditionFailed(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads past the cache.
    #[boxed]
    pub(super) async fn read_past<'a>(
        self: &'a Arc<Self>,
        fetch: FetchGuard,
        request: &'a GetRequest,
    ) -> Result<CheckedRead, ObjectError> {
        let (FetchedObject { meta, .. }, bytes) = self.read_at_home(fetch, Wanted::Uncached(request)).await?;
        let (range, stream) = bytes.ok_or_else(given_up)?;
        Ok(CheckedRead { meta, range, source: ReadSource::Stream(stream), served: ServeOutcome::Past })
    }

    /// Asks the home for an object's metadata, even if there is a copy.
    pub(super) async fn look(self: &Arc<Self>, object: &ObjectId) -> Result<Arc<ObjectMeta>, ObjectError> {
        let fetch = FetchGuard::new(self, object, self.coherence.ask(self.now(), object)?);
        self.read_at_home(fetch, Wanted::Metadata).await.map(|(found, _)| found.meta)
    }
}
