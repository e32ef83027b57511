//! The admin API: what a node is, has done, and why; on a Unix socket, for this user and root only.
//!
//! | request | answer |
//! |---|---|
//! | `GET /status` | `Status` |
//! | `GET /metrics` | Prometheus text |
//! | `GET /llc` | `LlcStatus` |
//! | `POST /llc/profile` of `ProfileRequest` | lines of `ProfileReport` as it goes on |
//! | `POST /llc/model` of `ModelRows` | 204; the function has the model that these rows give |
//! | `GET /learn?namespace&limit` | `[LearnedStatus]`: what is learned of its functions' memory |
//! | `GET /learn/{namespace}/{function}` | `LearnedStatus` |
//! | `GET /learn/{namespace}/{function}/rows` | its rows as CSV |
//! | `POST /learn/{namespace}/{function}/rows` of `ImportedRows` | 204; they are learned in the place of its own |
//! | `POST /learn/{namespace}/{function}/forget` | 204; nothing is known of it |
//! | `GET /config` | `[Shown]` |
//! | `GET /activations?namespace&function&errors&limit&before` | `[Activation]`, newest first |
//! | `GET /activations/{id}` | `Activation` |
//! | `GET /explain/{id}` | `Explanation` |
//! | `GET /logs?namespace&function&limit&follow` | lines of `LogEntry`, oldest first; endless with `follow=true` |
//! | `GET /events?namespace&all&limit` | `EventListing`: dead letters; with `all` those not done, too |
//! | `GET /events/{namespace}/{id}` | `ShownEvent` |
//! | `POST /events/{namespace}/{id}/retry` | 204; a dead letter is tried again from the beginning |
//! | `POST /events/{namespace}/{id}/drop` | 204; a dead letter, or one that waits, is gone |
//! | `GET /backup?keys&objects` | a backup (`backup::archive`) as it is made; broken off if it cannot be |
//! | `GET /buckets/{namespace}/{bucket}/policy` | `BucketPolicy` |
//! | `POST /buckets/{namespace}/{bucket}/policy` of `BucketPolicy` | 204; the bucket's writes are kept so from now on |
//! | `GET /buckets/{namespace}/unpushed?bucket&prefix&limit` | `[UnpushedRow]`: what the store does not have |
//! | `POST /buckets/{namespace}/unpushed/drop` of `UnpushedName` | 204; that write is given up |
//! | `GET /features/{namespace}?bucket&key&look` | `ShownFeatures`; with `look=true` it is looked at if nothing is known |
//! | `POST /shutdown` | 202 and `DrainStatus`: what the node awaits before it ends; it answers here until then |

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use futures::Stream;
use nigh_data::{ObjectError, ObjectId};
use nigh_engine::RegistryError;
use nigh_invoke::activation_log::{ActivationLog, ActivationQuery};
use nigh_invoke::event_invoker::{EventError, EventInvoker, RetryError};
use nigh_objects::{BucketPolicy, ObjectMemory};
use nigh_schedule::activation::Activation;
use nigh_schedule::event_queue::QueueFull;
use nigh_sizing::memory_sizing::MemorySizingError;
use nigh_sizing::object_features::recorder::FeatureRecorder;
use nigh_terms::{BucketName, FunctionName, InvocationId, Namespace, ObjectKey, Principal, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::net::{UnixListener, UnixStream, unix};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc};
use tokio_util::sync::CancellationToken;

use crate::backup::source::{BackupScope, BackupSource};
use crate::config::ShownSetting;
use crate::explain::{explain, outcome_words};
use crate::features;
use crate::learning::{ImportedRows, LISTED_MAX, Learning, LearningError};
use crate::llc::LlcStatus;
use crate::piped_body;
use crate::profiling::{ModelRows, ProfileReport, ProfileRequest, ProfilingError};
use crate::status::{DrainStatus, Status};
use crate::unpushed::{UnpushedName, UnpushedRow};

/// Records of one answer, whatever is asked.
const RECORDS_MAX: usize = 1000;
/// How long a backup of objects waits until the store has what was written before.
const FLUSH_BEFORE_BACKUP: Duration = Duration::from_secs(120);
/// Bytes of a training set that is taken in.
const ROWS_BYTES_MAX: usize = 16 << 20;
/// Records of one answer, if nothing is asked.
const RECORDS: usize = 20;

/// What the admin API shows; a node provides it.
pub(crate) trait AdminSource: Send + Sync + 'static {
    /// The node as it is now.
    fn status(&self) -> Status;
    /// The last-level cache as it is now.
    fn llc(&self) -> LlcStatus;
    /// Profiles a function; `tell` hears how it stands.
    fn profile(
        &self,
        request: ProfileRequest,
        tell: mpsc::UnboundedSender<ProfileReport>,
    ) -> impl Future<Output = Result<ProfileReport, ProfilingError>> + Send;
    /// Makes a function's model of profiled rows.
    fn learn(&self, rows: ModelRows) -> impl Future<Output = Result<(), ProfilingError>> + Send;
    /// What is learned of functions' memory.
    fn learning(&self) -> &Learning;
    /// All meters as Prometheus text.
    fn metrics(&self) -> String;
    /// The settings.
    fn config(&self) -> &[ShownSetting];
    /// The records.
    fn activations(&self) -> &ActivationLog;
    /// The asynchronous invocations.
    fn events(&self) -> &EventInvoker;
    /// What a backup is made of, and the time.
    fn backup(&self) -> (&BackupSource, Timestamp);
    /// The object memory.
    fn memory(&self) -> &ObjectMemory;
    /// Who looks at objects' headers; none where nobody does.
    fn features(&self) -> Option<&FeatureRecorder>;
    /// Has the node drain and end; what it will await.
    fn shut_down(&self) -> DrainStatus;
    /// Cancelled when the node has drained, and this API shall end.
    fn stop(&self) -> &CancellationToken;
}

/// What one invocation printed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// The invocation.
    pub id: InvocationId,
    /// Its function.
    pub function: FunctionName,
    /// When it was asked for, RFC 3339.
    pub start: String,
    /// How long the handler took, in microseconds.
    pub duration_us: u64,
    /// How it ended.
    pub outcome: String,
    /// What it printed.
    pub log: String,
    /// Bytes it printed beyond the limit.
    pub log_omitted: u64,
}

impl From<&Activation> for LogEntry {
    fn from(activation: &Activation) -> Self {
        Self {
            id: activation.id,
            function: activation.function.clone(),
            start: activation.start.rfc3339(),
            duration_us: activation.duration_us,
            outcome: outcome_words(&activation.outcome),
            log: activation.log.clone(),
            log_omitted: activation.log_omitted,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ActivationParams {
    namespace: Option<Namespace>,
    function: Option<FunctionName>,
    errors: bool,
    before: Option<InvocationId>,
    limit: Option<usize>,
    follow: bool,
}

impl ActivationParams {
    fn query(&self) -> ActivationQuery {
        ActivationQuery {
            namespace: self.namespace.clone(),
            function: self.function.clone(),
            errors_only: self.errors,
            before: self.before,
        }
    }

    fn limit(&self) -> usize {
        self.limit.unwrap_or(RECORDS).min(RECORDS_MAX)
    }
}

/// Why a request has no answer.
enum Refusal {
    NotFound(InvocationId),
    BadId(String),
    Registry(RegistryError),
    Json(serde_json::Error),
    NoEvent(InvocationId),
    Events(EventError),
    EventsFull(QueueFull),
    Objects(ObjectError),
    Learning(LearningError),
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, words) = match self {
            Self::NotFound(id) => (StatusCode::NOT_FOUND, format!("there is no record of an invocation {id}")),
            Self::BadId(text) => (StatusCode::BAD_REQUEST, format!("{text:?} is no invocation id")),
            Self::Registry(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
            Self::NoEvent(id) => (StatusCode::NOT_FOUND, format!("there is no event {id} of which this can be asked")),
            Self::Events(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
            Self::Objects(error) => {
                let status = match &error {
                    ObjectError::NoSuchBucket(_) => StatusCode::NOT_FOUND,
                    ObjectError::InvalidArgument(_) | ObjectError::InvalidRequest(_) => StatusCode::BAD_REQUEST,
                    ObjectError::ConditionalRequestConflict => StatusCode::CONFLICT,
                    _ => StatusCode::INTERNAL_SERVER_ERROR,
                };
                (status, error.to_string())
            }
            Self::Learning(error) => {
                let status = match &error {
                    LearningError::NoFunction(_) | LearningError::Sizing(MemorySizingError::Nothing(_)) => {
                        StatusCode::NOT_FOUND
                    }
                    LearningError::Off => StatusCode::CONFLICT,
                    LearningError::Sizing(MemorySizingError::Csv(_)) => StatusCode::BAD_REQUEST,
                    LearningError::Sizing(_) => StatusCode::INTERNAL_SERVER_ERROR,
                };
                (status, error.to_string())
            }
            Self::EventsFull(error) => (StatusCode::TOO_MANY_REQUESTS, error.to_string()),
            Self::Json(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        };
        (status, words).into_response()
    }
}

/// Serves `node` on `listener` until it stops.
pub(crate) async fn serve<N: AdminSource>(node: Arc<N>, listener: UnixListener) {
    let stop = node.stop().clone();
    let router = Router::new()
        .route("/status", get(async |State(node): State<Arc<N>>| json(&node.status())))
        .route("/llc", get(async |State(node): State<Arc<N>>| json(&node.llc())))
        .route("/llc/profile", post(profile::<N>))
        .route("/llc/model", post(model::<N>))
        .route("/learn", get(learned::<N>))
        .route("/learn/{namespace}/{function}", get(learned_of::<N>))
        .route(
            "/learn/{namespace}/{function}/rows",
            get(learned_rows::<N>).post(learn_rows::<N>).layer(DefaultBodyLimit::max(ROWS_BYTES_MAX)),
        )
        .route("/learn/{namespace}/{function}/forget", post(forget_learned::<N>))
        .route("/metrics", get(async |State(node): State<Arc<N>>| node.metrics()))
        .route("/config", get(async |State(node): State<Arc<N>>| json(&node.config())))
        .route("/activations", get(activations::<N>))
        .route("/activations/{id}", get(activation::<N>))
        .route("/explain/{id}", get(explanation::<N>))
        .route("/logs", get(logs::<N>))
        .route("/events", get(events::<N>))
        .route("/events/{namespace}/{id}", get(event::<N>))
        .route("/events/{namespace}/{id}/retry", post(retry_event::<N>))
        .route("/events/{namespace}/{id}/drop", post(drop_event::<N>))
        .route("/buckets/{namespace}/{bucket}/policy", get(policy::<N>).post(set_policy::<N>))
        .route("/buckets/{namespace}/unpushed", get(unpushed::<N>))
        .route("/buckets/{namespace}/unpushed/drop", post(drop_unpushed::<N>))
        .route("/features/{namespace}", get(features::<N>))
        .route("/backup", get(backup::<N>))
        .route("/shutdown", post(shutdown::<N>))
        .with_state(node);
    let served = axum::serve(OwnUserOnly(listener), router).with_graceful_shutdown(stop.cancelled_owned()).await;
    if let Err(error) = served {
        tracing::error!(%error, "the admin API has ended");
    }
}

/// Passes on connections of this user and of root.
struct OwnUserOnly(UnixListener);

impl axum::serve::Listener for OwnUserOnly {
    type Io = UnixStream;
    type Addr = unix::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let own = rustix::process::geteuid().as_raw();
        loop {
            // axum's own waits out a shortage of files.
            let (stream, address) = axum::serve::Listener::accept(&mut self.0).await;
            match stream.peer_cred() {
                Ok(peer) if peer.uid() == own || peer.uid() == 0 => return (stream, address),
                Ok(peer) => tracing::warn!(uid = peer.uid(), "refused at the admin socket: another user"),
                Err(error) => tracing::warn!(%error, "refused at the admin socket: nobody knows who it is"),
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.0.local_addr()
    }
}

fn json<T: Serialize + ?Sized>(value: &T) -> Result<Response, Refusal> {
    let text = serde_json::to_vec(value).map_err(Refusal::Json)?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

async fn activations<N: AdminSource>(
    State(node): State<Arc<N>>,
    Query(asked): Query<ActivationParams>,
) -> Result<Response, Refusal> {
    let found = node.activations().list(asked.query(), asked.limit()).await.map_err(Refusal::Registry)?;
    json(&found)
}

async fn find<N: AdminSource>(node: &N, id: &str) -> Result<Activation, Refusal> {
    let id: InvocationId = id.parse().map_err(|_| Refusal::BadId(id.chars().take(64).collect()))?;
    node.activations().get(id).await.map_err(Refusal::Registry)?.ok_or(Refusal::NotFound(id))
}

async fn activation<N: AdminSource>(State(node): State<Arc<N>>, Path(id): Path<String>) -> Result<Response, Refusal> {
    json(&find(&*node, &id).await?)
}

async fn explanation<N: AdminSource>(State(node): State<Arc<N>>, Path(id): Path<String>) -> Result<Response, Refusal> {
    json(&explain(find(&*node, &id).await?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AskedEvents {
    namespace: Namespace,
    #[serde(default)]
    all: bool,
    limit: Option<usize>,
}

async fn events<N: AdminSource>(
    State(node): State<Arc<N>>,
    Query(asked): Query<AskedEvents>,
) -> Result<Response, Refusal> {
    json(&node.events().list(&asked.namespace, asked.all, asked.limit.unwrap_or(RECORDS_MAX).min(RECORDS_MAX)))
}

/// The namespace and the event of a path.
fn named_event(namespace: &str, id: &str) -> Result<(Namespace, InvocationId), Refusal> {
    let bad = |text: &str| Refusal::BadId(text.chars().take(64).collect());
    Ok((Namespace::new(namespace).map_err(|_| bad(namespace))?, id.parse().map_err(|_| bad(id))?))
}

async fn event<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path((namespace, id)): Path<(String, String)>,
) -> Result<Response, Refusal> {
    let (namespace, id) = named_event(&namespace, &id)?;
    let shown = node.events().show(&namespace, id).await.map_err(Refusal::Events)?;
    json(&shown.ok_or(Refusal::NoEvent(id))?)
}

async fn retry_event<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path((namespace, id)): Path<(String, String)>,
) -> Result<Response, Refusal> {
    let (namespace, id) = named_event(&namespace, &id)?;
    match node.events().retry(&namespace, id).await {
        Ok(true) => Ok(StatusCode::NO_CONTENT.into_response()),
        Ok(false) => Err(Refusal::NoEvent(id)),
        Err(RetryError::Full(full)) => Err(Refusal::EventsFull(full)),
        Err(RetryError::Event(error)) => Err(Refusal::Events(error)),
    }
}

async fn drop_event<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path((namespace, id)): Path<(String, String)>,
) -> Result<Response, Refusal> {
    let (namespace, id) = named_event(&namespace, &id)?;
    if node.events().drop_event(&namespace, id).await.map_err(Refusal::Events)? {
        Ok(StatusCode::NO_CONTENT.into_response())
    } else {
        Err(Refusal::NoEvent(id))
    }
}

async fn shutdown<N: AdminSource>(State(node): State<Arc<N>>) -> Result<Response, Refusal> {
    tracing::info!("asked to shut down through the admin API");
    Ok((StatusCode::ACCEPTED, json(&node.shut_down())?).into_response())
}

async fn logs<N: AdminSource>(
    State(node): State<Arc<N>>,
    Query(asked): Query<ActivationParams>,
) -> Result<Response, Refusal> {
    // Before the listing: what ends between the two comes twice rather than never, and is passed over by its id.
    let live = asked.follow.then(|| node.activations().follow());
    let mut past = node.activations().list(asked.query(), asked.limit()).await.map_err(Refusal::Registry)?;
    past.reverse();
    let lines = follow(past, live, asked.query(), node.stop().clone());
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response())
}

/// The profile goes on if its client leaves.
async fn profile<N: AdminSource>(State(node): State<Arc<N>>, Json(request): Json<ProfileRequest>) -> Response {
    // One report a run; runs are bounded.
    let (tell, reports) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let last = node.profile(request, tell.clone()).await;
        let report = last.unwrap_or_else(|error| ProfileReport::refused(&error));
        let _nobody_listens_any_more = tell.send(report);
    });
    let lines = futures::stream::unfold(reports, async |mut reports| {
        let report = reports.recv().await?;
        let mut line = serde_json::to_vec(&report).ok()?;
        line.push(b'\n');
        Some((Ok::<_, Infallible>(Bytes::from(line)), reports))
    });
    ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
}

/// Answered as it is made: once bytes have gone out a failure can only break the answer off.
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

/// A bucket as its namespace's own clients name it.
type OfBucket = Path<(Namespace, BucketName)>;

async fn policy<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path((namespace, bucket)): OfBucket,
) -> Result<Response, Refusal> {
    let found = node.memory().bucket_policy(&Principal::outside(namespace), &bucket).await;
    json(&found.map_err(Refusal::Objects)?)
}

async fn set_policy<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path((namespace, bucket)): OfBucket,
    Json(policy): Json<BucketPolicy>,
) -> Result<Response, Refusal> {
    let set = node.memory().set_bucket_policy(&Principal::outside(namespace), &bucket, policy).await;
    set.map_err(Refusal::Objects)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AskedUnpushed {
    bucket: Option<BucketName>,
    #[serde(default)]
    prefix: String,
    limit: Option<usize>,
}

async fn unpushed<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path(namespace): Path<Namespace>,
    Query(asked): Query<AskedUnpushed>,
) -> Result<Response, Refusal> {
    let limit = asked.limit.unwrap_or(RECORDS_MAX).min(RECORDS_MAX);
    let found = node.memory().unpushed(&namespace, asked.bucket.as_ref(), &asked.prefix, limit);
    json(&found.into_iter().map(UnpushedRow::from).collect::<Vec<_>>())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AskedFeatures {
    bucket: BucketName,
    key: ObjectKey,
    #[serde(default)]
    look: bool,
}

async fn features<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path(namespace): Path<Namespace>,
    Query(AskedFeatures { bucket, key, look }): Query<AskedFeatures>,
) -> Result<Response, Refusal> {
    json(&features::shown(node.features(), ObjectId { namespace, bucket, key }, look).await)
}

async fn drop_unpushed<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path(namespace): Path<Namespace>,
    Json(UnpushedName { bucket, key, version }): Json<UnpushedName>,
) -> Result<Response, Refusal> {
    let object = ObjectId { namespace, bucket, key };
    if node.memory().drop_unpushed(&object, version).await {
        Ok(StatusCode::NO_CONTENT.into_response())
    } else {
        Err(Refusal::Objects(ObjectError::ConditionalRequestConflict))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AskedLearned {
    namespace: Namespace,
    limit: Option<usize>,
}

async fn learned<N: AdminSource>(
    State(node): State<Arc<N>>,
    Query(asked): Query<AskedLearned>,
) -> Result<Response, Refusal> {
    let found = node.learning().list(&asked.namespace, asked.limit.unwrap_or(LISTED_MAX)).await;
    json(&found.map_err(Refusal::Learning)?)
}

/// A function as its namespace's own clients name it.
type OfFunction = Path<(Namespace, FunctionName)>;

async fn learned_of<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path((namespace, function)): OfFunction,
) -> Result<Response, Refusal> {
    json(&node.learning().show(&namespace, &function).await.map_err(Refusal::Learning)?)
}

async fn learned_rows<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path((namespace, function)): OfFunction,
) -> Result<Response, Refusal> {
    let csv = node.learning().export(&namespace, &function).await.map_err(Refusal::Learning)?;
    Ok(([(header::CONTENT_TYPE, "text/csv")], csv).into_response())
}

async fn learn_rows<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path((namespace, function)): OfFunction,
    Json(rows): Json<ImportedRows>,
) -> Result<Response, Refusal> {
    node.learning().import(&namespace, &function, rows).await.map_err(Refusal::Learning)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn forget_learned<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path((namespace, function)): OfFunction,
) -> Result<Response, Refusal> {
    node.learning().forget(&namespace, &function).await.map_err(Refusal::Learning)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn model<N: AdminSource>(State(node): State<Arc<N>>, Json(rows): Json<ModelRows>) -> Response {
    match node.learn(rows).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(error @ ProfilingError::NoFunction(_)) => (StatusCode::NOT_FOUND, error.to_string()).into_response(),
        Err(error) => (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    }
}

struct ActivationStream {
    past: VecDeque<Activation>,
    told: Vec<InvocationId>,
    live: Option<broadcast::Receiver<Arc<Activation>>>,
    query: ActivationQuery,
    stop: CancellationToken,
}

/// First what was, then what comes, until the node stops or the follower leaves.
fn follow(
    past: Vec<Activation>,
    live: Option<broadcast::Receiver<Arc<Activation>>>,
    query: ActivationQuery,
    stop: CancellationToken,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let told = past.iter().map(|one| one.id).collect();
    let following = ActivationStream { past: past.into(), told, live, query, stop };
    futures::stream::unfold(following, async |mut following| {
        let entry = following.next().await?;
        // What cannot be written as JSON was not read from JSON.
        let mut line = serde_json::to_vec(&entry).ok()?;
        line.push(b'\n');
        Some((Ok(Bytes::from(line)), following))
    })
}

impl ActivationStream {
    async fn next(&mut self) -> Option<LogEntry> {
        if let Some(activation) = self.past.pop_front() {
            return Some(LogEntry::from(&activation));
        }
        let live = self.live.as_mut()?;
        loop {
            let received = tokio::select! {
                () = self.stop.cancelled() => return None,
                received = live.recv() => received,
            };
            match received {
                Ok(activation) if self.query.wants(&activation) && !self.told.contains(&activation.id) => {
                    return Some(LogEntry::from(&*activation));
                }
                Ok(_) => {}
                Err(RecvError::Lagged(missed)) => tracing::warn!(missed, "a follower of logs was too slow"),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}
