//! The addresses that a sandbox with an outbound network must not reach, as routes of the sandbox's network: the kernel
//! rejects a packet before it is sent, and the sandbox cannot change routes.
//!
//! Barred are link-local addresses, where clouds give an instance's identity and credentials to anyone, further such
//! addresses of some clouds, multicast, and all of IPv6, which has no outbound network. Options of the tool bar the
//! rest (`tool`). The messages follow rtnetlink(7).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::sync::oneshot;

use crate::sandbox::step_failure::StepFailure;

/// A network: an address and how many of its bits count.
type Network<A> = (A, u8);

const BARRED_V4: [Network<Ipv4Addr>; 5] = [
    // EC2, ECS, GCE, Azure, OpenStack and most others.
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    // Alibaba Cloud.
    (Ipv4Addr::new(100, 100, 100, 200), 32),
    // Oracle Cloud.
    (Ipv4Addr::new(192, 0, 0, 192), 32),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    // The tool's own name server. It is switched off, so the tool would look for the address in the host's network.
    (Ipv4Addr::new(198, 18, 254, 3), 32),
];
const BARRED_V6: Network<Ipv6Addr> = (Ipv6Addr::UNSPECIFIED, 0);
/// The bytes of a message without its address.
const HEADERS_BYTES: usize = 32;
/// More than the bytes of an answer to one request.
const ANSWER_BYTES: usize = 4096;

/// True if no sandbox reaches `address`.
pub(super) fn is_barred(address: Ipv4Addr) -> bool {
    BARRED_V4.iter().any(|(network, bits)| (address.to_bits() ^ network.to_bits()) >> (32 - bits) == 0)
}

/// Bars all these networks in the network namespace `network`.
pub(super) async fn bar(network: OwnedFd) -> Result<(), StepFailure> {
    let (tell, told) = oneshot::channel();
    let work = move || {
        // The caller may have stopped waiting.
        let _nobody = tell.send(enter_and_bar(&network));
    };
    // A new thread, not one of a pool: the thread cannot leave the namespace again.
    std::thread::Builder::new()
        .name("bar-routes".to_owned())
        .spawn(work)
        .map_err(|error| StepFailure::at("start a thread that bars routes", error))?;
    told.await.map_err(|_| StepFailure::at("bar routes", "the thread ended"))?
}

fn enter_and_bar(network: &OwnedFd) -> Result<(), StepFailure> {
    move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|error| StepFailure::at("enter the sandbox's network", error))?;
    // Without a protocol the kernel takes NETLINK_ROUTE, which is 0.
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)
        .map_err(|error| StepFailure::at("open a socket for routes", error))?;
    for (address, bits) in BARRED_V4 {
        add(&socket, address.into(), bits).map_err(|error| StepFailure::at(&format!("bar {address}/{bits}"), error))?;
    }
    let (address, bits) = BARRED_V6;
    match add(&socket, address.into(), bits) {
        // A kernel without IPv6 needs no bar.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP)) => Ok(()),
        outcome => outcome.map_err(|error| StepFailure::at("bar IPv6", error)),
    }
}

fn add(socket: &OwnedFd, address: IpAddr, bits: u8) -> io::Result<()> {
    rustix::net::send(socket, &message(address, bits), SendFlags::empty())?;
    let mut answer = [0; ANSWER_BYTES];
    let (length, _) = rustix::net::recv(socket, &mut answer[..], RecvFlags::empty())?;
    outcome(&answer[..length])
}

/// The request for an unreachable route: struct nlmsghdr, struct rtmsg, and the network if it has any bits.
fn message(address: IpAddr, bits: u8) -> Vec<u8> {
    let (family, octets) = match address {
        IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec()),
    };
    let mut attributes = Vec::new();
    if bits > 0 {
        attributes.extend_from_slice(&(4 + octets.len() as u16).to_ne_bytes());
        attributes.extend_from_slice(&libc::RTA_DST.to_ne_bytes());
        attributes.extend_from_slice(&octets);
    }
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_REPLACE) as u16;
    let mut message = Vec::with_capacity(HEADERS_BYTES + attributes.len());
    message.extend_from_slice(&((28 + attributes.len()) as u32).to_ne_bytes());
    message.extend_from_slice(&libc::RTM_NEWROUTE.to_ne_bytes());
    message.extend_from_slice(&flags.to_ne_bytes());
    // The sequence number and the sender; the response comes over the same socket.
    message.extend_from_slice(&[0; 8]);
    message.extend_from_slice(&[
        family as u8,
        bits,
        0,
        0,
        libc::RT_TABLE_MAIN,
        libc::RTPROT_STATIC,
        libc::RT_SCOPE_UNIVERSE,
        libc::RTN_UNREACHABLE,
    ]);
    message.extend_from_slice(&[0; 4]);
    message.extend_from_slice(&attributes);
    message
}

/// The kernel's response: struct nlmsghdr, then a negative error number, or 0.
fn outcome(answer: &[u8]) -> io::Result<()> {
    let odd = || io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer is no answer");
    let kind = answer.get(4..6).and_then(|two| two.try_into().ok()).map(u16::from_ne_bytes);
    if kind != Some(libc::NLMSG_ERROR as u16) {
        return Err(odd());
    }
    let number = answer.get(16..20).and_then(|four| four.try_into().ok()).map(i32::from_ne_bytes);
    match number.ok_or_else(odd)? {
        0 => Ok(()),
        number => Err(io::Error::from_raw_os_error(-number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_addresses_are_barred_and_others_are_not() {
        for address in ["169.254.169.254", "169.254.170.2", "169.254.0.0", "100.100.100.200", "224.0.0.251"] {
            assert!(is_barred(address.parse().unwrap()), "{address}");
        }
        for address in ["169.253.255.255", "169.255.0.0", "100.100.100.201", "10.0.0.1", "1.1.1.1", "240.0.0.1"] {
            assert!(!is_barred(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn a_request_says_its_length_and_names_its_network() {
        let request = message(Ipv4Addr::new(169, 254, 0, 0).into(), 16);
        assert_eq!(request.len(), 36);
        assert_eq!(request[..4], 36_u32.to_ne_bytes());
        assert_eq!((request[16], request[17], request[23]), (libc::AF_INET as u8, 16, libc::RTN_UNREACHABLE));
        assert_eq!(request[32..], [169, 254, 0, 0]);
        assert_eq!(message(Ipv6Addr::UNSPECIFIED.into(), 0).len(), 28);
    }

    #[test]
    fn the_kernels_error_comes_out() {
        let mut answer = [0; 36];
        answer[4..6].copy_from_slice(&(libc::NLMSG_ERROR as u16).to_ne_bytes());
        assert!(outcome(&answer).is_ok());
        answer[16..20].copy_from_slice(&(-libc::EPERM).to_ne_bytes());
        assert_eq!(outcome(&answer).unwrap_err().raw_os_error(), Some(libc::EPERM));
        assert!(outcome(&answer[..10]).is_err() && outcome(&[0; 36]).is_err());
    }
}
