//! The object memory of a cluster's member: it serves as home, and answers other nodes.

use std::sync::Arc;

use async_trait::async_trait;
use nigh_data::{ObjectError, ObjectObserver};
use nigh_engine::journal::{Damage, DamageKind, JournalRecovery};
use nigh_engine::nats::NatsLedger;
use nigh_engine::{Ledger as _, PresentMember};
use nigh_objects::cluster::{HomeEvent, Neighbours, Place, TakenShard};
use nigh_objects::{MemoryLimits, ObjectMemory, Shards, Writes};
use nigh_protocol::Member;
use nigh_rpc::{Call, Handler, Method, Refusal, Reply};
use nigh_stores::Store;
use nigh_terms::{Clock, Epoch, NodeNumber, ShardId, Token, Version};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{ClusterEngine, HomeHost, peer_address};
use crate::state_folder::StatePaths;

/// The parts of a member's object memory.
pub(crate) struct MemoryParts<'p> {
    pub(crate) store: Arc<dyn Store>,
    /// The settings and policies; the ledger is the cluster's.
    pub(crate) writes: Writes,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) observers: Vec<Arc<dyn ObjectObserver>>,
    pub(crate) paths: &'p StatePaths,
    pub(crate) limits: MemoryLimits,
}

/// A member's object memory, which is no home yet, with its events.
pub(crate) struct MemberMemory {
    pub(crate) memory: ObjectMemory,
    neighbours: Arc<Neighbours>,
    ledger: NatsLedger,
    events: mpsc::UnboundedReceiver<HomeEvent>,
}

impl MemberMemory {
    /// Opens the memory of `cluster`'s member.
    ///
    /// # Errors
    /// If the store cannot be shared, or this node's own journal has unpushed writes.
    pub(crate) async fn open(cluster: &ClusterEngine, parts: MemoryParts<'_>) -> Result<Self, ObjectError> {
        let MemoryParts { store, writes, clock, observers, paths, limits } = parts;
        let waiting = writes.recovered.len() + writes.lost.len();
        if waiting > 0 {
            let reason = format!(
                "{waiting} writes from before the cluster are in this node's own journal and not in the store: start the node \
                 once without [cluster], let it push them, and start it again"
            );
            return Err(ObjectError::Memory { operation: "join a cluster", reason });
        }
        if store.kind() == "directory" {
            let reason = "the nodes of a cluster need one store that all of them reach: set store.kind to s3, swift, gcs or azure";
            return Err(ObjectError::Memory { operation: "join a cluster", reason: reason.to_owned() });
        }
        let neighbours = Arc::new(Neighbours::new(cluster.peers().clone()));
        let (tells, events) = mpsc::unbounded_channel();
        let incarnation = nigh_engine::Membership::incarnation(&**cluster.membership());
        let place = Place {
            me: Member { node: cluster.number(), incarnation },
            shards: Shards::new(cluster.shards().try_into().unwrap_or(std::num::NonZeroU16::MIN)),
            neighbours: Arc::clone(&neighbours),
            events: tells,
            coherence: cluster.coherence(),
        };
        let ledger = cluster.ledger().clone();
        let writes = Writes { ledger: Arc::new(ledger.clone()), ..writes };
        let memory =
            ObjectMemory::open_in_cluster(place, store, writes, clock, observers, paths.spool(), limits).await?;
        Ok(Self { memory, neighbours, ledger, events })
    }

    /// Follows the members and the homes' events until `stop`. Cancels `over` when a home declares this node dead.
    pub(crate) async fn follow(
        self,
        mut present: watch::Receiver<Vec<PresentMember>>,
        over: CancellationToken,
        stop: CancellationToken,
    ) {
        let Self { memory: _, neighbours, ledger, mut events } = self;
        let mut known: Vec<PresentMember> = Vec::new();
        loop {
            let now = present.borrow_and_update().clone();
            for gone in known.iter().filter(|gone| !now.iter().any(|member| member.node == gone.node)) {
                neighbours.set_address(gone.presence.number, None);
            }
            for member in &now {
                neighbours.set_address(member.presence.number, Some(peer_address(member)));
            }
            known = now;
            let event = tokio::select! {
                () = stop.cancelled() => return,
                changed = present.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
                event = events.recv() => event,
            };
            match event {
                None => return,
                // The keeper takes the shard again if it is placed here.
                Some(HomeEvent::Deposed(shard, epoch)) => {
                    tracing::info!(%shard, %epoch, "this node is the former home of a shard");
                    // The keeper may have taken it again meanwhile.
                    if ledger.epoch(shard) == epoch {
                        ledger.let_go(shard);
                    }
                }
                Some(HomeEvent::GaveUp(member)) => {
                    tracing::warn!(node = %member.node, incarnation = %member.incarnation, "a home here has declared a node dead");
                }
                Some(HomeEvent::Rejoin) => {
                    tracing::error!("a home has declared this node dead: it drains and ends; start it again");
                    over.cancel();
                }
            }
        }
    }
}

/// The object memory as home.
pub(crate) struct MemoryHost(pub(crate) ObjectMemory);

#[async_trait]
impl HomeHost for MemoryHost {
    async fn take_home(&self, shard: ShardId, recovered: JournalRecovery, summary: Token) -> Result<(), String> {
        let JournalRecovery { records, damage, may_lack_writes, .. } = recovered;
        let mut lost = Vec::new();
        for Damage { kind, .. } in damage {
            if let DamageKind::Record { record, stored: false } = kind {
                lost.push(*record);
            }
        }
        let taken = TakenShard { shard, records, lost, may_lack_writes, summary };
        self.0.take_home(taken).await.map_err(|error| error.to_string())
    }

    async fn let_go(&self, shard: ShardId) {
        self.0.let_go_of_home(shard).await;
    }

    fn home_is(&self, shard: ShardId, home: NodeNumber, epoch: Epoch) {
        self.0.home_is(shard, home, epoch);
    }

    fn newest(&self, shard: ShardId) -> Option<Version> {
        self.0.newest_here().into_iter().find(|(of, _)| *of == shard).map(|(_, version)| version)
    }
}

/// Answers other nodes' calls to the object memory.
pub(crate) struct MemoryDoor(pub(crate) ObjectMemory);

#[async_trait]
impl Handler for MemoryDoor {
    fn method(&self, number: u16) -> Option<&'static Method> {
        ObjectMemory::method(number)
    }

    async fn call(&self, call: Call<'_>) -> Result<Reply, Refusal> {
        self.0.answer(call).await
    }
}
