//! The invocations that run on this node now, and the last that ended, in memory: what the page and `nigh top` show live.
//!
//! A hook of each invocation adds and removes them. Lists have limits; the records on the disk are elsewhere
//! (`ActivationLog`).

pub(crate) mod figures;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use nigh_invoke::hooks::{InvocationHook, Run};
use nigh_schedule::activation::{Activation, Outcome, Phases, SandboxStart};
use nigh_terms::{ByteSize, Clock, FunctionName, InvocationId, Namespace, SandboxId, Timestamp};
use parking_lot::Mutex;
use serde::Serialize;

/// Ended invocations that are remembered.
const ENDED_MAX: usize = 8192;

/// An invocation that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunningInvocation {
    pub(crate) id: InvocationId,
    pub(crate) namespace: Namespace,
    pub(crate) function: FunctionName,
    pub(crate) sandbox: SandboxId,
    /// When its handler got the input.
    pub(crate) since: Timestamp,
    pub(crate) start: SandboxStart,
    pub(crate) booked: ByteSize,
    pub(crate) predicted: Option<ByteSize>,
}

/// An ended invocation, without its log and its data calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct EndedInvocation {
    #[serde(skip)]
    pub(crate) id: InvocationId,
    #[serde(skip)]
    pub(crate) namespace: Namespace,
    #[serde(skip)]
    pub(crate) function: FunctionName,
    pub(crate) attempt: u32,
    pub(crate) ended_ms: u64,
    pub(crate) start: SandboxStart,
    pub(crate) wait_us: u64,
    pub(crate) init_us: u64,
    pub(crate) duration_us: u64,
    pub(crate) phases: Phases,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) booked: ByteSize,
    pub(crate) granted: ByteSize,
    pub(crate) peak: Option<ByteSize>,
    pub(crate) predicted: Option<ByteSize>,
    pub(crate) failed: bool,
}

impl From<&Activation> for EndedInvocation {
    fn from(activation: &Activation) -> Self {
        Self {
            id: activation.id,
            namespace: activation.namespace.clone(),
            function: activation.function.clone(),
            attempt: activation.attempt,
            ended_ms: activation.ended().millis(),
            start: activation.sandbox_start.unwrap_or_default(),
            wait_us: activation.wait_us,
            init_us: activation.init_us,
            duration_us: activation.duration_us,
            phases: activation.phases,
            hits: activation.hits,
            misses: activation.misses,
            booked: activation.booked,
            granted: activation.granted,
            peak: activation.peak_memory,
            predicted: activation.predicted_memory,
            failed: activation.outcome != Outcome::Answered,
        }
    }
}

#[derive(Debug, Default)]
struct Invocations {
    running: HashMap<InvocationId, RunningInvocation>,
    /// Oldest first.
    ended: VecDeque<EndedInvocation>,
}

/// The invocations of this node. A clone is another handle to the same.
#[derive(Clone)]
pub(crate) struct RecentInvocations {
    clock: Arc<dyn Clock>,
    known: Arc<Mutex<Invocations>>,
}

impl RecentInvocations {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, known: Arc::default() }
    }

    /// The time by the node's clock.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.wall()
    }

    /// At most `limit` running invocations, the one that runs longest first, and how many more run.
    pub(crate) fn running(&self, limit: usize) -> (Vec<RunningInvocation>, usize) {
        let mut running: Vec<RunningInvocation> = self.known.lock().running.values().cloned().collect();
        running.sort_by_key(|one| (one.since, one.id));
        let more = running.len().saturating_sub(limit);
        running.truncate(limit);
        (running, more)
    }

    /// The invocations that ended at `since` or later and that `wants` selects, oldest first.
    pub(crate) fn ended(&self, since: Timestamp, wants: impl Fn(&EndedInvocation) -> bool) -> Vec<EndedInvocation> {
        let known = self.known.lock();
        let late = known.ended.iter().filter(|one| one.ended_ms >= since.millis());
        late.filter(|one| wants(one)).cloned().collect()
    }
}

impl InvocationHook for RecentInvocations {
    fn name(&self) -> &'static str {
        "recent invocations"
    }

    fn before_run(&self, run: &mut Run<'_>) -> Option<String> {
        let running = RunningInvocation {
            id: run.invocation,
            namespace: run.function.namespace.clone(),
            function: run.function.name.clone(),
            sandbox: run.sandbox,
            since: self.clock.wall(),
            start: run.start,
            booked: run.function.memory,
            predicted: run.predicted,
        };
        self.known.lock().running.insert(running.id, running);
        None
    }

    fn after_run(&self, activation: &Activation) {
        let ended = EndedInvocation::from(activation);
        let mut known = self.known.lock();
        known.running.remove(&activation.id);
        if known.ended.len() >= ENDED_MAX {
            known.ended.pop_front();
        }
        known.ended.push_back(ended);
    }

    fn not_run(&self, invocation: InvocationId) {
        self.known.lock().running.remove(&invocation);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nigh_functions::function::Function;
    use nigh_schedule::test_support::activation;
    use nigh_terms::ManualClock;

    use super::*;

    #[test]
    fn an_invocation_runs_until_its_end_and_the_oldest_ends_are_forgotten() {
        let clock = Arc::new(ManualClock::default());
        let recent = RecentInvocations::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let ended = activation("one", "f", Outcome::TimedOut);
        let function = Function::made_up(ended.namespace.clone(), ended.function.clone(), ByteSize::mib(128));
        for id in [ended.id, InvocationId::now(), InvocationId::now()] {
            let mut run = Run::new(id, &function, b"{}", SandboxId::random());
            assert_eq!(recent.before_run(&mut run), None);
            clock.advance(Duration::from_millis(1));
        }
        let (longest, more) = recent.running(1);
        assert_eq!((longest[0].id, longest[0].booked, more), (ended.id, ByteSize::mib(128), 2));
        recent.not_run(longest[0].id);
        assert_eq!(recent.running(9).0.len(), 2);

        for _ in 0..=ENDED_MAX {
            recent.after_run(&ended);
        }
        let all = recent.ended(Timestamp(0), |_| true);
        assert_eq!((all.len(), all[0].failed), (ENDED_MAX, true));
        assert!(recent.ended(Timestamp(all[0].ended_ms + 1), |_| true).is_empty());
        assert!(recent.ended(Timestamp(0), |one| one.function.as_str() == "g").is_empty());
    }
}
