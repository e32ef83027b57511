//! Multipart uploads: a part is a durable file when it is acknowledged; the completion is a write like any other.

use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use nigh_data::attributes::check_tags;
use nigh_data::digest::{Digest, TagDigest, VerifiedDigest};
use nigh_data::{
    ByteStream, Checksum, ChecksumClaim, ClaimedValue, CompleteRequest, DataCall, DataOperation, MultipartRequest,
    ObjectError, PartInfo, PutDone, RangeSpec, ReadConditions, ServeOutcome, UploadId, UploadInfo,
};
use nigh_protocol::Stamp;
use nigh_terms::{BucketName, ByteSize, ObjectKey, Principal, Token};

use super::draft::{Content, Draft, PutHead};
use super::intake::BodyClaims;
use super::invocations::WriteCall;
use super::{ObjectMemory, ObjectMemoryState, object, to_the_end};
use crate::assembly::{PART_MAX_BYTES, assemble, check_number, default_checksum, wanted_checksum};
use crate::notification::ObjectChange;
use crate::spool::{SpoolFile, blocking, failed};
use crate::uploads::{Manifest, ReservedRoom, Upload};

/// The checksum of a part: of the upload's algorithm, given or to be computed; if the upload has none, the given one.
fn part_checksum(upload: &Upload, given: Option<ChecksumClaim>) -> Result<Option<ChecksumClaim>, ObjectError> {
    match (upload.manifest.checksum, given) {
        (Some((algorithm, _)), None) => Ok(Some(ChecksumClaim { algorithm, value: ClaimedValue::Compute })),
        (Some((algorithm, _)), Some(given)) if given.algorithm != algorithm => {
            Err(ObjectError::InvalidRequest(format!(
                "Checksum Type mismatch occurred, expected checksum Type: {}, actual checksum Type: {}",
                algorithm.header(),
                given.algorithm.header()
            )))
        }
        (_, given) => Ok(given),
    }
}

/// The digest of a part. If the upload was begun without a checksum, it has the CRC-64/NVME, of which the object's is made.
fn part_digest(upload: &Upload, checksum: Option<&ChecksumClaim>) -> Digest {
    let digest = Digest::new(checksum.map(|claim| claim.algorithm));
    if upload.manifest.checksum.is_none() { digest.with_crc64() } else { digest }
}

/// Compares the checksum that the whole object should have with the one that it has.
fn check_whole(claimed: Option<&Checksum>, computed: Option<&Checksum>) -> Result<(), ObjectError> {
    match (claimed, computed) {
        (None, _) => Ok(()),
        (Some(claimed), Some(computed)) if claimed.algorithm == computed.algorithm => {
            // A composite checksum may be given with or without the number of its parts.
            let bare = computed.value.split('-').next();
            if claimed.value == computed.value || Some(claimed.value.as_str()) == bare {
                Ok(())
            } else {
                Err(ObjectError::BadDigest { claim: claimed.algorithm.header() })
            }
        }
        (Some(claimed), _) => Err(ObjectError::InvalidRequest(format!(
            "the upload was begun without the checksum {}; complete it without, or begin it again with that checksum",
            claimed.algorithm.header()
        ))),
    }
}

impl ObjectMemoryState {
    /// Makes a spooled body a part of the upload.
    async fn keep_part(
        self: Arc<Self>,
        mut call: DataCall,
        upload: Arc<Upload>,
        number: u32,
        part: (SpoolFile, u64, VerifiedDigest),
        mut room: ReservedRoom,
    ) -> Result<PartInfo, ObjectError> {
        let (file, size, verified) = part;
        let crc64 = verified.crc64;
        // The length of a body need not be known before.
        room.grow_to(size)?;
        // The file is synced before the upload is locked: parts that arrive at the same time do not wait for each
        // other's bytes.
        let file = blocking(move || {
            file.sync().map_err(failed("sync a part"))?;
            Ok(file)
        })
        .await?;
        let info =
            PartInfo { number, size, etag: verified.etag, modified: self.clock.wall(), checksum: verified.checksum };
        let ended = upload.lock().await?;
        if *ended {
            return Err(ObjectError::NoSuchUpload(upload.id.clone()));
        }
        let (kept, kept_info) = (Arc::clone(&upload), info.clone());
        blocking(move || kept.add(&file, &kept_info, crc64, room)).await?;
        drop(ended);
        call.succeeded(ServeOutcome::Write, None, Token::empty());
        Ok(info)
    }

    async fn complete(
        self: Arc<Self>,
        call: WriteCall,
        upload: Arc<Upload>,
        request: CompleteRequest,
    ) -> Result<PutDone, ObjectError> {
        let mut ended = upload.lock().await?;
        let manifest = &upload.manifest;
        let object = nigh_data::ObjectId {
            namespace: manifest.namespace.clone(),
            bucket: manifest.bucket.clone(),
            key: manifest.key.clone(),
        };
        if *ended {
            return self.completed_before(call, &upload.id, &object, &request);
        }
        let limit = self.limits.object.bytes();
        let mut whole = assemble(&request.parts, |number| upload.part(number), manifest.checksum, limit)?;
        if whole.checksum.is_none() {
            whole.checksum = upload.crc64s(&whole.numbers).map(|codes| default_checksum(&codes, &whole.lengths));
        }
        check_whole(request.checksum.as_ref(), whole.checksum.as_ref())?;
        if let Some(size) = request.size.filter(|size| *size != whole.size) {
            return Err(ObjectError::InvalidRequest(format!(
                "the request says that the object has {size} bytes, but its parts have {}; correct the size",
                whole.size
            )));
        }
        let (parts, numbers) = (Arc::clone(&upload), whole.numbers);
        let files = blocking(move || parts.files(&numbers)).await?;
        let head = PutHead {
            conditions: request.conditions,
            attributes: manifest.attributes.clone(),
            tags: manifest.tags.clone(),
            size: whole.size,
            etag: whole.etag,
            checksum: whole.checksum,
            parts: whole.lengths,
            change: ObjectChange::CompleteMultipartUpload,
            modified: self.clock.wall(),
        };
        let content = Content::Parts(files);
        let draft = Draft { object: object.clone(), head, content, journal: None, request: None };
        let mut done = Arc::clone(&self).commit(call, draft).await?;
        // The answer has the whole's alone, and is remembered for a while.
        done.checksum = done.checksum.map(|checksum| checksum.without_parts());
        self.completed.lock().keep(&upload.id, &object, &request.parts, &done);
        *ended = true;
        let (memory, upload) = (Arc::clone(&self), Arc::clone(&upload));
        if let Err(error) = blocking(move || memory.uploads.remove(&upload)).await {
            // The object exists; the upload's files take space until the next start.
            tracing::warn!(%error, "a completed upload could not be removed");
        }
        Ok(done)
    }

    /// Abandons the uploads that were begun too long ago.
    pub(super) async fn abandon_uploads(self: &Arc<Self>) {
        for upload in self.uploads.stale(self.clock.wall()) {
            let (id, object) = (upload.id.clone(), upload.manifest.key.clone());
            match self.end_upload(upload).await {
                Ok(_) => tracing::info!(upload = %id.0, key = %object, "an upload was never completed; it is dropped"),
                Err(error) => tracing::warn!(upload = %id.0, %error, "an abandoned upload could not be removed"),
            }
        }
    }

    /// The answer to a repeated completion, whose client did not get the first answer.
    fn completed_before(
        &self,
        mut call: WriteCall,
        upload: &UploadId,
        object: &nigh_data::ObjectId,
        request: &CompleteRequest,
    ) -> Result<PutDone, ObjectError> {
        let done = self.completed.lock().find(upload, object, &request.parts);
        let done = done.ok_or_else(|| ObjectError::NoSuchUpload(upload.clone()))?;
        call.wrote(Stamp::new(self.coherence.shards.of(object), done.version, &done.token));
        call.succeeded(ServeOutcome::Metadata, Some(done.version), done.token.clone());
        Ok(done)
    }

    /// Ends an upload without an object. False if it has ended already.
    pub(super) async fn end_upload(self: &Arc<Self>, upload: Arc<Upload>) -> Result<bool, ObjectError> {
        let memory = Arc::clone(self);
        to_the_end(async move {
            let mut ended = upload.lock().await?;
            if *ended {
                return Ok(false);
            }
            *ended = true;
            let removed = Arc::clone(&upload);
            blocking(move || memory.uploads.remove(&removed)).await?;
            Ok(true)
        })
        .await
    }
}

impl ObjectMemory {
    /// Sets how many bytes the parts of unfinished uploads of one namespace may have here. Further parts are rejected with
    /// `SlowDown`.
    pub fn limit_uploads(&self, namespace_bytes_max: ByteSize) {
        self.0.uploads.room.limit(namespace_bytes_max);
    }

    /// Begins a multipart upload.
    ///
    /// # Errors
    /// `NoSuchBucket`, what is wrong with the attributes, tags or checksum, or the spool's.
    #[boxed]
    pub async fn create_upload(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        request: MultipartRequest,
    ) -> Result<UploadId, ObjectError> {
        let mut call = self.0.begin(who, DataOperation::Write, bucket, Some(key));
        let MultipartRequest { attributes, tags, checksum, checksum_type } = request;
        attributes.check()?;
        check_tags(&tags)?;
        let checksum = wanted_checksum(checksum, checksum_type)?;
        self.0.find_bucket(who, bucket).await?;
        self.0.abandon_uploads().await;
        let manifest = Manifest::new(&object(who, bucket, key), attributes, tags, checksum, self.0.clock.wall());
        let memory = Arc::clone(&self.0);
        let upload = blocking(move || memory.uploads.begin(manifest)).await?;
        call.succeeded(ServeOutcome::Metadata, None, Token::empty());
        Ok(upload)
    }

    /// Uploads a part, which is durable when this returns.
    ///
    /// # Errors
    /// `NoSuchUpload`, what is wrong with the number or the body, or the spool's. An earlier part with this number
    /// stays then.
    #[expect(clippy::too_many_arguments, reason = "the S3 operation has so many")]
    #[boxed]
    pub async fn put_part(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        upload: &UploadId,
        number: u32,
        body: ByteStream,
        length: Option<u64>,
        md5: Option<[u8; 16]>,
        checksum: Option<ChecksumClaim>,
    ) -> Result<PartInfo, ObjectError> {
        let mut call = self.0.begin(who, DataOperation::Write, bucket, Some(key));
        check_number(number)?;
        let upload = self.0.uploads.find(upload, &object(who, bucket, key))?;
        let limit = PART_MAX_BYTES.min(self.0.limits.object.bytes());
        if length.is_some_and(|length| length > limit) {
            return Err(ObjectError::EntityTooLarge { limit });
        }
        let checksum = part_checksum(&upload, checksum)?;
        let room = self.0.uploads.room.reserve(&who.namespace, length.unwrap_or_default())?;
        let digest = part_digest(&upload, checksum.as_ref());
        let expected = BodyClaims { length, md5, checksum, tag: TagDigest::Md5, limit, journal: None };
        let part = self.0.stage_with(body, expected, digest).await?;
        call.served(part.1);
        to_the_end(Arc::clone(&self.0).keep_part(call, upload, number, part, room)).await
    }

    /// Makes a part from another object of the namespace.
    ///
    /// # Errors
    /// As of a get of the source and of `put_part`; `InvalidRange` for a range beyond the source's end.
    #[expect(clippy::too_many_arguments, reason = "the S3 operation has so many")]
    #[boxed]
    pub async fn copy_part(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        upload: &UploadId,
        number: u32,
        source: (&BucketName, &ObjectKey),
        range: Option<RangeSpec>,
        conditions: ReadConditions,
    ) -> Result<PartInfo, ObjectError> {
        let call = self.0.begin(who, DataOperation::Write, bucket, Some(key));
        check_number(number)?;
        let upload = self.0.uploads.find(upload, &object(who, bucket, key))?;
        let read = self.0.read_source(who, &object(who, source.0, source.1), conditions, range).await?;
        // A read's range is clipped to the object; a copy's must lie within it.
        if let Some(RangeSpec::From { last: Some(last), .. }) = range
            && last >= read.meta.size
        {
            return Err(ObjectError::InvalidRange { size: read.meta.size });
        }
        let limit = PART_MAX_BYTES.min(self.0.limits.object.bytes());
        let length = read.range.end - read.range.start;
        if length > limit {
            return Err(ObjectError::EntityTooLarge { limit });
        }
        let (md5, checksum) = (None, part_checksum(&upload, None)?);
        let expected = BodyClaims { length: Some(length), md5, checksum, tag: TagDigest::Md5, limit, journal: None };
        let room = self.0.uploads.room.reserve(&who.namespace, length)?;
        let digest = part_digest(&upload, expected.checksum.as_ref());
        let part = self.0.stage_with(read.source.into_stream(), expected, digest).await?;
        to_the_end(Arc::clone(&self.0).keep_part(call, upload, number, part, room)).await
    }

    /// The uploaded parts with numbers above `after`, at most `limit`; and whether there are more.
    ///
    /// # Errors
    /// `NoSuchUpload`.
    #[boxed]
    pub async fn list_parts(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        upload: &UploadId,
        after: u32,
        limit: usize,
    ) -> Result<(Vec<PartInfo>, bool), ObjectError> {
        let mut call = self.0.begin(who, DataOperation::Metadata, bucket, Some(key));
        let upload = self.0.uploads.find(upload, &object(who, bucket, key))?;
        call.succeeded(ServeOutcome::Metadata, None, Token::empty());
        Ok(upload.parts(after, limit))
    }

    /// The uploads of a bucket that are not complete, by key and time.
    ///
    /// # Errors
    /// `NoSuchBucket`, or the store's.
    #[boxed]
    pub async fn list_uploads(
        &self,
        who: &Principal,
        bucket: &BucketName,
        prefix: &str,
    ) -> Result<Vec<UploadInfo>, ObjectError> {
        let mut call = self.0.begin(who, DataOperation::Metadata, bucket, None);
        self.0.find_bucket(who, bucket).await?;
        let uploads = self.0.uploads.list(&who.namespace, bucket, prefix);
        call.succeeded(ServeOutcome::Metadata, None, Token::empty());
        Ok(uploads
            .iter()
            .map(|upload| UploadInfo {
                upload: upload.id.clone(),
                key: upload.manifest.key.clone(),
                initiated: upload.manifest.initiated,
                checksum: upload.manifest.checksum.map(|(algorithm, _)| algorithm),
                checksum_type: upload.manifest.checksum.map(|(_, over)| over),
            })
            .collect())
    }

    /// Makes the object from the named parts. After a failure the upload continues, with its parts. A completion that
    /// is repeated after a success, with the same parts, gets the same answer for a while and changes nothing.
    ///
    /// # Errors
    /// `NoSuchUpload`, what is wrong with the parts, a condition's, or the store's.
    #[boxed]
    pub async fn complete_upload(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        upload: &UploadId,
        request: CompleteRequest,
    ) -> Result<PutDone, ObjectError> {
        let call = self.0.begin_write(who, bucket, key);
        let object = object(who, bucket, key);
        let Ok(upload) = self.0.uploads.find(upload, &object) else {
            return self.0.completed_before(call, upload, &object, &request);
        };
        to_the_end(Arc::clone(&self.0).complete(call, upload, request)).await
    }

    /// Drops an upload and its parts.
    ///
    /// # Errors
    /// `NoSuchUpload`, or the spool's.
    #[boxed]
    pub async fn abort_upload(
        &self,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
        upload: &UploadId,
    ) -> Result<(), ObjectError> {
        let mut call = self.0.begin(who, DataOperation::Write, bucket, Some(key));
        let found = self.0.uploads.find(upload, &object(who, bucket, key))?;
        if !self.0.end_upload(found).await? {
            return Err(ObjectError::NoSuchUpload(upload.clone()));
        }
        call.succeeded(ServeOutcome::Delete, None, Token::empty());
        Ok(())
    }
}
