//! A store that speaks S3: Swift (s3api), MinIO, Ceph, AWS.
//!
//! Each operation is one request: a get returns bytes and metadata of one version. Keys are sent unchanged (`wire`).
//! Metadata for which the remote has no field is sent as user metadata that only Nigh reads (`carried`). A write is
//! durable when the remote says so. An object uploaded in parts is stored in the same parts, so that the remote's
//! entity tag is the one that Nigh gave. Each namespace has its own prefix of bucket names and reaches no other's:
//! a prefix that begins with another one is rejected.
//!
//! No storage library is used: they fold `//`, `..` and trailing slashes, need a second request for the metadata of a
//! get, and resume broken reads without a pin.

mod settings;
mod upload;
mod xml;

use std::collections::HashMap;
use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, StatusCode};
use nigh_data::{BucketInfo, ByteStream, ETag, ListedObject, ObjectError, ObjectId, ObjectMeta, Tags, WriteConditions};
use nigh_http::sigv4::Signer;
use nigh_terms::{BucketName, Clock as _, Namespace, SystemClock, Timestamp};
use parking_lot::Mutex;

pub use self::settings::{RemoteConfig, RemoteError};
use super::answer::{StoreResponse, length_of};
use super::bucket_names::BucketNames;
use super::carried::{Dialect, from_headers, to_headers};
use super::connections::{Connections, check_endpoint, head_of};
use super::wire::{Access, Call, Pass, Wire, encode_path, encode_query};
use super::wire_error::WireError;
use super::{ListQuery, Payload, Store, check_pin, probe_in};
use crate::StoreAbilities;

const STORE: &str = "s3";
const DIALECT: Dialect = Dialect::of_headers(STORE, "x-amz-meta-");
/// The most entries of a page.
const PAGE: usize = 1000;
/// The default region. A request to create a bucket in this region must not name it.
const DEFAULT_REGION: &str = "us-east-1";

/// A store behind an S3 endpoint.
pub struct RemoteStore {
    wire: Wire<Signing>,
    region: String,
    names: BucketNames,
    /// The known creation dates of buckets. Only the list of all buckets shows them.
    created: Mutex<HashMap<String, Timestamp>>,
}

/// Signs each request with Signature Version 4.
struct Signing {
    signer: Signer,
    endpoint: String,
}

#[async_trait]
impl Access for Signing {
    fn store(&self) -> &'static str {
        STORE
    }

    async fn authorise(&self, head: &mut Parts, target: &str) -> Result<Pass, WireError> {
        head.uri = head_of(Method::GET, &format!("{}{target}", self.endpoint))?.uri;
        let signed = self.signer.sign(head, SystemClock::new().wall());
        signed.map_err(|error| WireError::NotSent(format!("the request cannot be signed: {error}")))?;
        Ok(Pass(0))
    }

    /// Returns false, because there is only one key.
    async fn is_renewed(&self, _: Pass) -> bool {
        false
    }

    fn explain(&self, body: &[u8]) -> (String, String) {
        xml::parse_error(body).unwrap_or_default()
    }

    fn busy_wrote_nothing(&self) -> bool {
        true
    }
}

fn store_error(operation: &'static str, reason: impl ToString) -> ObjectError {
    ObjectError::Store { store: STORE, operation, reason: reason.to_string() }
}

fn header(name: &'static str, value: &str) -> Result<(HeaderName, HeaderValue), ObjectError> {
    let value = HeaderValue::from_str(value).map_err(|error| store_error("request", error))?;
    Ok((HeaderName::from_static(name), value))
}

impl RemoteStore {
    /// Creates a store from its settings. Nothing is sent yet.
    ///
    /// # Errors
    /// If the endpoint is not a URL, or if one prefix begins with another.
    pub fn new(config: &RemoteConfig) -> Result<Self, RemoteError> {
        let endpoint = check_endpoint(&config.endpoint, false).map_err(RemoteError::Client)?;
        let signer = Signer::new(config.access_key.clone(), config.secret_key.clone(), "s3", &config.region);
        let connections = Connections::new(config.limits).map_err(RemoteError::Client)?;
        Ok(Self {
            wire: Wire::new(connections, Signing { signer, endpoint }),
            region: config.region.clone(),
            names: BucketNames::new(&config.bucket_prefixes)?,
            created: Mutex::default(),
        })
    }

    fn remote_name(&self, namespace: &Namespace, bucket: &BucketName) -> Result<String, ObjectError> {
        self.names.on_store(namespace, bucket)
    }

    fn target(&self, object: &ObjectId) -> Result<String, ObjectError> {
        let bucket = self.remote_name(&object.namespace, &object.bucket)?;
        Ok(format!("/{bucket}/{}", encode_path(object.key.as_str())))
    }

    /// Sends a call that concerns `object`; the error says whether the key or the bucket is missing.
    async fn send_for(&self, object: &ObjectId, call: &Call) -> Result<StoreResponse, ObjectError> {
        let error = match self.wire.send(call).await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        match &error {
            WireError::Refused { code, .. } if code == "NoSuchBucket" => {
                Err(ObjectError::NoSuchBucket(object.bucket.clone()))
            }
            WireError::Refused { code, .. } if code == "NoSuchKey" => Err(ObjectError::NoSuchKey(object.key.clone())),
            // The answer to a HEAD has no body with a code.
            _ if error.is_missing() => {
                self.head_remote(&object.namespace, &object.bucket).await?;
                Err(ObjectError::NoSuchKey(object.key.clone()))
            }
            WireError::Refused { status: StatusCode::PRECONDITION_FAILED, .. } => {
                Err(ObjectError::PreconditionFailed("If-Match"))
            }
            _ => Err(self.wire.error(error, call)),
        }
    }

    async fn head_remote(&self, namespace: &Namespace, bucket: &BucketName) -> Result<(), ObjectError> {
        let name = self.remote_name(namespace, bucket)?;
        let call = Call::new("head bucket", Method::HEAD, format!("/{name}"));
        self.wire.send_for_bucket(&call, bucket).await.map(drop)
    }

    async fn head_answer(&self, object: &ObjectId) -> Result<(ObjectMeta, ETag), ObjectError> {
        let call = Call::new("head", Method::HEAD, self.target(object)?);
        let answer = self.send_for(object, &call).await?;
        let size = length_of(&answer.headers).ok_or_else(|| store_error("head", "the answer has no length"))?;
        Ok(from_headers(DIALECT, &object.key, size, &answer.headers))
    }
}

#[async_trait]
impl Store for RemoteStore {
    fn kind(&self) -> &'static str {
        "s3"
    }

    fn trouble(&self) -> Option<String> {
        self.wire.trouble()
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
            Err(error) => Err(self.wire.error(error, &call)),
        }
    }

    async fn delete_bucket(&self, namespace: &Namespace, bucket: &BucketName) -> Result<(), ObjectError> {
        let name = self.remote_name(namespace, bucket)?;
        let call = Call::new("delete bucket", Method::DELETE, format!("/{name}"));
        self.created.lock().remove(&name);
        self.wire.send_for_bucket(&call, bucket).await.map(drop)
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
                // The list lacks buckets that belong to other accounts but that this account may use.
                found.map_or(Timestamp(0), |info| info.created)
            }
        };
        Ok(BucketInfo { name: bucket.clone(), created })
    }

    async fn list_buckets(&self, namespace: &Namespace) -> Result<Vec<BucketInfo>, ObjectError> {
        let Some(prefix) = self.names.prefix(namespace) else { return Ok(Vec::new()) };
        let call = Call::new("list buckets", Method::GET, "/".to_owned());
        let text = self.wire.send_or_fail(&call).await?.text().await?;
        let mut all = xml::parse_buckets(&text, prefix).map_err(|error| store_error(call.operation, error))?;
        all.sort_by(|a, b| a.name.cmp(&b.name));
        let mut created = self.created.lock();
        created.retain(|name, _| !name.starts_with(prefix));
        created.extend(all.iter().map(|info| (format!("{prefix}{}", info.name), info.created)));
        Ok(all)
    }

    fn abilities(&self, _namespace: &Namespace) -> StoreAbilities {
        StoreAbilities { kind: STORE, conditions: true, shadows: false, lands_late: true, lists_tags: false }
    }

    fn check(&self, object: &ObjectId, meta: &ObjectMeta) -> Result<(), ObjectError> {
        self.target(object)?;
        to_headers(DIALECT, &object.key, meta).map(drop)
    }

    fn bucket_named(&self, _account: Option<&str>, name: &str) -> Vec<(Namespace, BucketName)> {
        self.names.of_store(name).into_iter().collect()
    }

    /// Tests the conditions, because some S3 services ignore `If-Match` and `If-None-Match` of a PutObject.
    async fn keeps_conditions(&self, namespace: &Namespace, bucket: &BucketName) -> Result<bool, ObjectError> {
        let probe = probe_in(namespace, bucket)?;
        let target = self.target(&probe)?;
        let put = |condition: (HeaderName, &'static str)| {
            let (name, value) = condition;
            Call::new("probe", Method::PUT, target.clone()).header(name, HeaderValue::from_static(value))
        };
        let none = (http::header::IF_NONE_MATCH, "*");
        let other = (http::header::IF_MATCH, "\"00000000000000000000000000000000\"");
        let refuses = async |condition| match self.send_for(&probe, &put(condition)).await {
            Ok(_) => Ok(false),
            Err(ObjectError::PreconditionFailed(_)) => Ok(true),
            Err(error) => Err(error),
        };
        let kept = async {
            let taken = !refuses(none.clone()).await?;
            Ok::<_, ObjectError>(taken && refuses(none).await? && refuses(other).await?)
        }
        .await;
        self.delete(&probe).await?;
        kept
    }

    async fn put(&self, object: &ObjectId, payload: &Payload, meta: &ObjectMeta) -> Result<(), ObjectError> {
        self.upload(object, payload, meta, Vec::new()).await
    }

    async fn put_if(
        &self,
        object: &ObjectId,
        payload: &Payload,
        meta: &ObjectMeta,
        condition: &WriteConditions,
    ) -> Result<(), ObjectError> {
        let mut headers = Vec::new();
        if condition.if_absent {
            headers.push((http::header::IF_NONE_MATCH, HeaderValue::from_static("*")));
        }
        if let Some(expected) = &condition.if_match {
            // Nigh's entity tag may differ from the store's own.
            let (now, own) = match self.head_answer(object).await {
                Err(ObjectError::NoSuchKey(_)) => return Err(ObjectError::PreconditionFailed("If-Match")),
                other => other?,
            };
            if now.etag != *expected {
                return Err(ObjectError::PreconditionFailed("If-Match"));
            }
            let own = HeaderValue::from_str(&format!("\"{own}\"")).map_err(|error| store_error("put", error))?;
            headers.push((http::header::IF_MATCH, own));
        }
        self.upload(object, payload, meta, headers).await
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
        let answer = match self.send_for(object, &call).await {
            Err(ObjectError::Store { reason, .. }) if reason.starts_with("416") => {
                return Err(ObjectError::InvalidRange { size: self.head(object).await?.size });
            }
            other => other?,
        };
        let extent = answer.extent(range.as_ref())?;
        let (meta, _) = from_headers(DIALECT, &object.key, extent.size, &answer.headers);
        // Headers and body of one answer are of one version.
        check_pin(&meta, pinned)?;
        Ok((meta, answer.into_stream(extent.length)))
    }

    async fn delete(&self, object: &ObjectId) -> Result<(), ObjectError> {
        let call = Call::new("delete", Method::DELETE, self.target(object)?);
        match self.send_for(object, &call).await {
            Ok(_) | Err(ObjectError::NoSuchKey(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Sends the condition with the request, and also checks it first, because some services ignore conditions of
    /// deletions.
    async fn delete_if(&self, object: &ObjectId, expected: &ETag) -> Result<(), ObjectError> {
        let (now, own) = match self.head_answer(object).await {
            Err(ObjectError::NoSuchKey(_)) => return Ok(()),
            other => other?,
        };
        check_pin(&now, Some(expected))?;
        let own = HeaderValue::from_str(&format!("\"{own}\"")).map_err(|error| store_error("delete", error))?;
        let call = Call::new("delete", Method::DELETE, self.target(object)?).header(http::header::IF_MATCH, own);
        match self.send_for(object, &call).await {
            Ok(_) | Err(ObjectError::NoSuchKey(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Makes the remote copy the object onto itself with the new headers, unless the object has changed.
    async fn put_tags(&self, object: &ObjectId, tags: &Tags) -> Result<(), ObjectError> {
        let (mut meta, remote_etag) = self.head_answer(object).await?;
        meta.tags = tags.clone();
        let target = self.target(object)?;
        let mut call = Call::new("put tags", Method::PUT, target.clone());
        call.headers = to_headers(DIALECT, &object.key, &meta)?;
        call.headers.push(header("x-amz-copy-source", &target)?);
        call.headers.push(header("x-amz-copy-source-if-match", &format!("\"{remote_etag}\""))?);
        call.headers.push(header("x-amz-metadata-directive", "REPLACE")?);
        let answer = self.send_for(object, &call).await?;
        let text = answer.text().await?;
        match xml::parse_error(&text) {
            Some((code, message)) => Err(store_error(call.operation, format!("{code} {message}"))),
            None => Ok(()),
        }
    }

    async fn list(&self, query: ListQuery<'_>) -> Result<Vec<ListedObject>, ObjectError> {
        let name = self.remote_name(query.namespace, query.bucket)?;
        let target = |after: Option<&str>, page: usize| {
            let after = after.map(|after| format!("&start-after={}", encode_query(after))).unwrap_or_default();
            let prefix = encode_query(query.prefix);
            format!("/{name}?list-type=2&encoding-type=url&max-keys={page}&prefix={prefix}{after}")
        };
        let parse = |text: &[u8], _: usize| {
            let (objects, more) = xml::parse_list(text)?;
            let is_last = objects.is_empty() || !more;
            Ok((objects, is_last))
        };
        self.wire.list(query, PAGE, target, parse).await
    }
}

#[cfg(test)]
mod tests;
