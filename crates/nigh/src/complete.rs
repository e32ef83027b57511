//! `nigh __complete WORDS`: what can complete the last of the words, by the names that the running node knows. The scripts
//! of `nigh completions` call it; clap_complete's scripts know commands and options, and stand in where this prints nothing.
//!
//! (clap_complete has an engine that asks the program for everything; it is unstable.)

use std::ffi::OsString;
use std::time::Duration;

use clap::{Arg, ArgAction, Args, Command};
use nigh_node::cluster::ClusterTable;
use nigh_node::tenancy::{ListedKey, ListedNamespace};
use nigh_node::{Activation, EventListing};
use nigh_terms::BucketName;
use serde_json::Value;

use crate::context::Globals;
use crate::error::CliError;
use crate::lab;
use crate::output;

/// The command's name.
pub(crate) const COMMAND: &str = "__complete";
/// How long the user's key may wait.
const PATIENCE: Duration = Duration::from_millis(900);
/// The most names.
const NAMES_MAX: usize = 100;
/// The invocations and events whose ids are told.
const IDS: usize = 20;
/// How an object's address may begin.
const SCHEME: &str = "nigh://";

/// The words.
#[derive(Args)]
pub(crate) struct CompleteArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// What a word names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    Function,
    Bucket,
    /// A bucket with a key.
    Object,
    /// An object, where a file may stand, too: with its scheme.
    Place,
    Invocation,
    Event,
    Setting,
    Key,
    Namespace,
    /// A node of the cluster.
    Member,
}

/// Prints the names, one a line. That there is no node, or that it is slow, is no failure.
pub(crate) async fn run(command: &Command, args: &CompleteArgs, globals: &Globals) -> Result<(), CliError> {
    let Some((named, begun)) = wanted(command, &args.words) else { return Ok(()) };
    let words = args.words.iter().map(OsString::from);
    // `--state` and the like are among the words; those that are half typed count as none.
    let globals = lab::globals_among(words).unwrap_or_else(|_| globals.clone());
    let found = tokio::time::timeout(PATIENCE, Box::pin(names(named, begun, &globals))).await;
    let Ok(Ok(names)) = found else { return Ok(()) };
    let mut fitting = names.iter().filter(|name| name.starts_with(begun) && is_plain(name)).take(NAMES_MAX);
    fitting.try_for_each(output::line)
}

/// What the last of `words` names, and how much of it is typed.
fn wanted<'w>(root: &Command, words: &'w [String]) -> Option<(Named, &'w str)> {
    let (begun, before) = words.split_last()?;
    let (mut command, mut path, mut values) = (root, Vec::new(), 0);
    let mut option: Option<&Arg> = None;
    for word in before {
        if option.take().is_some() {
            continue;
        }
        if word.starts_with('-') {
            option = option_of(root, command, word).filter(|option| option.get_action().takes_values());
            continue;
        }
        match command.find_subcommand(word) {
            Some(below) if values == 0 => {
                command = below;
                path.push(below.get_name());
            }
            _ => values += 1,
        }
    }
    let argument = match option {
        Some(option) => option,
        None if begun.starts_with('-') => return None,
        None => {
            let mut positionals = command.get_positionals();
            let last = command.get_positionals().last();
            positionals.nth(values).or_else(|| last.filter(|last| matches!(last.get_action(), ArgAction::Append)))?
        }
    };
    Some((named(&path, argument.get_id().as_str())?, begun))
}

/// The option that `word` begins: `--name` or `-n`, without a value of its own.
fn option_of<'c>(root: &'c Command, command: &'c Command, word: &str) -> Option<&'c Arg> {
    let all = command.get_arguments().chain(root.get_arguments());
    let mut options = all.filter(|argument| !argument.is_positional());
    match word.strip_prefix("--") {
        Some(name) => options.find(|option| {
            option.get_long() == Some(name) || option.get_all_aliases().is_some_and(|names| names.contains(&name))
        }),
        None => options.find(|option| option.get_short().is_some() && option.get_short() == word.chars().nth(1)),
    }
}

/// What an argument of a command names.
fn named(path: &[&str], argument: &str) -> Option<Named> {
    Some(match (path, argument) {
        (["invoke" | "deploy"], "name")
        | (["functions", "show" | "rm"], "name" | "names")
        | (["export", "sam"], "names")
        | (["logs" | "activations"], "function")
        | (["learn" | "events" | "schedules", _], "function") => Named::Function,
        (["objects", "rb" | "policy"], "address" | "addresses") => Named::Bucket,
        (["objects", "ls" | "cat" | "rm" | "features" | "unpushed"], "address" | "addresses") => Named::Object,
        (["objects", "cp"], "from" | "to") => Named::Place,
        (["explain"], "id") | (["logs"], "id") | (["activations"], "before") => Named::Invocation,
        (["events", _], "id") => Named::Event,
        (["config", "show"], "prefix") => Named::Setting,
        (["keys", _], "key") => Named::Key,
        (["namespaces", "show" | "quota" | "rm"], "name") => Named::Namespace,
        (["cluster", _], "node") => Named::Member,
        _ => return None,
    })
}

/// The names, all or those that can begin with `begun`.
async fn names(named: Named, begun: &str, globals: &Globals) -> Result<Vec<String>, CliError> {
    Ok(match named {
        Named::Function => {
            let functions = globals.lambda().await?.list().await?;
            let name = |function: &Value| Some(function.get("FunctionName")?.as_str()?.to_owned());
            functions.iter().filter_map(name).collect()
        }
        Named::Bucket => buckets(globals).await?,
        Named::Object => objects(begun, globals).await?,
        Named::Place => match begun.strip_prefix(SCHEME) {
            Some(address) => objects(address, globals).await?.iter().map(|name| format!("{SCHEME}{name}")).collect(),
            None => Vec::new(),
        },
        Named::Invocation => {
            let namespace = globals.namespace().await?;
            let path = format!("/activations?namespace={namespace}&limit={IDS}");
            let found: Vec<Activation> = globals.admin()?.get(&path).await?;
            found.iter().map(|one| one.id.to_string()).collect()
        }
        Named::Event => {
            let namespace = globals.namespace().await?;
            let path = format!("/events?namespace={namespace}&all=true&limit={IDS}");
            let found: EventListing = globals.admin()?.get(&path).await?;
            found.events.iter().map(|one| one.id.to_string()).collect()
        }
        Named::Key => {
            let keys: Vec<ListedKey> = globals.admin()?.get("/keys").await?;
            keys.into_iter().map(|key| key.name.unwrap_or_else(|| key.id.to_string())).collect()
        }
        Named::Namespace => {
            let namespaces: Vec<ListedNamespace> = globals.admin()?.get("/namespaces").await?;
            namespaces.into_iter().map(|one| one.name.to_string()).collect()
        }
        Named::Member => {
            let table: ClusterTable = globals.admin()?.get("/cluster").await?;
            let away = table.absent.into_iter().map(|absent| absent.node);
            table.members.into_iter().map(|member| member.node).chain(away).collect()
        }
        Named::Setting => globals.configuration(Vec::new())?.shown.into_iter().map(|one| one.key).collect(),
    })
}

async fn buckets(globals: &Globals) -> Result<Vec<String>, CliError> {
    Ok(globals.s3().await?.list_buckets().await?.into_iter().map(|bucket| bucket.name).collect())
}

/// Buckets, each with a slash behind it; below a bucket its objects and folders.
async fn objects(begun: &str, globals: &Globals) -> Result<Vec<String>, CliError> {
    let Some((bucket, prefix)) = begun.split_once('/') else {
        return Ok(buckets(globals).await?.iter().map(|bucket| format!("{bucket}/")).collect());
    };
    let Ok(name) = BucketName::new(bucket) else { return Ok(Vec::new()) };
    let page = globals.s3().await?.list(&name, prefix, Some("/"), None).await?;
    let keys = page.common_prefixes.into_iter().chain(page.objects.into_iter().map(|object| object.key));
    Ok(keys.map(|key| format!("{bucket}/{key}")).collect())
}

/// True if a shell reads the name as it is: a key may have any character, and whoever presses a key runs no command.
fn is_plain(name: &str) -> bool {
    name.chars().all(|c| c.is_alphanumeric() || "-_./:@%+,=".contains(c))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::Cli;

    fn wants(line: &str) -> Option<(Named, String)> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        wanted(&Cli::command(), &words).map(|(named, begun)| (named, begun.to_owned()))
    }

    #[test]
    fn a_word_is_known_by_its_place() {
        for (line, named, begun) in [
            ("invoke bl", Named::Function, "bl"),
            ("functions show ", Named::Function, ""),
            ("functions rm one tw", Named::Function, "tw"),
            ("functions delete one", Named::Function, "one"),
            ("--state /s --json logs ", Named::Function, ""),
            ("logs blur --id 01", Named::Invocation, "01"),
            ("activations --errors --function b", Named::Function, "b"),
            ("explain ", Named::Invocation, ""),
            ("events retry 0", Named::Event, "0"),
            ("objects ls pic", Named::Object, "pic"),
            ("objects rm -r pictures/a", Named::Object, "pictures/a"),
            ("objects rb ", Named::Bucket, ""),
            ("objects cp nigh://p", Named::Place, "nigh://p"),
            ("objects cp a.png nigh://p", Named::Place, "nigh://p"),
            ("config show func", Named::Setting, "func"),
            ("keys rotate ba", Named::Key, "ba"),
            ("keys rm --yes ", Named::Key, ""),
            ("namespaces quota te", Named::Namespace, "te"),
            ("cluster drain node-", Named::Member, "node-"),
        ] {
            assert_eq!(wants(line), Some((named, begun.to_owned())), "{line:?}");
        }
    }

    #[test]
    fn what_has_no_name_at_the_node_is_left_to_the_shell() {
        for line in
            ["", "inv", "invoke blur --lo", "invoke blur {", "up --state ", "deploy x --folder ", "objects ls a b"]
        {
            assert_eq!(wants(line), None, "{line:?}");
        }
    }

    #[test]
    fn a_key_that_a_shell_would_run_is_not_told() {
        assert!(is_plain("pictures/2026/cat-1.png") && is_plain("übung"));
        for key in ["a;rm -rf ~", "$(x)", "a b", "a`b`", "a\nb", "it's"] {
            assert!(!is_plain(key), "{key:?}");
        }
    }
}
