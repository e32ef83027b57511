//! Writes at an object's home, or on the way to it: under the object's write lock the conditions are checked, the write
//! is made durable and gets its version (`write_modes`), and its copy is cached.

use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use nigh_data::attributes::check_tags;
use nigh_data::conditions::check_write;
use nigh_data::{ObjectError, ObjectId, ObjectMeta, PutDone, PutRequest, ServeOutcome, Tags, WriteConditions};
use nigh_engine::{AppendResult, RequestId};
use nigh_protocol::{self, Stamp};
use nigh_stores::Payload;
use nigh_terms::{BucketName, ObjectKey, Principal, ShardId, Token};

use super::draft::{Content, Draft, PutHead};
use super::fetch::{NewCopy, metadata_cost};
use super::intake::BodyClaims;
use super::invocations::WriteCall;
use super::notify::ChangeDone;
use super::write_ticket::{WriteSource, WriteTicket};
use super::{ObjectMemory, ObjectMemoryState, object, to_the_end};
use crate::eviction::Origin;
use crate::kept::CachedCopy;
use crate::notification::ObjectChange;
use crate::stamps::Stamped as _;
use crate::write_back::{CommittedWrite, PossibleBases, Write, WriteMode};
use crate::write_order::Turn;

impl ObjectMemory {
    /// Writes an object. The write is durable when this returns.
    ///
    /// # Errors
    /// `NoSuchBucket`, what is wrong with the body, a condition's, or the store's. Nothing is written then, except with
    /// a `Store` error, after which the object is the old or the new one.
    #[boxed]
    pub async fn put(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        request: PutRequest,
    ) -> Result<PutDone, ObjectError> {
        let inner = &self.0;
        let mut call = inner.begin_write(who, bucket, key);
        let PutRequest { attributes, tags, conditions, body, length, md5, checksum, request } = request;
        attributes.check()?;
        check_tags(&tags)?;
        let limit = inner.limits.object.bytes();
        if length.is_some_and(|length| length > limit) {
            return Err(ObjectError::EntityTooLarge { limit });
        }
        inner.find_bucket(who, bucket).await?;
        let object = object(who, bucket, key);
        let journal = inner.goes_to_journal(&object, &tags);
        let checksum = Some(checksum.unwrap_or_default());
        let tag = inner.back.tag_digest(&object, None);
        let taken = inner.take_in(body, BodyClaims { length, md5, checksum, tag, limit, journal }).await?;
        call.served(taken.size);
        let head = PutHead {
            conditions,
            attributes,
            tags,
            size: taken.size,
            etag: taken.verified.etag,
            checksum: taken.verified.checksum,
            parts: Vec::new(),
            change: ObjectChange::Put,
            modified: inner.clock.wall(),
        };
        let draft = Draft { object, head, content: taken.content, journal: taken.journal, request };
        let trace = call.trace();
        nigh_trace::scope(trace, to_the_end(Arc::clone(inner).commit(call, draft))).await
    }

    /// Deletes an object; also one that does not exist. `request` is the client's name for the request, the same when the
    /// client repeats it.
    ///
    /// # Errors
    /// `NoSuchBucket`, a condition's, or the store's.
    #[boxed]
    pub async fn delete(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        conditions: WriteConditions,
        request: Option<RequestId>,
    ) -> Result<(), ObjectError> {
        let inner = &self.0;
        let call = inner.begin_write(who, bucket, key);
        inner.find_bucket(who, bucket).await?;
        let (trace, object) = (call.trace(), object(who, bucket, key));
        let deleted = to_the_end(Arc::clone(inner).commit_delete(call, object, conditions, request));
        nigh_trace::scope(trace, deleted).await
    }
}

impl ObjectMemoryState {
    /// Writes `draft` at its home, wherever that is. Run it by `to_the_end`, so that it is not dropped half way.
    pub(super) async fn commit(self: Arc<Self>, mut call: WriteCall, draft: Draft) -> Result<PutDone, ObjectError> {
        let (size, shard) = (draft.head.size, self.coherence.shards.of(&draft.object));
        let home = self.use_home(shard).await;
        let done = if home.is_some() {
            let turn = self.order.turn(&draft.object).await?;
            let source = WriteSource::Own(call.seen());
            self.put_here(&turn, call.principal().cloned(), source, draft).await
        } else {
            self.put_there(&mut call, draft).await
        };
        let (stamp, done) = done?;
        drop(home);
        self.wrote(&mut call, shard, stamp).await?;
        call.succeeded(ServeOutcome::Write, Some(done.version), done.token.clone());
        call.of_object(size);
        Ok(done)
    }

    /// The write has its version. Adds its token to the invocation that wrote, or, if a client wrote, to the namespace's
    /// next dispatch.
    pub(super) async fn wrote(&self, call: &mut WriteCall, shard: ShardId, stamp: Stamp) -> Result<(), ObjectError> {
        if !self.coherence.is_alone()
            && let Some(who) = call.principal().filter(|who| who.invocation.is_none())
        {
            let mut token = Token::empty();
            stamp.join_into(shard, &mut token);
            if self.compared().carries_tokens() {
                self.hand_over(&who.namespace, &token).await?;
            }
        }
        call.wrote(stamp);
        Ok(())
    }

    /// Writes `draft` at the home here, under the object's write lock.
    pub(super) async fn put_here(
        self: &Arc<Self>,
        _turn: &Turn,
        who: Option<Principal>,
        source: WriteSource,
        draft: Draft,
    ) -> Result<(Stamp, PutDone), ObjectError> {
        let Draft { object, head, content, journal, request } = draft;
        let (size, change, modified) = (head.size, head.change, head.modified);
        if let Some(done) = self.put_before(who.as_ref(), &object, change, request).await? {
            return Ok(done);
        }
        let below = self.check_write(&head.conditions, &object).await?;
        let notices = self.reserve_notices(&object, change)?;
        let mode = self.mode_of(&object, &head.tags, size, &content);
        let meta = head.meta();
        let node = self.writer_of(&source);
        let (mut ticket, _) = WriteTicket::begin(self, &object, nigh_protocol::Write::Put, source)?;
        let payload = match &content {
            Content::Memory(segment, _) => Payload::Segment(segment.clone()),
            Content::File(file) => Payload::Files(vec![file.path().to_owned()]),
            Content::Parts(files) => Payload::Files(files.clone()),
        };
        let (copy, _content) = self.copy_of(&object, &meta, content);
        if let Some(copy) = copy {
            ticket.keep(copy, if mode == WriteMode::Ephemeral { Origin::Ephemeral } else { Origin::Written });
        }
        let past_journal = size > self.limits.cached_object.bytes();
        let (object, by) = (&object, ticket.by());
        let write = Write { object, meta, payload, staged: journal, mode, request, below, past_journal, by };
        let CommittedWrite { meta, repeated } = ticket.put(write).await.inspect_err(|error| ticket.failed(error))?;
        let stamp = ticket.ended(repeated).await?.unwrap_or_else(|| meta.stamp());
        self.doubts.lock().settle(object);
        self.until_dropped(object).await;
        let (version, token) = (stamp.version, stamp.others.as_deref().cloned().unwrap_or_default());
        if let Some(who) = who {
            let created = Some((size, &meta.etag));
            let done = ChangeDone { object, change, who: &who, created, stamp: &stamp, node, at: meta.modified };
            self.notify(notices, done).await?;
            self.back.told(object, request);
        }
        let done = PutDone { etag: head.etag, size, modified, checksum: head.checksum, version, token };
        Ok((stamp, done))
    }

    /// The copy of a written object: with its bytes if they are in memory, or only its metadata if the object is too
    /// large. Other content stays in place until the write has ended.
    fn copy_of(
        self: &Arc<Self>,
        object: &ObjectId,
        meta: &ObjectMeta,
        content: Content,
    ) -> (Option<NewCopy>, Option<Content>) {
        match content {
            Content::Memory(segment, room) => (Some((CachedCopy::new(meta, Some(segment)), room)), None),
            Content::File(_) | Content::Parts(..) if meta.size > self.limits.cached_object.bytes() => {
                let room = self.reserve(metadata_cost(object, meta));
                (room.map(|room| (CachedCopy::new(meta, None), room)), Some(content))
            }
            Content::File(_) | Content::Parts(..) => (None, Some(content)),
        }
    }

    /// Checks the conditions. In a bucket that is also written from outside, returns the state that they were checked
    /// on.
    async fn check_write(
        self: &Arc<Self>,
        conditions: &WriteConditions,
        object: &ObjectId,
    ) -> Result<Option<PossibleBases>, ObjectError> {
        if *conditions == WriteConditions::default() {
            return Ok(None);
        }
        if let Some((current, below)) = self.back.look_below(object).await? {
            check_write(conditions, object, current.as_deref())?;
            return Ok(Some(below));
        }
        let current = self.current_if_any(object).await?;
        check_write(conditions, object, current.as_deref()).map(|()| None)
    }

    /// The mode of a write: the bucket's, unless the object's size or an outside write asks for a stricter one.
    fn mode_of(&self, object: &ObjectId, tags: &Tags, size: u64, content: &Content) -> WriteMode {
        match self.back.mode(object, tags) {
            // Bytes that do not stay in memory cannot be ephemeral.
            WriteMode::Ephemeral if !matches!(content, Content::Memory(..)) => WriteMode::Lazy,
            mode => mode,
        }
        .max(self.least_mode(size))
        .max(self.least_mode_beside_others(object))
    }

    /// The weakest mode while an object is written from outside: its writes go through, so that the store orders both.
    fn least_mode_beside_others(&self, object: &ObjectId) -> WriteMode {
        if self.is_written_outside(object) { WriteMode::Through } else { WriteMode::Ephemeral }
    }

    /// The weakest mode for this size: objects too large for memory go through to the store, past the journal.
    fn least_mode(&self, size: u64) -> WriteMode {
        if size > self.limits.cached_object.bytes() { WriteMode::Through } else { WriteMode::Ephemeral }
    }

    async fn commit_delete(
        self: Arc<Self>,
        mut call: WriteCall,
        object: ObjectId,
        conditions: WriteConditions,
        request: Option<RequestId>,
    ) -> Result<(), ObjectError> {
        let shard = self.coherence.shards.of(&object);
        let home = self.use_home(shard).await;
        let stamp = if home.is_some() {
            let turn = self.order.turn(&object).await?;
            let source = WriteSource::Own(call.seen());
            self.delete_here(&turn, call.principal().cloned(), source, &object, &conditions, request).await
        } else {
            self.delete_there(&mut call, object, conditions, request).await
        };
        let stamp = stamp?;
        drop(home);
        let version = stamp.version;
        self.wrote(&mut call, shard, stamp).await?;
        call.succeeded(ServeOutcome::Delete, Some(version), Token::empty());
        Ok(())
    }

    /// Deletes an object at the home here, under its write lock.
    pub(super) async fn delete_here(
        self: &Arc<Self>,
        _turn: &Turn,
        who: Option<Principal>,
        source: WriteSource,
        object: &ObjectId,
        conditions: &WriteConditions,
        request: Option<RequestId>,
    ) -> Result<Stamp, ObjectError> {
        let change = ObjectChange::Delete;
        if let Some(version) = self.deleted_before(who.as_ref(), object, request).await? {
            return Ok(Stamp { version, others: None });
        }
        let below = self.check_write(conditions, object).await?;
        let is_wanted = self.is_wanted(object, change);
        let (is_there, tags) = if is_wanted || self.back.asks_tags(object) {
            match self.current_if_any(object).await {
                Ok(meta) => (meta.is_some(), meta.map(|meta| meta.tags.clone()).unwrap_or_default()),
                // A lost object can be deleted like any other.
                Err(ObjectError::EphemeralLost(_) | ObjectError::Damaged(_)) => (true, Tags::new()),
                Err(error) => return Err(error),
            }
        } else {
            (false, Tags::new())
        };
        let mode = self.back.mode(object, &tags).max(self.least_mode_beside_others(object));
        // The removal of an object that was not there is no change to notify of.
        let notices = if is_wanted && is_there { self.reserve_notices(object, change)? } else { None };
        let node = self.writer_of(&source);
        let (mut ticket, _) = WriteTicket::begin(self, object, nigh_protocol::Write::Delete, source)?;
        let deleted = ticket.delete(object, mode, request, below).await;
        let AppendResult { version, repeated } = deleted.inspect_err(|error| ticket.failed(error))?;
        let stamp = ticket.ended(repeated).await?.unwrap_or(Stamp { version, others: None });
        self.doubts.lock().settle(object);
        self.until_dropped(object).await;
        if let Some(who) = who {
            let at = self.clock.wall();
            let done = ChangeDone { object, change, who: &who, created: None, stamp: &stamp, node, at };
            self.notify(notices, done).await?;
            self.back.told(object, request);
        }
        Ok(stamp)
    }
}
