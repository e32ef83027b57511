//! The bytes of a message in a shard's stream, as docs/design/cluster-engine.md draws them. Pure.
//!
//! A record has a head and a body, each with a CRC-32C, so a record with a damaged body still names its object. Nigh's
//! own checksums detect damage; those of the server are not needed.

use bytes::Bytes;
use nigh_terms::{Epoch, Incarnation, NodeId, ShardId, Version};

use crate::commit_format::{
    Commit, change_code, content_bytes, crc32c, decode_commit, encode_commit, encode_version, u16_at, u32_at, u64_at,
    version_at,
};
use crate::ledger::{PIECE_MAX_BYTES, PIECES_MAX};

/// The format of records of transactions, the newest that this build writes.
pub(super) const FORMAT: u16 = 2;
/// The format of all other records, which older builds read too.
const FIRST_FORMAT: u16 = 1;
const MAGIC: [u8; 4] = *b"NGLG";
/// The length of the common part of all heads.
pub(super) const HEAD_BYTES: usize = 56;
/// The most bytes of a piece in one message. With its head it is below a server's default limit.
pub(super) const CHUNK_MAX_BYTES: usize = 512 << 10;
/// The most chunks of one write: those of the most pieces, each of full length.
const CHUNKS_NAMED_MAX: usize = PIECES_MAX * PIECE_MAX_BYTES.div_ceil(CHUNK_MAX_BYTES);
/// The most versions in one notice of stored writes.
pub(super) const STORED_MAX: usize = 4000;

const EPOCH: u8 = 1;
const COMMIT: u8 = 2;
const CHUNK: u8 = 3;
const STORED: u8 = 4;

/// The change of a commit that is a part of a transaction.
const TRANSACTION: u8 = 5;

/// The common part of all heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) shard: ShardId,
    /// The epoch of the home that wrote the message; 0 in an epoch record.
    pub(super) epoch: Epoch,
    /// The number of the message within its epoch; a copy of a message has the same number.
    pub(super) number: u64,
    /// Messages before this place in the stream are not needed, and may be trimmed.
    pub(super) trimmed: u64,
}

/// A home that takes a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EpochRecord {
    /// The home's claim: a home with a lower claim cannot fence a home with a higher one.
    pub(super) claim: u64,
    /// A random number, by which the writer recognises its own record.
    pub(super) nonce: u64,
    pub(super) incarnation: Incarnation,
    pub(super) node: NodeId,
}

/// The content of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// A home begins. The place of the message in the stream is its epoch.
    Epoch(EpochRecord),
    /// A write. Its body is in the message, or in the chunks at the named places.
    Commit(Box<Commit>),
    /// A part of a body.
    Chunk,
    /// The store has these versions.
    Stored(Vec<Version>),
}

/// A record to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) content: Content,
    pub(super) body: Bytes,
}

/// A record whose head is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EnvelopeRecord {
    pub(super) frame: Frame,
    pub(super) content: Content,
    /// The body; none if it is damaged.
    pub(super) body: Option<Bytes>,
    /// The length of the undamaged body.
    pub(super) body_bytes: u32,
    /// The CRC-32C of the undamaged body.
    pub(super) body_crc: u32,
}

/// Why a message, or the rest of it, cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DecodeFailure {
    Damaged,
    Newer(u16),
}

/// The bytes that a record takes.
pub(super) fn record_bytes(Record { content, body }: &Record) -> usize {
    let own = match content {
        Content::Epoch(taking) => 24 + taking.node.0.len(),
        Content::Commit(commit) => content_bytes(&commit.record, commit.pieces.len()),
        Content::Chunk => 0,
        Content::Stored(versions) => 16 * versions.len(),
    };
    HEAD_BYTES + own + body.len()
}

/// The message of `records`.
pub(super) fn encode(frame: &Frame, records: &[Record]) -> Bytes {
    let mut out = Vec::with_capacity(records.iter().map(record_bytes).sum());
    for (behind, record) in (0..records.len()).rev().zip(records) {
        encode_record(&mut out, frame, behind, record);
    }
    out.into()
}

fn encode_record(out: &mut Vec<u8>, frame: &Frame, behind: usize, record: &Record) {
    let start = out.len();
    let Record { content, body } = record;
    let (kind, change) = match content {
        Content::Epoch(_) => (EPOCH, 0),
        Content::Commit(commit) => (COMMIT, change_code(&commit.record.change)),
        Content::Chunk => (CHUNK, 0),
        Content::Stored(_) => (STORED, 0),
    };
    let head_bytes = record_bytes(record) - body.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&[kind, change]);
    let format = if change == TRANSACTION { FORMAT } else { FIRST_FORMAT };
    out.extend_from_slice(&format.to_le_bytes());
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&frame.shard.0.to_le_bytes());
    out.extend_from_slice(&(behind as u16).to_le_bytes());
    for word in [frame.epoch.0, frame.number, frame.trimmed] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    for word in [head_bytes as u32, body.len() as u32, crc32c(body), 0] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    match content {
        Content::Epoch(EpochRecord { claim, nonce, incarnation, node }) => {
            for word in [*claim, *nonce, incarnation.0] {
                out.extend_from_slice(&word.to_le_bytes());
            }
            out.extend_from_slice(node.0.as_bytes());
        }
        Content::Commit(commit) => encode_commit(out, commit),
        Content::Chunk => {}
        Content::Stored(versions) => versions.iter().for_each(|version| encode_version(out, *version)),
    }
    let crc = crc32c(&out[start + 4..]);
    out[start..start + 4].copy_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(body);
}

/// Parses the records of a message of `shard`, up to the first damaged head.
pub(super) fn decode(shard: ShardId, message: &Bytes) -> Vec<Result<EnvelopeRecord, DecodeFailure>> {
    let (mut records, mut at) = (Vec::new(), 0);
    loop {
        let (found, bytes, behind) = match decode_record(shard, &message.slice(at..)) {
            Ok(decoded) => decoded,
            Err(unreadable) => {
                records.push(Err(unreadable));
                return records;
            }
        };
        records.push(Ok(found));
        at = message.len().min(at + bytes);
        if behind == 0 {
            // Nothing may follow the last record.
            if at < message.len() {
                records.push(Err(DecodeFailure::Damaged));
            }
            return records;
        }
    }
}

/// The record at the begin of `message`, its length, and the number of records behind it.
fn decode_record(shard: ShardId, message: &Bytes) -> Result<(EnvelopeRecord, usize, u16), DecodeFailure> {
    if message.len() < HEAD_BYTES || message[8..12] != MAGIC {
        return Err(DecodeFailure::Damaged);
    }
    let head_bytes = u32_at(message, 40) as usize;
    let whole =
        (HEAD_BYTES..=message.len()).contains(&head_bytes) && u32_at(message, 0) == crc32c(&message[4..head_bytes]);
    let format = u16_at(message, 6);
    if whole && format > FORMAT {
        return Err(DecodeFailure::Newer(format));
    }
    let frame = Frame {
        shard: ShardId(u16_at(message, 12)),
        epoch: Epoch(u64_at(message, 16)),
        number: u64_at(message, 24),
        trimmed: u64_at(message, 32),
    };
    if !whole || !(FIRST_FORMAT..=FORMAT).contains(&format) || frame.shard != shard {
        return Err(DecodeFailure::Damaged);
    }
    let own = &message[HEAD_BYTES..head_bytes];
    let content = match (message[4], message[5]) {
        (EPOCH, 0) => taking(own).map(Content::Epoch),
        (COMMIT, change) => {
            decode_commit(own, change, CHUNKS_NAMED_MAX).map(|commit| Content::Commit(Box::new(commit)))
        }
        (CHUNK, 0) => Some(Content::Chunk),
        (STORED, 0) => Some(Content::Stored(own.chunks_exact(16).map(|pair| version_at(pair, 0)).collect())),
        _ => None,
    };
    let content = content.ok_or(DecodeFailure::Damaged)?;
    let (body_bytes, body_crc) = (u32_at(message, 44), u32_at(message, 48));
    let end = head_bytes + body_bytes as usize;
    let body = (end <= message.len()).then(|| message.slice(head_bytes..end)).filter(|body| crc32c(body) == body_crc);
    Ok((EnvelopeRecord { frame, content, body, body_bytes, body_crc }, end, u16_at(message, 14)))
}

fn taking(own: &[u8]) -> Option<EpochRecord> {
    let (fixed, node) = own.split_at_checked(24)?;
    let [claim, nonce, incarnation] = [0, 8, 16].map(|at| u64_at(fixed, at));
    let node = NodeId(std::str::from_utf8(node).ok()?.to_owned());
    Some(EpochRecord { claim, nonce, incarnation: Incarnation(incarnation), node })
}

#[cfg(test)]
mod tests {
    use nigh_terms::{BucketName, Namespace, ObjectKey, Sequence};
    use proptest::prelude::*;

    use super::*;
    use crate::commit_format::PieceRef;
    use crate::ledger::{Change, PieceId, RequestId};

    const SHARD: ShardId = ShardId(7);
    /// Written by the first build of format 1.
    const STORED_MESSAGES: &[u8] = include_bytes!("../../tests/fixtures/cluster-ledger-1.messages");

    fn version(epoch: u64, sequence: u64) -> Version {
        Version { epoch: Epoch(epoch), sequence: Sequence(sequence) }
    }

    fn commit(sequence: u64, change: Change, body: &'static [u8]) -> Record {
        let content = Content::Commit(Box::new(Commit {
            shard: SHARD,
            version: version(9, sequence),
            record: crate::ledger::Record {
                request: RequestId(0x1122_3344_5566_7788_99aa_bbcc_ddee_ff00),
                namespace: Namespace::new("tenant").unwrap(),
                bucket: BucketName::new("bucket").unwrap(),
                key: ObjectKey::new("a key").unwrap(),
                change,
            },
            pieces: vec![PieceRef { id: PieceId(12), bytes: 5, crc: 6 }],
        }));
        Record { content, body: Bytes::from_static(body) }
    }

    /// One message of each kind; the second is a group.
    fn messages() -> Vec<(Frame, Vec<Record>)> {
        let about = || Bytes::from_static(b"about");
        let frame = |epoch, number| Frame { shard: SHARD, epoch: Epoch(epoch), number, trimmed: 2 };
        let taking = EpochRecord { claim: 4, nonce: 5, incarnation: Incarnation(6), node: NodeId("n1".to_owned()) };
        let group = vec![
            commit(1, Change::Put { about: about() }, b"the bytes of a small object"),
            commit(2, Change::Delete { about: about() }, b""),
            commit(3, Change::Amend { about: about() }, b""),
            Record { content: Content::Stored(vec![version(8, 1), version(8, 2)]), body: Bytes::new() },
        ];
        let chunk = Record { content: Content::Chunk, body: Bytes::from_static(b"part of a large one") };
        vec![
            (frame(0, 0), vec![Record { content: Content::Epoch(taking), body: Bytes::new() }]),
            (frame(9, 1), group),
            (frame(9, 2), vec![chunk]),
        ]
    }

    #[test]
    fn messages_of_format_1_are_written_byte_for_byte_as_they_were_and_read() {
        let mut written = Vec::new();
        for (frame, records) in messages() {
            let message = encode(&frame, &records);
            written.extend_from_slice(&(message.len() as u32).to_le_bytes());
            written.extend_from_slice(&message);
            let found = decode(SHARD, &message);
            assert_eq!(found.len(), records.len());
            for (found, record) in found.into_iter().zip(records) {
                let found = found.unwrap();
                assert_eq!((found.frame, found.content, found.body), (frame, record.content, Some(record.body)));
            }
        }
        if let Some(path) = std::env::var_os("NIGH_WRITE_LEDGER_FIXTURE") {
            std::fs::write(path, &written).unwrap();
        }
        assert!(written == STORED_MESSAGES, "the format has changed: it needs a number of its own");
    }

    #[test]
    fn a_write_of_the_longest_body_that_a_ledger_takes_is_read() {
        let mut record = commit(1, Change::Put { about: Bytes::new() }, b"");
        let Content::Commit(longest) = &mut record.content else { panic!("{record:?}") };
        longest.pieces = vec![longest.pieces[0]; CHUNKS_NAMED_MAX];
        let frame = Frame { shard: SHARD, epoch: Epoch(9), number: 1, trimmed: 0 };
        let found = decode(SHARD, &encode(&frame, std::slice::from_ref(&record)));
        assert_eq!(found.into_iter().map(|one| one.map(|one| one.content)).collect::<Vec<_>>(), [Ok(record.content)]);
    }

    #[test]
    fn a_newer_format_is_told_and_another_shard_s_message_is_damage() {
        let (frame, records) = messages().swap_remove(2);
        let mut message = encode(&frame, &records).to_vec();
        assert_eq!(decode(ShardId(8), &message.clone().into()), [Err(DecodeFailure::Damaged)]);
        message[6..8].copy_from_slice(&(FORMAT + 1).to_le_bytes());
        let crc = crc32c(&message[4..HEAD_BYTES]);
        message[..4].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(decode(SHARD, &message.into()), [Err(DecodeFailure::Newer(FORMAT + 1))]);
    }

    proptest! {
        #[test]
        fn no_flipped_bit_cut_or_addition_is_taken_for_what_was_written(
            which in 0..3_usize,
            at in any::<prop::sample::Index>(),
            bit in 0..8_u32,
        ) {
            let (frame, records) = messages().swap_remove(which);
            let whole = encode(&frame, &records);
            let mut flipped = whole.to_vec();
            flipped[at.index(whole.len())] ^= 1 << bit;
            let longer = [&whole[..], &[0]].concat();
            for broken in [Bytes::from(flipped), whole.slice(..at.index(whole.len())), longer.into()] {
                let found = decode(SHARD, &broken);
                let wrong = |found: &Result<EnvelopeRecord, DecodeFailure>| found.as_ref().map_or(true, |found| found.body.is_none());
                prop_assert!(found.iter().any(wrong));
                for (found, record) in found.into_iter().zip(&records) {
                    if let Ok(found) = found {
                        prop_assert!(found.frame == frame && found.content == record.content);
                        prop_assert!(found.body.is_none_or(|body| body == record.body));
                    }
                }
            }
        }
    }
}
