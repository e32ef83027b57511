//! This crate's parsers of untrusted bytes, for the fuzz targets alone.

use bytes::Bytes;
use http::{HeaderMap, Method, Uri};
use nigh_data::RangeSpec;
use nigh_objects::NotificationConfig;
use nigh_terms::Timestamp;

use crate::chunk_frames::ChunkFrames;
use crate::{checksum_headers, conditions, fast_path, http_date, notifications, payload, query, screen};

/// The bytes that an aws-chunked body in `pieces` is re-framed to. None if the body is refused.
pub fn reframe<'p>(signed: bool, pieces: impl Iterator<Item = &'p [u8]>) -> Option<Vec<u8>> {
    let mut frames = ChunkFrames::new(signed);
    let mut passed = Vec::new();
    for piece in pieces {
        frames.push(Bytes::copy_from_slice(piece)).ok()?;
        while let Some(bytes) = frames.pop() {
            passed.extend_from_slice(&bytes);
        }
    }
    Some(passed)
}

/// Returns true if the screen accepts the request.
#[must_use]
pub fn passes_screen(method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    screen::screen(method, uri, headers).is_ok()
}

/// The names and values of a query, without those that are not UTF-8.
#[must_use]
pub fn query_pairs(text: &str) -> Vec<(String, String)> {
    query::pairs(text).filter_map(|(name, value)| Some((name.into_owned(), value.decode()?.into_owned()))).collect()
}

/// Returns true if the conditions and digests in `headers` are valid.
#[must_use]
pub fn reads_headers(headers: &HeaderMap) -> bool {
    let claims = checksum_headers::claim(headers, None).is_ok() && payload::content_md5(headers).is_ok();
    conditions::of_read(headers).is_ok() && claims
}

/// The rules of a bucket's notification configuration, as a client sends it.
#[must_use]
pub fn notification_rules(document: &[u8]) -> Option<NotificationConfig> {
    let mut document = s3s::xml::Deserializer::new(document);
    let document = s3s::xml::Deserialize::deserialize(&mut document).ok()?;
    notifications::config(document).ok()
}

/// Returns true if a packet of the fast path is a request with valid fields.
#[must_use]
pub fn reads_fast_path_packet(packet: &[u8]) -> bool {
    fast_path::reads_packet(packet)
}

/// The range that a `Range` header states. None if the whole object is meant.
#[must_use]
pub fn range(text: &str) -> Option<RangeSpec> {
    conditions::range(text)
}

/// The moment that an HTTP date states. None if it is not an HTTP date.
#[must_use]
pub fn http_date(text: &str) -> Option<Timestamp> {
    http_date::parse(text)
}

/// `when` as an HTTP date in the form that must be sent.
#[must_use]
pub fn http_date_text(when: Timestamp) -> String {
    String::from_utf8_lossy(http_date::header(when).as_bytes()).into_owned()
}
