//! GetObject and HeadObject: the hot path, read from and answered in headers directly.
//!
//! Both go past `s3s`'s typed requests: S3 ignores a `Range` or date that it does not understand where `s3s` refuses,
//! takes lists of entity tags where `s3s` takes one, and this way an answer costs no intermediate document.
//! `s3s` has checked the signature before.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use http_body::{Frame, SizeHint};
use nigh_data::{ByteRange, GetReply, GetRequest, ObjectError, ObjectMeta, RangeSpec};
use nigh_objects::TransactionName;
use nigh_terms::{BucketName, ObjectKey, Principal};
use percent_encoding::percent_decode_str;
use s3s::{Body, S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use crate::checksum_headers::{header_name, kind};
use crate::error::{invalid_argument, invalid_request, s3_error};
use crate::handlers::{Handlers, bucket_name, object_key};
use crate::telemetry::Operation;
use crate::transaction_header::transaction_of;
use crate::{conditions, http_date, metadata, query};

/// A body up to this length counts as sent when it is handed to the connection: it fits the socket's buffer.
const SENT_AT_ONCE_MAX: u64 = 64 * 1024;
/// Parts of an object are numbered from 1 to this.
pub(crate) const PART_NUMBER_MAX: u32 = 10_000;

static ACCEPT_RANGES_BYTES: HeaderValue = HeaderValue::from_static("bytes");
static CHECKSUM_MODE: HeaderName = HeaderName::from_static("x-amz-checksum-mode");
static CHECKSUM_TYPE: HeaderName = HeaderName::from_static("x-amz-checksum-type");
static PARTS_COUNT: HeaderName = HeaderName::from_static("x-amz-mp-parts-count");
static TAGGING_COUNT: HeaderName = HeaderName::from_static("x-amz-tagging-count");

/// A read, as its method and address say: parsed once, and passed on in the request's extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadExtension {
    /// GetObject or HeadObject.
    pub(crate) operation: Operation,
    /// The decoded path; it has a bucket and a key.
    path: String,
    /// The query has parameters of `ReadQuery`: most queries have a signature only.
    has_parameters: bool,
}

impl ReadExtension {
    /// The read that a request is, if it is one.
    pub(crate) fn of(method: &Method, uri: &Uri) -> Option<Self> {
        let operation = match *method {
            Method::GET => Operation::GetObject,
            Method::HEAD => Operation::HeadObject,
            _ => return None,
        };
        let path = percent_decode_str(uri.path()).decode_utf8().ok()?.into_owned();
        split(&path)?;
        let mut has_parameters = false;
        for (name, _) in uri.query().into_iter().flat_map(query::pairs) {
            if is_subresource(&name) {
                return None;
            }
            has_parameters |= name == "partNumber" || name.starts_with("response-");
        }
        Some(Self { operation, path, has_parameters })
    }

    /// The object that is read.
    fn target(&self) -> S3Result<(BucketName, ObjectKey)> {
        let (bucket, key) = split(&self.path).ok_or(S3ErrorCode::InvalidURI)?;
        Ok((bucket_name(bucket)?, object_key(key)?))
    }
}

/// The parts of an object that have a door of their own: with one of these in the query it is another operation.
fn is_subresource(name: &str) -> bool {
    matches!(
        name,
        "acl"
            | "attributes"
            | "legal-hold"
            | "object-lock"
            | "restore"
            | "retention"
            | "select"
            | "tagging"
            | "torrent"
            | "uploadId"
            | "uploads"
    )
}

/// The bucket and the key of a path, which has both.
fn split(path: &str) -> Option<(&str, &str)> {
    path.strip_prefix('/')?.split_once('/').filter(|(_, key)| !key.is_empty())
}

/// The part of a read that stands in its query.
#[derive(Debug, Default)]
struct ReadQuery {
    part: Option<u32>,
    overrides: Vec<(HeaderName, HeaderValue)>,
}

impl ReadQuery {
    fn parse(query: &str) -> S3Result<Self> {
        let mut read = Self::default();
        for (name, value) in query::pairs(query) {
            let overridden = match name.as_ref() {
                "partNumber" => {
                    let number = value.decode().and_then(|text| text.parse().ok());
                    let number = number.filter(|number| (1..=PART_NUMBER_MAX).contains(number));
                    read.part = Some(number.ok_or_else(part_number_error)?);
                    continue;
                }
                "response-content-type" => header::CONTENT_TYPE,
                "response-content-language" => header::CONTENT_LANGUAGE,
                "response-expires" => header::EXPIRES,
                "response-cache-control" => header::CACHE_CONTROL,
                "response-content-disposition" => header::CONTENT_DISPOSITION,
                "response-content-encoding" => header::CONTENT_ENCODING,
                _ => continue,
            };
            let value = value.decode().and_then(|value| HeaderValue::try_from(value.as_ref()).ok());
            let value = value.ok_or_else(|| invalid_argument(format!("{name} is no value for a header")))?;
            read.overrides.push((overridden, value));
        }
        Ok(read)
    }
}

/// What S3 says of a part number out of its range.
pub(crate) fn part_number_error() -> S3Error {
    invalid_argument("Part number must be an integer between 1 and 10000, inclusive")
}

/// Reads of objects, over HTTP and on the fast path.
pub(crate) struct Reads(pub(crate) Arc<Handlers>);

impl Reads {
    /// What all operations stand on.
    pub(crate) fn handlers(&self) -> &Handlers {
        &self.0
    }

    /// Answers a read.
    pub(crate) async fn read(&self, who: &Principal, request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        let reading = request.extensions.get::<ReadExtension>().ok_or(S3ErrorCode::InternalError)?;
        let (bucket, key) = reading.target()?;
        let query = request.uri.query().filter(|_| reading.has_parameters).map(ReadQuery::parse).transpose()?;
        let query = query.unwrap_or_default();
        let headers = &request.headers;
        let range = match (conditions::text(headers, &header::RANGE).and_then(conditions::range), query.part) {
            (Some(_), Some(_)) => return Err(invalid_request("a range and a part number cannot stand together")),
            (range, part) => range.or(part.map(RangeSpec::Part)),
        };
        let wanted = GetRequest { conditions: conditions::of_read(headers)?, range };
        let transaction = transaction_of(headers)?;
        let with_checksum =
            headers.get(&CHECKSUM_MODE).is_some_and(|mode| mode.as_bytes().eq_ignore_ascii_case(b"ENABLED"));
        let if_range = conditions::text(headers, &header::IF_RANGE);

        if let Some(name) = transaction {
            return self
                .read_in(name, who, (&bucket, &key), request.method == Method::HEAD, wanted, with_checksum)
                .await;
        }
        if request.method == Method::HEAD {
            let meta = self.head(who, &bucket, &key, wanted, if_range).await?;
            let range = meta.1.map(|spec| (spec, conditions::resolve(spec, &meta.0)));
            return Ok(answer(&meta.0, range, with_checksum, query.overrides, Body::empty()));
        }
        let (got, range) = self.get(who, &bucket, &key, wanted, if_range).await?;
        let range = range.map(|spec| (spec, got.range.clone()));
        let meta = Arc::clone(&got.meta);
        Ok(answer(&meta, range, with_checksum, query.overrides, body(got)))
    }

    /// Answers a read in a transaction.
    async fn read_in(
        &self,
        name: TransactionName,
        who: &Principal,
        (bucket, key): (&BucketName, &ObjectKey),
        is_head: bool,
        wanted: GetRequest,
        with_checksum: bool,
    ) -> S3Result<S3Response<Body>> {
        let (memory, range) = (self.0.memory(), wanted.range);
        if is_head {
            let meta = memory.head_in(name, who, bucket, key, wanted).await.map_err(s3_error)?;
            let range = range.map(|spec| (spec, conditions::resolve(spec, &meta)));
            return Ok(answer(&meta, range, with_checksum, Vec::new(), Body::empty()));
        }
        let got = memory.get_in(name, who, bucket, key, wanted).await.map_err(s3_error)?;
        let (range, meta) = (range.map(|spec| (spec, got.range.clone())), Arc::clone(&got.meta));
        Ok(answer(&meta, range, with_checksum, Vec::new(), body(got)))
    }

    /// The object, and the range that counts.
    pub(crate) async fn get(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        wanted: GetRequest,
        if_range: Option<&str>,
    ) -> S3Result<(GetReply, Option<RangeSpec>)> {
        let range = wanted.range;
        let memory = self.0.memory();
        let Some(if_range) = if_range.filter(|_| range.is_some()) else {
            return Ok((memory.get(who, bucket, key, wanted).await.map_err(s3_error)?, range));
        };
        // The range counts only for the object that the client has a part of; which one is there, the answer says.
        let whole = GetRequest { conditions: wanted.conditions.clone(), range: None };
        match memory.get(who, bucket, key, wanted).await {
            Ok(got) if conditions::is_in_if_range(if_range, &got.meta.etag, got.meta.modified) => Ok((got, range)),
            Ok(_) | Err(ObjectError::InvalidRange { .. }) => {
                Ok((memory.get(who, bucket, key, whole).await.map_err(s3_error)?, None))
            }
            Err(error) => Err(s3_error(error)),
        }
    }

    /// What is known of the object, and the range that counts.
    pub(crate) async fn head(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        mut wanted: GetRequest,
        if_range: Option<&str>,
    ) -> S3Result<(Arc<ObjectMeta>, Option<RangeSpec>)> {
        // A range is defined for GET; S3 answers HEAD with it too, but never with the condition.
        if if_range.is_some() {
            wanted.range = None;
        }
        let range = wanted.range;
        Ok((self.0.memory().head(who, bucket, key, wanted).await.map_err(s3_error)?, range))
    }
}

/// The answer to a read that succeeded.
pub(crate) fn answer(
    meta: &ObjectMeta,
    range: Option<(RangeSpec, ByteRange)>,
    with_checksum: bool,
    overrides: Vec<(HeaderName, HeaderValue)>,
    body: Body,
) -> S3Response<Body> {
    let mut headers = HeaderMap::with_capacity(16);
    metadata::answer(&meta.attributes, &mut headers);
    headers.insert(header::ACCEPT_RANGES, ACCEPT_RANGES_BYTES.clone());
    headers.insert(header::LAST_MODIFIED, http_date::header(meta.modified));
    if let Ok(etag) = HeaderValue::try_from(format!("\"{}\"", meta.etag)) {
        headers.insert(header::ETAG, etag);
    }
    if !meta.tags.is_empty() {
        headers.insert(TAGGING_COUNT.clone(), meta.tags.len().into());
    }
    // A checksum is of the whole object, so that it says nothing of a part.
    if with_checksum && range.is_none() {
        for checksum in &meta.checksums {
            if let Ok(value) = HeaderValue::try_from(&checksum.value) {
                headers.insert(header_name(checksum.algorithm), value);
                headers.insert(CHECKSUM_TYPE.clone(), HeaderValue::from_static(kind(checksum)));
            }
        }
    }
    let mut status = StatusCode::OK;
    let length = match range {
        None => meta.size,
        Some((spec, range)) => {
            if matches!(spec, RangeSpec::Part(_)) && !meta.parts.is_empty() {
                headers.insert(PARTS_COUNT.clone(), meta.parts.len().into());
            }
            if !range.is_empty() {
                status = StatusCode::PARTIAL_CONTENT;
                let content_range = format!("bytes {}-{}/{}", range.start, range.end - 1, meta.size);
                if let Ok(value) = HeaderValue::try_from(content_range) {
                    headers.insert(header::CONTENT_RANGE, value);
                }
            }
            range.end - range.start
        }
    };
    headers.insert(header::CONTENT_LENGTH, length.into());
    for (name, value) in overrides {
        headers.insert(name, value);
    }
    S3Response { output: body, status: Some(status), headers, extensions: Extensions::default() }
}

/// The bytes read, as the connection takes them.
///
/// The read's event is emitted when `got.body` is dropped: for a short body when it is handed over, so that it is
/// known before the client has the bytes; for a long one when its last byte is written, since sending takes time.
fn body(got: GetReply) -> Body {
    let length = got.range.end - got.range.start;
    let mut body = got.body;
    if length == 0 {
        return Body::empty();
    }
    if body.as_segment().is_none() {
        return Body::http_body_unsync(StreamedBody { body, left: length });
    }
    let mut context = Context::from_waker(std::task::Waker::noop());
    match Pin::new(&mut body).poll_next(&mut context) {
        Poll::Ready(Some(Ok(bytes))) if length <= SENT_AT_ONCE_MAX => Body::from(bytes),
        Poll::Ready(Some(Ok(bytes))) => Body::from(Bytes::from_owner(OutgoingBytes { bytes, _read: body })),
        // A segment is there at once and whole; were it not, the rest of the stream would say so.
        _ => Body::http_body_unsync(StreamedBody { body, left: length }),
    }
}

/// Bytes on their way out, and the read that ends with them.
struct OutgoingBytes {
    bytes: Bytes,
    _read: nigh_data::Body,
}

impl AsRef<[u8]> for OutgoingBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A body that comes in pieces; its length is known.
struct StreamedBody {
    body: nigh_data::Body,
    left: u64,
}

impl http_body::Body for StreamedBody {
    type Data = Bytes;
    type Error = ObjectError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ObjectError>>> {
        let this = self.get_mut();
        let next = std::task::ready!(Pin::new(&mut this.body).poll_next(context));
        Poll::Ready(next.map(|piece| {
            let piece = piece?;
            this.left = this.left.saturating_sub(piece.len() as u64);
            Ok(Frame::data(piece))
        }))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_of_objects_are_told_from_all_else() {
        let reading = |method: Method, uri: &str| ReadExtension::of(&method, &uri.parse().unwrap());
        let is = |method, uri| reading(method, uri).map(|reading| reading.operation);
        assert_eq!(is(Method::GET, "/b/k"), Some(Operation::GetObject));
        assert_eq!(is(Method::HEAD, "/b/k/l?partNumber=1&x-id=GetObject"), Some(Operation::HeadObject));
        assert_eq!(is(Method::GET, "/b%2Fk"), Some(Operation::GetObject));
        for other in ["/", "/b", "/b/", "/b/?list-type=2", "/b/k?tagging", "/b/k?%74agging=", "/b/k?uploadId=1"] {
            assert_eq!(is(Method::GET, other), None, "{other}");
        }
        assert_eq!(is(Method::PUT, "/b/k"), None);
        for (query, expected) in [
            ("", false),
            ("?X-Amz-Signature=0&x-id=GetObject", false),
            ("?partNumber=1", true),
            ("?x=1&response%2Dexpires=x", true),
        ] {
            let reading = reading(Method::GET, &format!("/b/k{query}")).unwrap();
            assert_eq!(reading.has_parameters, expected, "{query}");
        }
    }

    #[test]
    fn a_read_s_query_overrides_headers_and_names_a_part() {
        let read = ReadQuery::parse("partNumber=3&response-content-type=a%2Fb&response-expires=x+y&other=1").unwrap();
        assert_eq!(read.part, Some(3));
        assert_eq!(
            read.overrides,
            [
                (header::CONTENT_TYPE, HeaderValue::from_static("a/b")),
                (header::EXPIRES, HeaderValue::from_static("x y")),
            ]
        );
        for bad in ["partNumber=0", "partNumber=10001", "partNumber=x", "response-content-type=%0d%0aset-cookie"] {
            assert_eq!(ReadQuery::parse(bad).unwrap_err().code().as_str(), "InvalidArgument", "{bad}");
        }
    }
}
