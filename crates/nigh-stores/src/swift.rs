//! A store that is OpenStack Swift, by its own API.
//!
//! As for the S3 store: one request an operation, every key as it is, what Swift has no place for in user metadata
//! that only Nigh reads (`carried`), a namespace's containers behind its prefix. Swift's own: the token (`session`),
//! objects in parts (`large`), and the entity tag of such an object, which goes along in its content type.
//!
//! The client is ours and not a storage library's: opendal 0.59 has no login of Keystone's, makes and lists no
//! containers, folds keys, and gives an object's metadata and bytes by two requests.

pub mod auth;
mod content_type;
mod large;
pub mod listing;
mod session;
pub mod shadow;
mod shadowed;

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use async_trait::async_trait;
use http::header::{CONTENT_TYPE, ETAG, HeaderName, HeaderValue, LAST_MODIFIED};
use http::{Method, StatusCode};
use nigh_data::{BucketInfo, ByteStream, ETag, ListedObject, ObjectError, ObjectId, ObjectMeta, Tags, WriteConditions};
use nigh_terms::{BucketName, Namespace};
use parking_lot::Mutex;
use thiserror::Error;

use self::auth::{EndpointChoice, SwiftLogin};
use self::session::Session;
use self::shadowed::MiddlewareState;
use super::answer::{StoreResponse, length_of};
use super::bucket_names::{BucketNames, PrefixesMeet};
use super::carried::{Dialect, from_headers, http_date, is_md5, to_headers};
use super::connections::{Connections, NetworkLimits, check_endpoint};
use super::payload::pieces;
use super::wire::{Call, Wire, encode_path, encode_query};
use super::{Payload, Shadows, Store, check_pin};
use crate::StoreAbilities;

const STORE: &str = "swift";
const DIALECT: Dialect = Dialect::of_headers(STORE, "x-object-meta-");
/// The entries of a page.
const PAGE: usize = 1000;
/// Containers of which it is known that they have no segments.
const CONTAINERS_MAX: usize = 10_000;

/// Where a Swift is and who uses it.
#[derive(Clone, Debug)]
pub struct SwiftConfig {
    /// The login's address: TempAuth's `http://host:port/auth/v1.0`, or Keystone's `https://host:5000/v3`.
    pub auth_url: String,
    /// Who logs in.
    pub login: SwiftLogin,
    /// Which of the catalog's endpoints is used, with Keystone.
    pub endpoint: EndpointChoice,
    /// For each namespace, what stands before its buckets' names. Namespaces that are not here have no buckets.
    pub bucket_prefixes: BTreeMap<Namespace, String>,
    /// How much it is asked, and how patiently.
    pub limits: NetworkLimits,
}

/// Why a Swift cannot be used.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message says what the fields hold")]
pub enum SwiftError {
    #[error("Swift: {0}")]
    Client(String),
    #[error("Swift: {0}")]
    PrefixesMeet(#[from] PrefixesMeet),
}

/// A store on a Swift account.
pub struct SwiftStore {
    wire: Wire<Session>,
    names: BucketNames,
    /// Containers of segments that are known not to be there.
    unsegmented: Mutex<HashSet<String>>,
    /// What is between this node and Swift's middleware, if the store has shadows.
    shadowing: Option<MiddlewareState>,
}

fn store_error(operation: &'static str, reason: impl ToString) -> ObjectError {
    ObjectError::Store { store: STORE, operation, reason: reason.to_string() }
}

/// What an answer says of the object.
fn meta_of(object: &ObjectId, size: u64, answer: &mut StoreResponse) -> Result<ObjectMeta, ObjectError> {
    shadow::refuse_shadow(&answer.headers)?;
    content_type::drop_tag(&mut answer.headers);
    let (meta, swifts) = from_headers(DIALECT, &object.key, size, &answer.headers);
    if is_md5(&meta.etag) && meta.etag != swifts {
        let reason = format!("Swift says that the object's MD5 is {swifts:?}, and it was written with {}", meta.etag);
        return Err(store_error("read", reason));
    }
    Ok(meta)
}

/// The headers that store an object's metadata.
fn put_headers(object: &ObjectId, meta: &ObjectMeta) -> Result<Vec<(HeaderName, HeaderValue)>, ObjectError> {
    let mut headers = to_headers(DIALECT, &object.key, meta)?;
    if !is_md5(&meta.etag) {
        content_type::put_tag(&mut headers, &meta.etag);
    }
    Ok(headers)
}

impl SwiftStore {
    /// A store as `config` says. Nothing is sent yet.
    ///
    /// # Errors
    /// If the address is no URL, or two namespaces could meet.
    pub fn new(config: &SwiftConfig) -> Result<Self, SwiftError> {
        let auth_url = check_endpoint(&config.auth_url, true).map_err(SwiftError::Client)?;
        let connections = Connections::new(config.limits).map_err(SwiftError::Client)?;
        let session = Session::new(connections.clone(), auth_url, config.login.clone(), config.endpoint.clone());
        Ok(Self {
            wire: Wire::new(connections, session),
            names: BucketNames::new(&config.bucket_prefixes)?,
            unsegmented: Mutex::default(),
            shadowing: None,
        })
    }

    /// A key goes as it is or not at all.
    fn target(&self, object: &ObjectId) -> Result<String, ObjectError> {
        if object.key.as_str().contains('\0') {
            let why = "Swift takes no key with a NUL character; choose another key";
            return Err(ObjectError::InvalidArgument(why.to_owned()));
        }
        let container = self.names.on_store(&object.namespace, &object.bucket)?;
        Ok(format!("/{container}/{}", encode_path(object.key.as_str())))
    }

    /// Sends a call that concerns `object`; what is missing, the key or the bucket, is found out.
    async fn send_for(&self, object: &ObjectId, call: &Call) -> Result<StoreResponse, ObjectError> {
        match self.wire.send(call).await {
            Ok(answer) => Ok(answer),
            Err(error) if error.is_missing() => {
                self.head_container(&object.namespace, &object.bucket).await?;
                Err(ObjectError::NoSuchKey(object.key.clone()))
            }
            Err(error) => Err(self.wire.error(error, call)),
        }
    }

    async fn head_container(&self, namespace: &Namespace, bucket: &BucketName) -> Result<BucketInfo, ObjectError> {
        let name = self.names.on_store(namespace, bucket)?;
        let call = Call::new("head bucket", Method::HEAD, format!("/{name}"));
        let answer = match self.wire.send(&call).await {
            Err(error) if error.is_missing() => return Err(ObjectError::NoSuchBucket(bucket.clone())),
            other => other.map_err(|error| self.wire.error(error, &call))?,
        };
        let made = answer.headers.get(LAST_MODIFIED).and_then(|date| date.to_str().ok()).unwrap_or_default();
        Ok(BucketInfo { name: bucket.clone(), created: http_date(made) })
    }

    async fn put_whole(
        &self,
        object: &ObjectId,
        body: Vec<bytes::Bytes>,
        meta: &ObjectMeta,
    ) -> Result<(), ObjectError> {
        let mut call = Call::new("put", Method::PUT, self.target(object)?).body(body);
        call.headers = put_headers(object, meta)?;
        if is_md5(&meta.etag)
            && let Ok(md5) = HeaderValue::from_str(&meta.etag.0)
        {
            // Swift checks it: what was damaged on the way is refused.
            call = call.header(ETAG, md5);
        }
        let answer = self.send_for(object, &call).await?;
        let stored = answer.headers.get(ETAG).and_then(|etag| etag.to_str().ok()).unwrap_or_default();
        if is_md5(&meta.etag) && stored.trim_matches('"') != meta.etag.0 {
            let reason = format!("Swift says that it stored {stored:?}, and {} was sent", meta.etag);
            return Err(store_error(call.operation, reason));
        }
        Ok(())
    }
}

#[async_trait]
impl Store for SwiftStore {
    fn kind(&self) -> &'static str {
        STORE
    }

    fn check(&self, object: &ObjectId, meta: &ObjectMeta) -> Result<(), ObjectError> {
        self.target(object)?;
        to_headers(DIALECT, &object.key, meta).map(drop)
    }

    async fn create_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<(), ObjectError> {
        let name = self.names.on_store(namespace, bucket)?;
        let call = Call::new("create bucket", Method::PUT, format!("/{name}"));
        match self.wire.send_or_fail(&call).await?.status {
            StatusCode::ACCEPTED => Err(ObjectError::BucketAlreadyOwnedByYou(bucket.clone())),
            // Before anybody else knows of it.
            _ => self.mark_used(namespace, bucket).await,
        }
    }

    async fn delete_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<(), ObjectError> {
        let name = self.names.on_store(namespace, bucket)?;
        let call = Call::new("delete bucket", Method::DELETE, format!("/{name}"));
        match self.wire.send(&call).await {
            Ok(_) => {}
            Err(error) if error.is_missing() => return Err(ObjectError::NoSuchBucket(bucket.clone())),
            Err(error) if error.status() == Some(StatusCode::CONFLICT) => {
                return Err(ObjectError::BucketNotEmpty(bucket.clone()));
            }
            Err(error) => return Err(self.wire.error(error, &call)),
        }
        if let Err(error) = self.drop_segments_container(&name).await {
            tracing::warn!(%bucket, %error, "the bucket is gone; its container of segments could not be removed");
        }
        Ok(())
    }

    async fn head_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<BucketInfo, ObjectError> {
        self.head_container(namespace, bucket).await
    }

    async fn list_buckets(&self, namespace: &Namespace) -> Result<Vec<BucketInfo>, ObjectError> {
        let Some(prefix) = self.names.prefix(namespace) else { return Ok(Vec::new()) };
        let (mut all, mut marker) = (Vec::new(), String::new());
        loop {
            let target = format!("?format=json&prefix={}&marker={}", encode_query(prefix), encode_query(&marker));
            let call = Call::new("list buckets", Method::GET, target);
            let text = self.wire.send_or_fail(&call).await?.text().await?;
            let page = listing::parse_containers(&text, prefix);
            let (buckets, last) = page.map_err(|error| store_error(call.operation, error))?;
            all.extend(buckets);
            match last {
                Some(last) => marker = last,
                None => return Ok(all),
            }
        }
    }

    fn abilities(&self, _namespace: &Namespace) -> StoreAbilities {
        let shadows = self.has_middleware();
        StoreAbilities { kind: STORE, conditions: shadows, shadows, lands_late: true }
    }

    fn shadows(&self, _namespace: &Namespace) -> Option<&dyn Shadows> {
        self.has_middleware().then_some(self as &dyn Shadows)
    }

    fn bucket_named(&self, account: Option<&str>, name: &str) -> Vec<(Namespace, BucketName)> {
        if account.is_some_and(|account| !self.may_be_account(account)) {
            return Vec::new();
        }
        self.names.of_store(name).into_iter().collect()
    }

    async fn let_go(&self) {
        self.unmark_all().await;
    }

    async fn put_if(
        &self,
        object: &ObjectId,
        payload: &Payload,
        meta: &ObjectMeta,
        condition: &WriteConditions,
    ) -> Result<(), ObjectError> {
        self.mark_used(&object.namespace, &object.bucket).await?;
        self.put_by_condition(object, payload, meta, condition).await
    }

    async fn put(&self, object: &ObjectId, payload: &Payload, meta: &ObjectMeta) -> Result<(), ObjectError> {
        self.mark_used(&object.namespace, &object.bucket).await?;
        if self.put_in_order(object, payload, meta).await? {
            return Ok(());
        }
        let parts = pieces(STORE, payload, meta)?;
        match large::segments(&parts) {
            Some(segments) => self.put_large(object, segments, meta).await,
            None => {
                self.put_whole(object, parts, meta).await?;
                self.drop_segments(object).await
            }
        }
    }

    async fn head(&self, object: &ObjectId) -> Result<ObjectMeta, ObjectError> {
        let call = Call::new("head", Method::HEAD, self.target(object)?);
        let mut answer = self.send_for(object, &call).await?;
        let size = length_of(&answer.headers).ok_or_else(|| store_error("head", "the answer has no length"))?;
        meta_of(object, size, &mut answer)
    }

    async fn get(
        &self,
        object: &ObjectId,
        range: Option<Range<u64>>,
        pinned: Option<&ETag>,
    ) -> Result<(ObjectMeta, ByteStream), ObjectError> {
        // What is kept of it must be known to be kept: others' writes are told then.
        self.mark_used(&object.namespace, &object.bucket).await?;
        // Nothing of something: HTTP has no way to ask for that.
        if range.as_ref().is_some_and(Range::is_empty) {
            let meta = self.head(object).await?;
            check_pin(&meta, pinned)?;
            return Ok((meta, Box::pin(futures::stream::empty())));
        }
        let mut call = Call::new("get", Method::GET, self.target(object)?);
        if let Some(range) = &range {
            call = call.range(range).map_err(|error| error.into_object_error(STORE, "get"))?;
        }
        let mut answer = match self.send_for(object, &call).await {
            Err(ObjectError::Store { reason, .. }) if reason.starts_with("416") => {
                return Err(ObjectError::InvalidRange { size: self.head(object).await?.size });
            }
            other => other?,
        };
        let extent = answer.extent(range.as_ref())?;
        let meta = meta_of(object, extent.size, &mut answer)?;
        // Headers and body of one answer are one version's: no second request can fall between them.
        check_pin(&meta, pinned)?;
        Ok((meta, answer.into_stream(extent.length)))
    }

    async fn delete(&self, object: &ObjectId) -> Result<(), ObjectError> {
        self.mark_used(&object.namespace, &object.bucket).await?;
        if self.delete_in_order(object).await? {
            return Ok(());
        }
        let call = Call::new("delete", Method::DELETE, self.target(object)?);
        match self.send_for(object, &call).await {
            Ok(_) | Err(ObjectError::NoSuchKey(_)) => self.drop_segments(object).await,
            Err(error) => Err(error),
        }
    }

    /// Swift replaces all metadata by what is sent, but the content type if none is, and leaves the bytes alone.
    async fn put_tags(&self, object: &ObjectId, tags: &Tags) -> Result<(), ObjectError> {
        let meta = ObjectMeta { tags: tags.clone(), ..self.head(object).await? };
        let mut call = Call::new("put tags", Method::POST, self.target(object)?);
        call.headers = to_headers(DIALECT, &object.key, &meta)?;
        call.headers.retain(|(name, _)| name != CONTENT_TYPE);
        self.send_for(object, &call).await.map(drop)
    }

    async fn list(
        &self,
        namespace: &Namespace,
        bucket: &BucketName,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ListedObject>, ObjectError> {
        let name = self.names.on_store(namespace, bucket)?;
        let mut listed: Vec<ListedObject> = Vec::new();
        while listed.len() < limit {
            let page = PAGE.min(limit - listed.len());
            let mut target = format!("/{name}?format=json&limit={page}&prefix={}", encode_query(prefix));
            if let Some(after) = listed.last().map(|last| last.key.as_str()).or(after) {
                target.push_str(&format!("&marker={}", encode_query(after)));
            }
            let call = Call::new("list", Method::GET, target);
            let answer = match self.wire.send(&call).await {
                Err(error) if error.is_missing() => return Err(ObjectError::NoSuchBucket(bucket.clone())),
                other => other.map_err(|error| self.wire.error(error, &call))?,
            };
            let text = answer.text().await?;
            let entries = listing::parse_objects(&text).map_err(|error| store_error(call.operation, error))?;
            // A page that is not full is the last: Swift refuses a limit that it would not keep.
            let end = entries.len() < page;
            listed.extend(entries);
            if end {
                break;
            }
        }
        Ok(listed)
    }
}

#[cfg(test)]
mod tests;
