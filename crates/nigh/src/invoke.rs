//! `nigh invoke`.

mod watch;

use std::io::{IsTerminal, Read, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bytes::Bytes;
use clap::Args;
use nigh_node::Activation;
use nigh_terms::FunctionName;
use serde_json::{Value, json};

use crate::context::Globals;
use crate::error::CliError;
use crate::failure;
use crate::output;
use crate::printable;

/// Lambda's limit of an input: 6 MiB.
const PAYLOAD_MAX: u64 = 6 << 20;

/// Options of `nigh invoke`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  nigh invoke blur '{\"input\": {\"bucket\": \"pictures\", \"key\": \"cat.png\"}}'
  nigh invoke blur -f event.json --log
  nigh invoke blur -f event.json --watch          again whenever event.json or the function changes
  generate-event | nigh invoke blur -
  nigh invoke blur -f event.json --event          prints the request id at once

The answer goes to standard output, the log and the invocation's id to standard error.
If the function failed, standard error has the error with its place, the frames of the function's own code, and what to
do; on a terminal this stands in place of the answer. The exit code is 1 then.")]
pub(crate) struct InvokeArgs {
    /// The function's name
    name: FunctionName,
    /// The function's input as JSON: the text itself, @FILE, or - for standard input
    #[arg(default_value = "{}")]
    payload: String,
    /// Read the function's input from this file
    #[arg(long, short, value_name = "FILE", conflicts_with = "payload")]
    file: Option<PathBuf>,
    /// Also print the end of the invocation's log
    #[arg(long, conflicts_with = "event")]
    log: bool,
    /// Invoke again whenever the input's file or the function changes, until Ctrl-C
    #[arg(long, conflicts_with = "event")]
    watch: bool,
    /// If the function fails: print its whole stack trace and log
    #[arg(long, short, conflicts_with = "event")]
    verbose: bool,
    /// Invoke asynchronously: the function runs at least once, and `nigh events` lists failures
    #[arg(long)]
    event: bool,
}

impl InvokeArgs {
    /// The file that holds the input.
    fn input_file(&self) -> Option<&Path> {
        self.file.as_deref().or_else(|| self.payload.strip_prefix('@').map(Path::new))
    }

    fn input(&self) -> Result<Bytes, CliError> {
        match &self.file {
            Some(file) => payload(&format!("@{}", file.display())),
            None => payload(&self.payload),
        }
    }
}

/// Invokes.
pub(crate) async fn run(args: InvokeArgs, globals: &Globals) -> Result<ExitCode, CliError> {
    if args.watch {
        return Box::pin(watch::watch(&args, globals)).await;
    }
    if args.event {
        let asked = globals.lambda().await?.invoke_later(&args.name, args.input()?).await;
        let id = asked.map_err(CliError::of_function(&args.name))?;
        return if globals.json { output::json(&json!({ "id": id })) } else { output::line(id) }
            .map(|()| ExitCode::SUCCESS);
    }
    let answered = invoke(&args, globals).await?;
    Ok(if answered { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Invokes once and prints the result. False if the function failed.
async fn invoke(args: &InvokeArgs, globals: &Globals) -> Result<bool, CliError> {
    let input = args.input()?;
    let reply = globals.lambda().await?.invoke(&args.name, input, args.log || !globals.json).await;
    let reply = reply.map_err(CliError::of_function(&args.name))?;
    let log = reply.log_tail.as_deref().map(String::from_utf8_lossy);
    if globals.json {
        // An answer that is not JSON is printed as text.
        let answer = serde_json::from_slice(&reply.payload)
            .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&reply.payload)));
        output::json(&json!({
            "id": reply.id, "payload": answer, "function_error": reply.function_error, "log": log,
        }))?;
        return Ok(reply.function_error.is_none());
    }
    let log = log.unwrap_or_default();
    if args.log {
        print_log(&log);
    }
    if reply.function_error.is_none() {
        print_answer(&reply.payload)?;
        output::remark(format_args!("nigh: invocation {}", reply.id));
        return Ok(true);
    }
    if !stdout().is_terminal() {
        print_answer(&reply.payload)?;
    }
    let error: Value = serde_json::from_slice(&reply.payload).unwrap_or_default();
    // Of what is printed already, nothing is repeated.
    let log = if args.log { "" } else { &*log };
    let width = failure::width();
    failure::print(&match record(&reply.id, globals).await {
        Some(record) => {
            let log = if args.verbose && !args.log { record.log.as_str() } else { log };
            failure::shown(&record, &error, log, width, args.verbose)
        }
        None => failure::shown_without_record(&error, log, width, args.verbose),
    });
    let (id, name) = (&reply.id, &args.name);
    output::remark(format_args!("nigh: more: --verbose, `nigh logs {name} --id {id}`, `nigh explain {id}`"));
    Ok(false)
}

/// The record of an invocation; none if the node's admin API is out of reach: then less is told.
async fn record(id: &str, globals: &Globals) -> Option<Activation> {
    if globals.endpoint.is_some() {
        return None;
    }
    globals.admin().ok()?.get(&format!("/activations/{id}")).await.ok()
}

/// Prints the log; on a terminal control characters are written out.
fn print_log(log: &str) {
    if !stderr().is_terminal() {
        return output::remark(log.trim_end());
    }
    for line in printable::lines(log.trim_end()) {
        output::remark(printable::shown(&stderr(), line));
    }
}

fn print_answer(answer: &[u8]) -> Result<(), CliError> {
    if stdout().is_terminal() {
        return String::from_utf8_lossy(answer)
            .lines()
            .try_for_each(|line| output::line(printable::shown(&stdout(), line)));
    }
    output::bytes(answer)?;
    if answer.ends_with(b"\n") { Ok(()) } else { output::bytes(b"\n") }
}

pub(crate) fn payload(given: &str) -> Result<Bytes, CliError> {
    let (what, text) = match given {
        "-" => ("standard input".to_owned(), read_all(std::io::stdin().lock(), "standard input")?),
        given => match given.strip_prefix('@') {
            Some(path) => {
                let file = std::fs::File::open(path).map_err(CliError::local(path))?;
                (path.to_owned(), read_all(file, path)?)
            }
            None => ("the payload".to_owned(), given.as_bytes().to_vec()),
        },
    };
    if text.len() as u64 > PAYLOAD_MAX {
        return Err(CliError::Usage(format!("{what} is larger than 6 MiB; pass large data as objects")));
    }
    serde_json::from_slice::<serde::de::IgnoredAny>(&text)
        .map_err(|error| CliError::Usage(format!("{what} is not JSON: {error}")))?;
    Ok(text.into())
}

pub(crate) fn read_all(from: impl Read, what: &str) -> Result<Vec<u8>, CliError> {
    let mut text = Vec::new();
    from.take(PAYLOAD_MAX + 1).read_to_end(&mut text).map_err(CliError::local(what))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_text_or_a_file_and_always_json() {
        assert_eq!(payload("[1]").unwrap(), "[1]");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("event.json");
        std::fs::write(&file, "{\"a\": 1}").unwrap();
        assert_eq!(payload(&format!("@{}", file.display())).unwrap(), "{\"a\": 1}");
        assert!(payload("not json").unwrap_err().to_string().contains("not JSON"));
        assert!(payload("@/nowhere").is_err());
    }
}
