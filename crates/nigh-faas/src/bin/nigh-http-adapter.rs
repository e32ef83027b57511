//! The runtime of functions that are HTTP servers (`provided.http`), as Knative and Functions Framework images are: it
//! starts the archive's `bootstrap`, waits until that listens on `$PORT`, and passes each invocation on as a request.
//!
//! It runs inside the sandbox and asks the Runtime API for invocations. What an invocation becomes is `http_passage`'s
//! to decide; here are the process and the sockets. If the server ends, this ends as it did, and the sandbox with it.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use nigh_faas::http_passage::{Passed, pass, returned};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

/// Where a server listens if nothing is said.
const PORT: &str = "8080";
/// The version of the Runtime API.
const RUNTIME: &str = "/2018-06-01/runtime";
/// The largest answer of a server that is read; the Runtime API takes less.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// How often it is tried whether the server listens.
const LISTENS_EVERY: Duration = Duration::from_millis(5);

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(code) => code,
        Err(error) => {
            // Whoever reads the function's log shall know.
            eprintln_line(&format!("provided.http: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn eprintln_line(text: &str) {
    use std::io::Write as _;
    // Without standard error there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn variable(name: &str, default: &str) -> String {
    std::env::var(name).ok().filter(|value| !value.is_empty()).unwrap_or_else(|| default.to_owned())
}

async fn run() -> Result<ExitCode, Failure> {
    let api = std::env::var("AWS_LAMBDA_RUNTIME_API").map_err(|_| "AWS_LAMBDA_RUNTIME_API is not set")?;
    let port = variable("PORT", PORT);
    let bootstrap = format!("{}/bootstrap", variable("LAMBDA_TASK_ROOT", "/var/task"));
    let mut server = Command::new(&bootstrap)
        .env("PORT", &port)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("{bootstrap} cannot be started: {error}"))?;
    let address = format!("127.0.0.1:{port}");
    tokio::select! {
        ended = server.wait() => return Ok(exit_of(ended?.code())),
        () = until_it_listens(&address) => {}
    }
    serve(&mut server, &api, &address).await
}

fn exit_of(code: Option<i32>) -> ExitCode {
    // A server that ends well before it is told to has ended too early all the same.
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).filter(|code| *code != 0).unwrap_or(1))
}

/// The sandbox's own limit of initialisation ends a wait that has no end.
async fn until_it_listens(address: &str) {
    while TcpStream::connect(address).await.is_err() {
        tokio::time::sleep(LISTENS_EVERY).await;
    }
}

async fn serve(server: &mut Child, api: &str, address: &str) -> Result<ExitCode, Failure> {
    loop {
        let next = tokio::select! {
            ended = server.wait() => return Ok(exit_of(ended?.code())),
            next = call(api, Request::builder().method(Method::GET).uri(format!("{RUNTIME}/invocation/next")), Bytes::new()) => next?,
        };
        let (head, payload) = next.into_parts();
        let id = head.headers.get("lambda-runtime-aws-request-id").and_then(|id| id.to_str().ok());
        let id = id.ok_or("the Runtime API gave an invocation without its id")?.to_owned();
        let passed = pass(&payload, &id);
        let answered = tokio::select! {
            ended = server.wait() => return Ok(exit_of(ended?.code())),
            answered = ask(address, &passed) => answered,
        };
        let (path, answer) = match answered.and_then(|response| Ok(returned(&passed, response)?)) {
            Ok(answer) => ("response", answer),
            Err(error) => {
                let error = serde_json::json!({ "errorType": "Http.ServerError", "errorMessage": error.to_string() });
                ("error", Bytes::from(error.to_string()))
            }
        };
        let to = Request::builder().method(Method::POST).uri(format!("{RUNTIME}/invocation/{id}/{path}"));
        call(api, to, answer).await?;
    }
}

/// Asks the server.
async fn ask(address: &str, passed: &Passed) -> Result<Response<Bytes>, Failure> {
    let mut request = Request::builder().method(passed.method.clone()).uri(&passed.target);
    if let Some(headers) = request.headers_mut() {
        headers.extend(passed.headers.clone());
    }
    call(address, request, passed.body.clone()).await
}

/// One request on a connection of its own.
async fn call(authority: &str, request: http::request::Builder, body: Bytes) -> Result<Response<Bytes>, Failure> {
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
