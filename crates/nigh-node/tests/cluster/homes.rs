//! Homes of shards: taken at the start, moved without a failed write when a node joins or leaves, taken over when one dies.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nigh_engine::RequestId;
use nigh_engine::nats::TTL;
use nigh_node::cluster::ClusterEngine;
use nigh_terms::ShardId;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::host::{Home, World, WriteError};
use crate::support::{PATIENCE, Trial, until};

/// As many as a cluster has by default.
const SHARDS: u16 = 32;
/// Writes of a failed home's shard go on within the lease and this.
const BEYOND_LEASE: Duration = Duration::from_secs(1);

struct Node {
    engine: ClusterEngine,
    home: Arc<Home>,
}

impl Node {
    async fn start(trial: &Trial, name: &str, world: &Arc<World>) -> Self {
        let engine = trial.join(name).await;
        let home = Home::new(engine.ledger().clone(), Arc::clone(world), SHARDS);
        engine.serve(home.clone(), None).await.unwrap();
        Self { engine, home }
    }

    fn own(&self) -> Vec<ShardId> {
        self.engine.homes_status().unwrap().own
    }
}

fn all_served(nodes: &[&Node]) -> bool {
    nodes.iter().map(|node| node.own().len()).sum::<usize>() == usize::from(SHARDS)
}

fn shares(nodes: &[&Node]) -> Vec<usize> {
    nodes.iter().map(|node| node.own().len()).collect()
}

/// Clients that write to every shard without a pause, to whoever is its home.
struct Writers {
    stop: Arc<AtomicBool>,
    homes: Arc<Mutex<Vec<Arc<Home>>>>,
    written: Arc<AtomicU64>,
    /// The longest time in which a shard took no write.
    gaps: Arc<Mutex<BTreeMap<ShardId, Duration>>>,
    tasks: JoinSet<()>,
}

impl Writers {
    fn start(homes: Vec<Arc<Home>>) -> Self {
        let mut writers = Self {
            stop: Arc::default(),
            homes: Arc::new(Mutex::new(homes)),
            written: Arc::default(),
            gaps: Arc::default(),
            tasks: JoinSet::new(),
        };
        for shard in (0..SHARDS).map(ShardId) {
            let (stop, homes) = (Arc::clone(&writers.stop), Arc::clone(&writers.homes));
            let (written, gaps) = (Arc::clone(&writers.written), Arc::clone(&writers.gaps));
            writers.tasks.spawn(async move {
                let (mut number, mut last) = (0, Instant::now());
                while !stop.load(Ordering::SeqCst) {
                    let now = homes.lock().clone();
                    let request = RequestId(u128::from(shard.0) << 64 | number);
                    let mut done = false;
                    for home in now {
                        match home.write(shard, request).await {
                            Ok(_) => done = true,
                            Err(WriteError::NotHome) => {}
                            Err(WriteError::Ledger(error)) => panic!("a write to shard {shard} failed: {error}"),
                        }
                    }
                    if done {
                        number += 1;
                        written.fetch_add(1, Ordering::Relaxed);
                        let (mut gaps, gap) = (gaps.lock(), last.elapsed());
                        let longest = gaps.entry(shard).or_default();
                        *longest = gap.max(*longest);
                        last = Instant::now();
                    }
                    // The machine is also the servers'.
                    sleep(Duration::from_millis(20)).await;
                }
            });
        }
        writers
    }

    fn longest_gap(&self) -> Duration {
        self.gaps.lock().values().copied().max().unwrap_or_default()
    }

    async fn stop(mut self) -> u64 {
        self.stop.store(true, Ordering::SeqCst);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        self.written.load(Ordering::Relaxed)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shards_of_a_dead_home_are_served_again_within_its_lease_and_a_second() {
    let test = "the_shards_of_a_dead_home_are_served_again_within_its_lease_and_a_second";
    let Some(trial) = Trial::start(test, 3, SHARDS) else { return };
    let world = Arc::new(World::default());
    let (a, b, c) = tokio::join!(
        Node::start(&trial, "a", &world),
        Node::start(&trial, "b", &world),
        Node::start(&trial, "c", &world)
    );
    let taken = until("every shard has a home", || all_served(&[&a, &b, &c])).await;
    until("every node has its share", || shares(&[&a, &b, &c]).iter().all(|has| (10..=11).contains(has))).await;
    let writers = Writers::start(vec![a.home.clone(), b.home.clone(), c.home.clone()]);
    sleep(Duration::from_secs(2)).await;
    let before = (writers.longest_gap(), writers.written.load(Ordering::Relaxed));

    let (lost, number) = (c.own().len(), c.engine.number());
    let died = Instant::now();
    c.home.die();
    drop(c);
    until("every shard has a living home again", || all_served(&[&a, &b])).await;
    let served = died.elapsed();
    until("all homes are known", || a.home.told().values().all(|(home, _)| *home != number)).await;
    sleep(Duration::from_secs(1)).await;
    let gap = writers.longest_gap();
    let written = writers.stop().await;
    println!(
        "{SHARDS} shards had homes after {taken:?}; {} writes in 2 s, longest gap {:?}; the {lost} of the dead node were \
         served again after {served:?}, longest gap {gap:?}; {written} writes in all",
        before.1, before.0
    );
    assert!(served <= TTL + BEYOND_LEASE, "{served:?}");
    assert!(gap <= TTL + BEYOND_LEASE, "a shard took no write for {gap:?}");
    assert_eq!(shares(&[&a, &b]), [16, 16]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_joins_or_leaves_gets_or_gives_its_share_and_no_write_fails() {
    let test = "a_node_that_joins_or_leaves_gets_or_gives_its_share_and_no_write_fails";
    let Some(trial) = Trial::start(test, 3, SHARDS) else { return };
    let world = Arc::new(World::default());
    let (a, b) = tokio::join!(Node::start(&trial, "a", &world), Node::start(&trial, "b", &world));
    until("every shard has a home", || all_served(&[&a, &b])).await;
    until("both have their share", || shares(&[&a, &b]) == [16, 16]).await;
    let writers = Writers::start(vec![a.home.clone(), b.home.clone()]);
    sleep(Duration::from_secs(1)).await;

    let begun = Instant::now();
    let c = Node::start(&trial, "c", &world).await;
    writers.homes.lock().push(c.home.clone());
    until("the new node has its share", || shares(&[&a, &b, &c]).iter().sum::<usize>() == 32 && c.own().len() == 10)
        .await;
    let joined = (begun.elapsed(), writers.longest_gap());
    println!("a third node had its share {:?} after it began; longest gap {:?}", joined.0, joined.1);
    sleep(Duration::from_millis(500)).await;

    let begun = Instant::now();
    b.engine.leave(PATIENCE).await;
    until("the others have all", || all_served(&[&a, &c])).await;
    println!("a node that left had given all {:?} after; longest gap {:?}", begun.elapsed(), writers.longest_gap());
    sleep(Duration::from_millis(500)).await;
    let gap = writers.longest_gap();
    let written = writers.stop().await;
    assert!(written > 100, "{written}");
    assert!(gap < TTL, "no lease ran out: {gap:?}");
    assert_eq!(shares(&[&a, &c]), [16, 16]);

    // The name comes back, with its number, in another life.
    let again = trial.join("b").await;
    assert_eq!(again.number(), b.engine.number());
    let life = again.own().0.incarnation;
    until("its new life is known", || {
        a.engine.address_of(again.number()).is_some_and(|address| address.incarnation == Some(life))
    })
    .await;
}
