//! `nigh cluster ls`, `cordon`, `uncordon`, `drain` and `finalize`: the members of a node's cluster, and whether they take
//! work.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use nigh_node::client::AdminClient;
use nigh_node::cluster::{ClusterTable, FinalizeReport, MemberRow, MemberState};
use nigh_node::config::Span;
use serde_json::json;
use tokio::time::sleep;

use crate::context::Globals;
use crate::end_signals::EndSignals;
use crate::error::CliError;
use crate::output::{self, Colour, coloured};

/// How often a node is asked whether it follows.
const LOOKED_EVERY: Duration = Duration::from_millis(250);
/// How long a member may take to follow an order.
const FOLLOWS_WITHIN: Duration = Duration::from_secs(15);

/// A node of the cluster.
#[derive(Args)]
pub(crate) struct NodeArgs {
    /// The node's name, as `nigh cluster ls` shows it
    node: String,
}

/// Options of `nigh cluster drain`.
#[derive(Args)]
pub(crate) struct DrainArgs {
    /// The node's name, as `nigh cluster ls` shows it
    node: String,
    /// How long to wait; then this command fails, and the drain goes on
    #[arg(long, value_name = "TIME")]
    deadline: Option<Span>,
    /// Cancel the drain: the node takes work again
    #[arg(long, conflicts_with = "deadline")]
    cancel: bool,
}

/// The path of an operation on a node.
fn path(node: &str, operation: &str) -> Result<String, CliError> {
    let is_name = !node.is_empty() && node.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if is_name {
        Ok(format!("/cluster/nodes/{node}/{operation}"))
    } else {
        Err(CliError::Usage(format!("{node:?} is no node's name; `nigh cluster ls` names the nodes")))
    }
}

/// Prints the members.
pub(super) async fn list(globals: &Globals) -> Result<(), CliError> {
    let table: ClusterTable = globals.admin()?.get("/cluster").await?;
    if globals.json {
        return output::json(&table);
    }
    let headings = ["NODE", "VERSION", "ROLES", "STATE", "HEALTH", "HOMES", "INVOCATIONS", "MEMORY", "SINCE"];
    let mut rows = output::table(&headings);
    for member in &table.members {
        rows.add_row(cells(member));
    }
    output::print_table(&rows)?;
    for away in &table.absent {
        let words = format!("{} is away, and {} since {}", away.node, away.availability, away.since);
        output::line(coloured(Colour::Yellow, &words))?;
    }
    output::line(format_args!("Cluster {}, format {}, as {} sees it", table.cluster, table.format, table.node))?;
    table.next_format.map_or(Ok(()), |next| {
        let (now, todo) = (table.format, "`nigh cluster finalize` raises the format");
        output::line(format_args!("All members can use format {next}: {todo} from {now}; then no older Nigh can join"))
    })
}

/// A member's cells. An empty one is not known.
fn cells(member: &MemberRow) -> [String; 9] {
    let roles: Vec<String> = member.roles.iter().map(ToString::to_string).collect();
    let state = match member.state {
        MemberState::Available => member.state.to_string(),
        MemberState::Cordoned | MemberState::Draining | MemberState::Drained => {
            coloured(Colour::Yellow, &member.state.to_string())
        }
    };
    let health = match (&member.trouble, &member.since) {
        (Some(trouble), _) => coloured(Colour::Red, trouble),
        (None, Some(_)) => "ok".to_owned(),
        (None, None) => String::new(),
    };
    let memory = member.booked.zip(member.memory).map(|(booked, memory)| format!("{booked} of {memory}"));
    [
        member.node.clone(),
        member.version.clone().unwrap_or_else(|| "older".to_owned()),
        roles.join(", "),
        state,
        health,
        member.homes.to_string(),
        member.invocations.map(|count| count.to_string()).unwrap_or_default(),
        memory.unwrap_or_default(),
        member.since.clone().unwrap_or_default(),
    ]
}

/// What a node has left to do before it is drained, in words.
fn left(member: &MemberRow) -> String {
    let counted = |count: usize, one: &str, more: &str| format!("{count} {}", if count == 1 { one } else { more });
    let homes = counted(member.homes, "home", "homes");
    match member.invocations {
        Some(count) => format!("{}: {homes}, {}", member.node, counted(count, "invocation", "invocations")),
        None => format!("{}: {homes}; it does not say how many invocations run", member.node),
    }
}

async fn order(admin: &AdminClient, node: &str, operation: &str) -> Result<(), CliError> {
    // Every operation is a POST without a document.
    Ok(admin.give(&path(node, operation)?, &json!({})).await?)
}

async fn member(admin: &AdminClient, node: &str) -> Result<Option<MemberRow>, CliError> {
    let table: ClusterTable = admin.get("/cluster").await?;
    Ok(table.members.into_iter().find(|member| member.node == node))
}

/// Orders `operation`, and returns when the node follows: `is_done` says so of its row.
async fn follows(
    globals: &Globals,
    node: &str,
    operation: &str,
    is_done: impl Fn(MemberState) -> bool,
) -> Result<Option<MemberRow>, CliError> {
    let admin = globals.admin()?;
    order(&admin, node, operation).await?;
    let begun = Instant::now();
    loop {
        let found = member(&admin, node).await?;
        match found {
            Some(row) if is_done(row.state) => return Ok(Some(row)),
            None => return Ok(None),
            Some(_) if begun.elapsed() > FOLLOWS_WITHIN => {
                let (seconds, look) = (FOLLOWS_WITHIN.as_secs(), "`nigh cluster ls` shows whether it answers");
                return Err(CliError::Failed(format!("{node} does not follow after {seconds} s, but will: {look}")));
            }
            Some(_) => sleep(LOOKED_EVERY).await,
        }
    }
}

fn told(globals: &Globals, row: Option<&MemberRow>, words: &str, away: &str) -> Result<(), CliError> {
    match row {
        _ if globals.json => output::json(&row),
        Some(_) => output::line(words),
        None => output::line(away),
    }
}

/// Takes a node out of work.
pub(super) async fn cordon(NodeArgs { node }: NodeArgs, globals: &Globals) -> Result<(), CliError> {
    let row = follows(globals, &node, "cordon", |state| state == MemberState::Cordoned).await?;
    let words = format!("{node} takes no new invocations and no new homes; `nigh cluster uncordon {node}` ends that");
    told(globals, row.as_ref(), &words, &format!("{node} is away, and takes no work when it comes back"))
}

/// Lets a node take work again.
pub(super) async fn uncordon(NodeArgs { node }: NodeArgs, globals: &Globals) -> Result<(), CliError> {
    let row = follows(globals, &node, "uncordon", |state| state == MemberState::Available).await?;
    let away = format!("{node} is away, and takes work when it comes back");
    told(globals, row.as_ref(), &format!("{node} takes invocations and homes"), &away)
}

/// Drains a node, and waits until it has no home and no invocation.
pub(super) async fn drain(args: DrainArgs, globals: &Globals) -> Result<ExitCode, CliError> {
    let DrainArgs { node, deadline, cancel } = args;
    if cancel {
        return uncordon(NodeArgs { node }, globals).await.map(|()| ExitCode::SUCCESS);
    }
    let mut signals = EndSignals::handle().map_err(CliError::local("handling signals"))?;
    let wait = drained(globals, &node, deadline);
    tokio::select! {
        waited = wait => waited.map(|()| ExitCode::SUCCESS),
        () = signals.end() => {
            output::remark(format_args!(
                "nigh: the drain of {node} goes on; `nigh cluster drain {node} --cancel` ends it"
            ));
            Ok(ExitCode::from(130))
        }
    }
}

async fn drained(globals: &Globals, node: &str, deadline: Option<Span>) -> Result<(), CliError> {
    let begun = Instant::now();
    let is_ordered = |state| matches!(state, MemberState::Draining | MemberState::Drained);
    let mut row = follows(globals, node, "drain", is_ordered).await?;
    let (admin, mut said) = (globals.admin()?, String::new());
    while let Some(now) = row.as_ref().filter(|row| row.state == MemberState::Draining) {
        let words = left(now);
        if words != said && !globals.json {
            output::remark(&words);
            said.clone_from(&words);
        }
        if deadline.is_some_and(|deadline| begun.elapsed() >= deadline.duration()) {
            return Err(CliError::Failed(format!("the deadline has passed, and the drain goes on: {words}")));
        }
        sleep(LOOKED_EVERY).await;
        row = member(&admin, node).await?;
    }
    if let Some(row) = row.as_ref().filter(|row| row.state != MemberState::Drained) {
        return Err(CliError::Failed(format!("the drain of {node} was cancelled: it is {}", row.state)));
    }
    let words = format!("{node} is drained: stop it, or let it work again with `nigh cluster uncordon {node}`");
    told(globals, row.as_ref(), &words, &format!("{node} has left the cluster, and takes no work when it comes back"))
}

/// Raises the cluster's format.
pub(super) async fn finalize(globals: &Globals) -> Result<(), CliError> {
    let report: FinalizeReport = globals.admin()?.post("/cluster/finalize").await?;
    if globals.json {
        return output::json(&report);
    }
    let FinalizeReport { before, format } = report;
    if before == format {
        return output::line(format_args!("The cluster has format {format} already, the newest of its members"));
    }
    output::line(format_args!(
        "The cluster has format {format}; a Nigh that knows only format {before} cannot join any more"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(state: MemberState) -> MemberRow {
        MemberRow {
            node: "n1".to_owned(),
            number: 1,
            incarnation: 7,
            address: "h:1".to_owned(),
            version: None,
            formats: Default::default(),
            roles: Vec::new(),
            state,
            trouble: None,
            homes: 1,
            invocations: Some(2),
            booked: None,
            memory: None,
            since: None,
        }
    }

    #[test]
    fn what_is_left_is_counted_in_words() {
        assert_eq!(left(&row(MemberState::Draining)), "n1: 1 home, 2 invocations");
        let silent = MemberRow { homes: 0, invocations: None, ..row(MemberState::Draining) };
        assert!(left(&silent).starts_with("n1: 0 homes; it does not say"), "{}", left(&silent));
    }

    #[test]
    fn the_row_of_an_older_program_has_no_health_and_its_version_is_older() {
        let cells = cells(&MemberRow { invocations: None, ..row(MemberState::Available) });
        assert_eq!(cells, ["n1", "older", "", "available", "", "1", "", "", ""]);
    }

    #[test]
    fn what_is_no_name_is_refused_before_a_node_is_asked() {
        assert_eq!(path("node-1", "drain").unwrap(), "/cluster/nodes/node-1/drain");
        for bad in ["", "a/b", "a b", "é"] {
            assert!(path(bad, "drain").unwrap_err().to_string().contains("no node's name"), "{bad}");
        }
    }
}
