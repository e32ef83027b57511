//! Clients that would keep the door from others, and clients of other services.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nigh_openwhisk::NamespaceLimits;
use nigh_terms::Namespace;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::lambda_door_support::{Client, Door, HttpAnswer};

const FUNCTIONS: &str = "/2015-03-31/functions";
const BODY: [u8; 1000] = [b'x'; 1000];

/// Sends `head` only; gives the connection once the door asks for the body, or the status of its refusal.
async fn begin(door: &Door, head: &str) -> Result<TcpStream, String> {
    let mut stream = TcpStream::connect(door.address).await.unwrap();
    let head = head.replacen("\r\n\r\n", "\r\nexpect: 100-continue\r\n\r\n", 1);
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.unwrap();
    match String::from_utf8_lossy(&status[9..]).as_ref() {
        "100" => Ok(stream),
        refusal => Err(refusal.to_owned()),
    }
}

/// Begins requests until one is refused with 429.
async fn begin_all(door: &Door, head: impl Fn() -> String) -> Vec<TcpStream> {
    let mut begun = Vec::new();
    loop {
        match begin(door, &head()).await {
            Ok(stream) => begun.push(stream),
            Err(status) => {
                assert_eq!(status, "429");
                return begun;
            }
        }
    }
}

async fn soon(answer: impl Future<Output = HttpAnswer>) -> HttpAnswer {
    tokio::time::timeout(Duration::from_secs(10), answer).await.unwrap_or_else(|_| panic!("others keep it out"))
}

#[tokio::test]
async fn bodies_of_one_key_or_function_that_do_not_come_keep_nobody_else_out() {
    let door = Door::open_for(NamespaceLimits::default(), 8).await;
    door.create("f").await;
    let client = door.client();
    let url = client.send("POST", "/2021-10-31/functions/f/url", &[], br#"{"AuthType":"NONE"}"#).await.json();
    let id = url["FunctionUrl"].as_str().unwrap().trim_start_matches("http://").split('.').next().unwrap().to_owned();
    let key = door.keys.issue(&*door.registry, &Namespace::new("other").unwrap()).await.unwrap();
    let other = Client { key, ..door.client() };

    let by_key = begin_all(&door, || client.sign("POST", &format!("{FUNCTIONS}/f/invocations"), &[], &BODY)).await;
    assert_eq!(by_key.len(), 6, "three quarters of the door");
    let throttled = soon(client.send("GET", FUNCTIONS, &[], b"")).await;
    assert_eq!((throttled.status, throttled.kind()), (429, Some("TooManyRequestsException")));
    assert_eq!(soon(other.send("GET", FUNCTIONS, &[], b"")).await.status, 200);
    let basic = |client: &Client| STANDARD.encode(format!("{}:{}", client.key.0, client.key.1.reveal()));
    let whisk = async |client: &Client| {
        let basic = basic(client);
        let head = format!(
            "GET /api/v1/namespaces HTTP/1.1\r\nhost: x\r\nauthorization: Basic {basic}\r\nconnection: close\r\n\r\n"
        );
        soon(client.raw(head.as_bytes(), b"")).await.status
    };
    assert_eq!((whisk(&client).await, whisk(&other).await), (429, 200), "all APIs of the door share it");

    let unsigned = || format!("POST /lambda-url/{id}/ HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n");
    let by_url = begin_all(&door, unsigned).await;
    assert_eq!(by_url.len(), 1, "a function is counted by itself");
    assert_eq!(soon(other.send("GET", FUNCTIONS, &[], b"")).await.status, 200);
    drop((by_key, by_url));
    let began = std::time::Instant::now();
    while client.send("GET", FUNCTIONS, &[], b"").await.status != 200 {
        assert!(began.elapsed() < Duration::from_secs(20), "connections that are gone keep their share");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn invocations_of_one_key_keep_nobody_else_out() {
    let door = Door::open_for(NamespaceLimits::default(), 8).await;
    door.create("f").await;
    let held = door.invoke.gate.acquire().await.unwrap();
    let target = format!("{FUNCTIONS}/f/invocations");
    let mut running = Vec::new();
    for _ in 0..6 {
        let (client, target) = (door.client(), target.clone());
        running.push(tokio::spawn(async move { client.send("POST", &target, &[], b"{}").await.status }));
    }
    while door.invoke.client_contexts.lock().len() < 6 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(soon(door.client().send("POST", &target, &[], b"{}")).await.status, 429);
    let key = door.keys.issue(&*door.registry, &Namespace::new("other").unwrap()).await.unwrap();
    let other = Client { key, ..door.client() };
    assert_eq!(soon(other.send("GET", FUNCTIONS, &[], b"")).await.status, 200);
    drop(held);
    for invocation in running {
        assert_eq!(invocation.await.unwrap(), 200);
    }
}

#[tokio::test]
async fn connections_that_ask_nothing_keep_nobody_out() {
    let door = Door::open_for(NamespaceLimits::default(), 4).await;
    let mut silent = Vec::new();
    for sent in ["", "GET / HT", "", "POST /2015"] {
        let mut stream = TcpStream::connect(door.address).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        silent.push(stream);
    }
    for _ in 0..5 {
        assert_eq!(soon(door.client().send("GET", FUNCTIONS, &[], b"")).await.status, 200);
    }
}

#[tokio::test]
async fn clients_that_read_xml_are_told_in_xml_that_this_is_the_lambda_door() {
    let door = Door::open().await;
    let client = door.client();
    let action = "POST / HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-www-form-urlencoded; charset=utf-8\r\n\
                  content-length: 43\r\nconnection: close\r\n\r\n";
    let answer = client.raw(action.as_bytes(), b"Action=GetCallerIdentity&Version=2011-06-15").await;
    assert_eq!((answer.status, answer.header("content-type")), (400, Some("text/xml")));
    let text = String::from_utf8(answer.body).unwrap();
    assert!(text.starts_with("<ErrorResponse><Error><Type>Sender</Type><Code>InvalidAction</Code>"), "{text}");
    let get = client.sign("GET", "/bucket/key", &[], b"").replace("/lambda/aws4_request", "/s3/aws4_request");
    let answer = client.raw(get.as_bytes(), b"").await;
    let text = String::from_utf8(answer.body).unwrap();
    assert!(answer.status == 400 && text.contains("<Code>AuthorizationHeaderMalformed</Code>"), "{text}");
    assert!(text.contains("AWS_ENDPOINT_URL_S3"), "{text}");
    let unknown = client.send("GET", "/nothing", &[], b"").await;
    assert_eq!((unknown.status, unknown.json()["Message"].as_str()), (404, Some("there is no such operation")));
    assert_eq!(client.send("GET", FUNCTIONS, &[], b"").await.json(), json!({ "Functions": [] }));
}
