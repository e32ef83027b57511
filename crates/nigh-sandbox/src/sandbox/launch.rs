//! Messages between the engine and the sandbox's init (`nigh-sandbox`) over one socket.
//!
//! Each message is a length (u32, little endian) and that many bytes of JSON. The engine sends `Prepare`: the keeper
//! makes the init, which sets up the part of the isolation that is the same for every function and sends `Ready`, with
//! the descriptor of its network if it has its own. The engine keeps this blank sandbox until one is needed and then
//! sends `Launch`: the init builds the root, starts the command and sends `Running` with the descriptors of the
//! listeners: of the Runtime API, of the data door and, in the sandbox's own network, of the fast path. After that the
//! engine may send the single bytes `STOP` and `CONTINUE`. When the engine's end of the socket closes, for any reason,
//! the sandbox ends.
//!
//! With a `Container` in `Prepare`, the keeper lets a container runtime isolate the sandbox and start the init inside,
//! and sends `Contained` beside the init's `Ready`. Before `Launch` the engine mounts the function's folders. At the
//! end the keeper sends `Over`, and lets the runtime delete the container when the engine has closed the socket.
//!
//! To pre-warm a sandbox, the engine sends `Warm` before the function is known: the init builds the root without code,
//! starts the runtime (`runtimes/python/nigh_stem.py`) and sends `Warmed` when the runtime is ready. The engine mounts
//! the code from outside (`late_mount`). The `Launch` that follows goes to the runtime as `prewarm_message`; only its
//! command and environment count.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The longest message: the environment and the command are bounded far below by the kernel's own limit of 2 MiB,
/// and JSON takes at most four characters a byte.
pub const MESSAGE_MAX_BYTES: usize = 16 << 20;
/// Bytes of the length before each message.
pub const LENGTH_BYTES: usize = 4;
/// The most descriptors that come with one report.
pub const DESCRIPTORS_MAX: usize = 3;
/// The engine's byte to stop all processes, without a freezer.
pub const STOP: u8 = b'S';
/// The engine's byte to continue them.
pub const CONTINUE: u8 = b'C';
/// The argument by which the init knows that a container runtime has isolated it.
pub const INSIDE: &str = "inside";
/// When the whole machine runs out of memory, functions are killed before Nigh and before other programs.
pub const OOM_SCORE: i32 = 500;
/// The address of listeners in a sandbox with its own network.
pub const OWN_NETWORK: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// The isolation of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IsolationLevel {
    /// A user of its own on the host, and its own view of files, processes and network. Needs root.
    UserAndNamespaces {
        /// The user's and the group's number.
        uid: u32,
    },
    /// The isolation of `UserAndNamespaces`, and more. A container runtime sets it up before the init starts; the init
    /// already runs as that user and has no privileges.
    Container {
        /// The user's and the group's number.
        uid: u32,
    },
    /// Its own view of users, files, processes and network.
    Namespaces,
    /// Only a user of its own on the host.
    User {
        /// The user's and the group's number.
        uid: u32,
    },
    /// The sandbox is not isolated.
    None,
}

impl IsolationLevel {
    /// True if files, processes and network are its own.
    #[must_use]
    pub const fn has_namespaces(self) -> bool {
        matches!(self, Self::UserAndNamespaces { .. } | Self::Container { .. } | Self::Namespaces)
    }

    /// Nigh's processes that RLIMIT_NPROC counts beside the function's; none if it also counts processes of others.
    #[must_use]
    pub const fn own_processes(self) -> Option<u32> {
        match self {
            // The init counts.
            Self::UserAndNamespaces { .. } | Self::Container { .. } | Self::User { .. } => Some(1),
            // The keeper is in the user namespace too; the limit is one namespace's since Linux 5.14.
            Self::Namespaces => Some(2),
            Self::None => None,
        }
    }

    /// The user of the host that the command becomes; none if it keeps Nigh's user.
    #[must_use]
    pub const fn uid(self) -> Option<u32> {
        match self {
            Self::UserAndNamespaces { uid } | Self::Container { uid } | Self::User { uid } => Some(uid),
            Self::Namespaces | Self::None => None,
        }
    }
}

/// What the init needs before the function is known.
#[derive(Debug, Serialize, Deserialize)]
pub struct Prepare {
    /// How the sandbox is kept apart.
    pub level: IsolationLevel,
    /// The address of the listeners.
    pub address: Ipv4Addr,
    /// Files that a process writes `0` to, to join the sandbox's cgroups.
    pub join: Vec<OsString>,
    /// The file and the word that let frozen processes die (cgroup v1).
    pub thaw: Option<(OsString, String)>,
    /// The cgroup's folders, removed at the end if the engine is gone.
    pub folders: Vec<OsString>,
    /// The container runtime that isolates; none if the init does.
    pub container: Option<Container>,
}

impl Prepare {
    /// The message for the init of a container.
    #[must_use]
    pub fn inside_container(uid: u32) -> Self {
        Self {
            level: IsolationLevel::Container { uid },
            address: OWN_NETWORK,
            join: Vec::new(),
            thaw: None,
            folders: Vec::new(),
            container: None,
        }
    }
}

/// The container of the sandbox.
#[derive(Debug, Serialize, Deserialize)]
pub struct Container {
    /// The program: runc.
    pub runtime: OsString,
    /// The folder where the runtime keeps the state of its containers.
    pub state: OsString,
    /// The folder with `config.json`; the keeper removes it at the end.
    pub bundle: OsString,
    /// The container's name.
    pub name: String,
}

/// The order after `Ready`. Without `Debug`, like `Launch`.
#[derive(Serialize, Deserialize)]
pub enum Order {
    /// Become the function's sandbox; its code is mounted.
    Launch(Launch),
    /// Start a pre-warmed runtime, a process that becomes the function's later. The number of the descriptor for its
    /// order is appended to its command.
    Warm(Launch),
}

/// The function. No `Debug`: the environment holds the sandbox's secret key.
#[derive(Serialize, Deserialize)]
pub struct Launch {
    /// The program and its arguments. Empty for a probe, which stops after the isolation.
    pub command: Vec<OsString>,
    /// The whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// The folder that appears at `/var/task`; with none, an empty folder appears.
    pub code: Option<OsString>,
    /// The folder that appears at `/opt`; with none, nothing does.
    pub layers: Option<OsString>,
    /// Folders that appear at the same path.
    pub runtime_folders: Vec<OsString>,
    /// Files whose text differs between sandboxes (`root_tree`): path and text. If a container runtime builds the root,
    /// they are mounted from outside.
    pub texts: Vec<(String, String)>,
    /// The size of /tmp, in bytes.
    pub tmp_bytes: u64,
    /// The limit of processes by RLIMIT_NPROC; none if a cgroup limits them.
    pub processes_max: Option<u64>,
    /// True if the command's system calls must be filtered. The container runtime filters them otherwise.
    pub filter: bool,
}

impl Launch {
    /// A launch without a command, for a probe.
    #[must_use]
    pub fn probe(code: &Path, tmp_bytes: u64) -> Self {
        Self {
            command: Vec::new(),
            environment: Vec::new(),
            code: Some(code.into()),
            layers: None,
            runtime_folders: Vec::new(),
            texts: Vec::new(),
            tmp_bytes,
            processes_max: None,
            filter: false,
        }
    }
}

/// What is wrong with a program that the kernel cannot execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProgramFault {
    /// There is no such file.
    Missing,
    /// The file is there, but it is not executable, is in no format that the kernel knows, or needs an interpreter that
    /// is not in the sandbox.
    Unusable,
}

/// A message of the init.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InitMessage {
    /// The isolation is complete and the init waits for an order. The descriptor of the network comes with this
    /// message, if the network is its own.
    Ready,
    /// From the keeper: the container runtime has started the init, with this process.
    Contained {
        /// The process id as the engine sees it.
        process: u32,
    },
    /// The pre-warmed runtime waits. If the init has built the root, the descriptor of its mount namespace comes with
    /// this message.
    Warmed {
        /// The runtime's report: the modules that it lacks.
        said: String,
    },
    /// The command runs; the listeners' descriptors come with this message.
    Running,
    /// The sandbox cannot be made.
    Failed {
        /// What was tried.
        step: String,
        /// The system's reason.
        reason: String,
    },
    /// The sandbox is complete, but the kernel cannot execute the program of the command.
    NotExecuted {
        /// What was tried.
        step: String,
        /// The system's reason.
        reason: String,
        /// What is wrong with the program.
        fault: ProgramFault,
    },
    /// All processes are stopped.
    Stopped,
    /// All processes run on.
    Continued,
    /// The command exited with this code.
    Exited(i32),
    /// The command was ended by this signal.
    Signalled(i32),
    /// From the keeper of a container: no process is left.
    Over,
}

/// A message as it goes over the socket.
///
/// # Errors
/// If it is longer than `MESSAGE_MAX_BYTES`.
pub fn encode(message: &impl Serialize) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; LENGTH_BYTES];
    serde_json::to_writer(&mut bytes, message)?;
    let length = bytes.len() - LENGTH_BYTES;
    if length > MESSAGE_MAX_BYTES {
        return Err(too_long(length));
    }
    bytes[..LENGTH_BYTES].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(bytes)
}

/// Removes the first complete message from `bytes` and returns it, if there is one.
///
/// # Errors
/// If it is longer than `MESSAGE_MAX_BYTES` or is not the message expected.
pub fn decode<M: DeserializeOwned>(bytes: &mut Vec<u8>) -> std::io::Result<Option<M>> {
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let length = u32::from_le_bytes(*length) as usize;
    if length > MESSAGE_MAX_BYTES {
        return Err(too_long(length));
    }
    let Some(body) = rest.get(..length) else { return Ok(None) };
    let message = serde_json::from_slice(body)?;
    bytes.drain(..LENGTH_BYTES + length);
    Ok(Some(message))
}

/// The order to a pre-warmed runtime: a length, the number of words in the command, then the words and the lines
/// `NAME=VALUE`, each ended by a zero byte.
#[must_use]
pub fn prewarm_message(launch: &Launch) -> Vec<u8> {
    let mut body = (launch.command.len() as u32).to_le_bytes().to_vec();
    for word in &launch.command {
        body.extend_from_slice(word.as_bytes());
        body.push(0);
    }
    for (name, value) in &launch.environment {
        for part in [name.as_bytes(), b"=", value.as_bytes(), b"\0"] {
            body.extend_from_slice(part);
        }
    }
    let mut message = (body.len() as u32).to_le_bytes().to_vec();
    message.append(&mut body);
    message
}

fn too_long(length: usize) -> std::io::Error {
    let reason = format!("a message of {length} bytes is longer than {MESSAGE_MAX_BYTES}");
    std::io::Error::new(std::io::ErrorKind::InvalidData, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_one_by_one_however_the_bytes_are_cut() {
        let mut stream = encode(&InitMessage::Running).unwrap();
        stream.extend(encode(&InitMessage::Exited(3)).unwrap());
        let mut received = Vec::new();
        let mut reports = Vec::new();
        for byte in stream {
            received.push(byte);
            while let Some(report) = decode::<InitMessage>(&mut received).unwrap() {
                reports.push(report);
            }
        }
        assert_eq!(reports, [InitMessage::Running, InitMessage::Exited(3)]);
        assert!(received.is_empty());
    }

    #[test]
    fn a_message_too_long_or_of_another_kind_is_refused() {
        let mut long = (MESSAGE_MAX_BYTES as u32 + 1).to_le_bytes().to_vec();
        assert!(decode::<InitMessage>(&mut long).is_err());
        let mut other = encode(&17).unwrap();
        assert!(decode::<InitMessage>(&mut other).is_err());
    }

    #[test]
    fn a_stem_is_told_words_and_lines_that_end_in_zero() {
        let launch = Launch {
            command: vec!["python3".into(), "-m".into()],
            environment: vec![("A".into(), "1=2".into())],
            ..Launch::probe(Path::new("/code"), 0)
        };
        assert_eq!(prewarm_message(&launch), b"\x15\0\0\0\x02\0\0\0python3\0-m\0A=1=2\0");
    }

    #[test]
    fn names_that_are_no_text_pass_unchanged() {
        use std::os::unix::ffi::OsStringExt as _;
        let name = OsString::from_vec(vec![b'/', 0xff, 0xfe]);
        let mut bytes = encode(&name).unwrap();
        assert_eq!(decode::<OsString>(&mut bytes).unwrap(), Some(name));
    }
}
