//! The fast path beside HTTP: the same objects, answers, refusals and rights.

use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use md5::{Digest as _, Md5};
use nigh_client::{Address, Client, ClientError, Conditions, Connection, Headers, Message};
use nigh_s3::{FastPath, FastPathLimits, FastPathPayer, bind_fast_path};
use nigh_terms::{AccessKeyId, ByteSize, InvocationId, Namespace, hex};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::client::Request;
use crate::running::Running;
use crate::sign::{Payload, Signer, sha256};

/// What a test takes for large: its own segment, and more than a packet.
pub(crate) const LARGE: usize = 300_000;
/// More than the door's memory keeps.
const STREAMED: usize = (16 << 20) + 1;
const GET: u8 = 2;
const HEAD: u8 = 3;
const PUT: u8 = 4;

pub(crate) fn limits() -> FastPathLimits {
    FastPathLimits { drain: Duration::from_secs(5), ..FastPathLimits::new(ByteSize::mib(4)) }
}

/// Serves the fast path beside `door`; for one key only, if one is named.
pub(crate) fn serve(door: &Running, name: &str, limits: FastPathLimits, only: Option<AccessKeyId>) -> Address {
    serve_until(door, name, limits, only, door.stop.clone())
}

pub(crate) fn serve_until(
    door: &Running,
    name: &str,
    limits: FastPathLimits,
    only: Option<AccessKeyId>,
    until: CancellationToken,
) -> Address {
    let path = door.socket.with_file_name(name);
    let listener = bind_fast_path(&path).unwrap();
    let fast_path = FastPath::new(&door.door, limits);
    tokio::spawn(async move { fast_path.serve(listener, only, until).await.unwrap() });
    Address::File(path)
}

/// What blocks, off the thread that serves.
pub(crate) async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

pub(crate) fn client(address: &Address, signer: &Signer) -> Client {
    Client::connect(address, &signer.key, &signer.secret).unwrap()
}

/// A connection that has shown its key and may say what it likes.
pub(crate) fn connection(address: &Address, signer: &Signer) -> Connection {
    let mut connection = Connection::open(address).unwrap();
    let nonce = connection.receive().unwrap().json["nonce"].as_str().unwrap().to_owned();
    connection.send(1, 1, &json!({ "access_key": signer.key, "mac": proof(&signer.secret, &nonce) }), b"").unwrap();
    assert_eq!(connection.receive().unwrap().kind, 1);
    connection
}

pub(crate) fn proof(secret: &str, nonce: &str) -> String {
    use sha2::{Digest, Sha256};
    // HMAC by hand (RFC 2104), so that both ends are not the same code.
    let mut key = [0; 64];
    key[..secret.len()].copy_from_slice(secret.as_bytes());
    let pad = |byte: u8| key.map(|key| key ^ byte);
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(format!("nigh fast path 1\n{nonce}")).finalize();
    let outer = Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize();
    hex(&outer)
}

fn ask(connection: &mut Connection, operation: u8, request: &Value, body: &[u8]) -> Message {
    connection.send(operation, 7, request, body).unwrap();
    let message = connection.receive().unwrap();
    assert_eq!(message.id, 7);
    message
}

fn header(name: &str, value: &str) -> Headers {
    [(name.to_owned(), value.to_owned())].into()
}

/// The headers that say something of the object: not those of the connection, or of one request.
fn of_object(headers: impl Iterator<Item = (String, String)>) -> Headers {
    let of_request = ["connection", "date", "x-amz-request-id", "transfer-encoding"];
    headers.filter(|(name, _)| !of_request.contains(&name.as_str())).collect()
}

fn headers_of(message: &Message) -> Headers {
    let headers = message.json.get("headers").and_then(Value::as_object).cloned().unwrap_or_default();
    of_object(headers.into_iter().map(|(name, value)| (name, value.as_str().unwrap().to_owned())))
}

#[tokio::test]
async fn an_opened_object_is_read_from_any_place_and_is_one_version() {
    let door = Running::with_bucket().await;
    let address = serve(&door, "fast.sock", limits(), None);
    // In the packet, mapped, and too large to be kept in memory: by ranges.
    for (key, length) in [("empty", 0), ("small", 1000), ("large", LARGE), ("streamed", STREAMED)] {
        let bytes: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
        door.put(&format!("/bucket/{key}"), bytes.clone()).await;
        let (address, signer) = (address.clone(), door.signer.clone());
        aside(move || {
            let mut client = client(&address, &signer);
            let mut file = client.open("bucket", key).unwrap();
            assert_eq!((file.len(), file.is_mapped()), (length as u64, key == "large"), "{key}");
            let mut all = Vec::new();
            file.read_to_end(&mut all).unwrap();
            assert_eq!(all, bytes, "{key}");
            for (from, at) in [(0, 0), (length / 2, 100), (length, 7)] {
                file.seek(SeekFrom::Start(from as u64)).unwrap();
                let begin = (file.seek(SeekFrom::Current(at)).unwrap() as usize).min(length);
                let mut some = [0; 70_000];
                let count = file.read(&mut some).unwrap();
                assert_eq!(count == 0, begin == length, "{key}");
                assert_eq!(some[..count], bytes[begin..begin + count], "{key}");
            }
            if length > 0 {
                file.seek(SeekFrom::End(-1)).unwrap();
                let mut last = Vec::new();
                file.read_to_end(&mut last).unwrap();
                assert_eq!(last, bytes[length - 1..], "{key}");
            }
        })
        .await;
    }
    let (address, signer) = (address.clone(), door.signer.clone());
    aside(move || {
        let (mut client, mut writer) = (client(&address, &signer), client(&address, &signer));
        let mut file = client.open("bucket", "streamed").unwrap();
        let mut first = [9; 10];
        file.read_exact(&mut first).unwrap();
        writer.put("bucket", "streamed", b"another", &Headers::new()).unwrap();
        let error = file.read_to_end(&mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("PreconditionFailed"), "{error}");
        assert_eq!(client.open("bucket", "none").unwrap_err().code(), Some("NoSuchKey"));
    })
    .await;
}

#[tokio::test]
async fn an_object_comes_with_the_headers_status_and_bytes_that_http_gives() {
    let door = Running::with_bucket().await;
    let address = serve(&door, "fast.sock", limits(), None);
    let large: Vec<u8> = (0..LARGE).map(|n| n as u8).collect();
    for (key, body) in [("small", b"hello world".to_vec()), ("large", large), ("empty", Vec::new())] {
        let put = Request::new("PUT", &format!("/bucket/{key}"))
            .header("content-type", "text/x-test")
            .header("cache-control", "no-store")
            .header("x-amz-meta-colour", "blue")
            .header("x-amz-tagging", "a=1&b=2")
            .header("x-amz-checksum-crc32", &crate::checksums::crc32(&body))
            .body(body);
        assert_eq!(door.send(put).await.status, 200);
    }
    let etag = door.get("/bucket/small").await.header("etag").to_owned();
    let since = door.get("/bucket/small").await.header("last-modified").to_owned();
    let fields: Vec<Vec<(&str, &str, &str)>> = vec![
        vec![],
        vec![("range", "range", "bytes=2-5")],
        vec![("range", "range", "bytes=-4")],
        vec![("range", "range", "bytes=100000-")],
        vec![("range", "range", "nonsense")],
        vec![("if_match", "if-match", &etag)],
        vec![("if_none_match", "if-none-match", &etag)],
        vec![("if_modified_since", "if-modified-since", &since)],
        vec![("if_unmodified_since", "if-unmodified-since", "Sun, 06 Nov 1994 08:49:37 GMT")],
        vec![("range", "range", "bytes=0-1"), ("if_range", "if-range", "\"other\"")],
        vec![("checksum_mode", "x-amz-checksum-mode", "ENABLED")],
        vec![("if_match", "if-match", "\"unclosed")],
    ];
    for key in ["small", "large", "empty", "absent"] {
        for fields in &fields {
            for (operation, method) in [(GET, "GET"), (HEAD, "HEAD")] {
                let mut http = Request::new(method, &format!("/bucket/{key}"));
                let mut asked = json!({ "bucket": "bucket", "key": key });
                for (field, name, value) in fields {
                    http = http.header(name, value);
                    asked[*field] = (*value).into();
                }
                let http = door.send(http).await;
                let (address, signer) = (address.clone(), door.signer.clone());
                let (message, bytes) = aside(move || {
                    let message = ask(&mut connection(&address, &signer), operation, &asked, b"");
                    let bytes = bytes_of(&message);
                    (message, bytes)
                })
                .await;
                let case = format!("{method} {key} {fields:?}");
                assert_eq!(message.json["status"], http.status, "{case}");
                if http.status < 300 {
                    assert_eq!(headers_of(&message), of_object(http.headers.into_iter()), "{case}");
                    assert_eq!(bytes, http.body, "{case}");
                } else if http.status >= 400 {
                    if method == "GET" {
                        assert_eq!(message.json["code"], http.element("Code"), "{case}");
                        assert_eq!(message.json["message"], unescaped(&http.element("Message")), "{case}");
                    }
                    let range = |headers: &Headers| headers.get("content-range").cloned();
                    assert_eq!(range(&headers_of(&message)), range(&http.headers.into_iter().collect()), "{case}");
                } else {
                    let has = |name: &str| (headers_of(&message).get(name).cloned(), http.headers.get(name).cloned());
                    for (here, there) in ["etag", "last-modified"].map(has) {
                        assert_eq!(here, there, "{case}");
                    }
                }
            }
        }
    }
}

fn unescaped(text: &str) -> String {
    text.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&apos;", "'").replace("&amp;", "&")
}

/// The bytes that a message gives, whichever way.
fn bytes_of(message: &Message) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    let Some(descriptor) = &message.descriptor else { return message.body.clone() };
    let number = |name: &str| message.json[name].as_u64().unwrap();
    let mut bytes = vec![0; number("length") as usize];
    let file = std::fs::File::from(descriptor.try_clone().unwrap());
    file.read_exact_at(&mut bytes, number("offset")).unwrap();
    bytes
}

#[tokio::test]
async fn what_is_put_one_way_is_read_the_other_with_all_that_was_said_of_it() {
    let door = Running::with_bucket().await;
    let address = serve(&door, "fast.sock", limits(), None);
    for (key, length) in [("empty", 0), ("small", 1000), ("large", LARGE)] {
        let body: Vec<u8> = (0..length).map(|n| (n * 7) as u8).collect();
        let mut headers = header("content-type", "image/x-test");
        headers.extend(header("x-amz-meta-colour", "red"));
        headers.extend(header("x-amz-tagging", "a=1"));
        headers.extend(header("x-amz-sdk-checksum-algorithm", "CRC32"));
        let (address, signer, sent) = (address.clone(), door.signer.clone(), body.clone());
        let done = aside(move || client(&address, &signer).put("bucket", key, &sent, &headers).unwrap()).await;
        let got =
            door.send(Request::new("GET", &format!("/bucket/{key}")).header("x-amz-checksum-mode", "ENABLED")).await;
        assert_eq!((got.status, &got.body), (200, &body));
        let checksum = crate::checksums::crc32(&body);
        for (name, value) in [
            ("content-type", "image/x-test"),
            ("x-amz-meta-colour", "red"),
            ("x-amz-tagging-count", "1"),
            ("x-amz-checksum-crc32", checksum.as_str()),
        ] {
            assert_eq!(got.header(name), value, "{key} {name}");
        }
        assert_eq!(done.headers["etag"], got.header("etag"));
        assert_eq!(done.headers["x-amz-checksum-crc32"], checksum);
    }
}

#[tokio::test]
async fn a_put_answers_and_is_refused_as_over_http() {
    let door = Running::with_bucket().await;
    let address = serve(&door, "fast.sock", limits(), None);
    door.put("/bucket/there", "x").await;
    let etag = door.get("/bucket/there").await.header("etag").to_owned();
    let cases: Vec<(&str, Vec<(&str, &str)>)> = vec![
        ("new", vec![]),
        ("new", vec![("x-amz-checksum-crc32", "NhCmhg==")]),
        ("new", vec![("x-amz-checksum-crc32", "AAAAAA==")]),
        ("new", vec![("content-md5", "XUFAKrxLKna5cZ2REBfFkg==")]),
        ("new", vec![("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==")]),
        ("there", vec![("if-none-match", "*")]),
        ("there", vec![("if-match", "\"other\"")]),
        ("there", vec![("if-match", &etag)]),
        ("absent", vec![("if-match", "\"other\"")]),
        ("new", vec![("x-amz-acl", "public-read")]),
        ("new", vec![("x-amz-tagging", "a=1&a=2")]),
    ];
    for (key, fields) in cases {
        let mut answers = Vec::new();
        // Each way on its own object: one write would decide the other's conditions.
        for way in ["http", "fast"] {
            let target = if key == "there" { key.to_owned() } else { format!("{key}-{way}") };
            if key == "there" {
                door.put("/bucket/there", "x").await;
            }
            if way == "http" {
                let put =
                    fields.iter().fold(Request::new("PUT", &format!("/bucket/{target}")), |put, (name, value)| {
                        put.header(name, value)
                    });
                let answer = door.send(put.body("hello")).await;
                let headers =
                    of_object(answer.headers.clone().into_iter().filter(|(name, _)| name != "content-length"));
                answers.push((answer.status, answer.element("Code"), headers));
            } else {
                let headers: Headers = fields.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
                let (address, signer) = (address.clone(), door.signer.clone());
                let request = json!({ "bucket": "bucket", "key": target, "headers": headers });
                let message = aside(move || ask(&mut connection(&address, &signer), PUT, &request, b"hello")).await;
                let code = message.json.get("code").and_then(Value::as_str).unwrap_or_default().to_owned();
                answers.push((message.json["status"].as_u64().unwrap() as u16, code, headers_of(&message)));
            }
        }
        let [http, fast] = &answers[..] else { panic!() };
        assert_eq!((http.0, &http.1), (fast.0, &fast.1), "{key} {fields:?}");
        if http.0 == 200 {
            assert_eq!(http.2, fast.2, "{key} {fields:?}");
        }
    }
}

#[tokio::test]
async fn a_large_object_is_the_node_s_own_memory_and_a_small_one_comes_in_the_packet() {
    let door = Running::with_bucket().await;
    let address = serve(&door, "fast.sock", limits(), None);
    door.put("/bucket/small", vec![1; 65_535]).await;
    door.put("/bucket/large", vec![2; 65_536]).await;
    let signer = door.signer.clone();
    aside(move || {
        let mut client = client(&address, &signer);
        let small = client.get("bucket", "small", &Conditions::default()).unwrap();
        let large = client.get("bucket", "large", &Conditions::default()).unwrap();
        assert!(!small.is_mapped() && large.is_mapped());
        assert_eq!((&small[..], &large[..]), (&[1; 65_535][..], &[2; 65_536][..]));
        let part = Conditions { range: Some("bytes=10-19".to_owned()), ..Conditions::default() };
        let part = client.get("bucket", "large", &part).unwrap();
        assert_eq!((&part[..], part.is_mapped()), (&[2; 10][..], false));
        assert_eq!(part.header("content-range"), Some("bytes 10-19/65536"));
    })
    .await;
}

#[tokio::test]
async fn memory_that_a_client_fills_becomes_the_object_without_a_copy() {
    let door = Running::with_bucket().await;
    let address = serve(&door, "fast.sock", limits(), None);
    let signer = door.signer.clone();
    aside(move || {
        let mut client = client(&address, &signer);
        let mut created = client.create("bucket", "made", LARGE as u64).unwrap();
        created.fill(9);
        created[0] = 1;
        let done = created.commit(&mut client, &Headers::new()).unwrap();
        let view = client.get("bucket", "made", &Conditions::default()).unwrap();
        assert!(view.is_mapped() && view[0] == 1 && view[1..].iter().all(|&byte| byte == 9));
        assert_eq!(view.header("etag"), done.headers.get("etag").map(String::as_str));
        let given_up = client.create("bucket", "never", LARGE as u64).unwrap();
        given_up.abandon(&mut client).unwrap();
        assert_eq!(client.head("bucket", "never", &Conditions::default()).unwrap_err().code(), Some("NoSuchKey"));
    })
    .await;
    assert_eq!(door.get("/bucket/made").await.body.len(), LARGE);
}

#[tokio::test]
async fn a_segment_of_a_mebibyte_has_an_entity_tag_that_is_no_md5_and_its_sha256_beside_it() {
    let door = Running::with_bucket().await;
    let address = serve(&door, "fast.sock", limits(), None);
    let length = 1 << 20;
    for (key, headers) in [
        ("plain", vec![]),
        ("md5", vec![("content-md5", BASE64_STANDARD.encode(Md5::digest(vec![9; length])))]),
        ("crc32", vec![("x-amz-sdk-checksum-algorithm", "CRC32".to_owned())]),
    ] {
        let headers: Headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let (address, signer) = (address.clone(), door.signer.clone());
        let done = aside(move || {
            let mut client = client(&address, &signer);
            let mut created = client.create("bucket", key, length as u64).unwrap();
            created.fill(9);
            created.commit(&mut client, &headers).unwrap()
        });
        let etag = done.await.headers["etag"].clone();
        let sha256 = sha256(&vec![9; length]);
        assert_eq!(etag, format!("\"{}-1\"", hex(&sha256[..16])), "{key}");
        let target = format!("/bucket/{key}");
        let read = Request::new("GET", &target).header("x-amz-checksum-mode", "ENABLED").header("if-match", &etag);
        let read = door.send(read).await;
        assert_eq!((read.status, read.header("etag"), read.body.len()), (200, etag.as_str(), length));
        let (name, checksum) = match key {
            "crc32" => ("x-amz-checksum-crc32", crate::checksums::crc32(&vec![9; length])),
            _ => ("x-amz-checksum-sha256", BASE64_STANDARD.encode(sha256)),
        };
        assert_eq!(read.header(name), checksum, "{key}");
        let listed = door.send(Request::new("GET", "/bucket").query("list-type", "2").query("prefix", key)).await;
        assert_eq!(listed.element("ETag").replace("&quot;", "\""), etag);
        // Over HTTP it is the MD5, as AWS has it.
        door.put(&target, vec![9; length]).await;
        let etag = door.get(&target).await.header("etag").to_owned();
        assert_eq!(etag, format!("\"{}\"", hex(&Md5::digest(vec![9; length]))));
    }
}

#[tokio::test]
async fn over_the_cap_bytes_come_by_copy_and_a_release_makes_room() {
    let door = Running::with_bucket().await;
    let cap = FastPathLimits { held: ByteSize(3 * 128 * 1024), ..limits() };
    let address = serve(&door, "fast.sock", cap, None);
    for n in 0..5 {
        door.put(&format!("/bucket/{n}"), vec![n; 128 * 1024]).await;
    }
    door.put("/bucket/long", vec![9; LARGE]).await;
    let signer = door.signer.clone();
    aside(move || {
        let mut client = client(&address, &signer);
        let mut get = |key: u8| client.get("bucket", &key.to_string(), &Conditions::default()).unwrap();
        let mut held: Vec<_> = (0..3).map(&mut get).collect();
        assert!(held.iter().all(|view| view.is_mapped()));
        let again = get(0);
        assert!(again.is_mapped(), "what is held already does not count twice");
        let copied = get(3);
        assert!(!copied.is_mapped() && copied.iter().all(|&byte| byte == 3));
        let refused = client.get("bucket", "long", &Conditions::default());
        assert!(matches!(refused, Err(ClientError::UseHttp(_))), "{refused:?}");
        assert_eq!(client.create("bucket", "k", 128 * 1024).unwrap_err().code(), Some("SlowDown"));
        // A hint that is not true frees nothing.
        held.remove(0);
        client.flush().unwrap();
        assert!(!client.get("bucket", "3", &Conditions::default()).unwrap().is_mapped(), "still mapped a second time");
        drop(again);
        assert!(client.get("bucket", "3", &Conditions::default()).unwrap().is_mapped());
    })
    .await;
}

/// What a sandbox booked, as far as these tests need one.
struct Booked {
    left: AtomicU64,
}

impl FastPathPayer for Booked {
    fn pay(&self, bytes: ByteSize) -> bool {
        let less = |left: u64| left.checked_sub(bytes.bytes());
        self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok()
    }

    fn refund(&self, bytes: ByteSize) {
        self.left.fetch_add(bytes.bytes(), Ordering::SeqCst);
    }
}

#[tokio::test]
async fn what_a_sandbox_has_not_booked_for_comes_by_copy_and_what_it_lets_go_is_its_own_again() {
    const EACH: u64 = 128 * 1024;
    let door = Running::with_bucket().await;
    for n in 0..4 {
        door.put(&format!("/bucket/{n}"), vec![n; EACH as usize]).await;
    }
    let path = door.socket.with_file_name("fast.sock");
    let listener = bind_fast_path(&path).unwrap();
    let booked = Arc::new(Booked { left: AtomicU64::new(2 * EACH) });
    let payer = Arc::clone(&booked) as Arc<dyn FastPathPayer>;
    let fast_path = FastPath::new(&door.door, limits());
    let (served, key, until) = (fast_path.clone(), AccessKeyId::new(&door.signer.key), door.stop.clone());
    tokio::spawn(async move { served.serve_sandbox(listener, key, payer, until).await.unwrap() });
    let signer = door.signer.clone();
    let left = Arc::clone(&booked);
    aside(move || {
        let left = || left.left.load(Ordering::SeqCst);
        let mut client = client(&Address::File(path), &signer);
        let mut get = |key: u8| client.get("bucket", &key.to_string(), &Conditions::default()).unwrap();
        let first = get(0);
        let second = get(1);
        assert!(first.is_mapped() && second.is_mapped() && left() == 0);
        assert!(get(0).is_mapped(), "what is held already is paid for");
        let third = get(2);
        assert!(!third.is_mapped() && third.iter().all(|&byte| byte == 2));
        assert_eq!(client.create("bucket", "k", EACH).unwrap_err().code(), Some("SlowDown"));
        drop((first, second));
        client.flush().unwrap();
        let mut made = client.create("bucket", "k", EACH).unwrap();
        assert_eq!(left(), EACH, "what is filled is paid for too");
        made.fill(1);
        made.commit(&mut client, &Headers::new()).unwrap();
        assert!(client.get("bucket", "3", &Conditions::default()).unwrap().is_mapped());
    })
    .await;
    let usage = fast_path.usage();
    assert_eq!((usage.copies, usage.holders), (1, 1), "{usage:?}");
    for _ in 0..2000 {
        if booked.left.load(Ordering::SeqCst) == 2 * EACH {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("a client that is gone holds what it booked: {:?}", fast_path.usage());
}

#[tokio::test]
async fn what_was_let_go_without_a_word_is_found_when_room_is_needed() {
    let door = Running::with_bucket().await;
    let cap = FastPathLimits { held: ByteSize(128 * 1024), ..limits() };
    let address = serve(&door, "fast.sock", cap, None);
    for n in 0..4 {
        door.put(&format!("/bucket/{n}"), vec![n; 128 * 1024]).await;
    }
    let signer = door.signer.clone();
    aside(move || {
        let mut connection = connection(&address, &signer);
        for n in 0..4 {
            let message = ask(&mut connection, GET, &json!({ "bucket": "bucket", "key": n.to_string() }), b"");
            assert!(message.descriptor.is_some(), "{n}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_sandbox_acts_by_its_own_key_during_its_invocation_and_its_reads_are_its_namespaces() {
    let door = Running::with_bucket().await;
    let (key, signer) = door.sandbox();
    let address = serve(&door, "sandbox.sock", limits(), Some(key.clone()));
    door.put("/bucket/k", vec![5; LARGE]).await;
    let outside = door.signer.clone();
    let at = address.clone();
    aside(move || {
        let refused = Client::connect(&at, &outside.key, &outside.secret).unwrap_err();
        assert_eq!(refused.code(), Some("InvalidAccessKeyId"), "another key, though it is good elsewhere");
        let refused = Client::connect(&at, &signer.key, "not its secret").unwrap_err();
        assert_eq!(refused.code(), Some("SignatureDoesNotMatch"));
        (at, signer)
    })
    .await;
    let (_, signer) = (
        &key,
        Signer { key: key.to_string(), secret: door.keys.secret(&key).unwrap().reveal().into(), ..door.signer.clone() },
    );
    let mut session = aside(move || client(&address, &signer)).await;
    let get = |mut session: Client| {
        aside(move || {
            let got = session.get("bucket", "k", &Conditions::default());
            let put = session.put("bucket", "mine", b"x", &Headers::new());
            (session, got.map(|view| view.len()), put)
        })
    };
    let (back, before, put) = get(session).await;
    session = back;
    assert_eq!(before.unwrap_err().code(), Some("AccessDenied"));
    assert_eq!(put.unwrap_err().code(), Some("AccessDenied"));
    door.keys.set_invocation(&key, Some(InvocationId::now()));
    let (back, during, put) = get(session).await;
    session = back;
    assert_eq!((during.unwrap(), put.unwrap().status), (LARGE, 200));
    door.keys.set_invocation(&key, None);
    let (_, after, _) = get(session).await;
    assert_eq!(after.unwrap_err().code(), Some("AccessDenied"));
}

#[tokio::test]
async fn a_key_of_another_namespace_sees_nothing_of_this_one() {
    let door = Running::with_bucket().await;
    let address = serve(&door, "fast.sock", limits(), None);
    door.put("/bucket/k", vec![5; LARGE]).await;
    let (function, sandbox) = (nigh_terms::FunctionName::new("f").unwrap(), nigh_terms::SandboxId::random());
    let (key, secret) = door.keys.issue_sandbox(Namespace::new("tenant").unwrap(), function, sandbox);
    door.keys.set_invocation(&key, Some(InvocationId::now()));
    let other = door.other.clone();
    aside(move || {
        let refused = Client::connect(&address, key.as_str(), secret.reveal()).unwrap_err();
        assert_eq!(refused.code(), Some("InvalidAccessKeyId"), "a sandbox's key, though it is good at its own door");
        let mut stranger = Client::connect(&address, &other.key, &other.secret).unwrap();
        let refused = stranger.get("bucket", "k", &Conditions::default()).unwrap_err();
        assert_eq!(refused.code(), Some("NoSuchBucket"));
        let refused = stranger.put("bucket", "k", b"x", &Headers::new()).unwrap_err();
        assert_eq!(refused.code(), Some("NoSuchBucket"));
    })
    .await;
}

#[tokio::test]
async fn what_the_packet_cannot_carry_is_left_to_http() {
    let door = Running::with_bucket().await;
    let address = serve(&door, "fast.sock", limits(), None);
    let signer = door.signer.clone();
    let body = vec![4; 17 << 20];
    let put = door.send_as(Request::new("PUT", "/bucket/huge").body(body), Payload::Unsigned).await;
    assert_eq!(put.status, 200, "{}", put.text());
    aside(move || {
        let mut client = client(&address, &signer);
        let over = client.get("bucket", "huge", &Conditions::default());
        assert!(matches!(over, Err(ClientError::UseHttp(_))), "{over:?}");
        let part = Conditions { range: Some("bytes=5-9".to_owned()), ..Conditions::default() };
        assert_eq!(&client.get("bucket", "huge", &part).unwrap()[..], [4; 5]);
        assert!(matches!(
            client.create("bucket", "k", 1 << 30),
            Err(ClientError::Refused { .. } | ClientError::UseHttp(_))
        ));
        let encoded = header("x-amz-meta-a", "=?UTF-8?B?Z3LDvG4=?=");
        assert!(matches!(client.put("bucket", "k", b"x", &encoded), Err(ClientError::UseHttp(_))));
        assert_eq!(client.head("bucket", "k", &Conditions::default()).unwrap_err().code(), Some("NoSuchKey"));
    })
    .await;
}
