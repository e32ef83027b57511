//! Real kernels, booted: what of the guests can be shown without any program of ours.

#![expect(clippy::unwrap_used, reason = "a test ends by panicking")]
#![expect(clippy::print_stdout, reason = "a skipped test says so")]

use std::path::Path;
use std::time::Duration;

use nigh_lab::vm::{Guest, GuestEnd, VmError, installed_below, pinned, report_rdt};
use nigh_llc::resctrl::emulator::{Dialect, GuestMachine};

const BOOT_WITHIN: Duration = Duration::from_secs(120);

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
            println!("SKIPPED: {test}: {error}");
            None
        }
        ended => Some(ended.unwrap()),
    }
}

#[test]
fn a_patched_kernel_offers_what_the_processor_is_said_to_have() {
    let test = "a_patched_kernel_offers_what_the_processor_is_said_to_have";
    let command = "mount -t resctrl resctrl /sys/fs/resctrl && cd /sys/fs/resctrl && cat schemata info/L3/cbm_mask \
                   info/L3/num_closids info/L3/shareable_bits info/L3_MON/num_rmids && ls info";
    let Some(end) = booted(test, "6.1", GuestMachine::CascadeLake, command) else { return };
    let said: Vec<&str> = end.output.split_whitespace().collect();
    assert_eq!(end.code, 0, "{end:?}");
    assert_eq!(said[..6], ["MB:0=100;1=100", "L3:0=7ff;1=7ff", "7ff", "8", "600", "1024"], "{end:?}");

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
        Err(error @ VmError::Missing { .. }) => return println!("SKIPPED: {test}: {error}"),
        vmlinux => vmlinux.unwrap(),
    };
    let ended = Guest::new("sleep 1000").and_then(|guest| guest.run(&vmlinux, Duration::from_secs(2)));
    match ended {
        Err(error @ VmError::Missing { .. }) => println!("SKIPPED: {test}: {error}"),
        Err(error @ VmError::NoAnswer { .. }) => assert!(error.to_string().contains("was ended after 2 s"), "{error}"),
        other => panic!("{other:?}"),
    }
}
