//! What callers see of objects whose homes are anywhere.

use std::time::Duration;

use nigh_data::{GetRequest, ObjectError, PutRequest, RangeSpec, Tags, WriteConditions};

use crate::world::{CACHED, World, bucket, key, request, who};

fn bytes(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|n| ((n * 7 + seed) % 251) as u8).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_node_reads_what_any_has_written() {
    let Some(world) = World::start("every_node_reads_what_any_has_written", 3).await else { return };
    for (n, length) in [0, 1, 1000, 70_000, 1 << 20, CACHED, CACHED + 1, 3 * CACHED].into_iter().enumerate() {
        let (name, content) = (format!("object-{n}"), bytes(length, n));
        let done = world.nodes[&(n as u32 % 3)].put(&name, &content).await.unwrap();
        for node in world.nodes.values() {
            assert!(node.get(&name).await.unwrap() == content, "{name} at {:?}", node.member);
            let meta = node.memory.head(&who(), &bucket(), &key(&name), GetRequest::default()).await.unwrap();
            assert_eq!((meta.version, &meta.etag, meta.size), (done.version, &done.etag, length as u64));
        }
    }
    for node in world.nodes.values() {
        for n in 0..8 {
            let range = Some(RangeSpec::Suffix(10));
            let request = GetRequest { range, ..GetRequest::default() };
            let got = node.memory.get(&who(), &bucket(), &key(&format!("object-{n}")), request).await;
            match n {
                0 => assert!(matches!(got, Err(ObjectError::InvalidRange { size: 0 }))),
                _ => assert!(got.is_ok(), "{n}"),
            }
        }
        assert!(matches!(node.get("nothing").await, Err(ObjectError::NoSuchKey(_))));
        assert_eq!(node.list().await, (0..8).map(|n| format!("object-{n}")).collect::<Vec<_>>());
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_over_each_other_are_seen_everywhere_at_once() {
    let Some(world) = World::start("writes_over_each_other_are_seen_everywhere_at_once", 3).await else { return };
    for round in 0..5_u32 {
        for n in 0..16 {
            let name = format!("k{n}");
            world.nodes[&((n + round) % 3)].put(&name, format!("{n} in {round}").as_bytes()).await.unwrap();
            for node in world.nodes.values() {
                assert_eq!(node.get(&name).await.unwrap(), format!("{n} in {round}").as_bytes());
            }
        }
    }
    world.nodes[&1].delete("k3").await.unwrap();
    world.nodes[&2].delete("k4").await.unwrap();
    for node in world.nodes.values() {
        for gone in ["k3", "k4"] {
            assert!(matches!(node.get(gone).await, Err(ObjectError::NoSuchKey(_))));
        }
        assert_eq!(node.list().await.len(), 14);
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_and_tags_are_decided_at_the_home() {
    let Some(world) = World::start("conditions_and_tags_are_decided_at_the_home", 3).await else { return };
    let only_new = || PutRequest {
        conditions: WriteConditions { if_absent: true, ..WriteConditions::default() },
        ..request(b"mine")
    };
    for n in 0..12 {
        let name = key(&format!("k{n}"));
        let (caller, bucket) = (who(), bucket());
        let puts = world.nodes.values().map(|node| node.memory.put(&caller, &bucket, &name, only_new()));
        let (won, lost): (Vec<_>, Vec<_>) = futures::future::join_all(puts).await.into_iter().partition(Result::is_ok);
        assert_eq!(won.len(), 1, "{lost:?}");
        for lost in lost {
            let error = lost.unwrap_err();
            let expected =
                matches!(error, ObjectError::PreconditionFailed(_) | ObjectError::ConditionalRequestConflict);
            assert!(expected, "{error:?}");
        }
        let tags = Tags::from([("round".to_owned(), n.to_string())]);
        world.nodes[&(n % 3)].memory.put_tags(&caller, &bucket, &name, tags.clone()).await.unwrap();
        for node in world.nodes.values() {
            assert_eq!(node.memory.get_tags(&caller, &bucket, &name).await.unwrap(), tags);
        }
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_pushed_and_forgotten_is_read_on() {
    let Some(world) = World::start("what_is_pushed_and_forgotten_is_read_on", 3).await else { return };
    for n in 0..12 {
        world.nodes[&(n % 3)].put(&format!("k{n}"), &bytes(5000, n as usize)).await.unwrap();
    }
    for node in world.nodes.values() {
        node.memory.flush_all(Duration::from_secs(30)).await.unwrap();
        node.memory.set_cache_budget(nigh_terms::ByteSize::ZERO);
        node.memory.set_cache_budget(nigh_terms::ByteSize::mib(64));
    }
    for node in world.nodes.values() {
        for n in 0..12 {
            assert_eq!(node.get(&format!("k{n}")).await.unwrap(), bytes(5000, n));
        }
        assert_eq!(node.list().await.len(), 12);
    }
    world.end().await;
}
