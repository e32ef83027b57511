//! The last-level cache's level, as a user meets it on whatever machine this is.

use std::path::Path;

use serde_json::{Value, json};

use crate::platform::{Node, python};
use crate::skipped::skip;

#[test]
fn an_invocation_says_which_cache_ways_its_data_needs_also_where_none_can_be_given() {
    let test = "an_invocation_says_which_cache_ways_its_data_needs_also_where_none_can_be_given";
    let Some(python) = python(test) else { return };
    let mut node = Node::start(&python);
    let status = node.json(["llc", "status"]);
    let levels = node.json(["status"])["levels"].clone();
    let level = levels.as_array().unwrap().iter().find(|level| level["name"] == "cache ways").unwrap();
    assert_eq!(&status["level"], level);
    if status["shape"].is_null() {
        return skip(test, format_args!("the processor does not say what its last-level cache is: {level}"));
    }
    let ways = status["shape"]["ways"].as_u64().unwrap();
    assert_eq!(node.json(["llc", "layout"])[0]["mask"], json!((1_u64 << ways) - 1), "the default class has every way");

    let input = node.state.with_file_name("input");
    std::fs::write(&input, vec![7u8; 100_000]).unwrap();
    node.ok(["objects", "mb", "nigh://data"]);
    node.ok(["objects", "cp", input.to_str().unwrap(), "nigh://data/in"]);
    node.deploy("echo");
    let explained = |node: &Node| {
        node.ok(["invoke", "echo", r#"{"input": {"bucket": "data", "key": "in"}}"#]);
        let id = node.last_activation()["id"].as_str().unwrap().to_owned();
        node.json(["llc", "explain", &id])["cache_ways"].as_str().unwrap().to_owned()
    };
    let before = explained(&node);
    assert!(before.contains("no profile of this version of its code"), "{before}");

    let rows = node.state.with_file_name("rows.json");
    let row = |size: u64, ways: u64, class: &str| json!({"input": {"size": size}, "ways": ways, "class": class});
    std::fs::write(&rows, json!([row(1000, 1, "light"), row(100_000, 2, "sensitive")]).to_string()).unwrap();
    node.ok(["llc", "learn", "echo", "--rows", rows.to_str().unwrap()]);
    let after = explained(&node);
    assert!(after.starts_with("97.7 KiB of data need 2 ways (sensitive)"), "{after}");
    assert_eq!(after.contains("not bound"), !status["level"]["on"].as_bool().unwrap(), "{after}");

    // The model outlives the node; the object's size is known again once it was read or written.
    node.terminate();
    assert_eq!(node.exit_code(), Some(0));
    node.restart();
    let models = node.json(["llc", "status"])["models"].clone();
    assert_eq!((&models[0]["function"], &models[0]["rows"][1]["ways"]), (&json!("echo"), &json!(2)));
}

#[test]
fn a_memory_trace_makes_a_model_that_predicts_where_no_cache_can_be_allocated() {
    let test = "a_memory_trace_makes_a_model_that_predicts_where_no_cache_can_be_allocated";
    let Some(python) = python(test) else { return };
    let node = Node::start(&python);
    let status = node.json(["llc", "status"]);
    if status["shape"].is_null() {
        return skip(
            test,
            format_args!("the processor does not say what its last-level cache is: {}", status["level"]),
        );
    }
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/llc-traces");
    let trace = |name: &str| traces.join(name).to_str().unwrap().to_owned();
    let input = node.state.with_file_name("input");
    std::fs::write(&input, vec![7u8; 124_177]).unwrap();
    node.ok(["objects", "mb", "nigh://data"]);
    node.ok(["objects", "cp", input.to_str().unwrap(), "nigh://data/in"]);
    node.deploy("echo");

    // One broken trace, and nothing is learned of the others.
    let cut = node.state.with_file_name("cut.trace.zst");
    let whole = std::fs::read(trace("blur-124k.trace.zst")).unwrap();
    std::fs::write(&cut, &whole[..whole.len() - 9]).unwrap();
    let good = trace("blur-124k.trace.zst");
    let failed = node.nigh(["llc", "learn", "echo", "--trace", &good, "--trace", cut.to_str().unwrap()]);
    let words = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert_eq!(failed.status.code(), Some(1), "{words}");
    assert!(words.contains("cut.trace.zst") && words.contains("nothing is learned"), "{words}");
    assert_eq!(node.json(["llc", "status"])["models"], json!([]));

    let large = format!("{}@1434000", trace("blur-1.4m.trace.zst"));
    let learned = node.json(["llc", "learn", "echo", "--trace", &good, "--trace", &large]);
    assert_eq!((&learned[0]["bytes"], &learned[1]["bytes"]), (&json!(124_177), &json!(1_434_000)));
    assert!(learned[1]["one_way_ms"].as_f64().unwrap() > learned[1]["best_ms"].as_f64().unwrap());
    node.ok(["invoke", "echo", r#"{"input": {"bucket": "data", "key": "in"}}"#]);
    let id = node.last_activation()["id"].as_str().unwrap().to_owned();
    let explained = node.json(["llc", "explain", &id])["cache_ways"].as_str().unwrap().to_owned();
    let ways = learned[0]["ways"].as_u64().unwrap();
    assert!(explained.starts_with(&format!("121.3 KiB of data need {ways} ways")), "{explained}");
}

#[test]
fn a_profile_that_cannot_be_made_says_why() {
    let test = "a_profile_that_cannot_be_made_says_why";
    let Some(python) = python(test) else { return };
    let node = Node::start(&python);
    node.deploy("echo");
    let failed = node.nigh(["llc", "profile", "echo"]);
    assert_eq!(failed.status.code(), Some(2), "no event is wrong usage");
    if node.json(["llc", "status"])["level"]["on"] == json!(true) {
        return skip(test, "this machine can allocate cache; the refusal is for those that cannot");
    }
    let failed = node.nigh(["llc", "profile", "echo", "--event", "{}"]);
    let words = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert_eq!(failed.status.code(), Some(1), "{words}");
    assert!(words.contains("cannot allocate cache ways"), "{words}");
}

#[test]
fn made_up_inputs_of_a_profile_are_gone_when_it_has_ended_however_it_did() {
    let Some(python) = python("made_up_inputs_of_a_profile_are_gone_when_it_has_ended_however_it_did") else { return };
    let node = Node::start(&python);
    node.deploy("echo");
    node.ok(["objects", "mb", "nigh://data"]);
    let generate = ["llc", "profile", "echo", "--generate", "png", "--sizes", "10KiB,40KiB"];
    let ends_with = |more: &[&str], code: i32| {
        let ended = node.nigh(generate.iter().chain(more));
        let words = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(code), "{words}");
        words
    };
    let missing = ends_with(&["--event", r#"{"file": "{key}"}"#], 2);
    assert!(missing.contains("{bucket}"), "{missing}");
    if node.json(["llc", "status"])["level"]["on"] == json!(false) {
        // The node refuses when the inputs are in their place already.
        let refused = ends_with(&["--bucket", "data"], 1);
        assert!(refused.contains("cannot allocate cache ways"), "{refused}");
    }
    // One a line: no other stands beside it.
    assert_eq!(node.json(["objects", "ls"])["name"], json!("data"));
    assert_eq!(node.ok(["objects", "ls", "nigh://data"]).trim(), "");
    let video = node.nigh(["llc", "profile", "echo", "--generate", "video", "--sizes", "1MiB"]);
    assert_eq!(video.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&video.stderr).contains("png, wav, text and bytes"));
}

#[test]
fn a_guard_reports_on_a_functions_invocations_beside_the_node_that_runs_them() {
    let test = "a_guard_reports_on_a_functions_invocations_beside_the_node_that_runs_them";
    let Some(python) = python(test) else { return };
    let node = Node::start(&python);
    node.deploy("echo");
    if node.json(["llc", "status"])["shape"].is_null() {
        return skip(test, "the processor does not say what its last-level cache is");
    }
    node.ok(["invoke", "echo", r#"{"sleep": 0.2}"#]);
    let none = node.nigh(["llc", "guard", "--function", "nobody", "--slo-us", "1000"]);
    assert_eq!(none.status.code(), Some(1), "a function that is not there would be silent for ever");

    let rule = ["--slo-us", "10000000", "--percentile", "50", "--window-seconds", "1", "--windows", "6"];
    let mut guard = node.begin(["--json", "llc", "guard", "--function", "echo"].into_iter().chain(rule));
    // It hears what ends from its begin on; when that is, is its own affair.
    let mut invoked = 0;
    while guard.try_wait().unwrap().is_none() {
        node.ok(["invoke", "echo", "{}"]);
        invoked += 1;
    }
    let output = guard.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let windows: Vec<Value> =
        String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let requests: u64 = windows.iter().map(|window| window["requests"].as_u64().unwrap()).sum();
    assert_eq!(windows.len(), 6);
    assert!((1..=invoked).contains(&requests), "{requests} of {invoked}, each once");
    let tails: Vec<_> = windows.iter().filter_map(|window| window["tail_us"].as_u64()).collect();
    assert!(tails.iter().all(|&tail| tail < 10_000_000) && !tails.is_empty(), "{windows:?}");
}
