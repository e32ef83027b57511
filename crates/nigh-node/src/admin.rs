//! The admin API: the node's status, history and explanations, and what an operator does.
//!
//! `routes` is the table of its paths below `/v1`, of which the router and `/v1/openapi.json` are made. It is served on a
//! Unix socket, for this user and root only, and over TCP, for keys and sessions with a role (`door`); there the page is
//! served too. Paths without `/v1` are answered by 404 and a word.

mod activations;
mod answered;
mod contents;
mod door;
mod event_stream;
mod events;
mod functions;
mod hierarchy;
mod invoke;
mod keys;
mod live;
mod logs;
mod members;
mod models;
mod namespaces;
mod objects;
mod openapi;
mod page;
mod refusal;
mod reload;
mod reports;
mod route;
mod routes;
mod views;

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Router, middleware};
use futures::StreamExt as _;
use nigh_functions::function_store::FunctionStore;
use nigh_http::audit::Audit;
use nigh_invoke::activation_log::ActivationLog;
use nigh_invoke::event_invoker::EventInvoker;
use nigh_invoke::invocation::Invoke;
use nigh_invoke::node_memory::SandboxShare;
use nigh_objects::ObjectMemory;
use nigh_sizing::object_features::recorder::FeatureRecorder;
use nigh_terms::{AdminRole, ClosId, InvocationId, Namespace, SandboxId, SecretKey, Timestamp};
use nigh_workflow::executions::Executions;
use nigh_workflow::machine_store::MachineStore;
use nigh_workflow::owned::OwnedExecutions;
use serde::Serialize;
use tokio::net::{UnixListener, UnixStream, unix};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::answered::PeerUser;
use self::door::sign_in;
use self::refusal::Refusal;
use self::reports::Description;
use self::route::Route;
use crate::backup::source::BackupSource;
use crate::cluster::ClusterEngine;
use crate::cluster::members::MemberSource;
use crate::config::ShownSetting;
use crate::learning::MemoryModels;
use crate::llc::LlcStatus;
use crate::profiling::{ModelRows, ProfileReport, ProfileRequest, ProfilingError};
use crate::recent_invocations::RecentInvocations;
use crate::reload::{ReloadError, ReloadReport};
use crate::status::{DrainStatus, Status};
use crate::telemetry::MetricsText;
use crate::tenancy::Tenancy;

pub use self::door::sign_in::SignInLink;
pub(crate) use self::door::{Caller, SignIns, TcpDoor};
pub use self::functions::ListedFunction;
pub(crate) use self::live::LiveViews;
pub use self::logs::{LogEntry, LogLine};

/// Before each path of this version of the API. A version may gain paths and fields; none is removed.
pub(crate) const VERSION: &str = "/v1";
/// The header with the parameter `cursor` of a list's next page.
pub(crate) const CURSOR: &str = "x-nigh-cursor";
/// The header that names the members of the cluster whose part of the answer is missing.
pub(crate) const UNANSWERED: &str = "x-nigh-unanswered";
/// The most records of one answer.
const RECORDS_MAX: usize = 1000;
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
    /// What a key may do here; none if it or its secret is wrong, or it has no role.
    fn admin_role(&self, access_key: &str, secret: &SecretKey) -> Option<AdminRole>;
    /// The browsers that are signed in.
    fn sign_ins(&self) -> &SignIns;
    /// Begins to drain. Returns what the node waits for.
    fn shut_down(&self) -> DrainStatus;
    /// Cancelled when the node has drained and this API must end.
    fn stop(&self) -> &CancellationToken;
}

/// Makes the router of `node`, without the callers.
fn router<N: AdminSource>(node: &Arc<N>) -> Router {
    let routes = routes::routes::<N>();
    let document = openapi::document(routes.iter().map(|route| &route.operation));
    let description = Description(Bytes::from(document.to_string()));
    let known: Arc<[&'static str]> = routes.iter().map(|route| route.operation.path).collect();
    let mut api = Router::new();
    for Route { operation, handler } in routes {
        let guarded = handler.route_layer(middleware::from_fn_with_state(operation.role, door::has_role));
        api = api.route(operation.path, guarded);
    }
    Router::new()
        .nest(VERSION, api)
        .route(sign_in::SIGN_IN, get(sign_in::follow_link::<N>))
        .fallback(move |method: Method, uri: Uri, headers: HeaderMap| {
            let known = Arc::clone(&known);
            async move { page::elsewhere(&method, &uri, &headers, &known) }
        })
        .layer(middleware::from_fn_with_state(Arc::clone(node), answered::answered::<N>))
        .layer(Extension(description))
        .layer(middleware::map_response_with_state(node.stop().clone(), ends_with_node))
        .with_state(Arc::clone(node))
}

/// Ends an endless answer when the node stops: else the listener would wait for it.
async fn ends_with_node(State(stop): State<CancellationToken>, response: Response) -> Response {
    if response.headers().get(header::CONTENT_TYPE).is_none_or(|kind| kind != "text/event-stream") {
        return response;
    }
    response.map(|body| Body::from_stream(body.into_data_stream().take_until(stop.cancelled_owned())))
}

/// Serves `node` on its Unix socket until it stops.
pub(crate) async fn serve<N: AdminSource>(node: Arc<N>, listener: UnixListener) {
    let stop = node.stop().clone();
    let router = router(&node).layer(Extension(Caller::of_socket()));
    let router = router.into_make_service_with_connect_info::<PeerUser>();
    let served = axum::serve(OwnUserOnly(listener), router).with_graceful_shutdown(stop.cancelled_owned()).await;
    if let Err(error) = served {
        tracing::error!(%error, "the admin API has ended");
    }
}

/// Serves `node` and the page over TCP until it stops.
pub(crate) async fn serve_tcp<N: AdminSource>(node: Arc<N>, door: TcpDoor) {
    let router = router(&node);
    door::serve(node, router, door).await;
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

/// The answer with the cursor of the next page, if there is one.
fn with_cursor(cursor: Option<String>, mut answer: Response) -> Response {
    if let Some(cursor) = cursor.and_then(|cursor| HeaderValue::from_str(&cursor).ok()) {
        answer.headers_mut().insert(CURSOR, cursor);
    }
    answer
}

fn no_content() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

fn json<T: Serialize + ?Sized>(value: &T) -> Result<Response, Refusal> {
    let text = serde_json::to_vec(value)?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}
