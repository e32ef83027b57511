//! A tenant over its quota slows nobody else: what another tenant notices of one that sends ten times the requests that it may.
//!
//! A round measures each door three times, in turns: without the greedy tenant, beside it at its quota, and beside it at ten times
//! its quota. The neighbour calls at a fixed rate; latency counts from when a call was due. Broken is the promise if a call of the
//! neighbour fails, if its 99th percentile beside the tenfold load is more than a tenth longer than beside the quota by the whole of
//! its interval, if more requests are accepted than the quota has, or if a refusal does not say when to try again.

mod flood;
mod rows;
mod stage;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tokio::runtime::Handle;

use self::flood::FloodOutcome;
use self::rows::{CallRow, FloodRow, JUDGED_ROUNDS_MIN, RATIO_MAX, broken, call_rows, flood_rows};
use self::stage::Stage;
use super::slow_clients::honest::{self, HonestOutcome};
use super::slow_clients::kind::Door;
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::progress::{self, unless_stopped};
use crate::instrument::report::{name_of, print_report};
use crate::instrument::template::Columns;

/// The doors whose requests are measured: OpenWhisk's API and functions' URLs share the Lambda door's way.
const DOORS: [Door; 2] = [Door::S3, Door::Lambda];
/// Calls before the first window: sandboxes are made, and caches filled.
const WARM_UP: Duration = Duration::from_secs(2);
/// How long the greedy tenant sends before a window begins.
const LEAD: Duration = Duration::from_millis(500);
/// How many times its quota the greedy tenant sends.
const TIMES: u32 = 10;
const NOTHING_KEPT: &str = "nothing is kept of a run that was cut off";
const SECONDS_MIN: f64 = 0.2;
const SECONDS_MAX: f64 = 60.0;

const CALLS: Columns = Columns(
    "door | call | calls | failed | p50 ms alone = {p50_alone_ms:.2} | beside the quota = {p50_quota_ms:.2} | tenfold = {p50_ms:.2} | \
     p99 ms alone = {p99_alone_ms:.2} | beside the quota = {p99_quota_ms:.2} | tenfold = {p99_ms:.2} | \
     p99 ratio = {p99_ratio.value:.2} ({p99_ratio.low:.2} to {p99_ratio.high:.2})",
);
const FLOODS: Columns = Columns(
    "door | times the quota = {times} | sent a second = {sent_per_s:.0} | accepted a second = {accepted_per_s:.0} | refused | \
     without Retry-After = {silent} | failed | refused p50 ms = {refused_p50_ms:.2}",
);
const CONDITIONS: [&str; 3] = [
    "the neighbour's calls are due at a fixed rate and wait for nobody, over connections that are kept",
    "the greedy tenant sends at a fixed rate too and ignores Retry-After; it is a client on the same machine, so its own work counts \
     against the neighbour",
    "a ratio is of the pooled calls of all rounds, tenfold over quota; its interval (95 %) draws whole rounds, and with fewer than 4 \
     it is not judged",
];

#[derive(Clone, Debug, Args)]
pub(super) struct QuotasArgs {
    /// The quota of the greedy tenant, in requests a second
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=1000))]
    quota: u32,
    /// How long each window is measured, in seconds
    #[arg(long, default_value_t = 5.0, value_name = "S", value_parser = seconds)]
    seconds: f64,
    /// How many rounds there are; with fewer than 4, latencies are not judged
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (SECONDS_MIN..=SECONDS_MAX).contains(&seconds) => Ok(seconds),
        _ => Err(format!("expected {SECONDS_MIN} to {SECONDS_MAX} seconds")),
    }
}

/// What the greedy tenant does in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Greed {
    Absent,
    Quota,
    Tenfold,
}

impl Greed {
    const ALL: [Self; 3] = [Self::Absent, Self::Quota, Self::Tenfold];

    /// How many times its quota the tenant sends.
    const fn times(self) -> u32 {
        match self {
            Self::Absent => 0,
            Self::Quota => 1,
            Self::Tenfold => TIMES,
        }
    }
}

/// What both tenants met in a window.
#[derive(Clone, Debug)]
struct WindowOutcome {
    door: Door,
    greed: Greed,
    round: u16,
    neighbour: Vec<HonestOutcome>,
    flood: FloodOutcome,
}

#[derive(Debug, Serialize)]
struct QuotasReport {
    machine: Machine,
    conditions: [&'static str; 3],
    quota: u32,
    seconds: f64,
    rounds: u16,
    /// Whether ratios were judged.
    judged: bool,
    ratio_asked: f64,
    /// Calls of the neighbour that failed.
    failed: usize,
    calls: Vec<CallRow>,
    floods: Vec<FloodRow>,
    /// A sentence for each promise that does not hold.
    broken: Vec<String>,
}

impl QuotasArgs {
    pub(super) async fn run(self, machine: Machine, json: bool) -> Result<(), LabError> {
        let stop = progress::stop_on_interrupt();
        let stage = Stage::set(self.quota).await?;
        let handle = Handle::current();
        let played = tokio::task::spawn_blocking(move || self.play(&stage, machine, &handle, &stop)).await;
        let report = played.of_node()??;
        print_report(&report, || report.text(), json)?;
        match report.broken.len() {
            0 => Ok(()),
            count => Err(LabError::Found(format!("{count} promises about quotas do not hold"))),
        }
    }

    fn play(
        &self,
        stage: &Stage,
        machine: Machine,
        handle: &Handle,
        stop: &Arc<AtomicBool>,
    ) -> Result<QuotasReport, LabError> {
        let length = Duration::from_secs_f64(self.seconds);
        for door in DOORS {
            let warmed = honest::play(&handle.block_on(stage.neighbour(door))?, WARM_UP)?;
            if let Some(reason) = warmed.into_iter().find_map(|outcome| outcome.first_failure) {
                return Err(LabError::Request { what: "a call without a greedy tenant".to_owned(), reason });
            }
        }
        let windows_each = (DOORS.len() * Greed::ALL.len()) as u64;
        let progress = progress::ticking_bar(windows_each * u64::from(self.rounds), "windows");
        let mut windows = Vec::new();
        for round in 0..self.rounds {
            for door in DOORS {
                for greed in order_of(round) {
                    unless_stopped(stop, NOTHING_KEPT)?;
                    progress.set_message(format!("{} at {}", name_of(&greed), name_of(&door)));
                    windows.push(self.window(stage, handle, (door, greed, round), length)?);
                    progress.inc(1);
                }
            }
        }
        progress.finish_and_clear();
        let (calls, floods) = (call_rows(&windows), flood_rows(&windows));
        Ok(QuotasReport {
            machine,
            conditions: CONDITIONS,
            quota: self.quota,
            seconds: self.seconds,
            rounds: self.rounds,
            judged: usize::from(self.rounds) >= JUDGED_ROUNDS_MIN,
            ratio_asked: RATIO_MAX,
            failed: calls.iter().map(|row| row.failed).sum(),
            broken: broken(&calls, &floods, self.quota),
            calls,
            floods,
        })
    }

    fn window(
        &self,
        stage: &Stage,
        handle: &Handle,
        (door, greed, round): (Door, Greed, u16),
        length: Duration,
    ) -> Result<WindowOutcome, LabError> {
        let neighbour = handle.block_on(stage.neighbour(door))?;
        let greedy = handle.block_on(stage.greedy(door))?;
        let per_second = self.quota * greed.times();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let flood = (per_second > 0).then(|| {
                let flooding = scope.spawn(|| flood::send(&greedy, per_second, &over));
                std::thread::sleep(LEAD);
                flooding
            });
            let played = honest::play(&neighbour, length);
            over.store(true, std::sync::atomic::Ordering::Relaxed);
            let panicked = |_| Err(LabError::Node("the greedy tenant's thread panicked".to_owned()));
            let flood = flood.map(|flooding| flooding.join().unwrap_or_else(panicked)).transpose()?;
            Ok(WindowOutcome { door, greed, round, neighbour: played?, flood: flood.unwrap_or_default() })
        })
    }
}

/// The windows of a round: each is first, second and third equally often.
fn order_of(round: u16) -> [Greed; 3] {
    let mut order = Greed::ALL;
    order.rotate_left(usize::from(round) % Greed::ALL.len());
    order
}

impl QuotasReport {
    fn text(&self) -> String {
        let broken: Vec<String> = self.broken.iter().map(|broken| format!("broken: {broken}")).collect();
        let verdict = match (broken.is_empty(), self.judged) {
            (false, _) => broken.join("\n"),
            (true, true) => {
                format!("no call of the neighbour failed, and no p99 ratio is beyond {RATIO_MAX} by its interval")
            }
            (true, false) => {
                format!("no call of the neighbour failed; ratios are judged with {JUDGED_ROUNDS_MIN} rounds or more")
            }
        };
        let (calls, floods) = (CALLS.text(&self.calls), FLOODS.text(&self.floods));
        format!("{calls}\n{floods}\n{}\n{verdict}\n{}", CONDITIONS.join("\n"), self.machine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_windows_of_a_round_take_turns() {
        let orders: Vec<[Greed; 3]> = (0..4).map(order_of).collect();
        assert_eq!(orders[0], Greed::ALL);
        assert_eq!(orders[1], [Greed::Quota, Greed::Tenfold, Greed::Absent]);
        assert_eq!(orders[3], orders[0]);
    }

    #[test]
    fn windows_have_a_length_that_can_be_measured() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        assert!(seconds("0").is_err() && seconds("61").is_err() && seconds("x").is_err());
    }
}
