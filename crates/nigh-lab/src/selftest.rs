//! `nigh llc selftest --vm`: real kernels booted in virtual machines and compared with the emulator step by step.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::report_text::tell;
use crate::instrument::vm::{KernelFolder, KernelReport, ResctrlCheck};

/// What `nigh llc selftest --vm` takes.
#[derive(Clone, Debug, Args)]
pub struct SelftestArgs {
    /// Boot the pinned Linux kernels in virtual machines and compare their resctrl with Nigh's emulator of it (needs no
    /// cache hardware)
    #[arg(long, required = true)]
    vm: bool,
    /// Random command sequences per kernel and machine
    #[arg(long, value_name = "N", default_value_t = 20)]
    seeds: u32,
    /// Where scripts/install-vm-kernels.sh put the kernels
    #[arg(long, value_name = "FOLDER", default_value = ".deps/kernels")]
    kernels: PathBuf,
}

#[derive(Serialize)]
struct SelftestReport {
    machine: Machine,
    kernels: Vec<KernelReport>,
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
        let check = ResctrlCheck { kernels: KernelFolder::new(&self.kernels), programs, sequences: self.seeds };
        let reports = check.run()?;
        let equal = reports.iter().all(|report| report.mismatches == 0);
        tell(&SelftestReport { machine, kernels: reports }, json)?;
        Ok(if equal { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
