//! Memories that are a cluster, and the hand that says which home is where.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use nigh_data::{
    Attributes, GetRequest, ListRequest, ObjectError, ObjectId, PutDone, PutRequest, Tags, WriteConditions,
};
use nigh_engine::nats::{Claim, ClusterError, LedgerSettings, NatsLedger};
use nigh_objects::cluster::{CoherenceProtocol, HomeEvent, Neighbours, Place, TakenShard};
use nigh_objects::{MemoryLimits, ObjectMemory, Shards, WriteMode, WriteSettings, Writes};
use nigh_protocol::{Dispatch, Member, NodeNumber};
use nigh_rpc::{
    Call, ClientSettings, Handler, Hello, Identity, Method, PeerAddress, Peers, Refusal, Reply, Role, Security,
    ServerSettings, serve,
};
use nigh_stores::Store;
use nigh_stores::directory::DirectoryStore;
use nigh_terms::{
    BucketName, ByteSize, Clock, Epoch, FunctionName, Incarnation, InvocationId, Namespace, NodeId, ObjectKey,
    Principal, SandboxId, ShardId, SystemClock, Token, Version,
};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::late::{Gate, LateLedger, LateStore, Placeholders};
use crate::servers::{PATIENCE, Servers};

pub(crate) const SHARDS: u16 = 8;
pub(crate) const CACHED: usize = 2 << 20;

/// A node's door to the others. It counts their calls, and can be stopped as a process can.
struct Door {
    memory: ObjectMemory,
    calls: Arc<Mutex<BTreeMap<&'static str, usize>>>,
    goes: watch::Receiver<bool>,
}

#[async_trait]
impl Handler for Door {
    fn method(&self, number: u16) -> Option<&'static Method> {
        ObjectMemory::method(number)
    }

    async fn call(&self, call: Call<'_>) -> Result<Reply, Refusal> {
        *self.calls.lock().unwrap().entry(call.method.name).or_default() += 1;
        // A node that is gone stops no more.
        drop(self.goes.clone().wait_for(|goes| *goes).await);
        self.memory.answer(call).await
    }
}

/// A memory of the cluster.
pub(crate) struct Node {
    pub(crate) memory: ObjectMemory,
    pub(crate) member: Member,
    name: NodeId,
    ledger: NatsLedger,
    /// What appends of this node pass on their way to the ledger, and on their way back.
    pub(crate) appends: Gate,
    pub(crate) answers: Gate,
    /// What puts of this node pass on their way to the store.
    pub(crate) store_puts: Gate,
    neighbours: Arc<Neighbours>,
    address: PeerAddress,
    events: mpsc::UnboundedReceiver<HomeEvent>,
    calls: Arc<Mutex<BTreeMap<&'static str, usize>>>,
    goes: watch::Sender<bool>,
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
    _spool: TempDir,
}

/// Some of them.
pub(crate) struct World {
    pub(crate) servers: Servers,
    /// How long a node waits for an answer of the servers; none: as long as a test may.
    answer_within: Option<Duration>,
    pub(crate) store: Arc<DirectoryStore>,
    /// What the store shows, if its nodes write in mode `shadow`.
    pub(crate) placeholders: Option<Arc<Placeholders>>,
    writes: WriteSettings,
    pub(crate) nodes: BTreeMap<u32, Node>,
    homes: BTreeMap<ShardId, (u32, Epoch)>,
    claims: AtomicU64,
    lives: AtomicU64,
    coherence: CoherenceProtocol,
    _folder: TempDir,
}

/// Nodes that push soon.
fn lazy() -> WriteSettings {
    WriteSettings { delay: Duration::from_millis(50), ..WriteSettings::default() }
}

pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey::new(name).unwrap()
}

pub(crate) fn who() -> Principal {
    Principal::outside(Namespace::new("tenant").unwrap())
}

pub(crate) fn bucket() -> BucketName {
    BucketName::new("bucket").unwrap()
}

pub(crate) fn object(name: &str) -> ObjectId {
    ObjectId { namespace: who().namespace, bucket: bucket(), key: key(name) }
}

pub(crate) fn request(bytes: &[u8]) -> PutRequest {
    let pieces: Vec<_> = bytes.chunks(300_000).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    PutRequest {
        attributes: Attributes { content_type: Some("x/y".to_owned()), ..Attributes::default() },
        tags: Tags::new(),
        conditions: WriteConditions::default(),
        body: futures::stream::iter(pieces).boxed(),
        length: Some(bytes.len() as u64),
        md5: None,
        checksum: None,
        request: None,
    }
}

impl Node {
    /// The ledger of its homes.
    pub(crate) fn ledger(&self) -> &NatsLedger {
        &self.ledger
    }

    pub(crate) async fn put(&self, name: &str, bytes: &[u8]) -> Result<PutDone, ObjectError> {
        self.memory.put(&who(), &bucket(), &key(name), request(bytes)).await
    }

    pub(crate) async fn get_as(&self, who: &Principal, name: &str) -> Result<(Vec<u8>, Version), ObjectError> {
        let got = self.memory.get(who, &bucket(), &key(name), GetRequest::default()).await?;
        let version = got.version;
        let bytes: Vec<Bytes> = got.body.try_collect().await?;
        Ok((bytes.concat(), version))
    }

    pub(crate) async fn get(&self, name: &str) -> Result<Vec<u8>, ObjectError> {
        self.get_as(&who(), name).await.map(|(bytes, _)| bytes)
    }

    /// As an invocation that begins here and knows of nothing.
    pub(crate) async fn run<T, F: Future<Output = T>>(&self, act: impl FnOnce(Principal) -> F) -> T {
        let (namespace, id) = (who().namespace, InvocationId::now());
        let dispatch = Dispatch { to: self.member, token: Token::empty() };
        self.memory.begin_dispatched(&namespace, id, dispatch).await.unwrap();
        let function = FunctionName::new("one").unwrap();
        let done = act(Principal::inside(namespace, function, SandboxId::random(), id)).await;
        self.memory.end_invocation(id, Duration::from_secs(30)).await;
        done
    }

    /// What an invocation here reads.
    pub(crate) async fn reads(&self, name: &str) -> Vec<u8> {
        self.run(|who| async move { self.get_as(&who, name).await.unwrap().0 }).await
    }

    /// An invocation here writes.
    pub(crate) async fn writes(&self, name: &str, bytes: &[u8]) {
        self.run(|who| async move {
            self.memory.put(&who, &bucket(), &key(name), request(bytes)).await.unwrap();
        })
        .await;
    }

    /// The calls that others have made here since this was asked, by their names.
    pub(crate) fn calls(&self) -> BTreeMap<&'static str, usize> {
        std::mem::take(&mut *self.calls.lock().unwrap())
    }

    /// Answers nobody from now on, or all again.
    pub(crate) fn set_goes(&self, goes: bool) {
        self.goes.send_replace(goes);
    }

    pub(crate) async fn delete(&self, name: &str) -> Result<(), ObjectError> {
        self.memory.delete(&who(), &bucket(), &key(name), WriteConditions::default(), None).await
    }

    pub(crate) async fn list(&self) -> Vec<String> {
        let request = ListRequest { limit: 1000, ..ListRequest::default() };
        let page = self.memory.list(&who(), &bucket(), request).await.unwrap();
        page.objects.into_iter().map(|listed| listed.key.as_str().to_owned()).collect()
    }

    async fn end(self) {
        self.stop.cancel();
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

impl World {
    /// A cluster of so many memories, each with its part of the homes; none where NATS is not installed.
    pub(crate) async fn start(test: &str, count: u32) -> Option<Self> {
        Self::start_with(test, count, CoherenceProtocol::Nigh).await
    }

    /// The same, of nodes that wait so long for an answer of the servers.
    pub(crate) async fn start_answered_within(test: &str, count: u32, within: Duration) -> Option<Self> {
        Self::start_as(test, count, CoherenceProtocol::Nigh, Some(within), lazy()).await
    }

    /// The same, of nodes that write by these settings.
    pub(crate) async fn start_writing(test: &str, count: u32, writes: WriteSettings) -> Option<Self> {
        Self::start_as(test, count, CoherenceProtocol::Nigh, None, writes).await
    }

    /// The same, by this protocol.
    pub(crate) async fn start_with(test: &str, count: u32, coherence: CoherenceProtocol) -> Option<Self> {
        Self::start_as(test, count, coherence, None, lazy()).await
    }

    async fn start_as(
        test: &str,
        count: u32,
        coherence: CoherenceProtocol,
        answer_within: Option<Duration>,
        writes: WriteSettings,
    ) -> Option<Self> {
        let servers = Servers::start(test, 1)?;
        let folder = tempfile::tempdir().unwrap();
        let store = DirectoryStore::open(folder.path(), Arc::new(SystemClock::new())).unwrap();
        let mut world = Self {
            servers,
            answer_within,
            store: Arc::new(store),
            placeholders: (writes.mode == WriteMode::Shadow).then(Arc::default),
            writes,
            nodes: BTreeMap::new(),
            homes: BTreeMap::new(),
            claims: AtomicU64::new(0),
            lives: AtomicU64::new(0),
            coherence,
            _folder: folder,
        };
        for number in 0..count {
            world.join(number).await;
        }
        for shard in Shards::new(NonZeroU16::new(SHARDS).unwrap()).all() {
            world.give(shard, u32::from(shard.0) % count).await;
        }
        world.nodes[&0].memory.create_bucket(&who(), &bucket()).await.unwrap();
        Some(world)
    }

    /// A new life of a node.
    pub(crate) async fn join(&mut self, number: u32) {
        let life = self.lives.fetch_add(1, Ordering::Relaxed) + 1;
        let (name, incarnation) = (NodeId(format!("n{number}")), Incarnation(life));
        let member = Member { node: NodeNumber(number), incarnation };
        let identity = Identity::new("test", Role::Node, &name.0).unwrap();
        let hello = Hello { identity, incarnation: life };
        let peers = Peers::new(hello.clone(), Security::Plain, ClientSettings::default());
        let neighbours = Arc::new(Neighbours::new(peers));
        let cluster = match self.answer_within {
            Some(within) => self.servers.connect_for(1, within).await,
            None => self.servers.connect(1).await,
        };
        let ledger = NatsLedger::new(cluster, LedgerSettings { limit: ByteSize::mib(64), ..LedgerSettings::default() });
        let (events, heard) = mpsc::unbounded_channel();
        let shards = Shards::new(NonZeroU16::new(SHARDS).unwrap());
        let coherence = self.coherence;
        let place = Place { me: member, shards, neighbours: Arc::clone(&neighbours), events, coherence };
        let [appends, answers, store_puts] = std::array::from_fn(|_| Gate::new());
        let its_own = LateLedger { ledger: ledger.clone(), appends: appends.clone(), answers: answers.clone() };
        let settings = self.writes.clone();
        let writes = Writes { ledger: Arc::new(its_own), settings, ..Writes::through(Epoch(1)) };
        let limits =
            MemoryLimits { cache: ByteSize::mib(64), cached_object: ByteSize(CACHED as u64), object: ByteSize::gib(1) };
        let spool = tempfile::tempdir().unwrap();
        let (store, placeholders) = (Arc::clone(&self.store), self.placeholders.clone());
        let store = Arc::new(LateStore { store, puts: store_puts.clone(), placeholders });
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let opened =
            ObjectMemory::open_in_cluster(place, store, writes, clock, Vec::new(), spool.path().to_owned(), limits);
        let memory = opened.await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = PeerAddress {
            name: name.0.clone().into(),
            address: listener.local_addr().unwrap().to_string().into(),
            incarnation: Some(life),
        };
        let stop = CancellationToken::new();
        let settings = ServerSettings { drain_max: Duration::ZERO, ..ServerSettings::default() };
        let calls = Arc::default();
        let (goes, may_go) = watch::channel(true);
        let door = Arc::new(Door { memory: memory.clone(), calls: Arc::clone(&calls), goes: may_go });
        let served = serve(listener, hello, Security::Plain, settings, door, stop.clone());
        let tasks = vec![tokio::spawn(served), tokio::spawn(memory.clone().persist(stop.clone()))];
        let node = Node {
            memory,
            member,
            name,
            ledger,
            appends,
            answers,
            store_puts,
            neighbours,
            address,
            events: heard,
            calls,
            goes,
            stop,
            tasks,
            _spool: spool,
        };
        self.nodes.insert(number, node);
        for one in self.nodes.values() {
            for other in self.nodes.values() {
                one.neighbours.set_address(other.member.node, Some(other.address.clone()));
            }
            for (shard, (home, epoch)) in &self.homes {
                one.neighbours.set_home(*shard, NodeNumber(*home), *epoch);
            }
        }
    }

    /// The home of `shard` begins at a node, whoever had it. Waits until the servers answer the node.
    pub(crate) async fn give(&mut self, shard: ShardId, number: u32) {
        let node = &self.nodes[&number];
        let claim = self.claims.fetch_add(1, Ordering::Relaxed) + 1;
        let claim = Claim { shard, claim, node: node.name.clone(), incarnation: node.member.incarnation };
        let begun = Instant::now();
        let recovered = loop {
            match node.ledger.take(&claim).await {
                Ok(recovered) => break recovered,
                // The node's client connects again.
                Err(error @ ClusterError::Unreachable { .. }) => assert!(begun.elapsed() < PATIENCE, "{error}"),
                Err(error) => panic!("{error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        assert!(recovered.damage.is_empty());
        let mut summary = Token::empty();
        for (other, (home, _)) in self.homes.iter().filter(|(other, _)| **other != shard) {
            let newest = self.nodes.get(home).map(|home| home.memory.newest_here()).unwrap_or_default();
            newest.into_iter().filter(|(of, _)| of == other).for_each(|(of, version)| summary.see(of, version));
        }
        let (lost, may_lack_writes) = (Vec::new(), false);
        let taken = TakenShard { shard, records: recovered.records, lost, may_lack_writes, summary };
        node.memory.take_home(taken).await.unwrap();
        self.homes.insert(shard, (number, recovered.epoch));
        for node in self.nodes.values() {
            node.neighbours.set_home(shard, NodeNumber(number), recovered.epoch);
        }
    }

    /// All hear that the home of `shard` is at a node, where it has not begun yet.
    pub(crate) fn name_home(&self, shard: ShardId, number: u32) {
        let epoch = Epoch(self.homes[&shard].1.0 + 1);
        for node in self.nodes.values() {
            node.neighbours.set_home(shard, NodeNumber(number), epoch);
        }
    }

    /// All hear by the map of homes where the home of `shard` is.
    pub(crate) fn tell_home(&self, shard: ShardId) {
        let (home, epoch) = self.homes[&shard];
        for node in self.nodes.values() {
            node.memory.home_is(shard, NodeNumber(home), epoch);
        }
    }

    /// The home of `shard` moves as planned.
    pub(crate) async fn hand_over(&mut self, shard: ShardId, to: u32) {
        let (from, _) = self.homes[&shard];
        self.nodes[&from].memory.let_go_of_home(shard).await;
        self.nodes[&from].ledger.let_go(shard);
        self.give(shard, to).await;
    }

    /// A node is gone with all that it had in memory; its homes are given to the others.
    pub(crate) async fn lose(&mut self, number: u32) {
        let node = self.nodes.remove(&number).unwrap();
        node.tasks.iter().for_each(JoinHandle::abort);
        drop(node);
        let homeless: Vec<ShardId> =
            self.homes.iter().filter(|(_, (home, _))| *home == number).map(|(shard, _)| *shard).collect();
        let living: Vec<u32> = self.nodes.keys().copied().collect();
        for (at, shard) in homeless.into_iter().enumerate() {
            self.give(shard, living[at % living.len()]).await;
        }
    }

    /// The bytes that the store has of an object.
    pub(crate) async fn stored(&self, name: &str) -> Option<Vec<u8>> {
        let (_, stream) = self.store.get(&object(name), None, None).await.ok()?;
        let bytes: Vec<Bytes> = stream.try_collect().await.unwrap();
        Some(bytes.concat())
    }

    /// The shard of an object.
    pub(crate) fn shard_of(name: &str) -> ShardId {
        Shards::new(NonZeroU16::new(SHARDS).unwrap()).of(&object(name))
    }

    /// Names of one shard, whose home is at node `number`.
    pub(crate) fn names_at(&self, number: u32) -> impl Iterator<Item = String> {
        let (shard, _) = self.homes.iter().find(|(_, (home, _))| *home == number).unwrap();
        (0..).map(|n| format!("object-{n}")).filter(move |name| Self::shard_of(name) == *shard)
    }

    /// The epoch of each shard that the engine knows.
    pub(crate) fn epochs(&self) -> Vec<(ShardId, Epoch)> {
        self.homes.iter().map(|(shard, (_, epoch))| (*shard, *epoch)).collect()
    }

    /// What the hosts were told.
    pub(crate) fn heard(&mut self, number: u32) -> Vec<HomeEvent> {
        let events = &mut self.nodes.get_mut(&number).unwrap().events;
        std::iter::from_fn(|| events.try_recv().ok()).collect()
    }

    pub(crate) async fn end(self) {
        for node in self.nodes.into_values() {
            node.end().await;
        }
    }
}
