//! The help of every command, word by word, against `docs/reference/commands.md`: who changes a text sees it in the change.

use std::fmt::Write as _;
use std::path::Path;

use clap::{Command, CommandFactory as _};

use super::{Extent, grouped_in};
use crate::Cli;

/// The terminal's width.
const WIDTH: usize = 100;
/// Words are wrapped; a long word or a line of usage may be a little wider.
const LINE_MAX: usize = 110;
/// The variable that has the page written.
const WRITE: &str = "NIGH_TEST_WRITE_REFERENCE";
const HEAD: &str = "# Commands

<!-- Generated from the commands' help: NIGH_TEST_WRITE_REFERENCE=1 cargo test -p nigh reference -->

What `nigh COMMAND --help` prints. The laboratory's commands (`load`, `bench`, `check`, `experiment`, `profile`) have help of
their own: `nigh experiment --help`; [the laboratory](../laboratory.md).
";

/// All help texts, each with the words that it is the help of.
fn texts() -> Vec<(String, String)> {
    let first = printed(grouped_in(Cli::command().term_width(WIDTH), Extent::First, WIDTH), &["nigh"]);
    let all = grouped_in(Cli::command().term_width(WIDTH), Extent::All, WIDTH).render_help().to_string();
    let mut texts = vec![("nigh --help".to_owned(), first), ("nigh --help --all".to_owned(), all)];
    add(&Cli::command(), &["nigh"], &mut texts);
    texts
}

/// What the words and `--help` print.
fn printed(command: Command, words: &[&str]) -> String {
    let asked = words.iter().copied().chain(["--help"]);
    command.try_get_matches_from(asked).unwrap_err().render().to_string()
}

/// Adds those of the commands below `command`. The laboratory's are its own program's.
fn add(command: &Command, words: &[&str], texts: &mut Vec<(String, String)>) {
    let own =
        |below: &&Command| !below.is_hide_set() && !below.is_disable_help_flag_set() && below.get_name() != "help";
    for below in command.get_subcommands().filter(own) {
        let words = [words, &[below.get_name()]].concat();
        texts.push((words.join(" "), printed(Cli::command().term_width(WIDTH), &words)));
        add(below, &words, texts);
    }
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    for (words, text) in texts() {
        let lines: Vec<&str> = text.trim_end().lines().map(str::trim_end).collect();
        let _ = write!(page, "\n## {words}\n```text\n{}\n```\n", lines.join("\n"));
    }
    page
}

#[test]
fn the_reference_of_commands_is_what_their_help_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/commands.md");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), page(), "{WRITE}=1 writes the page anew");
}

#[test]
fn every_help_text_fits_a_terminal_and_says_what_its_command_does() {
    for (words, text) in texts() {
        let wide = text.lines().find(|line| line.chars().count() > LINE_MAX);
        assert!(wide.is_none(), "{words}: {wide:?}");
        assert!(text.starts_with(char::is_uppercase) && text.contains("Usage: nigh"), "{words}: {text}");
    }
}
