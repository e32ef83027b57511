//! Mode `shadow`: outside readers and writers of the store, which tells a node that is not the home.

use std::time::Duration;

use md5::{Digest, Md5};
use nigh_data::segment::Segment;
use nigh_data::{Attributes, ETag, ObjectMeta, Tags};
use nigh_objects::{PushOutcome, WriteMode, WriteSettings};
use nigh_stores::{Payload, Store};
use nigh_terms::{Timestamp, Token, Version};

use crate::world::{World, object};

const LEASE: Duration = Duration::from_secs(60);

/// Three nodes that push on demand alone.
async fn start(test: &str) -> Option<World> {
    let delay = Duration::from_secs(3600);
    World::start_writing(test, 3, WriteSettings { mode: WriteMode::Shadow, delay, ..WriteSettings::default() }).await
}

/// The version whose placeholder the store shows, and the bytes that it has.
async fn at_store(world: &World, name: &str) -> (Option<Version>, Option<Vec<u8>>) {
    let shown = world.placeholders.as_ref().unwrap().shown(&object(name));
    (shown, world.stored(name).await)
}

async fn others_write(world: &World, name: &str, bytes: &[u8]) {
    let md5: String = Md5::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let meta = ObjectMeta {
        size: bytes.len() as u64,
        etag: ETag(md5),
        modified: Timestamp(5),
        attributes: Attributes::default(),
        tags: Tags::new(),
        checksums: Vec::new(),
        parts: Vec::new(),
        version: Version::OUTSIDE,
        token: Token::empty(),
    };
    let payload = Payload::Segment(Segment::copy_of(bytes).unwrap());
    world.store.put(&object(name), &payload, &meta).await.unwrap();
    world.placeholders.as_ref().unwrap().stored(&object(name), Version::OUTSIDE);
}

/// Clients outside, and invocations after them, read this at every node.
async fn assert_read_everywhere(world: &World, name: &str, bytes: &[u8]) {
    for node in world.nodes.values() {
        assert_eq!(node.get(name).await.unwrap(), bytes, "at {:?}", node.member);
        assert_eq!(node.reads(name).await, bytes, "inside, at {:?}", node.member);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_placeholder_is_pushed_for_its_reader_whichever_node_is_told_and_wherever_its_home_is() {
    let test = "a_placeholder_is_pushed_for_its_reader_whichever_node_is_told_and_wherever_its_home_is";
    let Some(mut world) = start(test).await else { return };
    let name = world.names_at(1).next().unwrap();
    let (one, shard) = (object(&name), World::shard_of(&name));

    let first = world.nodes[&0].put(&name, b"first").await.unwrap().version;
    assert_eq!(at_store(&world, &name).await, (Some(first), None));
    let pushed = world.nodes[&2].memory.push_now(&one, first).await.unwrap();
    assert_eq!((pushed, at_store(&world, &name).await), (PushOutcome::Pushed, (None, Some(b"first".to_vec()))));

    // The store tells the node that placed the placeholder.
    let second = world.nodes[&0].put(&name, b"second").await.unwrap().version;
    world.hand_over(shard, 0).await;
    assert_eq!(at_store(&world, &name).await.0, Some(second));
    assert_eq!(world.nodes[&1].memory.push_now(&one, second).await.unwrap(), PushOutcome::Pushed);
    assert_eq!(at_store(&world, &name).await, (None, Some(b"second".to_vec())));
    assert_eq!(world.nodes[&1].memory.push_now(&one, first).await.unwrap(), PushOutcome::Superseded);

    // A former home that does not know that it is one.
    world.give(shard, 2).await;
    assert!(world.nodes[&0].memory.newest_here().iter().any(|(of, _)| *of == shard));
    let third = world.nodes[&2].put(&name, b"third").await.unwrap().version;
    assert_eq!(world.nodes[&0].memory.push_now(&one, third).await.unwrap(), PushOutcome::Pushed);
    assert_eq!(at_store(&world, &name).await, (None, Some(b"third".to_vec())));
    assert_read_everywhere(&world, &name, b"third").await;

    // Its home is lost with the placeholder in the store.
    let fourth = world.nodes[&0].put(&name, b"fourth").await.unwrap().version;
    world.lose(2).await;
    assert_eq!(at_store(&world, &name).await.0, Some(fourth));
    assert_eq!(world.nodes[&1].memory.push_now(&one, fourth).await.unwrap(), PushOutcome::Pushed);
    assert_eq!(at_store(&world, &name).await, (None, Some(b"fourth".to_vec())));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outside_write_is_settled_with_the_home_whichever_node_is_told_and_also_with_the_next_home() {
    let test = "an_outside_write_is_settled_with_the_home_whichever_node_is_told_and_also_with_the_next_home";
    let Some(mut world) = start(test).await else { return };
    let name = world.names_at(1).next().unwrap();
    let (one, shard) = (object(&name), World::shard_of(&name));
    world.nodes[&0].put(&name, b"ours").await.unwrap();
    let told = world.nodes[&2].memory.clone();
    told.outside_write_begins(&one, "t", LEASE).await.unwrap();
    let pushed = (None, Some(b"ours".to_vec()));
    assert_eq!(at_store(&world, &name).await, pushed, "pushed before the begin is answered");
    assert_read_everywhere(&world, &name, b"ours").await;
    // No node has cached what it read while others write.
    others_write(&world, &name, b"theirs").await;
    assert_read_everywhere(&world, &name, b"theirs").await;
    world.nodes[&0].put(&name, b"through").await.unwrap();
    assert_eq!(at_store(&world, &name).await, (None, Some(b"through".to_vec())));
    others_write(&world, &name, b"theirs again").await;
    assert_read_everywhere(&world, &name, b"theirs again").await;

    world.hand_over(shard, 0).await;
    world.tell_home(shard);
    let goes_through = async {
        // The begin pushes a shadow too; what is written after that goes through.
        let mut in_a_row = 0;
        while in_a_row < 2 {
            world.nodes[&1].put(&name, b"through again").await.unwrap();
            let is_there = at_store(&world, &name).await == (None, Some(b"through again".to_vec()));
            in_a_row = if is_there { in_a_row + 1 } else { 0 };
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let heard = tokio::time::timeout(Duration::from_secs(10), goes_through).await;
    heard.expect("the next home hears of the write from the node that was told");
    others_write(&world, &name, b"theirs at last").await;
    told.outside_write_ended(&one, "t", Some(true)).await.unwrap();
    assert_read_everywhere(&world, &name, b"theirs at last").await;
    let last = world.nodes[&1].put(&name, b"ours at last").await.unwrap().version;
    assert_eq!(at_store(&world, &name).await, (Some(last), Some(b"theirs at last".to_vec())), "a shadow again");
    assert_read_everywhere(&world, &name, b"ours at last").await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_that_no_home_acts_on_is_refused_within_a_bound() {
    let test = "a_report_that_no_home_acts_on_is_refused_within_a_bound";
    let Some(world) = start(test).await else { return };
    let name = world.names_at(1).next().unwrap();
    let version = world.nodes[&0].put(&name, b"ours").await.unwrap().version;
    world.nodes[&1].set_goes(false);
    let memory = &world.nodes[&2].memory;
    let one = object(&name);
    let (begun, pushed) = tokio::join!(memory.outside_write_begins(&one, "t", LEASE), memory.push_now(&one, version));
    assert!(begun.is_err() && pushed.is_err(), "{begun:?} {pushed:?}");
    assert_eq!(at_store(&world, &name).await.0, Some(version), "nothing is overwritten: the writer is refused");
    world.nodes[&1].set_goes(true);
    // One of the reports may still be acted on.
    assert_ne!(memory.push_now(&one, version).await.unwrap(), PushOutcome::Unknown);
    assert_eq!(at_store(&world, &name).await, (None, Some(b"ours".to_vec())));
    world.end().await;
}
