//! A store that speaks S3: Swift (s3api), MinIO, Ceph, AWS.
//!
//! One request an operation: a get brings bytes and metadata of one version together. Every key goes as it is
//! (`wire`); what the remote has no place for goes along as user metadata that only Nigh reads (`carried`). A write
//! is durable when the remote says so. An object uploaded in parts is uploaded in the same parts, so that the
//! remote's entity tag is the one Nigh gave. Each namespace has its own prefix of bucket names, and none can reach
//! another's: prefixes that begin with one another are refused.
//!
//! The client is ours and not a storage library's: those fold `//`, `..` and trailing slashes, need a second
//! request for a get's metadata, and resume broken reads without a pin.

mod carried;
mod upload;
mod wire;
mod xml;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, HeaderName, HeaderValue, RANGE};
use http::{HeaderMap, Method, StatusCode};
use nigh_terms::{AccessKeyId, BucketName, Namespace, SecretKey, Timestamp};
use parking_lot::Mutex;
use thiserror::Error;

use self::carried::{from_headers, to_headers};
use self::wire::{Answer, Call, Wire, WireError, encode_path, encode_query};
use super::{Payload, Store};
use crate::{BucketInfo, ByteStream, ETag, Listed, ObjectError, ObjectId, ObjectMeta, Tags};

/// Requests at once, unless configured.
pub const CONCURRENCY: usize = 64;
/// How long an answer, or the next bytes of one, are waited for, unless configured.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// The entries of a page.
const PAGE: usize = 1000;
/// The region that is not named when a bucket is made.
const DEFAULT_REGION: &str = "us-east-1";

/// Where a remote store is and how it is used.
#[derive(Clone, Debug)]
pub struct RemoteConfig {
    /// `http://host:port` or `https://host`; buckets are the path's first part.
    pub endpoint: String,
    /// The region that requests are signed for.
    pub region: String,
    /// The public half of the key.
    pub access_key: AccessKeyId,
    /// The secret half.
    pub secret_key: SecretKey,
    /// For each namespace, what stands before its buckets' names on the remote. Namespaces that are not here have
    /// no buckets.
    pub bucket_prefixes: BTreeMap<Namespace, String>,
    /// Requests at once; further ones wait.
    pub concurrency: usize,
    /// How long an answer, or the next bytes of one, are waited for.
    pub timeout: Duration,
}

impl RemoteConfig {
    /// The store of one namespace alone, whose buckets have the same names on the remote.
    #[must_use]
    pub fn of_one_namespace(
        namespace: Namespace,
        endpoint: impl Into<String>,
        region: impl Into<String>,
        access_key: AccessKeyId,
        secret_key: SecretKey,
    ) -> Self {
        Self {
            endpoint: endpoint.into(),
            region: region.into(),
            access_key,
            secret_key,
            bucket_prefixes: [(namespace, String::new())].into(),
            concurrency: CONCURRENCY,
            timeout: TIMEOUT,
        }
    }
}

/// Why a remote store cannot be used.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message says what the fields hold")]
pub enum RemoteError {
    #[error("remote store: {0}")]
    Client(String),
    #[error(
        "remote store: buckets of {one} ({one_prefix:?}) and of {other} ({other_prefix:?}) could be the same; give \
         prefixes of which none begins with another"
    )]
    PrefixesMeet { one: Namespace, one_prefix: String, other: Namespace, other_prefix: String },
}

/// A store behind an S3 endpoint.
pub struct RemoteStore {
    wire: Wire,
    region: String,
    prefixes: BTreeMap<Namespace, String>,
    /// When buckets were made, as far as asked: only the list of all buckets says so.
    created: Mutex<HashMap<String, Timestamp>>,
}

fn store_error(operation: &'static str, reason: impl ToString) -> ObjectError {
    ObjectError::Store { store: "s3", operation, reason: reason.to_string() }
}

fn is_missing(error: &WireError) -> bool {
    matches!(error, WireError::Refused { status: StatusCode::NOT_FOUND, .. })
}

fn header(name: &'static str, value: &str) -> Result<(HeaderName, HeaderValue), ObjectError> {
    let value = HeaderValue::from_str(value).map_err(|error| store_error("request", error))?;
    Ok((HeaderName::from_static(name), value))
}

fn length_of(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The object's whole length, out of `bytes 0-9/100`.
fn total_of(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_RANGE)?.to_str().ok()?.rsplit_once('/')?.1.parse().ok()
}

impl RemoteStore {
    /// A store as `config` says. Nothing is sent yet.
    ///
    /// # Errors
    /// If the endpoint is no URL, or two namespaces could meet.
    pub fn new(config: &RemoteConfig) -> Result<Self, RemoteError> {
        let wire = Wire::new(config).map_err(RemoteError::Client)?;
        for (one, one_prefix) in &config.bucket_prefixes {
            for (other, other_prefix) in &config.bucket_prefixes {
                if one != other && other_prefix.starts_with(one_prefix.as_str()) {
                    return Err(RemoteError::PrefixesMeet {
                        one: one.clone(),
                        one_prefix: one_prefix.clone(),
                        other: other.clone(),
                        other_prefix: other_prefix.clone(),
                    });
                }
            }
        }
        Ok(Self {
            wire,
            region: config.region.clone(),
            prefixes: config.bucket_prefixes.clone(),
            created: Mutex::default(),
        })
    }

    /// The bucket's name on the remote; a namespace without a prefix has no buckets.
    fn remote_name(&self, namespace: &Namespace, bucket: &BucketName) -> Result<String, ObjectError> {
        let prefix = self.prefixes.get(namespace).ok_or_else(|| ObjectError::NoSuchBucket(bucket.clone()))?;
        let name = format!("{prefix}{bucket}");
        BucketName::new(&name).map_err(|error| {
            ObjectError::InvalidArgument(format!("{error}; the store puts {prefix:?} before each bucket's name"))
        })?;
        Ok(name)
    }

    fn target(&self, object: &ObjectId) -> Result<String, ObjectError> {
        let bucket = self.remote_name(&object.namespace, &object.bucket)?;
        Ok(format!("/{bucket}/{}", encode_path(object.key.as_str())))
    }

    /// Sends a call that concerns `object`; what is missing, the key or the bucket, is found out.
    async fn send_for(&self, object: &ObjectId, call: &Call) -> Result<Answer, ObjectError> {
        let error = match self.wire.send(call).await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        match &error {
            WireError::Refused { code, .. } if code == "NoSuchBucket" => {
                Err(ObjectError::NoSuchBucket(object.bucket.clone()))
            }
            WireError::Refused { code, .. } if code == "NoSuchKey" => Err(ObjectError::NoSuchKey(object.key.clone())),
            // The answer to a HEAD has no body that could tell.
            _ if is_missing(&error) => {
                self.head_remote(&object.namespace, &object.bucket).await?;
                Err(ObjectError::NoSuchKey(object.key.clone()))
            }
            WireError::Refused { status: StatusCode::PRECONDITION_FAILED, .. } => {
                Err(ObjectError::PreconditionFailed("If-Match"))
            }
            _ => Err(error.into_object_error(call.operation)),
        }
    }

    async fn head_remote(&self, namespace: &Namespace, bucket: &BucketName) -> Result<(), ObjectError> {
        let name = self.remote_name(namespace, bucket)?;
        let call = Call::new("head bucket", Method::HEAD, format!("/{name}"));
        match self.wire.send(&call).await {
            Ok(_) => Ok(()),
            Err(error) if is_missing(&error) => Err(ObjectError::NoSuchBucket(bucket.clone())),
            Err(error) => Err(error.into_object_error(call.operation)),
        }
    }

    async fn head_answer(&self, object: &ObjectId) -> Result<(ObjectMeta, ETag), ObjectError> {
        let call = Call::new("head", Method::HEAD, self.target(object)?);
        let answer = self.send_for(object, &call).await?;
        let size = length_of(&answer.headers).ok_or_else(|| store_error("head", "the answer has no length"))?;
        Ok(from_headers(&object.key, size, &answer.headers))
    }
}

#[async_trait]
impl Store for RemoteStore {
    fn kind(&self) -> &'static str {
        "s3"
    }

    async fn create_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<(), ObjectError> {
        let name = self.remote_name(namespace, bucket)?;
        let mut call = Call::new("create bucket", Method::PUT, format!("/{name}"));
        if self.region != DEFAULT_REGION {
            let place = format!(
                "<CreateBucketConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><LocationConstraint>{}\
                 </LocationConstraint></CreateBucketConfiguration>",
                self.region
            );
            call = call.body(vec![Bytes::from(place)]);
        }
        match self.wire.send(&call).await {
            Ok(_) => Ok(()),
            Err(WireError::Refused { code, .. }) if code == "BucketAlreadyOwnedByYou" => {
                Err(ObjectError::BucketAlreadyOwnedByYou(bucket.clone()))
            }
            Err(error) => Err(error.into_object_error(call.operation)),
        }
    }

    async fn delete_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<(), ObjectError> {
        let name = self.remote_name(namespace, bucket)?;
        let call = Call::new("delete bucket", Method::DELETE, format!("/{name}"));
        self.created.lock().remove(&name);
        match self.wire.send(&call).await {
            Ok(_) => Ok(()),
            Err(error) if is_missing(&error) => Err(ObjectError::NoSuchBucket(bucket.clone())),
            Err(WireError::Refused { status: StatusCode::CONFLICT, .. }) => {
                Err(ObjectError::BucketNotEmpty(bucket.clone()))
            }
            Err(error) => Err(error.into_object_error(call.operation)),
        }
    }

    async fn head_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<BucketInfo, ObjectError> {
        self.head_remote(namespace, bucket).await?;
        let name = self.remote_name(namespace, bucket)?;
        let known = self.created.lock().get(&name).copied();
        let created = match known {
            Some(created) => created,
            None => {
                let all = self.list_buckets(namespace).await?;
                let found = all.into_iter().find(|info| info.name == *bucket);
                // A bucket of another account, to which this one has access, is in no list.
                found.map_or(Timestamp(0), |info| info.created)
            }
        };
        Ok(BucketInfo { name: bucket.clone(), created })
    }

    async fn list_buckets(&self, namespace: &Namespace) -> Result<Vec<BucketInfo>, ObjectError> {
        let Some(prefix) = self.prefixes.get(namespace) else { return Ok(Vec::new()) };
        let call = Call::new("list buckets", Method::GET, "/".to_owned());
        let failed = |error: WireError| error.into_object_error("list buckets");
        let text = self.wire.send(&call).await.map_err(failed)?.read().await.map_err(failed)?;
        let mut all = xml::parse_buckets(&text, prefix).map_err(|error| store_error(call.operation, error))?;
        all.sort_by(|a, b| a.name.cmp(&b.name));
        let mut created = self.created.lock();
        created.retain(|name, _| !name.starts_with(prefix.as_str()));
        created.extend(all.iter().map(|info| (format!("{prefix}{}", info.name), info.created)));
        Ok(all)
    }

    async fn put(&self, object: &ObjectId, payload: &Payload, meta: &ObjectMeta) -> Result<(), ObjectError> {
        self.upload(object, payload, meta).await
    }

    async fn head(&self, object: &ObjectId) -> Result<ObjectMeta, ObjectError> {
        Ok(self.head_answer(object).await?.0)
    }

    async fn get(
        &self,
        object: &ObjectId,
        range: Option<Range<u64>>,
        pinned: Option<&ETag>,
    ) -> Result<(ObjectMeta, ByteStream), ObjectError> {
        // Nothing of something: HTTP has no way to ask for that.
        if range.as_ref().is_some_and(Range::is_empty) {
            let meta = self.head(object).await?;
            check_pin(&meta, pinned)?;
            return Ok((meta, Box::pin(futures::stream::empty())));
        }
        let mut call = Call::new("get", Method::GET, self.target(object)?);
        if let Some(range) = &range {
            let text = format!("bytes={}-{}", range.start, range.end - 1);
            let text = HeaderValue::try_from(text).map_err(|error| store_error("get", error))?;
            call = call.header(RANGE, text);
        }
        let answer = match self.send_for(object, &call).await {
            Err(ObjectError::Store { reason, .. }) if reason.starts_with("416") => {
                return Err(ObjectError::InvalidRange { size: self.head(object).await?.size });
            }
            other => other?,
        };
        let length = length_of(&answer.headers).ok_or_else(|| store_error("get", "the answer has no length"))?;
        let size = match &range {
            None => length,
            Some(range) => {
                let size = total_of(&answer.headers).filter(|_| answer.status == StatusCode::PARTIAL_CONTENT);
                let size = size.ok_or_else(|| store_error("get", "the answer is not the range asked for"))?;
                if range.end - range.start != length {
                    return Err(ObjectError::InvalidRange { size });
                }
                size
            }
        };
        let (meta, _) = from_headers(&object.key, size, &answer.headers);
        // Headers and body of one answer are one version's: no second request can fall between them.
        check_pin(&meta, pinned)?;
        Ok((meta, answer.into_stream(length)))
    }

    async fn delete(&self, object: &ObjectId) -> Result<(), ObjectError> {
        let call = Call::new("delete", Method::DELETE, self.target(object)?);
        match self.send_for(object, &call).await {
            Ok(_) | Err(ObjectError::NoSuchKey(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The remote copies the object onto itself with the new headers, if it is still the same.
    async fn put_tags(&self, object: &ObjectId, tags: &Tags) -> Result<(), ObjectError> {
        let (mut meta, remote_etag) = self.head_answer(object).await?;
        meta.tags = tags.clone();
        let target = self.target(object)?;
        let mut call = Call::new("put tags", Method::PUT, target.clone());
        call.headers = to_headers(&object.key, &meta)?;
        call.headers.push(header("x-amz-copy-source", &target)?);
        call.headers.push(header("x-amz-copy-source-if-match", &format!("\"{remote_etag}\""))?);
        call.headers.push(header("x-amz-metadata-directive", "REPLACE")?);
        let answer = self.send_for(object, &call).await?;
        let text = answer.read().await.map_err(|error| error.into_object_error(call.operation))?;
        match xml::parse_error(&text) {
            Some((code, message)) => Err(store_error(call.operation, format!("{code} {message}"))),
            None => Ok(()),
        }
    }

    async fn list(
        &self,
        namespace: &Namespace,
        bucket: &BucketName,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Listed>, ObjectError> {
        let name = self.remote_name(namespace, bucket)?;
        let mut listed: Vec<Listed> = Vec::new();
        while listed.len() < limit {
            let page = PAGE.min(limit - listed.len());
            let mut target =
                format!("/{name}?list-type=2&encoding-type=url&max-keys={page}&prefix={}", encode_query(prefix));
            // The last key is as good a mark as a continuation token, and does not expire.
            if let Some(after) = listed.last().map(|last| last.key.as_str()).or(after) {
                target.push_str(&format!("&start-after={}", encode_query(after)));
            }
            let call = Call::new("list", Method::GET, target);
            let answer = match self.wire.send(&call).await {
                Err(error) if is_missing(&error) => return Err(ObjectError::NoSuchBucket(bucket.clone())),
                other => other.map_err(|error| error.into_object_error(call.operation))?,
            };
            let text = answer.read().await.map_err(|error| error.into_object_error(call.operation))?;
            let (entries, more) = xml::parse_list(&text).map_err(|error| store_error(call.operation, error))?;
            let end = entries.is_empty() || !more;
            listed.extend(entries);
            if end {
                break;
            }
        }
        Ok(listed)
    }
}

fn check_pin(meta: &ObjectMeta, pinned: Option<&ETag>) -> Result<(), ObjectError> {
    match pinned {
        Some(pinned) if *pinned != meta.etag => Err(ObjectError::PreconditionFailed("If-Match")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
