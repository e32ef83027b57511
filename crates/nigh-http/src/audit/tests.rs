//! Tests of the audit trail's events.

use std::time::Duration;

use http::HeaderValue;
use nigh_terms::{AccessKeyId, FunctionName, InvocationId, ManualClock, Namespace, Principal, SandboxId};
use parking_lot::Mutex;

use super::*;

#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl AuditSink for Lines {
    fn write(&self, line: String) {
        self.0.lock().push(line);
    }
}

fn trail(data: bool) -> (Arc<Lines>, Audit) {
    let (lines, clock) = (Arc::new(Lines::default()), ManualClock::default());
    clock.advance(Duration::from_millis(1_700_000_000_120));
    let sink = Arc::clone(&lines) as Arc<dyn AuditSink>;
    (lines, Audit::new(sink, data, "us-east-1", "n1", Arc::new(clock)))
}

fn event<'a>(name: &'a str, category: EventCategory, caller: Caller, client: &'a AuditClient) -> AuditEvent<'a> {
    AuditEvent {
        source: EventSource::S3,
        name,
        category,
        read_only: false,
        caller,
        client,
        request_id: "0123456789ABCDEF",
        status: 200,
        error: None,
        parameters: fields(&[("bucketName", Some("data")), ("key", None)]),
        response: Map::new(),
    }
}

fn headers(name: http::HeaderName, value: &str) -> HeaderMap {
    HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
}

#[test]
fn an_event_is_one_line_with_cloudtrails_names() {
    let (lines, audit) = trail(false);
    let client = AuditClient::of(&headers(USER_AGENT, "aws-cli/2"), None, Some(IpAddr::from([127, 0, 0, 1])));
    let who = Principal::outside(Namespace::new("tenant").unwrap());
    let caller = Caller::Key { access_key: AccessKeyId::new("NIGHKEY"), principal: Some(who) };
    audit.record(event("CreateBucket", EventCategory::Management, caller, &client));
    let lines = lines.0.lock();
    assert!(!lines[0].contains('\n'));
    let line: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!((&line["eventVersion"], &line["eventTime"]), (&"1.11".into(), &"2023-11-14T22:13:20.120Z".into()));
    assert_eq!((&line["eventSource"], &line["eventName"]), (&"s3.amazonaws.com".into(), &"CreateBucket".into()));
    assert_eq!(line["userIdentity"]["type"], "IAMUser");
    assert_eq!(line["userIdentity"]["arn"], "arn:aws:iam::000000000000:user/tenant");
    assert_eq!(line["userIdentity"]["accessKeyId"], "NIGHKEY");
    assert_eq!((&line["sourceIPAddress"], &line["userAgent"]), (&"127.0.0.1".into(), &"aws-cli/2".into()));
    assert_eq!(line["requestParameters"], json!({ "bucketName": "data" }));
    assert!(line["responseElements"].is_null() && line.get("errorCode").is_none());
    assert_eq!(line["additionalEventData"], json!({ "node": "n1", "httpStatus": 200, "namespace": "tenant" }));
    assert_eq!((&line["managementEvent"], &line["eventCategory"]), (&true.into(), &"Management".into()));
    assert_eq!(line["requestID"], "0123456789ABCDEF");
}

#[test]
fn data_events_are_recorded_by_choice_and_management_events_always() {
    let client = AuditClient::default();
    for data in [false, true] {
        let (lines, audit) = trail(data);
        audit.record(event("GetObject", EventCategory::Data, Caller::Anonymous, &client));
        audit.record(event("DeleteBucket", EventCategory::Management, Caller::Anonymous, &client));
        assert_eq!((lines.0.lock().len(), audit.wants(EventCategory::Data)), (1 + usize::from(data), data));
    }
    assert!(!Audit::off().wants(EventCategory::Management));
    Audit::off().record(event("DeleteBucket", EventCategory::Management, Caller::Anonymous, &client));
}

#[test]
fn a_request_inside_a_sandbox_names_its_function_and_invocation() {
    let (namespace, function) = (Namespace::new("tenant").unwrap(), FunctionName::new("f").unwrap());
    let id = InvocationId::now();
    let who = Principal::inside(namespace, function, SandboxId::random(), id);
    let caller = Caller::Key { access_key: AccessKeyId::new("K"), principal: Some(who) };
    assert_eq!(caller.identity()["type"], "AssumedRole");
    assert_eq!(caller.identity()["arn"], "arn:aws:sts::000000000000:assumed-role/tenant/f");
    let mut more = Map::new();
    caller.describe(&mut more);
    assert_eq!(more["invocation"], id.to_string());
}

#[test]
fn a_key_that_was_only_named_is_no_identity() {
    let signature =
        "AWS4-HMAC-SHA256 Credential=NIGHX/20260101/r/s3/aws4_request, SignedHeaders=host, Signature=5ec4e7";
    let signed = AuditClient::of(&headers(AUTHORIZATION, signature), None, None);
    assert_eq!(signed.claimed_key(), Some("NIGHX"));
    let presigned = Some("X-Amz-Algorithm=A&X-Amz-Credential=NIGHY%2F20260101%2Fr&X-Amz-Signature=5ec4e7");
    assert_eq!(AuditClient::of(&HeaderMap::new(), presigned, None).claimed_key(), Some("NIGHY"));
    assert_eq!(AuditClient::of(&headers(AUTHORIZATION, "Basic bm9ib2R5OnNlY3JldA=="), None, None).claimed_key(), None);
    let caller = Caller::claimed(signed.claimed_key());
    assert_eq!(caller.identity(), json!({ "type": "Unknown", "accessKeyId": "NIGHX" }));
    assert_eq!(Caller::claimed(None), Caller::Anonymous);
    let (lines, audit) = trail(true);
    audit.record(AuditEvent {
        error: Some("SignatureDoesNotMatch"),
        status: 403,
        ..event("GetObject", EventCategory::Data, caller, &signed)
    });
    let lines = lines.0.lock();
    assert!(lines[0].contains("\"errorCode\":\"SignatureDoesNotMatch\"") && !lines[0].contains("5ec4e7"), "{lines:?}");
}

#[test]
fn a_session_of_a_link_names_who_made_the_link() {
    let made_by = |maker| Caller::Link(Box::new(maker));
    let of_user = made_by(Caller::LocalUser(1000)).identity();
    assert_eq!((&of_user["type"], &of_user["principalId"]), (&"SignInLink".into(), &"link:uid:1000".into()));
    assert_eq!(of_user["sessionContext"]["sessionIssuer"], Caller::LocalUser(1000).identity());
    let who = Principal::outside(Namespace::new("tenant").unwrap());
    let of_key = made_by(Caller::Key { access_key: AccessKeyId::new("NIGHX"), principal: Some(who) });
    assert_eq!(of_key.identity()["sessionContext"]["sessionIssuer"]["accessKeyId"], "NIGHX");
    let mut more = Map::new();
    of_key.describe(&mut more);
    assert_eq!(more["namespace"], "tenant");
}

#[test]
fn of_a_document_only_the_names_that_were_asked_for_are_taken() {
    let document = br#"{"FunctionName": "f", "Environment": {"Variables": {"TOKEN": "hush"}}, "Timeout": 3}"#;
    assert_eq!(picked(document, &["FunctionName", "Timeout", "Role"]), fields(&[("functionName", Some("f"))]));
    assert!(picked(b"no document", &["FunctionName"]).is_empty());
    assert!(picked(&vec![b' '; DOCUMENT_BYTES_MAX + 1], &["FunctionName"]).is_empty());
}

#[test]
fn what_a_client_says_of_itself_is_bounded() {
    let client = AuditClient::of(&headers(USER_AGENT, &"x".repeat(9000)), None, None);
    assert_eq!(client.user_agent.unwrap().len(), CLIENT_TEXT_CHARS_MAX);
}
