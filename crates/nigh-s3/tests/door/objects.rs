//! Writes, copies, deletions, listings, tags, buckets.

use std::time::{Duration, SystemTime};

use crate::client::Request;
use crate::running::Running;
use crate::sign::{Payload, Signer};

fn put(path: &str) -> Request {
    Request::new("PUT", path)
}

#[tokio::test]
async fn buckets_are_made_listed_and_removed() {
    let door = Running::start().await;
    let made = door.send(put("/alpha")).await;
    assert_eq!((made.status, made.header("location")), (200, "/alpha"));
    let constraint =
        "<CreateBucketConfiguration><LocationConstraint>eu-west-1</LocationConstraint></CreateBucketConfiguration>";
    assert_eq!(door.send(put("/beta").body(constraint)).await.status, 200);
    assert_eq!(door.send(put("/alpha")).await.error(), (409, "BucketAlreadyOwnedByYou".into()));
    assert_eq!(door.send(put("/No_Bucket")).await.error(), (400, "InvalidBucketName".into()));
    assert_eq!(door.send(put("/ab")).await.error(), (400, "InvalidBucketName".into()));

    let listed = door.get("/").await;
    assert_eq!((listed.status, listed.elements("Name")), (200, vec!["alpha".into(), "beta".into()]));
    let page = door.send(Request::new("GET", "/").query("max-buckets", "1")).await;
    assert_eq!(page.elements("Name"), ["alpha"]);
    let token = page.element("ContinuationToken");
    let rest = door.send(Request::new("GET", "/").query("continuation-token", &token)).await;
    assert_eq!(rest.elements("Name"), ["beta"]);

    assert_eq!(door.send(Request::new("HEAD", "/alpha")).await.status, 200);
    assert_eq!(door.send(Request::new("HEAD", "/gamma")).await.status, 404);
    let location = door.send(Request::new("GET", "/alpha").query("location", "")).await;
    assert_eq!(location.status, 200);
    assert!(location.text().contains("LocationConstraint"), "{}", location.text());
    let versioning = door.send(Request::new("GET", "/alpha").query("versioning", "")).await;
    assert!(versioning.status == 200 && !versioning.text().contains("<Status>"));

    door.put("/alpha/key", "x").await;
    assert_eq!(door.send(Request::new("DELETE", "/alpha")).await.error(), (409, "BucketNotEmpty".into()));
    assert_eq!(door.send(Request::new("DELETE", "/alpha/key")).await.status, 204);
    assert_eq!(door.send(Request::new("DELETE", "/alpha")).await.status, 204);
    assert_eq!(door.send(Request::new("DELETE", "/alpha")).await.error(), (404, "NoSuchBucket".into()));
}

#[tokio::test]
async fn a_request_may_be_signed_with_date_in_place_of_x_amz_date() {
    let door = Running::with_bucket().await;
    let now = httpdate::fmt_http_date(SystemTime::now());
    let body = vec![7; 150_000];
    for date in [now.clone(), now.replace("GMT", "-0000")] {
        for payload in [Payload::Signed, Payload::Chunks] {
            let done = door.send_as(put("/bucket/key").header("date", &date).body(body.clone()), payload).await;
            assert_eq!(done.status, 200, "{date} {payload:?} {}", done.text());
        }
        assert!(door.send(Request::new("GET", "/bucket/key").header("date", &date)).await.body == body);
    }
    let old = httpdate::fmt_http_date(SystemTime::now() - Duration::from_secs(16 * 60));
    let old = door.send(Request::new("GET", "/bucket/key").header("date", &old)).await;
    assert_eq!(old.error(), (403, "RequestTimeTooSkewed".into()));
    let mut changed = door.signer.sign(Request::new("GET", "/bucket/key").header("date", &now), Payload::Signed);
    let later = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(5));
    changed.headers.iter_mut().find(|(name, _)| name == "date").unwrap().1 = later;
    assert_eq!(door.send_raw(&changed).await.error(), (403, "SignatureDoesNotMatch".into()));
}

#[tokio::test]
async fn a_bucket_name_that_is_refused_is_refused_with_a_reason() {
    let door = Running::with_bucket().await;
    for path in ["/ab", "/UPPER", "/a_b", "/192.168.0.1", "/ab/key", "//key"] {
        for method in ["PUT", "GET", "DELETE"] {
            let refused = door.send(Request::new(method, path)).await;
            assert_eq!(refused.error(), (400, "InvalidBucketName".into()), "{method} {path}");
            assert!(refused.element("Message").contains("a bucket "), "{method} {path}: {}", refused.text());
        }
        assert_eq!(door.send_raw(&Request::new("PUT", path)).await.error(), (403, "AccessDenied".into()), "{path}");
    }
}

#[tokio::test]
async fn no_bucket_is_made_with_a_name_that_s3_reserves() {
    let door = Running::start().await;
    for name in [
        "foo-.bar",
        "foo.-bar",
        "xn--abc",
        "sthree-abc",
        "amzn-s3-demo-bucket",
        "abc-s3alias",
        "abc--ol-s3",
        "abc.mrap",
    ] {
        let refused = door.send(put(&format!("/{name}"))).await;
        assert_eq!(refused.error(), (400, "InvalidBucketName".into()), "{name}");
        assert!(refused.element("Message").contains("choose another name"), "{}", refused.text());
        assert_eq!(door.send(Request::new("HEAD", &format!("/{name}"))).await.status, 404, "{name}");
    }
    for name in ["foo-bar.baz", "s3alias", "mrap", "a-s3aliases"] {
        assert_eq!(door.send(put(&format!("/{name}"))).await.status, 200, "{name}");
    }
}

#[tokio::test]
async fn a_bucket_is_in_the_region_that_its_client_signs_for() {
    let door = Running::start().await;
    let constraint =
        "<CreateBucketConfiguration><LocationConstraint>eu-west-1</LocationConstraint></CreateBucketConfiguration>";
    for (region, location) in [("eu-west-1", "eu-west-1"), ("us-east-1", "")] {
        let signer = Signer { region, ..door.signer.clone() };
        let send = async |request: Request| door.send_raw(&signer.sign(request, Payload::Signed)).await;
        let bucket = format!("/in-{region}");
        assert_eq!(send(put(&bucket).body(constraint)).await.status, 200);
        let found = send(Request::new("GET", &bucket).query("location", "")).await;
        let constraint = format!(">{location}</LocationConstraint>");
        assert!(found.status == 200 && found.text().contains(&constraint), "{}", found.text());
        assert_eq!(send(Request::new("HEAD", &bucket)).await.header("x-amz-bucket-region"), region);
        assert!(send(Request::new("GET", "/")).await.elements("BucketRegion").iter().all(|found| found == region));
    }
}

#[tokio::test]
async fn what_is_not_supported_says_so_and_changes_nothing() {
    let door = Running::with_bucket().await;
    for (name, value) in [
        ("x-amz-acl", "public-read"),
        ("x-amz-storage-class", "GLACIER"),
        ("x-amz-server-side-encryption", "AES256"),
        ("x-amz-object-lock-mode", "GOVERNANCE"),
        ("x-amz-website-redirect-location", "/x"),
    ] {
        let refused = door.send(put("/bucket/key").header(name, value).body("x")).await;
        assert_eq!(refused.error(), (501, "NotImplemented".into()), "{name}");
    }
    assert_eq!(door.get("/bucket/key").await.status, 404);
    for (method, query) in [("GET", "acl"), ("GET", "policy"), ("GET", "versions"), ("DELETE", "lifecycle")] {
        let refused = door.send(Request::new(method, "/bucket").query(query, "")).await;
        assert_eq!(refused.status, 501, "{method} {query}: {}", refused.text());
    }
    assert_eq!(door.send(Request::new("GET", "/bucket/key").query("versionId", "1")).await.status, 501);
    let allowed = put("/bucket/key").header("x-amz-acl", "private").header("x-amz-storage-class", "STANDARD");
    assert_eq!(door.send(allowed.body("x")).await.status, 200);
}

#[tokio::test]
async fn a_bucket_is_owned_by_the_account_of_the_node_s_arns() {
    let door = Running::with_bucket().await;
    let owner = "x-amz-expected-bucket-owner";
    assert_eq!(door.send(put("/bucket/key").header(owner, "000000000000").body("x")).await.status, 200);
    let others = door.send(put("/bucket/key").header(owner, "111122223333").body("y")).await;
    assert_eq!(others.error(), (403, "AccessDenied".into()));
    assert!(others.element("Message").contains("000000000000"), "{}", others.text());
    assert_eq!(door.get("/bucket/key").await.text(), "x");
}

#[tokio::test]
async fn writes_hold_their_conditions() {
    let door = Running::with_bucket().await;
    let absent = || put("/bucket/key").header("if-none-match", "*");
    assert_eq!(door.send(absent().body("one")).await.status, 200);
    assert_eq!(door.send(absent().body("two")).await.error(), (412, "PreconditionFailed".into()));
    let etag = door.get("/bucket/key").await.header("etag").to_owned();
    let matching = |tag: &str| put("/bucket/key").header("if-match", tag);
    assert_eq!(door.send(matching("\"other\"").body("three")).await.error(), (412, "PreconditionFailed".into()));
    assert_eq!(door.send(matching(&etag).body("four")).await.status, 200);
    assert_eq!(door.get("/bucket/key").await.text(), "four");
    let missing = door.send(put("/bucket/none").header("if-match", &etag).body("x")).await;
    assert_eq!(missing.error(), (404, "NoSuchKey".into()));
    let stale = Request::new("DELETE", "/bucket/key").header("if-match", &etag);
    assert_eq!(door.send(stale).await.error(), (412, "PreconditionFailed".into()));
}

#[tokio::test]
async fn copies_take_or_replace_what_the_source_says() {
    let door = Running::with_bucket().await;
    let source = put("/bucket/from ü")
        .header("content-type", "text/plain")
        .header("x-amz-meta-a", "1")
        .header("x-amz-tagging", "t=1");
    let etag = door.send(source.body("hello")).await.header("etag").to_owned();
    let copy = |to: &str| put(to).header("x-amz-copy-source", "/bucket/from%20%C3%BC");

    let copied = door.send(copy("/bucket/to")).await;
    assert_eq!(copied.status, 200, "{}", copied.text());
    assert!(copied.element("ETag").contains(etag.trim_matches('"')));
    let got = door.get("/bucket/to").await;
    assert_eq!((got.text().as_str(), got.header("content-type")), ("hello", "text/plain"));
    assert_eq!((got.header("x-amz-meta-a"), got.header("x-amz-tagging-count")), ("1", "1"));

    let replaced = copy("/bucket/to")
        .header("x-amz-metadata-directive", "REPLACE")
        .header("x-amz-tagging-directive", "REPLACE")
        .header("content-type", "a/b");
    assert_eq!(door.send(replaced).await.status, 200);
    let got = door.get("/bucket/to").await;
    assert_eq!((got.header("content-type"), got.header("x-amz-meta-a")), ("a/b", ""));
    assert_eq!(got.header("x-amz-tagging-count"), "");

    for (name, value, status) in [
        ("x-amz-copy-source-if-match", etag.as_str(), 200),
        ("x-amz-copy-source-if-match", "\"other\"", 412),
        ("x-amz-copy-source-if-none-match", etag.as_str(), 412),
        ("x-amz-copy-source-if-modified-since", "Fri, 01 Jan 2100 00:00:00 GMT", 412),
        ("x-amz-copy-source-if-unmodified-since", "Thu, 01 Jan 1970 00:00:00 GMT", 412),
        ("if-none-match", "*", 412),
    ] {
        assert_eq!(door.send(copy("/bucket/to").header(name, value)).await.status, status, "{name}: {value}");
    }
    let itself = put("/bucket/to").header("x-amz-copy-source", "/bucket/to");
    assert_eq!(door.send(itself).await.error(), (400, "InvalidRequest".into()));
    let nothing = put("/bucket/to").header("x-amz-copy-source", "/bucket/none");
    assert_eq!(door.send(nothing).await.error(), (404, "NoSuchKey".into()));
    let version = put("/bucket/to").header("x-amz-copy-source", "/bucket/to?versionId=7");
    assert_eq!(door.send(version).await.status, 501);
}

#[tokio::test]
async fn listings_go_page_by_page_in_the_order_of_bytes() {
    let door = Running::with_bucket().await;
    let keys = ["a", "a/b", "a/c/d", "b c", "ü", "z\u{1}"];
    for key in keys {
        door.put(&format!("/bucket/{key}"), key).await;
    }
    let list = || Request::new("GET", "/bucket").query("list-type", "2");
    let all = door.send(list().query("encoding-type", "url")).await;
    assert_eq!(all.elements("Key"), ["a", "a/b", "a/c/d", "b%20c", "z%01", "%C3%BC"]);
    assert_eq!((all.element("KeyCount"), all.element("IsTruncated")), ("6".into(), "false".into()));
    assert!(!all.text().contains("<Owner>"));
    assert!(door.send(list().query("fetch-owner", "true")).await.text().contains("<Owner>"));

    let mut seen = Vec::new();
    let mut token = String::new();
    loop {
        let page = list().query("max-keys", "2").query("encoding-type", "url");
        let page = if token.is_empty() { page } else { page.query("continuation-token", &token) };
        let page = door.send(page).await;
        seen.extend(page.elements("Key"));
        token = page.element("NextContinuationToken");
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(seen, all.elements("Key"));

    let folded = door.send(list().query("delimiter", "/").query("prefix", "a/")).await;
    assert_eq!((folded.elements("Key"), folded.elements("CommonPrefixes").len()), (vec!["a/b".into()], 1));
    assert!(folded.element("CommonPrefixes").contains("a/c/"));
    let after = door.send(list().query("start-after", "b c").query("encoding-type", "url")).await;
    assert_eq!(after.elements("Key"), ["z%01", "%C3%BC"]);
    let none = door.send(list().query("max-keys", "0")).await;
    assert_eq!((none.elements("Key").len(), none.element("IsTruncated")), (0, "false".into()));
    for (name, value) in [("max-keys", "-1"), ("max-keys", "x"), ("continuation-token", "!"), ("encoding-type", "x")] {
        assert_eq!(door.send(list().query(name, value)).await.error(), (400, "InvalidArgument".into()), "{name}");
    }
    let missing = door.send(Request::new("GET", "/nowhere").query("list-type", "2")).await;
    assert_eq!(missing.error(), (404, "NoSuchBucket".into()));

    let (v1, uploads) = (Request::new("GET", "/bucket"), Request::new("GET", "/bucket").query("uploads", ""));
    for list in [v1, list(), uploads] {
        let without = door.send(list.clone().query("delimiter", "")).await;
        assert!(without.status == 200 && !without.text().contains("Delimiter"), "{}", without.text());
        assert_eq!(door.send(list.query("delimiter", "/")).await.element("Delimiter"), "/");
    }

    let first = Request::new("GET", "/bucket").query("delimiter", "/").query("max-keys", "2");
    let first = door.send(first.query("encoding-type", "url")).await;
    assert_eq!((first.elements("Key"), first.element("NextMarker")), (vec!["a".into()], "a/".into()));
    let next = Request::new("GET", "/bucket").query("delimiter", "/").query("marker", "a/");
    let next = door.send(next.query("encoding-type", "url")).await;
    assert_eq!(next.elements("Key"), ["b%20c", "z%01", "%C3%BC"]);
    assert_eq!(next.elements("CommonPrefixes").len(), 0);
}

#[tokio::test]
async fn keys_that_xml_cannot_carry_are_listed_and_deleted_in_documents_that_parse() {
    let door = Running::with_bucket().await;
    for key in ["a\rb", "c\u{1}"] {
        door.put(&format!("/bucket/{key}"), key).await;
    }
    for list in [Request::new("GET", "/bucket"), Request::new("GET", "/bucket").query("list-type", "2")] {
        let listed = door.send(list.clone()).await;
        assert_eq!(listed.elements("Key"), ["a&#13;b", "c\u{fffd}"]);
        let encoded = door.send(list.query("encoding-type", "url")).await;
        assert_eq!(encoded.elements("Key"), ["a%0Db", "c%01"]);
    }
    let object = "<Object><Key>a&#13;b</Key></Object>";
    let delete = Request::new("POST", "/bucket").query("delete", "").body(format!("<Delete>{object}</Delete>"));
    assert_eq!(door.send(delete).await.elements("Key"), ["a&#13;b"]);
    assert_eq!(door.get("/bucket/a\rb").await.status, 404);
    // An object's own bytes are sent as they are, whatever their type says.
    let object = put("/bucket/document").header("content-type", "application/xml").body("<a>\r\u{1}</a>");
    assert_eq!(door.send(object).await.status, 200);
    assert_eq!(door.get("/bucket/document").await.text(), "<a>\r\u{1}</a>");
}

#[tokio::test]
async fn the_attributes_of_an_object_have_its_entity_tag_without_quotes() {
    let door = Running::with_bucket().await;
    let etag = door.put("/bucket/key", "hello").await.header("etag").to_owned();
    let attributes = Request::new("GET", "/bucket/key").query("attributes", "");
    let attributes = door.send(attributes.header("x-amz-object-attributes", "ETag,ObjectSize")).await;
    assert_eq!((attributes.status, attributes.element("ObjectSize")), (200, "5".into()));
    assert_eq!(attributes.element("ETag"), etag.trim_matches('"'));
    let listed = door.send(Request::new("GET", "/bucket")).await;
    assert_eq!(listed.element("ETag"), etag);
}

#[tokio::test]
async fn many_objects_are_deleted_each_for_itself() {
    let door = Running::with_bucket().await;
    for key in ["one", "two", "three"] {
        door.put(&format!("/bucket/{key}"), "x").await;
    }
    let delete = |document: &str| Request::new("POST", "/bucket").query("delete", "").body(document);
    let objects = "<Object><Key>one</Key></Object><Object><Key>none</Key></Object>\
                   <Object><Key>two</Key><VersionId>7</VersionId></Object>\
                   <Object><Key>three</Key><ETag>\"other\"</ETag></Object>";
    let done = door.send(delete(&format!("<Delete>{objects}</Delete>"))).await;
    assert_eq!(done.status, 200, "{}", done.text());
    assert_eq!(done.elements("Code"), ["NotImplemented", "PreconditionFailed"]);
    assert_eq!(door.get("/bucket/one").await.status, 404);
    assert_eq!((door.get("/bucket/two").await.status, door.get("/bucket/three").await.status), (200, 200));
    let quiet = door.send(delete("<Delete><Quiet>true</Quiet><Object><Key>two</Key></Object></Delete>")).await;
    assert!(quiet.status == 200 && !quiet.text().contains("<Deleted>"));

    let many: String = (0..1001).map(|index| format!("<Object><Key>{index}</Key></Object>")).collect();
    let too_many = door.send(delete(&format!("<Delete>{many}</Delete>"))).await;
    assert_eq!(too_many.error(), (400, "MalformedXML".into()));
    for bad in ["<Delete></Delete>", "<Delete><Obj", "hello"] {
        assert_eq!(door.send(delete(bad)).await.error(), (400, "MalformedXML".into()), "{bad}");
    }
}

#[tokio::test]
async fn tags_are_set_read_and_removed() {
    let door = Running::with_bucket().await;
    door.put("/bucket/key", "x").await;
    let tagging = |method: &str| Request::new(method, "/bucket/key").query("tagging", "");
    let document = "<Tagging><TagSet><Tag><Key>a</Key><Value>1</Value></Tag></TagSet></Tagging>";
    assert_eq!(door.send(tagging("PUT").body(document)).await.status, 200);
    let read = door.send(tagging("GET")).await;
    assert_eq!((read.element("Key"), read.element("Value")), ("a".into(), "1".into()));
    assert_eq!(door.send(tagging("DELETE")).await.status, 204);
    assert_eq!(door.send(tagging("GET")).await.elements("Tag").len(), 0);
    let twice = "<Tag><Key>a</Key><Value>1</Value></Tag>".repeat(2);
    let twice = format!("<Tagging><TagSet>{twice}</TagSet></Tagging>");
    assert_eq!(door.send(tagging("PUT").body(twice)).await.error(), (400, "InvalidTag".into()));
    let many: String = (0..11).map(|index| format!("<Tag><Key>{index}</Key><Value>1</Value></Tag>")).collect();
    let many = format!("<Tagging><TagSet>{many}</TagSet></Tagging>");
    assert_eq!(door.send(tagging("PUT").body(many)).await.status, 400);
    let missing = Request::new("GET", "/bucket/none").query("tagging", "");
    assert_eq!(door.send(missing).await.error(), (404, "NoSuchKey".into()));
}
