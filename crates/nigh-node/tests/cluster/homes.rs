//! Homes of shards: taken at the start, moved without a failed write when a node joins or leaves, taken over when one dies.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use nigh_engine::RequestId;
use nigh_engine::nats::TTL;
use nigh_node::cluster::{ClusterEngine, FIRST_OBJECT_METHOD};
use nigh_rpc::{Call, ClientSettings, Handler, Method, PeerAddress, Refusal, Reply};
use nigh_terms::{Clock, Monotonic, ShardId, SystemClock, Timestamp};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::host::{Home, World, WriteError};
use crate::support::{PATIENCE, Trial, until};

/// As many as a cluster has by default.
const SHARDS: u16 = 32;
/// Writes of a failed home's shard go on within the lease and this.
const BEYOND_LEASE: Duration = Duration::from_secs(1);

/// The machine's clock at a quarter of its speed. The nodes decide by it whose lease has ended, and the tests measure by
/// it: what follows the decision has four times as long, on a machine that is busy with other tests. `nigh experiment
/// failover` measures real time.
struct SlowClock(SystemClock);

impl Clock for SlowClock {
    fn monotonic(&self) -> Monotonic {
        Monotonic(self.0.monotonic().0 / 4)
    }

    fn wall(&self) -> Timestamp {
        self.0.wall()
    }
}

fn slow_clock() -> Arc<dyn Clock> {
    Arc::new(SlowClock(SystemClock::new()))
}

/// What waits for a home, as it seems to a home that has not begun: calls that have no answer.
struct Waits;

const WAITING: Method = Method { number: FIRST_OBJECT_METHOD, name: "waiting", head_max: 0, body_max: 0 };

#[async_trait]
impl Handler for Waits {
    fn method(&self, number: u16) -> Option<&'static Method> {
        (number == WAITING.number).then_some(&WAITING)
    }

    async fn call(&self, _: Call<'_>) -> Result<Reply, Refusal> {
        std::future::pending().await
    }
}

struct Node {
    engine: ClusterEngine,
    home: Arc<Home>,
}

impl Node {
    async fn start(trial: &Trial, name: &str, world: &Arc<World>, clock: &Arc<dyn Clock>) -> Self {
        let engine = trial.join_by(&trial.settings(name), Arc::clone(clock)).await;
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

/// The writes that a shard has taken.
#[derive(Clone, Copy, Default)]
struct Taken {
    writes: u64,
    /// The longest time without a write.
    longest_gap: Duration,
}

/// Clients that write to every shard without a pause, to whoever is its home.
struct Writers {
    stop: Arc<AtomicBool>,
    homes: Arc<Mutex<Vec<Arc<Home>>>>,
    taken: Arc<Mutex<BTreeMap<ShardId, Taken>>>,
    tasks: JoinSet<()>,
}

impl Writers {
    fn start(homes: Vec<Arc<Home>>, clock: &Arc<dyn Clock>) -> Self {
        let mut writers = Self {
            stop: Arc::default(),
            homes: Arc::new(Mutex::new(homes)),
            taken: Arc::default(),
            tasks: JoinSet::new(),
        };
        for shard in (0..SHARDS).map(ShardId) {
            let (stop, homes) = (Arc::clone(&writers.stop), Arc::clone(&writers.homes));
            let (taken, clock) = (Arc::clone(&writers.taken), Arc::clone(clock));
            writers.tasks.spawn(async move {
                let (mut number, mut last) = (0, clock.monotonic());
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
                        let now = clock.monotonic();
                        let mut taken = taken.lock();
                        let of_shard = taken.entry(shard).or_default();
                        of_shard.writes += 1;
                        of_shard.longest_gap = of_shard.longest_gap.max(now.since(last));
                        last = now;
                    }
                    // The machine is also the servers'.
                    sleep(Duration::from_millis(20)).await;
                }
            });
        }
        writers
    }

    fn written(&self) -> u64 {
        self.taken.lock().values().map(|taken| taken.writes).sum()
    }

    fn longest_gap(&self) -> Duration {
        self.taken.lock().values().map(|taken| taken.longest_gap).max().unwrap_or_default()
    }

    /// Waits until every shard has taken so many more writes; gaps that began before have ended then.
    async fn go_on(&self, more: u64) {
        let before = self.taken.lock().clone();
        let writes =
            |taken: &BTreeMap<ShardId, Taken>, shard: ShardId| taken.get(&shard).map_or(0, |taken| taken.writes);
        until("every shard takes more writes", || {
            let now = self.taken.lock();
            (0..SHARDS).map(ShardId).all(|shard| writes(&now, shard) >= writes(&before, shard) + more)
        })
        .await;
    }

    async fn stop(mut self) -> u64 {
        self.stop.store(true, Ordering::SeqCst);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        self.written()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shards_of_a_dead_home_are_served_again_within_its_lease_and_a_second() {
    let test = "the_shards_of_a_dead_home_are_served_again_within_its_lease_and_a_second";
    let Some(trial) = Trial::start(test, 3, SHARDS) else { return };
    let (world, clock) = (Arc::new(World::default()), slow_clock());
    let (a, b, c) = tokio::join!(
        Node::start(&trial, "a", &world, &clock),
        Node::start(&trial, "b", &world, &clock),
        Node::start(&trial, "c", &world, &clock)
    );
    let taken = until("every shard has a home", || all_served(&[&a, &b, &c])).await;
    until("every node has its share", || shares(&[&a, &b, &c]).iter().all(|has| (10..=11).contains(has))).await;
    let writers = Writers::start(vec![a.home.clone(), b.home.clone(), c.home.clone()], &clock);
    writers.go_on(20).await;
    let before = (writers.longest_gap(), writers.written());

    let (lost, number) = (c.own().len(), c.engine.number());
    let died = clock.monotonic();
    c.home.die();
    drop(c);
    until("every shard has a living home again", || all_served(&[&a, &b])).await;
    let served = clock.monotonic().since(died);
    until("all homes are known", || a.home.told().values().all(|(home, _)| *home != number)).await;
    writers.go_on(1).await;
    let gap = writers.longest_gap();
    let written = writers.stop().await;
    println!(
        "{SHARDS} shards had homes after {taken:?}; {} writes, longest gap {:?}; the {lost} of the dead node were served \
         again after {served:?}, longest gap {gap:?}, by a clock of a quarter of the speed; {written} writes in all",
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
    let (world, clock) = (Arc::new(World::default()), slow_clock());
    let (a, b) = tokio::join!(Node::start(&trial, "a", &world, &clock), Node::start(&trial, "b", &world, &clock));
    until("every shard has a home", || all_served(&[&a, &b])).await;
    until("both have their share", || shares(&[&a, &b]) == [16, 16]).await;
    let writers = Writers::start(vec![a.home.clone(), b.home.clone()], &clock);
    writers.go_on(10).await;

    let begun = clock.monotonic();
    let c = Node::start(&trial, "c", &world, &clock).await;
    writers.homes.lock().push(c.home.clone());
    until("the new node has its share", || shares(&[&a, &b, &c]).iter().sum::<usize>() == 32 && c.own().len() == 10)
        .await;
    let joined = (clock.monotonic().since(begun), writers.longest_gap());
    println!("a third node had its share {:?} after it began; longest gap {:?}", joined.0, joined.1);
    writers.go_on(5).await;

    let begun = clock.monotonic();
    b.engine.leave(PATIENCE).await;
    until("the others have all", || all_served(&[&a, &c])).await;
    let left = (clock.monotonic().since(begun), writers.longest_gap());
    println!("a node that left had given all {:?} after; longest gap {:?}", left.0, left.1);
    writers.go_on(5).await;
    let gap = writers.longest_gap();
    let written = writers.stop().await;
    assert!(written >= 20 * u64::from(SHARDS), "{written}");
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

#[tokio::test(flavor = "multi_thread")]
async fn homes_begin_while_more_calls_wait_for_them_than_there_are_connections() {
    let test = "homes_begin_while_more_calls_wait_for_them_than_there_are_connections";
    let Some(trial) = Trial::start(test, 1, SHARDS) else { return };
    let (world, clock) = (Arc::new(World::default()), slow_clock());
    let a = trial.join("a").await;
    let home = Home::new(a.ledger().clone(), Arc::clone(&world), SHARDS);
    a.serve(home.clone(), Some(Arc::new(Waits))).await.unwrap();
    let a = Node { engine: a, home };
    until("every shard has a home", || all_served(&[&a])).await;

    let b = trial.join_by(&trial.settings("b"), clock).await;
    let member = |name: &str| a.engine.status().members.into_iter().find(|member| member.node == name);
    until("both are members", || member("a").is_some() && member("b").is_some()).await;
    let (address, incarnation) = (member("a").unwrap().address, Some(a.engine.own().0.incarnation));
    let peer = PeerAddress { name: "a".into(), address: address.as_str().into(), incarnation };
    let mut calls = JoinSet::new();
    for _ in 0..4 * ClientSettings::default().connections_max {
        let (peers, peer) = (b.peers().clone(), peer.clone());
        calls.spawn(async move { peers.call(&peer, &WAITING, b"", Bytes::new(), Instant::now() + 2 * PATIENCE).await });
    }
    let home = Home::new(b.ledger().clone(), world, SHARDS);
    b.serve(home.clone(), None).await.unwrap();
    let b = Node { engine: b, home };
    until("the new node has its share", || all_served(&[&a, &b]) && b.own().len() == usize::from(SHARDS) / 2).await;
    assert!(calls.try_join_next().is_none(), "a call that was to wait has ended");
}
