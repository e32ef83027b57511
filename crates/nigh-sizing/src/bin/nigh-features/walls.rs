//! The isolation of what reads tenants' bytes: limits, no privilege, and a filter of system calls that leaves reading
//! from standard input, writing to standard output, and memory. Follows seccomp(2), setrlimit(2) and credentials(7).
//!
//! The process has one thread throughout.

use std::collections::BTreeMap;
use std::fmt::Display;

use rustix::fs::{Gid, Uid};
use rustix::process::{Resource, Rlimit, getrlimit, setpriority_process, setrlimit};
use rustix::thread::{set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};
use serde_json::{Value, json};

/// Address space: parsers take a few megabytes.
const MEMORY_MAX: u64 = 256 << 20;
/// The processor time of a process, in seconds: a look takes a millisecond, and a process makes a thousand.
const PROCESSOR_SECONDS_MAX: u64 = 20;
/// Open files: the three standard ones.
const FILES_MAX: u64 = 3;
/// Functions go first.
const NICE: i32 = 10;

/// Calls that are allowed with any arguments: for memory, threads, Rust's runtime and the exit.
const ALLOWED: &[i64] = &[
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigaction,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

fn step<T, E: Display>(what: &str, done: Result<T, E>) -> Result<T, String> {
    done.map_err(|error| format!("{what}: {error}"))
}

/// Isolates this process for good. A process of root becomes `user` first.
pub(crate) fn raise(user: Option<u32>) -> Result<(), String> {
    // SAFETY: nothing in this process has opened or owns a descriptor above the three standard ones.
    if unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) } != 0 {
        return Err(format!("could not close inherited file descriptors: {}", std::io::Error::last_os_error()));
    }
    let bounds = [
        (Resource::As, MEMORY_MAX),
        (Resource::Cpu, PROCESSOR_SECONDS_MAX),
        (Resource::Nofile, FILES_MAX),
        (Resource::Fsize, 0),
        (Resource::Core, 0),
        (Resource::Memlock, 0),
    ];
    for (resource, bound) in bounds {
        // A tighter limit stays.
        let bound = getrlimit(resource).maximum.map_or(bound, |maximum| maximum.min(bound));
        step("limit itself", setrlimit(resource, Rlimit { current: Some(bound), maximum: Some(bound) }))?;
    }
    step("give way to functions", setpriority_process(None, NICE))?;
    step("forbid new privileges", set_no_new_privs(true))?;
    if let Some(user) = user {
        let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
        step("leave all groups", set_thread_groups(&[]))?;
        step("become its group", set_thread_res_gid(gid, gid, gid))?;
        step("become its user", set_thread_res_uid(uid, uid, uid))?;
    }
    let filter = step("make the filter of system calls", filter())?;
    step("set the filter of system calls", apply_filter(&filter))
}

/// All other calls are refused.
fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let argument = |number: u8, operator, value: u64| -> Result<SeccompRule, seccompiler::BackendError> {
        SeccompRule::new(vec![SeccompCondition::new(number, SeccompCmpArgLen::Dword, operator, value)?])
    };
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    rules.insert(libc::SYS_read, vec![argument(0, SeccompCmpOp::Eq, 0)?]);
    rules.insert(libc::SYS_write, vec![argument(0, SeccompCmpOp::Eq, 1)?, argument(0, SeccompCmpOp::Eq, 2)?]);
    // Memory that cannot be executed.
    let executable = libc::PROT_EXEC as u64;
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, vec![argument(2, SeccompCmpOp::MaskedEq(executable), 0)?]);
    }
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    SeccompFilter::new(rules, refused, SeccompAction::Allow, architecture)?.try_into()
}

/// Tries what must fail now. `{"open":[...]}` names what did not.
pub(crate) fn open() -> Value {
    const PATH: &std::ffi::CStr = c"/etc/passwd";
    let path = PATH.as_ptr() as i64;
    let executable = i64::from(libc::PROT_READ | libc::PROT_EXEC);
    let anonymous = i64::from(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let tries: [(&str, i64, [i64; 6]); 13] = [
        ("open a file", libc::SYS_openat, [i64::from(libc::AT_FDCWD), path, 0, 0, 0, 0]),
        ("ask for a file", libc::SYS_readlinkat, [i64::from(libc::AT_FDCWD), path, 0, 0, 0, 0]),
        ("make a file", libc::SYS_memfd_create, [path, 0, 0, 0, 0, 0]),
        ("open a socket", libc::SYS_socket, [i64::from(libc::AF_INET), i64::from(libc::SOCK_STREAM), 0, 0, 0, 0]),
        ("open a local socket", libc::SYS_socket, [i64::from(libc::AF_UNIX), i64::from(libc::SOCK_STREAM), 0, 0, 0, 0]),
        ("start a process", libc::SYS_clone, [i64::from(libc::SIGCHLD), 0, 0, 0, 0, 0]),
        ("become a program", libc::SYS_execve, [path, 0, 0, 0, 0, 0]),
        ("signal a process", libc::SYS_kill, [0, 0, 0, 0, 0, 0]),
        ("trace a process", libc::SYS_ptrace, [i64::from(libc::PTRACE_TRACEME), 0, 0, 0, 0, 0]),
        ("read from elsewhere", libc::SYS_read, [3, 0, 0, 0, 0, 0]),
        ("run what it wrote", libc::SYS_mmap, [0, 4096, executable, anonymous, -1, 0]),
        ("change its limits", libc::SYS_prlimit64, [0, 0, 0, 0, 0, 0]),
        ("control its descriptors", libc::SYS_ioctl, [0, 0, 0, 0, 0, 0]),
    ];
    let is_open = |call: i64, with: [i64; 6]| {
        // SAFETY: the filter refuses each of these before the kernel looks at an argument; were one let through, each
        // has null or constant pointers only, which the kernel checks.
        let outcome = unsafe { libc::syscall(call, with[0], with[1], with[2], with[3], with[4], with[5]) };
        !(outcome == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EPERM))
    };
    let open: Vec<&str> =
        tries.iter().filter(|(_, call, with)| is_open(*call, *with)).map(|(what, ..)| *what).collect();
    json!({ "open": open })
}
