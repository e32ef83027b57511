//! A store that reads from one store and writes into another, so that profile runs of functions change nothing.
//!
//! Reads look into the upper store first, then into the lower one, which is never written. A deletion hides the lower
//! store's object. Dropping the upper store undoes everything.
//!
//! Two runs may read two versions of an object when the lower store changes.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use futures::TryStreamExt;
use nigh_data::{BucketInfo, ByteStream, ETag, ListedObject, ObjectError, ObjectId, ObjectMeta, Tags};
use nigh_terms::{BucketName, ByteSize, Namespace};
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;

use super::{ListQuery, Payload, Store};

/// The most deletions; further ones fail.
const HIDDEN_MAX: usize = 100_000;

/// Deleted objects and buckets that the lower store may still have.
#[derive(Default)]
struct OverlayDeletions {
    objects: HashSet<ObjectId>,
    buckets: HashSet<(Namespace, BucketName)>,
}

/// An upper store over a lower one.
pub struct OverlayStore {
    upper: Arc<dyn Store>,
    lower: Arc<dyn Store>,
    hidden: Mutex<OverlayDeletions>,
    written: AtomicU64,
    written_max: ByteSize,
    copies: AtomicU64,
}

/// Whether `error` says that the object or bucket does not exist.
const fn is_absence(error: &ObjectError) -> bool {
    matches!(error, ObjectError::NoSuchKey(_) | ObjectError::NoSuchBucket(_))
}

impl OverlayStore {
    /// An overlay that writes up to `written_max` bytes of new objects into `upper`, which must be empty.
    #[must_use]
    pub fn new(upper: Arc<dyn Store>, lower: Arc<dyn Store>, written_max: ByteSize) -> Self {
        Self {
            upper,
            lower,
            hidden: Mutex::default(),
            written: AtomicU64::new(0),
            written_max,
            copies: AtomicU64::new(0),
        }
    }

    fn hides_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> bool {
        self.hidden.lock().buckets.contains(&(namespace.clone(), bucket.clone()))
    }

    /// Rejects hidden objects and buckets.
    fn visible_below(&self, object: &ObjectId) -> Result<(), ObjectError> {
        let hidden = self.hidden.lock();
        if hidden.buckets.contains(&(object.namespace.clone(), object.bucket.clone()))
            || hidden.objects.contains(object)
        {
            return Err(ObjectError::NoSuchKey(object.key.clone()));
        }
        Ok(())
    }

    /// Counts `bytes` of new objects.
    fn charge(&self, bytes: u64) -> Result<(), ObjectError> {
        let before = self.written.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > self.written_max.0 {
            self.written.fetch_sub(bytes, Ordering::Relaxed);
            return Err(ObjectError::Store {
                store: "overlay",
                operation: "put",
                reason: format!("the run has written more than the {} it may", self.written_max),
            });
        }
        Ok(())
    }

    /// Creates the bucket in the upper store, if it is visible.
    async fn bucket_above(&self, namespace: &Namespace, bucket: &BucketName) -> Result<(), ObjectError> {
        if self.upper.head_bucket(namespace, bucket).await.is_ok() {
            return Ok(());
        }
        self.head_bucket(namespace, bucket).await?;
        match self.upper.create_bucket(namespace, bucket).await {
            Err(ObjectError::BucketAlreadyOwnedByYou(_)) => Ok(()),
            other => other,
        }
    }

    /// Copies the lower store's object into the upper store.
    async fn copy_up(&self, object: &ObjectId) -> Result<(), ObjectError> {
        self.visible_below(object)?;
        self.bucket_above(&object.namespace, &object.bucket).await?;
        let (mut meta, mut body) = self.lower.get(object, None, None).await?;
        self.charge(meta.size)?;
        let spool = self.upper.spool().map_or_else(std::env::temp_dir, Path::to_owned);
        let path = spool.join(format!("overlay-{}", self.copies.fetch_add(1, Ordering::Relaxed)));
        let failed = |error: std::io::Error| ObjectError::Store {
            store: "overlay",
            operation: "copy",
            reason: format!("{}: {error}", path.display()),
        };
        let mut file = tokio::fs::File::create(&path).await.map_err(failed)?;
        while let Some(bytes) = body.try_next().await? {
            file.write_all(&bytes).await.map_err(failed)?;
        }
        file.flush().await.map_err(failed)?;
        // The copy is one file, without parts.
        meta.parts.clear();
        self.upper.put(object, &Payload::Files(vec![path.clone()]), &meta).await
    }
}

#[async_trait]
impl Store for OverlayStore {
    fn kind(&self) -> &'static str {
        "overlay"
    }

    fn spool(&self) -> Option<&Path> {
        self.upper.spool()
    }

    async fn create_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<(), ObjectError> {
        if self.head_bucket(namespace, bucket).await.is_ok() {
            return Err(ObjectError::BucketAlreadyOwnedByYou(bucket.clone()));
        }
        self.upper.create_bucket(namespace, bucket).await
    }

    async fn delete_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<(), ObjectError> {
        self.head_bucket(namespace, bucket).await?;
        if !self.list(ListQuery::first(namespace, bucket, 1)).await?.is_empty() {
            return Err(ObjectError::BucketNotEmpty(bucket.clone()));
        }
        {
            let mut hidden = self.hidden.lock();
            if hidden.buckets.len() >= HIDDEN_MAX {
                return Err(ObjectError::SlowDown("too many buckets deleted in one run"));
            }
            hidden.buckets.insert((namespace.clone(), bucket.clone()));
        }
        match self.upper.delete_bucket(namespace, bucket).await {
            Err(error) if !is_absence(&error) => Err(error),
            _ => Ok(()),
        }
    }

    async fn head_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<BucketInfo, ObjectError> {
        match self.upper.head_bucket(namespace, bucket).await {
            Err(error) if is_absence(&error) && !self.hides_bucket(namespace, bucket) => {
                self.lower.head_bucket(namespace, bucket).await
            }
            other => other,
        }
    }

    async fn list_buckets(&self, namespace: &Namespace) -> Result<Vec<BucketInfo>, ObjectError> {
        let mut buckets = BTreeMap::new();
        for info in self.lower.list_buckets(namespace).await? {
            if !self.hides_bucket(namespace, &info.name) {
                buckets.insert(info.name.clone(), info);
            }
        }
        for info in self.upper.list_buckets(namespace).await? {
            buckets.entry(info.name.clone()).or_insert(info);
        }
        Ok(buckets.into_values().collect())
    }

    async fn put(&self, object: &ObjectId, payload: &Payload, meta: &ObjectMeta) -> Result<(), ObjectError> {
        self.bucket_above(&object.namespace, &object.bucket).await?;
        self.charge(meta.size)?;
        self.upper.put(object, payload, meta).await
    }

    async fn head(&self, object: &ObjectId) -> Result<ObjectMeta, ObjectError> {
        match self.upper.head(object).await {
            Err(error) if is_absence(&error) => {
                self.head_bucket(&object.namespace, &object.bucket).await?;
                self.visible_below(object)?;
                self.lower.head(object).await
            }
            other => other,
        }
    }

    async fn get(
        &self,
        object: &ObjectId,
        range: Option<Range<u64>>,
        pinned: Option<&ETag>,
    ) -> Result<(ObjectMeta, ByteStream), ObjectError> {
        match self.upper.get(object, range.clone(), pinned).await {
            Err(error) if is_absence(&error) => {
                self.head_bucket(&object.namespace, &object.bucket).await?;
                self.visible_below(object)?;
                self.lower.get(object, range, pinned).await
            }
            other => other,
        }
    }

    async fn delete(&self, object: &ObjectId) -> Result<(), ObjectError> {
        {
            let mut hidden = self.hidden.lock();
            if hidden.objects.len() >= HIDDEN_MAX {
                return Err(ObjectError::SlowDown("too many objects deleted in one run"));
            }
            hidden.objects.insert(object.clone());
        }
        match self.upper.delete(object).await {
            Err(error) if !is_absence(&error) => Err(error),
            _ => Ok(()),
        }
    }

    async fn put_tags(&self, object: &ObjectId, tags: &Tags) -> Result<(), ObjectError> {
        match self.upper.head(object).await {
            Err(error) if is_absence(&error) => self.copy_up(object).await?,
            other => drop(other?),
        }
        self.upper.put_tags(object, tags).await
    }

    async fn list(&self, query: ListQuery<'_>) -> Result<Vec<ListedObject>, ObjectError> {
        let ListQuery { namespace, bucket, after, limit, .. } = query;
        self.head_bucket(namespace, bucket).await?;
        let above = match self.upper.list(query).await {
            Err(error) if is_absence(&error) => Vec::new(),
            other => other?,
        };
        let mut merged: BTreeMap<_, _> = BTreeMap::new();
        let mut from = after.map(str::to_owned);
        // Hidden objects take places in the lower store's page: continue until the page is full of visible ones.
        while !self.hides_bucket(namespace, bucket) && merged.len() < limit {
            let below = match self.lower.list(ListQuery { after: from.as_deref(), ..query }).await {
                Err(error) if is_absence(&error) => Vec::new(),
                other => other?,
            };
            let at_end = below.len() < limit;
            from = below.last().map(|listed| listed.key.as_str().to_owned());
            for listed in below {
                let object = ObjectId { namespace: namespace.clone(), bucket: bucket.clone(), key: listed.key.clone() };
                if !self.hidden.lock().objects.contains(&object) {
                    merged.insert(listed.key.clone(), listed);
                }
            }
            if at_end {
                break;
            }
        }
        merged.extend(above.into_iter().map(|listed| (listed.key.clone(), listed)));
        Ok(merged.into_values().take(limit).collect())
    }
}

#[cfg(test)]
mod tests;
