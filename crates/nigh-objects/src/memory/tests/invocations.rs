//! Invocations at the gate: the token that they begin with, what joins it, and when they have ended.

use nigh_protocol::GateRefusal;
use nigh_terms::{FunctionName, InvocationId, Monotonic, SandboxId, ShardId, Token};

use super::*;
use crate::memory::invocations::FRONTIERS_MAX;

const WITHIN: Duration = Duration::from_secs(30);

fn token(shard: ShardId, version: Version) -> Token {
    let mut token = Token::empty();
    token.see(shard, version);
    token
}

impl Fixture {
    async fn begin(&self, seen: &Token) -> InvocationId {
        let id = InvocationId::now();
        self.memory.begin_invocation(&self.who.namespace, id, seen).await.unwrap();
        id
    }

    /// The principal of invocation `id`.
    fn inside(&self, id: InvocationId) -> Principal {
        Principal::inside(self.who.namespace.clone(), FunctionName::new("f").unwrap(), SandboxId::random(), id)
    }

    async fn put_by(&self, id: InvocationId, name: &str, request: PutRequest) -> Result<PutDone, ObjectError> {
        self.memory.put(&self.inside(id), &self.bucket, &key(name), request).await
    }

    fn seen(&self, id: InvocationId) -> Option<Version> {
        self.memory.seen_by(id).get(ShardId(0))
    }

    fn known(&self) -> (usize, usize) {
        self.memory.0.coherence.invocations.lock().len()
    }
}

#[tokio::test]
async fn an_invocation_begins_with_what_ended_ones_and_writers_outside_had_seen() {
    let f = Fixture::new().await;
    let before = f.put("a", b"before").await;
    let first = f.begin(&Token::empty()).await;
    assert_eq!(f.seen(first), Some(before.version), "a namespace that is met begins with what the home knows");
    let written = f.put_by(first, "b", body(b"1")).await.unwrap();
    let beside = f.begin(&Token::empty()).await;
    assert_eq!(f.seen(beside), Some(before.version), "it has not ended");
    assert_eq!(f.memory.end_invocation(first, WITHIN).await, token(ShardId(0), written.version));
    let next = f.begin(&Token::empty()).await;
    assert_eq!(f.seen(next), Some(written.version));
    let outside = f.put("c", b"outside").await;
    let last = f.begin(&Token::empty()).await;
    assert_eq!((f.seen(last), f.seen(next)), (Some(outside.version), Some(written.version)));
    let deleted = f.put("d", b"x").await.version;
    f.delete("d").await;
    f.memory.invalidate(&f.who, &f.bucket, &key("a"));
    let after = f.begin(&Token::empty()).await;
    assert!(f.seen(after) > Some(deleted), "deletions, and what others wrote, are handed over too");
    for id in [beside, next, last, after] {
        f.memory.abandon_invocation(id);
    }
    assert_eq!(f.known(), (0, 1));
}

#[tokio::test]
async fn whatever_shows_a_version_joins_it_and_who_called_another_has_seen_what_that_had() {
    let f = Fixture::new().await;
    let begun = async || {
        let id = f.begin(&Token::empty()).await;
        (id, f.inside(id))
    };
    // Each begins before its write, so that only the call can show it the write.
    let (got, who) = begun().await;
    let first = f.put("a", b"1").await.version;
    f.memory.get(&who, &f.bucket, &key("a"), GetRequest::default()).await.unwrap();
    assert_eq!(f.seen(got), Some(first));
    let (looked, who) = begun().await;
    let second = f.put("a", b"2").await.version;
    f.memory.head(&who, &f.bucket, &key("a"), GetRequest::default()).await.unwrap();
    assert_eq!((f.seen(looked), f.seen(got)), (Some(second), Some(first)));
    let (tagged, who) = begun().await;
    let third = f.put("a", b"3").await;
    f.memory.get_tags(&who, &f.bucket, &key("a")).await.unwrap();
    assert_eq!(f.seen(tagged), Some(third.version));

    let (unchanged, who) = begun().await;
    let fourth = f.put("a", b"3").await;
    let conditions = ReadConditions { if_none_match: Some(vec![fourth.etag.clone()]), ..ReadConditions::default() };
    let request = GetRequest { conditions, ..GetRequest::default() };
    let refused = f.memory.get(&who, &f.bucket, &key("a"), request).await;
    assert!(matches!(refused, Err(ObjectError::NotModified { .. })));
    assert_eq!(f.seen(unchanged), Some(fourth.version));
    let (refused, who) = begun().await;
    let fifth = f.put("a", b"4").await;
    let conditions = WriteConditions { if_match: Some(third.etag.clone()), ..WriteConditions::default() };
    let put = f.memory.put(&who, &f.bucket, &key("a"), PutRequest { conditions, ..body(b"5") }).await;
    assert!(matches!(put, Err(ObjectError::PreconditionFailed(_))));
    assert_eq!(f.seen(refused), Some(fifth.version));
    let (missed, who) = begun().await;
    f.delete("a").await;
    assert!(f.memory.get(&who, &f.bucket, &key("a"), GetRequest::default()).await.is_err());
    assert!(f.seen(missed) > Some(fifth.version));
    let (listed, who) = begun().await;
    let sixth = f.put("b", b"6").await;
    f.memory.list(&who, &f.bucket, ListRequest { limit: 9, ..ListRequest::default() }).await.unwrap();
    assert_eq!(f.seen(listed), Some(sixth.version));

    f.memory.told_of(got, &f.memory.seen_by(listed));
    assert_eq!(f.seen(got), Some(sixth.version));
}

#[tokio::test]
async fn a_write_carries_what_its_writer_had_seen_and_a_reader_sees_that() {
    const OTHER: ShardId = ShardId(7);
    let f = Fixture::new().await;
    // Another home with a later epoch, which this node has met: it covers the earlier one.
    let (then, now) = (Version { epoch: Epoch(1), sequence: nigh_terms::Sequence(5) }, Epoch(2));
    f.memory.0.coherence.state.lock().node.cache.meet(Monotonic(0), OTHER, now, &mut Vec::new());
    let writer = f.begin(&token(OTHER, then)).await;
    let done = f.put_by(writer, "a", body(b"1")).await.unwrap();
    assert_eq!(done.token, token(OTHER, then));
    let reader = InvocationId::now();
    f.memory.begin_invocation(&Namespace::new("other").unwrap(), reader, &Token::empty()).await.unwrap();
    assert_eq!(f.memory.seen_by(reader).get(OTHER), None);
    let got = f.memory.get(&f.inside(reader), &f.bucket, &key("a"), GetRequest::default()).await.unwrap();
    assert_eq!((got.version, &got.token), (done.version, &done.token));
    assert_eq!(f.memory.seen_by(reader).get(OTHER), Some(then));
    assert_eq!(f.put("b", b"outside").await.token, Token::empty());
}

#[tokio::test]
async fn an_end_waits_for_the_fate_of_each_write_and_another_attempt_for_those_of_the_first() {
    let f = Fixture::new().await;
    let id = f.begin(&Token::empty()).await;
    let gate = f.store.close(Point::PutAsked);
    let (memory, who, bucket) = (f.memory.clone(), f.inside(id), f.bucket.clone());
    let putting = tokio::spawn(async move { memory.put(&who, &bucket, &key("slow"), body(b"1")).await });
    gate.arrival().await;
    let told = f.memory.end_invocation(id, Duration::from_millis(10)).await;
    f.memory.begin_invocation(&f.who.namespace, id, &Token::empty()).await.unwrap();
    let ending = f.memory.end_invocation(id, WITHIN);
    let mut ending = std::pin::pin!(ending);
    assert!(tokio::time::timeout(Duration::from_millis(10), &mut ending).await.is_err(), "it may yet take place");
    gate.let_one_on();
    let written = putting.await.unwrap().unwrap().version;
    assert_eq!(ending.await, token(ShardId(0), written));
    assert!(told.get(ShardId(0)) < Some(written));
    assert_eq!((f.seen(f.begin(&Token::empty()).await), f.known()), (Some(written), (1, 1)));
}

#[tokio::test]
async fn a_write_after_its_invocations_end_is_one_from_outside() {
    let f = Fixture::new().await;
    let id = f.begin(&Token::empty()).await;
    f.memory.end_invocation(id, WITHIN).await;
    let late = f.put_by(id, "a", body(b"late")).await.unwrap();
    assert_eq!(f.seen(f.begin(&Token::empty()).await), Some(late.version));
}

#[tokio::test]
async fn a_node_that_is_behind_lets_a_dispatch_wait_and_refuses_it_in_time() {
    let f = Fixture::new().await;
    let newest = f.put("a", b"1").await.version;
    let ahead = token(ShardId(0), Version { sequence: newest.sequence.next(), ..newest });
    let dispatched = || {
        let (memory, namespace, ahead) = (f.memory.clone(), f.who.namespace.clone(), ahead.clone());
        let id = InvocationId::now();
        (id, tokio::spawn(async move { memory.begin_invocation(&namespace, id, &ahead).await }))
    };
    let (id, waiting) = dispatched();
    until(|| f.known().0 == 1).await;
    f.put("a", b"2").await;
    waiting.await.unwrap().unwrap();
    f.memory.abandon_invocation(id);

    let newest = f.put("a", b"3").await.version;
    let far = token(ShardId(0), Version { sequence: nigh_terms::Sequence(newest.sequence.0 + 100), ..newest });
    let (memory, namespace) = (f.memory.clone(), Namespace::new("other").unwrap());
    let refused = tokio::spawn(async move { memory.begin_invocation(&namespace, InvocationId::now(), &far).await });
    until(|| f.known().0 == 1).await;
    f.clock.advance(Duration::from_secs(2));
    f.put("a", b"4").await;
    assert_eq!(refused.await.unwrap(), Err(GateRefusal::NotCovered));
    assert_eq!(f.known().0, 0);
}

#[tokio::test]
async fn who_hangs_up_before_its_invocation_begins_leaves_nothing() {
    let f = Fixture::new().await;
    let newest = f.put("a", b"1").await.version;
    let far = token(ShardId(0), Version { sequence: nigh_terms::Sequence(newest.sequence.0 + 5), ..newest });
    let waits = f.memory.begin_invocation(&f.who.namespace, InvocationId::now(), &far);
    assert!(tokio::time::timeout(Duration::from_millis(10), waits).await.is_err());
    assert_eq!(f.known().0, 1);
    for _ in 0..5 {
        f.put("a", b"2").await;
    }
    f.memory.0.coherence.tick(Monotonic(0));
    assert_eq!(f.known().0, 0);
}

#[tokio::test]
async fn so_many_namespaces_are_remembered_and_one_that_was_forgotten_has_seen_all() {
    let f = Fixture::new().await;
    f.memory.abandon_invocation(f.begin(&Token::empty()).await);
    for n in 1..FRONTIERS_MAX {
        let (namespace, id) = (Namespace::new(&format!("tenant-{n}")).unwrap(), InvocationId::now());
        f.memory.begin_invocation(&namespace, id, &Token::empty()).await.unwrap();
        f.memory.abandon_invocation(id);
    }
    assert_eq!(f.known(), (0, FRONTIERS_MAX));
    let newest = f.put("a", b"1").await.version;
    let id = InvocationId::now();
    f.memory.begin_invocation(&Namespace::new("one-more").unwrap(), id, &Token::empty()).await.unwrap();
    assert_eq!(f.known(), (1, 1));
    assert_eq!(f.seen(f.begin(&Token::empty()).await), Some(newest));
}
