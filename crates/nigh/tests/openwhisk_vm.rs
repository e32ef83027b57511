//! CASY's flow through OpenWhisk's API (section V-C), on a kernel that allocates cache: an action is registered and profiled,
//! the ways that an invocation's input needs are predicted, and it runs in the class that has them.

#![expect(clippy::unwrap_used, reason = "tests: a broken expectation panics")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nigh_lab::instrument::vm::{Guest, VmError, installed_below, pinned, report_rdt};
use nigh_llc::resctrl::emulator::{Dialect, GuestMachine};
use serde_json::Value;

#[path = "support/programs.rs"]
mod programs;
#[path = "../../../tests/skipped.rs"]
mod skipped;

use self::programs::build_programs;
use self::skipped::skip;

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

/// A mask as Nigh or the kernel writes it.
fn bits(mask: &str) -> u32 {
    u32::from_str_radix(mask, 16).unwrap()
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
        Err(error @ VmError::Missing { .. }) => return skip(test, error),
        end => end.unwrap(),
    };
    println!("{}", end.output);
    assert_eq!(end.code, 0, "{}", end.console);
    let said: Vec<Value> = end.output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [profile, runs @ .., left] = said.as_slice() else { panic!("the guest said too little") };

    // No time hangs on the cache there, and times differ: what a profile finds, one way as a rule, is not this test's matter.
    let inputs = profile["profile"]["inputs"].as_array().unwrap();
    let found = u32::try_from(inputs[0]["outcome"]["ways"].as_u64().unwrap()).unwrap();
    assert_eq!(runs.len(), 3);
    for (run, (size, ways)) in runs.iter().zip([("1000 B", found), ("1000 B", 1), ("97.7 KiB", 4)]) {
        let explained = run["explained"]["cache_ways"].as_str().unwrap();
        let predicted = format!("{size} of data need {ways} ways (");
        assert!(explained.starts_with(&predicted), "{explained}");
        // Classes change with what runs: it ended in the last that is named.
        let (named, ended_in) = explained.rsplit_once(" (mask ").unwrap();
        let clos = named.rsplit(' ').next().unwrap();
        let mask = bits(ended_in.split(')').next().unwrap());
        // What is recorded of it is what the kernel says, within its sandbox and of the class.
        let group = if clos == "0" { "/".to_owned() } else { format!("nigh-clos-{clos}") };
        assert_eq!(run["record"]["response"]["result"]["group"], group, "{run:#}");
        let schemata = run["schemata"].as_str().unwrap().strip_prefix("L3:").unwrap();
        let domains: Vec<u32> = schemata.split(';').map(|domain| bits(domain.split('=').nth(1).unwrap())).collect();
        assert_eq!(domains, [mask, mask], "{run:#}");
        assert!(mask.count_ones() >= ways && !explained.contains("not bound"), "{explained}");
    }
    assert_eq!(left["left"], "0", "a node that ends leaves no group");
}
