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
mod wire;
mod xml;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, HeaderName, HeaderValue, RANGE};
use http::{HeaderMap, Method, StatusCode};
use nigh_terms::{AccessKeyId, BucketName, Namespace, SecretKey, Timestamp};
use parking_lot::Mutex;
use thiserror::Error;

use self::carried::{from_headers, is_md5, to_headers};
use self::wire::{Answer, Call, Wire, WireError, encode_path, encode_query};
use super::{Payload, Store};
use crate::{BucketInfo, ByteStream, ETag, Listed, ObjectError, ObjectId, ObjectMeta, Segment, Tags};

/// Requests at once, unless configured.
pub const CONCURRENCY: usize = 64;
/// How long an answer, or the next bytes of one, are waited for, unless configured.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// Parts of one upload at once.
const PARTS_AT_ONCE: usize = 4;
/// The least a part may have, but the last (S3 User Guide, "multipart upload limits").
const PART_MIN: u64 = 5 << 20;
/// The entries of a page.
const PAGE: usize = 1000;
/// The region that is not named when a bucket is made.
const DEFAULT_REGION: &str = "us-east-1";

const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");

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

/// The mapping of a spooled file, or a segment, as one piece.
struct Whole(Segment);

impl AsRef<[u8]> for Whole {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice()
    }
}

fn store_error(operation: &'static str, reason: impl ToString) -> ObjectError {
    ObjectError::Store { store: "s3", operation, reason: reason.to_string() }
}

/// The payload as one piece for each of `lengths`.
fn pieces(payload: &Payload, lengths: &[u64]) -> Result<Vec<Bytes>, ObjectError> {
    match payload {
        Payload::Segment(segment) => {
            let mut rest = Bytes::from_owner(Whole(segment.clone()));
            let total: u64 = lengths.iter().sum();
            if rest.len() as u64 != total {
                return Err(store_error("put", format!("the payload has {} bytes, not {total}", rest.len())));
            }
            Ok(lengths.iter().map(|length| rest.split_to(*length as usize)).collect())
        }
        Payload::Files(files) => {
            if files.len() != lengths.len() {
                return Err(store_error("put", format!("{} spooled files, {} lengths", files.len(), lengths.len())));
            }
            files.iter().zip(lengths).map(|(path, length)| map_file(path, *length)).collect()
        }
    }
}

/// The first `length` bytes of a spooled file. They are read as the network takes them, and cost no memory.
fn map_file(path: &std::path::Path, length: u64) -> Result<Bytes, ObjectError> {
    let failed = |error: std::io::Error| store_error("put", format!("{}: {error}", path.display()));
    let file = std::fs::File::open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?.len();
    if found < length {
        return Err(store_error("put", format!("{} has {found} bytes, not {length}", path.display())));
    }
    if length == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: a spooled file belongs to the one put that names it; nobody writes or shortens it meanwhile.
    let map = unsafe { memmap2::MmapOptions::new().len(length as usize).map(&file) }.map_err(failed)?;
    Ok(Bytes::from_owner(map))
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

    async fn put_whole(&self, object: &ObjectId, body: Vec<Bytes>, meta: &ObjectMeta) -> Result<(), ObjectError> {
        let mut call = Call::new("put", Method::PUT, self.target(object)?).body(body);
        call.headers = to_headers(&object.key, meta)?;
        if is_md5(&meta.etag)
            && let Some(md5) = bytes_of_hex(&meta.etag.0)
            && let Ok(md5) = HeaderValue::from_str(&BASE64.encode(md5))
        {
            // The remote checks it: what was damaged on the way is refused.
            call = call.header(CONTENT_MD5, md5);
        }
        self.send_for(object, &call).await.map(drop)
    }

    async fn put_parts(&self, object: &ObjectId, parts: Vec<Bytes>, meta: &ObjectMeta) -> Result<(), ObjectError> {
        let target = self.target(object)?;
        let mut begin = Call::new("begin upload", Method::POST, format!("{target}?uploads=")).repeatable();
        begin.headers = to_headers(&object.key, meta)?;
        let answer = self.send_for(object, &begin).await?;
        let begun = answer.read().await.map_err(|error| error.into_object_error(begin.operation))?;
        let upload = xml::parse_upload(&begun).map_err(|error| store_error(begin.operation, error))?;
        let upload = encode_query(&upload);
        let done = self.upload_parts(object, &target, &upload, parts).await;
        if done.is_err() {
            let abort = Call::new("abort upload", Method::DELETE, format!("{target}?uploadId={upload}")).repeatable();
            if let Err(error) = self.wire.send(&abort).await {
                tracing::warn!(%object, ?error, "an upload to the store could not be aborted; it keeps its parts");
            }
        }
        done
    }

    async fn upload_parts(
        &self,
        object: &ObjectId,
        target: &str,
        upload: &str,
        parts: Vec<Bytes>,
    ) -> Result<(), ObjectError> {
        let etags: Vec<String> = futures::stream::iter(parts.into_iter().enumerate())
            .map(|(index, part)| async move {
                let number = index + 1;
                let call =
                    Call::new("upload part", Method::PUT, format!("{target}?partNumber={number}&uploadId={upload}"));
                let answer = self.send_for(object, &call.body(vec![part]).repeatable()).await?;
                let etag = answer.headers.get(http::header::ETAG).and_then(|etag| etag.to_str().ok());
                etag.map(str::to_owned).ok_or_else(|| store_error("upload part", "the answer has no ETag"))
            })
            .buffered(PARTS_AT_ONCE)
            .try_collect()
            .await?;
        let call = Call::new("complete upload", Method::POST, format!("{target}?uploadId={upload}"))
            .body(vec![Bytes::from(xml::complete_upload(&etags))]);
        let answer = self.send_for(object, &call).await?;
        let text = answer.read().await.map_err(|error| error.into_object_error(call.operation))?;
        // S3 may say "200 OK" first and the error later.
        match xml::parse_error(&text) {
            Some((code, message)) => Err(store_error(call.operation, format!("{code} {message}"))),
            None => Ok(()),
        }
    }
}

fn bytes_of_hex(hex: &str) -> Option<Vec<u8>> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok()).collect()
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
        let one = [meta.size];
        let files = matches!(payload, Payload::Files(files) if files.len() != 1);
        let in_parts = meta.parts.iter().sum::<u64>() == meta.size && meta.parts.len() > 1;
        let lengths = if files || in_parts { meta.parts.as_slice() } else { &one };
        if lengths.iter().sum::<u64>() != meta.size {
            return Err(store_error("put", "the parts are not as long as the object"));
        }
        let pieces = match payload {
            // One file of an object that came in parts: cut as a segment would be.
            Payload::Files(paths) if paths.len() == 1 => {
                let mut rest = pieces(payload, &one)?.pop().unwrap_or_default();
                lengths.iter().map(|length| rest.split_to(*length as usize)).collect()
            }
            _ => pieces(payload, lengths)?,
        };
        let all_but_last = &lengths[..lengths.len().saturating_sub(1)];
        if in_parts && !is_md5(&meta.etag) && all_but_last.iter().all(|length| *length >= PART_MIN) {
            self.put_parts(object, pieces, meta).await
        } else {
            self.put_whole(object, pieces, meta).await
        }
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
mod tests {
    use nigh_terms::ObjectKey;

    use super::*;

    fn config(prefixes: &[(&str, &str)]) -> RemoteConfig {
        let mut config = RemoteConfig::of_one_namespace(
            Namespace::new("one").unwrap(),
            "http://127.0.0.1:1",
            "us-east-1",
            AccessKeyId::new("key"),
            SecretKey::new("hush"),
        );
        config.bucket_prefixes =
            prefixes.iter().map(|(name, prefix)| (Namespace::new(name).unwrap(), (*prefix).to_owned())).collect();
        config
    }

    fn bucket(name: &str) -> BucketName {
        BucketName::new(name).unwrap()
    }

    #[test]
    fn namespaces_whose_buckets_could_be_the_same_are_refused() {
        for meet in [[("a", ""), ("b", "b-")], [("a", "x"), ("b", "x")], [("a", "t-1"), ("b", "t-")]] {
            assert!(matches!(RemoteStore::new(&config(&meet)), Err(RemoteError::PrefixesMeet { .. })), "{meet:?}");
        }
        let store = RemoteStore::new(&config(&[("a", "ta-"), ("b", "tb-")])).unwrap();
        assert_eq!(store.remote_name(&Namespace::new("a").unwrap(), &bucket("xyz")).unwrap(), "ta-xyz");
        let stranger = store.remote_name(&Namespace::new("c").unwrap(), &bucket("xyz"));
        assert!(matches!(stranger, Err(ObjectError::NoSuchBucket(_))));
        let long = store.remote_name(&Namespace::new("a").unwrap(), &bucket(&"x".repeat(63)));
        assert!(matches!(long, Err(ObjectError::InvalidArgument(_))));
    }

    #[test]
    fn a_configuration_does_not_print_its_secret() {
        assert!(!format!("{:?}", config(&[("a", "")])).contains("hush"));
    }

    #[test]
    fn an_endpoint_must_be_a_url_without_a_path() {
        for bad in ["127.0.0.1:80", "ftp://x", "http://h/path", "", "http://"] {
            let config = RemoteConfig { endpoint: bad.to_owned(), ..config(&[]) };
            assert!(matches!(RemoteStore::new(&config), Err(RemoteError::Client(_))), "{bad}");
        }
    }

    #[test]
    fn keys_are_encoded_once_and_never_folded() {
        for (key, encoded) in [("a//b", "a//b"), ("/a", "/a"), ("a/../b/", "a/../b/"), ("a b+c?%", "a%20b%2Bc%3F%25")] {
            assert_eq!(encode_path(key), encoded);
        }
        let object = ObjectId {
            namespace: Namespace::new("a").unwrap(),
            bucket: bucket("xyz"),
            key: ObjectKey::new("../ü").unwrap(),
        };
        let store = RemoteStore::new(&config(&[("a", "")])).unwrap();
        assert_eq!(store.target(&object).unwrap(), "/xyz/../%C3%BC");
    }

    #[tokio::test]
    async fn a_store_that_is_not_there_is_an_error_after_a_few_attempts() {
        let store = RemoteStore::new(&config(&[("one", "")])).unwrap();
        let error = store.list_buckets(&Namespace::new("one").unwrap()).await.unwrap_err().to_string();
        assert!(error.contains("list buckets") && error.contains("refused"), "{error}");
    }
}
