//! A peer's programs on this machine: started, recorded, asked whether they answer, ended.
//!
//! They end when the `Servers` are dropped, and also when this process dies: each has its parent's death as a reason to
//! end (PR_SET_PDEATHSIG, prctl(2)), and is started by a thread that lives as long as the `Servers` do, since the kernel
//! takes the starting thread for the parent. Should that fail too, the next run ends them by their record (`started`).

use std::fs::{self, DirBuilder, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::PeerError;
use super::installed::on_path;
use super::started::{END_WITHIN, POLL, StartedProcesses, TOKEN, new_token};

/// How long servers may take until they answer; a busy machine needs several seconds for Python's imports.
const HEALTHY_WITHIN: Duration = Duration::from_secs(90);
/// The share of a failed program's output that goes into an error.
const OUTPUT_MAX: usize = 2000;
/// Bytes of a reply to a health check that are looked at.
const REPLY_MAX: u64 = 1024;

/// Asks a server whether it answers; says why not.
pub(super) type Health = Box<dyn Fn() -> Result<(), String> + Send>;

pub(super) struct Program {
    /// Its log's name, and what errors call it.
    pub(super) name: &'static str,
    pub(super) path: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) environment: Vec<(&'static str, String)>,
    pub(super) health: Option<Health>,
}

#[derive(Debug)]
pub(super) struct Servers {
    groups: Vec<u32>,
    /// Dropped to end the servers.
    stop: Option<mpsc::Sender<()>>,
    keeper: Option<JoinHandle<()>>,
}

impl Servers {
    /// Starts `programs` in their order, with logs below `folder`. Returns when all are healthy. Blocks for seconds.
    pub(super) fn start(peer: &'static str, folder: &Path, programs: Vec<Program>) -> Result<Self, PeerError> {
        if on_path("setpriv").is_none() {
            return Err(PeerError::not_installed(peer, "setpriv", "install util-linux"));
        }
        // What it ended is nobody's any more; `nigh experiment clean` tells of it.
        let _ = StartedProcesses::of_this_user().end_left_over();
        let logs = PeerFolder { peer, folder }.folder("logs")?;
        let (stop, stopped) = mpsc::channel();
        let (ready, started) = mpsc::channel();
        let not_kept = |source| PeerError::Start { peer, program: "its keeper thread".to_owned(), source };
        let group = Group {
            peer,
            folder: folder.to_owned(),
            logs,
            token: new_token(),
            records: StartedProcesses::of_this_user(),
            servers: Vec::new(),
        };
        let keeper = thread::Builder::new()
            .name("peer-keeper".to_owned())
            .spawn(move || keep(group, programs, &ready, &stopped))
            .map_err(not_kept)?;
        let mut servers = Self { groups: Vec::new(), stop: Some(stop), keeper: Some(keeper) };
        servers.groups = started.recv().map_err(|_| not_kept(std::io::Error::other("it ended")))??;
        Ok(servers)
    }

    /// All processes of the servers now: those that were started, and their workers.
    pub(super) fn processes(&self) -> Vec<u32> {
        members(&self.groups)
    }

    /// Ends them at once, as a crash does, with their workers.
    pub(super) fn kill(self) {
        for group in self.groups.iter().filter_map(|&group| Pid::from_raw(group.cast_signed())) {
            // An error says that the group is gone already.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(keeper) = self.keeper.take() {
            // It has nothing to say; a panic in it was printed where it happened.
            let _ = keeper.join();
        }
    }
}

/// The living processes of these process groups.
fn members(groups: &[u32]) -> Vec<u32> {
    let in_groups = |pid: &u32| group_of(*pid).is_some_and(|group| groups.contains(&group));
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(in_groups).collect()
}

/// The process group of `pid` while it lives: the third field behind its name, the first its state (proc_pid_stat(5)).
fn group_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    if fields.next() == Some("Z") { None } else { fields.nth(1)?.parse().ok() }
}

/// The life of the servers: started, reported healthy or not, kept until told to stop.
fn keep(
    mut group: Group,
    programs: Vec<Program>,
    ready: &mpsc::Sender<Result<Vec<u32>, PeerError>>,
    stopped: &mpsc::Receiver<()>,
) {
    let result = group.start(&programs).and_then(|()| group.wait_until_healthy(&programs));
    let healthy = result.is_ok();
    let pids = || group.servers.iter().map(|(_, child)| child.id()).collect();
    if ready.send(result.map(|()| pids())).is_ok() && healthy {
        // Nothing is ever sent: the wait ends when the `Servers` drop their end.
        let _ = stopped.recv();
    }
}

struct Group {
    peer: &'static str,
    folder: PathBuf,
    logs: PathBuf,
    token: String,
    records: StartedProcesses,
    servers: Vec<(&'static str, Child)>,
}

impl Group {
    fn log(&self, program: &str) -> PathBuf {
        self.logs.join(format!("{program}.log"))
    }

    fn start(&mut self, programs: &[Program]) -> Result<(), PeerError> {
        let peer = self.peer;
        for program in programs {
            let log_path = self.log(program.name);
            let log = File::create(&log_path).map_err(file_error(peer, "write", &log_path))?;
            let errors = log.try_clone().map_err(file_error(peer, "write", &log_path))?;
            let not_started = |source| PeerError::Start { peer, program: program.name.to_owned(), source };
            let child = Command::new("setpriv")
                .args(["--pdeathsig", "TERM"])
                .arg(&program.path)
                .args(&program.arguments)
                .envs(program.environment.iter().map(|(name, value)| (*name, value)))
                .env(TOKEN, &self.token)
                .stdin(Stdio::null())
                .stdout(log)
                .stderr(errors)
                .process_group(0)
                .spawn()
                .map_err(not_started)?;
            let pid = child.id();
            self.servers.push((program.name, child));
            if let Err(error) = self.records.add(peer, program.name, pid, &self.token, &self.folder) {
                self.all_alive()?;
                return Err(not_started(error));
            }
        }
        Ok(())
    }

    fn wait_until_healthy(&mut self, programs: &[Program]) -> Result<(), PeerError> {
        let deadline = Instant::now() + HEALTHY_WITHIN;
        for health in programs.iter().filter_map(|program| program.health.as_ref()) {
            while let Err(reason) = health() {
                self.all_alive()?;
                if Instant::now() > deadline {
                    let (peer, seconds, logs) = (self.peer, HEALTHY_WITHIN.as_secs(), self.logs.clone());
                    return Err(PeerError::NotHealthy { peer, seconds, reason, logs });
                }
                thread::sleep(POLL);
            }
        }
        self.all_alive()
    }

    fn all_alive(&mut self) -> Result<(), PeerError> {
        for at in 0..self.servers.len() {
            let (program, child) = &mut self.servers[at];
            if let Ok(Some(status)) = child.try_wait() {
                let (peer, program) = (self.peer, *program);
                let output = last_of(&fs::read(self.log(program)).unwrap_or_default());
                return Err(PeerError::Ended { peer, program: program.to_owned(), status: status.to_string(), output });
            }
        }
        Ok(())
    }
}

impl Drop for Group {
    /// Each server and its workers are one process group; all are asked to end, and killed if they do not.
    fn drop(&mut self) {
        // The last one first: it stands on those before it.
        let groups: Vec<_> =
            self.servers.iter().rev().filter_map(|(_, child)| Pid::from_raw(child.id().cast_signed())).collect();
        for &group in &groups {
            // An error says that the group is gone already.
            let _ = kill_process_group(group, Signal::TERM);
        }
        let deadline = Instant::now() + END_WITHIN;
        for (_, child) in &mut self.servers {
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
                thread::sleep(POLL);
            }
        }
        for &group in &groups {
            let _ = kill_process_group(group, Signal::KILL);
        }
        for (_, child) in &mut self.servers {
            let _ = child.wait();
        }
        // Workers are nobody's children now, and end a moment later.
        let leaders: Vec<u32> = self.servers.iter().map(|(_, child)| child.id()).collect();
        let deadline = Instant::now() + END_WITHIN;
        while !members(&leaders).is_empty() && Instant::now() < deadline {
            thread::sleep(POLL);
        }
        for pid in leaders {
            self.records.remove(&self.token, pid);
        }
    }
}

/// The end of a program's output.
pub(super) fn last_of(output: &[u8]) -> String {
    String::from_utf8_lossy(&output[output.len().saturating_sub(OUTPUT_MAX)..]).trim().to_owned()
}

/// A peer's own folder. Nobody else can read it: configurations and data hold secrets.
pub(super) struct PeerFolder<'f> {
    pub(super) peer: &'static str,
    pub(super) folder: &'f Path,
}

impl PeerFolder<'_> {
    /// Makes the folder `name` below it; itself if that is empty.
    pub(super) fn folder(&self, name: &str) -> Result<PathBuf, PeerError> {
        let path = self.folder.join(name);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(file_error(self.peer, "make", &path)).map(|()| path)
    }

    pub(super) fn file(&self, name: &str, text: &str) -> Result<PathBuf, PeerError> {
        let path = self.folder.join(name);
        let file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
        let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(file_error(self.peer, "write", &path)).map(|()| path)
    }

    /// So many ports of loopback that nobody listens on now.
    pub(super) fn free_ports<const N: usize>(&self) -> Result<[u16; N], PeerError> {
        free_ports().map_err(file_error(self.peer, "find free ports for", self.folder))
    }
}

pub(super) fn file_error(
    peer: &'static str,
    operation: &'static str,
    path: &Path,
) -> impl Fn(std::io::Error) -> PeerError {
    move |source| PeerError::File { peer, operation, path: path.to_owned(), source }
}

/// Writes a file that nobody else can read.
pub(crate) fn private_file(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

fn free_ports<const N: usize>() -> std::io::Result<[u16; N]> {
    // All are held until the last is found, so that no two are the same.
    let held = (0..N).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect::<Result<Vec<_>, _>>()?;
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(&held) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

/// Healthy where the answer to `GET path` on loopback is a 200.
pub(super) fn http_health(port: u16, path: &'static str) -> Health {
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
    reply_health(port, request, " 200 ")
}

/// Healthy where the reply to `request` holds `expected`.
pub(super) fn reply_health(port: u16, request: String, expected: &'static str) -> Health {
    Box::new(move || {
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        match reply(address, request.as_bytes(), expected) {
            Ok(answer) if answer.contains(expected) => Ok(()),
            Ok(answer) => Err(format!("{address} answers {:?}", answer.lines().next().unwrap_or_default())),
            Err(error) => Err(format!("{address}: {error}")),
        }
    })
}

/// What comes until `expected` is there, or the server has said all.
fn reply(address: SocketAddrV4, request: &[u8], expected: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address.into(), Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(request)?;
    let (mut answer, mut buffer) = (String::new(), [0; 256]);
    let mut stream = stream.take(REPLY_MAX);
    loop {
        let read = stream.read(&mut buffer)?;
        answer.push_str(&String::from_utf8_lossy(&buffer[..read]));
        if read == 0 || answer.contains(expected) {
            return Ok(answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(script: &str, health: Option<Health>) -> Program {
        let arguments = vec!["-c".to_owned(), script.to_owned()];
        Program { name: "script", path: "/bin/sh".into(), arguments, environment: Vec::new(), health }
    }

    #[test]
    fn servers_run_with_their_workers_until_they_are_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let servers = Servers::start("Peer", folder.path(), vec![program("sleep 600 & wait", None)]).unwrap();
        let begin = Instant::now();
        while servers.processes().len() < 2 && begin.elapsed() < Duration::from_secs(10) {
            thread::sleep(POLL);
        }
        let processes = servers.processes();
        assert_eq!(processes.len(), 2, "the shell and its worker");
        drop(servers);
        assert!(processes.into_iter().all(|pid| group_of(pid).is_none()));
    }

    #[test]
    fn a_server_that_ends_before_it_answers_is_reported_with_its_last_words() {
        let folder = tempfile::tempdir().unwrap();
        let never: Health = Box::new(|| Err("not yet".to_owned()));
        let script = program("sleep 0.3; echo no such option >&2; exit 7", Some(never));
        let error = Servers::start("Peer", folder.path(), vec![script]).unwrap_err().to_string();
        assert!(error.contains('7') && error.contains("no such option"), "{error}");
    }

    #[test]
    fn free_ports_are_all_different() {
        let mut ports = free_ports::<8>().unwrap().to_vec();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 8);
    }
}
