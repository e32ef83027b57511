//! `nigh llc profile`: measures a function with fewer and fewer cache ways, and says when the profile has paid off.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use nigh_llc::{InputOutcome, SampleKind, SearchForm};
use nigh_node::profiling::{ProfileReport, ProfileRequest, ProfiledInput};
use nigh_terms::{BucketName, ByteSize, FunctionName};
use serde_json::Value;

use super::sample_objects::{SampleObjects, TEMPLATE};
use crate::context::Globals;
use crate::error::CliError;
use crate::output;

/// Options of `nigh llc profile`.
#[derive(Args)]
#[command(after_help = "Examples:\n  nigh llc profile blur --events events.jsonl\n  \
nigh llc profile blur --generate png --sizes 100KiB,700KiB,2MiB \\\n    \
--event '{\"input\": {\"bucket\": \"{bucket}\", \"key\": \"{key}\"}}'\n\n\
Each event names the objects it is about, as in an invocation; give some of different sizes. The runs read those\n\
objects and write into a scratch store. The cache must be idle; invocations meanwhile run in the default class.")]
pub(crate) struct ProfileArgs {
    /// The function
    function: FunctionName,
    /// An event to run the function with; may be repeated
    #[arg(long = "event", value_name = "JSON")]
    events: Vec<String>,
    /// A file with one event as JSON per line
    #[arg(long = "events", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Generate inputs: png, wav, text or bytes; --event is then a template with {bucket} and {key}
    #[arg(long, value_name = "KIND", requires = "sizes", conflicts_with = "file")]
    generate: Option<SampleKind>,
    /// The sizes of generated inputs, for example 100KiB,1MiB
    #[arg(long, value_name = "SIZES", value_delimiter = ',', requires = "generate")]
    sizes: Vec<ByteSize>,
    /// The bucket for generated inputs, if the function reads only that one [default: a new bucket]
    #[arg(long, value_name = "NAME", requires = "generate")]
    bucket: Option<BucketName>,
    /// Which numbers of ways to try
    #[arg(long, value_enum, default_value_t = Form::Bisection)]
    form: Form,
    /// Run the function even if its owner says that it is not idempotent (NIGH_IDEMPOTENT=false), or says nothing and the
    /// function has an outbound network
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// The whole cache, the fewest ways, then halves
    Bisection,
    /// CASY's algorithm 1 with its errors corrected: one way fewer each time
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
    if texts.is_empty() && args.generate.is_some() {
        texts.push(TEMPLATE.to_owned());
    }
    if texts.is_empty() {
        return Err(CliError::Usage(
            "no event to run the function with: give --event, --events or --generate".to_owned(),
        ));
    }
    let parse = |text: &String| {
        serde_json::from_str(text).map_err(|error| CliError::Usage(format!("the event {text:?} is not JSON: {error}")))
    };
    let mut request = ProfileRequest {
        namespace: globals.namespace().await?,
        function: args.function,
        events: texts.iter().map(parse).collect::<Result<Vec<Value>, _>>()?,
        form: match args.form {
            Form::Bisection => SearchForm::Bisection,
            Form::Linear => SearchForm::Linear,
            Form::Literal => SearchForm::Literal,
        },
        force: args.force,
    };
    let Some(kind) = args.generate else { return profile(&request, globals).await };
    let objects = SampleObjects::put(globals.s3().await?, args.bucket, kind, &args.sizes).await?;
    let profiled = async {
        request.events = objects.events(&request.events)?;
        profile(&request, globals).await
    };
    let ended = tokio::select! {
        ended = profiled => ended,
        _ = tokio::signal::ctrl_c() => Err(CliError::Failed("interrupted; the generated inputs are removed".to_owned())),
    };
    ended.and(objects.remove().await)
}

async fn profile(request: &ProfileRequest, globals: &Globals) -> Result<(), CliError> {
    let mut reports = globals.admin()?.give_for_lines("/llc/profile", request).await?;
    while let Some(report) = reports.next::<ProfileReport>().await? {
        if let Some(error) = report.error {
            return Err(CliError::Failed(error));
        }
        if report.done {
            return if globals.json { output::json(&report) } else { show(&report) };
        }
        output::remark(format!("run {}, {:.1} s", report.runs, report.seconds));
    }
    Err(CliError::Failed("the node ended before the profile; run the command again to continue it".to_owned()))
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
    output::line(format!("{} timed runs, {:.1} s without data calls", report.runs, report.seconds))?;
    output::line(format!(
        "it has paid for itself {}: an invocation saves {:.2} ms at most, beside neighbours that take the cache",
        report.break_even,
        report.saved_seconds * 1e3
    ))
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
            format!("unstable: times differ by {:.0} % with {ways} ways", spread * 100.0)
        }
        Some(InputOutcome::Failed { failures, reason }) => format!("failed {failures} times: {reason}"),
        Some(InputOutcome::NeverEnds { ways, after }) => format!("did not end within {after:?} with {ways} ways"),
        Some(InputOutcome::NotReached) | None => "not reached".to_owned(),
    }
}
