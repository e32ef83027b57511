//! Servers and callers of the tests: real sockets, real certificates.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use nigh_rpc::certificates::Authority;
use nigh_rpc::{
    Body, Call, ClientSettings, Credentials, Handler, Hello, Identity, Method, PeerAddress, Peers, Refusal,
    RefusalKind, Reply, Role, Security, ServerSettings, serve,
};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) const CLUSTER: &str = "lab";
pub(crate) const SERVER: &str = "server";
pub(crate) const CALLER: &str = "caller";

const fn method(number: u16, name: &'static str) -> Method {
    Method { number, name, head_max: 4096, body_max: 256 << 20 }
}

/// Answers with what came.
pub(crate) static ECHO: Method = method(1, "echo");
/// Answers with as many bytes as the head says.
pub(crate) static FETCH: Method = method(2, "fetch");
/// Answers when `Answering::gate` has a permit.
pub(crate) static WAIT: Method = method(3, "wait");
/// Answers without a look at the body.
pub(crate) static IGNORE: Method = method(4, "ignore");
pub(crate) static PANIC: Method = method(5, "panic");
/// Answers with the trace of the call, as text.
pub(crate) static TRACE: Method = method(7, "trace");
/// Takes no body.
pub(crate) static BARE: Method = Method { number: 6, name: "bare", head_max: 16, body_max: 0 };
pub(crate) static UNKNOWN: Method = method(99, "unknown");

pub(crate) struct Answering {
    pub(crate) gate: Semaphore,
    /// Calls that were begun.
    pub(crate) begun: AtomicUsize,
    /// Those whose future was dropped before its end.
    pub(crate) dropped: Arc<AtomicUsize>,
    /// The peer that is not admitted.
    pub(crate) shunned: Option<&'static str>,
}

struct Unfinished(Arc<AtomicUsize>, bool);

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.1 {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Bytes that tell their place.
pub(crate) fn pattern(length: usize) -> Bytes {
    let turn: Vec<u8> = (0..251).collect();
    let mut bytes = turn.repeat(length.div_ceil(turn.len()));
    bytes.truncate(length);
    bytes.into()
}

#[async_trait]
impl Handler for Answering {
    fn method(&self, number: u16) -> Option<&'static Method> {
        [&ECHO, &FETCH, &WAIT, &IGNORE, &PANIC, &BARE, &TRACE].into_iter().find(|method| method.number == number)
    }

    fn admits(&self, peer: &Hello) -> Result<(), Refusal> {
        match self.shunned {
            Some(name) if name == peer.identity.name() => Err(Refusal::new(RefusalKind::Forbidden, "not here")),
            _ => Ok(()),
        }
    }

    async fn call(&self, call: Call<'_>) -> Result<Reply, Refusal> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let mut unfinished = Unfinished(Arc::clone(&self.dropped), false);
        let body = match call.method.name {
            "echo" => call.body.collect(1 << 30).await.map_err(|error| Refusal::failed(error.to_string()))?.into(),
            "fetch" => pattern(str::from_utf8(&call.head).unwrap().parse().unwrap()).into(),
            "wait" => {
                self.gate.acquire().await.unwrap().forget();
                Body::empty()
            }
            "trace" => Bytes::from(nigh_trace::current().map_or_else(String::new, |trace| trace.to_string())).into(),
            "panic" => panic!("a handler that fails"),
            _ => Body::empty(),
        };
        unfinished.1 = true;
        Ok(Reply { head: call.head, body })
    }
}

/// A server of this process.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) handler: Arc<Answering>,
    pub(crate) ending: CancellationToken,
    pub(crate) task: JoinHandle<()>,
}

pub(crate) fn hello(cluster: &str, name: &str, incarnation: u64) -> Hello {
    Hello { identity: Identity::new(cluster, Role::Node, name).unwrap(), incarnation }
}

pub(crate) async fn start_as(own: Hello, security: Security, settings: ServerSettings) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let handler = Arc::new(Answering {
        gate: Semaphore::new(0),
        begun: AtomicUsize::new(0),
        dropped: Arc::default(),
        shunned: Some("shunned"),
    });
    let ending = CancellationToken::new();
    let serving = serve(listener, own, security, settings, Arc::clone(&handler) as _, ending.clone());
    Running { address, handler, ending, task: tokio::spawn(serving) }
}

pub(crate) async fn start(security: Security) -> Running {
    start_as(hello(CLUSTER, SERVER, 1), security, ServerSettings::default()).await
}

impl Running {
    pub(crate) fn peer(&self) -> PeerAddress {
        peer(self.address)
    }

    pub(crate) fn begun(&self) -> usize {
        self.handler.begun.load(Ordering::SeqCst)
    }

    pub(crate) fn dropped(&self) -> usize {
        self.handler.dropped.load(Ordering::SeqCst)
    }
}

pub(crate) fn peer(address: SocketAddr) -> PeerAddress {
    PeerAddress { name: SERVER.into(), address: address.to_string().into(), incarnation: None }
}

pub(crate) fn peers(security: Security) -> Peers {
    Peers::new(hello(CLUSTER, CALLER, 7), security, ClientSettings::default())
}

pub(crate) fn within(seconds: f64) -> Instant {
    Instant::now() + Duration::from_secs_f64(seconds)
}

/// Waits until `what` holds.
pub(crate) async fn until(what: impl Fn() -> bool) {
    let deadline = within(10.0);
    while !what() {
        assert!(Instant::now() < deadline, "it does not come to be");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The certificates of `name`, made by the authority in `folder`, which is made if it is not there.
pub(crate) fn credentials(folder: &Path, cluster: &str, name: &str) -> Security {
    let authority = Authority::open(folder).or_else(|_| Authority::create(folder, cluster, 10)).unwrap();
    let identity = Identity::new(cluster, Role::Node, name).unwrap();
    let files = authority.issue(&identity, &["127.0.0.1".to_owned()], 10, true).unwrap();
    Security::Tls(Arc::new(Credentials::open(files).unwrap()))
}

/// A server and a caller of one cluster, with TLS.
pub(crate) async fn secured(folder: &Path) -> (Running, Peers) {
    let running = start(credentials(folder, CLUSTER, SERVER)).await;
    (running, peers(credentials(folder, CLUSTER, CALLER)))
}
