//! What keeps functions apart in a whole node: hostile functions, a runc that comes and goes, more starts than there is
//! room for.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::platform::{NIGH, Node, python, wait_for};
use crate::programs::build_programs;
use crate::skipped::skip;

/// Asks for so many invocations at once as boto3 does, and prints how they were answered: a JSON object of counts.
const BURST: &str = r#"
import collections, concurrent.futures, json, sys
import boto3, botocore
count, function = int(sys.argv[1]), sys.argv[2]
config = botocore.config.Config(retries={"total_max_attempts": 1}, max_pool_connections=count, read_timeout=120)
client = boto3.client("lambda", config=config)
def one(number):
    try:
        answer = client.invoke(FunctionName=function, Payload=json.dumps({"sleep": 0.5}))
        return "failed" if "FunctionError" in answer else "answered"
    except botocore.exceptions.ClientError as error:
        return str(error.response["ResponseMetadata"]["HTTPStatusCode"])
with concurrent.futures.ThreadPoolExecutor(count) as pool:
    print(json.dumps(collections.Counter(pool.map(one, range(count)))))
"#;

pub(crate) fn runc() -> Option<PathBuf> {
    ["/usr/sbin", "/usr/bin", "/usr/local/sbin"]
        .map(|folder| Path::new(folder).join("runc"))
        .into_iter()
        .find(|it| it.is_file() && rustix::process::geteuid().is_root())
}

/// The setting of each sandbox engine that this machine has.
pub(crate) fn engines(test: &str) -> Vec<&'static str> {
    if runc().is_none() {
        skip(test, "runc is not installed, or this user is not root: one engine of two is tested");
        return vec!["functions.engine=process"];
    }
    vec!["functions.engine=process", "functions.engine=runc"]
}

#[test]
fn no_escape_attempt_succeeds_behind_walls_and_each_does_without_them() {
    let test = "no_escape_attempt_succeeds_behind_walls_and_each_does_without_them";
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    if !project.join(".deps/python/bin/python3").exists() {
        return skip(test, "`make deps` has not been run");
    }
    build_programs();
    let output = Command::new(NIGH).args(["experiment", "escape", "--json"]).current_dir(&project).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    let rows = |name: &str| report[name].as_array().unwrap().clone();
    for row in rows("rows") {
        assert_eq!(row["outcome"], "refused", "{row}");
    }
    assert_eq!(report["succeeded"], 0);
    assert!(output.status.success(), "{said}");
    let engines: BTreeSet<String> = rows("rows").iter().map(|row| row["engine"].as_str().unwrap().to_owned()).collect();
    let control = rows("control");
    let (with_way_out, without): (Vec<_>, Vec<_>) =
        rows("rows").into_iter().partition(|row| row["attempt"].as_str().unwrap().ends_with("_with_a_way_out"));
    assert!(control.len() > 50 && without.len() == control.len() * engines.len());
    let has_tool = Command::new("slirp4netns").arg("--version").output().is_ok();
    let gives_way_out = rustix::process::geteuid().is_root() && has_tool;
    assert_eq!(with_way_out.len(), if gives_way_out { 6 * engines.len() } else { 0 }, "{:?}", report["absent"]);
    assert!(engines.contains("process"), "{report}");
    assert_eq!(engines.contains("runc"), runc().is_some(), "{:?}", report["absent"]);
    if rustix::process::geteuid().is_root() {
        let not_run = control.iter().filter(|row| row["outcome"] == "not run").count();
        assert!(not_run <= 1, "{control:?}");
        for row in control.iter().filter(|row| row["outcome"] != "not run") {
            assert_eq!(row["outcome"], "succeeded", "{row}");
        }
    }
}

#[test]
fn a_runc_that_goes_missing_is_told_to_callers_and_in_the_status_and_serves_again_when_it_is_back() {
    let test = "a_runc_that_goes_missing_is_told_to_callers_and_in_the_status_and_serves_again_when_it_is_back";
    let Some(python) = python(test) else { return };
    let Some(installed) = runc() else {
        return skip(test, "it needs root and runc");
    };
    let folder = tempfile::tempdir().unwrap();
    let (there, away) = (folder.path().join("runc"), folder.path().join("away"));
    // By another process, of which no process that is forked here has the file open for writing.
    assert!(Command::new("install").args(["-m", "755"]).args([&installed, &there]).status().unwrap().success());
    let own = format!("functions.runc={}", there.display());
    let without_stems = "functions.prewarm=off";
    let node = Node::start_with(&python, &["--set", "functions.engine=runc", "--set", &own, "--set", without_stems]);
    let isolation = || {
        let status = node.json(["status"]);
        let levels = status["levels"].as_array().unwrap().clone();
        levels.into_iter().find(|level| level["name"] == "isolation").unwrap()
    };
    assert_eq!(isolation()["on"], true);
    for name in ["first", "second", "third", "fourth"] {
        node.deploy(name);
    }
    node.ok(["invoke", "first"]);
    fs::rename(&there, &away).unwrap();
    // Those that stand ready serve until they are used up.
    let refusals: Vec<String> = ["second", "third", "fourth"]
        .into_iter()
        .map(|name| node.nigh(["--json", "invoke", name]))
        .filter(|output| !output.status.success())
        .map(|output| String::from_utf8_lossy(&output.stderr).into_owned())
        .collect();
    assert!(!refusals.is_empty() && refusals.iter().all(|said| said.contains("runc")), "{refusals:?}");
    assert!(refusals.iter().all(|said| said.contains("ServiceException")), "{refusals:?}");
    let level = isolation();
    assert_eq!(level["on"], false);
    assert!(level["detail"].as_str().unwrap().contains("missing"), "{level}");
    node.ok(["invoke", "first"]);
    fs::rename(&away, &there).unwrap();
    node.ok(["invoke", "fourth"]);
    wait_for("the status to be well again", || isolation()["on"] == true);
}

#[test]
fn two_hundred_starts_at_once_are_answered_or_told_to_come_back_and_leave_nothing() {
    let test = "two_hundred_starts_at_once_are_answered_or_told_to_come_back_and_leave_nothing";
    let Some(python) = python(test) else { return };
    let limits = ["functions.sandboxes_max=12", "functions.queue_max=30", "functions.queue=30 s"];
    let flags: Vec<&str> = limits.iter().flat_map(|limit| ["--set", limit]).collect();
    let mut node = Node::start_with(&python, &flags);
    node.deploy("sleeper");
    let script = node.state.with_file_name("burst.py");
    fs::write(&script, BURST).unwrap();
    let output =
        Command::new(&python).arg(&script).args(["200", "sleeper"]).envs(node.sdk_environment()).output().unwrap();
    let counts: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let count = |what: &str| counts[what].as_u64().unwrap_or_default();
    println!("of 200: {counts}");
    assert_eq!(count("answered") + count("429"), 200, "{counts}");
    // What is accepted is answered: those that run at once and those that wait.
    assert!(count("answered") >= 42 && count("429") > 0, "{counts}");
    let status = node.json(["status"]);
    assert_eq!((&status["sandboxes"]["running"], &status["sandboxes"]["waiting"]), (&0.into(), &0.into()));
    let sandboxes = node.descendants();
    node.terminate();
    assert_eq!(node.exit_code(), Some(0));
    wait_for("all processes to end", || !sandboxes.iter().any(|pid| Path::new(&format!("/proc/{pid}")).exists()));
    wait_for("all cgroups to go", || node.sandbox_groups().is_empty());
}

/// Real programs at work; what is not installed says so.
const PROGRAMS: &str = r#"
import subprocess, tempfile, threading

def numpy_and_threads():
    import numpy
    results = []
    threads = [threading.Thread(target=lambda: results.append(numpy.linalg.svd(numpy.eye(300))[1].sum())) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert results == [300.0] * 4, results

def boto3_and_tls():
    import boto3, ssl
    assert boto3.client("s3").meta.region_name and ssl.create_default_context().get_ca_certs()

def ffmpeg():
    import imageio_ffmpeg
    with tempfile.NamedTemporaryFile(suffix=".mp4") as made:
        command = [imageio_ffmpeg.get_ffmpeg_exe(), "-loglevel", "error", "-y", "-f", "lavfi", "-i",
                   "testsrc=duration=1:size=128x96:rate=10", "-c:v", "libx264", "-f", "mp4", made.name]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True)
        assert len(made.read()) > 1000

def imagemagick():
    from wand.image import Image
    with Image(width=64, height=64, background="red") as image:
        image.blur(radius=0, sigma=2)
        assert image.make_blob("png").startswith(b"\x89PNG")

def pocketsphinx():
    from pocketsphinx import Decoder
    decoder = Decoder(samprate=16000)
    decoder.start_utt()
    decoder.process_raw(bytes(32000), full_utt=True)
    decoder.end_utt()

def processes_and_pools():
    import concurrent.futures, multiprocessing
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(int, "1234")) == 10
    shell = "set -e; mkfifo /tmp/f; (echo hello > /tmp/f &) ; cat /tmp/f | tr a-z A-Z; sort /etc/passwd | tail -1 >/dev/null"
    assert subprocess.check_output(["sh", "-c", shell]) == b"HELLO\n"
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(abs, [-1, -2]) == [1, 2]

def handler(event, context):
    said = {}
    for program in (numpy_and_threads, boto3_and_tls, ffmpeg, imagemagick, pocketsphinx, processes_and_pools):
        try:
            program()
            said[program.__name__] = "works"
        except ImportError as error:
            said[program.__name__] = f"absent: {error}"
        except Exception as error:
            said[program.__name__] = f"{type(error).__name__}: {error}"
    return said
"#;

#[test]
fn real_programs_run_behind_the_walls_of_each_engine() {
    let test = "real_programs_run_behind_the_walls_of_each_engine";
    let Some(python) = python(test) else { return };
    for engine in engines(test) {
        let node = Node::start_with(&python, &["--set", engine]);
        node.deploy_code("programs", PROGRAMS, "1GiB");
        // How fast they are is not what is asked.
        node.ok(["deploy", "programs", "--timeout", "10min"]);
        let said = node.json(["invoke", "programs", "{}"])["payload"].clone();
        let said = said.as_object().unwrap_or_else(|| panic!("{engine}: {said}"));
        for (program, outcome) in said {
            let outcome = outcome.as_str().unwrap();
            if outcome.starts_with("absent") {
                skip(test, format_args!("{program}: {outcome}"));
            } else {
                assert_eq!(outcome, "works", "{engine}: {program}");
            }
        }
        assert_eq!(said["boto3_and_tls"], "works");
    }
}

/// Says whether it reaches an address, and what a name leads to.
const CONNECTS: &str = r#"
import socket

def handler(event, context):
    try:
        socket.create_connection((event["host"], event["port"]), 5).close()
        return "reached"
    except OSError as error:
        return f"refused: {error}"
"#;

#[test]
fn a_function_reaches_the_network_where_it_asks_and_the_operator_permits_it() {
    let test = "a_function_reaches_the_network_where_it_asks_and_the_operator_permits_it";
    let Some(python) = python(test) else { return };
    if !rustix::process::geteuid().is_root() || Command::new("slirp4netns").arg("--version").output().is_err() {
        return skip(test, "it needs root and slirp4netns");
    }
    let own = std::net::UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        Ok(socket.local_addr()?.ip())
    });
    let Some(own) = own.ok().filter(|address| !address.is_loopback()) else {
        return skip(test, "this machine has no address but loopback");
    };
    let listener = std::net::TcpListener::bind((own, 0)).unwrap();
    let event = format!(r#"{{"host": "{own}", "port": {}}}"#, listener.local_addr().unwrap().port());
    let code = tempfile::tempdir().unwrap();
    fs::write(code.path().join("app.py"), CONNECTS).unwrap();
    let folder = code.path().to_str().unwrap();

    let mut node = Node::start(&python);
    let runtime = node.python_runtime();
    let create = ["deploy", "asks", "--folder", folder, "--handler", "app.handler", "--runtime", &runtime];
    let asking = [&create[..], &["--network", "outbound"]].concat();
    let refused = node.nigh(&asking);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("functions.network"), "{said}");
    assert!(said.contains("InvalidParameterValueException"), "{said}");

    node.restart_with(&["--set", "functions.network=permitted", "--set", "functions.network_namespaces=default"]);
    let level = || {
        let levels = node.json(["status"])["levels"].as_array().unwrap().clone();
        levels.into_iter().find(|level| level["name"] == "network").unwrap()
    };
    assert_eq!(level()["on"], true, "{}", level());
    node.ok(create);
    assert!(node.ok(["invoke", "asks", &event]).contains("refused"));
    // An existing function begins to ask; what else is in its environment stays.
    node.ok(["deploy", "asks", "--env", "LEVEL=2"]);
    node.ok(["deploy", "asks", "--network", "outbound"]);
    assert!(node.ok(["invoke", "asks", &event]).contains("reached"));
    assert!(node.ok(["functions", "show", "asks"]).contains("LEVEL"));
    assert!(level()["detail"].as_str().unwrap().contains("sandboxes with it: 1"), "{}", level());
    // The operator takes it back.
    node.restart_with(&["--set", "functions.network=permitted", "--set", "functions.network_namespaces=other"]);
    let refused = node.nigh(["invoke", "asks", &event]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("functions.network_namespaces"), "{said}");
    node.ok(["deploy", "asks", "--network", "none"]);
    assert!(node.ok(["invoke", "asks", &event]).contains("refused"));
}
