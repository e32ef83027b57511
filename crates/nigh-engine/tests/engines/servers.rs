//! A NATS cluster on loopback, whose servers a test kills, stops and starts again.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use nigh_engine::nats::{Cluster, ClusterSettings, ServerSettings, server_configuration};
use nigh_terms::SecretKey;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::skipped::skip;

/// Lines of program, version and Go module: the one place of the version.
const VERSIONS: &str = include_str!("../../../nigh-lab/peers/versions");
const PROGRAM: &str = "nats-server";
/// How long servers may take to do what they are waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

struct Server {
    name: String,
    port: u16,
    configuration: PathBuf,
    child: Option<Child>,
}

/// Running servers. They are killed when it is dropped.
pub(crate) struct Servers {
    folder: TempDir,
    program: PathBuf,
    token: SecretKey,
    servers: Vec<Server>,
}

fn program() -> Option<PathBuf> {
    let lines = VERSIONS.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let version = lines.into_iter().find(|line| line[0] == PROGRAM).unwrap()[1].to_owned();
    let given = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let caches = given("XDG_CACHE_HOME").or_else(|| given("HOME").map(|home| home.join(".cache")))?;
    let path = caches.join(format!("nigh/peers/{PROGRAM}-{version}/{PROGRAM}"));
    path.is_file().then_some(path)
}

fn free_ports(count: usize) -> Vec<u16> {
    let held: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    held.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
}

impl Servers {
    /// So many servers; none, and a line that says so, where they are not installed.
    pub(crate) fn start(test: &str, count: usize) -> Option<Self> {
        let Some(program) = program() else {
            skip(test, format_args!("{PROGRAM} is not installed; run `make peers`"));
            return None;
        };
        let (folder, token) = (tempfile::tempdir().unwrap(), SecretKey::random());
        let ports = free_ports(2 * count);
        let (clients, routes) = ports.split_at(count);
        let listens: Vec<String> = routes.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let mut servers = Vec::new();
        for (at, &port) in clients.iter().enumerate() {
            let name = format!("s{at}");
            let (listen, store) = (format!("127.0.0.1:{port}"), folder.path().join(&name));
            let text = server_configuration(&ServerSettings {
                name: &name,
                listen: &listen,
                monitor: None,
                cluster: (count > 1).then_some(("test", &*listens[at])),
                routes: &listens,
                folder: &store,
                token: Some(&token),
            });
            let configuration = folder.path().join(format!("{name}.conf"));
            std::fs::write(&configuration, text).unwrap();
            servers.push(Server { name, port, configuration, child: None });
        }
        let mut started = Self { folder, program, token, servers };
        (0..count).for_each(|at| started.run(at));
        Some(started)
    }

    /// Starts a server that does not run.
    pub(crate) fn run(&mut self, at: usize) {
        let server = &mut self.servers[at];
        assert!(server.child.is_none(), "{} runs", server.name);
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join(format!("{}.log", server.name)))
            .unwrap();
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(&self.program)
            .arg("--config")
            .arg(&server.configuration)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        server.child = Some(child);
    }

    fn signal(&self, at: usize, signal: Signal) {
        let child = self.servers[at].child.as_ref().unwrap();
        kill_process(Pid::from_raw(child.id().cast_signed()).unwrap(), signal).unwrap();
    }

    /// Ends a server as a crash does.
    pub(crate) fn kill(&mut self, at: usize) {
        self.signal(at, Signal::KILL);
        self.servers[at].child.take().unwrap().wait().unwrap();
    }

    /// Ends a server as an operator does.
    pub(crate) fn shut_down(&mut self, at: usize) {
        self.signal(at, Signal::TERM);
        self.servers[at].child.take().unwrap().wait().unwrap();
    }

    /// A server does nothing until it goes on.
    pub(crate) fn stop(&self, at: usize) {
        self.signal(at, Signal::STOP);
    }

    pub(crate) fn go_on(&self, at: usize) {
        self.signal(at, Signal::CONT);
    }

    pub(crate) const fn count(&self) -> usize {
        self.servers.len()
    }

    /// How the cluster is reached; requests are given up after `answer_within`.
    pub(crate) fn settings(&self, replicas: usize, answer_within: Duration) -> ClusterSettings {
        ClusterSettings {
            servers: self.servers.iter().map(|server| format!("nats://127.0.0.1:{}", server.port)).collect(),
            token: Some(self.token.clone()),
            root_certificates: None,
            client_certificate: None,
            name: "test".to_owned(),
            replicas,
            answer_within,
        }
    }

    /// A client of its own.
    pub(crate) async fn connect(&self, replicas: usize) -> Cluster {
        self.connect_for(replicas, PATIENCE).await
    }

    /// A client of its own that gives requests up after `answer_within`.
    pub(crate) async fn connect_for(&self, replicas: usize, answer_within: Duration) -> Cluster {
        let begun = Instant::now();
        loop {
            match Cluster::connect(self.settings(replicas, answer_within)).await {
                Ok(cluster) => return cluster,
                Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// JetStream by NATS' own client, for what Nigh never does.
    pub(crate) async fn bare(&self) -> async_nats::jetstream::Context {
        let settings = self.settings(1, PATIENCE);
        let options = async_nats::ConnectOptions::with_token(self.token.reveal().to_owned());
        async_nats::jetstream::new(options.connect(&settings.servers[..]).await.unwrap())
    }

    /// The server that leads `stream`.
    pub(crate) async fn leader(&self, stream: &str) -> usize {
        let context = self.bare().await;
        let begun = Instant::now();
        loop {
            if let Ok(found) = context.get_stream(stream).await
                && let Some(leader) = found.cached_info().cluster.as_ref().and_then(|cluster| cluster.leader.clone())
            {
                return self.servers.iter().position(|server| server.name == leader).unwrap();
            }
            assert!(begun.elapsed() < PATIENCE, "{stream} has no leader");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Lets another server lead `stream`, while all of them run.
    pub(crate) async fn lead_by_another(&self, stream: &str) {
        let (context, before, begun) = (self.bare().await, self.leader(stream).await, Instant::now());
        while self.leader(stream).await == before {
            assert!(begun.elapsed() < PATIENCE, "nobody else leads {stream}");
            let step_down = format!("$JS.API.STREAM.LEADER.STEPDOWN.{stream}");
            // One that is not answered is asked again.
            let _ = context.client().request(step_down, Bytes::new()).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The files in which a server keeps the messages of `stream`.
    pub(crate) fn blocks(&self, at: usize, stream: &str) -> Vec<PathBuf> {
        let folder = self.folder.path().join(&self.servers[at].name).join("jetstream/$G/streams").join(stream);
        let mut found: Vec<PathBuf> = std::fs::read_dir(folder.join("msgs"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|end| end == "blk"))
            .collect();
        found.sort();
        found
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for server in &mut self.servers {
            if let Some(mut child) = server.child.take() {
                // It may have ended by itself.
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        if std::thread::panicking() {
            for server in &self.servers {
                let log = std::fs::read_to_string(self.folder.path().join(format!("{}.log", server.name)));
                let log = log.unwrap_or_default();
                let last: Vec<&str> = log.lines().rev().take(12).collect();
                println!("{}:\n{}", server.name, last.into_iter().rev().collect::<Vec<_>>().join("\n"));
            }
        }
    }
}
