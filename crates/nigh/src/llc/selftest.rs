//! `nigh llc selftest`: the conformance cases on the emulator and on this machine's resctrl. With `--vm` nigh-lab boots
//! real kernels in virtual machines and compares them with the emulator step by step.
//!
//! On this machine it makes groups of its own, and removes them.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;
use nigh_llc::resctrl::conformance::{self, CaseResult, Extent, Outcome};
use nigh_llc::resctrl::emulator::{Dialect, Emulator, GuestMachine};
use nigh_llc::resctrl::{KernelFs, MOUNTINFO, ProcTasks, Tid};
use serde::Serialize;

use crate::context::Globals;
use crate::error::CliError;
use crate::lab;
use crate::output::{self, Colour, coloured};

/// The first process: it always exists, and in the emulator it is alone in the root group.
const EMULATED_TASK: Tid = Tid(1);

#[derive(Args)]
#[command(after_help = "With --vm, which nigh-lab does: --seeds N (random command sequences per kernel and machine), \
--first-seed SEED,\n--kernels FOLDER (where scripts/install-vm-kernels.sh put the kernels).")]
pub(crate) struct SelftestArgs {
    /// Boot the pinned Linux kernels in virtual machines and compare their resctrl with Nigh's emulator of it (needs no
    /// cache hardware)
    #[arg(long)]
    vm: bool,
    /// Options of `--vm`, which nigh-lab does
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    of_vm: Vec<OsString>,
}

/// The result.
#[derive(Debug, Serialize)]
struct Selftest {
    kernels: Vec<KernelCheck>,
    /// What was not checked, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped: Option<String>,
}

/// One kernel, or the emulator in a kernel's place.
#[derive(Debug, Serialize)]
struct KernelCheck {
    kernel: String,
    cases: u64,
    mismatches: u64,
    not_applicable: u64,
    /// A line or more each.
    differences: Vec<String>,
}

/// Checks, and prints the differences. The exit code is 1 if there are any.
pub(crate) async fn run(args: SelftestArgs, globals: &Globals) -> Result<ExitCode, CliError> {
    if args.vm || !args.of_vm.is_empty() {
        return Err(lab::run());
    }
    let checked = tokio::task::spawn_blocking(here).await;
    let selftest = checked.map_err(|error| CliError::local("the self-test")(error.into()))??;
    print(&selftest, globals)?;
    let equal = selftest.kernels.iter().all(|kernel| kernel.mismatches == 0);
    Ok(if equal { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The emulator as each kernel, and this machine's own mount if there is one.
fn here() -> Result<Selftest, CliError> {
    let failed = |what: &'static str| CliError::local(format!("the conformance cases on {what}"));
    let mut kernels = Vec::new();
    for (name, dialect) in [("emulator as Linux 6.1", Dialect::Linux6_1), ("emulator as Linux 7", Dialect::Linux7)] {
        let emulator = Emulator::new(GuestMachine::CascadeLake.config(dialect));
        let results = conformance::run(&emulator, &emulator, EMULATED_TASK, Extent::WholeMount);
        kernels.push(count(name.to_owned(), results.map_err(failed("the emulator"))?));
    }
    let skipped = match KernelFs::find(MOUNTINFO).map_err(CliError::local(MOUNTINFO))? {
        None => Some(
            "this machine's own kernel: resctrl is not mounted (mount -t resctrl resctrl /sys/fs/resctrl)".to_owned(),
        ),
        Some(_) if !rustix::process::geteuid().is_root() => {
            Some("this machine's own kernel: only root may make groups in resctrl".to_owned())
        }
        Some(fs) => {
            // The cases move this thread between groups, and leave it in the root group.
            let own = Tid(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
            let results = conformance::run(&fs, &ProcTasks::default(), own, Extent::OwnGroups);
            let release = rustix::system::uname().release().to_string_lossy().into_owned();
            kernels.push(count(release, results.map_err(failed("this machine"))?));
            None
        }
    };
    Ok(Selftest { kernels, skipped })
}

fn count(kernel: String, results: Vec<CaseResult>) -> KernelCheck {
    let mut checked = KernelCheck { kernel, cases: 0, mismatches: 0, not_applicable: 0, differences: Vec::new() };
    for result in results {
        match result.outcome {
            Outcome::Passed => checked.cases += 1,
            Outcome::NotApplicable(_) => checked.not_applicable += 1,
            Outcome::Failed(reason) => {
                checked.cases += 1;
                checked.mismatches += 1;
                checked.differences.push(format!("rule {}: {}: {reason}", result.rule, result.name));
            }
        }
    }
    checked
}

fn print(selftest: &Selftest, globals: &Globals) -> Result<(), CliError> {
    if globals.json {
        return output::json(selftest);
    }
    let mut table = output::table(&["kernel", "cases", "mismatches", "not applicable"]);
    for kernel in &selftest.kernels {
        let colour = if kernel.mismatches == 0 { Colour::Green } else { Colour::Red };
        let mismatches = coloured(colour, &kernel.mismatches.to_string());
        table.add_row([&kernel.kernel, &kernel.cases.to_string(), &mismatches, &kernel.not_applicable.to_string()]);
    }
    output::print_table(&table)?;
    for kernel in &selftest.kernels {
        for difference in &kernel.differences {
            output::line(format_args!("\n{}: {difference}", kernel.kernel))?;
        }
    }
    if let Some(skipped) = &selftest.skipped {
        output::line(format_args!("{} {skipped}", coloured(Colour::Yellow, "not checked:")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_hardware_the_emulator_is_checked_and_the_rest_said() {
        let selftest = here().unwrap();
        for kernel in &selftest.kernels {
            assert!(kernel.cases > 0 && kernel.mismatches == 0, "{kernel:?}");
        }
        assert_eq!(selftest.kernels.len() + usize::from(selftest.skipped.is_some()), 3, "{selftest:?}");
    }

    #[test]
    fn a_failed_case_is_counted_and_told() {
        let case = |outcome| CaseResult { rule: 11, name: "a name", outcome };
        let results = [Outcome::Passed, Outcome::NotApplicable(String::new()), Outcome::Failed("why".to_owned())];
        let checked = count("6.1".to_owned(), results.map(case).into());
        assert_eq!((checked.cases, checked.mismatches, checked.not_applicable), (2, 1, 1));
        assert_eq!(checked.differences, ["rule 11: a name: why"]);
    }
}
