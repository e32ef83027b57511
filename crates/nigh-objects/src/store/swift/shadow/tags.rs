//! What the tags of a shadow say, and what the middleware's refusals say. Pure.
//!
//! Follows `integrations/swift/README.md`, "Wire: Nigh to Swift".

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

use super::ShadowError;
use crate::ObjectMeta;

/// The longest tags that the middleware takes.
const TAGS_BYTES_MAX: usize = 6000;
/// What Swift takes for an object without a type.
const UNTYPED: &str = "application/octet-stream";

#[derive(Serialize)]
struct Tags<'a> {
    version: String,
    size: u64,
    etag: &'a str,
    content_type: &'a str,
    node: &'a str,
    headers: BTreeMap<&'a str, &'a str>,
}

/// The tags of `meta`, which is stored with `headers`; the payload is `node`'s to push.
pub(super) fn encode(
    meta: &ObjectMeta,
    headers: &[(HeaderName, HeaderValue)],
    node: &str,
) -> Result<HeaderValue, ShadowError> {
    let text = |(name, value): &'_ (HeaderName, HeaderValue)| -> Result<(String, String), ShadowError> {
        let value = value.to_str().map_err(|_| ShadowError::Unfit("its metadata are not printable"))?;
        Ok((name.as_str().to_owned(), value.to_owned()))
    };
    let mut all = headers.iter().map(text).collect::<Result<BTreeMap<String, String>, _>>()?;
    let content_type = all.remove(CONTENT_TYPE.as_str()).unwrap_or_else(|| UNTYPED.to_owned());
    let tags = Tags {
        version: meta.version.to_string(),
        size: meta.size,
        etag: &meta.etag.0,
        content_type: &content_type,
        node,
        headers: all.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
    };
    let json = serde_json::to_vec(&tags).map_err(|_| ShadowError::Unfit("its tags cannot be written"))?;
    let text = URL_SAFE_NO_PAD.encode(json);
    if text.len() > TAGS_BYTES_MAX {
        return Err(ShadowError::Unfit("its metadata are longer than a shadow's tags may be"));
    }
    HeaderValue::from_str(&text).map_err(|_| ShadowError::Unfit("its tags cannot be written"))
}

/// A push says the type that the tags say.
pub(super) fn with_type(mut headers: Vec<(HeaderName, HeaderValue)>) -> Vec<(HeaderName, HeaderValue)> {
    if !headers.iter().any(|(name, _)| name == CONTENT_TYPE) {
        headers.push((CONTENT_TYPE, HeaderValue::from_static(UNTYPED)));
    }
    headers
}

/// The word and the reason of a refusal of the middleware's, if this is one.
pub(in crate::store::swift) fn refusal(body: &[u8]) -> Option<(String, String)> {
    #[derive(Deserialize)]
    struct Refusal {
        state: String,
        reason: String,
    }
    let refusal: Refusal = serde_json::from_slice(body).ok()?;
    Some((refusal.state, refusal.reason))
}

#[cfg(test)]
mod tests {
    use nigh_terms::{Epoch, Sequence, Timestamp, Token, Version};

    use super::*;
    use crate::{Attributes, ETag};

    fn meta() -> ObjectMeta {
        ObjectMeta {
            size: 159,
            etag: ETag("e".to_owned()),
            modified: Timestamp(0),
            attributes: Attributes::default(),
            tags: BTreeMap::new(),
            checksums: Vec::new(),
            parts: Vec::new(),
            version: Version { epoch: Epoch(3), sequence: Sequence(14) },
            token: Token::empty(),
        }
    }

    #[test]
    fn tags_are_the_documents_json_and_too_long_ones_are_refused() {
        let mut headers = vec![(HeaderName::from_static("x-object-meta-a"), HeaderValue::from_static("b"))];
        let text = encode(&meta(), &headers, "n1").unwrap();
        let json: serde_json::Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).unwrap()).unwrap();
        let expected = serde_json::json!({"version": "3.14", "size": 159, "etag": "e", "node": "n1",
            "content_type": UNTYPED, "headers": {"x-object-meta-a": "b"}});
        assert_eq!(json, expected);
        headers[0].1 = HeaderValue::from_str(&"b".repeat(TAGS_BYTES_MAX)).unwrap();
        assert!(matches!(encode(&meta(), &headers, "n1"), Err(ShadowError::Unfit(_))));
    }

    #[test]
    fn a_refusal_is_read_and_other_texts_are_none() {
        let read = refusal(br#"{"state": "outside", "reason": "why", "etag": "x"}"#);
        assert_eq!(read, Some(("outside".to_owned(), "why".to_owned())));
        for text in [&b"<html>"[..], b"{}", b"[1]", b""] {
            assert_eq!(refusal(text), None);
        }
    }
}
