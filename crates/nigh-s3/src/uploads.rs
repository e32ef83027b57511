//! Multipart uploads.

use nigh_objects::{ChecksumAlgorithm, ETag, MultipartRequest, PartInfo, UploadId, UploadInfo};
use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, ChecksumAlgorithm as WireAlgorithm, ChecksumType,
    CommonPrefix, CompleteMultipartUploadInput, CompleteMultipartUploadOutput, CompletedPart, CopyPartResult,
    CreateMultipartUploadInput, CreateMultipartUploadOutput, ETag as WireETag, Initiator, ListMultipartUploadsInput,
    ListMultipartUploadsOutput, ListPartsInput, ListPartsOutput, MultipartUpload, Part, StorageClass,
    UploadPartCopyInput, UploadPartCopyOutput, UploadPartInput, UploadPartOutput,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use crate::buckets::owner;
use crate::checksum_headers::{self, fill_checksum, kind, stated_checksums, wire_name};
use crate::error::{invalid_argument, invalid_request, not_implemented, s3_error, upload_error};
use crate::handlers::{Handlers, bucket_name, notes, object_key, wire_date};
use crate::listing::{Names, page_size};
use crate::objects::{copy_error, described, source};
use crate::read::{PART_NUMBER_MAX, part_number_error};
use crate::{conditions, payload};

fn part_number(number: i32) -> S3Result<u32> {
    u32::try_from(number).ok().filter(|number| (1..=PART_NUMBER_MAX).contains(number)).ok_or_else(part_number_error)
}

/// What an upload's checksum covers by default (S3 User Guide, "Checking object integrity").
const fn default_kind(algorithm: ChecksumAlgorithm) -> &'static str {
    match algorithm {
        ChecksumAlgorithm::Crc64Nvme => ChecksumType::FULL_OBJECT,
        _ => ChecksumType::COMPOSITE,
    }
}

/// What the checksum of an upload will cover, of what its beginning asks for.
fn checksum_kind(algorithm: Option<ChecksumAlgorithm>, asked: Option<&str>) -> S3Result<Option<&'static str>> {
    let Some(algorithm) = algorithm else {
        return match asked {
            None => Ok(None),
            Some(_) => Err(invalid_request("x-amz-checksum-type needs x-amz-checksum-algorithm")),
        };
    };
    let default = default_kind(algorithm);
    match asked {
        None => Ok(Some(default)),
        Some(asked) if asked == default => Ok(Some(default)),
        Some(ChecksumType::FULL_OBJECT)
            if matches!(algorithm, ChecksumAlgorithm::Crc32 | ChecksumAlgorithm::Crc32c) =>
        {
            Err(not_implemented("a checksum of the full object over parts, but for CRC64NVME,"))
        }
        Some(asked) => Err(invalid_request(format!(
            "The {asked} checksum type cannot be used with the {} checksum algorithm.",
            wire_name(algorithm)
        ))),
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
    let kind = checksum_kind(checksum, input.checksum_type.as_ref().map(ChecksumType::as_str))?;
    let upload = handlers
        .memory()
        .create_upload(&who, &bucket, &key, MultipartRequest { attributes, tags, checksum })
        .await
        .map_err(s3_error)?;
    Ok(S3Response::new(CreateMultipartUploadOutput {
        bucket: Some(input.bucket),
        key: Some(input.key),
        upload_id: Some(upload.0),
        checksum_algorithm: checksum.map(|algorithm| WireAlgorithm::from_static(wire_name(algorithm))),
        checksum_type: kind.map(ChecksumType::from_static),
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
    let checksum = parts.iter().find_map(|part| part.checksum.as_ref()).map(|checksum| checksum.algorithm);
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
        checksum_type: checksum.map(|algorithm| ChecksumType::from_static(default_kind(algorithm))),
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

/// The entries behind the markers, with common prefixes rolled up, at most `limit`; and whether there are more. Pure.
fn page(
    uploads: Vec<UploadInfo>,
    prefix: &str,
    delimiter: Option<&str>,
    key_marker: &str,
    upload_marker: Option<&str>,
    limit: usize,
) -> (Vec<Entry>, bool) {
    // The order of the API: by key, then by the time of their beginning, which the memory gives. An upload marker
    // that is gone, or stands alone, leaves the key marker.
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
                initiated: Some(wire_date(upload.initiated)),
                initiator: Some(Initiator { display_name: owner.display_name.clone(), id: owner.id.clone() }),
                key: Some(names.write(upload.key.as_str())),
                owner: Some(owner.clone()),
                storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
                upload_id: Some(upload.upload.0),
                ..MultipartUpload::default()
            }),
        }
    }
    Ok(S3Response::new(ListMultipartUploadsOutput {
        bucket: Some(input.bucket),
        common_prefixes: Some(prefixes),
        delimiter: names.write_some(input.delimiter.as_deref()),
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

/// The parts that a completion names, in its order.
fn completed_parts(parts: &[CompletedPart]) -> S3Result<Vec<(u32, ETag)>> {
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
            let etag = part.e_tag.as_ref().ok_or_else(malformed)?;
            Ok((number, ETag(etag.value().to_owned())))
        })
        .collect()
}

/// Checks what a completion says of its parts beyond their entity tags: checksums, and the object's size. Pure.
fn check_parts(stated: &[CompletedPart], size: Option<i64>, uploaded: &[PartInfo]) -> S3Result<()> {
    let mut total = 0;
    for part in stated {
        let number = part_number(part.part_number.unwrap_or_default())?;
        let invalid = || s3_error(nigh_objects::ObjectError::InvalidPart(number));
        let place = uploaded.binary_search_by_key(&number, |part| part.number).map_err(|_| invalid())?;
        total += uploaded[place].size;
        for (algorithm, value) in stated_checksums!(part) {
            let kept = uploaded[place].checksum.as_ref();
            if kept.is_none_or(|kept| kept.algorithm != algorithm || kept.value != value) {
                return Err(invalid());
            }
        }
    }
    if size.is_some_and(|size| u64::try_from(size) != Ok(total)) {
        return Err(invalid_request(format!(
            "The provided 'x-amz-mp-object-size' header value does not match what was computed: {total}"
        )));
    }
    Ok(())
}

/// Answers CompleteMultipartUpload.
pub(crate) async fn complete(
    handlers: &Handlers,
    request: S3Request<CompleteMultipartUploadInput>,
) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
    let who = handlers.enter(&request)?;
    let input = request.input;
    let (bucket, key) = (bucket_name(&input.bucket)?, object_key(&input.key)?);
    let upload = UploadId(input.upload_id.clone());
    let stated = input.multipart_upload.as_ref().and_then(|upload| upload.parts.as_deref()).unwrap_or_default();
    let parts = completed_parts(stated)?;
    let conditions = conditions::of_write(input.if_match.clone(), input.if_none_match.clone())?;
    let of_object = stated_checksums!(input).next();
    if of_object.is_some() {
        return Err(not_implemented("a checksum of the whole object at the completion of an upload"));
    }
    let memory = handlers.memory();
    let more_is_said = stated.iter().any(|part| stated_checksums!(part).next().is_some());
    if more_is_said || input.mpu_object_size.is_some() {
        let all = PART_NUMBER_MAX as usize;
        let (uploaded, _) = memory.list_parts(&who, &bucket, &key, &upload, 0, all).await.map_err(s3_error)?;
        check_parts(stated, input.mpu_object_size, &uploaded)?;
    }
    let done = memory.complete_upload(&who, &bucket, &key, &upload, parts, conditions).await.map_err(s3_error)?;
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
mod tests {
    use nigh_objects::Checksum;
    use nigh_terms::{ObjectKey, Timestamp};

    use super::*;

    fn upload(key: &str, id: &str) -> UploadInfo {
        UploadInfo { upload: UploadId(id.into()), key: ObjectKey::new(key).unwrap(), initiated: Timestamp(0) }
    }

    fn names(page: (Vec<Entry>, bool)) -> (Vec<String>, bool) {
        let name = |entry| match entry {
            Entry::Upload(upload) => format!("{}#{}", upload.key, upload.upload.0),
            Entry::Prefix(prefix) => prefix,
        };
        (page.0.into_iter().map(name).collect(), page.1)
    }

    fn all() -> Vec<UploadInfo> {
        vec![upload("a", "1"), upload("a", "2"), upload("b/x", "3"), upload("b/y", "4"), upload("c", "5")]
    }

    #[test]
    fn uploads_are_paged_by_key_and_upload() {
        assert_eq!(names(page(all(), "", None, "", None, 2)), (vec!["a#1".into(), "a#2".into()], true));
        let rest = page(all(), "", None, "a", Some("1"), 10);
        assert_eq!(names(rest).0, ["a#2", "b/x#3", "b/y#4", "c#5"]);
        assert_eq!(names(page(all(), "", None, "a", None, 10)).0, ["b/x#3", "b/y#4", "c#5"]);
    }

    #[test]
    fn uploads_below_a_delimiter_become_one_prefix() {
        assert_eq!(
            names(page(all(), "", Some("/"), "", None, 3)),
            (vec!["a#1".into(), "a#2".into(), "b/".into()], true)
        );
        assert_eq!(names(page(all(), "", Some("/"), "b/", None, 3)), (vec!["c#5".into()], false));
        assert_eq!(names(page(all()[2..4].to_vec(), "b/", Some("/"), "", None, 9)).0, ["b/x#3", "b/y#4"]);
    }

    #[test]
    fn a_checksum_type_is_the_algorithm_s_own_or_refused() {
        use ChecksumAlgorithm::{Crc32, Crc64Nvme, Sha1};
        assert_eq!(checksum_kind(Some(Crc32), None).unwrap(), Some("COMPOSITE"));
        assert_eq!(checksum_kind(Some(Crc64Nvme), Some("FULL_OBJECT")).unwrap(), Some("FULL_OBJECT"));
        assert_eq!(checksum_kind(None, None).unwrap(), None);
        for (algorithm, asked, code) in [
            (Some(Crc32), "FULL_OBJECT", "NotImplemented"),
            (Some(Sha1), "FULL_OBJECT", "InvalidRequest"),
            (Some(Crc64Nvme), "COMPOSITE", "InvalidRequest"),
            (None, "COMPOSITE", "InvalidRequest"),
        ] {
            assert_eq!(checksum_kind(algorithm, Some(asked)).unwrap_err().code().as_str(), code);
        }
    }

    #[test]
    fn what_a_completion_says_of_its_parts_is_checked() {
        let checksum = Checksum { algorithm: ChecksumAlgorithm::Crc32, value: "AAAAAA==".into() };
        let uploaded =
            [PartInfo { number: 2, size: 7, etag: ETag("e".into()), modified: Timestamp(0), checksum: Some(checksum) }];
        let part = |number, crc32: Option<&str>| CompletedPart {
            part_number: Some(number),
            checksum_crc32: crc32.map(str::to_owned),
            ..CompletedPart::default()
        };
        assert!(check_parts(&[part(2, Some("AAAAAA=="))], Some(7), &uploaded).is_ok());
        assert!(check_parts(&[part(2, None)], None, &uploaded).is_ok());
        let code = |outcome: S3Result<()>| outcome.unwrap_err().code().as_str().to_owned();
        assert_eq!(code(check_parts(&[part(2, Some("BBBBBB=="))], None, &uploaded)), "InvalidPart");
        assert_eq!(code(check_parts(&[part(3, None)], None, &uploaded)), "InvalidPart");
        assert_eq!(code(check_parts(&[part(2, None)], Some(8), &uploaded)), "InvalidRequest");
        assert_eq!(code(completed_parts(&[]).map(drop)), "MalformedXML");
        assert_eq!(code(completed_parts(&[part(0, None)]).map(drop)), "InvalidArgument");
    }
}
