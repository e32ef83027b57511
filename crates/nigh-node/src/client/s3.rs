//! The S3 door's client: buckets and objects; bytes stream in bounded memory.

use std::collections::BTreeMap;
use std::fmt::Write;

use async_recursion::async_recursion as boxed;
use futures::StreamExt;
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use nigh_terms::{BucketName, ObjectKey};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_util::io::ReaderStream;

use super::http_call::{Payload, Target, full};
use super::signer::{PayloadHash, Signer};
use super::{ClientError, DoorAddress};
use crate::credentials::Credentials;

pub use super::documents::{BucketEntry, BucketNotifications, FunctionTrigger, ObjectEntry, ObjectPage, TriggerFilter};

/// The characters that SigV4 leaves unencoded.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const PATH: &AsciiSet = &UNRESERVED.remove(b'/');
/// The bytes of a file that are read and sent at a time.
const PIECE_BYTES: usize = 256 << 10;

/// A client of one namespace at one S3 door.
pub struct S3Client {
    target: Target,
    signer: Signer,
}

impl S3Client {
    /// A client of `door`.
    ///
    /// # Errors
    /// If its address is no URL, or its authorities cannot be read.
    pub fn new(door: &DoorAddress, region: &str, credentials: &Credentials) -> Result<Self, ClientError> {
        Ok(Self { target: Target::of(door)?, signer: Signer::new("s3", region, credentials) })
    }

    /// The namespace's buckets.
    #[boxed]
    pub async fn list_buckets(&self) -> Result<Vec<BucketEntry>, ClientError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct BucketList {
            #[serde(default)]
            buckets: Buckets,
        }
        #[derive(Default, Deserialize)]
        struct Buckets {
            #[serde(rename = "Bucket", default)]
            bucket: Vec<BucketEntry>,
        }
        let list: BucketList = self.document(Method::GET, "/", "").await?;
        Ok(list.buckets.bucket)
    }

    /// Creates a bucket.
    #[boxed]
    pub async fn create_bucket(&self, bucket: &BucketName) -> Result<(), ClientError> {
        self.call(Method::PUT, &path(bucket, None), "", full("")).await.map(drop)
    }

    /// Removes an empty bucket.
    #[boxed]
    pub async fn delete_bucket(&self, bucket: &BucketName) -> Result<(), ClientError> {
        self.call(Method::DELETE, &path(bucket, None), "", full("")).await.map(drop)
    }

    /// The rules by which `bucket` invokes functions.
    #[boxed]
    pub async fn notifications(&self, bucket: &BucketName) -> Result<BucketNotifications, ClientError> {
        self.document(Method::GET, &path(bucket, None), "notification").await
    }

    /// The rules by which the buckets of the namespace invoke functions.
    #[boxed]
    pub async fn all_notifications(&self) -> Result<BTreeMap<BucketName, BucketNotifications>, ClientError> {
        let mut all = BTreeMap::new();
        for listed in self.list_buckets().await? {
            let Ok(bucket) = BucketName::new(&listed.name) else { continue };
            match self.notifications(&bucket).await {
                Ok(rules) => drop(all.insert(bucket, rules)),
                // It was removed since it was listed.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    /// Replaces the rules by which `bucket` invokes functions.
    ///
    /// # Errors
    /// If the door rejects them, for example because two of them overlap, or a function is missing.
    #[boxed]
    pub async fn set_notifications(&self, bucket: &BucketName, rules: &BucketNotifications) -> Result<(), ClientError> {
        let document = quick_xml::se::to_string_with_root("NotificationConfiguration", rules)
            .map_err(|error| ClientError::Request(error.to_string()))?;
        let request = Request::builder().method(Method::PUT).header(http::header::CONTENT_LENGTH, document.len());
        self.send(request, &path(bucket, None), "notification", full(document), PayloadHash::Unsigned).await.map(drop)
    }

    /// Up to 1000 entries of `bucket` below `prefix`, after the previous page.
    #[boxed]
    pub async fn list(
        &self,
        bucket: &BucketName,
        prefix: &str,
        delimiter: Option<&str>,
        next: Option<&str>,
    ) -> Result<ObjectPage, ClientError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct ObjectList {
            #[serde(default)]
            contents: Vec<ObjectEntry>,
            #[serde(default)]
            common_prefixes: Vec<Prefix>,
            next_continuation_token: Option<String>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Prefix {
            prefix: String,
        }
        // Keys may have characters that XML cannot carry unencoded.
        let mut query = format!("encoding-type=url&list-type=2&prefix={}", utf8_percent_encode(prefix, UNRESERVED));
        for (name, value) in [("delimiter", delimiter), ("continuation-token", next)] {
            if let Some(value) = value {
                // Writing to a String cannot fail.
                let _ = write!(query, "&{name}={}", utf8_percent_encode(value, UNRESERVED));
            }
        }
        let list: ObjectList = self.document(Method::GET, &path(bucket, None), &query).await?;
        let mut objects = list.contents;
        for object in &mut objects {
            object.key = decode(&object.key);
            object.etag = object.etag.trim_matches('"').to_owned();
        }
        Ok(ObjectPage {
            objects,
            common_prefixes: list.common_prefixes.iter().map(|one| decode(&one.prefix)).collect(),
            next: list.next_continuation_token,
        })
    }

    /// Writes an object of `length` bytes from `from`.
    ///
    /// # Errors
    /// If the door rejects it, or `from` fails.
    pub async fn put(
        &self,
        bucket: &BucketName,
        key: &ObjectKey,
        length: u64,
        content_type: Option<&str>,
        from: impl AsyncRead + Send + 'static,
    ) -> Result<(), ClientError> {
        let pieces = ReaderStream::with_capacity(from, PIECE_BYTES).map(|piece| piece.map(Frame::data));
        let body = StreamBody::new(pieces).boxed_unsync();
        let mut request = Request::builder().method(Method::PUT).header(http::header::CONTENT_LENGTH, length);
        if let Some(content_type) = content_type {
            request = request.header(http::header::CONTENT_TYPE, content_type);
        }
        self.send(request, &path(bucket, Some(key)), "", body, PayloadHash::Unsigned).await.map(drop)
    }

    /// Writes an object's bytes to `to`. Returns their number.
    ///
    /// # Errors
    /// If the door rejects it, the connection fails, or `to` cannot be written.
    pub async fn get(
        &self,
        bucket: &BucketName,
        key: &ObjectKey,
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Result<u64, ClientError> {
        let mut body = self.call(Method::GET, &path(bucket, Some(key)), "", full("")).await?.into_body();
        let local = |source| ClientError::Local { what: format!("copying {bucket}/{key}"), source };
        let mut written = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| self.target.broke(&error))?;
            if let Ok(bytes) = frame.into_data() {
                to.write_all(&bytes).await.map_err(local)?;
                written += bytes.len() as u64;
            }
        }
        to.flush().await.map_err(local)?;
        Ok(written)
    }

    /// Copies an object within the namespace.
    #[boxed]
    pub async fn copy(
        &self,
        from: (&BucketName, &ObjectKey),
        to: (&BucketName, &ObjectKey),
    ) -> Result<(), ClientError> {
        let request = Request::builder().method(Method::PUT).header("x-amz-copy-source", path(from.0, Some(from.1)));
        let answer = self.send(request, &path(to.0, Some(to.1)), "", full(""), PayloadHash::Of(b"")).await?;
        // S3 may begin to answer 200 before the copy is done, and then send an error.
        let body = self.target.collect(answer.into_body()).await?;
        match refusal(200, &body) {
            Some(refused) => Err(refused),
            None => Ok(()),
        }
    }

    /// True if the object exists.
    #[boxed]
    pub async fn exists(&self, bucket: &BucketName, key: &ObjectKey) -> Result<bool, ClientError> {
        match self.call(Method::HEAD, &path(bucket, Some(key)), "", full("")).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Deletes an object. An object that does not exist is no error.
    #[boxed]
    pub async fn delete(&self, bucket: &BucketName, key: &ObjectKey) -> Result<(), ClientError> {
        self.call(Method::DELETE, &path(bucket, Some(key)), "", full("")).await.map(drop)
    }

    async fn document<T: for<'de> Deserialize<'de>>(
        &self,
        method: Method,
        path: &str,
        query: &str,
    ) -> Result<T, ClientError> {
        let answer = self.call(method, path, query, full("")).await?;
        let body = self.target.collect(answer.into_body()).await?;
        quick_xml::de::from_reader(body.as_ref())
            .map_err(|error| ClientError::Answer { endpoint: self.target.name(), reason: error.to_string() })
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        query: &str,
        body: Payload,
    ) -> Result<Response<Incoming>, ClientError> {
        let mut request = Request::builder().method(method.clone());
        if method == Method::PUT {
            request = request.header(http::header::CONTENT_LENGTH, 0);
        }
        self.send(request, path, query, body, PayloadHash::Of(b"")).await
    }

    async fn send(
        &self,
        request: http::request::Builder,
        path: &str,
        query: &str,
        body: Payload,
        hash: PayloadHash<'_>,
    ) -> Result<Response<Incoming>, ClientError> {
        let mark = if query.is_empty() { "" } else { "?" };
        let request = request
            .uri(format!("http://{}{path}{mark}{query}", self.target.authority()))
            .body(body)
            .map_err(|error| ClientError::Request(error.to_string()))?;
        let answer = self.target.send(self.signer.sign(request, hash)?).await?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let body = self.target.collect(answer.into_body()).await?;
        Err(refusal(status.as_u16(), &body).unwrap_or_else(|| ClientError::Refused {
            status: status.as_u16(),
            code: status.as_str().to_owned(),
            message: status.canonical_reason().unwrap_or("refused").to_owned(),
        }))
    }
}

/// S3's error document; none if `body` is none.
fn refusal(status: u16, body: &[u8]) -> Option<ClientError> {
    #[derive(Deserialize)]
    #[serde(rename = "Error", rename_all = "PascalCase")]
    struct Refusal {
        code: String,
        #[serde(default)]
        message: String,
    }
    let refusal: Refusal = quick_xml::de::from_reader(body).ok()?;
    Some(ClientError::Refused { status, code: refusal.code, message: refusal.message })
}

fn path(bucket: &BucketName, key: Option<&ObjectKey>) -> String {
    match key {
        Some(key) => format!("/{bucket}/{}", utf8_percent_encode(key.as_str(), PATH)),
        None => format!("/{bucket}"),
    }
}

/// S3's `encoding-type=url` is the encoding of forms: a space may be `+`.
fn decode(text: &str) -> String {
    let spaced = text.replace('+', " ");
    percent_encoding::percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_encoded_as_signatures_want_it() {
        let bucket = BucketName::new("bucket").unwrap();
        let key = ObjectKey::new("a b/ü+(1)~.png").unwrap();
        assert_eq!(path(&bucket, Some(&key)), "/bucket/a%20b/%C3%BC%2B%281%29~.png");
        assert_eq!(decode("a%20b%2B+c"), "a b+ c");
    }

    #[test]
    fn s3s_error_document_is_understood() {
        let body = b"<?xml version=\"1.0\"?><Error><Code>NoSuchKey</Code><Message>gone</Message><Key>k</Key></Error>";
        let refused = refusal(404, body).unwrap();
        assert!(refused.is_not_found());
        assert_eq!(refused.to_string(), "gone (NoSuchKey)");
        assert!(refusal(200, b"<CopyObjectResult><ETag>x</ETag></CopyObjectResult>").is_none());
    }
}
