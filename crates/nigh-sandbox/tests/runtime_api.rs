//! The Runtime API over real connections: what a runtime client gets, and what garbage does.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use nigh_sandbox::runtime_api::{Dispatch, InitOutcome, RESPONSE_BYTES_MAX, Reply, RuntimeApi, TimedReply};
use nigh_sandbox::sandbox::SandboxEnd;
use nigh_terms::{InvocationId, SystemClock, Timestamp};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(20);

struct Server {
    api: RuntimeApi,
    initialised: Option<oneshot::Receiver<InitOutcome>>,
    answers: Arc<AtomicUsize>,
    address: std::net::SocketAddr,
    _until: DropGuard,
}

impl Server {
    async fn start() -> Self {
        let answers = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&answers);
        let on_answer = Box::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        let (api, initialised) = RuntimeApi::new(Arc::new(SystemClock::new()), on_answer);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let until = CancellationToken::new();
        api.serve(listener, until.clone());
        Self { api, initialised: Some(initialised), answers, address, _until: until.drop_guard() }
    }

    async fn client(&self) -> Client {
        Client(TcpStream::connect(self.address).await.unwrap())
    }

    async fn initialised(&mut self) -> InitOutcome {
        let initialised = self.initialised.take().unwrap();
        tokio::time::timeout(PATIENCE, initialised).await.unwrap().unwrap()
    }

    fn dispatch(&self, payload: &'static str) -> (InvocationId, oneshot::Receiver<TimedReply>) {
        let id = InvocationId::now();
        let dispatch = Dispatch {
            id,
            deadline: Timestamp(1234),
            function_arn: HeaderValue::from_static("arn:aws:lambda:us-east-1:000000000000:function:f"),
            client_context: Some(HeaderValue::from_static("{\"client\":1}")),
            trace: None,
            payload: Bytes::from_static(payload.as_bytes()),
        };
        (id, self.api.dispatch(dispatch).unwrap())
    }

    /// A client that has taken an input.
    async fn running(&mut self) -> (Client, InvocationId, oneshot::Receiver<TimedReply>) {
        let mut client = self.client().await;
        client.send("GET", "invocation/next", b"").await;
        assert!(matches!(self.initialised().await, InitOutcome::Ready));
        let (id, replied) = self.dispatch("{}");
        assert_eq!(client.receive().await.status, 200);
        (client, id, replied)
    }
}

async fn reply(replied: oneshot::Receiver<TimedReply>) -> Reply {
    tokio::time::timeout(PATIENCE, replied).await.unwrap().unwrap().reply
}

struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

struct Client(TcpStream);

impl Client {
    async fn send(&mut self, method: &str, path: &str, body: &[u8]) {
        let head = format!(
            "{method} /2018-06-01/runtime/{path} HTTP/1.1\r\nhost: localhost\r\n\
             Lambda-Runtime-Function-Error-Type: Test.Broken\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        self.0.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
    }

    async fn receive(&mut self) -> Answer {
        tokio::time::timeout(PATIENCE, self.read()).await.expect("no answer came")
    }

    async fn read(&mut self) -> Answer {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.0.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
        let mut body = vec![0; length.unwrap().parse().unwrap()];
        self.0.read_exact(&mut body).await.unwrap();
        Answer { status: head.split(' ').nth(1).unwrap().parse().unwrap(), head, body }
    }

    async fn ask(&mut self, method: &str, path: &str, body: &[u8]) -> Answer {
        self.send(method, path, body).await;
        self.receive().await
    }
}

#[tokio::test]
async fn a_client_gets_its_input_with_lambdas_headers_and_answers_on_the_same_connection() {
    let mut server = Server::start().await;
    let mut client = server.client().await;
    client.send("GET", "invocation/next", b"").await;
    assert!(matches!(server.initialised().await, InitOutcome::Ready));
    for n in 0..3 {
        let (id, replied) = server.dispatch("{\"n\":1}");
        let input = client.receive().await;
        assert_eq!((input.status, input.body.as_slice()), (200, &b"{\"n\":1}"[..]));
        for header in [
            format!("lambda-runtime-aws-request-id: {id}\r\n"),
            "lambda-runtime-deadline-ms: 1234\r\n".to_owned(),
            "lambda-runtime-invoked-function-arn: arn:aws:lambda:us-east-1:000000000000:function:f\r\n".to_owned(),
            "lambda-runtime-trace-id: root=1-".to_owned(),
            "lambda-runtime-client-context: {\"client\":1}\r\n".to_owned(),
        ] {
            assert!(input.head.contains(&header), "{header} in {}", input.head);
        }
        assert_eq!(client.ask("POST", &format!("invocation/{id}/response"), b"\"out\"").await.status, 202);
        assert!(matches!(reply(replied).await, Reply::Response(body) if body == "\"out\""));
        assert_eq!(server.answers.load(Ordering::SeqCst), n + 1);
        client.send("GET", "invocation/next", b"").await;
    }
}

#[tokio::test]
async fn an_input_waits_for_a_client_that_has_not_asked_yet() {
    let mut server = Server::start().await;
    let (mut client, id, replied) = server.running().await;
    assert_eq!(client.ask("POST", &format!("invocation/{id}/response"), b"1").await.status, 202);
    drop(reply(replied).await);
    let (second, replied) = server.dispatch("2");
    assert_eq!(client.ask("GET", "invocation/next", b"").await.body, b"2");
    assert_eq!(client.ask("POST", &format!("invocation/{second}/error"), b"{}").await.status, 202);
    assert!(matches!(reply(replied).await, Reply::Error { error_type: Some(kind), .. } if kind == "Test.Broken"));
}

#[tokio::test]
async fn a_client_that_hung_up_while_it_waited_does_not_take_the_input_with_it() {
    let mut server = Server::start().await;
    let mut first = server.client().await;
    first.send("GET", "invocation/next", b"").await;
    assert!(matches!(server.initialised().await, InitOutcome::Ready));
    let mut second = server.client().await;
    second.send("GET", "invocation/next", b"").await;
    // The later request takes the place of the first, which is told so.
    assert_eq!(first.receive().await.status, 403);
    let (_, _replied) = server.dispatch("7");
    assert_eq!(second.receive().await.body, b"7");
}

#[tokio::test]
async fn wrong_double_and_early_answers_are_refused_and_change_nothing() {
    let mut server = Server::start().await;
    let mut client = server.client().await;
    let stranger = InvocationId::now();
    assert_eq!(client.ask("POST", &format!("invocation/{stranger}/response"), b"1").await.status, 403);
    let (mut client, id, replied) = server.running().await;
    let wrong = client.ask("POST", &format!("invocation/{stranger}/response"), b"1").await;
    assert_eq!((wrong.status, wrong.head.contains("application/json")), (400, true));
    assert!(String::from_utf8(wrong.body).unwrap().contains("InvalidRequestID"));
    assert_eq!(client.ask("GET", "invocation/next", b"").await.status, 403);
    assert_eq!(client.ask("POST", "init/error", b"{}").await.status, 403);
    assert_eq!(client.ask("POST", &format!("invocation/{id}/response"), b"right").await.status, 202);
    assert_eq!(client.ask("POST", &format!("invocation/{id}/response"), b"again").await.status, 403);
    assert!(matches!(reply(replied).await, Reply::Response(body) if body == "right"));
    assert_eq!(server.answers.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn paths_and_methods_that_do_not_exist_are_said_so() {
    let server = Server::start().await;
    let mut client = server.client().await;
    assert_eq!(client.ask("GET", "nothing", b"").await.status, 404);
    assert_eq!(client.ask("GET", "invocation/x/y/z", b"").await.status, 404);
    assert_eq!(client.ask("POST", "invocation/next", b"").await.status, 405);
    assert_eq!(client.ask("GET", "init/error", b"").await.status, 405);
}

#[tokio::test]
async fn garbage_on_many_connections_does_not_disturb_an_invocation() {
    let mut server = Server::start().await;
    let (mut client, id, replied) = server.running().await;
    for garbage in [&b"\x00\xff\x13garbage\r\n\r\n"[..], b"GET", b"POST / HTTP/9.9\r\n\r\n", &[b'x'; 100_000]] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        // The server may hang up before it has read all of it.
        let _ = stream.write_all(garbage).await;
        let _ = stream.shutdown().await;
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut Vec::new())).await.expect("it does not hang up");
    }
    // Half an answer that never becomes whole, on a connection of its own.
    let mut half = server.client().await;
    let head = format!("POST /2018-06-01/runtime/invocation/{id}/response HTTP/1.1\r\ncontent-length: 10\r\n\r\nhal");
    half.0.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(client.ask("POST", &format!("invocation/{id}/response"), b"fine").await.status, 202);
    assert!(matches!(reply(replied).await, Reply::Response(body) if body == "fine"));
}

#[tokio::test]
async fn one_answer_is_read_at_a_time_and_a_later_one_takes_the_place_of_one_that_stalls() {
    let mut server = Server::start().await;
    let (mut client, id, replied) = server.running().await;
    let head =
        format!("POST /2018-06-01/runtime/invocation/{id}/response HTTP/1.1\r\ncontent-length: 1000000\r\n\r\nhalf");
    let mut stalled = Vec::new();
    for _ in 0..4 {
        let mut half = server.client().await;
        half.0.write_all(head.as_bytes()).await.unwrap();
        stalled.push(half);
    }
    // All but the last are refused, whichever that is: their memory is free again.
    let mut refused = 0;
    let mut last = None;
    for mut half in stalled {
        match tokio::time::timeout(Duration::from_secs(1), half.read()).await {
            Ok(answer) => {
                assert_eq!(answer.status, 409);
                refused += 1;
            }
            Err(_) => last = Some(half),
        }
    }
    assert_eq!(refused, 3);
    assert_eq!(client.ask("POST", &format!("invocation/{id}/response"), b"whole").await.status, 202);
    assert_eq!(last.unwrap().receive().await.status, 409);
    assert!(matches!(reply(replied).await, Reply::Response(body) if body == "whole"));
}

#[tokio::test]
async fn an_answer_of_the_allowed_size_passes_and_a_larger_one_is_refused_and_told() {
    let mut server = Server::start().await;
    let (mut client, id, replied) = server.running().await;
    let largest = vec![b'x'; RESPONSE_BYTES_MAX];
    assert_eq!(client.ask("POST", &format!("invocation/{id}/response"), &largest).await.status, 202);
    assert!(matches!(reply(replied).await, Reply::Response(body) if body.len() == RESPONSE_BYTES_MAX));

    let (id, replied) = server.dispatch("{}");
    assert_eq!(client.ask("GET", "invocation/next", b"").await.status, 200);
    let refused = client.ask("POST", &format!("invocation/{id}/response"), &[&largest[..], b"x"].concat()).await;
    assert_eq!(refused.status, 413);
    assert!(matches!(reply(replied).await, Reply::TooLarge));
}

#[tokio::test]
async fn an_error_of_the_initialisation_is_told_and_nothing_follows() {
    let mut server = Server::start().await;
    let mut client = server.client().await;
    assert_eq!(client.ask("POST", "init/error", b"{\"errorType\":\"ImportError\"}").await.status, 202);
    assert!(matches!(server.initialised().await, InitOutcome::Failed { payload, .. } if payload.starts_with(b"{")));
    assert_eq!(client.ask("GET", "invocation/next", b"").await.status, 403);
}

#[tokio::test]
async fn the_end_of_a_sandbox_is_told_with_whether_the_input_was_taken() {
    let mut server = Server::start().await;
    let (client, _, replied) = server.running().await;
    drop(client);
    server.api.ended(SandboxEnd::Exited(1)).await;
    assert!(matches!(reply(replied).await, Reply::Ended { end: SandboxEnd::Exited(1), taken: true }));

    let mut server = Server::start().await;
    let (mut client, id, replied) = server.running().await;
    assert_eq!(client.ask("POST", &format!("invocation/{id}/response"), b"1").await.status, 202);
    drop(reply(replied).await);
    let (_, replied) = server.dispatch("2");
    server.api.ended(SandboxEnd::Exited(0)).await;
    assert!(matches!(reply(replied).await, Reply::Ended { taken: false, .. }));
    assert!(server.api.has_ended());
}

#[tokio::test]
async fn an_answer_sent_before_the_end_counts() {
    let mut server = Server::start().await;
    let (mut client, id, replied) = server.running().await;
    client.send("POST", &format!("invocation/{id}/response"), b"last words").await;
    drop(client);
    server.api.ended(SandboxEnd::Exited(0)).await;
    assert!(matches!(reply(replied).await, Reply::Response(body) if body == "last words"));
}
