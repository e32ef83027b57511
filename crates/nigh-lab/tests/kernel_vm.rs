//! Real kernels, booted: what of the guests can be shown without any program of ours.

#![expect(clippy::unwrap_used, reason = "a test ends by panicking")]

#[path = "../../../tests/skipped.rs"]
mod skipped;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nigh_lab::instrument::vm::{Guest, GuestEnd, PinnedKernel, VmError, installed_below, pinned, report_rdt};
use nigh_llc::resctrl::emulator::{Dialect, GuestMachine};

use self::skipped::skip;

/// Six times what the longest takes on a machine without other work.
const BOOT_WITHIN: Duration = Duration::from_secs(900);

/// Boots the pinned kernel `name`, on `machine`, to run `command`; none, said why, if it is not installed.
fn booted(test: &str, name: &str, machine: GuestMachine, command: &str) -> Option<GuestEnd> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let kernel = pinned().find(|kernel| kernel.name == name).unwrap();
    let ended = installed_below(&project).vmlinux(kernel).and_then(|mut vmlinux| {
        report_rdt(&mut vmlinux, &machine.config(Dialect::Linux7))?;
        Guest::new(command)?.run(&vmlinux, BOOT_WITHIN)
    });
    match ended {
        Err(error @ VmError::Missing { .. }) => {
            skip(test, error);
            None
        }
        ended => Some(ended.unwrap()),
    }
}

#[test]
fn a_patched_kernel_offers_what_the_processor_is_said_to_have() {
    let test = "a_patched_kernel_offers_what_the_processor_is_said_to_have";
    let command = "mount -t resctrl resctrl /sys/fs/resctrl && cd /sys/fs/resctrl && cat schemata info/L3/cbm_mask \
                   info/L3/num_closids info/L3/shareable_bits info/L3_MON/num_rmids \
                   info/L3_MON/max_threshold_occupancy && ls info";
    let Some(end) = booted(test, "6.1", GuestMachine::CascadeLake, command) else { return };
    let said: Vec<&str> = end.output.split_whitespace().collect();
    assert_eq!(end.code, 0, "{end:?}");
    // A threshold of 0 would let no monitoring id leave limbo.
    assert_eq!(said[..7], ["MB:0=100;1=100", "L3:0=7ff;1=7ff", "7ff", "8", "600", "2048", "8192"], "{end:?}");

    let command = "mount -t resctrl resctrl /sys/fs/resctrl && cd /sys/fs/resctrl && cat schemata info/L3/sparse_masks; \
                   ls info; exit 7";
    let Some(end) = booted(test, "7.2", GuestMachine::SparseWithL2, command) else { return };
    let said: Vec<&str> = end.output.split_whitespace().collect();
    assert_eq!(said, ["L2:0=ff;1=ff", "L3:0=ffff;1=ffff", "1", "L2", "L3", "L3_MON", "last_cmd_status"], "{end:?}");
    assert_eq!(end.code, 7, "the command's own exit code");
}

#[test]
fn a_guest_that_does_not_end_is_ended_with_its_last_words() {
    let test = "a_guest_that_does_not_end_is_ended_with_its_last_words";
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let vmlinux = match installed_below(&project).vmlinux(pinned().next().unwrap()) {
        Err(error @ VmError::Missing { .. }) => return skip(test, error),
        vmlinux => vmlinux.unwrap(),
    };
    let ended = Guest::new("sleep 1000").and_then(|guest| guest.run(&vmlinux, Duration::from_secs(2)));
    match ended {
        Err(error @ VmError::Missing { .. }) => skip(test, error),
        Err(error @ VmError::NoAnswer { .. }) => assert!(error.to_string().contains("was ended after 2 s"), "{error}"),
        other => panic!("{other:?}"),
    }
}

/// The test program of nigh-sandbox's process engine: sandboxes, their memory limits, their freezer.
fn process_engine_tests() -> PathBuf {
    // What is built already is found by the very flags that built it; with others Cargo would build all once more.
    let built = std::env::var("NIGH_TEST_BUILT").unwrap_or_else(|_| "-p nigh-sandbox --test process_engine".to_owned());
    let build = ["test", "--quiet", "--no-run", "--message-format=json"];
    let mut cargo = Command::new(env!("CARGO"));
    let output = cargo.args(build).args(built.split(' ')).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success());
    let said = String::from_utf8(output.stdout).unwrap();
    let messages = said.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let built = messages.filter(|message| message["target"]["name"] == "process_engine");
    PathBuf::from(built.filter_map(|message| message["executable"].as_str().map(str::to_owned)).next_back().unwrap())
}

/// What is run of them under Nigh's own engine.
const UNDER_OWN_ENGINE: [&str; 16] = [
    "elsewhere::with_read_only_cgroups_sandboxes_run_without_that_level_and_the_reason_is_said",
    "life::a_frozen_sandbox_can_be_destroyed",
    "life::a_frozen_sandbox_stands_still_and_a_thawed_one_runs_on",
    "life::a_sweep_ends_what_was_left_and_spares_what_lives",
    "life::nothing_outlives_a_killed_nigh",
    "limits::a_fork_bomb_ends_at_the_process_limit",
    "limits::a_frozen_sandbox_does_not_grow_and_one_that_has_its_memory_before_it_is_thawed_grows_at_once",
    "limits::a_function_that_needs_more_than_its_grant_goes_on_when_it_is_given",
    "limits::a_function_that_nobody_grants_more_can_be_ended",
    "limits::a_limit_below_what_is_in_use_is_refused_and_the_old_one_stands",
    "limits::a_sandbox_that_books_more_gets_more_of_a_processor_and_the_other_is_not_starved",
    "limits::a_sandbox_that_is_confined_to_a_processor_runs_there_until_it_is_freed",
    "limits::a_smaller_peak_after_a_larger_one_is_told",
    "limits::coming_to_the_limit_is_noticed",
    "limits::the_peak_is_read_and_begun_anew",
    "limits::want_of_memory_is_told_from_another_kill",
];
/// And under runc, where it is installed: a sandbox made, frozen, thawed, grown, killed and swept.
const UNDER_RUNC: [&str; 7] = [
    "life::a_frozen_sandbox_stands_still_and_a_thawed_one_runs_on",
    "life::a_sweep_ends_what_was_left_and_spares_what_lives",
    "life::nothing_outlives_a_killed_nigh",
    "limits::a_fork_bomb_ends_at_the_process_limit",
    "limits::a_frozen_sandbox_does_not_grow_and_one_that_has_its_memory_before_it_is_thawed_grows_at_once",
    "limits::a_function_that_needs_more_than_its_grant_goes_on_when_it_is_given",
    "limits::want_of_memory_is_told_from_another_kill",
];
const RUNC: &str = "/usr/sbin/runc";
const PROGRAMS: [&str; 9] = [
    "/bin/bash",
    "/usr/bin/cat",
    "/usr/bin/head",
    "/usr/bin/perl",
    "/usr/bin/rm",
    "/usr/bin/setsid",
    "/usr/bin/sleep",
    "/usr/bin/tail",
    "/usr/bin/unshare",
];

#[test]
fn sandboxes_have_their_limits_freezer_and_end_on_cgroup_v2_under_each_engine() {
    let test = "sandboxes_have_their_limits_freezer_and_end_on_cgroup_v2_under_each_engine";
    let program = process_engine_tests();
    // Cargo builds a package's programs with its tests: target/debug/deps/<test> and target/debug/<program>.
    let sandbox = program.ancestors().nth(2).unwrap().join("nigh-sandbox");
    let name = program.file_name().unwrap().to_string_lossy().into_owned();
    let tests = |engine: &str, tests: &[&str]| {
        let tests = tests.join(" ");
        format!(
            "NIGH_TEST_ENGINE={engine} NIGH_TEST_INIT=$PWD/nigh-sandbox \
             ./{name} --test-threads 1 --show-output --exact {tests} 2>&1"
        )
    };
    let own = tests("process", &UNDER_OWN_ENGINE);
    let mut programs: Vec<&str> = PROGRAMS.to_vec();
    let has_runc = Path::new(RUNC).is_file();
    if has_runc {
        programs.push(RUNC);
    } else {
        skip(test, format_args!("under runc: {RUNC} is not installed here"));
    }
    let with_programs = |guest: Guest| {
        let guest = guest.with_program(&program)?.with_program(&sandbox)?;
        programs.iter().try_fold(guest, |guest, program| guest.with_program_in_place(Path::new(program)))
    };
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // The older kernel cannot begin a peak anew, the newer one can; runc, which is slow in a guest, is shown on one. Each
    // guest computes on one processor of the host.
    let boot = &|kernel: PinnedKernel, under_runc: bool| {
        let vmlinux = installed_below(&project).vmlinux(kernel)?;
        let command = if under_runc { format!("{own} && {}", tests("runc", &UNDER_RUNC)) } else { own.clone() };
        with_programs(Guest::new(&command)?)?.run(&vmlinux, BOOT_WITHIN)
    };
    let ended: Vec<_> = std::thread::scope(|scope| {
        let booting = pinned().enumerate().map(|(index, kernel)| {
            let under_runc = has_runc && index == 0;
            (kernel.name, under_runc, scope.spawn(move || boot(kernel, under_runc)))
        });
        let booting: Vec<_> = booting.collect();
        booting.into_iter().map(|(name, under_runc, guest)| (name, under_runc, guest.join().unwrap())).collect()
    });
    for (name, under_runc, ended) in ended {
        let end = match ended {
            Err(error @ VmError::Missing { .. }) => return skip(test, error),
            ended => ended.unwrap(),
        };
        assert_eq!(end.code, 0, "{name}: {}\n{}", end.output, end.console);
        assert!(!end.output.contains("SKIPPED"), "{name}: {}", end.output);
        let passed = |count: usize| end.output.contains(&format!("{count} passed; 0 failed"));
        assert!(passed(UNDER_OWN_ENGINE.len()), "{name}: {}", end.output);
        assert!(!under_runc || passed(UNDER_RUNC.len()), "{name}: {}", end.output);
    }
}
