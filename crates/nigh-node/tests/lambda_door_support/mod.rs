//! A real door on loopback over a real registry and disk, with an invoker that answers as the SDK scripts' handler
//! would; and a client that signs by hand, so that it can also send what no SDK sends.

use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::StreamExt as _;
use hmac::{Hmac, KeyInit, Mac};
use nigh_data::ObjectError;
use nigh_engine::{AccessKeys, LocalHistories, LocalRegistry, Outbox, RecordLog, Registry, Retention, StateFile};
use nigh_functions::function::FunctionSource;
use nigh_functions::function_network::NetworkPermission;
use nigh_functions::function_store::{FunctionLimits, FunctionStore};
use nigh_functions::runtime_catalog::RuntimeCatalog;
use nigh_invoke::activation_log::ActivationLog;
use nigh_invoke::event_invoker::{EventInvoker, EventParts, RecordBuckets};
use nigh_invoke::invocation::{InvocationResult, Invoke, InvokeError, InvokeRequest, RunTimes};
use nigh_lambda::{CodeObjects, LambdaDoor, LambdaDoorParts, LambdaDoorSettings, Pieces};
use nigh_openwhisk::activation_store::ActivationStore;
use nigh_openwhisk::entity_store::EntityStore;
use nigh_openwhisk::{NamespaceLimits, OpenWhiskDoor, OpenWhiskParts, OpenWhiskSettings};
use nigh_schedule::event_queue::QueueLimits;
use nigh_terms::{
    AccessKeyId, BucketName, ByteSize, Clock, FunctionName, InvocationId, Namespace, ObjectKey, Principal, SecretKey,
    ShardId, SystemClock, Token, Version, hex,
};
use nigh_workflow::executions::{ExecutionLimits, ExecutionParts, Executions};
use nigh_workflow::machine_store::MachineStore;
use nigh_workflow::scratch::{ScratchFolder, ScratchObjects};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Answers as the handler of `tests/sdk` does, without a sandbox. Each call takes a permit of `gate`.
pub(crate) struct ScriptedInvoke {
    functions: FunctionStore,
    pub(crate) gate: Semaphore,
    pub(crate) reserved: parking_lot::Mutex<std::collections::BTreeMap<FunctionName, Option<usize>>>,
    pub(crate) client_contexts: parking_lot::Mutex<Vec<Option<String>>>,
    /// What the callers had seen.
    pub(crate) tokens: parking_lot::Mutex<Vec<Token>>,
}

#[async_trait]
impl Invoke for ScriptedInvoke {
    fn set_reserved(&self, _: &Namespace, function: &FunctionName, concurrency: Option<usize>) {
        self.reserved.lock().insert(function.clone(), concurrency);
    }

    fn seen(&self, who: &Principal) -> Token {
        let mut token = Token::empty();
        if who.invocation.is_some() {
            token.see(ShardId(3), Version::OUTSIDE);
        }
        token
    }

    async fn invoke(&self, who: &Principal, request: InvokeRequest) -> Result<InvocationResult, InvokeError> {
        if self.functions.find(&who.namespace, &request.function).await.is_none() {
            return Err(InvokeError::NotFound(request.function));
        }
        let event: Value = serde_json::from_slice(&request.payload)
            .map_err(|error| InvokeError::InvalidRequest(format!("the payload is no JSON: {error}")))?;
        self.client_contexts.lock().push(request.client_context);
        self.tokens.lock().push(request.token);
        self.gate.acquire().await.map_err(|_| InvokeError::ShuttingDown)?.forget();
        self.gate.add_permits(1);
        let raised = event.get("raise").is_some();
        let answer = if raised {
            json!({ "errorType": "ValueError", "errorMessage": "asked to fail", "stackTrace": [] })
        } else if let Some(answer) = event.get("answer") {
            answer.clone()
        } else {
            json!({ "echo": event })
        };
        Ok(InvocationResult {
            id: InvocationId::now(),
            payload: Bytes::from(answer.to_string()),
            function_error: raised.then_some("Unhandled"),
            log: b"a line of the log\n".to_vec(),
            run: RunTimes { duration_us: 1500, ..RunTimes::default() },
            token: Token::empty(),
            touched: Vec::new(),
        })
    }
}

/// Nothing is ever delivered to a bucket here.
struct NoBuckets;

#[async_trait]
impl RecordBuckets for NoBuckets {
    async fn put(&self, _: &Namespace, bucket: &BucketName, _: &ObjectKey, _: Bytes) -> Result<(), ObjectError> {
        Err(ObjectError::NoSuchBucket(bucket.clone()))
    }
}

#[async_trait]
impl ScratchObjects for NoBuckets {
    async fn declare(&self, _: &Namespace, folder: &ScratchFolder) -> Result<(), String> {
        Err(format!("there is no bucket {}", folder.bucket))
    }

    async fn drop_all(&self, _: &Namespace, _: &ScratchFolder) -> Result<usize, String> {
        Ok(0)
    }
}

/// A zip of one file of so many bytes, not compressed.
fn stored_zip(bytes: usize) -> Bytes {
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    zip.start_file("large", options).unwrap();
    std::io::Write::write_all(&mut zip, &vec![7; bytes]).unwrap();
    zip.finish().unwrap().into_inner().into()
}

/// One archive at `code/app.zip`, one that no request could bring, and one that is too large in any case.
struct OneObject(Bytes);

#[async_trait]
impl CodeObjects for OneObject {
    async fn has_bucket(&self, _who: &Principal, bucket: &BucketName) -> bool {
        bucket.as_str() == "code"
    }

    async fn open(
        &self,
        _who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
    ) -> Result<(ByteSize, Pieces), ObjectError> {
        let nothing = || futures::stream::empty().boxed();
        match (bucket.as_str(), key.as_str()) {
            ("code", "app.zip") => {
                let (begin, end) = (self.0.slice(..10), self.0.slice(10..));
                Ok((ByteSize(self.0.len() as u64), futures::stream::iter([Ok(begin), Ok(end)]).boxed()))
            }
            ("code", "beyond-a-request.zip") => {
                let zip = stored_zip(60 << 20);
                Ok((ByteSize(zip.len() as u64), futures::stream::iter([Ok(zip)]).boxed()))
            }
            ("code", "large.zip") => Ok((ByteSize::mib(257), nothing())),
            ("code", _) => Err(ObjectError::NoSuchKey(key.clone())),
            _ => Err(ObjectError::NoSuchBucket(bucket.clone())),
        }
    }
}

pub(crate) struct Door {
    pub(crate) address: std::net::SocketAddr,
    pub(crate) keys: AccessKeys,
    pub(crate) registry: Arc<dyn Registry>,
    pub(crate) invoke: Arc<ScriptedInvoke>,
    pub(crate) key: (AccessKeyId, SecretKey),
    pub(crate) until: CancellationToken,
    pub(crate) served: tokio::task::JoinHandle<()>,
    _folder: tempfile::TempDir,
}

impl Door {
    pub(crate) async fn open() -> Self {
        Self::open_with(NamespaceLimits::default()).await
    }

    /// One whose namespaces may have so much of OpenWhisk's API.
    pub(crate) async fn open_with(whisk_limits: NamespaceLimits) -> Self {
        Self::open_for(whisk_limits, 1024).await
    }

    /// One for so many connections.
    pub(crate) async fn open_for(whisk_limits: NamespaceLimits, connections_max: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFile::open(&folder.path().join("state.redb")).unwrap();
        let registry: Arc<dyn Registry> = Arc::new(LocalRegistry::new(state.clone()));
        let keys = AccessKeys::load(&*registry).await.unwrap();
        let tenant = Namespace::new("tenant").unwrap();
        let key = keys.issue(&*registry, &tenant).await.unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let root = folder.path().join("functions");
        let limits = FunctionLimits::default();
        let functions = FunctionStore::open(Arc::clone(&registry), &root, Arc::clone(&clock), limits).await.unwrap();
        let invoke = Arc::new(ScriptedInvoke {
            functions: functions.clone(),
            gate: Semaphore::new(1),
            reserved: parking_lot::Mutex::default(),
            client_contexts: parking_lot::Mutex::default(),
            tokens: parking_lot::Mutex::default(),
        });
        let retention = Retention::default();
        let records = RecordLog::open_named(state.clone(), "openwhisk-records", retention).unwrap();
        let runs = ActivationLog::new(RecordLog::open(state.clone(), retention).unwrap());
        let catalog = RuntimeCatalog::new([11]);
        let openwhisk = OpenWhiskDoor::new(
            OpenWhiskParts {
                functions: functions.clone(),
                entities: EntityStore::open(Arc::clone(&registry)).await.unwrap(),
                activations: ActivationStore::new(records, runs, functions.clone()),
                invoke: Arc::clone(&invoke) as _,
                scratch: Arc::new(NoBuckets),
                keys: keys.clone(),
                catalog: catalog.clone(),
                clock: Arc::clone(&clock),
            },
            OpenWhiskSettings { concurrency: 10, limits: whisk_limits, network: NetworkPermission::default() },
        );
        let events = EventParts {
            functions: functions.clone(),
            invoke: Arc::clone(&invoke) as _,
            outbox: Outbox::open(state.clone()).unwrap(),
            records: Arc::new(NoBuckets),
            clock: Arc::clone(&clock),
            region: "us-east-1".to_owned(),
        };
        let histories = Arc::new(LocalHistories::open(state).unwrap());
        let events = EventInvoker::open(events, QueueLimits::default()).await.unwrap();
        let executions = ExecutionParts {
            functions: functions.clone(),
            invoke: Arc::clone(&invoke) as _,
            events: events.clone(),
            histories,
            scratch: Arc::new(NoBuckets),
            clock: Arc::clone(&clock),
            region: "us-east-1".to_owned(),
            turns: Arc::new(Semaphore::new(10)),
            over: CancellationToken::new(),
        };
        let limits = ExecutionLimits { running_max: 10, kept_max: 3, kept_bytes: 1 << 20 };
        let parts = LambdaDoorParts {
            events,
            machines: MachineStore::open(Arc::clone(&registry), Arc::clone(&clock)).await.unwrap(),
            executions: Executions::open(executions, limits).await.unwrap(),
            owned: None,
            functions,
            invoke: Arc::clone(&invoke) as _,
            keys: keys.clone(),
            objects: Arc::new(OneObject(archive("app.py", b"x = 1\n").into())),
            catalog,
            clock,
            mounted: Some(Arc::new(openwhisk)),
        };
        let settings = LambdaDoorSettings {
            region: "us-east-1".to_owned(),
            concurrency: 10,
            network: NetworkPermission::default(),
        };
        let door = Arc::new(LambdaDoor::new(parts, settings).with_connections(connections_max));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let until = CancellationToken::new();
        let served = tokio::spawn(door.serve(listener, until.clone()));
        Self { address, keys, registry, invoke, key, until, served, _folder: folder }
    }

    /// A client with the tenant's key.
    pub(crate) fn client(&self) -> Client {
        Client { address: self.address, key: self.key.clone(), seconds_off: 0, service: "lambda" }
    }

    /// Makes a function and panics if the door refuses.
    pub(crate) async fn create(&self, name: &str) {
        let body = create_body(name, &archive("app.py", b"x = 1\n"));
        let answer = self.client().send("POST", "/2015-03-31/functions", &[], body.to_string().as_bytes()).await;
        assert_eq!(answer.status, 201, "{answer:?}");
    }
}

pub(crate) fn create_body(name: &str, archive: &[u8]) -> Value {
    json!({
        "FunctionName": name,
        "Runtime": "python3.11",
        "Handler": "app.handler",
        "Role": "r",
        "Code": { "ZipFile": STANDARD.encode(archive) },
    })
}

/// A zip of one stored file.
pub(crate) fn archive(name: &str, content: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    zip.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
    zip.write_all(content).unwrap();
    zip.finish().unwrap().into_inner()
}

#[derive(Debug)]
pub(crate) struct HttpAnswer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl HttpAnswer {
    pub(crate) fn kind(&self) -> Option<&str> {
        self.header("x-amzn-errortype")
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

pub(crate) struct Client {
    pub(crate) address: std::net::SocketAddr,
    pub(crate) key: (AccessKeyId, SecretKey),
    /// How far its clock is off.
    pub(crate) seconds_off: i64,
    /// For which service it signs.
    pub(crate) service: &'static str,
}

impl Client {
    /// The head of a signed request, with its end.
    pub(crate) fn sign(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> String {
        let now = time::OffsetDateTime::now_utc() + time::Duration::seconds(self.seconds_off);
        let stamp =
            now.format(time::macros::format_description!("[year][month][day]T[hour][minute][second]Z")).unwrap();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut signed = vec![("host", self.address.to_string()), ("x-amz-date", stamp.clone())];
        signed.extend(headers.iter().map(|(name, value)| (*name, (*value).to_owned())));
        signed.sort();
        let names = signed.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
        let lines: String = signed.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let path = path.replace('%', "%25");
        let canonical = format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{}", hex(&Sha256::digest(body)));
        let scope = format!("{}/eu-west-3/{}/aws4_request", &stamp[..8], self.service);
        let text = format!("AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{}", hex(&Sha256::digest(canonical)));
        let mut key = format!("AWS4{}", self.key.1.reveal()).into_bytes();
        for part in scope.split('/') {
            key = hmac(&key, part.as_bytes());
        }
        let signature = hex(&hmac(&key, text.as_bytes()));
        let mut head = format!("{method} {target} HTTP/1.1\r\n");
        signed.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
        let _ = write!(
            head,
            "authorization: AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n",
            self.key.0,
            body.len()
        );
        head
    }

    pub(crate) async fn send(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &[u8]) -> HttpAnswer {
        let head = self.sign(method, target, headers, body);
        self.raw(head.as_bytes(), body).await
    }

    /// Sends these bytes and reads to the end.
    pub(crate) async fn raw(&self, head: &[u8], body: &[u8]) -> HttpAnswer {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(head).await.unwrap();
        let _ = stream.write_all(body).await;
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all).await;
        let end = all.windows(4).position(|four| four == b"\r\n\r\n").map_or(all.len(), |end| end + 4);
        let head = String::from_utf8_lossy(&all[..end]).into_owned();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        HttpAnswer { status, head, body: all[end..].to_vec() }
    }
}

fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}
