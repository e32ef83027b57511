//! Runs functions that do not speak the Runtime API: HTTP servers (`provided.http`), as Knative and Functions Framework
//! images are, and, with the argument `exec`, OpenWhisk's native actions (`programs`).
//!
//! For a server it starts the archive's `bootstrap`, waits until the server listens on `$PORT`, and sends each invocation as
//! a request. It runs in the sandbox and gets invocations from the Runtime API. `http_passage` converts invocations and
//! responses; this program has the process and the sockets. When the server ends, the program ends with the same status,
//! and the sandbox with it.

mod programs;
mod runtime_client;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use nigh_lambda::http_passage::{ServerRequest, pass, returned};
use nigh_sandbox::runtime_command::EXEC_MODE;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use self::runtime_client::{NextInvocation, RuntimeApi, call};

/// The default port of a server.
const PORT: &str = "8080";
/// The longest answer of a server; the Runtime API accepts less.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// How often the program checks whether the server listens.
const LISTENS_EVERY: Duration = Duration::from_millis(5);

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(code) => code,
        Err(error) => {
            // This goes into the function's log.
            eprintln_line(&error.to_string());
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
    let api = RuntimeApi::of_environment()?;
    if std::env::args().nth(1).as_deref() == Some(EXEC_MODE) {
        programs::serve(&api).await?;
        return Ok(ExitCode::SUCCESS);
    }
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

/// Waits without a limit of its own: the sandbox limits the time of initialisation.
async fn until_it_listens(address: &str) {
    while TcpStream::connect(address).await.is_err() {
        tokio::time::sleep(LISTENS_EVERY).await;
    }
}

async fn serve(server: &mut Child, api: &RuntimeApi, address: &str) -> Result<ExitCode, Failure> {
    loop {
        let NextInvocation { id, payload, .. } = tokio::select! {
            ended = server.wait() => return Ok(exit_of(ended?.code())),
            next = api.next() => next?,
        };
        let passed = pass(&payload, &id);
        let answered = tokio::select! {
            ended = server.wait() => return Ok(exit_of(ended?.code())),
            answered = ask(address, &passed) => answered,
        };
        match answered.and_then(|response| Ok(returned(&passed, response)?)) {
            Ok(answer) => api.answer(&id, answer).await?,
            Err(error) => api.error(&id, "Http.ServerError", &error.to_string()).await?,
        }
    }
}

/// Sends a request to the server.
async fn ask(address: &str, passed: &ServerRequest) -> Result<Response<Bytes>, Failure> {
    let mut request = Request::builder().method(passed.method.clone()).uri(&passed.target);
    if let Some(headers) = request.headers_mut() {
        headers.extend(passed.headers.clone());
    }
    call(address, request, passed.body.clone()).await
}
