//! OpenWhisk's command line against a whole node, where `wsk` is in `PATH`: what it prints, and how it ends.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::platform::{Node, python, wait_for};
use crate::skipped::skip;

const HELLO: &str = r#"
def main(args):
    print("a line of the log")
    if args.get("fail"):
        raise ValueError("asked to")
    return {"greeting": "Hello " + args.get("name", "stranger")}
"#;
const HELLO_JS: &str = "function main(args) { return { greeting: 'Hello ' + (args.name || 'stranger') }; }\n";
const CONDUCTOR: &str = r#"
def main(args):
    if "greeting" in args:
        return {"params": {"said": args["greeting"], "kept": args["kept"]}}
    return {"action": "hello", "params": {"name": args["name"]}, "state": {"kept": 1}}
"#;
const PROGRAM: &str = "#!/bin/sh\necho a line before\necho \"{\\\"native\\\": $1}\"\n";

/// `wsk` by its status: the API's less 256.
const REFUSED: i32 = 400 - 256;
const UNAUTHORIZED: i32 = 401 - 256;
const FORBIDDEN: i32 = 403 - 256;
const ABSENT: i32 = 404 - 256;
const CONFLICT: i32 = 409 - 256;
const TOO_MANY: i32 = 429 - 256;
const FAILED: i32 = 502 - 256;

/// The command line, with a folder and settings of its own.
struct Wsk(PathBuf);

impl Wsk {
    /// Its status, and all that it printed.
    fn run(&self, arguments: &str) -> (i32, String) {
        let output = Command::new("wsk")
            .args(arguments.split(' '))
            .current_dir(&self.0)
            .env("HOME", &self.0)
            .env("WSK_CONFIG_FILE", self.0.join("props"))
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(said).unwrap())
    }

    /// It succeeds, and this is what it printed.
    fn ok(&self, arguments: &str) -> String {
        let (code, said) = self.run(arguments);
        assert_eq!(code, 0, "wsk {arguments}: {said}");
        said
    }

    fn says(&self, arguments: &str, words: &str) {
        let said = self.ok(arguments);
        assert!(said.contains(words), "wsk {arguments}: {said}");
    }

    fn fails(&self, code: i32, arguments: &str, words: &str) {
        let (ended, said) = self.run(arguments);
        assert!(ended == code && said.contains(words), "wsk {arguments}: {ended}: {said}");
    }

    /// What it prints as JSON, behind its own words.
    fn json(&self, arguments: &str) -> Value {
        let said = self.ok(arguments);
        let begin = said.find('{').unwrap_or_else(|| panic!("wsk {arguments}: {said}"));
        serde_json::from_str(&said[begin..]).unwrap_or_else(|error| panic!("wsk {arguments}: {error}: {said}"))
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.0.join(name), content).unwrap();
    }
}

fn is_here(test: &str) -> bool {
    let is_here = Command::new("wsk").arg("--help").output().is_ok();
    if !is_here {
        skip(test, "there is no wsk in PATH; OpenWhisk's releases have it");
    }
    is_here
}

/// An archive of text files.
fn zipped(files: &[(&str, &str)]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, text) in files {
        zip.start_file(*name, zip::write::SimpleFileOptions::default().unix_permissions(0o755)).unwrap();
        std::io::Write::write_all(&mut zip, text.as_bytes()).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

#[test]
fn wsk_drives_a_whole_node() {
    let test = "wsk_drives_a_whole_node";
    let Some(python) = python(test).filter(|_| is_here(test)) else { return };
    let node = Node::start(&python);
    let folder = tempfile::tempdir().unwrap();
    let wsk = Wsk(folder.path().to_owned());
    wsk.file("props", node.ok(["openwhisk", "props"]));
    wsk.file("hello.py", HELLO);
    wsk.file("hello.js", HELLO_JS);
    wsk.file("conductor.py", CONDUCTOR);
    wsk.file("exec", PROGRAM);
    fs::set_permissions(folder.path().join("exec"), fs::Permissions::from_mode(0o755)).unwrap();
    wsk.file("exec.zip", zipped(&[("exec", PROGRAM)]));
    wsk.file("packed.zip", zipped(&[("__main__.py", "from other import main\n"), ("other.py", HELLO)]));
    wsk.file("input.json", json!({ "name": "file" }).to_string());

    settings(&wsk, &node);
    actions(&wsk);
    kinds(&wsk);
    activations(&wsk);
    sequences(&wsk);
    packages(&wsk);
    triggers(&wsk);
    refusals(&wsk);
}

fn settings(wsk: &Wsk, node: &Node) {
    let host = node.endpoints()["lambda"].as_str().unwrap().to_owned();
    let auth = node.ok(["openwhisk", "auth"]);
    wsk.says(&format!("property set --apihost {host} --auth {}", auth.trim()), "ok: whisk API host set");
    let all = wsk.ok("property get --all");
    assert!(all.contains(&host) && all.contains(env!("CARGO_PKG_VERSION")), "{all}");
    wsk.says("namespace list", "default");
    wsk.says("namespace get", "Entities in namespace: default");
}

fn actions(wsk: &Wsk) {
    wsk.says("action create hello hello.py --kind python:3", "ok: created action hello");
    wsk.fails(CONFLICT, "action create hello hello.py", "resource already exists");
    let update =
        "action update hello hello.py --kind python:3 -m 128 -t 30000 -l 5 -c 1 --param name you --annotation a 1";
    wsk.says(update, "ok: updated action hello");
    let shown = wsk.json("action get hello");
    assert_eq!((&shown["version"], &shown["exec"]["kind"]), (&json!("0.0.2"), &json!("python:3")));
    assert_eq!(shown["limits"], json!({ "timeout": 30000, "memory": 128, "logs": 5, "concurrency": 1 }));
    assert_eq!(shown["parameters"], json!([{ "key": "name", "value": "you" }]));
    wsk.says("action get hello --summary", "action /default/hello");
    wsk.says("action get hello --url", "/api/v1/namespaces/default/actions/hello");
    wsk.ok("action get hello --save-as again.py");
    assert_eq!(fs::read_to_string(wsk.0.join("again.py")).unwrap(), HELLO);
    wsk.ok("action create copy --copy hello");
    assert_eq!(wsk.json("action invoke copy --result"), json!({ "greeting": "Hello you" }));
    wsk.ok("action update hello --del-annotation a");
    let annotations = wsk.json("action get hello")["annotations"].clone();
    assert!(annotations.as_array().unwrap().iter().all(|one| one["key"] != "a"), "{annotations}");
    assert_eq!(wsk.json("action invoke hello -r -P input.json"), json!({ "greeting": "Hello file" }));
    let record = wsk.json("action invoke hello --blocking -p name all");
    assert_eq!(record["response"]["result"], json!({ "greeting": "Hello all" }));
    wsk.says("action invoke hello", "ok: invoked /_/hello with id ");
    let (code, said) = wsk.run("action invoke hello --blocking -p fail 1");
    assert!(code == FAILED && said.contains("application error"), "{code}: {said}");
    // What was changed last comes first; the command line sorts what has come.
    wsk.says("action list --limit 1", "/default/hello");
    let listed = wsk.ok("action list --name-sort");
    assert!(listed.find("/default/copy") < listed.find("/default/hello"), "{listed}");
    wsk.ok("action create page hello.py --kind python:3 --web true --web-secure secret");
    wsk.says("action get page --url", "/api/v1/web/default/default/page");
    let keys = wsk.json("action get page")["annotations"].to_string();
    assert!(keys.contains("web-export") && keys.contains("require-whisk-auth"), "{keys}");
    wsk.says("action delete page", "ok: deleted action page");
}

fn kinds(wsk: &Wsk) {
    wsk.ok("action create packed packed.zip --kind python:3");
    assert_eq!(wsk.json("action invoke packed -r -p name zip"), json!({ "greeting": "Hello zip" }));
    wsk.ok("action create program exec --native");
    wsk.ok("action create archive exec.zip --native");
    for name in ["program", "archive"] {
        assert_eq!(wsk.json(&format!("action invoke {name} -r -p a 1")), json!({ "native": { "a": 1 } }));
    }
    // By its file's name alone, which says what is newest here.
    wsk.ok("action create plain hello.py");
    assert_eq!(wsk.json("action get plain")["exec"]["kind"], "python:3");
    let (code, said) = wsk.run("action create script hello.js --kind nodejs:20");
    if code == 0 {
        assert_eq!(wsk.json("action invoke script -r"), json!({ "greeting": "Hello stranger" }));
    } else {
        assert!(code == REFUSED && said.contains("not supported by this platform"), "{code}: {said}");
    }
    wsk.fails(REFUSED, "action create image --docker somebody/image", "no container images");
    wsk.fails(REFUSED, "action create old hello.py --kind python:2", "Valid values are: 'python:3'");
}

fn activations(wsk: &Wsk) {
    wsk.ok("action invoke hello -r");
    let list = wsk.ok("activation list hello --limit 2");
    let lines: Vec<&str> = list.lines().collect();
    assert!(lines.len() == 3 && lines[0].starts_with("Datetime"), "{list}");
    let words: Vec<&str> = lines[1].split_whitespace().collect();
    assert!(words[3..5] == ["python:3", "warm"] && words[6..] == ["success", "default/hello:0.0.3"], "{list}");
    let id = words[2];
    let record = wsk.json(&format!("activation get {id}"));
    assert_eq!((&record["activationId"], &record["response"]["success"]), (&json!(id), &json!(true)));
    wsk.says(&format!("activation logs {id}"), "stdout: a line of the log");
    assert_eq!(wsk.json(&format!("activation result {id}")), json!({ "greeting": "Hello you" }));
    wsk.says("activation get --last --summary", "activation result for '/default/hello' (success at ");
    wsk.says("activation list --limit 1 --full", "\"statusCode\": 0");
    wsk.says("activation poll --exit 2 --since-minutes 5", "a line of the log");
    wsk.fails(ABSENT, "activation get 01234567890123456789012345678901", "does not exist");
    wsk.fails(REFUSED, "activation get 0123", "The activation id is not valid.");
    wsk.fails(REFUSED, "activation list --limit 201", "not in the range of 0 to 200");
}

fn sequences(wsk: &Wsk) {
    wsk.ok("action create both --sequence hello,program");
    assert_eq!(wsk.json("action invoke both -r"), json!({ "native": { "greeting": "Hello you" } }));
    wsk.ok("action update both --sequence program,hello");
    assert_eq!(wsk.json("action get both")["exec"]["components"], json!(["/default/program", "/default/hello"]));
    wsk.fails(REFUSED, "action create lacks --sequence hello,nothing", "Sequence component does not exist.");
    wsk.fails(REFUSED, "action update both --sequence both", "Sequence may not refer to itself.");
    wsk.ok("action create decides conductor.py --kind python:3 -a conductor true");
    let record = wsk.json("action invoke decides --blocking -p name conductor");
    assert_eq!(record["response"]["result"], json!({ "said": "Hello conductor", "kept": 1 }));
    assert_eq!(record["logs"].as_array().unwrap().len(), 3);
}

fn packages(wsk: &Wsk) {
    wsk.ok("package create tools -p name package -a description tools");
    wsk.ok("action create tools/hello hello.py --kind python:3");
    assert_eq!(wsk.json("action invoke tools/hello -r"), json!({ "greeting": "Hello package" }));
    wsk.says("package bind tools bound -p name binding", "ok: created binding bound");
    assert_eq!(wsk.json("action invoke bound/hello -r"), json!({ "greeting": "Hello binding" }));
    let shown = wsk.json("package get bound");
    assert_eq!((&shown["binding"]["name"], &shown["actions"][0]["name"]), (&json!("tools"), &json!("hello")));
    wsk.says("package get tools --summary", "package /default/tools: tools");
    wsk.says("package list", "/default/bound");
    wsk.says("action list tools", "/default/tools/hello");
    wsk.ok("package update tools -p name other");
    wsk.fails(CONFLICT, "package delete tools", "Package not empty (contains 1 entity)");
    wsk.ok("package delete bound");
    wsk.ok("action delete tools/hello");
    wsk.says("package delete tools", "ok: deleted package tools");
}

fn triggers(wsk: &Wsk) {
    wsk.ok("trigger create tick -p name trigger");
    wsk.fails(CONFLICT, "trigger create tick", "resource already exists");
    wsk.says("trigger fire tick", "ok: triggered /_/tick with id");
    wsk.ok("rule create on-tick tick hello");
    wsk.fails(REFUSED, "rule create lacks tick nothing", "does not exist");
    wsk.says("rule list", "active");
    wsk.says("rule status on-tick", "ok: rule on-tick is active");
    wsk.ok("trigger fire tick");
    wait_for("the action of a rule", || {
        let list = wsk.ok("activation list hello --limit 1 --full");
        list.contains("Hello trigger")
    });
    wsk.says("activation list tick", "default/tick:0.0.1");
    wsk.ok("rule disable on-tick");
    wsk.says("rule get on-tick --summary", "(status: inactive)");
    wsk.ok("rule enable on-tick");
    wsk.ok("rule update on-tick tick program");
    assert_eq!(wsk.json("rule get on-tick")["action"]["name"], "program");
    wsk.says("trigger get tick", "default/on-tick");
    wsk.says("trigger list", "/default/tick");
    wsk.ok("rule delete on-tick --disable");
    wsk.ok("trigger delete tick");
    wsk.fails(FORBIDDEN, "trigger create fed --feed /whisk.system/alarms/alarm", "not authorized");
    wsk.fails(ABSENT, "trigger get fed", "does not exist");
}

fn refusals(wsk: &Wsk) {
    for what in ["action get nothing", "action delete nothing", "action invoke nothing", "rule get nothing"] {
        wsk.fails(ABSENT, what, "The requested resource does not exist.");
    }
    wsk.fails(
        REFUSED,
        "action create large hello.py --kind python:3 -m 99999",
        "exceeds allowed threshold of 10240 MB",
    );
    wsk.fails(REFUSED, "action create many hello.py --kind python:3 -c 5", "exceeds allowed threshold");
    wsk.fails(UNAUTHORIZED, "-u nobody:nothing action list", "The supplied authentication is invalid.");
    wsk.fails(FORBIDDEN, "action list /another", "not authorized");
}

#[test]
fn wsk_is_told_of_limits_a_minute() {
    let test = "wsk_is_told_of_limits_a_minute";
    let Some(python) = python(test).filter(|_| is_here(test)) else { return };
    let node = Node::start_with(&python, &["--set", "openwhisk.fires_per_minute=0"]);
    let folder = tempfile::tempdir().unwrap();
    let wsk = Wsk(folder.path().to_owned());
    wsk.file("props", node.ok(["openwhisk", "props"]));
    wsk.ok("trigger create tick");
    wsk.fails(TOO_MANY, "trigger fire tick", "Too many requests in the last minute (count: 1, allowed: 0).");
}
