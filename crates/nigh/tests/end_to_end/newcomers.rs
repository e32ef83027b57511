//! The errors that newcomers meet before any node runs, word by word: who changes one sees it in the change.

use std::fs;
use std::path::Path;

use crate::platform::{NIGH, quiet};

/// Each command as it is typed, with what it prints on standard error and its exit code.
const ERRORS: &str = "tests/end_to_end/newcomers.txt";
/// The variable that has the page written.
const WRITE: &str = "NIGH_TEST_WRITE_REFERENCE";
/// The fewest commands that the page has.
const COMMANDS_MIN: usize = 50;

/// What lies in the folder in which the commands are typed.
const FILES: [(&str, &str); 7] = [
    ("py/main.py", "def handle(event, context):\n    return 1\n"),
    ("typo/main.py", "def handle(event, context):\n    return 1\n"),
    ("typo/nigh.toml", "[function]\nmemroy = 1\n"),
    ("broken/nigh.toml", "[function\nname = 1\n"),
    ("event.json", "{\"a\": "),
    ("template.yaml", "Resources: [\n"),
    ("list.yaml", "- a\n"),
];

/// What `typed` prints on standard error in `folder`, and its exit code, as the page has them.
fn answered(folder: &Path, typed: &str) -> String {
    let own = Path::new(NIGH).parent().unwrap().display().to_string();
    let mut shell = quiet(Path::new("sh"));
    shell.args(["-c", typed]).current_dir(folder).env("NIGH_STATE", folder.join("state"));
    let output = shell.env("PATH", format!("{own}:/usr/bin:/bin")).output().unwrap();
    assert!(output.stdout.is_empty(), "{typed}: {}", String::from_utf8_lossy(&output.stdout));
    let words = String::from_utf8(output.stderr).unwrap().replace(folder.to_str().unwrap(), "FOLDER");
    format!("$ {typed}\n{words}[{}]\n", output.status.code().unwrap())
}

#[test]
fn the_errors_that_newcomers_meet_are_these() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    for (name, text) in FILES {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(ERRORS);
    let written = fs::read_to_string(&page).unwrap();
    let typed: Vec<&str> = written.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    assert!(typed.len() >= COMMANDS_MIN, "{} commands", typed.len());
    let printed: Vec<String> = typed.iter().map(|typed| answered(&folder, typed)).collect();
    let printed = printed.join("\n");
    if std::env::var_os(WRITE).is_some() {
        fs::write(&page, &printed).unwrap();
    }
    assert_eq!(fs::read_to_string(&page).unwrap(), printed, "{WRITE}=1 writes the page anew");
}
