//! A real OpenStack Swift on this machine: proxy (s3api, tempauth), account, container and object server, memcached.
//!
//! One replica on one plain folder, everything on loopback ports the system has free, all files below one folder.
//! Background daemons (replicators, auditors) are left out: nothing is there for them to do. The servers end when
//! the `Swift` is dropped, and also when this process dies: each has its parent's death as a reason to end
//! (PR_SET_PDEATHSIG, prctl(2)), and is started by a thread that lives as long as the `Swift` does, since the kernel
//! takes the starting thread for the parent.

mod config;

use std::fs::{self, DirBuilder, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nigh_terms::SecretKey;
use rustix::process::{Pid, Signal, kill_process_group};

use self::config::{Asks, Layout, Ports};
use super::PeerError;
use super::keystone::Keystone;

const PEER: &str = "Swift";
const HINT: &str = "run scripts/install-swift.sh as root (Debian: swift-proxy swift-account swift-container swift-object \
                    memcached)";
/// Swift reads its hash seed from here and nowhere else.
const SWIFT_CONF: &str = "/etc/swift/swift.conf";
/// Debian's Swift belongs to Debian's Python, whatever `python3` the path finds first.
const PYTHON: &str = "/usr/bin/python3";
const PROGRAMS: [&str; 6] = [
    "memcached",
    "swift-account-server",
    "swift-container-server",
    "swift-object-server",
    "swift-proxy-server",
    "setpriv",
];
/// How long the servers may take until they answer; a busy machine needs several seconds for Python's imports.
const HEALTHY_WITHIN: Duration = Duration::from_secs(90);
/// How long they may take to end when asked, before they are killed.
const END_WITHIN: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(50);
/// The share of a failed program's output that goes into an error.
const OUTPUT_MAX: usize = 2000;

/// A running Swift.
#[derive(Debug)]
pub struct Swift {
    endpoint: String,
    secret_key: SecretKey,
    /// Dropped to end the servers.
    stop: Option<mpsc::Sender<()>>,
    keeper: Option<JoinHandle<()>>,
}

impl Swift {
    /// Starts a Swift whose files go into `folder`, made if absent. Returns when it answers. Blocks for seconds.
    ///
    /// # Errors
    /// `NotInstalled` if its packages are not there; else what could not be written, started or reached.
    pub fn start(folder: &Path) -> Result<Self, PeerError> {
        Self::start_with(folder, None)
    }

    /// The same, but who asks is `keystone`'s to say. It has no S3 API then, and no access key.
    ///
    /// # Errors
    /// As of `start`.
    pub fn start_with_keystone(folder: &Path, keystone: &Keystone) -> Result<Self, PeerError> {
        let found = Command::new(PYTHON).args(["-c", "import keystonemiddleware.auth_token"]).output();
        if !found.is_ok_and(|run| run.status.success()) {
            let (missing, hint) = ("keystonemiddleware".to_owned(), "run scripts/install-keystone.sh".to_owned());
            return Err(PeerError::NotInstalled { peer: PEER, missing, hint });
        }
        Self::start_with(folder, Some(Asks { url: keystone.url(), password: keystone.password().clone() }))
    }

    fn start_with(folder: &Path, keystone: Option<Asks>) -> Result<Self, PeerError> {
        check_installed()?;
        let ports = Ports::free().map_err(file_error("find free ports for", folder))?;
        let secret_key = SecretKey::random();
        let layout = Layout { folder: folder.to_owned(), ports, secret_key: secret_key.clone(), keystone };
        prepare(&layout)?;

        let (stop, stopped) = mpsc::channel();
        let (ready, started) = mpsc::channel();
        let keeper = thread::Builder::new()
            .name("swift-keeper".to_owned())
            .spawn(move || keep(&layout, &ready, &stopped))
            .map_err(|source| PeerError::Start { peer: PEER, program: "its keeper thread".to_owned(), source })?;
        let swift = Self {
            endpoint: format!("http://127.0.0.1:{}", ports.proxy),
            secret_key,
            stop: Some(stop),
            keeper: Some(keeper),
        };
        match started.recv() {
            Ok(Ok(())) => Ok(swift),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(PeerError::Start {
                peer: PEER,
                program: "its keeper thread".to_owned(),
                source: std::io::Error::other("it ended"),
            }),
        }
    }

    /// Where its S3 API is: `http://127.0.0.1:<port>`.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Where its own API is logged in to (TempAuth), with the access key as the user.
    #[must_use]
    pub fn auth_url(&self) -> String {
        format!("{}/auth/v1.0", self.endpoint)
    }

    /// The account's access key.
    #[must_use]
    pub const fn access_key(&self) -> &'static str {
        config::ACCESS_KEY
    }

    /// Its secret.
    #[must_use]
    pub const fn secret_key(&self) -> &SecretKey {
        &self.secret_key
    }

    /// The region it signs for.
    #[must_use]
    pub const fn region(&self) -> &'static str {
        config::REGION
    }
}

impl Drop for Swift {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(keeper) = self.keeper.take() {
            // It has nothing to say; a panic in it was printed where it happened.
            let _ = keeper.join();
        }
    }
}

fn file_error(operation: &'static str, path: &Path) -> impl Fn(std::io::Error) -> PeerError {
    move |source| PeerError::File { peer: PEER, operation, path: path.to_owned(), source }
}

fn check_installed() -> Result<(), PeerError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let missing = |name: &&str| !std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    let missing = PROGRAMS.iter().copied().find(missing).or_else(|| (!Path::new(PYTHON).is_file()).then_some(PYTHON));
    missing.map_or(Ok(()), |missing| {
        Err(PeerError::NotInstalled { peer: PEER, missing: missing.to_owned(), hint: HINT.to_owned() })
    })
}

/// Folders, configuration and rings.
fn prepare(layout: &Layout) -> Result<(), PeerError> {
    if !Path::new(SWIFT_CONF).exists() {
        fs::create_dir_all("/etc/swift").map_err(file_error("make", Path::new("/etc/swift")))?;
        fs::write(SWIFT_CONF, config::swift_conf()).map_err(file_error("write", Path::new(SWIFT_CONF)))?;
    }
    // The configuration holds the secret.
    let private = |path: &Path| DirBuilder::new().recursive(true).mode(0o700).create(path);
    for path in [layout.folder.clone(), layout.devices().join(config::DEVICE), layout.logs()] {
        private(&path).map_err(file_error("make", &path))?;
    }
    for (name, text) in config::files(layout) {
        let path = layout.folder.join(name);
        fs::write(&path, text).map_err(file_error("write", &path))?;
    }
    let rings = Command::new(PYTHON)
        .arg("-c")
        .arg(config::RING_SCRIPT)
        .arg(&layout.folder)
        .args([layout.ports.account, layout.ports.container, layout.ports.object].map(|port| port.to_string()))
        .stdin(Stdio::null())
        .output()
        .map_err(|source| PeerError::Start { peer: PEER, program: "the ring builder".to_owned(), source })?;
    if rings.status.success() {
        return Ok(());
    }
    Err(PeerError::Ended {
        peer: PEER,
        program: "the ring builder".to_owned(),
        status: rings.status.to_string(),
        output: last_of(&rings.stderr),
    })
}

fn last_of(output: &[u8]) -> String {
    String::from_utf8_lossy(&output[output.len().saturating_sub(OUTPUT_MAX)..]).trim().to_owned()
}

/// The life of the servers: started, reported healthy or not, kept until told to stop.
fn keep(layout: &Layout, ready: &mpsc::Sender<Result<(), PeerError>>, stopped: &mpsc::Receiver<()>) {
    let mut servers = Servers::default();
    let result = servers.start(layout).and_then(|()| servers.wait_until_healthy(layout));
    let healthy = result.is_ok();
    if ready.send(result).is_ok() && healthy {
        // Nothing is ever sent: the wait ends when the `Swift` drops its end.
        let _ = stopped.recv();
    }
}

#[derive(Default)]
struct Servers(Vec<(String, Child)>);

impl Servers {
    fn start(&mut self, layout: &Layout) -> Result<(), PeerError> {
        for (program, arguments) in config::commands(layout) {
            let log_path = layout.logs().join(format!("{program}.log"));
            let log = File::create(&log_path).map_err(file_error("write", &log_path))?;
            let errors = log.try_clone().map_err(file_error("write", &log_path))?;
            let child = Command::new("setpriv")
                .args(["--pdeathsig", "TERM", program])
                .args(arguments)
                .stdin(Stdio::null())
                .stdout(log)
                .stderr(errors)
                .process_group(0)
                .spawn()
                .map_err(|source| PeerError::Start { peer: PEER, program: program.to_owned(), source })?;
            self.0.push((program.to_owned(), child));
        }
        Ok(())
    }

    fn wait_until_healthy(&mut self, layout: &Layout) -> Result<(), PeerError> {
        let deadline = Instant::now() + HEALTHY_WITHIN;
        let Ports { account, container, object, proxy, .. } = layout.ports;
        for port in [account, container, object, proxy] {
            while let Err(reason) = is_healthy(port) {
                self.all_alive(&layout.logs())?;
                if Instant::now() > deadline {
                    let seconds = HEALTHY_WITHIN.as_secs();
                    return Err(PeerError::NotHealthy { peer: PEER, seconds, reason, logs: layout.logs() });
                }
                thread::sleep(POLL);
            }
        }
        self.all_alive(&layout.logs())
    }

    fn all_alive(&mut self, logs: &Path) -> Result<(), PeerError> {
        for (program, child) in &mut self.0 {
            if let Ok(Some(status)) = child.try_wait() {
                let output = fs::read(logs.join(format!("{program}.log"))).unwrap_or_default();
                return Err(PeerError::Ended {
                    peer: PEER,
                    program: program.clone(),
                    status: status.to_string(),
                    output: last_of(&output),
                });
            }
        }
        Ok(())
    }
}

impl Drop for Servers {
    /// Each server and its workers are one process group; all are asked to end, and killed if they do not.
    fn drop(&mut self) {
        // The proxy first, so that no request is cut off in the middle by a storage server's end.
        let groups: Vec<_> = self.0.iter().rev().filter_map(|(_, child)| Pid::from_raw(child.id() as i32)).collect();
        for &group in &groups {
            // An error says that the group is gone already.
            let _ = kill_process_group(group, Signal::TERM);
        }
        let deadline = Instant::now() + END_WITHIN;
        for (_, child) in &mut self.0 {
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
                thread::sleep(POLL);
            }
        }
        for &group in &groups {
            let _ = kill_process_group(group, Signal::KILL);
        }
        for (_, child) in &mut self.0 {
            let _ = child.wait();
        }
    }
}

/// Asks a server's own health check (Swift's `healthcheck` filter answers `OK`).
fn is_healthy(port: u16) -> Result<(), String> {
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&address.into(), Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"GET /healthcheck HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut answer = String::new();
        stream.take(1024).read_to_string(&mut answer)?;
        Ok(answer)
    };
    match ask() {
        Ok(answer) if answer.contains(" 200 ") => Ok(()),
        Ok(answer) => Err(format!("{address} answers {:?}", answer.lines().next().unwrap_or_default())),
        Err(error) => Err(format!("{address}: {error}")),
    }
}

impl Ports {
    /// Five ports that nobody listens on now.
    fn free() -> std::io::Result<Self> {
        // All are held until the last is found, so that no two are the same.
        let held = (0..5).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect::<Result<Vec<_>, _>>()?;
        let ports = held.iter().map(|one| Ok(one.local_addr()?.port())).collect::<std::io::Result<Vec<u16>>>()?;
        match ports[..] {
            [proxy, account, container, object, memcached] => Ok(Self { proxy, account, container, object, memcached }),
            _ => Err(std::io::Error::other("five were asked for")),
        }
    }
}

impl Layout {
    fn devices(&self) -> PathBuf {
        self.folder.join("devices")
    }

    fn logs(&self) -> PathBuf {
        self.folder.join("logs")
    }
}
