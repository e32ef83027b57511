//! Parses Swift's JSON lists of containers and objects. Pure.

use nigh_data::{BucketInfo, ETag, ListedObject};
use nigh_terms::{BucketName, ObjectKey, Timestamp};
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::content_type::tag_of;

#[derive(Deserialize)]
struct Container {
    name: String,
    #[serde(default)]
    last_modified: String,
}

#[derive(Deserialize)]
struct Entry {
    name: String,
    #[serde(default)]
    bytes: u64,
    #[serde(default)]
    hash: String,
    #[serde(default)]
    last_modified: String,
    #[serde(default)]
    content_type: String,
}

/// The buckets with `prefix` on a page of containers, without the prefix, and the last name of the page, from which the next
/// page continues.
///
/// # Errors
/// If the text is no list of Swift.
pub fn parse_containers(body: &[u8], prefix: &str) -> Result<(Vec<BucketInfo>, Option<String>), String> {
    let mut all: Vec<Container> = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let bucket = |container: &Container| {
        let name = BucketName::new(container.name.strip_prefix(prefix)?).ok()?;
        // A request for one container returns its time in whole seconds, rounded up.
        let created = Timestamp(date(&container.last_modified).0.div_ceil(1000) * 1000);
        Some(BucketInfo { name, created })
    };
    let buckets = all.iter().filter_map(bucket).collect();
    Ok((buckets, all.pop().map(|last| last.name)))
}

/// The objects on a page.
///
/// # Errors
/// If the text is no list of Swift, or has a name that is no key.
pub fn parse_objects(body: &[u8]) -> Result<Vec<ListedObject>, String> {
    let all: Vec<Entry> = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let listed = |entry: Entry| -> Result<ListedObject, String> {
        Ok(ListedObject {
            key: ObjectKey::new(&entry.name).map_err(|error| error.to_string())?,
            size: entry.bytes,
            etag: tag_of(&entry.content_type).unwrap_or(ETag(entry.hash)),
            modified: date(&entry.last_modified),
        })
    };
    all.into_iter().map(listed).collect()
}

/// Parses a time such as `2026-01-31T09:30:00.123450`, in UTC.
fn date(text: &str) -> Timestamp {
    OffsetDateTime::parse(&format!("{text}Z"), &Rfc3339)
        .ok()
        .and_then(|date| u64::try_from(date.unix_timestamp_nanos() / 1_000_000).ok())
        .map_or(Timestamp(0), Timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_read_with_the_tag_that_nigh_gave() {
        let body = r#"[{"name": "a//ü\u0001", "hash": "abc", "bytes": 5, "last_modified": "2024-05-06T07:08:09.010000",
            "content_type": "text/plain"},
            {"name": "z", "hash": "manifest", "bytes": 9, "slo_etag": "\"x\"", "last_modified": "?",
            "content_type": "text/plain; charset=utf-8;nigh-etag=def-2"}]"#;
        let page = parse_objects(body.as_bytes()).unwrap();
        assert_eq!((page[0].key.as_str(), page[0].size, page[0].etag.0.as_str()), ("a//ü\u{1}", 5, "abc"));
        assert_eq!(page[0].modified, Timestamp(1_714_979_289_010));
        assert_eq!((page[1].size, page[1].etag.0.as_str(), page[1].modified), (9, "def-2", Timestamp(0)));
        assert!(parse_objects(b"[]").unwrap().is_empty());
        assert!(parse_objects(b"<html>").is_err());
    }

    #[test]
    fn containers_that_are_no_buckets_are_not_seen() {
        let body = br#"[{"name": "t1-abc", "count": 1, "bytes": 2, "last_modified": "2024-05-06T07:08:09.010000"},
            {"name": "t1-abc+segments"}, {"name": "other"}]"#;
        let (buckets, last) = parse_containers(body, "t1-").unwrap();
        assert_eq!(buckets.len(), 1);
        assert_eq!((buckets[0].name.as_str(), buckets[0].created), ("abc", Timestamp(1_714_979_290_000)));
        assert_eq!(last.as_deref(), Some("other"));
        assert_eq!(parse_containers(b"[]", "").unwrap(), (Vec::new(), None));
    }
}
