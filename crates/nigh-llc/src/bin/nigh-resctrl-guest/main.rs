//! What runs inside a virtual machine to compare the kernel's resctrl with the emulator: one JSON report on standard
//! output. It mounts and unmounts resctrl at will and is of no use on a machine that somebody needs.
//!
//! Usage: `nigh-resctrl-guest MACHINE FIRST-SEED SEQUENCES`

mod command;
mod draw;
mod lockstep;
mod shrink;
mod sides;
mod threads;

use std::io::{self, Write};
use std::process::ExitCode;

use nigh_llc::resctrl::MountOptions;
use nigh_llc::resctrl::emulator::{Dialect, GuestMachine};
use serde::Serialize;

use crate::draw::Draw;
use crate::lockstep::Mismatch;
use crate::sides::{Emulated, Kernel};

/// Commands of one sequence.
const COMMANDS: usize = 60;
/// Differences told; one cause makes many, and each takes long to shorten.
const MISMATCHES_MAX: usize = 8;

/// What the host reads.
#[derive(Debug, Serialize)]
struct Report {
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
    let ended = compare(&arguments).and_then(|report| {
        let text = serde_json::to_string(&report)?;
        writeln!(io::stdout().lock(), "{text}")
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If standard error is gone there is nobody to tell.
            let _ = writeln!(io::stderr().lock(), "nigh-resctrl-guest: {error}");
            ExitCode::FAILURE
        }
    }
}

fn compare(arguments: &[String]) -> io::Result<Report> {
    let usage = || io::Error::other("usage: nigh-resctrl-guest MACHINE FIRST-SEED SEQUENCES");
    let [machine, first_seed, sequences] = arguments else { return Err(usage()) };
    let machine = GuestMachine::named(machine).ok_or_else(usage)?;
    let first_seed: u64 = first_seed.parse().map_err(|_| usage())?;
    let sequences: u64 = sequences.parse().map_err(|_| usage())?;

    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned();
    let dialect = dialect_of(&release);
    let machine = machine.config(dialect);
    let (kernel, emulated) = (Kernel::mounted()?, Emulated::new(machine.clone()));
    let mut report = Report { release, cases: 0, not_applicable: 0, mismatches: Vec::new() };

    for seed in first_seed..first_seed.saturating_add(sequences) {
        let mut draw = Draw::new(seed);
        let has_cdp = machine.l3.as_ref().is_some_and(|l3| l3.cdp);
        let options = MountOptions {
            cdp: has_cdp && draw.chance(30),
            cdpl2: false,
            mba_mbps: machine.mb.is_some() && draw.chance(15),
            debug: dialect == Dialect::Linux7 && draw.chance(30),
        };
        let commands = command::commands(&mut draw, &machine, COMMANDS);
        report.cases += 1;
        if let Some(mut found) = lockstep::difference(&kernel, &emulated, options, &commands)? {
            found.what = format!("sequence of seed {seed}, mounted with [{options}]: {}", found.what);
            report.mismatches.push(found);
        }
        if report.mismatches.len() == MISMATCHES_MAX {
            break;
        }
    }
    Ok(report)
}

/// Which kernel's texts the emulator is to have; those between are not pinned, and the newer ones are nearer to 7.
fn dialect_of(release: &str) -> Dialect {
    if release.starts_with("6.1.") { Dialect::Linux6_1 } else { Dialect::Linux7 }
}
