//! Multipart uploads.

use nigh_data::{
    ChecksumAlgorithm, ChecksumType as Covers, CompleteRequest, CompletedPart, ETag, MultipartRequest, PartInfo,
    UploadId, UploadInfo,
};
use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, ChecksumAlgorithm as WireAlgorithm, ChecksumType,
    CommonPrefix, CompleteMultipartUploadInput, CompleteMultipartUploadOutput, CompletedPart as WirePart,
    CopyPartResult, CreateMultipartUploadInput, CreateMultipartUploadOutput, ETag as WireETag, Initiator,
    ListMultipartUploadsInput, ListMultipartUploadsOutput, ListPartsInput, ListPartsOutput, MultipartUpload, Part,
    StorageClass, UploadPartCopyInput, UploadPartCopyOutput, UploadPartInput, UploadPartOutput,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use crate::checksum_headers::{self, fill_checksum, kind, stated_checksum, type_name, wire_name};
use crate::error::{invalid_argument, invalid_request, s3_error, upload_error};
use crate::handlers::{Handlers, bucket_name, check_document, notes, object_key, owner, wire_date};
use crate::listing::{Names, page_size};
use crate::objects::{copy_error, described, source};
use crate::read::{PART_NUMBER_MAX, part_number_error};
use crate::{conditions, payload};

fn part_number(number: i32) -> S3Result<u32> {
    u32::try_from(number).ok().filter(|number| (1..=PART_NUMBER_MAX).contains(number)).ok_or_else(part_number_error)
}

/// What the checksum of an upload covers: what the request asks for, or S3's default for `algorithm` (S3 User Guide,
/// "Checking object integrity"). None without an algorithm. The object memory refuses combinations that S3 does not
/// have.
fn covers(algorithm: Option<ChecksumAlgorithm>, asked: Option<&str>) -> S3Result<Option<Covers>> {
    match (algorithm, asked) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(invalid_request("x-amz-checksum-type needs x-amz-checksum-algorithm")),
        (Some(_), Some(ChecksumType::COMPOSITE)) => Ok(Some(Covers::Composite)),
        (Some(_), Some(ChecksumType::FULL_OBJECT)) | (Some(ChecksumAlgorithm::Crc64Nvme), None) => {
            Ok(Some(Covers::FullObject))
        }
        (Some(_), None) => Ok(Some(Covers::Composite)),
        (Some(_), Some(_)) => Err(invalid_argument("x-amz-checksum-type is COMPOSITE or FULL_OBJECT")),
    }
}

/// Answers CreateMultipartUpload.
pub(crate) async fn create(
    handlers: &Handlers,
    mut request: S3Request<CreateMultipartUploadInput>,
) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
    let who = handlers.enter(&request)?;
    let user = request.input.metadata.take();
    let (attributes, tags) = described(&request, user)?;
    let input = request.input;
    let (bucket, key) = (bucket_name(&input.bucket)?, object_key(&input.key)?);
    let checksum = input
        .checksum_algorithm
        .as_ref()
        .map(|algorithm| checksum_headers::algorithm(algorithm.as_str()))
        .transpose()?;
    let checksum_type = covers(checksum, input.checksum_type.as_ref().map(ChecksumType::as_str))?;
    let upload = handlers
        .memory()
        .create_upload(&who, &bucket, &key, MultipartRequest { attributes, tags, checksum, checksum_type })
        .await
        .map_err(s3_error)?;
    Ok(S3Response::new(CreateMultipartUploadOutput {
        bucket: Some(input.bucket),
        key: Some(input.key),
        upload_id: Some(upload.0),
        checksum_algorithm: checksum.map(|algorithm| WireAlgorithm::from_static(wire_name(algorithm))),
        checksum_type: checksum_type.map(|covers| ChecksumType::from_static(type_name(covers))),
        ..CreateMultipartUploadOutput::default()
    }))
}

/// Answers UploadPart.
pub(crate) async fn put_part(
    handlers: &Handlers,
    mut request: S3Request<UploadPartInput>,
) -> S3Result<S3Response<UploadPartOutput>> {
    let who = handlers.enter(&request)?;
    let number = part_number(request.input.part_number)?;
    let (bucket, key) = (bucket_name(&request.input.bucket)?, object_key(&request.input.key)?);
    let upload = UploadId(std::mem::take(&mut request.input.upload_id));
    let md5 = payload::content_md5(&request.headers)?;
    let checksum = checksum_headers::claim(&request.headers, request.trailing_headers.take())?;
    let length = payload::length(request.input.content_length);
    let body = payload::byte_stream(request.input.body.take());
    let part = handlers
        .memory()
        .put_part(&who, &bucket, &key, &upload, number, body, length, md5, checksum)
        .await
        .map_err(|error| upload_error(error, notes(&request).map(AsRef::as_ref)))?;
    let mut output = UploadPartOutput { e_tag: Some(WireETag::Strong(part.etag.0)), ..UploadPartOutput::default() };
    fill_checksum!(output, &part.checksum);
    Ok(S3Response::new(output))
}

/// Answers UploadPartCopy.
pub(crate) async fn copy_part(
    handlers: &Handlers,
    request: S3Request<UploadPartCopyInput>,
) -> S3Result<S3Response<UploadPartCopyOutput>> {
    let who = handlers.enter(&request)?;
    let input = request.input;
    let number = part_number(input.part_number)?;
    let (bucket, key) = (bucket_name(&input.bucket)?, object_key(&input.key)?);
    let (source_bucket, source_key) = source(&input.copy_source)?;
    let range = input.copy_source_range.as_deref().map(conditions::copy_range).transpose()?;
    let conditions = conditions::of_source(
        input.copy_source_if_match,
        input.copy_source_if_none_match,
        input.copy_source_if_modified_since,
        input.copy_source_if_unmodified_since,
    );
    let upload = UploadId(input.upload_id);
    let from = (&source_bucket, &source_key);
    let part = handlers
        .memory()
        .copy_part(&who, &bucket, &key, &upload, number, from, range, conditions)
        .await
        .map_err(copy_error)?;
    let mut result = CopyPartResult {
        e_tag: Some(WireETag::Strong(part.etag.0)),
        last_modified: Some(wire_date(part.modified)),
        ..CopyPartResult::default()
    };
    fill_checksum!(result, &part.checksum);
    Ok(S3Response::new(UploadPartCopyOutput { copy_part_result: Some(result), ..UploadPartCopyOutput::default() }))
}

/// Answers ListParts.
pub(crate) async fn list_parts(
    handlers: &Handlers,
    request: S3Request<ListPartsInput>,
) -> S3Result<S3Response<ListPartsOutput>> {
    let who = handlers.enter(&request)?;
    let input = request.input;
    let (bucket, key) = (bucket_name(&input.bucket)?, object_key(&input.key)?);
    let limit = page_size(input.max_parts, "max-parts")?;
    let after = u32::try_from(input.part_number_marker.unwrap_or_default())
        .map_err(|_| invalid_argument("part-number-marker must not be negative"))?;
    let upload = UploadId(input.upload_id);
    let (parts, more) =
        handlers.memory().list_parts(&who, &bucket, &key, &upload, after, limit).await.map_err(s3_error)?;
    // Only the list of uploads has the checksum settings with which the upload was begun.
    let uploads = handlers.memory().list_uploads(&who, &bucket, key.as_str()).await.map_err(s3_error)?;
    let begun = uploads.into_iter().find(|begun| begun.upload == upload);
    let checksum = begun.as_ref().and_then(|begun| begun.checksum);
    let covers = begun.as_ref().and_then(|begun| begun.checksum_type);
    let owner = owner(&who.namespace);
    Ok(S3Response::new(ListPartsOutput {
        bucket: Some(input.bucket),
        key: Some(input.key),
        upload_id: Some(upload.0),
        part_number_marker: Some(after as i32),
        next_part_number_marker: parts.last().map(|part| part.number as i32),
        max_parts: Some(limit as i32),
        is_truncated: Some(more),
        initiator: Some(Initiator { display_name: owner.display_name.clone(), id: owner.id.clone() }),
        owner: Some(owner),
        storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
        checksum_algorithm: checksum.map(|algorithm| WireAlgorithm::from_static(wire_name(algorithm))),
        checksum_type: covers.map(|covers| ChecksumType::from_static(type_name(covers))),
        parts: Some(parts.into_iter().map(part_document).collect()),
        ..ListPartsOutput::default()
    }))
}

fn part_document(part: PartInfo) -> Part {
    let mut document = Part {
        e_tag: Some(WireETag::Strong(part.etag.0)),
        last_modified: Some(wire_date(part.modified)),
        part_number: Some(part.number as i32),
        size: Some(i64::try_from(part.size).unwrap_or(i64::MAX)),
        ..Part::default()
    };
    fill_checksum!(document, &part.checksum);
    document
}

/// One entry of a list of uploads.
#[derive(Debug, PartialEq, Eq)]
enum Entry {
    Upload(UploadInfo),
    Prefix(String),
}

/// Returns the entries after the markers, `limit` at most, with common prefixes rolled up, and true if there are more
/// entries. Pure.
fn page(
    uploads: Vec<UploadInfo>,
    prefix: &str,
    delimiter: Option<&str>,
    key_marker: &str,
    upload_marker: Option<&str>,
    limit: usize,
) -> (Vec<Entry>, bool) {
    // The API orders uploads by key and then by the time at which they began; the object memory gives them in this
    // order. An upload marker that no longer exists, or that has no key marker, is ignored.
    let mut passed_marker = upload_marker.is_none_or(|marker| {
        !uploads.iter().any(|upload| upload.key.as_str() == key_marker && upload.upload.0 == marker)
    });
    let only_behind_key = passed_marker;
    let mut entries = Vec::new();
    for upload in uploads {
        let key = upload.key.as_str();
        let behind = match key.cmp(key_marker) {
            std::cmp::Ordering::Greater => true,
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Equal if only_behind_key => key_marker.is_empty(),
            std::cmp::Ordering::Equal => {
                let behind = passed_marker;
                passed_marker |= upload_marker == Some(upload.upload.0.as_str());
                behind
            }
        };
        if !behind {
            continue;
        }
        let common = delimiter.and_then(|delimiter| {
            let rest = key.strip_prefix(prefix)?;
            let end = rest.find(delimiter)? + delimiter.len();
            Some(format!("{prefix}{}", &rest[..end]))
        });
        let entry = match common {
            Some(common) if common.as_str() <= key_marker => continue,
            Some(common) => Entry::Prefix(common),
            None => Entry::Upload(upload),
        };
        if entries.last() == Some(&entry) {
            continue;
        }
        if entries.len() == limit {
            return (entries, true);
        }
        entries.push(entry);
    }
    (entries, false)
}

/// Answers ListMultipartUploads.
pub(crate) async fn list(
    handlers: &Handlers,
    request: S3Request<ListMultipartUploadsInput>,
) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
    let who = handlers.enter(&request)?;
    let input = request.input;
    let bucket = bucket_name(&input.bucket)?;
    let names = Names::of(input.encoding_type.as_ref())?;
    let limit = page_size(input.max_uploads, "max-uploads")?;
    let prefix = input.prefix.as_deref().unwrap_or_default();
    let delimiter = input.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty());
    let key_marker = input.key_marker.as_deref().unwrap_or_default();
    let found = handlers.memory().list_uploads(&who, &bucket, prefix).await.map_err(s3_error)?;
    let (entries, more) = page(found, prefix, delimiter, key_marker, input.upload_id_marker.as_deref(), limit);
    let owner = owner(&who.namespace);
    let (next_key, next_upload) = match entries.last().filter(|_| more) {
        None => (None, None),
        Some(Entry::Upload(upload)) => (Some(names.write(upload.key.as_str())), Some(upload.upload.0.clone())),
        Some(Entry::Prefix(common)) => (Some(names.write(common)), None),
    };
    let (mut uploads, mut prefixes) = (Vec::new(), Vec::new());
    for entry in entries {
        match entry {
            Entry::Prefix(common) => prefixes.push(CommonPrefix { prefix: Some(names.write(&common)) }),
            Entry::Upload(upload) => uploads.push(MultipartUpload {
                checksum_algorithm: upload.checksum.map(|checksum| WireAlgorithm::from_static(wire_name(checksum))),
                checksum_type: upload.checksum_type.map(|covers| ChecksumType::from_static(type_name(covers))),
                initiated: Some(wire_date(upload.initiated)),
                initiator: Some(Initiator { display_name: owner.display_name.clone(), id: owner.id.clone() }),
                key: Some(names.write(upload.key.as_str())),
                owner: Some(owner.clone()),
                storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
                upload_id: Some(upload.upload.0),
            }),
        }
    }
    Ok(S3Response::new(ListMultipartUploadsOutput {
        bucket: Some(input.bucket),
        common_prefixes: Some(prefixes),
        delimiter: names.write_some(delimiter),
        encoding_type: input.encoding_type,
        is_truncated: Some(more),
        key_marker: names.write_some(input.key_marker.as_deref()),
        max_uploads: Some(limit as i32),
        next_key_marker: next_key,
        next_upload_id_marker: next_upload,
        prefix: names.write_some(input.prefix.as_deref()),
        request_charged: None,
        upload_id_marker: input.upload_id_marker,
        uploads: Some(uploads),
    }))
}

/// The parts that a completion lists, in the given order.
fn completed_parts(parts: &[WirePart]) -> S3Result<Vec<CompletedPart>> {
    let malformed = || {
        S3Error::with_message(
            S3ErrorCode::MalformedXML,
            "CompleteMultipartUpload names 1 to 10000 parts, each with its number and entity tag",
        )
    };
    if !(1..=PART_NUMBER_MAX as usize).contains(&parts.len()) {
        return Err(malformed());
    }
    parts
        .iter()
        .map(|part| {
            let number = part_number(part.part_number.ok_or_else(malformed)?)?;
            let etag = ETag(part.e_tag.as_ref().ok_or_else(malformed)?.value().to_owned());
            Ok(CompletedPart { number, etag, checksum: stated_checksum!(part)? })
        })
        .collect()
}

/// Answers CompleteMultipartUpload.
pub(crate) async fn complete(
    handlers: &Handlers,
    request: S3Request<CompleteMultipartUploadInput>,
) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
    let who = handlers.enter(&request)?;
    // A checksum in the headers is that of the object; the object memory compares it with the checksums of the parts.
    check_document(&request, None)?;
    let input = request.input;
    let (bucket, key) = (bucket_name(&input.bucket)?, object_key(&input.key)?);
    let checksum = stated_checksum!(input)?;
    let stated = input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
    let size = input.mpu_object_size.map(u64::try_from).transpose();
    let completion = CompleteRequest {
        parts: completed_parts(&stated)?,
        conditions: conditions::of_write(input.if_match, input.if_none_match)?,
        checksum,
        size: size.map_err(|_| invalid_argument("x-amz-mp-object-size must not be negative"))?,
    };
    let upload = UploadId(input.upload_id);
    let done = handlers.memory().complete_upload(&who, &bucket, &key, &upload, completion).await.map_err(s3_error)?;
    let mut output = CompleteMultipartUploadOutput {
        bucket: Some(input.bucket),
        location: Some(format!("/{bucket}/{}", Names::Encoded.write(key.as_str()))),
        key: Some(input.key),
        e_tag: Some(WireETag::Strong(done.etag.0)),
        ..CompleteMultipartUploadOutput::default()
    };
    output.checksum_type = done.checksum.as_ref().map(|checksum| ChecksumType::from_static(kind(checksum)));
    fill_checksum!(output, &done.checksum);
    Ok(S3Response::new(output))
}

/// Answers AbortMultipartUpload.
pub(crate) async fn abort(
    handlers: &Handlers,
    request: S3Request<AbortMultipartUploadInput>,
) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
    let who = handlers.enter(&request)?;
    let input = request.input;
    let (bucket, key) = (bucket_name(&input.bucket)?, object_key(&input.key)?);
    handlers.memory().abort_upload(&who, &bucket, &key, &UploadId(input.upload_id)).await.map_err(s3_error)?;
    Ok(S3Response::new(AbortMultipartUploadOutput::default()))
}

#[cfg(test)]
mod tests;
