//! Operations that write or remove objects, and GetObjectAttributes. Reads of their bytes are in `read`.

use futures::StreamExt;
use http::HeaderName;
use nigh_data::{Attributes, CopyRequest, Direction, ETag, GetRequest, ObjectError, PutRequest, Tags, WriteConditions};
use nigh_engine::RequestId;
use nigh_terms::Principal;
use s3s::dto::{
    Checksum as ChecksumDocument, ChecksumType, CopyObjectInput, CopyObjectOutput, CopyObjectResult, CopySource,
    DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput, DeleteObjectsOutput, DeletedObject, ETag as WireETag,
    Error as DeleteError, GetObjectAttributesInput, GetObjectAttributesOutput, GetObjectAttributesParts,
    MetadataDirective, ObjectAttributes, ObjectIdentifier, ObjectPart, PutObjectInput, PutObjectOutput, StorageClass,
    TaggingDirective,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use crate::checksum_headers::{self, fill_checksum, kind};
use crate::error::{invalid_argument, invalid_request, not_implemented, s3_error, upload_error};
use crate::handlers::{Handlers, bucket_name, notes, object_key, wire_date};
use crate::listing::page_size;
use crate::transaction_header::transaction_of;
use crate::{conditions, metadata, payload, repeated, tagging};

/// The most objects of one DeleteObjects request (API reference).
const DELETE_MAX: usize = 1000;
/// The most objects of one DeleteObjects request that are removed at a time; each removal waits for a disk.
const DELETES_AT_ONCE: usize = 16;

static TAGGING: HeaderName = HeaderName::from_static("x-amz-tagging");

/// The attributes and tags that a writer gives an object in the request's headers.
pub(crate) fn described<T>(request: &S3Request<T>, user: Option<s3s::dto::Metadata>) -> S3Result<(Attributes, Tags)> {
    let tags = tagging::of_header(request.headers.get(&TAGGING).map(|value| value.to_str().unwrap_or_default()))?;
    Ok((metadata::attributes(&request.headers, user), tags))
}

/// Answers PutObject.
pub(crate) async fn put(
    handlers: &Handlers,
    mut request: S3Request<PutObjectInput>,
) -> S3Result<S3Response<PutObjectOutput>> {
    let who = handlers.enter(&request)?;
    let (bucket, key) = (bucket_name(&request.input.bucket)?, object_key(&request.input.key)?);
    let user = request.input.metadata.take();
    let (attributes, tags) = described(&request, user)?;
    let put = PutRequest {
        attributes,
        tags,
        conditions: conditions::of_write(request.input.if_match.take(), request.input.if_none_match.take())?,
        length: payload::length(request.input.content_length),
        md5: payload::content_md5(&request.headers)?,
        checksum: checksum_headers::claim(&request.headers, request.trailing_headers.take())?,
        body: payload::byte_stream(request.input.body.take()),
        request: repeated::request(&request.headers),
    };
    let memory = handlers.memory();
    let done = match transaction_of(&request.headers)? {
        None => memory.put(&who, &bucket, &key, put).await,
        Some(name) => memory.put_in(name, &who, &bucket, &key, put).await,
    };
    let done = done.map_err(|error| upload_error(error, notes(&request).map(AsRef::as_ref)))?;
    let mut output = PutObjectOutput { e_tag: Some(WireETag::Strong(done.etag.0)), ..PutObjectOutput::default() };
    output.checksum_type = done.checksum.as_ref().map(|checksum| ChecksumType::from_static(kind(checksum)));
    fill_checksum!(output, &done.checksum);
    Ok(S3Response::new(output))
}

/// The source of a copy.
pub(crate) fn source(source: &CopySource) -> S3Result<(nigh_terms::BucketName, nigh_terms::ObjectKey)> {
    match source {
        CopySource::Bucket { bucket, key, version_id: None } => Ok((bucket_name(bucket)?, object_key(key)?)),
        CopySource::Bucket { bucket, key, version_id: Some(version) } if version.as_ref() == "null" => {
            Ok((bucket_name(bucket)?, object_key(key)?))
        }
        CopySource::Bucket { .. } => Err(not_implemented("a version of a copy's source")),
        _ => Err(not_implemented("an access point as a copy's source")),
    }
}

/// The S3 error of a copy that failed. If the source's condition would be answered with 304 on a read, a copy fails
/// with 412.
pub(crate) fn copy_error(error: ObjectError) -> S3Error {
    match error {
        ObjectError::NotModified { .. } => {
            s3_error(ObjectError::PreconditionFailed("x-amz-copy-source-if-none-match or -if-modified-since"))
        }
        other => s3_error(other),
    }
}

fn direction(given: Option<&str>, name: &str) -> S3Result<Direction> {
    match given {
        None | Some("COPY") => Ok(Direction::Copy),
        Some("REPLACE") => Ok(Direction::Replace),
        Some(_) => Err(invalid_argument(format!("Unknown {name} directive"))),
    }
}

/// Answers CopyObject.
pub(crate) async fn copy(
    handlers: &Handlers,
    mut request: S3Request<CopyObjectInput>,
) -> S3Result<S3Response<CopyObjectOutput>> {
    let who = handlers.enter(&request)?;
    let name = repeated::request(&request.headers);
    let user = request.input.metadata.take();
    let (attributes, tags) = described(&request, user)?;
    // `s3s` has no fields for a copy's conditions on its target; S3 has them since 2025.
    let target_condition = |name: HeaderName| {
        conditions::text(&request.headers, &name)
            .map(|value| value.parse().map_err(|_| invalid_argument(format!("{name} is no entity tag"))))
            .transpose()
    };
    let write_conditions = conditions::of_write(
        target_condition(http::header::IF_MATCH)?,
        target_condition(http::header::IF_NONE_MATCH)?,
    )?;
    let input = request.input;
    let (bucket, key) = (bucket_name(&input.bucket)?, object_key(&input.key)?);
    let (source_bucket, source_key) = source(&input.copy_source)?;
    let attributes_from = direction(input.metadata_directive.as_ref().map(MetadataDirective::as_str), "metadata")?;
    let tags_from = direction(input.tagging_directive.as_ref().map(TaggingDirective::as_str), "tagging")?;
    if (&source_bucket, &source_key) == (&bucket, &key) && attributes_from == Direction::Copy {
        return Err(invalid_request(
            "This copy request is illegal because it is trying to copy an object to itself without changing the \
             object's metadata, storage class, website redirect location or encryption attributes.",
        ));
    }
    let checksum = input
        .checksum_algorithm
        .as_ref()
        .map(|algorithm| checksum_headers::algorithm(algorithm.as_str()))
        .transpose()?;
    let copy = CopyRequest {
        source_bucket,
        source_key,
        source_conditions: conditions::of_source(
            input.copy_source_if_match,
            input.copy_source_if_none_match,
            input.copy_source_if_modified_since,
            input.copy_source_if_unmodified_since,
        ),
        conditions: write_conditions,
        attributes_from,
        attributes,
        tags_from,
        tags,
        checksum,
        request: name,
    };
    let copied = handlers.memory().copy(&who, &bucket, &key, copy).await.map_err(copy_error)?;
    let mut result = CopyObjectResult {
        e_tag: Some(WireETag::Strong(copied.done.etag.0)),
        last_modified: Some(wire_date(copied.done.modified)),
        ..CopyObjectResult::default()
    };
    result.checksum_type = copied.done.checksum.as_ref().map(|checksum| ChecksumType::from_static(kind(checksum)));
    fill_checksum!(result, &copied.done.checksum);
    Ok(S3Response::new(CopyObjectOutput { copy_object_result: Some(result), ..CopyObjectOutput::default() }))
}

/// Answers DeleteObject.
pub(crate) async fn delete(
    handlers: &Handlers,
    request: S3Request<DeleteObjectInput>,
) -> S3Result<S3Response<DeleteObjectOutput>> {
    let who = handlers.enter(&request)?;
    let name = repeated::request(&request.headers);
    let transaction = transaction_of(&request.headers)?;
    let input = request.input;
    let (bucket, key) = (bucket_name(&input.bucket)?, object_key(&input.key)?);
    let conditions = conditions::of_write(input.if_match, None)?;
    let memory = handlers.memory();
    let deleted = match transaction {
        None => memory.delete(&who, &bucket, &key, conditions, name).await,
        Some(transaction) => memory.delete_in(transaction, &who, &bucket, &key, conditions).await,
    };
    deleted.map_err(s3_error)?;
    Ok(S3Response::new(DeleteObjectOutput::default()))
}

/// Answers DeleteObjects: each object has its own result.
pub(crate) async fn delete_many(
    handlers: &Handlers,
    request: S3Request<DeleteObjectsInput>,
) -> S3Result<S3Response<DeleteObjectsOutput>> {
    let who = handlers.enter_with_document(&request)?;
    let name = repeated::request(&request.headers);
    let input = request.input;
    let bucket = bucket_name(&input.bucket)?;
    if !(1..=DELETE_MAX).contains(&input.delete.objects.len()) {
        return Err(S3Error::with_message(
            S3ErrorCode::MalformedXML,
            format!("DeleteObjects names 1 to {DELETE_MAX} objects"),
        ));
    }
    handlers.memory().head_bucket(&who, &bucket).await.map_err(s3_error)?;
    let removals: Vec<_> =
        input.delete.objects.into_iter().map(|object| delete_one(handlers, &who, &bucket, object, name)).collect();
    let outcomes: Vec<_> = futures::stream::iter(removals).buffered(DELETES_AT_ONCE).collect().await;
    let quiet = input.delete.quiet.unwrap_or_default();
    let (mut deleted, mut errors) = (Vec::new(), Vec::new());
    for (key, outcome) in outcomes {
        match outcome {
            Ok(()) if quiet => {}
            Ok(()) => deleted.push(DeletedObject { key: Some(key), ..DeletedObject::default() }),
            Err(error) => errors.push(DeleteError {
                code: Some(error.code().as_str().to_owned()),
                key: Some(key),
                message: error.message().map(str::to_owned),
                version_id: None,
            }),
        }
    }
    Ok(S3Response::new(DeleteObjectsOutput { deleted: Some(deleted), errors: Some(errors), request_charged: None }))
}

async fn delete_one(
    handlers: &Handlers,
    who: &Principal,
    bucket: &nigh_terms::BucketName,
    object: ObjectIdentifier,
    name: Option<RequestId>,
) -> (String, S3Result<()>) {
    let outcome = async {
        if object.version_id.as_deref().is_some_and(|version| version != "null") {
            return Err(not_implemented("a version of an object"));
        }
        if object.size.is_some() || object.last_modified_time.is_some() {
            return Err(not_implemented("a condition on size or date of a deletion"));
        }
        let key = object_key(&object.key)?;
        let if_match = object.e_tag.map(|tag| ETag(tag.into_value()));
        let conditions = WriteConditions { if_match, if_absent: false };
        handlers.memory().delete(who, bucket, &key, conditions, name).await.map_err(s3_error)
    }
    .await;
    (object.key, outcome)
}

/// Answers GetObjectAttributes.
pub(crate) async fn attributes(
    handlers: &Handlers,
    request: S3Request<GetObjectAttributesInput>,
) -> S3Result<S3Response<GetObjectAttributesOutput>> {
    let who = handlers.enter(&request)?;
    let input = request.input;
    let (bucket, key) = (bucket_name(&input.bucket)?, object_key(&input.key)?);
    let meta = handlers.memory().head(&who, &bucket, &key, GetRequest::default()).await.map_err(s3_error)?;
    // One header may list several attributes, and `s3s` does not split the list.
    let asked: Vec<_> = input.object_attributes.iter().flat_map(|list| list.as_str().split(',')).collect();
    let asks = |attribute: &str| asked.iter().any(|asked| asked.trim() == attribute);
    let mut output = GetObjectAttributesOutput { last_modified: Some(wire_date(meta.modified)), ..Default::default() };
    if asks(ObjectAttributes::ETAG) {
        output.e_tag = Some(WireETag::Strong(meta.etag.0.clone()));
    }
    if asks(ObjectAttributes::OBJECT_SIZE) {
        output.object_size = Some(i64::try_from(meta.size).unwrap_or(i64::MAX));
    }
    if asks(ObjectAttributes::STORAGE_CLASS) {
        output.storage_class = Some(StorageClass::from_static(StorageClass::STANDARD));
    }
    if asks(ObjectAttributes::CHECKSUM) && !meta.checksums.is_empty() {
        let mut document = ChecksumDocument::default();
        for checksum in &meta.checksums {
            document.checksum_type = Some(ChecksumType::from_static(kind(checksum)));
            fill_checksum!(document, Some(checksum));
        }
        output.checksum = Some(document);
    }
    if asks(ObjectAttributes::OBJECT_PARTS) && !meta.parts.is_empty() {
        let limit = page_size(input.max_parts, "max-parts")?;
        let after = usize::try_from(input.part_number_marker.unwrap_or_default())
            .map_err(|_| invalid_argument("part-number-marker must not be negative"))?;
        let numbered = meta.parts.iter().zip(1i32..).skip(after).take(limit);
        let parts: Vec<_> = numbered
            .map(|(&size, number)| {
                let mut part = ObjectPart {
                    part_number: Some(number),
                    size: Some(i64::try_from(size).unwrap_or(i64::MAX)),
                    ..ObjectPart::default()
                };
                fill_checksum!(part, meta.checksums.first().and_then(|checksum| checksum.part(number.cast_unsigned())));
                part
            })
            .collect();
        let last = parts.last().and_then(|part| part.part_number);
        output.object_parts = Some(GetObjectAttributesParts {
            is_truncated: Some(after + parts.len() < meta.parts.len()),
            max_parts: Some(limit as i32),
            next_part_number_marker: last,
            part_number_marker: input.part_number_marker,
            parts: Some(parts),
            total_parts_count: Some(meta.parts.len() as i32),
        });
    }
    Ok(S3Response::new(output))
}
