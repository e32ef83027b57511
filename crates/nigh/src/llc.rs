//! `nigh llc`: last-level cache ways.

mod explain;
mod learn;
mod profile;
mod selftest;
mod status;

use std::process::ExitCode;

use clap::Subcommand;

use crate::context::Globals;
use crate::error::CliError;

#[derive(Subcommand)]
pub(crate) enum LlcCommand {
    /// Show whether the level is on, and what is known of functions
    Status,
    /// Show the classes of service over the cache's ways, with their loads
    Layout,
    /// Measure how many ways a function needs, and keep the model
    Profile(profile::ProfileArgs),
    /// Make a function's model of rows that were measured elsewhere
    Learn(learn::LearnArgs),
    /// Show which ways one invocation was given, and why
    Explain(explain::ExplainArgs),
    /// Check that the kernel's resctrl, and the emulator that tests use in its place, answer as Nigh expects
    Selftest(selftest::SelftestArgs),
}

/// Does what is asked.
pub(crate) async fn run(command: LlcCommand, globals: &Globals) -> Result<ExitCode, CliError> {
    match command {
        LlcCommand::Status => status::status(globals).await?,
        LlcCommand::Layout => status::layout(globals).await?,
        LlcCommand::Profile(args) => profile::run(args, globals).await?,
        LlcCommand::Learn(args) => learn::run(args, globals).await?,
        LlcCommand::Explain(args) => explain::run(&args, globals).await?,
        LlcCommand::Selftest(args) => return selftest::run(args, globals).await,
    }
    Ok(ExitCode::SUCCESS)
}
