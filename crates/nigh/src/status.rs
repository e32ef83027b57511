//! `nigh status`: the running node in a few lines, and what is wrong with it.

mod details;
mod faults;

use std::path::Path;

use clap::Args;
use nigh_node::status::Status;

use self::details::{count, unpushed};
use crate::context::Globals;
use crate::error::CliError;
use crate::output::{self, Colour, Table, coloured};
use crate::printable;

/// Options of `nigh status`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  nigh status                     addresses, load, and what is wrong
  nigh status -v                  one line for each part
  nigh --json status | jq .levels

`nigh doctor` says what each part that is off costs, and what mends it.
docs/howto/watch.md explains the lines.")]
pub(crate) struct StatusArgs {
    /// Show every part of the node
    #[arg(long, short)]
    verbose: bool,
}

/// Shows the running node.
pub(crate) async fn run(args: &StatusArgs, globals: &Globals) -> Result<(), CliError> {
    let status: Status = globals.admin()?.get("/status").await?;
    if globals.json {
        return output::json(&status);
    }
    if args.verbose {
        return output::print_table(&details::table(&status));
    }
    output::print_table(&summary(&status, globals.paths()?.root()))
}

/// The flag that names the state folder in a command to type next; empty where it is the usual one.
pub(crate) fn state_flag(globals: &Globals) -> String {
    globals.state.as_ref().map_or_else(String::new, |state| format!(" --state {}", state.display()))
}

/// The node in a few lines: where it listens, what it does, and what is wrong.
pub(crate) fn summary(status: &Status, state: &Path) -> Table {
    let mut table = output::table(&[]);
    let mut row = |name: &str, value: String| {
        table.add_row([name.to_owned(), value]);
    };
    let Status { node, version, pid, endpoints, sandboxes, cache, .. } = status;
    row("node", format!("{node}, Nigh {version}, process {pid}, up {}", output::span(status.uptime_s)));
    row("s3", endpoints.s3.clone());
    row("lambda", format!("{} (OpenWhisk and workflows, too)", endpoints.lambda));
    row("state", state.display().to_string());
    if let Some(python) = status.levels.iter().find(|level| level.name == "python" && level.on) {
        row("python", python.detail.clone());
    }
    if let Some(cluster) = &status.cluster {
        row("cluster", format!("{}, {}", cluster.name, count(cluster.members.len() as u64, "live member")));
    }
    row(
        "running",
        format!(
            "{} and {} waiting, in {}; {}",
            count(sandboxes.running as u64, "invocation"),
            sandboxes.waiting,
            count_sandboxes(sandboxes.alive),
            count(status.functions as u64, "function")
        ),
    );
    let reads = cache.hits + cache.misses + cache.past;
    let share = match reads {
        0 => String::new(),
        reads => format!("; {:.0} % of {reads} reads from memory", cache.hits as f64 * 100.0 / reads as f64),
    };
    row("cached", format!("{} of {}, {}{share}", cache.kept, cache.budget, count(cache.objects, "object")));
    if status.writes.waiting > 0 {
        row("unpushed", unpushed(&status.writes));
    }
    for fault in faults::faults(status) {
        row("fault", coloured(Colour::Red, &printable::shown(&std::io::stdout(), &fault)));
    }
    let off = faults::off(&status.levels);
    if !off.is_empty() {
        row("off", format!("{}; `nigh doctor` says what each costs and what mends it", off.join(", ")));
    }
    table
}

/// `1 sandbox`, `2 sandboxes`.
fn count_sandboxes(count: usize) -> String {
    if count == 1 { "1 sandbox".to_owned() } else { format!("{count} sandboxes") }
}

#[cfg(test)]
pub(crate) mod tests {
    use nigh_node::endpoints::Endpoints;
    use nigh_node::status::{CacheStatus, Level, SandboxStatus, WritesStatus};
    use nigh_terms::{ByteSize, Namespace};

    use super::*;

    /// A node that has just started.
    pub(crate) fn fresh() -> Status {
        Status {
            node: "n1".to_owned(),
            incarnation: 1,
            version: "0.1.0".to_owned(),
            pid: 7,
            started: "2026-11-26T06:00:00.000Z".to_owned(),
            uptime_s: 7500,
            endpoints: Endpoints {
                pid: 7,
                s3: "http://127.0.0.1:9400".to_owned(),
                s3_socket: "/s/s3.sock".into(),
                lambda: "http://127.0.0.1:9401".to_owned(),
                admin: Some("http://127.0.0.1:9403".to_owned()),
                admin_socket: "/s/admin.sock".into(),
                fast_socket: None,
                health: Some("http://127.0.0.1:9402".to_owned()),
                outside: None,
                ca_bundle: None,
                region: "us-east-1".to_owned(),
                namespace: Namespace::new("default").unwrap(),
            },
            draining: None,
            levels: vec![
                Level { name: "isolation".to_owned(), on: true, detail: "runc: each its own user".to_owned() },
                Level { name: "python".to_owned(), on: true, detail: "python3.11 at /p/python3".to_owned() },
                Level { name: "cache ways".to_owned(), on: false, detail: "no resctrl".to_owned() },
            ],
            cluster: None,
            runtimes: vec!["python3.11".to_owned()],
            functions: 3,
            cache: CacheStatus { budget: ByteSize::gib(2), hits: 3, misses: 1, ..CacheStatus::default() },
            writes: WritesStatus { journal_max: ByteSize::mib(64), ..WritesStatus::default() },
            refused_writes: None,
            fast_path: None,
            features: None,
            sandboxes: SandboxStatus { alive: 1, running: 2, ..SandboxStatus::default() },
            memory: None,
            stems: Vec::new(),
            resident: ByteSize::mib(80),
            records_dropped: 0,
        }
    }

    #[test]
    fn a_node_is_told_in_ten_lines_of_a_terminal_and_what_is_off_in_one_of_them() {
        let text = summary(&fresh(), Path::new("/s")).text(Some(80));
        for part in [
            "up 2 h 5 min",
            "http://127.0.0.1:9401",
            "python3.11 at /p/python3",
            "2 invocations and 0 waiting, in 1 sandbox; 3 functions",
            "75 % of 4 reads from memory",
            "off      cache ways; `nigh doctor`",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.lines().count() <= 10 && text.lines().all(|line| output::visible_width(line) <= 80), "{text}");
        assert!(!text.contains("fault"), "{text}");
    }

    #[test]
    fn what_is_wrong_has_a_line_each() {
        let mut status = fresh();
        status.writes.failing = 2;
        status.refused_writes = Some("the journal has no room on the disk of /s: free 16 MiB there".to_owned());
        status.levels[0] =
            Level { name: "isolation".to_owned(), on: false, detail: "no new sandbox can start".to_owned() };
        let text = summary(&status, Path::new("/s")).text(None);
        assert_eq!(text.lines().filter(|line| line.starts_with("fault")).count(), 3, "{text}");
        assert!(text.contains("writes are refused: the journal has no room"), "{text}");
        assert!(text.contains("isolation: no new sandbox can start"), "{text}");
    }

    #[test]
    fn all_parts_are_told_where_that_is_asked_for() {
        let text = details::table(&fresh()).text(None);
        for part in ["incarnation 1", "off: no resctrl", "journal 0 B of 64 MiB", "2 running, 0 waiting", "2 h 5 min"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
