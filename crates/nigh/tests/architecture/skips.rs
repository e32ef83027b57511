//! Tests that cannot run on a machine: how they say so, and which of them may.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::skipped::skip;
use crate::{each_file, each_source};

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What a skipped test's line begins with: not in one piece, which a test below looks for.
fn mark() -> String {
    ["SKIPPED", ": "].concat()
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// The name and the lines of each test function of a file.
fn tests_of(text: &str) -> Vec<(String, Vec<&str>)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut tests = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let line = line.trim_start();
        if !line.starts_with("#[test]") && !line.starts_with("#[tokio::test") {
            continue;
        }
        let body: Vec<&str> = lines[at..].iter().copied().skip_while(|line| !line.contains("fn ")).collect();
        let head = body[0];
        let name = head.split_once("fn ").unwrap().1.split('(').next().unwrap().to_owned();
        let end = body.iter().position(|line| indent(line) == indent(head) && line.trim() == "}").unwrap_or(0);
        tests.push((name, body[..=end].to_vec()));
    }
    tests
}

/// A helper that decides whether a test can run gets the test's name, for `skip`.
#[test]
fn a_test_that_returns_early_says_that_it_is_skipped_by_its_own_name() {
    let mut faults = Vec::new();
    each_source(&project().join("crates"), &mut |path, text| {
        for (name, lines) in tests_of(text) {
            let body = lines.join("\n");
            let names_itself = body.contains(&format!("\"{name}\""));
            // Deeper ones end a loop that waits, whose test panics behind it.
            let returns = lines.iter().any(|line| {
                let ends = line.trim() == "return;" || line.trim_end().ends_with("else { return };");
                ends && indent(line) <= indent(lines[0]) + 8
            });
            let is_parent = body.contains("std::env::var") || body.contains("wait_with_output");
            if returns && !names_itself && !is_parent {
                faults.push(format!("{}: {name} returns early and does not name itself", path.display()));
            }
            let other = body.split("let test = \"").nth(1).and_then(|rest| rest.split('"').next());
            if other.is_some_and(|other| other != name) {
                faults.push(format!("{}: {name} calls itself {}", path.display(), other.unwrap_or_default()));
            }
        }
    });
    assert!(faults.is_empty(), "{faults:#?}");
}

/// Only `skip` looks at what may skip: whoever prints the line himself passes where he must run.
#[test]
fn tests_skip_through_one_function_of_their_language() {
    let project = project();
    let mut faults = Vec::new();
    let line = format!("\"{}", mark());
    for folder in ["crates", "fuzz", "tests"] {
        each_source(&project.join(folder), &mut |path, text| {
            // The command is no test; who runs it reads its line in the log.
            let may = path.ends_with("tests/skipped.rs") || path.ends_with("nigh-lab/src/check.rs");
            if text.contains(&line) && !may {
                faults.push(path.display().to_string());
            }
        });
    }
    for folder in ["experiments", "functions", "integrations", "runtimes", "tests"] {
        each_file(&project.join(folder), "py", &mut |path, text| {
            let ways = [mark(), "skipTest(".to_owned(), "SkipTest".to_owned(), "unittest.skip".to_owned()];
            let own = ["tests/skipped.py", "tests/test_skipped.py"].iter().any(|name| path.ends_with(name));
            if ways.iter().any(|way| text.contains(way)) && !own {
                faults.push(path.display().to_string());
            }
        });
    }
    assert!(faults.is_empty(), "call skip of tests/skipped.rs or tests/skipped.py instead: {faults:#?}");
}

#[test]
fn what_may_skip_is_a_test() {
    let mut code = String::new();
    each_source(&project().join("crates"), &mut |_, text| code.push_str(text));
    each_file(&project().join("tests"), "py", &mut |_, text| code.push_str(text));
    let listed = std::fs::read_to_string(project().join(".ci/may-skip")).unwrap();
    let names = listed.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_whitespace().next());
    for name in names {
        assert!(
            ["fn", "class"].iter().any(|word| code.contains(&format!("{word} {name}("))),
            ".ci/may-skip names a test that is not there: {name}"
        );
    }
}

#[test]
#[ignore = "the test below runs it as a process of its own"]
fn the_test_that_skips() {
    skip("the_test_that_skips", "it was told to");
}

#[test]
fn a_test_that_would_skip_and_is_not_listed_fails_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let run = |listed: Option<&str>| {
        let mut test = Command::new(std::env::current_exe().unwrap());
        test.args(["--exact", "skips::the_test_that_skips", "--ignored", "--show-output"])
            .env_remove("NIGH_TEST_MAY_SKIP");
        if let Some(text) = listed {
            let file = folder.path().join("may-skip");
            std::fs::write(&file, text).unwrap();
            test.env("NIGH_TEST_MAY_SKIP", file);
        }
        let ended = test.output().unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        assert!(said.contains(&format!("{}the_test_that_skips: it was told to", mark())), "{said}");
        (ended.status.success(), said)
    };
    assert!(run(None).0 && run(Some("another no-go\nthe_test_that_skips child\n")).0);
    for others in ["", "another the_test_that_skips\n", "the_test_that_skips_too\n"] {
        let (passed, said) = run(Some(others));
        assert!(!passed && said.contains("must run here and cannot: it was told to"), "{said}");
    }
}
