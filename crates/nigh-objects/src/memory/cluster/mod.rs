//! The memory as a member of a cluster: homes of shards come here and go, and an object whose home is elsewhere is
//! asked for there.
//!
//! `here` answers calls to the homes in this process, `there` calls homes elsewhere, `posts` carries what needs no
//! answer. The map of homes, outside, decides which shards have their homes here; the ledger keeps the epochs of two
//! homes apart.

mod compared;
mod handing_over;
mod here;
mod listing;
mod neighbours;
mod posts;
mod there;
mod transactions;
mod uses;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::try_join_all;
use nigh_data::ObjectError;
use nigh_data::account::Account;
use nigh_data::segment::{Segment, SegmentWriter};
use nigh_engine::LedgerError;
use nigh_engine::journal::RecoveredRecord;
use nigh_protocol::{AppendId, CacheLimits, HomeLimits, Member, NodeNumber};
use nigh_rpc::{Body, BodyError, IncomingBody};
use nigh_terms::{Epoch, Namespace, ShardId, Token, Version};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

pub use self::compared::CoherenceProtocol;
pub(super) use self::compared::CopyUse;
pub use self::handing_over::HandedOver;
pub(super) use self::handing_over::{Holders, LeftCopy, SHRINKS_WAITING, hand_over_all};
pub(super) use self::listing::RemoteHomes;
pub use self::neighbours::Neighbours;
pub use self::posts::HomeEvent;
pub(super) use self::posts::carry_all;
pub(super) use self::transactions::HomeReply;
pub(super) use self::uses::{HomeUse, HomeUses};
#[doc(hidden)]
pub use self::wire::fuzz;
use self::wire::{FENCE, Fence, NEWEST, NewestReply, WireError};
use super::machines::NewHome;
use super::transactions::{found_in, warn_of_lost};
use super::{ObjectMemory, ObjectMemoryState};
use crate::shards::Shards;

/// How often the machines get the time: nothing is sent again earlier.
const TICK: Duration = Duration::from_millis(20);
/// How long homes may take to fence a member, or to say how far they have come.
const HOMES_WITHIN: Duration = Duration::from_secs(20);
/// What of a body is received at once.
const BUFFER_BYTES: usize = 128 << 10;
/// Between two askings of one.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a listing waits until its node covers what the listing shows.
const COVERED_WITHIN: Duration = Duration::from_secs(5);
/// How long the appends of a home that leaves may take.
const DRAIN_WITHIN: Duration = Duration::from_secs(10);

/// The bytes of a body, which has `size` of them, in a segment: received there straight, or through a buffer that stays
/// in the processor's cache, so that each page of the segment is written once, whole.
async fn segment_of<E: From<ObjectError>>(
    account: &Arc<Account>,
    body: &mut IncomingBody<'_>,
    size: u64,
    broken: impl Fn(BodyError) -> E,
) -> Result<Segment, E> {
    let mut filling = SegmentWriter::new(account, size)?;
    let mut buffer = Vec::new();
    while body.left() > 0 {
        let left = body.left();
        if let Some(room) = filling.room(left)? {
            body.read_exact(room).await.map_err(&broken)?;
            let received = room.len();
            filling.received(received);
            continue;
        }
        buffer.resize(BUFFER_BYTES.min(left as usize), 0);
        body.read_exact(&mut buffer).await.map_err(&broken)?;
        filling.append(&buffer)?;
    }
    Ok(filling.seal()?)
}

/// The dispatch owners of namespaces, elsewhere.
#[async_trait]
pub trait Frontiers: Send + Sync {
    /// Gives `token` to the namespace's next dispatch, whichever process dispatches it.
    ///
    /// # Errors
    /// If the dispatch owner cannot be told: do not acknowledge the write.
    async fn hand_over(&self, namespace: &Namespace, token: &Token) -> Result<(), ObjectError>;
}

/// A memory's place in a cluster.
pub struct Place {
    /// This life of this node.
    pub me: Member,
    /// The cluster's shards.
    pub shards: Shards,
    /// The other processes.
    pub neighbours: Arc<Neighbours>,
    /// Takes what the process around the memory is to know.
    pub events: tokio::sync::mpsc::UnboundedSender<HomeEvent>,
    /// The protocol of all nodes; another than Nigh's is for experiments.
    pub coherence: CoherenceProtocol,
}

/// The limits of a node's machines in a cluster.
pub(super) fn limits() -> (HomeLimits, CacheLimits) {
    (HomeLimits::default(), CacheLimits::default())
}

/// Gives the time to the machines until the memory is gone.
pub(super) async fn tick(inner: std::sync::Weak<ObjectMemoryState>) {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(inner) = inner.upgrade() else { return };
        let dropped = inner.coherence.tick(inner.now());
        inner.settle(dropped);
    }
}

/// A shard whose home begins here.
pub struct TakenShard {
    /// Which.
    pub shard: ShardId,
    /// The writes that earlier homes have acknowledged and not reported as stored.
    pub records: Vec<RecoveredRecord>,
    /// What of it is damaged.
    pub lost: Vec<RecoveredRecord>,
    /// The journal is damaged where nobody can say which writes it has lost.
    pub may_lack_writes: bool,
    /// The newest versions of all other shards, or newer ones: forgotten writers can have seen no more.
    pub summary: Token,
}

impl ObjectMemory {
    /// The dispatch owners of namespaces. Set once.
    pub fn set_frontiers(&self, frontiers: Arc<dyn Frontiers>) {
        if self.0.frontiers.set(frontiers).is_err() {
            tracing::error!("the frontiers of the object memory are set already");
        }
    }

    /// The home of a shard begins here, which the memory's ledger has taken.
    ///
    /// # Errors
    /// Which record cannot be read. Nothing of the shard is here then.
    pub async fn take_home(&self, taken: TakenShard) -> Result<(), ObjectError> {
        let TakenShard { shard, mut records, mut lost, may_lack_writes, summary } = taken;
        let inner = &self.0;
        let transactions = found_in(&mut records)?;
        warn_of_lost(&mut lost);
        let (epoch, decided) = inner.back.begin(shard);
        let all = records.iter().chain(&lost).cloned().collect();
        inner.back.recover(records, lost, may_lack_writes)?;
        inner.find_transactions(shard, transactions).await?;
        let summary = inner.compared().carried(summary);
        let new = NewHome { shard, epoch, records: all, decided, summary };
        let dropped = inner.coherence.take(inner.now(), new, limits().0);
        inner.settle(dropped);
        inner.resume_transactions(shard);
        tracing::info!(%shard, %epoch, "the home of a shard begins here");
        Ok(())
    }

    /// The map of homes says that the home of `shard` is at `node`, under `epoch`.
    pub fn home_is(&self, shard: ShardId, node: NodeNumber, epoch: Epoch) {
        let inner = &self.0;
        if let Some(neighbours) = &inner.neighbours {
            neighbours.set_home(shard, node);
        }
        let dropped = inner.coherence.meet(inner.now(), shard, epoch);
        inner.settle(dropped);
    }

    /// The home of a shard here takes no more writes; returns when those under way have ended, or after ten seconds.
    /// Then nothing of it is here any more.
    pub async fn let_go_of_home(&self, shard: ShardId) {
        let inner = &self.0;
        inner.uses.leave(shard, DRAIN_WITHIN).await;
        inner.lose_home(shard);
        inner.uses.left(shard);
    }

    /// How far the homes here have come.
    #[must_use]
    pub fn newest_here(&self) -> Vec<(ShardId, Version)> {
        self.0.newest_here()
    }

    /// How far each home of the cluster has come, none of an older epoch than `at_least` names: what whoever begins to
    /// dispatch must have read.
    ///
    /// # Errors
    /// Which home does not answer.
    pub async fn newest_of_all(&self, at_least: &[(ShardId, Epoch)]) -> Result<Token, ObjectError> {
        let (inner, deadline) = (&self.0, Instant::now() + HOMES_WITHIN);
        let asked = at_least.iter().map(|&(shard, epoch)| async move {
            loop {
                let version = inner.newest_at_home(shard).await;
                match version {
                    Some(version) if version.epoch >= epoch => return Ok((shard, version)),
                    _ if Instant::now() >= deadline => {
                        return Err(ObjectError::Busy(format!("the home of shard {shard} does not answer")));
                    }
                    _ => tokio::time::sleep(PAUSE).await,
                }
            }
        });
        let mut token = Token::empty();
        for (shard, version) in try_join_all(asked).await? {
            token.see(shard, version);
        }
        Ok(token)
    }

    /// Has every home fence `member`, which writes nothing any more after that. Gives the newest version of each home.
    ///
    /// # Errors
    /// Which home does not answer; it is to be asked again.
    pub async fn fence(&self, member: Member) -> Result<Token, ObjectError> {
        let (inner, deadline) = (&self.0, Instant::now() + HOMES_WITHIN);
        let asked = inner.coherence.shards.all().map(|shard| async move {
            loop {
                match inner.fence_at_home(shard, member).await {
                    Ok(through) => return Ok((shard, through)),
                    Err(error) if Instant::now() >= deadline => return Err(ObjectError::from(error)),
                    Err(_) => tokio::time::sleep(PAUSE).await,
                }
            }
        });
        let mut token = Token::empty();
        for (shard, version) in try_join_all(asked).await? {
            token.see(shard, version);
        }
        Ok(token)
    }
}

impl ObjectMemoryState {
    pub(super) fn newest_here(&self) -> Vec<(ShardId, Version)> {
        self.coherence.newest_here()
    }

    async fn newest_at_home(&self, shard: ShardId) -> Option<Version> {
        if self.coherence.is_home(shard) {
            // A former home may not know that it is one.
            self.confirm(shard).await.ok()?;
            return self.coherence.newest_here().into_iter().find(|(of, _)| *of == shard).map(|(_, version)| version);
        }
        let neighbours = self.neighbours.as_ref()?;
        let (NewestReply { homes }, _) = neighbours.ask_home(shard, &NEWEST, &(), Body::empty()).await.ok()?;
        homes.into_iter().find(|(of, _)| *of == shard).map(|(_, version)| version)
    }

    async fn fence_at_home(&self, shard: ShardId, member: Member) -> Result<Version, WireError> {
        if self.coherence.is_home(shard) {
            return self.fence_here(shard, member).await;
        }
        let neighbours = self.neighbours.as_ref().ok_or(WireError::Elsewhere)?;
        let fence = Fence { shard, member };
        let fenced = neighbours.ask_home::<Version>(shard, &FENCE, &fence, Body::empty()).await;
        fenced.map(|(through, _)| through).map_err(WireError::from)
    }

    async fn fence_here(&self, shard: ShardId, member: Member) -> Result<Version, WireError> {
        let fenced = self.coherence.fence(self.now(), shard, member).ok_or(WireError::Elsewhere)?;
        let late = || WireError::Busy("the ledger does not answer".to_owned());
        let fenced = tokio::time::timeout(HOMES_WITHIN, fenced).await.map_err(|_| late())?;
        fenced.map_err(|_| WireError::Elsewhere)
    }

    /// Appends the fence that a home here wants, and tells it.
    pub(super) async fn append_fence(self: &Arc<Self>, shard: ShardId, append: AppendId, member: Member) {
        let Some(asked) = self.coherence.appending(shard) else { return };
        let dropped = match self.back.append_fence(shard, member).await {
            Ok(version) => self.coherence.appended(self.now(), shard, (append, asked), version, None),
            Err(error) => {
                tracing::warn!(%shard, ?member, %error, "a fence could not be kept");
                let lost = error.may_have_taken_a_version();
                let dropped = self.coherence.refused(self.now(), shard, asked, lost);
                self.settle(dropped);
                self.coherence.not_appended(self.now(), shard, append)
            }
        };
        self.settle(dropped);
    }

    /// The home of a shard is here no more.
    pub(super) fn lose_home(&self, shard: ShardId) {
        let dropped = self.coherence.let_go(self.now(), shard);
        self.lose_transactions(shard);
        self.back.forget(shard);
        self.settle(dropped);
    }

    /// Returns when the ledger has confirmed that the home of `shard` was here after this call began.
    pub(super) async fn confirm(&self, shard: ShardId) -> Result<(), ObjectError> {
        let confirmed = self.back.confirm(shard).await;
        if let Err(LedgerError::Fenced { .. }) = &confirmed {
            self.depose(shard);
        }
        Ok(confirmed?)
    }

    /// The ledger says that another home has the shard.
    pub(super) fn depose(&self, shard: ShardId) {
        self.coherence.depose(self.now(), shard);
        self.lose_home(shard);
    }

    /// Waits until the node covers `token`.
    pub(super) async fn cover(&self, token: &Token, within: Duration) -> Result<(), ObjectError> {
        let deadline = Instant::now() + within;
        loop {
            let more = self.coherence.more_decided();
            if self.coherence.covers_or_asks(self.now(), token) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(ObjectError::SlowDown("the node has not caught up with what it is to show"));
            }
            let _looked_at_again = timeout_at(deadline.min(Instant::now() + PAUSE), more).await;
        }
    }

    /// Tells whoever dispatches a namespace's invocations what a client outside has written, before that is
    /// acknowledged.
    pub(super) async fn hand_over(&self, namespace: &Namespace, token: &Token) -> Result<(), ObjectError> {
        match self.frontiers.get() {
            Some(frontiers) => frontiers.hand_over(namespace, token).await,
            None => Ok(()),
        }
    }
}
