//! The engine's end of the socket to a sandbox's init and keeper.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::io::{AsyncWriteExt as _, Interest};
use tokio::net::{TcpListener, UnixStream};

use super::launch::{DESCRIPTORS_MAX, InitMessage, decode};

const READ_BYTES: usize = 4096;

/// The listeners in a sandbox's network, before anything serves them.
#[derive(Debug)]
pub(super) struct Listeners {
    /// The listener of the Runtime API.
    pub(super) runtime: TcpListener,
    /// The listener of the data door.
    pub(super) data: TcpListener,
    /// The listener of the fast path; none if the sandbox shares the host's network.
    pub(super) fast: Option<OwnedFd>,
}

/// Reads messages and keeps the descriptors that came with them.
#[derive(Debug)]
pub(super) struct Control {
    stream: UnixStream,
    received: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

impl Control {
    /// The engine's end, and the end for the sandbox's keeper.
    pub(super) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let stream = UnixStream::from_std(ours)?;
        Ok((Self { stream, received: Vec::new(), descriptors: Vec::new() }, theirs.into()))
    }

    /// Sends a message to the keeper or the init.
    pub(super) async fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.stream.write_all(message).await
    }

    /// Whether the other end is closed or has sent something. A sandbox that waits for its launch sends nothing but its
    /// end.
    pub(super) fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.stream, PollFlags::IN | PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).is_ok_and(|raised| raised > 0)
    }

    /// The next message; none when the sandbox has ended. Cancel safe.
    pub(super) async fn report(&mut self) -> io::Result<Option<InitMessage>> {
        loop {
            if let Some(report) = decode(&mut self.received)? {
                return Ok(Some(report));
            }
            self.stream.readable().await?;
            let mut buffer = [0; READ_BYTES];
            let mut descriptors = Vec::new();
            let received = self.stream.try_io(Interest::READABLE, || {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
                let mut ancillary = RecvAncillaryBuffer::new(&mut space);
                let mut parts = [IoSliceMut::new(&mut buffer)];
                let message = recvmsg(self.stream.as_fd(), &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
                for part in ancillary.drain() {
                    if let RecvAncillaryMessage::ScmRights(rights) = part {
                        descriptors.extend(rights);
                    }
                }
                Ok(message.bytes)
            });
            self.descriptors.append(&mut descriptors);
            match received {
                Ok(0) => return Ok(None),
                Ok(length) => self.received.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The other end closed while data was unread: that is its end.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// The descriptors that came with the last reports.
    pub(super) fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.descriptors)
    }

    /// The listeners that came with `Running`.
    pub(super) fn take_listeners(&mut self) -> io::Result<Listeners> {
        let mut descriptors = self.take_descriptors().into_iter();
        let mut tcp = || {
            let descriptor = descriptors.next().ok_or_else(|| io::Error::other("two listeners were expected"))?;
            let listener = std::net::TcpListener::from(descriptor);
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)
        };
        Ok(Listeners { runtime: tcp()?, data: tcp()?, fast: descriptors.next() })
    }

    /// Sends one byte to the init.
    pub(super) fn say(&self, word: u8) -> io::Result<()> {
        self.stream.try_write(&[word]).map(drop)
    }

    /// Tells the keeper to end the sandbox. Its last messages can still be read.
    pub(super) fn end(&self) {
        // Fails only if the other end is closed already.
        let _gone = rustix::net::shutdown(&self.stream, rustix::net::Shutdown::Write);
    }
}
