//! Homes that move, and nodes that are lost.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nigh_data::{GetRequest, ObjectError, ObjectId};
use nigh_engine::LedgerError;
use nigh_objects::Shards;
use nigh_objects::cluster::HomeEvent;
use nigh_terms::{Epoch, NodeNumber, ShardId};
use tokio::sync::Mutex;

use crate::world::{SHARDS, World, bucket, key, request, who};

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_is_there_when_its_node_is_lost() {
    let Some(mut world) = World::start("what_was_acknowledged_is_there_when_its_node_is_lost", 3).await else {
        return;
    };
    for n in 0..30_u32 {
        world.nodes[&(n % 3)].put(&format!("k{n:02}"), &vec![n as u8; 3000 * n as usize]).await.unwrap();
    }
    world.nodes[&0].delete("k07").await.unwrap();
    world.lose(1).await;
    for node in world.nodes.values() {
        for n in 0..30 {
            let got = node.get(&format!("k{n:02}")).await;
            match n {
                7 => assert!(matches!(got, Err(ObjectError::NoSuchKey(_)))),
                _ => assert_eq!(got.unwrap(), vec![n as u8; 3000 * n]),
            }
        }
        assert_eq!(node.list().await.len(), 29);
    }
    world.nodes[&2].put("k07", b"again").await.unwrap();
    assert_eq!(world.nodes[&0].get("k07").await.unwrap(), b"again");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_a_home_that_fell_silent_is_answered_by_the_next_one_at_once() {
    let test = "who_waits_for_a_home_that_fell_silent_is_answered_by_the_next_one_at_once";
    let Some(mut world) = World::start(test, 3).await else { return };
    let name = world.names_at(0).next().unwrap();
    world.nodes[&0].put(&name, b"first").await.unwrap();
    world.nodes[&0].set_goes(false);
    let memory = world.nodes[&2].memory.clone();
    let (reader, name_read) = (memory.clone(), key(&name));
    let look = async move { reader.head(&who(), &bucket(), &name_read, GetRequest::default()).await.unwrap().size };
    let look = tokio::spawn(look);
    let name_written = key(&name);
    let put = tokio::spawn(async move { memory.put(&who(), &bucket(), &name_written, request(b"the second")).await });
    let mut asked = BTreeMap::new();
    while ["fetch", "write"].iter().any(|method| !asked.contains_key(method)) {
        tokio::time::sleep(Duration::from_millis(10)).await;
        asked.extend(world.nodes[&0].calls());
    }
    let object = ObjectId { namespace: who().namespace, bucket: bucket(), key: key(&name) };
    let shard = Shards::new(NonZeroU16::new(SHARDS).unwrap()).of(&object);
    world.give(shard, 1).await;
    // A call that nobody answers ends after fifteen seconds.
    let both = tokio::time::timeout(Duration::from_secs(8), async { (look.await.unwrap(), put.await.unwrap()) });
    let (size, put) = both.await.expect("they wait for the home that is silent");
    assert!(put.is_ok() && [5, 10].contains(&size), "{put:?}, {size}");
    assert_eq!(world.nodes[&1].get(&name).await.unwrap(), b"the second");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_a_home_that_is_about_to_begin_waits_there_until_it_has_begun() {
    let test = "who_asks_a_home_that_is_about_to_begin_waits_there_until_it_has_begun";
    let Some(mut world) = World::start(test, 3).await else { return };
    let name = world.names_at(0).next().unwrap();
    let shard = World::shard_of(&name);
    world.nodes[&0].put(&name, b"bytes").await.unwrap();
    world.name_home(shard, 1);
    world.nodes[&1].calls();
    let (memory, read) = (world.nodes[&2].memory.clone(), key(&name));
    let look = async move { memory.head(&who(), &bucket(), &read, GetRequest::default()).await.unwrap().size };
    let look = tokio::spawn(look);
    let mut asked = 0;
    while asked == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        asked += world.nodes[&1].calls().get("fetch").copied().unwrap_or_default();
    }
    // Longer than the time after which a refused request is sent again.
    tokio::time::sleep(Duration::from_millis(500)).await;
    asked += world.nodes[&1].calls().get("fetch").copied().unwrap_or_default();
    assert_eq!(asked, 1, "it was refused and asked again");
    world.give(shard, 1).await;
    assert_eq!(look.await.unwrap(), 5);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_has_asked_itself_before_its_home_began_is_answered_by_that_home() {
    let test = "a_node_that_has_asked_itself_before_its_home_began_is_answered_by_that_home";
    let Some(mut world) = World::start(test, 2).await else { return };
    let mut names = world.names_at(0);
    let (read, written) = (names.next().unwrap(), names.next().unwrap());
    drop(names);
    for name in [&read, &written] {
        world.nodes[&0].put(name, b"bytes").await.unwrap();
    }
    let shard = World::shard_of(&read);
    world.name_home(shard, 1);
    world.nodes[&1].set_goes(false);
    let memory = world.nodes[&1].memory.clone();
    let (reader, name_read) = (memory.clone(), key(&read));
    let look = async move { reader.head(&who(), &bucket(), &name_read, GetRequest::default()).await };
    let look = tokio::spawn(look);
    let name_written = key(&written);
    let put = tokio::spawn(async move { memory.put(&who(), &bucket(), &name_written, request(b"the second")).await });
    let mut asked = BTreeMap::new();
    while ["fetch", "write"].iter().any(|method| !asked.contains_key(method)) {
        tokio::time::sleep(Duration::from_millis(5)).await;
        asked.extend(world.nodes[&1].calls());
    }
    world.give(shard, 1).await;
    world.nodes[&1].set_goes(true);
    assert_eq!(look.await.unwrap().unwrap().size, 5);
    put.await.unwrap().unwrap();
    assert_eq!(world.nodes[&0].get(&written).await.unwrap(), b"the second");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_overtaken_as_it_took_a_shard_asks_the_home_that_overtook_it() {
    let test = "a_node_that_was_overtaken_as_it_took_a_shard_asks_the_home_that_overtook_it";
    let Some(world) = World::start(test, 2).await else { return };
    let name = world.names_at(0).next().unwrap();
    let shard = World::shard_of(&name);
    let (_, epoch) = world.epochs().into_iter().find(|(of, _)| *of == shard).unwrap();
    // It had taken the shard under an epoch before, and says so to itself after the map has told it of the home of now.
    world.nodes[&1].memory.home_is(shard, NodeNumber(1), Epoch(epoch.0 - 1));
    let put = tokio::time::timeout(Duration::from_secs(8), world.nodes[&1].put(&name, b"bytes")).await;
    put.expect("it asks itself for ever").unwrap();
    assert_eq!(world.nodes[&0].get(&name).await.unwrap(), b"bytes");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn homes_that_move_as_planned_fail_no_write() {
    let Some(world) = World::start("homes_that_move_as_planned_fail_no_write", 3).await else { return };
    let going = Arc::new(AtomicBool::new(true));
    let writers = world.nodes.values().map(|node| {
        let (memory, going, number) = (node.memory.clone(), Arc::clone(&going), node.member.node.0);
        tokio::spawn(async move {
            let mut round = 0;
            while going.load(Ordering::Relaxed) || round < 3 {
                for n in 0..8 {
                    let text = format!("{number} {round}");
                    let name = key(&format!("k{n}-{number}"));
                    let put = memory.put(&who(), &bucket(), &name, request(text.as_bytes())).await;
                    assert!(put.is_ok(), "{name} in {round}: {put:?}");
                }
                round += 1;
            }
            round - 1
        })
    });
    let writers: Vec<_> = writers.collect();
    let world = Arc::new(Mutex::new(world));
    for turn in 0..2 {
        for shard in 0..SHARDS {
            world.lock().await.hand_over(ShardId(shard), (u32::from(shard) + turn + 1) % 3).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    going.store(false, Ordering::Relaxed);
    let mut last = Vec::new();
    for writer in writers {
        last.push(writer.await.unwrap());
    }
    let world = Arc::into_inner(world).unwrap().into_inner();
    for node in world.nodes.values() {
        for (number, rounds) in last.iter().enumerate() {
            for n in 0..8 {
                let got = node.get(&format!("k{n}-{number}")).await.unwrap();
                assert_eq!(String::from_utf8(got).unwrap(), format!("{number} {rounds}"));
            }
        }
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_home_that_was_deposed_serves_nothing_stale() {
    let Some(mut world) = World::start("a_home_that_was_deposed_serves_nothing_stale", 2).await else { return };
    for n in 0..16 {
        world.nodes[&0].put(&format!("k{n}"), b"before").await.unwrap();
    }
    for shard in 0..SHARDS {
        // Nobody has told the one that had it.
        let (one, other) = (u32::from(shard) % 2, (u32::from(shard) + 1) % 2);
        world.give(ShardId(shard), other).await;
        assert!(world.nodes[&one].memory.newest_here().iter().any(|(of, _)| *of == ShardId(shard)));
    }
    for n in 0..16 {
        // A home finds out by its first write, which its client makes again.
        let name = format!("k{n}");
        while let Err(error) = world.nodes[&1].put(&name, b"after").await {
            assert!(matches!(error, ObjectError::Ledger(LedgerError::Fenced { .. })), "{name}: {error:?}");
        }
    }
    for node in world.nodes.values() {
        for n in 0..16 {
            assert_eq!(node.get(&format!("k{n}")).await.unwrap(), b"after", "k{n} at {:?}", node.member);
        }
    }
    for number in 0..2 {
        assert!(world.heard(number).iter().any(|event| matches!(event, HomeEvent::Deposed(..))));
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_is_of_homes_that_stand_and_not_of_deposed_ones() {
    let test = "a_listing_is_of_homes_that_stand_and_not_of_deposed_ones";
    let Some(mut world) = World::start(test, 2).await else { return };
    let now_at = |shard: ShardId| (u32::from(shard.0) + 1) % 2;
    for shard in (0..SHARDS).map(ShardId) {
        // Nobody has told the one that had it.
        world.give(shard, now_at(shard)).await;
    }
    let shards = Shards::new(NonZeroU16::new(SHARDS).unwrap());
    let names: Vec<String> = (0..16).map(|n| format!("k{n:02}")).collect();
    for name in &names {
        let object = ObjectId { namespace: who().namespace, bucket: bucket(), key: key(name) };
        world.nodes[&now_at(shards.of(&object))].put(name, b"new").await.unwrap();
    }
    for node in world.nodes.values() {
        assert_eq!(node.list().await, names, "at {:?}", node.member);
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_home_hears_of_its_ledger_too_late_is_the_next_ones() {
    let Some(mut world) = World::start("what_a_home_hears_of_its_ledger_too_late_is_the_next_ones", 2).await else {
        return;
    };
    let name = world.names_at(0).next().unwrap();
    let object = ObjectId { namespace: who().namespace, bucket: bucket(), key: key(&name) };
    let shard = Shards::new(NonZeroU16::new(SHARDS).unwrap()).of(&object);
    world.nodes[&0].answers.set_open(false);
    let (memory, written) = (world.nodes[&0].memory.clone(), key(&name));
    let put = tokio::spawn(async move { memory.put(&who(), &bucket(), &written, request(b"late")).await });
    while world.nodes[&0].answers.waiting() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    world.give(shard, 1).await;
    // It asks the ledger whether it stands, and knows then.
    assert!(world.nodes[&0].list().await.contains(&name), "the next home has found it");
    assert!(world.heard(0).iter().any(|event| matches!(event, HomeEvent::Deposed(of, _) if *of == shard)));
    assert_eq!(world.nodes[&1].get(&name).await.unwrap(), b"late");
    world.nodes[&1].delete(&name).await.unwrap();
    world.nodes[&0].answers.set_open(true);
    assert!(put.await.unwrap().is_err(), "nobody has told it where the write stands");
    assert_eq!(world.nodes[&0].list().await, Vec::<String>::new());
    // And when it is the home again.
    world.nodes[&1].memory.flush_all(Duration::from_secs(10)).await.unwrap();
    world.hand_over(shard, 0).await;
    world.nodes[&0].memory.flush_all(Duration::from_secs(10)).await.unwrap();
    for node in world.nodes.values() {
        assert_eq!(node.list().await, Vec::<String>::new(), "at {:?}", node.member);
        assert!(matches!(node.get(&name).await, Err(ObjectError::NoSuchKey(_))), "at {:?}", node.member);
    }
    world.end().await;
}
