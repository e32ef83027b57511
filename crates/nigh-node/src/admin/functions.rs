//! The deployed functions, and the code of functions and layers as it was uploaded, for exports.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use nigh_functions::function::{Function, FunctionSource as _};
use nigh_terms::{ByteSize, FunctionName, Namespace};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::refusal::Refusal;
use super::{AdminSource, RECORDS_MAX, json, with_cursor};
use crate::piped_body;

/// The functions of one answer, if the request names no limit.
const FUNCTIONS: usize = 100;

/// A deployed function, as it is listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListedFunction {
    /// The function's name.
    pub name: FunctionName,
    /// Its runtime: `python3.12`.
    pub runtime: String,
    /// The handler in its code.
    pub handler: String,
    /// What it is for, in its owner's words.
    pub description: String,
    /// The memory that it books.
    pub memory: ByteSize,
    /// How long one invocation may run, in milliseconds.
    pub timeout_ms: u64,
    /// The SHA-256 of its code's archive, base64.
    pub code_sha256: String,
    /// The bytes of the archive.
    pub code_bytes: ByteSize,
    /// When its code or configuration changed last, RFC 3339.
    pub modified: String,
}

impl From<&Function> for ListedFunction {
    fn from(function: &Function) -> Self {
        Self {
            name: function.name.clone(),
            runtime: function.runtime_name.clone(),
            handler: function.handler.clone(),
            description: function.description.clone(),
            memory: function.memory,
            timeout_ms: function.timeout.as_millis() as u64,
            code_sha256: function.code_sha256.clone(),
            code_bytes: function.code_size,
            modified: function.modified.rfc3339(),
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FunctionParams {
    /// Whose functions.
    namespace: Namespace,
    /// The most functions: 100 if absent, 1000 at most.
    limit: Option<usize>,
    /// Where the page begins: the header `x-nigh-cursor` of the page before.
    cursor: Option<FunctionName>,
}

pub(super) async fn functions<N: AdminSource>(
    State(node): State<Arc<N>>,
    Query(asked): Query<FunctionParams>,
) -> Result<Response, Refusal> {
    let limit = asked.limit.unwrap_or(FUNCTIONS).min(RECORDS_MAX);
    let (deployed, is_more) = node.functions().list(&asked.namespace, asked.cursor.as_ref(), limit);
    let found: Vec<ListedFunction> = deployed.iter().map(|one| (&*one.function).into()).collect();
    let next = found.last().filter(|_| is_more).map(|last| last.name.to_string());
    Ok(with_cursor(next, json(&found)?))
}

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
