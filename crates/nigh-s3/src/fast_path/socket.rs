//! The sockets of the fast path: they carry packets and descriptors, without blocking.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, recvmsg, sendmsg, shutdown, socket_with, sockopt,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::replies::Packet;
use super::wire::PACKET_MAX;

/// The most connections that may wait to be accepted.
const BACKLOG: i32 = 128;
/// The most bytes that may wait for a client that does not read. The kernel doubles this number, limits it to
/// `net.core.wmem_max`, and accepts no packet that is longer.
const SEND_BUFFER: usize = 256 * 1024;

/// Opens a non-blocking listener at `address`.
///
/// # Errors
/// The system's.
pub fn listener(address: &SocketAddrUnix) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags(), None)?;
    rustix::net::bind(&socket, address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Opens a listener at a path that does not exist yet.
///
/// # Errors
/// The system's.
pub fn bind(path: &Path) -> io::Result<OwnedFd> {
    listener(&SocketAddrUnix::new(path)?)
}

const fn flags() -> SocketFlags {
    SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK)
}

/// Registers a socket for reading in the runtime in which this function is called. If the socket were registered for
/// writing too, a client that takes an answer would wake the thread that sent the answer, because there is room again.
pub(super) fn register(socket: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    register_for(socket, Interest::READABLE)
}

fn register_for(socket: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open and stays the same descriptor until it is dropped, which `AsyncFd` does last.
    Ok(unsafe { AsyncFd::register_with_interest(socket, interest) }?)
}

/// Accepts the next connection, which is not registered in any runtime yet.
pub(super) async fn accept(listener: &AsyncFd<OwnedFd>) -> io::Result<OwnedFd> {
    let socket = listener.async_io(Interest::READABLE, |listener| Ok(accept_with(listener, flags())?)).await?;
    sockopt::set_socket_send_buffer_size(&socket, SEND_BUFFER)?;
    Ok(socket)
}

/// One connection.
#[derive(Debug)]
pub(super) struct Socket(AsyncFd<OwnedFd>);

/// The result of one read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReceivedPacket {
    /// A packet of this length in bytes.
    Packet(usize),
    /// A packet that is longer than the protocol allows.
    TooLong,
    /// The client has disconnected.
    End,
}

impl Socket {
    /// Registers `socket` in the runtime in which this function is called.
    pub(super) fn adopt(socket: OwnedFd) -> io::Result<Self> {
        register(socket).map(Self)
    }

    /// Waits until there may be something to read.
    pub(super) async fn readable(&self) -> io::Result<()> {
        self.0.readable().await.map(|mut guard| guard.retain_ready())
    }

    /// Reads a packet. None if no packet is waiting. Descriptors that come with the packet are not accepted: the kernel
    /// closes them.
    pub(super) fn try_receive(&self, buffer: &mut [u8; PACKET_MAX]) -> io::Result<Option<ReceivedPacket>> {
        let received = self.0.try_io(Interest::READABLE, |socket| {
            let mut none = RecvAncillaryBuffer::default();
            Ok(recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut none, RecvFlags::DONTWAIT)?)
        });
        match received {
            Ok(message) if message.flags.contains(ReturnFlags::TRUNC) => Ok(Some(ReceivedPacket::TooLong)),
            Ok(message) if message.bytes == 0 => Ok(Some(ReceivedPacket::End)),
            Ok(message) => Ok(Some(ReceivedPacket::Packet(message.bytes))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends a packet. Returns false if too many bytes wait for the client.
    pub(super) fn try_send(&self, packet: &Packet) -> io::Result<bool> {
        // This asks the kernel and not the runtime, which may not know yet that there is room.
        match send(self.0.as_fd(), packet) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a packet as soon as there is room, waiting in the runtime in which this function is called.
    pub(super) async fn send(&self, packet: &Packet) -> io::Result<()> {
        let writer = register_for(fcntl_dupfd_cloexec(&self.0, 0)?, Interest::WRITABLE)?;
        writer.async_io(Interest::WRITABLE, |socket| Ok(send(socket.as_fd(), packet)?)).await
    }

    /// Ends the connection in both directions, whatever else in this process still holds the socket.
    pub(super) fn end(&self) {
        // This fails only if the client has ended the connection already.
        let _gone = shutdown(&self.0, Shutdown::Both);
    }
}

fn send(socket: impl AsFd, packet: &Packet) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = packet.descriptor.as_ref().map(|descriptor| [descriptor.as_fd()]);
    if let Some(descriptors) = &descriptors {
        // The space holds exactly one descriptor.
        let _fits = ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let parts = [IoSlice::new(&packet.head), IoSlice::new(&packet.body)];
    sendmsg(socket, &parts, &mut ancillary, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).map(drop)
}
