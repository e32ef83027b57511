//! The program that carries packets between a sandbox's network and the host's sockets: slirp4netns.
//!
//! slirp4netns needs no configuration of the host: a sandbox's connections leave as those of an ordinary process. It
//! needs root's rights only to enter the sandbox's network, and then drops them by its own `--enable-sandbox` and
//! `--enable-seccomp`. It keeps the user root, without capabilities. So Nigh isolates it, too: it does not see /etc and
//! /run, and can neither send signals nor open Unix sockets. See slirp4netns(1).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, ChildStderr, Command};
use tokio::time::timeout;

use crate::sandbox::external_program::ExternalProgram;
use crate::sandbox::step_failure::{START_PATIENCE, StepFailure};

/// The oldest version that can refuse to forward to the host's own name server, at any port.
const SLIRP: ExternalProgram = ExternalProgram { name: "slirp4netns", oldest: (1, 1) };
/// The name of the sandbox's outbound interface.
const INTERFACE: &str = "tap0";
/// The sandbox's own network, in a range for measurements between networks that no host should be in (RFC 2544).
const OWN_NETWORK: &str = "198.18.254.0/24";
/// The largest packet between the sandbox and the tool; on the wire the host's own limits hold.
const PACKET_BYTES: &str = "65520";
/// The most open files; each connection of a sandbox takes one, and further ones are refused.
const OPEN_FILES_MAX: u64 = 1024;
/// The most bytes read of its error messages.
const LAST_WORDS_BYTES: u64 = 4096;
/// Folders that the program does not see.
const COVERED: [&std::ffi::CStr; 2] = [c"/etc", c"/run"];

/// A usable version of the program.
#[derive(Clone, Debug)]
pub(super) struct Tool {
    program: PathBuf,
    /// The program's name and version.
    pub(super) version: String,
    filter: BpfProgram,
}

/// The running program. It ends when this is dropped, or when this process ends.
#[derive(Debug)]
pub(super) struct CarrierProcess {
    pub(super) process: Child,
    /// The program ends when this is closed.
    _alive: OwnedFd,
}

impl Tool {
    /// Finds the program: `named`, else in PATH.
    pub(super) async fn find(named: Option<&Path>) -> Result<Self, String> {
        let program = match named {
            Some(named) if named.is_file() => named.to_owned(),
            Some(named) => return Err(format!("functions.network_tool: {} is not a file", named.display())),
            None => SLIRP.find().ok_or(
                "slirp4netns is not installed (the package `slirp4netns` of most distributions); then start Nigh again",
            )?,
        };
        // A link may go through a folder that the program does not see.
        let program = std::fs::canonicalize(&program).map_err(|error| format!("{}: {error}", program.display()))?;
        let version = SLIRP.version(&program).await?;
        let filter = filter().map_err(|error| format!("slirp4netns cannot be isolated: {error}"))?;
        Ok(Self { program, version, filter })
    }

    /// Lets the program make and serve an interface in the network namespace `network`. Returns when packets can flow.
    pub(super) async fn carry(&self, network: &OwnedFd) -> Result<CarrierProcess, StepFailure> {
        let step = format!("start {}", self.program.display());
        let (mut carrying, mut ready) = self.spawn(network).map_err(|error| StepFailure::at(&step, error))?;
        let stderr = carrying.process.stderr.take();
        let mut word = [0];
        match timeout(START_PATIENCE, ready.read(&mut word)).await {
            Ok(Ok(1)) => {}
            Ok(_) => return Err(StepFailure::at(&step, last_words(stderr).await)),
            Err(_) => return Err(StepFailure::at(&step, format!("it is not ready after {START_PATIENCE:?}"))),
        }
        if let Some(mut stderr) = stderr {
            // The program's output must be read, or the program would block. Nothing in it is worth a report.
            tokio::spawn(async move { tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await });
        }
        Ok(carrying)
    }

    fn spawn(&self, network: &OwnedFd) -> io::Result<(CarrierProcess, Receiver)> {
        let network = network.try_clone()?;
        let (ready, tell_ready) = pipe_with(PipeFlags::CLOEXEC)?;
        let (lives, alive) = pipe_with(PipeFlags::CLOEXEC)?;
        let mut command = Command::new(&self.program);
        command
            .args(["--configure", "--disable-host-loopback", "--disable-dns", "--enable-sandbox", "--enable-seccomp"])
            .arg(format!("--ready-fd={}", tell_ready.as_raw_fd()))
            .arg(format!("--exit-fd={}", lives.as_raw_fd()))
            .arg(format!("--mtu={PACKET_BYTES}"))
            .arg(format!("--cidr={OWN_NETWORK}"))
            .args(["--netns-type=path", &format!("/proc/self/fd/{}", network.as_raw_fd()), INTERFACE])
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let (filter, passed) = (self.filter.clone(), [network, tell_ready, lives]);
        let prepare = move || {
            for descriptor in &passed {
                fcntl_setfd(descriptor.as_fd(), FdFlags::empty())?;
            }
            keep_apart(&filter)
        };
        // SAFETY: between fork and exec the closure makes system calls on what was made before, and allocates nothing.
        unsafe { command.pre_exec(prepare) };
        let process = command.spawn()?;
        // `command` holds copies of the tool's pipe ends. Without them, a closed pipe means that the tool has ended.
        drop(command);
        Ok((CarrierProcess { process, _alive: alive }, Receiver::from_owned_fd(ready)?))
    }
}

/// The tool's error output, after its end.
async fn last_words(stderr: Option<ChildStderr>) -> String {
    let mut said = Vec::new();
    if let Some(stderr) = stderr {
        let mut stderr = stderr.take(LAST_WORDS_BYTES);
        let _what_was_read_counts = timeout(START_PATIENCE, stderr.read_to_end(&mut said)).await;
    }
    let said = String::from_utf8_lossy(&said);
    let last = said.lines().map(str::trim).rfind(|line| !line.is_empty());
    last.map_or_else(|| "it ended without a word".to_owned(), |line| format!("it ended, and said: {line}"))
}

/// In the new process, before the program starts: covers folders, limits descriptors, filters system calls.
fn keep_apart(filter: &BpfProgram) -> io::Result<()> {
    // SAFETY: this process has one thread and shares no descriptor table; the flag is not FILES.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RDONLY;
    for folder in COVERED {
        mount(c"tmpfs", folder, c"tmpfs", flags, c"size=4k,nr_inodes=2")?;
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(OPEN_FILES_MAX), maximum: Some(OPEN_FILES_MAX) })?;
    apply_filter(filter).map_err(|error| match error {
        seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => error,
        // An error with a text would allocate memory here.
        _ => io::ErrorKind::InvalidInput.into(),
    })
}

/// Refuses, with EPERM, the calls that act on processes of the host's root. The program's own filter allows them.
fn filter() -> Result<BpfProgram, String> {
    let said = |error: seccompiler::BackendError| error.to_string();
    let signals = [libc::SYS_kill, libc::SYS_tkill, libc::SYS_tgkill, libc::SYS_rt_sigqueueinfo];
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        signals.into_iter().chain([libc::SYS_rt_tgsigqueueinfo]).map(|call| (call, Vec::new())).collect();
    let unix = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, libc::AF_UNIX as u64);
    let unix = SeccompRule::new(vec![unix.map_err(said)?]).map_err(said)?;
    rules.insert(libc::SYS_socket, vec![unix]);
    let architecture = std::env::consts::ARCH.try_into().map_err(said)?;
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, architecture).map_err(said)?;
    filter.try_into().map_err(said)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skipped::skip;

    #[tokio::test]
    async fn a_program_that_is_absent_or_another_is_named() {
        let absent = Tool::find(Some(Path::new("/absent/slirp4netns"))).await.unwrap_err();
        assert!(absent.contains("/absent/slirp4netns") && absent.contains("functions.network_tool"), "{absent}");
        let other = Tool::find(Some(Path::new("/bin/true"))).await.unwrap_err();
        assert!(other.contains("true says no version"), "{other}");
    }

    #[test]
    fn a_bounded_process_signals_nobody_and_opens_no_unix_socket() {
        if filter().and_then(|_| crate::sandbox::seccomp_profile::available()).is_err() {
            skip("a_bounded_process_signals_nobody_and_opens_no_unix_socket", "this kernel has no filters");
            return;
        }
        // A filter applies to one thread.
        let outcomes = std::thread::spawn(|| {
            apply_filter(&filter().unwrap()).unwrap();
            let own = rustix::process::getpid();
            let signal = rustix::process::test_kill_process(own).is_err();
            let unix = std::os::unix::net::UnixDatagram::unbound().is_err();
            let inet = std::net::UdpSocket::bind("127.0.0.1:0").is_ok();
            (signal, unix, inet)
        });
        assert_eq!(outcomes.join().unwrap(), (true, true, true));
    }
}
