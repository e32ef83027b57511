//! Turns the S3 door's answers and errors into packets of the fast path.

use std::os::fd::OwnedFd;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use nigh_data::{ObjectError, PutDone};
use s3s::S3Error;

use super::held::Handle;
use super::wire::{HEADER_BYTES, IN_PACKET, Kind, PACKET_MAX, ReplyHead, WireError, head};
use crate::checksum_headers::{header_name, kind};
use crate::request_id::RequestId;

static REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");
static CHECKSUM_TYPE: HeaderName = HeaderName::from_static("x-amz-checksum-type");

/// A reply that is not encoded yet.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) kind: Kind,
    pub(super) flags: u16,
    pub(super) said: ReplyHead,
    pub(super) body: Bytes,
    pub(super) descriptor: Option<OwnedFd>,
}

/// An encoded reply.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) head: Vec<u8>,
    pub(super) body: Bytes,
    pub(super) descriptor: Option<OwnedFd>,
}

impl Reply {
    const fn new(kind: Kind, said: ReplyHead) -> Self {
        Self { kind, flags: 0, said, body: Bytes::new(), descriptor: None }
    }

    /// The first packet of a connection.
    pub(super) const fn greeting(nonce: String) -> Self {
        Self::new(Kind::Greeting, ReplyHead::Greeting { nonce })
    }

    /// A success without content.
    pub(super) const fn well() -> Self {
        Self::new(Kind::Answer, ReplyHead::Nothing {})
    }

    /// An answer of the S3 door without bytes.
    pub(super) fn answer(status: StatusCode, headers: HeaderMap, length: Option<u64>) -> Self {
        Self::new(Kind::Answer, answer(status.as_u16(), headers, length))
    }

    /// An answer of the S3 door with its bytes in the packet.
    pub(super) fn with_body(status: StatusCode, headers: HeaderMap, body: Bytes, flags: u16) -> Self {
        let length = Some(body.len() as u64);
        Self { flags: flags | IN_PACKET, body, ..Self::answer(status, headers, length) }
    }

    /// An answer of the S3 door whose bytes are the `length` bytes of a segment from `offset` on.
    pub(super) fn with_segment(
        (status, headers): (StatusCode, HeaderMap),
        (descriptor, handle): (OwnedFd, Handle),
        offset: u64,
        length: u64,
    ) -> Self {
        let said = ReplyHead::Answer {
            status: status.as_u16(),
            code: None,
            message: None,
            headers,
            handle: Some(handle.0),
            offset: Some(offset),
            length: Some(length),
        };
        Self { descriptor: Some(descriptor), ..Self::new(Kind::Answer, said) }
    }

    /// An answer that lends a segment for the client to fill.
    pub(super) fn lent(descriptor: OwnedFd, handle: Handle, length: u64) -> Self {
        let said = ReplyHead::Answer {
            status: StatusCode::OK.as_u16(),
            code: None,
            message: None,
            headers: HeaderMap::new(),
            handle: Some(handle.0),
            offset: None,
            length: Some(length),
        };
        Self { descriptor: Some(descriptor), ..Self::new(Kind::Answer, said) }
    }

    /// Tells the client to repeat the request over HTTP.
    pub(super) fn use_http() -> Self {
        Self::answer(StatusCode::TEMPORARY_REDIRECT, HeaderMap::new(), None)
    }

    /// Whether it tells the client to use HTTP.
    pub(super) fn is_for_http(&self) -> bool {
        self.status() == StatusCode::TEMPORARY_REDIRECT
    }

    /// The answer to a put that succeeded.
    pub(super) fn put(done: &PutDone) -> Self {
        let mut headers = HeaderMap::with_capacity(4);
        if let Ok(etag) = HeaderValue::try_from(format!("\"{}\"", done.etag)) {
            headers.insert(header::ETAG, etag);
        }
        if let Some(checksum) = &done.checksum
            && let Ok(value) = HeaderValue::try_from(&checksum.value)
        {
            headers.insert(header_name(checksum.algorithm), value);
            headers.insert(CHECKSUM_TYPE.clone(), HeaderValue::from_static(kind(checksum)));
        }
        Self::answer(StatusCode::OK, headers, None)
    }

    /// The answer that carries an error of the S3 door.
    pub(super) fn error(error: &S3Error) -> Self {
        let status = error.status_code().unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut headers = error.headers().cloned().unwrap_or_default();
        // `Content-Type` describes the error document, and this answer has no document.
        headers.remove(header::CONTENT_TYPE);
        Self::refusal(status, error.code().as_str(), error.message().unwrap_or_default().to_owned(), headers)
    }

    /// A refusal by the fast path itself.
    pub(super) fn refusal(status: StatusCode, code: &str, message: String, headers: HeaderMap) -> Self {
        let said = ReplyHead::Answer {
            status: status.as_u16(),
            code: Some(code.to_owned()),
            message: Some(message),
            headers,
            handle: None,
            offset: None,
            length: None,
        };
        Self::new(Kind::Answer, said)
    }

    /// Tells the client why the connection ends.
    pub(super) fn farewell(status: StatusCode, code: &str, message: String) -> Self {
        Self { kind: Kind::Farewell, ..Self::refusal(status, code, message, HeaderMap::new()) }
    }

    /// Tells the client that the connection ends because it sent an invalid packet.
    pub(super) fn malformed(error: &WireError) -> Self {
        Self::farewell(StatusCode::BAD_REQUEST, "MalformedPacket", error.to_string())
    }

    /// The status of the answer; 200 if the reply has no status.
    pub(super) fn status(&self) -> StatusCode {
        match &self.said {
            ReplyHead::Answer { status, .. } => StatusCode::from_u16(*status).unwrap_or_default(),
            ReplyHead::Greeting { .. } | ReplyHead::Nothing {} => StatusCode::OK,
        }
    }

    /// The number of object bytes that the reply gives, in the packet or in a segment.
    pub(super) const fn length(&self) -> u64 {
        match &self.said {
            ReplyHead::Answer { length: Some(length), .. } => *length,
            _ => 0,
        }
    }

    /// Adds a request id to an answer, as the S3 door does.
    pub(super) fn named(mut self, id: RequestId) -> Self {
        if let ReplyHead::Answer { headers, .. } = &mut self.said {
            headers.insert(REQUEST_ID.clone(), id.header());
        }
        self
    }

    /// Encodes the answer to request `id`. An answer that is too long for a packet tells the client to use HTTP.
    pub(super) fn packet(self, id: u32) -> Result<Packet, ObjectError> {
        let Self { kind, flags, said, body, descriptor } = self;
        match head(kind, flags, id, &said, body.len()) {
            Ok(head) => Ok(Packet { head, body, descriptor }),
            Err(_) if !body.is_empty() => Self::use_http().packet(id),
            Err(error) => Err(error),
        }
    }
}

const fn answer(status: u16, headers: HeaderMap, length: Option<u64>) -> ReplyHead {
    ReplyHead::Answer { status, code: None, message: None, headers, handle: None, offset: None, length }
}

/// Returns true if `length` bytes may fit into a packet. The headers may still make the packet too long.
pub(super) const fn may_fit(length: u64) -> bool {
    length <= (PACKET_MAX - HEADER_BYTES) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::s3_error;

    fn json(reply: Reply) -> (serde_json::Value, Packet) {
        let packet = reply.packet(1).unwrap();
        (serde_json::from_slice(&packet.head[HEADER_BYTES..]).unwrap(), packet)
    }

    #[test]
    fn an_error_says_what_the_doors_document_says() {
        let (said, _) = json(Reply::error(&s3_error(ObjectError::InvalidRange { size: 3 })));
        assert_eq!(said["status"], 416);
        assert_eq!(said["code"], "InvalidRange");
        assert_eq!(said["headers"], serde_json::json!({ "content-range": "bytes */3" }));
        assert!(!said["message"].as_str().unwrap().is_empty());
    }

    #[test]
    fn bytes_that_do_not_fit_a_packet_are_left_to_http() {
        let body = Bytes::from(vec![0; PACKET_MAX - HEADER_BYTES]);
        assert!(may_fit(body.len() as u64));
        let (said, packet) = json(Reply::with_body(StatusCode::OK, HeaderMap::new(), body, 1));
        assert_eq!(said["status"], 307);
        assert!(packet.body.is_empty());
    }
}
