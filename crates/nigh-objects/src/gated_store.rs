//! A store in memory whose operations a test can hold up, to force races.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::sync::Mutex;
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use nigh_data::{BucketInfo, ByteStream, ETag, ListedObject, ObjectError, ObjectId, ObjectMeta, Tags, WriteConditions};
use nigh_stores::StoreAbilities;
use nigh_stores::swift::shadow::{ShadowError, SwiftTimestamp};
use nigh_stores::{ListQuery, Payload, ShadowVersions, Shadows, Store};
use nigh_terms::{BucketName, Namespace, Timestamp, Version};
use tokio::sync::Semaphore;

/// Where an operation can be held up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Point {
    /// A get has not looked at the object yet.
    GetAsked,
    /// A get has read the object, and its answer is on the way.
    GetSeen,
    /// A put has not happened yet.
    PutAsked,
    /// A put has happened, and its answer is on the way.
    PutDone,
    /// A delete has not happened yet.
    DeleteAsked,
    /// A delete has happened, and its answer is on the way.
    DeleteDone,
    /// A placeholder has not been placed yet.
    Placing,
}

/// A closed gate: `arrived` counts the operations that came, `passes` lets them on.
#[derive(Clone)]
pub(crate) struct Gate {
    arrived: Arc<Semaphore>,
    passes: Arc<Semaphore>,
}

impl Gate {
    /// Waits until an operation is at the gate.
    pub(crate) async fn arrival(&self) {
        self.arrived.acquire().await.unwrap().forget();
    }

    /// Lets one operation pass.
    pub(crate) fn let_one_on(&self) {
        self.passes.add_permits(1);
    }
}

#[derive(Default)]
pub(crate) struct GatedStore {
    buckets: Mutex<BTreeMap<(Namespace, BucketName), ()>>,
    objects: Mutex<BTreeMap<ObjectId, (ObjectMeta, Bytes)>>,
    gates: Mutex<HashMap<Point, Gate>>,
    /// The number of gets so far.
    pub(crate) gets: AtomicUsize,
    /// Puts fail after they have happened.
    pub(crate) lose_puts: AtomicBool,
    /// Puts fail before they have happened; `land` makes them happen.
    pub(crate) delay_puts: AtomicBool,
    delayed: Mutex<Vec<(ObjectId, ObjectMeta, Bytes)>>,
    /// How many times it was asked whether a bucket exists.
    pub(crate) bucket_looks: AtomicUsize,
    /// The number of puts so far.
    pub(crate) puts: AtomicUsize,
    /// The store refuses to overwrite an object that is not as the writer expects.
    pub(crate) has_conditions: AtomicBool,
    /// Gets return one byte too few.
    pub(crate) cut_gets: AtomicBool,
    /// The store shows placeholders.
    pub(crate) has_shadows: AtomicBool,
    /// The placeholders that it shows.
    pub(crate) shadows: Mutex<BTreeMap<ObjectId, Version>>,
    /// How the next placeholder fails.
    pub(crate) placing_fails: Mutex<Option<PlaceholderFailure>>,
    /// The time, in seconds since 1970, at which outside writes are said to have been made.
    pub(crate) others_at: AtomicUsize,
}

/// How a placeholder fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlaceholderFailure {
    /// The placeholder is not sent.
    NotSent,
    /// The placeholder is not placed, and the call gets no answer.
    Lost,
    /// The placeholder is placed, but the call gets no answer.
    AnswerLost,
}

#[async_trait]
impl Shadows for GatedStore {
    fn fits(&self, _: &ObjectId, meta: &ObjectMeta) -> bool {
        !meta.etag.0.contains('-')
    }

    async fn place(&self, object: &ObjectId, meta: &ObjectMeta) -> Result<(), ShadowError> {
        self.pass(Point::Placing).await;
        let no_answer = || ObjectError::Store { store: "gated", operation: "place", reason: "no answer".to_owned() };
        let fails = self.placing_fails.lock().take();
        match fails {
            Some(PlaceholderFailure::NotSent) => return Err(ShadowError::NotSent(no_answer())),
            Some(PlaceholderFailure::Lost) => return Err(ShadowError::Store(no_answer())),
            Some(PlaceholderFailure::AnswerLost) | None => {}
        }
        self.shadows.lock().insert(object.clone(), meta.version);
        if fails.is_some() { Err(ShadowError::Store(no_answer())) } else { Ok(()) }
    }

    async fn push(&self, object: &ObjectId, payload: &Payload, meta: &ObjectMeta) -> Result<(), ShadowError> {
        let stands = self.shadows.lock().get(object).copied();
        if stands != Some(meta.version) {
            let there = self.stored(object).ok().map(|(meta, _)| meta.version);
            if stands.is_none() && there == Some(meta.version) {
                return Ok(());
            }
            let version = stands.or(there.filter(|version| *version != Version::OUTSIDE));
            let seconds = if there.is_some() { self.others_at.load(Ordering::SeqCst) } else { 0 };
            let found = serde_json::json!({"reason": "something else is there", "exists": there.is_some(),
                "version": version.map(|version| version.to_string()), "timestamp": format!("{seconds}.00000")});
            return Err(ShadowError::Outside(serde_json::from_value(found).unwrap()));
        }
        self.put(object, payload, meta).await?;
        self.shadows.lock().remove(object);
        Ok(())
    }

    async fn standing(&self, object: &ObjectId) -> Result<ShadowVersions, ObjectError> {
        let shadow = self.shadows.lock().get(object).copied();
        Ok(ShadowVersions { shadow, payload: self.stored(object).ok().map(|(meta, _)| meta.version) })
    }

    fn newest(&self) -> Option<SwiftTimestamp> {
        None
    }
}

impl GatedStore {
    /// An outside write of the object.
    pub(crate) fn put_by_others(&self, object: &ObjectId, meta: ObjectMeta, bytes: Bytes) {
        self.shadows.lock().remove(object);
        self.objects.lock().insert(object.clone(), (meta, bytes));
    }

    /// The stored bytes of the object.
    pub(crate) fn holds(&self, object: &ObjectId) -> Option<Bytes> {
        self.objects.lock().get(object).map(|(_, bytes)| bytes.clone())
    }

    pub(crate) fn close(&self, point: Point) -> Gate {
        let gate = Gate { arrived: Arc::new(Semaphore::new(0)), passes: Arc::new(Semaphore::new(0)) };
        self.gates.lock().insert(point, gate.clone());
        gate
    }

    /// Opens the gate: later operations pass; those at the gate stay there.
    pub(crate) fn open(&self, point: Point) {
        self.gates.lock().remove(&point);
    }

    /// Makes the delayed puts happen.
    pub(crate) fn land(&self) {
        for (object, meta, bytes) in self.delayed.lock().drain(..) {
            self.objects.lock().insert(object, (meta, bytes));
        }
    }

    async fn pass(&self, point: Point) {
        let gate = self.gates.lock().get(&point).cloned();
        if let Some(gate) = gate {
            gate.arrived.add_permits(1);
            gate.passes.acquire().await.unwrap().forget();
        }
    }

    fn stored(&self, object: &ObjectId) -> Result<(ObjectMeta, Bytes), ObjectError> {
        self.find_bucket(&object.namespace, &object.bucket)?;
        self.objects.lock().get(object).cloned().ok_or_else(|| ObjectError::NoSuchKey(object.key.clone()))
    }

    fn find_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<(), ObjectError> {
        let key = (namespace.clone(), bucket.clone());
        self.buckets.lock().get(&key).copied().ok_or_else(|| ObjectError::NoSuchBucket(bucket.clone()))
    }
}

#[async_trait]
impl Store for GatedStore {
    fn kind(&self) -> &'static str {
        "gated"
    }

    async fn create_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<(), ObjectError> {
        match self.buckets.lock().insert((namespace.clone(), bucket.clone()), ()) {
            None => Ok(()),
            Some(()) => Err(ObjectError::BucketAlreadyOwnedByYou(bucket.clone())),
        }
    }

    async fn delete_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<(), ObjectError> {
        self.find_bucket(namespace, bucket)?;
        if self.objects.lock().keys().any(|object| object.namespace == *namespace && object.bucket == *bucket) {
            return Err(ObjectError::BucketNotEmpty(bucket.clone()));
        }
        self.buckets.lock().remove(&(namespace.clone(), bucket.clone()));
        Ok(())
    }

    async fn head_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<BucketInfo, ObjectError> {
        self.bucket_looks.fetch_add(1, Ordering::SeqCst);
        self.find_bucket(namespace, bucket)?;
        Ok(BucketInfo { name: bucket.clone(), created: Timestamp(0) })
    }

    async fn list_buckets(&self, namespace: &Namespace) -> Result<Vec<BucketInfo>, ObjectError> {
        let buckets = self.buckets.lock();
        let own = buckets.keys().filter(|(owner, _)| owner == namespace);
        Ok(own.map(|(_, name)| BucketInfo { name: name.clone(), created: Timestamp(0) }).collect())
    }

    async fn put(&self, object: &ObjectId, payload: &Payload, meta: &ObjectMeta) -> Result<(), ObjectError> {
        self.puts.fetch_add(1, Ordering::SeqCst);
        self.pass(Point::PutAsked).await;
        self.find_bucket(&object.namespace, &object.bucket)?;
        let bytes: Vec<u8> = match payload {
            Payload::Segment(segment) => segment.as_slice().to_vec(),
            Payload::Files(files) => {
                let whole = [meta.size];
                let lengths = if meta.parts.is_empty() { &whole[..] } else { &meta.parts };
                assert_eq!(files.len(), lengths.len());
                let read = |(file, length): (&PathBuf, &u64)| std::fs::read(file).unwrap()[..*length as usize].to_vec();
                let bytes = files.iter().zip(lengths).flat_map(read).collect();
                // Like a store that makes the first file the object: it appends to the file, and takes it if it
                // succeeds.
                if self.lose_puts.load(Ordering::SeqCst) {
                    std::fs::OpenOptions::new().append(true).open(&files[0]).unwrap().write_all(b"tail").unwrap();
                } else {
                    std::fs::remove_file(&files[0]).unwrap();
                }
                bytes
            }
        };
        assert_eq!(bytes.len() as u64, meta.size);
        if self.delay_puts.load(Ordering::SeqCst) {
            self.delayed.lock().push((object.clone(), meta.clone(), bytes.into()));
            return Err(ObjectError::Store { store: "gated", operation: "put", reason: "no answer".to_owned() });
        }
        self.objects.lock().insert(object.clone(), (meta.clone(), bytes.into()));
        self.pass(Point::PutDone).await;
        if self.lose_puts.load(Ordering::SeqCst) {
            return Err(ObjectError::Store { store: "gated", operation: "put", reason: "no answer".to_owned() });
        }
        Ok(())
    }

    fn abilities(&self, _namespace: &Namespace) -> StoreAbilities {
        let conditions = self.has_conditions.load(Ordering::SeqCst);
        StoreAbilities {
            kind: self.kind(),
            conditions,
            shadows: self.has_shadows.load(Ordering::SeqCst),
            lands_late: true,
            lists_tags: true,
        }
    }

    fn shadows(&self, _namespace: &Namespace) -> Option<&dyn Shadows> {
        self.has_shadows.load(Ordering::SeqCst).then_some(self as &dyn Shadows)
    }

    fn bucket_named(&self, _account: Option<&str>, name: &str) -> Vec<(Namespace, BucketName)> {
        self.buckets.lock().keys().filter(|(_, bucket)| bucket.as_str() == name).cloned().collect()
    }

    async fn put_if(
        &self,
        object: &ObjectId,
        payload: &Payload,
        meta: &ObjectMeta,
        condition: &WriteConditions,
    ) -> Result<(), ObjectError> {
        let current = self.stored(object).ok().map(|(meta, _)| meta);
        nigh_data::conditions::check_write(condition, object, current.as_ref())?;
        self.put(object, payload, meta).await
    }

    async fn head(&self, object: &ObjectId) -> Result<ObjectMeta, ObjectError> {
        Ok(self.stored(object)?.0)
    }

    async fn get(
        &self,
        object: &ObjectId,
        range: Option<std::ops::Range<u64>>,
        pinned: Option<&ETag>,
    ) -> Result<(ObjectMeta, ByteStream), ObjectError> {
        self.gets.fetch_add(1, Ordering::SeqCst);
        self.pass(Point::GetAsked).await;
        let (meta, bytes) = self.stored(object)?;
        self.pass(Point::GetSeen).await;
        if pinned.is_some_and(|pinned| *pinned != meta.etag) {
            return Err(ObjectError::PreconditionFailed("If-Match"));
        }
        let range = range.unwrap_or(0..meta.size);
        let mut bytes = bytes.slice(range.start as usize..range.end as usize);
        if self.cut_gets.load(Ordering::SeqCst) {
            bytes.truncate(bytes.len().saturating_sub(1));
        }
        let pieces: Vec<_> = bytes.chunks(1000).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        Ok((meta, futures::stream::iter(pieces).boxed()))
    }

    async fn delete(&self, object: &ObjectId) -> Result<(), ObjectError> {
        self.pass(Point::DeleteAsked).await;
        self.find_bucket(&object.namespace, &object.bucket)?;
        self.objects.lock().remove(object);
        self.pass(Point::DeleteDone).await;
        Ok(())
    }

    async fn delete_if(&self, object: &ObjectId, expected: &ETag) -> Result<(), ObjectError> {
        let current = self.stored(object).ok().map(|(meta, _)| meta);
        if current.is_some_and(|meta| meta.etag != *expected) {
            return Err(ObjectError::PreconditionFailed("If-Match"));
        }
        self.delete(object).await
    }

    async fn put_tags(&self, object: &ObjectId, tags: &Tags) -> Result<(), ObjectError> {
        self.stored(object)?;
        if let Some((meta, _)) = self.objects.lock().get_mut(object) {
            meta.tags.clone_from(tags);
        }
        Ok(())
    }

    async fn list(&self, query: ListQuery<'_>) -> Result<Vec<ListedObject>, ObjectError> {
        let ListQuery { namespace, bucket, prefix, after, limit } = query;
        self.find_bucket(namespace, bucket)?;
        let objects = self.objects.lock();
        let wanted = objects.iter().filter(|(object, _)| {
            let key = object.key.as_str();
            object.namespace == *namespace
                && object.bucket == *bucket
                && key.starts_with(prefix)
                && after.is_none_or(|after| key > after)
        });
        let listed = |(object, (meta, _)): (&ObjectId, &(ObjectMeta, Bytes))| ListedObject {
            key: object.key.clone(),
            size: meta.size,
            etag: meta.etag.clone(),
            modified: meta.modified,
        };
        Ok(wanted.take(limit).map(listed).collect())
    }
}
