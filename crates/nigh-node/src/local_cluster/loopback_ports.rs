//! Ports of loopback for servers that listen at them later, and again after each restart.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

/// Below the ports that Linux gives to outgoing connections, which could take the port of a server while it restarts
/// (ip(7), `ip_local_port_range`).
const PORTS: Range<u16> = 10_240..32_768;
const ATTEMPTS_MAX: usize = 10_000;

/// Ports that are kept for servers. Each is held by a socket which is bound and does not listen: servers, which set
/// `SO_REUSEADDR`, can listen beside it, and nothing else that looks for a free port in this way gets it (socket(7)).
#[derive(Debug, Default)]
pub(super) struct LoopbackPorts {
    held: Vec<OwnedFd>,
}

impl LoopbackPorts {
    /// Keeps `count` more ports until this is dropped.
    pub(super) fn keep(&mut self, count: usize) -> io::Result<Vec<u16>> {
        let mut kept = Vec::new();
        for _ in 0..ATTEMPTS_MAX {
            if kept.len() == count {
                return Ok(kept);
            }
            let port = rand::random_range(PORTS);
            let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            match bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)) {
                // Before this, the port would be taken from servers that listen at it.
                Ok(()) => set_socket_reuseaddr(&socket, true)?,
                Err(Errno::ADDRINUSE) => continue,
                Err(error) => return Err(error.into()),
            }
            self.held.push(socket);
            kept.push(port);
        }
        Err(io::Error::other(format!("no {count} free ports between {} and {}", PORTS.start, PORTS.end)))
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_kept_port_is_for_servers_and_for_no_other_who_looks_for_one() {
        let mut ports = LoopbackPorts::default();
        let port = ports.keep(1).unwrap()[0];
        let at = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let is_free = || {
            let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
            bind(&socket, &at).is_ok()
        };
        for _restart in 0..2 {
            let server = TcpListener::bind(at).unwrap();
            assert!(!is_free());
            drop(server);
            assert!(!is_free());
        }
        drop(ports);
        assert!(is_free());
    }

    #[test]
    fn no_port_is_kept_twice() {
        let (mut first, mut second) = (LoopbackPorts::default(), LoopbackPorts::default());
        let mut kept = [first.keep(400).unwrap(), first.keep(400).unwrap(), second.keep(400).unwrap()].concat();
        kept.sort_unstable();
        kept.dedup();
        assert_eq!(kept.len(), 1200);
    }
}
