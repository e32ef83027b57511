//! Namespaces and their quotas.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use nigh_engine::NamespaceQuota;
use nigh_terms::Namespace;
use schemars::JsonSchema;
use serde::Deserialize;

use super::refusal::Refusal;
use super::{AdminSource, json, keys, no_content};
use crate::tenancy::NewNamespace;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RemoveParams {
    /// True to remove its objects, functions and keys, too.
    #[serde(default)]
    everything: bool,
}

pub(super) async fn list<N: AdminSource>(State(node): State<Arc<N>>) -> Result<Response, Refusal> {
    json(&node.tenancy().list_namespaces())
}

pub(super) async fn create<N: AdminSource>(
    State(node): State<Arc<N>>,
    Json(new): Json<NewNamespace>,
) -> Result<Response, Refusal> {
    keys::created(&node.tenancy().create_namespace(new.name).await?)
}

pub(super) async fn show<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path(namespace): Path<Namespace>,
) -> Result<Response, Refusal> {
    json(&node.tenancy().show_namespace(&namespace)?)
}

pub(super) async fn set_quota<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path(namespace): Path<Namespace>,
    Json(quota): Json<NamespaceQuota>,
) -> Result<Response, Refusal> {
    node.tenancy().set_quota(&namespace, quota).await?;
    Ok(no_content())
}

pub(super) async fn remove<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path(namespace): Path<Namespace>,
    Query(asked): Query<RemoveParams>,
) -> Result<Response, Refusal> {
    node.tenancy().remove_namespace(&namespace, asked.everything).await?;
    Ok(no_content())
}
