//! A Swift with Nigh's middleware, as write-back uses it: every write in Swift's own order, every bucket that this node
//! keeps copies of marked so that it is told of others' writes.
//!
//! Decides what of a write goes by the protocol and what as to any Swift: an object in segments, and a version with a
//! number lower than that of an earlier installation of Nigh, are written plainly.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use http::Method;
use nigh_data::{ObjectError, ObjectId, ObjectMeta, WriteConditions};
use nigh_terms::{BucketName, Namespace};
use parking_lot::Mutex;

use super::shadow::{ShadowError, ShadowPrecondition, SwiftTimestamp, TAGS, VERSION, tags};
use super::{STORE, SwiftStore, store_error};
use crate::wire::{Call, WireError};
use crate::{Payload, ShadowVersions, Shadows};

/// How long a bucket is taken to be marked. Others may delete it and make it anew, without the mark.
const MARK_HOLDS: Duration = Duration::from_secs(60);
/// How long the first mark does. A proxy that looked at the bucket just before may have remembered it without the mark,
/// for longer than this; the next mark makes it forget.
const FIRST_MARK_HOLDS: Duration = Duration::from_secs(2);
/// Buckets known to be marked.
const MARKS_MAX: usize = 10_000;
/// How often a write that met another one looks again.
const RACES_MAX: usize = 3;
/// How long marks are taken away when the node ends.
const UNMARK_WITHIN: Duration = Duration::from_secs(5);

/// Whether the middleware answers.
const UNKNOWN: u8 = 0;
const THERE: u8 = 1;
const MISSING: u8 = 2;

/// A container that this node has marked.
struct MarkedContainer {
    namespace: Namespace,
    bucket: BucketName,
    until: Instant,
}

/// What is between this node and the middleware.
pub(super) struct MiddlewareState {
    node: String,
    middleware: AtomicU8,
    account: Mutex<Option<String>>,
    /// By the container's name.
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

    /// This node's id to the middleware.
    pub(super) fn node(&self) -> &str {
        &self.node
    }

    /// Swift has ordered a write of this node's at `timestamp`. One for all objects: a higher one than needed only puts
    /// an outside write later.
    pub(super) fn wrote(&self, timestamp: &SwiftTimestamp) {
        let mut newest = self.newest.lock();
        if newest.as_ref().is_none_or(|newest| newest < timestamp) && !timestamp.0.is_empty() {
            *newest = Some(timestamp.clone());
        }
    }
}

impl SwiftStore {
    /// Asks whether the Swift behind has the middleware (`GET /info`). Until that is known it is taken to have it: a
    /// shadow is refused by one that has not.
    ///
    /// # Errors
    /// `NoMiddleware`; `Unconfigured` if this store has no shadows; `NotSent` if Swift cannot be asked.
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

    /// Whether shadows are to be tried.
    pub(super) fn has_middleware(&self) -> bool {
        self.shadowing.as_ref().is_some_and(|shadowing| shadowing.middleware.load(Ordering::Relaxed) != MISSING)
    }

    /// Whether `account` may be this store's: it is not known before the first login.
    pub(super) fn may_be_account(&self, account: &str) -> bool {
        let known = self.shadowing.as_ref().and_then(|shadowing| shadowing.account.lock().clone());
        known.is_none_or(|known| known == account)
    }

    /// Marks a bucket before it is used: whoever writes to it then tells this node.
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
            // Whoever uses it is told better.
            Err(ShadowError::NotSent(ObjectError::Store { reason, .. })) if reason.starts_with("404") => Ok(()),
            Err(error) => Err(as_store_error("mark bucket", error)),
        }
    }

    /// Takes the marks away, so that outsiders need not ask a node that is gone.
    pub(super) async fn unmark_all(&self) {
        let Some(shadowing) = &self.shadowing else { return };
        let marked = std::mem::take(&mut *shadowing.marked.lock());
        let unmark = async {
            for (name, MarkedContainer { namespace, bucket, .. }) in marked {
                if let Err(error) = self.mark_cached(&namespace, &bucket, false).await {
                    tracing::warn!(container = name, %error, "outside writers to the bucket are refused until this node is back");
                }
            }
        };
        if tokio::time::timeout(UNMARK_WITHIN, unmark).await.is_err() {
            tracing::warn!(
                "outside writers to some buckets are refused until this node is back: Swift did not take the marks"
            );
        }
    }

    /// Writes by the protocol. False if it is to be written plainly.
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

    /// As `put_in_order`, if Swift holds what `condition` says.
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

    /// Deletes above whatever is there. False if it is to be deleted plainly.
    pub(super) async fn delete_in_order(&self, object: &ObjectId) -> Result<bool, ObjectError> {
        if !self.has_middleware() {
            return Ok(false);
        }
        for _ in 0..RACES_MAX {
            match self.delete_whatever(object).await {
                Ok(true) => return Ok(true),
                Ok(false) => {
                    // The bucket may be what is missing.
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
            // The bucket or the key, whichever is missing.
            ShadowError::NotSent(ObjectError::Store { reason, .. }) if reason.starts_with("404") => {
                self.head_container(&object.namespace, &object.bucket).await?;
                Err(ObjectError::NoSuchKey(object.key.clone()))
            }
            error => Err(as_store_error(operation, error)),
        }
    }
}

/// What has no closer error.
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
            // Others have made the bucket anew.
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
