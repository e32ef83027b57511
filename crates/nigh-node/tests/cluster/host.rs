//! A home that does what a home must, and no more: appends to the real ledger in the shards that it has, and remembers what
//! it was told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use nigh_engine::journal::JournalRecovery;
use nigh_engine::nats::NatsLedger;
use nigh_engine::{Body, Change, Ledger, LedgerError, Record, RequestId};
use nigh_node::cluster::HomeHost;
use nigh_terms::{BucketName, Epoch, Namespace, NodeNumber, ObjectKey, ShardId, Token, Version};
use parking_lot::Mutex;
use tokio::sync::RwLock;

/// What all clients of a cluster know together: the newest acknowledged version of each shard, and of each shard what the
/// writer of its last version had seen.
#[derive(Default)]
pub(crate) struct World {
    seen: Mutex<Token>,
    writers: Mutex<BTreeMap<ShardId, Token>>,
    /// The requests that were acknowledged, by shard.
    pub(crate) acknowledged: Mutex<BTreeMap<ShardId, Vec<RequestId>>>,
}

/// Why a write was not done.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// This node is not the home, or not yet, or no more.
    NotHome,
    Ledger(LedgerError),
}

/// The home of some shards.
pub(crate) struct Home {
    ledger: NatsLedger,
    world: Arc<World>,
    /// Held for reading by each append under way.
    serves: BTreeMap<ShardId, RwLock<Option<Epoch>>>,
    newest: Mutex<BTreeMap<ShardId, Version>>,
    told: Mutex<BTreeMap<ShardId, (NodeNumber, Epoch)>>,
    dead: AtomicBool,
}

impl Home {
    pub(crate) fn new(ledger: NatsLedger, world: Arc<World>, shards: u16) -> Arc<Self> {
        let serves = (0..shards).map(|shard| (ShardId(shard), RwLock::new(None))).collect();
        let (newest, told, dead) = (Mutex::default(), Mutex::default(), AtomicBool::new(false));
        Arc::new(Self { ledger, world, serves, newest, told, dead })
    }

    /// Does nothing from now on, as a process that was killed.
    pub(crate) fn die(&self) {
        self.dead.store(true, Ordering::SeqCst);
    }

    /// The home of each shard, as it was told.
    pub(crate) fn told(&self) -> BTreeMap<ShardId, (NodeNumber, Epoch)> {
        self.told.lock().clone()
    }

    pub(crate) async fn write(&self, shard: ShardId, request: RequestId) -> Result<Version, WriteError> {
        let serves = self.serves[&shard].read().await;
        let deposed = |epoch| self.told.lock().get(&shard).is_some_and(|(_, told)| *told > epoch);
        if serves.is_none_or(deposed) || self.dead.load(Ordering::SeqCst) {
            return Err(WriteError::NotHome);
        }
        let had_seen = self.world.seen.lock().clone();
        let record = Record {
            request,
            namespace: Namespace::new("tests").unwrap(),
            bucket: BucketName::new("bucket").unwrap(),
            key: ObjectKey::new(&format!("key-{shard}")).unwrap(),
            change: Change::Put { about: Bytes::new() },
        };
        let body = Body::Inline(Bytes::from_static(b"bytes"));
        let appended = self.ledger.append(shard, record, body).await.map_err(WriteError::Ledger)?;
        if self.dead.load(Ordering::SeqCst) {
            // Nobody hears of it.
            return Err(WriteError::NotHome);
        }
        let mut newest = self.newest.lock();
        let known = newest.entry(shard).or_insert(appended.version);
        *known = (*known).max(appended.version);
        drop(newest);
        self.world.acknowledged.lock().entry(shard).or_default().push(request);
        self.world.writers.lock().insert(shard, had_seen);
        self.world.seen.lock().see(shard, appended.version);
        Ok(appended.version)
    }
}

#[async_trait]
impl HomeHost for Home {
    async fn take_home(&self, shard: ShardId, recovered: JournalRecovery, summary: Token) -> Result<(), String> {
        let found: Vec<RequestId> = recovered.records.iter().map(|one| one.record.request).collect();
        let acknowledged = self.world.acknowledged.lock().get(&shard).cloned().unwrap_or_default();
        for request in acknowledged {
            assert!(found.contains(&request), "{request:?} of shard {shard} was acknowledged and is not there");
        }
        let writers = self.world.writers.lock().get(&shard).cloned().unwrap_or_default();
        for (other, version) in writers.iter().filter(|(other, _)| *other != shard) {
            assert!(summary.get(other) >= Some(version), "{shard}: {other} at {version} is beyond {summary:?}");
        }
        *self.serves[&shard].write().await = Some(recovered.epoch);
        Ok(())
    }

    async fn let_go(&self, shard: ShardId) {
        *self.serves[&shard].write().await = None;
    }

    fn home_is(&self, shard: ShardId, home: NodeNumber, epoch: Epoch) {
        let mut told = self.told.lock();
        let known = told.entry(shard).or_insert((home, epoch));
        assert!(known.1 <= epoch, "shard {shard}: epoch {epoch} after {}", known.1);
        *known = (home, epoch);
    }

    fn newest(&self, shard: ShardId) -> Option<Version> {
        self.newest.lock().get(&shard).copied()
    }
}
