//! Whatever the servers of a cluster give: no panic; what recovery makes of a shard's stream is in order and no longer than
//! what came, and no document is believed to be longer than one may be.
#![no_main]

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, checksum};
use libfuzzer_sys::fuzz_target;
use nigh_engine::PIECES_MAX;
use nigh_engine::nats::VALUE_MAX_BYTES;
use nigh_engine::nats::fuzzing::{document, recover};

/// Messages of a stream at most.
const MESSAGES_MAX: usize = 16;
/// The heads of a journal's record and of a document, bytes.
const RECORD_HEAD_BYTES: usize = 56;
const DOCUMENT_HEAD_BYTES: usize = 40;

fn crc(bytes: &[u8]) -> [u8; 4] {
    (checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32).to_le_bytes()
}

fn length_at(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

/// The same message with the checksums that its records must have.
fn with_checksums(message: &[u8]) -> Vec<u8> {
    let mut message = message.to_vec();
    let mut rest = &mut message[..];
    while rest.len() >= RECORD_HEAD_BYTES {
        let (head, body) = (length_at(rest, 40), length_at(rest, 44));
        if head < RECORD_HEAD_BYTES || head > rest.len() {
            break;
        }
        let end = (head + body).min(rest.len());
        let body = crc(&rest[head..end]);
        rest[48..52].copy_from_slice(&body);
        let own = crc(&rest[4..head]);
        rest[..4].copy_from_slice(&own);
        rest = &mut rest[end..];
    }
    message
}

fn check_stream(messages: &[Bytes]) {
    let given: u64 = messages.iter().map(|message| message.len() as u64).sum();
    let Some((records, damage)) = recover(messages) else { return };
    assert!(records.is_sorted_by_key(|one| one.version));
    // Each of its chunks, two a piece, may be the same.
    assert!(records.iter().all(|one| one.body_bytes <= given * (2 * PIECES_MAX as u64 + 1)));
    assert!(damage.is_sorted_by_key(|one| one.offset));
}

fn check_document(message: Vec<u8>) {
    let given = message.len() as u64;
    let Some((chunks, bytes)) = document(&message.into()) else { return };
    assert!(bytes <= VALUE_MAX_BYTES as u64 && (chunks > 0 || bytes <= given));
    assert!(chunks <= bytes);
}

fuzz_target!(|messages: Vec<&[u8]>| {
    let messages = &messages[..messages.len().min(MESSAGES_MAX)];
    check_stream(&messages.iter().map(|message| Bytes::copy_from_slice(message)).collect::<Vec<_>>());
    check_stream(&messages.iter().map(|message| with_checksums(message).into()).collect::<Vec<_>>());
    for message in messages {
        check_document(message.to_vec());
        if message.len() >= DOCUMENT_HEAD_BYTES {
            let mut message = message.to_vec();
            let own = crc(&message[4..DOCUMENT_HEAD_BYTES]);
            message[..4].copy_from_slice(&own);
            check_document(message);
        }
    }
});
