//! Objects' bytes for operators: read and stored without an S3 client.
//!
//! Bytes that somebody stored are never given a type that a browser would run: the page is of the same origin.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use futures::{StreamExt as _, TryStreamExt as _};
use nigh_data::{Attributes, GetRequest, ObjectError, PutRequest, RangeSpec, Tags, WriteConditions};
use nigh_terms::{ObjectKey, Principal};
use schemars::JsonSchema;
use serde::Deserialize;

use super::objects::OfBucket;
use super::refusal::Refusal;
use super::{AdminSource, json};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ContentParams {
    /// The object's key.
    pub(super) key: ObjectKey,
    /// Only the first so many bytes.
    bytes: Option<u64>,
}

/// The range of the first `bytes` bytes; none for all.
const fn range(bytes: Option<u64>) -> Option<RangeSpec> {
    match bytes {
        Some(bytes) if bytes > 0 => Some(RangeSpec::From { first: 0, last: Some(bytes - 1) }),
        _ => None,
    }
}

/// `GET /objects/{namespace}/{bucket}?key&bytes`.
pub(super) async fn get<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path((namespace, bucket)): OfBucket,
    Query(ContentParams { key, bytes }): Query<ContentParams>,
) -> Result<Response, Refusal> {
    let who = Principal::outside(namespace);
    let request = GetRequest { range: range(bytes), ..GetRequest::default() };
    let reply = match node.memory().get(&who, &bucket, &key, request).await {
        // An empty object has no first byte.
        Err(ObjectError::InvalidRange { size: 0 }) => {
            node.memory().get(&who, &bucket, &key, GetRequest::default()).await?
        }
        other => other?,
    };
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream"),
        (header::CONTENT_DISPOSITION, "attachment"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_SECURITY_POLICY, "sandbox"),
    ];
    Ok((headers, Body::from_stream(reply.body)).into_response())
}

/// `PUT /objects/{namespace}/{bucket}?key`: the body is the object.
pub(super) async fn put<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path((namespace, bucket)): OfBucket,
    Query(ContentParams { key, .. }): Query<ContentParams>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let request = PutRequest {
        attributes: Attributes { content_type: text(header::CONTENT_TYPE).map(str::to_owned), ..Attributes::default() },
        tags: Tags::new(),
        conditions: WriteConditions::default(),
        length: text(header::CONTENT_LENGTH).and_then(|length| length.parse().ok()),
        body: body.into_data_stream().map_err(|error| ObjectError::Body(error.to_string())).boxed(),
        md5: None,
        checksum: None,
        request: None,
    };
    let done = node.memory().put(&Principal::outside(namespace), &bucket, &key, request).await?;
    json(&done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_are_a_range_and_no_number_is_all() {
        assert_eq!(range(Some(10)), Some(RangeSpec::From { first: 0, last: Some(9) }));
        assert_eq!((range(Some(0)), range(None)), (None, None));
    }
}
