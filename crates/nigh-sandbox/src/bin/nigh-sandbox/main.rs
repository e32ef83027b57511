//! `nigh-sandbox`: makes one sandbox and keeps it. Started by Nigh's process engine, never by hand.
//!
//! Two processes: the *keeper*, here, stays outside the isolation and the sandbox's cgroup; the *init* is the first
//! process inside. The engine talks to both over one socket, descriptor 0 at the start. When the engine's end of the
//! socket closes (on purpose, by a crash or a kill), the keeper ends the sandbox. So nothing runs on without Nigh, and
//! no thread of Nigh has to survive for that.
//!
//! A container runtime starts the same program with the argument `inside` as the init.

mod container;
mod descendants;
mod failure;
mod init;
mod privileges;
mod root;
mod stem;
mod sys;

use std::fs;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nigh_sandbox::cgroup::kill_members;
use nigh_sandbox::sandbox::bundle::remove_life_of;
use nigh_sandbox::sandbox::launch::{
    INSIDE, InitMessage, IsolationLevel, LENGTH_BYTES, MESSAGE_MAX_BYTES, Prepare, decode,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Gid, Mode, OFlags, Uid, fchown};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getgid, getpid, getppid, getuid, pidfd_open, pidfd_send_signal,
    set_child_subreaper, waitpid,
};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout, stderr, stdin, stdout};
use rustix::thread::UnshareFlags;
use serde::de::DeserializeOwned;

use crate::failure::{Failure, Step as _};

/// The time that a cgroup may stay busy after the end of its last process.
const REMOVE_PATIENCE: Duration = Duration::from_secs(5);
/// The time that a dying engine may take from closing its sockets to its end.
const DEATH_PATIENCE: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(2);
/// The time that the engine may take to ask for a sandbox's end.
const LEAVE_PATIENCE: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };
/// How often a frozen sandbox that must end is thawed.
const THAW_PERIOD: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|word| word == INSIDE) {
        return inside();
    }
    let mut control = match take_control() {
        Ok(control) => control,
        // Descriptor 0 is no socket: a person has started the program, and no engine waits for a message.
        Err(_) => return ExitCode::FAILURE,
    };
    match keep(&mut control) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failed(&mut control, failure),
    }
}

/// Runs as the init of a container. The keeper, which passed its sockets on, is outside.
fn inside() -> ExitCode {
    let Ok([control, keeper]) = sys::passed_on() else { return ExitCode::FAILURE };
    let mut control = UnixStream::from(control);
    let Ok(reports) = control.try_clone() else { return ExitCode::FAILURE };
    let prepare = Prepare::inside_container(getuid().as_raw());
    match init::run(&prepare, reports, &keeper) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failed(&mut control, failure),
    }
}

fn failed(control: &mut UnixStream, Failure { step, reason, program }: Failure) -> ExitCode {
    let message = match program {
        Some(fault) => InitMessage::NotExecuted { step, reason, fault },
        None => InitMessage::Failed { step, reason },
    };
    let _engine_gone = init::send(control, &message);
    ExitCode::FAILURE
}

/// Takes the socket from descriptor 0 and leaves `/dev/null` there.
fn take_control() -> io::Result<UnixStream> {
    let control = fcntl_dupfd_cloexec(stdin(), 3)?;
    dup2_stdin(null()?)?;
    Ok(UnixStream::from(control))
}

fn null() -> io::Result<OwnedFd> {
    Ok(rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}

/// Waits for the engine's next message.
fn receive<M: DeserializeOwned>(control: &mut UnixStream) -> io::Result<M> {
    let mut bytes = vec![0; LENGTH_BYTES];
    control.read_exact(&mut bytes)?;
    let mut length = [0; LENGTH_BYTES];
    length.copy_from_slice(&bytes);
    let length = u32::from_le_bytes(length) as usize;
    bytes.resize(LENGTH_BYTES + length.min(MESSAGE_MAX_BYTES), 0);
    control.read_exact(&mut bytes[LENGTH_BYTES..])?;
    decode(&mut bytes)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

fn keep(control: &mut UnixStream) -> Result<(), Failure> {
    let engine = getppid();
    let prepare: Prepare = receive(control).step("read how the sandbox shall be kept")?;
    if let Some(uid) = prepare.level.uid() {
        // A process inside that opens /dev/stdout opens these pipes again.
        for fd in [stdout(), stderr()] {
            fchown(fd, Some(Uid::from_raw(uid)), Some(Gid::from_raw(uid))).step("pass the output on")?;
        }
    }
    if prepare.level == IsolationLevel::Namespaces {
        own_user_namespace()?;
    }
    if prepare.level.has_namespaces() && prepare.container.is_none() {
        sys::unshare(UnshareFlags::NEWPID).step("make a namespace for processes")?;
    } else {
        // The init of a container becomes this process's child when the runtime has ended.
        set_child_subreaper(Some(getpid())).step("keep processes together")?;
    }
    let (keeper_lives, _alive) = pipe_with(PipeFlags::CLOEXEC).step("make a pipe")?;
    let init = match &prepare.container {
        Some(container) => {
            let begun = container::begin(container, control, &keeper_lives);
            let init = begun.inspect_err(|_| {
                container::delete(container);
                clear_up(&prepare, control, engine);
            })?;
            let process = init.as_raw_nonzero().get().unsigned_abs();
            // If the engine is gone, `watch` sees that next.
            let _engine_gone = init::send(control, &InitMessage::Contained { process });
            init
        }
        None => match sys::fork().step("make the init")? {
            Some(init) => init,
            None => {
                drop(_alive);
                let reports = control.try_clone().step("copy the socket")?;
                init::run(&prepare, reports, &keeper_lives)?;
                std::process::exit(0);
            }
        },
    };
    drop(keeper_lives);
    // The engine sees the end of the output when the sandbox ends, so the keeper closes its own copies.
    let null = null().step("open /dev/null")?;
    dup2_stdout(&null).step("let go of the output")?;
    dup2_stderr(&null).step("let go of the output")?;
    watch(&prepare, control, engine, init)
}

/// Makes this process root of a user namespace whose only user is the one that started Nigh.
fn own_user_namespace() -> Result<(), Failure> {
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    sys::unshare(UnshareFlags::NEWUSER)
        .step("make a user namespace (the system may forbid it: user.max_user_namespaces, AppArmor)")?;
    for (file, text) in
        [("setgroups", "deny".to_owned()), ("uid_map", format!("{uid} {uid} 1")), ("gid_map", format!("{gid} {gid} 1"))]
    {
        fs::write(format!("/proc/self/{file}"), text).step(format_args!("write {file} of the user namespace"))?;
    }
    Ok(())
}

/// Waits until the engine or the init ends, and ends everything else. `engine` is the process that started this one.
fn watch(prepare: &Prepare, control: &mut UnixStream, engine: Option<Pid>, init: Pid) -> Result<(), Failure> {
    let process = pidfd_open(init, PidfdFlags::empty()).step("watch the init")?;
    loop {
        let mut fds = [PollFd::new(&process, PollFlags::IN), PollFd::new(&*control, PollFlags::RDHUP)];
        match poll(&mut fds, None) {
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).step("wait for the end"),
        }
    }
    let _ended = pidfd_send_signal(&process, Signal::KILL);
    loop {
        if let Some((file, word)) = &prepare.thaw {
            // The file is missing if the engine has removed the group, which it can do only when the group is empty.
            let _removed = fs::write(file, word);
        }
        let mut fds = [PollFd::new(&process, PollFlags::IN)];
        match poll(&mut fds, Some(&THAW_PERIOD)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            _ => break,
        }
    }
    waitpid(Some(init), WaitOptions::empty()).step("wait for the init")?;
    if !prepare.level.has_namespaces() {
        descendants::end_all();
    }
    if engine_is_gone(control) {
        // The program of the outbound network is outside the rest of the isolation and may be frozen, so it may not
        // have noticed the end.
        for folder in &prepare.folders {
            kill_members(Path::new(folder));
        }
    }
    if let Some(container) = &prepare.container {
        // Without `Over` the engine would wait for the container runtime. The runtime removes the cgroup, and the
        // engine must ask the cgroup before that why the sandbox ended.
        let _engine_gone = init::send(control, &InitMessage::Over);
        let mut fds = [PollFd::new(&*control, PollFlags::RDHUP)];
        let _impatient = poll(&mut fds, Some(&LEAVE_PATIENCE));
        container::delete(container);
    }
    clear_up(prepare, control, engine);
    Ok(())
}

/// Removes the engine's folders if the engine is gone.
fn clear_up(prepare: &Prepare, control: &UnixStream, engine: Option<Pid>) {
    if engine_is_gone(control) {
        remove(prepare);
        remove_parents(prepare, engine);
    }
}

fn engine_is_gone(control: &UnixStream) -> bool {
    let control = control.as_fd();
    let mut fds = [PollFd::from_borrowed_fd(control, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().contains(PollFlags::HUP)
}

/// Removes the cgroup that a killed engine can no longer remove.
fn remove(prepare: &Prepare) {
    let until = Instant::now() + REMOVE_PATIENCE;
    for folder in &prepare.folders {
        while fs::remove_dir(folder).is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy) {
            if Instant::now() > until {
                return;
            }
            std::thread::sleep(POLL);
        }
    }
}

/// Removes the parents of all sandboxes' cgroups if this was the last sandbox and the engine's process is gone. A
/// living engine needs them for its next sandbox.
fn remove_parents(prepare: &Prepare, engine: Option<Pid>) {
    let until = Instant::now() + DEATH_PATIENCE;
    // A process that dies closes its sockets a moment before its children get another parent.
    while !prepare.folders.is_empty() && Instant::now() < until {
        if getppid() != engine {
            for parent in prepare.folders.iter().filter_map(|folder| Path::new(folder).parent()) {
                let _another_lives = fs::remove_dir(parent);
            }
            if let Some(container) = &prepare.container {
                remove_life_of(Path::new(&container.bundle), true);
            }
            return;
        }
        std::thread::sleep(POLL);
    }
}
