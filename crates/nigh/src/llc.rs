//! `nigh llc`: last-level cache ways.

mod explain;
mod export_oci;
mod guard;
mod learn;
mod pack_trace;
mod profile;
mod sample_objects;
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
    /// Make a function's model of memory traces, or of rows that were measured elsewhere
    Learn(learn::LearnArgs),
    /// Make a memory trace of what the tracer recorded
    PackTrace(pack_trace::PackArgs),
    /// Show which ways one invocation was given, and why
    Explain(explain::ExplainArgs),
    /// Keep a latency-critical service within its objective with the fewest cache ways
    Guard(Box<guard::GuardArgs>),
    /// Print what other runtimes write into their configuration to run in Nigh's classes
    ExportOci(export_oci::ExportArgs),
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
        LlcCommand::PackTrace(args) => pack_trace::run(&args, globals)?,
        LlcCommand::Explain(args) => explain::run(&args, globals).await?,
        LlcCommand::Guard(args) => guard::run(*args, globals).await?,
        LlcCommand::ExportOci(args) => export_oci::run(&args, globals)?,
        LlcCommand::Selftest(args) => return selftest::run(args, globals).await,
    }
    Ok(ExitCode::SUCCESS)
}
