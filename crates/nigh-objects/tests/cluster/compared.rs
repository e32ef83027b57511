//! What each protocol that Nigh's is compared with sends for a read and a write, and what it waits for.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nigh_objects::cluster::CoherenceProtocol;
use tokio::time::timeout;

use crate::world::World;

/// What is long enough for whatever is sent behind an answer.
const BEHIND: Duration = Duration::from_millis(300);

/// Calls to the home, and to each other node, that an act of node 1 on an object of node 0 has cost, all that is sent
/// behind its answer included.
async fn calls(world: &World, act: impl Future<Output = ()>) -> Vec<BTreeMap<&'static str, usize>> {
    tokio::time::sleep(BEHIND).await;
    world.nodes.values().for_each(|node| drop(node.calls()));
    act.await;
    tokio::time::sleep(BEHIND).await;
    world.nodes.values().map(crate::world::Node::calls).collect()
}

fn one(method: &'static str) -> BTreeMap<&'static str, usize> {
    BTreeMap::from([(method, 1)])
}

/// What a first read, a second one, and a write over copies on both other nodes cost.
struct Costs {
    first: Vec<BTreeMap<&'static str, usize>>,
    second: Vec<BTreeMap<&'static str, usize>>,
    write: Vec<BTreeMap<&'static str, usize>>,
}

async fn costs(test: &str, protocol: CoherenceProtocol) -> Option<Costs> {
    let world = World::start_with(test, 3, protocol).await?;
    let mut names = world.names_at(0);
    let (name, known) = (names.next().unwrap(), names.next().unwrap());
    // Nodes that have met: the shard's epoch, and what other homes had reached when it began, are asked once.
    world.nodes[&0].writes(&known, b"before").await;
    for node in world.nodes.values() {
        tokio::time::sleep(BEHIND).await;
        assert_eq!(node.reads(&known).await, b"before");
    }
    world.nodes[&0].writes(&name, b"first").await;
    let read = |number: u32, expected: &'static [u8]| {
        let (world, name) = (&world, &name);
        async move { assert_eq!(world.nodes[&number].reads(name).await, expected) }
    };
    let first = calls(&world, read(1, b"first")).await;
    let second = calls(&world, read(1, b"first")).await;
    read(2, b"first").await;
    let write = calls(&world, Box::pin(world.nodes[&1].writes(&name, b"second"))).await;
    for number in 0..3 {
        read(number, b"second").await;
    }
    drop(names);
    world.end().await;
    Some(Costs { first, second, write })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hit_sends_nothing_and_a_write_tells_the_others_behind_its_answer() {
    let test = "a_hit_sends_nothing_and_a_write_tells_the_others_behind_its_answer";
    let Some(Costs { first, second, write }) = costs(test, CoherenceProtocol::Nigh).await else { return };
    assert_eq!(first, [one("fetch"), BTreeMap::new(), BTreeMap::new()]);
    assert_eq!(second, vec![BTreeMap::new(); 3]);
    // The one reader beside the writer is told, and says that it knows.
    assert_eq!(write, [BTreeMap::from([("write", 1), ("post", 1)]), BTreeMap::new(), one("post")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_caches_each_read_fetches_and_nobody_is_told_of_writes() {
    let test = "without_caches_each_read_fetches_and_nobody_is_told_of_writes";
    let Some(Costs { first, second, write }) = costs(test, CoherenceProtocol::None).await else { return };
    assert_eq!(first, [one("fetch"), BTreeMap::new(), BTreeMap::new()]);
    assert_eq!(second, first);
    assert_eq!(write, [one("write"), BTreeMap::new(), BTreeMap::new()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_version_checks_each_hit_asks_once_and_nobody_is_told_of_writes() {
    let test = "with_version_checks_each_hit_asks_once_and_nobody_is_told_of_writes";
    let Some(Costs { first, second, write }) = costs(test, CoherenceProtocol::VersionCheck).await else { return };
    assert_eq!(first, [one("fetch"), BTreeMap::new(), BTreeMap::new()]);
    // The question is a fetch of what is known, without the bytes.
    assert_eq!(second, [one("fetch"), BTreeMap::new(), BTreeMap::new()]);
    assert_eq!(write, [one("write"), BTreeMap::new(), BTreeMap::new()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_synchronous_invalidations_a_hit_sends_nothing() {
    let test = "with_synchronous_invalidations_a_hit_sends_nothing";
    let Some(Costs { first, second, write }) = costs(test, CoherenceProtocol::Synchronous).await else { return };
    assert_eq!(first, [one("fetch"), BTreeMap::new(), BTreeMap::new()]);
    assert_eq!(second, vec![BTreeMap::new(); 3]);
    assert_eq!(write, [BTreeMap::from([("write", 1), ("post", 1)]), BTreeMap::new(), one("post")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_version_checks_the_bytes_do_not_travel_again() {
    let Some(world) =
        World::start_with("with_version_checks_the_bytes_do_not_travel_again", 2, CoherenceProtocol::VersionCheck)
            .await
    else {
        return;
    };
    let name = world.names_at(0).next().unwrap();
    let large = vec![7; 1 << 20];
    world.nodes[&0].writes(&name, &large).await;
    for _ in 0..5 {
        assert_eq!(world.nodes[&1].reads(&name).await, large);
    }
    let usage = world.nodes[&1].memory.usage();
    assert_eq!((usage.hits, usage.misses), (4, 1), "{usage:?}");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_caches_what_is_read_is_kept_by_nobody_but_the_home() {
    let test = "without_caches_what_is_read_is_kept_by_nobody_but_the_home";
    let Some(world) = World::start_with(test, 2, CoherenceProtocol::None).await else { return };
    let name = world.names_at(0).next().unwrap();
    let large = vec![9; 1 << 20];
    // Written where its home is not, either.
    world.nodes[&1].writes(&name, &large).await;
    for _ in 0..3 {
        assert_eq!(world.nodes[&1].reads(&name).await, large);
        assert_eq!(world.nodes[&0].reads(&name).await, large);
    }
    let [home, reader] = [0, 1].map(|number| world.nodes[&number].memory.usage());
    assert_eq!((home.hits, reader.hits, reader.misses, reader.past), (3, 0, 0, 3), "{home:?} {reader:?}");
    assert_eq!(reader.objects, 0);
    world.end().await;
}

/// How long a write takes whose only sharer has stopped, or that it was not over in `within`.
async fn write_beside_a_stopped_sharer(
    test: &str,
    protocol: CoherenceProtocol,
    within: Duration,
) -> Option<Option<Duration>> {
    let world = World::start_with(test, 3, protocol).await?;
    let name = world.names_at(0).next().unwrap();
    world.nodes[&0].writes(&name, b"first").await;
    assert_eq!(world.nodes[&2].reads(&name).await, b"first");
    world.nodes[&2].set_goes(false);
    let begun = Instant::now();
    let written = timeout(within, world.nodes[&1].writes(&name, b"second")).await.is_ok().then(|| begun.elapsed());
    world.nodes[&2].set_goes(true);
    if written.is_none() {
        // It ends as soon as the sharer goes on: it was that which it waited for.
        let again = timeout(Duration::from_secs(5), world.nodes[&1].writes(&name, b"third")).await;
        assert!(again.is_ok());
        assert_eq!(world.nodes[&2].reads(&name).await, b"third");
    }
    world.end().await;
    Some(written)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_synchronous_write_waits_for_a_stopped_sharer_and_nigh_s_does_not() {
    let within = Duration::from_secs(3);
    let test = "a_synchronous_write_waits_for_a_stopped_sharer_and_nigh_s_does_not";
    let Some(ours) = write_beside_a_stopped_sharer(test, CoherenceProtocol::Nigh, within).await else { return };
    assert!(ours.is_some(), "a write waited for a stopped sharer");
    let Some(checked) = write_beside_a_stopped_sharer(test, CoherenceProtocol::VersionCheck, within).await else {
        return;
    };
    assert!(checked.is_some());
    let Some(theirs) = write_beside_a_stopped_sharer(test, CoherenceProtocol::Synchronous, within).await else {
        return;
    };
    assert_eq!(theirs, None, "a synchronous write was acknowledged before its sharer had dropped its copy");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_synchronous_write_goes_on_when_its_sharer_is_given_up() {
    let within = Duration::from_secs(14);
    let test = "a_synchronous_write_goes_on_when_its_sharer_is_given_up";
    let Some(took) = write_beside_a_stopped_sharer(test, CoherenceProtocol::Synchronous, within).await else { return };
    // The home gives a silent node up after ten seconds.
    let took = took.unwrap();
    assert!(took > Duration::from_secs(9), "{took:?}");
}
