//! A second machine of the same availability zone, emulated: a network namespace to which packets come as late, and no
//! faster, than over a link of that zone.
//!
//! netem(8) would do it, but is a module that small kernels lack. Here a TUN device at each end hands the packets to this
//! process, which holds each until it is due. TCP is the kernel's at both ends, with its windows and its slow start.
//! Packets of one connection come in pieces of up to 64 KiB (segmentation offload), so that carrying them costs little.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::ioctl::{IntegerSetter, Opcode, Setter, ioctl, opcode};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A virtio_net_hdr before each packet, which says how the kernel is to cut it.
const HEADER: usize = 10;
const PACKET_MAX: usize = HEADER + (64 << 10);
/// What a link holds beyond what is on its way; packets that come then are dropped, as by a switch.
const QUEUE_BYTES_MAX: usize = 4 << 20;
/// How long a thread waits, at most, until it looks whether the link has ended.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const FAR_DEVICE: &str = "zone";

// linux/if_tun.h
const TUNSETIFF: Opcode = opcode::write::<c_int>(b'T', 202);
const TUNSETOFFLOAD: Opcode = opcode::write::<c_int>(b'T', 208);
const IFF_TUN: u16 = 0x0001;
const IFF_NO_PI: u16 = 0x1000;
const IFF_VNET_HDR: u16 = 0x4000;
const TUN_F_CSUM: usize = 0x01;
const TUN_F_TSO4: usize = 0x02;

/// What the link between the two machines is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) round_trip: Duration,
    pub(crate) bits_a_second: u64,
    /// The largest IP packet.
    pub(crate) mtu: u32,
}

impl Link {
    /// Between two machines of one zone of a cloud: a quarter of a millisecond there and back, 10 Gbit/s, jumbo frames.
    pub(crate) const IN_A_ZONE: Self =
        Self { round_trip: Duration::from_micros(250), bits_a_second: 10_000_000_000, mtu: 8_500 };
}

/// The second machine. Dropping it removes it.
pub(crate) struct Zone {
    namespace: String,
    near_device: String,
    far: Ipv4Addr,
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

fn ip(arguments: &[&str]) -> io::Result<()> {
    let done = Command::new("ip").args(arguments).output()?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    Err(io::Error::other(format!("ip {}: {said}", arguments.join(" "))))
}

impl Zone {
    /// Makes the machine. Needs root, `ip` and `/dev/net/tun`.
    pub(crate) fn make(link: Link) -> io::Result<Self> {
        let id = std::process::id();
        // One of 250 networks in 10.208. If two processes take the same, which is rare, `ip` fails.
        let [near, far] = [1, 2].map(|host| Ipv4Addr::new(10, 208, (id % 250) as u8, host));
        let (namespace, near_device) = (format!("nighz{id}"), format!("nighz{id}"));
        ip(&["netns", "add", &namespace])?;
        let ends = Arc::new(AtomicBool::new(false));
        let mut zone = Self { namespace, near_device, far, ends, threads: Vec::new() };
        let near_end = tun(&zone.near_device)?;
        let far_end = zone.inside(|| tun(FAR_DEVICE))?;
        let mtu = link.mtu.to_string();
        for (address, device, inside) in
            [(near, zone.near_device.as_str(), &[][..]), (far, FAR_DEVICE, &["-n", zone.namespace.as_str()])]
        {
            ip(&[inside, &["addr", "add", &format!("{address}/30"), "dev", device]].concat())?;
            ip(&[inside, &["link", "set", device, "mtu", &mtu, "up"]].concat())?;
        }
        for (from, to) in [(near_end.try_clone()?, far_end.try_clone()?), (far_end, near_end)] {
            let ends = Arc::clone(&zone.ends);
            // A link that breaks carries nothing more, and whoever waits for an answer over it says so.
            zone.threads.push(std::thread::spawn(move || {
                let _broken = carry(&from, &to, link, &ends);
            }));
        }
        Ok(zone)
    }

    /// A listener at the machine, or at this one if there is no other.
    pub(crate) fn listener(zone: Option<&Self>) -> io::Result<TcpListener> {
        match zone {
            Some(zone) => zone.inside(|| TcpListener::bind((zone.far, 0))),
            None => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)),
        }
    }

    /// The same for an asynchronous server.
    pub(crate) fn tokio_listener(zone: Option<&Self>) -> io::Result<tokio::net::TcpListener> {
        let listener = Self::listener(zone)?;
        listener.set_nonblocking(true)?;
        tokio::net::TcpListener::from_std(listener)
    }

    /// Does `act` as a process of the machine: its sockets are there.
    fn inside<T: Send>(&self, act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let namespace = File::open(format!("/run/netns/{}", self.namespace))?;
        // A thread of its own: it stays there.
        let done = std::thread::scope(|scope| {
            scope
                .spawn(move || {
                    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
                    act()
                })
                .join()
        });
        done.unwrap_or_else(|_| Err(io::Error::other("a thread of the emulated machine has panicked")))
    }
}

impl Drop for Zone {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ended = thread.join();
        }
        // The devices have gone with the last of their files.
        let _left_behind = ip(&["netns", "del", &self.namespace]);
    }
}

/// A new TUN device of the thread's network namespace.
fn tun(name: &str) -> io::Result<File> {
    /// The part of an ifreq that TUNSETIFF reads.
    #[repr(C)]
    struct Request {
        name: [u8; 16],
        flags: u16,
        rest: [u8; 22],
    }
    let mut request = Request { name: [0; 16], flags: IFF_TUN | IFF_NO_PI | IFF_VNET_HDR, rest: [0; 22] };
    // The last byte stays 0.
    request.name[..15].iter_mut().zip(name.bytes()).for_each(|(into, byte)| *into = byte);
    let device =
        OpenOptions::new().read(true).write(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open("/dev/net/tun")?;
    // SAFETY: TUNSETIFF reads an ifreq of 40 bytes, which `Request` is.
    unsafe { ioctl(&device, Setter::<TUNSETIFF, Request>::new(request)) }?;
    // SAFETY: TUNSETOFFLOAD takes an integer of these flags.
    unsafe { ioctl(&device, IntegerSetter::<TUNSETOFFLOAD>::new_usize(TUN_F_CSUM | TUN_F_TSO4)) }?;
    Ok(device)
}

/// When a packet is due that comes to the link now, and when the link is free again.
fn due(now: Instant, free: Instant, bytes: usize, link: Link) -> (Instant, Instant) {
    let sending = Duration::from_nanos((bytes as u64 * 8).saturating_mul(1_000_000_000) / link.bits_a_second);
    let sent = now.max(free) + sending;
    (sent + link.round_trip / 2, sent)
}

/// Carries packets in one direction until `ends`.
fn carry(mut from: &File, mut to: &File, link: Link, ends: &AtomicBool) -> io::Result<()> {
    // A sleep ends when it should, and not up to 50 us later.
    rustix::thread::set_current_timer_slack(Some(NonZeroU64::MIN))?;
    let (mut way, mut unused) = (VecDeque::<(Instant, Vec<u8>)>::new(), Vec::<Vec<u8>>::new());
    let (mut free, mut held) = (Instant::now(), 0);
    while !ends.load(Ordering::Relaxed) {
        let now = Instant::now();
        while let Some((due, packet)) = way.pop_front() {
            if due > now {
                way.push_front((due, packet));
                break;
            }
            // A packet that finds no room is lost, and TCP sends it again.
            match to.write(&packet) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            held -= packet.len();
            unused.push(packet);
        }
        let until = way.front().map_or(LOOK_EVERY, |(due, _)| due.saturating_duration_since(Instant::now()));
        let until = Timespec { tv_sec: 0, tv_nsec: until.min(LOOK_EVERY).subsec_nanos().into() };
        poll(&mut [PollFd::new(&from, PollFlags::IN)], Some(&until))?;
        loop {
            let mut packet = unused.pop().unwrap_or_default();
            packet.resize(PACKET_MAX, 0);
            let length = match from.read(&mut packet) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    unused.push(packet);
                    break;
                }
                Err(error) => return Err(error),
            };
            packet.truncate(length);
            if held + length > QUEUE_BYTES_MAX {
                unused.push(packet);
                continue;
            }
            held += length;
            let (due, sent) = due(Instant::now(), free, length.saturating_sub(HEADER), link);
            free = sent;
            way.push_back((due, packet));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;
    use crate::skipped::skip;

    #[test]
    fn a_packet_comes_after_those_before_it_are_sent_and_half_the_round_trip_later() {
        let link = Link { round_trip: Duration::from_micros(100), bits_a_second: 8_000_000_000, mtu: 9000 };
        let now = Instant::now();
        let (first, free) = due(now, now, 1_000_000, link);
        assert_eq!((first - now, free - now), (Duration::from_micros(1050), Duration::from_millis(1)));
        let (second, _) = due(now, free, 1_000_000, link);
        assert_eq!(second - now, Duration::from_micros(2050));
        let later = now + Duration::from_secs(1);
        assert_eq!(due(later, free, 0, link).0 - later, Duration::from_micros(50), "an idle link saves nothing up");
    }

    #[test]
    fn bytes_come_whole_over_an_emulated_zone_and_neither_sooner_nor_faster_than_its_link_lets_them() {
        let test = "bytes_come_whole_over_an_emulated_zone_and_neither_sooner_nor_faster_than_its_link_lets_them";
        let link = Link { round_trip: Duration::from_millis(4), bits_a_second: 400_000_000, mtu: 8_500 };
        let zone = match Zone::make(link) {
            Ok(zone) => zone,
            Err(error) => return skip(test, format!("no second machine can be emulated: {error}")),
        };
        let listener = Zone::listener(Some(&zone)).unwrap();
        let address = listener.local_addr().unwrap();
        let bytes: Vec<u8> = (0..5_000_000_u32).map(|at| (at % 251) as u8).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                stream.set_nodelay(true).unwrap();
                for _ in 0..20 {
                    let mut asked = [0];
                    stream.read_exact(&mut asked).unwrap();
                    stream.write_all(&asked).unwrap();
                }
                stream.write_all(&bytes).unwrap();
            });
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_nodelay(true).unwrap();
            let begun = Instant::now();
            for number in 0..20 {
                stream.write_all(&[number]).unwrap();
                let mut answer = [0];
                stream.read_exact(&mut answer).unwrap();
                assert_eq!(answer, [number]);
            }
            assert!(begun.elapsed() >= link.round_trip * 20, "{:?}", begun.elapsed());
            let (begun, mut received) = (Instant::now(), vec![0; bytes.len()]);
            stream.read_exact(&mut received).unwrap();
            assert!(received == bytes);
            // 100 ms on the link; the first bytes were on their way before.
            assert!(begun.elapsed() >= Duration::from_millis(95), "{:?}", begun.elapsed());
        });
        let namespace = zone.namespace.clone();
        drop(zone);
        assert!(!std::path::Path::new("/run/netns").join(namespace).exists());
    }
}
