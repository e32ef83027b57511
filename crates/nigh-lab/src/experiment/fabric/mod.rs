//! `nigh experiment fabric`: Apta's timing study (DSN 2023, figures 2, 8, 9 and 10) on a simulated fabric, Nigh's protocol
//! beside the paper's configurations. What is modelled and what is fitted: docs/design/fabric.md.

mod calibration;
mod consistency;
mod page;
mod paper;
mod report;
mod robustness;
mod speedups;
mod stores;
mod sweeps;

use std::path::PathBuf;

use clap::Args;

use self::report::FabricReport;
use crate::LabError;
use crate::instrument::machine::Machine;
use crate::instrument::report::{print_report, write_page};

/// Runs under jitter; the paper's are 50, which leave a tenth of a standard deviation to chance.
const RUNS: u64 = 400;
/// Scales of computing at which each workflow is run to fit it.
const SCALES: usize = 33;
/// The same of the short form.
const QUICK_RUNS: u64 = 4;
const QUICK_SCALES: usize = 9;
const RUNS_MAX: u64 = 10_000;

/// What `nigh experiment fabric` takes.
#[derive(Clone, Debug, Args)]
pub(super) struct FabricArgs {
    /// Runs of each workflow under jitter
    #[arg(long, default_value_t = RUNS, value_parser = clap::value_parser!(u64).range(2..=RUNS_MAX))]
    runs: u64,
    /// Decides the latencies that are drawn
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seconds instead of half a minute: few runs, a coarse fit
    #[arg(long)]
    quick: bool,
    /// Writes the report as a page
    #[arg(long)]
    html: Option<PathBuf>,
}

/// How much is run.
#[derive(Clone, Copy, Debug)]
struct Settings {
    quick: bool,
    runs: u64,
    seed: u64,
    scales: usize,
}

impl FabricArgs {
    fn settings(&self) -> Settings {
        let (runs, scales) = if self.quick { (QUICK_RUNS, QUICK_SCALES) } else { (self.runs, SCALES) };
        Settings { quick: self.quick, runs, seed: self.seed, scales }
    }

    pub(super) fn run(&self, machine: Machine, json: bool) -> Result<(), LabError> {
        let report = FabricReport::make(machine, self.settings());
        if let Some(path) = &self.html {
            write_page(path, &page::page(&report)?)?;
        }
        print_report(&report, || report.text(), json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_geometric_means_come_out_within_a_tenth_and_nigh_costs_nothing_against_apta() {
        let settings = Settings { quick: true, runs: QUICK_RUNS, seed: 1, scales: QUICK_SCALES };
        let report = FabricReport::make(Machine::read("nigh experiment fabric --quick".to_owned()), settings);
        let summary = &report.summary;
        assert!(summary.geomean_error_most <= 0.10, "{summary:?}");
        assert!(summary.geomean_held_out_error_most <= 0.12, "{summary:?}");
        assert!((0.99..=1.0).contains(&summary.nigh_over_apta), "{summary:?}");
        assert_eq!(report.rows.len(), 48);
        assert!(report.rows.iter().all(|row| row.speedup.is_finite() && row.speedup > 0.9));
        let page = page::page(&report).unwrap();
        assert_eq!(page.matches("<svg").count(), 6);
        assert!(report.text().contains("never"));
    }
}
