//! Opens the object memory, of a node alone or of one in a cluster.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use nigh_data::account::{Account, segments_max};
use nigh_data::segment_cost::Cost;
use nigh_data::{ObjectError, ObjectObserver};
use nigh_protocol::{CacheLimits, HomeLimits, Member, NodeNumber};
use nigh_stores::Store;
use nigh_terms::{Clock, Incarnation, Monotonic, ShardId, Token};
use tokio::sync::mpsc;

use super::cluster::{self, Holders, HomeUses, Place};
use super::coherence::Coherence;
use super::machines::NewHome;
use super::transactions::{Transactions, found_in, warn_of_lost};
use super::{MemoryLimits, ObjectMemory, ObjectMemoryState};
use crate::meter::Meter;
use crate::shards::Shards;
use crate::spool::{Spool, blocking};
use crate::sync::{Mutex, spawn};
use crate::uploads::Uploads;
use crate::write_back::{WriteBack, Writes};
use crate::write_order::WriteOrder;

/// The machines of a node that is alone: the node and the home of its one shard, under the journal's new epoch, which
/// is the node's incarnation too. No message between the two is lost, so neither sends one again.
fn alone(writes: &Writes, budget: Cost) -> Coherence {
    let (shard, ledger) = (ShardId(0), &writes.ledger);
    let epoch = ledger.epoch(shard);
    let me = Member { node: NodeNumber(0), incarnation: Incarnation(epoch.0) };
    let limits = CacheLimits { resend: Duration::MAX, resend_max: Duration::MAX, ..CacheLimits::default() };
    let coherence = Coherence::open((me, Shards::ONE), Arc::clone(ledger), limits, budget, None);
    let records = writes.recovered.iter().chain(&writes.lost).cloned().collect();
    let new = NewHome { shard, epoch, records, summary: Token::empty() };
    // The node's limit bounds the home too.
    let limits = HomeLimits { puts_max: usize::MAX, ..HomeLimits::default() };
    // The cache is empty, so nothing is dropped.
    let _ = coherence.take(Monotonic::default(), new, limits);
    coherence
}

impl ObjectMemory {
    /// A memory in front of `store`. Unfinished uploads found in the spool continue, if they are not a week old.
    ///
    /// The spool is the store's own if it has one, so that a spooled file can be renamed into the store, and `spool`
    /// otherwise. Only one memory at a time may use it. Install the metrics recorder before.
    ///
    /// The writes that `writes` has recovered are visible at once; `persist` pushes them.
    ///
    /// # Errors
    /// If the spool or the journal cannot be used, or the kernel makes no memfd.
    pub async fn open(
        store: Arc<dyn Store>,
        writes: Writes,
        clock: Arc<dyn Clock>,
        observers: Vec<Arc<dyn ObjectObserver>>,
        spool: PathBuf,
        limits: MemoryLimits,
    ) -> Result<Self, ObjectError> {
        Self::open_at(None, store, writes, clock, observers, spool, limits).await
    }

    /// Opens the object memory in a cluster: homes are added by `take_home`, and requests for other objects go to their
    /// homes on other nodes. `writes` has the ledger of the homes that will be added, and has recovered nothing.
    ///
    /// # Errors
    /// The same as for `open`.
    pub async fn open_in_cluster(
        place: Place,
        store: Arc<dyn Store>,
        writes: Writes,
        clock: Arc<dyn Clock>,
        observers: Vec<Arc<dyn ObjectObserver>>,
        spool: PathBuf,
        limits: MemoryLimits,
    ) -> Result<Self, ObjectError> {
        Self::open_at(Some(place), store, writes, clock, observers, spool, limits).await
    }

    async fn open_at(
        place: Option<Place>,
        store: Arc<dyn Store>,
        writes: Writes,
        clock: Arc<dyn Clock>,
        observers: Vec<Arc<dyn ObjectObserver>>,
        spool: PathBuf,
        limits: MemoryLimits,
    ) -> Result<Self, ObjectError> {
        // In a cluster, other nodes use the store's spool too.
        let own = store.spool().filter(|_| place.is_none());
        let folder = own.map_or(spool, Path::to_path_buf);
        let uploads = folder.join("uploads");
        let uploads = blocking(move || Uploads::open(uploads)).await?;
        let spool = Spool::open(folder.join("bodies")).await?;
        let meter = Arc::new(Meter::new());
        let mut all: Vec<Arc<dyn ObjectObserver>> = vec![Arc::clone(&meter) as Arc<dyn ObjectObserver>];
        all.extend(observers);
        let mut writes = writes;
        let transactions = found_in(&mut writes.recovered)?;
        warn_of_lost(&mut writes.lost);
        let budget = Cost { bytes: limits.cache.bytes(), segments: segments_max() };
        meter.holds(Cost::default(), budget);
        let (member, neighbours, carried, coherence) = match place {
            None => (None, None, None, alone(&writes, budget)),
            Some(Place { me, shards, neighbours, events, coherence: compared }) => {
                let (happens, happened) = mpsc::unbounded_channel();
                let limits = cluster::limits().1;
                let ledger = Arc::clone(&writes.ledger);
                let coherence = Coherence::open((me, shards), ledger, limits, budget, Some(happens)).compared(compared);
                (Some(me), Some(Arc::clone(&neighbours)), Some((neighbours, happened, events)), coherence)
            }
        };
        let left = carried.as_ref().map(|_| mpsc::channel(cluster::SHRINKS_WAITING));
        let account = Account::open()?;
        drop(account.set_pool_limit(budget));
        let back = Arc::new(WriteBack::open(store, (member, coherence.shards), Arc::clone(&clock), writes).await?);
        let inner = Arc::new(ObjectMemoryState {
            back,
            clock,
            observers: all.into(),
            limits,
            coherence,
            doubts: Mutex::default(),
            outside: Mutex::default(),
            announced: Mutex::default(),
            writing: Mutex::default(),
            account,
            order: WriteOrder::default(),
            spool,
            uploads,
            completed: Mutex::default(),
            meter,
            neighbours,
            me: member,
            holders: Holders::default(),
            left: left.as_ref().map(|(left, _)| left.clone()),
            uses: HomeUses::default(),
            transactions: Transactions::default(),
            frontiers: OnceLock::new(),
            notifications: OnceLock::new(),
        });
        if let Some((neighbours, happened, events)) = carried {
            spawn(cluster::carry_all(Arc::downgrade(&inner), neighbours, happened, events));
            if let Some((_, left)) = left {
                spawn(cluster::hand_over_all(Arc::downgrade(&inner), left));
            }
            spawn(cluster::tick(Arc::downgrade(&inner)));
        }
        if inner.coherence.is_alone() {
            let epoch = inner.coherence.epoch_here(ShardId(0)).unwrap_or_default();
            inner.find_transactions((ShardId(0), epoch), transactions).await?;
            inner.resume_transactions(ShardId(0));
        }
        inner.abandon_uploads().await;
        Ok(Self(inner))
    }
}
