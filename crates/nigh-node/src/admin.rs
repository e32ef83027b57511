//! The admin API: the node's status, history and explanations. It listens on a Unix socket, for this user and root
//! only.
//!
//! | request | answer |
//! |---|---|
//! | `GET /status` | `Status` |
//! | `GET /metrics` | Prometheus text |
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
//! | `GET /views/{view}?namespace&function&bucket&prefix&key&workflow&execution&sort&after&limit&all` | what the page shows, once: `views` |
//! | `GET /live?view&...` | the same as server-sent events: a snapshot, then JSON Merge Patches |
//! | `POST /functions/{namespace}/{function}/invoke` of its input | `InvokeAnswer` |
//! | `GET /objects/{namespace}/{bucket}?key&bytes` | an object's bytes, or its first |
//! | `PUT /objects/{namespace}/{bucket}?key` of an object's bytes | `PutDone` |
//! | `POST /shutdown` | 202 and `DrainStatus`: what the node waits for; this API answers until the node ends |
//!
//! Each node of a cluster has the records of the invocations that ran on it. With `cluster=true` the lists have those of all
//! members, and `/activations/{id}` and `/explain/{id}` always look at all members. The header `x-nigh-unanswered` names
//! the members that did not answer, separated by commas. With `follow=true` and without `cluster=true` only what ends on
//! this node follows.

mod activations;
mod contents;
mod event_stream;
mod events;
mod functions;
mod hierarchy;
mod invoke;
mod live;
mod logs;
mod models;
mod objects;
mod refusal;
mod views;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use nigh_functions::function_store::FunctionStore;
use nigh_invoke::activation_log::ActivationLog;
use nigh_invoke::event_invoker::EventInvoker;
use nigh_invoke::invocation::Invoke;
use nigh_invoke::node_memory::SandboxShare;
use nigh_objects::ObjectMemory;
use nigh_sizing::object_features::recorder::FeatureRecorder;
use nigh_terms::{ClosId, InvocationId, Namespace, SandboxId, Timestamp};
use nigh_workflow::executions::Executions;
use nigh_workflow::machine_store::MachineStore;
use nigh_workflow::owned::OwnedExecutions;
use serde::Serialize;
use tokio::net::{UnixListener, UnixStream, unix};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::refusal::Refusal;
use crate::backup::source::{BackupScope, BackupSource};
use crate::cluster::ClusterEngine;
use crate::cluster::members::MemberSource;
use crate::config::ShownSetting;
use crate::learning::MemoryModels;
use crate::llc::LlcStatus;
use crate::piped_body;
use crate::profiling::{ModelRows, ProfileReport, ProfileRequest, ProfilingError};
use crate::recent_invocations::RecentInvocations;
use crate::status::{DrainStatus, Status};

pub(crate) use self::live::LiveViews;
pub use self::logs::{LogEntry, LogLine};

/// The header that names the members of the cluster whose part of the answer is missing.
pub(crate) const UNANSWERED: &str = "x-nigh-unanswered";
/// The most records of one answer.
const RECORDS_MAX: usize = 1000;
/// How long a backup of objects waits until the store has all earlier writes.
const FLUSH_BEFORE_BACKUP: Duration = Duration::from_secs(120);
/// The most bytes of an imported training set.
const ROWS_BYTES_MAX: usize = 16 << 20;

/// State machines and executions.
pub(crate) struct WorkflowSource<'a> {
    /// The state machines.
    pub(crate) machines: &'a MachineStore,
    /// The executions of a node alone.
    pub(crate) executions: &'a Executions,
    /// In a cluster: the executions of the namespaces whose dispatch owner this node is.
    pub(crate) owned: Option<&'a OwnedExecutions>,
}

/// What the admin API needs of a node.
pub(crate) trait AdminSource: MemberSource + 'static {
    /// The node's name.
    fn name(&self) -> &str;
    /// The namespace that the first start created.
    fn namespace(&self) -> &Namespace;
    /// The invocations that run now and those that ended last.
    fn recent(&self) -> &RecentInvocations;
    /// The class of service of each running invocation that has one.
    fn classes_of_running(&self) -> HashMap<InvocationId, ClosId>;
    /// The memory of a sandbox now; none if it has ended, or memory is not shared out.
    fn sandbox_share(&self, sandbox: SandboxId) -> Option<SandboxShare>;
    /// Runs invocations, wherever in the cluster.
    fn invoke(&self) -> &Arc<dyn Invoke>;
    /// State machines and executions.
    fn workflows(&self) -> WorkflowSource<'_>;
    /// The views that somebody watches.
    fn live(&self) -> &LiveViews;
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
    /// All metrics as Prometheus text.
    fn metrics(&self) -> String;
    /// The settings.
    fn config(&self) -> &[ShownSetting];
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
        .route("/metrics", get(async |State(node): State<Arc<N>>| node.metrics()))
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
        .route(
            "/functions/{namespace}/{function}/invoke",
            post(invoke::invoke::<N>).layer(DefaultBodyLimit::max(invoke::INPUT_BYTES_MAX)),
        )
        .route("/objects/{namespace}/{bucket}", get(contents::get::<N>).put(contents::put::<N>))
        .route("/views/{view}", get(views::view::<N>))
        .route("/live", get(live::live::<N>))
        .route("/backup", get(backup::<N>))
        .route("/shutdown", post(shutdown::<N>))
        .with_state(node);
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
