//! The record of the servers' processes, peers' and Nigh's own, that this user's runs have started, so that none outlives
//! its run.
//!
//! One file a process, in the cache folder: its id and start time, its run's, and a token that is in its environment
//! and so in its children's. Where a run has ended without ending its processes, the next run ends them. A process is
//! only ever signalled through a pidfd whose identity was checked after it was opened (pidfd_open(2)): an id that was
//! given to another process since is never hit.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nigh_terms::SecretKey;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use super::installed::cache_folder;

/// The variable that carries the token. Its name does not begin as settings of Nigh do: a node would refuse it.
pub(crate) const TOKEN: &str = "LAB_PEER_TOKEN";
/// How long processes may take to end when asked, before they are killed.
pub(super) const END_WITHIN: Duration = Duration::from_secs(5);
pub(super) const POLL: Duration = Duration::from_millis(50);
/// A file beside the peer's data, which says whose they are.
const MARK: &str = ".nigh-peer";

/// A process at one moment: ids come again, ids with their start times (clock ticks since the boot) do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    pid: u32,
    start_ticks: u64,
}

impl Identity {
    fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may hold anything; the state is the first field behind it, the start the twentieth.
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        if matches!(fields.next(), None | Some("Z" | "X")) {
            return None;
        }
        Some(Self { pid, start_ticks: fields.nth(18)?.parse().ok()? })
    }

    fn lives(self) -> bool {
        Self::of(self.pid) == Some(self)
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    peer: String,
    process: Identity,
    run: Identity,
    boot: String,
    token: String,
    folder: PathBuf,
}

/// A process that was ended because its run is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct EndedProcess {
    /// Whose server it was.
    pub(crate) peer: String,
    /// What the kernel calls it.
    pub(crate) program: String,
    /// Its process.
    pub(crate) pid: u32,
}

/// The folder of the records.
#[derive(Clone, Debug)]
pub(crate) struct StartedProcesses {
    folder: PathBuf,
}

impl StartedProcesses {
    /// Of this user.
    pub(crate) fn of_this_user() -> Self {
        Self { folder: cache_folder().join("started") }
    }

    fn file(&self, token: &str, pid: u32) -> PathBuf {
        self.folder.join(format!("{token}-{pid}.json"))
    }

    /// Notes a process just started for `peer` with `token` in its environment and its files in `data`.
    pub(crate) fn add(&self, peer: &str, program: &str, pid: u32, token: &str, data: &Path) -> std::io::Result<()> {
        let gone = || std::io::Error::other(format!("{program} ended before it was recorded"));
        let record = Record {
            peer: peer.to_owned(),
            process: Identity::of(pid).ok_or_else(gone)?,
            run: Identity::of(std::process::id()).ok_or_else(gone)?,
            boot: boot(),
            token: token.to_owned(),
            folder: data.to_owned(),
        };
        fs::create_dir_all(&self.folder)?;
        fs::write(data.join(MARK), token)?;
        fs::write(self.file(token, pid), serde_json::to_vec(&record)?)
    }

    /// Forgets a process that has ended.
    pub(crate) fn remove(&self, token: &str, pid: u32) {
        // A record that stays is found to be out of date by the next run.
        let _ = fs::remove_file(self.file(token, pid));
    }

    /// Ends what runs that are gone have left, and deletes its files; blocks for seconds where there is something.
    pub(crate) fn end_left_over(&self) -> Vec<EndedProcess> {
        let Ok(files) = fs::read_dir(&self.folder) else { return Vec::new() };
        let mut ended = Vec::new();
        for path in files.flatten().map(|entry| entry.path()) {
            let record = fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Record>(&text).ok());
            let Some(record) = record else { continue };
            let same_boot = record.boot == boot();
            if same_boot && record.run.lives() {
                continue;
            }
            if same_boot {
                let left = left_of(&record);
                let name = |pid| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned();
                ended.extend(left.iter().map(|&(pid, _)| EndedProcess {
                    peer: record.peer.clone(),
                    program: name(pid),
                    pid,
                }));
                end(&left);
            }
            if fs::read(record.folder.join(MARK)).is_ok_and(|mark| mark == record.token.as_bytes()) {
                // What cannot be deleted is in a folder of temporary files.
                let _ = fs::remove_dir_all(&record.folder);
            }
            let _ = fs::remove_file(&path);
        }
        ended
    }
}

/// A token for one start of one peer.
pub(crate) fn new_token() -> String {
    SecretKey::random().reveal().to_owned()
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// The recorded process, if it still is that one, and whatever carries its token.
fn left_of(record: &Record) -> Vec<(u32, OwnedFd)> {
    let token = format!("{TOKEN}={}", record.token);
    let carries_token = |pid: u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|variable| variable == token.as_bytes())
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let handle = pidfd_open(Pid::from_raw(pid.cast_signed())?, PidfdFlags::empty()).ok()?;
        // Looked at after the handle was opened: what is true now is true of the handle's process.
        let now = Identity::of(pid)?;
        (now == record.process || carries_token(pid)).then_some((pid, handle))
    })
    .collect()
}

/// Asks all to end; kills those that have not after a while.
fn end(processes: &[(u32, OwnedFd)]) {
    let signal = |which| {
        for (_, process) in processes {
            // An error says that it is gone.
            let _ = pidfd_send_signal(process, which);
        }
    };
    signal(Signal::TERM);
    let deadline = Instant::now() + END_WITHIN;
    while Instant::now() < deadline && processes.iter().any(|(pid, _)| Identity::of(*pid).is_some()) {
        thread::sleep(POLL);
    }
    signal(Signal::KILL);
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    /// A run that is gone: no process has started at the boot's first tick but the first one.
    const GONE: Identity = Identity { pid: u32::MAX >> 1, start_ticks: 1 };

    struct Sleeper(Child);

    impl Sleeper {
        fn start(token: &str) -> Self {
            Self(Command::new("sleep").arg("600").env(TOKEN, token).spawn().unwrap())
        }

        fn has_ended(&mut self) -> bool {
            self.0.try_wait().unwrap().is_some()
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn records(folder: &Path) -> StartedProcesses {
        StartedProcesses { folder: folder.join("started") }
    }

    /// Writes the record of `pid` anew, as changed by `change`.
    fn rewrite(records: &StartedProcesses, token: &str, pid: u32, change: impl Fn(&mut Record)) {
        let path = records.file(token, pid);
        let mut record = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        change(&mut record);
        fs::write(&path, serde_json::to_vec(&record).unwrap()).unwrap();
    }

    #[test]
    fn what_a_run_that_is_gone_left_is_ended_with_its_children_and_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let (records, token, data) = (records(folder.path()), new_token(), folder.path().join("data"));
        fs::create_dir(&data).unwrap();
        let (mut server, mut worker, mut other) =
            (Sleeper::start(&token), Sleeper::start(&token), Sleeper::start("another"));
        let pid = server.0.id();
        records.add("Peer", "sleep", pid, &token, &data).unwrap();
        assert_eq!(records.end_left_over(), [], "its run is this one, which lives");
        assert!(!server.has_ended());

        rewrite(&records, &token, pid, |record| record.run = GONE);
        let mut ended: Vec<u32> = records.end_left_over().iter().map(|ended| ended.pid).collect();
        ended.sort_unstable();
        let mut expected = [pid, worker.0.id()];
        expected.sort_unstable();
        assert_eq!(ended, expected);
        assert!(server.has_ended() && worker.has_ended() && !other.has_ended());
        assert!(!data.exists());
        assert_eq!(records.end_left_over(), [], "the record is gone");
    }

    #[test]
    fn a_process_that_was_given_the_id_of_one_that_ended_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (records, token) = (records(folder.path()), new_token());
        let mut stranger = Sleeper::start("a stranger's");
        let pid = stranger.0.id();
        records.add("Peer", "sleep", pid, &token, folder.path()).unwrap();
        rewrite(&records, &token, pid, |record| {
            record.run = GONE;
            record.process.start_ticks -= 1;
            record.folder = folder.path().join("elsewhere");
        });
        assert_eq!(records.end_left_over(), []);
        assert!(!stranger.has_ended());
        assert!(!records.file(&token, pid).exists(), "the record is out of date and goes");

        records.add("Peer", "sleep", pid, &token, folder.path()).unwrap();
        rewrite(&records, &token, pid, |record| {
            record.boot = "an earlier boot".to_owned();
            record.folder = folder.path().join("elsewhere");
        });
        assert_eq!(records.end_left_over(), []);
        assert!(!stranger.has_ended(), "ids and start times of another boot say nothing");
    }

    #[test]
    fn files_of_another_peer_are_not_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let (records, token) = (records(folder.path()), new_token());
        let sleeper = Sleeper::start(&token);
        records.add("Peer", "sleep", sleeper.0.id(), &token, folder.path()).unwrap();
        fs::write(folder.path().join(MARK), "another token").unwrap();
        rewrite(&records, &token, sleeper.0.id(), |record| record.run = GONE);
        assert_eq!(records.end_left_over().len(), 1);
        assert!(folder.path().exists());
    }
}
