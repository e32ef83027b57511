//! A process of a local cluster, which can be paused, killed, ended and restarted. It ends with this process, even if this
//! process is killed.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::restarts::Restarts;
use super::roll::ProcessStatus;

/// How often `wait` checks whether a process has ended.
const LOOKED_EVERY: Duration = Duration::from_millis(20);
/// The most bytes of the last line of a process's output.
const LAST_LINE_BYTES: u64 = 4 << 10;

/// A program to run as a process, with its log.
#[derive(Debug)]
pub struct Process {
    name: String,
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    /// Variables of the program that it runs now.
    of_program: Vec<(String, String)>,
    /// The network namespace that the process runs in. None for the namespace of this process.
    network: Option<String>,
    log: PathBuf,
    child: Option<Child>,
    restarts: Restarts,
    /// How the process last ended by itself. None if it never did.
    last_end: Option<String>,
}

/// An event of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessEvent {
    /// The process has ended by itself.
    Ended {
        /// The exit status in words.
        how: String,
        /// The last line of its output; empty if there is none.
        said: String,
        /// The wait before its restart.
        again_after: Duration,
    },
    /// The process has restarted.
    StartedAgain,
}

impl Process {
    /// A process that does not run yet. Its output is appended to `log`.
    #[must_use]
    pub fn new(name: &str, program: &Path, arguments: Vec<String>, log: &Path) -> Self {
        let (program, log) = (program.to_owned(), log.to_owned());
        Self {
            name: name.to_owned(),
            program,
            arguments,
            environment: Vec::new(),
            of_program: Vec::new(),
            network: None,
            log,
            child: None,
            restarts: Restarts::default(),
            last_end: None,
        }
    }

    /// Adds variables to those of this process.
    #[must_use]
    pub fn with_environment(mut self, environment: Vec<(String, String)>) -> Self {
        self.environment = environment;
        self
    }

    /// From its next start on it runs `program` with these variables beside its own, as after an upgrade.
    pub fn set_program(&mut self, program: &Path, variables: Vec<(String, String)>) {
        (self.program, self.of_program) = (program.to_owned(), variables);
    }

    /// Sets its network namespace.
    #[must_use]
    pub fn within(mut self, network: Option<String>) -> Self {
        self.network = network;
        self
    }

    /// The process's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file of its output.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last line of its output; empty if there is none.
    #[must_use]
    pub fn last_line(&self) -> String {
        let end = || -> io::Result<Vec<u8>> {
            let (mut log, mut end) = (File::open(&self.log)?, Vec::new());
            let from = log.metadata()?.len().saturating_sub(LAST_LINE_BYTES);
            log.seek(SeekFrom::Start(from))?;
            log.read_to_end(&mut end)?;
            Ok(end)
        };
        let end = end().unwrap_or_else(|error| format!("{}: {error}", self.log.display()).into_bytes());
        let text = String::from_utf8_lossy(&end);
        text.trim().lines().next_back().unwrap_or_default().to_owned()
    }

    /// The process id. None if the process was not started.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Starts it if it does not run. Call this from a thread that outlives the process.
    pub fn run(&mut self) -> io::Result<()> {
        if self.child.is_some() {
            return Ok(());
        }
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if let Some(network) = &self.network {
            command.args(["ip", "netns", "exec", network]);
        }
        command.arg(&self.program).args(&self.arguments).envs(self.environment.iter().chain(&self.of_program).cloned());
        // The terminal's signals reach only this process, which ends the others in order.
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        self.child = Some(command.spawn()?);
        self.restarts.due = None;
        Ok(())
    }

    /// Restarts it if it has ended by itself, after longer and longer waits; does nothing if it was killed or ended on
    /// purpose. `now` counts from any fixed moment. Call this from the thread of `run`.
    ///
    /// # Errors
    /// If it cannot be started; the next call tries again.
    pub fn tend(&mut self, now: Duration) -> io::Result<Option<ProcessEvent>> {
        if let Some(status) = self.ended()? {
            (self.child, self.last_end) = (None, Some(status.to_string()));
            let again_after = self.restarts.ended(now);
            let (how, said) = (status.to_string(), self.last_line());
            return Ok(Some(ProcessEvent::Ended { how, said, again_after }));
        }
        if self.child.is_some() || !self.restarts.is_due(now) {
            return Ok(None);
        }
        if let Err(error) = self.run() {
            self.restarts.ended(now);
            return Err(error);
        }
        self.restarts.started(now);
        Ok(Some(ProcessEvent::StartedAgain))
    }

    /// The process's state at `now`.
    #[must_use]
    pub fn status(&self, now: Duration) -> ProcessStatus {
        ProcessStatus {
            name: self.name.clone(),
            pid: self.id(),
            restarts: self.restarts.count,
            last_end: self.last_end.clone(),
            again_after_s: self.restarts.due.map(|due| due.saturating_sub(now).as_secs_f64()),
        }
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        let Some(pid) = self.child.as_ref().and_then(|child| Pid::from_raw(child.id().cast_signed())) else {
            return Err(io::Error::other(format!("{} does not run", self.name)));
        };
        Ok(kill_process(pid, signal)?)
    }

    /// The exit status of the process. None if it has not ended by itself.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.as_mut().map_or(Ok(None), Child::try_wait)
    }

    /// Kills the process.
    pub fn kill(&mut self) -> io::Result<()> {
        self.signal(Signal::KILL)?;
        self.restarts.due = None;
        self.child.take().map_or(Ok(()), |mut child| child.wait().map(drop))
    }

    /// Pauses the process.
    pub fn stop(&self) -> io::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Continues it after a pause.
    pub fn go_on(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Asks it to end.
    pub fn ask_to_end(&self) -> io::Result<()> {
        self.signal(Signal::TERM)
    }

    /// Waits until it has ended, and kills it after `patience`. True if it ended by itself.
    pub fn wait(&mut self, patience: Duration) -> bool {
        let begun = Instant::now();
        while self.child.is_some() && begun.elapsed() < patience {
            match self.ended() {
                Ok(None) => std::thread::sleep(LOOKED_EVERY),
                Ok(Some(_)) | Err(_) => self.child = None,
            }
        }
        match self.child.take() {
            None => true,
            Some(mut child) => {
                // The call fails only if the process has ended meanwhile.
                let _ = child.kill();
                let _ = child.wait();
                false
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.wait(Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_by_itself_is_started_again_and_what_is_killed_on_purpose_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let arguments = |script: &str| vec!["-c".to_owned(), script.to_owned()];
        let log = folder.path().join("log");
        let mut fails = Process::new("fails", Path::new("sh"), arguments("echo here; exit 3"), &log);
        let mut lives = Process::new("lives", Path::new("sh"), arguments("sleep 60"), &folder.path().join("other"));
        fails.run().unwrap();
        lives.run().unwrap();
        let begun = Instant::now();
        let mut events = Vec::new();
        while events.len() < 3 {
            assert!(begun.elapsed() < Duration::from_secs(20), "{events:?}");
            events.extend(fails.tend(begun.elapsed()).unwrap());
            assert_eq!(lives.tend(begun.elapsed()).unwrap(), None);
            std::thread::sleep(LOOKED_EVERY);
        }
        assert!(
            matches!(&events[0], ProcessEvent::Ended { how, said, .. } if how.contains('3') && said == "here"),
            "{events:?}"
        );
        assert_eq!(events[1], ProcessEvent::StartedAgain);
        let status = fails.status(begun.elapsed());
        assert_eq!((status.restarts, status.pid), (1, None));
        assert!(status.last_end.is_some() && status.again_after_s.is_some(), "{status:?}");
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "here\nhere\n");

        lives.kill().unwrap();
        assert_eq!(lives.tend(begun.elapsed() + Duration::from_secs(60)).unwrap(), None);
        assert_eq!(lives.status(begun.elapsed()).pid, None);
    }
}
