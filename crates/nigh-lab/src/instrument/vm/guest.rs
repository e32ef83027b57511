//! Boots a virtual machine once: a patched kernel and an initrd with programs, under QEMU; and reports how the command ended.
//!
//! The guest has two sockets of one CPU each, hence two last-level caches. The first serial line
//! carries the kernel's console and the command's standard error; the second carries its standard output and exit code. It mounts
//! proc, sysfs, devtmpfs, tmpfs and cgroup v2; resctrl is left to the command. It has no disk and no network.
//! Nothing outlives the call: the machine ends with its command, at the time limit, and with the thread that booted it.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::{Initrd, Kind, VmError};
use crate::instrument::peer::KilledOnDrop;
use crate::instrument::peer::installed::on_path;

const QEMU: &str = "qemu-system-x86_64";
const BUSYBOX: &str = "/bin/busybox";
const HINT: &str = "run scripts/install-vm.sh as root (Debian: qemu-system-x86 busybox-static)";
/// An Intel part (AMD's resctrl has other rules) whose highest leaf is beyond 0x10.
const CPU: &str = "max,vendor=GenuineIntel,family=6,model=106,stepping=6,level=22";
const KERNEL_ARGUMENTS: &str =
    "console=ttyS0 quiet oops=panic panic=-1 nokaslr mitigations=off no_timer_check cryptomgr.notests rdinit=/init";
const FOLDERS: &str = "/proc /sys /dev /tmp /run /var/lock /root /sbin /usr/bin /usr/sbin";
/// The folder of the guest's programs.
const PROGRAMS: &str = "/nigh";
/// The folder in which the guest's root is built.
const NEW_ROOT: &str = "/new-root";
/// Begins the line with the exit code, after the output.
const END_MARK: &str = "\nnigh-guest-ended ";
/// `END_MARK` as an argument of the shell's `printf`.
const END_MARK_PRINTED: &str = "\\nnigh-guest-ended ";
/// The default memory of a guest.
const MEMORY_MIB: u32 = 512;
/// The longest output of the command; a longer one makes the boot fail.
const OUTPUT_MAX_BYTES: u64 = 16 << 20;
/// How many bytes of the end of the console, and of an output without an exit code, an error shows.
const LAST_WORDS_BYTES: usize = 3000;
const POLL: Duration = Duration::from_millis(20);

/// A machine to boot.
#[derive(Debug)]
pub struct Guest {
    initrd: Initrd,
    command: String,
    memory_mib: u32,
}

/// How the command in the guest ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestEnd {
    /// Its exit code.
    pub code: i32,
    /// Its standard output.
    pub output: String,
    /// The kernel's console and the command's standard error.
    pub console: String,
}

impl Guest {
    /// Whether guests can be made and booted here.
    ///
    /// # Errors
    /// `Missing` without QEMU or a static busybox.
    pub(super) fn installed() -> Result<(), VmError> {
        qemu_installed()?;
        Self::new("true").map(drop)
    }

    /// A guest that will run `command`, a shell command, in the folder of its programs.
    ///
    /// # Errors
    /// `Missing` if there is no static busybox.
    pub fn new(command: &str) -> Result<Self, VmError> {
        let busybox =
            fs::read(BUSYBOX).map_err(|_| VmError::Missing { what: format!("{BUSYBOX} (static)"), hint: HINT })?;
        let mut initrd = Initrd::default();
        for folder in FOLDERS.split(' ').chain([NEW_ROOT, PROGRAMS]) {
            initrd.add(folder, Kind::Folder, &[]);
        }
        initrd.add(BUSYBOX, Kind::Program, &busybox);
        initrd.add("/dev/console", Kind::Device { major: 5, minor: 1 }, &[]);
        initrd.add("/etc/passwd", Kind::File, b"root:x:0:0:root:/root:/bin/sh\n");
        initrd.add("/etc/group", Kind::File, b"root:x:0:\n");
        Ok(Self { initrd, command: command.to_owned(), memory_mib: MEMORY_MIB })
    }

    /// Adds the host's program `host` and its libraries to the guest's programs, by its file name.
    ///
    /// # Errors
    /// If it or one of its libraries cannot be read.
    pub fn with_program(mut self, host: &Path) -> Result<Self, VmError> {
        let name = host.file_name().unwrap_or(host.as_os_str()).to_string_lossy();
        self.initrd.add_program(&format!("{PROGRAMS}/{name}"), host)?;
        Ok(self)
    }

    /// Adds the host's program `host` and its libraries to the guest, at the same path as on the host.
    ///
    /// # Errors
    /// If it or one of its libraries cannot be read.
    pub fn with_program_in_place(mut self, host: &Path) -> Result<Self, VmError> {
        self.initrd.add_program(&host.to_string_lossy(), host)?;
        Ok(self)
    }

    /// Adds the file `name` to the folder of the guest's programs.
    #[must_use]
    pub fn with_file(mut self, name: &str, content: &[u8]) -> Self {
        self.initrd.add(&format!("{PROGRAMS}/{name}"), Kind::File, content);
        self
    }

    /// Sets the guest's memory, in MiB; its programs need their size twice.
    #[must_use]
    pub const fn with_memory(mut self, mib: u32) -> Self {
        self.memory_mib = mib;
        self
    }

    /// Boots `kernel` (a `vmlinux`) and waits until the command has ended.
    ///
    /// # Errors
    /// `Missing` without QEMU, `NoAnswer` if the machine ends or has to be ended before its command.
    pub fn run(mut self, kernel: &[u8], within: Duration) -> Result<GuestEnd, VmError> {
        let folder = tempfile::Builder::new()
            .prefix("nigh-vm-")
            .tempdir()
            .map_err(VmError::host("make a folder in", std::env::temp_dir()))?;
        self.initrd.add("/init", Kind::Program, init_script(&self.command).as_bytes());
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            fs::write(&path, bytes).map_err(VmError::host("write", path))
        };
        write("vmlinux", kernel)?;
        write("initrd", &self.initrd.finish())?;
        let console = folder.path().join("console");
        let output = folder.path().join("output");
        let tail = || last_words(&console);

        let mut machine = start(folder.path(), self.memory_mib)?;
        let begun = Instant::now();
        let ended = loop {
            if let Some(ended) = machine.0.try_wait().map_err(VmError::host("wait for", QEMU))? {
                break ended;
            }
            if begun.elapsed() > within {
                let how = format!("was ended after {} s", within.as_secs());
                return Err(VmError::NoAnswer { how, output: last_words(&output), console: tail() });
            }
            thread::sleep(POLL);
        };
        let said = read_at_most(&output, OUTPUT_MAX_BYTES).unwrap_or_default();
        let Some((output, code)) = split_end(&said) else {
            let mut own_words = String::new();
            if let Some(mut stderr) = machine.0.stderr.take() {
                let _ = stderr.read_to_string(&mut own_words);
            }
            let how = format!("gave no exit code ({ended}) {own_words}");
            return Err(VmError::NoAnswer { how: how.trim().to_owned(), output: last_words(&output), console: tail() });
        };
        Ok(GuestEnd { code, output: output.to_owned(), console: tail() })
    }
}

/// The first process: moves to a root that can be changed and mounted over (the kernel's own first one cannot), mounts,
/// runs the command, says how it ended, and ends the machine.
fn init_script(command: &str) -> String {
    format!(
        "#!/bin/busybox sh\n\
         if [ \"$1\" != moved ]; then\n\
         \x20 /bin/busybox mount -t tmpfs root {NEW_ROOT}\n\
         \x20 for entry in /*; do [ $entry = {NEW_ROOT} ] || /bin/busybox cp -a $entry {NEW_ROOT}; done\n\
         \x20 exec /bin/busybox switch_root {NEW_ROOT} /init moved\n\
         fi\n\
         /bin/busybox --install -s /bin\n\
         export PATH=/bin:/usr/bin:{PROGRAMS} HOME=/root\n\
         mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmp /tmp\n\
         mkdir /dev/shm; mount -t tmpfs shm /dev/shm\n\
         mount -t cgroup2 cgroup2 /sys/fs/cgroup\n\
         ip link set lo up\n\
         stty -F /dev/ttyS1 raw -echo\n\
         cd {PROGRAMS}\n\
         ( {command} ) > /dev/ttyS1 < /dev/null; code=$?\n\
         printf '{END_MARK_PRINTED}%s\\n' $code > /dev/ttyS1\n\
         poweroff -f\n"
    )
}

/// The output and the exit code behind it; none if the machine ended too early.
fn split_end(said: &str) -> Option<(&str, i32)> {
    let (output, code) = said.rsplit_once(END_MARK)?;
    Some((output, code.trim().parse().ok()?))
}

/// The last bytes of a file with the guest's output.
fn last_words(path: &Path) -> String {
    let said = read_at_most(path, OUTPUT_MAX_BYTES).unwrap_or_default();
    said[said.floor_char_boundary(said.len().saturating_sub(LAST_WORDS_BYTES))..].to_owned()
}

fn read_at_most(path: &Path, limit: u64) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(limit).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn qemu_installed() -> Result<(), VmError> {
    let there = on_path(QEMU).is_some();
    there.then_some(()).ok_or_else(|| VmError::Missing { what: format!("the program {QEMU}"), hint: HINT })
}

/// Boots `vmlinux` and `initrd` of `folder`; the serial lines go to `console` and `output` there.
fn start(folder: &Path, memory_mib: u32) -> Result<KilledOnDrop, VmError> {
    qemu_installed()?;
    let file = |name: &str| folder.join(name).to_string_lossy().into_owned();
    // The machine must not outlive this thread, however that ends (PR_SET_PDEATHSIG).
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", QEMU]);
    command.args(["-machine", "pc", "-accel", "tcg,thread=single", "-cpu", CPU]);
    command.args(["-smp", "2,sockets=2,cores=1,threads=1", "-m", &memory_mib.to_string()]);
    command.args(["-nodefaults", "-display", "none", "-no-reboot"]);
    command.args(["-serial", &format!("file:{}", file("console")), "-serial", &format!("file:{}", file("output"))]);
    command.args(["-kernel", &file("vmlinux"), "-initrd", &file("initrd"), "-append", KERNEL_ARGUMENTS]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().map(KilledOnDrop).map_err(VmError::host("run", QEMU))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_stands_behind_the_output() {
        assert_eq!(split_end("a\nb\n\nnigh-guest-ended 3\n"), Some(("a\nb\n", 3)));
        assert_eq!(split_end("says nigh-guest-ended 1\n"), None);
        assert_eq!(split_end("\nnigh-guest-ended \n"), None, "the machine ended in the middle");
    }

    #[test]
    fn a_guest_runs_its_command_before_it_ends_the_machine() {
        let script = init_script("echo one && false");
        let at = |words: &str| script.find(words).unwrap();
        assert!(at("switch_root") < at("mount -t proc"));
        assert!(at("mount -t proc") < at("( echo one && false ) > /dev/ttyS1"));
        assert!(at("echo one") < at(END_MARK.trim()) && at(END_MARK.trim()) < at("poweroff"));
    }
}
