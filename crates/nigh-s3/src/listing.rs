//! ListObjectsV2 and ListObjects, which list a bucket page by page.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use nigh_data::{ListPage, ListRequest};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::dto::{
    CommonPrefix, ETag, EncodingType, ListObjectsInput, ListObjectsOutput, ListObjectsV2Input, ListObjectsV2Output,
    Object, ObjectStorageClass, Owner,
};
use s3s::{S3Request, S3Response, S3Result};

use crate::error::{invalid_argument, s3_error};
use crate::handlers::{Handlers, bucket_name, owner, wire_date};

/// The most entries of a page: S3's limit and default.
pub(crate) const PAGE_MAX: usize = 1000;
/// The longest continuation token, in characters. Nigh's tokens hold one key and are never longer.
const TOKEN_MAX: usize = 2048;

/// The characters that `encoding-type=url` leaves unencoded.
const URL_SAFE: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/').remove(b'*');

/// The continuation token of a list that continues after `key`.
pub(crate) fn encode_token(key: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(key)
}

/// The key after which a list with `token` continues.
pub(crate) fn decode_token(token: &str) -> S3Result<String> {
    let decoded = if token.len() <= TOKEN_MAX { BASE64_URL_SAFE_NO_PAD.decode(token).ok() } else { None };
    decoded
        .and_then(|key| String::from_utf8(key).ok())
        .ok_or_else(|| invalid_argument("The continuation token provided is incorrect"))
}

/// The most entries that a page may have: `asked` or S3's limit, whichever is smaller. `name` is the parameter's name
/// for the error.
pub(crate) fn page_size(asked: Option<i32>, name: &str) -> S3Result<usize> {
    match asked {
        None => Ok(PAGE_MAX),
        Some(asked) => usize::try_from(asked)
            .map(|asked| asked.min(PAGE_MAX))
            .map_err(|_| invalid_argument(format!("Argument {name} must be an integer between 0 and 2147483647"))),
    }
}

/// Whether names in a document are encoded.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Names {
    /// Names are written as they are.
    Plain,
    /// Names are percent-encoded as in a URL, because XML cannot express all characters.
    Encoded,
}

impl Names {
    /// The encoding that `encoding-type` asks for.
    pub(crate) fn of(encoding: Option<&EncodingType>) -> S3Result<Self> {
        match encoding.map(EncodingType::as_str) {
            None => Ok(Self::Plain),
            Some(EncodingType::URL) => Ok(Self::Encoded),
            Some(_) => Err(invalid_argument("Invalid Encoding Method specified in Request")),
        }
    }

    /// `name` as it must be written.
    pub(crate) fn write(self, name: &str) -> String {
        match self {
            Self::Plain => name.to_owned(),
            Self::Encoded => utf8_percent_encode(name, URL_SAFE).to_string(),
        }
    }

    /// `name` as it must be written. None if there is no name.
    pub(crate) fn write_some(self, name: Option<&str>) -> Option<String> {
        name.map(|name| self.write(name))
    }
}

/// The objects and common prefixes of a page, in the form that documents use.
fn entries(page: &ListPage, names: Names, owner: Option<&Owner>) -> (Vec<Object>, Vec<CommonPrefix>) {
    let objects = page
        .objects
        .iter()
        .map(|object| Object {
            e_tag: Some(ETag::Strong(object.etag.0.clone())),
            key: Some(names.write(object.key.as_str())),
            last_modified: Some(wire_date(object.modified)),
            owner: owner.cloned(),
            size: Some(i64::try_from(object.size).unwrap_or(i64::MAX)),
            storage_class: Some(ObjectStorageClass::from_static(ObjectStorageClass::STANDARD)),
            ..Object::default()
        })
        .collect();
    let prefixes =
        page.common_prefixes.iter().map(|prefix| CommonPrefix { prefix: Some(names.write(prefix)) }).collect();
    (objects, prefixes)
}

fn not_empty<T>(entries: Vec<T>) -> Option<Vec<T>> {
    Some(entries).filter(|entries| !entries.is_empty())
}

/// Answers ListObjectsV2.
pub(crate) async fn v2(
    handlers: &Handlers,
    request: S3Request<ListObjectsV2Input>,
) -> S3Result<S3Response<ListObjectsV2Output>> {
    let who = handlers.enter(&request)?;
    let input = request.input;
    let bucket = bucket_name(&input.bucket)?;
    let names = Names::of(input.encoding_type.as_ref())?;
    let limit = page_size(input.max_keys, "maxKeys")?;
    let after = match input.continuation_token.as_deref() {
        Some(token) => Some(decode_token(token)?),
        None => input.start_after.clone().filter(|after| !after.is_empty()),
    };
    let delimiter = input.delimiter.filter(|delimiter| !delimiter.is_empty());
    let wanted = ListRequest {
        prefix: input.prefix.clone().unwrap_or_default(),
        delimiter: delimiter.clone(),
        start_after: after,
        limit,
    };
    let page = page(handlers, &who, &bucket, wanted).await?;
    let owner = input.fetch_owner.unwrap_or_default().then(|| owner(&who.namespace));
    let (objects, prefixes) = entries(&page, names, owner.as_ref());
    Ok(S3Response::new(ListObjectsV2Output {
        name: Some(input.bucket),
        prefix: Some(names.write(input.prefix.as_deref().unwrap_or_default())),
        max_keys: Some(limit as i32),
        key_count: Some((objects.len() + prefixes.len()) as i32),
        continuation_token: input.continuation_token,
        is_truncated: Some(page.next.is_some()),
        next_continuation_token: page.next.as_deref().map(encode_token),
        contents: not_empty(objects),
        common_prefixes: not_empty(prefixes),
        delimiter: names.write_some(delimiter.as_deref()),
        encoding_type: input.encoding_type,
        start_after: names.write_some(input.start_after.as_deref()),
        request_charged: None,
    }))
}

/// Answers ListObjects. Its markers are keys, and are encoded as keys are.
pub(crate) async fn v1(
    handlers: &Handlers,
    request: S3Request<ListObjectsInput>,
) -> S3Result<S3Response<ListObjectsOutput>> {
    let who = handlers.enter(&request)?;
    let input = request.input;
    let bucket = bucket_name(&input.bucket)?;
    let names = Names::of(input.encoding_type.as_ref())?;
    let limit = page_size(input.max_keys, "maxKeys")?;
    let delimiter = input.delimiter.filter(|delimiter| !delimiter.is_empty());
    let wanted = ListRequest {
        prefix: input.prefix.clone().unwrap_or_default(),
        delimiter: delimiter.clone(),
        start_after: input.marker.clone().filter(|marker| !marker.is_empty()),
        limit,
    };
    let page = page(handlers, &who, &bucket, wanted).await?;
    let (objects, prefixes) = entries(&page, names, Some(&owner(&who.namespace)));
    // S3 gives the next marker only if the request has a delimiter; otherwise the next marker is the last key.
    let next_marker = page.next.as_deref().filter(|_| delimiter.is_some());
    Ok(S3Response::new(ListObjectsOutput {
        name: Some(input.bucket),
        prefix: Some(names.write(input.prefix.as_deref().unwrap_or_default())),
        marker: Some(names.write(input.marker.as_deref().unwrap_or_default())),
        max_keys: Some(limit as i32),
        is_truncated: Some(page.next.is_some()),
        contents: not_empty(objects),
        common_prefixes: not_empty(prefixes),
        delimiter: names.write_some(delimiter.as_deref()),
        next_marker: names.write_some(next_marker),
        encoding_type: input.encoding_type,
        request_charged: None,
    }))
}

async fn page(
    handlers: &Handlers,
    who: &nigh_terms::Principal,
    bucket: &nigh_terms::BucketName,
    wanted: ListRequest,
) -> S3Result<ListPage> {
    if wanted.limit == 0 {
        // An empty page must still report a missing bucket.
        handlers.memory().head_bucket(who, bucket).await.map_err(s3_error)?;
        return Ok(ListPage::default());
    }
    handlers.memory().list(who, bucket, wanted).await.map_err(s3_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_opaque_and_reads_back() {
        for key in ["", "a/b c", "ü\u{0}日本"] {
            let token = encode_token(key);
            assert_eq!(decode_token(&token).unwrap(), key);
        }
        assert!(!encode_token("plain").contains("plain"));
        for bad in ["!", "_w", &"A".repeat(4000)] {
            assert_eq!(decode_token(bad).unwrap_err().code().as_str(), "InvalidArgument", "{bad}");
        }
    }

    #[test]
    fn a_page_has_at_most_a_thousand_entries() {
        assert_eq!(page_size(None, "maxKeys").unwrap(), 1000);
        assert_eq!(page_size(Some(0), "maxKeys").unwrap(), 0);
        assert_eq!(page_size(Some(5000), "maxKeys").unwrap(), 1000);
        assert!(page_size(Some(-1), "maxKeys").is_err());
    }

    #[test]
    fn encoded_names_can_be_read_as_urls_and_as_forms() {
        assert_eq!(Names::Encoded.write("a/b c+ü&\u{1}"), "a/b%20c%2B%C3%BC%26%01");
        assert_eq!(Names::Plain.write("a b"), "a b");
        assert!(Names::of(Some(&EncodingType::from_static("base64"))).is_err());
    }
}
