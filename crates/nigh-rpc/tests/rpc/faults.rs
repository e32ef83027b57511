//! What a network and a peer can do wrong.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use nigh_rpc::{
    CallError, ClientSettings, ConnectError, FORMAT, Fate, FrameError, HEADER_BYTES, Header, Kind, Liveness, Peers,
    Security, ServerSettings,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::*;

/// Passes connections on to a server, and counts them.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Relay {
    pub(crate) async fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, connections) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((mut from, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                let mut to = TcpStream::connect(to).await.unwrap();
                tokio::spawn(async move { tokio::io::copy_bidirectional(&mut from, &mut to).await });
            }
        });
        Self { address, connections }
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// A peer that says its hello and then does as `then` says.
async fn odd_peer<F>(then: impl Fn(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            read_frame(&mut stream).await;
            stream.write_all(&hello_frame(SERVER)).await.unwrap();
            tokio::spawn(then(stream));
        }
    });
    address
}

fn hello_frame(name: &str) -> Vec<u8> {
    let head = hello(CLUSTER, name, 1).encode();
    let header = Header {
        kind: Kind::Hello,
        method: 0,
        number: 0,
        patience_ms: 0,
        head_bytes: head.len() as u32,
        body_bytes: 0,
    };
    [&header.encode()[..], &head].concat()
}

async fn read_frame(stream: &mut TcpStream) -> Header {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).await.unwrap();
    let header = Header::parse(&header).unwrap();
    let mut rest = vec![0; header.head_bytes as usize + header.body_bytes as usize];
    stream.read_exact(&mut rest).await.unwrap();
    header
}

fn answer(call: Header, body_bytes: u64) -> [u8; HEADER_BYTES] {
    Header { kind: Kind::Answer, patience_ms: 0, head_bytes: 0, body_bytes, ..call }.encode()
}

/// What the server says to `bytes`, until it closes.
async fn said_to(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut said = Vec::new();
    // A reset is an end, too.
    let read = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut said)).await;
    assert!(read.is_ok(), "the connection stays open");
    said
}

#[tokio::test]
async fn a_peer_killed_in_the_middle_of_a_body_breaks_it_off() {
    let address = odd_peer(async |mut stream: TcpStream| {
        let call = read_frame(&mut stream).await;
        stream.write_all(&answer(call, 1000)).await.unwrap();
        stream.write_all(&[7; 400]).await.unwrap();
    })
    .await;
    let peers = peers(Security::Plain);
    let mut answer = peers.call(&peer(address), &ECHO, b"", Bytes::new(), within(5.0)).await.unwrap();
    let mut body = [0; 1000];
    let error = answer.body.read_exact(&mut body).await.unwrap_err();
    assert!(error.to_string().contains("broke off"), "{error}");
    assert_eq!(body[..400], [7; 400]);
    // The other way: the server's handler hears of it, and others are served.
    let running = start(Security::Plain).await;
    let call =
        Header { kind: Kind::Call, method: ECHO.number, number: 1, patience_ms: 9000, head_bytes: 0, body_bytes: 100 };
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    stream.write_all(&[&hello_frame(CALLER)[..], &call.encode(), &[0; 50]].concat()).await.unwrap();
    until(|| running.begun() == 1).await;
    drop(stream);
    until(|| running.dropped() == 1).await;
    peers.call(&running.peer(), &ECHO, b"", Bytes::new(), within(5.0)).await.unwrap();
}

#[tokio::test]
async fn a_peer_that_stops_reading_holds_nobody_beyond_the_deadline() {
    let running = start(Security::Plain).await;
    // It asks for much and reads nothing.
    let call = |patience_ms, length: &[u8]| {
        let head_bytes = length.len() as u32;
        let call = Header { kind: Kind::Call, method: FETCH.number, number: 1, patience_ms, head_bytes, body_bytes: 0 };
        [&hello_frame(CALLER)[..], &call.encode(), length].concat()
    };
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    stream.write_all(&call(300, b"100000000")).await.unwrap();
    until(|| running.begun() == 1).await;
    let begun = Instant::now();
    tokio::time::sleep(Duration::from_millis(600)).await;
    let mut read = 0;
    let mut buffer = vec![0; 1 << 20];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        read += count;
    }
    assert!(read < 100_000_000 && begun.elapsed() < Duration::from_secs(5), "{read}");
    // A server that takes a call and reads nothing of its body.
    let silent = odd_peer(async |stream: TcpStream| {
        tokio::time::sleep(Duration::from_secs(60)).await;
        drop(stream);
    })
    .await;
    let peers = peers(Security::Plain);
    let error = peers.call(&peer(silent), &ECHO, b"", pattern(64 << 20), within(0.3)).await.unwrap_err();
    assert!(matches!(error, CallError::Late { .. }), "{error}");
}

#[tokio::test]
async fn silence_ends_a_connection_that_the_kernel_holds_for_alive() {
    // It reads nothing more: the kernel of this side gives it up after TCP_USER_TIMEOUT, long before the deadline.
    let silent = odd_peer(async |stream: TcpStream| {
        tokio::time::sleep(Duration::from_secs(60)).await;
        drop(stream);
    })
    .await;
    let liveness = Liveness { probe_every: Duration::from_secs(1), silence_max: Duration::from_secs(1) };
    let settings = ClientSettings { liveness, ..ClientSettings::default() };
    let peers = Peers::new(hello(CLUSTER, CALLER, 7), Security::Plain, settings);
    let begun = Instant::now();
    let error = peers.call(&peer(silent), &ECHO, b"", pattern(64 << 20), within(30.0)).await.unwrap_err();
    assert!(matches!(error, CallError::Broken { .. }) && error.fate() == Fate::Unknown, "{error}");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn another_format_is_named_on_both_sides() {
    let newer = |mut frame: Vec<u8>| {
        frame[4] = FORMAT as u8 + 1;
        frame
    };
    let running = start(Security::Plain).await;
    let said = said_to(running.address, &newer(hello_frame(CALLER))).await;
    // A build of another format finds ours in what it is told.
    assert_eq!((said[4], said[6]), (FORMAT as u8, 4));
    assert!(String::from_utf8_lossy(&said[HEADER_BYTES..]).contains("format 1"));

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(&newer(hello_frame(SERVER))).await.unwrap();
        stream.read_to_end(&mut Vec::new()).await.unwrap();
    });
    let error = peers(Security::Plain).call(&peer(address), &ECHO, b"", Bytes::new(), within(5.0)).await.unwrap_err();
    let CallError::Connect { reason: ConnectError::Frame(FrameError::Format { theirs: 2 }), .. } = &error else {
        panic!("{error}");
    };
    assert!(error.to_string().contains("run the same release"), "{error}");
    assert_eq!(error.fate(), Fate::NotSent);
}

#[tokio::test]
async fn garbage_costs_a_connection_and_nothing_more() {
    let settings = ServerSettings { hello_max: Duration::from_millis(300), ..ServerSettings::default() };
    let running = start_as(hello(CLUSTER, SERVER, 1), Security::Plain, settings).await;
    let hello = hello_frame(CALLER);
    let call = |head_bytes, body_bytes| {
        let header = Header { kind: Kind::Call, method: 1, number: 1, patience_ms: 1, head_bytes, body_bytes };
        [&hello[..], &header.encode()].concat()
    };
    let cases = [
        b"GET / HTTP/1.1\r\nhost: nigh.example\r\n\r\n".to_vec(),
        hello[..20].to_vec(),
        [0xff; 100].to_vec(),
        call(u32::MAX, 0),
        call(0, u64::MAX),
        [&hello[..], &hello[..]].concat(),
        [&hello[..], &[0; 64]].concat(),
    ];
    for case in cases {
        let said = said_to(running.address, &case).await;
        assert!(said.len() <= hello_frame(SERVER).len(), "{case:?} is answered {said:?}");
    }
    assert_eq!(running.begun(), 0);
    peers(Security::Plain).call(&running.peer(), &ECHO, b"", Bytes::new(), within(5.0)).await.unwrap();
}

#[tokio::test]
async fn an_answer_to_something_else_is_not_taken() {
    let address = odd_peer(async |mut stream: TcpStream| {
        let call = read_frame(&mut stream).await;
        let other = Header { number: call.number + 1, ..call };
        stream.write_all(&answer(other, 0)).await.unwrap();
        stream.read_to_end(&mut Vec::new()).await.unwrap();
    })
    .await;
    let error = peers(Security::Plain).call(&peer(address), &ECHO, b"", Bytes::new(), within(5.0)).await.unwrap_err();
    assert!(error.to_string().contains("does not answer the call") && error.fate() == Fate::Unknown, "{error}");
}

#[tokio::test]
async fn a_partition_in_one_direction_ends_at_the_deadline_and_heals() {
    let running = start(Security::Plain).await;
    let (peers, peer) = (peers(Security::Plain), running.peer());
    peers.call(&peer, &ECHO, b"", Bytes::new(), within(5.0)).await.unwrap();
    // What is sent arrives, what is answered does not.
    let address = odd_peer(async |mut stream: TcpStream| {
        stream.read_to_end(&mut Vec::new()).await.unwrap();
    })
    .await;
    let begun = Instant::now();
    let error = peers.call(&crate::support::peer(address), &ECHO, b"", Bytes::new(), within(0.2)).await.unwrap_err();
    assert!(matches!(error, CallError::Late { .. }) && begun.elapsed() < Duration::from_secs(1), "{error}");
    // Nobody answers the hello: no connection, in time.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = ClientSettings { connect_max: Duration::from_millis(200), ..ClientSettings::default() };
    let quick = Peers::new(hello(CLUSTER, CALLER, 7), Security::Plain, settings);
    let mute = crate::support::peer(listener.local_addr().unwrap());
    let error = quick.call(&mute, &ECHO, b"", Bytes::new(), within(5.0)).await.unwrap_err();
    assert!(matches!(error, CallError::Connect { reason: ConnectError::TimedOut, .. }), "{error}");
    peers.call(&peer, &ECHO, b"", Bytes::new(), within(5.0)).await.unwrap();
}

#[tokio::test]
async fn a_server_that_came_back_is_called_over_a_new_connection() {
    let running = start(Security::Plain).await;
    let (peers, peer) = (peers(Security::Plain), running.peer());
    peers.call(&peer, &ECHO, b"", Bytes::new(), within(5.0)).await.unwrap();
    running.ending.cancel();
    // The idle connection is ended by the server, and the caller's side of it is closed when it is next looked at.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let error = peers.call(&peer, &ECHO, b"", Bytes::new(), within(5.0)).await.unwrap_err();
    assert_eq!(error.fate(), Fate::NotSent, "{error}");
    running.task.await.unwrap();
    let listener = TcpListener::bind(running.address).await.unwrap();
    let ending = tokio_util::sync::CancellationToken::new();
    let (own, settings) = (hello(CLUSTER, SERVER, 2), ServerSettings::default());
    tokio::spawn(nigh_rpc::serve(listener, own, Security::Plain, settings, Arc::clone(&running.handler) as _, ending));
    let answer = peers.call(&peer, &ECHO, b"", Bytes::new(), within(5.0)).await.unwrap();
    assert_eq!(answer.from.incarnation, 2);
}
