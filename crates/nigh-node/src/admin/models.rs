//! Models of functions: of their memory, and of the cache ways that they need.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use nigh_terms::{FunctionName, Namespace};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::mpsc;

use super::refusal::Refusal;
use super::{AdminSource, json, no_content};
use crate::learning::{ImportedRows, LISTED_MAX};
use crate::profiling::{ModelRows, ProfileReport, ProfileRequest, ProfilingError};

/// Profiles a function. The profile continues if its client leaves.
pub(super) async fn profile<N: AdminSource>(
    State(node): State<Arc<N>>,
    Json(request): Json<ProfileRequest>,
) -> Response {
    // Each run sends one report, and the number of runs is bounded.
    let (tell, reports) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let last = node.profile(request, tell.clone()).await;
        let report = last.unwrap_or_else(|error| ProfileReport::refused(&error));
        let _nobody_listens_any_more = tell.send(report);
    });
    let lines = futures::stream::unfold(reports, async |mut reports| {
        let report = reports.recv().await?;
        let mut line = serde_json::to_vec(&report).ok()?;
        line.push(b'\n');
        Some((Ok::<_, Infallible>(Bytes::from(line)), reports))
    });
    ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LearnedParams {
    /// Whose functions.
    namespace: Namespace,
    /// The most functions: 1000 at most, and if absent.
    limit: Option<usize>,
}

pub(super) async fn learned<N: AdminSource>(
    State(node): State<Arc<N>>,
    Query(asked): Query<LearnedParams>,
) -> Result<Response, Refusal> {
    let found = node.learning().list(&asked.namespace, asked.limit.unwrap_or(LISTED_MAX)).await;
    json(&found?)
}

/// The namespace and the function of a path.
pub(super) type OfFunction = Path<(Namespace, FunctionName)>;

pub(super) async fn learned_of<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path((namespace, function)): OfFunction,
) -> Result<Response, Refusal> {
    json(&node.learning().show(&namespace, &function).await?)
}

pub(super) async fn learned_rows<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path((namespace, function)): OfFunction,
) -> Result<Response, Refusal> {
    let csv = node.learning().export(&namespace, &function).await?;
    Ok(([(header::CONTENT_TYPE, "text/csv")], csv).into_response())
}

pub(super) async fn learn_rows<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path((namespace, function)): OfFunction,
    Json(rows): Json<ImportedRows>,
) -> Result<Response, Refusal> {
    node.learning().import(&namespace, &function, rows).await?;
    Ok(no_content())
}

pub(super) async fn forget_learned<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path((namespace, function)): OfFunction,
) -> Result<Response, Refusal> {
    node.learning().forget(&namespace, &function).await?;
    Ok(no_content())
}

pub(super) async fn model<N: AdminSource>(State(node): State<Arc<N>>, Json(rows): Json<ModelRows>) -> Response {
    match node.learn(rows).await {
        Ok(()) => no_content(),
        Err(error @ ProfilingError::NoFunction(_)) => (StatusCode::NOT_FOUND, error.to_string()).into_response(),
        Err(error) => (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    }
}
