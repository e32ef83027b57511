//! `nigh experiment llc-contention`: CASY's figure 1. Its four functions alone, and each while the three others run beside it
//! without end, on the simulated machine with no partitioning; with `--real` on this machine too (`real_contention`).

use std::num::NonZeroU32;

use clap::Args;
use nigh_sim::llc::{Classes, Job, JobId, MachineConfig, Passes, ReplayTrace, SampleRate, SimTime, simulate};
use nigh_terms::ClosId;
use serde::Serialize;

use super::real_contention::{self, Inputs, RealRuns};
use super::{PageArgs, failed, paper, traces};
use crate::LabError;
use crate::instrument::cache_sizing::HERTZ;
use crate::instrument::chart::{self, Series};
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::parallel::in_parallel;
use crate::instrument::progress;
use crate::instrument::report_text::{html_of, tell_with_page};
use crate::instrument::stats::{Estimate, Sample};

/// One line in so many is simulated: what the sampled recordings hold.
const SAMPLING: u32 = 32;

/// Repetitions, each with other page frames.
const REPETITIONS: u64 = 5;
const REPETITIONS_QUICK: u64 = 2;
/// Rounds on this machine: one run alone, one together.
const REAL_ROUNDS: usize = 11;
const REAL_ROUNDS_QUICK: usize = 3;

/// The recordings that stand for the four; the paper does not say which sizes its figure 1 has.
const INPUTS: [&str; 4] = ["effect-26m", "blur-1.4m", "speech-79m", "resize-61m"];

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ContentionArgs {
    /// Simulate only the first tenth of each recording, with fewer repetitions
    #[arg(long)]
    quick: bool,
    /// Also run the four functions on this machine, on real inputs (`make deps`); takes about two minutes
    #[arg(long)]
    real: bool,
    #[command(flatten)]
    page: PageArgs,
}

#[derive(Debug, Serialize)]
struct Row {
    function: String,
    input: String,
    /// Seconds of the recorded stretch, of the mean of two runs.
    alone: Estimate,
    together: Estimate,
    ratio: f64,
    /// What section III has in words.
    paper: Option<f64>,
    real: Option<RealRuns>,
}

#[derive(Debug, Serialize)]
struct LlcContentionReport {
    machine: Machine,
    rows: Vec<Row>,
}

impl ContentionArgs {
    pub(crate) fn run(self, machine: Machine, json: bool) -> Result<(), LabError> {
        tell_with_page(&self.report(machine)?, self.page.html.as_deref(), page, json)
    }

    fn report(&self, machine: Machine) -> Result<LlcContentionReport, LabError> {
        let library = traces()?;
        let mut recorded = Vec::new();
        for name in INPUTS {
            let input = library.input(name)?;
            let instructions = if self.quick { input.instructions / 10 } else { u64::MAX };
            recorded.push(library.trace(input, SAMPLING, instructions)?);
        }
        let repetitions = if self.quick { REPETITIONS_QUICK } else { REPETITIONS };
        let all: Vec<usize> = (0..INPUTS.len()).collect();
        let real = if self.real { real_runs(self.quick)? } else { Vec::new() };
        let rows = in_parallel(&all, |&at| {
            let measure = |others: &[&ReplayTrace]| {
                let runs = (0..repetitions).map(|seed| seconds(INPUTS[at], &recorded[at], others, seed));
                Ok::<_, LabError>(Sample::new(runs.collect::<Result<_, _>>()?).mean_estimate(at as u64))
            };
            let others: Vec<_> = all.iter().filter(|&&other| other != at).map(|&other| &recorded[other]).collect();
            let (alone, together) = (measure(&[])?, measure(&others)?);
            let function = library.input(INPUTS[at])?.function.clone();
            let paper = paper::CONTENTION.iter().find(|(name, _)| *name == function).and_then(|(_, ratio)| *ratio);
            let ratio = together.value / alone.value;
            let real = real.iter().find(|runs| runs.function == function).cloned();
            Ok(Row { function, input: INPUTS[at].to_owned(), alone, together, ratio, paper, real })
        })?;
        Ok(LlcContentionReport { machine, rows })
    }
}

fn real_runs(quick: bool) -> Result<Vec<RealRuns>, LabError> {
    let project = std::env::current_dir().at(".")?;
    let progress = progress::bar(0);
    let (which, rounds) = if quick { (Inputs::Smallest, REAL_ROUNDS_QUICK) } else { (Inputs::Largest, REAL_ROUNDS) };
    let runs = real_contention::measure(&project, which, rounds, &progress);
    progress.finish_and_clear();
    runs
}

/// Seconds of a run of `trace`, the mean of two one after the other, while the others run.
fn seconds(name: &str, trace: &ReplayTrace, others: &[&ReplayTrace], seed: u64) -> Result<f64, LabError> {
    let twice = NonZeroU32::MIN.saturating_add(1);
    let job = |trace, passes| Job { trace, arrival: SimTime::ZERO, passes };
    let mut jobs = vec![job(trace, Passes::Times(twice))];
    jobs.extend(others.iter().map(|other| job(other, Passes::WhileOthersRun)));
    let rate = SampleRate::new(SAMPLING).map_err(|error| failed(name, &error))?;
    let config = MachineConfig { rate, seed, ..MachineConfig::XEON_SILVER_4210R };
    let mut default_class = |_: JobId, _: SimTime, _: &mut Classes<'_>| Ok(ClosId::DEFAULT);
    let report = simulate(&config, &jobs, &mut default_class).map_err(|error| failed(name, &error))?;
    Ok(report.jobs[0].time().seconds(HERTZ) / f64::from(twice.get()))
}

fn page(report: &LlcContentionReport) -> Result<String, LabError> {
    let groups: Vec<String> = report.rows.iter().map(|row| row.input.clone()).collect();
    let series = [
        Series::of_groups("alone", report.rows.iter().map(|_| 1.0)),
        Series::of_groups("together", report.rows.iter().map(|row| row.ratio)),
        Series::of_groups(
            "together, this machine",
            report.rows.iter().map(|row| row.real.as_ref().map_or(f64::NAN, |real| real.ratio)),
        ),
        Series::of_groups("together, paper", report.rows.iter().map(|row| row.paper.unwrap_or(f64::NAN))),
    ];
    let mut body = chart::figure("Time over time alone", &chart::bars(&groups, &series, "time over time alone")?);
    body += &html_of(report)?;
    let about = "CASY's figure 1 on a simulated Xeon Silver 4210R, without partitioning: each function alone, and while the \
                 three others run. The paper's section III says \"decrease\" and means increase; it does not name its inputs.";
    Ok(chart::page("Functions alone and together", about, &body, &report.machine))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speech_suffers_most_from_the_others_and_effect_least() {
        let arguments = ContentionArgs { quick: true, ..ContentionArgs::default() };
        let report = arguments.report(Machine::read("llc-contention --quick".to_owned())).unwrap();
        let ratio = |function: &str| report.rows.iter().find(|row| row.function == function).unwrap().ratio;
        assert!(report.rows.iter().all(|row| row.ratio > 0.99), "{report:?}");
        assert!(ratio("speech") > ratio("blur") && ratio("effect") < 1.02, "{report:?}");
        assert!(page(&report).unwrap().contains("<svg"));
    }
}
