//! One cell: its nodes, its load, and what both say afterwards.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use super::caller::{Caller, CallerOutcome};
use super::cell::Cell;
use super::nodes::Nodes;
use super::requests::Requests;
use super::schedule::{Phases, Schedule, warmup};
use super::{COMPUTE_MS, Row, Settings};
use crate::LabError;
use crate::instrument::cpu_time;
use crate::instrument::error::Tried;
use crate::instrument::stats::Sample;

/// The load begins so long after its callers are started: all are connected then.
const READY: Duration = Duration::from_millis(300);
const LOOK: Duration = Duration::from_millis(100);

#[derive(Clone, Copy)]
struct Reading {
    starts: u64,
    node_cpu: Duration,
    client_cpu: Duration,
}

/// Starts the nodes of `cell`, measures, and ends them. `processors` are those of the machine; `stop` ends the load early.
pub(super) async fn measure(
    cell: &Cell,
    settings: &Settings,
    processors: usize,
    stop: &AtomicBool,
) -> Result<Row, LabError> {
    let folder = tempfile::tempdir().at(std::env::temp_dir())?;
    let nodes = Nodes::start(cell, folder.path()).await?;
    let warmup = warmup(cell, Duration::from_secs_f64(settings.warmup_s));
    let length = Duration::from_secs_f64(settings.seconds);
    let period = Duration::from_millis(settings.period_ms);
    let played = match Requests::sign(&nodes.signer, &nodes.doors, cell.functions).await {
        Ok(requests) => {
            let phases = Phases::of(Instant::now() + READY, warmup, length);
            let load = Load { cell, nodes: &nodes, requests: &requests, period, phases: &phases, stop };
            load.play(&Handle::current())
        }
        Err(error) => Err(error),
    };
    let engine = nodes.engine.clone();
    nodes.end();
    let (outcomes, [before, after]) = played?;

    let total = |of: fn(&CallerOutcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    let sample = |of: fn(&CallerOutcome) -> &[f64]| Sample::new(outcomes.iter().flat_map(of).copied().collect());
    let (sent, due) = (sample(|outcome| &outcome.sent_ms), sample(|outcome| &outcome.due_ms));
    let started: BTreeSet<u32> = outcomes.iter().flat_map(|outcome| &outcome.functions).copied().collect();
    let answered = total(|outcome| outcome.answered);
    let starts_measured = after.starts - before.starts;
    let offered_per_s = f64::from(cell.callers) / period.as_secs_f64();
    let machine_s = length.as_secs_f64() * processors as f64;
    let cpu_share = |of: fn(&Reading) -> Duration| of(&after).saturating_sub(of(&before)).as_secs_f64() / machine_s;
    Ok(Row {
        engine,
        warmup_s: warmup.as_secs_f64(),
        offered_per_s,
        offered_over_machine: offered_per_s * COMPUTE_MS as f64 / 1e3 / processors as f64,
        throughput_per_s: answered as f64 / length.as_secs_f64(),
        p50_ms: sent.known_percentile(0.5),
        p99_ms: sent.known_percentile(0.99),
        due_p50_ms: due.known_percentile(0.5),
        due_p99_ms: due.known_percentile(0.99),
        answered,
        refused: total(|outcome| outcome.refused),
        failed: total(|outcome| outcome.failed),
        first_failure: outcomes.iter().find_map(|outcome| outcome.first_failure.clone()),
        callers_unanswered: outcomes.iter().filter(|outcome| outcome.answered == 0).count() as u64,
        starts: after.starts,
        starts_first: started.len() as u64,
        starts_measured,
        cold_per_invocation: starts_measured as f64 / answered.max(1) as f64,
        node_cpu_share: cpu_share(|reading| reading.node_cpu),
        client_cpu_share: cpu_share(|reading| reading.client_cpu),
        ..Row::unmeasured(*cell)
    })
}

struct Load<'a> {
    cell: &'a Cell,
    nodes: &'a Nodes,
    requests: &'a Requests<'a>,
    period: Duration,
    phases: &'a Phases,
    stop: &'a AtomicBool,
}

impl Load<'_> {
    /// Plays it: what each caller met, and the readings at the beginning and the end of the measured phase. Requests are
    /// signed on `runtime`.
    fn play(&self, runtime: &Handle) -> Result<(Vec<CallerOutcome>, [Reading; 2]), LabError> {
        let Self { cell, nodes, requests, period, phases, stop } = *self;
        std::thread::scope(|scope| {
            let start = |number: u32| {
                let schedule = Schedule::of_caller(number, cell, period);
                let caller = Caller { number, cell, doors: &nodes.doors, requests, schedule, stop };
                scope.spawn(move || caller.play(phases))
            };
            let callers: Vec<_> = (0..cell.callers).map(start).collect();
            let renewal = scope.spawn(|| self.renew_requests(runtime));
            let readings = [phases.measured, phases.end].map(|at| {
                self.wait_until(at);
                Reading::of(nodes)
            });
            let panicked = |_| LabError::Node("a caller's thread has ended".to_owned());
            let outcomes = callers.into_iter().map(|caller| caller.join().map_err(panicked));
            let outcomes = outcomes.collect::<Result<Vec<_>, LabError>>()?;
            renewal.join().map_err(panicked)??;
            let [before, after] = readings;
            Ok((outcomes, [before?, after?]))
        })
    }

    /// Keeps the requests signed until the end. In a thread of its own: one of the runtime may not wait for it.
    fn renew_requests(&self, runtime: &Handle) -> Result<(), LabError> {
        while !self.is_over(self.phases.end) {
            std::thread::sleep(LOOK);
            runtime.block_on(self.requests.renew())?;
        }
        Ok(())
    }

    /// Returns at `at`, or soon after the load is told to stop.
    fn wait_until(&self, at: Instant) {
        while !self.is_over(at) {
            std::thread::sleep(at.saturating_duration_since(Instant::now()).min(LOOK));
        }
    }

    fn is_over(&self, at: Instant) -> bool {
        Instant::now() >= at || self.stop.load(Ordering::Relaxed)
    }
}

impl Reading {
    fn of(nodes: &Nodes) -> Result<Self, LabError> {
        let own = cpu_time::of_process_and_ended_threads(std::process::id());
        let client_cpu = own.map_err(|error| LabError::Node(format!("this process's own time: {error}")))?;
        Ok(Self { starts: nodes.starts()?, node_cpu: nodes.cpu()?, client_cpu })
    }
}

impl Row {
    pub(super) fn unmeasured(cell: Cell) -> Self {
        Self { cell, has_room_for_all: cell.has_room_for_all(), ..Self::default() }
    }
}
