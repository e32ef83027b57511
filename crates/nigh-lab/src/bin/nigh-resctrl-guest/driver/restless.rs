//! Processes to be moved, and what else runs in a process of its own: this very program, started again.
//!
//! A restless process has threads that start a thread, wait for it and start the next, and every few times a process: what a
//! function's sandbox does at its worst. All of a tree are in one process group and are killed by it.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nigh_llc::resctrl::conformance::Stop;
use nigh_llc::resctrl::{KernelFs, MOUNTINFO, Members, ProcTasks, Resctrl, ResctrlFs, Tid};
use rustix::process::{Pid, Signal, kill_process_group};

use super::{failed, layout};

/// First arguments by which this program is one of these processes.
pub(crate) const RESTLESS: &str = "restless";
/// What a restless process is told to be instead: one that ends at once, one that stands still.
const BRIEF: &str = "brief";
const STILL: &str = "still";
pub(crate) const HOLDER: &str = "holder";
pub(crate) const AS_ANOTHER_USER: &str = "as-another-user";

/// Processes of a tree beside the first.
const CHILDREN: usize = 1;
/// Threads of each process that never rest.
const THREADS: usize = 2;
/// Threads started for every process started.
const THREADS_A_PROCESS: usize = 10;
/// How long a started thread or process lives: long enough to be met by a pass.
const LIFE: Duration = Duration::from_millis(3);
/// Who is neither root nor anybody.
const NOBODY: u32 = 65_534;
/// What a process says when it is where it was to come to.
const READY: &str = "ready";

/// A process of this program; killed with all it started when dropped.
pub(super) struct RestlessProcess {
    child: Child,
    group: bool,
}

impl RestlessProcess {
    /// Starts it and waits for its word.
    fn start(mut command: Command) -> Result<Self, Stop> {
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut kept = Self { child: command.spawn()?, group: true };
        let mut said = String::new();
        let stdout = kept.child.stdout.take().ok_or_else(|| failed("a child without standard output"))?;
        BufReader::new(stdout).read_line(&mut said)?;
        if said.trim_end() == READY { Ok(kept) } else { Err(failed(format!("a child said {said:?}"))) }
    }

    pub(super) fn pid(&self) -> Tid {
        Tid(self.child.id())
    }

    /// Its tree.
    pub(super) fn members(&self) -> Result<Members, Stop> {
        Ok(Members::Tree(ProcTasks::default().process(self.pid())?))
    }

    /// Kills it and all its group, and waits until it is gone.
    pub(super) fn kill(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.group)
            && let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
        {
            kill_process_group(pid, Signal::KILL)?;
            self.child.wait()?;
        }
        Ok(())
    }
}

impl Drop for RestlessProcess {
    fn drop(&mut self) {
        // Gone already is what is wanted.
        let _ = self.kill();
    }
}

fn own_program(arguments: &[&str]) -> Result<Command, Stop> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments);
    Ok(command)
}

/// A restless tree.
pub(super) fn restless() -> Result<RestlessProcess, Stop> {
    RestlessProcess::start(own_program(&[RESTLESS, &CHILDREN.to_string()])?)
}

/// A process that stands still.
pub(super) fn still() -> Result<RestlessProcess, Stop> {
    RestlessProcess::start(own_program(&[RESTLESS, STILL])?)
}

/// A restless tree in the cgroup `folder`, whose first process ends at once: the others are nobody's children.
pub(super) fn restless_orphans(folder: &str) -> Result<RestlessProcess, Stop> {
    let program = std::env::current_exe()?;
    let mut command = Command::new("/bin/sh");
    // The shell that stays is outside; the one between ends.
    let script = format!(
        "( echo 0 > {folder}/cgroup.procs; {} {RESTLESS} {CHILDREN} & ) ; while :; do sleep 1; done",
        program.display()
    );
    command.args(["-c", &script]);
    RestlessProcess::start(command)
}

/// A process that has applied a layout of `nigh-a` and `nigh-b` and holds the lock.
pub(super) fn holder() -> Result<RestlessProcess, Stop> {
    RestlessProcess::start(own_program(&[HOLDER])?)
}

/// What somebody who is not root is told when it opens the driver.
pub(super) fn told_another_user() -> Result<String, Stop> {
    let output = own_program(&[AS_ANOTHER_USER])?.uid(NOBODY).gid(NOBODY).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn say(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

/// A restless process with `what` more below it, which ends by being killed; or one that is [`BRIEF`] or [`STILL`].
pub(crate) fn run_restless(what: &str) -> io::Result<()> {
    match what {
        BRIEF => {
            thread::sleep(LIFE);
            return Ok(());
        }
        STILL => {
            say(READY)?;
            loop {
                thread::park();
            }
        }
        _ => {}
    }
    let children: usize = what.parse().map_err(io::Error::other)?;
    let program = Arc::new(std::env::current_exe()?);
    for _ in 0..children {
        let child =
            Command::new(&*program).args([RESTLESS, "0"]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut said = String::new();
        let mut stdout =
            BufReader::new(child.stdout.ok_or_else(|| io::Error::other("a child without standard output"))?);
        stdout.read_line(&mut said)?;
    }
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let program = program.clone();
            thread::Builder::new().stack_size(64 << 10).spawn(move || never_rest(&program))
        })
        .collect::<io::Result<_>>()?;
    say(READY)?;
    for thread in threads {
        thread.join().map_err(|_| io::Error::other("a thread panicked"))??;
    }
    Ok(())
}

/// Starts a thread after the other, and a process now and then.
fn never_rest(program: &std::path::Path) -> io::Result<()> {
    for round in 0_usize.. {
        if round % THREADS_A_PROCESS == THREADS_A_PROCESS - 1 {
            Command::new(program).args([RESTLESS, BRIEF]).stdin(Stdio::null()).stdout(Stdio::null()).status()?;
        } else {
            let brief = thread::Builder::new().stack_size(64 << 10).spawn(|| thread::sleep(LIFE))?;
            brief.join().map_err(|_| io::Error::other("a thread panicked"))?;
        }
    }
    Ok(())
}

/// Applies two classes, takes the lock and waits to be killed.
pub(crate) fn run_holder() -> io::Result<()> {
    let other = |error: &dyn std::fmt::Display| io::Error::other(error.to_string());
    let driver = Resctrl::open_kernel().map_err(|error| other(&error))?;
    let wanted = layout(&[("nigh-a", 0, 2), ("nigh-b", 2, 2)]).map_err(|stop| other(&stop))?;
    driver.apply(&wanted).map_err(|error| other(&error))?;
    let kernel = KernelFs::find(MOUNTINFO)?.ok_or_else(|| other(&"not mounted"))?;
    let _lock = kernel.lock()?;
    say(READY)?;
    loop {
        thread::park();
    }
}

/// Says what opening the driver gives.
pub(crate) fn run_as_another_user() -> io::Result<()> {
    say(&Resctrl::open_kernel().map_or_else(|error| error.to_string(), |_| "it was opened".to_owned()))
}
