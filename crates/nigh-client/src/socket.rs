//! The socket of a connection: packets as they are, with the descriptors that come with them.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, connect, recvmsg, send, sendmsg, socket_with,
};

use crate::Address;
use crate::spin::{SPIN_MAX, Spin};

/// The longest packet.
const PACKET_MAX: usize = 256 * 1024;
/// The most descriptors of one packet; the node sends one.
pub(crate) const DESCRIPTORS_MAX: usize = 4;

/// What came in one packet.
#[derive(Debug)]
pub struct Arrived {
    /// The packet's length; 0 if the node has closed the connection. Its bytes are `Inbox::packet`.
    pub length: usize,
    /// The packet, or the list of its descriptors, was longer than either may be, and is cut.
    pub is_cut: bool,
    /// The descriptors that came with it.
    pub descriptors: Vec<OwnedFd>,
}

/// Where packets arrive: one at a time.
#[derive(Debug)]
pub struct Inbox {
    buffer: Vec<u8>,
    spin: Spin,
}

impl Inbox {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self { buffer: vec![0; PACKET_MAX], spin: Spin::of_machine() }
    }

    /// The bytes of the packet that arrived last.
    #[must_use]
    pub fn packet(&self, arrived: &Arrived) -> &[u8] {
        &self.buffer[..arrived.length]
    }
}

impl Default for Inbox {
    fn default() -> Self {
        Self::new()
    }
}

/// A connected socket. Threads may share it, but only one of them receives.
#[derive(Debug)]
pub struct Socket(OwnedFd);

impl Socket {
    /// Connects. Later calls, and this one, wait for at most `timeout` each; for ever if there is none.
    ///
    /// # Errors
    /// The system's, if nobody listens there.
    pub fn connect(address: &Address, timeout: Option<Duration>) -> Result<Self, Errno> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        if timeout.is_some() {
            for which in [Timeout::Recv, Timeout::Send] {
                set_socket_timeout(&socket, which, timeout)?;
            }
        }
        connect(&socket, &address.socket()?)?;
        Ok(Self(socket))
    }

    /// Sends a packet.
    ///
    /// # Errors
    /// The system's: `INTR` after a signal, `AGAIN` after the time-out.
    pub fn send(&self, packet: &[u8]) -> Result<(), Errno> {
        send(&self.0, packet, SendFlags::NOSIGNAL).map(drop)
    }

    /// Sends a packet if that needs no wait.
    ///
    /// # Errors
    /// The system's: `AGAIN` if it would have to wait.
    pub fn try_send(&self, packet: &[u8]) -> Result<(), Errno> {
        send(&self.0, packet, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).map(drop)
    }

    /// Sends a packet of `parts`, with `descriptors`: at most as many as fit.
    pub(crate) fn send_parts(&self, parts: &[&[u8]], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(Errno::TOOMANYREFS);
        }
        let parts: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
        sendmsg(&self.0, &parts, &mut ancillary, SendFlags::NOSIGNAL).map(drop)
    }

    /// Waits for the next packet: at first awake, where that pays.
    ///
    /// # Errors
    /// The system's: `INTR` after a signal, and where one may have come while this was awake in vain; `AGAIN` after the
    /// time-out.
    pub fn receive(&self, inbox: &mut Inbox) -> Result<Arrived, Errno> {
        if inbox.spin.begin() {
            let begun = Instant::now();
            while begun.elapsed() < SPIN_MAX {
                match self.receive_with(inbox, RecvFlags::DONTWAIT) {
                    Err(Errno::AGAIN) => std::hint::spin_loop(),
                    received => {
                        inbox.spin.answered();
                        return received;
                    }
                }
            }
            inbox.spin.in_vain();
            // A handler has run, and the caller must look whether it has left something to do before it sleeps.
            return Err(Errno::INTR);
        }
        self.receive_with(inbox, RecvFlags::empty())
    }

    fn receive_with(&self, inbox: &mut Inbox, how: RecvFlags) -> Result<Arrived, Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut inbox.buffer)];
        let message = recvmsg(&self.0, &mut parts, &mut ancillary, how | RecvFlags::CMSG_CLOEXEC)?;
        let mut descriptors = Vec::new();
        for part in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = part {
                descriptors.extend(rights);
            }
        }
        let is_cut = message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
        Ok(Arrived { length: message.bytes.min(PACKET_MAX), is_cut, descriptors })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
