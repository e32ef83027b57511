//! A key-value store over UDP: one thread, requests in packs, each answered in its place. `nigh-peer kv <entries>`.
//!
//! A request is 24 bytes: a number that comes back as it was, the key (its highest bit set to put), the value. The answer has
//! the same form; of a get, with the value found, or 0. A datagram holds up to 48 of them, so that a client reaches rates
//! that single datagrams through a kernel's loopback do not.

use std::net::{Ipv4Addr, UdpSocket};

use super::kv_store::{Entries, KvStore};
use super::request_mix::KvRequest;
use super::touch::NoRecording;

/// Bytes of a request, and of its answer.
pub(crate) const MESSAGE_BYTES: usize = 24;
/// Requests of one datagram at most.
pub(crate) const PACK_MAX: usize = 48;
/// Set in the key of a put.
const PUT: u64 = 1 << 63;

/// One request or answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// Comes back as it was.
    pub(crate) number: u64,
    /// What is asked; in the answer to a get, with the value put to its key.
    pub(crate) request: KvRequest,
}

impl Message {
    /// Its bytes.
    pub(crate) fn to_bytes(self) -> [u8; MESSAGE_BYTES] {
        let (key, value) = match self.request {
            KvRequest::Get(key) => (key & !PUT, 0),
            KvRequest::Put(key, value) => (key | PUT, value),
        };
        let mut bytes = [0; MESSAGE_BYTES];
        for (at, word) in [self.number, key, value].into_iter().enumerate() {
            bytes[at * 8..(at + 1) * 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads a message; none of another length.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (words, []) = bytes.as_chunks::<8>() else { return None };
        let &[number, key, value] = words else { return None };
        let (key, value) = (u64::from_le_bytes(key), u64::from_le_bytes(value));
        let request = if key & PUT == 0 { KvRequest::Get(key) } else { KvRequest::Put(key & !PUT, value) };
        Some(Self { number: u64::from_le_bytes(number), request })
    }
}

/// Answers every message of a pack in its place; what is no whole message stays as it is.
fn answer(store: &mut KvStore, pack: &mut [u8]) {
    for bytes in pack.chunks_exact_mut(MESSAGE_BYTES) {
        if let Some(message) = Message::from_bytes(bytes) {
            let found = message.request.serve(store, &mut NoRecording);
            if matches!(message.request, KvRequest::Get(_)) {
                bytes[16..].copy_from_slice(&found.unwrap_or(0).to_le_bytes());
            }
        }
    }
}

/// Serves a full store on a free port until the process ends; prints the port first.
///
/// # Errors
/// If the size is no power of two or no port can be had.
#[expect(clippy::print_stdout, reason = "the port is this program's one output")]
pub fn serve(entries: Option<String>) -> std::io::Result<()> {
    let wrong = || std::io::Error::other("how many entries? a power of two up to 67108864, like 131072");
    let entries = entries.and_then(|text| text.parse().ok()).and_then(Entries::new).ok_or_else(wrong)?;
    let mut store = KvStore::filled(entries);
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    println!("{}", socket.local_addr()?.port());
    let mut pack = [0; MESSAGE_BYTES * PACK_MAX];
    loop {
        let (length, client) = socket.recv_from(&mut pack)?;
        answer(&mut store, &mut pack[..length]);
        // A client that is gone, or too slow to read, loses its answers: it is UDP.
        let _ = socket.send_to(&pack[..length], client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pack_is_answered_in_its_place() {
        let mut store = KvStore::filled(Entries::new(64).unwrap());
        let requests = [KvRequest::Get(5), KvRequest::Put(5, 99), KvRequest::Get(5), KvRequest::Get(1 << 40)];
        let messages = requests.into_iter().zip(7..).map(|(request, number)| Message { number, request });
        let mut pack: Vec<u8> = messages.flat_map(Message::to_bytes).collect();
        pack.push(1);
        answer(&mut store, &mut pack);
        let answers = pack.chunks_exact(MESSAGE_BYTES);
        let words: Vec<(u64, u64)> = answers
            .map(|bytes| {
                (Message::from_bytes(bytes).unwrap().number, u64::from_le_bytes(bytes[16..].try_into().unwrap()))
            })
            .collect();
        assert_eq!(words, [(7, 5), (8, 99), (9, 99), (10, 0)]);
    }

    #[test]
    fn bytes_of_another_length_are_no_message() {
        let message = Message { number: 3, request: KvRequest::Put(8, 9) };
        assert_eq!(Message::from_bytes(&message.to_bytes()), Some(message));
        for length in [0, 16, 23, 25, 32] {
            assert_eq!(Message::from_bytes(&[0; 32][..length]), None, "{length}");
        }
    }
}
