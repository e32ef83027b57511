//! Requests that are made again, as clients do that got no answer: what was done then is answered once more, before any
//! condition is looked at, and nothing is written.

use nigh_engine::RequestId;
use nigh_terms::Token;

use super::Inner;
use super::invocations::WriteCall;
use super::notify::ChangeDone;
use crate::notification::ObjectChange;
use crate::protocol::Stamp;
use crate::write_back::{Becomes, Known};
use crate::{ObjectError, ObjectId, PutDone, Served};

impl Inner {
    /// Tells of a change that was made by an earlier try, if that did not come to it.
    async fn tell_of(
        &self,
        call: &WriteCall,
        object: &ObjectId,
        change: ObjectChange,
        request: Option<RequestId>,
        known: &Known,
    ) -> Result<(), ObjectError> {
        let Some(who) = call.principal().filter(|_| !known.told) else { return Ok(()) };
        let notices = self.reserve_notices(object, change)?;
        let (created, at) = match &known.becomes {
            Becomes::Put(meta) => (Some((meta.size, &meta.etag)), meta.modified),
            Becomes::Gone | Becomes::Lost => (None, self.clock.wall()),
        };
        let done = ChangeDone { object, change, who, created, version: known.version, at };
        self.notify(notices, done).await?;
        self.back.told(object, request);
        Ok(())
    }

    /// The answer to a put that was made before.
    pub(super) async fn put_before(
        &self,
        call: &mut WriteCall,
        object: &ObjectId,
        change: ObjectChange,
        request: Option<RequestId>,
    ) -> Result<Option<PutDone>, ObjectError> {
        let Some(known) = self.back.repeated(object, request).await? else { return Ok(None) };
        let Becomes::Put(meta) = &known.becomes else { return Ok(None) };
        self.tell_of(call, object, change, request, &known).await?;
        call.wrote(Stamp::new(self.coherence.shards.of(object), known.version, &meta.token));
        call.succeeded(Served::Write, Some(known.version), meta.token.clone());
        call.of_object(meta.size);
        Ok(Some(PutDone {
            etag: meta.etag.clone(),
            size: meta.size,
            modified: meta.modified,
            checksum: meta.checksums.first().cloned(),
            version: known.version,
            token: meta.token.clone(),
        }))
    }

    /// Whether a deletion was made before; it is answered then.
    pub(super) async fn deleted_before(
        &self,
        call: &mut WriteCall,
        object: &ObjectId,
        request: Option<RequestId>,
    ) -> Result<bool, ObjectError> {
        let known = self.back.repeated(object, request).await?;
        let Some(known) = known.filter(|known| known.becomes == Becomes::Gone) else { return Ok(false) };
        self.tell_of(call, object, ObjectChange::Delete, request, &known).await?;
        call.wrote(Stamp { version: known.version, others: None });
        call.succeeded(Served::Delete, Some(known.version), Token::empty());
        Ok(true)
    }
}
