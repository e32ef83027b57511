//! A real Nigh for a bench or experiment: `nigh up` in a process of its own, with its state in a folder of its own.
//!
//! The node is recorded as the peers are: after a run that was killed, the next run ends the node.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nigh_node::credentials::{self, Credentials};
use nigh_node::endpoints::Endpoints;
use nigh_node::state_folder::StatePaths;
use rustix::process::{Pid, Signal};

use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::peer::started::{StartedProcesses, TOKEN, new_token};
use crate::instrument::peer::{S3Access, private_file};
use crate::instrument::programs;
use crate::instrument::sign::Signer;

/// How long it may take to start, and to stop.
const START: Duration = Duration::from_secs(30);
const STOP: Duration = Duration::from_secs(15);

/// A running node; stopped when dropped.
#[derive(Debug)]
pub(crate) struct NodeUnderTest {
    child: Child,
    /// The record's name for this node.
    token: String,
    /// Where it listens.
    pub(crate) endpoints: Endpoints,
    credentials: Credentials,
}

impl NodeUnderTest {
    /// Starts `nigh up` with its state in `folder`; `settings` is TOML beside what a test always sets.
    pub(crate) fn start(folder: &Path, settings: &toml::Table) -> Result<Self, LabError> {
        configure(folder, settings)?;
        Self::start_again(folder)
    }

    /// Starts the node of `folder`, which `configure` or `start` has made and which does not run.
    pub(crate) fn start_again(folder: &Path) -> Result<Self, LabError> {
        let program = programs::nigh()?;
        let (state, config) = (folder.join("state"), folder.join("nigh.toml"));
        let log_path = folder.join("nigh.log");
        let log = std::fs::File::create(&log_path).at(&log_path)?;
        let output = log.try_clone().at(&log_path)?;
        let token = new_token();
        let mut child = Command::new(program)
            .env(TOKEN, &token)
            .arg("up")
            .arg("--config")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(log)
            .spawn()
            .of_node()?;
        if let Err(error) = StartedProcesses::of_this_user().add("Nigh", "nigh", child.id(), &token, folder) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(LabError::Node(format!("the record of the node cannot be written: {error}")));
        }
        Self::wait_for(child, token, &StatePaths::new(&state), &log_path)
    }

    fn wait_for(mut child: Child, token: String, paths: &StatePaths, log: &Path) -> Result<Self, LabError> {
        let begin = Instant::now();
        let reason = loop {
            // A killed node leaves its endpoints behind.
            if let Ok(endpoints) = Endpoints::read(paths)
                && endpoints.pid == child.id()
                && let Ok(credentials) = credentials::read(&paths.credentials(), endpoints.namespace.as_str())
            {
                return Ok(Self { child, token, endpoints, credentials });
            }
            if let Ok(Some(status)) = child.try_wait() {
                break format!("it ended with {status}");
            }
            if begin.elapsed() > START {
                let _ = child.kill();
                let _ = child.wait();
                break format!("it did not listen within {} s", START.as_secs());
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let last: Vec<&str> = text.lines().rev().take(5).collect();
        Err(LabError::Node(format!("{reason}: {}", last.into_iter().rev().collect::<Vec<_>>().join(" | "))))
    }

    /// The id of the node's process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it at once, as a crash does.
    pub(crate) fn kill(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Where the S3 door listens.
    pub(crate) fn s3(&self) -> Result<SocketAddr, LabError> {
        socket_address(&self.endpoints.s3)
    }

    /// Where the Lambda door listens.
    pub(crate) fn lambda(&self) -> Result<SocketAddr, LabError> {
        socket_address(&self.endpoints.lambda)
    }

    /// The node's S3 door, for a client.
    pub(crate) fn s3_access(&self) -> S3Access {
        S3Access {
            endpoint: self.endpoints.s3.clone(),
            access_key: self.credentials.access_key.as_str().to_owned(),
            secret_key: self.credentials.secret_key.clone(),
            region: self.endpoints.region.clone(),
        }
    }

    /// Signs for one of its doors, `s3` or `lambda`, as another tenant: a namespace that the settings name.
    pub(crate) fn signer_of(&self, namespace: &str, service: &'static str) -> Result<Signer, LabError> {
        let state = self.endpoints.admin_socket.parent().unwrap_or(Path::new("/"));
        signer_of(state, &self.endpoints, namespace, service)
    }

    /// The `authorization` of another tenant's requests to OpenWhisk's API.
    pub(crate) fn basic_of(&self, namespace: &str) -> Result<String, LabError> {
        let state = self.endpoints.admin_socket.parent().unwrap_or(Path::new("/"));
        let keys = credentials::read(&StatePaths::new(state).credentials(), namespace).of_node()?;
        let pair = STANDARD.encode(format!("{}:{}", keys.access_key, keys.secret_key.reveal()));
        Ok(format!("Basic {pair}"))
    }

    /// Signs for one of its doors: `s3` or `lambda`.
    pub(crate) fn signer(&self, service: &'static str) -> Signer {
        let keys = &self.credentials;
        Signer::new(service, &self.endpoints.region, keys.access_key.as_str(), keys.secret_key.reveal())
    }
}

/// Signs for one of the doors of the node with this state, as a tenant that it has a key of.
pub(crate) fn signer_of(
    state: &Path,
    endpoints: &Endpoints,
    namespace: &str,
    service: &'static str,
) -> Result<Signer, LabError> {
    let keys = credentials::read(&StatePaths::new(state).credentials(), namespace).of_node()?;
    Ok(Signer::new(service, &endpoints.region, keys.access_key.as_str(), keys.secret_key.reveal()))
}

/// Settings of a node whose functions run by `python`, and whose store is `s3` if there is one, else a directory.
pub(crate) fn settings(s3: Option<&S3Access>, python: &Path) -> toml::Table {
    let mut settings = s3.map(settings_of_store).unwrap_or_default();
    set(&mut settings, &[("functions.python", &python.to_string_lossy())]);
    settings
}

/// Sets settings, each by its table and name: `("cache.bytes", "64 MiB")`.
pub(crate) fn set(settings: &mut toml::Table, values: &[(&str, &str)]) {
    for (name, value) in values {
        let mut table = &mut *settings;
        let mut names = name.split('.').peekable();
        while let Some(name) = names.next() {
            if names.peek().is_none() {
                table.insert(name.to_owned(), (*value).into());
                break;
            }
            let inner = table.entry(name).or_insert_with(|| toml::Table::new().into());
            let Some(inner) = inner.as_table_mut() else { break };
            table = inner;
        }
    }
}

/// Settings of a node whose store is `s3`.
#[must_use]
pub fn settings_of_store(s3: &S3Access) -> toml::Table {
    let mut settings = toml::Table::new();
    let values = [
        ("store.kind", "s3"),
        ("store.endpoint", &s3.endpoint),
        ("store.region", &s3.region),
        ("store.access_key", &s3.access_key),
        ("store.secret_key", s3.secret_key.reveal()),
    ];
    set(&mut settings, &values);
    settings
}

/// Writes the settings of the node in `folder`, with its state in there and doors on free ports; `settings` is TOML
/// beside these.
pub(crate) fn configure(folder: &Path, settings: &toml::Table) -> Result<(), LabError> {
    let (state, mut all) = (folder.join("state"), settings.clone());
    let free_port = "127.0.0.1:0";
    set(&mut all, &[("state", &state.to_string_lossy()), ("s3.listen", free_port), ("lambda.listen", free_port)]);
    let config = folder.join("nigh.toml");
    // The file may hold a store's secret; a node refuses such a file if others can read it.
    private_file(&config, &all.to_string()).at(&config)
}

/// The address in `http://address`.
pub(crate) fn socket_address(endpoint: &str) -> Result<SocketAddr, LabError> {
    let text = endpoint.strip_prefix("http://").unwrap_or(endpoint);
    text.parse().map_err(|error| LabError::Node(format!("{endpoint}: {error}")))
}

/// The Python of `make deps`.
pub(crate) fn python() -> Result<PathBuf, LabError> {
    let path = std::env::current_dir().unwrap_or_default().join(".deps/python/bin/python3");
    if path.exists() {
        Ok(path)
    } else {
        Err(LabError::Missing {
            missing: path.display().to_string(),
            hint: "run `make deps` in the project's folder first",
        })
    }
}

impl Drop for NodeUnderTest {
    fn drop(&mut self) {
        // The id of a process that has ended may belong to another process.
        if matches!(self.child.try_wait(), Ok(None))
            && let Some(pid) = Pid::from_raw(self.child.id() as i32)
        {
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
        let begin = Instant::now();
        while begin.elapsed() < STOP && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.kill();
        StartedProcesses::of_this_user().remove(&self.token, self.child.id());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_set_beside_those_of_their_table() {
        let mut all = settings(None, Path::new("/python"));
        set(&mut all, &[("functions.memory", "1 GiB"), ("drain", "1 s"), ("cache.bytes", "1 MiB")]);
        assert_eq!(all["functions"]["python"].as_str(), Some("/python"));
        assert_eq!((all["functions"]["memory"].as_str(), all["drain"].as_str()), (Some("1 GiB"), Some("1 s")));
        assert_eq!(all["cache"]["bytes"].as_str(), Some("1 MiB"));
    }
}
