//! The outbound network of a sandbox: connections to other hosts and name resolution, but no connections from outside.
//!
//! A sandbox has its own network namespace with Nigh's two doors in it. Before the function's command runs, some routes
//! are barred (`barred`), a program is started that forwards packets (`tool`), and the sandbox gets its name servers
//! (`resolvers`). The program is in the sandbox's cgroup, so it is frozen, counted and ended with the sandbox. When the
//! program ends, the sandbox ends too, since the function needs the network.

mod barred;
mod resolvers;
mod tool;

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::timeout;

use self::tool::{CarrierProcess, Tool};
use super::launch::IsolationLevel;
use super::step_failure::StepFailure;

/// The kernel's device for network interfaces.
const TUN: &str = "/dev/net/tun";
/// The most processes of the program; it starts a second one briefly.
pub(super) const PROCESSES: u32 = 2;
/// The time that the program has to end after it is killed.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// Settings of the outbound network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutboundSettings {
    /// The path of the program; with none, the one in PATH.
    pub tool: Option<PathBuf>,
    /// The name servers of sandboxes; if empty, the host's that sandboxes can reach.
    pub resolvers: Vec<IpAddr>,
}

/// Gives sandboxes their outbound network.
#[derive(Debug)]
pub(super) struct OutboundNetwork {
    tool: Tool,
    resolvers: Vec<Ipv4Addr>,
    attached: Arc<AtomicUsize>,
}

/// The outbound network of one sandbox. Dropping it ends the network.
#[derive(Debug)]
pub(super) struct OutboundLink {
    carrying: CarrierProcess,
    attached: Arc<AtomicUsize>,
}

impl OutboundNetwork {
    /// Checks whether sandboxes with this isolation can have an outbound network.
    pub(super) async fn open(settings: &OutboundSettings, level: IsolationLevel) -> Result<Self, String> {
        match level {
            IsolationLevel::UserAndNamespaces { .. } | IsolationLevel::Container { .. } => {}
            IsolationLevel::Namespaces => {
                return Err("only a Nigh that runs as root can give sandboxes a network; start Nigh as root".to_owned());
            }
            IsolationLevel::User { .. } | IsolationLevel::None => {
                return Err("functions share the host's network here".to_owned());
            }
        }
        let tool = Tool::find(settings.tool.as_deref()).await?;
        std::fs::metadata(TUN).map_err(|error| format!("{TUN}: {error} (is the kernel's module `tun` loaded?)"))?;
        let unusable = settings.resolvers.iter().find(|resolver| resolvers::reachable(**resolver).is_none());
        if let Some(unusable) = unusable {
            return Err(format!(
                "functions.network_resolvers: a sandbox cannot reach {unusable}: it must be an IPv4 address that is \
                 neither loopback nor link-local"
            ));
        }
        let named = settings.resolvers.iter().copied().filter_map(resolvers::reachable).collect::<Vec<_>>();
        let resolvers = match named.is_empty() {
            false => named,
            true => of_the_host(),
        };
        Ok(Self { tool, resolvers, attached: Arc::default() })
    }

    /// One line for people: the program, the name servers, and the number of sandboxes with an outbound network.
    pub(super) fn line(&self) -> String {
        let names = match &*self.resolvers {
            [] => "no names: no name server of this machine can be reached from a sandbox; set \
                   functions.network_resolvers"
                .to_owned(),
            servers => {
                let servers: Vec<String> = servers.iter().map(Ipv4Addr::to_string).collect();
                format!("names from {}", servers.join(", "))
            }
        };
        format!("{}; {names}; sandboxes with it: {}", self.tool.version, self.attached.load(Ordering::Relaxed))
    }

    /// The text of the sandbox's resolv.conf.
    pub(super) fn resolv_conf(&self) -> String {
        resolvers::text(&self.resolvers)
    }

    /// Gives the sandbox with the network namespace `network` its outbound network. `join` are the files of its cgroup.
    pub(super) async fn attach(&self, network: OwnedFd, join: Vec<PathBuf>) -> Result<OutboundLink, StepFailure> {
        let of_routes = network.try_clone().map_err(|error| StepFailure::at("find its network", error))?;
        barred::bar(of_routes).await?;
        let carrying = self.tool.carry(&network).await?;
        // The program joins only now: inside a container's cgroup it could not open the kernel's device.
        if let Some(process) = carrying.process.id() {
            let joined = tokio::task::spawn_blocking(move || {
                join.iter().try_for_each(|file| {
                    let written = std::fs::write(file, process.to_string());
                    written.map_err(|error| StepFailure::at(&format!("join {}", file.display()), error))
                })
            });
            joined.await.map_err(|error| StepFailure::at("join its cgroup", error))??;
        }
        self.attached.fetch_add(1, Ordering::Relaxed);
        metrics::gauge!("nigh_sandboxes_with_network").increment(1.0);
        Ok(OutboundLink { carrying, attached: Arc::clone(&self.attached) })
    }
}

/// The host's name servers that a sandbox can reach.
fn of_the_host() -> Vec<Ipv4Addr> {
    let lists = resolvers::LISTS.iter().filter_map(|list| std::fs::read_to_string(Path::new(list)).ok());
    lists.map(|text| resolvers::listed(&text)).find(|listed| !listed.is_empty()).unwrap_or_default()
}

impl OutboundLink {
    /// Returns when the program has ended by itself.
    pub(super) async fn lost(&mut self) {
        // The only error is that the program is no longer our child.
        let _ended = self.carrying.process.wait().await;
    }

    /// Ends the outbound network.
    pub(super) async fn end(mut self) {
        let _ended_already = self.carrying.process.start_kill();
        let _ended = timeout(END_PATIENCE, self.carrying.process.wait()).await;
    }
}

impl Drop for OutboundLink {
    fn drop(&mut self) {
        self.attached.fetch_sub(1, Ordering::Relaxed);
        metrics::gauge!("nigh_sandboxes_with_network").decrement(1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn where_it_cannot_be_given_the_reason_is_said() {
        let settings = OutboundSettings { tool: Some("/absent/tool".into()), resolvers: Vec::new() };
        let why = |level| {
            let settings = settings.clone();
            async move { OutboundNetwork::open(&settings, level).await.unwrap_err() }
        };
        assert!(why(IsolationLevel::Namespaces).await.contains("root"));
        assert!(why(IsolationLevel::None).await.contains("host's network"));
        assert!(why(IsolationLevel::UserAndNamespaces { uid: 1 }).await.contains("/absent/tool"));
    }
}
