//! `nigh up`, `nigh node` and `nigh controller`: run a node in the foreground until a signal or `nigh down`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use nigh_node::config::Flag;
use nigh_node::endpoints::Endpoints;
use nigh_node::node::{Node, NodeError};
use nigh_node::own_certificate;
use nigh_node::state_folder::{StateFolderError, StatePaths};
use nigh_node::status::Level;
use nigh_rpc::CertificateFiles;
use nigh_terms::{ByteSize, Clock as _, ParseByteSizeError, SystemClock};
use serde_json::json;

use crate::context::Globals;
use crate::end_signals::{EndSignals, NodeSignal};
use crate::error::CliError;
use crate::log;
use crate::output;
use crate::printable;
use crate::status::state_flag;

/// The exit code of a command that a signal ended at once.
const INTERRUPTED: u8 = 130;
/// The most columns of the lines that tell of a start.
const WIDTH_MAX: usize = 100;
/// Columns of the reason why there is no Python: what comes behind it has room in the line.
const PYTHON_WHY_MAX: usize = 48;
/// What follows the parts that are off.
const DOCTOR: &str = "; `nigh doctor` says what mends it";

/// Options of `nigh up`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  nigh up                                           all in one, state in the usual folder
  nigh up --state /tmp/nigh --s3-listen 127.0.0.1:0 --lambda-listen 127.0.0.1:0
  nigh up --cache 2GiB --set functions.keep_alive='60 s'
  nigh up --tls                                     https, with a certificate of an own authority

A Python that has awslambdaric is found: that of the virtual environment in use, of .venv in this folder, of
~/.local/share/nigh/python, of PATH, of uv or of pyenv. The first start makes a key: it is in the file
credentials of the state folder, and `nigh env` prints it for other tools. `nigh config show` lists all
settings. Addresses are written to endpoints.json in the state folder.

SIGINT and SIGTERM drain the node; a second SIGINT stops it at once. SIGHUP drains a node with a
terminal (its session is lost); one without reads its settings again, as by `nigh reload`. Under
nohup the node ignores SIGHUP.")]
pub(crate) struct UpArgs {
    /// Where the S3 door listens [setting s3.listen]
    #[arg(long, value_name = "ADDRESS")]
    s3_listen: Option<String>,
    /// Where the Lambda door listens [setting lambda.listen]
    #[arg(long, value_name = "ADDRESS")]
    lambda_listen: Option<String>,
    /// Where probes find /health/ready and /metrics [setting health.listen]
    #[arg(long, value_name = "ADDRESS")]
    health_listen: Option<String>,
    /// Memory for cached objects, for example 2GiB; a number alone is in MiB, as in Lambda [setting cache.bytes]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    cache: Option<String>,
    /// The interpreter that runs Python functions; it needs awslambdaric [default: found] [setting functions.python]
    #[arg(long, value_name = "PROGRAM")]
    python: Option<String>,
    /// Run functions even if this machine's files cannot be hidden from them [setting functions.trust_functions]
    #[arg(long)]
    trust_functions: bool,
    /// Serve https with a certificate for this machine, which the first start makes in the state folder with an authority of
    /// its own [settings tls.certificate, tls.key, tls.authority]
    #[arg(long)]
    tls: bool,
    /// Permit plain HTTP on addresses beyond loopback [setting allow_plain]
    #[arg(long, alias = "allow-remote")]
    allow_plain: bool,
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
            given("health.listen", "--health-listen", self.health_listen),
            given("cache.bytes", "--cache", self.cache),
            given("functions.python", "--python", self.python),
            given("functions.trust_functions", "--trust-functions", yes(self.trust_functions)),
            given("allow_plain", "--allow-plain", yes(self.allow_plain)),
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

/// The settings of `--tls`, over those of `flags`: the certificate of an own authority, made if it is missing.
fn tls_flags(flags: &[Flag], globals: &Globals) -> Result<Vec<Flag>, CliError> {
    let flag = |key: &str, value: String| Flag { key: key.to_owned(), value, flag: "--tls".to_owned() };
    // Until the certificate is there, the doors are not checked for one.
    let before = flags.iter().cloned().chain([flag("allow_plain", "true".to_owned())]).collect();
    let settings = globals.configuration(before)?.settings;
    if let Some(certificate) = &settings.tls.certificate {
        let why = format!("--tls: tls.certificate is set to {} already; leave --tls out", certificate.display());
        return Err(CliError::Usage(why));
    }
    let now = SystemClock::new().wall().date().unix_timestamp();
    let CertificateFiles { authority, certificate, key } = own_certificate::ensure(&settings, now)?;
    let files = [("tls.certificate", certificate), ("tls.key", key), ("tls.authority", authority)];
    Ok(files.into_iter().map(|(setting, path)| flag(setting, path.display().to_string())).collect())
}

/// A size as a setting has it. A number without a unit is in MiB, and MB means MiB, as in Lambda.
fn size(text: &str) -> Result<String, String> {
    let trimmed = text.trim();
    let digits = trimmed.len() - trimmed.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let unit = match trimmed[digits..].trim().to_ascii_uppercase().as_str() {
        "" | "M" | "MB" => "MiB",
        "K" | "KB" => "KiB",
        "G" | "GB" => "GiB",
        "T" | "TB" => "TiB",
        _ => trimmed[digits..].trim(),
    };
    let size = format!("{} {unit}", &trimmed[..digits]);
    // The error names what was typed.
    size.parse::<ByteSize>().or_else(|_| trimmed.parse()).map_err(|error: ParseByteSizeError| error.to_string())?;
    Ok(size)
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
    let tls = args.tls;
    let mut flags = args.flags()?;
    if tls {
        let own = tls_flags(&flags, globals)?;
        flags.extend(own);
    }
    if needs == Needs::Controller {
        let (key, value) = ("cluster.roles".to_owned(), "controller".to_owned());
        flags.push(Flag { key, value, flag: "nigh controller".to_owned() });
    }
    let configuration = globals.configuration(flags)?;
    if needs != Needs::Nothing && configuration.settings.cluster.is_none() {
        let why = "no cluster is set: give cluster.servers and cluster.certificates (docs/howto/cluster.md), or run `nigh up`";
        return Err(CliError::Usage(why.to_owned()));
    }
    let log_settings = configuration.settings.log.clone();
    let (level, lines_of_start) = log::to_stderr(&log_settings)?;
    // Handled from here on: a signal during the start must not be lost, or leave half a node.
    let mut signals = EndSignals::handle().map_err(CliError::local("handling signals"))?;
    let state = configuration.settings.state.clone();
    let file = configuration.file.as_ref().map_or_else(|| "none".to_owned(), |file| file.display().to_string());
    let starting = Box::pin(Node::start(configuration));
    let node = tokio::select! {
        node = starting => node.map_err(told)?,
        () = ended(&mut signals) => return Ok(ExitCode::from(INTERRUPTED)),
    };
    node.reload_also(Arc::new(level));
    announce(&node, &state, globals)?;
    drop(lines_of_start);
    let is_for_people = log::is_for_people(&log_settings);
    if !is_for_people {
        let Endpoints { s3, lambda, .. } = node.endpoints();
        let (version, state) = (env!("CARGO_PKG_VERSION"), state.display());
        tracing::info!(version, %s3, %lambda, %state, settings = %file, "started");
    }

    serve(&node, &mut signals).await;
    // The log tells of it, too; a line that is no JSON has no place in a log of JSON.
    if is_for_people && !globals.json {
        output::remark("nigh: draining; a second Ctrl-C ends at once");
    }
    tokio::select! {
        () = node.stop() => Ok(ExitCode::SUCCESS),
        () = interrupted(&mut signals) => {
            // The kernel ends the sandboxes with this process; the next start removes their cgroups.
            tracing::warn!("ended at once, before all had finished");
            Ok(ExitCode::from(INTERRUPTED))
        }
    }
}

/// Returns when a signal ends the start of a node.
async fn ended(signals: &mut EndSignals) {
    loop {
        match signals.next().await {
            NodeSignal::Interrupt | NodeSignal::Terminate => return,
            NodeSignal::Reload | NodeSignal::Reopen => {
                tracing::info!("a signal to a node that still starts is ignored")
            }
        }
    }
}

/// Returns when the node must end in order.
async fn serve(node: &Node, signals: &mut EndSignals) {
    loop {
        tokio::select! {
            signal = signals.next() => match signal {
                NodeSignal::Interrupt | NodeSignal::Terminate => return,
                // The node logs what came of it.
                NodeSignal::Reload => drop(tokio::task::block_in_place(|| node.reload())),
                NodeSignal::Reopen => node.reopen_files(),
            },
            () = node.stop_requested().cancelled() => return,
        }
    }
}

/// Returns when a node that drains must end at once.
async fn interrupted(signals: &mut EndSignals) {
    loop {
        match signals.next().await {
            NodeSignal::Interrupt => return,
            NodeSignal::Terminate => tracing::info!("the node drains already; SIGINT ends it at once"),
            NodeSignal::Reload | NodeSignal::Reopen => tracing::info!("a signal to a node that drains is ignored"),
        }
    }
}

/// Why a node does not start. If another has its state folder, where that listens and how to look at it.
fn told(error: NodeError) -> CliError {
    if let NodeError::StateFolder(StateFolderError::Held(root)) = &error
        && let Ok(Endpoints { pid, s3, lambda, .. }) = Endpoints::read(&StatePaths::new(root))
    {
        return CliError::Failed(format!(
            "another Nigh is running at {} (process {pid}, s3 {s3}, lambda {lambda}); `nigh status` shows it, `nigh down` \
             stops it, and `nigh up --state FOLDER` with other addresses starts a second one",
            root.display()
        ));
    }
    Box::new(error).into()
}

/// Prints where the node listens, and how to use it now.
fn announce(node: &Node, state: &Path, globals: &Globals) -> Result<(), CliError> {
    let (endpoints, levels) = (node.endpoints(), node.levels());
    if globals.json {
        let key = node.first_key().map(|key| {
            json!({
                "profile": key.profile, "access_key": key.access_key.as_str(), "secret_key": key.secret_key.reveal(),
            })
        });
        return output::json(&json!({ "endpoints": endpoints, "levels": levels, "first_key": key }));
    }
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    let ca_bundle = endpoints.ca_bundle.as_ref().map(|path| from_home(path, home.as_deref()).into());
    let shown = Endpoints { ca_bundle, ..endpoints.clone() };
    let lines = announcement(&shown, levels, &from_home(state, home.as_deref()), &state_flag(globals));
    lines.iter().try_for_each(output::line)
}

/// `path`, with `~` for the home folder.
fn from_home(path: &Path, home: Option<&Path>) -> String {
    match home.and_then(|home| path.strip_prefix(home).ok()) {
        Some(below) => Path::new("~").join(below).display().to_string(),
        None => path.display().to_string(),
    }
}

/// The lines: at most nine, of at most `WIDTH_MAX` columns unless a long path takes more. No path and no command is cut.
/// `flag` names the state folder where it is not the usual one.
fn announcement(endpoints: &Endpoints, levels: &[Level], state: &str, flag: &str) -> Vec<String> {
    let level = |name: &str| levels.iter().find(|level| level.name == name);
    // What aws takes as --ca-bundle, and curl as --cacert.
    let bundle = endpoints.ca_bundle.as_ref();
    let trust = bundle.map(|path| format!(" (--ca-bundle {})", path.display())).unwrap_or_default();
    let mut lines = vec![
        format!("Nigh {} runs, with its state in {state}", env!("CARGO_PKG_VERSION")),
        format!("  s3        {}{trust}", endpoints.s3),
        format!("  lambda    {} (OpenWhisk and workflows, too)", endpoints.lambda),
    ];
    match level("python") {
        Some(Level { on: true, detail, .. }) => lines.push(cut(&format!("  python    {detail}"), 0)),
        Some(Level { detail, .. }) => {
            // What is wrong; the rest of the detail is what mends it. A Python may have been named, and not be there.
            let why = printable::shortened(detail.split("; ").next().unwrap_or_default(), PYTHON_WHY_MAX);
            lines.push(format!("  python    off: {why}{DOCTOR}"));
        }
        None => {}
    }
    if let Some(Level { detail, .. }) = level("isolation") {
        // The engine and the kind of isolation; `nigh status -v` has the rest.
        let kind = detail.split("; ").next().unwrap_or_default();
        lines.push(cut(&format!("  isolation {}", kind.split(" (").next().unwrap_or_default()), 0));
    }
    let off: Vec<&str> =
        levels.iter().filter(|level| !level.on && level.name != "python").map(|level| level.name.as_str()).collect();
    if !off.is_empty() {
        lines.push(cut(&format!("  off       {}", off.join(", ")), DOCTOR.len()) + DOCTOR);
    }
    lines.push(next_commands(flag));
    lines.push(format!("For aws, boto3 and SDKs: eval \"$(nigh env{flag})\""));
    lines.push("Ready. Ctrl-C drains and ends.".to_owned());
    lines
}

/// `line`, so short that it leaves `room` columns behind it.
fn cut(line: &str, room: usize) -> String {
    printable::shortened(line, WIDTH_MAX - room).into_owned()
}

/// What to type next: as many commands as have room, but always that of the page.
fn next_commands(flag: &str) -> String {
    let commands = ["nigh deploy --help".to_owned(), format!("nigh status{flag}"), format!("nigh page{flag}")];
    let from = |first: usize| format!("Use it from another terminal: {}", commands[first..].join("; "));
    let has_room = |line: &String| line.chars().count() <= WIDTH_MAX;
    (0..commands.len()).map(from).find(has_room).unwrap_or_else(|| from(commands.len() - 1))
}

#[cfg(test)]
mod tests;
