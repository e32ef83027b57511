//! Each request's event in the audit trail: who, what, and how it ended.

use std::net::SocketAddr;
use std::sync::Arc;

use nigh_http::audit::{Audit, AuditSink};
use nigh_terms::SystemClock;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

use crate::client::{Request, exchange};
use crate::running::Running;
use crate::sign::{Payload, Signer};

#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl AuditSink for Lines {
    fn write(&self, line: String) {
        self.0.lock().push(line);
    }
}

struct Audited {
    running: Running,
    lines: Arc<Lines>,
    address: SocketAddr,
}

impl Audited {
    async fn start(data: bool) -> Self {
        let (running, lines) = (Running::start().await, Arc::new(Lines::default()));
        let sink = Arc::clone(&lines) as Arc<dyn AuditSink>;
        let audit = Audit::new(sink, data, "us-east-1", "n1", Arc::new(SystemClock::new()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(running.door.clone().with_audit(audit).serve_tcp(listener, running.stop.clone()));
        Self { running, lines, address }
    }

    /// The status of the answer to a request that is signed so.
    async fn send(&self, signer: &Signer, request: Request) -> u16 {
        let request = signer.sign(request.header("user-agent", "tester/1"), Payload::Signed);
        let mut connection = TcpStream::connect(self.address).await.unwrap();
        exchange(&mut connection, &request.head(), &request.body).await.status
    }

    fn events(&self) -> Vec<Value> {
        self.lines.0.lock().iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

#[tokio::test]
async fn every_request_has_its_event_before_it_is_answered() {
    let audited = Audited::start(true).await;
    let signer = audited.running.signer.clone();
    assert_eq!(audited.send(&signer, Request::new("PUT", "/bucket")).await, 200);
    assert_eq!(audited.send(&signer, Request::new("PUT", "/bucket/a b").body("bytes")).await, 200);
    assert_eq!(audited.send(&signer, Request::new("GET", "/bucket/a b")).await, 200);
    assert_eq!(audited.send(&signer, Request::new("GET", "/bucket/none")).await, 404);
    let events = audited.events();
    let names: Vec<&str> = events.iter().map(|event| event["eventName"].as_str().unwrap()).collect();
    assert_eq!(names, ["CreateBucket", "PutObject", "GetObject", "GetObject"]);
    for event in &events {
        assert_eq!(event["userIdentity"]["userName"], "tenant", "{event:#}");
        assert_eq!(event["userIdentity"]["accessKeyId"], signer.key.as_str());
        assert_eq!((&event["sourceIPAddress"], &event["userAgent"]), (&"127.0.0.1".into(), &"tester/1".into()));
    }
    assert_eq!(events[0]["requestParameters"], json!({ "bucketName": "bucket" }));
    assert_eq!(events[1]["requestParameters"], json!({ "bucketName": "bucket", "key": "a b" }));
    assert_eq!((&events[2]["readOnly"], events[2].get("errorCode")), (&true.into(), None));
    assert_eq!(
        (&events[3]["errorCode"], &events[3]["additionalEventData"]["httpStatus"]),
        (&"NoSuchKey".into(), &404.into())
    );
}

#[tokio::test]
async fn a_key_whose_secret_is_wrong_is_named_and_is_nobody() {
    let audited = Audited::start(false).await;
    let wrong = Signer { secret: "wrong".to_owned(), ..audited.running.signer.clone() };
    assert_eq!(audited.send(&wrong, Request::new("PUT", "/bucket")).await, 403);
    let events = audited.events();
    assert_eq!(events.len(), 1, "{events:#?}");
    assert_eq!(events[0]["errorCode"], "SignatureDoesNotMatch");
    assert_eq!(events[0]["userIdentity"], json!({ "type": "Unknown", "accessKeyId": wrong.key }));
    assert!(events[0]["additionalEventData"].get("namespace").is_none(), "{events:#?}");
}

#[tokio::test]
async fn without_data_events_reads_and_writes_of_objects_leave_no_line() {
    let audited = Audited::start(false).await;
    let signer = audited.running.signer.clone();
    for request in [
        Request::new("PUT", "/bucket"),
        Request::new("PUT", "/bucket/a").body("bytes"),
        Request::new("GET", "/bucket/a"),
        Request::new("HEAD", "/bucket"),
    ] {
        assert_eq!(audited.send(&signer, request).await, 200);
    }
    let events = audited.events();
    let names: Vec<&str> = events.iter().map(|event| event["eventName"].as_str().unwrap()).collect();
    assert_eq!(names, ["CreateBucket", "HeadBucket"]);
}
