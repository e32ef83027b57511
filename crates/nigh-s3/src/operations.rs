//! The S3 operations that are answered, each by the module of its concept. All other operations are `NotImplemented`.
//!
//! `s3s` calls an operation in one of two ways: with a typed request (`SharedHandlers`), or, for reads of objects and
//! for transactions, with the unparsed request (`Routes`).

use std::sync::Arc;

use async_trait::async_trait;
use http::{Extensions, HeaderMap, Method, Uri};
use nigh_http::shares::Shares;
use nigh_terms::AccessKeyId;
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
    PutObjectInput, PutObjectOutput, PutObjectTaggingInput, PutObjectTaggingOutput, UploadPartCopyInput,
    UploadPartCopyOutput, UploadPartInput, UploadPartOutput,
};
use s3s::route::S3Route;
use s3s::{Body, S3, S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use crate::actions::action;
use crate::audit::SignatureNote;
use crate::auth::take_share;
use crate::error::invocation_ended;
use crate::handlers::{Handlers, signer};
use crate::read::{ReadExtension, Reads, SENT_AT_ONCE_MAX};
use crate::serve::ShareUntilSent;
use crate::transactions::{self, TransactionRequest};
use crate::{buckets, listing, notifications, objects, tagging, uploads};

/// The requests that `s3s` does not parse: reads of objects, and those that begin and end transactions.
#[derive(Clone)]
pub(crate) struct Routes {
    pub(crate) reads: Reads,
    /// None at a sandbox's door.
    pub(crate) shares: Option<Arc<Shares>>,
}

impl Routes {
    /// Answers a read that `key` has signed; `query` and `headers` are the request's.
    pub(crate) async fn read(
        &self,
        key: &AccessKeyId,
        reading: &ReadExtension,
        query: Option<&str>,
        headers: &HeaderMap,
    ) -> S3Result<S3Response<Body>> {
        let share = take_share(self.shares.as_ref(), key.as_str())?;
        let action = action(reading.operation, reading.bucket(), headers);
        let (who, call) = self.reads.handlers().admit(key, action)?;
        let read = self.reads.read(&who, reading, query, headers);
        // A read has no effect: the invocation's end does not wait for it, and the read does not outlive that end.
        let answer = match call.cancelled() {
            None => read.await,
            Some(ended) => tokio::select! {
                biased;
                answer = read => answer,
                () = ended => Err(invocation_ended()),
            },
        };
        answer.map(|mut answer| {
            let is_large = answer.output.bytes().is_none_or(|bytes| bytes.len() as u64 > SENT_AT_ONCE_MAX);
            if let Some(share) = share.filter(|_| is_large) {
                answer.extensions.insert(ShareUntilSent::new(share));
            }
            answer
        })
    }
}

#[async_trait]
impl S3Route for Routes {
    fn is_match(&self, _: &Method, _: &Uri, _: &HeaderMap, extensions: &mut Extensions) -> bool {
        extensions.get::<TransactionRequest>().is_some() || extensions.get::<ReadExtension>().is_some()
    }

    /// Allows every request here: `call` checks what its key may do.
    async fn check_access(&self, _: &mut S3Request<Body>) -> S3Result<()> {
        Ok(())
    }

    async fn call(&self, request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        if request.credentials.is_some() {
            SignatureNote::note(&request.extensions);
        }
        let key = signer(request.credentials.as_ref())?;
        if let Some(reading) = request.extensions.get::<ReadExtension>() {
            return self.read(&key, reading, request.uri.query(), &request.headers).await;
        }
        let _share = take_share(self.shares.as_ref(), key.as_str())?;
        let asked = request.extensions.get::<TransactionRequest>().cloned().ok_or(S3ErrorCode::InternalError)?;
        let handlers = self.reads.handlers();
        handlers.admit(&key, action(asked.operation(), "", &request.headers))?;
        transactions::answer(handlers, asked, &request).await
    }
}

macro_rules! answered_by {
    ($($operation:ident($input:ty) -> $output:ty = $handler:path;)+) => {
        #[async_trait]
        impl S3 for SharedHandlers {
            $(async fn $operation(&self, request: S3Request<$input>) -> S3Result<S3Response<$output>> {
                let handlers = Arc::clone(&self.0);
                // The handler runs to its end even if the client disconnects: a commit continues, and its call stays in
                // progress.
                let handled = tokio::spawn(nigh_trace::follow(async move { $handler(&handlers, request).await }));
                handled.await.unwrap_or_else(|lost| {
                    tracing::error!(error = %lost, "an S3 request was lost");
                    Err(S3Error::new(S3ErrorCode::InternalError))
                })
            })+
        }
    };
}

/// The handlers in the form that `s3s` needs.
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
