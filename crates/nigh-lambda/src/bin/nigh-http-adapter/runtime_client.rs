//! A client of the Runtime API, for programs that do not speak it themselves.

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::{ANSWER_BYTES_MAX, Failure};

/// The version of the Runtime API.
const RUNTIME: &str = "/2018-06-01/runtime";

/// An invocation to run.
pub(super) struct NextInvocation {
    pub(super) id: String,
    /// Its deadline, in milliseconds since 1970.
    pub(super) deadline_ms: String,
    pub(super) payload: Bytes,
}

/// The Runtime API of this sandbox.
pub(super) struct RuntimeApi(String);

impl RuntimeApi {
    /// The API that the environment names.
    pub(super) fn of_environment() -> Result<Self, Failure> {
        Ok(Self(std::env::var("AWS_LAMBDA_RUNTIME_API").map_err(|_| "AWS_LAMBDA_RUNTIME_API is not set")?))
    }

    /// Waits for the next invocation.
    pub(super) async fn next(&self) -> Result<NextInvocation, Failure> {
        let next = Request::builder().method(Method::GET).uri(format!("{RUNTIME}/invocation/next"));
        let (head, payload) = call(&self.0, next, Bytes::new()).await?.into_parts();
        let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let id = header("lambda-runtime-aws-request-id");
        let id = id.ok_or("the Runtime API gave an invocation without its id")?;
        Ok(NextInvocation { id, deadline_ms: header("lambda-runtime-deadline-ms").unwrap_or_default(), payload })
    }

    /// Answers the invocation `id`.
    pub(super) async fn answer(&self, id: &str, answer: Bytes) -> Result<(), Failure> {
        self.post(format!("{RUNTIME}/invocation/{id}/response"), answer).await
    }

    /// Reports that the invocation `id` has failed.
    pub(super) async fn error(&self, id: &str, kind: &str, message: &str) -> Result<(), Failure> {
        self.post(format!("{RUNTIME}/invocation/{id}/error"), error_object(kind, message)).await
    }

    /// Reports that nothing can run.
    pub(super) async fn init_error(&self, kind: &str, message: &str) -> Result<(), Failure> {
        self.post(format!("{RUNTIME}/init/error"), error_object(kind, message)).await
    }

    async fn post(&self, path: String, body: Bytes) -> Result<(), Failure> {
        call(&self.0, Request::builder().method(Method::POST).uri(path), body).await.map(drop)
    }
}

fn error_object(kind: &str, message: &str) -> Bytes {
    Bytes::from(serde_json::json!({ "errorType": kind, "errorMessage": message }).to_string())
}

/// One request on a connection of its own.
pub(super) async fn call(
    authority: &str,
    request: http::request::Builder,
    body: Bytes,
) -> Result<Response<Bytes>, Failure> {
    let stream = TcpStream::connect(authority).await.map_err(|error| format!("{authority}: {error}"))?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let request = request
        .header(http::header::HOST, authority)
        .header(http::header::CONTENT_LENGTH, body.len())
        .body(Full::new(body))?;
    let (head, body) = sender.send_request(request).await?.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await?.to_bytes();
    driver.abort();
    Ok(Response::from_parts(head, body))
}
