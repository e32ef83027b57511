//! Google Cloud Storage and Azure Blob Storage, through opendal. **Untested on the real services**: the tests play back
//! exchanges recorded with their emulators.
//!
//! opendal names objects by paths, and trims and folds them: a key that opendal or the service would alter is rejected
//! with `InvalidArgument`. opendal creates and lists no buckets: they must exist already. It gets metadata and bytes by
//! two requests; the second requires the entity tag of the first, and both are repeated if the tag has changed.
//! Metadata for which the service has no field is sent as user metadata that only Nigh reads (`carried`).

mod conditions;
mod keys;
mod metadata;
mod settings;
mod transport;

use std::collections::HashMap;
use std::ops::Range;

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use nigh_data::{BucketInfo, ByteStream, ETag, ListedObject, ObjectError, ObjectId, ObjectMeta, Tags, WriteConditions};
use nigh_terms::{BucketName, Namespace, ObjectKey, Timestamp};
use opendal::options::{ListOptions, ReaderOptions, WriteOptions};
use opendal::services::{Azblob, Gcs};
use opendal::{Buffer, ErrorKind, HttpTransporter, Metadata, Operator};
use parking_lot::Mutex;

use self::keys::{altered, folder_of};
use self::metadata::modified;
pub use self::settings::{CloudConfig, CloudError, CloudService, GcsAccount};
use self::transport::{NotReached, Transport};
use super::bucket_names::BucketNames;
use super::carried::{Dialect, to_headers};
use super::connections::{Connections, check_endpoint};
use super::payload::pieces;
use super::{ListQuery, Payload, Store, check_pin};
use crate::StoreAbilities;

/// The prefix of user metadata names that opendal and `carried` exchange.
const META: &str = "x-nigh-";
/// How often a read is attempted at most, if the object changes between its metadata and its bytes.
const PIN_ATTEMPTS: usize = 4;
/// The most clients of buckets that are kept. Above this number all of them are dropped and created again.
const BUCKETS_MAX: usize = 1000;

/// A store in a cloud service.
pub struct CloudStore {
    service: CloudService,
    dialect: Dialect,
    names: BucketNames,
    transport: HttpTransporter,
    /// A client for each bucket, by the bucket's name on the service.
    operators: Mutex<HashMap<String, Operator>>,
}

impl CloudStore {
    /// Creates a store from its settings. Nothing is sent yet.
    ///
    /// # Errors
    /// If the endpoint is not a URL, or if one prefix begins with another.
    pub fn new(config: &CloudConfig) -> Result<Self, CloudError> {
        let store = match config.service {
            CloudService::Gcs { .. } => "gcs",
            CloudService::Azure { .. } => "azure",
        };
        let failed = |reason: String| CloudError::Client { store, reason };
        let endpoint = match &config.service {
            CloudService::Gcs { endpoint, .. } => endpoint.as_ref(),
            CloudService::Azure { endpoint, .. } => Some(endpoint),
        };
        endpoint.map(|endpoint| check_endpoint(endpoint, true)).transpose().map_err(failed)?;
        let connections = Connections::new(config.limits).map_err(failed)?;
        Ok(Self {
            service: config.service.clone(),
            dialect: Dialect {
                store,
                meta: META,
                joint: '_',
                system: |name| [CONTENT_TYPE, CACHE_CONTROL].contains(name),
            },
            names: BucketNames::new(&config.bucket_prefixes)?,
            transport: HttpTransporter::new(Transport::new(connections, store)),
            operators: Mutex::default(),
        })
    }

    fn error(&self, operation: &'static str, error: &opendal::Error) -> ObjectError {
        match error.kind() {
            ErrorKind::RateLimited => ObjectError::SlowDown("the store asks for fewer requests"),
            ErrorKind::ConditionNotMatch => ObjectError::PreconditionFailed("If-Match"),
            ErrorKind::AlreadyExists => ObjectError::PreconditionFailed("If-None-Match"),
            _ if std::error::Error::source(error).is_some_and(|source| source.is::<NotReached>()) => {
                ObjectError::StoreUnreached { store: self.dialect.store, operation, reason: error.message().to_owned() }
            }
            // The service received the request, but asks for another attempt.
            _ if error.is_temporary() => {
                ObjectError::StoreSilent { store: self.dialect.store, operation, reason: error.message().to_owned() }
            }
            kind => {
                let hint = match kind {
                    ErrorKind::PermissionDenied => "; check the store's account, its rights, and this machine's clock",
                    ErrorKind::NotFound => "; buckets on this store are made by its own tools",
                    _ => "",
                };
                self.failed(operation, format!("{}{hint}", error.message()))
            }
        }
    }

    fn failed(&self, operation: &'static str, reason: String) -> ObjectError {
        ObjectError::Store { store: self.dialect.store, operation, reason }
    }

    /// The client of a bucket.
    fn operator(&self, namespace: &Namespace, bucket: &BucketName) -> Result<Operator, ObjectError> {
        let name = self.names.on_store(namespace, bucket)?;
        if let Some(operator) = self.operators.lock().get(&name) {
            return Ok(operator.clone());
        }
        let made = match &self.service {
            CloudService::Gcs { endpoint, account } => {
                let mut gcs = Gcs::default().bucket(&name);
                if let Some(endpoint) = endpoint {
                    gcs = gcs.endpoint(endpoint);
                }
                gcs = match account {
                    GcsAccount::File(path) => gcs.credential_path(&path.to_string_lossy()),
                    GcsAccount::OfMachine => gcs,
                    GcsAccount::Nobody => gcs.skip_signature(),
                };
                Operator::new(gcs)
            }
            CloudService::Azure { endpoint, account, key } => {
                let azure = Azblob::default().container(&name).endpoint(endpoint);
                Operator::new(azure.account_name(account).account_key(key.reveal()))
            }
        };
        let operator = made.map_err(|error| self.error("client", &error))?;
        let context = operator.base_context().with_http_transport(self.transport.clone());
        let operator = operator.with_context(context);
        let mut operators = self.operators.lock();
        if operators.len() >= BUCKETS_MAX {
            operators.clear();
        }
        operators.insert(name, operator.clone());
        Ok(operator)
    }

    /// The client for an object, if the service keeps its key unchanged.
    fn target<'a>(&self, object: &'a ObjectId) -> Result<(Operator, &'a str), ObjectError> {
        let key = object.key.as_str();
        if let Some(why) = altered(key) {
            let text = format!("a store of kind {} would not keep this key as it is: {why}", self.dialect.store);
            return Err(ObjectError::InvalidArgument(text));
        }
        Ok((self.operator(&object.namespace, &object.bucket)?, key))
    }

    fn unable(&self, what: &str) -> ObjectError {
        ObjectError::InvalidRequest(format!("a store of kind {} cannot {what}", self.dialect.store))
    }

    async fn find_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<(), ObjectError> {
        let one = ListOptions { limit: Some(1), recursive: true, ..ListOptions::default() };
        let operator = self.operator(namespace, bucket)?;
        let found = match operator.lister_options("", one).await {
            Ok(mut entries) => entries.next().await.transpose().map(drop),
            Err(error) => Err(error),
        };
        match found {
            Err(error) if error.kind() == ErrorKind::NotFound => Err(ObjectError::NoSuchBucket(bucket.clone())),
            found => found.map_err(|error| self.error("find bucket", &error)),
        }
    }

    async fn write(
        &self,
        object: &ObjectId,
        payload: &Payload,
        meta: &ObjectMeta,
        mut options: WriteOptions,
    ) -> Result<(), ObjectError> {
        let (operator, key) = self.target(object)?;
        let mut user = HashMap::new();
        for (name, value) in to_headers(self.dialect, &object.key, meta)? {
            let value = value.to_str().map_err(|error| self.failed("put", error.to_string()))?.to_owned();
            match name.as_str().strip_prefix(META) {
                Some(name) => drop(user.insert(name.to_owned(), value)),
                None if name == CONTENT_TYPE => options.content_type = Some(value),
                None => options.cache_control = Some(value),
            }
        }
        options.user_metadata = Some(user);
        let bytes = Buffer::from(pieces(self.dialect.store, payload, meta)?);
        match operator.write_options(key, bytes, options).await {
            Ok(_) => Ok(()),
            Err(error) => Err(match self.missing(object, "put", &error).await {
                // The bucket exists, but the service rejected the object.
                ObjectError::NoSuchKey(_) => self.error("put", &error),
                other => other,
            }),
        }
    }

    /// Returns the error that says whether the key or the bucket is missing.
    async fn missing(&self, object: &ObjectId, operation: &'static str, error: &opendal::Error) -> ObjectError {
        if error.kind() != ErrorKind::NotFound {
            return self.error(operation, error);
        }
        match self.find_bucket(&object.namespace, &object.bucket).await {
            Ok(()) => ObjectError::NoSuchKey(object.key.clone()),
            Err(error) => error,
        }
    }

    async fn stat(&self, object: &ObjectId) -> Result<(Operator, Metadata), ObjectError> {
        let (operator, key) = self.target(object)?;
        match operator.stat(key).await {
            Ok(metadata) => Ok((operator, metadata)),
            Err(error) => Err(self.missing(object, "head", &error).await),
        }
    }
}

#[async_trait]
impl Store for CloudStore {
    fn kind(&self) -> &'static str {
        self.dialect.store
    }

    fn abilities(&self, _namespace: &Namespace) -> StoreAbilities {
        StoreAbilities { kind: self.kind(), conditions: true, shadows: false, lands_late: true, lists_tags: false }
    }

    async fn keeps_conditions(&self, namespace: &Namespace, bucket: &BucketName) -> Result<bool, ObjectError> {
        self.tries_conditions(namespace, bucket).await
    }

    fn check(&self, object: &ObjectId, meta: &ObjectMeta) -> Result<(), ObjectError> {
        self.target(object)?;
        to_headers(self.dialect, &object.key, meta).map(drop)
    }

    /// Reports an existing bucket as already owned by the namespace. A missing bucket must be created with the
    /// service's own tools.
    async fn create_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<(), ObjectError> {
        match self.find_bucket(namespace, bucket).await {
            Ok(()) => Err(ObjectError::BucketAlreadyOwnedByYou(bucket.clone())),
            Err(ObjectError::NoSuchBucket(_)) => {
                Err(self.unable("make buckets; make it with the service's own tools and use it then"))
            }
            Err(error) => Err(error),
        }
    }

    async fn delete_bucket(&self, _: &Namespace, _: &BucketName) -> Result<(), ObjectError> {
        Err(self.unable("remove buckets; use the service's own tools"))
    }

    /// The creation date of the bucket is unknown.
    async fn head_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<BucketInfo, ObjectError> {
        self.find_bucket(namespace, bucket).await?;
        Ok(BucketInfo { name: bucket.clone(), created: Timestamp(0) })
    }

    async fn list_buckets(&self, namespace: &Namespace) -> Result<Vec<BucketInfo>, ObjectError> {
        match self.names.prefix(namespace) {
            None => Ok(Vec::new()),
            Some(_) => Err(self.unable("list buckets; name the one that is wanted")),
        }
    }

    async fn put(&self, object: &ObjectId, payload: &Payload, meta: &ObjectMeta) -> Result<(), ObjectError> {
        self.write(object, payload, meta, WriteOptions::default()).await
    }

    async fn put_if(
        &self,
        object: &ObjectId,
        payload: &Payload,
        meta: &ObjectMeta,
        condition: &WriteConditions,
    ) -> Result<(), ObjectError> {
        let options = self.only_if(object, condition).await?;
        self.write(object, payload, meta, options).await
    }

    async fn head(&self, object: &ObjectId) -> Result<ObjectMeta, ObjectError> {
        let (_, metadata) = self.stat(object).await?;
        Ok(self.meta_of(&object.key, &metadata))
    }

    async fn get(
        &self,
        object: &ObjectId,
        range: Option<Range<u64>>,
        pinned: Option<&ETag>,
    ) -> Result<(ObjectMeta, ByteStream), ObjectError> {
        for _ in 0..PIN_ATTEMPTS {
            let (operator, metadata) = self.stat(object).await?;
            let meta = self.meta_of(&object.key, &metadata);
            check_pin(&meta, pinned)?;
            let range = range.clone().unwrap_or(0..meta.size);
            if range.end > meta.size || range.start > range.end {
                return Err(ObjectError::InvalidRange { size: meta.size });
            }
            if range.is_empty() {
                return Ok((meta, Box::pin(futures::stream::empty())));
            }
            let bound = ReaderOptions { if_match: metadata.etag().map(str::to_owned), ..ReaderOptions::default() };
            let reader = operator.reader_options(object.key.as_str(), bound).await;
            let reader = reader.map_err(|error| self.error("get", &error))?;
            let bytes = reader.into_bytes_stream(range).await.map_err(|error| self.error("get", &error))?;
            let mut bytes = Box::pin(bytes.peekable());
            // The request is only sent when the stream is first polled.
            let changed = match bytes.as_mut().peek().await {
                Some(Err(error)) => match error.get_ref().and_then(|inner| inner.downcast_ref::<opendal::Error>()) {
                    Some(inner) if matches!(inner.kind(), ErrorKind::ConditionNotMatch | ErrorKind::NotFound) => true,
                    Some(inner) => return Err(self.error("get", inner)),
                    None => return Err(self.failed("get", error.to_string())),
                },
                _ => false,
            };
            if changed {
                continue;
            }
            let store = self.dialect.store;
            let broken =
                move |error: std::io::Error| ObjectError::Store { store, operation: "get", reason: error.to_string() };
            return Ok((meta, bytes.map_err(broken).boxed()));
        }
        Err(ObjectError::SlowDown("the object changes faster than it can be read"))
    }

    async fn delete(&self, object: &ObjectId) -> Result<(), ObjectError> {
        let (operator, key) = self.target(object)?;
        self.find_bucket(&object.namespace, &object.bucket).await?;
        operator.delete(key).await.map_err(|error| self.error("delete", &error))
    }

    async fn delete_if(&self, object: &ObjectId, expected: &ETag) -> Result<(), ObjectError> {
        self.delete_only(object, expected).await
    }

    async fn put_tags(&self, object: &ObjectId, _: &Tags) -> Result<(), ObjectError> {
        self.stat(object).await?;
        Err(self.unable("change the tags of a stored object; write it anew with other tags"))
    }

    /// opendal lists whole folders in the service's order; this skips the keys up to `after`.
    async fn list(&self, query: ListQuery<'_>) -> Result<Vec<ListedObject>, ObjectError> {
        let ListQuery { namespace, bucket, prefix, after, limit } = query;
        let operator = self.operator(namespace, bucket)?;
        let start_after =
            after.filter(|after| operator.info().capability().list_with_start_after && altered(after).is_none());
        let options =
            ListOptions { recursive: true, start_after: start_after.map(str::to_owned), ..ListOptions::default() };
        let failed = |error: opendal::Error| match error.kind() {
            ErrorKind::NotFound => ObjectError::NoSuchBucket(bucket.clone()),
            _ => self.error("list", &error),
        };
        let mut entries = operator.lister_options(folder_of(prefix), options).await.map_err(failed)?;
        let mut listed = Vec::new();
        while listed.len() < limit {
            let Some(entry) = entries.try_next().await.map_err(failed)? else { break };
            let (key, metadata) = (entry.path(), entry.metadata());
            if !metadata.is_file() || !key.starts_with(prefix) || after.is_some_and(|after| key <= after) {
                continue;
            }
            let key = ObjectKey::new(key).map_err(|error| self.failed("list", error.to_string()))?;
            let (size, etag) = (metadata.content_length(), self.listed_tag(metadata));
            listed.push(ListedObject { key, size, etag, modified: modified(metadata) });
        }
        Ok(listed)
    }
}
