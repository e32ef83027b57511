//! Project folders: what `nigh init` writes deploys, answers and passes its test; what cannot work is refused with the
//! way out, and changes nothing.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::platform::{Node, command, python, wait_for};
use crate::skipped::skip;

/// Runs the command in `folder`.
fn nigh_in(node: &Node, folder: &Path, arguments: &[&str]) -> Output {
    command(&node.state).current_dir(folder).args(arguments).output().unwrap()
}

/// The same; it must succeed. What it prints.
fn ok_in(node: &Node, folder: &Path, arguments: &[&str]) -> String {
    let output = nigh_in(node, folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What it says on standard error when it fails with `code`.
fn refused_in(node: &Node, folder: &Path, arguments: &[&str], code: i32) -> String {
    let output = nigh_in(node, folder, arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    said.trim_end().to_owned()
}

/// Whether a Node.js that runs handlers is in `PATH`.
pub(crate) fn has_node_js() -> bool {
    let Ok(said) = Command::new("node").arg("--version").output() else { return false };
    let version = String::from_utf8_lossy(&said.stdout).into_owned();
    let major = version.trim_start_matches('v').split('.').next().and_then(|major| major.parse::<u32>().ok());
    major.is_some_and(|major| major >= 20)
}

/// A folder beside the node's state.
fn beside(node: &Node, name: &str) -> PathBuf {
    let folder = node.state.with_file_name(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// A project of this template, which is its function's name, too.
pub(crate) fn made(node: &Node, template: &str) -> PathBuf {
    let parent = beside(node, "projects");
    let said = ok_in(node, &parent, &["init", template, "--template", template]);
    for part in ["nigh.toml", "\nNext: cd ", "`nigh dev`", "`nigh deploy`"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    parent.join(template)
}

/// Runs a program in the folder; it must succeed.
fn run_in(folder: &Path, command: &mut Command) {
    let output = command.current_dir(folder).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}\n{}", String::from_utf8_lossy(&output.stdout));
}

/// Invokes the project's function with its event: the answer.
fn try_out(node: &Node, name: &str, folder: &Path) -> Value {
    let event = format!("@{}", folder.join("event.json").display());
    node.json(["invoke", name, &event])["payload"].clone()
}

/// Deploys the project twice, the second time without a change, and gives the answer to its event.
fn deployed_and_tried(node: &Node, name: &str, folder: &Path) -> Value {
    let plan = ok_in(node, folder, &["deploy", "--dry-run"]);
    assert!(plan.starts_with(&format!("{name} is new:\n  + runtime ")), "{plan}");
    assert!(!node.ok(["functions", "list"]).contains(name), "a dry run deploys nothing");
    let deployed = ok_in(node, folder, &["deploy"]);
    assert!(deployed.contains(&format!("deployed {name}: ")), "{deployed}");
    assert!(ok_in(node, folder, &["deploy"]).contains(&format!("unchanged {name}: ")));
    assert_eq!(ok_in(node, folder, &["deploy", "--dry-run"]), format!("{name} does not change\n"));
    try_out(node, name, folder)
}

/// The body of the answer to `GET path` at the Lambda door.
fn get(node: &Node, path: &str) -> String {
    let url = node.endpoints()["lambda"].as_str().unwrap().to_owned();
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn every_python_template_deploys_answers_its_event_and_passes_its_own_test() {
    let test = "every_python_template_deploys_answers_its_event_and_passes_its_own_test";
    let Some(python) = python(test) else { return };
    let node = Node::start(&python);
    node.ok(["objects", "mb", "nigh://inbox"]);
    let folder = |template: &str| {
        let folder = made(&node, template);
        run_in(&folder, Command::new(&python).args(["-B", "-m", "unittest"]));
        folder
    };

    assert_eq!(deployed_and_tried(&node, "python", &folder("python")), json!({ "greeting": "Hello, Ada!" }));

    let counts = folder("python-s3");
    let text = counts.join("README.md");
    node.ok(["objects", "cp", text.to_str().unwrap(), "nigh://inbox/python-s3/hello.txt"]);
    let counted = deployed_and_tried(&node, "python-s3", &counts);
    assert_eq!((&counted[0]["key"], &counted[0]["lines"]), (&json!("python-s3/hello.txt"), &json!(5)));
    node.ok(["objects", "cp", text.to_str().unwrap(), "nigh://inbox/python-s3/again.txt"]);
    let result = "nigh://inbox/counts-of-python-s3/again.txt.json";
    wait_for("the new object to be counted", || node.nigh(["objects", "cp", result, "-"]).status.success());

    let steps = folder("workflow");
    let words = deployed_and_tried(&node, "workflow", &steps);
    assert_eq!(words, json!(["to", "be", "or", "not", "to", "be"]));
    let ran = node.ok(["workflow", "start", "workflow", r#"{"text": "a b a"}"#, "--watch"]);
    let counted: Value = serde_json::from_str(ran.trim_end().lines().last().unwrap()).unwrap();
    assert_eq!(counted, json!({ "a": 2, "b": 1 }), "{ran}");

    let answer = deployed_and_tried(&node, "http", &folder("http"));
    assert_eq!(answer["statusCode"], 200, "{answer}");
    let url = ok_in(&node, &node.state.with_file_name("projects/http"), &["deploy"]);
    let id = url.strip_prefix("http://").unwrap().split('.').next().unwrap();
    let answer = get(&node, &format!("/lambda-url/{id}/?name=Bob"));
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(r#"{"greeting": "Hello, Bob!"}"#), "{answer}");
}

#[test]
fn the_node_template_deploys_answers_its_event_and_passes_its_own_test() {
    let test = "the_node_template_deploys_answers_its_event_and_passes_its_own_test";
    let Some(python) = python(test) else { return };
    if !has_node_js() {
        skip(test, "there is no Node.js 20 or later");
        return;
    }
    let node = Node::start(&python);
    let folder = made(&node, "node");
    run_in(&folder, Command::new("node").arg("--test"));
    assert_eq!(deployed_and_tried(&node, "node", &folder), json!({ "greeting": "Hello, Ada!" }));
    // An error of the handler is the function's.
    fs::write(folder.join("index.mjs"), "export const handler = async () => { throw new TypeError('no'); };\n")
        .unwrap();
    ok_in(&node, &folder, &["deploy"]);
    let failed: Value = serde_json::from_slice(&node.nigh(["--json", "invoke", "node"]).stdout).unwrap();
    assert_eq!(
        (&failed["payload"]["errorType"], &failed["payload"]["errorMessage"]),
        (&json!("TypeError"), &json!("no"))
    );
}

#[test]
fn the_go_template_deploys_answers_its_event_and_passes_its_own_test() {
    let test = "the_go_template_deploys_answers_its_event_and_passes_its_own_test";
    let Some(python) = python(test) else { return };
    if Command::new("go").arg("version").output().is_err() {
        skip(test, "there is no Go");
        return;
    }
    let node = Node::start(&python);
    let folder = made(&node, "go");
    run_in(&folder, Command::new("go").args(["test", "./..."]).env("CGO_ENABLED", "0"));
    assert_eq!(deployed_and_tried(&node, "go", &folder), json!({ "greeting": "Hello, Ada!" }));
}

#[test]
fn the_rust_template_deploys_answers_its_event_and_passes_its_own_test() {
    let test = "the_rust_template_deploys_answers_its_event_and_passes_its_own_test";
    let Some(python) = python(test) else { return };
    let node = Node::start(&python);
    let folder = made(&node, "rust");
    // Kept between runs: what it depends on is built once.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rust-template");
    for verb in ["build", "test"] {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.arg(verb).env("CARGO_TARGET_DIR", &target).env("CARGO_PROFILE_DEV_DEBUG", "0");
        // Its lints are its own.
        run_in(&folder, cargo.env_remove("RUSTC_WORKSPACE_WRAPPER").env_remove("CLIPPY_ARGS"));
    }
    fs::copy(target.join("debug/bootstrap"), folder.join("bootstrap")).unwrap();
    assert_eq!(deployed_and_tried(&node, "rust", &folder), json!({ "greeting": "Hello, Ada!" }));
}

#[test]
fn a_deployment_shows_what_changes_and_sends_only_that() {
    let Some(python) = python("a_deployment_shows_what_changes_and_sends_only_that") else { return };
    let node = Node::start(&python);
    node.ok(["objects", "mb", "nigh://photos"]);
    let folder = made(&node, "python");
    ok_in(&node, &folder, &["deploy"]);
    let before = node.json(["functions", "show", "python"]);

    let mut text = fs::read_to_string(folder.join("nigh.toml")).unwrap().replace("memory = 128", "memory = 256");
    text.push_str("\n[[function.trigger]]\nbucket = \"photos\"\nprefix = \"in/\"\n");
    fs::write(folder.join("nigh.toml"), &text).unwrap();
    let plan = "python changes:\n  ~ memory   128 MiB -> 256 MiB\n  + trigger  photos/in/\n";
    assert_eq!(ok_in(&node, &folder, &["deploy", "--dry-run"]), plan);
    let listed = ok_in(&node, &folder, &["--json", "deploy", "--dry-run"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["new"], false);
    assert_eq!(listed["changes"][0], json!({ "mark": "change", "what": "memory", "from": "128 MiB", "to": "256 MiB" }));
    assert_eq!(node.json(["functions", "show", "python"]), before, "a dry run changes nothing");
    let output = nigh_in(&node, &folder, &["deploy"]);
    assert_eq!(String::from_utf8(output.stderr).unwrap(), plan);
    let after = node.json(["functions", "show", "python"]);
    assert_eq!((&after["MemorySize"], &after["CodeSha256"]), (&json!(256), &before["CodeSha256"]));

    // The file is what the function's triggers are; a flag adds one, and none takes them back.
    fs::write(folder.join("nigh.toml"), text.replace("\"in/\"", "\"new/\"")).unwrap();
    let moved = ok_in(&node, &folder, &["deploy", "--dry-run"]);
    assert_eq!(moved, "python changes:\n  - trigger  photos/in/\n  + trigger  photos/new/\n");
    ok_in(&node, &folder, &["deploy"]);
    node.ok(["deploy", "python", "--trigger", "photos/more/"]);
    let gone = node.ok(["deploy", "python", "--trigger", "none", "--dry-run"]);
    assert_eq!(gone, "python changes:\n  - trigger  photos/more/\n  - trigger  photos/new/\n");
    node.ok(["deploy", "python", "--trigger", "none"]);
    assert_eq!(node.ok(["deploy", "python", "--trigger", "none", "--dry-run"]), "python does not change\n");
}

#[test]
fn what_an_earlier_step_changed_is_undone_if_a_later_one_is_refused() {
    let Some(python) = python("what_an_earlier_step_changed_is_undone_if_a_later_one_is_refused") else { return };
    let node = Node::start(&python);
    node.ok(["objects", "mb", "nigh://photos"]);
    let folder = made(&node, "python");
    // More than all sandboxes together: refused when the function and its settings are there already.
    let all = ["deploy", "--memory", "256", "--env", "LEVEL=2", "--url", "iam", "--reserved", "100000"];
    let said = refused_in(&node, &folder, &all, 1);
    assert!(said.ends_with("(InvalidParameterValueException)"), "{said}");
    assert!(said.contains("nigh: nothing is deployed: the reserved concurrency is refused: "), "{said}");
    assert_eq!(node.json(["functions", "list"]), json!([]), "the new function is gone again");

    ok_in(&node, &folder, &["deploy", "--env", "LEVEL=1", "--url", "iam", "--trigger", "photos/in/"]);
    let before = node.json(["functions", "show", "python"]);
    fs::write(folder.join("main.py"), "def handle(event, context):\n    return 2\n").unwrap();
    refused_in(&node, &folder, &[&all[..], &["--trigger", "photos/in/", "--trigger", "photos/new/"]].concat(), 1);
    let mut after = node.json(["functions", "show", "python"]);
    for changing in ["RevisionId", "LastModified"] {
        after[changing] = before[changing].clone();
    }
    assert_eq!(after, before);
    let here = ["deploy", "--env", "LEVEL=1", "--url", "iam", "--trigger", "photos/in/", "--dry-run"];
    let left = ok_in(&node, &folder, &here);
    assert!(left.starts_with("python changes:\n  ~ code ") && left.lines().count() == 2, "{left}");
}

#[test]
fn what_cannot_work_is_refused_with_the_way_out() {
    use std::os::unix::fs::PermissionsExt as _;

    let Some(python) = python("what_cannot_work_is_refused_with_the_way_out") else { return };
    let node = Node::start(&python);
    let root = beside(&node, "refused");
    let folder = |name: &str, files: &[(&str, &str)]| {
        let folder = root.join(name);
        fs::create_dir_all(&folder).unwrap();
        for (file, text) in files {
            fs::write(folder.join(file), text).unwrap();
        }
        folder
    };
    let handler = "def handle(event, context):\n    return 1\n";
    folder("empty", &[("README", "")]);
    folder("py", &[("main.py", handler)]);
    folder("plain", &[("bootstrap", "#!/bin/sh\n")]);
    folder("typo", &[("main.py", handler), ("nigh.toml", "[function]\nmemroy = 1\n")]);
    let refuses = |arguments: &[&str], code: i32, said: &str| {
        let refused = refused_in(&node, &root, arguments, code);
        assert!(refused.starts_with(said), "{arguments:?}: {refused}");
    };
    refuses(
        &["deploy"],
        2,
        "nigh: no nigh.toml in . has a table [function]: `nigh init NAME` makes a folder with one; or name the function: \
         `nigh deploy NAME --folder .`",
    );
    refuses(
        &["deploy", "f", "--folder", "empty"],
        2,
        "nigh: empty does not show what it is: it has no bootstrap, no .py file, no index.js, no go.mod and no \
         Cargo.toml; give --runtime and --handler",
    );
    refuses(
        &["deploy", "f", "--folder", "py", "--handler", "main.handler"],
        2,
        "nigh: main.py has no function handler, which the handler main.handler names; did you mean handle?",
    );
    refuses(
        &["deploy", "f", "--folder", "py", "--handler", "app.handle"],
        2,
        "nigh: there is no app.py in py, which the handler app.handle names; did you mean main.handle?",
    );
    refuses(
        &["deploy", "f", "--folder", "py/main.py", "--handler", "handle"],
        2,
        "nigh: the handler \"handle\" is not MODULE.FUNCTION; did you mean main.handle?",
    );
    refuses(
        &["deploy", "f", "--folder", "plain"],
        2,
        "nigh: `bootstrap` in plain is not executable; run `chmod +x plain/bootstrap`",
    );
    refuses(
        &["deploy", "--folder", "typo"],
        2,
        "nigh: typo/nigh.toml: there is no function.memroy; did you mean memory?",
    );
    refuses(
        &["deploy", "f", "--folder", "py", "--trigger", "missing/in/"],
        1,
        "nigh: nothing is deployed: a trigger of f on missing is refused: ",
    );
    refuses(&["init", "py"], 2, "nigh: the folder py is not empty; choose another name, or move the folder away");
    refuses(&["dev", "py"], 2, "nigh: no nigh.toml in py has a table [function]");
    let missing = refused_in(&node, &root, &["deploy", "f", "--folder", "py", "--trigger", "missing/in/"], 1);
    assert!(missing.ends_with("; `nigh objects mb nigh://missing` makes the bucket"), "{missing}");
    assert_eq!(node.json(["functions", "list"]), json!([]));

    // What was asked for mends it.
    fs::set_permissions(root.join("plain/bootstrap"), fs::Permissions::from_mode(0o755)).unwrap();
    ok_in(&node, &root, &["deploy", "plain", "--folder", "plain"]);
    ok_in(&node, &root, &["deploy", "one", "--folder", "py/main.py"]);
    assert_eq!(node.json(["invoke", "one"])["payload"], 1);
    let shown = node.json(["functions", "show", "one"]);
    assert_eq!((&shown["Handler"], &shown["Runtime"]), (&json!("main.handle"), &json!(node.python_runtime())));
    // A folder is deployed by its name, too.
    fs::write(root.join("py/nigh.toml"), "[function]\nmemory = \"256MB\"\n").unwrap();
    ok_in(&node, &root, &["deploy", "py"]);
    assert_eq!(node.json(["functions", "show", "py"])["MemorySize"], 256);
}
