//! Sandboxes that a runtime was waiting in: what a function sees of that, and how many there are.

use std::collections::BTreeMap;
use std::path::Path;

use nigh_functions::function::{Function, Runtime};
use nigh_invoke::invoker::InvokerSettings;
use nigh_sandbox::runtime_command::PythonRuntime;
use nigh_sandbox::sandbox::local::EngineChoice;
use nigh_schedule::activation::SandboxStart;
use nigh_schedule::prewarm::PrewarmSettings;
use nigh_terms::ByteSize;
use serde_json::{Value, json};

use crate::node::{Node, settings};
use crate::python::python;
use crate::skipped::skip;

const LOOKS: &str = include_str!("looks.py");
/// The function's own copy of a module that boto3 imports.
const OWN_SIX: &str = "import os, sys
others = (os.path.join(folder, 'six.py') for folder in sys.path)
installed = next(path for path in others if os.path.exists(path) and not os.path.samefile(path, __file__))
exec(compile(open(installed).read(), __file__, 'exec'))
";
/// What differs from sandbox to sandbox.
const OWN_NAMES: [&str; 5] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_LAMBDA_LOG_STREAM_NAME",
    "_X_AMZN_TRACE_ID",
];

/// The Python that tests run on, if sandboxes can be prewarmed here; else why not.
fn python_to_warm() -> Result<PythonRuntime, &'static str> {
    if !rustix::process::geteuid().is_root() {
        return Err("prewarming needs root");
    }
    python().ok_or("no Python with awslambdaric; make installs one, NIGH_TEST_PYTHON names one")
}

fn prewarming(python: &PythonRuntime, stems_max: usize) -> InvokerSettings {
    let mut settings = settings();
    settings.runtime.pythons = vec![python.clone()];
    // What loads the hook for boto3 must not tell a stem from a fresh start.
    settings.runtime.python_library =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).map(|project| project.join("runtimes/python"));
    let imports = vec!["boto3".to_owned()];
    settings.prewarm = Some(PrewarmSettings { memory_max: ByteSize::gib(1), stems_max, imports });
    settings
}

fn ready(node: &Node) -> usize {
    node.invoker.stems().iter().map(|stems| stems.ready).sum()
}

/// What a function sees of itself, and whether it runs in what was a stem.
async fn looks(node: &Node, name: &str) -> (BTreeMap<String, Value>, bool, SandboxStart) {
    let outcome = node.invoke(name, json!({})).await;
    assert!(!outcome.is_error, "{outcome:?}");
    let mut looks: BTreeMap<String, Value> = serde_json::from_value(outcome.payload["looks"].clone()).unwrap();
    // The same user is not lent twice in a row.
    let uid = looks["ids"][4].to_string();
    for value in looks.values_mut() {
        *value = serde_json::from_str(&value.to_string().replace(&uid, "0")).unwrap();
    }
    let environment = looks.get_mut("environment").unwrap().as_array_mut().unwrap();
    environment
        .iter_mut()
        .filter(|line| OWN_NAMES.iter().any(|name| line[0] == *name))
        .for_each(|line| line[1] = json!(""));
    let start = node.record(outcome.id).await.sandbox_start.unwrap();
    (looks, outcome.payload["was_a_stem"].as_bool().unwrap(), start)
}

/// One of these tests ends all stems of this process.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// A function, and whether it stays in the process that was the stem.
struct Case(&'static str, bool, fn(&mut Function), &'static [(&'static str, &'static str)]);

#[tokio::test(flavor = "multi_thread")]
async fn a_function_that_was_a_stem_sees_what_one_started_afresh_sees() {
    if let Err(why) = compare(EngineChoice::Process).await {
        skip("a_function_that_was_a_stem_sees_what_one_started_afresh_sees", why);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn under_runc_a_function_that_was_a_stem_sees_the_same_too() {
    if let Err(why) = compare(EngineChoice::Runc).await {
        skip("under_runc_a_function_that_was_a_stem_sees_the_same_too", why);
    }
}

/// Runs the same functions with and without stems; an error where that cannot be done here.
async fn compare(choice: EngineChoice) -> Result<(), String> {
    let python = python_to_warm()?;
    let _alone = ALONE.lock().await;
    let minor = python.minor;
    let mut with = prewarming(&python, 1);
    with.limits.memory_max = ByteSize::gib(2);
    let without = InvokerSettings { prewarm: None, ..with.clone() };
    let node = |settings| Node::with_engine(choice, settings, Vec::new());
    let warm = node(with).await.map_err(|error| error.to_string())?;
    let fresh = node(without).await.map_err(|error| error.to_string())?;
    let cases = [
        Case("plain", true, |_| {}, &[]),
        Case(
            "changed",
            true,
            |function| {
                function.ephemeral_storage = ByteSize::mib(777);
                for (name, value) in
                    [("TZ", "America/New_York"), ("MINE", "\u{e4}=1"), ("PATH", "/var/task:/bin"), ("EMPTY", "")]
                {
                    function.environment.insert(name.to_owned(), value.to_owned());
                }
            },
            &[("vendored.py", "")],
        ),
        Case(
            "path",
            true,
            |function| {
                let path = "/var/task/vendor:/var/task:/nowhere:/usr/lib";
                function.environment.insert("PYTHONPATH".to_owned(), path.to_owned());
            },
            &[],
        ),
        Case(
            "unbuffered",
            false,
            |function| {
                function.environment.insert("PYTHONUNBUFFERED".to_owned(), "1".to_owned());
            },
            &[],
        ),
        Case(
            "log-format",
            false,
            |function| {
                function.environment.insert("AWS_LAMBDA_LOG_FORMAT".to_owned(), "JSON".to_owned());
            },
            &[],
        ),
        Case("own-module", false, |_| {}, &[("six.py", OWN_SIX)]),
    ];
    for Case(name, stays, change, files) in cases {
        let files: Vec<(&str, &str)> = [("app.py", LOOKS)].into_iter().chain(files.iter().copied()).collect();
        let deployed = |function: &mut Function| {
            function.runtime = Runtime::Python { minor };
            change(function);
        };
        for node in [&warm, &fresh] {
            node.deploy_files(name, &files, deployed);
        }
        warm.until("a stem waits", |node| ready(node) == 1).await;
        let (of_stem, was_a_stem, start) = looks(&warm, name).await;
        let (afresh, _, cold) = looks(&fresh, name).await;
        for (what, expected) in &afresh {
            assert_eq!(&of_stem[what], expected, "{name}: {what}");
        }
        assert_eq!((was_a_stem, start, cold), (stays, SandboxStart::Prewarmed, SandboxStart::Cold), "{name}");
    }
    warm.stop().await;
    fresh.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn stems_follow_demand_yield_to_functions_and_leave_nothing_behind() {
    let python = match python_to_warm() {
        Ok(python) => python,
        Err(why) => {
            skip("stems_follow_demand_yield_to_functions_and_leave_nothing_behind", why);
            return;
        }
    };
    let _alone = ALONE.lock().await;
    let minor = python.minor;
    let node = Node::start(prewarming(&python, 2)).await;
    let simple = "def handler(event, context):\n    return event\n";
    assert_eq!(node.invoker.in_use().stems, 0);
    for name in ["a", "b"] {
        node.deploy_files(name, &[("app.py", simple)], |function| function.runtime = Runtime::Python { minor });
    }
    node.until("one stem waits for a runtime that is deployed", |node| ready(node) == 1).await;
    assert_eq!(node.invoker.in_use().prewarmed, ByteSize::mib(128));
    for name in ["a", "b"] {
        node.invoke(name, json!({})).await;
    }
    let host = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!host.contains("/var/task"), "the code is mounted in the sandboxes and not on the host");
    node.until("two cold starts in a row want two", |node| ready(node) == 2).await;
    let warm = node.invoke("a", json!({})).await;
    assert_eq!(node.record(warm.id).await.sandbox_start, Some(SandboxStart::Warm));
    // All of the 512 MiB are wanted: idle sandboxes and stems end for it.
    node.deploy("large", |function| function.memory = ByteSize::mib(512));
    let large = node.invoke("large", json!({"do": "return"})).await;
    assert!(!large.is_error, "{large:?}");
    assert_eq!((node.invoker.in_use().stems, ready(&node)), (0, 0));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stem_that_dies_while_it_waits_is_replaced_and_nobody_hears_of_it() {
    let python = match python_to_warm() {
        Ok(python) => python,
        Err(why) => {
            skip("a_stem_that_dies_while_it_waits_is_replaced_and_nobody_hears_of_it", why);
            return;
        }
    };
    let _alone = ALONE.lock().await;
    let minor = python.minor;
    let node = Node::start(prewarming(&python, 1)).await;
    let simple = "def handler(event, context):\n    return event\n";
    node.deploy_files("f", &[("app.py", simple)], |function| function.runtime = Runtime::Python { minor });
    node.until("a stem waits", |node| ready(node) == 1).await;
    let stems = stem_processes();
    assert!(!stems.is_empty());
    for pid in stems {
        let _gone = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    let outcome = node.invoke("f", json!({"n": 1})).await;
    assert_eq!((&outcome.payload, outcome.is_error), (&json!({"n": 1}), false));
    node.until("another stem waits", |node| ready(node) == 1).await;
    node.stop().await;
}

/// The waiting interpreters below this process.
fn stem_processes() -> Vec<rustix::process::Pid> {
    let parent = |pid: i32| -> Option<i32> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
    };
    let own =
        |pid: i32| std::iter::successors(Some(pid), |pid| parent(*pid)).any(|pid| pid == std::process::id() as i32);
    let pids = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let stems = pids.filter(|pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.windows(16).any(|part| part == b"EnvironmentReads") && own(*pid)
    });
    stems.filter_map(rustix::process::Pid::from_raw).collect()
}
