//! The admin API: the node's status, history and explanations. It listens on a Unix socket, for this user and root
//! only.
//!
//! | request | answer |
//! |---|---|
//! | `GET /status` | `Status` |
//! | `GET /metrics` | Prometheus text, or OpenMetrics if `Accept` prefers it |
//! | `GET /llc` | `LlcStatus` |
//! | `POST /llc/profile` of `ProfileRequest` | lines of `ProfileReport`, one a run |
//! | `POST /llc/model` of `ModelRows` | 204; these rows make the function's model |
//! | `GET /learn?namespace&limit` | `[LearnedStatus]`: the memory models of its functions |
//! | `GET /learn/{namespace}/{function}` | `LearnedStatus` |
//! | `GET /learn/{namespace}/{function}/rows` | its rows as CSV |
//! | `POST /learn/{namespace}/{function}/rows` of `ImportedRows` | 204; they replace its own |
//! | `POST /learn/{namespace}/{function}/forget` | 204; the model and its rows are gone |
//! | `GET /config` | `[ShownSetting]` |
//! | `GET /activations?namespace&function&errors&limit&before&prefix&since&cluster` | `[Activation]`, newest first |
//! | `GET /activations/{id}` | `Activation` |
//! | `GET /explain/{id}` | `Explanation` |
//! | `GET /logs?namespace&function&limit&since&follow&cluster` | lines of `LogLine`, oldest first; endless with `follow=true` |
//! | `GET /events?namespace&all&limit` | `EventListing`: dead letters; with `all` also events that wait or run |
//! | `GET /events/{namespace}/{id}` | `ShownEvent` |
//! | `POST /events/{namespace}/{id}/retry` | 204; a dead letter is retried from the beginning |
//! | `POST /events/{namespace}/{id}/drop` | 204; a dead letter or a waiting event is gone |
//! | `GET /functions/{namespace}/{function}/code` | the archive of its code, as it was uploaded |
//! | `GET /layers/{namespace}/{layer}/{version}/code` | the archive of a layer's version |
//! | `GET /backup?keys&objects` | a backup (`backup::archive`) while it is made; broken off by a failure |
//! | `GET /buckets/{namespace}/{bucket}/policy` | `BucketPolicy` |
//! | `POST /buckets/{namespace}/{bucket}/policy` of `BucketPolicy` | 204; the bucket's later writes follow it |
//! | `GET /buckets/{namespace}/unpushed?bucket&prefix&limit` | `[UnpushedRow]`: writes that the store does not have |
//! | `POST /buckets/{namespace}/unpushed/drop` of `UnpushedName` | 204; that write is dropped |
//! | `GET /features/{namespace}?bucket&key&look` | `ShownFeatures`; with `look=true` its header is read if nothing is recorded |
//! | `GET /cluster` | `ClusterTable`: the members of the node's cluster |
//! | `POST /cluster/nodes/{node}/cordon`, `/drain`, `/uncordon` | 204; the node takes no work, or takes work again |
//! | `POST /cluster/finalize` | `FinalizeReport`; the cluster has the newest format that all members can use |
//! | `GET /keys` | `[ListedKey]`: the clients' keys, without their secrets |
//! | `POST /keys` of `NewKey` | `CreatedKey`, with its secret |
//! | `GET /keys/{key}` | `ListedKey`; `key` is an id or a name |
//! | `POST /keys/{key}/rotate?overlap_s` | `CreatedKey`: its successor; the key is refused after the overlap |
//! | `POST /keys/{key}/{enable,disable,rm}` | 204 |
//! | `GET /namespaces` | `[ListedNamespace]` |
//! | `POST /namespaces` of `NewNamespace` | `CreatedKey`: its first key |
//! | `GET /namespaces/{namespace}` | `ListedNamespace` |
//! | `POST /namespaces/{namespace}/quota` of `NamespaceQuota` | 204; it replaces the quota |
//! | `POST /namespaces/{namespace}/rm?everything` | 204; refused if it is not empty, unless `everything=true` |
//! | `POST /reload` | `ReloadReport`: the settings are read again; 409 if they cannot be used, and nothing is changed |
//! | `POST /shutdown` | 202 and `DrainStatus`: what the node waits for; this API answers until the node ends |
//!
//! Each node of a cluster has the records of the invocations that ran on it. With `cluster=true` the lists have those of all
//! members, and `/activations/{id}` and `/explain/{id}` always look at all members. The header `x-nigh-unanswered` names
//! the members that did not answer, separated by commas. With `follow=true` and without `cluster=true` only what ends on
//! this node follows.

mod activations;
mod answered;
mod events;
mod functions;
mod keys;
mod logs;
mod members;
mod models;
mod namespaces;
mod objects;
mod refusal;
mod reload;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use nigh_functions::function_store::FunctionStore;
use nigh_http::audit::Audit;
use nigh_invoke::activation_log::ActivationLog;
use nigh_invoke::event_invoker::EventInvoker;
use nigh_objects::ObjectMemory;
use nigh_sizing::object_features::recorder::FeatureRecorder;
use nigh_terms::Timestamp;
use serde::Serialize;
use tokio::net::{UnixListener, UnixStream, unix};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::answered::PeerUser;
use self::refusal::Refusal;
use crate::backup::source::{BackupScope, BackupSource};
use crate::cluster::ClusterEngine;
use crate::config::ShownSetting;
use crate::learning::MemoryModels;
use crate::llc::LlcStatus;
use crate::piped_body;
use crate::profiling::{ModelRows, ProfileReport, ProfileRequest, ProfilingError};
use crate::reload::{ReloadError, ReloadReport};
use crate::status::{DrainStatus, Status};
use crate::telemetry::MetricsText;
use crate::tenancy::Tenancy;

pub use self::logs::{LogEntry, LogLine};

/// The header that names the members of the cluster whose part of the answer is missing.
pub(crate) const UNANSWERED: &str = "x-nigh-unanswered";
/// The most records of one answer.
const RECORDS_MAX: usize = 1000;
/// How long a backup of objects waits until the store has all earlier writes.
const FLUSH_BEFORE_BACKUP: Duration = Duration::from_secs(120);
/// The most bytes of an imported training set.
const ROWS_BYTES_MAX: usize = 16 << 20;

/// What the admin API needs of a node.
pub(crate) trait AdminSource: Send + Sync + 'static {
    /// The node's status now.
    fn status(&self) -> Status;
    /// The status of the last-level cache now.
    fn llc(&self) -> LlcStatus;
    /// Profiles a function. `tell` gets a report after each run.
    fn profile(
        &self,
        request: ProfileRequest,
        tell: mpsc::UnboundedSender<ProfileReport>,
    ) -> impl Future<Output = Result<ProfileReport, ProfilingError>> + Send;
    /// Makes a function's model from profiled rows.
    fn learn(&self, rows: ModelRows) -> impl Future<Output = Result<(), ProfilingError>> + Send;
    /// The models of functions' memory.
    fn learning(&self) -> &MemoryModels;
    /// All metrics, in the form that a request's `Accept` prefers.
    fn metrics(&self, accept: Option<&str>) -> MetricsText;
    /// The audit trail.
    fn audit(&self) -> &Audit;
    /// The settings in force.
    fn config(&self) -> Vec<ShownSetting>;
    /// Reads the sources of the settings again. Blocks.
    fn reload(&self) -> Result<ReloadReport, ReloadError>;
    /// The records of the invocations that ran on this node.
    fn activations(&self) -> &ActivationLog;
    /// The cluster; none if the node is alone.
    fn cluster(&self) -> Option<&ClusterEngine>;
    /// The asynchronous invocations.
    fn events(&self) -> &EventInvoker;
    /// The deployed functions.
    fn functions(&self) -> &FunctionStore;
    /// The source of a backup, and the time.
    fn backup(&self) -> (&BackupSource, Timestamp);
    /// Manages keys and namespaces.
    fn tenancy(&self) -> &Tenancy;
    /// The object memory.
    fn memory(&self) -> &ObjectMemory;
    /// Records features of objects; none if headers are not read.
    fn features(&self) -> Option<&FeatureRecorder>;
    /// Begins to drain. Returns what the node waits for.
    fn shut_down(&self) -> DrainStatus;
    /// Cancelled when the node has drained and this API must end.
    fn stop(&self) -> &CancellationToken;
}

/// Serves `node` on `listener` until it stops.
pub(crate) async fn serve<N: AdminSource>(node: Arc<N>, listener: UnixListener) {
    let stop = node.stop().clone();
    let router = Router::new()
        .route("/status", get(async |State(node): State<Arc<N>>| json(&node.status())))
        .route("/llc", get(async |State(node): State<Arc<N>>| json(&node.llc())))
        .route("/llc/profile", post(models::profile::<N>))
        .route("/llc/model", post(models::model::<N>))
        .route("/learn", get(models::learned::<N>))
        .route("/learn/{namespace}/{function}", get(models::learned_of::<N>))
        .route(
            "/learn/{namespace}/{function}/rows",
            get(models::learned_rows::<N>).post(models::learn_rows::<N>).layer(DefaultBodyLimit::max(ROWS_BYTES_MAX)),
        )
        .route("/learn/{namespace}/{function}/forget", post(models::forget_learned::<N>))
        .route("/metrics", get(metrics::<N>))
        .route("/config", get(async |State(node): State<Arc<N>>| json(&node.config())))
        .route("/activations", get(activations::activations::<N>))
        .route("/activations/{id}", get(activations::activation::<N>))
        .route("/explain/{id}", get(activations::explanation::<N>))
        .route("/logs", get(logs::logs::<N>))
        .route("/events", get(events::events::<N>))
        .route("/events/{namespace}/{id}", get(events::event::<N>))
        .route("/events/{namespace}/{id}/retry", post(events::retry_event::<N>))
        .route("/events/{namespace}/{id}/drop", post(events::drop_event::<N>))
        .route("/buckets/{namespace}/{bucket}/policy", get(objects::policy::<N>).post(objects::set_policy::<N>))
        .route("/buckets/{namespace}/unpushed", get(objects::unpushed::<N>))
        .route("/buckets/{namespace}/unpushed/drop", post(objects::drop_unpushed::<N>))
        .route("/features/{namespace}", get(objects::features::<N>))
        .route("/functions/{namespace}/{function}/code", get(functions::code::<N>))
        .route("/layers/{namespace}/{layer}/{version}/code", get(functions::layer_code::<N>))
        .route("/keys", get(keys::list::<N>).post(keys::create::<N>))
        .route("/keys/{key}", get(keys::show::<N>))
        .route("/keys/{key}/rotate", post(keys::rotate::<N>))
        .route("/keys/{key}/enable", post(keys::enable::<N>))
        .route("/keys/{key}/disable", post(keys::disable::<N>))
        .route("/keys/{key}/rm", post(keys::remove::<N>))
        .route("/namespaces", get(namespaces::list::<N>).post(namespaces::create::<N>))
        .route("/namespaces/{namespace}", get(namespaces::show::<N>))
        .route("/namespaces/{namespace}/quota", post(namespaces::set_quota::<N>))
        .route("/namespaces/{namespace}/rm", post(namespaces::remove::<N>))
        .route("/backup", get(backup::<N>))
        .route("/cluster", get(members::table::<N>))
        .route("/cluster/nodes/{node}/cordon", post(members::cordon::<N>))
        .route("/cluster/nodes/{node}/drain", post(members::drain::<N>))
        .route("/cluster/nodes/{node}/uncordon", post(members::uncordon::<N>))
        .route("/cluster/finalize", post(members::finalize::<N>))
        .route("/reload", post(reload::reload::<N>))
        .route("/shutdown", post(shutdown::<N>))
        .layer(middleware::from_fn_with_state(Arc::clone(&node), answered::answered::<N>))
        .with_state(node);
    let router = router.into_make_service_with_connect_info::<PeerUser>();
    let served = axum::serve(OwnUserOnly(listener), router).with_graceful_shutdown(stop.cancelled_owned()).await;
    if let Err(error) = served {
        tracing::error!(%error, "the admin API has ended");
    }
}

/// Accepts connections of this user and of root only.
struct OwnUserOnly(UnixListener);

impl axum::serve::Listener for OwnUserOnly {
    type Io = UnixStream;
    type Addr = unix::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let own = rustix::process::geteuid().as_raw();
        loop {
            // axum's own `accept` waits while file descriptors are short.
            let (stream, address) = axum::serve::Listener::accept(&mut self.0).await;
            match stream.peer_cred() {
                Ok(peer) if peer.uid() == own || peer.uid() == 0 => return (stream, address),
                Ok(peer) => {
                    tracing::warn!(uid = peer.uid(), "rejected a connection to the admin socket by another user")
                }
                Err(error) => tracing::warn!(%error, "rejected a connection to the admin socket by an unknown user"),
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.0.local_addr()
    }
}

fn no_content() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

fn json<T: Serialize + ?Sized>(value: &T) -> Result<Response, Refusal> {
    let text = serde_json::to_vec(value)?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

async fn metrics<N: AdminSource>(State(node): State<Arc<N>>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let MetricsText { content_type, text } = node.metrics(accept);
    ([(header::CONTENT_TYPE, content_type)], text).into_response()
}

async fn shutdown<N: AdminSource>(State(node): State<Arc<N>>) -> Result<Response, Refusal> {
    tracing::info!("asked to shut down through the admin API");
    Ok((StatusCode::ACCEPTED, json(&node.shut_down())?).into_response())
}

/// Streams the backup while it is made. A failure after the first bytes breaks off the answer.
async fn backup<N: AdminSource>(State(node): State<Arc<N>>, Query(scope): Query<BackupScope>) -> Response {
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
