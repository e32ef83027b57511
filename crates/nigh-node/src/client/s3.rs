//! The S3 door's client: buckets and objects; bytes stream in bounded memory.

use std::fmt::Write;

use bytes::Bytes;
use futures::StreamExt;
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use nigh_terms::{BucketName, ObjectKey};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_util::io::ReaderStream;

use super::ClientError;
use super::http_call::{Payload, Target, full};
use super::signer::{PayloadHash, Signer};
use crate::credentials::Credentials;

/// What SigV4 leaves unencoded.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const PATH: &AsciiSet = &UNRESERVED.remove(b'/');
/// The piece that is read from a file and sent at a time.
const PIECE_BYTES: usize = 256 << 10;

/// A bucket of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketEntry {
    /// Its name.
    #[serde(rename(deserialize = "Name"))]
    pub name: String,
    /// When it was made, RFC 3339.
    #[serde(rename(deserialize = "CreationDate"), default)]
    pub created: String,
}

/// An object of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectEntry {
    /// Its key.
    #[serde(rename(deserialize = "Key"))]
    pub key: String,
    /// Its length in bytes.
    #[serde(rename(deserialize = "Size"))]
    pub size: u64,
    /// When it was written, RFC 3339.
    #[serde(rename(deserialize = "LastModified"))]
    pub modified: String,
    /// Its entity tag.
    #[serde(rename(deserialize = "ETag"), default)]
    pub etag: String,
}

/// A page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectPage {
    /// The objects.
    pub objects: Vec<ObjectEntry>,
    /// What several keys share up to the delimiter.
    pub common_prefixes: Vec<String>,
    /// Where the next page begins, if there is one.
    pub next: Option<String>,
}

/// A client of one namespace at one S3 door.
pub struct S3Client {
    target: Target,
    signer: Signer,
}

/// A bucket's notification configuration, as far as functions are told.
#[derive(Default, Serialize, Deserialize)]
struct NotificationRules {
    #[serde(rename = "CloudFunctionConfiguration", default)]
    rules: Vec<NotificationRule>,
}

#[derive(Serialize, Deserialize)]
struct NotificationRule {
    #[serde(rename = "Id", default)]
    id: String,
    #[serde(rename = "CloudFunction")]
    function: String,
    #[serde(rename = "Event")]
    events: Vec<String>,
    #[serde(rename = "Filter", default, skip_serializing_if = "Option::is_none")]
    filter: Option<NotificationFilter>,
}

#[derive(Serialize, Deserialize)]
struct NotificationFilter {
    #[serde(rename = "S3Key")]
    key: KeyFilter,
}

#[derive(Serialize, Deserialize)]
struct KeyFilter {
    #[serde(rename = "FilterRule", default)]
    rules: Vec<FilterRule>,
}

#[derive(Serialize, Deserialize)]
struct FilterRule {
    #[serde(rename = "Name")]
    name: String,
    #[serde(rename = "Value")]
    value: String,
}

impl S3Client {
    /// A client of the door at `endpoint`.
    ///
    /// # Errors
    /// If that is no URL.
    pub fn new(endpoint: &str, region: &str, credentials: &Credentials) -> Result<Self, ClientError> {
        Ok(Self { target: Target::of_url(endpoint)?, signer: Signer::new("s3", region, credentials) })
    }

    /// The namespace's buckets.
    ///
    /// # Errors
    /// As the door refuses.
    pub async fn list_buckets(&self) -> Result<Vec<BucketEntry>, ClientError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Answer {
            #[serde(default)]
            buckets: Buckets,
        }
        #[derive(Default, Deserialize)]
        struct Buckets {
            #[serde(rename = "Bucket", default)]
            bucket: Vec<BucketEntry>,
        }
        let answer: Answer = self.document(Method::GET, "/", "").await?;
        Ok(answer.buckets.bucket)
    }

    /// Makes a bucket.
    ///
    /// # Errors
    /// As the door refuses.
    pub async fn create_bucket(&self, bucket: &BucketName) -> Result<(), ClientError> {
        self.call(Method::PUT, &path(bucket, None), "", full("")).await.map(drop)
    }

    /// Removes an empty bucket.
    ///
    /// # Errors
    /// As the door refuses.
    pub async fn delete_bucket(&self, bucket: &BucketName) -> Result<(), ClientError> {
        self.call(Method::DELETE, &path(bucket, None), "", full("")).await.map(drop)
    }

    /// Has a function run on each new object of `bucket` whose key begins with `prefix`. The bucket's other rules stay;
    /// one for this function and prefix is replaced.
    ///
    /// # Errors
    /// As the door refuses, also because a rule that is there overlaps.
    pub async fn notify(
        &self,
        bucket: &BucketName,
        function: &str,
        arn: &str,
        prefix: &str,
    ) -> Result<(), ClientError> {
        let mut rules: NotificationRules = self.document(Method::GET, &path(bucket, None), "notification").await?;
        let id = format!("{function}:{prefix}");
        rules.rules.retain(|rule| rule.id != id);
        let filter = NotificationFilter {
            key: KeyFilter { rules: vec![FilterRule { name: "prefix".to_owned(), value: prefix.to_owned() }] },
        };
        rules.rules.push(NotificationRule {
            id,
            function: arn.to_owned(),
            events: vec!["s3:ObjectCreated:*".to_owned()],
            filter: (!prefix.is_empty()).then_some(filter),
        });
        let document = quick_xml::se::to_string_with_root("NotificationConfiguration", &rules)
            .map_err(|error| ClientError::Request(error.to_string()))?;
        let request = Request::builder().method(Method::PUT).header(http::header::CONTENT_LENGTH, document.len());
        self.send(request, &path(bucket, None), "notification", full(document), PayloadHash::Unsigned).await.map(drop)
    }

    /// Up to 1000 entries of `bucket` below `prefix`, from where the page before ended.
    ///
    /// # Errors
    /// As the door refuses.
    pub async fn list(
        &self,
        bucket: &BucketName,
        prefix: &str,
        delimiter: Option<&str>,
        next: Option<&str>,
    ) -> Result<ObjectPage, ClientError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Answer {
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
        // Keys may hold characters that XML cannot; encoded they all pass.
        let mut query = format!("encoding-type=url&list-type=2&prefix={}", utf8_percent_encode(prefix, UNRESERVED));
        for (name, value) in [("delimiter", delimiter), ("continuation-token", next)] {
            if let Some(value) = value {
                // Writing to a String cannot fail.
                let _ = write!(query, "&{name}={}", utf8_percent_encode(value, UNRESERVED));
            }
        }
        let answer: Answer = self.document(Method::GET, &path(bucket, None), &query).await?;
        let mut objects = answer.contents;
        for object in &mut objects {
            object.key = decode(&object.key);
            object.etag = object.etag.trim_matches('"').to_owned();
        }
        Ok(ObjectPage {
            objects,
            common_prefixes: answer.common_prefixes.iter().map(|one| decode(&one.prefix)).collect(),
            next: answer.next_continuation_token,
        })
    }

    /// Writes an object of `length` bytes from `from`.
    ///
    /// # Errors
    /// As the door refuses, or `from` breaks off.
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

    /// Writes an object's bytes to `to`; returns how many.
    ///
    /// # Errors
    /// As the door refuses, the connection breaks, or `to` cannot be written.
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

    /// Reads a small object into memory.
    ///
    /// # Errors
    /// As the door refuses, or the object is larger than an answer may be.
    pub async fn get_small(&self, bucket: &BucketName, key: &ObjectKey) -> Result<Bytes, ClientError> {
        let answer = self.call(Method::GET, &path(bucket, Some(key)), "", full("")).await?;
        self.target.collect(answer.into_body()).await
    }

    /// Copies an object within the namespace.
    ///
    /// # Errors
    /// As the door refuses.
    pub async fn copy(
        &self,
        from: (&BucketName, &ObjectKey),
        to: (&BucketName, &ObjectKey),
    ) -> Result<(), ClientError> {
        let request = Request::builder().method(Method::PUT).header("x-amz-copy-source", path(from.0, Some(from.1)));
        let answer = self.send(request, &path(to.0, Some(to.1)), "", full(""), PayloadHash::Of(b"")).await?;
        // S3 may begin to answer 200 before the copy is done and then send an error.
        let body = self.target.collect(answer.into_body()).await?;
        match refusal(200, &body) {
            Some(refused) => Err(refused),
            None => Ok(()),
        }
    }

    /// True if the object is there.
    ///
    /// # Errors
    /// As the door refuses.
    pub async fn exists(&self, bucket: &BucketName, key: &ObjectKey) -> Result<bool, ClientError> {
        match self.call(Method::HEAD, &path(bucket, Some(key)), "", full("")).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Deletes an object; also one that is not there.
    ///
    /// # Errors
    /// As the door refuses.
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

/// The error document of S3, if `body` is one.
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
