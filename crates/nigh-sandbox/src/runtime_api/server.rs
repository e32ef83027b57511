//! The HTTP part of a Runtime API: connections, paths, and the effect of each request.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::Either;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use nigh_terms::{Hex, InvocationId};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

use super::body::{ReadBody, discard};
use super::input::Input;
use super::response::{JSON, accepted, error, internal, not_found, refused, superseded, too_large};
use super::{InitOutcome, Reply, RuntimeApiState, TimedReply};
use crate::runtime_protocol::{NextReply, Refusal};

/// The most connections of a sandbox. Further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 16;

const PREFIX: &str = "/2018-06-01/runtime/";
const REQUEST_ID: HeaderName = HeaderName::from_static("lambda-runtime-aws-request-id");
const DEADLINE_MS: HeaderName = HeaderName::from_static("lambda-runtime-deadline-ms");
const FUNCTION_ARN: HeaderName = HeaderName::from_static("lambda-runtime-invoked-function-arn");
const TRACE_ID: HeaderName = HeaderName::from_static("lambda-runtime-trace-id");
/// Lambda sends no such header; clients that do not know it pass it over.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const CLIENT_CONTEXT: HeaderName = HeaderName::from_static("lambda-runtime-client-context");
const ERROR_TYPE: HeaderName = HeaderName::from_static("lambda-runtime-function-error-type");

type AnswerBody = http_body_util::Either<Full<Bytes>, Input>;

/// Accepts and serves connections until `until`.
pub(super) async fn accept(shared: &Arc<RuntimeApiState>, listener: &TcpListener, until: &CancellationToken) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // For example, no file descriptor is free; one may be closed later.
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

async fn serve_connection(shared: Arc<RuntimeApiState>, stream: TcpStream) {
    // Without this, a response in two writes waits 40 ms for a delayed acknowledgement.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY cannot be set");
    }
    let service = service_fn(move |request: Request<Incoming>| {
        let waits_for_input = route(request.uri().path()) == Some(Route::Next);
        let answered = answer(Arc::clone(&shared), request);
        if waits_for_input {
            // This task ends with its connection, because nothing else would take the input.
            return Either::Left(answered.map(Ok::<_, Infallible>));
        }
        // A complete request counts even if the client closes before the response. The sandbox's end waits for this
        // task.
        let heard = shared.connections.spawn(answered);
        Either::Right(
            heard.map(|heard| Ok(heard.unwrap_or_else(|lost| internal(&lost.to_string()).map(AnswerBody::Left)))),
        )
    });
    if let Err(error) = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a connection to a runtime interface ended");
    }
}

/// The operation of a path.
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

async fn answer(shared: Arc<RuntimeApiState>, request: Request<Incoming>) -> Response<AnswerBody> {
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

/// Waits for the sandbox's next input.
pub(super) async fn next(shared: &Arc<RuntimeApiState>) -> Response<AnswerBody> {
    let waiting = {
        let mut seats = shared.seats.lock();
        match seats.protocol.next() {
            Err(refusal) => return refused(&refusal).map(AnswerBody::Left),
            Ok(NextReply::Take(_)) => match seats.assigned.take() {
                Some(dispatch) => return input(shared.input(dispatch)),
                None => return internal("the input is lost").map(AnswerBody::Left),
            },
            Ok(NextReply::Wait { initialised }) => {
                if initialised && let Some(init) = seats.init.take() {
                    let _ = init.send(InitOutcome::Ready);
                }
                let (poll, waiting) = oneshot::channel();
                seats.poll = Some(poll);
                waiting
            }
        }
    };
    match waiting.await {
        Ok(handed) => input(handed),
        // A later request replaced this one, or the sandbox must end.
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
        let trace = dispatch.trace.map_or_else(|| untraced_id(dispatch.id), |trace| trace.xray());
        if let Ok(trace) = HeaderValue::from_str(&trace) {
            headers.insert(TRACE_ID, trace);
        }
        if let Some(Ok(parent)) = dispatch.trace.map(|trace| HeaderValue::from_str(&trace.traceparent())) {
            headers.insert(TRACEPARENT, parent);
        }
        if let Some(context) = &dispatch.client_context {
            headers.insert(CLIENT_CONTEXT, context.clone());
        }
    }
    // hyper never polls an empty body, so the input counts as taken with the response.
    if input.dispatch().is_some_and(|dispatch| dispatch.payload.is_empty()) {
        drop(input.take());
    }
    let mut response = Response::new(AnswerBody::Right(input));
    *response.headers_mut() = headers;
    response
}

/// X-Ray's form of a trace header for an invocation that belongs to no trace, not sampled: seconds and 96 more bits, all
/// from the invocation's identifier.
fn untraced_id(id: InvocationId) -> String {
    let bytes = id.as_bytes();
    let millis = bytes[..6].iter().fold(0u64, |sum, &byte| (sum << 8) | u64::from(byte));
    format!("Root=1-{:08x}-{};Parent={};Sampled=0", millis / 1000, Hex(&bytes[4..]), Hex(&bytes[8..]))
}

async fn init_error(shared: &RuntimeApiState, error_type: Option<String>, body: Incoming) -> Response<Full<Bytes>> {
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
        let _ = init.send(InitOutcome::Failed { payload, error_type });
    }
    accepted()
}

async fn invocation_answer(
    shared: &RuntimeApiState,
    id: &str,
    failed: bool,
    error_type: Option<String>,
    body: Incoming,
) -> Response<Full<Bytes>> {
    // Checked before the body is read, so that only a permitted request costs memory, and again afterwards.
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
        let _ = sender.send(TimedReply { at: shared.clock.monotonic(), reply });
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let text = untraced_id(InvocationId::now());
        let root = text.strip_prefix("Root=1-").unwrap();
        assert_eq!(root.find('-'), Some(8));
        assert_eq!(root[9..].find(';'), Some(24));
        assert!(text.ends_with(";Sampled=0"));
    }

    #[test]
    fn a_traced_input_tells_the_runtime_the_caller_s_trace() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let dispatch = super::super::Dispatch {
            id: InvocationId::now(),
            deadline: nigh_terms::Timestamp(1),
            function_arn: HeaderValue::from_static("arn"),
            client_context: None,
            trace: nigh_trace::SpanContext::of_traceparent(parent),
            payload: Bytes::from_static(b"7"),
        };
        let response = input(Input::new(dispatch, Box::new(drop)));
        let root = "Root=1-0af76519-16cd43dd8448eb211c80319c;Parent=b7ad6b7169203331;Sampled=1";
        assert_eq!(response.headers()[TRACE_ID], root);
        assert_eq!(response.headers()[TRACEPARENT], parent);
    }
}
