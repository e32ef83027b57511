//! The tags of an object: read with its metadata, replaced by a write that keeps the bytes.

use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use nigh_data::attributes::check_tags;
use nigh_data::segment::Segment;
use nigh_data::{DataOperation, ObjectError, ObjectId, ObjectMeta, ServeOutcome, Tags};
use nigh_protocol::Stamp;
use nigh_terms::{BucketName, ObjectKey, Principal, Token};

use super::fetch::metadata_cost;
use super::invocations::WriteCall;
use super::write_ticket::{WriteSource, WriteTicket};
use super::{ObjectMemory, ObjectMemoryState, object, to_the_end};
use crate::eviction::Origin;
use crate::kept::CachedCopy;
use crate::write_order::Turn;

impl ObjectMemory {
    /// An object's tags.
    ///
    /// # Errors
    /// `NoSuchBucket`, `NoSuchKey`, or the store's.
    #[boxed]
    pub async fn get_tags(&self, who: &Principal, bucket: &BucketName, key: &ObjectKey) -> Result<Tags, ObjectError> {
        let mut call = self.0.begin(who, DataOperation::Metadata, bucket, Some(key));
        let meta = self.0.current(who, &object(who, bucket, key)).await?;
        call.succeeded(ServeOutcome::Metadata, Some(meta.version), meta.token.clone());
        Ok(meta.tags.clone())
    }

    /// Replaces an object's tags; an empty set removes them. The object gets a new version with the same bytes.
    ///
    /// # Errors
    /// `InvalidTag`, `NoSuchBucket`, `NoSuchKey`, or the store's.
    #[boxed]
    pub async fn put_tags(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        tags: Tags,
    ) -> Result<(), ObjectError> {
        let call = self.0.begin_write(who, bucket, key);
        check_tags(&tags)?;
        to_the_end(Arc::clone(&self.0).write_tags(call, object(who, bucket, key), tags)).await
    }
}

impl ObjectMemoryState {
    pub(super) async fn write_tags(
        self: Arc<Self>,
        mut call: WriteCall,
        object: ObjectId,
        tags: Tags,
    ) -> Result<(), ObjectError> {
        let shard = self.coherence.shards.of(&object);
        let home = self.use_home(shard).await;
        let stamp = if home.is_some() {
            let turn = self.order.turn(&object).await?;
            self.tag_here(&turn, WriteSource::Own(call.seen()), &object, &tags).await
        } else {
            self.tag_there(&mut call, object, tags).await
        };
        let stamp = stamp?;
        drop(home);
        let version = stamp.as_ref().map(|stamp| stamp.version);
        if let Some(stamp) = stamp {
            self.wrote(&mut call, shard, stamp).await?;
        }
        call.succeeded(ServeOutcome::Metadata, version, Token::empty());
        Ok(())
    }

    /// Replaces an object's tags at the home here, under its write lock.
    pub(super) async fn tag_here(
        self: &Arc<Self>,
        _turn: &Turn,
        source: WriteSource,
        object: &ObjectId,
        tags: &Tags,
    ) -> Result<Option<Stamp>, ObjectError> {
        let (mut ticket, before) = WriteTicket::begin(self, object, nigh_protocol::Write::Put, source)?;
        // The bytes did not change, so the copy stays, with the new tags.
        if let Some(CachedCopy { meta, segment }) = before {
            let meta = ObjectMeta { tags: tags.clone(), ..ObjectMeta::clone(&meta.unpack()) };
            let cost = segment.as_ref().map_or_else(|| metadata_cost(object, &meta), Segment::cost);
            if let Some(room) = self.reserve(cost) {
                ticket.keep((CachedCopy::new(&meta, segment), room), Origin::Written);
            }
        }
        let tagged = ticket.put_tags(object, tags).await;
        tagged.inspect_err(|error| ticket.failed(error))?;
        let ended = ticket.ended(false).await;
        self.until_dropped(object).await;
        ended
    }
}
