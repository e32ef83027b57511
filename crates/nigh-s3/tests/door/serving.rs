//! Connections: both kinds of socket, reuse, limits, the end.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client::{Request, exchange};
use crate::running::{Running, limits};
use crate::sign::Payload;

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
    let door = Running::start_with(nigh_s3::DoorLimits { head_timeout, ..limits() }).await;
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
    let limits = nigh_s3::DoorLimits { send_silence, connections: 1, ..limits() };
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

#[tokio::test]
async fn connections_above_the_limit_wait_and_are_served_in_turn() {
    let door = Running::start_with(nigh_s3::DoorLimits { connections: 2, ..limits() }).await;
    let (first, second) = (door.connect().await, door.connect().await);
    // Both are accepted only once a request of each was answered; a third waits until one of them goes.
    let mut held = Vec::new();
    for mut stream in [first, second] {
        let request = door.signer.sign(Request::new("GET", "/"), Payload::Signed);
        let head = String::from_utf8(request.head()).unwrap().replace("connection: close\r\n", "");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_buf(&mut answer).await.unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200"));
        held.push(stream);
    }
    let third = door.get("/");
    tokio::pin!(third);
    assert!(tokio::time::timeout(Duration::from_millis(200), third.as_mut()).await.is_err());
    held.pop();
    assert_eq!(third.await.status, 200);
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
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let idle = tokio::net::TcpStream::connect(address).await.unwrap();
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
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
    assert_eq!(door.get("/bucket/key").await.text(), "hello");
}
