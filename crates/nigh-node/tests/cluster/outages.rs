//! Servers that are away: of one nobody hears, of two everybody waits, and nobody's life ends.

use std::sync::Arc;
use std::time::Duration;

use nigh_engine::RequestId;
use nigh_engine::nats::TTL;
use nigh_node::cluster::ClusterEngine;
use nigh_terms::{Clock as _, ShardId, SystemClock};
use tokio::time::{sleep, timeout};

use crate::host::{Home, World};
use crate::support::{PATIENCE, Trial, until};

const SHARDS: u16 = 4;

async fn node(trial: &Trial, name: &str, world: &Arc<World>) -> (ClusterEngine, Arc<Home>) {
    let engine = trial.join(name).await;
    let home = Home::new(engine.ledger().clone(), Arc::clone(world), SHARDS);
    engine.serve(home.clone(), None).await.unwrap();
    (engine, home)
}

/// Writes to a shard by whoever is its home, until that is done.
async fn write(homes: &[&Arc<Home>], shard: ShardId, request: u128) {
    let written = async {
        loop {
            for home in homes {
                if home.write(shard, RequestId(request)).await.is_ok() {
                    return;
                }
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, written).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_of_three_is_not_missed_and_while_two_are_away_nothing_is_taken_and_no_life_ends() {
    let test = "one_server_of_three_is_not_missed_and_while_two_are_away_nothing_is_taken_and_no_life_ends";
    let Some(mut trial) = Trial::start(test, 3, SHARDS) else { return };
    let world = Arc::new(World::default());
    let ((a, home_a), (b, home_b)) = tokio::join!(node(&trial, "a", &world), node(&trial, "b", &world));
    let homes = [&home_a, &home_b];
    let own = || [&a, &b].map(|engine| engine.homes_status().unwrap().own.len());
    until("every shard has a home", || own() == [2, 2]).await;
    let lives =
        |seen: &ClusterEngine| -> Vec<u64> { seen.status().members.iter().map(|member| member.incarnation).collect() };
    until("both know both", || lives(&a).len() == 2 && lives(&b).len() == 2).await;
    let before = lives(&a);

    trial.servers.servers()[2].kill().unwrap();
    for shard in (0..SHARDS).map(ShardId) {
        write(&homes, shard, 1).await;
    }
    assert_eq!((lives(&a), lives(&b)), (before.clone(), before.clone()), "one of three is not missed");

    trial.servers.servers()[1].stop().unwrap();
    let alone = tokio::join!(
        timeout(TTL + TTL, home_a.write(ShardId(0), RequestId(2))),
        timeout(TTL + TTL, home_b.write(ShardId(0), RequestId(2)))
    );
    assert!(!matches!(alone.0, Ok(Ok(_))) && !matches!(alone.1, Ok(Ok(_))), "nobody may take a write: {alone:?}");
    assert_eq!((lives(&a), lives(&b)), (before.clone(), before.clone()), "who hears nothing judges nobody");

    trial.servers.servers()[1].go_on().unwrap();
    trial.servers.servers()[2].run().unwrap();
    for shard in (0..SHARDS).map(ShardId) {
        write(&homes, shard, 3).await;
    }
    sleep(TTL).await;
    assert_eq!((lives(&a), lives(&b)), (before.clone(), before), "the same lives");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_says_since_when_its_servers_are_silent_and_that_they_are_back() {
    let test = "a_node_says_since_when_its_servers_are_silent_and_that_they_are_back";
    let Some(mut trial) = Trial::start(test, 3, SHARDS) else { return };
    let now = || SystemClock::new().wall().rfc3339();
    let begun = now();
    let node = trial.join("a").await;
    let servers = || node.status().servers.unwrap();
    until("the servers to confirm the node's lease", || servers().trouble().is_none()).await;
    assert!(servers().connected.is_some_and(|name| name.starts_with("nats-")) && node.level().on);
    assert_eq!(servers().configured, 3);

    for server in &trial.servers.servers()[1..] {
        server.stop().unwrap();
    }
    until("the node to know that its servers are silent", || servers().silent_since.is_some()).await;
    let since = servers().silent_since.unwrap();
    assert!(begun <= since && since <= now(), "{begun} {since}");
    let level = node.level();
    assert!(!level.on && level.detail.contains("confirmed nothing since"), "{level:?}");

    for server in &trial.servers.servers()[1..] {
        server.go_on().unwrap();
    }
    until("the node to hear its servers again", || servers().silent_since.is_none()).await;
    assert!(node.level().on);
}
