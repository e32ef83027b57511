//! Multipart uploads.

use crate::checksums::checksums;
use crate::client::{Request, Response};
use crate::running::Running;

const PART: usize = 5 << 20;

async fn begin(door: &Running, request: Request) -> String {
    let begun = door.send(request.query("uploads", "")).await;
    assert_eq!(begun.status, 200, "{}", begun.text());
    begun.element("UploadId")
}

fn on(method: &str, upload: &str) -> Request {
    Request::new(method, "/bucket/key").query("uploadId", upload)
}

fn part(upload: &str, number: &str, body: Vec<u8>) -> Request {
    on("PUT", upload).query("partNumber", number).body(body)
}

fn completion(parts: &[(u32, &str)]) -> String {
    let parts: String = parts
        .iter()
        .map(|(number, etag)| format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"))
        .collect();
    format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>")
}

#[tokio::test]
async fn parts_become_one_object() {
    let door = Running::with_bucket().await;
    let begun = Request::new("POST", "/bucket/key").header("content-type", "a/b").header("x-amz-meta-a", "1");
    let upload = begin(&door, begun).await;
    let first = door.send(part(&upload, "1", vec![1; PART])).await;
    let replaced = door.send(part(&upload, "2", vec![3; 10])).await;
    let second = door.send(part(&upload, "2", vec![2; 1000])).await;
    assert_eq!((first.status, replaced.status, second.status), (200, 200, 200));
    assert_eq!(door.get("/bucket/key").await.status, 404);

    let listed = door.send(on("GET", &upload)).await;
    assert_eq!(
        (listed.elements("PartNumber"), listed.elements("Size")),
        (vec!["1".into(), "2".into()], vec![PART.to_string(), "1000".into()])
    );
    let page = door.send(on("GET", &upload).query("max-parts", "1")).await;
    assert_eq!((page.element("IsTruncated"), page.element("NextPartNumberMarker")), ("true".into(), "1".into()));
    let rest = door.send(on("GET", &upload).query("part-number-marker", "1")).await;
    assert_eq!(rest.elements("PartNumber"), ["2"]);
    let uploads = door.send(Request::new("GET", "/bucket").query("uploads", "")).await;
    assert_eq!((uploads.elements("UploadId"), uploads.elements("Key")), (vec![upload.clone()], vec!["key".into()]));

    let etags = [(1, first.header("etag")), (2, second.header("etag"))];
    let done = door.send(on("POST", &upload).body(completion(&etags))).await;
    assert_eq!(done.status, 200, "{}", done.text());
    assert!(done.element("ETag").contains("-2"), "{}", done.text());
    let got = door.get("/bucket/key").await;
    assert!(got.body == [vec![1; PART], vec![2; 1000]].concat());
    assert_eq!((got.header("content-type"), got.header("x-amz-meta-a")), ("a/b", "1"));
    let second_part = door.send(Request::new("GET", "/bucket/key").query("partNumber", "2")).await;
    assert!(second_part.status == 206 && second_part.body == vec![2; 1000]);
    assert_eq!(second_part.header("x-amz-mp-parts-count"), "2");
    assert_eq!(second_part.header("content-range"), format!("bytes {PART}-{}/{}", PART + 999, PART + 1000));
    let head = door.send(Request::new("HEAD", "/bucket/key").query("partNumber", "1")).await;
    assert_eq!((head.status, head.header("content-length")), (206, PART.to_string().as_str()));
    assert_eq!(door.send(on("GET", &upload)).await.error(), (404, "NoSuchUpload".into()));
}

/// Puts `bodies` as the parts of the upload, and completes it. Each part states its checksum.
async fn put_parts(door: &Running, upload: &str, bodies: &[Vec<u8>], algorithm: usize) -> Response {
    let mut etags = Vec::new();
    for (number, body) in (1..).zip(bodies) {
        let (name, value) = checksums(body)[algorithm].clone();
        let done = door.send(part(upload, &number.to_string(), body.clone()).header(name, &value)).await;
        assert_eq!((done.status, done.header(name)), (200, value.as_str()), "{}", done.text());
        etags.push((number, done.header("etag").to_owned()));
    }
    let etags: Vec<(u32, &str)> = etags.iter().map(|(number, etag)| (*number, etag.as_str())).collect();
    let done = door.send(on("POST", upload).body(completion(&etags))).await;
    assert_eq!(done.status, 200, "{}", done.text());
    done
}

/// Reads the checksums of the parts `bodies` in each way, and of the whole, which is `whole`.
async fn check_parts(door: &Running, bodies: &[Vec<u8>], (at, name, kind): (usize, &str, &str), whole: &str) {
    let mut values = vec![whole.to_owned()];
    for method in ["GET", "HEAD"] {
        let ask = || Request::new(method, "/bucket/key").header("x-amz-checksum-mode", "ENABLED");
        let (header, _) = checksums(b"")[at];
        let all = door.send(ask()).await;
        assert_eq!((all.header(header), all.header("x-amz-checksum-type")), (whole, kind), "{method} {name}");
        for (number, body) in (1u32..).zip(bodies) {
            let (_, value) = checksums(body)[at].clone();
            let got = door.send(ask().query("partNumber", &number.to_string())).await;
            let told = (got.status, got.header(header), got.header("x-amz-checksum-type"));
            assert_eq!(told, (206, value.as_str(), kind), "{method} {name} {number}");
            if method == "GET" {
                values.push(value);
            }
        }
        let silent = door.send(Request::new(method, "/bucket/key").query("partNumber", "1")).await;
        assert_eq!((silent.header(header), silent.header("x-amz-checksum-type")), ("", ""), "{method} {name}");
    }
    let attributes = Request::new("GET", "/bucket/key").query("attributes", "");
    let attributes = door.send(attributes.header("x-amz-object-attributes", "Checksum,ObjectParts")).await;
    let mut told = attributes.elements(&format!("Checksum{name}"));
    told.sort();
    values.sort();
    assert_eq!(told, values, "{name} {}", attributes.text());
}

#[tokio::test]
async fn the_checksum_of_each_part_is_kept_and_answered() {
    for journaled in [false, true] {
        let door = if journaled { Running::start_with_journal().await } else { Running::start().await };
        door.put("/bucket", "").await;
        let bodies = [vec![1; PART], vec![2; 1000]];
        for way in [
            (0, "CRC32", "COMPOSITE"),
            (1, "CRC32C", "FULL_OBJECT"),
            (2, "CRC64NVME", "FULL_OBJECT"),
            (4, "SHA256", "COMPOSITE"),
        ] {
            let begun = Request::new("POST", "/bucket/key").header("x-amz-checksum-algorithm", way.1);
            let upload = begin(&door, begun.header("x-amz-checksum-type", way.2)).await;
            let done = put_parts(&door, &upload, &bodies, way.0).await;
            assert_eq!(done.element("ChecksumType"), way.2);
            check_parts(&door, &bodies, way, &done.element(&format!("Checksum{}", way.1))).await;
        }
    }
}

#[tokio::test]
async fn an_upload_begun_without_a_checksum_has_s3_s_default_one() {
    let door = Running::with_bucket().await;
    let bodies = [vec![1; PART], vec![2; 1000]];
    let [_, _, (name, value), ..] = checksums(&bodies.concat());
    // Its parts may state a checksum of another kind, as SDKs do by themselves, or none.
    let upload = begin(&door, Request::new("POST", "/bucket/key")).await;
    let done = put_parts(&door, &upload, &bodies, 0).await;
    assert_eq!(
        (done.element("ChecksumCRC64NVME"), done.element("ChecksumType")),
        (value.clone(), "FULL_OBJECT".into())
    );
    check_parts(&door, &bodies, (2, "CRC64NVME", "FULL_OBJECT"), &value).await;

    let upload = begin(&door, Request::new("POST", "/bucket/key")).await;
    let first = door.send(part(&upload, "1", bodies[0].clone())).await;
    let second = door.send(part(&upload, "2", bodies[1].clone())).await;
    assert_eq!((first.header(name), second.header(name)), ("", ""));
    let complete = || {
        let etags = [(1, first.header("etag")), (2, second.header("etag"))];
        on("POST", &upload).body(completion(&etags))
    };
    let wrong = door.send(complete().header(name, "AAAAAAAAAAA=")).await;
    assert_eq!(wrong.error(), (400, "BadDigest".into()));
    let done = door.send(complete().header(name, &value)).await;
    assert_eq!((done.status, done.element("ChecksumCRC64NVME")), (200, value.clone()), "{}", done.text());
    check_parts(&door, &bodies, (2, "CRC64NVME", "FULL_OBJECT"), &value).await;
}

#[tokio::test]
async fn the_rules_of_parts_are_kept() {
    let door = Running::with_bucket().await;
    let upload = begin(&door, Request::new("POST", "/bucket/key")).await;
    for number in ["0", "10001", "-1"] {
        let refused = door.send(part(&upload, number, vec![1])).await;
        assert_eq!(refused.error(), (400, "InvalidArgument".into()), "{number}");
    }
    let small = door.send(part(&upload, "1", vec![1; 10])).await;
    let other = door.send(part(&upload, "10000", vec![1; 10])).await;
    let (small, other) = (small.header("etag"), other.header("etag"));
    let complete = |document: String| door.send(on("POST", &upload).body(document));
    let code = |(_, code)| code;
    assert_eq!(code(complete(completion(&[(1, small), (10000, other)])).await.error()), "EntityTooSmall");
    assert_eq!(code(complete(completion(&[(10000, other), (1, small)])).await.error()), "InvalidPartOrder");
    assert_eq!(code(complete(completion(&[(1, "\"other\"")])).await.error()), "InvalidPart");
    assert_eq!(code(complete(completion(&[(2, small)])).await.error()), "InvalidPart");
    assert_eq!(code(complete(completion(&[])).await.error()), "MalformedXML");
    assert_eq!(code(complete("<Complete".into()).await.error()), "MalformedXML");
    let sized = on("POST", &upload).header("x-amz-mp-object-size", "11").body(completion(&[(1, small)]));
    assert_eq!(code(door.send(sized).await.error()), "InvalidRequest");
    let absent = on("POST", &upload).header("if-none-match", "*").body(completion(&[(1, small)]));
    door.put("/bucket/key", "there").await;
    assert_eq!(code(door.send(absent).await.error()), "PreconditionFailed");
    assert_eq!(complete(completion(&[(1, small)])).await.status, 200);
    assert_eq!(door.get("/bucket/key").await.body, vec![1; 10]);
}

#[tokio::test]
async fn an_aborted_upload_is_gone() {
    let door = Running::with_bucket().await;
    let upload = begin(&door, Request::new("POST", "/bucket/key")).await;
    let etag = door.send(part(&upload, "1", vec![1; 10])).await.header("etag").to_owned();
    assert_eq!(door.send(on("DELETE", &upload)).await.status, 204);
    let gone = (404, "NoSuchUpload".to_owned());
    assert_eq!(door.send(on("DELETE", &upload)).await.error(), gone);
    assert_eq!(door.send(part(&upload, "1", vec![1; 10])).await.error(), gone);
    assert_eq!(door.send(on("POST", &upload).body(completion(&[(1, &etag)]))).await.error(), gone);
    assert_eq!(door.send(on("GET", "no-such-upload")).await.error(), gone);
    assert_eq!(door.get("/bucket/key").await.status, 404);
}

#[tokio::test]
async fn parts_can_be_copied_from_objects() {
    let door = Running::with_bucket().await;
    let source: Vec<u8> = (0..PART + 100).map(|index| (index % 251) as u8).collect();
    let etag = door.put("/bucket/source", source.clone()).await.header("etag").to_owned();
    let upload = begin(&door, Request::new("POST", "/bucket/key")).await;
    let copy = |number: &str| part(&upload, number, Vec::new()).header("x-amz-copy-source", "bucket/source");
    let first = door.send(copy("1").header("x-amz-copy-source-range", &format!("bytes=0-{}", PART - 1))).await;
    let second = door.send(copy("2").header("x-amz-copy-source-range", &format!("bytes={PART}-{}", PART + 49))).await;
    assert_eq!((first.status, second.status), (200, 200), "{} {}", first.text(), second.text());
    let stale = door.send(copy("3").header("x-amz-copy-source-if-none-match", &etag)).await;
    assert_eq!(stale.error(), (412, "PreconditionFailed".into()));
    for range in ["bytes=0-", "bytes=-5", "0-5"] {
        let refused = door.send(copy("3").header("x-amz-copy-source-range", range)).await;
        assert_eq!(refused.error(), (400, "InvalidArgument".into()), "{range}");
    }
    let (first, second) = (first.element("ETag"), second.element("ETag"));
    let done = door.send(on("POST", &upload).body(completion(&[(1, &first), (2, &second)]))).await;
    assert_eq!(done.status, 200, "{}", done.text());
    assert!(door.get("/bucket/key").await.body == source[..PART + 50]);
    let [_, _, (_, crc64), ..] = checksums(&source[..PART + 50]);
    assert_eq!((done.element("ChecksumCRC64NVME"), done.element("ChecksumType")), (crc64, "FULL_OBJECT".into()));
}
