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
mod part;
mod plan;
mod record;
mod sharers;
mod values;
mod world;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use nigh_engine::nats::TTL;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use self::availability::Outage;
use self::part::{MutationOutcome, PartOutcome, play, play_sharers};
use self::sharers::PutWithSharersDead;
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::kept_progress::KeptProgress;
use crate::instrument::machine::Machine;
use crate::instrument::peer::installed::cache_folder;
use crate::instrument::progress;
use crate::instrument::report::print_report;
use crate::instrument::stats::Sample;

/// Faults of one cluster. A run that is cut off loses at most these.
const PART_FAULTS: u32 = 20;
/// The part in which puts are measured.
const SHARERS: &str = "sharers";

/// What `nigh experiment cluster-faults` takes.
#[derive(Clone, Debug, Args)]
pub(super) struct ClusterFaultsArgs {
    /// How many faults strike
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    faults: u32,
    /// Stop after the part in which so many minutes are over; what is done is kept, and the same command goes on
    #[arg(long, value_name = "MINUTES")]
    minutes: Option<f64>,
    /// Decides which faults strike, and what clients do
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Nodes of the cluster
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=9))]
    nodes: u8,
    /// Keeps what is done in this file, so that a run that is cut off goes on
    #[arg(long, value_name = "FILE")]
    progress: Option<PathBuf>,
    /// Keep here the logs and the history of each cluster that breaks a promise
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
}

/// What a kept run was asked.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Asked {
    faults: u32,
    nodes: u8,
    seed: u64,
}

/// What each checker judged.
#[derive(Debug, Serialize)]
struct Checkers {
    ours: CheckerFindings,
    porcupine: Porcupine,
}

#[derive(Debug, Serialize)]
struct CheckerFindings {
    objects: u64,
    /// Objects whose operations no order explains.
    broken: u64,
    /// Objects with too many orders to tell.
    undecided: u64,
    /// Reads that missed what P1, P4 or P6 has them show, or what was acknowledged.
    missed: u64,
}

#[derive(Debug, Serialize)]
struct Porcupine {
    objects: u64,
    broken: u64,
    undecided: u64,
}

/// A kind of fault that did not strike here.
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
    kinds: BTreeMap<String, u64>,
    skipped: Vec<SkippedFault>,
    seconds: f64,
    operations: u64,
    /// Operations of which nobody knows whether they were done.
    unknown: u64,
    /// Operations within invocations.
    by_invocations: u64,
    invocations: u64,
    invocations_failed: u64,
    /// Calls of functions by functions.
    nested_calls: u64,
    /// Reads after the faults that miss an acknowledged write.
    lost: u64,
    /// Reads that are older than what they had to show, and objects whose operations no order explains.
    stale: u64,
    /// Objects that are of no one write.
    mixed: u64,
    /// Clusters or objects that were not whole again in time.
    not_recovered: u64,
    /// Nodes whose life as a member was over, and which were started again.
    ended_by_itself: u64,
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
    mutations: Vec<MutationOutcome>,
    put_with_sharers_dead: Option<PutWithSharersDead>,
    /// The first broken promises.
    violations: Vec<String>,
}

impl ClusterFaultsArgs {
    pub(super) async fn run(self, machine: Machine, json: bool) -> Result<(), LabError> {
        if !rustix::process::geteuid().is_root() {
            let missing = "root".to_owned();
            return Err(LabError::Missing { missing, hint: "every process is in a network namespace of its own" });
        }
        if self.minutes.is_some_and(|minutes| !(minutes.is_finite() && minutes > 0.0)) {
            let reason = "expected a positive number of minutes".to_owned();
            return Err(LabError::Request { what: "--minutes".to_owned(), reason });
        }
        // A thread of its own: the processes live no longer than the thread that starts them.
        let (tell, told) = tokio::sync::oneshot::channel();
        let (handle, interrupted) = (Handle::current(), progress::stop_on_interrupt());
        let work = move || {
            // Nobody listens only if the command is being ended.
            let _ = tell.send(self.play(machine, &handle, &interrupted));
        };
        let thread = std::thread::Builder::new().name("cluster-faults".to_owned()).spawn(work);
        thread.map_err(|error| LabError::Node(format!("no thread: {error}")))?;
        let report = told.await.map_err(|error| LabError::Node(format!("the run ended: {error}")))??;
        print_report(&report, || report.text(), json)?;
        let ClusterFaultsReport { lost, stale, mixed, not_recovered, .. } = report;
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
        let Self { faults, nodes, seed, .. } = *self;
        let usual = || cache_folder().with_file_name("cluster-faults.state");
        let path = self.progress.clone().unwrap_or_else(usual);
        let kept: KeptProgress<Asked, PartOutcome> = KeptProgress::open(&path, Asked { faults, nodes, seed })?;
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} faults, {msg}, {eta} left");
        let bar = ProgressBar::new(u64::from(faults));
        let bar = bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let (begun, mut all, mut is_whole) = (Instant::now(), PartOutcome::default(), true);
        let has_netem = world::has_netem();
        for part in 0..faults.div_ceil(PART_FAULTS) {
            let of_part = PART_FAULTS.min(faults - part * PART_FAULTS);
            let outcome = match kept.done(&part.to_string()) {
                Some(done) => done,
                None if self.is_over(begun) => {
                    is_whole = false;
                    break;
                }
                None => {
                    bar.set_message(format!("cluster {}", part + 1));
                    let keep = self.keep.as_deref();
                    let asked = part::Asked { keep, part, faults: of_part as usize, nodes, seed, has_netem };
                    let folder = work_folder()?;
                    let told = |faults: usize| {
                        bar.inc(faults as u64);
                        if interrupted.load(Ordering::Relaxed) {
                            return Err(LabError::Interrupted {
                                kept: "the same command goes on behind the last cluster",
                            });
                        }
                        Ok(())
                    };
                    let outcome = play(folder.path(), asked, handle, told)?;
                    kept.add(&part.to_string(), &outcome)?;
                    outcome
                }
            };
            bar.set_position(u64::from(part * PART_FAULTS + of_part));
            all.add(outcome);
        }
        bar.set_message("puts with all sharers dead");
        let sharers = match kept.done(SHARERS) {
            Some(done) => done,
            None => {
                let outcome = play_sharers(work_folder()?.path(), nodes, handle)?;
                kept.add(SHARERS, &outcome)?;
                outcome
            }
        };
        all.add(sharers);
        bar.finish_and_clear();
        if is_whole {
            kept.finish()?;
        }
        Ok(self.report(machine, all, has_netem))
    }

    fn is_over(&self, begun: Instant) -> bool {
        self.minutes.is_some_and(|minutes| begun.elapsed() >= Duration::from_secs_f64(minutes * 60.0))
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
        let faults = all.faults();
        ClusterFaultsReport {
            machine,
            nodes: self.nodes,
            seed: self.seed,
            faults,
            kinds: all.kinds,
            skipped,
            seconds: all.seconds,
            operations: all.operations,
            unknown: all.unknown,
            by_invocations: all.by_invocations,
            invocations: all.invocations,
            invocations_failed: all.invocations_failed,
            nested_calls: all.nested_calls,
            lost: all.lost,
            stale: all.stale,
            mixed: all.mixed,
            not_recovered: all.not_recovered,
            ended_by_itself: all.ended_by_itself,
            failed_homes: all.outages.iter().filter(|outage| outage.alone).count(),
            max_unavailable_ms: unavailable.percentile(1.0),
            p50_unavailable_ms: unavailable.median(),
            lease_ms: TTL.as_millis() as u64,
            unavailable: ways.into_iter().map(OutageRow::of).collect(),
            recovery_max_s: all.recovery_s.iter().copied().fold(0.0, f64::max),
            checkers: Checkers {
                ours: CheckerFindings {
                    objects: all.objects,
                    broken: all.ours_broken,
                    undecided: all.ours_undecided,
                    missed: all.ours_missed,
                },
                porcupine: Porcupine {
                    objects: all.objects,
                    broken: all.porcupine_broken,
                    undecided: all.porcupine_undecided,
                },
            },
            mutations: all.mutations,
            put_with_sharers_dead: all.sharers,
            violations: all.violations,
        }
    }
}

/// Where a cluster's files go.
fn work_folder() -> Result<tempfile::TempDir, LabError> {
    tempfile::tempdir().at(std::env::temp_dir())
}

impl OutageRow {
    fn of(((kind, alone), ms): ((String, bool), Vec<f64>)) -> Self {
        let (homes, sample) = (ms.len(), Sample::new(ms));
        Self { kind, alone, homes, p50_ms: sample.median(), max_ms: sample.percentile(1.0) }
    }
}

impl ClusterFaultsReport {
    fn text(&self) -> String {
        let Self { faults, operations, lost, stale, mixed, not_recovered, lease_ms, .. } = self;
        let mut text = format!(
            "{faults} faults of {} kinds: {operations} operations, {} of unknown outcome; {} invocations, {} failed, {} nested\n\
             lost {lost}, stale {stale}, mixed {mixed}, not recovered {not_recovered}\n\
             a failed home's shards took no write for {:.0} ms in the median, {:.0} ms at most of {} (lease {lease_ms} ms)",
            self.kinds.len(),
            self.unknown,
            self.invocations,
            self.invocations_failed,
            self.nested_calls,
            self.p50_unavailable_ms,
            self.max_unavailable_ms,
            self.failed_homes,
        );
        for OutageRow { kind, alone, homes, p50_ms, max_ms } in &self.unavailable {
            let when = if *alone { "" } else { ", faults before still felt" };
            text += &format!("\n  {kind}{when}: {p50_ms:.0} ms in the median, {max_ms:.0} ms at most of {homes}");
        }
        for MutationOutcome { kind, ours, porcupine } in &self.mutations {
            let said = |refused: &bool| if *refused { "refused" } else { "ACCEPTED" };
            text += &format!("\n{kind}: {} by ours, {} by porcupine", said(ours), said(porcupine));
        }
        if let Some(PutWithSharersDead { alive_p50_ms, dead_p50_ms, ratio, .. }) = self.put_with_sharers_dead {
            text += &format!(
                "\na put takes {dead_p50_ms:.1} ms with all sharers dead, {alive_p50_ms:.1} ms alive: {ratio:.2}"
            );
        }
        for SkippedFault { kind, why } in &self.skipped {
            text += &format!("\nskipped {kind}: {why}");
        }
        for violation in &self.violations {
            text.push('\n');
            text.push_str(violation);
        }
        text
    }
}
