//! A door that runs: a free port, a Unix socket, a directory store in a temporary folder.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use nigh_engine::{AccessKeys, Journal, JournalSettings, LocalRegistry, StateFile};
use nigh_objects::{MemoryLimits, ObjectMemory, WriteSettings, Writes};
use nigh_s3::{DoorLimits, S3Door};
use nigh_stores::directory::DirectoryStore;
use nigh_terms::{AccessKeyId, ByteSize, Clock, Epoch, Namespace, SystemClock};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio_util::sync::CancellationToken;

use crate::client::{Request, Response, exchange};
use crate::sign::{Payload, REGION, Signer};

/// A running door. It stops when dropped.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) socket: PathBuf,
    pub(crate) signer: Signer,
    /// Another namespace's.
    pub(crate) other: Signer,
    pub(crate) keys: AccessKeys,
    pub(crate) door: S3Door,
    pub(crate) stop: CancellationToken,
    _folder: tempfile::TempDir,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Limits that suit tests.
pub(crate) fn limits() -> DoorLimits {
    DoorLimits { drain: std::time::Duration::from_secs(5), ..DoorLimits::default() }
}

impl Running {
    pub(crate) async fn start() -> Self {
        Self::start_with(limits()).await
    }

    /// Before a memory with a journal: writes are taken before the store has them.
    pub(crate) async fn start_with_journal() -> Self {
        Self::start_on(limits(), true).await
    }

    pub(crate) async fn start_with(limits: DoorLimits) -> Self {
        Self::start_on(limits, false).await
    }

    async fn start_on(limits: DoorLimits, journaled: bool) -> Self {
        // What goes wrong inside is told to the log and not to the client. `s3s` logs each refusal as an error.
        let filter = tracing_subscriber::EnvFilter::new("warn,s3s=off");
        let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
        let folder = tempfile::tempdir().unwrap();
        let registry = LocalRegistry::new(StateFile::open(&folder.path().join("state.redb")).unwrap());
        let keys = AccessKeys::load(&registry).await.unwrap();
        let mut signers = Vec::new();
        for namespace in ["tenant", "other"] {
            let (id, secret) = keys.issue(&registry, &Namespace::new(namespace).unwrap()).await.unwrap();
            signers.push(Signer {
                key: id.to_string(),
                secret: secret.reveal().to_owned(),
                skew_seconds: 0,
                region: REGION,
            });
        }
        let (other, signer) = (signers.pop().unwrap(), signers.pop().unwrap());
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let store = Arc::new(DirectoryStore::open(&folder.path().join("objects"), Arc::clone(&clock)).unwrap());
        let mut writes = Writes::through(Epoch(1));
        if journaled {
            let settings =
                JournalSettings { limit: ByteSize::mib(64), segment: ByteSize::mib(16), ..Default::default() };
            let (journal, _) = Journal::open(&folder.path().join("journal"), &settings).unwrap();
            writes = Writes { ledger: Arc::new(journal), settings: WriteSettings::default(), ..writes };
        }
        let memory_limits =
            MemoryLimits { cache: ByteSize::mib(64), cached_object: ByteSize::mib(16), object: ByteSize::gib(5) };
        let spool = folder.path().join("spool");
        let memory = ObjectMemory::open(store, writes, clock, Vec::new(), spool, memory_limits).await.unwrap();
        let door = S3Door::new(Arc::new(memory), keys.clone(), limits).unwrap();

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let socket = folder.path().join("s3.sock");
        let stop = CancellationToken::new();
        tokio::spawn(door.clone().serve_tcp(listener, stop.clone()));
        tokio::spawn(door.clone().serve_unix(UnixListener::bind(&socket).unwrap(), stop.clone()));
        Self { address, socket, signer, other, keys, door, stop, _folder: folder }
    }

    /// The same with a bucket `bucket`.
    pub(crate) async fn with_bucket() -> Self {
        let running = Self::start().await;
        let made = running.send(Request::new("PUT", "/bucket")).await;
        assert_eq!(made.status, 200, "{}", made.text());
        running
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends `request` as it is.
    pub(crate) async fn send_raw(&self, request: &Request) -> Response {
        exchange(&mut self.connect().await, &request.head(), &request.body).await
    }

    /// Signs `request` and sends it.
    pub(crate) async fn send(&self, request: Request) -> Response {
        self.send_as(request, Payload::Signed).await
    }

    pub(crate) async fn send_as(&self, request: Request, payload: Payload) -> Response {
        self.send_raw(&self.signer.sign(request, payload)).await
    }

    pub(crate) async fn put(&self, path: &str, body: impl Into<Vec<u8>>) -> Response {
        let done = self.send(Request::new("PUT", path).body(body)).await;
        assert_eq!(done.status, 200, "{}", done.text());
        done
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.send(Request::new("GET", path)).await
    }

    /// Where the sandbox's own door is.
    pub(crate) async fn sandbox_door(&self, key: &AccessKeyId) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(self.door.for_sandbox(key.clone()).serve_tcp(listener, self.stop.clone()));
        address
    }

    /// A signer with a fresh key of a sandbox, and its key.
    pub(crate) fn sandbox(&self) -> (AccessKeyId, Signer) {
        let (id, secret) = self.keys.issue_sandbox(
            Namespace::new("tenant").unwrap(),
            nigh_terms::FunctionName::new("f").unwrap(),
            nigh_terms::SandboxId::random(),
        );
        let signer = Signer { key: id.to_string(), secret: secret.reveal().to_owned(), ..self.signer.clone() };
        (id, signer)
    }
}
