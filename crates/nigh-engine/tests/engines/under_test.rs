//! Engines under test, and what tests write.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use nigh_engine::journal::{JournalRecovery, OnDamage};
use nigh_engine::nats::{Claim, Cluster, ClusterError, LedgerSettings, NatsLedger};
use nigh_engine::{AppendResult, Body, Change, Journal, JournalSettings, Ledger, LedgerError, Record, RequestId};
use nigh_terms::{BucketName, ByteSize, Epoch, Incarnation, Namespace, NodeId, ObjectKey, ShardId, Version};
use tempfile::TempDir;

pub(crate) const SHARD: ShardId = ShardId(3);

/// Something that keeps a ledger, and opens it again as after a crash of who had it.
#[async_trait::async_trait]
pub(crate) trait Engine: Send + Sync {
    async fn open(&self) -> (Arc<dyn Ledger>, JournalRecovery);
}

/// The journal of one machine.
pub(crate) struct OneMachine {
    folder: TempDir,
    limit: ByteSize,
}

impl OneMachine {
    pub(crate) fn new(limit: ByteSize) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), limit }
    }
}

#[async_trait::async_trait]
impl Engine for OneMachine {
    async fn open(&self) -> (Arc<dyn Ledger>, JournalRecovery) {
        let settings = JournalSettings {
            limit: self.limit,
            segment: ByteSize::mib(16),
            epoch_min: Epoch(1),
            on_damage: OnDamage::Refuse,
        };
        let (journal, recovered) = Journal::open(&self.folder.path().join("journal"), &settings).unwrap();
        (Arc::new(journal), recovered)
    }
}

/// A cluster's shard; each opening is another home.
pub(crate) struct Homes {
    cluster: Cluster,
    settings: LedgerSettings,
    claims: AtomicU64,
}

impl Homes {
    pub(crate) fn new(cluster: Cluster, settings: LedgerSettings) -> Self {
        Self { cluster, settings, claims: AtomicU64::new(0) }
    }

    /// The next home's claim.
    pub(crate) fn claim(&self) -> Claim {
        let claim = self.claims.fetch_add(1, Ordering::SeqCst) + 1;
        Claim { shard: SHARD, claim, node: NodeId(format!("home-{claim}")), incarnation: Incarnation(claim) }
    }

    /// Another home, with a client of its own that `cluster` has.
    pub(crate) async fn take_by(&self, cluster: Cluster) -> Result<(NatsLedger, JournalRecovery), ClusterError> {
        let ledger = NatsLedger::new(cluster, self.settings.clone());
        let recovered = ledger.take(&self.claim()).await?;
        Ok((ledger, recovered))
    }

    /// Another home.
    pub(crate) async fn take(&self) -> Result<(NatsLedger, JournalRecovery), ClusterError> {
        self.take_by(self.cluster.clone()).await
    }
}

#[async_trait::async_trait]
impl Engine for Homes {
    async fn open(&self) -> (Arc<dyn Ledger>, JournalRecovery) {
        let (ledger, recovered) = self.take().await.unwrap();
        (Arc::new(ledger), recovered)
    }
}

pub(crate) fn record(request: u128, key: &str, change: Change) -> Record {
    Record {
        request: RequestId(request),
        namespace: Namespace::new("tenant").unwrap(),
        bucket: BucketName::new("bucket").unwrap(),
        key: ObjectKey::new(key).unwrap(),
        change,
    }
}

pub(crate) fn put(request: u128, key: &str) -> Record {
    record(request, key, Change::Put { about: Bytes::from(format!("about {request}")) })
}

/// Bytes that differ from each other's and from themselves elsewhere.
pub(crate) fn content(seed: u128, bytes: usize) -> Bytes {
    let mut state = seed as u64 ^ 0x9e37_79b9_7f4a_7c15;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..bytes).map(|_| next()).collect::<Vec<u8>>().into()
}

/// Appends with the body inline, or in pieces of so many bytes.
pub(crate) async fn append(
    ledger: &dyn Ledger,
    record: Record,
    body: Bytes,
    piece: Option<usize>,
) -> Result<AppendResult, LedgerError> {
    let Some(piece) = piece else { return ledger.append(SHARD, record, Body::Inline(body)).await };
    let (mut staged, mut left) = (Vec::new(), body);
    while !left.is_empty() {
        staged.push(ledger.stage(SHARD, left.split_to(piece.min(left.len()))).await?);
    }
    ledger.append(SHARD, record, Body::Staged(staged)).await
}

/// The whole body of a record.
pub(crate) async fn read(ledger: &dyn Ledger, version: Version) -> Result<Bytes, LedgerError> {
    let mut whole = Vec::new();
    loop {
        let part = ledger.read(SHARD, version, whole.len() as u64).await?;
        if part.is_empty() {
            return Ok(whole.into());
        }
        whole.extend_from_slice(&part);
    }
}

/// What was recovered, by request and version.
pub(crate) fn found(recovered: &JournalRecovery) -> Vec<(u128, Version)> {
    recovered.records.iter().map(|one| (one.record.request.0, one.version)).collect()
}
