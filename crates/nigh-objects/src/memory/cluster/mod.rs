//! The memory in a cluster: homes of shards come here and leave, and requests for other objects go to their homes.
//!
//! `here` answers calls to the homes in this process, `there` calls homes elsewhere, `outside` passes a store's reports
//! on to them, `posts` carries messages that need no answer. The map of homes, beyond the memory, decides which shards
//! have their homes here; the ledger keeps the epochs of two homes apart.

mod compared;
mod handing_over;
mod here;
mod leaving;
mod listing;
mod neighbours;
mod outside;
mod posts;
mod remote_writes;
mod there;
mod transactions;
mod uses;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
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

/// How often the machines get the time. Nothing is sent again more often.
const TICK: Duration = Duration::from_millis(20);
/// How long homes may take to fence a member, or to report their newest versions.
const HOMES_WITHIN: Duration = Duration::from_secs(20);
/// The bytes of a body that are received at a time.
const BUFFER_BYTES: usize = 128 << 10;
/// The pause between two tries of one request.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a listing waits until its node covers what the listing shows.
const COVERED_WITHIN: Duration = Duration::from_secs(5);

/// Receives a body of `size` bytes into a segment: straight, or through a buffer that stays in the processor's cache,
/// so that each page of the segment is written once and whole.
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

/// The dispatch owners of namespaces, in any process.
#[async_trait]
pub trait Frontiers: Send + Sync {
    /// Gives `token` to the namespace's next dispatch, whichever process dispatches it.
    ///
    /// # Errors
    /// If the dispatch owner cannot be told. The caller must not acknowledge the write then.
    async fn hand_over(&self, namespace: &Namespace, token: &Token) -> Result<(), ObjectError>;
}

/// A memory's place in a cluster.
pub struct Place {
    /// This incarnation of the node.
    pub me: Member,
    /// The cluster's shards.
    pub shards: Shards,
    /// The other processes.
    pub neighbours: Arc<Neighbours>,
    /// Receives what the process around the memory must know.
    pub events: tokio::sync::mpsc::UnboundedSender<HomeEvent>,
    /// The protocol of all nodes. Any other than Nigh's is for experiments.
    pub coherence: CoherenceProtocol,
}

/// The limits of a node's machines in a cluster.
pub(super) fn limits() -> (HomeLimits, CacheLimits) {
    (HomeLimits::default(), CacheLimits::default())
}

/// Gives the time to the machines until the memory is dropped.
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
    /// The id of the shard.
    pub shard: ShardId,
    /// The writes that earlier homes have acknowledged and that the ledger still has.
    pub records: Vec<RecoveredRecord>,
    /// The records that are damaged.
    pub lost: Vec<RecoveredRecord>,
    /// The journal is damaged where nobody can say which writes it has lost.
    pub may_lack_writes: bool,
    /// The newest versions of all other shards, or newer ones: writers of trimmed records can have seen no more.
    pub summary: Token,
}

impl ObjectMemory {
    /// The dispatch owners of namespaces. Set once.
    pub fn set_frontiers(&self, frontiers: Arc<dyn Frontiers>) {
        if self.0.frontiers.set(frontiers).is_err() {
            tracing::error!("the frontiers of the object memory are set already");
        }
    }

    /// Begins the home of a shard here; the memory's ledger has taken the shard.
    ///
    /// # Errors
    /// Which record cannot be read. Nothing of the shard is here then.
    #[boxed]
    pub async fn take_home(&self, taken: TakenShard) -> Result<(), ObjectError> {
        let TakenShard { shard, mut records, mut lost, may_lack_writes, summary } = taken;
        let inner = &self.0;
        let transactions = found_in(&mut records)?;
        warn_of_lost(&mut lost);
        if let Some(earlier) = inner.coherence.epoch_here(shard) {
            // It would answer without what it has forgotten below.
            inner.lose_home(shard, earlier);
        }
        let epoch = inner.back.begin(shard);
        let all = records.iter().chain(&lost).cloned().collect();
        let recovered = async {
            let handed_over = inner.back.recover(records, lost, may_lack_writes)?;
            inner.find_transactions((shard, epoch), transactions).await?;
            inner.take_ephemeral(epoch, handed_over).await
        };
        let ephemeral = recovered.await.inspect_err(|_| inner.lose_home(shard, epoch))?;
        let summary = inner.compared().carried(summary);
        let new = NewHome { shard, epoch, records: all, summary };
        let dropped = inner.coherence.take(inner.now(), new, limits().0);
        inner.settle(dropped);
        inner.cache_taken(&ephemeral);
        inner.uses.begun();
        inner.resume_transactions(shard);
        tracing::info!(%shard, %epoch, "the home of a shard begins here");
        Ok(())
    }

    /// Learns from the map of homes that the home of `shard` is at `node`, under `epoch`. What is older than what it knows
    /// says nothing.
    pub fn home_is(&self, shard: ShardId, node: NodeNumber, epoch: Epoch) {
        let inner = &self.0;
        if inner.neighbours.as_ref().is_some_and(|neighbours| !neighbours.set_home(shard, node, epoch)) {
            return;
        }
        inner.announce_to_next_home(shard);
        if inner.me.is_some_and(|me| me.node == node) && !inner.coherence.is_home(shard) {
            // The home is about to begin here. What waits for it is sent again with its epoch, so when it has begun.
            return;
        }
        let dropped = inner.coherence.meet(inner.now(), shard, epoch);
        inner.settle(dropped);
    }

    /// The newest versions of the homes here.
    #[must_use]
    pub fn newest_here(&self) -> Vec<(ShardId, Version)> {
        self.0.newest_here()
    }

    /// The newest version of each home of the cluster, none of an older epoch than `at_least` names. Whoever begins to
    /// dispatch must have read them.
    ///
    /// # Errors
    /// Which home does not answer.
    #[boxed]
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

    /// Makes every home fence `member`, which can write nothing after that. Returns the newest version of each home.
    ///
    /// # Errors
    /// Which home does not answer; ask it again.
    #[boxed]
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
        if let Some(epoch) = self.coherence.epoch_here(shard) {
            // A former home may not know that it is one.
            self.confirm(shard, Some(epoch)).await.ok()?;
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

    /// Appends the fence that a home here wants, and reports the result to the home.
    pub(super) async fn append_fence(self: &Arc<Self>, shard: ShardId, append: AppendId, member: Member) {
        let Some(asked) = self.coherence.appending(shard, append.epoch) else { return };
        let dropped = match self.back.append_fence(shard, append.epoch, member).await {
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

    /// The home of `shard` under `epoch` is here no more. What a later home has here stays.
    pub(super) fn lose_home(&self, shard: ShardId, epoch: Epoch) {
        let dropped = self.coherence.let_go(self.now(), shard, epoch);
        self.lose_transactions(shard, epoch);
        self.back.forget(shard, epoch);
        self.settle(dropped);
    }

    /// Returns when the ledger has confirmed that the home of `shard` that `epoch_here` named was here after this call
    /// began, and is here still.
    ///
    /// # Errors
    /// `Fenced` if it is over, also if the next one is here: that one may know more.
    pub(super) async fn confirm(&self, shard: ShardId, epoch: Option<Epoch>) -> Result<(), ObjectError> {
        let over = || LedgerError::Fenced { shard, held: epoch.unwrap_or_default() };
        let epoch = epoch.ok_or_else(over)?;
        let confirmed = self.back.confirm(shard, epoch).await;
        if let Err(LedgerError::Fenced { .. }) = &confirmed
            && !self.coherence.is_alone()
        {
            self.depose(shard, epoch);
        }
        confirmed?;
        if self.coherence.epoch_here(shard) == Some(epoch) { Ok(()) } else { Err(over().into()) }
    }

    /// The ledger says that the home of `shard` under `epoch` is over.
    pub(super) fn depose(&self, shard: ShardId, epoch: Epoch) {
        self.coherence.depose(self.now(), shard, epoch);
        self.lose_home(shard, epoch);
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

    /// Tells a namespace's dispatch owner what a client outside has written, before the write is acknowledged.
    pub(super) async fn hand_over(&self, namespace: &Namespace, token: &Token) -> Result<(), ObjectError> {
        match self.frontiers.get() {
            Some(frontiers) => frontiers.hand_over(namespace, token).await,
            None => Ok(()),
        }
    }
}
