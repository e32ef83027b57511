//! The emulator of resctrl against real kernels: each pinned kernel is booted on each reference machine, and the guest
//! program compares what the kernel and the emulator answer.
//!
//! Kernels run beside each other, machines of one kernel after each other: a guest keeps one core of the host busy.

use std::fmt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nigh_llc::resctrl::emulator::{Dialect, GuestMachine};
use serde::{Deserialize, Serialize};

use super::{Guest, KernelFolder, PinnedKernel, VmError, pinned, report_rdt};

/// What runs in the guests; it stands beside `nigh`.
const GUEST_PROGRAM: &str = "nigh-resctrl-guest";
/// Intel's own reader of resctrl, asked what it sees of Nigh's groups.
const PQOS: &str = "/usr/sbin/pqos";
const HINT: &str = "run scripts/install-vm.sh as root (Debian: intel-cmt-cat)";
const GUEST_HINT: &str = "it is installed beside nigh; build it by: cargo build -p nigh-lab --bin nigh-resctrl-guest";
/// Per boot, beside what the sequences take; ten times what it takes on a machine without other work.
const BOOT_WITHIN: Duration = Duration::from_secs(300);
/// Per sequence, on a machine that has other work.
const SEQUENCE_WITHIN: Duration = Duration::from_secs(10);

/// Boots of a kernel that crashes each time. Debian's 6.1 was seen to follow a null pointer in resctrl's mkdir.
const BOOTS_MAX: u64 = 3;

/// What is to be compared, and with what.
#[derive(Debug, Clone)]
pub(crate) struct ResctrlCheck {
    pub(crate) kernels: KernelFolder,
    /// The folder of `nigh-resctrl-guest`.
    pub(crate) programs: PathBuf,
    /// Random sequences per kernel and machine, of the seeds 0, 1, ...
    pub(crate) sequences: u32,
}

/// What came of one kernel.
#[derive(Debug, Default, Serialize)]
pub(crate) struct KernelReport {
    /// The kernel's release.
    kernel: String,
    /// Conformance cases, sequences and groups compared.
    cases: u64,
    /// Those in which the two differ.
    pub(crate) mismatches: u64,
    /// Cases that none of the machines could show.
    not_applicable: u64,
    /// Boots in which the kernel itself crashed; each was repeated.
    kernel_crashes: u64,
    /// What differs, each with the shortest list of commands found that shows it.
    differences: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Mismatch {
    what: String,
    commands: Vec<String>,
    kernel: String,
    /// By the emulator or the case.
    expected: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.what)?;
        self.commands.iter().try_for_each(|command| writeln!(f, "  {command}"))?;
        write!(f, "  kernel: {}\n  expected: {}", self.kernel, self.expected)
    }
}

#[derive(Debug, Deserialize)]
struct GuestReport {
    release: String,
    cases: u64,
    not_applicable: u64,
    mismatches: Vec<Mismatch>,
}

/// Whether all that the check boots and asks is installed: QEMU, busybox, pqos and the pinned kernels.
///
/// # Errors
/// `Missing`, for the first that is not.
pub fn resctrl_check_installed(kernels: &KernelFolder) -> Result<(), VmError> {
    Guest::installed()?;
    require(Path::new(PQOS), HINT)?;
    pinned().try_for_each(|kernel| kernels.vmlinuz(kernel).map(drop))
}

impl ResctrlCheck {
    /// Boots every pinned kernel; a report per kernel, oldest first.
    pub(crate) fn run(&self) -> Result<Vec<KernelReport>, VmError> {
        thread::scope(|scope| {
            let running: Vec<_> = pinned().map(|kernel| scope.spawn(move || self.one_kernel(kernel))).collect();
            let died = |_| VmError::kernel("its thread ended without a report");
            running.into_iter().map(|thread| thread.join().map_err(died)?).collect()
        })
    }

    fn one_kernel(&self, kernel: PinnedKernel) -> Result<KernelReport, VmError> {
        let plain = self.kernels.vmlinux(kernel)?;
        let mut whole = KernelReport::default();
        for machine in GuestMachine::ALL {
            let mut vmlinux = plain.clone();
            report_rdt(&mut vmlinux, &machine.config(Dialect::Linux7))?;
            let mut crashes = 0;
            let report = loop {
                match self.boot(&vmlinux, machine) {
                    Err(error) if error.is_kernel_crash() && crashes + 1 < BOOTS_MAX => crashes += 1,
                    ended => break ended?,
                }
            };
            whole.kernel_crashes += crashes;
            whole.kernel = report.release;
            whole.cases += report.cases;
            whole.mismatches += report.mismatches.len() as u64;
            whole.not_applicable += report.not_applicable;
            whole.differences.extend(report.mismatches.iter().map(ToString::to_string));
        }
        Ok(whole)
    }

    fn boot(&self, vmlinux: &[u8], machine: GuestMachine) -> Result<GuestReport, VmError> {
        let program = self.programs.join(GUEST_PROGRAM);
        require(&program, GUEST_HINT)?;
        require(Path::new(PQOS), HINT)?;
        let command = format!("{GUEST_PROGRAM} {} 0 {}", machine.name(), self.sequences);
        let within = BOOT_WITHIN + SEQUENCE_WITHIN * self.sequences;
        let end = Guest::new(&command)?.with_program(&program)?.with_program(Path::new(PQOS))?.run(vmlinux, within)?;
        let failed = |reason: String| VmError::Guest { what: command.clone(), reason };
        if end.code != 0 {
            return Err(failed(format!("exit code {}; {}", end.code, end.console)));
        }
        serde_json::from_str(&end.output).map_err(|error| failed(format!("{error} in {:?}", end.output)))
    }
}

fn require(program: &Path, hint: &'static str) -> Result<(), VmError> {
    let there = program.is_file();
    there.then_some(()).ok_or_else(|| VmError::Missing { what: program.display().to_string(), hint })
}
