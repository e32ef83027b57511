//! The bytes of an object for a look: from its copy in memory, without making the copy more recent; from the store only
//! if a trigger waits, and then without caching.

use std::ops::Range;
use std::sync::Arc;

use futures::TryStreamExt;
use nigh_data::{GetRequest, ObjectError, ObjectId, ObjectMeta, RangeSpec, ReadConditions, Segment};
use nigh_objects::ObjectMemory;
use nigh_terms::{Admission, Principal};

use super::look_queue::LookRequest;

/// One version of an object.
pub(super) struct ObjectBytes<'m> {
    memory: &'m ObjectMemory,
    object: &'m ObjectId,
    pub(super) meta: Arc<ObjectMeta>,
    /// Its copy in memory; without a copy the store is read.
    segment: Option<Segment>,
}

/// The principal for reads from the store, without caching.
fn reader(object: &ObjectId) -> Principal {
    Principal { admission: Admission::Never, ..Principal::outside(object.namespace.clone()) }
}

impl<'m> ObjectBytes<'m> {
    /// The present object; none if it does not exist, or if it is not in memory and must not be read from the store.
    pub(super) async fn of(memory: &'m ObjectMemory, wanted: &'m LookRequest) -> Option<Self> {
        let object = &wanted.object;
        let (meta, segment) = match memory.peek(object) {
            Some((meta, Some(segment))) => (meta, Some(segment)),
            Some((meta, None)) if wanted.from_store => (meta, None),
            None if wanted.from_store => {
                let found = memory.head(&reader(object), &object.bucket, &object.key, GetRequest::default()).await;
                (found.ok()?, None)
            }
            _ => return None,
        };
        Some(Self { memory, object, meta, segment })
    }

    /// Whether memory knows another version of the object by now.
    pub(super) fn is_old(&self) -> bool {
        self.memory.peek(self.object).is_some_and(|(meta, _)| meta.version != self.meta.version)
    }

    /// Some of its bytes.
    ///
    /// # Errors
    /// The store's, or if the object has changed.
    pub(super) async fn read(&self, range: Range<u64>) -> Result<Vec<u8>, ObjectError> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        if let Some(segment) = &self.segment {
            return Ok(segment.slice(range).as_ref().to_vec());
        }
        let if_match = Some(vec![self.meta.etag.clone()]);
        let request = GetRequest {
            conditions: ReadConditions { if_match, ..ReadConditions::default() },
            range: Some(RangeSpec::From { first: range.start, last: Some(range.end - 1) }),
        };
        let ObjectId { bucket, key, .. } = self.object;
        let got = self.memory.get(&reader(self.object), bucket, key, request).await?;
        got.body
            .try_fold(Vec::new(), |mut all, bytes| {
                all.extend_from_slice(&bytes);
                futures::future::ready(Ok(all))
            })
            .await
    }
}
