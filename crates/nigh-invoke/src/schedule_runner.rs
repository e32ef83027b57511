//! Begins the runs of schedules: the shell around `nigh_functions::schedule`, which decides which run is due.
//!
//! A run is an event in this node's queue. It is on this node's disk, waiting, before the registry hears of it; then the
//! schedule's document says by compare-and-set that this node has the run; then it is confirmed and runs. Of nodes that
//! begin a run at the same time, the document names one, and the others forget it. After a crash in between, the next
//! start finds the waiting run and asks the document. So no run is lost and none is begun twice. In a cluster the
//! dispatch owner of a namespace begins its runs, so that nodes seldom compete; the document decides all the same.

mod agenda;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use nigh_engine::{RegistryError, Revision};
use nigh_functions::function_store::FunctionStore;
use nigh_functions::schedule::{ScheduleCommand, ScheduleProgress};
use nigh_functions::schedule_store::{ScheduleError, ScheduleKey, ScheduleStore, StoredSchedule};
use nigh_terms::{Clock, InvocationId, Monotonic, Namespace, NodeId, Timestamp};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::agenda::Agenda;
use crate::event_invoker::{EventInvoker, ProposedEvent, ScheduledRun};
use crate::invocation::InvokeError;

/// How long the runner sleeps at most while a schedule waits: a date that jumps is seen then.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// A date that moves by this more or less than the time that has passed has jumped.
const JUMP: Duration = Duration::from_secs(5);
/// When to look again if another node leads, the queue is full, or the registry does not answer.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The pause between two questions to a registry that does not answer.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a run waits for a function that another node may just have deployed.
const FUNCTION_WAIT: Duration = Duration::from_secs(60);
/// The most runs that are begun at the same time, and those of one namespace among them: many that are due together delay
/// no other namespace.
const BEGINNING_MAX: usize = 64;
const BEGINNING_OF_ONE_MAX: usize = 8;

/// Tells which node begins the runs of a namespace.
#[async_trait]
pub trait LeadsNamespaces: Send + Sync {
    /// Whether this node does.
    async fn leads(&self, namespace: &Namespace) -> bool;
}

/// A node alone: it begins all runs.
pub struct Alone;

#[async_trait]
impl LeadsNamespaces for Alone {
    async fn leads(&self, _namespace: &Namespace) -> bool {
        true
    }
}

/// What a runner needs.
pub struct ScheduleRunnerParts {
    /// The functions and their schedules.
    pub functions: FunctionStore,
    /// Runs the runs.
    pub events: EventInvoker,
    /// Whether this node begins them.
    pub leader: Arc<dyn LeadsNamespaces>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// This node: its name says whose queue has a run.
    pub node: NodeId,
    /// The region in ARNs.
    pub region: String,
}

/// Begins the runs of schedules.
#[derive(Clone)]
pub struct ScheduleRunner(Arc<ScheduleRunnerState>);

struct ScheduleRunnerState {
    parts: ScheduleRunnerParts,
    turns: Semaphore,
    /// The turns of each namespace whose schedules are at work.
    turns_of: Mutex<HashMap<Namespace, Arc<Semaphore>>>,
    until: CancellationToken,
}

/// What became of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    /// This node has it.
    Taken,
    /// Another node has it, or the schedule was changed.
    NotTaken,
    /// The node stops; the next start decides.
    Open,
}

fn later(now: Timestamp, by: Duration) -> Timestamp {
    Timestamp(now.0.saturating_add(by.as_millis() as u64))
}

fn has_jumped(before: (Monotonic, Timestamp), now: (Monotonic, Timestamp)) -> bool {
    let expected = later(before.1, now.0.since(before.0));
    expected.0.abs_diff(now.1.0) > JUMP.as_millis() as u64
}

impl ScheduleRunner {
    /// A runner that works until `until` is cancelled.
    #[must_use]
    pub fn new(parts: ScheduleRunnerParts, until: CancellationToken) -> Self {
        let (turns, turns_of) = (Semaphore::new(BEGINNING_MAX), Mutex::default());
        Self(Arc::new(ScheduleRunnerState { parts, turns, turns_of, until }))
    }

    /// Decides the runs that an earlier life of this node left open, and then begins runs when they are due.
    pub async fn run(self) {
        let Self(inner) = self;
        for (id, key, due) in inner.parts.events.proposed() {
            inner.decide(&key, due, id).await;
        }
        let schedules = inner.schedules();
        let tasks = TaskTracker::new();
        let (tell, mut ended) = mpsc::unbounded_channel::<(ScheduleKey, Option<Timestamp>)>();
        let (mut agenda, mut busy) = (Agenda::default(), HashSet::new());
        let mut clocks = inner.clocks();
        drop(schedules.take_changed());
        schedules.keys().iter().for_each(|key| inner.plan(&mut agenda, key));
        loop {
            let before = std::mem::replace(&mut clocks, inner.clocks());
            if has_jumped(before, clocks) {
                tracing::warn!("the date has jumped; schedules go on from the present one");
                schedules.keys().iter().for_each(|key| inner.plan(&mut agenda, key));
            }
            schedules.take_changed().iter().for_each(|key| inner.plan(&mut agenda, key));
            while let Some(key) = agenda.take_due(clocks.1) {
                // One that is at work already is planned again when that ends.
                if busy.insert(key.clone()) {
                    let (inner, tell) = (Arc::clone(&inner), tell.clone());
                    tasks.spawn(async move {
                        let again = inner.look_at(&key).await;
                        // The loop has ended if nobody listens.
                        let _ = tell.send((key, again));
                    });
                }
            }
            let sleep = agenda.next().map(|next| {
                Duration::from_millis(next.0.saturating_sub(clocks.1.0)).clamp(Duration::from_millis(1), SLEEP_MAX)
            });
            let next_look = async {
                match sleep {
                    Some(sleep) => tokio::time::sleep(sleep).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = inner.until.cancelled() => break,
                () = schedules.changed() => {}
                Some((key, again)) = ended.recv() => {
                    busy.remove(&key);
                    if busy.is_empty() {
                        inner.turns_of.lock().clear();
                    }
                    // Another node may have begun the run meanwhile.
                    let next = inner.next_look(&key).map(|next| again.map_or(next, |again| again.max(next)));
                    agenda.set(&key, next);
                }
                () = next_look => {}
            }
        }
        tasks.close();
        tasks.wait().await;
    }
}

impl ScheduleRunnerState {
    fn schedules(&self) -> &ScheduleStore {
        self.parts.functions.schedules()
    }

    fn clocks(&self) -> (Monotonic, Timestamp) {
        (self.parts.clock.monotonic(), self.parts.clock.wall())
    }

    fn turns_of(&self, namespace: &Namespace) -> Arc<Semaphore> {
        let mut turns = self.turns_of.lock();
        let own = turns.entry(namespace.clone()).or_insert_with(|| Arc::new(Semaphore::new(BEGINNING_OF_ONE_MAX)));
        Arc::clone(own)
    }

    fn again(&self) -> Option<Timestamp> {
        Some(later(self.parts.clock.wall(), LOOK_AGAIN))
    }

    /// When a schedule needs the next look, as far as this node knows it.
    fn next_look(&self, key: &ScheduleKey) -> Option<Timestamp> {
        let (now, stored) = (self.parts.clock.wall(), self.schedules().get(key)?);
        match stored.schedule.command(now) {
            ScheduleCommand::Run { .. } | ScheduleCommand::GoBackTo(_) => Some(now),
            ScheduleCommand::WaitUntil(next) => Some(next),
            ScheduleCommand::Finished => self.may_remove(&stored).then_some(now),
            ScheduleCommand::Nothing => None,
        }
    }

    fn plan(&self, agenda: &mut Agenda, key: &ScheduleKey) {
        agenda.set(key, self.next_look(key));
    }

    /// Whether this node removes a schedule after its last run: the node that has that run does, and has confirmed it.
    fn may_remove(&self, stored: &StoredSchedule) -> bool {
        let progress = &stored.schedule.progress;
        let is_own = |last| progress.has_run(&self.parts.node, last);
        stored.schedule.settings.delete_after && progress.last.is_none_or(is_own)
    }

    /// Does what a schedule needs now. Returns when to look at it again; None if that follows from the schedule.
    async fn look_at(&self, key: &ScheduleKey) -> Option<Timestamp> {
        if !self.parts.leader.leads(&key.namespace).await {
            return self.again();
        }
        let own = self.turns_of(&key.namespace);
        let Ok(_own) = own.acquire().await else { return None };
        let Ok(_turn) = self.turns.acquire().await else { return None };
        let stored = match self.schedules().read(key).await {
            Ok(found) => found?,
            Err(error) => {
                tracing::warn!(%error, schedule = %key.name, "a schedule cannot be read; its runs wait");
                return self.again();
            }
        };
        let done = match stored.schedule.command(self.parts.clock.wall()) {
            ScheduleCommand::Run { due, missed } => return self.begin(key, &stored, due, missed).await,
            ScheduleCommand::GoBackTo(date) => {
                tracing::warn!(schedule = %key.name, "the date was set back; the schedule goes on from the present one");
                let progress = ScheduleProgress { done_to: date, ..stored.schedule.progress.clone() };
                self.schedules().advance(key, &stored, progress).await
            }
            ScheduleCommand::Finished if self.may_remove(&stored) => self.schedules().delete_known(key, &stored).await,
            ScheduleCommand::Finished | ScheduleCommand::WaitUntil(_) | ScheduleCommand::Nothing => return None,
        };
        match done {
            // A schedule that was changed meanwhile is looked at again.
            Ok(()) | Err(ScheduleError::Registry(RegistryError::Conflict { .. })) => None,
            Err(error) => {
                tracing::warn!(%error, schedule = %key.name, "a schedule cannot be changed; this node tries again");
                self.again()
            }
        }
    }

    /// Begins a run.
    async fn begin(
        &self,
        key: &ScheduleKey,
        stored: &StoredSchedule,
        due: Timestamp,
        missed: usize,
    ) -> Option<Timestamp> {
        let (schedule, function) = (&stored.schedule, &stored.schedule.settings.function);
        let is_new = later(due, FUNCTION_WAIT) > self.parts.clock.wall();
        if is_new && self.parts.functions.get(&key.namespace, function).is_none() {
            return self.again();
        }
        let id = schedule.run_id(due);
        let event = ProposedEvent {
            id,
            namespace: key.namespace.clone(),
            function: function.clone(),
            payload: Bytes::from(schedule.input(&self.parts.region, due)),
            run: ScheduledRun { schedule: key.name.clone(), due },
        };
        match self.parts.events.propose(event).await {
            Ok(()) => {}
            Err(InvokeError::ShuttingDown) => return self.again(),
            Err(error) => {
                tracing::warn!(%error, schedule = %key.name, due = %due.rfc3339(), "a scheduled run is not queued; this node tries again");
                return self.again();
            }
        }
        if self.decide(key, due, id).await == Decision::Taken {
            metrics::counter!("nigh_schedule_runs_total").increment(1);
            if missed > 0 {
                tracing::warn!(schedule = %key.name, missed, "runs fell due while no node began them; they are not made up");
                metrics::counter!("nigh_schedule_runs_missed_total").increment(missed as u64);
            }
        }
        None
    }

    /// Decides by the schedule's document whether this node has the run, which is on this node's disk.
    async fn decide(&self, key: &ScheduleKey, due: Timestamp, id: InvocationId) -> Decision {
        let (events, node) = (&self.parts.events, &self.parts.node);
        let mut seen: Option<Revision> = None;
        let is_taken = loop {
            match self.schedules().read(key).await {
                Ok(None) => break false,
                // An answer that is older than an earlier one: a server lags.
                Ok(Some(stored)) if seen.is_some_and(|seen| stored.revision < seen) => {}
                Ok(Some(stored)) => {
                    seen = Some(stored.revision);
                    let (schedule, progress) = (&stored.schedule, &stored.schedule.progress);
                    if schedule.run_id(due) != id {
                        // Another schedule of the same name.
                        break false;
                    }
                    if progress.has_run(node, due) {
                        break true;
                    }
                    if progress.done_to >= due || !schedule.settings.enabled {
                        break false;
                    }
                    // If the answer to this write is lost, the next round writes at the same revision, or sees what was
                    // written: no write can come later.
                    match self.schedules().advance(key, &stored, progress.with_run(node, due)).await {
                        Ok(()) => break true,
                        Err(ScheduleError::Registry(RegistryError::Conflict { .. })) => {}
                        Err(error) => {
                            tracing::warn!(%error, schedule = %key.name, "a scheduled run waits for the registry")
                        }
                    }
                }
                Err(error) => tracing::warn!(%error, schedule = %key.name, "a scheduled run waits for the registry"),
            }
            if self.until.run_until_cancelled(tokio::time::sleep(PAUSE)).await.is_none() {
                return Decision::Open;
            }
        };
        let is_written = if is_taken { events.confirm(id).await } else { events.withdraw(id).await };
        match (is_written, is_taken) {
            (false, _) => Decision::Open,
            (true, true) => Decision::Taken,
            (true, false) => Decision::NotTaken,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_that_goes_as_the_time_does_has_not_jumped() {
        let at = |seconds: u64, date: u64| (Monotonic(seconds * 1_000_000_000), Timestamp(date * 1000));
        let before = at(10, 1_000);
        for (now, jumped) in [
            (at(11, 1_001), false),
            (at(11, 1_004), false),
            (at(4_000, 4_990), false),
            (at(11, 1_007), true),
            (at(11, 990), true),
            (at(11, 90_000), true),
        ] {
            assert_eq!(has_jumped(before, now), jumped, "{now:?}");
        }
    }
}
