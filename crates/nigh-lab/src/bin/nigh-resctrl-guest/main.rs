//! What runs inside a virtual machine to compare the kernel's resctrl with the emulator: one JSON report on standard
//! output. It mounts and unmounts resctrl at will and is of no use on a machine that somebody needs.
//!
//! Usage: `nigh-resctrl-guest MACHINE FIRST-SEED SEQUENCES`; its cases start it again as other processes.

mod command;
mod draw;
mod driver;
mod lockstep;
mod shrink;
mod sides;
mod threads;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Range;
use std::process::ExitCode;

use nigh_llc::resctrl::conformance::{self, Extent, Outcome, Stop};
use nigh_llc::resctrl::emulator::{Dialect, GuestMachine, MachineConfig};
use nigh_llc::resctrl::{MountOptions, ProcTasks, Tid};
use serde::Serialize;

use crate::draw::Draw;
use crate::lockstep::{Mismatch, Side};
use crate::sides::{EmulatedSide, Kernel};
use crate::threads::Threads;

/// Commands of one sequence.
const COMMANDS: usize = 60;
/// Differences told; one cause makes many, and each takes long to shorten.
const MISMATCHES_MAX: usize = 8;

/// What the host reads.
#[derive(Debug, Serialize)]
struct GuestReport {
    /// The kernel's release.
    release: String,
    /// What was compared.
    cases: u64,
    /// What this machine cannot show.
    not_applicable: u64,
    /// What differs.
    mismatches: Vec<Mismatch>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ended = match arguments[..] {
        [driver::RESTLESS, what] => driver::run_restless(what),
        [driver::HOLDER] => driver::run_holder(),
        [driver::AS_ANOTHER_USER] => driver::run_as_another_user(),
        _ => compare(&arguments).and_then(|report| {
            let text = serde_json::to_string(&report)?;
            writeln!(io::stdout().lock(), "{text}")
        }),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If standard error is gone there is nobody to tell.
            let _ = writeln!(io::stderr().lock(), "nigh-resctrl-guest: {error}");
            ExitCode::FAILURE
        }
    }
}

fn compare(arguments: &[&str]) -> io::Result<GuestReport> {
    let usage = || io::Error::other("usage: nigh-resctrl-guest MACHINE FIRST-SEED SEQUENCES");
    let [machine, first_seed, sequences] = arguments else { return Err(usage()) };
    let machine = GuestMachine::named(machine).ok_or_else(usage)?;
    let first_seed: u64 = first_seed.parse().map_err(|_| usage())?;
    let sequences: u64 = sequences.parse().map_err(|_| usage())?;

    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned();
    let dialect = dialect_of(&release);
    let machine = machine.config(dialect);
    let (kernel, emulated) = (Kernel::mounted()?, EmulatedSide::new(machine.clone()));
    let mut report = GuestReport { release, cases: 0, not_applicable: 0, mismatches: Vec::new() };

    check_conformance(&kernel, &machine, &mut report)?;
    check_driver(&kernel, &machine, &mut report)?;
    check_sequences(&kernel, &emulated, &machine, first_seed..first_seed.saturating_add(sequences), &mut report)?;
    Ok(report)
}

/// What this machine and kernel can be mounted with.
fn mount_options(machine: &MachineConfig) -> Vec<MountOptions> {
    let plain = MountOptions::default();
    let mut options = vec![plain];
    if machine.l3.as_ref().is_some_and(|l3| l3.cdp) {
        options.push(MountOptions { cdp: true, ..plain });
    }
    if machine.mb.is_some() {
        options.push(MountOptions { mba_mbps: true, ..plain });
    }
    if machine.dialect == Dialect::Linux7 {
        options.push(MountOptions { debug: true, ..plain });
    }
    options
}

/// The named cases, on every kind of mount. One that no mount can show counts as not applicable.
fn check_conformance(kernel: &Kernel, machine: &MachineConfig, report: &mut GuestReport) -> io::Result<()> {
    let mut shown = BTreeMap::new();
    for options in mount_options(machine) {
        kernel.remount(options)?;
        let threads = Threads::start(1)?;
        let task = threads.tids().next().map(Tid).ok_or_else(|| io::Error::other("no thread to move"))?;
        for case in conformance::run(kernel.fs(), &ProcTasks::default(), task, Extent::WholeMount)? {
            let ended = match case.outcome {
                Outcome::Passed => Ok(()),
                Outcome::NotApplicable(reason) => Err(Stop::NotApplicable(reason)),
                Outcome::Failed(reason) => Err(Stop::Failed(reason)),
            };
            let what = format!("rule {}, mounted with [{options}]: {}", case.rule, case.name);
            count(report, &mut shown, case.name, what, ended);
        }
    }
    report.not_applicable += shown.values().filter(|applied| !**applied).count() as u64;
    Ok(())
}

/// What the driver promises, on every kind of mount that changes what it has to do.
fn check_driver(kernel: &Kernel, machine: &MachineConfig, report: &mut GuestReport) -> io::Result<()> {
    let mut shown = BTreeMap::new();
    for options in mount_options(machine).into_iter().filter(|options| !options.debug) {
        for (name, ended) in driver::play(kernel, machine, options)? {
            let what = format!("the driver, mounted with [{options}]: {name}");
            count(report, &mut shown, name, what, ended);
        }
    }
    report.not_applicable += shown.values().filter(|applied| !**applied).count() as u64;
    Ok(())
}

/// Counts a case that ended so; `shown` learns whether its machine can show it.
fn count(
    report: &mut GuestReport,
    shown: &mut BTreeMap<&'static str, bool>,
    name: &'static str,
    what: String,
    ended: Result<(), Stop>,
) {
    let applies = !matches!(ended, Err(Stop::NotApplicable(_)));
    *shown.entry(name).or_insert(false) |= applies;
    report.cases += u64::from(applies);
    if let Err(Stop::Failed(reason)) = ended {
        let expected = "as the case says".to_owned();
        report.mismatches.push(Mismatch { what, commands: Vec::new(), kernel: reason, expected });
    }
}

/// Random lists of commands.
fn check_sequences(
    kernel: &Kernel,
    emulated: &EmulatedSide,
    machine: &MachineConfig,
    seeds: Range<u64>,
    report: &mut GuestReport,
) -> io::Result<()> {
    let kinds = mount_options(machine);
    for seed in seeds {
        let mut draw = Draw::new(seed);
        let mut options = kinds[draw.below(kinds.len() as u32) as usize];
        options.debug |= machine.dialect == Dialect::Linux7 && draw.chance(20);
        let commands = command::commands(&mut draw, machine, options, COMMANDS);
        report.cases += 1;
        if let Some(mut found) = lockstep::difference(kernel, emulated, options, &commands)? {
            found.what = format!("sequence of seed {seed}, mounted with [{options}]: {}", found.what);
            report.mismatches.push(found);
        }
        if report.mismatches.len() >= MISMATCHES_MAX {
            break;
        }
    }
    Ok(())
}

/// Which kernel's texts the emulator is to have; those between are not pinned, and the newer ones are nearer to 7.
fn dialect_of(release: &str) -> Dialect {
    if release.starts_with("6.1.") { Dialect::Linux6_1 } else { Dialect::Linux7 }
}
