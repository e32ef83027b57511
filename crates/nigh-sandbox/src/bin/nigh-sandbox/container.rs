//! A sandbox that a container runtime isolates: the keeper lets runc start the init inside, and delete the container
//! when the init has ended. The runtime runs for milliseconds at the start and the end, and never in between.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nigh_sandbox::sandbox::bundle::remove_life_of;
use nigh_sandbox::sandbox::launch::Container;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::failure::{Failure, Step as _};
use crate::sys;

/// The most bytes read of the runtime's log, for the reason of a failure.
const LOG_MAX_BYTES: u64 = 64 << 10;

/// Lets the runtime start the init with the descriptors `control` and `keeper`. Returns the init's process, which is a
/// child of this one after the runtime's end. Stops when the engine ends.
pub(crate) fn begin(container: &Container, control: &UnixStream, keeper: &OwnedFd) -> Result<Pid, Failure> {
    let process_file = Path::new(&container.bundle).join("pid");
    let mut command = call(container, "run");
    command.args(["--detach", "--preserve-fds", "2", "--bundle"]).arg(&container.bundle);
    command.arg("--pid-file").arg(&process_file).arg(&container.name);
    command.stdin(Stdio::null()).stdout(Stdio::inherit()).stderr(Stdio::inherit());
    sys::pass_on(&mut command, [control.as_fd(), keeper.as_fd()]).step("pass the sockets on")?;
    let runtime = command.spawn().step(format_args!(
        "run {} (is it still installed? Running sandboxes go on; `functions.engine = \"process\"` needs no runc)",
        Path::new(&container.runtime).display()
    ))?;
    let succeeded = await_runtime(runtime, control)?;
    if !succeeded {
        return Err(said(container)).step(format_args!("have {} make it", Path::new(&container.runtime).display()));
    }
    let text = fs::read_to_string(&process_file).step("find the init")?;
    let number = text.trim().parse().ok().and_then(Pid::from_raw);
    number.ok_or_else(|| format!("{} has no process id, but {text:?}", process_file.display())).step("find the init")
}

/// Removes everything that the runtime made, whether the container started or not. The next sweep removes the rest.
pub(crate) fn delete(container: &Container) {
    let mut command = call(container, "delete");
    command.args(["--force", &container.name]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let deleted = command.status().is_ok_and(|status| status.success());
    if deleted {
        let _next_sweep = fs::remove_dir_all(&container.bundle);
        remove_life_of(Path::new(&container.bundle), false);
    }
}

fn call(container: &Container, verb: &str) -> Command {
    let mut command = Command::new(&container.runtime);
    command.env_clear().arg("--root").arg(&container.state);
    command.arg("--log").arg(log(container)).args(["--log-format", "json", verb]);
    command
}

fn log(container: &Container) -> PathBuf {
    Path::new(&container.bundle).join("log")
}

/// Returns true if the runtime succeeded.
fn await_runtime(mut runtime: Child, control: &UnixStream) -> Result<bool, Failure> {
    let number = Pid::from_child(&runtime);
    let process = pidfd_open(number, PidfdFlags::empty()).step("watch the container runtime")?;
    loop {
        let mut fds = [PollFd::new(&process, PollFlags::IN), PollFd::new(control, PollFlags::RDHUP)];
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).step("wait for the container runtime"),
            Ok(_) if !fds[0].revents().is_empty() => break,
            Ok(_) => {
                let _ended = runtime.kill();
                break;
            }
        }
    }
    runtime.wait().map(|status| status.success()).step("wait for the container runtime")
}

/// The last line of the runtime's log.
fn said(container: &Container) -> String {
    let mut text = String::new();
    let read = File::open(log(container)).and_then(|file| file.take(LOG_MAX_BYTES).read_to_string(&mut text));
    let last = text.lines().rev().find_map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        line.get("msg")?.as_str().map(str::to_owned)
    });
    match (read, last) {
        (_, Some(last)) => last,
        (Ok(_), None) => "it failed without a word".to_owned(),
        (Err(error), None) => format!("it failed, and its log cannot be read: {error}"),
    }
}
