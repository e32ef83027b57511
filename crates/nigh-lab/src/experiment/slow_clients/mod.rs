//! No client holds a door shut: what honest clients of a node notice of many slow ones.
//!
//! A round measures each door beside each kind of slow clients, in an order of its own: a window without slow clients and one with
//! them, by turns the one or the other first. Honest clients call at a fixed rate (`honest`). The slow ones have another key, or
//! call another function's URL, and come again when the node has ended them (`swarm`). At the end, clients of all kinds come once
//! and are watched until the node has ended them. Broken is the promise if an honest call fails, if the 99th percentile beside
//! slow clients is more than a tenth longer by the whole of its interval, or if a slow client is left.

pub(super) mod honest;
pub(super) mod kind;
pub(super) mod ratio;
mod rows;
mod slow_connection;
mod stage;
mod swarm;
mod windows;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use self::kind::{Door, SlowKind};
use self::rows::{CallRow, JUDGED_ROUNDS_MIN, RATIO_MAX, SlowRow, broken, call_rows, slow_rows};
use self::stage::Stage;
use self::windows::{PairOutcome, Player, WatchedClients};
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::kept_progress::KeptProgress;
use crate::instrument::machine::Machine;
use crate::instrument::progress::{self, PARTS_KEPT, unless_stopped};
use crate::instrument::report::{name_of, print_report};
use crate::instrument::template::Columns;

const SEED: u64 = 4;
/// Files that this process has open beside its slow clients.
const OTHER_FILES: u64 = 256;
const SECONDS_MIN: f64 = 0.2;
const SECONDS_MAX: f64 = 60.0;

const CALLS: Columns = Columns(
    "door | slow clients = {kind} | honest = {call} | calls | failed | p50 ms alone = {p50_quiet_ms:.2} | beside = {p50_ms:.2} | \
     p99 ms alone = {p99_quiet_ms:.2} | beside = {p99_ms:.2} | p99 ratio = {p99_ratio.value:.2} ({p99_ratio.low:.2} to {p99_ratio.high:.2}) | \
     first call ms alone = {first_quiet_ms:.2} | beside = {first_ms:.2}",
);
const SLOW: Columns = Columns(
    "door | slow clients = {kind} | opened | refused | ended | completed | watched | ended of them = {watched_ended} | left | \
     after s = {ended_after_p50_s:.1} to {ended_after_max_s:.1} | node MiB = {memory_quiet_mib:.0} to {memory_mib:.0} | \
     node files = {descriptors_quiet} to {descriptors} | node processors = {node_processors_quiet:.2} to {node_processors:.2} | \
     slow processors = {slow_processors:.3}",
);
const CONDITIONS: [&str; 4] = [
    "calls are due at a fixed rate and wait for nobody, over connections that are kept; latency counts from when a call was due",
    "the slow clients are one thread of the least priority: it wakes 100 times a second at most and makes two \
     system calls a second for each client; `slow_processors` is what it used",
    "a slow client that was ended or refused comes again after 5 s; its end is noticed up to two seconds late",
    "a ratio is of the pooled calls of all rounds; its interval (95 %) draws whole rounds, and with fewer than 4 it is not judged",
];

#[derive(Clone, Debug, Args)]
pub(super) struct SlowClientsArgs {
    #[command(flatten)]
    parameters: SlowClientsParameters,
    /// The progress file: stores finished windows, so that an interrupted run resumes
    #[arg(long, value_name = "FILE")]
    progress: Option<PathBuf>,
}

/// What decides the outcome of a run.
#[derive(Clone, Debug, PartialEq, Args, Serialize, Deserialize)]
struct SlowClientsParameters {
    /// How many slow clients there are at a time
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    clients: u32,
    /// How long each window is measured, in seconds
    #[arg(long, default_value_t = 5.0, value_name = "S", value_parser = seconds)]
    seconds: f64,
    /// How many rounds there are; with fewer than 4, latencies are not judged
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Only these doors
    #[arg(long, value_enum, value_delimiter = ',', value_name = "DOOR")]
    doors: Vec<Door>,
    /// Only slow clients of these kinds
    #[arg(long, value_enum, value_delimiter = ',', value_name = "KIND")]
    kinds: Vec<SlowKind>,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (SECONDS_MIN..=SECONDS_MAX).contains(&seconds) => Ok(seconds),
        _ => Err(format!("expected {SECONDS_MIN} to {SECONDS_MAX} seconds")),
    }
}

/// A part of a run that is done.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum DonePart {
    Pair(Box<PairOutcome>),
    Watched(Vec<WatchedClients>),
}

#[derive(Debug, Serialize)]
struct SlowClientsReport {
    machine: Machine,
    conditions: [&'static str; 4],
    clients: u32,
    seconds: f64,
    rounds: u16,
    /// Whether ratios were judged.
    judged: bool,
    ratio_asked: f64,
    /// Honest calls that failed.
    failed: usize,
    calls: Vec<CallRow>,
    slow: Vec<SlowRow>,
    /// A sentence for each promise that does not hold.
    broken: Vec<String>,
}

impl SlowClientsArgs {
    pub(super) async fn run(self, machine: Machine, json: bool) -> Result<(), LabError> {
        allow_files(u64::from(self.parameters.clients) + OTHER_FILES)?;
        let stop = progress::stop_on_interrupt();
        let stage = Stage::set().await?;
        let handle = Handle::current();
        let played = tokio::task::spawn_blocking(move || self.play(&stage, machine, &handle, &stop)).await;
        let report = played.of_node()??;
        print_report(&report, || report.text(), json)?;
        match report.broken.len() {
            0 => Ok(()),
            count => Err(LabError::Found(format!("{count} promises about slow clients do not hold"))),
        }
    }

    fn play(
        &self,
        stage: &Stage,
        machine: Machine,
        handle: &Handle,
        stop: &AtomicBool,
    ) -> Result<SlowClientsReport, LabError> {
        let SlowClientsParameters { clients, seconds, rounds, .. } = self.parameters;
        let kept = KeptProgress::open_if(self.progress.as_deref(), self.parameters.clone())?;
        let cells = self.parameters.cells();
        let progress = progress::ticking_bar((cells.len() * usize::from(rounds)) as u64 + 1, "warm-up");
        let player = Player { stage, handle, clients: clients as usize, length: Duration::from_secs_f64(seconds) };
        for door in self.parameters.chosen_doors() {
            player.warm_up(door)?;
        }
        let mut pairs = Vec::new();
        for round in 0..rounds {
            for (door, kind) in order_of(&cells, round) {
                unless_stopped(stop, PARTS_KEPT)?;
                let (door_name, kind_name) = (name_of(&door), name_of(&kind));
                progress.set_message(format!("{kind_name} at {door_name}"));
                let quiet_first = round.is_multiple_of(2);
                let play = || player.pair(door, kind, quiet_first).map(|pair| DonePart::Pair(Box::new(pair)));
                match kept.part_now(&format!("{round}/{door_name}/{kind_name}"), play)? {
                    DonePart::Pair(pair) => pairs.push(*pair),
                    DonePart::Watched(_) => {}
                }
                progress.inc(1);
            }
        }
        unless_stopped(stop, PARTS_KEPT)?;
        progress.set_message("watching slow clients until they are ended");
        let watched = match kept.part_now("watched", || player.watch(&cells).map(DonePart::Watched))? {
            DonePart::Watched(watched) => watched,
            DonePart::Pair(_) => Vec::new(),
        };
        progress.finish_and_clear();
        kept.finish()?;
        let (calls, slow) = (call_rows(&cells, &pairs), slow_rows(&cells, &pairs, &watched));
        Ok(SlowClientsReport {
            machine,
            conditions: CONDITIONS,
            clients,
            seconds,
            rounds,
            judged: usize::from(rounds) >= JUDGED_ROUNDS_MIN,
            ratio_asked: RATIO_MAX,
            failed: calls.iter().map(|row| row.failed).sum(),
            broken: broken(&calls, &slow),
            calls,
            slow,
        })
    }
}

impl SlowClientsParameters {
    fn chosen_doors(&self) -> Vec<Door> {
        Door::ALL.into_iter().filter(|door| self.doors.is_empty() || self.doors.contains(door)).collect()
    }

    /// Each door with each kind of slow clients.
    fn cells(&self) -> Vec<(Door, SlowKind)> {
        let kinds: Vec<SlowKind> =
            SlowKind::ALL.into_iter().filter(|kind| self.kinds.is_empty() || self.kinds.contains(kind)).collect();
        self.chosen_doors().into_iter().flat_map(|door| kinds.iter().map(move |&kind| (door, kind))).collect()
    }
}

/// The cells in the order of a round, the same in each run.
fn order_of(cells: &[(Door, SlowKind)], round: u16) -> Vec<(Door, SlowKind)> {
    let mut order = cells.to_vec();
    order.shuffle(&mut StdRng::seed_from_u64(SEED + u64::from(round)));
    order
}

/// Raises this process's limit of open files to the hard limit, and fails if that is below `files`.
fn allow_files(files: u64) -> Result<(), LabError> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    // If that fails, the limit is compared as it is.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < files => Err(LabError::Missing {
            missing: format!("room for {files} open files (the limit is {limit})"),
            hint: "run `ulimit -Hn 65536` as root first, or take fewer --clients",
        }),
        _ => Ok(()),
    }
}

impl SlowClientsReport {
    fn text(&self) -> String {
        let broken: Vec<String> = self.broken.iter().map(|broken| format!("broken: {broken}")).collect();
        let verdict = match (broken.is_empty(), self.judged) {
            (false, _) => broken.join("\n"),
            (true, true) => format!("no honest call failed, and no p99 ratio is beyond {RATIO_MAX} by its interval"),
            (true, false) => {
                format!("no honest call failed; ratios are judged with {JUDGED_ROUNDS_MIN} rounds or more")
            }
        };
        let (calls, slow) = (CALLS.text(&self.calls), SLOW.text(&self.slow));
        format!("{calls}\n{slow}\n{}\n{verdict}\n{}", CONDITIONS.join("\n"), self.machine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(doors: Vec<Door>, kinds: Vec<SlowKind>) -> SlowClientsParameters {
        SlowClientsParameters { clients: 64, seconds: 1.0, rounds: 1, doors, kinds }
    }

    #[test]
    fn every_round_measures_every_chosen_cell_once_and_in_its_own_order() {
        let all = parameters(Vec::new(), Vec::new()).cells();
        assert_eq!(all.len(), 24);
        let sorted = |round| {
            let mut order = order_of(&all, round);
            order.sort();
            order
        };
        assert_eq!((sorted(0), sorted(1)), (all.clone(), all.clone()));
        assert!(order_of(&all, 0) != order_of(&all, 1) && order_of(&all, 1) == order_of(&all, 1));
        let chosen = parameters(vec![Door::Openwhisk, Door::S3], vec![SlowKind::Silent]).cells();
        assert_eq!(chosen, [(Door::S3, SlowKind::Silent), (Door::Openwhisk, SlowKind::Silent)]);
    }

    #[test]
    fn windows_have_a_length_that_can_be_measured() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        for text in ["0", "61", "NaN", "x"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn more_files_than_this_process_may_open_are_refused_with_a_hint() {
        assert!(allow_files(1).is_ok());
        if getrlimit(Resource::Nofile).current.is_some() {
            let refused = allow_files(u64::MAX).unwrap_err().to_string();
            assert!(refused.contains("ulimit") && refused.contains("--clients"), "{refused}");
        }
    }

    #[test]
    fn a_part_that_is_kept_is_read_again() {
        let watched = DonePart::Watched(vec![WatchedClients {
            door: Door::FunctionUrl,
            kind: SlowKind::HalfClosed,
            clients: 3,
            ends: swarm::SlowEnds { answers: [(400, 3)].into(), ..swarm::SlowEnds::default() },
        }]);
        let text = serde_json::to_string(&watched).unwrap();
        assert!(text.contains("\"function-url\"") && text.contains("\"half-closed\""), "{text}");
        let DonePart::Watched(read) = serde_json::from_str(&text).unwrap() else { panic!("{text}") };
        assert_eq!(read[0].ends.answers.get(&400), Some(&3));
    }
}
