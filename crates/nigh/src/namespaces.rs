//! `nigh namespaces`.

use std::str::FromStr;

use clap::{Args, Subcommand};
use nigh_engine::NamespaceQuota;
use nigh_node::tenancy::{ListedNamespace, NewNamespace};
use nigh_terms::{ByteSize, Namespace};
use serde_json::json;

use crate::confirm::confirm;
use crate::context::Globals;
use crate::error::CliError;
use crate::{keys, output};

/// Subcommands of `nigh namespaces`.
#[derive(Subcommand)]
#[command(after_help = "\
Examples:
  nigh namespaces create team-a
  nigh namespaces quota team-a --functions 50 --memory 4GiB --stored 100GiB --requests 200/s
  nigh namespaces quota team-a --requests none
  nigh namespaces rm team-a

A namespace is a tenant: its objects, functions and keys are its own. Over its quota a request is refused: requests and
memory with 503 SlowDown (S3) or 429 TooManyRequestsException (Lambda) and Retry-After, stored bytes with QuotaExceeded,
functions with CodeStorageExceededException.")]
pub(crate) enum NamespacesCommand {
    /// Create a namespace, and print its first key, whose secret is not shown again
    Create {
        /// The namespace's name
        name: Namespace,
    },
    /// List the namespaces with their quotas and what they use
    #[command(visible_alias = "list")]
    Ls,
    /// Show a namespace
    Show {
        /// The namespace's name
        name: Namespace,
    },
    /// Change a namespace's quota; without options, show it
    Quota(QuotaArgs),
    /// Remove an empty namespace with its keys
    Rm {
        /// The namespace's name
        name: Namespace,
        /// Also remove its objects, functions, layers, schedules, workflows and OpenWhisk entities
        #[arg(long)]
        with_everything: bool,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

/// A namespace and its limits.
#[derive(Args)]
pub(crate) struct QuotaArgs {
    /// The namespace's name
    name: Namespace,
    /// The most functions, or none for no limit
    #[arg(long, value_name = "NUMBER", value_parser = limit::<u64>)]
    functions: Option<Limit<u64>>,
    /// The most memory that its running and waiting invocations book, for example 4GiB, or none
    #[arg(long, value_name = "BYTES", value_parser = limit::<ByteSize>)]
    memory: Option<Limit<ByteSize>>,
    /// The most bytes of its objects, counted once a minute and with each write, for example 100GiB, or none
    #[arg(long, value_name = "BYTES", value_parser = limit::<ByteSize>)]
    stored: Option<Limit<ByteSize>>,
    /// The most requests a second of its clients, for example 200/s, or none. The nodes of a cluster share them evenly
    #[arg(long, value_name = "NUMBER", value_parser = requests)]
    requests: Option<Limit<u32>>,
}

/// A limit, or no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit<T> {
    At(T),
    No,
}

impl<T> Limit<T> {
    fn value(self) -> Option<T> {
        match self {
            Self::At(value) => Some(value),
            Self::No => None,
        }
    }
}

fn limit<T: FromStr<Err: ToString>>(text: &str) -> Result<Limit<T>, String> {
    if text == "none" {
        return Ok(Limit::No);
    }
    text.parse().map(Limit::At).map_err(|error: T::Err| error.to_string())
}

fn requests(text: &str) -> Result<Limit<u32>, String> {
    limit(text.strip_suffix("/s").unwrap_or(text))
}

impl QuotaArgs {
    /// The quota after the change of `before`.
    fn of(&self, before: NamespaceQuota) -> NamespaceQuota {
        NamespaceQuota {
            functions: self.functions.map_or(before.functions, Limit::value),
            memory: self.memory.map_or(before.memory, Limit::value),
            stored: self.stored.map_or(before.stored, Limit::value),
            requests: self.requests.map_or(before.requests, Limit::value),
        }
    }
}

/// Runs it.
pub(crate) async fn run(command: NamespacesCommand, globals: &Globals) -> Result<(), CliError> {
    let admin = globals.admin()?;
    match command {
        NamespacesCommand::Create { name } => {
            keys::created(&admin.exchange("/namespaces", &NewNamespace { name }).await?, globals)
        }
        NamespacesCommand::Ls => {
            let all: Vec<ListedNamespace> = admin.get("/namespaces").await?;
            if globals.json { output::json(&all) } else { list(&all) }
        }
        NamespacesCommand::Show { name } => show(&name, globals).await,
        NamespacesCommand::Quota(args) => {
            let before: ListedNamespace = admin.get(&format!("/namespaces/{}", args.name)).await?;
            let quota = args.of(before.quota);
            if quota != before.quota {
                admin.give(&format!("/namespaces/{}/quota", args.name), &quota).await?;
            }
            show(&args.name, globals).await
        }
        NamespacesCommand::Rm { name, with_everything, yes } => {
            let what = if with_everything { " with all that is in it" } else { "" };
            confirm(&format!("Remove the namespace {name}{what} for good?"), yes)?;
            admin.give(&format!("/namespaces/{name}/rm?everything={with_everything}"), &()).await?;
            if globals.json {
                return output::json(&json!({ "removed": name }));
            }
            output::line(format_args!("removed {name}"))
        }
    }
}

async fn show(name: &Namespace, globals: &Globals) -> Result<(), CliError> {
    let shown: ListedNamespace = globals.admin()?.get(&format!("/namespaces/{name}")).await?;
    if globals.json {
        return output::json(&shown);
    }
    let mut table = output::table(&[]);
    let mut row = |name: &str, value: String| {
        table.add_row([name.to_owned(), value]);
    };
    row("namespace", shown.name.to_string());
    row("created", shown.created.clone().unwrap_or_else(|| origin(&shown).to_owned()));
    row("keys", shown.keys.to_string());
    let [functions, memory, stored, requests] = used(&shown);
    row("functions", functions);
    row("memory", memory);
    row("stored", stored);
    row("requests", requests);
    output::print_table(&table)
}

fn origin(shown: &ListedNamespace) -> &'static str {
    if shown.from_settings { "from settings" } else { "-" }
}

/// What is used of each limit: functions, memory, stored bytes; and the limit of requests.
fn used(shown: &ListedNamespace) -> [String; 4] {
    let of = |used: Option<String>, limit: Option<String>| match (used, limit) {
        (Some(used), Some(limit)) => format!("{used} of {limit}"),
        (Some(used), None) => used,
        (None, Some(limit)) => format!("- of {limit}"),
        (None, None) => "-".to_owned(),
    };
    let text = |size: ByteSize| size.to_string();
    let quota = shown.quota;
    [
        of(Some(shown.functions.to_string()), quota.functions.map(|limit| limit.to_string())),
        of(shown.booked.map(text), quota.memory.map(text)),
        of(shown.stored.map(text), quota.stored.map(text)),
        quota.requests.map_or_else(|| "-".to_owned(), |limit| format!("{limit}/s")),
    ]
}

fn list(all: &[ListedNamespace]) -> Result<(), CliError> {
    let mut table = output::table(&["NAME", "FUNCTIONS", "MEMORY", "STORED", "REQUESTS", "KEYS", "CREATED"])
        .less_important(&["CREATED", "KEYS"]);
    for shown in all {
        let [functions, memory, stored, requests] = used(shown);
        let created = shown.created.clone().unwrap_or_else(|| origin(shown).to_owned());
        table.add_row([shown.name.to_string(), functions, memory, stored, requests, shown.keys.to_string(), created]);
    }
    output::print_table(&table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_changes_its_limit_and_leaves_the_others() {
        let before = NamespaceQuota { functions: Some(5), requests: Some(10), ..NamespaceQuota::default() };
        let args = QuotaArgs {
            name: Namespace::new("team-a").unwrap(),
            functions: None,
            memory: Some(limit("1GiB").unwrap()),
            stored: None,
            requests: Some(requests("none").unwrap()),
        };
        let after = NamespaceQuota { functions: Some(5), memory: Some(ByteSize::gib(1)), ..NamespaceQuota::default() };
        assert_eq!(args.of(before), after);
        assert_eq!(requests("200/s"), Ok(Limit::At(200)));
        assert!(requests("many").is_err() && limit::<ByteSize>("lots").is_err());
    }

    #[test]
    fn what_is_used_stands_before_what_may_be_used() {
        let shown = ListedNamespace {
            name: Namespace::new("team-a").unwrap(),
            from_settings: false,
            created: None,
            quota: NamespaceQuota { functions: Some(5), requests: Some(10), ..NamespaceQuota::default() },
            functions: 2,
            keys: 1,
            booked: Some(ByteSize::mib(128)),
            stored: None,
        };
        assert_eq!(used(&shown), ["2 of 5", "128 MiB", "-", "10/s"]);
    }
}
