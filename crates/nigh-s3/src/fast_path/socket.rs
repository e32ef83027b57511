//! Sockets of the fast path: packets with descriptors, without waiting.

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

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// What may wait for a client that does not read; the kernel doubles it, bounds it by `net.core.wmem_max`, and takes no
/// packet that is longer.
const SEND_BUFFER: usize = 256 * 1024;

/// A listener at `address`, which does not wait.
///
/// # Errors
/// The system's.
pub fn listener(address: &SocketAddrUnix) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags(), None)?;
    rustix::net::bind(&socket, address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// A listener at a path that is free.
///
/// # Errors
/// The system's.
pub fn bind(path: &Path) -> io::Result<OwnedFd> {
    listener(&SocketAddrUnix::new(path)?)
}

const fn flags() -> SocketFlags {
    SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK)
}

/// Makes a socket known to the runtime that this is called in, for reading. Were it known for writing too, a client
/// that takes an answer would wake the thread that gave it: there is room again.
pub(super) fn register(socket: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    register_for(socket, Interest::READABLE)
}

fn register_for(socket: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open and stays the same descriptor until it is dropped, which `AsyncFd` does last.
    Ok(unsafe { AsyncFd::register_with_interest(socket, interest) }?)
}

/// The next connection, unknown to any runtime yet.
pub(super) async fn accept(listener: &AsyncFd<OwnedFd>) -> io::Result<OwnedFd> {
    let socket = listener.async_io(Interest::READABLE, |listener| Ok(accept_with(listener, flags())?)).await?;
    sockopt::set_socket_send_buffer_size(&socket, SEND_BUFFER)?;
    Ok(socket)
}

/// One connection.
#[derive(Debug)]
pub(super) struct Socket(AsyncFd<OwnedFd>);

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReceivedPacket {
    /// A packet of so many bytes.
    Packet(usize),
    /// One that is longer than any may be.
    TooLong,
    /// The client has gone.
    End,
}

impl Socket {
    /// Makes it known to the runtime that this is called in.
    pub(super) fn adopt(socket: OwnedFd) -> io::Result<Self> {
        register(socket).map(Self)
    }

    /// Waits until there may be something to read.
    pub(super) async fn readable(&self) -> io::Result<()> {
        self.0.readable().await.map(|mut guard| guard.retain_ready())
    }

    /// Reads a packet, if there is one. Descriptors that come with it are not taken: the kernel closes them.
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

    /// Sends a packet, unless the client has too much waiting.
    pub(super) fn try_send(&self, packet: &Packet) -> io::Result<bool> {
        // Asked of the kernel and not of the runtime, which may not have heard that there is room.
        match send(self.0.as_fd(), packet) {
            Ok(()) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a packet when the client takes it; waits in the runtime that this is called in.
    pub(super) async fn send(&self, packet: &Packet) -> io::Result<()> {
        let writer = register_for(fcntl_dupfd_cloexec(&self.0, 0)?, Interest::WRITABLE)?;
        writer.async_io(Interest::WRITABLE, |socket| Ok(send(socket.as_fd(), packet)?)).await
    }

    /// Ends the connection for both sides, whoever still holds it here.
    pub(super) fn end(&self) {
        // Fails only if the other side has ended it.
        let _gone = shutdown(&self.0, Shutdown::Both);
    }
}

fn send(socket: impl AsFd, packet: &Packet) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = packet.descriptor.as_ref().map(|descriptor| [descriptor.as_fd()]);
    if let Some(descriptors) = &descriptors {
        // One fits the space.
        let _fits = ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let parts = [IoSlice::new(&packet.head), IoSlice::new(&packet.body)];
    sendmsg(socket, &parts, &mut ancillary, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).map(drop)
}
