//! The code of functions and layers, as it was uploaded: for exports.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use nigh_functions::function::FunctionSource as _;
use nigh_terms::{FunctionName, Namespace};

use super::AdminSource;
use super::refusal::Refusal;
use crate::piped_body;

pub(super) async fn code<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path((namespace, name)): Path<(Namespace, FunctionName)>,
) -> Result<Response, Refusal> {
    let functions = node.functions();
    let deployed = functions.get(&namespace, &name);
    let deployed = deployed.ok_or_else(|| Refusal::not_found(format!("there is no function {name}")))?;
    // Fetches the code first if another node deployed the function.
    functions.code_folder(&deployed.function).await;
    archive(functions.archive(&deployed.function)).await
}

pub(super) async fn layer_code<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path((namespace, name, version)): Path<(Namespace, FunctionName, u64)>,
) -> Result<Response, Refusal> {
    let layers = node.functions().layers();
    let found = layers.get(&namespace, &name, version);
    let found = found.ok_or_else(|| Refusal::not_found(format!("there is no version {version} of a layer {name}")))?;
    archive(layers.archive(&namespace, &found)).await
}

/// The bytes of an archive, piece by piece.
async fn archive(path: PathBuf) -> Result<Response, Refusal> {
    let opened = tokio::task::spawn_blocking(move || File::open(path)).await;
    let mut file = opened.map_err(io::Error::other).flatten().map_err(Refusal::disk)?;
    let body = piped_body::of_writer(move |to| io::copy(&mut file, to).map(drop));
    Ok(([(header::CONTENT_TYPE, "application/zip")], Body::from_stream(body)).into_response())
}
