//! What a client claims of its bytes is verified, however it sends them.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha1::{Digest, Sha1};

use crate::client::{Request, Response};
use crate::running::Running;
use crate::sign::{Payload, sha256};

/// Each additional checksum's header and its value for `bytes`.
pub(crate) fn checksums(bytes: &[u8]) -> [(&'static str, String); 5] {
    use crc_fast::{CrcAlgorithm, checksum};
    let crc = |algorithm, length: usize| checksum(algorithm, bytes).to_be_bytes()[8 - length..].to_vec();
    [
        ("x-amz-checksum-crc32", crc(CrcAlgorithm::Crc32IsoHdlc, 4)),
        ("x-amz-checksum-crc32c", crc(CrcAlgorithm::Crc32Iscsi, 4)),
        ("x-amz-checksum-crc64nvme", crc(CrcAlgorithm::Crc64Nvme, 8)),
        ("x-amz-checksum-sha1", Sha1::digest(bytes).to_vec()),
        ("x-amz-checksum-sha256", sha256(bytes).to_vec()),
    ]
    .map(|(name, value)| (name, BASE64_STANDARD.encode(value)))
}

/// The CRC-32 of `bytes` as its header has it.
pub(crate) fn crc32(bytes: &[u8]) -> String {
    let [crc32, ..] = checksums(bytes);
    assert_eq!(crc32.0, "x-amz-checksum-crc32");
    crc32.1
}

fn put(body: &[u8]) -> Request {
    Request::new("PUT", "/bucket/key").body(body)
}

/// Bytes that make more than two chunks.
fn body() -> Vec<u8> {
    (0..150_000u32).map(|index| (index % 253) as u8).collect()
}

#[tokio::test]
async fn every_way_to_send_a_body_arrives() {
    let door = Running::with_bucket().await;
    let body = body();
    let [crc32, ..] = checksums(&body);
    for payload in [
        Payload::Signed,
        Payload::Unsigned,
        Payload::Chunks,
        Payload::ChunksAndTrailer,
        Payload::UnsignedChunksAndTrailer,
    ] {
        let request = put(&body).header("x-amz-meta-way", &format!("{payload:?}"));
        let with_trailer = matches!(payload, Payload::ChunksAndTrailer | Payload::UnsignedChunksAndTrailer);
        let request = if with_trailer { request.trailer(crc32.0, &crc32.1) } else { request };
        let done = door.send_as(request, payload).await;
        assert_eq!(done.status, 200, "{payload:?} {}", done.text());
        let got = door.get("/bucket/key").await;
        assert!(got.body == body, "{payload:?}");
        assert_eq!(got.header("x-amz-meta-way"), format!("{payload:?}"));
        assert_eq!(got.header("content-encoding"), "", "{payload:?}");
    }
}

#[tokio::test]
async fn every_checksum_is_verified_in_header_and_trailer_and_kept() {
    let door = Running::with_bucket().await;
    let body = body();
    for (name, value) in checksums(&body) {
        let (_, wrong) = checksums(b"other").into_iter().find(|(other, _)| *other == name).unwrap();
        for (value, status) in [(&wrong, 400), (&value, 200)] {
            let in_header = door.send(put(&body).header(name, value)).await;
            assert_eq!(in_header.status, status, "{name} {}", in_header.text());
            for payload in [Payload::ChunksAndTrailer, Payload::UnsignedChunksAndTrailer] {
                let in_trailer = door.send_as(put(&body).trailer(name, value), payload).await;
                assert_eq!(in_trailer.status, status, "{name} {payload:?} {}", in_trailer.text());
                if status == 400 {
                    assert_eq!(in_trailer.element("Code"), "BadDigest");
                } else {
                    assert_eq!(in_trailer.header(name), value);
                }
            }
        }
        let ask = |method: &str| Request::new(method, "/bucket/key").header("x-amz-checksum-mode", "ENABLED");
        let got = door.send(ask("GET")).await;
        assert_eq!((got.header(name), got.header("x-amz-checksum-type")), (value.as_str(), "FULL_OBJECT"));
        assert_eq!(door.send(ask("HEAD")).await.header(name), value);
        assert_eq!(door.get("/bucket/key").await.header(name), "");
        assert_eq!(door.send(ask("GET").header("range", "bytes=0-1")).await.header(name), "");
        let attributes = Request::new("GET", "/bucket/key").query("attributes", "");
        let attributes = door.send(attributes.header("x-amz-object-attributes", "Checksum,ObjectSize")).await;
        assert_eq!(attributes.element("ObjectSize"), body.len().to_string());
        assert!(attributes.text().contains(&value), "{}", attributes.text());
    }
}

#[tokio::test]
async fn an_object_whose_writer_states_no_checksum_has_s3_s_default_one() {
    let door = Running::with_bucket().await;
    let body = body();
    let [crc32, _, (name, value), ..] = checksums(&body);
    let of = |got: &Response| (got.header(name).to_owned(), got.header("x-amz-checksum-type").to_owned());
    let expected = (value.clone(), "FULL_OBJECT".to_owned());
    assert_eq!(of(&door.send(put(&body)).await), expected);
    let copy = Request::new("PUT", "/bucket/copy").header("x-amz-copy-source", "bucket/key");
    let copied = door.send(copy).await;
    assert_eq!((copied.element("ChecksumCRC64NVME"), copied.element("ChecksumType")), expected);
    for path in ["/bucket/key", "/bucket/copy"] {
        for method in ["GET", "HEAD"] {
            let ask = || Request::new(method, path).header("x-amz-checksum-mode", "ENABLED");
            assert_eq!(of(&door.send(ask()).await), expected, "{method} {path}");
            assert_eq!(of(&door.send(ask().query("partNumber", "1")).await), expected, "{method} {path}");
            let none = (String::new(), String::new());
            assert_eq!(of(&door.send(ask().header("range", "bytes=0-1")).await), none, "{method} {path}");
            assert_eq!(of(&door.send(Request::new(method, path)).await), none, "{method} {path}");
        }
        let attributes = Request::new("GET", path).query("attributes", "");
        let attributes = door.send(attributes.header("x-amz-object-attributes", "Checksum")).await;
        assert_eq!(attributes.element("ChecksumCRC64NVME"), value, "{path}");
    }
    let stated = door.send(put(&body).header(crc32.0, &crc32.1)).await;
    assert_eq!((stated.header(name), stated.header(crc32.0)), ("", crc32.1.as_str()));
}

#[tokio::test]
async fn a_checksum_that_is_not_known_is_refused_and_nothing_is_stored() {
    let door = Running::with_bucket().await;
    door.put("/bucket/other", "there").await;
    let begun = door.send(Request::new("POST", "/bucket/key").query("uploads", "")).await;
    let id = begun.element("UploadId");
    let part = || Request::new("PUT", "/bucket/key").query("partNumber", "1").query("uploadId", &id).body("hello");
    let complete = || {
        let document = "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>5d41402abc4b2a76b9719d911017c592\
                        </ETag></Part></CompleteMultipartUpload>";
        Request::new("POST", "/bucket/key").query("uploadId", &id).body(document)
    };
    let delete = || {
        let document = "<Delete><Object><Key>other</Key></Object></Delete>";
        Request::new("POST", "/bucket").query("delete", "").body(document)
    };
    for (algorithm, bytes) in
        [("md5", 16), ("sha512", 64), ("xxhash64", 8), ("xxhash3", 8), ("xxhash128", 16), ("foo", 4)]
    {
        let (name, zeros) = (format!("x-amz-checksum-{algorithm}"), BASE64_STANDARD.encode(vec![0; bytes]));
        let sdk = put(b"hello").header("x-amz-sdk-checksum-algorithm", &algorithm.to_uppercase());
        for request in [put(b"hello"), sdk, part(), complete(), delete()] {
            let refused = door.send(request.header(&name, &zeros)).await;
            assert_eq!(refused.error(), (501, "NotImplemented".into()), "{name}");
            assert!(refused.element("Message").contains(&name), "{}", refused.text());
        }
        for request in [put(b"hello"), part()] {
            let refused = door.send_as(request.trailer(&name, &zeros), Payload::UnsignedChunksAndTrailer).await;
            assert_eq!(refused.error(), (501, "NotImplemented".into()), "{name}");
        }
    }
    assert_eq!(door.get("/bucket/key").await.status, 404);
    assert_eq!(door.get("/bucket/other").await.text(), "there");
    let parts = door.send(Request::new("GET", "/bucket/key").query("uploadId", &id)).await;
    assert_eq!((parts.status, parts.elements("PartNumber").len()), (200, 0));
}

#[tokio::test]
async fn a_body_that_differs_from_what_was_signed_is_not_stored() {
    let door = Running::with_bucket().await;
    let body = body();
    let [crc32, ..] = checksums(&body);
    let mut signed = door.signer.sign(put(&body), Payload::Signed);
    signed.body[77] ^= 1;
    assert_eq!(door.send_raw(&signed).await.error(), (400, "XAmzContentSHA256Mismatch".into()));
    for payload in [Payload::Chunks, Payload::ChunksAndTrailer] {
        let request = put(&body);
        let request = if payload == Payload::Chunks { request } else { request.trailer(crc32.0, &crc32.1) };
        let mut signed = door.signer.sign(request, payload);
        signed.body[70_000] ^= 1;
        assert_eq!(door.send_raw(&signed).await.error(), (403, "SignatureDoesNotMatch".into()), "{payload:?}");
    }
    // A trailer whose signature is another's, and one that is announced and missing.
    let mut forged = door.signer.sign(put(&body).trailer(crc32.0, &crc32.1), Payload::ChunksAndTrailer);
    let digit = forged.body.len() - 5;
    forged.body[digit] = if forged.body[digit] == b'0' { b'1' } else { b'0' };
    assert_eq!(door.send_raw(&forged).await.error(), (403, "SignatureDoesNotMatch".into()));
    for payload in [Payload::ChunksAndTrailer, Payload::UnsignedChunksAndTrailer] {
        let mut without = door.signer.sign(put(&body).trailer(crc32.0, &crc32.1), payload);
        let end = without.body.windows(5).rposition(|five| five == b"\r\nx-a").map(|at| at + 2);
        let start = without.body.windows(14).position(|window| window == b"x-amz-checksum").or(end).unwrap();
        without.body.truncate(start);
        without.body.extend_from_slice(b"\r\n");
        let refused = door.send_raw(&without).await;
        assert_eq!(refused.status, 400, "{payload:?} {}", refused.text());
    }
    assert_eq!(door.get("/bucket/key").await.status, 404);
}

#[tokio::test]
async fn content_md5_is_verified_of_objects_and_of_documents() {
    let door = Running::with_bucket().await;
    let (right, wrong) = ("XUFAKrxLKna5cZ2REBfFkg==", "AAAAAAAAAAAAAAAAAAAAAA==");
    assert_eq!(door.send(put(b"hello").header("content-md5", right)).await.status, 200);
    assert_eq!(door.send(put(b"hello").header("content-md5", wrong)).await.error(), (400, "BadDigest".into()));
    assert_eq!(door.send(put(b"hello").header("content-md5", "x")).await.error(), (400, "InvalidDigest".into()));
    let delete = Request::new("POST", "/bucket").query("delete", "");
    let delete = delete.body("<Delete><Object><Key>key</Key></Object></Delete>").header("content-md5", wrong);
    assert_eq!(door.send(delete.clone()).await.error(), (400, "BadDigest".into()));
    assert_eq!(door.get("/bucket/key").await.status, 200);
    let mut changed = door.signer.sign(delete, Payload::Signed);
    changed.headers.retain(|(name, _)| name != "content-md5");
    assert_eq!(door.send_raw(&changed).await.error(), (403, "SignatureDoesNotMatch".into()));
}

#[tokio::test]
async fn every_checksum_of_a_document_is_verified_before_it_is_acted_on() {
    let door = Running::with_bucket().await;
    let delete = "<Delete><Object><Key>key</Key></Object></Delete>";
    let tags = "<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag></TagSet></Tagging>";
    for (method, path, query, document) in
        [("POST", "/bucket", "delete", delete), ("PUT", "/bucket/key", "tagging", tags)]
    {
        let request = || Request::new(method, path).query(query, "").body(document);
        for (name, right) in checksums(document.as_bytes()) {
            let (_, wrong) = checksums(b"other").into_iter().find(|(other, _)| *other == name).unwrap();
            door.put("/bucket/key", "hello").await;
            let with = |value: &str| {
                [(request().header(name, value), Payload::Signed), (request().header(name, value), Payload::Unsigned)]
            };
            for (request, payload) in with(&wrong) {
                let refused = door.send_as(request, payload).await;
                assert_eq!(refused.error(), (400, "BadDigest".into()), "{query} {name} {payload:?}");
            }
            for payload in [Payload::ChunksAndTrailer, Payload::UnsignedChunksAndTrailer] {
                let refused = door.send_as(request().trailer(name, &right), payload).await;
                assert_eq!(refused.error(), (501, "NotImplemented".into()), "{query} {name} {payload:?}");
            }
            assert_eq!(door.get("/bucket/key").await.text(), "hello", "{query} {name}");
            let tagged = door.send(Request::new("GET", "/bucket/key").query("tagging", "")).await;
            assert_eq!(tagged.elements("Tag").len(), 0, "{query} {name}");
            for (request, payload) in with(&right) {
                let done = door.send_as(request, payload).await;
                assert_eq!(done.status, 200, "{query} {name} {payload:?} {}", done.text());
            }
            let left = door.get("/bucket/key").await.status;
            assert_eq!(left, if query == "delete" { 404 } else { 200 }, "{query} {name}");
        }
    }
}

#[tokio::test]
async fn a_completion_s_document_is_verified_and_its_checksum_header_is_the_object_s() {
    let door = Running::with_bucket().await;
    let [crc32, ..] = checksums(b"part");
    let begin = Request::new("POST", "/bucket/key").query("uploads", "");
    let begin = begin.header("x-amz-checksum-algorithm", "CRC32").header("x-amz-checksum-type", "FULL_OBJECT");
    let id = door.send(begin).await.element("UploadId");
    let part = Request::new("PUT", "/bucket/key").query("partNumber", "1").query("uploadId", &id).body("part");
    let part = door.send(part.header(crc32.0, &crc32.1)).await;
    let document = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{}</ETag></Part></CompleteMultipartUpload>",
        part.header("etag")
    );
    let complete = || Request::new("POST", "/bucket/key").query("uploadId", &id).body(document.clone());
    let [of_document, ..] = checksums(document.as_bytes());
    let md5 = complete().header("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==");
    assert_eq!(door.send(md5).await.error(), (400, "BadDigest".into()));
    let header = complete().header(of_document.0, &of_document.1);
    assert_eq!(door.send(header).await.status, 400);
    assert_eq!(door.get("/bucket/key").await.status, 404);
    let done = door.send(complete().header(crc32.0, &crc32.1)).await;
    assert_eq!(done.status, 200, "{}", done.text());
    assert_eq!(door.get("/bucket/key").await.text(), "part");
}

#[tokio::test]
async fn a_document_that_differs_from_what_was_signed_is_the_client_s_fault() {
    let door = Running::with_bucket().await;
    let delete = Request::new("POST", "/bucket").query("delete", "");
    let mut signed = door.signer.sign(delete.body("<Delete><Object><Key>a</Key></Object></Delete>"), Payload::Signed);
    let place = signed.body.windows(5).position(|five| five == b"<Key>").unwrap() + 5;
    signed.body[place] = b'b';
    assert_eq!(door.send_raw(&signed).await.error(), (400, "XAmzContentSHA256Mismatch".into()));
}

#[tokio::test]
async fn one_unsigned_chunk_may_be_as_large_as_the_object() {
    let door = Running::with_bucket().await;
    let body = vec![9; 3 << 20];
    let [_, _, crc64, ..] = checksums(&body);
    let mut request = door.signer.sign(put(&body).trailer(crc64.0, &crc64.1), Payload::UnsignedChunksAndTrailer);
    request.body = [
        format!("{:x}\r\n", body.len()).into_bytes(),
        body.clone(),
        format!("\r\n0\r\n{}:{}\r\n\r\n", crc64.0, crc64.1).into_bytes(),
    ]
    .concat();
    let done = door.send_raw(&request).await;
    assert_eq!(done.status, 200, "{}", done.text());
    assert!(door.get("/bucket/key").await.body == body);
}
