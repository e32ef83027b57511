//! The operations of the S3 API that are answered, each by the file of its concept; all others are `NotImplemented`.

use std::sync::Arc;

use async_trait::async_trait;
use nigh_data::{ChecksumClaim, Digest};
use nigh_engine::{AccessKeys, CallGuard};
use nigh_objects::ObjectMemory;
use nigh_terms::{AccessKeyId, BucketName, ObjectKey, Principal, Timestamp};
use s3s::auth::Credentials;
use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, CompleteMultipartUploadInput, CompleteMultipartUploadOutput,
    CopyObjectInput, CopyObjectOutput, CreateBucketInput, CreateBucketOutput, CreateMultipartUploadInput,
    CreateMultipartUploadOutput, DeleteBucketInput, DeleteBucketOutput, DeleteObjectInput, DeleteObjectOutput,
    DeleteObjectTaggingInput, DeleteObjectTaggingOutput, DeleteObjectsInput, DeleteObjectsOutput,
    GetBucketLocationInput, GetBucketLocationOutput, GetBucketNotificationConfigurationInput,
    GetBucketNotificationConfigurationOutput, GetBucketVersioningInput, GetBucketVersioningOutput,
    GetObjectAttributesInput, GetObjectAttributesOutput, GetObjectTaggingInput, GetObjectTaggingOutput,
    HeadBucketInput, HeadBucketOutput, ListBucketsInput, ListBucketsOutput, ListMultipartUploadsInput,
    ListMultipartUploadsOutput, ListObjectsInput, ListObjectsOutput, ListObjectsV2Input, ListObjectsV2Output,
    ListPartsInput, ListPartsOutput, PutBucketNotificationConfigurationInput, PutBucketNotificationConfigurationOutput,
    PutObjectInput, PutObjectOutput, PutObjectTaggingInput, PutObjectTaggingOutput, Timestamp as WireTimestamp,
    UploadPartCopyInput, UploadPartCopyOutput, UploadPartInput, UploadPartOutput,
};
use s3s::{S3, S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use crate::error::s3_error;
use crate::notes::RequestNotes;
use crate::{buckets, checksum_headers, listing, notifications, objects, payload, tagging, uploads};

/// What the handlers stand on.
pub(crate) struct Handlers {
    memory: Arc<ObjectMemory>,
    keys: AccessKeys,
}

impl Handlers {
    /// Handlers of one node.
    pub(crate) const fn new(memory: Arc<ObjectMemory>, keys: AccessKeys) -> Self {
        Self { memory, keys }
    }

    /// The objects.
    pub(crate) fn memory(&self) -> &ObjectMemory {
        &self.memory
    }

    /// On whose behalf a request acts: the one place where that is asked. The call counts as under way until the guard
    /// is dropped.
    pub(crate) fn principal(&self, credentials: Option<&Credentials>) -> S3Result<(Principal, CallGuard)> {
        let unsigned = || S3Error::with_message(S3ErrorCode::AccessDenied, "the request is not signed");
        let credentials = credentials.ok_or_else(unsigned)?;
        self.principal_of(&AccessKeyId::new(&*credentials.access_key))
    }

    /// The same for a key that was shown otherwise.
    pub(crate) fn principal_of(&self, key: &AccessKeyId) -> S3Result<(Principal, CallGuard)> {
        self.keys.enter(key).map_err(|why| S3Error::with_message(S3ErrorCode::AccessDenied, why.to_string()))
    }

    /// Begins to handle a request: notes that its document was read, and resolves its principal.
    pub(crate) fn enter<T>(&self, request: &S3Request<T>) -> S3Result<Principal> {
        // The door gives notes to all requests that are not reads of objects.
        let notes = notes(request).ok_or_else(|| S3Error::new(S3ErrorCode::InternalError))?;
        notes.set_handled();
        let (who, call) = self.principal(request.credentials.as_ref())?;
        notes.set_call(call);
        Ok(who)
    }

    /// The same, for a request with a document: it must be what `Content-MD5` and a checksum claim of it.
    pub(crate) fn enter_with_document<T>(&self, request: &S3Request<T>) -> S3Result<Principal> {
        let who = self.enter(request)?;
        check_document(request, checksum_headers::claim(&request.headers, None)?)?;
        Ok(who)
    }
}

/// Compares a request's document with what is claimed of it.
pub(crate) fn check_document<T>(request: &S3Request<T>, claim: Option<ChecksumClaim>) -> S3Result<()> {
    let digest = notes(request).and_then(|notes| notes.take_digest());
    let digest = digest.unwrap_or_else(|| Digest::new(claim.as_ref().map(|claim| claim.algorithm)));
    digest.check(payload::content_md5(&request.headers)?, claim).map_err(s3_error)
}

/// The notes of a request.
pub(crate) fn notes<T>(request: &S3Request<T>) -> Option<&Arc<RequestNotes>> {
    request.extensions.get()
}

/// A bucket's name, checked.
pub(crate) fn bucket_name(name: &str) -> S3Result<BucketName> {
    BucketName::new(name).map_err(|error| S3Error::with_message(S3ErrorCode::InvalidBucketName, error.to_string()))
}

/// A key, checked.
pub(crate) fn object_key(key: &str) -> S3Result<ObjectKey> {
    ObjectKey::new(key).map_err(|error| {
        let code = if key.is_empty() { S3ErrorCode::InvalidArgument } else { S3ErrorCode::KeyTooLongError };
        S3Error::with_message(code, error.to_string())
    })
}

/// A date as documents have it.
pub(crate) fn wire_date(when: Timestamp) -> WireTimestamp {
    when.date().into()
}

macro_rules! answered_by {
    ($($operation:ident($input:ty) -> $output:ty = $handler:path;)+) => {
        #[async_trait]
        impl S3 for SharedHandlers {
            $(async fn $operation(&self, request: S3Request<$input>) -> S3Result<S3Response<$output>> {
                let handlers = Arc::clone(&self.0);
                // To its end, also when its client hangs up: a commit goes on, and its call with it.
                let handled = tokio::spawn(async move { $handler(&handlers, request).await });
                handled.await.unwrap_or_else(|lost| {
                    tracing::error!(error = %lost, "an S3 request was lost");
                    Err(S3Error::new(S3ErrorCode::InternalError))
                })
            })+
        }
    };
}

/// The handlers as `s3s` takes them.
pub(crate) struct SharedHandlers(pub(crate) Arc<Handlers>);

answered_by! {
    create_bucket(CreateBucketInput) -> CreateBucketOutput = buckets::create;
    delete_bucket(DeleteBucketInput) -> DeleteBucketOutput = buckets::delete;
    head_bucket(HeadBucketInput) -> HeadBucketOutput = buckets::head;
    list_buckets(ListBucketsInput) -> ListBucketsOutput = buckets::list;
    get_bucket_location(GetBucketLocationInput) -> GetBucketLocationOutput = buckets::location;
    get_bucket_notification_configuration(GetBucketNotificationConfigurationInput) -> GetBucketNotificationConfigurationOutput = notifications::get;
    put_bucket_notification_configuration(PutBucketNotificationConfigurationInput) -> PutBucketNotificationConfigurationOutput = notifications::put;
    get_bucket_versioning(GetBucketVersioningInput) -> GetBucketVersioningOutput = buckets::versioning;

    list_objects(ListObjectsInput) -> ListObjectsOutput = listing::v1;
    list_objects_v2(ListObjectsV2Input) -> ListObjectsV2Output = listing::v2;

    put_object(PutObjectInput) -> PutObjectOutput = objects::put;
    copy_object(CopyObjectInput) -> CopyObjectOutput = objects::copy;
    delete_object(DeleteObjectInput) -> DeleteObjectOutput = objects::delete;
    delete_objects(DeleteObjectsInput) -> DeleteObjectsOutput = objects::delete_many;
    get_object_attributes(GetObjectAttributesInput) -> GetObjectAttributesOutput = objects::attributes;

    get_object_tagging(GetObjectTaggingInput) -> GetObjectTaggingOutput = tagging::get;
    put_object_tagging(PutObjectTaggingInput) -> PutObjectTaggingOutput = tagging::put;
    delete_object_tagging(DeleteObjectTaggingInput) -> DeleteObjectTaggingOutput = tagging::delete;

    create_multipart_upload(CreateMultipartUploadInput) -> CreateMultipartUploadOutput = uploads::create;
    upload_part(UploadPartInput) -> UploadPartOutput = uploads::put_part;
    upload_part_copy(UploadPartCopyInput) -> UploadPartCopyOutput = uploads::copy_part;
    list_parts(ListPartsInput) -> ListPartsOutput = uploads::list_parts;
    list_multipart_uploads(ListMultipartUploadsInput) -> ListMultipartUploadsOutput = uploads::list;
    complete_multipart_upload(CompleteMultipartUploadInput) -> CompleteMultipartUploadOutput = uploads::complete;
    abort_multipart_upload(AbortMultipartUploadInput) -> AbortMultipartUploadOutput = uploads::abort;
}
