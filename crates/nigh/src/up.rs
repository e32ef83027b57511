//! `nigh up`, `nigh node` and `nigh controller`: run a node in the foreground until a signal or `nigh down`.

use std::process::ExitCode;

use clap::Args;
use nigh_node::config::{Flag, LogFormat, LogSettings};
use nigh_node::credentials::Credentials;
use nigh_node::endpoints::Endpoints;
use nigh_node::node::Node;
use serde_json::json;
use tracing_subscriber::EnvFilter;

use crate::context::Globals;
use crate::end_signals::EndSignals;
use crate::error::CliError;
use crate::output::{self, Colour, coloured};

/// The exit code of a command that a signal ended at once.
const INTERRUPTED: u8 = 130;

/// Options of `nigh up`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  nigh up                                           all in one, state in the usual folder
  nigh up --state /tmp/nigh --s3-listen 127.0.0.1:0 --lambda-listen 127.0.0.1:0
  nigh up --set functions.keep_alive='60 s' --set cache.bytes='2 GiB'

`nigh config show` lists all settings. Addresses are written to endpoints.json in the state folder.
The first SIGINT, SIGTERM or SIGHUP (a lost session) drains the node; a second SIGINT or SIGTERM stops it at once.
Under nohup the node ignores SIGHUP.")]
pub(crate) struct UpArgs {
    /// Where the S3 door listens [setting s3.listen]
    #[arg(long, value_name = "ADDRESS")]
    s3_listen: Option<String>,
    /// Where the Lambda door listens [setting lambda.listen]
    #[arg(long, value_name = "ADDRESS")]
    lambda_listen: Option<String>,
    /// Memory for cached objects [setting cache.bytes]
    #[arg(long, value_name = "SIZE")]
    cache: Option<String>,
    /// The interpreter that runs Python functions; it needs awslambdaric [setting functions.python]
    #[arg(long, value_name = "PROGRAM")]
    python: Option<String>,
    /// Run functions even if this machine's files cannot be hidden from them [setting functions.trust_functions]
    #[arg(long)]
    trust_functions: bool,
    /// Permit the doors to listen on addresses beyond loopback [setting allow_remote]
    #[arg(long)]
    allow_remote: bool,
    /// Any other setting; may be repeated
    #[arg(long, value_name = "SETTING=VALUE")]
    set: Vec<String>,
}

impl UpArgs {
    fn flags(self) -> Result<Vec<Flag>, CliError> {
        let given = |key: &str, flag: &str, value: Option<String>| {
            value.map(|value| Flag { key: key.to_owned(), value, flag: flag.to_owned() })
        };
        let yes = |set: bool| set.then(|| "true".to_owned());
        let named = [
            given("s3.listen", "--s3-listen", self.s3_listen),
            given("lambda.listen", "--lambda-listen", self.lambda_listen),
            given("cache.bytes", "--cache", self.cache),
            given("functions.python", "--python", self.python),
            given("functions.trust_functions", "--trust-functions", yes(self.trust_functions)),
            given("allow_remote", "--allow-remote", yes(self.allow_remote)),
        ];
        let free = self.set.into_iter().map(|text| match text.split_once('=') {
            Some((key, value)) => {
                let flag = format!("--set {}", key.trim());
                Ok(Flag { key: key.trim().to_owned(), value: value.trim().to_owned(), flag })
            }
            None => Err(CliError::Usage(format!("--set {text}: write setting=value, for example cache.bytes='2 GiB'"))),
        });
        free.chain(named.into_iter().flatten().map(Ok)).collect()
    }
}

/// The settings that a command requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// None.
    Nothing,
    /// A cluster.
    Cluster,
    /// A cluster, with the role `controller` alone.
    Controller,
}

/// Runs a node to its end.
pub(crate) async fn run(args: UpArgs, needs: Needs, globals: &Globals) -> Result<ExitCode, CliError> {
    let mut flags = args.flags()?;
    if needs == Needs::Controller {
        let (key, value) = ("cluster.roles".to_owned(), "controller".to_owned());
        flags.push(Flag { key, value, flag: "nigh controller".to_owned() });
    }
    let configuration = globals.configuration(flags)?;
    if needs != Needs::Nothing && configuration.settings.cluster.is_none() {
        let why =
            "no cluster is set: give cluster.servers and cluster.certificates (docs/cluster.md), or run `nigh up`";
        return Err(CliError::Usage(why.to_owned()));
    }
    log_to_stderr(&configuration.settings.log)?;
    // Handled from here on: a signal during the start must not be lost, or leave half a node.
    let mut signals = EndSignals::handle().map_err(CliError::local("handling signals"))?;
    if let Some(file) = &configuration.file {
        tracing::info!(file = %file.display(), "settings read");
    }
    let state = configuration.settings.state.clone();
    let starting = Box::pin(Node::start(configuration));
    let node = tokio::select! {
        node = starting => node.map_err(Box::new)?,
        () = signals.end() => return Ok(ExitCode::from(INTERRUPTED)),
    };
    announce(&node, &state, globals.json)?;

    tokio::select! {
        () = signals.end() => {}
        () = node.stop_requested().cancelled() => {}
    }
    if !globals.json {
        output::remark("nigh: draining; a second Ctrl-C ends at once");
    }
    tokio::select! {
        () = node.stop() => Ok(ExitCode::SUCCESS),
        () = signals.end_at_once() => {
            // The kernel ends the sandboxes with this process; the next start removes their cgroups.
            output::remark("nigh: ended at once");
            Ok(ExitCode::from(INTERRUPTED))
        }
    }
}

fn log_to_stderr(settings: &LogSettings) -> Result<(), CliError> {
    // s3s logs clients' mistakes as errors; the S3 door logs those that matter.
    let quiet = if settings.level.contains("s3s") { "" } else { ",s3s=off" };
    let filter = EnvFilter::try_new(format!("{}{quiet}", settings.level))
        .map_err(|error| CliError::Usage(format!("setting log.level {:?}: {error}", settings.level)))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // When the terminal is lost, standard error cannot be written to. The subscriber would report that there, and panic.
    let builder = builder.log_internal_errors(false);
    let set = match settings.format {
        LogFormat::Text => {
            let colours = output::wants_colour(&std::io::stderr());
            builder.with_ansi(colours).with_target(false).try_init()
        }
        LogFormat::Json => builder.json().try_init(),
    };
    set.map_err(|error| CliError::Usage(format!("the log cannot be set up: {error}")))
}

/// Prints the addresses, and a new key, which is printed only here.
fn announce(node: &Node, state: &std::path::Path, json: bool) -> Result<(), CliError> {
    let (endpoints, levels) = (node.endpoints(), node.levels());
    let key = node.first_key();
    if json {
        let key = key.map(|key| {
            json!({
                "profile": key.profile, "access_key": key.access_key.as_str(), "secret_key": key.secret_key.reveal(),
            })
        });
        return output::json(&json!({ "endpoints": endpoints, "levels": levels, "first_key": key }));
    }
    output::line(format_args!("Nigh {} at {}", env!("CARGO_PKG_VERSION"), state.display()))?;
    output::line(format_args!("  {:<10} {}", "s3", endpoints.s3))?;
    output::line(format_args!("  {:<10} {}", "lambda", endpoints.lambda))?;
    for level in levels {
        let mark = if level.on { String::new() } else { coloured(Colour::Yellow, "off: ") };
        output::line(format_args!("  {:<10} {mark}{}", level.name, level.detail))?;
    }
    if let Some(key) = key {
        output::line(format_args!(
            "First start: namespace {:?} and its key were made; shown here once, kept in {}",
            key.profile,
            state.join("credentials").display()
        ))?;
        for (name, value) in sdk_environment(key, endpoints) {
            output::line(format_args!("export {name}={value}"))?;
        }
    }
    output::line("Ready. Ctrl-C drains and ends.")
}

/// Variables by which aws-cli and the SDKs find this node. Older ones and boto3 read the second name of the region.
fn sdk_environment<'a>(key: &'a Credentials, endpoints: &'a Endpoints) -> [(&'static str, &'a str); 7] {
    [
        ("AWS_ACCESS_KEY_ID", key.access_key.as_str()),
        ("AWS_SECRET_ACCESS_KEY", key.secret_key.reveal()),
        ("AWS_ENDPOINT_URL_S3", &endpoints.s3),
        ("AWS_ENDPOINT_URL_LAMBDA", &endpoints.lambda),
        ("AWS_ENDPOINT_URL_SCHEDULER", &endpoints.lambda),
        ("AWS_REGION", &endpoints.region),
        ("AWS_DEFAULT_REGION", &endpoints.region),
    ]
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct UpParser {
        #[command(flatten)]
        args: UpArgs,
    }

    #[test]
    fn a_named_flag_wins_over_set_and_both_name_themselves() {
        let up = UpParser::parse_from([
            "up",
            "--s3-listen",
            "127.0.0.1:1",
            "--set",
            "s3.listen=127.0.0.1:2",
            "--trust-functions",
        ]);
        let flags = up.args.flags().unwrap();
        let last = flags.iter().rev().find(|flag| flag.key == "s3.listen").unwrap();
        assert_eq!((last.value.as_str(), last.flag.as_str()), ("127.0.0.1:1", "--s3-listen"));
        assert!(flags.iter().any(|flag| flag.key == "functions.trust_functions" && flag.value == "true"));
        let wrong = UpParser::parse_from(["up", "--set", "cache.bytes"]).args.flags();
        assert!(wrong.unwrap_err().to_string().contains("setting=value"));
    }
}
