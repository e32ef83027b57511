//! The targets of escape attempts: harmless things of the host, made for one run and removed after it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::LabError;
use crate::instrument::error::Tried;

/// Set in the environment of a target.
pub(super) const MARK_VARIABLE: &str = "NIGH_LAB_MARK";
/// The link-local address that reaches no further than this machine's own choice of interface.
const ELSEWHERE: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 9);

/// Files, processes and sockets of the host, each recognisable by `mark`.
#[derive(Debug)]
pub(super) struct Targets {
    pub(super) mark: String,
    folder: tempfile::TempDir,
    shown: PathBuf,
    canary: Child,
    loopback: TcpListener,
    everywhere: TcpListener,
    _abstract: UnixListener,
    _by_path: UnixListener,
    unsigned: SocketAddr,
}

impl Targets {
    /// Makes them.
    pub(super) fn make() -> Result<Self, LabError> {
        let folder = tempfile::tempdir().at(std::env::temp_dir())?;
        let at = |error: std::io::Error| LabError::file(folder.path(), &error);
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).map_err(at)?;
        let mark = format!("nigh-lab-{:016x}", rand::random::<u64>());
        for name in ["scratch", "code"] {
            fs::create_dir(folder.path().join(name)).map_err(at)?;
        }
        fs::write(folder.path().join("linked"), &mark).map_err(at)?;
        fs::write(folder.path().join("code/attempts.py"), super::ATTEMPTS).map_err(at)?;
        let shown = std::env::temp_dir().join(&mark);
        fs::write(&shown, &mark).map_err(at)?;
        let address = UnixAddress::from_abstract_name(&mark).map_err(at)?;
        Ok(Self {
            canary: canary(&mark)?,
            loopback: TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(at)?,
            everywhere: TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(at)?,
            _abstract: UnixListener::bind_addr(&address).map_err(at)?,
            _by_path: UnixListener::bind(folder.path().join("socket")).map_err(at)?,
            unsigned: answer_everyone().map_err(at)?,
            shown,
            mark,
            folder,
        })
    }

    /// The folder whose code a function is deployed from.
    pub(super) fn code(&self) -> PathBuf {
        self.folder.path().join("code")
    }

    /// All processes with the mark in their environment: the canary, and sandboxes of marked functions.
    pub(super) fn marked(&self) -> Vec<u32> {
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let processes = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        processes
            .filter(|process: &u32| {
                let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
                let line = format!("{MARK_VARIABLE}={}", self.mark);
                environment.split(|byte| *byte == 0).any(|one| one == line.as_bytes())
            })
            .collect()
    }

    /// True as long as nobody has ended the canary.
    pub(super) fn canary_lives(&mut self) -> bool {
        matches!(self.canary.try_wait(), Ok(None))
    }

    /// Another canary, if this one was ended.
    pub(super) fn renew_canary(&mut self) -> Result<(), LabError> {
        if !self.canary_lives() {
            self.canary = canary(&self.mark)?;
        }
        Ok(())
    }

    /// The port that is the host's own.
    pub(super) fn loopback_port(&self) -> u16 {
        port(&self.loopback)
    }

    /// What an attempt is told, whoever makes it.
    pub(super) fn event(&self) -> Value {
        let (loopback, everywhere) = (port(&self.loopback), port(&self.everywhere));
        let own = own_address().map(|address| json!([address, everywhere]));
        let ports: Vec<Value> =
            [loopback, everywhere].map(|port| json!(["127.0.0.1", port])).into_iter().chain(own).collect();
        json!({
            "mark": self.mark,
            "host_files": [self.shown, self.folder.path().join("linked"), "/etc/shadow", "/root/.bashrc"],
            "host_ports": ports,
            "abstract": [self.mark],
            "cgroups": ["/sys/fs/cgroup"],
        })
    }

    /// What an attempt without walls is told beside: small limits, and nothing that it could harm.
    pub(super) fn without_walls(&self, state_files: &[PathBuf], state: &Path) -> Value {
        let loopback = json!(["127.0.0.1", self.loopback_port()]);
        json!({
            "unwalled": true,
            "pids": [self.canary.id()],
            "folders": [self.folder.path().join("scratch")],
            "linked": [self.folder.path().join("linked")],
            "code": self.code(),
            "search": [state],
            "state_files": state_files,
            "socket_files": [self.folder.path().join("socket")],
            "other_ports": [loopback],
            "metadata": [loopback],
            "data_door": format!("http://{}", self.unsigned),
            "processes_max": 20, "tmp_bytes": 1 << 20, "shared_bytes": 1 << 20, "files_max": 50,
            "memory_bytes": 32 << 20, "open_files_max": 50,
        })
    }
}

impl Drop for Targets {
    fn drop(&mut self) {
        let _ended = self.canary.kill();
        let _reaped = self.canary.wait();
        let _gone = fs::remove_file(&self.shown);
    }
}

fn port(listener: &TcpListener) -> u16 {
    listener.local_addr().map_or(0, |address| address.port())
}

fn canary(mark: &str) -> Result<Child, LabError> {
    Command::new("sleep").arg("100000").env(MARK_VARIABLE, mark).stdin(Stdio::null()).spawn().at("sleep")
}

/// A door that signs for nothing: answers every request with 200.
fn answer_everyone() -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        // Ends with the process; one request at a time is all that ever comes.
        for mut stream in listener.incoming().filter_map(Result::ok) {
            let _asked = stream.read(&mut [0; 1024]);
            let _gone = stream.write_all(b"HTTP/1.0 200 OK\r\ncontent-length: 4\r\n\r\nopen");
        }
    });
    Ok(address)
}

/// The address of this machine that others would use; none without a network. Nothing is sent.
pub(super) fn own_address() -> Option<String> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect(ELSEWHERE).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback()).then(|| address.to_string())
}
