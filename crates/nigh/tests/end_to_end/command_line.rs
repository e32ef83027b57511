//! The command line's face: what `nigh` says of itself, of a node and of the machine, to people and to programs.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::platform::{NIGH, Node, command, python, quiet, wait_for};

/// The documented form of lists.
const FORMS: &str = include_str!("../../../../docs/reference/json.md");

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

/// `script`, run by a shell that finds `nigh` and the node of `state`.
fn shell(state: &Path, script: &str) -> Output {
    let own = Path::new(NIGH).parent().unwrap().display().to_string();
    let mut shell = quiet(Path::new("bash"));
    shell.args(["-c", script]).env("NIGH_STATE", state).env("PATH", format!("{own}:/usr/bin:/bin"));
    shell.output().unwrap()
}

#[test]
fn nigh_alone_says_what_it_is_whether_a_node_runs_and_the_next_command() {
    let folder = tempfile::tempdir().unwrap();
    let alone = command(folder.path()).output().unwrap();
    assert_eq!(code(&alone), 0, "{alone:?}");
    let words = text(&alone.stdout);
    for part in ["runs AWS Lambda functions", "No node runs", "Next: nigh up", "nigh --help"] {
        assert!(words.contains(part), "{part}: {words}");
    }
    let shown: Value = serde_json::from_slice(&command(folder.path()).arg("--json").output().unwrap().stdout).unwrap();
    assert_eq!((&shown["running"], &shown["next"]), (&json!(false), &json!("nigh up")));

    let Some(python) = python("nigh_alone_says_what_it_is_whether_a_node_runs_and_the_next_command") else { return };
    let node = Node::start(&python);
    let words = node.ok::<&str>([]);
    let s3 = node.endpoints()["s3"].as_str().unwrap().to_owned();
    assert!(words.contains(&s3) && words.contains("Next: nigh deploy"), "{words}");
    node.deploy("f");
    assert!(node.ok::<&str>([]).contains("Next: nigh invoke"));
}

#[test]
fn help_has_groups_and_all_of_them_where_that_is_asked_for() {
    let help = |words: &[&str]| {
        let output = quiet(Path::new(NIGH)).args(words).output().unwrap();
        assert_eq!(code(&output), 0, "{words:?}");
        text(&output.stdout)
    };
    let first = help(&["--help"]);
    assert!(first.contains("Run a node:") && !first.contains("Laboratory:"), "{first}");
    assert!(help(&["help"]).contains("Run a node:") && help(&["-h"]).contains("Run a node:"));
    let all = help(&["--help", "--all"]);
    assert!(all.contains("Laboratory:") && all.contains("  experiment"), "{all}");
}

#[test]
fn exit_codes_are_those_that_the_help_names() {
    let folder = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| code(&command(folder.path()).args(words).output().unwrap());
    let cases: [(&[&str], i32); 12] = [
        (&["config", "check"], 0),
        (&["--version"], 0),
        (&["completions", "bash"], 0),
        (&["__complete", "--", "invoke", ""], 0),
        (&["up", "--set", "cache.byts=1"], 1),
        (&["objects", "mb"], 2),
        (&["objects", "mb", "No"], 2),
        (&["no-such-command"], 2),
        (&["status"], 3),
        (&["env"], 3),
        (&["functions", "ls"], 3),
        (&["down"], 3),
    ];
    for (words, expected) in cases {
        assert_eq!(run(words), expected, "{words:?}");
    }
    std::fs::write(folder.path().join("nigh.toml"), "[functions]\nkeep_alive = 60\nmemroy = \"1 GiB\"\n").unwrap();
    assert_eq!(run(&["config", "check"]), 1);
    assert_eq!(run(&["doctor"]), 1, "no command works with such settings");
}

#[test]
fn all_faults_of_the_settings_are_told_at_once_and_a_broken_file_shows_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nigh.toml");
    let check = || command(folder.path()).args(["config", "check"]).output().unwrap();
    std::fs::write(&file, "[functions]\nkeep_alive = 60\nsandboxes_max = \"many\"\n").unwrap();
    let told = text(&check().stdout);
    assert!(told.contains("functions.keep_alive") && told.contains("functions.sandboxes_max"), "{told}");
    assert_eq!(told.lines().count(), 2, "{told}");
    std::fs::write(&file, "[functions\n").unwrap();
    let refused = command(folder.path()).arg("status").output().unwrap();
    let told = text(&refused.stderr);
    assert!(told.starts_with("nigh: configuration file") && told.lines().any(|line| line.contains('^')), "{told}");
    let mut variable = command(folder.path());
    variable.env("NIGH_PYTHON", "x").args(["config", "check", "--config", "/dev/null"]);
    let told = text(&variable.output().unwrap().stdout);
    assert!(told.contains("NIGH_FUNCTIONS__PYTHON"), "{told}");
}

#[test]
fn a_second_node_is_told_that_one_runs_and_how_to_look_at_it() {
    let Some(python) = python("a_second_node_is_told_that_one_runs_and_how_to_look_at_it") else { return };
    let node = Node::start(&python);
    let second = command(&node.state).args(["up", "--s3-listen", "127.0.0.1:0"]).output().unwrap();
    let words = text(&second.stderr);
    assert_eq!(code(&second), 1);
    let endpoints = node.endpoints();
    for part in [
        "another Nigh is running at",
        &format!("process {}", node.process_id()),
        endpoints["s3"].as_str().unwrap(),
        "`nigh status`",
        "`nigh down`",
        "--state FOLDER",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
    assert_eq!(words.lines().count(), 1, "{words}");
}

#[test]
fn a_shell_takes_the_variables_of_a_node_and_drops_them_again() {
    let Some(python) = python("a_shell_takes_the_variables_of_a_node_and_drops_them_again") else { return };
    let node = Node::start(&python);
    let printed = shell(&node.state, "eval \"$(nigh env)\"; env; eval \"$(nigh env --unset)\"; echo ---; env");
    assert!(printed.status.success(), "{printed:?}");
    let printed = text(&printed.stdout);
    let (with, without) = printed.split_once("---\n").unwrap();
    let expected = node.sdk_environment();
    for name in [
        "AWS_ENDPOINT_URL_S3",
        "AWS_ENDPOINT_URL_LAMBDA",
        "AWS_ENDPOINT_URL_SFN",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
    ] {
        let value = &expected.iter().find(|(known, _)| known == name).unwrap().1;
        assert!(with.lines().any(|line| line == format!("{name}={value}")), "{name}: {with}");
        assert!(!without.contains(&format!("{name}=")), "{name}: {without}");
    }
    let shown = node.json(["env"]);
    assert_eq!(shown["AWS_ENDPOINT_URL_S3"], node.endpoints()["s3"]);
}

#[test]
fn verbs_take_several_names_and_buckets_need_no_scheme() {
    let Some(python) = python("verbs_take_several_names_and_buckets_need_no_scheme") else { return };
    let node = Node::start(&python);
    node.ok(["objects", "mb", "one", "two"]);
    for (key, content) in [("a", "1"), ("b/c", "2")] {
        let file = node.state.with_file_name("file");
        std::fs::write(&file, content).unwrap();
        node.ok(["objects", "cp", file.to_str().unwrap(), &format!("nigh://one/{key}")]);
    }
    assert_eq!(node.ok(["objects", "cat", "one/a", "one/b/c"]), "12");
    assert!(node.ok(["objects", "list", "one"]).contains("b/"));
    assert_eq!(node.ok(["--json", "objects", "ls", "one", "--recursive", "--limit", "1"]).lines().count(), 1);
    let full = node.nigh(["objects", "rb", "one"]);
    assert_eq!(code(&full), 1);
    assert!(text(&full.stderr).contains("--force"), "{full:?}");
    node.ok(["objects", "delete", "one/a", "one/absent"]);
    node.ok(["objects", "rb", "one", "two", "--force"]);
    assert_eq!(node.ok(["--json", "objects", "ls"]), "");
    let local = node.nigh(["objects", "cp", "t.csv", "sales/t.csv"]);
    assert!(text(&local.stderr).contains("nigh://sales/t.csv"), "{local:?}");

    for name in ["f", "g", "h"] {
        node.deploy(name);
    }
    assert_eq!(node.json(["functions", "ls", "g"])[0]["FunctionName"], "g");
    assert_eq!(node.json(["functions", "ls", "--limit", "2"]).as_array().unwrap().len(), 2);
    assert_eq!(node.json(["functions", "ls", "--runtime", "ruby"]), json!([]));
    assert_eq!(node.ok(["functions", "rm", "f", "g"]), "removed f\nremoved g\n");
    let gone = node.nigh(["--json", "functions", "delete", "h", "absent"]);
    assert_eq!(code(&gone), 1);
    assert!(text(&gone.stderr).contains("already removed: h"), "{gone:?}");
    for words in [&["functions", "rm", "absent"][..], &["functions", "show", "absent"], &["invoke", "absent"]] {
        let missing = node.nigh(words);
        let told = "nigh: there is no function absent; `nigh functions ls` lists them\n";
        assert_eq!((code(&missing), text(&missing.stderr)), (1, told.to_owned()), "{words:?}");
    }
    let list = node.nigh(["list"]);
    assert_eq!(code(&list), 2);
    assert!(text(&list.stderr).contains("nigh functions ls"), "{list:?}");
}

/// The documented fields of a list's entries.
fn documented(list: &str) -> Vec<&'static str> {
    let row = FORMS.lines().find(|line| line.starts_with(&format!("| `{list}` |"))).unwrap_or_else(|| panic!("{list}"));
    let fields = row.split('|').nth(3).unwrap();
    fields.split('`').skip(1).step_by(2).collect()
}

/// The first entry of a list has the documented fields.
pub(crate) fn has_its_form(list: &str, entry: &Value) {
    for field in documented(list).into_iter().filter(|field| *field != "prefix") {
        assert!(entry.get(field).is_some(), "{list} has no {field}: {entry}");
    }
}

#[test]
fn lists_for_programs_have_their_documented_form() {
    let Some(python) = python("lists_for_programs_have_their_documented_form") else { return };
    let mut node = Node::start(&python);
    node.ok(["objects", "mb", "data"]);
    node.ok(["objects", "cp", node.state.join("endpoints.json").to_str().unwrap(), "nigh://data/a"]);
    node.deploy("f");
    node.json(["invoke", "f"]);
    node.ok(["invoke", "f", "{}", "--event"]);
    let machine = node.state.with_file_name("machine.json");
    std::fs::write(&machine, r#"{"StartAt": "A", "States": {"A": {"Type": "Pass", "End": true}}}"#).unwrap();
    node.ok(["workflow", "create", "wf", machine.to_str().unwrap()]);
    node.ok(["workflow", "start", "wf", "--watch"]);
    node.ok(["deploy", "f", "--every", "1 h"]);

    let documents: [(&str, &[&str]); 10] = [
        ("keys ls", &["keys", "ls"]),
        ("namespaces ls", &["namespaces", "ls"]),
        ("schedules ls", &["schedules", "ls"]),
        ("activations", &["activations"]),
        ("functions ls", &["functions", "ls"]),
        ("workflow ls", &["workflow", "ls"]),
        ("workflow ls NAME", &["workflow", "ls", "wf"]),
        ("config show", &["config", "show", "functions"]),
        ("doctor", &[]),
        ("metrics", &["metrics"]),
    ];
    for (list, words) in documents {
        // The doctor's exit code depends on the machine.
        let found = match words {
            [] => serde_json::from_slice(&node.nigh(["--json", "doctor"]).stdout).unwrap(),
            words => node.json(words),
        };
        has_its_form(list, found.get(0).unwrap_or_else(|| panic!("{list} is empty: {found}")));
    }
    let lines: [(&str, &[&str]); 3] = [
        ("objects ls", &["objects", "ls"]),
        ("objects ls BUCKET", &["objects", "ls", "data"]),
        ("logs", &["logs", "f"]),
    ];
    for (list, words) in lines {
        let printed = node.ok([&["--json"], words].concat());
        has_its_form(list, &serde_json::from_str(printed.lines().next().unwrap()).unwrap());
    }
    let alone = node.json::<&str>([]);
    for field in ["version", "state", "running", "endpoints", "next"] {
        assert!(alone.get(field).is_some(), "{field}: {alone}");
    }
    assert!(node.json(["config", "check"])["faults"].is_array());
    assert!(node.json(["events", "ls"])["events"].is_array());

    node.terminate();
    assert_eq!(node.exit_code(), Some(0));
    let journal = node.json(["journal", "ls", "--all", "--limit", "1"]);
    if let Some(entry) = journal.get(0) {
        has_its_form("journal ls", entry);
    }
}

#[test]
fn the_doctor_finds_what_the_node_finds_and_leaves_nothing() {
    let Some(python) = python("the_doctor_finds_what_the_node_finds_and_leaves_nothing") else { return };
    let node = Node::start(&python);
    let checked = node.nigh(["--json", "doctor"]);
    let found: Value = serde_json::from_slice(&checked.stdout).unwrap();
    let of = |name: &str| found.as_array().unwrap().iter().find(|one| one["check"] == name).unwrap().clone();
    let is_broken = found.as_array().unwrap().iter().any(|one| one["verdict"] == "broken");
    assert_eq!(code(&checked), i32::from(is_broken), "{found}");
    for one in found.as_array().unwrap() {
        assert_eq!(one["verdict"] != "ok", one["cost"].is_string(), "a lack has a cost: {one}");
    }
    let status = node.json(["status"]);
    let levels = status["levels"].as_array().unwrap();
    let level = |name: &str| levels.iter().find(|level| level["name"] == name).unwrap().clone();
    let isolation = level("isolation")["detail"].as_str().unwrap().to_owned();
    let kind = if of("isolation")["found"].as_str().unwrap().starts_with("runc") { "runc" } else { "process" };
    assert!(isolation.starts_with(kind), "{isolation}: {found}");
    assert_eq!(of("cache ways")["verdict"] == "ok", level("cache ways")["on"] == true, "{found}");
    assert!(of("node")["found"].as_str().unwrap().contains("runs"), "{found}");
    assert_eq!(of("addresses")["verdict"], "ok", "its own addresses are not taken from it");

    let only = node.nigh(["--json", "doctor", "--faults"]);
    let only: Value = serde_json::from_slice(&only.stdout).unwrap();
    assert!(only.as_array().unwrap().iter().all(|one| one["verdict"] != "ok"), "{only}");
    // Another test may have its own doctor just now.
    wait_for("the folders of the doctors to go", || {
        let mut entries = std::fs::read_dir("/run").unwrap().filter_map(Result::ok);
        !entries.any(|entry| entry.file_name().to_string_lossy().starts_with("nigh-doctor"))
    });
}

#[test]
fn names_are_completed_as_the_node_knows_them() {
    let Some(python) = python("names_are_completed_as_the_node_knows_them") else { return };
    let node = Node::start(&python);
    node.ok(["objects", "mb", "pictures", "sounds"]);
    let file = node.state.join("endpoints.json");
    node.ok(["objects", "cp", file.to_str().unwrap(), "nigh://pictures/cats/a.png"]);
    node.ok(["objects", "cp", file.to_str().unwrap(), "nigh://pictures/a b;c"]);
    node.deploy("blur");
    let id = node.json(["invoke", "blur"])["id"].as_str().unwrap().to_owned();
    let complete = |words: &[&str]| node.ok([&["__complete", "--"], words].concat());
    assert_eq!(complete(&["invoke", "bl"]), "blur\n");
    assert_eq!(complete(&["functions", "rm", ""]), "blur\n");
    assert_eq!(complete(&["objects", "ls", "p"]), "pictures/\n");
    assert_eq!(
        complete(&["objects", "cat", "pictures/"]),
        "pictures/cats/\n",
        "a key that a shell would run is not told"
    );
    assert_eq!(complete(&["objects", "cp", "nigh://pictures/cats/"]), "nigh://pictures/cats/a.png\n");
    assert_eq!(complete(&["explain", ""]), format!("{id}\n"));
    assert_eq!(complete(&["config", "show", "functions.pyt"]), "functions.python\n");
    let script = "source <(nigh completions bash); COMP_WORDS=(nigh invoke b); COMP_CWORD=2; \
                  _nigh_named nigh b invoke; echo \"${COMPREPLY[@]}\"";
    assert_eq!(text(&shell(&node.state, script).stdout), "blur\n");
    // No node, no names, no failure.
    let nowhere = tempfile::tempdir().unwrap();
    let none = Command::new(NIGH).args(["__complete", "--", "invoke", ""]).env("NIGH_STATE", nowhere.path()).output();
    assert_eq!((code(none.as_ref().unwrap()), none.unwrap().stdout.len()), (0, 0));
}
