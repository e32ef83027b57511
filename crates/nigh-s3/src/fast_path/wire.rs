//! The byte format of the fast path's packets. Pure; docs/design/fast-path.md draws the packets.
//!
//! A packet is exactly one header, one JSON object with known fields and one body. Every other packet is refused.

use http::HeaderMap;
use nigh_data::ObjectError;
use serde::de::DeserializeOwned;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;
use thiserror::Error;

/// The protocol's version.
pub(crate) const VERSION: u8 = 1;
/// The longest packet, in bytes.
pub(crate) const PACKET_MAX: usize = 256 * 1024;
/// The header's length in bytes.
pub(crate) const HEADER_BYTES: usize = 16;
/// Flag of an answer: the bytes of a large object are copied into the packet.
pub(crate) const BY_COPY: u16 = 1;
/// Flag of an answer: the request succeeded, and the body is all the bytes that the client asked for.
pub(crate) const IN_PACKET: u16 = 2;

/// The kinds of packets from the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The first packet of a connection.
    Greeting = 0,
    /// The answer to a request.
    Answer = 1,
    /// The last packet: the connection ends.
    Farewell = 2,
}

/// Why a packet is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum WireError {
    /// The packet ends within its header.
    #[error("a packet of {0} bytes has no header of {HEADER_BYTES}")]
    Short(usize),
    /// The packet is longer than the limit.
    #[error("a packet is longer than {PACKET_MAX} bytes")]
    Long,
    /// The packet has another protocol version.
    #[error("the client has protocol version {0}, this node version {VERSION}; use the client of this node's Nigh")]
    Version(u8),
    /// A request has flags, but no flag is defined for requests.
    #[error("unknown flags {0:#x}")]
    Flags(u16),
    /// The lengths do not add up.
    #[error("{json} bytes of JSON and {body} of body do not fill a packet of {packet}")]
    Lengths {
        /// The length of the JSON, by the header.
        json: u32,
        /// The length of the body, by the header.
        body: u32,
        /// The length of the packet.
        packet: usize,
    },
    /// No such operation.
    #[error("the packet names operation {0}, which does not exist")]
    Operation(u8),
    /// The JSON is malformed or has unknown fields.
    #[error("the JSON of operation {operation} cannot be read: {reason}")]
    Json {
        /// The operation.
        operation: u8,
        /// The parser's reason.
        reason: String,
    },
    /// The packet has a body, but its operation has none.
    #[error("operation {0} has no body")]
    Body(u8),
}

/// A request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Hello(Hello),
    Get(ReadRequest),
    Head(ReadRequest),
    /// A put, and the object's bytes.
    Put(Put, Vec<u8>),
    Create(Create),
    Commit(Commit),
    Release(HandleRequest),
    Abandon(HandleRequest),
}

/// The key that the client connects with, and the proof that the client has its secret.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Hello {
    pub(crate) access_key: String,
    pub(crate) mac: String,
}

/// A read. Each optional field except `part` and `released` holds the text of an HTTP header; None if the header is
/// absent.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadRequest {
    pub(crate) bucket: String,
    pub(crate) key: String,
    pub(crate) range: Option<String>,
    pub(crate) part: Option<u32>,
    pub(crate) if_match: Option<String>,
    pub(crate) if_none_match: Option<String>,
    pub(crate) if_modified_since: Option<String>,
    pub(crate) if_unmodified_since: Option<String>,
    pub(crate) if_range: Option<String>,
    pub(crate) version_id: Option<String>,
    pub(crate) checksum_mode: Option<String>,
    /// Handles of segments that the client no longer uses, as a RELEASE packet would name them.
    #[serde(default)]
    pub(crate) released: Vec<u64>,
}

/// The headers of a put, by lower-case name.
pub(crate) type Headers = BTreeMap<String, String>;

/// A put whose bytes are in the packet.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Put {
    pub(crate) bucket: String,
    pub(crate) key: String,
    #[serde(default)]
    pub(crate) headers: Headers,
}

/// A request for a segment to fill.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Create {
    pub(crate) length: u64,
}

/// A put of a segment that the client has filled.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Commit {
    pub(crate) handle: u64,
    pub(crate) bucket: String,
    pub(crate) key: String,
    #[serde(default)]
    pub(crate) headers: Headers,
}

/// A request that names one segment.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HandleRequest {
    pub(crate) handle: u64,
}

fn read_json<T: DeserializeOwned>(operation: u8, json: &[u8]) -> Result<T, WireError> {
    serde_json::from_slice(json).map_err(|error| WireError::Json { operation, reason: error.to_string() })
}

/// The request of a packet, and its id.
///
/// # Errors
/// If the packet is invalid; then the connection must end.
pub(crate) fn parse(packet: &[u8]) -> Result<(u32, Request), WireError> {
    if packet.len() > PACKET_MAX {
        return Err(WireError::Long);
    }
    let Some((header, rest)) = packet.split_first_chunk::<HEADER_BYTES>() else {
        return Err(WireError::Short(packet.len()));
    };
    let [version, operation, f0, f1, i0, i1, i2, i3, j0, j1, j2, j3, b0, b1, b2, b3] = *header;
    if version != VERSION {
        return Err(WireError::Version(version));
    }
    match u16::from_le_bytes([f0, f1]) {
        0 => {}
        flags => return Err(WireError::Flags(flags)),
    }
    let id = u32::from_le_bytes([i0, i1, i2, i3]);
    let (json, body) = (u32::from_le_bytes([j0, j1, j2, j3]), u32::from_le_bytes([b0, b1, b2, b3]));
    if u64::from(json) + u64::from(body) != rest.len() as u64 {
        return Err(WireError::Lengths { json, body, packet: packet.len() });
    }
    let (json, body) = rest.split_at(json as usize);
    let request = match operation {
        1 => Request::Hello(read_json(operation, json)?),
        2 => Request::Get(read_json(operation, json)?),
        3 => Request::Head(read_json(operation, json)?),
        4 => return Ok((id, Request::Put(read_json(operation, json)?, body.to_vec()))),
        5 => Request::Create(read_json(operation, json)?),
        6 => Request::Commit(read_json(operation, json)?),
        7 => Request::Release(read_json(operation, json)?),
        8 => Request::Abandon(read_json(operation, json)?),
        other => return Err(WireError::Operation(other)),
    };
    if body.is_empty() { Ok((id, request)) } else { Err(WireError::Body(operation)) }
}

/// The content of a packet from the server.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum ReplyHead {
    /// The greeting.
    Greeting { nonce: String },
    /// Success, without content.
    Nothing {},
    /// The status and headers that the S3 door would answer.
    Answer {
        status: u16,
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<String>,
        #[serde(serialize_with = "as_object", skip_serializing_if = "HeaderMap::is_empty")]
        headers: HeaderMap,
        #[serde(skip_serializing_if = "Option::is_none")]
        handle: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        offset: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        length: Option<u64>,
    },
}

/// Headers as a JSON object; bytes that are not UTF-8 are replaced, and values of one name are joined as in HTTP.
fn as_object<S: Serializer>(headers: &HeaderMap, serializer: S) -> Result<S::Ok, S::Error> {
    let mut object = serializer.serialize_map(Some(headers.keys_len()))?;
    for name in headers.keys() {
        let mut values = headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
        let first = values.next().unwrap_or_default();
        let joined = values.fold(first, |all, value| format!("{all}, {value}").into());
        object.serialize_entry(name.as_str(), &joined)?;
    }
    object.end()
}

/// The header and the JSON of a packet that `body_length` bytes follow.
///
/// # Errors
/// If the packet would be too long.
pub(crate) fn head(
    kind: Kind,
    flags: u16,
    id: u32,
    said: &ReplyHead,
    body_length: usize,
) -> Result<Vec<u8>, ObjectError> {
    let unsaid = |reason: String| ObjectError::Memory { operation: "answer", reason };
    let mut packet = vec![0; HEADER_BYTES];
    serde_json::to_writer(&mut packet, said).map_err(|error| unsaid(error.to_string()))?;
    if packet.len() + body_length > PACKET_MAX {
        return Err(unsaid(WireError::Long.to_string()));
    }
    let json = (packet.len() - HEADER_BYTES) as u32;
    packet[0] = VERSION;
    packet[1] = kind as u8;
    packet[2..4].copy_from_slice(&flags.to_le_bytes());
    packet[4..8].copy_from_slice(&id.to_le_bytes());
    packet[8..12].copy_from_slice(&json.to_le_bytes());
    packet[12..16].copy_from_slice(&(body_length as u32).to_le_bytes());
    Ok(packet)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packet(operation: u8, json: &str, body: &[u8]) -> Vec<u8> {
        let mut packet = vec![VERSION, operation, 0, 0, 7, 0, 0, 0];
        packet.extend((json.len() as u32).to_le_bytes());
        packet.extend((body.len() as u32).to_le_bytes());
        packet.extend(json.as_bytes());
        packet.extend(body);
        packet
    }

    #[test]
    fn each_operation_is_read_with_its_id() {
        let get = parse(&packet(2, r#"{"bucket":"b","key":"k","range":"bytes=0-1"}"#, b"")).unwrap();
        let range = Some("bytes=0-1".to_owned());
        let expected = ReadRequest { bucket: "b".to_owned(), key: "k".to_owned(), range, ..ReadRequest::default() };
        assert_eq!(get, (7, Request::Get(expected)));
        let put = parse(&packet(4, r#"{"bucket":"b","key":"k"}"#, b"bytes")).unwrap().1;
        assert!(matches!(put, Request::Put(put, body) if body == b"bytes" && put.headers.is_empty()));
        assert!(matches!(
            parse(&packet(7, r#"{"handle":3}"#, b"")),
            Ok((7, Request::Release(HandleRequest { handle: 3 })))
        ));
    }

    #[test]
    fn what_is_no_packet_is_refused_and_said() {
        let good = packet(3, r#"{"bucket":"b","key":"k"}"#, b"");
        let changed = |at: usize, byte: u8| {
            let mut packet = good.clone();
            packet[at] = byte;
            parse(&packet).unwrap_err()
        };
        assert_eq!(changed(0, 2), WireError::Version(2));
        assert_eq!(changed(1, 0), WireError::Operation(0));
        assert_eq!(changed(1, 9), WireError::Operation(9));
        assert_eq!(changed(2, 1), WireError::Flags(1));
        assert!(matches!(changed(8, 200), WireError::Lengths { json: 200, .. }));
        assert!(matches!(changed(15, 255), WireError::Lengths { .. }));
        assert_eq!(parse(&good[..15]), Err(WireError::Short(15)));
        assert_eq!(parse(&vec![1; PACKET_MAX + 1]), Err(WireError::Long));
        assert_eq!(parse(&packet(3, r#"{"bucket":"b","key":"k"}"#, b"x")), Err(WireError::Body(3)));
        for json in
            ["", "{}", "[]", r#"{"bucket":"b"}"#, r#"{"bucket":"b","key":"k","if_rnage":"x"}"#, "{\"bucket\":1}"]
        {
            assert!(matches!(parse(&packet(2, json, b"")), Err(WireError::Json { operation: 2, .. })), "{json}");
        }
        assert!(parse(&packet(5, r#"{"length":-1}"#, b"")).is_err());
    }

    #[test]
    fn an_answer_leaves_out_what_it_does_not_say() {
        let headers = HeaderMap::from_iter([
            (http::header::ETAG, "\"a\"".parse().unwrap()),
            (http::header::ACCEPT_RANGES, "bytes".parse().unwrap()),
        ]);
        let said = ReplyHead::Answer {
            status: 200,
            code: None,
            message: None,
            headers,
            handle: None,
            offset: None,
            length: Some(3),
        };
        let head = head(Kind::Answer, BY_COPY, 5, &said, 3).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&head[HEADER_BYTES..]).unwrap();
        let expected = r#"{"status":200,"headers":{"etag":"\"a\"","accept-ranges":"bytes"},"length":3}"#;
        assert_eq!(json, serde_json::from_str::<serde_json::Value>(expected).unwrap());
        assert_eq!(head[..8], [1, 1, 1, 0, 5, 0, 0, 0]);
        assert!(super::head(Kind::Answer, 0, 0, &ReplyHead::Nothing {}, PACKET_MAX).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), operation in 0u8..10) {
            let _ = parse(&bytes);
            let _ = parse(&packet(operation, &String::from_utf8_lossy(&bytes), b""));
        }
    }
}
