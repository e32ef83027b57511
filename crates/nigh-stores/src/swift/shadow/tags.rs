//! The tags of a shadow, and the refusals of the middleware. Pure.
//!
//! Follows `integrations/swift/README.md`, "Wire: Nigh to Swift".

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use nigh_data::ObjectMeta;
use nigh_terms::{Epoch, Sequence, Version};
use serde::{Deserialize, Serialize};

use super::ShadowError;

/// The longest tags that the middleware accepts, in bytes.
const TAGS_BYTES_MAX: usize = 6000;
/// Swift's content type of an object without one.
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

/// Encodes the tags of `meta`, which is stored with `headers` and whose payload `node` will push.
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

/// Adds the content type of a push, which must be that of the tags.
pub(super) fn with_type(mut headers: Vec<(HeaderName, HeaderValue)>) -> Vec<(HeaderName, HeaderValue)> {
    if !headers.iter().any(|(name, _)| name == CONTENT_TYPE) {
        headers.push((CONTENT_TYPE, HeaderValue::from_static(UNTYPED)));
    }
    headers
}

/// The state of an object that differs from the expected one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ShadowConflict {
    /// The middleware's reason.
    reason: String,
    /// True if there is an object.
    #[serde(default)]
    pub exists: bool,
    /// Nigh's version of the object, as `epoch.sequence`. None for an outsider's object.
    #[serde(default)]
    version: Option<String>,
    /// Swift's timestamp of the newest write or deletion. Zero if there is none.
    #[serde(default)]
    timestamp: String,
}

impl ShadowConflict {
    /// Parses the text of a refusal, which may be only a reason.
    pub(super) fn parse(text: String) -> Self {
        serde_json::from_str(&text).unwrap_or_else(|_| Self { reason: text, ..Self::default() })
    }

    /// Nigh's version of the object. None for an outsider's object.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        parse_version(self.version.as_deref()?)
    }

    /// The time of the newest write or deletion by a proxy's clock, in seconds since 1970. None if it is unknown.
    #[must_use]
    pub fn seconds(&self) -> Option<u64> {
        self.timestamp.split_once('.')?.0.parse().ok()
    }
}

impl fmt::Display for ShadowConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// The protocol's text of a version.
pub(in crate::swift) fn parse_version(text: &str) -> Option<Version> {
    let (epoch, sequence) = text.split_once('.')?;
    Some(Version { epoch: Epoch(epoch.parse().ok()?), sequence: Sequence(sequence.parse().ok()?) })
}

/// The version in a shadow's tags.
pub(in crate::swift) fn version_of(tags: &HeaderValue) -> Option<Version> {
    #[derive(Deserialize)]
    struct TaggedVersion {
        version: String,
    }
    let json = URL_SAFE_NO_PAD.decode(tags.as_bytes()).ok()?;
    parse_version(&serde_json::from_slice::<TaggedVersion>(&json).ok()?.version)
}

/// The code and the text of the middleware's refusal. None if `body` is not such a refusal. The text may be a
/// `ShadowConflict`.
pub(in crate::swift) fn refusal(body: &[u8]) -> Option<(String, String)> {
    #[derive(Deserialize)]
    struct Refusal {
        state: String,
        reason: String,
        exists: Option<bool>,
    }
    let refusal: Refusal = serde_json::from_slice(body).ok()?;
    let text = match refusal.exists {
        Some(_) => String::from_utf8_lossy(body).into_owned(),
        None => refusal.reason,
    };
    Some((refusal.state, text))
}

#[cfg(test)]
mod tests {
    use nigh_terms::{Timestamp, Token};

    use super::*;
    use nigh_data::{Attributes, ETag};

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
        let version = Version { epoch: Epoch(3), sequence: Sequence(14) };
        assert_eq!(version_of(&encode(&meta(), &headers, "n1").unwrap()), Some(version));
        assert_eq!(version_of(&HeaderValue::from_static("no tags")), None);
        headers[0].1 = HeaderValue::from_str(&"b".repeat(TAGS_BYTES_MAX)).unwrap();
        assert!(matches!(encode(&meta(), &headers, "n1"), Err(ShadowError::Unfit(_))));
    }

    #[test]
    fn a_refusal_is_read_and_other_texts_are_none() {
        let read = refusal(br#"{"state": "raced", "reason": "why"}"#);
        assert_eq!(read, Some(("raced".to_owned(), "why".to_owned())));
        let body = br#"{"state": "outside", "reason": "why", "exists": true, "etag": "x", "version": "2.7",
            "shadow": false, "timestamp": "1700000000.12345_0000000000000001"}"#;
        let found = ShadowConflict::parse(refusal(body).unwrap().1);
        let version = Version { epoch: Epoch(2), sequence: Sequence(7) };
        assert_eq!((found.exists, found.version(), found.seconds()), (true, Some(version), Some(1_700_000_000)));
        assert_eq!(found.to_string(), "why");
        let others = ShadowConflict::parse(
            r#"{"reason": "r", "exists": false, "version": null, "timestamp": "0000000000.00000"}"#.to_owned(),
        );
        assert_eq!((others.exists, others.version(), others.seconds()), (false, None, Some(0)));
        assert_eq!(ShadowConflict::parse("text".to_owned()).seconds(), None);
        for text in [&b"<html>"[..], b"{}", b"[1]", b""] {
            assert_eq!(refusal(text), None);
        }
    }
}
