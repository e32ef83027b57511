//! Changing the settings of the running node.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;

use super::refusal::Refusal;
use super::{AdminSource, json};

/// Reads the sources of the settings again, on a thread that may block.
pub(super) async fn reload<N: AdminSource>(State(node): State<Arc<N>>) -> Result<Response, Refusal> {
    let reloaded = tokio::task::spawn_blocking(move || node.reload()).await.map_err(Refusal::internal)?;
    json(&reloaded.map_err(|error| Refusal::conflict(error.to_string()))?)
}
