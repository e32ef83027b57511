//! Repeated requests, of clients that got no answer: the first attempt's answer is given again, before any condition is
//! checked, and nothing is written.

use nigh_data::{ObjectError, ObjectId, PutDone};
use nigh_engine::RequestId;
use nigh_protocol::Stamp;
use nigh_terms::{Principal, Token, Version};

use super::ObjectMemoryState;
use super::notify::ChangeDone;
use crate::notification::ObjectChange;
use crate::write_back::{ObjectState, RequestRecord};

impl ObjectMemoryState {
    /// Notifies of a change of an earlier attempt, if that attempt has not.
    async fn tell_of(
        &self,
        who: Option<&Principal>,
        object: &ObjectId,
        change: ObjectChange,
        request: Option<RequestId>,
        known: &RequestRecord,
    ) -> Result<(), ObjectError> {
        let Some(who) = who.filter(|_| !known.told) else { return Ok(()) };
        let notices = self.reserve_notices(object, change)?;
        let (created, seen, at) = match &known.becomes {
            ObjectState::Put(meta) => (Some((meta.size, &meta.etag)), meta.token.clone(), meta.modified),
            ObjectState::Gone | ObjectState::Lost => (None, Token::empty(), self.clock.wall()),
        };
        let stamp = Stamp::new(self.coherence.shards.of(object), known.version, &seen);
        // The node of the first attempt is not known any more; the home's node stands for it.
        let node = self.coherence.member().node;
        let done = ChangeDone { object, change, who, created, stamp: &stamp, node, at };
        self.notify(notices, done).await?;
        self.back.told(object, request);
        Ok(())
    }

    /// The answer to a repeated put.
    pub(super) async fn put_before(
        &self,
        who: Option<&Principal>,
        object: &ObjectId,
        change: ObjectChange,
        request: Option<RequestId>,
    ) -> Result<Option<(Stamp, PutDone)>, ObjectError> {
        let Some(known) = self.back.repeated(object, request).await? else { return Ok(None) };
        let ObjectState::Put(meta) = &known.becomes else { return Ok(None) };
        self.tell_of(who, object, change, request, &known).await?;
        let done = PutDone {
            etag: meta.etag.clone(),
            size: meta.size,
            modified: meta.modified,
            checksum: meta.checksums.first().cloned(),
            version: known.version,
            token: meta.token.clone(),
        };
        Ok(Some((Stamp::new(self.coherence.shards.of(object), known.version, &meta.token), done)))
    }

    /// The version of a repeated deletion.
    pub(super) async fn deleted_before(
        &self,
        who: Option<&Principal>,
        object: &ObjectId,
        request: Option<RequestId>,
    ) -> Result<Option<Version>, ObjectError> {
        let known = self.back.repeated(object, request).await?;
        let Some(known) = known.filter(|known| known.becomes == ObjectState::Gone) else { return Ok(None) };
        self.tell_of(who, object, ObjectChange::Delete, request, &known).await?;
        Ok(Some(known.version))
    }
}
