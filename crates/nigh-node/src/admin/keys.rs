//! Clients' keys.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use nigh_http::audit::fields;
use nigh_terms::AccessKeyId;
use schemars::JsonSchema;
use serde::Deserialize;

use super::answered::Made;
use super::refusal::Refusal;
use super::{AdminSource, json, no_content};
use crate::tenancy::{CreatedKey, NewKey};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RotateParams {
    /// For so many seconds the key is still accepted beside its successor.
    #[serde(default)]
    overlap_s: u64,
}

pub(super) async fn list<N: AdminSource>(State(node): State<Arc<N>>) -> Result<Response, Refusal> {
    json(&node.tenancy().list_keys().await?)
}

pub(super) async fn create<N: AdminSource>(
    State(node): State<Arc<N>>,
    Json(new): Json<NewKey>,
) -> Result<Response, Refusal> {
    created(&node.tenancy().create_key(new).await?)
}

/// The answer that has the new key's secret; the audit trail has its names.
pub(super) fn created(key: &CreatedKey) -> Result<Response, Refusal> {
    let names = fields(&[
        ("accessKeyId", Some(key.key.id.as_str())),
        ("name", key.key.name.as_deref()),
        ("namespace", Some(key.key.namespace.as_str())),
        ("replaces", key.replaces.as_ref().map(AccessKeyId::as_str)),
    ]);
    let mut answer = json(key)?;
    answer.extensions_mut().insert(Made(names));
    Ok(answer)
}

pub(super) async fn show<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path(key): Path<String>,
) -> Result<Response, Refusal> {
    json(&node.tenancy().show_key(&key).await?)
}

pub(super) async fn rotate<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path(key): Path<String>,
    Query(asked): Query<RotateParams>,
) -> Result<Response, Refusal> {
    created(&node.tenancy().rotate_key(&key, Duration::from_secs(asked.overlap_s)).await?)
}

pub(super) async fn enable<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path(key): Path<String>,
) -> Result<Response, Refusal> {
    node.tenancy().set_key_enabled(&key, true).await?;
    Ok(no_content())
}

pub(super) async fn disable<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path(key): Path<String>,
) -> Result<Response, Refusal> {
    node.tenancy().set_key_enabled(&key, false).await?;
    Ok(no_content())
}

pub(super) async fn remove<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path(key): Path<String>,
) -> Result<Response, Refusal> {
    node.tenancy().remove_key(&key).await?;
    Ok(no_content())
}
