//! Operations on buckets.

use nigh_terms::BucketName;
use s3s::dto::{
    Bucket, BucketLocationConstraint, CreateBucketInput, CreateBucketOutput, DeleteBucketInput, DeleteBucketOutput,
    GetBucketLocationInput, GetBucketLocationOutput, GetBucketVersioningInput, GetBucketVersioningOutput,
    HeadBucketInput, HeadBucketOutput, ListBucketsInput, ListBucketsOutput,
};
use s3s::region::Region;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use crate::error::{invalid_argument, not_implemented, s3_error};
use crate::handlers::{Handlers, bucket_name, owner, wire_date};
use crate::listing::{decode_token, encode_token};

/// The region whose name S3 leaves out of a location constraint.
const DEFAULT_REGION: &str = "us-east-1";
/// API reference, ListBuckets, `max-buckets`.
const BUCKETS_PAGE_MAX: i32 = 10_000;

/// Beginnings and ends of names that S3 keeps for itself (S3 User Guide, "General purpose bucket naming rules").
const RESERVED_PREFIXES: [&str; 3] = ["xn--", "sthree-", "amzn-s3-demo-"];
const RESERVED_SUFFIXES: [&str; 5] = ["-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3"];

/// Refuses names that S3 takes for no new bucket. Buckets of such a name that exist, here or in a store, stay usable:
/// `BucketName` allows it.
fn check_new_name(name: &BucketName) -> S3Result<()> {
    let text = name.as_str();
    let reason = if let Some(prefix) = RESERVED_PREFIXES.iter().find(|prefix| text.starts_with(**prefix)) {
        format!("S3 reserves names that begin with {prefix}")
    } else if let Some(suffix) = RESERVED_SUFFIXES.iter().find(|suffix| text.ends_with(**suffix)) {
        format!("S3 reserves names that end with {suffix}")
    } else if text.contains("-.") || text.contains(".-") {
        "a bucket has no hyphen beside a dot".to_owned()
    } else {
        return Ok(());
    };
    Err(S3Error::with_message(S3ErrorCode::InvalidBucketName, format!("{text}: {reason}; choose another name")))
}

/// The region that a bucket is in, as far as the signer of `request` is concerned: the one that it has signed for, whatever
/// location its creator stated. A node is in no region, and a client looks for its buckets in its own.
fn region<T>(request: &S3Request<T>) -> &str {
    request.region.as_ref().map_or(DEFAULT_REGION, Region::as_str)
}

/// Answers CreateBucket. Any location is accepted, because SDKs send the location of their region.
pub(crate) async fn create(
    handlers: &Handlers,
    request: S3Request<CreateBucketInput>,
) -> S3Result<S3Response<CreateBucketOutput>> {
    let who = handlers.enter_with_document(&request)?;
    let input = request.input;
    if input.create_bucket_configuration.is_some_and(|wish| wish.bucket.is_some() || wish.location.is_some()) {
        return Err(not_implemented("a directory bucket"));
    }
    let bucket = bucket_name(&input.bucket)?;
    check_new_name(&bucket)?;
    handlers.memory().create_bucket(&who, &bucket).await.map_err(s3_error)?;
    Ok(S3Response::new(CreateBucketOutput { location: Some(format!("/{bucket}")) }))
}

/// Answers DeleteBucket.
pub(crate) async fn delete(
    handlers: &Handlers,
    request: S3Request<DeleteBucketInput>,
) -> S3Result<S3Response<DeleteBucketOutput>> {
    let who = handlers.enter(&request)?;
    let bucket = bucket_name(&request.input.bucket)?;
    handlers.memory().delete_bucket(&who, &bucket).await.map_err(s3_error)?;
    Ok(S3Response::new(DeleteBucketOutput::default()))
}

/// Answers HeadBucket.
pub(crate) async fn head(
    handlers: &Handlers,
    request: S3Request<HeadBucketInput>,
) -> S3Result<S3Response<HeadBucketOutput>> {
    exists(handlers, &request, &request.input.bucket).await?;
    let output = HeadBucketOutput { bucket_region: Some(region(&request).to_owned()), ..HeadBucketOutput::default() };
    Ok(S3Response::new(output))
}

/// Answers GetBucketLocation.
pub(crate) async fn location(
    handlers: &Handlers,
    request: S3Request<GetBucketLocationInput>,
) -> S3Result<S3Response<GetBucketLocationOutput>> {
    exists(handlers, &request, &request.input.bucket).await?;
    let region = Some(region(&request)).filter(|region| *region != DEFAULT_REGION);
    let location_constraint = region.map(|region| BucketLocationConstraint::from(region.to_owned()));
    Ok(S3Response::new(GetBucketLocationOutput { location_constraint }))
}

/// Answers GetBucketVersioning as S3 does for a bucket on which versioning was never enabled.
pub(crate) async fn versioning(
    handlers: &Handlers,
    request: S3Request<GetBucketVersioningInput>,
) -> S3Result<S3Response<GetBucketVersioningOutput>> {
    exists(handlers, &request, &request.input.bucket).await?;
    Ok(S3Response::new(GetBucketVersioningOutput::default()))
}

async fn exists<T: Sync>(handlers: &Handlers, request: &S3Request<T>, bucket: &str) -> S3Result<()> {
    let who = handlers.enter(request)?;
    let bucket: BucketName = bucket_name(bucket)?;
    handlers.memory().head_bucket(&who, &bucket).await.map(drop).map_err(s3_error)
}

/// Answers ListBuckets.
pub(crate) async fn list(
    handlers: &Handlers,
    request: S3Request<ListBucketsInput>,
) -> S3Result<S3Response<ListBucketsOutput>> {
    let who = handlers.enter(&request)?;
    let region = region(&request).to_owned();
    let input = request.input;
    let limit = match input.max_buckets {
        None => BUCKETS_PAGE_MAX,
        Some(limit @ 1..=BUCKETS_PAGE_MAX) => limit,
        Some(_) => return Err(invalid_argument("max-buckets must be an integer between 1 and 10000")),
    };
    let after = input.continuation_token.as_deref().map(decode_token).transpose()?;
    let prefix = input.prefix.as_deref().unwrap_or_default();
    let mut found: Vec<_> = handlers
        .memory()
        .list_buckets(&who)
        .await
        .map_err(s3_error)?
        .into_iter()
        .filter(|bucket| bucket.name.as_str().starts_with(prefix))
        .filter(|bucket| after.as_deref().is_none_or(|after| bucket.name.as_str() > after))
        .collect();
    let more = found.len() > limit as usize;
    found.truncate(limit as usize);
    let next = found.last().filter(|_| more).map(|last| encode_token(last.name.as_str()));
    let buckets = found
        .into_iter()
        .map(|bucket| Bucket {
            bucket_region: Some(region.clone()),
            creation_date: Some(wire_date(bucket.created)),
            name: Some(bucket.name.to_string()),
        })
        .collect();
    Ok(S3Response::new(ListBucketsOutput {
        buckets: Some(buckets),
        continuation_token: next,
        owner: Some(owner(&who.namespace)),
        prefix: input.prefix,
    }))
}
