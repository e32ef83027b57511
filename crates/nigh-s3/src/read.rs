//! GetObject and HeadObject, the most frequent requests: their headers are read and answered directly.
//!
//! Both bypass the typed requests of `s3s`. S3 ignores a `Range` or a date that it does not understand, but `s3s`
//! refuses the request; S3 accepts lists of entity tags, but `s3s` accepts one tag. Bypassing also saves an
//! intermediate document per answer. The signature has been checked before, here (`signed_read`) or by `s3s`.

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
use s3s::{Body, S3Error, S3ErrorCode, S3Response, S3Result};

use crate::checksum_headers::insert_checksum;
use crate::error::{invalid_argument, invalid_request, s3_error};
use crate::handlers::{Handlers, bucket_name, object_key};
use crate::telemetry::Operation;
use crate::transaction_header::transaction_of;
use crate::{conditions, http_date, metadata, query};

/// A body up to this length, in bytes, counts as sent when it is handed to the connection, because it fits the socket's
/// buffer.
pub(crate) const SENT_AT_ONCE_MAX: u64 = 64 * 1024;
/// The largest part number; the smallest is 1.
pub(crate) const PART_NUMBER_MAX: u32 = 10_000;

static ACCEPT_RANGES_BYTES: HeaderValue = HeaderValue::from_static("bytes");
static CHECKSUM_MODE: HeaderName = HeaderName::from_static("x-amz-checksum-mode");
static PARTS_COUNT: HeaderName = HeaderName::from_static("x-amz-mp-parts-count");
static TAGGING_COUNT: HeaderName = HeaderName::from_static("x-amz-tagging-count");

/// A read, as its method and URI state it. Parsed once, and passed on in the request's extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadExtension {
    /// Either GetObject or HeadObject.
    pub(crate) operation: Operation,
    /// The decoded path. It has a bucket and a key.
    path: String,
    /// The query has parameters of `ReadQuery`.
    has_parameters: bool,
    /// The query has a signature.
    pub(crate) is_presigned: bool,
}

impl ReadExtension {
    /// Parses a request as a read. None if it is not a read.
    pub(crate) fn of(method: &Method, uri: &Uri) -> Option<Self> {
        let operation = match *method {
            Method::GET => Operation::GetObject,
            Method::HEAD => Operation::HeadObject,
            _ => return None,
        };
        let path = percent_decode_str(uri.path()).decode_utf8().ok()?.into_owned();
        split(&path)?;
        let (mut has_parameters, mut is_presigned) = (false, false);
        for (name, _) in uri.query().into_iter().flat_map(query::pairs) {
            if is_subresource(&name) {
                return None;
            }
            has_parameters |= name == "partNumber" || name.starts_with("response-");
            is_presigned |= name.ends_with("Signature");
        }
        Some(Self { operation, path, has_parameters, is_presigned })
    }

    /// The name of the bucket, unchecked.
    pub(crate) fn bucket(&self) -> &str {
        split(&self.path).map_or("", |(bucket, _)| bucket)
    }

    /// The object that is read.
    fn target(&self) -> S3Result<(BucketName, ObjectKey)> {
        let (bucket, key) = split(&self.path).ok_or(S3ErrorCode::InvalidURI)?;
        Ok((bucket_name(bucket)?, object_key(key)?))
    }
}

/// Returns true if `name` is a subresource of an object. A query with a subresource makes the request another
/// operation.
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

/// Splits a path into bucket and key. None if one of them is missing.
fn split(path: &str) -> Option<(&str, &str)> {
    path.strip_prefix('/')?.split_once('/').filter(|(_, key)| !key.is_empty())
}

/// The parameters of a read in its query.
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

/// The error that S3 gives for a part number that is out of range.
pub(crate) fn part_number_error() -> S3Error {
    invalid_argument("Part number must be an integer between 1 and 10000, inclusive")
}

/// Reads of objects, over HTTP and on the fast path.
#[derive(Clone)]
pub(crate) struct Reads(pub(crate) Arc<Handlers>);

impl Reads {
    /// The handlers that all operations share.
    pub(crate) fn handlers(&self) -> &Handlers {
        &self.0
    }

    /// Answers a read; `query` and `headers` are the request's.
    pub(crate) async fn read(
        &self,
        who: &Principal,
        reading: &ReadExtension,
        query: Option<&str>,
        headers: &HeaderMap,
    ) -> S3Result<S3Response<Body>> {
        let (bucket, key) = reading.target()?;
        let query = query.filter(|_| reading.has_parameters).map(ReadQuery::parse).transpose()?.unwrap_or_default();
        let is_head = reading.operation == Operation::HeadObject;
        let range = match (conditions::text(headers, &header::RANGE).and_then(conditions::range), query.part) {
            (Some(_), Some(_)) => return Err(invalid_request("a read takes a range or a part number, not both")),
            (range, part) => range.or(part.map(RangeSpec::Part)),
        };
        let wanted = GetRequest { conditions: conditions::of_read(headers)?, range };
        let with_checksum =
            headers.get(&CHECKSUM_MODE).is_some_and(|mode| mode.as_bytes().eq_ignore_ascii_case(b"ENABLED"));
        let if_range = conditions::text(headers, &header::IF_RANGE);
        if let Some(name) = transaction_of(headers)? {
            return self.read_in(name, who, (&bucket, &key), is_head, wanted, with_checksum).await;
        }
        if is_head {
            let meta = self.head(who, &bucket, &key, wanted, if_range).await?;
            let range = meta.1.map(|spec| (spec, conditions::resolve(spec, &meta.0)));
            return Ok(answer(&meta.0, range, with_checksum, query.overrides, Body::empty()));
        }
        let (got, range) = self.get(who, &bucket, &key, wanted, if_range).await?;
        let (range, meta) = (range.map(|spec| (spec, got.range.clone())), Arc::clone(&got.meta));
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

    /// Reads the object. Also returns the range that applies, or None if the answer is the whole object.
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
        // The range applies only if the client has a part of this very object, which is known once the answer is there.
        let whole = GetRequest { conditions: wanted.conditions.clone(), range: None };
        match memory.get(who, bucket, key, wanted).await {
            Ok(got) if conditions::is_in_if_range(if_range, &got.meta.etag, got.meta.modified) => Ok((got, range)),
            Ok(_) | Err(ObjectError::InvalidRange { .. }) => {
                Ok((memory.get(who, bucket, key, whole).await.map_err(s3_error)?, None))
            }
            Err(error) => Err(s3_error(error)),
        }
    }

    /// Reads what is known of the object. Also returns the range that applies, or None if it is the whole object.
    pub(crate) async fn head(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        mut wanted: GetRequest,
        if_range: Option<&str>,
    ) -> S3Result<(Arc<ObjectMeta>, Option<RangeSpec>)> {
        // HTTP defines ranges for GET only. S3 applies a range to HEAD too, but never together with `If-Range`.
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
    if with_checksum {
        insert_checksum(&mut headers, meta, range.as_ref().map(|(spec, _)| *spec));
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

/// Turns the body of a read into the body of an answer.
///
/// The read's event is emitted when `got.body` is dropped. A short body is dropped when it is handed to the connection,
/// so the event is there before the client has the bytes. A long body is dropped when its last byte is written, because
/// sending takes time.
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
        // A segment's bytes are ready at once and complete. If they were not, this stream would still report the error.
        _ => Body::http_body_unsync(StreamedBody { body, left: length }),
    }
}

/// Bytes that are being sent, and the read that ends when they are dropped.
struct OutgoingBytes {
    bytes: Bytes,
    _read: nigh_data::Body,
}

impl AsRef<[u8]> for OutgoingBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A body that arrives in pieces. Its length is known.
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
        assert_eq!((is(Method::GET, "/b%2Fk"), is(Method::PUT, "/b/k")), (Some(Operation::GetObject), None));
        for other in ["/", "/b", "/b/", "/b/?list-type=2", "/b/k?tagging", "/b/k?%74agging=", "/b/k?uploadId=1"] {
            assert_eq!(is(Method::GET, other), None, "{other}");
        }
        for (query, expected) in [
            ("", (false, false)),
            ("?X-Amz-Signature=0&x-id=GetObject", (false, true)),
            ("?X-Amz-%53ignature=0", (false, true)),
            ("?partNumber=1", (true, false)),
            ("?x=1&response%2Dexpires=x", (true, false)),
        ] {
            let reading = reading(Method::GET, &format!("/b/k{query}")).unwrap();
            assert_eq!((reading.has_parameters, reading.is_presigned), expected, "{query}");
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
