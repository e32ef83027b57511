//! Simulated machines: network namespaces joined by a bridge, each with its own address. Needs root and `ip`.
//!
//! A machine is cut off from all others by taking its link down, and from one other by a blackhole route. Everything is
//! removed at the end. All names begin with `nigh` and this process's id, which distinguishes them from other names.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

/// A machine of the network.
#[derive(Clone, Debug)]
struct Machine {
    namespace: String,
    /// The name of its link's end on the bridge.
    link: String,
    address: Ipv4Addr,
}

/// The network. Dropping this removes it.
#[derive(Debug)]
pub struct Network {
    bridge: String,
    gateway: Ipv4Addr,
    machines: Vec<Machine>,
}

fn ip(arguments: &[&str]) -> io::Result<()> {
    let done = Command::new("ip").args(arguments).output()?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    Err(io::Error::other(format!("ip {}: {said}", arguments.join(" "))))
}

impl Network {
    /// Makes `machines` machines, at most 250.
    ///
    /// # Errors
    /// If the system refuses; then nothing is left behind.
    pub fn make(machines: u8) -> io::Result<Self> {
        let id = std::process::id();
        // One of 250 networks in 10.207. If two clusters take the same, which is rare, `ip` fails.
        let subnet = (id % 250) as u8 + 1;
        let at = |host: u8| Ipv4Addr::new(10, 207, subnet, host);
        let bridge = format!("nigh{id}");
        let mut network = Self { bridge: bridge.clone(), gateway: at(254), machines: Vec::new() };
        ip(&["link", "add", &bridge, "type", "bridge"])?;
        ip(&["addr", "add", &format!("{}/24", network.gateway), "dev", &bridge])?;
        ip(&["link", "set", &bridge, "up"])?;
        for number in 1..=machines.min(250) {
            let (namespace, link) = (format!("nigh{id}-{number}"), format!("n{id}-{number}"));
            let machine = Machine { namespace: namespace.clone(), link: link.clone(), address: at(number) };
            ip(&["netns", "add", &namespace])?;
            network.machines.push(machine);
            ip(&["link", "add", &link, "type", "veth", "peer", "name", "eth0", "netns", &namespace])?;
            ip(&["link", "set", &link, "master", &bridge, "up"])?;
            let address = format!("{}/24", at(number));
            for inside in [
                &["link", "set", "lo", "up"][..],
                &["addr", "add", &address, "dev", "eth0"],
                &["link", "set", "eth0", "up"],
            ] {
                ip(&[&["-n", &namespace], inside].concat())?;
            }
        }
        Ok(network)
    }

    /// The machine's address and its namespace.
    #[must_use]
    pub fn place(&self, machine: usize) -> Option<(IpAddr, String)> {
        self.machines.get(machine).map(|machine| (IpAddr::V4(machine.address), machine.namespace.clone()))
    }

    fn machine(&self, machine: usize) -> io::Result<&Machine> {
        self.machines.get(machine).ok_or_else(|| io::Error::other(format!("there is no machine {machine}")))
    }

    /// Cuts the machine off from all others until `reconnect`.
    pub fn cut_off(&self, machine: usize) -> io::Result<()> {
        ip(&["link", "set", &self.machine(machine)?.link, "down"])
    }

    /// Reconnects a machine that `cut_off` cut off.
    pub fn reconnect(&self, machine: usize) -> io::Result<()> {
        ip(&["link", "set", &self.machine(machine)?.link, "up"])
    }

    /// Cuts two machines off from each other, and from no other, until `rejoin`.
    pub fn separate(&self, one: usize, other: usize) -> io::Result<()> {
        self.routes("add", one, other)
    }

    /// Reconnects two machines that `separate` cut off from each other.
    pub fn rejoin(&self, one: usize, other: usize) -> io::Result<()> {
        self.routes("del", one, other)
    }

    /// Drops packets from `from` to `to`, and no others, until `unmute`.
    pub fn mute(&self, from: usize, to: usize) -> io::Result<()> {
        self.route("add", from, to)
    }

    /// Lets packets pass again that `mute` dropped.
    pub fn unmute(&self, from: usize, to: usize) -> io::Result<()> {
        self.route("del", from, to)
    }

    /// The address by which machines reach this process.
    #[must_use]
    pub const fn gateway(&self) -> IpAddr {
        IpAddr::V4(self.gateway)
    }

    fn routes(&self, what: &str, one: usize, other: usize) -> io::Result<()> {
        self.route(what, one, other)?;
        self.route(what, other, one)
    }

    fn route(&self, what: &str, from: usize, to: usize) -> io::Result<()> {
        let (from, to) = (self.machine(from)?, self.machine(to)?);
        ip(&["-n", &from.namespace, "route", what, "blackhole", &to.address.to_string()])
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for machine in &self.machines {
            if let Err(error) = ip(&["netns", "del", &machine.namespace]) {
                tracing::warn!(%error, "a network namespace is left behind");
            }
        }
        if let Err(error) = ip(&["link", "del", &self.bridge]) {
            tracing::warn!(%error, "a bridge is left behind");
        }
    }
}
