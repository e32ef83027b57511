//! Packets of the fast path, as a client sends and receives them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use serde_json::{Map, Value};

use crate::socket::{DESCRIPTORS_MAX, Inbox, Socket};
use crate::{Address, ClientError};

const VERSION: u8 = 1;
/// The length of a packet's header.
const HEADER_BYTES: usize = 16;

/// The header of a request.
#[must_use]
pub fn request_header(operation: u8, id: u32, json_bytes: usize, body_bytes: usize) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[0] = VERSION;
    header[1] = operation;
    header[4..8].copy_from_slice(&id.to_le_bytes());
    header[8..12].copy_from_slice(&(json_bytes as u32).to_le_bytes());
    header[12..].copy_from_slice(&(body_bytes as u32).to_le_bytes());
    header
}

/// A reply's packet, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'p> {
    /// 0: the greeting, 1: an answer, 2: the connection ends.
    pub kind: u8,
    /// 1: the bytes of a large object are copied. 2: a success, and the body is all that was asked for.
    pub flags: u16,
    /// The request that it answers.
    pub id: u32,
    /// The JSON of its content.
    pub json: &'p [u8],
    /// Its bytes.
    pub body: &'p [u8],
}

impl<'p> Reply<'p> {
    /// The reply in `packet`; none if it is of another version, or its lengths do not fill it.
    #[must_use]
    pub fn read(packet: &'p [u8]) -> Option<Self> {
        let (header, rest) = packet.split_first_chunk::<HEADER_BYTES>()?;
        let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (json, body) = (number(8) as usize, number(12) as usize);
        if header[0] != VERSION || json.checked_add(body) != Some(rest.len()) {
            return None;
        }
        let (json, body) = rest.split_at(json);
        let flags = u16::from_le_bytes([header[2], header[3]]);
        Some(Self { kind: header[1], flags, id: number(4), json, body })
    }
}

/// A message from the node.
#[derive(Debug)]
pub struct Message {
    /// 0: the greeting, 1: an answer, 2: the connection ends.
    pub kind: u8,
    /// 1: the bytes of a large object are copied.
    pub flags: u16,
    /// The request that it answers.
    pub id: u32,
    /// Its content.
    pub json: Map<String, Value>,
    /// Its bytes.
    pub body: Vec<u8>,
    /// Its descriptor.
    pub descriptor: Option<OwnedFd>,
}

/// A connection that sends and receives packets, without authentication.
#[derive(Debug)]
pub struct Connection {
    socket: Socket,
    inbox: Inbox,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// If no node listens there.
    pub fn open(address: &Address) -> Result<Self, ClientError> {
        let failed = |errno: Errno| ClientError::Connect { address: address.to_string(), reason: errno.into() };
        Ok(Self { socket: Socket::connect(address, None).map_err(failed)?, inbox: Inbox::new() })
    }

    /// Sends a request.
    ///
    /// # Errors
    /// If the connection is broken.
    pub fn send(&self, operation: u8, id: u32, json: &Value, body: &[u8]) -> Result<(), ClientError> {
        let json = json.to_string().into_bytes();
        let header = request_header(operation, id, json.len(), body.len());
        self.send_parts(&[&header, &json, body], &[])
    }

    /// Sends any bytes with descriptors, to test a node.
    ///
    /// # Errors
    /// If the connection is broken.
    pub fn send_parts(&self, parts: &[&[u8]], descriptors: &[BorrowedFd<'_>]) -> Result<(), ClientError> {
        if descriptors.len() > DESCRIPTORS_MAX {
            return Err(ClientError::Protocol(format!("more than {DESCRIPTORS_MAX} descriptors in a packet")));
        }
        loop {
            match self.socket.send_parts(parts, descriptors) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(ClientError::io("send a request")(errno)),
            }
        }
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// If the connection is broken, or the bytes are no message.
    pub fn receive(&mut self) -> Result<Message, ClientError> {
        let wrong = |what: &str| Err(ClientError::Protocol(what.to_owned()));
        let mut arrived = loop {
            match self.socket.receive(&mut self.inbox) {
                Ok(arrived) => break arrived,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(ClientError::io("wait for an answer")(errno)),
            }
        };
        if arrived.length == 0 {
            let reason = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
            return Err(ClientError::Io { what: "wait for an answer", reason });
        }
        if arrived.is_cut {
            return wrong("a packet, or the list of its descriptors, is too long");
        }
        let descriptor = arrived.descriptors.pop();
        let Some(reply) = Reply::read(self.inbox.packet(&arrived)) else {
            return wrong("a packet of another version, or cut");
        };
        let json = serde_json::from_slice(reply.json).map_err(|error| ClientError::Protocol(error.to_string()))?;
        let (kind, flags, id) = (reply.kind, reply.flags, reply.id);
        Ok(Message { kind, flags, id, json, body: reply.body.to_vec(), descriptor })
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_read_only_if_its_lengths_fill_its_packet() {
        let header = request_header(1, 7, 2, 3);
        let packet = [&header[..], b"{}abc"].concat();
        let reply = Reply { kind: 1, flags: 0, id: 7, json: b"{}", body: b"abc" };
        assert_eq!(Reply::read(&packet), Some(reply));
        assert_eq!(Reply::read(&packet[..packet.len() - 1]), None);
        assert_eq!(Reply::read(&packet[..HEADER_BYTES - 1]), None);
        assert_eq!(Reply::read(&[&packet[..], b"d"].concat()), None);
        let of_another_version = [&[2][..], &packet[1..]].concat();
        assert_eq!(Reply::read(&of_another_version), None);
        let overflowing = [&request_header(1, 7, u32::MAX as usize, u32::MAX as usize)[..], b"{}"].concat();
        assert_eq!(Reply::read(&overflowing), None);
    }
}
