//! `nigh llc profile`: how many cache ways a function needs, measured with ever fewer.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use nigh_llc::{InputOutcome, SearchForm};
use nigh_node::profiling::{ProfileReport, ProfileRequest, ProfiledInput};
use nigh_terms::{ByteSize, FunctionName};

use crate::context::Globals;
use crate::error::CliError;
use crate::output;

/// Options of `nigh llc profile`.
#[derive(Args)]
#[command(after_help = "Example:\n  nigh llc profile blur --events events.jsonl\n\n\
Each event names the objects it is about, as in an invocation; give some of different sizes. The runs read those\n\
objects and write into a scratch store. The cache must be idle; invocations meanwhile run in the default class.")]
pub(crate) struct ProfileArgs {
    /// The function
    function: FunctionName,
    /// An event to run it with; more than one may be given
    #[arg(long = "event", value_name = "JSON")]
    events: Vec<String>,
    /// A file of events, one JSON a line
    #[arg(long = "events", value_name = "FILE")]
    file: Option<PathBuf>,
    /// How the way counts are gone through
    #[arg(long, value_enum, default_value_t = Form::Bisection)]
    form: Form,
    /// Run it though its owner says that it is not idempotent (NIGH_IDEMPOTENT=false)
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// The whole cache, the fewest ways, then halves
    Bisection,
    /// CASY's algorithm 1, its errors mended: one way fewer each time
    Linear,
    /// CASY's algorithm 1 as printed
    Literal,
}

/// Profiles.
pub(super) async fn run(args: ProfileArgs, globals: &Globals) -> Result<(), CliError> {
    let mut texts = args.events;
    if let Some(path) = &args.file {
        let text = std::fs::read_to_string(path)
            .map_err(|source| CliError::Local { what: path.display().to_string(), source })?;
        texts.extend(text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned));
    }
    if texts.is_empty() {
        return Err(CliError::Usage("no event to run the function with: give --event or --events".to_owned()));
    }
    let parse = |text: &String| {
        serde_json::from_str(text).map_err(|error| CliError::Usage(format!("the event {text:?} is no JSON: {error}")))
    };
    let request = ProfileRequest {
        namespace: globals.namespace().await?,
        function: args.function,
        events: texts.iter().map(parse).collect::<Result<_, _>>()?,
        form: match args.form {
            Form::Bisection => SearchForm::Bisection,
            Form::Linear => SearchForm::Linear,
            Form::Literal => SearchForm::Literal,
        },
        force: args.force,
    };
    let mut reports = globals.admin()?.give_for_lines("/llc/profile", &request).await?;
    while let Some(report) = reports.next::<ProfileReport>().await? {
        if let Some(error) = report.error {
            return Err(CliError::Failed(error));
        }
        if report.done {
            return if globals.json { output::json(&report) } else { show(&report) };
        }
        output::remark(format!("run {}, {:.1} s", report.runs, report.seconds));
    }
    Err(CliError::Failed("the node ended before the profile did; profile again to go on where it was".to_owned()))
}

fn show(report: &ProfileReport) -> Result<(), CliError> {
    let mut table = output::table(&["input", "size", "ways", "outcome"]);
    for input in &report.inputs {
        let ways = match &input.outcome {
            Some(InputOutcome::Found { found, .. }) => found.ways.to_string(),
            _ => String::new(),
        };
        table.add_row([input.name.clone(), ByteSize(input.bytes).to_string(), ways, outcome(input)]);
    }
    output::print_table(&table)?;
    output::line(format!("{} timed runs, {:.1} s without their data calls", report.runs, report.seconds))
}

fn outcome(input: &ProfiledInput) -> String {
    match &input.outcome {
        Some(InputOutcome::Found { found, error }) => {
            let sensitivity = found
                .sensitivity
                .map_or_else(String::new, |sensitivity| format!(", {:+.1} % at the fewest ways", sensitivity * 100.0));
            format!("found within {:.1} %{sensitivity}", error * 100.0)
        }
        Some(InputOutcome::Unstable { ways, spread }) => {
            format!("unstable: its times spread by {:.0} % with {ways} ways", spread * 100.0)
        }
        Some(InputOutcome::Failed { failures, reason }) => format!("failed {failures} times: {reason}"),
        Some(InputOutcome::NeverEnds { ways, after }) => format!("did not end in {after:?} with {ways} ways"),
        Some(InputOutcome::NotReached) | None => "not reached".to_owned(),
    }
}
