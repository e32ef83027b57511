//! Conditions and ranges of requests (RFC 9110 sections 13 and 14). Pure.
//!
//! The conditions of reads are parsed from the headers themselves. As the RFC demands, S3 ignores a `Range` or a date
//! that it does not understand, but `s3s` would refuse the request.

use http::{HeaderMap, header};
use nigh_data::{ByteRange, ETag, ObjectMeta, RangeSpec, ReadConditions, WriteConditions};
use nigh_terms::Timestamp;
use s3s::S3Result;
use s3s::dto::{ETagCondition, Timestamp as WireTimestamp};

use crate::error::{invalid_argument, not_implemented};
use crate::http_date;

/// The most entity tags that a condition may name; a condition with more is refused. RFC 9110 sets no limit.
const CONDITION_TAGS_MAX: usize = 64;

/// The text of the first header called `name`. None if there is no such header or if its value is not text.
pub(crate) fn text<'h>(headers: &'h HeaderMap, name: &header::HeaderName) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim)
}

/// The conditions of a read.
pub(crate) fn of_read(headers: &HeaderMap) -> S3Result<ReadConditions> {
    Ok(ReadConditions {
        if_match: text(headers, &header::IF_MATCH).map(entity_tags).transpose()?,
        if_none_match: text(headers, &header::IF_NONE_MATCH).map(entity_tags).transpose()?,
        if_modified_since: text(headers, &header::IF_MODIFIED_SINCE).and_then(http_date::parse),
        if_unmodified_since: text(headers, &header::IF_UNMODIFIED_SINCE).and_then(http_date::parse),
    })
}

/// The conditions on the source of a copy.
pub(crate) fn of_source(
    if_match: Option<ETagCondition>,
    if_none_match: Option<ETagCondition>,
    if_modified_since: Option<WireTimestamp>,
    if_unmodified_since: Option<WireTimestamp>,
) -> ReadConditions {
    let tags = |condition: ETagCondition| vec![entity_tag(condition)];
    let date = |date: WireTimestamp| http_date::timestamp(date.into());
    ReadConditions {
        if_match: if_match.map(tags),
        if_none_match: if_none_match.map(tags),
        if_modified_since: if_modified_since.and_then(date),
        if_unmodified_since: if_unmodified_since.and_then(date),
    }
}

/// The conditions of a write.
pub(crate) fn of_write(
    if_match: Option<ETagCondition>,
    if_none_match: Option<ETagCondition>,
) -> S3Result<WriteConditions> {
    if if_match.is_some() && if_none_match.is_some() {
        return Err(invalid_argument("a write takes If-Match or If-None-Match, not both"));
    }
    let if_absent = match if_none_match {
        None => false,
        Some(ETagCondition::Any) => true,
        // S3 itself accepts only `*` here.
        Some(ETagCondition::ETag(_)) => return Err(not_implemented("If-None-Match with an entity tag on a write")),
    };
    Ok(WriteConditions { if_match: if_match.map(entity_tag), if_absent })
}

fn entity_tag(condition: ETagCondition) -> ETag {
    match condition {
        ETagCondition::Any => ETag("*".into()),
        ETagCondition::ETag(tag) => ETag(tag.into_value()),
    }
}

/// The entity tags of `list`, without quotes and without the weak prefix `W/`. All tags of S3 are strong, and S3
/// accepts tags without quotes too.
fn entity_tags(list: &str) -> S3Result<Vec<ETag>> {
    let mut tags = Vec::with_capacity(1);
    let mut rest = list.trim_start();
    while !rest.is_empty() {
        if tags.len() == CONDITION_TAGS_MAX {
            return Err(invalid_argument(format!("a condition names more than {CONDITION_TAGS_MAX} entity tags")));
        }
        let opaque = rest.strip_prefix("W/").unwrap_or(rest);
        let (tag, behind) = match opaque.strip_prefix('"') {
            Some(quoted) => {
                quoted.split_once('"').ok_or_else(|| invalid_argument("an entity tag lacks its closing quote"))?
            }
            None => opaque.split_at(opaque.find(',').unwrap_or(opaque.len())),
        };
        tags.push(ETag(tag.trim_end().to_owned()));
        rest = behind.trim_start();
        rest = match rest.strip_prefix(',') {
            Some(next) => next.trim_start(),
            None if rest.is_empty() => rest,
            None => return Err(invalid_argument("entity tags are separated by commas")),
        };
    }
    Ok(tags)
}

/// The range that a `Range` header states. None if the header does not state exactly one range of bytes; then the whole
/// object is meant.
pub(crate) fn range(header: &str) -> Option<RangeSpec> {
    let spec = header.strip_prefix("bytes=")?.trim();
    let (first, last) = spec.split_once('-')?;
    let number = |text: &str| -> Option<u64> {
        if text.is_empty() || !text.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        // RFC 9110 section 14.1.2 allows numbers of any length. A number that does not fit means the end of the object.
        Some(text.parse().unwrap_or(u64::MAX))
    };
    if first.is_empty() {
        return number(last).map(RangeSpec::Suffix);
    }
    let first = number(first)?;
    if last.is_empty() {
        return Some(RangeSpec::From { first, last: None });
    }
    let last = number(last)?;
    (first <= last).then_some(RangeSpec::From { first, last: Some(last) })
}

/// The range of an UploadPartCopy, which must have the form `bytes=first-last`.
pub(crate) fn copy_range(header: &str) -> S3Result<RangeSpec> {
    match range(header) {
        Some(spec @ RangeSpec::From { last: Some(_), .. }) => Ok(spec),
        _ => Err(invalid_argument("x-amz-copy-source-range has the form bytes=first-last")),
    }
}

/// The bytes of the object that `spec` names. The caller has checked that the object has these bytes.
pub(crate) fn resolve(spec: RangeSpec, meta: &ObjectMeta) -> ByteRange {
    let size = meta.size;
    match spec {
        RangeSpec::From { first, last } => first.min(size)..last.map_or(size, |last| last.saturating_add(1)).min(size),
        RangeSpec::Suffix(length) => size.saturating_sub(length)..size,
        RangeSpec::Part(_) if meta.parts.is_empty() => 0..size,
        RangeSpec::Part(number) => {
            let before = (number as usize).saturating_sub(1).min(meta.parts.len());
            let start = meta.parts[..before].iter().sum();
            start..start + meta.parts.get(before).copied().unwrap_or(0)
        }
    }
}

/// Returns true if the object is the one that an `If-Range` header names. If false, the range is ignored.
pub(crate) fn is_in_if_range(header: &str, etag: &ETag, modified: Timestamp) -> bool {
    match http_date::parse(header) {
        Some(date) => modified.whole_second() == date,
        // A weak tag never matches an `If-Range` header (RFC 9110 section 13.1.5).
        None => header.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')) == Some(etag.0.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(list: &str) -> Option<Vec<String>> {
        entity_tags(list).ok().map(|tags| tags.into_iter().map(|tag| tag.0).collect())
    }

    #[test]
    fn entity_tags_are_read_quoted_weak_bare_and_in_lists() {
        let list = |tags: &[&str]| Some(tags.iter().map(|&tag| tag.to_owned()).collect::<Vec<_>>());
        assert_eq!(tags("\"a\""), list(&["a"]));
        assert_eq!(tags("W/\"a\", \"b,c\" ,d-2"), list(&["a", "b,c", "d-2"]));
        assert_eq!(tags("*"), list(&["*"]));
        assert_eq!(tags("\"a"), None);
        assert_eq!(tags("\"a\" \"b\""), None);
        assert_eq!(tags(&vec!["\"a\""; 65].join(",")), None);
    }

    #[test]
    fn a_range_is_single_or_ignored() {
        let from = |first, last| Some(RangeSpec::From { first, last });
        assert_eq!(range("bytes=0-4"), from(0, Some(4)));
        assert_eq!(range("bytes=7-"), from(7, None));
        assert_eq!(range("bytes=-5"), Some(RangeSpec::Suffix(5)));
        assert_eq!(range("bytes=0-99999999999999999999999"), from(0, Some(u64::MAX)));
        for ignored in ["bytes=4-0", "bytes=0-1,3-4", "bytes=-", "bytes=a-b", "items=0-1", "bytes=+1-2", "bytes"] {
            assert_eq!(range(ignored), None, "{ignored}");
        }
        assert!(copy_range("bytes=0-4").is_ok());
        assert!(copy_range("bytes=0-").is_err() && copy_range("bytes=-4").is_err());
    }

    fn object(size: u64, parts: &[u64]) -> ObjectMeta {
        ObjectMeta {
            size,
            etag: ETag("e".into()),
            modified: Timestamp(0),
            attributes: Default::default(),
            tags: Default::default(),
            checksums: Vec::new(),
            parts: parts.to_vec(),
            version: nigh_terms::Version::OUTSIDE,
            token: nigh_terms::Token::empty(),
        }
    }

    #[test]
    fn a_range_resolves_to_bytes_of_the_object() {
        let whole = object(10, &[]);
        assert_eq!(resolve(RangeSpec::From { first: 2, last: Some(100) }, &whole), 2..10);
        assert_eq!(resolve(RangeSpec::From { first: 2, last: Some(u64::MAX) }, &whole), 2..10);
        assert_eq!(resolve(RangeSpec::Suffix(3), &whole), 7..10);
        assert_eq!(resolve(RangeSpec::Suffix(30), &whole), 0..10);
        assert_eq!(resolve(RangeSpec::Part(1), &whole), 0..10);
        let parts = object(10, &[4, 6]);
        assert_eq!(resolve(RangeSpec::Part(1), &parts), 0..4);
        assert_eq!(resolve(RangeSpec::Part(2), &parts), 4..10);
    }

    #[test]
    fn if_range_matches_the_strong_tag_or_the_exact_date_only() {
        let tag = ETag("abc".into());
        let modified = Timestamp(784_111_777_500);
        assert!(is_in_if_range("\"abc\"", &tag, modified));
        assert!(is_in_if_range("Sun, 06 Nov 1994 08:49:37 GMT", &tag, modified));
        assert!(!is_in_if_range("W/\"abc\"", &tag, modified));
        assert!(!is_in_if_range("\"abd\"", &tag, modified));
        assert!(!is_in_if_range("Sun, 06 Nov 1994 08:49:38 GMT", &tag, modified));
    }

    #[test]
    fn a_write_may_demand_a_tag_or_absence_and_not_both() {
        let any = || Some(ETagCondition::Any);
        let tag = || Some(ETagCondition::parse_http_header(b"\"a\"").unwrap());
        assert!(of_write(None, any()).unwrap().if_absent);
        assert_eq!(of_write(tag(), None).unwrap().if_match, Some(ETag("a".into())));
        assert_eq!(of_write(None, tag()).unwrap_err().code().as_str(), "NotImplemented");
        assert!(of_write(tag(), any()).is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_header_makes_the_parsers_panic(text in "\\PC{0,80}") {
            let _ = (range(&text), entity_tags(&text), copy_range(&text), http_date::parse(&text));
        }
    }
}
