//! A real Redis on this machine: Debian's redis-server on a loopback port and a Unix socket of its own, a password,
//! nothing on disk.
//!
//! It keeps objects in memory alone and acknowledges before anything is durable: the floor of what a store costs.

use std::fmt::Display;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use nigh_terms::SecretKey;

use super::installed::on_path;
use super::servers::{PeerFolder, Program, Servers, reply_health};
use super::{Peer, PeerError};

const PEER: &str = "Redis";
const PROGRAM: &str = "redis-server";

/// A running Redis.
#[derive(Debug)]
pub struct Redis {
    servers: Servers,
    port: u16,
    socket: PathBuf,
    password: SecretKey,
    version: String,
}

impl Redis {
    /// Starts a Redis whose files go into `folder`, made if absent. Returns when it answers.
    ///
    /// # Errors
    /// `NotInstalled` if it is not there; else what could not be written, started or reached.
    pub fn start(folder: &Path) -> Result<Self, PeerError> {
        let hint = "run `make peers`, or install Debian's package redis-server";
        let program = on_path(PROGRAM).ok_or_else(|| PeerError::not_installed(PEER, PROGRAM, hint))?;
        let place = PeerFolder { peer: PEER, folder };
        place.folder("")?;
        let [port] = place.free_ports()?;
        let password = SecretKey::random();
        let configuration = place.file("redis.conf", &configured(folder, port, &password))?;
        let health = reply_health(port, format!("AUTH {}\r\nPING\r\n", password.reveal()), "+PONG");
        let server = Program {
            name: PROGRAM,
            path: program.clone(),
            arguments: vec![configuration.display().to_string()],
            environment: Vec::new(),
            health: Some(health),
        };
        let servers = Servers::start(PEER, folder, vec![server])?;
        Ok(Self { servers, port, socket: socket_in(folder), password, version: version(&program) })
    }

    /// Its port on 127.0.0.1.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Its Unix socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// If the connection breaks or Redis refuses.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<(), PeerError> {
        let failed = |reason: &dyn Display| PeerError::failed(PEER, format!("SET {key}: {reason}"));
        let mut request = format!(
            "AUTH {}\r\n*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n",
            self.password.reveal(),
            key.len(),
            value.len()
        )
        .into_bytes();
        request.extend_from_slice(value);
        request.extend_from_slice(b"\r\n");
        let mut answer = [0; 10];
        TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))
            .and_then(|mut stream| {
                stream.write_all(&request)?;
                stream.read_exact(&mut answer)
            })
            .map_err(|error| failed(&error))?;
        if &answer == b"+OK\r\n+OK\r\n" { Ok(()) } else { Err(failed(&String::from_utf8_lossy(&answer))) }
    }

    /// The environment in which the functions' client of it (`peers/redis_client.py`) finds it.
    pub(crate) fn environment(&self) -> [(String, String); 2] {
        [("PORT", self.port.to_string()), ("PASSWORD", self.password.reveal().to_owned())]
            .map(|(name, value)| (format!("NIGH_LAB_REDIS_{name}"), value))
    }

    /// What a client has to say first.
    #[must_use]
    pub const fn password(&self) -> &SecretKey {
        &self.password
    }
}

served!(Redis);

fn socket_in(folder: &Path) -> PathBuf {
    folder.join("redis.sock")
}

fn configured(folder: &Path, port: u16, password: &SecretKey) -> String {
    format!(
        "bind 127.0.0.1\nport {port}\nunixsocket {}\nunixsocketperm 700\nrequirepass {}\ndir {}\nsave \"\"\n\
         appendonly no\ndaemonize no\n",
        socket_in(folder).display(),
        password.reveal(),
        folder.display()
    )
}

/// As in `Redis server v=7.0.15 sha=...`.
fn version(program: &Path) -> String {
    let output = Command::new(program).arg("--version").output();
    let said = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    said.split(' ').find_map(|word| word.strip_prefix("v=")).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_listens_on_loopback_asks_for_a_password_and_writes_nothing() {
        let text = configured(Path::new("/d"), 7, &SecretKey::new("hush"));
        for line in [
            "bind 127.0.0.1",
            "port 7",
            "unixsocket /d/redis.sock",
            "unixsocketperm 700",
            "requirepass hush",
            "save \"\"",
            "appendonly no",
            "dir /d",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}");
        }
    }
}
