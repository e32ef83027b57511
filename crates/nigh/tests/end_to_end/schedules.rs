//! Schedules of a whole node: a run begins at its date, once, whatever happens to the node; by boto3, aws-cli and the command.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::events::QUICK;
use crate::platform::{Node, command, python, wait_for};
use crate::sdks::passes;

/// Leaves an object for each run: `SCHEDULE/RUN`. A run that is tried again leaves the same one.
pub(crate) const RUNS: &str = r#"
import boto3
s3 = boto3.client("s3")

def handler(event, context):
    schedule = event["resources"][0].rsplit("/", 1)[1] if "resources" in event else event["schedule"]
    s3.put_object(Bucket="runs", Key=f"{schedule}/{context.aws_request_id}", Body=b"")
"#;

/// Makes a schedule for each of so many seconds, from a few seconds on; prints the last date.
pub(crate) const EACH_SECOND: &str = r#"
import datetime, json, os, sys
import boto3
first, count, function = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
scheduler = boto3.client("scheduler")
arn = f"arn:aws:lambda:{os.environ['AWS_DEFAULT_REGION']}:000000000000:function:{function}"
at = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0) + datetime.timedelta(seconds=first)
for n in range(count):
    due = at + datetime.timedelta(seconds=n)
    scheduler.create_schedule(Name=f"at-{n}", ScheduleExpression=f"at({due:%Y-%m-%dT%H:%M:%S})",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={"Arn": arn, "RoleArn": "arn:aws:iam::000000000000:role/any", "Input": json.dumps({"schedule": f"at-{n}"})})
print(f"{due:%Y-%m-%dT%H:%M:%S}")
"#;

/// Makes a schedule of this name for this function, which runs at each new year.
const YEARLY: &str = r#"
import os, sys
import boto3
name, function = sys.argv[1:]
arn = f"arn:aws:lambda:{os.environ['AWS_DEFAULT_REGION']}:000000000000:function:{function}"
boto3.client("scheduler").create_schedule(Name=name, ScheduleExpression="cron(0 0 1 1 ? *)",
    FlexibleTimeWindow={"Mode": "OFF"}, Target={"Arn": arn, "RoleArn": "arn:aws:iam::000000000000:role/any"})
"#;

/// The runs of each schedule in what `nigh objects ls -r nigh://runs` prints.
pub(crate) fn runs_of(listed: &str) -> BTreeMap<String, usize> {
    let mut runs = BTreeMap::new();
    for line in listed.lines() {
        let key = line.split_whitespace().last().unwrap_or_default();
        if let Some((schedule, _)) = key.trim_start_matches("nigh://runs/").split_once('/') {
            *runs.entry(schedule.to_owned()).or_default() += 1;
        }
    }
    runs
}

fn runs(node: &Node) -> BTreeMap<String, usize> {
    runs_of(&node.ok(["objects", "ls", "-r", "nigh://runs"]))
}

#[test]
fn boto3_drives_schedules_of_a_whole_node() {
    let Some(python) = python("boto3_drives_schedules_of_a_whole_node") else { return };
    let node = Node::start(&python);
    passes(&node, &python, "boto3_schedules.py");
}

#[test]
fn no_scheduled_run_is_lost_or_doubled_though_the_node_is_killed_around_its_date() {
    let test = "no_scheduled_run_is_lost_or_doubled_though_the_node_is_killed_around_its_date";
    let Some(python) = python(test) else { return };
    let mut node = Node::start_with(&python, &QUICK);
    node.ok(["objects", "mb", "nigh://runs"]);
    node.deploy_code("work", RUNS, "128MiB");
    let count = 24;
    let made = Command::new(&python)
        .args(["-c", EACH_SECOND, "4", &count.to_string(), "work"])
        .envs(node.sdk_environment())
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    // Each kill is somewhere between two dates, or at one; a run that fell due meanwhile is made up. No run is cut off so
    // often that its attempts are over.
    for round in 0..6 {
        std::thread::sleep(Duration::from_millis(700 + 290 * round));
        node.kill();
        node.restart();
        wait_for("what was queued to be done", || node.json(["events", "list"])["pending"] == 0);
    }
    wait_for("all runs", || runs(&node).len() == count);
    let counts = runs(&node);
    assert!(counts.values().all(|runs| *runs == 1), "{counts:?}");
    let listed = node.json(["schedules", "list"]);
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.len(), count);
    assert!(listed.iter().all(|one| one["LastRun"].is_f64() && one["NextRun"].is_null()), "{listed:?}");
    assert_eq!(node.json(["events", "list"])["dead"], 0);
}

#[test]
fn deploy_schedules_a_function_and_the_command_lists_pauses_and_removes_its_schedule() {
    let test = "deploy_schedules_a_function_and_the_command_lists_pauses_and_removes_its_schedule";
    let Some(python) = python(test) else { return };
    let mut node = Node::start(&python);
    node.ok(["objects", "mb", "nigh://runs"]);
    node.deploy_code("report", RUNS, "128MiB");
    let refused = node.nigh(["deploy", "report", "--cron", "*/5 * * * *"]);
    let words = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(2) && words.contains("six fields"), "{words}");
    let zone = node.nigh(["deploy", "report", "--cron", "0 9 ? * MON *", "--timezone", "Europe/Bonn"]);
    assert!(String::from_utf8(zone.stderr).unwrap().contains("Europe/Bonn"));
    let words = node.ok(["deploy", "report", "--cron", "0 9 ? * MON *", "--timezone", "Europe/Berlin"]);
    assert!(words.contains("cron(0 9 ? * MON *) in Europe/Berlin"), "{words}");

    // At once, and then every hour.
    node.ok(["deploy", "report", "--every", "1 h"]);
    wait_for("the first run", || runs(&node).get("report") == Some(&1));
    let shown = |node: &Node| -> Value { node.json(["schedules", "show", "report"]) };
    let first = shown(&node);
    assert_eq!((&first["ScheduleExpression"], &first["State"]), (&json!("rate(1 hour)"), &json!("ENABLED")));
    let next = first["NextRun"].as_f64().unwrap() - first["LastRun"].as_f64().unwrap();
    assert!((next - 3600.0).abs() < 0.001, "{first}");
    assert_eq!(node.json(["schedules", "ls", "rep", "--function", "report"]).as_array().unwrap().len(), 1);
    assert_eq!(node.json(["schedules", "ls", "--function", "other"]), json!([]));
    assert_eq!(node.json(["schedules", "ls", "--limit", "0"]), json!([]));
    let table = node.ok(["schedules", "ls"]);
    assert!(table.contains("rate(1 hour)") && table.contains("report"), "{table}");

    assert_eq!(node.ok(["schedules", "pause", "report"]).trim(), "paused report");
    assert!(shown(&node)["State"] == "DISABLED" && shown(&node)["NextRun"].is_null());
    node.kill();
    node.restart();
    assert_eq!(shown(&node)["State"], "DISABLED", "a pause outlives a kill");
    node.ok(["schedules", "resume", "report"]);
    let resumed = shown(&node);
    assert_eq!((&resumed["NextRun"], &resumed["State"]), (&first["NextRun"], &json!("ENABLED")));
    assert_eq!(runs(&node)["report"], 1);

    node.ok(["schedules", "rm", "report"]);
    let gone = node.nigh(["schedules", "rm", "report"]);
    assert!(String::from_utf8(gone.stderr).unwrap().contains("nigh schedules ls"));
    node.ok(["deploy", "report", "--every", "24 h"]);
    node.ok(["functions", "rm", "report"]);
    assert_eq!(node.json(["schedules", "list"]), json!([]), "a function takes its schedule along");
}

#[test]
fn deploy_takes_back_the_schedule_that_it_gave_and_no_other() {
    let Some(python) = python("deploy_takes_back_the_schedule_that_it_gave_and_no_other") else { return };
    let node = Node::start(&python);
    node.ok(["objects", "mb", "nigh://runs"]);
    for (function, schedule) in [("report", "nightly"), ("other", "other")] {
        node.deploy_code(function, RUNS, "128MiB");
        let mut made = Command::new(&python);
        made.args(["-c", YEARLY, schedule, function]).envs(node.sdk_environment());
        let made = made.output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
    let names = || -> Vec<String> {
        let listed = node.json(["schedules", "ls"]);
        listed.as_array().unwrap().iter().map(|one| one["Name"].as_str().unwrap().to_owned()).collect()
    };
    node.ok(["deploy", "report", "--every", "1 hour"]);
    assert_eq!(names(), ["nightly", "other", "report"]);
    let plan = node.ok(["deploy", "report", "--every", "none", "--dry-run"]);
    assert_eq!(plan, "report changes:\n  - schedule  rate(1 hour) in UTC\n");
    assert!(node.ok(["deploy", "report", "--cron", "none"]).starts_with("updated report: "));
    assert_eq!(names(), ["nightly", "other"]);
    for function in ["report", "other"] {
        let told = node.ok(["deploy", function, "--every", "none"]);
        assert!(told.starts_with(&format!("unchanged {function}: ")), "{told}");
    }
    assert_eq!(names(), ["nightly", "other"], "what the SDK made stays, also where it has the function's name");

    let both = node.nigh(["deploy", "report", "--trigger", "runs/in/", "--every", "1 hour", "--dry-run"]);
    let said = String::from_utf8(both.stderr).unwrap();
    assert!(said.starts_with("warning: report gets events of two forms: "), "{said}");
}

#[test]
fn a_backup_has_the_schedules_and_a_restored_node_repeats_no_run() {
    let Some(python) = python("a_backup_has_the_schedules_and_a_restored_node_repeats_no_run") else { return };
    let mut node = Node::start(&python);
    node.ok(["objects", "mb", "nigh://runs"]);
    node.deploy_code("report", RUNS, "128MiB");
    node.ok(["deploy", "report", "--every", "1 h"]);
    wait_for("the first run", || runs(&node).get("report") == Some(&1));
    wait_for("it to be done", || node.json(["events", "list"])["pending"] == 0);
    let before = node.json(["schedules", "show", "report"]);
    let file = node.state.with_file_name("node.tar");
    let file = file.to_str().unwrap().to_owned();
    node.ok(["backup", &file]);
    node.kill();
    assert!(command(&node.state).args(["restore", &file, "--force"]).status().unwrap().success());
    node.restart();
    assert_eq!(node.json(["schedules", "show", "report"]), before);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(node.json(["events", "list"])["pending"], 0);
    assert_eq!(node.json(["schedules", "show", "report"])["LastRun"], before["LastRun"]);
}
