//! A real Redis on this machine: Debian's redis-server on a loopback port and a Unix socket of its own, and a password.
//!
//! It keeps objects in memory alone and acknowledges before anything is durable: the floor of what a store costs. One that
//! `start_synced` starts has every write synced in its append-only file before it acknowledges the write.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nigh_terms::SecretKey;

use super::installed::on_path;
use super::servers::{PeerFolder, Program, Servers, reply_health};
use super::{Peer, PeerError};

const PEER: &str = "Redis";
const PROGRAM: &str = "redis-server";
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of a value that is read.
const VALUE_MAX: usize = 64 << 20;

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
        Self::start_as(folder, false)
    }

    /// Starts one likewise that syncs each write before it acknowledges it.
    ///
    /// # Errors
    /// The same.
    pub fn start_synced(folder: &Path) -> Result<Self, PeerError> {
        Self::start_as(folder, true)
    }

    fn start_as(folder: &Path, is_synced: bool) -> Result<Self, PeerError> {
        let hint = "run `make peers`, or install Debian's package redis-server";
        let program = on_path(PROGRAM).ok_or_else(|| PeerError::not_installed(PEER, PROGRAM, hint))?;
        let place = PeerFolder { peer: PEER, folder };
        place.folder("")?;
        let [port] = place.free_ports()?;
        let password = SecretKey::random();
        let configuration = place.file("redis.conf", &configured(folder, port, &password, is_synced))?;
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
        let set = RedisConnection::open(&self.socket, &self.password).and_then(|mut redis| redis.set(key, value));
        set.map_err(|error| PeerError::failed(PEER, format!("SET {key}: {error}")))
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

/// A connection by the Unix socket, over which the password was said.
#[derive(Debug)]
pub(crate) struct RedisConnection(BufReader<UnixStream>);

impl RedisConnection {
    pub(crate) fn open(socket: &Path, password: &SecretKey) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut connection = Self(BufReader::new(stream));
        connection.call(&["AUTH".as_bytes(), password.reveal().as_bytes()])?;
        Ok(connection)
    }

    /// The value of `key`; an error if there is none.
    pub(crate) fn get(&mut self, key: &str) -> io::Result<Vec<u8>> {
        self.call(&["GET".as_bytes(), key.as_bytes()])
    }

    pub(crate) fn set(&mut self, key: &str, value: &[u8]) -> io::Result<()> {
        self.call(&["SET".as_bytes(), key.as_bytes(), value]).map(drop)
    }

    fn call(&mut self, words: &[&[u8]]) -> io::Result<Vec<u8>> {
        let mut command = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            command.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            command.extend_from_slice(word);
            command.extend_from_slice(b"\r\n");
        }
        self.0.get_mut().write_all(&command)?;
        answer(&mut self.0)
    }
}

/// The text or value that Redis answers (RESP2).
fn answer(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let line = line.trim_end();
    if let Some(text) = line.strip_prefix('+') {
        return Ok(text.as_bytes().to_vec());
    }
    // The length of a value that is absent is -1.
    let length = line.strip_prefix('$').and_then(|length| length.parse::<usize>().ok());
    let length = length.filter(|length| *length <= VALUE_MAX).ok_or_else(|| io::Error::other(line.to_owned()))?;
    let mut value = vec![0; length + 2];
    from.read_exact(&mut value)?;
    value.truncate(length);
    Ok(value)
}

fn socket_in(folder: &Path) -> PathBuf {
    folder.join("redis.sock")
}

fn configured(folder: &Path, port: u16, password: &SecretKey, is_synced: bool) -> String {
    let appends = if is_synced { "appendonly yes\nappendfsync always" } else { "appendonly no" };
    format!(
        "bind 127.0.0.1\nport {port}\nunixsocket {}\nunixsocketperm 700\nrequirepass {}\ndir {}\nsave \"\"\n\
         {appends}\ndaemonize no\n",
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
    fn it_listens_on_loopback_asks_for_a_password_and_writes_nothing_unless_it_is_to_sync() {
        let of = |is_synced| configured(Path::new("/d"), 7, &SecretKey::new("hush"), is_synced);
        let (text, synced) = (of(false), of(true));
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
        assert!(
            synced.contains("appendonly yes\nappendfsync always\n") && !synced.contains("appendonly no"),
            "{synced}"
        );
    }

    #[test]
    fn an_answer_is_text_or_a_value_and_all_else_is_an_error() {
        let of = |bytes: &[u8]| answer(&mut &bytes[..]).map_err(|error| error.to_string());
        assert_eq!(of(b"+OK\r\n+next").unwrap(), b"OK");
        assert_eq!(of(b"$5\r\na\r\nbc\r\n").unwrap(), b"a\r\nbc");
        assert_eq!(of(b"$-1\r\n").unwrap_err(), "$-1");
        assert_eq!(of(b"-NOAUTH no\r\n").unwrap_err(), "-NOAUTH no");
        assert!(of(b"").is_err() && of(b"$9\r\nabc").is_err());
    }
}
