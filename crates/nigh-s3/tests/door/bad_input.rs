//! Whatever comes, the answer is the right error, and nothing is stored.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client::{Request, Response, exchange};
use crate::running::{Running, limits};
use crate::sign::{Payload, Signer};

fn put(body: &[u8]) -> Request {
    Request::new("PUT", "/bucket/key").body(body)
}

async fn nothing_stored(door: &Running) {
    assert_eq!(door.get("/bucket/key").await.error(), (404, "NoSuchKey".into()));
}

#[tokio::test]
async fn only_who_signs_with_a_known_key_and_the_right_secret_and_clock_gets_in() {
    let door = Running::with_bucket().await;
    door.put("/bucket/key", "secret").await;
    let get = || Request::new("GET", "/bucket/key");
    let with = |change: &dyn Fn(&mut Signer)| {
        let mut signer = door.signer.clone();
        change(&mut signer);
        signer
    };
    for (signer, code) in [
        (with(&|signer| signer.secret.push('x')), "SignatureDoesNotMatch"),
        (with(&|signer| signer.key.push('x')), "InvalidAccessKeyId"),
        (with(&|signer| signer.skew_seconds = 16 * 60), "RequestTimeTooSkewed"),
        (with(&|signer| signer.skew_seconds = -16 * 60), "RequestTimeTooSkewed"),
    ] {
        let refused = door.send_raw(&signer.sign(get(), Payload::Signed)).await;
        assert_eq!(refused.error(), (403, code.into()));
    }
    for request in [get(), Request::new("PUT", "/bucket/key"), Request::new("GET", "/"), Request::new("PUT", "/new")] {
        assert_eq!(door.send_raw(&request).await.error(), (403, "AccessDenied".into()), "{}", request.method);
    }
    let mut changed = door.signer.sign(get(), Payload::Signed);
    changed.path = "/bucket/other".into();
    assert_eq!(door.send_raw(&changed).await.error(), (403, "SignatureDoesNotMatch".into()));
    let garbage = get().header("authorization", "AWS4-HMAC-SHA256 nonsense");
    let garbage = door.send_raw(&garbage).await;
    assert!((400..500).contains(&garbage.status), "{}", garbage.status);
    let old = door.send_raw(&get().header("authorization", "AWS KEY:signature")).await;
    assert_eq!(old.error(), (400, "InvalidRequest".into()));
}

#[tokio::test]
async fn a_presigned_url_cannot_be_turned_into_a_copy_by_encoding_its_names() {
    let door = Running::with_bucket().await;
    door.put("/bucket/secret", "secret").await;
    let presigned = door.signer.presign(Request::new("PUT", "/bucket/key"));
    let steal = presigned.clone().header("x-amz-copy-source", "/bucket/secret");
    for name in ["X-Amz-Signature", "X%2DAmz-Signature"] {
        let head = |request: &Request| {
            let head = String::from_utf8(request.head()).unwrap();
            assert!(head.contains("X-Amz-Signature="));
            head.replace("X-Amz-Signature=", &format!("{name}=")).into_bytes()
        };
        let refused = exchange(&mut door.connect().await, &head(&steal), b"").await;
        assert_eq!(refused.error(), (403, "AccessDenied".into()), "{name}");
        nothing_stored(&door).await;
        let put = exchange(&mut door.connect().await, &head(&presigned), b"").await;
        assert_eq!(put.status, 200, "{}", put.text());
        assert_eq!(door.send(Request::new("DELETE", "/bucket/key")).await.status, 204);
    }
}

#[tokio::test]
async fn a_presigned_url_is_good_for_what_it_says_and_until_it_says() {
    let door = Running::with_bucket().await;
    let put = door.signer.presign(Request::new("PUT", "/bucket/key")).body("hello");
    assert_eq!(door.send_raw(&put).await.status, 200);
    let get = door.signer.presign(Request::new("GET", "/bucket/key").query("response-content-type", "a/b"));
    let got = door.send_raw(&get).await;
    assert_eq!((got.status, got.text().as_str(), got.header("content-type")), (200, "hello", "a/b"));

    let late = Signer { skew_seconds: -61, ..door.signer.clone() };
    let expired = door.send_raw(&late.presign(Request::new("GET", "/bucket/key"))).await;
    assert_eq!(expired.error(), (403, "AccessDenied".into()));
    let mut other = door.signer.presign(Request::new("GET", "/bucket/key"));
    other.method = "DELETE".into();
    assert_eq!(door.send_raw(&other).await.error(), (403, "SignatureDoesNotMatch".into()));
    // Whoever holds a URL for a put must not make a copy of it, of an object that the URL is not for.
    let steal = door.signer.presign(Request::new("PUT", "/bucket/mine")).header("x-amz-copy-source", "/bucket/key");
    assert_eq!(door.send_raw(&steal).await.error(), (403, "AccessDenied".into()));
    assert_eq!(door.get("/bucket/mine").await.status, 404);
}

#[tokio::test]
async fn a_sandbox_s_key_works_during_its_invocation_and_at_its_own_door_only() {
    let door = Running::with_bucket().await;
    door.put("/bucket/key", "hello").await;
    let (id, signer) = door.sandbox();
    let get = || signer.sign(Request::new("GET", "/bucket/key"), Payload::Signed);
    let list = || signer.sign(Request::new("GET", "/bucket").query("list-type", "2"), Payload::Signed);
    let address = door.sandbox_door(&id).await;
    let send = async |request: Request| -> Response {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        exchange(&mut stream, &request.head(), &request.body).await
    };
    assert_eq!(send(get()).await.error(), (403, "AccessDenied".into()));
    door.keys.set_invocation(&id, Some(nigh_terms::InvocationId::now()));
    assert_eq!(send(get()).await.text(), "hello");
    assert_eq!(send(list()).await.status, 200);
    for elsewhere in [get(), list()] {
        assert_eq!(door.send_raw(&elsewhere).await.error(), (403, "InvalidAccessKeyId".into()));
    }
    let outsider = door.signer.sign(Request::new("GET", "/bucket/key"), Payload::Signed);
    assert_eq!(send(outsider).await.error(), (403, "InvalidAccessKeyId".into()));
    door.keys.set_invocation(&id, None);
    assert_eq!(send(get()).await.error(), (403, "AccessDenied".into()));
    door.keys.revoke(&id);
    assert_eq!(send(get()).await.error(), (403, "InvalidAccessKeyId".into()));
}

#[tokio::test]
async fn what_is_no_http_is_refused_and_the_door_goes_on() {
    let door = Running::with_bucket().await;
    let long_line = format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "a".repeat(300_000));
    let many_headers = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(200));
    for garbage in [
        "hello\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "GET / HTTP/1.1\r\nbad header\r\n\r\n",
        "GET / HTTP/1.1\r\ncontent-length: x\r\n\r\n",
        "PUT /b/k HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        "\u{0}\u{1}\u{2}\r\n\r\n",
        &long_line,
        &many_headers,
    ] {
        let mut stream = door.connect().await;
        let _ = stream.write_all(garbage.as_bytes()).await;
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let status = answer.get(9..10).map_or(b'4', |digit| digit[0]);
        assert_eq!(status, b'4', "{:?} {}", &garbage[..garbage.len().min(40)], String::from_utf8_lossy(&answer));
    }
    let large = Request::new("GET", "/bucket/key").header("x-large", &"x".repeat(20_000));
    assert_eq!(door.send(large).await.error(), (400, "RequestHeaderSectionTooLarge".into()));
    assert_eq!(door.get("/").await.status, 200);
}

#[tokio::test]
async fn names_out_of_bounds_are_refused() {
    let door = Running::with_bucket().await;
    let long = "k".repeat(1025);
    assert_eq!(
        door.send(Request::new("PUT", &format!("/bucket/{long}"))).await.error(),
        (400, "KeyTooLongError".into())
    );
    assert_eq!(door.get(&format!("/bucket/{long}")).await.error(), (400, "KeyTooLongError".into()));
    door.put(&format!("/bucket/{}", &long[1..]), "x").await;
    for bucket in ["UPPER", "a_b", "ab", "192.168.0.1", "a..b", "-ab"] {
        let refused = door.send(Request::new("PUT", &format!("/{bucket}"))).await;
        assert_eq!(refused.error(), (400, "InvalidBucketName".into()), "{bucket}");
    }
    for key in ["../../etc/passwd", "a//b", ".", "a/./b", " ", "%2F", "a\u{0}b", "tab\there"] {
        door.put(&format!("/bucket/{key}"), key).await;
        assert_eq!(door.get(&format!("/bucket/{key}")).await.text(), key);
    }
    let meta = Request::new("PUT", "/bucket/key").header("x-amz-meta-a", &"m".repeat(3000));
    assert_eq!(door.send(meta).await.error(), (400, "MetadataTooLarge".into()));
}

#[tokio::test]
async fn an_upload_that_breaks_off_is_not_stored() {
    let door = Running::with_bucket().await;
    for payload in [Payload::Signed, Payload::Unsigned, Payload::Chunks, Payload::UnsignedChunksAndTrailer] {
        let request = put(&[7; 200_000]);
        let trailer = payload == Payload::UnsignedChunksAndTrailer;
        let request = if trailer { request.trailer("x-amz-checksum-crc32", "AAAAAA==") } else { request };
        let request = door.signer.sign(request, payload);
        let mut stream = door.connect().await;
        stream.write_all(&request.head()).await.unwrap();
        stream.write_all(&request.body[..100_000]).await.unwrap();
        drop(stream);
        nothing_stored(&door).await;
    }
    // An aws-chunked body that ends early though the HTTP body is whole.
    let mut short = door.signer.sign(put(&[7; 200_000]), Payload::Chunks);
    short.body.truncate(66_000);
    let refused = door.send_raw(&short).await;
    assert_eq!(refused.error(), (400, "IncompleteBody".into()));
    let mut short = door.signer.sign(put(&[7; 200_000]), Payload::Chunks);
    let whole_chunk = short.body.windows(2).enumerate().filter(|(_, two)| two == b"\r\n").nth(1).unwrap().0 + 2;
    short.body.truncate(whole_chunk);
    let refused = door.send_raw(&short).await;
    assert_eq!(refused.error(), (400, "IncompleteBody".into()));
    nothing_stored(&door).await;
}

#[tokio::test]
async fn broken_chunk_encodings_are_refused() {
    let door = Running::with_bucket().await;
    let body = vec![7; 1000];
    for garbage in ["hello", "zz\r\n", "-5\r\nhello\r\n", "3e8;chunk-signature=short\r\n", "ffffffffffffffffff\r\n"] {
        for payload in [Payload::Chunks, Payload::UnsignedChunksAndTrailer] {
            let request = put(&body).trailer("x-amz-checksum-crc32", "AAAAAA==");
            let request = if payload == Payload::Chunks { put(&body) } else { request };
            let mut request = door.signer.sign(request, payload);
            request.body = [garbage.as_bytes(), &body].concat();
            let refused = door.send_raw(&request).await;
            assert_eq!(refused.status, 400, "{garbage:?} {payload:?} {}", refused.text());
        }
    }
    let mut huge = door.signer.sign(put(&body), Payload::Chunks);
    huge.body = format!("2000000;chunk-signature={}\r\n", "a".repeat(64)).into_bytes();
    assert_eq!(door.send_raw(&huge).await.error(), (400, "InvalidRequest".into()));
    let mut transfer = door.signer.sign(put(b""), Payload::Unsigned).header("transfer-encoding", "chunked");
    transfer.body = b"zz\r\nhello\r\n0\r\n\r\n".to_vec();
    let refused = door.send_raw(&transfer).await;
    assert!((400..500).contains(&refused.status), "{}", refused.status);
    nothing_stored(&door).await;
}

#[tokio::test]
async fn a_refused_upload_is_refused_before_its_body_is_asked_for() {
    let door = Running::with_bucket().await;
    let wrong = Signer { secret: "wrong".into(), ..door.signer.clone() };
    for (signer, path, status, asked) in [
        (&wrong, "/bucket/key", 403, false),
        (&door.signer, "/nowhere/key", 404, false),
        (&door.signer, "/bucket/key", 200, true),
    ] {
        let request = Request::new("PUT", path).header("expect", "100-continue").body("hello");
        let request = signer.sign(request, Payload::Signed);
        let mut stream = door.connect().await;
        stream.write_all(&request.head()).await.unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).await.unwrap();
        assert_eq!(&first == b"HTTP/1.1 100", asked, "{path}");
        if asked {
            let _ = stream.write_all(&request.body).await;
        }
        let mut rest = first.to_vec();
        let _ = stream.read_to_end(&mut rest).await;
        assert_eq!(Response::parse(&rest).status, status);
    }
}

#[tokio::test]
async fn a_request_for_another_service_is_refused_before_its_body_is_asked_for() {
    let door = Running::with_bucket().await;
    let request = Request::new("POST", "/").header("expect", "100-continue").body("Action=AssumeRole");
    let mut request = door.signer.sign(request, Payload::Signed);
    request.headers.retain(|(name, _)| name != "x-amz-content-sha256");
    for (_, value) in &mut request.headers {
        *value = value.replace("/s3/aws4_request", "/sts/aws4_request");
    }
    let mut stream = door.connect().await;
    stream.write_all(&request.head()).await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(Response::parse(&answer).error(), (501, "NotImplemented".into()));
}

#[tokio::test]
async fn an_upload_that_falls_silent_times_out() {
    let silence = Duration::from_millis(200);
    let door = Running::start_with(nigh_s3::DoorLimits { body_silence: silence, ..limits() }).await;
    assert_eq!(door.send(Request::new("PUT", "/bucket")).await.status, 200);
    let delete = Request::new("POST", "/bucket").query("delete", "").body("<Delete></Delete>");
    for request in [put(&[7; 1000]), delete] {
        let request = door.signer.sign(request, Payload::Signed);
        let mut stream = door.connect().await;
        stream.write_all(&request.head()).await.unwrap();
        stream.write_all(&request.body[..5]).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert_eq!(Response::parse(&answer).error(), (400, "RequestTimeout".into()));
    }
    // A byte now and then is not enough.
    let request = door.signer.sign(put(&[7; 1000]), Payload::Signed);
    let (mut read, mut write) = door.connect().await.into_split();
    write.write_all(&request.head()).await.unwrap();
    let sending = tokio::spawn(async move {
        while write.write_all(b"x").await.is_ok() {
            tokio::time::sleep(silence / 4).await;
        }
    });
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(20), read.read_to_end(&mut answer)).await.expect("it goes on");
    assert_eq!(Response::parse(&answer).error(), (400, "RequestTimeout".into()));
    sending.abort();
    nothing_stored(&door).await;
}

#[tokio::test]
async fn a_document_above_the_limit_is_not_read() {
    let door = Running::start_with(nigh_s3::DoorLimits { document_bytes: 10_000, ..limits() }).await;
    assert_eq!(door.send(Request::new("PUT", "/bucket")).await.status, 200);
    let large = format!("<Delete>{}</Delete>", "<Object><Key>key</Key></Object>".repeat(900));
    let refused = door.send(Request::new("POST", "/bucket").query("delete", "").body(large)).await;
    assert_eq!(refused.error(), (400, "MaxMessageLengthExceeded".into()));
}

#[tokio::test]
async fn contradictory_uploads_are_refused() {
    let door = Running::with_bucket().await;
    let both = put(b"x").header("x-amz-checksum-crc32", "AAAAAA==").header("x-amz-checksum-crc32c", "AAAAAA==");
    assert_eq!(door.send(both).await.error(), (400, "InvalidRequest".into()));
    let announced = put(b"x").header("x-amz-sdk-checksum-algorithm", "CRC32");
    assert_eq!(door.send(announced).await.error(), (400, "InvalidRequest".into()));
    let conditions = put(b"x").header("if-match", "\"a\"").header("if-none-match", "*");
    assert_eq!(door.send(conditions).await.error(), (400, "InvalidArgument".into()));
    let mut lengthless = door.signer.sign(put(b""), Payload::Unsigned).header("transfer-encoding", "chunked");
    lengthless.body = b"5\r\nhello\r\n0\r\n\r\n".to_vec();
    assert_eq!(door.send_raw(&lengthless).await.error(), (411, "MissingContentLength".into()));
    nothing_stored(&door).await;
}
