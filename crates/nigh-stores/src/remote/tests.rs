//! Tests the remote store without a remote: its names, and how it handles prepared answers. The conformance suite,
//! which runs on real Swift, tests the remote store as a store.

use futures::TryStreamExt;
use nigh_terms::{AccessKeyId, ObjectKey, SecretKey};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::NetworkLimits;

fn config(prefixes: &[(&str, &str)]) -> RemoteConfig {
    let mut config = RemoteConfig::of_one_namespace(
        Namespace::new("one").unwrap(),
        "http://127.0.0.1:1",
        "us-east-1",
        AccessKeyId::new("key"),
        SecretKey::new("hush"),
    );
    config.bucket_prefixes =
        prefixes.iter().map(|(name, prefix)| (Namespace::new(name).unwrap(), (*prefix).to_owned())).collect();
    config
}

fn bucket(name: &str) -> BucketName {
    BucketName::new(name).unwrap()
}

#[test]
fn namespaces_whose_buckets_could_be_the_same_are_refused() {
    let meet = config(&[("a", ""), ("b", "b-")]);
    assert!(matches!(RemoteStore::new(&meet), Err(RemoteError::PrefixesMeet(_))));
}

#[test]
fn a_configuration_does_not_print_its_secret() {
    assert!(!format!("{:?}", config(&[("a", "")])).contains("hush"));
}

#[test]
fn an_endpoint_must_be_a_url_without_a_path() {
    for bad in ["127.0.0.1:80", "ftp://x", "http://h/path", "", "http://"] {
        let config = RemoteConfig { endpoint: bad.to_owned(), ..config(&[]) };
        assert!(matches!(RemoteStore::new(&config), Err(RemoteError::Client(_))), "{bad}");
    }
}

#[test]
fn keys_are_encoded_once_and_never_folded() {
    for (key, encoded) in [("a//b", "a//b"), ("/a", "/a"), ("a/../b/", "a/../b/"), ("a b+c?%", "a%20b%2Bc%3F%25")] {
        assert_eq!(encode_path(key), encoded);
    }
    let object = ObjectId {
        namespace: Namespace::new("a").unwrap(),
        bucket: bucket("xyz"),
        key: ObjectKey::new("../ü").unwrap(),
    };
    let store = RemoteStore::new(&config(&[("a", "")])).unwrap();
    assert_eq!(store.target(&object).unwrap(), "/xyz/../%C3%BC");
}

#[tokio::test]
async fn a_store_that_is_not_there_is_an_error_after_a_few_attempts() {
    let store = RemoteStore::new(&config(&[("one", "")])).unwrap();
    let error = store.list_buckets(&Namespace::new("one").unwrap()).await.unwrap_err().to_string();
    assert!(error.contains("list buckets") && error.contains("refused"), "{error}");
}

/// A server that gives one prepared answer per connection. The task returns the requests that the server received.
async fn serve(answers: Vec<&'static str>) -> (RemoteStore, tokio::task::JoinHandle<Vec<String>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let store = RemoteStore::new(&RemoteConfig { endpoint, ..config(&[("one", "")]) }).unwrap();
    let served = tokio::spawn(async move {
        let mut requests = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
            }
            requests.push(String::from_utf8(request).unwrap());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
        requests
    });
    (store, served)
}

fn object(key: &str) -> ObjectId {
    ObjectId { namespace: Namespace::new("one").unwrap(), bucket: bucket("bucket"), key: ObjectKey::new(key).unwrap() }
}

const BUSY: &str = "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

#[tokio::test]
async fn a_request_the_store_is_too_busy_for_is_sent_again_and_signed_each_time() {
    let found = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nETag: \"abc\"\r\nConnection: close\r\n\r\n";
    let (store, served) = serve(vec![BUSY, "", found]).await;
    let meta = store.head(&object("a/../b")).await.unwrap();
    assert_eq!((meta.size, meta.etag), (7, ETag("abc".to_owned())));
    let requests = served.await.unwrap();
    assert_eq!(requests.len(), 3);
    for request in requests {
        assert!(request.starts_with("HEAD /bucket/a/../b HTTP/1.1\r\n"), "{request}");
        assert!(request.contains("authorization: AWS4-HMAC-SHA256 Credential=key/"), "{request}");
        assert!(!request.contains("hush"), "{request}");
    }
}

#[tokio::test]
async fn attempts_end() {
    let (store, served) = serve(vec![BUSY; 4]).await;
    assert!(matches!(store.delete(&object("k")).await, Err(ObjectError::SlowDown(_))));
    assert_eq!(served.await.unwrap().len(), 4);
}

#[tokio::test]
async fn what_the_store_forbids_is_not_asked_again() {
    let forbidden = "HTTP/1.1 403 Forbidden\r\nContent-Length: 39\r\nConnection: close\r\n\r\n\
                     <Error><Code>AccessDenied</Code></Error";
    let (store, served) = serve(vec![forbidden]).await;
    let error = store.head(&object("k")).await.unwrap_err().to_string();
    assert!(error.contains("check the store's access key"), "{error}");
    assert_eq!(served.await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_body_that_breaks_off_is_an_error_and_not_a_shorter_object() {
    let short = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\nETag: \"abc\"\r\nConnection: close\r\n\r\nhalf";
    let (store, served) = serve(vec![short]).await;
    let (meta, stream) = store.get(&object("k"), None, None).await.unwrap();
    assert_eq!(meta.size, 10);
    let error = stream.try_collect::<Vec<Bytes>>().await.unwrap_err().to_string();
    assert!(error.contains("broke off"), "{error}");
    assert_eq!(served.await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_store_that_ignores_the_range_is_not_believed() {
    let all = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nETag: \"abc\"\r\nConnection: close\r\n\r\nwhole";
    let (store, _served) = serve(vec![all]).await;
    assert!(matches!(store.get(&object("k"), Some(1..3), None).await.err(), Some(ObjectError::Store { .. })));
}

#[tokio::test]
async fn a_store_that_says_nothing_is_given_up() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let limits = NetworkLimits { answer: std::time::Duration::from_millis(50), ..NetworkLimits::default() };
    let store = RemoteStore::new(&RemoteConfig { endpoint, limits, ..config(&[("one", "")]) }).unwrap();
    let error = store.head(&object("k")).await.unwrap_err().to_string();
    assert!(error.contains("no answer"), "{error}");
}
