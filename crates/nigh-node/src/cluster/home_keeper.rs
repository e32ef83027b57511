//! Makes this node the home of its shards: watches the members and the map of homes, and lets `home_steps` do what
//! `keeping` decides.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use nigh_engine::nats::{Claimant, HomeEntry, NatsHomes, NatsLedger, NatsMembership};
use nigh_engine::{Availability, LedgerError, Membership as _, PresentMember, RegistryError};
use nigh_rpc::Peers;
use nigh_terms::{Clock, NodeId, ShardId};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::home_host::HomeHost;
use super::home_steps::{HomeSteps, TakeError};
use super::keeping::{ShardState, Step, View, may_be_homes};
use super::newest::{Asker, OwnEpochs};
use super::operations::announcer::Announcer;
use super::seen_map::SeenMap;
use crate::status::{HomeTrouble, HomesStatus};

/// The most shards that are taken or released at a time.
const AT_ONCE: usize = 16;
/// How often the keeper looks for failed shards whose wait is over.
const LOOKED_EVERY: Duration = Duration::from_millis(50);
/// The shortest and the longest wait before a failed shard is tried again. Nobody can use the shard meanwhile, and a step that
/// fails because the servers are away has waited for them itself.
const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(1);
/// The wait before the next try if only an operator can help.
const RETRY_DAMAGED: Duration = Duration::from_secs(60);

/// The parts that a keeper uses.
pub(super) struct KeeperParts {
    pub(super) claimant: Claimant,
    pub(super) membership: Arc<NatsMembership>,
    /// Tells the others that this node may be a home, if it has the role.
    pub(super) announcer: Arc<Announcer>,
    pub(super) homes: NatsHomes,
    pub(super) ledger: NatsLedger,
    pub(super) host: Arc<dyn HomeHost>,
    pub(super) epochs: OwnEpochs,
    pub(super) peers: Peers,
    pub(super) shards: u16,
    pub(super) clock: Arc<dyn Clock>,
}

/// The result of a step.
enum StepResult {
    Taken(ShardId),
    NotTaken(ShardId, TakeError),
    LetGo(ShardId, Result<(), RegistryError>),
}

/// The keeper of a node's homes. Close it; dropping it stops it like a crash.
pub struct HomeKeeper {
    ending: CancellationToken,
    status: Arc<Mutex<HomesStatus>>,
    announcer: Arc<Announcer>,
    task: Option<JoinHandle<()>>,
}

impl HomeKeeper {
    pub(super) async fn start(parts: KeeperParts) -> Result<Self, RegistryError> {
        let announcer = Arc::clone(&parts.announcer);
        let watched = parts.homes.watch()?;
        let mut map = SeenMap::new();
        for entry in parts.homes.list().await? {
            map.learn(entry);
        }
        let status = Arc::new(Mutex::new(HomesStatus { shards: parts.shards, ..HomesStatus::default() }));
        let ending = CancellationToken::new();
        let keeping = KeeperTask::new(parts, map, Arc::clone(&status), ending.clone());
        // Not earlier, because the others release shards for this node as soon as they learn of it.
        announcer.serve_homes(true);
        let task = Some(tokio::spawn(keeping.run(watched)));
        Ok(Self { ending, status, announcer, task })
    }

    /// The status of the homes.
    #[must_use]
    pub fn status(&self) -> HomesStatus {
        self.status.lock().clone()
    }

    /// Releases all shards to the nodes that they are placed on; gives up after `patience`.
    #[boxed]
    pub async fn close(mut self, patience: Duration) {
        self.announcer.serve_homes(false);
        self.ending.cancel();
        if let Some(mut task) = self.task.take()
            && timeout(patience, &mut task).await.is_err()
        {
            tracing::warn!("some shards were not released in time; other nodes take them when this node's lease ends");
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

/// The keeper's task.
struct KeeperTask {
    steps: Arc<HomeSteps>,
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
        let KeeperParts { claimant, membership, homes, ledger, host, epochs, peers, shards, clock, .. } = parts;
        let present = membership.present();
        let asker = Asker {
            own: claimant.number,
            own_life: membership.incarnation().0,
            epochs: epochs.clone(),
            peers,
            present: present.clone(),
        };
        let (seen, turns) = (watch::Sender::new(Arc::new(map)), Semaphore::new(AT_ONCE));
        let steps = Arc::new(HomeSteps { claimant, homes, ledger, host, epochs, asker, shards, seen, turns });
        let (own, troubles, done) = (BTreeMap::new(), BTreeMap::new(), JoinSet::new());
        Self { steps, clock, status, ending, membership, present, own, troubles, done }
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
                    None => return tracing::error!("the watch of the map of homes has ended; restart the node"),
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

    /// Tells the host all known homes.
    fn tell_all(&self) {
        let seen = Arc::clone(&self.steps.seen.borrow());
        for shard in seen.entries.keys() {
            self.tell(&seen, *shard);
        }
    }

    fn tell(&self, seen: &SeenMap, shard: ShardId) {
        if let Some((home, epoch)) = seen.home(shard) {
            self.steps.host.home_is(shard, home.number, epoch);
        }
    }

    fn watched(&self, entry: HomeEntry) {
        let shard = entry.shard;
        let mut news = false;
        self.steps.seen.send_modify(|map| news = Arc::make_mut(map).watched(entry));
        // The map has this node's own entries before the watch shows them, so the host is told of them here.
        let seen = Arc::clone(&self.steps.seen.borrow());
        if news || seen.home(shard).is_some_and(|(home, _)| home.number == self.steps.claimant.number) {
            self.tell(&seen, shard);
        }
    }

    /// Takes shards whose ledger has failed again, under a new epoch.
    fn look_at_ledgers(&mut self) {
        let held = self.own.iter_mut().filter(|(_, own)| **own == ShardState::Held);
        for (&shard, own) in held {
            if let Err(error @ (LedgerError::Failed(_) | LedgerError::Fenced { .. })) =
                self.steps.ledger.check_shard(shard)
            {
                tracing::warn!(%shard, %error, "the shard is taken again");
                self.steps.epochs.end(shard);
                *own = ShardState::Waits(self.clock.monotonic());
            }
        }
    }

    /// Starts the steps that are due.
    fn step(&mut self) {
        let claimant = &self.steps.claimant;
        let seen = Arc::clone(&self.steps.seen.borrow());
        let present = self.present.borrow_and_update().clone();
        let ends = self.ending.is_cancelled();
        let mut members = may_be_homes(&present);
        if ends {
            members.remove(&claimant.node);
        }
        let own = present.iter().find(|member| member.node == claimant.node);
        let is_cordoned = own.is_some_and(|own| own.presence.availability == Availability::Cordoned);
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
            keeps_homes: is_cordoned && !ends,
            shards: self.steps.shards,
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
            shards: self.steps.shards,
            own: held.collect(),
            without,
            troubles: self.troubles.values().cloned().collect(),
        };
    }

    fn begin(&mut self, step: Step) {
        let steps = Arc::clone(&self.steps);
        match step {
            Step::Take(shard) => {
                self.own.insert(shard, ShardState::Busy);
                self.done.spawn(async move {
                    match Box::pin(steps.take(shard)).await {
                        Ok(()) => StepResult::Taken(shard),
                        Err(why) => StepResult::NotTaken(shard, why),
                    }
                });
            }
            Step::LetGo(shard) => {
                self.own.insert(shard, ShardState::Busy);
                self.done.spawn(async move { StepResult::LetGo(shard, steps.let_go(shard).await) });
            }
            Step::Lost(shard) => {
                tracing::warn!(%shard, "another node has become the home of the shard");
                steps.epochs.end(shard);
                steps.ledger.let_go(shard);
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
                self.steps.epochs.end(shard);
                self.steps.ledger.let_go(shard);
                let (why, at_least) = match why {
                    TakeError::Beaten => {
                        self.troubles.remove(&shard);
                        // The watch must show the other node's change first.
                        self.own.insert(shard, ShardState::Waits(self.clock.monotonic().after(RETRY_MIN)));
                        return;
                    }
                    TakeError::Failed(why) => (why, RETRY_MIN),
                    TakeError::Damaged(why) => (why, RETRY_DAMAGED),
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

    /// Tries a failed shard again, after longer and longer waits. Each reason is logged once.
    fn trouble(&mut self, shard: ShardId, why: String, at_least: Duration) {
        let known = self.troubles.get(&shard);
        let attempts = known.map_or(0, |known| known.attempts) + 1;
        if known.is_none_or(|known| known.why != why) {
            tracing::warn!(%shard, why, "this node cannot serve the shard, and tries again");
        }
        let wait = wait_after(attempts).max(at_least);
        tracing::debug!(target: "failover", step = "failed", %shard, wait_ms = wait.as_millis() as u64, why);
        self.troubles.insert(shard, HomeTrouble { shard, why, attempts });
        self.own.insert(shard, ShardState::Waits(self.clock.monotonic().after(wait)));
    }
}

/// The wait before a shard is tried again that has failed `attempts` times.
fn wait_after(attempts: u32) -> Duration {
    RETRY_MIN.saturating_mul(1 << attempts.saturating_sub(1).min(16)).min(RETRY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_shard_is_tried_again_soon_and_at_least_each_second() {
        let waits: Vec<u128> = (1..=7).map(|attempts| wait_after(attempts).as_millis()).collect();
        assert_eq!(waits, [50, 100, 200, 400, 800, 1000, 1000]);
        assert_eq!(wait_after(u32::MAX), RETRY_MAX);
    }
}
