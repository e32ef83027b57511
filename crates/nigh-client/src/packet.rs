//! Packets of the fast path, as a client sends and receives them.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, connect, recvmsg, sendmsg, socket_with,
};
use serde_json::{Map, Value};

use crate::{Address, ClientError};

const VERSION: u8 = 1;
const HEADER_BYTES: usize = 16;
/// The longest packet.
const PACKET_MAX: usize = 256 * 1024;
/// The most descriptors of one packet; the node sends one.
const DESCRIPTORS_MAX: usize = 4;

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
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// If no node listens there.
    pub fn open(address: &Address) -> Result<Self, ClientError> {
        let failed =
            |errno: rustix::io::Errno| ClientError::Connect { address: address.to_string(), reason: errno.into() };
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let socket = socket.map_err(failed)?;
        connect(&socket, &address.socket().map_err(failed)?).map_err(failed)?;
        Ok(Self { socket, buffer: vec![0; PACKET_MAX] })
    }

    /// Sends a request.
    ///
    /// # Errors
    /// If the connection is broken.
    pub fn send(&self, operation: u8, id: u32, json: &Value, body: &[u8]) -> Result<(), ClientError> {
        let json = json.to_string().into_bytes();
        let mut header = [0; HEADER_BYTES];
        header[0] = VERSION;
        header[1] = operation;
        header[4..8].copy_from_slice(&id.to_le_bytes());
        header[8..12].copy_from_slice(&(json.len() as u32).to_le_bytes());
        header[12..].copy_from_slice(&(body.len() as u32).to_le_bytes());
        self.send_parts(&[&header, &json, body], &[])
    }

    /// Sends any bytes with descriptors, to test a node.
    ///
    /// # Errors
    /// If the connection is broken.
    pub fn send_parts(&self, parts: &[&[u8]], descriptors: &[BorrowedFd<'_>]) -> Result<(), ClientError> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(ClientError::Protocol(format!("more than {DESCRIPTORS_MAX} descriptors in a packet")));
        }
        let parts: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
        loop {
            match sendmsg(&self.socket, &parts, &mut ancillary, SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
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
        let mut descriptor = None;
        let message = loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [IoSliceMut::new(&mut self.buffer)];
            match recvmsg(&self.socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => return Err(ClientError::io("wait for an answer")(errno)),
                Ok(message) => {
                    for part in ancillary.drain() {
                        if let RecvAncillaryMessage::ScmRights(mut rights) = part {
                            descriptor = descriptor.or(rights.next());
                        }
                    }
                    break message;
                }
            }
        };
        if message.bytes == 0 {
            let reason = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
            return Err(ClientError::Io { what: "wait for an answer", reason });
        }
        if message.flags.contains(ReturnFlags::TRUNC) {
            return wrong("a packet is too long");
        }
        let packet = &self.buffer[..message.bytes];
        let Some((header, rest)) = packet.split_first_chunk::<HEADER_BYTES>() else {
            return wrong("a packet without a header");
        };
        let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (json, body) = (number(8) as usize, number(12) as usize);
        if header[0] != VERSION || json.checked_add(body) != Some(rest.len()) {
            return wrong("a packet of another version, or cut");
        }
        let (json, body) = rest.split_at(json);
        let json = serde_json::from_slice(json).map_err(|error| ClientError::Protocol(error.to_string()))?;
        Ok(Message {
            kind: header[1],
            flags: u16::from_le_bytes([header[2], header[3]]),
            id: number(4),
            json,
            body: body.to_vec(),
            descriptor,
        })
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
