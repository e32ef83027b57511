//! Runs a function's profile. CASY's algorithm 1 chooses the runs (`nigh_llc::Profiler`), the profile's own invoker
//! makes them, and the time of a run is the handler's time without reads and writes. If the machine counts memory
//! traffic, the lines fetched in each run are kept too; they include those of data calls and of the hardware
//! prefetcher.
//!
//! The caller sees to the rest: that the cache is idle, and that the invoker's objects are scratch ones.

use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use bytes::Bytes;
use nigh_invoke::hooks::{InvocationHook, Run};
use nigh_invoke::invocation::{Invoke, InvokeError, InvokeRequest};
use nigh_llc::resctrl::{Members, MemoryTraffic};
use nigh_llc::{Observation, ProfileError, Profiler};
use nigh_schedule::activation::{Activation, Outcome};
use nigh_terms::{ByteSize, FunctionName, InvocationId, Principal, Token, Ways};
use parking_lot::Mutex;
use thiserror::Error;

/// The part of the cache that a profile gives its runs.
pub trait WayAllocation: Send + Sync {
    /// Sets the number of ways.
    ///
    /// # Errors
    /// The system's reason.
    fn allocate(&self, ways: Ways) -> Result<(), String>;
    /// Puts a sandbox's tasks into it.
    ///
    /// # Errors
    /// The system's reason.
    fn bind(&self, tasks: &Members) -> Result<(), String>;
    /// The memory traffic so far; nothing if the machine does not count.
    fn traffic(&self) -> MemoryTraffic {
        MemoryTraffic::default()
    }
}

/// Bytes of one line, on every processor with way allocation.
const LINE_BYTES: f64 = 64.0;

/// Why a profile stopped. Its measurements are kept.
#[derive(Debug, Error)]
pub enum ProfileRunError {
    /// The cache could not be given.
    #[error("{ways} ways could not be allocated: {reason}")]
    Allocation {
        /// What was asked.
        ways: Ways,
        /// The system's reason.
        reason: String,
    },
    /// The sandbox ran outside the ways it was to be timed with.
    #[error("the sandbox could not be put into the profile's class: {0}")]
    Binding(String),
    /// No run was possible.
    #[error(transparent)]
    Invoke(#[from] InvokeError),
    /// The profiler refuses.
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

/// The hook of a profile's invocations: binds their sandboxes and keeps the record of the last one.
pub struct ProfileHook {
    allocation: Arc<dyn WayAllocation>,
    last: Mutex<LastRun>,
}

#[derive(Default)]
struct LastRun {
    activation: Option<Activation>,
    unbound: Option<String>,
    /// Traffic before it, and during it.
    before: MemoryTraffic,
    moved: Option<ByteSize>,
}

/// One invocation that has ended.
struct ProfiledRun {
    /// The record, if there is one.
    record: Option<Activation>,
    answer: Bytes,
    moved: Option<ByteSize>,
}

impl ProfileHook {
    /// A hook that binds to `allocation`.
    #[must_use]
    pub fn new(allocation: Arc<dyn WayAllocation>) -> Self {
        Self { allocation, last: Mutex::default() }
    }
}

impl InvocationHook for ProfileHook {
    fn name(&self) -> &'static str {
        "profile"
    }

    fn before_run(&self, run: &mut Run<'_>) -> Option<String> {
        let bound = match &run.tasks {
            Some(tasks) => self.allocation.bind(tasks),
            None => Err("its engine does not say which tasks it has".to_owned()),
        };
        let before = self.allocation.traffic();
        *self.last.lock() = LastRun { unbound: bound.err(), before, ..LastRun::default() };
        None
    }

    fn after_run(&self, activation: &Activation) {
        let now = self.allocation.traffic();
        let mut last = self.last.lock();
        last.moved = now.since(last.before);
        last.activation = Some(activation.clone());
    }

    fn not_run(&self, _: InvocationId) {
        *self.last.lock() = LastRun::default();
    }
}

/// What a profile runs.
pub struct ProfileRuns<'a> {
    /// The profile's own invoker, with `station` as its hook.
    pub invoke: &'a dyn Invoke,
    /// The hook of that invoker.
    pub station: &'a ProfileHook,
    /// On whose behalf.
    pub who: Principal,
    /// What.
    pub function: FunctionName,
    /// The payload of each of the profiler's inputs.
    pub payloads: &'a [Bytes],
}

impl ProfileRuns<'_> {
    /// Runs until the profiler has enough. `stored` gets the profiler's state after each run, to be taken up after a
    /// crash. The first run of each input is not timed: it loads what later runs find loaded.
    ///
    /// # Errors
    /// Why the profile cannot continue. The profiler keeps its results.
    pub async fn complete(
        &self,
        profiler: &mut Profiler,
        mut stored: impl FnMut(&Profiler),
    ) -> Result<(), ProfileRunError> {
        let mut warmed = None;
        while let Some(measure) = profiler.next() {
            let ways = measure.ways;
            self.station.allocation.allocate(ways).map_err(|reason| ProfileRunError::Allocation { ways, reason })?;
            let payload = self.payloads.get(measure.input).cloned().unwrap_or_default();
            if warmed != Some(measure.input) {
                self.run(payload.clone(), measure.limit).await?;
                warmed = Some(measure.input);
            }
            let (observation, moved) = self.run(payload, measure.limit).await?;
            profiler.record_counted(observation, moved.map(|moved| moved.0 as f64 / LINE_BYTES))?;
            stored(profiler);
        }
        Ok(())
    }

    /// Runs once, for its record; what the handler answered, if it failed.
    ///
    /// # Errors
    /// Why the run is not possible.
    #[boxed]
    pub async fn trial(&self, payload: Bytes) -> Result<Result<Activation, String>, ProfileRunError> {
        let ProfiledRun { record, answer, .. } = self.invoked(payload).await?;
        let answered = record.filter(|record| record.outcome == Outcome::Answered);
        Ok(answered.ok_or_else(|| String::from_utf8_lossy(&answer).into_owned()))
    }

    /// Runs once, timed: how it ended, and what it moved between the cache and memory.
    async fn run(&self, payload: Bytes, limit: Duration) -> Result<(Observation, Option<ByteSize>), ProfileRunError> {
        // After the limit nothing waits for the invocation, which ends at its function's own time-out.
        let Ok(invoked) = tokio::time::timeout(limit, self.invoked(payload)).await else {
            return Ok((Observation::StillRunning(limit), None));
        };
        let ProfiledRun { record, answer, moved } = invoked?;
        let observation = match record {
            Some(Activation { outcome: Outcome::Answered, phases, .. }) => {
                Observation::Took(Duration::from_micros(phases.transform_us))
            }
            Some(Activation { outcome: Outcome::TimedOut, duration_us, .. }) => {
                Observation::StillRunning(Duration::from_micros(duration_us))
            }
            _ => Observation::Failed(String::from_utf8_lossy(&answer).into_owned()),
        };
        Ok((observation, moved))
    }

    /// One invocation, bound.
    async fn invoked(&self, payload: Bytes) -> Result<ProfiledRun, ProfileRunError> {
        let request = InvokeRequest {
            function: self.function.clone(),
            payload,
            client_context: None,
            token: Token::empty(),
            event: None,
        };
        let invoked = self.invoke.invoke(&self.who, request).await;
        let LastRun { activation, unbound, moved, .. } = std::mem::take(&mut *self.station.last.lock());
        if let Some(reason) = unbound {
            return Err(ProfileRunError::Binding(reason));
        }
        let invoked = invoked?;
        let record = activation.filter(|activation| activation.id == invoked.id);
        Ok(ProfiledRun { moved: moved.filter(|_| record.is_some()), record, answer: invoked.payload })
    }
}

#[cfg(test)]
mod tests;
