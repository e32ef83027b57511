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
