//! Swift with Nigh's middleware, for write-back: every write is in Swift's own order, and every bucket with cached copies is
//! marked, so that the middleware reports outsiders' writes to this node.
//!
//! Decides which writes use the protocol: an object in segments, and a version lower than that of an earlier installation
//! of Nigh, are written as to any Swift.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use async_recursion::async_recursion as boxed;
use async_trait::async_trait;
use http::Method;
use nigh_data::{ObjectError, ObjectId, ObjectMeta, WriteConditions};
use nigh_terms::{BucketName, Namespace};
use parking_lot::Mutex;

use super::shadow::{ShadowError, ShadowPrecondition, SwiftTimestamp, TAGS, VERSION, tags};
use super::{STORE, SwiftStore, store_error};
use crate::wire::Call;
use crate::wire_error::WireError;
use crate::{Payload, ShadowVersions, Shadows};

/// How long a mark is trusted. Outsiders may delete the bucket and create it again, without the mark.
const MARK_HOLDS: Duration = Duration::from_secs(60);
/// How long the first mark is trusted. A proxy may have cached the bucket without the mark for longer than this; the
/// next mark corrects that.
const FIRST_MARK_HOLDS: Duration = Duration::from_secs(2);
/// The most buckets that are remembered as marked.
const MARKS_MAX: usize = 10_000;
/// The most attempts at a write that collides with other writes.
const RACES_MAX: usize = 3;
/// The longest time for removing marks when the node ends.
const UNMARK_WITHIN: Duration = Duration::from_secs(5);

/// States of the middleware: not known yet, present, or missing.
const UNKNOWN: u8 = 0;
const THERE: u8 = 1;
const MISSING: u8 = 2;

/// A container that this node has marked.
struct MarkedContainer {
    namespace: Namespace,
    bucket: BucketName,
    until: Instant,
}

/// The state between this node and the middleware.
pub(super) struct MiddlewareState {
    node: String,
    middleware: AtomicU8,
    account: Mutex<Option<String>>,
    /// The marks, by the name of the container.
    marked: Mutex<HashMap<String, MarkedContainer>>,
    newest: Mutex<Option<SwiftTimestamp>>,
}

impl MiddlewareState {
    pub(super) fn new(node: String) -> Self {
        Self {
            node,
            middleware: AtomicU8::new(UNKNOWN),
            account: Mutex::default(),
            marked: Mutex::default(),
            newest: Mutex::default(),
        }
    }

    /// This node's id for the middleware.
    pub(super) fn node(&self) -> &str {
        &self.node
    }

    /// Records the timestamp of a write of this node. One timestamp serves all objects: a higher one than needed only
    /// delays an outside write.
    pub(super) fn wrote(&self, timestamp: &SwiftTimestamp) {
        let mut newest = self.newest.lock();
        if newest.as_ref().is_none_or(|newest| newest < timestamp) && !timestamp.0.is_empty() {
            *newest = Some(timestamp.clone());
        }
    }
}

impl SwiftStore {
    /// Asks whether Swift has the middleware (`GET /info`). Until that is known, Nigh assumes that it has: a Swift without it
    /// rejects shadows.
    ///
    /// # Errors
    /// `NoMiddleware`; `Unconfigured` if this store has no shadows; `NotSent` if Swift cannot be asked.
    #[boxed]
    pub async fn find_middleware(&self) -> Result<(), ShadowError> {
        let shadowing = self.shadowing.as_ref().ok_or(ShadowError::Unconfigured)?;
        let asked = self.wire.access.info().await;
        let (account, info) =
            asked.map_err(|error| ShadowError::NotSent(error.into_object_error(STORE, "ask for the middleware")))?;
        *shadowing.account.lock() = Some(account);
        let Some(info) = info else { return Ok(()) };
        let speaks = info.pointer("/nigh/protocol").and_then(serde_json::Value::as_u64) == Some(1);
        shadowing.middleware.store(if speaks { THERE } else { MISSING }, Ordering::Relaxed);
        if speaks { Ok(()) } else { Err(ShadowError::NoMiddleware) }
    }

    /// Returns true if Swift has, or may have, the middleware.
    pub(super) fn has_middleware(&self) -> bool {
        self.shadowing.as_ref().is_some_and(|shadowing| shadowing.middleware.load(Ordering::Relaxed) != MISSING)
    }

    /// Whether `account` may be this store's account, which is unknown before the first login.
    pub(super) fn may_be_account(&self, account: &str) -> bool {
        let known = self.shadowing.as_ref().and_then(|shadowing| shadowing.account.lock().clone());
        known.is_none_or(|known| known == account)
    }

    /// Marks a bucket before it is used, so that the middleware reports outsiders' writes.
    pub(super) async fn mark_used(&self, namespace: &Namespace, bucket: &BucketName) -> Result<(), ObjectError> {
        let Some(shadowing) = self.shadowing.as_ref().filter(|_| self.has_middleware()) else { return Ok(()) };
        let name = self.names.on_store(namespace, bucket)?;
        let known = shadowing.marked.lock().get(&name).map(|mark| mark.until);
        if known.is_some_and(|until| Instant::now() < until) {
            return Ok(());
        }
        match self.mark_cached(namespace, bucket, true).await {
            Ok(()) => {
                shadowing.middleware.store(THERE, Ordering::Relaxed);
                let mut marked = shadowing.marked.lock();
                if marked.len() >= MARKS_MAX {
                    marked.clear();
                }
                let (namespace, bucket) = (namespace.clone(), bucket.clone());
                let until = Instant::now() + if known.is_some() { MARK_HOLDS } else { FIRST_MARK_HOLDS };
                marked.insert(name, MarkedContainer { namespace, bucket, until });
                Ok(())
            }
            Err(ShadowError::NoMiddleware) => {
                shadowing.middleware.store(MISSING, Ordering::Relaxed);
                tracing::error!(
                    "the Swift behind has no Nigh middleware: outside writes are not seen until they are read anew"
                );
                Ok(())
            }
            // The request that follows fails with a better error.
            Err(ShadowError::NotSent(ObjectError::Store { reason, .. })) if reason.starts_with("404") => Ok(()),
            Err(error) => Err(as_store_error("mark bucket", error)),
        }
    }

    /// Removes the marks, so that outsiders' writes do not need a node that has ended.
    pub(super) async fn unmark_all(&self) {
        let Some(shadowing) = &self.shadowing else { return };
        let marked = std::mem::take(&mut *shadowing.marked.lock());
        let unmark = async {
            for (name, MarkedContainer { namespace, bucket, .. }) in marked {
                if let Err(error) = self.mark_cached(&namespace, &bucket, false).await {
                    tracing::warn!(container = name, %error, "outsiders cannot write to the bucket until this node is back");
                }
            }
        };
        if tokio::time::timeout(UNMARK_WITHIN, unmark).await.is_err() {
            tracing::warn!(
                "outside writers to some buckets are refused until this node is back: Swift did not take the marks"
            );
        }
    }

    /// Writes an object by the protocol. Returns false if the caller must write it as to a Swift without the
    /// middleware.
    pub(super) async fn put_in_order(
        &self,
        object: &ObjectId,
        payload: &Payload,
        meta: &ObjectMeta,
    ) -> Result<bool, ObjectError> {
        if !self.has_middleware() {
            return Ok(false);
        }
        for _ in 0..RACES_MAX {
            match self.put_expecting(object, payload, meta, &ShadowPrecondition::Any).await {
                Ok(_) => return Ok(true),
                Err(ShadowError::Raced(_)) => {}
                Err(ShadowError::Unfit(_) | ShadowError::Newer(_)) => return Ok(false),
                Err(error) => return self.not_in_order("put", object, error).await,
            }
        }
        Err(store_error("put", "others write the object faster than this node can"))
    }

    /// Writes an object by the protocol if the stored object meets `condition`.
    pub(super) async fn put_by_condition(
        &self,
        object: &ObjectId,
        payload: &Payload,
        meta: &ObjectMeta,
        condition: &WriteConditions,
    ) -> Result<(), ObjectError> {
        let (expected, name) = match condition {
            WriteConditions { if_absent: true, .. } => (ShadowPrecondition::Absent, "If-None-Match"),
            WriteConditions { if_match: Some(etag), .. } => (ShadowPrecondition::ETag(etag.clone()), "If-Match"),
            WriteConditions { .. } => (ShadowPrecondition::Any, "If-Match"),
        };
        match self.put_expecting(object, payload, meta, &expected).await {
            Ok(_) => Ok(()),
            Err(ShadowError::Outside(_) | ShadowError::Raced(_)) => Err(ObjectError::PreconditionFailed(name)),
            Err(error) => Err(as_store_error("put", error)),
        }
    }

    /// Deletes an object by the protocol. Returns false if the caller must delete it as on a Swift without the
    /// middleware.
    pub(super) async fn delete_in_order(&self, object: &ObjectId) -> Result<bool, ObjectError> {
        if !self.has_middleware() {
            return Ok(false);
        }
        for _ in 0..RACES_MAX {
            match self.delete_whatever(object).await {
                Ok(true) => return Ok(true),
                Ok(false) => {
                    // The bucket may be missing.
                    self.head_container(&object.namespace, &object.bucket).await?;
                    return Ok(true);
                }
                Err(ShadowError::Raced(_)) => {}
                Err(error) => return self.not_in_order("delete", object, error).await,
            }
        }
        Err(store_error("delete", "others write the object faster than this node can delete it"))
    }

    async fn not_in_order(
        &self,
        operation: &'static str,
        object: &ObjectId,
        error: ShadowError,
    ) -> Result<bool, ObjectError> {
        match error {
            ShadowError::NoMiddleware => {
                if let Some(shadowing) = &self.shadowing {
                    shadowing.middleware.store(MISSING, Ordering::Relaxed);
                }
                Ok(false)
            }
            // This call fails if the bucket is missing; otherwise the key is missing.
            ShadowError::NotSent(ObjectError::Store { reason, .. }) if reason.starts_with("404") => {
                self.head_container(&object.namespace, &object.bucket).await?;
                Err(ObjectError::NoSuchKey(object.key.clone()))
            }
            error => Err(as_store_error(operation, error)),
        }
    }
}

/// Turns `error` into the general error of the store.
fn as_store_error(operation: &'static str, error: ShadowError) -> ObjectError {
    match error {
        ShadowError::Store(error) | ShadowError::NotSent(error) => error,
        error => store_error(operation, error),
    }
}

#[async_trait]
impl Shadows for SwiftStore {
    fn fits(&self, object: &ObjectId, meta: &ObjectMeta) -> bool {
        self.check_fit(object, meta).is_ok()
    }

    async fn place(&self, object: &ObjectId, meta: &ObjectMeta) -> Result<(), ShadowError> {
        let (namespace, bucket) = (&object.namespace, &object.bucket);
        self.mark_used(namespace, bucket).await.map_err(ShadowError::NotSent)?;
        match self.put_placeholder(object, meta, &ShadowPrecondition::Any).await {
            // An outsider has deleted the bucket and created it again, so it has lost its mark.
            Err(ShadowError::NotCached) => {
                self.mark_cached(namespace, bucket, true).await?;
                self.put_placeholder(object, meta, &ShadowPrecondition::Any).await.map(drop)
            }
            other => other.map(drop),
        }
    }

    async fn push(&self, object: &ObjectId, payload: &Payload, meta: &ObjectMeta) -> Result<(), ShadowError> {
        self.push_shadow(object, payload, meta).await.map(drop)
    }

    async fn standing(&self, object: &ObjectId) -> Result<ShadowVersions, ObjectError> {
        let call = Call::new("head", Method::HEAD, self.target(object)?);
        match self.wire.send(&call).await {
            Ok(answer) => Ok(ShadowVersions {
                shadow: answer.headers.get(TAGS).and_then(tags::version_of),
                payload: answer.headers.get(VERSION).and_then(|text| tags::parse_version(text.to_str().ok()?)),
            }),
            Err(error) if error.is_missing() => Ok(ShadowVersions::default()),
            Err(error) => Err(match error {
                WireError::Refused { message, .. } => store_error("head", message),
                error => self.wire.error(error, &call),
            }),
        }
    }

    fn newest(&self) -> Option<SwiftTimestamp> {
        self.shadowing.as_ref()?.newest.lock().clone()
    }
}
