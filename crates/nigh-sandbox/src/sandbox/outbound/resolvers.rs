//! Chooses the name servers of a sandbox with an outbound network. Pure.
//!
//! They are the host's name servers of resolv.conf(5) that a sandbox can reach: not the host's own loopback, and
//! nothing that is barred. A host with systemd-resolved lists a loopback address there, and the real servers in a
//! second file (systemd-resolved(8), "/etc/resolv.conf").

use std::net::{IpAddr, Ipv4Addr};

use super::barred;

/// The files with name servers. The first one with a reachable server counts.
pub(super) const LISTS: [&str; 2] = ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"];
/// The C library uses no more than this (resolv.conf(5), MAXNS).
const RESOLVERS_MAX: usize = 3;

/// `address`, if a sandbox can reach it.
pub(super) fn reachable(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => {
            let outside = !address.is_loopback() && !address.is_unspecified() && !barred::is_barred(address);
            outside.then_some(address)
        }
        // The outbound network is IPv4.
        IpAddr::V6(_) => None,
    }
}

/// The name servers in the text of a resolv.conf that a sandbox can reach.
pub(super) fn listed(text: &str) -> Vec<Ipv4Addr> {
    let servers = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next()? == "nameserver").then(|| words.next()?.parse().ok()).flatten()
    });
    servers.filter_map(reachable).take(RESOLVERS_MAX).collect()
}

/// The text of a sandbox's resolv.conf.
pub(super) fn text(resolvers: &[Ipv4Addr]) -> String {
    resolvers.iter().take(RESOLVERS_MAX).map(|server| format!("nameserver {server}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_sandbox_cannot_reach_is_left_out() {
        let host = "# made by hand\nsearch example.org\nnameserver 127.0.0.53\nnameserver 10.1.2.3\n\
                    nameserver fd00::1\nnameserver 169.254.169.254\nnameserver  192.168.1.1 # near\nnameserver x\n";
        assert_eq!(listed(host), [Ipv4Addr::new(10, 1, 2, 3), Ipv4Addr::new(192, 168, 1, 1)]);
        assert!(listed("nameserver 127.0.0.1\noptions edns0\n").is_empty());
    }

    #[test]
    fn at_most_three_are_asked() {
        let many: String = (1..=5).map(|n| format!("nameserver 10.0.0.{n}\n")).collect();
        assert_eq!(listed(&many).len(), 3);
        assert_eq!(text(&listed("nameserver 10.0.0.1")), "nameserver 10.0.0.1\n");
    }
}
