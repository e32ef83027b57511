//! `nigh llc`: last-level cache ways.

mod explain;
mod export_oci;
mod guard;
mod learn;
mod profile;
mod sample_objects;
mod selftest;
mod status;

use std::process::ExitCode;

use clap::Subcommand;

use crate::context::Globals;
use crate::error::CliError;
use crate::lab;

#[derive(Subcommand)]
pub(crate) enum LlcCommand {
    /// Show whether cache ways are allocated, and the models of functions
    Status,
    /// Show the classes of service, their ways and their loads
    Layout,
    /// Measure how many ways a function needs, and store the model
    Profile(profile::ProfileArgs),
    /// Make a function's model from memory traces, or from rows that were measured elsewhere
    Learn(learn::LearnArgs),
    /// Make a memory trace from a tracer's recording
    #[command(disable_help_flag = true)]
    PackTrace(lab::LabArgs),
    /// Show which ways one invocation got, and why
    Explain(explain::ExplainArgs),
    /// Keep a latency-critical service within its objective with the fewest cache ways
    Guard(Box<guard::GuardArgs>),
    /// Print the configuration with which other runtimes run in Nigh's classes
    ExportOci(export_oci::ExportArgs),
    /// Check that the kernel's resctrl, or the emulator that tests use instead, answers as Nigh expects
    Selftest(selftest::SelftestArgs),
}

pub(crate) async fn run(command: LlcCommand, globals: &Globals) -> Result<ExitCode, CliError> {
    match command {
        LlcCommand::Status => status::status(globals).await?,
        LlcCommand::Layout => status::layout(globals).await?,
        LlcCommand::Profile(args) => profile::run(args, globals).await?,
        LlcCommand::Learn(args) => learn::run(args, globals).await?,
        LlcCommand::PackTrace(_) => return Err(lab::run()),
        LlcCommand::Explain(args) => explain::run(&args, globals).await?,
        LlcCommand::Guard(args) => guard::run(*args, globals).await?,
        LlcCommand::ExportOci(args) => export_oci::run(&args, globals)?,
        LlcCommand::Selftest(args) => return selftest::run(args, globals).await,
    }
    Ok(ExitCode::SUCCESS)
}
