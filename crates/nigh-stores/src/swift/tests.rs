//! Tests the Swift store without a Swift: logins and tokens, against a small server that counts them. The conformance
//! suite, which runs on real Swift, tests the Swift store as a store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use nigh_terms::{ObjectKey, SecretKey};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// A Swift with one empty container. It accepts only the newest token.
#[derive(Default)]
struct FakeSwift {
    logins: AtomicUsize,
    /// Number of requests with an older token.
    expired: AtomicUsize,
    refuses_logins: AtomicBool,
    /// The life of a token that the server states, in seconds.
    life: AtomicUsize,
    requests: AtomicUsize,
}

impl FakeSwift {
    fn answer(&self, host: &str, request: &str) -> String {
        let end = "Content-Length: 0\r\nConnection: close\r\n\r\n";
        if request.starts_with("GET /auth") {
            let login = self.logins.fetch_add(1, Ordering::SeqCst) + 1;
            if self.refuses_logins.load(Ordering::SeqCst) {
                return format!("HTTP/1.1 401 Unauthorized\r\n{end}");
            }
            let life = self.life.load(Ordering::SeqCst);
            return format!(
                "HTTP/1.1 200 OK\r\nX-Auth-Token: token{login}\r\nX-Storage-Url: http://{host}/v1/AUTH_a\r\n\
                 X-Auth-Token-Expires: {life}\r\n{end}"
            );
        }
        self.requests.fetch_add(1, Ordering::SeqCst);
        if !request.contains(&format!("x-auth-token: token{}\r\n", self.logins.load(Ordering::SeqCst))) {
            self.expired.fetch_add(1, Ordering::SeqCst);
            return format!("HTTP/1.1 401 Unauthorized\r\n{end}");
        }
        "HTTP/1.1 204 No Content\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nConnection: close\r\n\r\n"
            .to_owned()
    }
}

async fn serve(life: usize) -> (Arc<SwiftStore>, Arc<FakeSwift>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let fake = Arc::new(FakeSwift { life: AtomicUsize::new(life), ..FakeSwift::default() });
    let store = store(&format!("http://{host}/auth/v1.0"));
    let served = Arc::clone(&fake);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (fake, host) = (Arc::clone(&served), host.clone());
            tokio::spawn(async move {
                let mut request = Vec::new();
                while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                    assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
                }
                // The delay lets other requests arrive meanwhile.
                tokio::time::sleep(Duration::from_millis(20)).await;
                let answer = fake.answer(&host, &String::from_utf8(request).unwrap());
                stream.write_all(answer.as_bytes()).await.unwrap();
            });
        }
    });
    (Arc::new(store), fake)
}

fn store(auth_url: &str) -> SwiftStore {
    let config = SwiftConfig {
        auth_url: auth_url.to_owned(),
        login: SwiftLogin::TempAuth { user: "a:b".to_owned(), key: SecretKey::new("hush") },
        endpoint: EndpointChoice { region: None, interface: "public".to_owned() },
        bucket_prefixes: [(namespace(), String::new())].into(),
        limits: NetworkLimits::default(),
    };
    assert!(!format!("{config:?}").contains("hush"));
    SwiftStore::new(&config).unwrap()
}

fn namespace() -> Namespace {
    Namespace::new("one").unwrap()
}

async fn ask(store: &SwiftStore) -> Result<BucketInfo, ObjectError> {
    store.head_bucket(&namespace(), &BucketName::new("bucket").unwrap()).await
}

async fn ask_ten(store: &Arc<SwiftStore>) -> Vec<Result<BucketInfo, ObjectError>> {
    let asking = (0..10).map(|_| Arc::clone(store)).map(|store| tokio::spawn(async move { ask(&store).await }));
    futures::future::join_all(asking.collect::<Vec<_>>()).await.into_iter().map(Result::unwrap).collect()
}

#[tokio::test]
async fn all_who_wait_share_one_login_and_its_token() {
    let (store, fake) = serve(3600).await;
    assert!(ask_ten(&store).await.iter().all(Result::is_ok));
    assert_eq!((fake.logins.load(Ordering::SeqCst), fake.expired.load(Ordering::SeqCst)), (1, 0));
}

#[tokio::test]
async fn a_token_that_is_refused_is_renewed_once_for_all_who_brought_it() {
    let (store, fake) = serve(3600).await;
    ask(&store).await.unwrap();
    // This simulates another login, which ended the token.
    fake.logins.fetch_add(1, Ordering::SeqCst);
    assert!(ask_ten(&store).await.iter().all(Result::is_ok));
    assert_eq!(fake.logins.load(Ordering::SeqCst), 3);
    assert!(fake.expired.load(Ordering::SeqCst) >= 1);
}

#[tokio::test]
async fn a_token_is_renewed_before_its_end() {
    let (store, fake) = serve(0).await;
    for logins in 1..=3 {
        ask(&store).await.unwrap();
        assert_eq!((fake.logins.load(Ordering::SeqCst), fake.expired.load(Ordering::SeqCst)), (logins, 0));
    }
}

#[tokio::test]
async fn a_wrong_password_is_said_and_not_tried_again_and_again() {
    let (store, fake) = serve(3600).await;
    fake.refuses_logins.store(true, Ordering::SeqCst);
    for answer in ask_ten(&store).await {
        let error = answer.unwrap_err().to_string();
        assert!(error.contains("login is refused") && error.contains("store.secret_key"), "{error}");
        assert!(!error.contains("hush"), "{error}");
    }
    assert!(ask(&store).await.is_err());
    assert_eq!((fake.logins.load(Ordering::SeqCst), fake.requests.load(Ordering::SeqCst)), (1, 0));
}

#[tokio::test]
async fn a_login_that_cannot_be_reached_is_an_error_after_a_few_attempts() {
    let error = ask(&store("http://127.0.0.1:1/auth/v1.0")).await.unwrap_err().to_string();
    assert!(error.contains("login") && error.contains("refused"), "{error}");
}

#[test]
fn a_key_that_swift_does_not_take_is_refused_and_all_others_go_as_they_are() {
    let store = store("http://127.0.0.1:1/auth/v1.0");
    let target = |key: &str| {
        let bucket = BucketName::new("bucket").unwrap();
        store.target(&ObjectId { namespace: namespace(), bucket, key: ObjectKey::new(key).unwrap() })
    };
    assert!(matches!(target("a\0b"), Err(ObjectError::InvalidArgument(_))));
    assert_eq!(target("a//../ü?").unwrap(), "/bucket/a//../%C3%BC%3F");
}
