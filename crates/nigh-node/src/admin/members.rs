//! The members of the node's cluster: who they are, whether they take work, and the cluster's format.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use nigh_engine::Availability;
use nigh_terms::NodeId;

use super::refusal::Refusal;
use super::{AdminSource, json, no_content};
use crate::cluster::ClusterEngine;

fn cluster<N: AdminSource>(node: &N) -> Result<&ClusterEngine, Refusal> {
    node.cluster().ok_or_else(Refusal::no_cluster)
}

pub(super) async fn table<N: AdminSource>(State(node): State<Arc<N>>) -> Result<Response, Refusal> {
    json(&cluster(&*node)?.table().await?)
}

pub(super) async fn finalize<N: AdminSource>(State(node): State<Arc<N>>) -> Result<Response, Refusal> {
    json(&cluster(&*node)?.finalize().await?)
}

pub(super) async fn cordon<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    set(&*node, name, Availability::Cordoned).await
}

pub(super) async fn drain<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    set(&*node, name, Availability::Draining).await
}

pub(super) async fn uncordon<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    set(&*node, name, Availability::Available).await
}

async fn set<N: AdminSource>(node: &N, name: String, availability: Availability) -> Result<Response, Refusal> {
    cluster(node)?.set_availability(&NodeId(name), availability).await?;
    Ok(no_content())
}
