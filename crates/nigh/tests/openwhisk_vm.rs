//! CASY's flow through OpenWhisk's API (section V-C), on a kernel that allocates cache: an action is registered and profiled,
//! the ways that an invocation's input needs are predicted, and it runs in the class that has them.

#![cfg(feature = "lab")]
#![expect(clippy::unwrap_used, reason = "tests: a broken expectation panics")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nigh_lab::vm::{Guest, VmError, installed_below, pinned, report_rdt};
use nigh_llc::resctrl::emulator::{Dialect, GuestMachine};
use serde_json::Value;

#[path = "support/programs.rs"]
mod programs;

use self::programs::build_programs;

/// Several times what it takes on a machine without other work.
const WITHIN: Duration = Duration::from_secs(900);
/// The node's programs, their copies and what they work in.
const MEMORY_MIB: u32 = 2048;
/// What the guest calls the API with, and its actions the S3 door.
const CURL: &str = "/usr/bin/curl";

/// `program` without what a debugger wants, in `folder`: a guest has its files in memory.
fn stripped(program: &Path, folder: &Path) -> PathBuf {
    let target = folder.join(program.file_name().unwrap());
    let done = Command::new("strip").arg("-o").arg(&target).arg(program).status().unwrap();
    assert!(done.success(), "{}", program.display());
    target
}

#[test]
fn an_openwhisk_action_runs_in_the_cache_ways_that_its_input_was_predicted_to_need() {
    let test = "an_openwhisk_action_runs_in_the_cache_ways_that_its_input_was_predicted_to_need";
    build_programs();
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = tempfile::tempdir().unwrap();
    let nigh = Path::new(env!("CARGO_BIN_EXE_nigh"));
    let boot = || {
        let kernel = pinned().next().unwrap();
        let mut vmlinux = installed_below(&project).vmlinux(kernel)?;
        report_rdt(&mut vmlinux, &GuestMachine::CascadeLake.config(Dialect::Linux7))?;
        let mut guest = Guest::new("sh ./flow")?.with_memory(MEMORY_MIB).with_program_in_place(Path::new(CURL))?;
        for name in ["nigh", "nigh-sandbox", "nigh-http-adapter"] {
            guest = guest.with_program(&stripped(&nigh.with_file_name(name), folder.path()))?;
        }
        guest.with_file("flow", include_bytes!("support/guest_openwhisk.sh")).run(&vmlinux, WITHIN)
    };
    let end = match boot() {
        Err(error @ VmError::Missing { .. }) => return println!("SKIPPED: {test}: {error}"),
        end => end.unwrap(),
    };
    println!("{}", end.output);
    assert_eq!(end.code, 0, "{}", end.console);
    let said: Vec<Value> = end.output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [profile, runs @ .., left] = said.as_slice() else { panic!("the guest said too little") };

    // Nobody's time hangs on the cache there: the profile finds that one way is enough.
    let inputs = profile["profile"]["inputs"].as_array().unwrap();
    let ways: Vec<&Value> = inputs.iter().map(|input| &input["outcome"]["ways"]).collect();
    assert_eq!(ways, [1, 1], "{profile:#}");
    assert_eq!(runs.len(), 3);
    for (run, (size, ways, class)) in
        runs.iter().zip([("1000 B", 1, "light"), ("1000 B", 1, "light"), ("97.7 KiB", 4, "sensitive")])
    {
        let explained = run["explained"]["cache_ways"].as_str().unwrap();
        let predicted = format!("{size} of data need {ways} ways ({class}); class ");
        let placed = explained.strip_prefix(&predicted).unwrap_or_else(|| panic!("{explained}"));
        let (clos, placed) = placed.split_once(" (mask ").unwrap();
        let (mask, _because) = placed.split_once(')').unwrap();
        // What is recorded of it is what the kernel says, within its sandbox and of the class.
        assert_eq!(run["record"]["response"]["result"]["group"], format!("nigh-clos-{clos}"), "{run:#}");
        assert_eq!(run["schemata"], format!("L3:0={mask};1={mask}"), "{run:#}");
        let given = u32::from_str_radix(mask, 16).unwrap().count_ones();
        assert!(given >= ways && !explained.contains("not bound"), "{explained}");
    }
    assert_eq!(left["left"], "0", "a node that ends leaves no group");
}
