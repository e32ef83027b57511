//! The Lambda Runtime API server of one sandbox (Lambda developer guide, "Runtime API", version 2018-06-01).
//!
//! It speaks HTTP and hands inputs and answers over; what is allowed when is decided by `runtime_protocol`. Its client
//! is the function's own process, so nothing that arrives is trusted: connections and bodies are bounded, and a
//! request that does not fit is refused without any effect on the invocation, other sandboxes or Nigh.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::FutureExt as _;
use futures::future::Either;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use nigh_terms::{Clock, InvocationId, Monotonic, Timestamp};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::runtime_input::Input;
use crate::runtime_protocol::{Next, Protocol, Refusal, State};
use crate::sandbox::SandboxEnd;

/// The largest answer (Lambda's 6 MB and what its own emulator adds for the frame).
pub const RESPONSE_BYTES_MAX: usize = 6 * 1024 * 1024 + 100;
/// How much of a larger answer is read and thrown away, so that its sender can read the refusal.
const DISCARD_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How much of the body of a request that is refused for other reasons is read.
const REFUSED_BYTES_MAX: usize = 64 * 1024;
/// Connections that a sandbox may hold; further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 16;
/// How long the connections of an ended sandbox may take to deliver what it had sent.
const SETTLE: Duration = Duration::from_millis(50);

const PREFIX: &str = "/2018-06-01/runtime/";
const REQUEST_ID: HeaderName = HeaderName::from_static("lambda-runtime-aws-request-id");
const DEADLINE_MS: HeaderName = HeaderName::from_static("lambda-runtime-deadline-ms");
const FUNCTION_ARN: HeaderName = HeaderName::from_static("lambda-runtime-invoked-function-arn");
const TRACE_ID: HeaderName = HeaderName::from_static("lambda-runtime-trace-id");
const CLIENT_CONTEXT: HeaderName = HeaderName::from_static("lambda-runtime-client-context");
const ERROR_TYPE: HeaderName = HeaderName::from_static("lambda-runtime-function-error-type");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// One input for a sandbox.
#[derive(Debug)]
pub struct Dispatch {
    /// The invocation.
    pub id: InvocationId,
    /// When the sandbox will be ended.
    pub deadline: Timestamp,
    /// The function's ARN.
    pub function_arn: HeaderValue,
    /// Lambda's `ClientContext`.
    pub client_context: Option<HeaderValue>,
    /// The handler's input.
    pub payload: Bytes,
}

/// What became of an input.
#[derive(Debug)]
pub enum Reply {
    /// The handler's answer.
    Response(Bytes),
    /// The handler raised: the runtime client's error object, as it came.
    Error {
        /// The object, not checked.
        payload: Bytes,
        /// The error's type, from the header.
        error_type: Option<String>,
    },
    /// The answer is larger than `RESPONSE_BYTES_MAX`.
    TooLarge,
    /// The sandbox ended before it answered.
    Ended {
        /// How.
        end: SandboxEnd,
        /// False if it had not got the input yet: nothing of the invocation has run.
        taken: bool,
    },
}

/// A reply and when it was whole.
#[derive(Debug)]
pub struct Replied {
    /// The time of its last byte.
    pub at: Monotonic,
    /// The reply.
    pub reply: Reply,
}

/// How an initialisation ended.
#[derive(Debug)]
pub enum Initialised {
    /// The sandbox asked for its first input.
    Ready,
    /// It said that it cannot: the runtime client's error object, as it came.
    Failed {
        /// The object, not checked.
        payload: Bytes,
        /// The error's type, from the header.
        error_type: Option<String>,
    },
    /// It ended.
    Ended(SandboxEnd),
}

/// Called when an answer has come, before its sender learns that: from then on the sandbox runs no invocation.
pub type OnAnswer = Box<dyn Fn() + Send + Sync>;

type AnswerBody = http_body_util::Either<Full<Bytes>, Input>;

struct Seats {
    protocol: Protocol,
    /// The request for the next input that waits; a later one takes its place.
    poll: Option<oneshot::Sender<Input>>,
    /// The input that waits for a request.
    assigned: Option<Dispatch>,
    init: Option<oneshot::Sender<Initialised>>,
    reply: Option<oneshot::Sender<Replied>>,
    /// Ends the reading of the answer that is being read; a later one takes its place.
    reading: CancellationToken,
}

struct Shared {
    seats: Mutex<Seats>,
    clock: Arc<dyn Clock>,
    on_answer: OnAnswer,
    connections: TaskTracker,
    /// Held while a body is read: a sandbox costs one answer's memory, however many connections it has.
    body: tokio::sync::Mutex<()>,
}

impl Shared {
    /// `dispatch` on its way to a request that asked for it.
    fn input(self: &Arc<Self>, dispatch: Dispatch) -> Input {
        let shared = Arc::clone(self);
        Input::new(dispatch, Box::new(move |dispatch| shared.give_back(dispatch)))
    }

    /// The request that got `dispatch` has gone with it: it waits for the next one.
    fn give_back(&self, dispatch: Dispatch) {
        let mut seats = self.seats.lock();
        if seats.protocol.give_back(dispatch.id) {
            seats.assigned = Some(dispatch);
        }
    }

    /// Reads `body` in the place of another that is being read; none if a later one takes its place.
    async fn read(&self, body: Incoming) -> Option<Result<ReadBody, hyper::Error>> {
        let mine = CancellationToken::new();
        let earlier = std::mem::replace(&mut self.seats.lock().reading, mine.clone());
        earlier.cancel();
        let read = async {
            let _alone = self.body.lock().await;
            read(body).await
        };
        tokio::select! {
            biased;
            () = mine.cancelled() => None,
            body = read => Some(body),
        }
    }
}

/// The Runtime API of one sandbox.
#[derive(Clone)]
pub struct RuntimeApi {
    shared: Arc<Shared>,
}

impl RuntimeApi {
    /// An API that nobody can reach yet, and what tells of the initialisation's end.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, on_answer: OnAnswer) -> (Self, oneshot::Receiver<Initialised>) {
        let (init, initialised) = oneshot::channel();
        let seats = Seats {
            protocol: Protocol::default(),
            poll: None,
            assigned: None,
            init: Some(init),
            reply: None,
            reading: CancellationToken::new(),
        };
        let shared = Shared {
            seats: Mutex::new(seats),
            clock,
            on_answer,
            connections: TaskTracker::new(),
            body: tokio::sync::Mutex::default(),
        };
        (Self { shared: Arc::new(shared) }, initialised)
    }

    /// Serves on `listener`, in tasks of its own, until `until` is cancelled.
    pub fn serve(&self, listener: TcpListener, until: CancellationToken) {
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            tokio::select! {
                () = accept(&shared, &listener, &until) => {}
                () = until.cancelled() => {}
            }
        });
    }

    /// Gives the sandbox its next input. What becomes of it comes through the receiver; `None` if the sandbox cannot
    /// have one now.
    #[must_use]
    pub fn dispatch(&self, dispatch: Dispatch) -> Option<oneshot::Receiver<Replied>> {
        let mut seats = self.shared.seats.lock();
        if !seats.protocol.assign(dispatch.id) {
            return None;
        }
        let (reply, replied) = oneshot::channel();
        seats.reply = Some(reply);
        // A poll whose connection has gone cannot take the input: it then waits for the next one.
        match seats.poll.take() {
            Some(poll) => match poll.send(self.shared.input(dispatch)) {
                Ok(()) => drop(seats.protocol.next()),
                // Taken here, with the seats locked, it does not give itself back.
                Err(mut input) => seats.assigned = input.take(),
            },
            None => seats.assigned = Some(dispatch),
        }
        Some(replied)
    }

    /// Whether the sandbox has ended, as far as is known here.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.shared.seats.lock().protocol.state() == State::Ended
    }

    /// The sandbox's process has ended. What it sent before that still counts.
    pub async fn ended(&self, end: SandboxEnd) {
        // Its sockets are closed; the connections' tasks come to their ends by themselves.
        tokio::task::yield_now().await;
        self.shared.connections.close();
        let _ = tokio::time::timeout(SETTLE, self.shared.connections.wait()).await;
        self.end(end);
    }

    /// The sandbox is to end: nothing that it sends counts from here on.
    pub fn end(&self, end: SandboxEnd) {
        let at = self.shared.clock.monotonic();
        let mut seats = self.shared.seats.lock();
        let was = seats.protocol.end();
        seats.poll = None;
        seats.assigned = None;
        if let Some(init) = seats.init.take() {
            let _ = init.send(Initialised::Ended(end.clone()));
        }
        if let Some(reply) = seats.reply.take() {
            let taken = matches!(was, State::Running(_));
            let _ = reply.send(Replied { at, reply: Reply::Ended { end, taken } });
        }
    }
}

async fn accept(shared: &Arc<Shared>, listener: &TcpListener, until: &CancellationToken) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, for example: others may give some back.
                tracing::warn!(%error, "the runtime interface of a sandbox cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        let (connection, until) = (Arc::clone(shared), until.clone());
        shared.connections.spawn(async move {
            tokio::select! {
                () = serve_connection(connection, stream) => {}
                () = until.cancelled() => {}
            }
            drop(place);
        });
    }
}

async fn serve_connection(shared: Arc<Shared>, stream: TcpStream) {
    // Without it each answer in two writes would wait 40 ms for a delayed acknowledgement.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY cannot be set");
    }
    let service = service_fn(move |request: Request<Incoming>| {
        let waits_for_input = route(request.uri().path()) == Some(Route::Next);
        let answered = answer(Arc::clone(&shared), request);
        if waits_for_input {
            // It ends with its connection: nobody would take the input.
            return Either::Left(answered.map(Ok::<_, Infallible>));
        }
        // What a client has sent counts though it hangs up before it hears so; the sandbox's end waits for this task.
        let heard = shared.connections.spawn(answered);
        Either::Right(
            heard.map(|heard| Ok(heard.unwrap_or_else(|lost| internal(&lost.to_string()).map(AnswerBody::Left)))),
        )
    });
    if let Err(error) = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a connection to a runtime interface ended");
    }
}

/// What a path asks for.
#[derive(Debug, PartialEq, Eq)]
enum Route<'a> {
    Next,
    InitError,
    Answer { id: &'a str, failed: bool },
}

fn route(path: &str) -> Option<Route<'_>> {
    match path.strip_prefix(PREFIX)?.split_once('/')? {
        ("invocation", "next") => Some(Route::Next),
        ("init", "error") => Some(Route::InitError),
        ("invocation", rest) => match rest.split_once('/')? {
            (id, "response") => Some(Route::Answer { id, failed: false }),
            (id, "error") => Some(Route::Answer { id, failed: true }),
            _ => None,
        },
        _ => None,
    }
}

async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Response<AnswerBody> {
    let (head, body) = request.into_parts();
    let error_type = head.headers.get(ERROR_TYPE).and_then(|value| value.to_str().ok()).map(ToOwned::to_owned);
    let response = match (route(head.uri.path()), head.method) {
        (Some(Route::Next), Method::GET) => return next(&shared).await,
        (Some(Route::InitError), Method::POST) => init_error(&shared, error_type, body).await,
        (Some(Route::Answer { id, failed }), Method::POST) => {
            invocation_answer(&shared, id, failed, error_type, body).await
        }
        (Some(_), _) => error(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "Method Not Allowed"),
        (None, _) => not_found(),
    };
    response.map(AnswerBody::Left)
}

async fn next(shared: &Arc<Shared>) -> Response<AnswerBody> {
    let waiting = {
        let mut seats = shared.seats.lock();
        match seats.protocol.next() {
            Err(refusal) => return refused(&refusal).map(AnswerBody::Left),
            Ok(Next::Take(_)) => match seats.assigned.take() {
                Some(dispatch) => return input(shared.input(dispatch)),
                None => return internal("the input is lost").map(AnswerBody::Left),
            },
            Ok(Next::Wait { initialised }) => {
                if initialised && let Some(init) = seats.init.take() {
                    let _ = init.send(Initialised::Ready);
                }
                let (poll, waiting) = oneshot::channel();
                seats.poll = Some(poll);
                waiting
            }
        }
    };
    match waiting.await {
        Ok(handed) => input(handed),
        // A later poll took its place, or the sandbox is to end.
        Err(_) => refused(&Refusal::InvalidStateTransition { from: "Ready", to: "Ready" }).map(AnswerBody::Left),
    }
}

fn input(mut input: Input) -> Response<AnswerBody> {
    let mut headers = http::HeaderMap::new();
    if let Some(dispatch) = input.dispatch() {
        headers.insert(CONTENT_TYPE, JSON);
        if let Ok(id) = HeaderValue::from_str(&dispatch.id.to_string()) {
            headers.insert(REQUEST_ID, id);
        }
        headers.insert(DEADLINE_MS, HeaderValue::from(dispatch.deadline.millis()));
        headers.insert(FUNCTION_ARN, dispatch.function_arn.clone());
        if let Ok(trace) = HeaderValue::from_str(&trace_id(dispatch.id)) {
            headers.insert(TRACE_ID, trace);
        }
        if let Some(context) = &dispatch.client_context {
            headers.insert(CLIENT_CONTEXT, context.clone());
        }
    }
    // A body without bytes is not asked for them: it is taken by being answered.
    if input.dispatch().is_some_and(|dispatch| dispatch.payload.is_empty()) {
        drop(input.take());
    }
    let mut response = Response::new(AnswerBody::Right(input));
    *response.headers_mut() = headers;
    response
}

/// X-Ray's form of a trace header, not sampled: seconds and 96 more bits, all from the invocation's identifier.
fn trace_id(id: InvocationId) -> String {
    let bytes = id.as_bytes();
    let hex = |part: &[u8]| part.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let millis = bytes[..6].iter().fold(0u64, |sum, &byte| (sum << 8) | u64::from(byte));
    format!("Root=1-{:08x}-{};Parent={};Sampled=0", millis / 1000, hex(&bytes[4..]), hex(&bytes[8..]))
}

async fn init_error(shared: &Shared, error_type: Option<String>, body: Incoming) -> Response<Full<Bytes>> {
    let payload = match shared.read(body).await {
        None => return superseded(),
        Some(Ok(ReadBody::Whole(payload))) => payload,
        Some(Ok(ReadBody::TooLarge)) => return too_large(),
        Some(Err(broken)) => return error(StatusCode::BAD_REQUEST, "InvalidRequest", &broken.to_string()),
    };
    let mut seats = shared.seats.lock();
    if let Err(refusal) = seats.protocol.init_error() {
        return refused(&refusal);
    }
    (shared.on_answer)();
    if let Some(init) = seats.init.take() {
        let _ = init.send(Initialised::Failed { payload, error_type });
    }
    accepted()
}

async fn invocation_answer(
    shared: &Shared,
    id: &str,
    failed: bool,
    error_type: Option<String>,
    body: Incoming,
) -> Response<Full<Bytes>> {
    // Before the body is read, so that only the one who may answer costs memory; and again after it.
    let allowed = shared.seats.lock().protocol.check_answer(id);
    if let Err(refusal) = allowed {
        discard(body).await;
        return refused(&refusal);
    }
    let body = match shared.read(body).await {
        None => return superseded(),
        Some(Ok(body)) => body,
        Some(Err(broken)) => return error(StatusCode::BAD_REQUEST, "InvalidRequest", &broken.to_string()),
    };
    let (reply, response) = match body {
        ReadBody::TooLarge => (Reply::TooLarge, too_large()),
        ReadBody::Whole(payload) if failed => (Reply::Error { payload, error_type }, accepted()),
        ReadBody::Whole(payload) => (Reply::Response(payload), accepted()),
    };
    let mut seats = shared.seats.lock();
    if let Err(refusal) = seats.protocol.answer(id) {
        return refused(&refusal);
    }
    (shared.on_answer)();
    if let Some(sender) = seats.reply.take() {
        let _ = sender.send(Replied { at: shared.clock.monotonic(), reply });
    }
    response
}

/// Reads a refused body, if it is small: its connection can then be used again.
async fn discard(mut body: Incoming) {
    let mut size = 0;
    while let Some(Ok(frame)) = body.frame().await {
        size += frame.data_ref().map_or(0, Bytes::len);
        if size > REFUSED_BYTES_MAX {
            return;
        }
    }
}

enum ReadBody {
    Whole(Bytes),
    TooLarge,
}

async fn read(mut body: Incoming) -> Result<ReadBody, hyper::Error> {
    let mut size = 0;
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    let expected = body.size_hint().exact().and_then(|size| usize::try_from(size).ok()).unwrap_or(0);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        size += data.len();
        if size > DISCARD_BYTES_MAX {
            break;
        }
        if size > RESPONSE_BYTES_MAX {
            (first, whole) = (Bytes::new(), BytesMut::new());
        } else if size == data.len() {
            first = data;
        } else {
            // Only an answer that comes in pieces is copied together.
            if whole.is_empty() {
                whole.reserve(expected.min(RESPONSE_BYTES_MAX).max(size));
                whole.extend_from_slice(&first);
            }
            whole.extend_from_slice(&data);
        }
    }
    Ok(if size > RESPONSE_BYTES_MAX {
        ReadBody::TooLarge
    } else if whole.is_empty() {
        ReadBody::Whole(first)
    } else {
        ReadBody::Whole(whole.freeze())
    })
}

fn json(status: StatusCode, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

fn accepted() -> Response<Full<Bytes>> {
    json(StatusCode::ACCEPTED, Bytes::from_static(b"{\"status\":\"OK\"}\n"))
}

fn error(status: StatusCode, kind: &str, message: &str) -> Response<Full<Bytes>> {
    let body = serde_json::json!({ "errorMessage": message, "errorType": kind });
    json(status, body.to_string().into())
}

fn internal(message: &str) -> Response<Full<Bytes>> {
    error(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
}

fn not_found() -> Response<Full<Bytes>> {
    error(StatusCode::NOT_FOUND, "NotFound", "404 page not found")
}

fn too_large() -> Response<Full<Bytes>> {
    let message = format!("Exceeded maximum allowed payload size ({RESPONSE_BYTES_MAX} bytes).");
    error(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", &message)
}

fn superseded() -> Response<Full<Bytes>> {
    error(StatusCode::CONFLICT, "Conflict", "a later answer came before this one was whole")
}

fn refused(refusal: &Refusal) -> Response<Full<Bytes>> {
    let (status, kind) = match refusal {
        Refusal::InvalidRequestId => (StatusCode::BAD_REQUEST, "InvalidRequestID"),
        Refusal::InvalidStateTransition { .. } => (StatusCode::FORBIDDEN, "InvalidStateTransition"),
    };
    error(status, kind, &refusal.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_input_handed_to_a_request_that_has_gone_waits_for_the_next_one() {
        let (api, _initialised) = RuntimeApi::new(Arc::new(nigh_terms::SystemClock::new()), Box::new(|| {}));
        let mut first = Box::pin(next(&api.shared));
        assert!(first.as_mut().now_or_never().is_none());
        let dispatch = |id| Dispatch {
            id,
            deadline: Timestamp(1),
            function_arn: HeaderValue::from_static("arn"),
            client_context: None,
            payload: Bytes::from_static(b"7"),
        };
        let _replied = api.dispatch(dispatch(InvocationId::now())).unwrap();
        // Its connection goes with the input in its hands, and the next one's goes before the answer is written.
        drop(first);
        let unsent = next(&api.shared).await;
        drop(unsent);
        let taken = next(&api.shared).await.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(taken, "7");
        // It was taken: it does not run twice.
        assert_eq!(next(&api.shared).await.status(), StatusCode::FORBIDDEN);
    }

    #[test]
    fn only_the_paths_of_the_runtime_api_lead_anywhere() {
        assert_eq!(route("/2018-06-01/runtime/invocation/next"), Some(Route::Next));
        assert_eq!(route("/2018-06-01/runtime/init/error"), Some(Route::InitError));
        let answer = |failed| Some(Route::Answer { id: "x", failed });
        assert_eq!(route("/2018-06-01/runtime/invocation/x/response"), answer(false));
        assert_eq!(route("/2018-06-01/runtime/invocation/x/error"), answer(true));
        for other in ["/", "", "/2018-06-01/runtime/", "/2018-06-01/runtime/invocation/x", "/2018-06-01/runtime/next"] {
            assert_eq!(route(other), None, "{other}");
        }
        assert_eq!(route("/2018-06-01/runtime/invocation/x/response/y"), None);
    }

    #[test]
    fn a_trace_id_has_the_form_of_xray() {
        let text = trace_id(InvocationId::now());
        let root = text.strip_prefix("Root=1-").unwrap();
        assert_eq!(root.find('-'), Some(8));
        assert_eq!(root[9..].find(';'), Some(24));
        assert!(text.ends_with(";Sampled=0"));
    }
}
