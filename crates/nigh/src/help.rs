//! The help of `nigh` itself: its commands by group. `nigh --help` has those that a user needs on the first day,
//! `nigh --help --all` has all.
//!
//! clap has no groups of subcommands, so their list is made here, from clap's names and descriptions.

#[cfg(test)]
mod snapshots;

use std::ffi::OsString;
use std::fmt::Write as _;

use clap::Command;
use clap::error::{ContextKind, ContextValue};

use crate::output;

/// The groups, each with its commands in the order in which they are listed. A test holds them complete.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Run a node", &["up", "down", "status", "doctor", "env", "config", "reload", "backup", "restore", "completions"]),
    (
        "Functions",
        &[
            "init",
            "dev",
            "deploy",
            "import",
            "export",
            "invoke",
            "functions",
            "logs",
            "events",
            "schedules",
            "workflow",
            "openwhisk",
        ],
    ),
    ("Data", &["objects", "journal"]),
    ("Tenants", &["namespaces", "keys"]),
    ("Cluster", &["cluster", "node", "controller", "certificates"]),
    ("Look inside", &["page", "top", "explain", "activations", "metrics", "learn", "llc"]),
    ("Laboratory", &["load", "bench", "check", "experiment", "profile"]),
];
/// The commands of the first page.
const FIRST: [&str; 10] =
    ["up", "status", "init", "dev", "deploy", "invoke", "functions", "logs", "objects", "explain"];
/// Words that users of other tools type first, and what they are here.
const ELSEWHERE: [(&[&str], &str); 7] = [
    (&["list", "ls"], "`nigh functions ls` lists functions, `nigh objects ls` buckets and objects"),
    (&["rm", "delete", "remove"], "`nigh functions rm` removes a function, `nigh objects rm` an object"),
    (&["cp", "cat", "mb", "rb"], "it is a command of `nigh objects`"),
    (&["start", "run", "serve"], "`nigh up` starts a node, `nigh invoke` runs a function"),
    (&["stop"], "`nigh down` stops the node"),
    (&["get", "describe", "show"], "`nigh functions show` shows a function, `nigh status` the node"),
    (
        &["secrets", "credentials", "users", "tenants"],
        "`nigh env` prints the node's addresses and key for other tools; `nigh keys` and `nigh namespaces` manage more",
    ),
];
/// The help's width where the terminal's is unknown, and the most.
const WIDTH_MAX: usize = 100;
/// Columns before and behind a command's name.
const INDENT: usize = 2;

/// How many commands the help lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Those of the first day.
    First,
    /// All.
    All,
}

impl Extent {
    /// What the words of a command line ask for: all if they are `--all` and `--help` alone.
    pub(crate) fn of(words: impl Iterator<Item = OsString>) -> Self {
        let mut extent = Self::First;
        for word in words {
            match word.to_str() {
                Some("--help" | "-h" | "help") => {}
                Some("--all") => extent = Self::All,
                _ => return Self::First,
            }
        }
        extent
    }
}

/// `command` with a help that lists its subcommands by group, in the width of the terminal.
pub(crate) fn grouped(command: Command, extent: Extent) -> Command {
    let width = output::terminal_width().map_or(WIDTH_MAX, |width| width.min(WIDTH_MAX));
    grouped_in(command, extent, width)
}

/// The same in `width` columns.
pub(crate) fn grouped_in(command: Command, extent: Extent, width: usize) -> Command {
    let groups = groups(&command, extent, width);
    let header = command.get_styles().get_header();
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}{header}Options:{header:#}\n{{options}}\
         {{after-help}}"
    );
    command.help_template(template)
}

/// The groups with their commands.
fn groups(command: &Command, extent: Extent, width: usize) -> String {
    let (header, literal) = (command.get_styles().get_header(), command.get_styles().get_literal());
    let is_listed = |name: &&&str| extent == Extent::All || FIRST.contains(*name);
    let names = GROUPS.iter().flat_map(|(_, names)| names.iter());
    let column = INDENT + names.map(|name| name.len()).max().unwrap_or_default() + INDENT;
    let mut text = String::new();
    for (heading, names) in GROUPS {
        let listed: Vec<&&str> = names.iter().filter(is_listed).collect();
        if listed.is_empty() {
            continue;
        }
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{header}{heading}:{header:#}");
        for name in listed {
            let about = command.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string);
            let lines = output::wrap(&about.unwrap_or_default(), width.saturating_sub(column));
            let padding = " ".repeat(column - INDENT - name.len());
            let rest = format!("\n{}", " ".repeat(column));
            let _ = writeln!(text, "  {literal}{name}{literal:#}{padding}{}", lines.join(&rest));
        }
        text.push('\n');
    }
    let _ = match extent {
        Extent::First => {
            writeln!(text, "`nigh --help --all` lists all commands; `nigh COMMAND --help` explains one.\n")
        }
        Extent::All => writeln!(text, "`nigh COMMAND --help` explains one.\n"),
    };
    text
}

/// Tells, in clap's own error about an unknown command, what the word is called here. `command` is the first word that was
/// typed: commands below others have words of their own.
pub(crate) fn add_tip(error: &mut clap::Error, command: Option<&str>) {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return };
    if command != Some(word.as_str()) {
        return;
    }
    let Some((_, tip)) = ELSEWHERE.iter().find(|(words, _)| words.contains(&word.as_str())) else { return };
    let tip = ContextValue::StyledStrs(vec![(*tip).into()]);
    // What is spelt alike is not what was meant.
    error.remove(ContextKind::SuggestedSubcommand);
    error.insert(ContextKind::Suggested, tip);
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::Cli;

    fn help(extent: Extent) -> String {
        grouped_in(Cli::command(), extent, 80).render_help().to_string()
    }

    #[test]
    fn every_command_is_in_one_group_and_every_name_in_a_group_is_a_command() {
        let command = Cli::command();
        let mut commands: Vec<&str> =
            command.get_subcommands().filter(|one| !one.is_hide_set()).map(Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        commands.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, commands);
        assert!(FIRST.iter().all(|name| grouped.contains(name)));
    }

    #[test]
    fn the_first_page_has_ten_commands_and_no_laboratory_and_the_other_has_all() {
        let first = help(Extent::First);
        assert!(first.contains("Functions:") && first.contains("--help --all"), "{first}");
        assert!(!first.contains("Laboratory") && !first.contains("  experiment"), "{first}");
        let all = help(Extent::All);
        for (heading, names) in GROUPS {
            assert!(all.contains(&format!("{heading}:")), "{all}");
            for name in names {
                assert!(all.lines().any(|line| line.trim_start().starts_with(name)), "{name}: {all}");
                assert_eq!(first.contains(&format!("\n  {name} ")), FIRST.contains(name), "{name}: {first}");
            }
        }
        for text in [first, all] {
            let commands = text.lines().take_while(|line| !line.starts_with("Options:"));
            assert!(commands.map(output::visible_width).all(|width| width <= 80), "{text}");
        }
    }

    #[test]
    fn all_commands_are_asked_for_beside_help_alone() {
        let of = |words: &[&str]| Extent::of(words.iter().map(OsString::from));
        for words in [["--help", "--all"], ["--all", "-h"], ["help", "--all"]] {
            assert_eq!(of(&words), Extent::All, "{words:?}");
        }
        for words in [["--help", "up"], ["events", "--all"], ["--help", "--json"]] {
            assert_eq!(of(&words), Extent::First, "{words:?}");
        }
    }

    #[test]
    fn a_word_of_other_tools_is_answered_with_the_command_that_it_is_here() {
        for (word, tip) in [("list", "nigh functions ls"), ("delete", "nigh functions rm"), ("stop", "nigh down")] {
            let mut error = Cli::command().try_get_matches_from(["nigh", word]).unwrap_err();
            add_tip(&mut error, Some(word));
            let text = error.render().to_string();
            assert!(text.contains(tip) && !text.contains("a similar subcommand"), "{text}");
        }
    }
}
