//! A cluster of NATS servers on this machine.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nigh_engine::nats::{ServerSettings, server_configuration};
use nigh_terms::SecretKey;

use super::loopback_ports::LoopbackPorts;
use super::process::Process;

/// The name of the program.
const PROGRAM: &str = "nats-server";
/// The folder of `make peers`, below the user's cache folder.
const INSTALLED: &str = "nigh/peers";
/// How long a server may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// The place of a server: its address, and the network namespace of that address.
#[derive(Clone, Debug)]
pub struct Place {
    /// The IP address of the server.
    pub address: IpAddr,
    /// The network namespace; none: this process's own.
    pub network: Option<String>,
}

impl Place {
    /// The loopback address in this process's own network.
    #[must_use]
    pub const fn loopback() -> Self {
        Self { address: IpAddr::V4(Ipv4Addr::LOCALHOST), network: None }
    }
}

/// Running servers. Dropping this kills them.
#[derive(Debug)]
pub struct NatsServers {
    servers: Vec<Process>,
    listen: Vec<SocketAddr>,
    token: SecretKey,
    _ports: LoopbackPorts,
}

/// The program nats-server, from `PATH` or from `make peers`; none if there is none.
#[must_use]
pub fn find_nats_server() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|folder| folder.join(PROGRAM)).find(|program| program.is_file());
    let given = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let caches = given("XDG_CACHE_HOME").or_else(|| given("HOME").map(|home| home.join(".cache")));
    let installed = || {
        let folders = std::fs::read_dir(caches?.join(INSTALLED)).ok()?.filter_map(Result::ok);
        let named = folders.filter(|folder| folder.file_name().to_string_lossy().starts_with(PROGRAM));
        named.map(|folder| folder.path().join(PROGRAM)).filter(|program| program.is_file()).max()
    };
    on_path.or_else(installed)
}

impl NatsServers {
    /// Starts one server for each place, with files in `folder`, which is created if absent. Servers may need a while
    /// before they answer.
    ///
    /// # Errors
    /// What could not be written or started.
    pub fn start(program: &Path, folder: &Path, places: &[Place]) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let count = places.len();
        let mut kept = LoopbackPorts::default();
        let ports = kept.keep(2 * count)?;
        let at = |from: usize| {
            let ports = ports[from..].iter();
            places.iter().zip(ports).map(|(place, &port)| SocketAddr::new(place.address, port)).collect::<Vec<_>>()
        };
        let (listen, between) = (at(0), at(count));
        let routes: Vec<String> = between.iter().map(ToString::to_string).collect();
        let token = SecretKey::random();
        let mut servers = Vec::new();
        for (number, place) in places.iter().enumerate() {
            let name = format!("nats-{}", number + 1);
            let text = server_configuration(&ServerSettings {
                name: &name,
                listen: &listen[number].to_string(),
                monitor: None,
                cluster: (count > 1).then_some(("local", &*routes[number])),
                routes: &routes,
                folder: &folder.join(&name),
                token: Some(&token),
            });
            let configuration = folder.join(format!("{name}.conf"));
            let mut options = std::fs::OpenOptions::new();
            let file = options.create(true).write(true).truncate(true).mode(0o600).open(&configuration)?;
            io::Write::write_all(&mut &file, text.as_bytes())?;
            let arguments = vec!["--config".to_owned(), configuration.display().to_string()];
            let log = folder.join(format!("{name}.log"));
            servers.push(Process::new(&name, program, arguments, &log).within(place.network.clone()));
        }
        servers.iter_mut().try_for_each(Process::run)?;
        Ok(Self { servers, listen, token, _ports: kept })
    }

    /// The servers' addresses for clients: `nats://address:port`.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.listen.iter().map(|address| format!("nats://{address}")).collect()
    }

    /// The token that clients must give.
    #[must_use]
    pub const fn token(&self) -> &SecretKey {
        &self.token
    }

    /// The servers.
    pub fn servers(&mut self) -> &mut [Process] {
        &mut self.servers
    }

    /// Ends them all.
    pub fn end(&mut self) {
        for server in &self.servers {
            // An error means that the server does not run.
            let _ = server.ask_to_end();
        }
        for server in &mut self.servers {
            server.wait(PATIENCE);
        }
    }
}
