//! The health listener, on a thread of its own: the rest of the process may hang.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header};
use http_body_util::Full;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::board::HealthBoard;
use super::route::Question;
use super::service_manager::{ServiceManager, ServiceState};
use super::verdict::{HealthAnswer, NodeFacts, Phase, Probe};

/// Connections at a time: balancers and supervisors open few, and an idle one gives its place to the next.
const CONNECTIONS_MAX: usize = 64;
/// How often the node looks at itself and tells its service manager.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const PATHS: &str = "there are /health/live, /health/ready, /health/cluster and /metrics\n";
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The thread. It ends when this is dropped.
pub(crate) struct HealthServer {
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl HealthServer {
    /// Answers at `listener` from `board`, and tells the service manager.
    ///
    /// # Errors
    /// If the system gives no thread or descriptor.
    pub(crate) fn start(listener: std::net::TcpListener, board: Arc<HealthBoard>) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let stop = CancellationToken::new();
        let until = stop.clone();
        let thread = std::thread::Builder::new().name("nigh-health".to_owned()).spawn(move || {
            runtime.block_on(async move {
                let manager = ServiceManager::of_environment();
                tokio::join!(serve(listener, Arc::clone(&board), until.clone()), look(board, manager, until));
            });
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Answers no more. Returns when the address is free.
    pub(crate) async fn end(mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was logged.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

impl Drop for HealthServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn serve(listener: std::net::TcpListener, board: Arc<HealthBoard>, until: CancellationToken) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the health listener is not served; restart the node"),
    };
    nigh_http::listener::serve("health listener", listener, CONNECTIONS_MAX, until, move |request, _| {
        let answer = respond(&board, request.method(), request.uri().path(), request.uri().query());
        async move { answer }
    })
    .await;
}

/// Looks at the node now and then.
async fn look(board: Arc<HealthBoard>, mut manager: Option<ServiceManager>, until: CancellationToken) {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while until.run_until_cancelled(ticks.tick()).await.is_some() {
        look_once(&board, manager.as_mut());
    }
    // The end may have taken less than the time between two looks.
    look_once(&board, manager.as_mut());
}

fn look_once(board: &HealthBoard, manager: Option<&mut ServiceManager>) {
    board.look(Instant::now());
    let facts = board.facts();
    // Asked in any case, so that it is known since when each check is as it is.
    let (is_ready, answer) = board.answer(Probe::Ready, &facts);
    if let Some(manager) = manager {
        let (lives, _) = board.answer(Probe::Live, &facts);
        let ends = matches!(facts.phase, Phase::Draining(_));
        manager.tell(&ServiceState { lives, is_ready, ends, status: line(&answer) });
    }
}

/// One line of an answer: its status, and all that is wrong.
fn line(answer: &HealthAnswer) -> String {
    let wrong: Vec<&str> = answer.checks.iter().filter_map(|check| check.why.as_deref()).collect();
    if wrong.is_empty() { answer.status.clone() } else { format!("{}: {}", answer.status, wrong.join("; ")) }
}

fn respond(board: &HealthBoard, method: &Method, path: &str, query: Option<&str>) -> Response<Full<Bytes>> {
    match Question::of(method, path, query) {
        Question::Node(probe) => {
            let facts: NodeFacts = board.facts();
            let (passes, answer) = board.answer(probe, &facts);
            judged(passes, StatusCode::SERVICE_UNAVAILABLE, &answer)
        }
        Question::Cluster(without) => match board.cluster(without.as_deref()) {
            None => text(StatusCode::NOT_FOUND, "no living member of this cluster has this name\n"),
            Some((passes, answer)) => {
                let refused =
                    if without.is_some() { StatusCode::PRECONDITION_FAILED } else { StatusCode::SERVICE_UNAVAILABLE };
                judged(passes, refused, &answer)
            }
        },
        Question::Metrics => match board.metrics() {
            Some(metrics) => whole(StatusCode::OK, METRICS_TYPE, metrics.into()),
            None => text(StatusCode::SERVICE_UNAVAILABLE, "the node starts or has ended: it has no metrics\n"),
        },
        Question::NotRead => {
            let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
            answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            answer
        }
        Question::Unknown => text(StatusCode::NOT_FOUND, PATHS),
    }
}

fn judged(passes: bool, refused: StatusCode, answer: &HealthAnswer) -> Response<Full<Bytes>> {
    let status = if passes { StatusCode::OK } else { refused };
    // Texts and lists always have a JSON form.
    let mut body = serde_json::to_vec(answer).unwrap_or_default();
    body.push(b'\n');
    whole(status, "application/json", body.into())
}

fn text(status: StatusCode, words: &'static str) -> Response<Full<Bytes>> {
    whole(status, "text/plain; charset=utf-8", Bytes::from_static(words.as_bytes()))
}

fn whole(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}
