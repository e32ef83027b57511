//! The cloud stores against recorded exchanges: each request must be the one that was recorded, and gets the answer
//! that was. Recorded with Azurite 3.35.0 and fake-gcs-server 1.56.1; untested on the real services.
//!
//! To record anew: start an emulator, make the bucket `t1-cloud` in it, and run the test with its address in
//! `NIGH_TEST_RECORD_AZURE` (`http://127.0.0.1:10000`) or `NIGH_TEST_RECORD_GCS` (`http://127.0.0.1:4443`).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use nigh_data::{Attributes, ETag, ObjectError, ObjectId, ObjectMeta, Segment, Tags, WriteConditions};
use nigh_stores::cloud::{CloudConfig, CloudService, CloudStore, GcsAccount};
use nigh_stores::{ListQuery, NetworkLimits, Payload, Store};
use nigh_terms::{BucketName, Epoch, Namespace, ObjectKey, SecretKey, Sequence, Timestamp, Token, Version};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

/// The account that Azurite comes with, and its key, as its documentation prints them.
const AZURITE: (&str, &str) =
    ("devstoreaccount1", "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==");

/// How names of probes begin, and the letters drawn behind.
const PROBE: &str = ".nigh-probe-";
const DRAWN: usize = 32;

/// Stands in recorded headers for the service's own address.
const ITSELF: &str = "http://itself";

/// A request, as far as it is the same in each run, and its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Exchange {
    method: String,
    target: String,
    headers: BTreeMap<String, String>,
    bytes: usize,
    status: u16,
    answer_headers: BTreeMap<String, String>,
    answer: String,
}

fn headers_of(headers: &http::HeaderMap, keep: impl Fn(&str, &str) -> bool) -> BTreeMap<String, String> {
    let text = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        (name.as_str().to_owned(), String::from_utf8(value.as_bytes().to_vec()).unwrap())
    };
    headers.iter().map(text).filter(|(name, value)| keep(name, value)).collect()
}

/// Names of probes are drawn; here all have one.
fn same_probe(target: &str) -> String {
    match target.split_once(PROBE) {
        Some((before, after)) => format!("{before}{PROBE}{}{}", "0".repeat(DRAWN), &after[DRAWN..]),
        None => target.to_owned(),
    }
}

/// A service that plays back, or that records what an emulator answers.
struct Recorded {
    emulator: Option<String>,
    exchanges: Mutex<Vec<Exchange>>,
    /// Played back so far.
    played: Mutex<usize>,
}

impl Recorded {
    fn load(name: &str) -> (Arc<Self>, PathBuf) {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/recorded/{name}.json"));
        let emulator = std::env::var(format!("NIGH_TEST_RECORD_{}", name.to_ascii_uppercase())).ok();
        let exchanges = match emulator {
            Some(_) => Vec::new(),
            None => serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap(),
        };
        (Arc::new(Self { emulator, exchanges: Mutex::new(exchanges), played: Mutex::default() }), path)
    }

    async fn serve(self: Arc<Self>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let all = Arc::clone(&self);
                let service = service_fn(move |request| Arc::clone(&all).answer(request));
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        address
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let here = format!("http://{}", head.headers[http::header::HOST].to_str().unwrap());
        let same = |name: &str, value: &str| {
            let named =
                ["range", "if-match", "if-none-match", "x-goog-if-generation-match", "content-type", "x-ms-blob-type"];
            (named.contains(&name) || name.starts_with("x-ms-meta-") || name == "x-ms-blob-cache-control")
                && !value.starts_with("multipart/related")
        };
        let asked = Exchange {
            method: head.method.to_string(),
            target: same_probe(&head.uri.to_string()),
            headers: headers_of(&head.headers, same),
            bytes: body.len(),
            status: 0,
            answer_headers: BTreeMap::new(),
            answer: String::new(),
        };
        let done = match &self.emulator {
            Some(emulator) => self.record(emulator, head, body, asked).await,
            None => self.play(asked),
        };
        let mut response = Response::builder().status(done.status);
        for (name, value) in &done.answer_headers {
            response = response.header(name, value.replace(ITSELF, &here));
        }
        Ok(response.body(Full::from(done.answer)).unwrap())
    }

    async fn record(&self, emulator: &str, head: http::request::Parts, body: Bytes, asked: Exchange) -> Exchange {
        let mut request = Request::builder().method(head.method).uri(format!("{emulator}{}", head.uri));
        for (name, value) in head.headers.iter().filter(|(name, _)| *name != http::header::HOST) {
            request = request.header(name, value);
        }
        let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
        let answer = client.request(request.body(Full::from(body)).unwrap()).await.unwrap();
        let skipped = ["connection", "keep-alive", "transfer-encoding", "date", "server"];
        let done = Exchange {
            status: answer.status().as_u16(),
            answer_headers: headers_of(answer.headers(), |name, _| !skipped.contains(&name))
                .into_iter()
                .map(|(name, value)| (name, value.replace(emulator, ITSELF)))
                .collect(),
            answer: String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap(),
            ..asked
        };
        self.exchanges.lock().push(done.clone());
        done
    }

    /// The recorded answer, if the request is the next one; else one that no test expects.
    fn play(&self, asked: Exchange) -> Exchange {
        let mut played = self.played.lock();
        let next = self.exchanges.lock().get(*played).cloned();
        let same = next.filter(|next| {
            (&next.method, &next.target, &next.headers, next.bytes)
                == (&asked.method, &asked.target, &asked.headers, asked.bytes)
        });
        if let Some(next) = same {
            *played += 1;
            return next;
        }
        let answer = format!("request {played} was not recorded: {asked:?}");
        Exchange { status: StatusCode::NOT_IMPLEMENTED.as_u16(), answer, ..asked }
    }

    fn finish(&self, path: &PathBuf) {
        let exchanges = self.exchanges.lock();
        match self.emulator {
            Some(_) => std::fs::write(path, serde_json::to_string_pretty(&*exchanges).unwrap() + "\n").unwrap(),
            None => assert_eq!(*self.played.lock(), exchanges.len(), "all that was recorded is asked for"),
        }
    }
}

fn namespace() -> Namespace {
    Namespace::new("tenant").unwrap()
}

fn id(bucket: &str, key: &str) -> ObjectId {
    ObjectId { namespace: namespace(), bucket: BucketName::new(bucket).unwrap(), key: ObjectKey::new(key).unwrap() }
}

fn meta(bytes: &[u8]) -> ObjectMeta {
    ObjectMeta {
        size: bytes.len() as u64,
        etag: ETag("0123456789abcdef0123456789abcdef".to_owned()),
        modified: Timestamp(1_700_000_000_123),
        attributes: Attributes::default(),
        tags: Tags::new(),
        checksums: Vec::new(),
        parts: Vec::new(),
        version: Version { epoch: Epoch(2), sequence: Sequence(5) },
        token: Token::empty(),
    }
}

async fn put(store: &CloudStore, object: &ObjectId, bytes: &[u8], meta: &ObjectMeta) -> Result<(), ObjectError> {
    store.put(object, &Payload::Segment(Segment::copy_of(bytes).unwrap()), meta).await
}

async fn read(store: &CloudStore, object: &ObjectId, range: Option<std::ops::Range<u64>>) -> (ObjectMeta, Vec<u8>) {
    let (meta, stream) = store.get(object, range, None).await.unwrap();
    (meta, stream.try_collect::<Vec<Bytes>>().await.unwrap().concat())
}

/// What a cloud store does, in one order, so that it can be recorded.
async fn exercise(store: &CloudStore) {
    let bucket = BucketName::new("cloud").unwrap();
    let there = store.create_bucket(&namespace(), &bucket).await;
    assert!(matches!(there, Err(ObjectError::BucketAlreadyOwnedByYou(_))), "{there:?}");
    let absent = BucketName::new("absent").unwrap();
    let error = store.create_bucket(&namespace(), &absent).await.unwrap_err().to_string();
    assert!(error.contains("cannot make buckets"), "{error}");
    assert!(matches!(store.head_bucket(&namespace(), &absent).await, Err(ObjectError::NoSuchBucket(_))));
    assert!(store.list_buckets(&namespace()).await.unwrap_err().to_string().contains("cannot list buckets"));

    let object = id("cloud", "folder/one.txt");
    assert!(matches!(store.head(&object).await, Err(ObjectError::NoSuchKey(_))));
    let text = |text: &str| Some(text.to_owned());
    let rich = ObjectMeta {
        attributes: Attributes {
            content_type: text("text/plain; charset=utf-8"),
            cache_control: text("max-age=5"),
            content_encoding: text("identity"),
            user: [("plain", "value"), ("with-hyphen", "a, b"), ("text", "grüße")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            ..Attributes::default()
        },
        tags: [("project".to_owned(), "nigh & far".to_owned())].into(),
        ..meta(b"hello, cloud")
    };
    put(store, &object, b"hello, cloud", &rich).await.unwrap();
    assert_eq!(store.head(&object).await.unwrap(), rich);
    assert_eq!(read(store, &object, None).await, (rich.clone(), b"hello, cloud".to_vec()));
    assert_eq!(read(store, &object, Some(7..12)).await, (rich.clone(), b"cloud".to_vec()));
    let other = ETag("f".repeat(32));
    let pinned = store.get(&object, None, Some(&other)).await.err();
    assert!(matches!(pinned, Some(ObjectError::PreconditionFailed(_))), "{pinned:?}");
    let beyond = store.get(&object, Some(7..13), None).await.err();
    assert!(matches!(beyond, Some(ObjectError::InvalidRange { size: 12 })), "{beyond:?}");
    assert!(store.put_tags(&object, &Tags::new()).await.unwrap_err().to_string().contains("cannot change the tags"));

    for key in ["folder/a b+c", "folder/ü?x=1&y#z%2F", "folder/zz", "other"] {
        put(store, &id("cloud", key), key.as_bytes(), &meta(key.as_bytes())).await.unwrap();
        assert_eq!(read(store, &id("cloud", key), None).await.1, key.as_bytes());
    }
    let list = async |prefix: &str, after: Option<&str>, limit| {
        let page =
            store.list(ListQuery { prefix, after, ..ListQuery::first(&namespace(), &bucket, limit) }).await.unwrap();
        page.into_iter().map(|listed| listed.key.as_str().to_owned()).collect::<Vec<_>>()
    };
    let all = ["folder/a b+c", "folder/one.txt", "folder/zz", "folder/ü?x=1&y#z%2F", "other"];
    assert_eq!(list("", None, 100).await, all);
    assert_eq!(list("folder/", Some("folder/a b+c"), 2).await, ["folder/one.txt", "folder/zz"]);
    assert_eq!(list("folder/o", None, 100).await, ["folder/one.txt"]);

    for key in ["a//b", "/a", "a/", " a", "a/../b", "a\\b"] {
        let refused = put(store, &id("cloud", key), b"x", &meta(b"x")).await;
        assert!(matches!(refused, Err(ObjectError::InvalidArgument(_))), "{key:?}: {refused:?}");
        assert!(matches!(store.head(&id("cloud", key)).await, Err(ObjectError::InvalidArgument(_))));
    }
    put(store, &object, b"", &meta(b"")).await.unwrap();
    assert_eq!(read(store, &object, None).await, (meta(b""), Vec::new()));
    keep_conditions(store, &bucket).await;
    for key in all {
        store.delete(&id("cloud", key)).await.unwrap();
    }
    store.delete(&object).await.unwrap();
    assert!(list("", None, 10).await.is_empty());
    let gone = put(store, &id("absent", "k"), b"x", &meta(b"x")).await;
    assert!(matches!(gone, Err(ObjectError::NoSuchBucket(_))), "{gone:?}");
}

/// Conditions name one state of the object, and another is left alone.
async fn keep_conditions(store: &CloudStore, bucket: &BucketName) {
    let object = id("cloud", "conditions");
    let tag = |letter: &str| ETag(letter.repeat(32));
    let of = |letter: &str, bytes: &[u8]| ObjectMeta { etag: tag(letter), ..meta(bytes) };
    let put_if = async |letter: &str, bytes: &[u8], condition: &WriteConditions| {
        let payload = Payload::Segment(Segment::copy_of(bytes).unwrap());
        store.put_if(&object, &payload, &of(letter, bytes), condition).await
    };
    let absent = WriteConditions { if_absent: true, ..WriteConditions::default() };
    let over = |letter: &str| WriteConditions { if_match: Some(tag(letter)), ..WriteConditions::default() };
    let refused = |done: Result<(), ObjectError>| {
        assert!(matches!(done, Err(ObjectError::PreconditionFailed(_))), "{done:?}");
    };
    refused(put_if("a", b"over nothing", &over("a")).await);
    put_if("a", b"first", &absent).await.unwrap();
    refused(put_if("b", b"there is one", &absent).await);
    refused(put_if("b", b"it is another", &over("c")).await);
    put_if("b", b"second", &over("a")).await.unwrap();
    assert_eq!(read(store, &object, None).await, (of("b", b"second"), b"second".to_vec()));
    refused(store.delete_if(&object, &tag("a")).await);
    store.delete_if(&object, &tag("b")).await.unwrap();
    store.delete_if(&object, &tag("b")).await.unwrap();
    assert!(matches!(store.head(&object).await, Err(ObjectError::NoSuchKey(_))));
    assert!(store.abilities(&namespace()).conditions);
    assert!(store.keeps_conditions(&namespace(), bucket).await.unwrap());
}

async fn run(name: &str, service: impl FnOnce(String) -> CloudService) {
    let (recorded, path) = Recorded::load(name);
    let endpoint = Arc::clone(&recorded).serve().await;
    let store = CloudStore::new(&CloudConfig {
        service: service(endpoint),
        bucket_prefixes: [(namespace(), "t1-".to_owned())].into(),
        limits: NetworkLimits::default(),
    })
    .unwrap();
    exercise(&store).await;
    recorded.finish(&path);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_azure_store_does_as_recorded_with_azurite() {
    let service = |endpoint: String| CloudService::Azure {
        endpoint: format!("{endpoint}/{}", AZURITE.0),
        account: AZURITE.0.to_owned(),
        key: SecretKey::new(AZURITE.1),
    };
    run("azure", service).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gcs_store_does_as_recorded_with_fake_gcs_server() {
    let service = |endpoint| CloudService::Gcs { endpoint: Some(endpoint), account: GcsAccount::Nobody };
    run("gcs", service).await;
}
