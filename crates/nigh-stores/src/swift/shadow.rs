//! Shadows: versions that Nigh has acknowledged and whose payload is not in Swift yet (OFC, section 6.2).
//!
//! The client of the middleware's protocol (`integrations/swift/README.md`): placeholders with tags, pushes that replace
//! only their placeholder, writes and deletions that expect a state, and the removal of placeholders. It decides no write
//! mode and stores no payload. A Swift without the middleware rejects all of these and writes nothing. With shadows every
//! request of the store is signed, because unsigned requests are an outsider's, which the middleware reports to Nigh.

pub(super) mod signature;
pub(super) mod tags;

use async_recursion::async_recursion as boxed;
use http::Method;
use http::header::{ETAG, HeaderMap, HeaderName, HeaderValue};
use nigh_data::{ETag, ObjectError, ObjectId, ObjectMeta};
use nigh_terms::{BucketName, Epoch, Namespace, SecretKey, Sequence, Version};
use thiserror::Error;

use self::signature::{OPERATION, Signer};
pub use self::tags::ShadowConflict;
use super::large::segments;
use super::shadowed::MiddlewareState;
use super::{STORE, SwiftStore, put_headers, store_error};
use crate::Payload;
use crate::answer::StoreResponse;
use crate::carried::is_md5;
use crate::payload::pieces;
use crate::wire::Call;
use crate::wire_error::WireError;

pub(super) const TAGS: HeaderName = HeaderName::from_static("x-nigh-shadow");
pub(super) const VERSION: HeaderName = HeaderName::from_static("x-nigh-version");
const EXPECT: HeaderName = HeaderName::from_static("x-nigh-expect");
const CACHED: HeaderName = HeaderName::from_static("x-nigh-cached");
const TIMESTAMP: &str = "x-nigh-timestamp";
const PROTOCOL: &str = "x-nigh-protocol";
/// A header that makes a Swift without the middleware reject a PUT or a DELETE.
const GUARD_PUT: HeaderName = HeaderName::from_static("x-delete-at");
const GUARD_DELETE: HeaderName = HeaderName::from_static("x-if-delete-at");
/// The version of the middleware's protocol.
const SPOKEN: &str = "1";

/// This node's identity for Swift's middleware.
#[derive(Clone, Debug)]
pub struct ShadowConfig {
    /// The secret of the middleware's `secret_file`: 32 bytes or more.
    pub secret: SecretKey,
    /// This node's id in the middleware's `nodes`.
    pub node: String,
}

/// Why a shadow was not written, pushed or removed.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message says what the fields hold")]
pub enum ShadowError {
    #[error("this store has no shadows; give the middleware's secret and this node's id")]
    Unconfigured,
    #[error("this Swift has no Nigh middleware of protocol {SPOKEN}; see integrations/swift/README.md")]
    NoMiddleware,
    /// The version cannot be a shadow: the caller must write it through.
    #[error("this version cannot be a shadow: {0}; write it through")]
    Unfit(&'static str),
    #[error("Swift has a newer version that Nigh wrote: {0}")]
    Newer(ShadowConflict),
    /// An outsider has written: the caller must write the version under a conflict key.
    #[error("Swift has an outsider's object, which was not overwritten: {0}")]
    Outside(ShadowConflict),
    /// Another write is in progress: the caller should try again.
    #[error("Swift got a newer write meanwhile, which was not overwritten: {0}")]
    Raced(String),
    #[error("the bucket is not marked as cached by Nigh; mark it first")]
    NotCached,
    /// The request was not sent.
    #[error("the request was not sent: {0}")]
    NotSent(ObjectError),
    /// The store failed: the outcome is unknown.
    #[error(transparent)]
    Store(#[from] ObjectError),
}

/// The state that a write expects to replace. The entity tag and the version of a shadow are those in its tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShadowPrecondition {
    /// Any state, with or without an object.
    Any,
    /// There is no object.
    Absent,
    /// There is an object, whatever its state.
    Present,
    /// The object with this entity tag.
    ETag(ETag),
    /// The object that has this version, which Nigh wrote.
    Version(Version),
}

impl ShadowPrecondition {
    fn header(&self) -> Result<HeaderValue, ShadowError> {
        let text = match self {
            Self::Any => return Ok(HeaderValue::from_static("any")),
            Self::Absent => return Ok(HeaderValue::from_static("absent")),
            Self::Present => return Ok(HeaderValue::from_static("present")),
            Self::ETag(etag) => format!("etag:{etag}"),
            Self::Version(version) => format!("version:{version}"),
        };
        HeaderValue::from_str(&text).map_err(|_| ShadowError::Unfit("the expected entity tag is not printable"))
    }
}

/// The position of a write in Swift's own order, as Swift's text. The texts have equal length, and their order is the
/// order of the writes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SwiftTimestamp(pub String);

/// Returns an error if an answer is for a shadow, which has no payload.
pub(super) fn refuse_shadow(headers: &HeaderMap) -> Result<(), ObjectError> {
    if !headers.contains_key(TAGS) {
        return Ok(());
    }
    Err(store_error("read", "Swift has a placeholder; the payload is the node's that acknowledged it"))
}

impl SwiftStore {
    /// Enables shadows: from now on all requests of the store are signed.
    ///
    /// # Errors
    /// `InvalidArgument` if the secret is too short for the middleware.
    pub fn with_shadows(mut self, config: ShadowConfig) -> Result<Self, ObjectError> {
        let short = || ObjectError::InvalidArgument("the secret shared with Swift has fewer than 32 bytes".to_owned());
        self.wire.access.sign_with(Signer::new(config.secret).ok_or_else(short)?);
        self.shadowing = Some(MiddlewareState::new(config.node));
        Ok(self)
    }

    /// Tells the middleware whether this node caches the bucket. Only for cached buckets does the middleware report
    /// outside writes and accept shadows.
    ///
    /// # Errors
    /// The same as for `push_shadow`.
    #[boxed]
    pub async fn mark_cached(
        &self,
        namespace: &Namespace,
        bucket: &BucketName,
        cached: bool,
    ) -> Result<(), ShadowError> {
        let node = if cached { self.node()? } else { "" };
        let node = HeaderValue::from_str(node).map_err(|_| ShadowError::Unfit("the node's id is not printable"))?;
        let name = self.names.on_store(namespace, bucket)?;
        let call = Call::new("mark bucket", Method::POST, format!("/{name}")).repeatable();
        self.ask("cache", call.header(CACHED, node)).await.map(drop)
    }

    /// Writes the placeholder of `meta`. From then on outsiders' reads wait for its push.
    ///
    /// # Errors
    /// The same as for `push_shadow`; `Unfit` if the version must be written through.
    #[boxed]
    pub async fn put_placeholder(
        &self,
        object: &ObjectId,
        meta: &ObjectMeta,
        expected: &ShadowPrecondition,
    ) -> Result<SwiftTimestamp, ShadowError> {
        self.check_fit(object, meta)?;
        let tags = tags::encode(meta, &put_headers(object, meta)?, self.node()?)?;
        let call = Call::new("put placeholder", Method::PUT, self.target(object)?).repeatable();
        self.ask("placeholder", guarded(call).header(TAGS, tags).header(EXPECT, expected.header()?)).await
    }

    /// Replaces the placeholder of `meta`'s version by its payload. May be repeated.
    ///
    /// # Errors
    /// `Newer` if Nigh has written a newer version, `Outside` if an outsider has written or deleted since, `Raced` if
    /// an outsider is doing so. None of these overwrites anything.
    #[boxed]
    pub async fn push_shadow(
        &self,
        object: &ObjectId,
        payload: &Payload,
        meta: &ObjectMeta,
    ) -> Result<SwiftTimestamp, ShadowError> {
        let call = self.payload_call("push", object, payload, meta)?;
        let timestamp = self.ask("push", call).await?;
        self.drop_segments(object).await?;
        Ok(timestamp)
    }

    /// Writes a version through if Swift has the expected state. Never overwrites a later write.
    ///
    /// # Errors
    /// The same as for `push_shadow`; `Unfit` for an object that would need segments.
    #[boxed]
    pub async fn put_expecting(
        &self,
        object: &ObjectId,
        payload: &Payload,
        meta: &ObjectMeta,
        expected: &ShadowPrecondition,
    ) -> Result<SwiftTimestamp, ShadowError> {
        let call = self.payload_call("put", object, payload, meta)?;
        let timestamp = self.ask("put", call.header(EXPECT, expected.header()?)).await?;
        self.drop_segments(object).await?;
        Ok(timestamp)
    }

    /// Deletes the object as `version` if Swift has the expected state. A missing object counts as deleted.
    ///
    /// # Errors
    /// The same as for `push_shadow`.
    #[boxed]
    pub async fn delete_expecting(
        &self,
        object: &ObjectId,
        version: Version,
        expected: &ShadowPrecondition,
    ) -> Result<(), ShadowError> {
        let call = Call::new("delete", Method::DELETE, self.target(object)?).repeatable();
        let call = guarded(call).header(VERSION, version_header(version)?).header(EXPECT, expected.header()?);
        self.ask("delete", call).await?;
        Ok(self.drop_segments(object).await?)
    }

    /// Deletes the object in any state. Returns false if there is none.
    pub(super) async fn delete_whatever(&self, object: &ObjectId) -> Result<bool, ShadowError> {
        let call = Call::new("delete", Method::DELETE, self.target(object)?).repeatable();
        let any = ShadowPrecondition::Any.header()?;
        let timestamp = self.ask("delete", guarded(call).header(EXPECT, any)).await?;
        self.drop_segments(object).await?;
        Ok(!timestamp.0.is_empty())
    }

    /// Removes the placeholder of `version` and restores the object that it replaced.
    ///
    /// # Errors
    /// The same as for `push_shadow`; `Outside` if there is no such placeholder.
    #[boxed]
    pub async fn drop_placeholder(&self, object: &ObjectId, version: Version) -> Result<(), ShadowError> {
        let call = Call::new("drop placeholder", Method::DELETE, self.target(object)?);
        self.ask("drop", guarded(call).header(VERSION, version_header(version)?)).await.map(drop)
    }

    fn node(&self) -> Result<&str, ShadowError> {
        Ok(self.shadowing.as_ref().ok_or(ShadowError::Unconfigured)?.node())
    }

    /// Rejects an object that must be written through.
    pub(super) fn check_fit(&self, object: &ObjectId, meta: &ObjectMeta) -> Result<(), ShadowError> {
        if !is_md5(&meta.etag) {
            return Err(ShadowError::Unfit("its ETag is not its MD5, and Swift would show the MD5"));
        }
        // The version is not known yet, so this assumes the longest.
        let version = Version { epoch: Epoch(u64::MAX), sequence: Sequence(u64::MAX) };
        let meta = ObjectMeta { version, ..meta.clone() };
        tags::encode(&meta, &put_headers(object, &meta)?, self.node()?).map(drop)
    }

    fn payload_call(
        &self,
        operation: &'static str,
        object: &ObjectId,
        payload: &Payload,
        meta: &ObjectMeta,
    ) -> Result<Call, ShadowError> {
        let parts = pieces(STORE, payload, meta)?;
        if segments(&parts).is_some() {
            return Err(ShadowError::Unfit("Swift would have it in segments"));
        }
        let mut call = Call::new(operation, Method::PUT, self.target(object)?).repeatable().body(parts);
        call.headers = tags::with_type(put_headers(object, meta)?);
        if is_md5(&meta.etag)
            && let Ok(md5) = HeaderValue::from_str(&meta.etag.0)
        {
            call = call.header(ETAG, md5);
        }
        Ok(guarded(call).header(VERSION, version_header(meta.version)?))
    }

    /// Sends a request that only the middleware understands.
    async fn ask(&self, operation: &'static str, call: Call) -> Result<SwiftTimestamp, ShadowError> {
        self.node()?;
        let call = call.header(OPERATION, HeaderValue::from_static(operation));
        match self.wire.send(&call).await {
            Ok(answer) => {
                let timestamp = told(&answer)?;
                if let Some(shadowing) = &self.shadowing {
                    shadowing.wrote(&timestamp);
                }
                Ok(timestamp)
            }
            // A deletion of a missing object.
            Err(error) if error.is_missing() && operation == "delete" => Ok(SwiftTimestamp(String::new())),
            Err(error) => Err(self.refused(error, &call)),
        }
    }

    fn refused(&self, error: WireError, call: &Call) -> ShadowError {
        match error {
            WireError::Refused { code, message, .. } if code == "newer" => {
                ShadowError::Newer(ShadowConflict::parse(message))
            }
            WireError::Refused { code, message, .. } if code == "outside" => {
                ShadowError::Outside(ShadowConflict::parse(message))
            }
            WireError::Refused { code, message, .. } if code == "raced" => ShadowError::Raced(message),
            WireError::Refused { code, .. } if code == "not-cached" => ShadowError::NotCached,
            // Swift itself checked the conditions of `guarded`.
            WireError::Refused { status, code, .. }
                if code.is_empty() && matches!(status.as_u16(), 400 | 412) && guards(call) =>
            {
                ShadowError::NoMiddleware
            }
            error @ (WireError::NotSent(_) | WireError::NotAllowed(_) | WireError::Queued) => {
                ShadowError::NotSent(self.wire.error(error, call))
            }
            error @ WireError::Refused { status, .. } if status.is_client_error() => {
                ShadowError::NotSent(self.wire.error(error, call))
            }
            error => self.wire.error(error, call).into(),
        }
    }
}

fn told(answer: &StoreResponse) -> Result<SwiftTimestamp, ShadowError> {
    if answer.headers.get(PROTOCOL).is_none_or(|protocol| protocol != SPOKEN) {
        return Err(ShadowError::NoMiddleware);
    }
    let timestamp = answer.headers.get(TIMESTAMP).and_then(|value| value.to_str().ok()).unwrap_or_default();
    Ok(SwiftTimestamp(timestamp.to_owned()))
}

/// A write that a Swift without the middleware rejects.
fn guarded(call: Call) -> Call {
    let guard = if call.method == Method::PUT { GUARD_PUT } else { GUARD_DELETE };
    call.header(guard, HeaderValue::from_static("1"))
}

fn guards(call: &Call) -> bool {
    call.headers.iter().any(|(name, _)| name == GUARD_PUT || name == GUARD_DELETE)
}

fn version_header(version: Version) -> Result<HeaderValue, ShadowError> {
    HeaderValue::from_str(&version.to_string()).map_err(|_| ShadowError::Unfit("its version is not printable"))
}
