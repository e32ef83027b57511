//! Transactions by plain requests.

use crate::client::{Request, Response};
use crate::running::Running;
use crate::sign::Payload;

impl Running {
    async fn begin(&self) -> String {
        let begun = self.send(Request::new("POST", "/").query("transaction", "")).await;
        assert_eq!(begun.status, 200, "{}", begun.text());
        assert_eq!(begun.element("TransactionId"), begun.header("x-nigh-transaction"));
        begun.element("TransactionId")
    }

    async fn in_one(&self, name: &str, method: &str, path: &str, body: &str) -> Response {
        self.send(Request::new(method, path).header("x-nigh-transaction", name).body(body)).await
    }

    async fn commit(&self, name: &str) -> Response {
        self.send(Request::new("POST", "/").query("transaction", name)).await
    }
}

async fn start() -> Running {
    let door = Running::start_with_journal().await;
    assert_eq!(door.send(Request::new("PUT", "/bucket")).await.status, 200);
    door
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_is_seen_whole_or_not_at_all_over_http() {
    let door = start().await;
    let name = door.begin().await;
    assert_eq!(door.in_one(&name, "PUT", "/bucket/a&b", "one").await.status, 200);
    assert_eq!(door.in_one(&name, "PUT", "/bucket/b", "two").await.status, 200);
    assert_eq!(door.in_one(&name, "GET", "/bucket/b", "").await.body, b"two");
    let ranged = Request::new("GET", "/bucket/b").header("x-nigh-transaction", &name).header("range", "bytes=1-");
    let ranged = door.send(ranged).await;
    assert_eq!((ranged.status, ranged.body.as_slice()), (206, b"wo".as_slice()));
    assert_eq!(door.get("/bucket/b").await.status, 404);
    let committed = door.commit(&name).await;
    assert_eq!((committed.status, committed.elements("Key")), (200, vec!["a&amp;b".to_owned(), "b".to_owned()]));
    assert_eq!((door.get("/bucket/a&b").await.body, door.get("/bucket/b").await.body), (b"one".into(), b"two".into()));
    // A client that did not hear asks again.
    assert_eq!(door.commit(&name).await.status, 200);
    assert_eq!(door.in_one(&name, "GET", "/bucket/b", "").await.error(), (404, "NoSuchTransaction".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_changed_is_named_with_409_and_nothing_is_written() {
    let door = start().await;
    door.put("/bucket/a", "0").await;
    let name = door.begin().await;
    assert_eq!(door.in_one(&name, "GET", "/bucket/a", "").await.status, 200);
    assert_eq!(door.in_one(&name, "HEAD", "/bucket/none", "").await.status, 404);
    assert_eq!(door.in_one(&name, "PUT", "/bucket/b", "1").await.status, 200);
    door.put("/bucket/a", "theirs").await;
    door.put("/bucket/none", "theirs").await;
    let refused = door.commit(&name).await;
    assert_eq!(refused.error(), (409, "TransactionConflict".to_owned()));
    let message = refused.element("Message");
    assert!(message.contains("bucket/a, bucket/none"), "{message}");
    assert_eq!(door.get("/bucket/b").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_is_given_up_or_another_s_or_kept_elsewhere_is_refused() {
    let door = start().await;
    let name = door.begin().await;
    assert_eq!(door.in_one(&name, "PUT", "/bucket/a", "1").await.status, 200);
    let given_up = door.send(Request::new("DELETE", "/").query("transaction", &name)).await;
    assert_eq!(given_up.status, 204);
    assert_eq!(door.commit(&name).await.error(), (404, "NoSuchTransaction".to_owned()));
    let elsewhere = format!("7-{}", "0".repeat(32));
    let refused = door.in_one(&elsewhere, "PUT", "/bucket/a", "1").await;
    assert_eq!(refused.error(), (400, "TransactionElsewhere".to_owned()));
    assert!(refused.element("Message").contains("node 7"), "{}", refused.text());
    assert_eq!(door.in_one("nonsense", "GET", "/bucket/a", "").await.error(), (400, "InvalidArgument".to_owned()));
    let (_, sandbox) = door.sandbox();
    let mine = door.begin().await;
    let theirs = sandbox.sign(Request::new("POST", "/").query("transaction", &mine), Payload::Signed);
    let theirs = door.send_raw(&theirs).await;
    assert!(theirs.status >= 400, "{}", theirs.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_in_a_transaction_is_refused_there() {
    let door = start().await;
    door.put("/bucket/a", "0").await;
    let name = door.begin().await;
    let listed = door.send(Request::new("GET", "/bucket").query("list-type", "2").header("x-nigh-transaction", &name));
    assert_eq!(listed.await.error(), (400, "InvalidRequest".to_owned()));
    let copied = Request::new("PUT", "/bucket/b").header("x-amz-copy-source", "/bucket/a");
    let copied = door.send(copied.header("x-nigh-transaction", &name)).await;
    assert_eq!(copied.error(), (400, "InvalidRequest".to_owned()));
    // A header that the signature does not cover could be anybody's.
    let mut unsigned = door.signer.sign(Request::new("GET", "/bucket/a"), Payload::Signed);
    unsigned.headers.push(("x-nigh-transaction".to_owned(), name));
    assert_eq!(door.send_raw(&unsigned).await.error(), (403, "AccessDenied".to_owned()));
}
