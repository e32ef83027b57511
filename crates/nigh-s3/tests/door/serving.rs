//! Connections: both kinds of socket, reuse, limits, the end.

use std::time::Duration;

use nigh_s3::DoorLimits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{Request, Response, exchange};
use crate::running::{Running, limits};
use crate::sign::{Payload, Signer};

#[tokio::test]
async fn a_unix_socket_serves_the_same_objects() {
    let door = Running::with_bucket().await;
    door.put("/bucket/key", "hello").await;
    let request = door.signer.sign(Request::new("GET", "/bucket/key"), Payload::Signed);
    let mut stream = tokio::net::UnixStream::connect(&door.socket).await.unwrap();
    assert_eq!(exchange(&mut stream, &request.head(), b"").await.text(), "hello");
}

#[tokio::test]
async fn a_connection_takes_one_request_after_the_other() {
    let door = Running::with_bucket().await;
    door.put("/bucket/key", "hello").await;
    let mut stream = door.connect().await;
    for _ in 0..3 {
        let request = door.signer.sign(Request::new("GET", "/bucket/key"), Payload::Signed);
        let head = String::from_utf8(request.head()).unwrap().replace("connection: close\r\n", "");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"hello") {
            assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0);
        }
    }
}

#[tokio::test]
async fn idle_and_slow_connections_are_closed() {
    let head_timeout = Duration::from_millis(200);
    let door = Running::start_with(DoorLimits { head_timeout, ..limits() }).await;
    for sent in ["", "GET / HT"] {
        let mut stream = door.connect().await;
        stream.write_all(sent.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut answer)).await;
        assert!(read.is_ok(), "a connection that sent {sent:?} is still open");
    }
}

#[tokio::test]
async fn a_client_that_never_reads_its_answer_is_closed() {
    let send_silence = Duration::from_millis(200);
    let limits = DoorLimits { send_silence, connections: 1, ..limits() };
    let door = Running::start_with(limits).await;
    assert_eq!(door.send(Request::new("PUT", "/bucket")).await.status, 200);
    // More than the socket buffers of both sides hold.
    door.put("/bucket/large", vec![7; 15 << 20]).await;
    let get = door.signer.sign(Request::new("GET", "/bucket/large"), Payload::Signed);
    let mut silent = door.connect().await;
    silent.write_all(&get.head()).await.unwrap();
    // The door takes one connection: another is served only once the silent one was closed.
    let next = tokio::time::timeout(Duration::from_secs(20), door.get("/bucket/absent")).await;
    assert_eq!(next.expect("the silent connection is still open").status, 404);
    let mut answer = Vec::new();
    let _ = silent.read_to_end(&mut answer).await;
    assert!(answer.len() < 15 << 20, "the answer was sent whole");
}

/// A put that the door has begun to answer: it has asked for the body, which is not sent.
async fn begun_put(door: &Running, signer: &Signer, bytes: usize) -> Result<TcpStream, Response> {
    let request = Request::new("PUT", "/bucket/slow").header("expect", "100-continue").body(vec![7; bytes]);
    let mut stream = door.connect().await;
    stream.write_all(&signer.sign(request, Payload::Signed).head()).await.unwrap();
    let mut first = vec![0; 25];
    stream.read_exact(&mut first).await.unwrap();
    if first.starts_with(b"HTTP/1.1 100 ") {
        return Ok(stream);
    }
    let _ = stream.read_to_end(&mut first).await;
    Err(Response::parse(&first))
}

/// Sends a byte now and then; gives the answer.
async fn send_slowly(mut stream: TcpStream) -> Response {
    let mut answer = Vec::new();
    loop {
        tokio::select! {
            read = stream.read_buf(&mut answer) => if matches!(read, Ok(0) | Err(_)) {
                return Response::parse(&answer);
            },
            () = tokio::time::sleep(Duration::from_millis(50)) => {
                let _ = stream.write_all(b"x").await;
            }
        }
    }
}

#[tokio::test]
async fn slow_uploads_of_one_key_keep_nobody_else_out() {
    let patience = Duration::from_secs(5);
    let door = Running::start_with(DoorLimits { connections: 8, body_silence: patience, ..limits() }).await;
    for (signer, bucket) in [(&door.signer, "/bucket"), (&door.other, "/elsewhere")] {
        let made = signer.sign(Request::new("PUT", bucket), Payload::Signed);
        assert_eq!(door.send_raw(&made).await.status, 200);
    }
    let (mut slow, mut refused) = (Vec::new(), Vec::new());
    for _ in 0..16 {
        match begun_put(&door, &door.signer, 10_000_000).await {
            Ok(stream) => slow.push(tokio::spawn(send_slowly(stream))),
            Err(answer) => refused.push(answer.error()),
        }
    }
    assert_eq!(slow.len(), 6, "three quarters of the door");
    assert!(refused.iter().all(|error| *error == (503, "SlowDown".into())), "{refused:?}");
    let get = door.other.sign(Request::new("GET", "/elsewhere/key"), Payload::Signed);
    let got = tokio::time::timeout(Duration::from_secs(2), door.send_raw(&get)).await;
    assert_eq!(got.expect("the slow uploads keep it out").status, 404);
    assert_eq!(door.get("/bucket").await.error(), (503, "SlowDown".into()), "reads count too");
    // They end though they send a byte now and then; their key gets in again.
    for upload in slow {
        let answer = tokio::time::timeout(4 * patience, upload).await.expect("a slow upload goes on").unwrap();
        assert_eq!(answer.error(), (400, "RequestTimeout".into()));
    }
    assert_eq!(door.get("/bucket/slow").await.status, 404);
}

#[tokio::test]
async fn an_answer_that_its_client_does_not_take_counts_until_it_is_sent() {
    let door = Running::start_with(DoorLimits { connections: 4, ..limits() }).await;
    assert_eq!(door.send(Request::new("PUT", "/bucket")).await.status, 200);
    // More than the socket buffers of both sides hold.
    door.put("/bucket/large", vec![7; 15 << 20]).await;
    let get = || door.signer.sign(Request::new("GET", "/bucket/large"), Payload::Signed);
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut stream = door.connect().await;
        stream.write_all(&get().head()).await.unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
        held.push(stream);
    }
    assert_eq!(door.send_raw(&get()).await.error(), (503, "SlowDown".into()));
    let get_of_other = door.other.sign(Request::new("GET", "/"), Payload::Signed);
    assert_eq!(door.send_raw(&get_of_other).await.status, 200);
    held.clear();
    let began = std::time::Instant::now();
    while door.get("/bucket/absent").await.status != 404 {
        assert!(began.elapsed() < Duration::from_secs(20), "a connection that is gone keeps its share");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn connections_that_ask_nothing_keep_nobody_out() {
    let door = Running::start_with(DoorLimits { connections: 2, ..limits() }).await;
    let silent = [door.connect().await, door.connect().await];
    let mut idle = door.connect().await;
    let request = door.signer.sign(Request::new("GET", "/"), Payload::Signed);
    let head = String::from_utf8(request.head()).unwrap().replace("connection: close\r\n", "");
    idle.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    idle.read_buf(&mut answer).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200"));
    for _ in 0..5 {
        let next = tokio::time::timeout(Duration::from_secs(5), door.get("/"));
        assert_eq!(next.await.expect("connections that ask nothing keep it out").status, 200);
    }
    drop((silent, idle));
}

#[tokio::test]
async fn connections_above_the_limit_wait_while_all_places_have_a_request_under_way() {
    let door = Running::start_with(DoorLimits { connections: 2, ..limits() }).await;
    for (signer, bucket) in [(&door.signer, "/bucket"), (&door.other, "/elsewhere")] {
        let made = signer.sign(Request::new("PUT", bucket), Payload::Signed);
        assert_eq!(door.send_raw(&made).await.status, 200);
    }
    let first = begun_put(&door, &door.signer, 5).await.unwrap();
    let request = Request::new("PUT", "/elsewhere/slow").header("expect", "100-continue").body("hello");
    let mut second = door.connect().await;
    second.write_all(&door.other.sign(request, Payload::Signed).head()).await.unwrap();
    second.read_exact(&mut [0; 25]).await.unwrap();
    let third = door.get("/bucket/absent");
    tokio::pin!(third);
    assert!(tokio::time::timeout(Duration::from_millis(500), third.as_mut()).await.is_err());
    drop(first);
    let third = tokio::time::timeout(Duration::from_secs(20), third).await;
    assert_eq!(third.expect("the first one's place is not given back").status, 404);
}

#[tokio::test]
async fn at_the_end_a_request_under_way_finishes_and_no_new_one_begins() {
    let door = Running::with_bucket().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = tokio_util::sync::CancellationToken::new();
    let served = tokio::spawn(door.door.clone().serve_tcp(listener, stop.clone()));

    let request = Request::new("PUT", "/bucket/key").header("expect", "100-continue").body("hello");
    let request = door.signer.sign(request, Payload::Signed);
    let mut stream = TcpStream::connect(address).await.unwrap();
    let idle = TcpStream::connect(address).await.unwrap();
    stream.write_all(&request.head()).await.unwrap();
    // The request is under way once its body is asked for.
    let mut asked = [0; 25];
    stream.read_exact(&mut asked).await.unwrap();
    assert!(asked.starts_with(b"HTTP/1.1 100 "));
    stop.cancel();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!served.is_finished());
    let done = exchange(&mut stream, b"he", b"llo").await;
    assert_eq!(done.status, 200);
    served.await.unwrap();
    drop(idle);
    assert!(TcpStream::connect(address).await.is_err());
    assert_eq!(door.get("/bucket/key").await.text(), "hello");
}
