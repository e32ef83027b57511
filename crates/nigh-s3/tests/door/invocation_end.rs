//! What becomes of a sandbox's calls when its invocation ends.

use std::net::SocketAddr;
use std::time::Duration;

use nigh_terms::{AccessKeyId, InvocationId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{Request, Response};
use crate::running::Running;
use crate::sign::{Payload, Signer};

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(20);
const BODY: &[u8] = b"all of the body";

/// A put whose last byte is held back, once the door has its head and asks for its body.
async fn half_put(door: SocketAddr, signer: &Signer) -> TcpStream {
    let request = Request::new("PUT", "/bucket/k").header("expect", "100-continue").body(BODY);
    let request = signer.sign(request, Payload::Signed);
    let mut stream = TcpStream::connect(door).await.unwrap();
    stream.write_all(&request.head()).await.unwrap();
    let mut go_on = [0; 25];
    tokio::time::timeout(PATIENCE, stream.read_exact(&mut go_on)).await.unwrap().unwrap();
    assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(&BODY[..BODY.len() - 1]).await.unwrap();
    stream
}

async fn answer(mut stream: TcpStream) -> Response {
    let mut bytes = Vec::new();
    // The rest of the body is not read: the connection may be reset behind the answer.
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.unwrap();
    Response::parse(&bytes)
}

async fn settled(door: &Running, key: &AccessKeyId) {
    tokio::time::timeout(PATIENCE, door.keys.settled(key)).await.unwrap();
}

#[tokio::test]
async fn a_put_that_is_not_whole_at_its_invocations_end_fails_and_stores_nothing() {
    let door = Running::with_bucket().await;
    let (key, signer) = door.sandbox();
    let inside = door.sandbox_door(&key).await;
    door.keys.set_invocation(&key, Some(InvocationId::now()));
    let mut stream = half_put(inside, &signer).await;

    door.keys.set_invocation(&key, None);
    settled(&door, &key).await;
    // The next invocation does not bring it back to life.
    door.keys.set_invocation(&key, Some(InvocationId::now()));
    let _ = stream.write_all(&BODY[BODY.len() - 1..]).await;
    assert_eq!(answer(stream).await.error(), (403, "AccessDenied".to_owned()));
    assert_eq!(door.get("/bucket/k").await.status, 404);
}

#[tokio::test]
async fn an_invocations_end_waits_for_its_put_that_is_whole_though_the_client_has_gone() {
    let door = Running::with_bucket().await;
    let (key, signer) = door.sandbox();
    let inside = door.sandbox_door(&key).await;
    for _ in 0..20 {
        door.keys.set_invocation(&key, Some(InvocationId::now()));
        let mut stream = half_put(inside, &signer).await;
        stream.write_all(&BODY[BODY.len() - 1..]).await.unwrap();
        drop(stream);
        door.keys.set_invocation(&key, None);
        settled(&door, &key).await;
        // Stored or not, it is decided.
        let first = door.get("/bucket/k").await.status;
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(door.get("/bucket/k").await.status, first);
        assert_eq!(door.send(Request::new("DELETE", "/bucket/k")).await.status, 204);
    }
}
