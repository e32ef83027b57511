//! The few system calls that no safe crate offers. The process has one thread throughout: that is what makes `fork`
//! and `unshare` sound here.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::process::Command;
use std::time::Duration;

use rustix::process::Pid;
use rustix::thread::UnshareFlags;

fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Makes a child process. Returns none in the child.
pub(crate) fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: one thread only, so the new process finds no lock held by a thread that it lacks.
    let pid = checked(unsafe { libc::fork() }.into())?;
    Ok(Pid::from_raw(pid as i32))
}

/// The first descriptors after the three that every process has.
const FIRST_PASSED: i32 = 3;
/// The retries, and the pause, for a program that is open for writing.
const BUSY_TRIES: u32 = 400;
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// Gives a program to be started these descriptors, as its 3, 4 and so on.
pub(crate) fn pass_on<const N: usize>(command: &mut Command, passed: [BorrowedFd<'_>; N]) -> io::Result<()> {
    use std::os::unix::process::CommandExt as _;
    // Copies the descriptors out of the way of the numbers that they will get.
    let copies = passed.map(|fd| rustix::io::fcntl_dupfd_cloexec(fd, FIRST_PASSED + N as i32));
    let copies = copies.into_iter().collect::<Result<Vec<OwnedFd>, _>>()?;
    let place = move || {
        for (number, copy) in (FIRST_PASSED..).zip(&copies) {
            // SAFETY: this process, about to become the program, needs the descriptor `number` for nothing else.
            checked(unsafe { libc::dup2(copy.as_raw_fd(), number) }.into())?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure only makes system calls.
    unsafe { command.pre_exec(place) };
    Ok(())
}

/// Takes the descriptors that `pass_on` gave; call it once, before anything else is opened.
pub(crate) fn passed_on<const N: usize>() -> io::Result<[OwnedFd; N]> {
    let mut taken = Vec::with_capacity(N);
    for number in (FIRST_PASSED..).take(N) {
        // SAFETY: asks about a number.
        checked(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) }.into())?;
        // SAFETY: the descriptor is open, as just seen, and the parent passed it on for this process to own.
        taken.push(unsafe { OwnedFd::from_raw_fd(number) });
    }
    taken.try_into().map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Leaves the parent's namespaces.
pub(crate) fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: the flags used here never include FILES, and there is one thread only.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(Into::into)
}

/// Blocks SIGCHLD and returns a descriptor that becomes readable instead.
pub(crate) fn child_events() -> io::Result<OwnedFd> {
    // SAFETY: an all-zero set is what sigemptyset makes, and sigaddset gets a valid set and signal.
    let set = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        set
    };
    // SAFETY: the set is valid; no old set is asked for.
    checked(unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) }.into())?;
    // SAFETY: the set is valid; -1 asks for a new descriptor.
    let fd = checked(unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) }.into())?;
    // SAFETY: the descriptor is new and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Signals as a fresh program expects them: none blocked, SIGPIPE at its default, which Rust's start-up changes.
pub(crate) fn default_signals() {
    // SAFETY: an empty set is valid; SIGPIPE's default takes no handler. Neither can fail with these arguments.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
}

/// Closes all descriptors except the first three when the program starts.
pub(crate) fn close_others_on_exec() -> io::Result<()> {
    // SAFETY: only marks descriptors; closes none now.
    let result = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    checked(result).map(drop)
}

/// Replaces this process by another program. Returns only after a failure. Retries briefly if the program is open for
/// writing: a process forked while the program was unpacked has it open until it becomes a program itself.
pub(crate) fn execute(arguments: &[CString], environment: &[CString]) -> io::Error {
    let Some(program) = arguments.first() else { return io::ErrorKind::InvalidInput.into() };
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    let mut tries = BUSY_TRIES;
    loop {
        // SAFETY: both lists end with a null pointer and their strings outlive the call.
        unsafe { libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::ExecutableFileBusy || tries == 0 {
            return error;
        }
        tries -= 1;
        std::thread::sleep(BUSY_PAUSE);
    }
}

/// Removes a capability from the bounding set. False if the kernel does not know the capability.
pub(crate) fn forget_capability(capability: u32) -> io::Result<bool> {
    // SAFETY: takes numbers only.
    let result = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(capability), 0, 0, 0) };
    match checked(result.into()) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
        outcome => outcome.map(|_| true),
    }
}

/// Starts an empty session keyring, so that the parent's keys are out of reach.
pub(crate) fn new_session_keyring() -> io::Result<()> {
    const JOIN_SESSION_KEYRING: libc::c_long = 1;
    // SAFETY: a null name asks for an unnamed keyring.
    let result = unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, std::ptr::null::<libc::c_char>()) };
    checked(result).map(drop)
}

/// Brings a network interface up.
pub(crate) fn bring_up(socket: &OwnedFd, interface: &CStr) -> io::Result<()> {
    // SAFETY: all-zero is a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(interface.to_bytes()) {
        *to = *from as libc::c_char;
    }
    // SAFETY: the kernel reads and writes one request.
    checked(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut request) }.into())?;
    // SAFETY: the kernel has just written the flags.
    unsafe { request.ifr_ifru.ifru_flags |= libc::IFF_UP as libc::c_short };
    // SAFETY: as above.
    checked(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) }.into()).map(drop)
}
