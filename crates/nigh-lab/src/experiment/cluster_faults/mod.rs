//! A real cluster under real faults: no acknowledged write is lost, no read is old, and the shards of a home that fails take
//! writes again within its lease and a second.
//!
//! Nodes, NATS servers and a store are processes in networks of their own. Clients read and write a few objects by all S3
//! doors; Python functions do by all Lambda doors, and call each other. A seed decides which faults strike meanwhile. What
//! everybody did and saw is a history, which two checkers judge that share no code: ours, and porcupine. A part of the run is
//! a cluster of its own with up to `PART_FAULTS`; one that is done is kept, so that a run which was cut off goes on behind it.

mod availability;
mod clients;
mod invokers;
mod judgement;
mod part;
mod plan;
mod record;
mod sharers;
mod values;
pub(super) mod world;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use clap::Args;
use nigh_engine::nats::TTL;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use self::availability::Outage;
use self::judgement::Checkers;
use self::part::{PartOutcome, PartParameters, Totals, play, play_sharers};
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::kept_progress::KeptProgress;
use crate::instrument::machine::Machine;
use crate::instrument::peer::installed::cache_folder;
use crate::instrument::progress::{self, unless_stopped};
use crate::instrument::report_text::tell;
use crate::instrument::stats::Sample;

const NODES: u8 = 3;
/// Faults of one cluster. A run that is cut off loses at most these.
const PART_FAULTS: u32 = 20;
/// The part in which puts are measured.
const SHARERS: &str = "sharers";

#[derive(Clone, Debug, Args)]
pub(super) struct ClusterFaultsArgs {
    #[command(flatten)]
    parameters: ClusterFaultsParameters,
    /// The progress file: stores finished parts, so that an interrupted run resumes
    #[arg(long, value_name = "FILE")]
    progress: Option<PathBuf>,
}

/// What decides the outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Args, Serialize, Deserialize)]
struct ClusterFaultsParameters {
    /// How many faults to inject
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    faults: u32,
    /// The random seed, which decides the injected faults and what clients do
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Serialize)]
struct SkippedFault {
    kind: &'static str,
    why: &'static str,
}

/// For how long shards took no write whose homes failed in one way.
#[derive(Debug, Serialize)]
struct OutageRow {
    kind: String,
    /// While every shard was served.
    alone: bool,
    homes: usize,
    p50_ms: f64,
    max_ms: f64,
}

#[derive(Debug, Serialize)]
struct ClusterFaultsReport {
    machine: Machine,
    nodes: u8,
    seed: u64,
    faults: u64,
    skipped: Vec<SkippedFault>,
    #[serde(flatten)]
    totals: Totals,
    /// Homes that failed while every shard was served, and nothing else did.
    failed_homes: usize,
    /// The longest time in which a shard of one of them took no write,
    max_unavailable_ms: f64,
    /// the median of them,
    p50_unavailable_ms: f64,
    /// and the lease that they are bounded by, and a second.
    lease_ms: u64,
    /// The same of each way to fail, and of homes that failed while faults before were still felt.
    unavailable: Vec<OutageRow>,
    /// Until the cluster was whole after the last fault of a part, at most.
    recovery_max_s: f64,
    checkers: Checkers,
}

impl ClusterFaultsArgs {
    pub(super) async fn run(self, machine: Machine, json: bool) -> Result<(), LabError> {
        if !rustix::process::geteuid().is_root() {
            let missing = "root".to_owned();
            return Err(LabError::Missing { missing, hint: "every process is in a network namespace of its own" });
        }
        // A thread of its own: the processes live no longer than the thread that starts them.
        let (sender, ended) = tokio::sync::oneshot::channel();
        let (handle, interrupted) = (Handle::current(), progress::stop_on_interrupt());
        let work = move || {
            // Nobody listens only if the command is being ended.
            let _ = sender.send(self.play(machine, &handle, &interrupted));
        };
        let thread = std::thread::Builder::new().name("cluster-faults".to_owned()).spawn(work);
        thread.map_err(|error| LabError::Node(format!("no thread: {error}")))?;
        let report = ended.await.map_err(|error| LabError::Node(format!("the run ended: {error}")))??;
        tell(&report, json)?;
        let Totals { lost, stale, mixed, not_recovered, .. } = report.totals;
        match lost + stale + mixed + not_recovered {
            0 => Ok(()),
            _ => Err(LabError::Found(format!(
                "{lost} reads miss acknowledged writes, {stale} are old, {mixed} objects are of no one write, and \
                 {not_recovered} times the cluster was not whole again in time"
            ))),
        }
    }

    fn play(
        &self,
        machine: Machine,
        handle: &Handle,
        interrupted: &AtomicBool,
    ) -> Result<ClusterFaultsReport, LabError> {
        let ClusterFaultsParameters { faults, seed } = self.parameters;
        let usual = || cache_folder().with_file_name("cluster-faults.state");
        let kept = KeptProgress::open(&self.progress.clone().unwrap_or_else(usual), self.parameters)?;
        let bar = progress::styled(faults.into(), "{bar:30} {pos}/{len} faults, {msg}, {eta} left");
        let mut all = PartOutcome::default();
        let has_netem = world::has_netem();
        for part in 0..faults.div_ceil(PART_FAULTS) {
            let of_part = PART_FAULTS.min(faults - part * PART_FAULTS);
            let told = |faults: usize| {
                bar.inc(faults as u64);
                unless_stopped(interrupted, "the same command goes on behind the last cluster")
            };
            let play = || {
                bar.set_message(format!("cluster {}", part + 1));
                let parameters = PartParameters { part, faults: of_part as usize, seed, has_netem };
                play(work_folder()?.path(), parameters, handle, told)
            };
            all.add(kept.part_now(&part.to_string(), play)?);
            bar.set_position(u64::from(part * PART_FAULTS + of_part));
        }
        bar.set_message("puts with all sharers dead");
        all.add(kept.part_now(SHARERS, || play_sharers(work_folder()?.path(), handle))?);
        bar.finish_and_clear();
        kept.finish()?;
        Ok(self.report(machine, all, has_netem))
    }

    fn report(&self, machine: Machine, all: PartOutcome, has_netem: bool) -> ClusterFaultsReport {
        let mut skipped = vec![
            SkippedFault {
                kind: "clock_an_hour_off",
                why: "no namespace shifts the date of a process alone; what leases depend on is a monotonic clock, and is \
                      tested by itself",
            },
            SkippedFault {
                kind: "loss_and_reordering_in_relays",
                why: "a relay carries TCP, whose streams lose and reorder nothing: it delays, holds, resets and forgets",
            },
        ];
        if !has_netem {
            skipped.push(SkippedFault { kind: "bad_packets", why: "this kernel has no netem (sch_netem)" });
        }
        let mut ways: BTreeMap<(String, bool), Vec<f64>> = BTreeMap::new();
        for Outage { kind, alone, ms } in &all.outages {
            ways.entry((kind.clone(), *alone)).or_default().push(*ms);
        }
        let unavailable =
            Sample::new(all.outages.iter().filter(|outage| outage.alone).map(|outage| outage.ms).collect());
        let faults = all.totals.kinds.values().sum();
        ClusterFaultsReport {
            machine,
            nodes: NODES,
            seed: self.parameters.seed,
            faults,
            skipped,
            failed_homes: all.outages.iter().filter(|outage| outage.alone).count(),
            max_unavailable_ms: unavailable.percentile(1.0),
            p50_unavailable_ms: unavailable.median(),
            lease_ms: TTL.as_millis() as u64,
            unavailable: ways.into_iter().map(OutageRow::of).collect(),
            recovery_max_s: all.recovery_s.iter().copied().fold(0.0, f64::max),
            checkers: all.checkers,
            totals: all.totals,
        }
    }
}

fn work_folder() -> Result<tempfile::TempDir, LabError> {
    tempfile::tempdir().at(std::env::temp_dir())
}

impl OutageRow {
    fn of(((kind, alone), ms): ((String, bool), Vec<f64>)) -> Self {
        let (homes, sample) = (ms.len(), Sample::new(ms));
        Self { kind, alone, homes, p50_ms: sample.median(), max_ms: sample.percentile(1.0) }
    }
}
