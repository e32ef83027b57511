//! `nigh llc`: last-level cache ways.

mod selftest;

use std::process::ExitCode;

use clap::Subcommand;

use crate::context::Globals;
use crate::error::CliError;

#[derive(Subcommand)]
pub(crate) enum LlcCommand {
    /// Check that the kernel's resctrl, and the emulator that tests use in its place, answer as Nigh expects
    Selftest(selftest::SelftestArgs),
}

/// Does what is asked.
pub(crate) async fn run(command: LlcCommand, globals: &Globals) -> Result<ExitCode, CliError> {
    match command {
        LlcCommand::Selftest(args) => selftest::run(args, globals).await,
    }
}
