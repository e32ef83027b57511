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
mod tests {
    use std::path::PathBuf;

    use async_trait::async_trait;
    use nigh_llc::resctrl::emulator::{Dialect, Emulator, Event, MachineConfig, Reading};
    use nigh_llc::resctrl::{Resctrl, ResctrlFs};
    use nigh_llc::{CacheClass, InputOutcome, ProfileInput, ProfilerSettings, SearchForm, SearchRule, Tolerance};
    use nigh_terms::{Namespace, SandboxId};

    use super::*;
    use crate::ResctrlClasses;
    use nigh_functions::test_support::function;
    use nigh_invoke::invocation::{InvocationResult, RunTimes};
    use nigh_schedule::activation::Phases;
    use nigh_schedule::test_support::activation;

    /// The function needs four ways; with fewer it takes half as long again.
    const NEED: u8 = 4;

    #[derive(Default)]
    struct Machine {
        ways: Mutex<Ways>,
        refuses: bool,
        counters: Option<Counters>,
    }

    /// An emulated machine that counts what each run moves: a thousand lines, and as many for each way that it lacks.
    struct Counters {
        emulator: Emulator,
        classes: ResctrlClasses,
        moved: Mutex<u64>,
        event: Event,
    }

    impl Counters {
        fn new(event: Event) -> Self {
            let emulator = Emulator::new(MachineConfig::silver_4210r(Dialect::Linux7));
            let (fs, tasks) = (Arc::new(emulator.clone()), Arc::new(emulator.clone()));
            let resctrl = Resctrl::open(fs, tasks).unwrap();
            let probe = resctrl.probe().unwrap();
            Self { emulator, classes: ResctrlClasses::new(resctrl, &probe), moved: Mutex::default(), event }
        }

        fn run(&self) {
            let shown = self.emulator.read("nigh-profile/schemata").unwrap();
            let mask = shown.lines().find_map(|line| line.trim().strip_prefix("L3:0=")).unwrap();
            let ways = u32::from_str_radix(mask, 16).unwrap().count_ones() as u64;
            let mut moved = self.moved.lock();
            *moved += 64 * 1000 * (1 + u64::from(NEED).saturating_sub(ways));
            self.emulator.set_counter("nigh-profile", 0, self.event, Reading::Value(*moved)).unwrap();
        }
    }

    impl WayAllocation for Machine {
        fn allocate(&self, ways: Ways) -> Result<(), String> {
            *self.ways.lock() = ways;
            self.counters.as_ref().map_or(Ok(()), |counters| counters.classes.allocate(ways))
        }

        fn traffic(&self) -> MemoryTraffic {
            self.counters.as_ref().map(|counters| counters.classes.traffic()).unwrap_or_default()
        }

        fn bind(&self, _: &Members) -> Result<(), String> {
            if self.refuses { Err("busy".to_owned()) } else { Ok(()) }
        }
    }

    /// An invoker whose runs take the time that the machine's ways give, the very first much longer.
    struct TimedInvoker {
        station: ProfileHook,
        machine: Arc<Machine>,
        runs: Mutex<u32>,
        outcome: Outcome,
    }

    #[async_trait]
    impl Invoke for TimedInvoker {
        fn set_reserved(&self, _: &Namespace, _: &FunctionName, _: Option<usize>) {}

        fn seen(&self, _: &Principal) -> Token {
            Token::empty()
        }

        async fn invoke(&self, _: &Principal, request: InvokeRequest) -> Result<InvocationResult, InvokeError> {
            let id = InvocationId::now();
            let deployed = function("f");
            let run = Run::new(id, &deployed, &request.payload, SandboxId::random());
            self.station.before_run(&mut Run { tasks: Some(Members::Cgroup(PathBuf::from("/sandbox"))), ..run });
            if let Some(counters) = &self.machine.counters {
                counters.run();
            }
            let first = *self.runs.lock() == 0;
            *self.runs.lock() += 1;
            let slow = self.machine.ways.lock().0 < NEED;
            let transform_us = if first {
                90_000
            } else if slow {
                15_000
            } else {
                10_000
            };
            // What it reads and writes does not count.
            let phases = Phases { extract_us: 500_000, transform_us, load_us: 500_000 };
            let record = Activation { id, phases, ..activation("tenant", "f", self.outcome.clone()) };
            self.station.after_run(&record);
            Ok(InvocationResult {
                id,
                payload: Bytes::from_static(b"{}"),
                function_error: None,
                log: Vec::new(),
                run: RunTimes::default(),
                token: Token::empty(),
                touched: Vec::new(),
            })
        }
    }

    fn timed(machine: Machine, outcome: Outcome) -> TimedInvoker {
        let machine = Arc::new(machine);
        let station = ProfileHook::new(Arc::clone(&machine) as Arc<dyn WayAllocation>);
        TimedInvoker { station, machine, runs: Mutex::default(), outcome }
    }

    fn profiler() -> Profiler {
        let rule = SearchRule {
            form: SearchForm::Bisection,
            whole: Ways(11),
            fewest: Ways(1),
            threshold: Tolerance::FIVE_PERCENT,
        };
        let input = ProfileInput { name: "one".to_owned(), size: ByteSize(100), features: Vec::new() };
        Profiler::new(ProfilerSettings::of(rule), vec![input]).unwrap()
    }

    async fn complete(timed: &TimedInvoker, profiler: &mut Profiler) -> (Result<(), ProfileRunError>, usize) {
        let runs = ProfileRuns {
            invoke: timed,
            station: &timed.station,
            who: Principal::outside(Namespace::new("tenant").unwrap()),
            function: FunctionName::new("f").unwrap(),
            payloads: &[Bytes::from_static(b"{}")],
        };
        let mut stored = 0;
        (runs.complete(profiler, |_| stored += 1).await, stored)
    }

    #[tokio::test]
    async fn the_fewest_ways_that_do_not_slow_the_handler_are_found_and_each_run_is_stored() {
        let timed = timed(Machine::default(), Outcome::Answered);
        let mut profiler = profiler();
        let (done, stored) = complete(&timed, &mut profiler).await;
        done.unwrap();
        let rows: Vec<_> = profiler.training_rows().collect();
        assert_eq!((rows.len(), rows[0].ways), (1, Ways(NEED)));
        assert_eq!(stored as u32, profiler.cost().runs);
        // One more than was timed: the first loads.
        assert_eq!(*timed.runs.lock(), profiler.cost().runs + 1);
    }

    #[tokio::test]
    async fn memory_traffic_counted_beside_the_times_gives_the_row_its_curves() {
        for (event, local) in [(Event::LocalBytes, Reading::Value(0)), (Event::TotalBytes, Reading::Unavailable)] {
            let counters = Counters::new(event);
            // The class that the counters belong to stands before the first run.
            counters.classes.allocate(Ways(11)).unwrap();
            counters.emulator.set_counter("nigh-profile", 0, Event::LocalBytes, local).unwrap();
            let timed = timed(Machine { counters: Some(counters), ..Machine::default() }, Outcome::Answered);
            let mut profiler = profiler();
            complete(&timed, &mut profiler).await.0.unwrap();
            let row = profiler.training_rows().next().unwrap();
            assert_eq!((row.ways, row.class), (Ways(NEED), CacheClass::Sensitive));
            let misses = row.curves.unwrap().misses;
            assert_eq!([1, 4, 11].map(|ways| misses.misses(Ways(ways))), [4000.0, 1000.0, 1000.0]);
        }
    }

    #[tokio::test]
    async fn a_machine_that_counts_nothing_gives_rows_without_curves() {
        let timed = timed(Machine::default(), Outcome::Answered);
        let mut profiler = profiler();
        complete(&timed, &mut profiler).await.0.unwrap();
        assert_eq!(profiler.training_rows().next().unwrap().curves, None);
    }

    #[tokio::test]
    async fn a_profile_goes_on_where_it_was_stored() {
        let first = timed(Machine::default(), Outcome::Answered);
        let mut whole = profiler();
        complete(&first, &mut whole).await.0.unwrap();
        let mut begun = profiler();
        for _ in 0..3 {
            begun.record(Observation::Took(Duration::from_millis(10))).unwrap();
        }
        let mut resumed = Profiler::resume(&begun.store()).unwrap();
        let second = timed(Machine::default(), Outcome::Answered);
        complete(&second, &mut resumed).await.0.unwrap();
        assert_eq!(resumed.training_rows().next().unwrap().ways, Ways(NEED));
        assert_eq!(*second.runs.lock() + 3, *first.runs.lock());
    }

    #[tokio::test]
    async fn a_function_that_fails_is_given_up_with_its_reason() {
        let crashed = Outcome::Crashed { reason: "signal 11".to_owned() };
        let timed = timed(Machine::default(), crashed);
        let mut profiler = profiler();
        complete(&timed, &mut profiler).await.0.unwrap();
        let outcome = profiler.outcomes().next().unwrap().1.cloned();
        assert!(matches!(outcome, Some(InputOutcome::Failed { failures: 3, .. })), "{outcome:?}");
    }

    #[tokio::test]
    async fn a_run_outside_its_ways_is_never_counted() {
        let timed = timed(Machine { refuses: true, ..Machine::default() }, Outcome::Answered);
        let mut profiler = profiler();
        let (done, stored) = complete(&timed, &mut profiler).await;
        assert!(matches!(done, Err(ProfileRunError::Binding(reason)) if reason == "busy"));
        assert_eq!((stored, profiler.cost().runs), (0, 0));
    }
}
