//! The resctrl emulator, on which the driver's tests stand, against the kernels it stands for.

use std::path::Path;
use std::process::Command;

use nigh_lab::instrument::vm::{VmError, installed_below, resctrl_check_installed};

#[path = "support/programs.rs"]
mod programs;
#[path = "../../../tests/skipped.rs"]
mod skipped;

use self::programs::build_programs;
use self::skipped::skip;

/// Per kernel and machine; with the boots and the named cases well under two minutes.
const SEQUENCES: &str = "12";

#[test]
fn the_emulator_answers_as_real_kernels_do() {
    let test = "the_emulator_answers_as_real_kernels_do";
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    match resctrl_check_installed(&installed_below(&project)) {
        Err(missing @ VmError::Missing { .. }) => return skip(test, missing),
        installed => installed.unwrap(),
    }
    build_programs();
    let kernels = project.join(".deps/kernels");
    let selftest = ["llc", "selftest", "--vm", "--json", "--seeds", SEQUENCES, "--kernels"];
    let output = Command::new(env!("CARGO_BIN_EXE_nigh")).args(selftest).arg(kernels).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    let report: serde_json::Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {complaint}"));
    let kernels = report["kernels"].as_array().unwrap();
    let names: Vec<&str> = kernels.iter().map(|kernel| kernel["kernel"].as_str().unwrap()).collect();
    assert!(names.len() == 2 && names[0].starts_with("6.1.") && names[1].starts_with("7."), "{names:?}");
    for kernel in kernels {
        assert_eq!(kernel["mismatches"], 0, "{kernel:#}");
        assert!(kernel["cases"].as_u64().unwrap() > 100, "{kernel}");
    }
    assert!(output.status.success(), "{complaint}");
}
