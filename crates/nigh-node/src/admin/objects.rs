//! Buckets' policies, unpushed writes, and features of objects.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use nigh_data::{ObjectError, ObjectId};
use nigh_objects::BucketPolicy;
use nigh_terms::{BucketName, Namespace, ObjectKey, Principal};
use schemars::JsonSchema;
use serde::Deserialize;

use super::refusal::Refusal;
use super::{AdminSource, RECORDS_MAX, json, no_content};
use crate::features;
use crate::unpushed::{UnpushedName, UnpushedRow};

/// The namespace and the bucket of a path.
pub(super) type OfBucket = Path<(Namespace, BucketName)>;

pub(super) async fn policy<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path((namespace, bucket)): OfBucket,
) -> Result<Response, Refusal> {
    let found = node.memory().bucket_policy(&Principal::outside(namespace), &bucket).await;
    json(&found?)
}

pub(super) async fn set_policy<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path((namespace, bucket)): OfBucket,
    Json(policy): Json<BucketPolicy>,
) -> Result<Response, Refusal> {
    let set = node.memory().set_bucket_policy(&Principal::outside(namespace), &bucket, policy).await;
    set?;
    Ok(no_content())
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct UnpushedParams {
    /// Only writes to this bucket.
    bucket: Option<BucketName>,
    /// Only writes of keys that begin so.
    #[serde(default)]
    prefix: String,
    /// The most writes: 1000 at most, and if absent.
    limit: Option<usize>,
}

pub(super) async fn unpushed<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path(namespace): Path<Namespace>,
    Query(asked): Query<UnpushedParams>,
) -> Result<Response, Refusal> {
    let limit = asked.limit.unwrap_or(RECORDS_MAX).min(RECORDS_MAX);
    let found = node.memory().unpushed(&namespace, asked.bucket.as_ref(), &asked.prefix, limit);
    json(&found.into_iter().map(UnpushedRow::from).collect::<Vec<_>>())
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FeaturesParams {
    /// The object's bucket.
    bucket: BucketName,
    /// The object's key.
    key: ObjectKey,
    /// True if the object's header is read where nothing is recorded.
    #[serde(default)]
    look: bool,
}

pub(super) async fn features<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path(namespace): Path<Namespace>,
    Query(FeaturesParams { bucket, key, look }): Query<FeaturesParams>,
) -> Result<Response, Refusal> {
    json(&features::shown(node.features(), ObjectId { namespace, bucket, key }, look).await)
}

pub(super) async fn drop_unpushed<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path(namespace): Path<Namespace>,
    Json(UnpushedName { bucket, key, version }): Json<UnpushedName>,
) -> Result<Response, Refusal> {
    let object = ObjectId { namespace, bucket, key };
    if node.memory().drop_unpushed(&object, version).await {
        Ok(no_content())
    } else {
        Err(ObjectError::ConditionalRequestConflict.into())
    }
}
