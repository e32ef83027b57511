//! Asynchronous invocations.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::response::Response;
use nigh_terms::{InvocationId, Namespace};
use schemars::JsonSchema;
use serde::Deserialize;

use super::refusal::Refusal;
use super::{AdminSource, RECORDS_MAX, json, no_content};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EventParams {
    namespace: Namespace,
    #[serde(default)]
    all: bool,
    limit: Option<usize>,
}

pub(super) async fn events<N: AdminSource>(
    State(node): State<Arc<N>>,
    Query(asked): Query<EventParams>,
) -> Result<Response, Refusal> {
    json(&node.events().list(&asked.namespace, asked.all, asked.limit.unwrap_or(RECORDS_MAX).min(RECORDS_MAX)))
}

/// The namespace and the event of a path.
fn named_event(namespace: &str, id: &str) -> Result<(Namespace, InvocationId), Refusal> {
    let namespace = Namespace::new(namespace).map_err(|_| Refusal::bad_id(namespace))?;
    Ok((namespace, id.parse().map_err(|_| Refusal::bad_id(id))?))
}

pub(super) async fn event<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path((namespace, id)): Path<(String, String)>,
) -> Result<Response, Refusal> {
    let (namespace, id) = named_event(&namespace, &id)?;
    let shown = node.events().show(&namespace, id).await?;
    json(&shown.ok_or_else(|| no_event(id))?)
}

pub(super) async fn retry_event<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path((namespace, id)): Path<(String, String)>,
) -> Result<Response, Refusal> {
    let (namespace, id) = named_event(&namespace, &id)?;
    if node.events().retry(&namespace, id).await? { Ok(no_content()) } else { Err(no_event(id)) }
}

pub(super) async fn drop_event<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path((namespace, id)): Path<(String, String)>,
) -> Result<Response, Refusal> {
    let (namespace, id) = named_event(&namespace, &id)?;
    if node.events().drop_event(&namespace, id).await? { Ok(no_content()) } else { Err(no_event(id)) }
}

fn no_event(id: InvocationId) -> Refusal {
    Refusal::not_found(format!("there is no event {id}, or its state does not permit this"))
}
