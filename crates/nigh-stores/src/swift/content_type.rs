//! The entity tag of an object with parts, as a parameter of its content type. Pure.
//!
//! Swift computes and lists its own entity tags; for an object with parts, that of the manifest. The content type is the
//! only text of the writer that Swift lists, and readers ignore unknown parameters (RFC 9110, section 8.3.1). Objects whose
//! tag is the MD5 of their bytes need no parameter.

use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use nigh_data::ETag;

const PARAMETER: &str = ";nigh-etag=";
/// The content type that Swift gives an object whose writer stated none.
const UNTYPED: &str = "application/octet-stream";

/// Adds `etag` to the content type among `headers`, which is added if absent.
pub(super) fn put_tag(headers: &mut Vec<(HeaderName, HeaderValue)>, etag: &ETag) {
    let typed = headers.iter().position(|(name, _)| name == CONTENT_TYPE).map(|at| headers.swap_remove(at).1);
    let typed = typed.as_ref().and_then(|value| value.to_str().ok()).unwrap_or(UNTYPED);
    // A tag that cannot be in a header comes from another store; Swift's own tag is listed then.
    if let Ok(value) = HeaderValue::from_str(&format!("{typed}{PARAMETER}{etag}")) {
        headers.push((CONTENT_TYPE, value));
    }
}

/// The entity tag in a content type. None if it has none.
pub(super) fn tag_of(content_type: &str) -> Option<ETag> {
    let (_, tag) = content_type.rsplit_once(PARAMETER)?;
    (!tag.is_empty()).then(|| ETag(tag.to_owned()))
}

/// Removes the tag from the content type among `headers`.
pub(super) fn drop_tag(headers: &mut HeaderMap) {
    let typed = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let bare = typed.and_then(|value| value.rsplit_once(PARAMETER)).map(|(bare, _)| HeaderValue::from_str(bare));
    if let Some(Ok(bare)) = bare {
        headers.insert(CONTENT_TYPE, bare);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_goes_in_and_out_and_leaves_the_type_as_it_was() {
        let etag = ETag("abc-2".to_owned());
        for (given, back) in [(Some("text/plain; charset=utf-8"), "text/plain; charset=utf-8"), (None, UNTYPED)] {
            let mut headers: Vec<_> =
                given.map(|text| (CONTENT_TYPE, HeaderValue::from_static(text))).into_iter().collect();
            put_tag(&mut headers, &etag);
            let mut answered: HeaderMap = headers.into_iter().collect();
            assert_eq!(tag_of(answered[CONTENT_TYPE].to_str().unwrap()), Some(etag.clone()));
            drop_tag(&mut answered);
            assert_eq!(answered[CONTENT_TYPE], back);
        }
        assert_eq!(tag_of("text/plain"), None);
    }
}
