//! The processes below this one, where no pid namespace holds them together.

use std::collections::HashSet;
use std::fs;

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, wait};

/// All processes below this one.
pub(crate) fn of_this_process() -> HashSet<Pid> {
    let mut found = HashSet::new();
    let mut open = vec![getpid()];
    while let Some(parent) = open.pop() {
        for child in children(parent) {
            if found.insert(child) {
                open.push(child);
            }
        }
    }
    found
}

/// Ends all processes below this one. This process must be their sub-reaper, so that orphans become its children.
pub(crate) fn end_all() {
    loop {
        for pid in of_this_process() {
            let _ended = kill_process(pid, Signal::KILL);
        }
        // Waits for one at a time, so that those it left are found in the next round.
        if wait(WaitOptions::empty()).is_err() {
            return;
        }
    }
}

fn children(parent: Pid) -> Vec<Pid> {
    let tasks = format!("/proc/{}/task", parent.as_raw_nonzero());
    // A process may end while it is looked at.
    let Ok(tasks) = fs::read_dir(tasks) else { return Vec::new() };
    tasks
        .filter_map(Result::ok)
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|pids| pids.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>())
        .filter_map(Pid::from_raw)
        .collect()
}
