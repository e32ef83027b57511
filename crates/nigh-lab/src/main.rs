//! `nigh-lab`: the program that `nigh bench`, `check`, `experiment`, `load`, `profile`, `llc selftest --vm`,
//! `llc pack-trace` and `llc learn --trace` start.
//!
//! It reads the words that `nigh` was given and keeps its exit codes and its errors in JSON. Nodes that it needs are
//! processes of the `nigh` beside it.

#[cfg(not(feature = "all"))]
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use mimalloc::MiMalloc;
#[cfg(feature = "all")]
use nigh_lab::{BenchArgs, CheckArgs, LoadArgs, PackTraceArgs, PriceTracesArgs, ProfileArgs, SelftestArgs};
use nigh_lab::{ExperimentArgs, LabError};

/// The allocator of `nigh`: `bench memory` measures a node's memory for objects.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Measures Nigh: benches, experiments, checks and load.
#[derive(Parser)]
#[command(name = "nigh-lab", bin_name = "nigh", version, propagate_version = true)]
struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: Command,
}

/// Options of all subcommands of `nigh`.
#[derive(Args)]
struct Globals {
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    node: NodeOptions,
}

/// `nigh` has read these options and set the environment.
#[derive(Args)]
struct NodeOptions {
    #[arg(long, global = true, hide = true)]
    state: Option<PathBuf>,
    #[arg(long, global = true, hide = true)]
    config: Option<PathBuf>,
    #[arg(long, global = true, hide = true, alias = "namespace")]
    profile: Option<String>,
    #[arg(long, global = true, hide = true)]
    endpoint: Option<String>,
}

#[derive(Subcommand)]
enum Command {
    /// Run an experiment and print its table
    Experiment(ExperimentArgs),
    #[cfg(feature = "all")]
    #[command(flatten)]
    Other(Other),
    /// Other commands are left out of this build
    #[cfg(not(feature = "all"))]
    #[command(external_subcommand)]
    LeftOut(Vec<OsString>),
}

#[cfg(feature = "all")]
#[derive(Subcommand)]
enum Other {
    /// Play the load of some tenants on a node, and print its latencies
    Load(LoadArgs),
    /// Measure against the peers on this machine
    Bench(BenchArgs),
    /// Explore the consistency contract in every order of events, with and without each of its rules
    Check(CheckArgs),
    /// Measure the memory of functions, run by run
    Profile(ProfileArgs),
    /// Work with memory traces and ways of the last-level cache
    #[command(subcommand, hide = true)]
    Llc(LlcCommand),
}

#[cfg(feature = "all")]
#[derive(Subcommand)]
enum LlcCommand {
    /// Boot the pinned Linux kernels in virtual machines and compare their resctrl with Nigh's emulator of it
    Selftest(SelftestArgs),
    /// Make a memory trace of a tracer's recording
    PackTrace(PackTraceArgs),
    /// Simulate memory traces in a last-level cache, and print the training rows
    PriceTraces(PriceTracesArgs),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Help and version are no errors.
        Err(error) if error.use_stderr() && std::env::args_os().any(|word| word == "--json") => {
            return complain(&wrong_usage(&error.render().to_string()), true, LabError::USAGE);
        }
        Err(error) => error.exit(),
    };
    let json = cli.globals.json;
    let ended = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(Box::pin(run(cli.command, json))),
        Err(error) => Err(LabError::Node(format!("starting threads: {error}"))),
    };
    match ended {
        Ok(code) => code,
        Err(error) => complain(&error.to_string(), json, error.exit_code()),
    }
}

async fn run(command: Command, json: bool) -> Result<ExitCode, LabError> {
    match command {
        Command::Experiment(args) => Box::pin(args.run(json)).await?,
        #[cfg(feature = "all")]
        Command::Other(other) => return Box::pin(run_other(other, json)).await,
        #[cfg(not(feature = "all"))]
        Command::LeftOut(words) => return Err(LabError::left_out(&words)),
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(feature = "all")]
async fn run_other(command: Other, json: bool) -> Result<ExitCode, LabError> {
    match command {
        Other::Load(args) => Box::pin(args.run(json)).await?,
        Other::Bench(args) => Box::pin(args.run(json)).await?,
        Other::Check(args) => tokio::task::block_in_place(|| args.run(json))?,
        Other::Profile(args) => Box::pin(args.run(json)).await?,
        Other::Llc(LlcCommand::PackTrace(args)) => args.run(json)?,
        Other::Llc(LlcCommand::PriceTraces(args)) => args.run()?,
        Other::Llc(LlcCommand::Selftest(args)) => return tokio::task::block_in_place(|| args.run(json)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints why a command failed, in one line; an error of standard error is ignored.
fn complain(reason: &str, json: bool, exit: u8) -> ExitCode {
    let line = if json {
        serde_json::json!({ "error": reason, "code": null, "exit": exit }).to_string()
    } else {
        let steers = |c: char| c.is_control() && c != '\t';
        format!("nigh: {}", reason.replace('\n', "; ").replace(steers, " "))
    };
    let _ = writeln!(std::io::stderr().lock(), "{line}");
    ExitCode::from(exit)
}

/// clap's message for programs: without its prefix, the usage and the hint to the help.
fn wrong_usage(rendered: &str) -> String {
    let paragraphs = rendered.trim_start_matches("error: ").split("\n\n").map(str::trim);
    let kept = paragraphs.filter(|part| !part.starts_with("Usage:") && !part.starts_with("For more information"));
    kept.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[cfg(feature = "all")]
    #[test]
    fn wrong_usage_is_told_to_a_program_without_the_help() {
        let error = Cli::try_parse_from(["nigh", "bench", "s4"]).err().map(|error| error.render().to_string());
        let told = wrong_usage(&error.unwrap_or_default());
        assert!(told.starts_with("unrecognized subcommand 's4'") && !told.contains("Usage"), "{told}");
    }
}
