//! Tail latency of a key-value store beside a training job, with and without a partitioned last level (CMU poster; technical
//! report CMU-CS-17-125).
//!
//! The store and the job are ours and run for real; their accesses, recorded from that very code, run on a simulated server of
//! sixteen cores over the sweep of loads and partitions.

mod findings;
mod kv_store;
mod page;
mod recorded_streams;
mod report;
mod request_mix;
mod server_machine;
mod simulated_server;
mod sweep;
mod touch;
mod training_job;

use std::time::{Duration, Instant};

use clap::Args;
use indicatif::ProgressBar;

use self::findings::{SLO_US, best, guard_result, larger_is_worse, reaches};
use self::kv_store::{BUCKET_BYTES, Entries, ITEM_BYTES};
use self::recorded_streams::{ServiceStream, Streams, TrainingStream};
use self::report::{PAPER, SetReport, TailReport};
use self::server_machine::{GEOMETRY, SIMULATED_MACHINE};
use self::simulated_server::NETWORK;
use self::sweep::{Part, Plan, Row, TailProgress, add_partition, guard, guard_settings, sweep};
use self::training_job::HIDDEN;
use crate::LabError;
use crate::instrument::machine::Machine;
use crate::instrument::parallel::in_parallel;
use crate::instrument::progress;
use crate::instrument::report::OutputArgs;
use crate::instrument::report_text::tell_with_page;

/// Digits of the simulated training job: the training set of MNIST.
const DIGITS: usize = 60_000;
/// The tail that the second guard may give, over that without contention.
const NEAR_NO_CONTENTION: f64 = 1.1;
/// Requests of its windows, over those that its percentile takes: a tenth is less than what a tail of ten requests varies by.
const NEAR_SAMPLES: f64 = 4.0;

#[derive(Clone, Debug, Args)]
pub(super) struct LlcTailArgs {
    /// Simulate only few loads and partitions, each for a short time: takes seconds instead of minutes
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    output: OutputArgs,
}

struct WorkingSet {
    name: &'static str,
    entries: Entries,
    paper_ratio: Option<f64>,
}

struct RecordingSize {
    requests: usize,
    steps: usize,
}

impl LlcTailArgs {
    pub(super) fn run(&self, machine: Machine, json: bool) -> Result<(), LabError> {
        let begin = Instant::now();
        let progress = progress::spinner();
        progress.enable_steady_tick(Duration::from_millis(120));
        let kept: TailProgress = self.output.kept(self.quick)?;
        let sets = self.simulate(&kept, &progress)?;
        progress.finish_and_clear();
        let report = TailReport {
            machine,
            paper: PAPER,
            simulated: SIMULATED_MACHINE,
            quick: self.quick,
            slo_us: SLO_US,
            seconds: begin.elapsed().as_secs_f64(),
            sets,
        };
        tell_with_page(&report, self.output.html.as_deref(), page::page, json)?;
        kept.finish()
    }

    fn simulate(&self, kept: &TailProgress, progress: &ProgressBar) -> Result<Vec<SetReport>, LabError> {
        let plan = if self.quick { Plan::quick() } else { Plan::whole() };
        let small = WorkingSet { name: "2 MB", entries: Entries::SMALL, paper_ratio: Some(PAPER.small_ratio) };
        let large = WorkingSet { name: "1 GB", entries: Entries::LARGE, paper_ratio: Some(PAPER.large_ratio) };
        // Filling 1 GB takes longer than everything else in the short form; 64 MB are beyond the cache as well.
        let medium = Entries::new(1 << 22).map(|entries| WorkingSet { name: "64 MB", entries, paper_ratio: None });
        let (sets, recording) = match medium {
            Some(medium) if self.quick => (vec![small, medium], RecordingSize { requests: 100_000, steps: 16 }),
            _ => (vec![small, large], RecordingSize { requests: 1 << 19, steps: 64 }),
        };
        sets.iter().map(|set| simulate_set(&plan, set, &recording, kept, progress)).collect()
    }
}

fn simulate_set(
    plan: &Plan,
    set: &WorkingSet,
    recording: &RecordingSize,
    kept: &TailProgress,
    progress: &ProgressBar,
) -> Result<SetReport, LabError> {
    progress.set_message(format!("{}: recording", set.name));
    let streams = Streams {
        service: ServiceStream::record(set.entries, recording.requests)?,
        training: TrainingStream::record(recording.steps, HIDDEN, DIGITS)?,
    };
    let axis = plan;
    let plan = &plan.with_loads_near_capacity(&streams)?;
    let done = |row: &Row| progress.set_message(format!("{}: {}", set.name, row.configuration));
    let mut rows = sweep(plan, &streams, (kept, set.name), done)?;
    progress.set_message(format!("{}: the guard", set.name));
    let network_us = NETWORK.as_secs_f64() * 1e6;
    let on_axis = |mops: f64| axis.loads.iter().any(|&load| (load / 1e6 - mops).abs() < 1e-9);
    // Beyond its capacity no CAT has no tail of its own: its ring is full, or on the way there.
    let served = |mops: f64| mops * 1e6 < plan.capacity;
    let best_on_axis = best(&rows, network_us, |mops| on_axis(mops) && served(mops));
    let best = best(&rows, network_us, served);
    let guards = match &best {
        Some(best) => {
            let slo = guard_settings(Duration::from_secs_f64(SLO_US / 1e6), 0.7)?;
            let near = Duration::from_secs_f64(best.no_contention_us / 1e6 * NEAR_NO_CONTENTION);
            // Any size that meets so tight a limit has all the room there is: smaller ones are tried from there.
            let near = guard_settings(near, 1.0)?;
            let load = best.load_mops * 1e6;
            let objectives = [("the paper's line", slo, 1.05), ("near no contention", near, NEAR_SAMPLES)];
            in_parallel(&objectives, |(name, settings, samples)| {
                let part = format!("{}, the guard, {name}", set.name);
                if let Some(Part::Guard(run)) = kept.done(&part) {
                    return Ok((*name, run));
                }
                let run = guard(plan, &streams, *settings, *samples, load)?;
                kept.add(&part, &Part::Guard(run.clone()))?;
                Ok((*name, run))
            })?
        }
        None => Vec::new(),
    };
    for (_, run) in &guards {
        add_partition(plan, &streams, &mut rows, run.ways)?;
    }
    Ok(SetReport {
        working_set: set.name.to_owned(),
        cache_ways: GEOMETRY.ways(),
        items_bytes: u64::from(set.entries.get()) * ITEM_BYTES,
        index_bytes: u64::from(set.entries.buckets()) * BUCKET_BYTES,
        lines_per_request: streams.service.all_lines().len() as f64 / streams.service.len() as f64,
        paper_ratio: set.paper_ratio,
        reaches: reaches(&rows),
        larger_is_worse: larger_is_worse(&rows),
        guard: guards.into_iter().filter_map(|(name, run)| guard_result(&rows, name, run)).collect(),
        best,
        best_on_axis,
        rows,
    })
}
