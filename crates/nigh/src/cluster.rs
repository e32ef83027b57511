//! `nigh cluster`: a cluster on this machine, for trials; the status of a node's cluster, and what an operator does to its
//! members.

mod members;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use nigh_node::credentials;
use nigh_node::local_cluster::{
    LocalCluster, LocalClusterSettings, ProcessEvent, ProcessStatus, find_nats_server, local_processes,
};
use nigh_node::state_folder::StatePaths;
use nigh_node::status::HomesStatus;
use nigh_node::status::{ClusterStatus, CoherenceProtocol, Status};
use serde_json::json;
use tokio::time::sleep;

use self::members::{DrainArgs, NodeArgs};
use crate::context::Globals;
use crate::end_signals::EndSignals;
use crate::error::CliError;
use crate::output::{self, Colour, coloured};
use crate::printable;

/// How long a node may take to start.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long nodes may take to drain.
const DRAIN: Duration = Duration::from_secs(45);
/// How often ended processes are looked for.
const LOOKED_EVERY: Duration = Duration::from_millis(500);

/// Subcommands of `nigh cluster`.
#[derive(Subcommand)]
pub(crate) enum ClusterCommand {
    /// Start NATS servers and nodes on this machine, and restart those that end; Ctrl-C or SIGHUP stops all
    #[command(after_help = "\
Examples:
  nigh cluster up                        three nodes on free ports of this machine
  nigh cluster up --nodes 5 --networks   each in its own network namespace, joined by a bridge (root)
  nigh cluster status --state FOLDER/node-1

Needs the program nats-server 2.12 or newer, in PATH or as `make peers` installs it.")]
    Up(ClusterUpArgs),
    /// Show the members of the node's cluster, the homes of its shards, and, if the cluster is on this machine, its
    /// processes
    Status,
    /// List the cluster's members: version, state, health, homes, invocations and memory of each
    #[command(visible_alias = "list")]
    Ls,
    /// Send a node no new invocations and place no new homes on it; its doors answer, and restarts do not end it
    Cordon(NodeArgs),
    /// Let a node take work again after `cordon` or `drain`
    Uncordon(NodeArgs),
    /// Cordon a node, give its homes to other nodes, and wait until it has no home and no invocation
    #[command(after_help = "\
Ctrl-C ends this command, not the drain. The node keeps running, and stays drained over restarts.

Examples:
  nigh cluster drain node-2                     before its machine is taken away
  nigh cluster drain node-2 --deadline '10 min'
  nigh cluster drain node-2 --cancel            let it work again")]
    Drain(DrainArgs),
    /// After an upgrade of all nodes: use what only the new version reads. An older Nigh cannot join any more
    Finalize,
}

/// Options of `nigh cluster up`.
#[derive(Args)]
pub(crate) struct ClusterUpArgs {
    /// How many nodes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=100))]
    nodes: u8,
    /// The folder for all files [default: cluster, below the state folder]
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Give each process its own network namespace; needs root
    #[arg(long)]
    networks: bool,
    /// The interpreter that runs Python functions; it needs awslambdaric [default: each node finds one]
    #[arg(long, value_name = "PROGRAM")]
    python: Option<PathBuf>,
    /// A setting for every node; may be repeated
    #[arg(long, value_name = "SETTING=VALUE")]
    set: Vec<String>,
}

/// Runs it.
pub(crate) async fn run(command: ClusterCommand, globals: &Globals) -> Result<ExitCode, CliError> {
    match command {
        ClusterCommand::Up(args) => up(args, globals).await,
        ClusterCommand::Status => status(globals).await.map(|()| ExitCode::SUCCESS),
        ClusterCommand::Ls => members::list(globals).await.map(|()| ExitCode::SUCCESS),
        ClusterCommand::Cordon(args) => members::cordon(args, globals).await.map(|()| ExitCode::SUCCESS),
        ClusterCommand::Uncordon(args) => members::uncordon(args, globals).await.map(|()| ExitCode::SUCCESS),
        ClusterCommand::Drain(args) => members::drain(args, globals).await,
        ClusterCommand::Finalize => members::finalize(globals).await.map(|()| ExitCode::SUCCESS),
    }
}

async fn up(args: ClusterUpArgs, globals: &Globals) -> Result<ExitCode, CliError> {
    let missing = || CliError::Usage("nats-server is not in PATH: install it, or run `make peers`".to_owned());
    let nats_server = find_nats_server().ok_or_else(missing)?;
    let program = std::env::current_exe().map_err(CliError::local("finding this program"))?;
    let folder = match args.folder {
        Some(folder) => folder,
        None => globals.configuration(Vec::new())?.settings.state.join("cluster"),
    };
    let ClusterUpArgs { nodes, networks, mut set, python, .. } = args;
    set.extend(python.map(|program| format!("functions.python={}", program.display())));
    let settings = LocalClusterSettings { folder, nodes, program, nats_server, networks, set, relays: Vec::new() };
    let mut signals = EndSignals::handle().map_err(CliError::local("handling signals"))?;
    let mut cluster = tokio::select! {
        started = LocalCluster::start(&settings, PATIENCE) => {
            started.map_err(|error| CliError::Local { what: "the cluster".to_owned(), source: std::io::Error::other(error) })?
        }
        () = signals.end() => return Ok(ExitCode::from(130)),
    };
    announce(&mut cluster, globals.json).await?;
    loop {
        tokio::select! {
            () = signals.end() => break,
            () = sleep(LOOKED_EVERY) => {}
        }
        match cluster.tend() {
            Ok(happened) => {
                happened.iter().for_each(|(name, event)| output::remark(format_args!("{}", told(name, event))))
            }
            Err(error) => {
                output::remark(format_args!("nigh: a process cannot be restarted: {error}; nigh tries again"))
            }
        }
    }
    if !globals.json {
        output::remark("nigh: the nodes drain, then the servers end");
    }
    tokio::task::block_in_place(|| cluster.end(DRAIN));
    Ok(ExitCode::SUCCESS)
}

/// What happened to a process, in words.
fn told(name: &str, event: &ProcessEvent) -> String {
    match event {
        ProcessEvent::Ended { how, said, again_after } => {
            let said = printable::shown(&std::io::stderr(), said);
            let said = if said.is_empty() { said } else { format!("; its last line was: {said}").into() };
            format!("nigh: {name} has ended ({how}); it restarts in {:.1} s{said}", again_after.as_secs_f64())
        }
        ProcessEvent::StartedAgain => format!("nigh: {name} has restarted"),
    }
}

/// Prints the nodes, and how to use them with their key.
async fn announce(cluster: &mut LocalCluster, json: bool) -> Result<(), CliError> {
    let mut told = Vec::new();
    for node in cluster.nodes() {
        let Some(status) = node.status().await else { continue };
        told.push((node.name().to_owned(), node.state().to_owned(), status.endpoints));
    }
    if json {
        let key = told.iter().find_map(|(_, state, at)| {
            credentials::read(&StatePaths::new(state).credentials(), at.namespace.as_str()).ok()
        });
        let nodes = told.iter().map(|(name, state, at)| json!({"node": name, "state": state, "endpoints": at}));
        let key = key.map(|key| json!({"access_key": key.access_key.as_str(), "secret_key": key.secret_key.reveal()}));
        return output::json(&json!({ "nodes": nodes.collect::<Vec<_>>(), "key": key }));
    }
    let mut table = output::table(&["NODE", "S3", "LAMBDA", "STATE"]);
    for (name, state, at) in &told {
        table.add_row([name.clone(), at.s3.clone(), at.lambda.clone(), state.display().to_string()]);
    }
    output::print_table(&table)?;
    if let Some((_, state, _)) = told.first() {
        output::line(format_args!("All nodes have the key in {}", StatePaths::new(state).credentials().display()))?;
        output::line(format_args!(
            "aws, boto3 and SDKs use it after: eval \"$(nigh env --state {})\"",
            state.display()
        ))?;
    }
    output::line("Ready. Ctrl-C drains and stops all.")
}

/// A coherence protocol, in words.
pub(crate) fn coherence(protocol: CoherenceProtocol) -> String {
    match protocol {
        CoherenceProtocol::Nigh => protocol.to_string(),
        CoherenceProtocol::None | CoherenceProtocol::VersionCheck | CoherenceProtocol::Synchronous => {
            format!("{protocol}, for comparisons (docs/design/comparison.md)")
        }
    }
}

/// The homes, in words.
pub(crate) fn homes(homes: &HomesStatus) -> String {
    let HomesStatus { shards, own, without, troubles } = homes;
    let mut said = format!("home of {} of {shards} shards", own.len());
    if !without.is_empty() {
        said += &coloured(Colour::Yellow, &format!("; {} shards have no living home", without.len()));
    }
    if let Some(first) = troubles.first() {
        let more = format!("; cannot serve {} shards, first shard {}: {}", troubles.len(), first.shard, first.why);
        said += &coloured(Colour::Yellow, &more);
    }
    said
}

async fn status(globals: &Globals) -> Result<(), CliError> {
    let status: Status = globals.admin()?.get("/status").await?;
    let Some(cluster) = status.cluster else {
        return Err(CliError::Usage(format!(
            "the node {} belongs to no cluster; docs/howto/cluster.md says how to make one",
            status.node
        )));
    };
    // A local cluster's folder is the parent of the node's state folder.
    let folder = globals.configuration(Vec::new())?.settings.state.parent().map(std::path::Path::to_owned);
    let processes = folder.map(|folder| local_processes(&folder)).transpose();
    let processes = processes.map_err(CliError::local("reading the local cluster's processes"))?.flatten();
    if globals.json {
        let mut told = serde_json::to_value(&cluster).unwrap_or_default();
        told["processes"] = json!(processes);
        return output::json(&told);
    }
    let ClusterStatus { name, coherence: protocol, servers, members, homes: kept, format: _ } = cluster;
    output::line(format_args!("Cluster {name}, as {} sees it", status.node))?;
    servers.map_or(Ok(()), |servers| {
        let trouble = servers.trouble().map(|trouble| coloured(Colour::Yellow, &trouble));
        output::line(format_args!("NATS: {}", trouble.unwrap_or_else(|| servers.connection())))
    })?;
    let mut table = output::table(&["NODE", "NUMBER", "INCARNATION", "ADDRESS", "ROLES"]);
    for member in members {
        let roles: Vec<String> = member.roles.iter().map(ToString::to_string).collect();
        let (number, life) = (member.number.to_string(), member.incarnation.to_string());
        table.add_row([member.node, number, life, member.address, roles.join(", ")]);
    }
    output::print_table(&table)?;
    output::line(format_args!("coherence: {}", coherence(protocol)))?;
    kept.map_or(Ok(()), |kept| output::line(homes(&kept)))?;
    processes.map_or(Ok(()), |processes| print_processes(&processes))
}

/// The processes of a cluster on this machine, as `nigh cluster up` last wrote them.
fn print_processes(processes: &[ProcessStatus]) -> Result<(), CliError> {
    let mut table = output::table(&["PROCESS", "PID", "RESTARTS", "LAST END"]);
    for ProcessStatus { name, pid, restarts, last_end, again_after_s } in processes {
        let pid = pid
            .map_or_else(|| again_after_s.map_or_else(String::new, |s| format!("in {s:.1} s")), |pid| pid.to_string());
        table.add_row([name.clone(), pid, restarts.to_string(), last_end.clone().unwrap_or_default()]);
    }
    output::print_table(&table)
}
