//! Schedules of a cluster: whatever owner of dispatch is killed, each run begins once.

use std::process::Command;
use std::time::Duration;

use crate::cluster_workflows::Nodes;
use crate::platform::{python, wait_for};
use crate::schedules::{EACH_SECOND, RUNS, runs_of};

#[test]
fn no_scheduled_run_is_lost_or_doubled_when_the_owner_is_killed_and_another_follows() {
    let test = "no_scheduled_run_is_lost_or_doubled_when_the_owner_is_killed_and_another_follows";
    let Some(mut nodes) = Nodes::start(test, 3) else { return };
    let Some(python) = python(test) else { return };
    nodes.ok(0, &["objects", "mb", "nigh://runs"]);
    nodes.deploy_code("work", RUNS, &["--env", "NIGH_IDEMPOTENT=true"]);
    let count = 30;
    let made = Command::new(&python)
        .args(["-c", EACH_SECOND, "6", &count.to_string(), "work"])
        .envs(nodes.sdk_environment(0))
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let listed = |nodes: &Nodes, node: usize| runs_of(&nodes.ok(node, &["objects", "ls", "-r", "nigh://runs"]));
    wait_for("the first runs", || listed(&nodes, 1).len() > 3);
    let owner = nodes.owner();
    let other = (owner + 1) % 3;
    nodes.kill(owner);
    wait_for("the runs of the next owner", || {
        let begun = nodes.json(other, &["schedules", "list"]);
        let begun = begun.as_array().unwrap().iter().filter(|one| one["LastRun"].is_f64()).count();
        begun >= count / 2
    });
    assert_ne!(nodes.owner_beside(owner), owner);
    // What the killed node had begun is on its disk.
    nodes.start_again(owner);
    wait_for("all runs", || listed(&nodes, other).len() == count);
    std::thread::sleep(Duration::from_secs(1));
    let counts = listed(&nodes, other);
    assert!(counts.values().all(|runs| *runs == 1), "{counts:?}");
}
