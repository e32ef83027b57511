//! A cluster before a real Swift with Nigh's middleware, which tells one node of a container: outsiders read what is unpushed at
//! any home, and every node reads what they write.

use std::cell::RefCell;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use nigh_lab::instrument::http_load::Connection;
use nigh_lab::instrument::peer::PeerError;
use nigh_lab::instrument::peer::swift::{NighMiddleware, Swift};
use nigh_node::local_cluster::{LocalCluster, LocalClusterSettings, find_nats_server};
use nigh_terms::SecretKey;
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::platform::{NIGH, PATIENCE, command, python, wait_for};
use crate::programs::build_programs;
use crate::skipped::skip;

const NODES: u8 = 2;
/// Objects of each part of the test: their homes are at both nodes.
const OBJECTS: usize = 8;
const PAUSE: Duration = Duration::from_millis(200);
const SECRET: &str = "a secret of tests, long enough for the middleware";

/// Where the middleware looks for a node, whose door has another port each time the node starts.
struct Relay {
    port: u16,
    state: Arc<OnceLock<PathBuf>>,
}

impl Relay {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, state) = (listener.local_addr().unwrap().port(), Arc::new(OnceLock::<PathBuf>::new()));
        let of_node = Arc::clone(&state);
        thread::spawn(move || {
            for caller in listener.incoming() {
                if let (Ok(caller), Some(state)) = (caller, of_node.get()) {
                    let _refused = outside_door(state).and_then(|door| carry(caller, door));
                }
            }
        });
        Self { port, state }
    }
}

/// The door for outsiders' messages of the node that runs in `state` now.
fn outside_door(state: &Path) -> io::Result<SocketAddr> {
    let endpoints: Value = serde_json::from_slice(&fs::read(state.join("endpoints.json"))?)?;
    let door = endpoints["outside"].as_str().and_then(|url| url.trim_start_matches("http://").parse().ok());
    door.ok_or_else(|| io::Error::other("the node has no such door"))
}

fn carry(caller: TcpStream, target: SocketAddr) -> io::Result<()> {
    let node = TcpStream::connect(target)?;
    for (mut from, mut to) in [(caller.try_clone()?, node.try_clone()?), (node, caller)] {
        thread::spawn(move || {
            let _broken = io::copy(&mut from, &mut to);
            let _gone = to.shutdown(Shutdown::Write);
        });
    }
    Ok(())
}

fn private_file(path: &Path, text: &str) {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.unwrap().write_all(text.as_bytes()).unwrap();
}

/// Who uses Swift without Nigh.
struct Outsider {
    server: SocketAddr,
    account: String,
    token: String,
}

impl Outsider {
    fn log_in(swift: &Swift) -> Self {
        let server: SocketAddr = swift.endpoint().trim_start_matches("http://").parse().unwrap();
        let (user, key) = (&swift.s3().access_key, swift.s3().secret_key.reveal());
        let login =
            format!("GET /auth/v1.0 HTTP/1.1\r\nhost: {server}\r\nx-auth-user: {user}\r\nx-auth-key: {key}\r\n\r\n");
        let (head, _) = Connection::open(server).unwrap().fetch(login.as_bytes()).unwrap();
        let of = |name: &str| {
            let mut lines = head.lines().filter_map(|line| line.split_once(": "));
            lines.find(|(header, _)| header.eq_ignore_ascii_case(name)).unwrap().1.to_owned()
        };
        let url = of("x-storage-url");
        let (_, account) = url.split_once("/v1/").unwrap();
        Self { server, account: format!("/v1/{account}"), token: of("x-auth-token") }
    }

    fn ask(&self, method: &str, key: &str, body: &str) -> String {
        let Self { server, account, token } = self;
        let request = format!(
            "{method} {account}/shared/{key} HTTP/1.1\r\nhost: {server}\r\nx-auth-token: {token}\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        let begun = Instant::now();
        loop {
            match Connection::open(*server).and_then(|mut swift| swift.fetch(request.as_bytes())) {
                Ok((_, body)) => return String::from_utf8(body).unwrap(),
                // A node that starts again is away for some seconds.
                Err(error) if error.to_string().contains(" 503") && begun.elapsed() < PATIENCE => thread::sleep(PAUSE),
                Err(error) => panic!("{method} {key}: {error}"),
            }
        }
    }
}

/// The cluster; killed when dropped, before its store.
struct Nodes {
    cluster: RefCell<LocalCluster>,
    _runtime: Runtime,
    states: Vec<PathBuf>,
    swift: Swift,
    folder: TempDir,
}

impl Nodes {
    /// Nodes that write shadows and push them on demand alone.
    fn start(test: &str) -> Option<Self> {
        let python = python(test)?;
        let Some(nats_server) = find_nats_server() else {
            skip(test, "nats-server is not installed; `make peers` installs it");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let relays: Vec<Relay> = (0..NODES).map(|_| Relay::start()).collect();
        let nodes =
            relays.iter().zip(1..).map(|(relay, number)| format!("node-{number}=http://127.0.0.1:{}", relay.port));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../integrations/swift/src").canonicalize().unwrap();
        let nodes = nodes.collect::<Vec<_>>().join(" ");
        let middleware = NighMiddleware { source, secret: SecretKey::new(SECRET), nodes };
        let swift = match Swift::start_with_nigh(&folder.path().join("swift"), middleware) {
            Ok(swift) => swift,
            Err(missing @ PeerError::NotInstalled { .. }) => {
                skip(test, missing);
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        build_programs();
        let secret = folder.path().join("secret");
        private_file(&secret, SECRET);
        let cluster = folder.path().join("cluster");
        for number in 1..=NODES {
            let state = cluster.join(format!("node-{number}"));
            DirBuilder::new().recursive(true).mode(0o700).create(&state).unwrap();
            // A command line has no secrets.
            let key = swift.s3().secret_key.reveal();
            private_file(&state.join("nigh.toml"), &format!("[store]\nsecret_key = \"{key}\"\n"));
        }
        let set = [
            format!("functions.python={}", python.display()),
            "functions.prewarm=off".to_owned(),
            "cache.bytes=48 MiB".to_owned(),
            "llc.policy=off".to_owned(),
            "drain=5 s".to_owned(),
            "store.kind=swift".to_owned(),
            format!("store.endpoint={}", swift.auth_url()),
            format!("store.access_key={}", swift.s3().access_key),
            format!("store.shadow_secret_file={}", secret.display()),
            "outside.listen=127.0.0.1:0".to_owned(),
            "writes.mode=shadow".to_owned(),
            "writes.delay=600 s".to_owned(),
        ];
        let settings = LocalClusterSettings {
            folder: cluster,
            nodes: NODES,
            program: Path::new(NIGH).to_owned(),
            nats_server,
            networks: false,
            set: set.to_vec(),
            relays: Vec::new(),
        };
        let runtime = Runtime::new().unwrap();
        let mut cluster = runtime.block_on(LocalCluster::start(&settings, PATIENCE)).unwrap();
        let states: Vec<PathBuf> = cluster.nodes().iter().map(|node| node.state().to_owned()).collect();
        for (state, relay) in states.iter().zip(&relays) {
            relay.state.set(state.clone()).unwrap();
        }
        let nodes = Self { cluster: RefCell::new(cluster), _runtime: runtime, states, swift, folder };
        // Swift may be slow to begin with; a bucket whose answer came too late is there.
        wait_for("the bucket", || {
            let made = command(&nodes.states[0]).args(["objects", "mb", "nigh://shared"]).output().unwrap();
            made.status.success() || String::from_utf8_lossy(&made.stderr).contains("BucketAlreadyOwnedByYou")
        });
        Some(nodes)
    }

    /// Runs the command at a node, again while a node is away; it must succeed. What it prints.
    ///
    /// A machine that stalls for longer than the lease makes the cluster declare a node dead, which then starts again. What
    /// was acknowledged must be there all the same.
    fn ok(&self, node: usize, arguments: &[&str]) -> String {
        let begun = Instant::now();
        loop {
            let output = command(&self.states[node]).args(arguments).output().unwrap();
            if output.status.success() {
                return String::from_utf8(output.stdout).unwrap();
            }
            let error = String::from_utf8_lossy(&output.stderr);
            let is_away = ["ServiceUnavailable", "SlowDown", "nigh up"].iter().any(|word| error.contains(word));
            assert!(is_away && begun.elapsed() < PATIENCE, "{arguments:?}: {error}");
            self.cluster.borrow_mut().tend().unwrap();
            thread::sleep(PAUSE);
        }
    }

    fn put(&self, node: usize, key: &str, text: &str) {
        let file = self.folder.path().join("body");
        fs::write(&file, text).unwrap();
        self.ok(node, &["objects", "cp", file.to_str().unwrap(), &format!("nigh://shared/{key}")]);
    }

    /// What each node reads.
    fn assert_read(&self, key: &str, text: &str) {
        for node in 0..usize::from(NODES) {
            let read = self.ok(node, &["objects", "cp", &format!("nigh://shared/{key}"), "-"]);
            assert_eq!(read, text, "{key} at node {node}");
        }
    }
}

#[test]
fn outsiders_of_a_cluster_before_swift_read_and_write_what_any_home_has_unpushed() {
    let test = "outsiders_of_a_cluster_before_swift_read_and_write_what_any_home_has_unpushed";
    let Some(nodes) = Nodes::start(test) else { return };
    let outsider = Outsider::log_in(&nodes.swift);
    for n in 0..OBJECTS {
        let (key, ours) = (format!("read-{n}"), format!("ours {n}"));
        nodes.put(n % usize::from(NODES), &key, &ours);
        assert_eq!(outsider.ask("GET", &key, ""), ours, "{key}");
    }
    for n in 0..OBJECTS {
        let (key, theirs) = (format!("written-{n}"), format!("theirs {n}"));
        nodes.put(n % usize::from(NODES), &key, "ours");
        outsider.ask("PUT", &key, &theirs);
        nodes.assert_read(&key, &theirs);
        nodes.put((n + 1) % usize::from(NODES), &key, "ours again");
        nodes.assert_read(&key, "ours again");
        assert_eq!(outsider.ask("GET", &key, ""), "ours again", "{key}");
    }
    let listed = nodes.ok(1, &["--json", "objects", "ls", "nigh://shared/", "--recursive"]);
    assert_eq!(listed.lines().count(), 2 * OBJECTS, "something is at a conflict key: {listed}");
}
