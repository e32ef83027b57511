//! GetObject and HeadObject: ranges, conditions, overrides, parts.

use crate::client::Request;
use crate::running::Running;
use crate::sign::{Payload, Signer};

fn get() -> Request {
    Request::new("GET", "/bucket/key")
}

#[tokio::test]
async fn an_object_is_given_back_with_its_headers() {
    let door = Running::with_bucket().await;
    let put = Request::new("PUT", "/bucket/a folder/ü+&=?.txt")
        .header("content-type", "text/plain")
        .header("cache-control", "max-age=9")
        .header("x-amz-meta-colour", "green")
        .header("x-amz-tagging", "a=1&b=2")
        .body("hello");
    let put = door.send(put).await;
    assert_eq!((put.status, put.header("etag")), (200, "\"5d41402abc4b2a76b9719d911017c592\""));
    for method in ["GET", "HEAD"] {
        let got = door.send(Request::new(method, "/bucket/a folder/ü+&=?.txt")).await;
        assert_eq!(got.status, 200);
        assert_eq!(got.body, if method == "GET" { b"hello".as_slice() } else { b"" });
        for (name, value) in [
            ("content-length", "5"),
            ("content-type", "text/plain"),
            ("cache-control", "max-age=9"),
            ("x-amz-meta-colour", "green"),
            ("x-amz-tagging-count", "2"),
            ("accept-ranges", "bytes"),
            ("etag", "\"5d41402abc4b2a76b9719d911017c592\""),
        ] {
            assert_eq!(got.header(name), value, "{method} {name}");
        }
        assert!(got.header("last-modified").ends_with(" GMT"));
        assert_eq!(got.header("x-amz-request-id").len(), 16);
    }
}

#[tokio::test]
async fn ranges_give_parts_and_what_is_no_range_gives_all() {
    let door = Running::with_bucket().await;
    door.put("/bucket/key", "0123456789").await;
    for (range, status, body, content_range) in [
        ("bytes=2-4", 206, "234", "bytes 2-4/10"),
        ("bytes=7-", 206, "789", "bytes 7-9/10"),
        ("bytes=8-99", 206, "89", "bytes 8-9/10"),
        ("bytes=-3", 206, "789", "bytes 7-9/10"),
        ("bytes=-30", 206, "0123456789", "bytes 0-9/10"),
        ("bytes=0-0", 206, "0", "bytes 0-0/10"),
        ("bytes=5-2", 200, "0123456789", ""),
        ("bytes=0-1,4-5", 200, "0123456789", ""),
        ("lines=1-2", 200, "0123456789", ""),
    ] {
        let got = door.send(get().header("range", range)).await;
        assert_eq!((got.status, got.text().as_str()), (status, body), "{range}");
        assert_eq!(got.header("content-range"), content_range, "{range}");
        let head = door.send(Request::new("HEAD", "/bucket/key").header("range", range)).await;
        assert_eq!((head.status, head.header("content-length")), (status, body.len().to_string().as_str()), "{range}");
    }
    for range in ["bytes=10-", "bytes=-0"] {
        let beyond = door.send(get().header("range", range)).await;
        assert_eq!(beyond.error(), (416, "InvalidRange".into()), "{range}");
        assert_eq!(beyond.header("content-range"), "bytes */10");
    }
    door.put("/bucket/empty", "").await;
    let empty = door.send(Request::new("GET", "/bucket/empty").header("range", "bytes=0-5")).await;
    assert_eq!(empty.status, 416);
}

#[tokio::test]
async fn conditions_are_kept_in_the_order_of_the_rfc() {
    let door = Running::with_bucket().await;
    let etag = door.put("/bucket/key", "hello").await.header("etag").to_owned();
    let (past, future) = ("Thu, 01 Jan 1970 00:00:00 GMT", "Fri, 01 Jan 2100 00:00:00 GMT");
    for (fields, status) in [
        (vec![("if-match", etag.as_str())], 200),
        (vec![("if-match", "*")], 200),
        (vec![("if-match", "\"other\"")], 412),
        (vec![("if-match", "\"x\", \"5d41402abc4b2a76b9719d911017c592\"")], 200),
        (vec![("if-match", "5d41402abc4b2a76b9719d911017c592")], 200),
        (vec![("if-none-match", etag.as_str())], 304),
        (vec![("if-none-match", "*")], 304),
        (vec![("if-none-match", "\"other\"")], 200),
        (vec![("if-modified-since", future)], 304),
        (vec![("if-modified-since", past)], 200),
        (vec![("if-modified-since", "no date")], 200),
        (vec![("if-unmodified-since", past)], 412),
        (vec![("if-unmodified-since", future)], 200),
        (vec![("if-match", etag.as_str()), ("if-unmodified-since", past)], 200),
        (vec![("if-none-match", "\"other\""), ("if-modified-since", future)], 200),
        (vec![("if-none-match", etag.as_str()), ("if-modified-since", past)], 304),
    ] {
        for method in ["GET", "HEAD"] {
            let request = fields
                .iter()
                .fold(Request::new(method, "/bucket/key"), |request, (name, value)| request.header(name, value));
            let got = door.send(request).await;
            assert_eq!(got.status, status, "{method} {fields:?}");
            if status == 304 {
                assert!(got.body.is_empty());
                assert_eq!(got.header("etag"), etag);
            }
            if status == 412 && method == "GET" {
                assert_eq!(got.element("Code"), "PreconditionFailed");
            }
        }
    }
}

#[tokio::test]
async fn if_range_gives_the_range_of_the_same_object_and_all_of_another() {
    let door = Running::with_bucket().await;
    let etag = door.put("/bucket/key", "0123456789").await.header("etag").to_owned();
    let ask = |condition: &str, range: &str| get().header("range", range).header("if-range", condition);
    let same = door.send(ask(&etag, "bytes=1-2")).await;
    assert_eq!((same.status, same.text()), (206, "12".into()));
    for range in ["bytes=1-2", "bytes=50-"] {
        let other = door.send(ask("\"other\"", range)).await;
        assert_eq!((other.status, other.text()), (200, "0123456789".into()));
    }
}

#[tokio::test]
async fn a_response_s_headers_can_be_overridden() {
    let door = Running::with_bucket().await;
    door.put("/bucket/key", "hello").await;
    let got = door
        .send(
            get()
                .query("response-content-type", "a/b")
                .query("response-content-disposition", "attachment; filename=\"x y\"")
                .query("response-cache-control", "no-store"),
        )
        .await;
    assert_eq!(got.status, 200);
    assert_eq!(got.header("content-type"), "a/b");
    assert_eq!(got.header("content-disposition"), "attachment; filename=\"x y\"");
    assert_eq!(got.header("cache-control"), "no-store");
}

#[tokio::test]
async fn what_is_not_there_is_said_by_bucket_and_key() {
    let door = Running::with_bucket().await;
    assert_eq!(door.get("/bucket/none").await.error(), (404, "NoSuchKey".into()));
    assert_eq!(door.get("/nowhere/none").await.error(), (404, "NoSuchBucket".into()));
    let head = door.send(Request::new("HEAD", "/bucket/none")).await;
    assert_eq!((head.status, head.body.len()), (404, 0));
    let missing = door.get("/bucket/none").await;
    assert_eq!(missing.element("RequestId"), missing.header("x-amz-request-id"));
}

#[tokio::test]
async fn part_numbers_read_parts_and_only_parts() {
    let door = Running::with_bucket().await;
    door.put("/bucket/key", "hello").await;
    let first = door.send(get().query("partNumber", "1")).await;
    assert_eq!((first.status, first.text()), (206, "hello".into()));
    assert_eq!(door.send(get().query("partNumber", "2")).await.status, 416);
    for bad in ["0", "10001", "x"] {
        assert_eq!(door.send(get().query("partNumber", bad)).await.error(), (400, "InvalidArgument".into()), "{bad}");
    }
    let both = door.send(get().query("partNumber", "1").header("range", "bytes=0-1")).await;
    assert_eq!(both.error(), (400, "InvalidRequest".into()));
}

#[tokio::test]
async fn long_bodies_come_whole_from_memory_and_past_it() {
    let door = Running::with_bucket().await;
    // Above and below what the tests' memory keeps, and what counts as sent at once.
    for (name, length) in [("small", 60_000usize), ("kept", 3 << 20), ("past", 20 << 20)] {
        let body: Vec<u8> = (0..length).map(|index| (index * 31 % 251) as u8).collect();
        door.put(&format!("/bucket/{name}"), body.clone()).await;
        for _ in 0..2 {
            let got = door.get(&format!("/bucket/{name}")).await;
            assert_eq!(got.header("content-length"), length.to_string());
            assert!(got.body == body, "{name}");
        }
        let range = Request::new("GET", &format!("/bucket/{name}")).header("range", "bytes=1000-50999");
        assert!(door.send(range).await.body == body[1000..51_000]);
    }
}

#[tokio::test]
async fn each_read_is_checked_also_if_its_signer_has_just_read() {
    let door = Running::with_bucket().await;
    door.put("/bucket/key", "hello").await;
    for payload in [Payload::Signed, Payload::Unsigned] {
        assert_eq!(door.send_as(get(), payload).await.text(), "hello");
    }
    let signed = |request: Request| door.signer.sign(request, Payload::Signed);
    let forged = Signer { secret: format!("{}x", door.signer.secret), ..door.signer.clone() };
    let mut head = signed(get());
    head.method = "HEAD".into();
    let mut body = signed(get());
    for (name, value) in &mut body.headers {
        if name == "x-amz-content-sha256" {
            *value = "UNSIGNED-PAYLOAD".to_owned();
        }
    }
    let mismatch = (403, "SignatureDoesNotMatch".to_owned());
    for request in [forged.sign(get(), Payload::Signed), signed(get()).query("partNumber", "1"), body] {
        assert_eq!(door.send_raw(&request).await.error(), mismatch, "{request:?}");
    }
    assert_eq!(door.send_raw(&head).await.status, 403);
    let unsigned = signed(get()).header("x-amz-checksum-mode", "ENABLED");
    assert_eq!(door.send_raw(&unsigned).await.error(), (403, "AccessDenied".into()));
    // What the usual check does not take for certain, the library judges: a clock that is ten minutes ahead.
    let ahead = Signer { skew_seconds: 600, ..door.signer.clone() };
    assert_eq!(door.send_raw(&ahead.sign(get(), Payload::Signed)).await.text(), "hello");
}
