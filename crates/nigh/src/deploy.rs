//! `nigh deploy`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use clap::Args;
use nigh_node::client::{
    ClientError, CodeUpload, FunctionChange, IDEMPOTENT_VARIABLE, NETWORK_VARIABLE, NONE, OUTBOUND, S3Client,
};
use nigh_node::config::Span;
use nigh_terms::{BucketName, ByteSize, FunctionName, ParseByteSizeError};
use serde_json::Value;

use crate::archive;
use crate::context::Globals;
use crate::error::CliError;
use crate::output;
use crate::schedules::ScheduleArgs;

/// Options of `nigh deploy`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  nigh deploy blur --folder functions/blur --handler app.handler --runtime python3.11 --memory 512MiB --timeout 30s
  nigh deploy tool --zip tool.zip --runtime provided --env LEVEL=2 --env MODE=fast
  nigh deploy blur --timeout 2min                 an existing function: only this setting changes
  nigh deploy blur --trigger pictures/in/ --reserved 4 --url iam
  nigh deploy report --cron '0 9 ? * MON-FRI *' --timezone Europe/Berlin
  nigh deploy fetch --network outbound            where the node permits it (functions.network)

A folder is packed without .git, __pycache__ and the like. For `provided`, the archive's `bootstrap` is run.
If the function exists, what is given is replaced: its code, its settings, or both.
Triggers are checked first: if a bucket is missing or would refuse one, nothing is deployed.")]
pub(crate) struct DeployArgs {
    /// The function's name
    name: FunctionName,
    /// The folder with the function's code
    #[arg(long, conflicts_with = "zip")]
    folder: Option<PathBuf>,
    /// The zip archive with the function's code
    #[arg(long)]
    zip: Option<PathBuf>,
    /// What the runtime calls: module.function for Python [default for a new `provided` function: bootstrap]
    #[arg(long)]
    handler: Option<String>,
    /// The runtime: python3.x, or provided
    #[arg(long)]
    runtime: Option<String>,
    /// The function's booking: the memory that it may use, for example 512MiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<ByteSize>,
    /// How long one invocation may run, for example 30s
    #[arg(long, value_name = "TIME")]
    timeout: Option<Span>,
    /// The size of the function's /tmp, for example 1GiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    tmp: Option<ByteSize>,
    /// An environment variable of the function; may be repeated; replaces all variables that it had
    #[arg(long = "env", value_name = "NAME=VALUE")]
    environment: Vec<String>,
    /// Whether the function may connect to other machines (sets NIGH_NETWORK and keeps the other variables)
    #[arg(long, value_name = "outbound|none", value_parser = [OUTBOUND, NONE])]
    network: Option<String>,
    /// Whether the function may run twice for one invocation; if so, Nigh runs it again after a crash (sets
    /// NIGH_IDEMPOTENT and keeps the other variables)
    #[arg(long, value_name = "true|false", action = clap::ArgAction::Set)]
    idempotent: Option<bool>,
    /// A description for people to read
    #[arg(long)]
    description: Option<String>,
    /// The ARN of a layer version; may be repeated, in order; replaces all layers that the function had
    #[arg(long = "layer", value_name = "ARN")]
    layers: Vec<String>,
    /// The function's reserved concurrency: how many of its invocations may run at once; `none` removes the reservation
    #[arg(long, value_name = "COUNT|none", value_parser = reserve)]
    reserved: Option<Reserve>,
    /// Give the function a URL: for callers who sign with a key of its namespace (iam), or for anybody (public)
    #[arg(long, value_name = "iam|public", value_parser = ["iam", "public"])]
    url: Option<String>,
    /// Invoke the function for each new object of BUCKET whose key begins with PREFIX; may be repeated
    #[arg(long = "trigger", value_name = "BUCKET[/PREFIX]", value_parser = trigger)]
    triggers: Vec<Trigger>,
    #[command(flatten)]
    schedule: ScheduleArgs,
}

/// The reserved concurrency of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reserve(Option<u64>);

fn reserve(text: &str) -> Result<Reserve, String> {
    match text {
        "none" => Ok(Reserve(None)),
        count => count.parse().map(|count| Reserve(Some(count))).map_err(|_| "write a number, or none".to_owned()),
    }
}

/// The objects that trigger a function.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Trigger {
    bucket: BucketName,
    prefix: String,
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.bucket, self.prefix)
    }
}

fn trigger(text: &str) -> Result<Trigger, String> {
    let (bucket, prefix) = text.split_once('/').unwrap_or((text, ""));
    let bucket = BucketName::new(bucket).map_err(|error| error.to_string())?;
    Ok(Trigger { bucket, prefix: prefix.to_owned() })
}

impl DeployArgs {
    fn change(&self) -> Result<FunctionChange, CliError> {
        let provided = self.runtime.as_deref().is_some_and(|runtime| runtime.starts_with("provided"));
        let handler = self.handler.clone().or_else(|| provided.then(|| "bootstrap".to_owned()));
        let timeout_s = self.timeout.map(|timeout| {
            let timeout = timeout.duration();
            if timeout.subsec_nanos() == 0 {
                Ok(timeout.as_secs())
            } else {
                Err(CliError::Usage("--timeout: give whole seconds, for example 30s".to_owned()))
            }
        });
        let network = self.network.iter().map(|word| (NETWORK_VARIABLE.to_owned(), word.clone()));
        let idempotent = self.idempotent.iter().map(|word| (IDEMPOTENT_VARIABLE.to_owned(), word.to_string()));
        Ok(FunctionChange {
            runtime: self.runtime.clone(),
            handler,
            memory_mib: self.memory.map(ByteSize::mib_ceil),
            timeout_s: timeout_s.transpose()?,
            ephemeral_mib: self.tmp.map(ByteSize::mib_ceil),
            environment: environment(&self.environment)?,
            variables: network.chain(idempotent).collect(),
            description: self.description.clone(),
            layers: (!self.layers.is_empty()).then(|| self.layers.clone()),
        })
    }

    fn code(&self) -> Result<Option<CodeUpload>, CliError> {
        let code = match (&self.folder, &self.zip) {
            (Some(folder), _) => archive::pack(folder).map_err(|e| CliError::Usage(e.to_string()))?,
            (None, Some(zip)) => std::fs::read(zip).map_err(CliError::local(zip.display()))?,
            (None, None) => return Ok(None),
        };
        Ok(Some(CodeUpload(code)))
    }
}

/// A size with its unit: a bare number could mean bytes, or MiB as in Lambda.
fn size(text: &str) -> Result<ByteSize, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("{text} has no unit; write {text}MiB or {text}GiB"));
    }
    text.parse().map_err(|error: ParseByteSizeError| error.to_string())
}

fn environment(given: &[String]) -> Result<Option<BTreeMap<String, String>>, CliError> {
    if given.is_empty() {
        return Ok(None);
    }
    let pairs = given.iter().map(|text| match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(CliError::Usage(format!("--env {text}: write NAME=VALUE"))),
    });
    pairs.collect::<Result<_, _>>().map(Some)
}

/// Checks, before anything is deployed, that each trigger's bucket exists and would accept it.
async fn check_triggers(s3: &S3Client, name: &FunctionName, triggers: &[Trigger]) -> Result<(), CliError> {
    let mut by_bucket: BTreeMap<&BucketName, Vec<String>> = BTreeMap::new();
    for Trigger { bucket, prefix } in triggers {
        by_bucket.entry(bucket).or_default().push(prefix.clone());
    }
    for (bucket, prefixes) in by_bucket {
        match s3.check_notify(bucket, name.as_str(), &prefixes).await {
            Err(error @ ClientError::Refused { .. }) => {
                let refused = format!("nothing is deployed: a trigger of {name} on {bucket} is refused: {error}");
                return Err(CliError::Failed(refused));
            }
            checked => checked?,
        }
    }
    Ok(())
}

/// The error of a step after the function was changed: it says what is done.
fn after(done: Option<&str>, name: &FunctionName, step: &str, error: ClientError) -> CliError {
    match done {
        Some(done) => CliError::Failed(format!("{done} {name}, but {step} failed: {error}")),
        None => error.into(),
    }
}

/// Deploys.
pub(crate) async fn run(args: DeployArgs, globals: &Globals) -> Result<(), CliError> {
    let (change, code) = (args.change()?, args.code()?);
    let attaches =
        args.reserved.is_some() || args.url.is_some() || !args.triggers.is_empty() || !args.schedule.is_empty();
    if code.is_none() && change.is_empty() && !attaches {
        let nothing = "nothing to deploy: name the code with --folder or --zip, or a setting to change";
        return Err(CliError::Usage(nothing.to_owned()));
    }
    let s3 = if args.triggers.is_empty() { None } else { Some(globals.s3().await?) };
    if let Some(s3) = &s3 {
        check_triggers(s3, &args.name, &args.triggers).await?;
    }
    let is_without_code = code.is_none();
    let is_changed = !is_without_code || !change.is_empty();
    let lambda = globals.lambda().await?;
    let (mut function, is_new) = lambda.deploy(&args.name, &change, code).await.map_err(|error| {
        if is_without_code && error.is_not_found() {
            let name = &args.name;
            CliError::Usage(format!("there is no function {name}; to create it, name its code with --folder or --zip"))
        } else {
            error.into()
        }
    })?;
    let done = if is_new { "deployed" } else { "updated" };
    let failed = |step: &str, error| after(is_changed.then_some(done), &args.name, step, error);
    if let Some(Reserve(count)) = args.reserved {
        lambda.reserve(&args.name, count).await.map_err(|error| failed("--reserved", error))?;
    }
    if let Some(auth) = &args.url {
        let auth = if auth == "public" { "NONE" } else { "AWS_IAM" };
        let url = lambda.give_url(&args.name, auth).await.map_err(|error| failed("--url", error))?;
        function["FunctionUrl"] = url.into();
    }
    if let Some(s3) = &s3 {
        let arn = function.get("FunctionArn").and_then(Value::as_str).unwrap_or_default();
        for trigger in &args.triggers {
            let notified = s3.notify(&trigger.bucket, args.name.as_str(), arn, &trigger.prefix).await;
            notified.map_err(|error| failed(&format!("--trigger {trigger}"), error))?;
        }
    }
    let arn = function.get("FunctionArn").and_then(Value::as_str).unwrap_or_default();
    let scheduled = args.schedule.apply(&args.name, arn, is_changed.then_some(done), globals).await?;
    if let Some(words) = scheduled {
        function["Schedule"] = words.into();
    }
    if globals.json {
        return output::json(&function);
    }
    if let Some(url) = function.get("FunctionUrl").and_then(Value::as_str) {
        output::line(url)?;
    }
    let text = |field: &str| function.get(field).and_then(Value::as_str).unwrap_or("?").to_owned();
    let number = |field: &str| function.get(field).and_then(Value::as_u64).unwrap_or_default();
    output::line(format_args!(
        "{} {}: {}, handler {}, {} of memory, {} s, {} of code",
        done,
        args.name,
        text("Runtime"),
        text("Handler"),
        ByteSize::mib(number("MemorySize")),
        number("Timeout"),
        ByteSize(number("CodeSize")),
    ))?;
    match function.get("Schedule").and_then(Value::as_str) {
        Some(words) => output::line(format_args!("schedule: {words}; `nigh schedules ls` shows when it runs")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Deploy {
        #[command(flatten)]
        args: DeployArgs,
    }

    fn change(words: &[&str]) -> Result<FunctionChange, CliError> {
        Deploy::parse_from([&["deploy", "f", "--folder", "."], words].concat()).args.change()
    }

    #[test]
    fn sizes_and_times_become_lambdas_units() {
        let change = change(&["--memory", "512MiB", "--timeout", "2 min", "--tmp", "1 GiB", "--env", "A=b=c"]).unwrap();
        assert_eq!((change.memory_mib, change.timeout_s, change.ephemeral_mib), (Some(512), Some(120), Some(1024)));
        assert_eq!(change.environment.unwrap()["A"], "b=c");
        assert_eq!(change.runtime, None);
    }

    #[test]
    fn a_size_without_a_unit_is_refused_with_the_way_to_write_it() {
        for flag in ["--memory", "--tmp"] {
            let refused = Deploy::try_parse_from(["deploy", "f", flag, "512"]).err().unwrap().to_string();
            assert!(refused.contains("write 512MiB"), "{refused}");
        }
        assert_eq!(size("512 MiB"), Ok(ByteSize::mib(512)));
        assert!(size("").is_err());
    }

    #[test]
    fn a_network_is_asked_for_by_its_variable_alone() {
        let change = change(&["--network", "outbound"]).unwrap();
        assert_eq!(change.variables, [(NETWORK_VARIABLE.to_owned(), "outbound".to_owned())].into());
        assert_eq!(change.environment, None);
        assert!(Deploy::try_parse_from(["deploy", "f", "--network", "all"]).is_err());
    }

    #[test]
    fn a_function_is_said_to_be_idempotent_or_not() {
        for word in ["true", "false"] {
            let change = change(&["--idempotent", word]).unwrap();
            assert_eq!(change.variables, [(IDEMPOTENT_VARIABLE.to_owned(), word.to_owned())].into());
        }
        assert!(Deploy::try_parse_from(["deploy", "f", "--idempotent", "perhaps"]).is_err());
    }

    #[test]
    fn triggers_and_reserves_are_read_as_they_are_written() {
        assert_eq!(trigger("pictures/in/a").unwrap().prefix, "in/a");
        assert_eq!(trigger("pictures").unwrap().prefix, "");
        assert!(trigger("No").is_err() && trigger("/in").is_err());
        assert_eq!((reserve("none"), reserve("7")), (Ok(Reserve(None)), Ok(Reserve(Some(7)))));
        assert!(reserve("-1").is_err());
    }

    #[test]
    fn a_provided_function_needs_no_handler_and_a_bad_variable_is_refused() {
        assert_eq!(change(&["--runtime", "provided.al2023"]).unwrap().handler.as_deref(), Some("bootstrap"));
        assert!(change(&["--env", "=x"]).is_err());
        assert!(change(&["--timeout", "1500 ms"]).is_err());
        assert!(Deploy::parse_from(["deploy", "f"]).args.change().unwrap().is_empty());
        assert!(Deploy::try_parse_from(["deploy", "../f", "--folder", "."]).is_err());
    }
}
