//! `nigh llc selftest --vm`: real kernels booted in virtual machines and compared with the emulator step by step.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use comfy_table::{Table, presets};
use serde_json::{Value, json};

use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::report::print_report;
use crate::instrument::vm::{KernelFolder, KernelReport, ResctrlCheck};

/// What `nigh llc selftest --vm` takes.
#[derive(Clone, Debug, Args)]
pub struct SelftestArgs {
    /// Boot the pinned kernels in virtual machines and compare them with the emulator (no hardware needed)
    #[arg(long, required = true)]
    vm: bool,
    /// Random command sequences per kernel and machine
    #[arg(long, value_name = "N", default_value_t = 20)]
    seeds: u32,
    /// The first sequence's seed; the same seeds make the same commands
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    first_seed: u64,
    /// Where scripts/install-vm-kernels.sh put the kernels
    #[arg(long, value_name = "FOLDER", default_value = ".deps/kernels")]
    kernels: PathBuf,
}

impl SelftestArgs {
    /// Compares, and prints what differs. The exit code is 1 if anything does.
    ///
    /// # Errors
    /// If a kernel cannot be booted.
    pub fn run(self, json: bool) -> Result<ExitCode, LabError> {
        let machine = Machine::of_this_command();
        let own = std::env::current_exe().at("the program")?;
        let programs = own.parent().map_or_else(PathBuf::new, PathBuf::from);
        let kernels = KernelFolder::new(&self.kernels);
        let check = ResctrlCheck { kernels, programs, sequences: self.seeds, first_seed: self.first_seed };
        let reports = check.run()?;
        let rows: Vec<Value> = reports.iter().map(row).collect();
        print_report(&json!({ "machine": machine, "kernels": rows }), || text(&reports), json)?;
        let equal = reports.iter().all(|report| report.mismatches == 0);
        Ok(if equal { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn row(report: &KernelReport) -> Value {
    json!({
        "kernel": report.kernel,
        "cases": report.cases,
        "mismatches": report.mismatches,
        "not_applicable": report.not_applicable,
        "differences": report.differences.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

fn text(reports: &[KernelReport]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["kernel", "cases", "mismatches", "not applicable"]);
    let mut differences = String::new();
    for report in reports {
        let counts = [report.cases, report.mismatches, report.not_applicable].map(|count| count.to_string());
        table.add_row(std::iter::once(report.kernel.clone()).chain(counts));
        for difference in &report.differences {
            differences += &format!("\n{}: {difference}", report.kernel);
        }
    }
    format!("{table}{differences}")
}
