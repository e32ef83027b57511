//! The system calls that a function may make: an allow-list by name, one for every engine and every function.
//!
//! Calls that are not listed fail with EPERM, as if a privilege were missing; programs that try and continue then do
//! so. `clone3`, whose arguments no filter can read, fails with ENOSYS, so that libraries fall back to `clone`; so do
//! calls younger than this list. The runc engine gets the list as OCI JSON (`oci`), the process engine as kernel
//! filters (`Filters`). Left out on purpose: other processes' memory (ptrace, process_vm_*, pidfd_getfd, kcmp), mounts
//! and namespaces, kernel keys, bpf, perf, io_uring, userfaultfd, modules, kexec, clocks, swap, accounting, file
//! handles that bypass paths, raw I/O ports, memory policies, and every kind of socket that a network namespace does
//! not isolate. See seccomp(2) and the OCI runtime specification, "Seccomp".

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter, sock_filter,
};
use serde_json::{Value, json};

/// A call's name in libc, and its number on this machine.
type Call = (&'static str, i64);

macro_rules! calls {
    ($($name:ident)*) => { &[$((stringify!($name), libc::$name)),*] };
}

/// Calls that exist on every machine.
const EVERYWHERE: &[Call] = calls! {
    // Files: open, read, write, metadata.
    SYS_read SYS_write SYS_pread64 SYS_pwrite64 SYS_readv SYS_writev SYS_preadv SYS_pwritev SYS_preadv2
    SYS_pwritev2 SYS_openat SYS_openat2 SYS_close SYS_close_range SYS_lseek SYS_fstat SYS_newfstatat SYS_statx
    SYS_statfs SYS_fstatfs SYS_faccessat SYS_faccessat2 SYS_readlinkat SYS_getdents64 SYS_getcwd SYS_chdir
    SYS_fchdir SYS_ftruncate SYS_truncate SYS_fallocate SYS_readahead SYS_sync SYS_syncfs SYS_fsync
    SYS_fdatasync SYS_flock SYS_fcntl SYS_ioctl SYS_dup SYS_dup3 SYS_umask SYS_fchmod SYS_fchmodat SYS_fchown
    SYS_fchownat SYS_utimensat SYS_linkat SYS_symlinkat SYS_unlinkat SYS_renameat2 SYS_mkdirat SYS_mknodat
    SYS_copy_file_range SYS_splice SYS_tee SYS_vmsplice SYS_getxattr SYS_lgetxattr SYS_fgetxattr SYS_setxattr
    SYS_lsetxattr SYS_fsetxattr SYS_listxattr SYS_llistxattr SYS_flistxattr SYS_removexattr SYS_lremovexattr
    SYS_fremovexattr SYS_inotify_init1 SYS_inotify_add_watch SYS_inotify_rm_watch SYS_memfd_create
    SYS_memfd_secret SYS_name_to_handle_at
    // The process's own memory.
    SYS_brk SYS_mmap SYS_munmap SYS_mremap SYS_mprotect SYS_madvise SYS_mincore SYS_msync SYS_mlock SYS_mlock2
    SYS_munlock SYS_mlockall SYS_munlockall SYS_pkey_alloc SYS_pkey_free SYS_pkey_mprotect SYS_membarrier
    SYS_remap_file_pages
    // Its own processes and threads: make, wait for, signal, inspect.
    SYS_execve SYS_execveat SYS_exit SYS_exit_group SYS_wait4 SYS_waitid SYS_set_tid_address SYS_set_robust_list
    SYS_get_robust_list SYS_futex SYS_futex_waitv SYS_rseq SYS_getpid SYS_getppid SYS_gettid SYS_getpgid
    SYS_setpgid SYS_getsid SYS_setsid SYS_kill SYS_tkill SYS_tgkill SYS_pidfd_open SYS_pidfd_send_signal
    SYS_process_mrelease SYS_restart_syscall SYS_rt_sigaction SYS_rt_sigpending SYS_rt_sigprocmask
    SYS_rt_sigqueueinfo SYS_rt_sigreturn SYS_rt_sigsuspend SYS_rt_sigtimedwait SYS_rt_tgsigqueueinfo
    SYS_sigaltstack SYS_signalfd4 SYS_prctl SYS_seccomp SYS_capget SYS_capset SYS_getuid SYS_geteuid SYS_getgid
    SYS_getegid SYS_getresuid SYS_getresgid SYS_getgroups SYS_setuid SYS_setgid SYS_setreuid SYS_setregid
    SYS_setresuid SYS_setresgid SYS_setfsuid SYS_setfsgid SYS_setgroups SYS_prlimit64 SYS_getrusage
    SYS_getpriority SYS_setpriority SYS_ioprio_get SYS_ioprio_set SYS_sched_yield SYS_sched_getaffinity
    SYS_sched_setaffinity SYS_sched_getattr SYS_sched_setattr SYS_sched_getparam SYS_sched_setparam
    SYS_sched_getscheduler SYS_sched_setscheduler SYS_sched_get_priority_max SYS_sched_get_priority_min
    SYS_sched_rr_get_interval SYS_getcpu SYS_landlock_create_ruleset SYS_landlock_add_rule
    SYS_landlock_restrict_self SYS_clone3
    // Time: read and wait; no call sets a clock.
    SYS_clock_gettime SYS_clock_getres SYS_clock_nanosleep SYS_nanosleep SYS_gettimeofday SYS_times
    SYS_getitimer SYS_setitimer SYS_timer_create SYS_timer_delete SYS_timer_getoverrun SYS_timer_gettime
    SYS_timer_settime SYS_timerfd_create SYS_timerfd_gettime SYS_timerfd_settime
    // Wait for descriptors, and send and receive over them. A rule below says which sockets can be made.
    SYS_ppoll SYS_pselect6 SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_eventfd2
    SYS_pipe2 SYS_socketpair SYS_bind SYS_listen SYS_accept SYS_accept4 SYS_connect SYS_getsockname
    SYS_getpeername SYS_getsockopt SYS_setsockopt SYS_shutdown SYS_sendto SYS_sendmsg SYS_sendmmsg SYS_recvfrom
    SYS_recvmsg SYS_recvmmsg SYS_io_setup SYS_io_destroy SYS_io_submit SYS_io_cancel SYS_io_getevents
    // Communication between its own processes (the namespace bounds them).
    SYS_mq_open SYS_mq_unlink SYS_mq_timedsend SYS_mq_timedreceive SYS_mq_notify SYS_mq_getsetattr SYS_msgctl
    SYS_msgget SYS_msgrcv SYS_msgsnd SYS_semctl SYS_semget SYS_semop SYS_semtimedop SYS_shmat SYS_shmctl
    SYS_shmdt SYS_shmget
    // Facts about the machine.
    SYS_uname SYS_sysinfo SYS_getrandom
};
/// Calls that older machines have beside newer forms.
#[cfg(target_arch = "x86_64")]
const HERE_TOO: &[Call] = calls! {
    SYS_open SYS_creat SYS_stat SYS_lstat SYS_access SYS_readlink SYS_getdents SYS_mkdir SYS_rmdir SYS_link
    SYS_symlink SYS_unlink SYS_rename SYS_mknod SYS_chmod SYS_chown SYS_lchown SYS_utime SYS_utimes
    SYS_futimesat SYS_dup2 SYS_pipe SYS_poll SYS_select SYS_epoll_create SYS_epoll_wait SYS_eventfd SYS_signalfd
    SYS_inotify_init SYS_fork SYS_vfork SYS_getpgrp SYS_alarm SYS_pause SYS_time SYS_arch_prctl SYS_renameat
    SYS_fadvise64 SYS_sync_file_range SYS_sendfile SYS_getrlimit SYS_setrlimit
};
/// Calls without a number in the libc crate (asm-generic/unistd.h).
#[cfg(not(target_arch = "x86_64"))]
const HERE_TOO: &[Call] = &[
    ("SYS_renameat", 38),
    ("SYS_sendfile", 71),
    ("SYS_sync_file_range", 84),
    ("SYS_getrlimit", 163),
    ("SYS_setrlimit", 164),
    ("SYS_fadvise64", 223),
];

/// Calls that are allowed with some arguments only: at least one rule of a call must hold.
const RULES: &[(Call, ArgumentRule)] = &[
    // A new process or thread, in the namespaces of its parent.
    (("SYS_clone", libc::SYS_clone), ArgumentRule::NoneOf { argument: 0, bits: NEW_NAMESPACES }),
    // Kinds of sockets that the kernel keeps apart by network namespace.
    (("SYS_socket", libc::SYS_socket), ArgumentRule::Is { argument: 0, value: libc::AF_UNIX as u64 }),
    (("SYS_socket", libc::SYS_socket), ArgumentRule::Is { argument: 0, value: libc::AF_INET as u64 }),
    (("SYS_socket", libc::SYS_socket), ArgumentRule::Is { argument: 0, value: libc::AF_INET6 as u64 }),
    (("SYS_socket", libc::SYS_socket), ArgumentRule::Is { argument: 0, value: libc::AF_NETLINK as u64 }),
    // The usual personality, and the query of it.
    (("SYS_personality", libc::SYS_personality), ArgumentRule::Is { argument: 0, value: 0 }),
    (("SYS_personality", libc::SYS_personality), ArgumentRule::Is { argument: 0, value: 0xffff_ffff }),
];
/// All flags of clone(2) that make a namespace.
const NEW_NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWCGROUP) as u64;
/// The first call that is younger than this list; from there on numbers are the same on all machines.
const YOUNGER: u32 = 451;

/// Which arguments are allowed.
#[derive(Clone, Copy, Debug)]
enum ArgumentRule {
    /// The argument's lower half has this value.
    Is { argument: u8, value: u64 },
    /// The argument has none of these bits.
    NoneOf { argument: u8, bits: u64 },
}

/// The call's name as in the manual.
fn name(call: &Call) -> &'static str {
    call.0.strip_prefix("SYS_").unwrap_or(call.0)
}

/// `linux.seccomp` of an OCI configuration.
#[must_use]
pub fn oci() -> Value {
    let plain: Vec<&str> = EVERYWHERE.iter().chain(HERE_TOO).map(name).filter(|name| *name != "clone3").collect();
    let mut calls = vec![
        json!({ "names": plain, "action": "SCMP_ACT_ALLOW" }),
        json!({ "names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": libc::ENOSYS }),
    ];
    for (call, when) in RULES {
        let argument = match when {
            ArgumentRule::Is { argument, value } => json!({ "index": argument, "value": value, "op": "SCMP_CMP_EQ" }),
            ArgumentRule::NoneOf { argument, bits } => {
                json!({ "index": argument, "value": bits, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ" })
            }
        };
        calls.push(json!({ "names": [name(call)], "action": "SCMP_ACT_ALLOW", "args": [argument] }));
    }
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": libc::EPERM,
        "architectures": [if cfg!(target_arch = "x86_64") { "SCMP_ARCH_X86_64" } else { "SCMP_ARCH_AARCH64" }],
        "syscalls": calls,
    })
}

/// The list as programs for the kernel's seccomp filter.
#[derive(Debug)]
pub struct Filters {
    allowed: BpfProgram,
    absent: BpfProgram,
}

impl Filters {
    /// Compiles the filters.
    ///
    /// # Errors
    /// If this machine is neither x86_64 nor aarch64.
    pub fn compile() -> Result<Self, String> {
        let said = |error: seccompiler::BackendError| error.to_string();
        let architecture = TargetArch::try_from(std::env::consts::ARCH).map_err(said)?;
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
            EVERYWHERE.iter().chain(HERE_TOO).map(|(_, number)| (*number, Vec::new())).collect();
        for ((_, number), when) in RULES {
            let condition = match *when {
                // The kernel reads these arguments as 32 bits, and so does libseccomp's comparison of small values.
                ArgumentRule::Is { argument, value } => {
                    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
                }
                ArgumentRule::NoneOf { argument, bits } => {
                    SeccompCondition::new(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(bits), 0)
                }
            };
            let rule = condition.and_then(|condition| SeccompRule::new(vec![condition])).map_err(said)?;
            rules.entry(*number).or_default().push(rule);
        }
        let refused = SeccompAction::Errno(libc::EPERM as u32);
        let filter = SeccompFilter::new(rules, refused, SeccompAction::Allow, architecture).map_err(said)?;
        Ok(Self { allowed: filter.try_into().map_err(said)?, absent: absent() })
    }

    /// Filters the calls of this thread, and of all its descendants, for good.
    ///
    /// # Errors
    /// The kernel's reason.
    pub fn install(&self) -> std::io::Result<()> {
        // If both filters refuse a call, the kernel takes the errno of the later one.
        for program in [&self.allowed, &self.absent] {
            apply_filter(program).map_err(|error| match error {
                seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => error,
                other => std::io::Error::other(other.to_string()),
            })?;
        }
        Ok(())
    }
}

/// Answers ENOSYS to `clone3` and to calls younger than the list, which the list's filter cannot name.
fn absent() -> BpfProgram {
    // struct seccomp_data begins with the call's number.
    const NUMBER: u32 = 0;
    let step = |code: u32, jt: u8, jf: u8, k: u32| sock_filter { code: code as u16, jt, jf, k };
    let answer = |action: u32| step(libc::BPF_RET | libc::BPF_K, 0, 0, action);
    vec![
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, NUMBER),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 2, 0, YOUNGER),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, 0, libc::SYS_clone3 as u32),
        answer(libc::SECCOMP_RET_ALLOW),
        answer(libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
    ]
}

/// Whether this kernel can refuse system calls.
///
/// # Errors
/// Why it cannot.
pub fn available() -> Result<(), String> {
    const ACTIONS: &str = "/proc/sys/kernel/seccomp/actions_avail";
    match std::fs::read_to_string(ACTIONS) {
        Ok(actions) if actions.split_whitespace().any(|action| action == "errno") => Ok(()),
        Ok(actions) => Err(format!(
            "the kernel's seccomp filters cannot reject a system call with an error ({ACTIONS}: {})",
            actions.trim()
        )),
        Err(error) => Err(format!("the kernel has no seccomp filters ({ACTIONS}: {error})")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::skipped::skip;

    fn listed() -> BTreeSet<&'static str> {
        EVERYWHERE.iter().chain(HERE_TOO).map(name).collect()
    }

    #[test]
    fn what_leads_out_of_a_sandbox_is_not_on_the_list() {
        let listed = listed();
        for call in [
            "ptrace",
            "process_vm_readv",
            "process_vm_writev",
            "pidfd_getfd",
            "kcmp",
            "mount",
            "umount2",
            "move_mount",
            "open_tree",
            "fsopen",
            "fsmount",
            "mount_setattr",
            "pivot_root",
            "chroot",
            "unshare",
            "setns",
            "clone",
            "bpf",
            "perf_event_open",
            "io_uring_setup",
            "io_uring_enter",
            "io_uring_register",
            "userfaultfd",
            "keyctl",
            "add_key",
            "request_key",
            "init_module",
            "finit_module",
            "delete_module",
            "kexec_load",
            "kexec_file_load",
            "reboot",
            "swapon",
            "swapoff",
            "acct",
            "settimeofday",
            "clock_settime",
            "open_by_handle_at",
            "iopl",
            "ioperm",
            "syslog",
            "quotactl",
            "socket",
            "personality",
        ] {
            assert!(!listed.contains(call), "{call}");
        }
    }

    #[test]
    fn no_call_is_listed_twice_and_none_is_younger_than_the_list() {
        let numbers: Vec<i64> = EVERYWHERE.iter().chain(HERE_TOO).map(|(_, number)| *number).collect();
        assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), numbers.len());
        assert!(numbers.iter().all(|number| (0..i64::from(YOUNGER)).contains(number)));
    }

    #[test]
    fn both_forms_hold_the_same_rules() {
        let oci = oci();
        assert_eq!(oci["defaultAction"], "SCMP_ACT_ERRNO");
        let syscalls = oci["syscalls"].as_array().unwrap();
        assert_eq!(syscalls[0]["names"].as_array().unwrap().len() + 1, listed().len());
        assert_eq!(syscalls.len(), 2 + RULES.len());
        assert!(Filters::compile().unwrap().allowed.len() > listed().len());
    }

    #[test]
    fn a_bounded_thread_is_refused_what_is_not_listed_and_keeps_the_rest() {
        if let Err(reason) = available() {
            return skip("a_bounded_thread_is_refused_what_is_not_listed_and_keeps_the_rest", reason);
        }
        let outcome = |number: i64, first: i64| {
            // SAFETY: these calls take numbers or null pointers only, and change nothing that others see.
            match unsafe { libc::syscall(number, first, 0, 0, 0, 0) } {
                -1 => std::io::Error::last_os_error().raw_os_error().unwrap(),
                made => {
                    if number == libc::SYS_socket {
                        // SAFETY: the descriptor was just made and belongs to nobody else.
                        unsafe { libc::close(made as i32) };
                    }
                    0
                }
            }
        };
        let bounded = std::thread::spawn(move || {
            Filters::compile().unwrap().install().unwrap();
            [
                (libc::SYS_getppid, 0, 0),
                (libc::SYS_unshare, i64::from(libc::CLONE_NEWUSER), libc::EPERM),
                (libc::SYS_clone, i64::from(libc::CLONE_NEWUSER), libc::EPERM),
                (libc::SYS_clone3, 0, libc::ENOSYS),
                (i64::from(YOUNGER) + 1, 0, libc::ENOSYS),
                (libc::SYS_keyctl, 0, libc::EPERM),
                (libc::SYS_ptrace, 0, libc::EPERM),
                (libc::SYS_io_uring_setup, 1, libc::EPERM),
                (libc::SYS_socket, i64::from(libc::AF_PACKET), libc::EPERM),
                (libc::SYS_socket, i64::from(libc::AF_VSOCK), libc::EPERM),
                (libc::SYS_personality, 0xffff_ffff, 0),
                (libc::SYS_personality, 0x20_0000, libc::EPERM),
            ]
            .map(|(number, first, wanted)| (number, outcome(number, first), wanted))
        });
        for (number, got, wanted) in bounded.join().unwrap() {
            assert_eq!(got, wanted, "call {number}");
        }
    }
}
