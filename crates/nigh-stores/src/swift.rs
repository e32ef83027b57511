//! OpenStack Swift, by its own API.
//!
//! As in the S3 store, each operation is one request, keys are sent unchanged, metadata without a header is user metadata
//! that only Nigh reads (`carried`), and each namespace has a prefix of containers. Swift differs by its token (`session`),
//! by objects in parts (`large`), and by their entity tag, which is stored in the content type.
//!
//! No storage library is used: opendal 0.59 has no login of Keystone, creates and lists no containers, folds keys, and
//! gets metadata and bytes by two requests.

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
use super::{ListQuery, Payload, Shadows, Store, check_pin};
use crate::StoreAbilities;

const STORE: &str = "swift";
const DIALECT: Dialect = Dialect::of_headers(STORE, "x-object-meta-");
/// The most objects on one page.
const PAGE: usize = 1000;
/// The most containers that are remembered as having no segments.
const CONTAINERS_MAX: usize = 10_000;

/// The settings of a Swift store.
#[derive(Clone, Debug)]
pub struct SwiftConfig {
    /// The URL for the login: TempAuth's `http://host:port/auth/v1.0`, or Keystone's `https://host:5000/v3`.
    pub auth_url: String,
    /// The credentials.
    pub login: SwiftLogin,
    /// The endpoint in Keystone's catalog.
    pub endpoint: EndpointChoice,
    /// For each namespace, the prefix of its buckets' names. Other namespaces have no buckets.
    pub bucket_prefixes: BTreeMap<Namespace, String>,
    /// Limits of the requests.
    pub limits: NetworkLimits,
}

/// Why a Swift store cannot be used.
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
    /// Containers that have no container of segments.
    unsegmented: Mutex<HashSet<String>>,
    /// The state of the middleware. None if the store has no shadows.
    shadowing: Option<MiddlewareState>,
}

fn store_error(operation: &'static str, reason: impl ToString) -> ObjectError {
    ObjectError::Store { store: STORE, operation, reason: reason.to_string() }
}

/// Reads the object's metadata from an answer.
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
    /// Creates a store from its settings. Nothing is sent yet.
    ///
    /// # Errors
    /// If the URL is invalid, or if one prefix begins with another.
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

    /// The path of an object; Swift cannot store keys with NUL.
    fn target(&self, object: &ObjectId) -> Result<String, ObjectError> {
        if object.key.as_str().contains('\0') {
            let why = "Swift takes no key with a NUL character; choose another key";
            return Err(ObjectError::InvalidArgument(why.to_owned()));
        }
        let container = self.names.on_store(&object.namespace, &object.bucket)?;
        Ok(format!("/{container}/{}", encode_path(object.key.as_str())))
    }

    /// Sends a call that concerns `object`; the error says whether the key or the bucket is missing.
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
        let answer = self.wire.send_for_bucket(&call, bucket).await?;
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
            // Swift rejects bytes that were damaged in transfer.
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

    fn trouble(&self) -> Option<String> {
        self.wire.trouble()
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
            // The bucket is marked before anyone else knows it.
            _ => self.mark_used(namespace, bucket).await,
        }
    }

    async fn delete_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<(), ObjectError> {
        let name = self.names.on_store(namespace, bucket)?;
        let call = Call::new("delete bucket", Method::DELETE, format!("/{name}"));
        self.wire.send_for_bucket(&call, bucket).await?;
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
        StoreAbilities { kind: STORE, conditions: shadows, shadows, lands_late: true, lists_tags: true }
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
        // A bucket with cached copies must be marked, so that Swift reports outside writes to it.
        self.mark_used(&object.namespace, &object.bucket).await?;
        // HTTP cannot ask for an empty range.
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
        // Headers and body of one answer are of one version.
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

    /// Swift replaces all metadata by the sent headers, except the content type if none is sent, and keeps the bytes.
    async fn put_tags(&self, object: &ObjectId, tags: &Tags) -> Result<(), ObjectError> {
        let meta = ObjectMeta { tags: tags.clone(), ..self.head(object).await? };
        let mut call = Call::new("put tags", Method::POST, self.target(object)?);
        call.headers = to_headers(DIALECT, &object.key, &meta)?;
        call.headers.retain(|(name, _)| name != CONTENT_TYPE);
        self.send_for(object, &call).await.map(drop)
    }

    async fn list(&self, query: ListQuery<'_>) -> Result<Vec<ListedObject>, ObjectError> {
        let name = self.names.on_store(query.namespace, query.bucket)?;
        let target = |after: Option<&str>, page: usize| {
            let after = after.map(|after| format!("&marker={}", encode_query(after))).unwrap_or_default();
            format!("/{name}?format=json&limit={page}&prefix={}{after}", encode_query(query.prefix))
        };
        let parse = |text: &[u8], page: usize| {
            let objects = listing::parse_objects(text)?;
            // A page that is not full is the last one, because Swift refuses a limit that it would not honour.
            let is_last = objects.len() < page;
            Ok((objects, is_last))
        };
        self.wire.list(query, PAGE, target, parse).await
    }
}

#[cfg(test)]
mod tests;
