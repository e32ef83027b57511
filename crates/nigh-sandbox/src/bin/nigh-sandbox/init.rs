//! The first process of a sandbox: sets up the isolation, starts the command, reaps orphans, and reports the end. When
//! it ends, the kernel ends all processes of its pid namespace.

use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io::{IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use nigh_sandbox::sandbox::launch::{
    CONTINUE, DESCRIPTORS_MAX, InitMessage, IsolationLevel, Launch, OOM_SCORE, Order, Prepare, ProgramFault, STOP,
    encode,
};
use nigh_sandbox::sandbox::root_tree::CODE;
use nigh_sandbox::sandbox::seccomp_profile::Filters;
use nigh_sandbox::sandbox::{DATA_PORT, FAST_PATH, RUNTIME_PORT};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind,
    listen, sendmsg, socket_with,
};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    DumpableBehavior, Pid, Signal, WaitOptions, chdir, getuid, kill_process, set_dumpable_behavior,
    set_parent_process_death_signal, setsid, wait,
};
use rustix::thread::UnshareFlags;

use crate::failure::{Failure, Step as _};
use crate::{descendants, privileges, root, stem, sys};

const HOST_NAME: &[u8] = b"sandbox";
/// What a child that does not become its program writes before the number of the error: whether it got as far as to ask
/// the kernel for the program.
const UNPREPARED: u8 = b'U';
const NOT_EXECUTED: u8 = b'X';
/// Connections to the fast path that wait to be accepted.
const FAST_PATH_BACKLOG: i32 = 128;

/// Sets up the isolation, waits for the function, runs its command and reports its end. `keeper` closes when the keeper
/// is gone.
pub(crate) fn run(prepare: &Prepare, mut control: UnixStream, keeper: &OwnedFd) -> Result<(), Failure> {
    let listeners = set_up_isolation(prepare, keeper)?;
    let network = match prepare.level.has_namespaces() {
        true => {
            Some(open("/proc/self/ns/net", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).step("find its network")?)
        }
        false => None,
    };
    match network {
        Some(network) => send_with(&control, &InitMessage::Ready, &[network.as_fd()])?,
        None => send(&mut control, &InitMessage::Ready)?,
    }
    let children;
    let command = match crate::receive(&mut control).step("read what the sandbox shall be")? {
        Order::Launch(launch) => {
            move_in(prepare.level, &launch, keeper)?;
            if launch.command.is_empty() {
                return send(&mut control, &InitMessage::Running);
            }
            children = sys::child_events().step("watch for ended processes")?;
            start(&launch, None)?
        }
        Order::Warm(launch) => {
            move_in(prepare.level, &launch, keeper)?;
            children = sys::child_events().step("watch for ended processes")?;
            let stem = stem::start(&launch)?;
            stem.announce(prepare.level, &control)?;
            stem.become_function(&mut control, &children, keeper)?
        }
    };
    let descriptors: Vec<_> = listeners.iter().map(OwnedFd::as_fd).collect();
    send_with(&control, &InitMessage::Running, &descriptors)?;
    drop(listeners);
    attend(prepare.level, &mut control, keeper, &children, command)
}

/// Sends the engine a message.
pub(crate) fn send(control: &mut UnixStream, report: &InitMessage) -> Result<(), Failure> {
    let bytes = encode(report).step("encode a report")?;
    control.write_all(&bytes).step("report to the engine")
}

/// Sets up the part that is the same for all functions. Returns the listeners in the order of `InitMessage::Running`.
fn set_up_isolation(prepare: &Prepare, keeper: &OwnedFd) -> Result<Vec<OwnedFd>, Failure> {
    if matches!(prepare.level, IsolationLevel::Container { .. }) {
        // The container runtime has set up the isolation.
        return listeners(prepare);
    }
    die_with(keeper)?;
    setsid().step("begin a session")?;
    for file in &prepare.join {
        fs::write(file, "0").step(format_args!("join {}", file.display()))?;
    }
    // A process may always raise its own score; if /proc is unusual, the kernel's choice stays.
    let _kernel_chooses = fs::write("/proc/self/oom_score_adj", OOM_SCORE.to_string());
    if prepare.level.has_namespaces() {
        let flags = UnshareFlags::NEWNS
            | UnshareFlags::NEWIPC
            | UnshareFlags::NEWUTS
            | UnshareFlags::NEWNET
            | UnshareFlags::NEWCGROUP;
        sys::unshare(flags).step("make namespaces for files, network, names and cgroups")?;
        rustix::system::sethostname(HOST_NAME).step("set the host name")?;
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).step("open a socket")?;
        sys::bring_up(&socket, c"lo").step("bring the loopback interface up")?;
    }
    listeners(prepare)
}

/// Opens what the node will serve inside the sandbox.
fn listeners(prepare: &Prepare) -> Result<Vec<OwnedFd>, Failure> {
    let tcp = |port| {
        let listener = TcpListener::bind((prepare.address, port));
        Ok::<_, Failure>(OwnedFd::from(listener.step(format_args!("listen at {}:{port}", prepare.address))?))
    };
    let mut listeners = vec![tcp(RUNTIME_PORT)?, tcp(DATA_PORT)?];
    // On a shared network every process of the host would see the socket's name.
    if prepare.level.has_namespaces() {
        listeners.push(fast_path().step(format_args!("listen at @{FAST_PATH}"))?);
    }
    Ok(listeners)
}

fn fast_path() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    bind(&socket, &SocketAddrUnix::new_abstract_name(FAST_PATH.as_bytes())?)?;
    listen(&socket, FAST_PATH_BACKLOG)?;
    Ok(socket)
}

/// Enters the function's root and drops all privileges.
fn move_in(level: IsolationLevel, launch: &Launch, keeper: &OwnedFd) -> Result<(), Failure> {
    if matches!(level, IsolationLevel::Container { .. }) {
        chdir(CODE).step("enter the code's folder")?;
    } else if level.has_namespaces() {
        root::enter(launch, level.uid().unwrap_or_else(|| getuid().as_raw()))?;
        chdir(CODE).step("enter /var/task")?;
    } else if let Some(code) = &launch.code {
        chdir(&**code).step("enter the code's folder")?;
    } else {
        return Err("they are warmed where their files are their own only").step("warm a sandbox");
    }
    privileges::limit(launch.processes_max)?;
    privileges::drop_all(level)?;
    // The function has the same user as this process and must not get at its descriptors. Starting a program undoes
    // this for the command; becoming another user has undone the death signal.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).step("refuse to be traced")?;
    match level {
        // The init's parent may still be the runtime, which ends at once. `attend` watches the keeper.
        IsolationLevel::Container { .. } => Ok(()),
        _ => die_with(keeper),
    }
}

/// Ends this process when the keeper ends, also if it has ended already.
fn die_with(keeper: &OwnedFd) -> Result<(), Failure> {
    set_parent_process_death_signal(Some(Signal::KILL)).step("end with the parent")?;
    let mut fds = [PollFd::new(keeper, PollFlags::empty())];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut fds, Some(&now)).step("look for the parent")? {
        0 => Ok(()),
        _ => Err("it has ended").step("look for the parent"),
    }
}

fn c_string(text: &OsStr) -> Result<CString, Failure> {
    CString::new(text.as_bytes()).step("a command or environment without zero bytes")
}

/// Starts the command and returns when the program runs. The program gets the descriptor `passed`; its number is
/// appended as the last argument.
pub(crate) fn start(launch: &Launch, passed: Option<&OwnedFd>) -> Result<Pid, Failure> {
    let program = launch.command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
    let number = passed.map(|descriptor| OsString::from(descriptor.as_raw_fd().to_string()));
    let arguments = launch.command.iter().chain(&number).map(|text| c_string(text)).collect::<Result<Vec<_>, _>>()?;
    let environment = (launch.environment.iter())
        .map(|(name, value)| {
            let mut line = name.clone();
            line.push("=");
            line.push(value);
            c_string(&line)
        })
        .collect::<Result<Vec<_>, _>>()?;
    let filters = match launch.filter {
        true => Some(Filters::compile().step("compile the filter of system calls")?),
        false => None,
    };
    // Closes when the program starts, or brings the reason why it does not.
    let (reason, tell) = pipe_with(PipeFlags::CLOEXEC).step("make a pipe")?;
    let Some(command) = sys::fork().step("make the first process")? else {
        let (stage, error) = become_command(&arguments, &environment, filters.as_ref(), passed);
        let number = error.raw_os_error().unwrap_or_default().to_ne_bytes();
        // The write fails only if the reader is gone, and nobody else needs the number.
        let _nobody = rustix::io::write(&tell, &[&[stage][..], &number].concat());
        std::process::exit(127);
    };
    drop(tell);
    let mut told = Vec::new();
    fs::File::from(reason).read_to_end(&mut told).step("wait for the program")?;
    let Ok([stage, number @ ..]) = <[u8; 5]>::try_from(&*told) else { return Ok(command) };
    let error = std::io::Error::from_raw_os_error(i32::from_ne_bytes(number));
    let fault = match (stage, launch.command.first()) {
        (NOT_EXECUTED, Some(program)) => program_fault(&error, Path::new(program)),
        _ => None,
    };
    Err(Failure { step: format!("start {program}"), reason: error.to_string(), program: fault })
}

/// What is wrong with `program`, of which execve(2) said `error`; none if the error is not the program's.
fn program_fault(error: &std::io::Error, program: &Path) -> Option<ProgramFault> {
    match error.raw_os_error()? {
        // The kernel says the same of a missing program and of a missing interpreter.
        libc::ENOENT if !program.exists() => Some(ProgramFault::Missing),
        // A folder on the way is closed to the sandbox's user. Without its own root, that is the host's folder.
        libc::EACCES if !program.exists() => None,
        libc::ENOENT
        | libc::EACCES
        | libc::ENOEXEC
        | libc::ENOTDIR
        | libc::EISDIR
        | libc::ELOOP
        | libc::ELIBBAD
        | libc::ENAMETOOLONG => Some(ProgramFault::Unusable),
        _ => None,
    }
}

/// Becomes the command. Returns only after a failure: how far it came, and the system's reason.
fn become_command(
    arguments: &[CString],
    environment: &[CString],
    filters: Option<&Filters>,
    passed: Option<&OwnedFd>,
) -> (u8, std::io::Error) {
    sys::default_signals();
    let ready = filters
        .map_or(Ok(()), Filters::install)
        .and_then(|()| sys::close_others_on_exec())
        .and_then(|()| passed.map_or(Ok(()), |descriptor| Ok(fcntl_setfd(descriptor, FdFlags::empty())?)));
    match ready {
        Ok(()) => (NOT_EXECUTED, sys::execute(arguments, environment)),
        Err(error) => (UNPREPARED, error),
    }
}

/// Sends the engine a message with descriptors.
pub(crate) fn send_with(
    control: &UnixStream,
    report: &InitMessage,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Failure> {
    let bytes = encode(report).step("encode a report")?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err("no space for them").step("hand descriptors over");
    }
    let sent =
        sendmsg(control, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL).step("hand descriptors over")?;
    if sent == bytes.len() { Ok(()) } else { Err("a short write").step("hand descriptors over") }
}

/// Reaps, stops and continues, until the command, the engine or the keeper ends.
fn attend(
    level: IsolationLevel,
    control: &mut UnixStream,
    keeper: &OwnedFd,
    children: &OwnedFd,
    command: Pid,
) -> Result<(), Failure> {
    loop {
        let (engine_speaks, keeper_gone) = {
            let mut fds = [
                PollFd::new(children, PollFlags::IN),
                PollFd::new(&*control, PollFlags::IN),
                PollFd::new(keeper, PollFlags::empty()),
            ];
            match poll(&mut fds, None) {
                Ok(_) => (!fds[1].revents().is_empty(), !fds[2].revents().is_empty()),
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error).step("wait"),
            }
        };
        if keeper_gone {
            return Ok(());
        }
        // Only the wake-up matters; each ended process is awaited below.
        let _raised = rustix::io::read(children, &mut [0; 128]);
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid != command {
                continue;
            }
            let report = match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => InitMessage::Exited(code),
                (None, Some(signal)) => InitMessage::Signalled(signal),
                (None, None) => continue,
            };
            return send(control, &report);
        }
        if engine_speaks {
            let mut word = [0];
            match control.read(&mut word) {
                Ok(0) | Err(_) => return Ok(()),
                Ok(_) => obey(level, control, word[0])?,
            }
        }
    }
}

fn obey(level: IsolationLevel, control: &mut UnixStream, word: u8) -> Result<(), Failure> {
    let (signal, report) = match word {
        STOP => (Signal::STOP, InitMessage::Stopped),
        CONTINUE => (Signal::CONT, InitMessage::Continued),
        _ => return Ok(()),
    };
    if level == IsolationLevel::None {
        for pid in descendants::of_this_process() {
            let _ended = kill_process(pid, signal);
        }
    } else {
        // The signal goes to all processes that this user may signal, except this one: the pid namespace or the user
        // bounds them.
        // SAFETY: sends a signal, nothing else.
        let _nobody_left = unsafe { libc::kill(-1, signal.as_raw()) };
    }
    send(control, &report)
}
