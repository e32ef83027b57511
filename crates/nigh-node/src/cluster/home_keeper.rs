//! Keeps this node the home of the shards that are to be its own: watches who lives and the map of homes, does what
//! `keeping` decides, and has the host serve.
//!
//! A shard is taken in this order: the claim (compare-and-set in the map), the epoch (in the journal), the epoch told in the
//! map, the summary, then the host serves. It is let go in this one: the host has no append under way, the ledger has the
//! shard no longer, the map says that it is free. So no write fails by a planned move, and none is given a version under an
//! epoch that the map does not say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use nigh_engine::nats::{Claimant, ClusterError, HomeEntry, NatsHomes, NatsLedger, NatsMembership, ShardHome};
use nigh_engine::{LedgerError, Membership as _, NodeRole, Presence, PresentMember, RegistryError, Revision};
use nigh_rpc::Peers;
use nigh_terms::{Clock, NodeId, ShardId};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::home_host::HomeHost;
use super::keeping::{ShardState, Step, View};
use super::newest::{Asker, Reigns};
use super::seen_map::SeenMap;
use super::summary::summary;

/// Shards that are taken, or let go, at a time.
const AT_ONCE: usize = 16;
/// How often it is looked what failed and may be tried again.
const LOOKED_EVERY: Duration = Duration::from_millis(100);
/// The waits before a shard is taken again that could not be.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(10);
/// The wait where only an operator can help.
const RETRY_DAMAGED: Duration = Duration::from_secs(60);

/// What a keeper works with.
pub(super) struct KeeperParts {
    pub(super) claimant: Claimant,
    pub(super) membership: Arc<NatsMembership>,
    /// What this node tells of itself while it may be a home; its roles say whether it may.
    pub(super) presence: Presence,
    pub(super) homes: NatsHomes,
    pub(super) ledger: NatsLedger,
    pub(super) host: Arc<dyn HomeHost>,
    pub(super) reigns: Reigns,
    pub(super) peers: Peers,
    pub(super) shards: u16,
    pub(super) clock: Arc<dyn Clock>,
}

/// A shard that this node cannot serve, though it should.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HomeTrouble {
    /// The shard.
    pub shard: ShardId,
    /// Why.
    pub why: String,
    /// Attempts so far.
    pub attempts: u32,
}

/// How the homes of a cluster stand, as one node sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HomesStatus {
    /// The cluster's shards.
    pub shards: u16,
    /// Those that this node serves.
    pub own: Vec<ShardId>,
    /// Those that have no living home.
    pub without: Vec<ShardId>,
    /// What this node should serve and cannot.
    pub troubles: Vec<HomeTrouble>,
}

/// Why a shard was not taken.
enum NotTaken {
    /// Another node was faster.
    Beaten,
    /// Tried again soon.
    Failed(String),
    /// Needs an operator.
    Damaged(String),
}

impl From<RegistryError> for NotTaken {
    fn from(error: RegistryError) -> Self {
        match error {
            RegistryError::Conflict { .. } => Self::Beaten,
            other => Self::Failed(other.to_string()),
        }
    }
}

impl From<ClusterError> for NotTaken {
    fn from(error: ClusterError) -> Self {
        match error {
            ClusterError::Superseded { .. } => Self::Beaten,
            ClusterError::Damaged { .. }
            | ClusterError::Gone { .. }
            | ClusterError::WentBack { .. }
            | ClusterError::Newer { .. }
            | ClusterError::Settings { .. } => Self::Damaged(error.to_string()),
            other => Self::Failed(other.to_string()),
        }
    }
}

/// How a step went.
enum StepResult {
    Taken(ShardId),
    NotTaken(ShardId, NotTaken),
    LetGo(ShardId, Result<(), RegistryError>),
}

/// The keeper of a node's homes. To be closed; if it is dropped it stops, as in a crash.
pub struct HomeKeeper {
    ending: CancellationToken,
    status: Arc<Mutex<HomesStatus>>,
    membership: Arc<NatsMembership>,
    presence: Presence,
    task: Option<JoinHandle<()>>,
}

impl HomeKeeper {
    pub(super) async fn start(parts: KeeperParts) -> Result<Self, RegistryError> {
        let KeeperParts { membership, presence, .. } = &parts;
        let (membership, presence) = (Arc::clone(membership), presence.clone());
        let watched = parts.homes.watch()?;
        let mut map = SeenMap::new();
        for entry in parts.homes.list().await? {
            map.learn(entry);
        }
        let status = Arc::new(Mutex::new(HomesStatus { shards: parts.shards, ..HomesStatus::default() }));
        let ending = CancellationToken::new();
        let keeping = KeeperTask::new(parts, map, Arc::clone(&status), ending.clone());
        // Only now: the others let go for this node as soon as they hear of it.
        membership.tell(&presence);
        let task = Some(tokio::spawn(keeping.run(watched)));
        Ok(Self { ending, status, membership, presence, task })
    }

    /// How homes stand.
    #[must_use]
    pub fn status(&self) -> HomesStatus {
        self.status.lock().clone()
    }

    /// Lets all shards go, one after the other to those that are to have them; gives up after `patience`.
    pub async fn close(mut self, patience: Duration) {
        let roles = self.presence.roles.iter().copied().filter(|role| *role != NodeRole::Memory);
        self.membership.tell(&Presence::new(self.presence.number, &self.presence.address, roles));
        self.ending.cancel();
        if let Some(mut task) = self.task.take()
            && timeout(patience, &mut task).await.is_err()
        {
            tracing::warn!("not all shards were let go in time; others take them when this node's time is over");
            task.abort();
        }
    }
}

impl Drop for HomeKeeper {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// What taking and letting go need, beside the shard.
struct Hands {
    claimant: Claimant,
    homes: NatsHomes,
    ledger: NatsLedger,
    host: Arc<dyn HomeHost>,
    reigns: Reigns,
    asker: Asker,
    shards: u16,
    seen: watch::Sender<Arc<SeenMap>>,
    turns: Semaphore,
}

impl Hands {
    fn learn(&self, shard: ShardId, home: ShardHome, revision: Revision) {
        self.seen.send_if_modified(|map| Arc::make_mut(map).learn(HomeEntry { shard, home, revision }));
    }

    fn entry(&self, shard: ShardId) -> Option<(ShardHome, Revision)> {
        self.seen.borrow().entries.get(&shard).cloned()
    }

    async fn take(&self, shard: ShardId) -> Result<(), NotTaken> {
        let turn = self.turns.acquire().await.map_err(|closed| NotTaken::Failed(closed.to_string()))?;
        let found = self.entry(shard);
        let before = found.as_ref().and_then(|(home, _)| home.highest());
        let found = found.as_ref().map(|(home, revision)| (home, *revision));
        let claim = self.homes.claim(shard, &self.claimant, found).await?;
        let claimed = ShardHome::claimed(&self.claimant, before);
        self.learn(shard, claimed, Revision(claim.claim));
        let recovered = self.ledger.take(&claim).await?;
        let epoch = recovered.epoch;
        if before.is_some_and(|before| epoch <= before) {
            self.ledger.let_go(shard);
            return Err(NotTaken::Damaged(format!(
                "its journal begins anew with epoch {epoch}, and versions of epoch {} were given out: restore it",
                before.unwrap_or_default()
            )));
        }
        self.reigns.begin(shard, epoch);
        let told = self.homes.took(&claim, self.claimant.number, epoch).await?;
        self.learn(shard, ShardHome::of(&self.claimant, Some(epoch)), told);
        // Others may need their turn to answer what this one asks.
        drop(turn);
        let mut seen = self.seen.subscribe();
        let replaced = seen.wait_for(|map| map.entries.get(&shard).is_some_and(|(_, newest)| *newest > told));
        let summary = tokio::select! {
            summary = summary(shard, self.shards, told, self.seen.subscribe(), &self.asker) => summary,
            _ = replaced => return Err(NotTaken::Beaten),
        };
        self.host.take_home(shard, recovered, summary).await.map_err(NotTaken::Failed)
    }

    async fn let_go(&self, shard: ShardId) -> Result<(), RegistryError> {
        let _turn = self.turns.acquire().await.map_err(|closed| RegistryError::Storage(closed.to_string()))?;
        self.reigns.end(shard);
        self.host.let_go(shard).await;
        self.ledger.let_go(shard);
        let Some((mut home, revision)) = self.entry(shard) else { return Ok(()) };
        if !home.is_of(&self.claimant.node, self.claimant.incarnation) {
            return Ok(());
        }
        let freed = self.homes.free(shard, (&home, revision)).await?;
        home.free = true;
        self.learn(shard, home, freed);
        Ok(())
    }
}

/// The keeper's task.
struct KeeperTask {
    hands: Arc<Hands>,
    clock: Arc<dyn Clock>,
    status: Arc<Mutex<HomesStatus>>,
    ending: CancellationToken,
    membership: Arc<NatsMembership>,
    present: watch::Receiver<Vec<PresentMember>>,
    own: BTreeMap<ShardId, ShardState>,
    troubles: BTreeMap<ShardId, HomeTrouble>,
    done: JoinSet<StepResult>,
}

impl KeeperTask {
    fn new(parts: KeeperParts, map: SeenMap, status: Arc<Mutex<HomesStatus>>, ending: CancellationToken) -> Self {
        let KeeperParts { claimant, membership, homes, ledger, host, reigns, peers, shards, clock, .. } = parts;
        let present = membership.present();
        let asker = Asker {
            own: claimant.number,
            own_life: membership.incarnation().0,
            reigns: reigns.clone(),
            peers,
            present: present.clone(),
        };
        let (seen, turns) = (watch::Sender::new(Arc::new(map)), Semaphore::new(AT_ONCE));
        let hands = Arc::new(Hands { claimant, homes, ledger, host, reigns, asker, shards, seen, turns });
        let (own, troubles, done) = (BTreeMap::new(), BTreeMap::new(), JoinSet::new());
        Self { hands, clock, status, ending, membership, present, own, troubles, done }
    }

    async fn run(mut self, mut watched: mpsc::Receiver<HomeEntry>) {
        let mut looks = interval(LOOKED_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.tell_all();
        loop {
            self.step();
            if self.ending.is_cancelled() && self.own.is_empty() && self.done.is_empty() {
                return;
            }
            tokio::select! {
                entry = watched.recv() => match entry {
                    Some(entry) => self.watched(entry),
                    None => return tracing::error!("the map of homes is watched no more; restart the node"),
                },
                changed = self.present.changed() => if changed.is_err() { return },
                Some(done) = self.done.join_next() => match done {
                    Ok(done) => self.done(done),
                    Err(error) => tracing::error!(%error, "a step of the keeper of homes panicked"),
                },
                _ = looks.tick() => self.look_at_ledgers(),
            }
        }
    }

    /// Tells the host every home that is known.
    fn tell_all(&self) {
        let seen = Arc::clone(&self.hands.seen.borrow());
        for shard in seen.entries.keys() {
            self.tell(&seen, *shard);
        }
    }

    fn tell(&self, seen: &SeenMap, shard: ShardId) {
        if let Some((home, epoch)) = seen.home(shard) {
            self.hands.host.home_is(shard, home.number, epoch);
        }
    }

    fn watched(&self, entry: HomeEntry) {
        let shard = entry.shard;
        let mut news = false;
        self.hands.seen.send_modify(|map| news = Arc::make_mut(map).watched(entry));
        // What this node wrote itself is known before it is watched, and is told all the same.
        let seen = Arc::clone(&self.hands.seen.borrow());
        if news || seen.home(shard).is_some_and(|(home, _)| home.number == self.hands.claimant.number) {
            self.tell(&seen, shard);
        }
    }

    /// A ledger that has failed is taken again, under a new epoch.
    fn look_at_ledgers(&mut self) {
        let held = self.own.iter_mut().filter(|(_, own)| **own == ShardState::Held);
        for (&shard, own) in held {
            if let Err(error @ (LedgerError::Failed(_) | LedgerError::Fenced { .. })) =
                self.hands.ledger.check_shard(shard)
            {
                tracing::warn!(%shard, %error, "the shard is taken again");
                self.hands.reigns.end(shard);
                *own = ShardState::Waits(self.clock.monotonic());
            }
        }
    }

    /// Begins what is to be done now.
    fn step(&mut self) {
        let claimant = &self.hands.claimant;
        let seen = Arc::clone(&self.hands.seen.borrow());
        let present = self.present.borrow_and_update().clone();
        let homes = present.iter().filter(|member| member.has(NodeRole::Memory)).map(|member| member.node.clone());
        let ends = self.ending.is_cancelled();
        let members: BTreeSet<NodeId> = homes.filter(|node| !ends || *node != claimant.node).collect();
        let lives = |node: &NodeId, incarnation| {
            present.iter().any(|member| (&member.node, member.incarnation) == (node, incarnation))
        };
        let is_over =
            |node: &NodeId, incarnation| self.membership.can_know_of(incarnation) && !lives(node, incarnation);
        let now = self.clock.monotonic();
        self.own.retain(|_, own| !matches!(own, ShardState::Waits(until) if *until <= now));
        let view = View {
            node: &claimant.node,
            incarnation: claimant.incarnation,
            members: &members,
            is_over: &is_over,
            is_member: lives(&claimant.node, claimant.incarnation),
            shards: self.hands.shards,
            map: &seen.entries,
            own: &self.own,
            now,
        };
        let (steps, without) = (view.steps(), view.without());
        for step in steps {
            self.begin(step);
        }
        let held = self.own.iter().filter(|(_, own)| **own == ShardState::Held).map(|(shard, _)| *shard);
        *self.status.lock() = HomesStatus {
            shards: self.hands.shards,
            own: held.collect(),
            without,
            troubles: self.troubles.values().cloned().collect(),
        };
    }

    fn begin(&mut self, step: Step) {
        let hands = Arc::clone(&self.hands);
        match step {
            Step::Take(shard) => {
                self.own.insert(shard, ShardState::Busy);
                self.done.spawn(async move {
                    match Box::pin(hands.take(shard)).await {
                        Ok(()) => StepResult::Taken(shard),
                        Err(why) => StepResult::NotTaken(shard, why),
                    }
                });
            }
            Step::LetGo(shard) => {
                self.own.insert(shard, ShardState::Busy);
                self.done.spawn(async move { StepResult::LetGo(shard, hands.let_go(shard).await) });
            }
            Step::Lost(shard) => {
                tracing::warn!(%shard, "another node has become the home of the shard");
                hands.reigns.end(shard);
                hands.ledger.let_go(shard);
                self.own.remove(&shard);
                self.troubles.remove(&shard);
            }
        }
    }

    fn done(&mut self, done: StepResult) {
        match done {
            StepResult::Taken(shard) => {
                self.own.insert(shard, ShardState::Held);
                if self.troubles.remove(&shard).is_some() {
                    tracing::info!(%shard, "the shard is served again");
                }
            }
            StepResult::NotTaken(shard, why) => {
                self.hands.reigns.end(shard);
                self.hands.ledger.let_go(shard);
                let (why, at_least) = match why {
                    NotTaken::Beaten => {
                        self.troubles.remove(&shard);
                        // The map is to be seen first as the other has changed it.
                        self.own.insert(shard, ShardState::Waits(self.clock.monotonic().after(RETRY_MIN)));
                        return;
                    }
                    NotTaken::Failed(why) => (why, RETRY_MIN),
                    NotTaken::Damaged(why) => (why, RETRY_DAMAGED),
                };
                self.trouble(shard, why, at_least);
            }
            StepResult::LetGo(shard, Ok(()) | Err(RegistryError::Conflict { .. })) => {
                self.own.remove(&shard);
                self.troubles.remove(&shard);
            }
            StepResult::LetGo(shard, Err(error)) => self.trouble(shard, error.to_string(), RETRY_MIN),
        }
    }

    /// What failed is tried again, ever later; it is said once for each reason.
    fn trouble(&mut self, shard: ShardId, why: String, at_least: Duration) {
        let known = self.troubles.get(&shard);
        let attempts = known.map_or(0, |known| known.attempts) + 1;
        if known.is_none_or(|known| known.why != why) {
            tracing::warn!(%shard, why, "the shard cannot be served; it is tried again");
        }
        let wait = RETRY_MIN.saturating_mul(1 << attempts.min(16)).min(RETRY_MAX).max(at_least);
        self.troubles.insert(shard, HomeTrouble { shard, why, attempts });
        self.own.insert(shard, ShardState::Waits(self.clock.monotonic().after(wait)));
    }
}
