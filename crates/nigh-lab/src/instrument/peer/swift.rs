//! A real OpenStack Swift on this machine: proxy (s3api, tempauth), account, container and object server, memcached.
//!
//! One replica on one plain folder, everything on loopback ports the system has free, all files below one folder.
//! Background daemons (replicators, auditors) are left out: nothing is there for them to do.

mod access_log;
mod config;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use nigh_terms::SecretKey;

pub(crate) use self::access_log::AccessLog;
pub use self::config::NighMiddleware;
use self::config::{KeystoneLogin, Layout, Ports, SwiftOptions};
use super::installed::on_path;
use super::keystone::Keystone;
use super::servers::{PeerFolder, Program, Servers, file_error, http_health, last_of};
use super::{Peer, PeerError, S3Access};

const PEER: &str = "Swift";
const HINT: &str = "run scripts/install-swift.sh as root (Debian: swift-proxy swift-account swift-container swift-object \
                    memcached)";
/// Swift reads its hash seed from here and nowhere else.
const SWIFT_CONF: &str = "/etc/swift/swift.conf";
/// Debian's Swift belongs to Debian's Python, whatever `python3` the path finds first.
const PYTHON: &str = "/usr/bin/python3";
const PROGRAMS: [&str; 5] =
    ["memcached", "swift-account-server", "swift-container-server", "swift-object-server", "swift-proxy-server"];

/// A running Swift.
#[derive(Debug)]
pub struct Swift {
    s3: S3Access,
    servers: Servers,
}

impl Swift {
    /// Starts a Swift whose files go into `folder`, made if absent. Returns when it answers. Blocks for seconds.
    ///
    /// # Errors
    /// `NotInstalled` if its packages are not there; else what could not be written, started or reached.
    pub fn start(folder: &Path) -> Result<Self, PeerError> {
        Self::start_with(folder, SwiftOptions::default())
    }

    /// The same; its proxy tells `log` of each request.
    pub(crate) fn start_with_log(folder: &Path, log: &AccessLog) -> Result<Self, PeerError> {
        Self::start_with(folder, SwiftOptions { access_log: Some(log.port()), ..SwiftOptions::default() })
    }

    /// The same, with Nigh's middleware in the proxy's pipeline.
    pub fn start_with_nigh(folder: &Path, middleware: NighMiddleware) -> Result<Self, PeerError> {
        Self::start_with(folder, SwiftOptions { middleware: Some(middleware), ..SwiftOptions::default() })
    }

    /// The same, but who asks is `keystone`'s to say. It has no S3 API then, and no access key.
    pub fn start_with_keystone(folder: &Path, keystone: &Keystone) -> Result<Self, PeerError> {
        let found = Command::new(PYTHON).args(["-c", "import keystonemiddleware.auth_token"]).output();
        if !found.is_ok_and(|run| run.status.success()) {
            return Err(PeerError::not_installed(PEER, "keystonemiddleware", "run scripts/install-keystone.sh"));
        }
        let asks = KeystoneLogin { url: keystone.url(), password: keystone.password().clone() };
        Self::start_with(folder, SwiftOptions { keystone: Some(asks), ..SwiftOptions::default() })
    }

    fn start_with(folder: &Path, options: SwiftOptions) -> Result<Self, PeerError> {
        check_installed()?;
        let [proxy, account, container, object, memcached] = PeerFolder { peer: PEER, folder }.free_ports()?;
        let ports = Ports { proxy, account, container, object, memcached };
        let secret_key = SecretKey::random();
        let layout = Layout { folder: folder.to_owned(), ports, secret_key: secret_key.clone(), options };
        prepare(&layout)?;
        let servers = Servers::start(PEER, folder, programs(&layout)?)?;
        Ok(Self { s3: S3Access::on_loopback(proxy, config::ACCESS_KEY, secret_key), servers })
    }

    /// Where its S3 API is: `http://127.0.0.1:<port>`.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.s3.endpoint
    }

    /// Where its own API is logged in to (TempAuth), with the access key as the user.
    #[must_use]
    pub fn auth_url(&self) -> String {
        format!("{}/auth/v1.0", self.s3.endpoint)
    }

    /// Its S3 API, for a client.
    #[must_use]
    pub const fn s3(&self) -> &S3Access {
        &self.s3
    }
}

impl Peer for Swift {
    fn name(&self) -> &'static str {
        PEER
    }

    fn version(&self) -> String {
        let asked = Command::new(PYTHON).args(["-c", "import swift; print(swift.__version__)"]).output();
        asked.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
    }

    fn processes(&self) -> Vec<u32> {
        self.servers.processes()
    }
}

fn not_installed(missing: &str) -> PeerError {
    PeerError::not_installed(PEER, missing, HINT)
}

fn check_installed() -> Result<(), PeerError> {
    let missing = PROGRAMS.iter().copied().find(|program| on_path(program).is_none());
    let missing = missing.or_else(|| (!Path::new(PYTHON).is_file()).then_some(PYTHON));
    missing.map_or(Ok(()), |missing| Err(not_installed(missing)))
}

/// The programs with their health checks: each of Swift's servers has a filter that answers on `/healthcheck`.
fn programs(layout: &Layout) -> Result<Vec<Program>, PeerError> {
    let program = |(name, arguments, port): config::Start| {
        let path = on_path(name).ok_or_else(|| not_installed(name))?;
        let health = port.map(|port| http_health(port, "/healthcheck"));
        let environment = match &layout.options.middleware {
            Some(middleware) if name == "swift-proxy-server" => {
                vec![("PYTHONPATH", middleware.source.display().to_string())]
            }
            _ => Vec::new(),
        };
        Ok(Program { name, path, arguments, environment, health })
    };
    config::commands(layout).into_iter().map(program).collect()
}

/// Folders, configuration and rings.
fn prepare(layout: &Layout) -> Result<(), PeerError> {
    if !Path::new(SWIFT_CONF).exists() {
        fs::create_dir_all("/etc/swift").map_err(file_error(PEER, "make", Path::new("/etc/swift")))?;
        fs::write(SWIFT_CONF, config::swift_conf()).map_err(file_error(PEER, "write", Path::new(SWIFT_CONF)))?;
    }
    let place = PeerFolder { peer: PEER, folder: &layout.folder };
    place.folder(&format!("devices/{}", config::DEVICE))?;
    for (name, text) in config::files(layout) {
        place.file(&name, &text)?;
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
