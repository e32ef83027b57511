//! Object tags: as a header on writes, and as a document of their own.

use nigh_data::Tags;
use s3s::dto::{
    DeleteObjectTaggingInput, DeleteObjectTaggingOutput, GetObjectTaggingInput, GetObjectTaggingOutput,
    PutObjectTaggingInput, PutObjectTaggingOutput, Tag,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use crate::error::{invalid_argument, s3_error};
use crate::handlers::{Handlers, bucket_name, object_key};
use crate::query;

/// Collects tags, and refuses two tags with the same key. The object memory checks the rest.
fn unique(tags: impl Iterator<Item = (String, String)>) -> S3Result<Tags> {
    let mut unique = Tags::new();
    for (key, value) in tags {
        if unique.insert(key, value).is_some() {
            return Err(S3Error::with_message(
                S3ErrorCode::InvalidTag,
                "Cannot provide multiple Tags with the same key",
            ));
        }
    }
    Ok(unique)
}

/// The tags of an `x-amz-tagging` header, which is a query string.
pub(crate) fn of_header(header: Option<&str>) -> S3Result<Tags> {
    let header = header.unwrap_or_default();
    let pairs = header.split('&').filter(|pair| !pair.is_empty()).count();
    let read: Vec<_> = query::pairs(header)
        .filter_map(|(key, value)| Some((key.into_owned(), value.decode()?.into_owned())))
        .collect();
    if read.len() != pairs {
        return Err(invalid_argument("The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded"));
    }
    unique(read.into_iter())
}

/// Answers GetObjectTagging.
pub(crate) async fn get(
    handlers: &Handlers,
    request: S3Request<GetObjectTaggingInput>,
) -> S3Result<S3Response<GetObjectTaggingOutput>> {
    let who = handlers.enter(&request)?;
    let (bucket, key) = (bucket_name(&request.input.bucket)?, object_key(&request.input.key)?);
    let tags = handlers.memory().get_tags(&who, &bucket, &key).await.map_err(s3_error)?;
    let tag_set = tags.into_iter().map(|(key, value)| Tag { key: Some(key), value: Some(value) }).collect();
    Ok(S3Response::new(GetObjectTaggingOutput { tag_set, version_id: None }))
}

/// Answers PutObjectTagging.
pub(crate) async fn put(
    handlers: &Handlers,
    request: S3Request<PutObjectTaggingInput>,
) -> S3Result<S3Response<PutObjectTaggingOutput>> {
    let who = handlers.enter_with_document(&request)?;
    let input = request.input;
    let (bucket, key) = (bucket_name(&input.bucket)?, object_key(&input.key)?);
    let tags = input.tagging.tag_set.into_iter();
    let tags = unique(tags.map(|tag| (tag.key.unwrap_or_default(), tag.value.unwrap_or_default())))?;
    handlers.memory().put_tags(&who, &bucket, &key, tags).await.map_err(s3_error)?;
    Ok(S3Response::new(PutObjectTaggingOutput::default()))
}

/// Answers DeleteObjectTagging.
pub(crate) async fn delete(
    handlers: &Handlers,
    request: S3Request<DeleteObjectTaggingInput>,
) -> S3Result<S3Response<DeleteObjectTaggingOutput>> {
    let who = handlers.enter(&request)?;
    let (bucket, key) = (bucket_name(&request.input.bucket)?, object_key(&request.input.key)?);
    handlers.memory().put_tags(&who, &bucket, &key, Tags::new()).await.map_err(s3_error)?;
    Ok(S3Response::new(DeleteObjectTaggingOutput::default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tagging_header_is_a_query_string_with_unique_keys() {
        let tags = of_header(Some("a=1&b=x%20y&c")).unwrap();
        assert_eq!(tags, [("a", "1"), ("b", "x y"), ("c", "")].map(|(k, v)| (k.to_owned(), v.to_owned())).into());
        assert_eq!(of_header(None).unwrap(), Tags::new());
        assert_eq!(of_header(Some("a=1&a=2")).unwrap_err().code().as_str(), "InvalidTag");
        assert_eq!(of_header(Some("a=%FF")).unwrap_err().code().as_str(), "InvalidArgument");
    }
}
