//! The node as a whole: its status, metrics, settings and backup, and its end.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Extension, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::refusal::Refusal;
use super::{AdminSource, json};
use crate::backup::source::BackupScope;
use crate::piped_body;
use crate::telemetry::MetricsText;

/// How long a backup of objects waits until the store has all earlier writes.
const FLUSH_BEFORE_BACKUP: Duration = Duration::from_secs(120);

/// The description of this API, as it is answered.
#[derive(Clone)]
pub(super) struct Description(pub(super) Bytes);

pub(super) async fn status<N: AdminSource>(State(node): State<Arc<N>>) -> Result<Response, Refusal> {
    json(&node.status())
}

pub(super) async fn llc<N: AdminSource>(State(node): State<Arc<N>>) -> Result<Response, Refusal> {
    json(&node.llc())
}

pub(super) async fn metrics<N: AdminSource>(State(node): State<Arc<N>>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let MetricsText { content_type, text } = node.metrics(accept);
    ([(header::CONTENT_TYPE, content_type)], text).into_response()
}

pub(super) async fn config<N: AdminSource>(State(node): State<Arc<N>>) -> Result<Response, Refusal> {
    json(&node.config())
}

pub(super) async fn description(Extension(Description(text)): Extension<Description>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

pub(super) async fn shutdown<N: AdminSource>(State(node): State<Arc<N>>) -> Result<Response, Refusal> {
    tracing::info!("asked to shut down through the admin API");
    Ok((StatusCode::ACCEPTED, json(&node.shut_down())?).into_response())
}

/// Streams the backup while it is made. A failure after the first bytes breaks off the answer.
pub(super) async fn backup<N: AdminSource>(State(node): State<Arc<N>>, Query(scope): Query<BackupScope>) -> Response {
    let (source, now) = node.backup();
    if let Err(error) = source.check(scope) {
        return (StatusCode::BAD_REQUEST, error.to_string()).into_response();
    }
    if scope.objects
        && let Err(error) = node.memory().flush_all(FLUSH_BEFORE_BACKUP).await
    {
        return (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response();
    }
    let source = source.clone();
    let body = piped_body::of_writer(move |to| {
        source.write(scope, now, to).map(drop).map_err(|error| {
            tracing::error!(%error, "a backup broke off");
            std::io::Error::other(error.to_string())
        })
    });
    ([(header::CONTENT_TYPE, "application/x-tar")], Body::from_stream(body)).into_response()
}
