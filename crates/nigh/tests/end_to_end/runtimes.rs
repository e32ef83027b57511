//! The runtimes of a node: several Pythons, Node.js by the Lambda door, and what is refused with the way out.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::json;

use crate::platform::{Node, python, wait_for};
use crate::projects::has_node_js;
use crate::skipped::skip;

/// An interpreter of this machine of another version than 3.`minor`, 3.10 to 3.13.
fn other_python(minor: u8) -> Option<(u8, PathBuf)> {
    let pyenv = PathBuf::from(std::env::var_os("HOME")?).join(".pyenv/versions");
    let versions: Vec<PathBuf> =
        fs::read_dir(pyenv).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect();
    (10..14).filter(|other| *other != minor).find_map(|other| {
        let name = format!("python3.{other}");
        let of_pyenv = versions.iter().map(|folder| folder.join("bin").join(&name)).find(|program| program.is_file());
        let program = of_pyenv.or_else(|| {
            let said = Command::new(&name).args(["-c", "import sys; print(sys.executable)"]).output().ok()?;
            said.status.success().then(|| PathBuf::from(String::from_utf8_lossy(&said.stdout).trim()))
        });
        Some((other, program?))
    })
}

#[test]
fn functions_run_on_each_python_of_the_node_also_on_one_without_the_runtime_client() {
    let test = "functions_run_on_each_python_of_the_node_also_on_one_without_the_runtime_client";
    let Some(python) = python(test) else { return };
    let said = Command::new(&python).args(["-c", "import sys; print(sys.version_info.minor)"]).output().unwrap();
    let minor: u8 = String::from_utf8(said.stdout).unwrap().trim().parse().unwrap();
    let Some((other, interpreter)) = other_python(minor) else {
        return skip(test, "there is one Python alone");
    };
    let both = std::env::join_paths([python, interpreter]).unwrap();
    let node = Node::start(&PathBuf::from(both));
    let handler = "import sys\n\ndef handle(event, context):\n    if event == 'raise':\n        raise KeyError(event)\n    \
                   return [sys.version_info.minor, context.function_name, event]\n";
    let folder = node.state.with_file_name("versions");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("main.py"), handler).unwrap();
    let folder = folder.to_str().unwrap();
    for version in [minor, other] {
        let (name, runtime) = (format!("on-{version}"), format!("python3.{version}"));
        node.ok(["deploy", &name, "--folder", folder, "--runtime", &runtime]);
        let answer = node.json(["invoke", &name, "\"ü\""])["payload"].clone();
        assert_eq!(answer, json!([version, name, "ü"]));
        let raised = node.json_of_failed(["invoke", &name, "\"raise\""]);
        assert_eq!(raised["payload"]["errorType"], "KeyError");
    }
    // Each version has sandboxes of its own ready, where sandboxes are pre-warmed at all.
    let status = node.json(["status"]);
    let level = |name: &str| status["levels"].as_array().unwrap().iter().find(|level| level["name"] == name).cloned();
    assert!(level("python").unwrap()["detail"].as_str().unwrap().contains(&format!("python3.{other} at ")));
    if level("prewarming").unwrap()["on"] == true {
        wait_for("both runtimes to be pre-warmed", || {
            let stems = node.json(["status"])["stems"].as_array().unwrap().clone();
            let ready = stems.iter().filter(|stem| stem["ready"].as_u64().unwrap() > 0);
            let runtimes: Vec<&str> = ready.map(|stem| stem["runtime"].as_str().unwrap()).collect();
            [minor, other].iter().all(|version| runtimes.contains(&format!("python3.{version}").as_str()))
        });
    }
    let refused =
        node.nigh(["deploy", "old", "--folder", folder, "--runtime", "python3.8", "--handler", "main.handle"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("the runtime \"python3.8\" is not on this node (install Python 3.8 where"), "{said}");
}

#[test]
fn a_javascript_handler_is_called_by_the_lambda_door_as_lambda_calls_it() {
    let test = "a_javascript_handler_is_called_by_the_lambda_door_as_lambda_calls_it";
    let Some(python) = python(test) else { return };
    if !has_node_js() {
        return skip(test, "there is no Node.js 20 or later");
    }
    let node = Node::start(&python);
    let folder = node.state.with_file_name("js");
    fs::create_dir_all(&folder).unwrap();
    let code = r"
        exports.handler = async (event, context) => {
            console.log('handling', event.n);
            if (event.raise) throw new RangeError(event.raise);
            return { n: event.n, name: context.functionName, memory: context.memoryLimitInMB,
                     env: process.env.AWS_EXECUTION_ENV, id: context.awsRequestId };
        };
        exports.called = (event, context, callback) => setTimeout(() => callback(null, process.env.OWN), 1);
        exports.heavy = async event => { const all = []; for (let n = 0; n < event.mib; n++) all.push(new Array(131072).fill(n)); return all.length; };
    ";
    fs::write(folder.join("index.js"), code).unwrap();
    let folder = folder.to_str().unwrap();
    node.ok(["deploy", "js", "--folder", folder, "--memory", "512"]);
    let shown = node.json(["functions", "show", "js"]);
    let runtime = shown["Runtime"].as_str().unwrap().to_owned();
    assert_eq!((&runtime[..6], &shown["Handler"]), ("nodejs", &json!("index.handler")));
    let answer = node.json(["invoke", "js", r#"{"n": 7}"#]);
    let payload = &answer["payload"];
    assert_eq!((&payload["n"], &payload["name"], &payload["memory"]), (&json!(7), &json!("js"), &json!("512")));
    assert_eq!(payload["env"], json!(format!("AWS_Lambda_{runtime}")));
    let id = payload["id"].as_str().unwrap();
    let logged = node.ok(["logs", "js", "--id", id]);
    assert!(logged.contains(&format!("\t{id}\tINFO\thandling 7")), "{logged}");
    let raised = node.json_of_failed(["invoke", "js", r#"{"raise": "no"}"#]);
    assert_eq!(
        (&raised["payload"]["errorType"], &raised["payload"]["errorMessage"]),
        (&json!("RangeError"), &json!("no"))
    );
    assert!(raised["payload"]["trace"][1].as_str().unwrap().contains("/var/task/index.js:4"), "{raised}");

    node.ok(["deploy", "called", "--folder", folder, "--handler", "index.called", "--env", "OWN=mine"]);
    assert_eq!(node.json(["invoke", "called"])["payload"], "mine");
    // The heap may take what the function booked, whatever its sandbox was granted at its start.
    node.ok(["deploy", "heavy", "--folder", folder, "--handler", "index.heavy", "--memory", "512", "--timeout", "60"]);
    assert_eq!(node.json(["invoke", "heavy", r#"{"mib": 200}"#])["payload"], 200);

    let refused = node.nigh(["deploy", "js", "--folder", folder, "--handler", "index.absent"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("index.js has no function absent"), "{said}");
}
