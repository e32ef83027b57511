//! The help of every command, word by word, against the files of `tests/help`: who changes a text sees it in the change.
//! `NIGH_TEST_WRITE_HELP=1 cargo test -p nigh snapshots` writes the files anew.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory as _};

use super::{Extent, grouped_in};
use crate::Cli;

/// The terminal's width.
const WIDTH: usize = 100;
/// Words are wrapped; a long word or a line of usage may be a little wider.
const LINE_MAX: usize = 110;
/// The variable that has the files written.
const WRITE: &str = "NIGH_TEST_WRITE_HELP";

/// All help texts by the names of their files.
fn texts() -> BTreeMap<String, String> {
    let mut texts = BTreeMap::new();
    for (name, extent) in [("nigh", Extent::First), ("nigh-all", Extent::All)] {
        let mut command = grouped_in(Cli::command().term_width(WIDTH), extent, WIDTH);
        texts.insert(format!("{name}.txt"), command.render_long_help().to_string());
    }
    let mut root = Cli::command().term_width(WIDTH);
    root.build();
    add(&root, "nigh", &mut texts);
    texts
}

/// Adds those of the commands below `command`. The laboratory's are its own program's.
fn add(command: &Command, name: &str, texts: &mut BTreeMap<String, String>) {
    let own =
        |below: &&Command| !below.is_hide_set() && !below.is_disable_help_flag_set() && below.get_name() != "help";
    for below in command.get_subcommands().filter(own) {
        let name = format!("{name}-{}", below.get_name());
        texts.insert(format!("{name}.txt"), below.clone().term_width(WIDTH).render_long_help().to_string());
        add(below, &name, texts);
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help")
}

#[test]
fn every_help_text_is_as_it_was_read_last() {
    let texts = texts();
    if std::env::var_os(WRITE).is_some() {
        let _absent = std::fs::remove_dir_all(folder());
        std::fs::create_dir_all(folder()).unwrap();
        for (name, text) in &texts {
            std::fs::write(folder().join(name), text).unwrap();
        }
    }
    let files = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap());
    let stored: BTreeMap<String, String> = files
        .map(|file| (file.file_name().into_string().unwrap(), std::fs::read_to_string(file.path()).unwrap()))
        .collect();
    let names = |texts: &BTreeMap<String, String>| texts.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&texts), names(&stored), "{WRITE}=1 writes the files anew");
    for (name, text) in &texts {
        assert_eq!(text, &stored[name], "{name}; {WRITE}=1 writes the files anew");
    }
}

#[test]
fn every_help_text_fits_a_terminal_and_says_what_its_command_does() {
    for (name, text) in texts() {
        let wide = text.lines().find(|line| line.chars().count() > LINE_MAX);
        assert!(wide.is_none(), "{name}: {wide:?}");
        assert!(text.starts_with(char::is_uppercase) && text.contains("Usage: nigh"), "{name}: {text}");
    }
}
