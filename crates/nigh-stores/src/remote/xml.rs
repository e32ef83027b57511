//! Parses the XML of an S3 store's answers. Pure.

use nigh_data::{BucketInfo, ETag, ListedObject};
use nigh_terms::{BucketName, ObjectKey, Timestamp};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct ErrorAnswer {
    code: String,
    message: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BucketsAnswer {
    buckets: Buckets,
}

#[derive(Debug, Deserialize)]
struct Buckets {
    #[serde(rename = "Bucket", default)]
    all: Vec<Bucket>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Bucket {
    name: String,
    creation_date: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ListAnswer {
    #[serde(default)]
    is_truncated: bool,
    #[serde(default)]
    encoding_type: Option<String>,
    #[serde(default)]
    contents: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    key: String,
    size: u64,
    #[serde(rename = "ETag", default)]
    etag: String,
    #[serde(default)]
    last_modified: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct UploadAnswer {
    upload_id: String,
}

/// The code and the message of an error document. None if `body` is not an error document.
pub(super) fn parse_error(body: &[u8]) -> Option<(String, String)> {
    let answer: ErrorAnswer = quick_xml::de::from_reader(body).ok()?;
    (!answer.code.is_empty()).then_some((answer.code, answer.message))
}

/// The buckets of the account whose names begin with `prefix`, without the prefix.
pub(super) fn parse_buckets(body: &[u8], prefix: &str) -> Result<Vec<BucketInfo>, String> {
    let answer: BucketsAnswer = quick_xml::de::from_reader(body).map_err(|error| error.to_string())?;
    let of_prefix = |bucket: Bucket| {
        let name = BucketName::new(bucket.name.strip_prefix(prefix)?).ok()?;
        Some(BucketInfo { name, created: date(&bucket.creation_date) })
    };
    Ok(answer.buckets.all.into_iter().filter_map(of_prefix).collect())
}

/// The entries of a page, and whether there are more.
pub(super) fn parse_list(body: &[u8]) -> Result<(Vec<ListedObject>, bool), String> {
    let answer: ListAnswer = quick_xml::de::from_reader(body).map_err(|error| error.to_string())?;
    let encoded = answer.encoding_type.as_deref() == Some("url");
    let listed = |entry: Entry| -> Result<ListedObject, String> {
        let key = if encoded {
            // As in HTML forms, a plus is a blank.
            let blanks = entry.key.replace('+', " ");
            percent_decode_str(&blanks).decode_utf8().map_err(|error| error.to_string())?.into_owned()
        } else {
            entry.key
        };
        Ok(ListedObject {
            key: ObjectKey::new(&key).map_err(|error| error.to_string())?,
            size: entry.size,
            etag: ETag(entry.etag.trim_matches('"').to_owned()),
            modified: date(&entry.last_modified),
        })
    };
    Ok((answer.contents.into_iter().map(listed).collect::<Result<_, _>>()?, answer.is_truncated))
}

/// The id of a new multipart upload.
pub(super) fn parse_upload(body: &[u8]) -> Result<String, String> {
    let answer: UploadAnswer = quick_xml::de::from_reader(body).map_err(|error| error.to_string())?;
    Ok(answer.upload_id)
}

/// The body that completes an upload.
pub(super) fn complete_upload(etags: &[String]) -> String {
    let parts: String = etags
        .iter()
        .enumerate()
        .map(|(index, etag)| {
            let etag = etag.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;");
            format!("<Part><PartNumber>{}</PartNumber><ETag>{etag}</ETag></Part>", index + 1)
        })
        .collect();
    format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>")
}

fn date(text: &str) -> Timestamp {
    OffsetDateTime::parse(text, &Rfc3339)
        .ok()
        .and_then(|date| u64::try_from(date.unix_timestamp_nanos() / 1_000_000).ok())
        .map_or(Timestamp(0), Timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_with_its_encoded_keys() {
        let body = br#"<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
            <Name>b</Name><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>
            <Contents><Key>a+b%2Bc%01/</Key><LastModified>2024-05-06T07:08:09.010Z</LastModified>
            <ETag>&quot;abc&quot;</ETag><Size>5</Size><StorageClass>STANDARD</StorageClass></Contents>
            <Contents><Key>z</Key><LastModified>x</LastModified><ETag>"d"</ETag><Size>0</Size></Contents>
            </ListBucketResult>"#;
        let (page, more) = parse_list(body).unwrap();
        assert!(more);
        assert_eq!((page[0].key.as_str(), page[0].size, page[0].etag.0.as_str()), ("a b+c\u{1}/", 5, "abc"));
        assert_eq!(page[0].modified, Timestamp(1_714_979_289_010));
        assert_eq!((page[1].key.as_str(), page[1].etag.0.as_str()), ("z", "d"));
    }

    #[test]
    fn an_empty_page_is_no_error() {
        let (page, more) =
            parse_list(b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>").unwrap();
        assert_eq!((page.len(), more), (0, false));
    }

    #[test]
    fn buckets_of_other_prefixes_are_not_seen() {
        let body = b"<ListAllMyBucketsResult><Buckets>
            <Bucket><Name>t1-abc</Name><CreationDate>2024-05-06T07:08:09Z</CreationDate></Bucket>
            <Bucket><Name>other</Name><CreationDate>x</CreationDate></Bucket></Buckets></ListAllMyBucketsResult>";
        let buckets = parse_buckets(body, "t1-").unwrap();
        assert_eq!(buckets.iter().map(|bucket| bucket.name.as_str()).collect::<Vec<_>>(), ["abc"]);
        assert!(parse_buckets(b"<ListAllMyBucketsResult><Buckets/></ListAllMyBucketsResult>", "").unwrap().is_empty());
    }

    #[test]
    fn errors_are_told_from_other_answers() {
        let error = b"<Error><Code>NoSuchBucket</Code><Message>It is gone</Message></Error>";
        assert_eq!(parse_error(error), Some(("NoSuchBucket".to_owned(), "It is gone".to_owned())));
        assert_eq!(parse_error(b"<CompleteMultipartUploadResult/>"), None);
        assert_eq!(parse_error(b"<html>"), None);
    }
}
