//! The `nigh` command: one file a group of subcommands; the work is done by the crates below.

mod activations;
mod archive;
mod backup;
mod build;
mod build_error;
mod certificates;
mod chosen_invocation;
mod cluster;
mod complete;
mod completions;
mod config;
mod confirm;
mod context;
mod deploy;
mod dev;
mod doctor;
mod down;
mod end_signals;
mod env;
mod error;
mod events;
mod explain;
mod export;
mod face;
mod failure;
mod functions;
mod help;
mod import;
mod init;
mod invoke;
mod journal;
mod keys;
mod lab;
mod lambda_units;
mod learn;
mod llc;
mod log;
mod logs;
mod metrics;
mod namespaces;
mod object_address;
mod objects;
mod openwhisk;
mod output;
mod page;
mod printable;
mod reload;
mod sam;
mod schedules;
mod status;
mod suggestion;
mod top;
mod up;
mod workflow;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use mimalloc::MiMalloc;

use crate::context::Globals;
use crate::error::{CliError, USAGE};
use crate::help::Extent;

/// Small allocations that last lie among many that do not: glibc's heap would take half as much memory again.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Runs unmodified Lambda functions near their data, which stays in memory.
#[derive(Parser)]
#[command(name = "nigh", version, propagate_version = true, after_help = AFTER_HELP)]
struct Cli {
    #[command(flatten)]
    globals: Globals,
    // Without one, the answer is what Nigh is and whether a node runs.
    #[command(subcommand)]
    command: Option<Command>,
}

const AFTER_HELP: &str = "\
Examples:
  nigh up                                          start a node; Ctrl-C drains and stops it
  eval \"$(nigh env)\"                               aws and boto3 find the node from now on
  nigh objects mb pictures                         make a bucket
  nigh objects cp cat.png nigh://pictures/cat.png  upload
  nigh init hello; cd hello; nigh dev              write a function, and deploy it at each save
  nigh deploy blur --folder functions/blur
  nigh invoke blur '{\"input\": {\"bucket\": \"pictures\", \"key\": \"cat.png\"}}'
  nigh activations; nigh explain ID                where the time went

Exit codes: 0 done, 1 rejected or failed (`invoke`: also if the function failed), 2 wrong usage,
3 no node is running or it is draining, 130 interrupted.
With --json, an error is a JSON object on standard error: error, code, exit.
On a terminal tables fit its width; in a pipe they have all columns.";

#[derive(Subcommand)]
enum Command {
    /// Start a node in this terminal: S3 and Lambda APIs, functions, cache
    Up(up::UpArgs),
    /// Start a node of a cluster: like `up`, but the settings cluster.* are required
    Node(up::UpArgs),
    /// Start a controller of a cluster: it has doors and dispatches invocations, and runs no functions
    Controller(up::UpArgs),
    /// Start a cluster on this machine, or show a node's cluster
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    /// Stop the running node: it finishes running invocations first
    Down(down::DownArgs),
    /// Have the running node read its settings, certificates and keys again
    Reload(reload::ReloadArgs),
    /// Say what this machine has, what each lack costs, and what mends it
    Doctor(doctor::DoctorArgs),
    /// Print the variables by which aws, boto3 and SDKs find this node
    Env(env::EnvArgs),
    /// Write a folder with a function, its description, an event and a test
    Init(init::InitArgs),
    /// Deploy a function's folder at each save, and show its logs, results and times
    Dev(dev::DevArgs),
    /// Create a function from a folder or archive, or change it
    Deploy(Box<deploy::DeployArgs>),
    /// Deploy what a template of AWS SAM or a serverless.yml describes
    Import(import::ImportArgs),
    /// Write functions as a template of AWS SAM
    #[command(subcommand)]
    Export(export::ExportCommand),
    /// Run a function and print its answer
    Invoke(invoke::InvokeArgs),
    /// List functions; show one with all that hangs on it; remove them
    #[command(subcommand)]
    Functions(functions::FunctionsCommand),
    /// Print what OpenWhisk's clients need to find this node: its address and a key
    #[command(subcommand)]
    Openwhisk(openwhisk::OpenWhiskCommand),
    /// List ended invocations, newest first
    Activations(activations::ActivationsArgs),
    /// List, retry and drop asynchronous invocations
    #[command(subcommand)]
    Events(events::EventsCommand),
    /// List, pause and remove schedules: functions that run at dates
    #[command(subcommand)]
    Schedules(schedules::SchedulesCommand),
    /// Create, start and watch state machines whose tasks are functions
    #[command(subcommand)]
    Workflow(workflow::WorkflowCommand),
    /// Print the logs of functions
    Logs(logs::LogsArgs),
    /// Show where one invocation's time went
    Explain(explain::ExplainArgs),
    /// Show the running node, and what is wrong with it
    Status(status::StatusArgs),
    /// Show the running node's memory hierarchy, functions, objects and failed events, again each second
    Top(top::TopArgs),
    /// Print the running node's metrics, as Prometheus text or JSON
    Metrics,
    /// Print or open a link to the running node's page, which signs in a browser
    Page(page::PageArgs),
    /// List, print, copy and remove objects; make and remove buckets
    #[command(subcommand)]
    Objects(objects::ObjectsCommand),
    /// Show each setting with its origin; find all faults in them
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Show, export, import and forget the memory models of functions
    #[command(subcommand)]
    Learn(learn::LearnCommand),
    /// Measure, show and allocate last-level cache ways
    #[command(subcommand)]
    Llc(llc::LlcCommand),
    /// Write the node's state, and with --objects its objects, into one archive
    Backup(backup::BackupArgs),
    /// Make a state folder from a backup
    Restore(backup::RestoreArgs),
    /// Read the journal of a stopped node
    #[command(subcommand)]
    Journal(journal::JournalCommand),
    /// Create, limit, rotate and remove access keys
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// Create, limit and remove namespaces, which are tenants
    #[command(subcommand)]
    Namespaces(namespaces::NamespacesCommand),
    /// Make a cluster's certificate authority, and certificates for its processes
    #[command(subcommand)]
    Certificates(certificates::CertificatesCommand),
    /// Print completions for a shell; they know the names of functions, buckets and ids
    Completions(completions::CompletionsArgs),
    /// Print what can complete the last of some words; the scripts of `completions` call it
    #[command(name = complete::COMMAND, hide = true, disable_help_flag = true)]
    Complete(complete::CompleteArgs),
    /// Play the load of several tenants on a node, and report latencies and failures
    #[command(disable_help_flag = true)]
    Load(lab::LabArgs),
    /// Measure Nigh and other systems on this machine
    #[command(disable_help_flag = true)]
    Bench(lab::LabArgs),
    /// Check the consistency contract in every order of events, with and without each of its rules
    #[command(disable_help_flag = true)]
    Check(lab::LabArgs),
    /// Run an experiment and print its table
    #[command(disable_help_flag = true)]
    Experiment(lab::LabArgs),
    /// Measure the memory of functions, run by run
    #[command(disable_help_flag = true)]
    Profile(lab::LabArgs),
}

impl Command {
    /// Whether nigh-lab does it, and parses the further words.
    const fn is_the_laboratorys(&self) -> bool {
        matches!(
            self,
            Self::Load(_)
                | Self::Bench(_)
                | Self::Check(_)
                | Self::Experiment(_)
                | Self::Profile(_)
                | Self::Llc(llc::LlcCommand::PackTrace(_))
        )
    }
}

fn main() -> ExitCode {
    let words = || std::env::args_os().skip(1);
    let extent = Extent::of(words());
    let mut command = help::grouped(Cli::command(), extent);
    if extent == Extent::All {
        return match command.print_help() {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let matches = command.try_get_matches_from_mut(std::env::args_os());
    let parsed =
        matches.and_then(|matches| Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command)));
    let cli = match parsed {
        Ok(cli) => cli,
        // clap gives help and the version as errors.
        Err(mut error) => {
            let typed = words().filter_map(|word| word.into_string().ok()).find(|word| !word.starts_with('-'));
            help::add_tip(&mut error, typed.as_deref());
            if error.use_stderr() && words().any(|word| word == "--json") {
                output::complain_json(&wrong_usage(&error.render().to_string()), None, USAGE);
                return ExitCode::from(USAGE);
            }
            error.exit()
        }
    };
    let is_the_laboratorys = cli.command.as_ref().is_some_and(Command::is_the_laboratorys);
    let json = cli.globals.json || is_the_laboratorys && words().any(|word| word == "--json");
    let ended = match threads(cli.command.as_ref()).enable_all().build() {
        Ok(runtime) => runtime.block_on(Box::pin(run(cli))),
        Err(error) => Err(CliError::Local { what: "starting threads".to_owned(), source: error }),
    };
    match ended {
        Ok(code) => code,
        Err(CliError::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let exit = error.exit_code();
            if json {
                output::complain_json(&error.to_string(), error.code(), exit);
            } else {
                output::complain(&error);
            }
            ExitCode::from(exit)
        }
    }
}

/// clap's message for programs: without prefix, usage and the hint at the help.
fn wrong_usage(rendered: &str) -> String {
    let paragraphs = rendered.trim_start_matches("error: ").split("\n\n").map(str::trim);
    let kept = paragraphs.filter(|part| !part.starts_with("Usage:") && !part.starts_with("For more information"));
    kept.collect::<Vec<_>>().join("; ")
}

/// The threads of `command`. A node leaves half of the cores to its sandboxes: with a thread for every core each step of
/// an invocation would wake another thread, which takes longer than the step. S3 connections have further threads.
fn threads(command: Option<&Command>) -> tokio::runtime::Builder {
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    if matches!(command, Some(Command::Up(_) | Command::Node(_) | Command::Controller(_))) {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        threads.worker_threads((cores / 2).max(1));
    }
    threads
}

async fn run(cli: Cli) -> Result<ExitCode, CliError> {
    let Cli { globals, command } = cli;
    let Some(command) = command else {
        face::run(&globals).await?;
        return Ok(ExitCode::SUCCESS);
    };
    match command {
        Command::Up(args) => return Box::pin(up::run(args, up::Needs::Nothing, &globals)).await,
        Command::Node(args) => return Box::pin(up::run(args, up::Needs::Cluster, &globals)).await,
        Command::Controller(args) => return Box::pin(up::run(args, up::Needs::Controller, &globals)).await,
        Command::Cluster(command) => return Box::pin(cluster::run(command, &globals)).await,
        Command::Invoke(args) => return invoke::run(args, &globals).await,
        Command::Llc(command) => return llc::run(command, &globals).await,
        Command::Workflow(command) => return Box::pin(workflow::run(command, &globals)).await,
        Command::Journal(command) => return journal::run(&command, &globals),
        Command::Doctor(args) => return Box::pin(doctor::run(&args, &globals)).await,
        Command::Config(command) => return config::run(command, &globals).await,
        Command::Down(args) => down::run(&args, &globals).await?,
        Command::Reload(_) => reload::run(&globals).await?,
        Command::Env(args) => env::run(&args, &globals).await?,
        Command::Init(args) => init::run(&args, &globals)?,
        Command::Dev(args) => return Box::pin(dev::run(args, &globals)).await,
        Command::Deploy(args) => Box::pin(deploy::run(*args, &globals)).await?,
        Command::Import(args) => Box::pin(import::run(args, &globals)).await?,
        Command::Export(command) => Box::pin(export::run(command, &globals)).await?,
        Command::Functions(command) => Box::pin(functions::run(command, &globals)).await?,
        Command::Openwhisk(command) => openwhisk::run(command, &globals).await?,
        Command::Activations(args) => activations::run(args, &globals).await?,
        Command::Events(command) => events::run(command, &globals).await?,
        Command::Schedules(command) => schedules::run(command, &globals).await?,
        Command::Logs(args) => logs::run(args, &globals).await?,
        Command::Explain(args) => explain::run(args, &globals).await?,
        Command::Status(args) => status::run(&args, &globals).await?,
        Command::Top(args) => Box::pin(top::run(&args, &globals)).await?,
        Command::Metrics => metrics::run(&globals).await?,
        Command::Page(args) => page::run(&args, &globals).await?,
        Command::Objects(command) => objects::run(command, &globals).await?,
        Command::Learn(command) => learn::run(command, &globals).await?,
        Command::Keys(command) => keys::run(command, &globals).await?,
        Command::Namespaces(command) => namespaces::run(command, &globals).await?,
        Command::Backup(args) => backup::backup(args, &globals).await?,
        Command::Restore(args) => backup::run_restore(args, &globals)?,
        Command::Certificates(command) => certificates::run(&command, &globals)?,
        Command::Completions(args) => completions::run::<Cli>(&args)?,
        Command::Complete(args) => complete::run(&Cli::command(), &args, &globals).await?,
        Command::Load(args) if !args.ask_for_help() => return Err(lab::load(&args.globals()?).await?),
        Command::Load(_) | Command::Bench(_) | Command::Check(_) | Command::Experiment(_) | Command::Profile(_) => {
            return Err(lab::run());
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_usage_is_told_to_a_program_without_the_help() {
        let error = Cli::try_parse_from(["nigh", "stauts"]).err().unwrap();
        let told = wrong_usage(&error.render().to_string());
        assert!(told.starts_with("unrecognized subcommand 'stauts'") && told.contains("status"), "{told}");
        assert!(!told.contains("Usage") && !told.contains("--help"), "{told}");
    }

    #[test]
    fn the_command_line_is_consistent_and_explains_itself() {
        let command = Cli::command();
        command.clone().debug_assert();
        let help = help::grouped_in(command, Extent::First, 100).render_long_help().to_string();
        for word in ["Examples:", "Exit codes:", "deploy", "explain"] {
            assert!(help.contains(word), "{word}");
        }
    }

    #[test]
    fn a_command_line_without_a_command_is_asked_what_nigh_is() {
        let cli = Cli::try_parse_from(["nigh", "--state", "/s"]).unwrap();
        assert!(cli.command.is_none() && cli.globals.state.is_some());
    }
}
