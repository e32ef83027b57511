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
use crate::instrument::report::publish;

/// Runs under jitter; the paper's are 50, which leave a tenth of a standard deviation to chance.
const RUNS: u64 = 400;
/// Scales of computing at which each workflow is run to fit it.
const SCALES: usize = 33;
/// Runs of the short form.
const QUICK_RUNS: u64 = 4;
const QUICK_SCALES: usize = 9;
/// Decides the latencies that are drawn.
const SEED: u64 = 1;

#[derive(Clone, Debug, Args)]
pub(super) struct FabricArgs {
    /// Do only few runs and a coarse fit: takes seconds instead of half a minute
    #[arg(long)]
    quick: bool,
    /// Write the page with the charts to this file
    #[arg(long)]
    html: Option<PathBuf>,
}

impl FabricArgs {
    pub(super) fn run(&self, machine: Machine, json: bool) -> Result<(), LabError> {
        let report = FabricReport::make(machine, self.quick);
        publish(&report, self.html.as_deref(), page::page, FabricReport::text, json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_geometric_means_come_out_within_a_tenth_and_nigh_costs_nothing_against_apta() {
        let report = FabricReport::make(Machine::read("nigh experiment fabric --quick".to_owned()), true);
        let (summary, of) = (&report.summary, |field: &str| report.summary[field].as_f64().unwrap());
        assert!(of("geomean_error_most") <= 0.10, "{summary:?}");
        assert!(of("geomean_held_out_error_most") <= 0.12, "{summary:?}");
        assert!((0.99..=1.0).contains(&of("nigh_over_apta")), "{summary:?}");
        assert_eq!(report.rows.len(), 48);
        assert!(report.rows.iter().all(|row| row.speedup.is_finite() && row.speedup > 0.9));
        let page = page::page(&report).unwrap();
        assert_eq!(page.matches("<svg").count(), 6);
        assert!(report.text().contains("never"));
    }
}
