//! `nigh deploy`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use nigh_node::client::{CodeUpload, FunctionChange};
use nigh_node::config::Span;
use nigh_terms::{ByteSize, FunctionName};
use serde_json::Value;

use crate::archive;
use crate::context::Globals;
use crate::error::CliError;
use crate::output;

/// Options of `nigh deploy`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  nigh deploy blur --folder functions/blur --handler app.handler --runtime python3.11 --memory 512MiB --timeout 30s
  nigh deploy tool --zip tool.zip --runtime provided --env LEVEL=2 --env MODE=fast

A folder is packed without .git, __pycache__ and the like. For `provided`, the archive's `bootstrap` is run.
If the function exists its code is replaced, and those of its settings that are given.")]
pub(crate) struct DeployArgs {
    /// The function's name
    name: FunctionName,
    /// The folder of its code
    #[arg(long, conflicts_with = "zip", required_unless_present = "zip")]
    folder: Option<PathBuf>,
    /// The archive of its code
    #[arg(long)]
    zip: Option<PathBuf>,
    /// What the runtime calls: module.function for Python [default for a new `provided` function: bootstrap]
    #[arg(long)]
    handler: Option<String>,
    /// python3.x, or provided
    #[arg(long)]
    runtime: Option<String>,
    /// Its memory, for example 512MiB
    #[arg(long, value_name = "SIZE")]
    memory: Option<ByteSize>,
    /// How long one invocation may run, for example 30s
    #[arg(long, value_name = "TIME")]
    timeout: Option<Span>,
    /// The size of its /tmp, for example 1GiB
    #[arg(long, value_name = "SIZE")]
    tmp: Option<ByteSize>,
    /// A variable of its environment; may be given often, and replaces all there were
    #[arg(long = "env", value_name = "NAME=VALUE")]
    environment: Vec<String>,
    /// What it is for
    #[arg(long)]
    description: Option<String>,
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
                Err(CliError::Usage("--timeout: whole seconds, please".to_owned()))
            }
        });
        Ok(FunctionChange {
            runtime: self.runtime.clone(),
            handler,
            memory_mib: self.memory.map(ByteSize::mib_ceil),
            timeout_s: timeout_s.transpose()?,
            ephemeral_mib: self.tmp.map(ByteSize::mib_ceil),
            environment: environment(&self.environment)?,
            description: self.description.clone(),
        })
    }

    fn code(&self) -> Result<CodeUpload, CliError> {
        match (&self.folder, &self.zip) {
            (Some(folder), _) => archive::pack(folder).map(CodeUpload).map_err(|e| CliError::Usage(e.to_string())),
            (None, Some(zip)) => std::fs::read(zip).map(CodeUpload).map_err(CliError::local(zip.display())),
            (None, None) => Err(CliError::Usage("name the code with --folder or --zip".to_owned())),
        }
    }
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

/// Deploys.
pub(crate) async fn run(args: DeployArgs, globals: &Globals) -> Result<(), CliError> {
    let (change, lambda) = (args.change()?, globals.lambda()?);
    let (function, is_new) = lambda.deploy(&args.name, &change, args.code()?).await?;
    if globals.json {
        return output::json(&function);
    }
    let text = |field: &str| function.get(field).and_then(Value::as_str).unwrap_or("?").to_owned();
    let number = |field: &str| function.get(field).and_then(Value::as_u64).unwrap_or_default();
    output::line(format_args!(
        "{} {}: {}, handler {}, {} of memory, {} s, {} of code",
        if is_new { "deployed" } else { "updated" },
        args.name,
        text("Runtime"),
        text("Handler"),
        ByteSize::mib(number("MemorySize")),
        number("Timeout"),
        ByteSize(number("CodeSize")),
    ))
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
    fn a_provided_function_needs_no_handler_and_a_bad_variable_is_refused() {
        assert_eq!(change(&["--runtime", "provided.al2023"]).unwrap().handler.as_deref(), Some("bootstrap"));
        assert!(change(&["--env", "=x"]).is_err());
        assert!(change(&["--timeout", "1500 ms"]).is_err());
        assert!(Deploy::try_parse_from(["deploy", "f"]).is_err());
        assert!(Deploy::try_parse_from(["deploy", "../f", "--folder", "."]).is_err());
    }
}
