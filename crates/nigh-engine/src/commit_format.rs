//! The encoding of a write in a ledger's record: its version, its names, its pieces, and the writer's own data. All
//! engines share it, each within a format of its own. Pure.

use bytes::Bytes;
use nigh_terms::{BucketName, Epoch, Namespace, ObjectKey, Sequence, ShardId, Version};

use crate::ledger::{ABOUT_MAX_BYTES, Change, PieceId, Record, RequestId};

/// The CRC-32C (Castagnoli) of `bytes`.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// A piece, as a commit names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PieceRef {
    pub(crate) id: PieceId,
    pub(crate) bytes: u32,
    pub(crate) crc: u32,
}

/// A write, as a record holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) shard: ShardId,
    pub(crate) version: Version,
    pub(crate) record: Record,
    pub(crate) pieces: Vec<PieceRef>,
}

/// The code of a change in a record's head.
pub(crate) const fn change_code(change: &Change) -> u8 {
    match change {
        Change::Put { .. } => 1,
        Change::Delete { .. } => 2,
        Change::Amend { .. } => 3,
        Change::Fence { .. } => 4,
        Change::Transaction { .. } => 5,
    }
}

/// The length of a commit of `record` with this number of pieces.
pub(crate) fn content_bytes(record: &Record, pieces: usize) -> usize {
    let names = record.namespace.as_str().len() + record.bucket.as_str().len() + record.key.as_str().len();
    48 + names + record.change.about().len() + 16 * pieces
}

pub(crate) fn encode_version(out: &mut Vec<u8>, version: Version) {
    out.extend_from_slice(&version.epoch.0.to_le_bytes());
    out.extend_from_slice(&version.sequence.0.to_le_bytes());
}

/// Appends a commit to `out`.
pub(crate) fn encode_commit(out: &mut Vec<u8>, commit: &Commit) {
    let Commit { shard, version, record, pieces } = commit;
    let (namespace, bucket, key) = (record.namespace.as_str(), record.bucket.as_str(), record.key.as_str());
    encode_version(out, *version);
    out.extend_from_slice(&record.request.0.to_le_bytes());
    out.extend_from_slice(&shard.0.to_le_bytes());
    for name in [namespace, bucket, key] {
        out.extend_from_slice(&(name.len() as u16).to_le_bytes());
    }
    out.extend_from_slice(&(record.change.about().len() as u32).to_le_bytes());
    out.extend_from_slice(&(pieces.len() as u32).to_le_bytes());
    for piece in pieces {
        out.extend_from_slice(&piece.id.0.to_le_bytes());
        out.extend_from_slice(&piece.bytes.to_le_bytes());
        out.extend_from_slice(&piece.crc.to_le_bytes());
    }
    for name in [namespace, bucket, key] {
        out.extend_from_slice(name.as_bytes());
    }
    out.extend_from_slice(record.change.about());
}

/// Decodes the commit at the beginning of `own`; the head has the code `change`. None if it is damaged, or names more
/// than `pieces_max` pieces.
pub(crate) fn decode_commit(own: &[u8], change: u8, pieces_max: usize) -> Option<Commit> {
    let fixed = own.get(..48)?;
    let version = version_at(fixed, 0);
    let request = RequestId(u128::from(u64_at(fixed, 16)) | u128::from(u64_at(fixed, 24)) << 64);
    let lengths = [34, 36, 38].map(|at| usize::from(u16_at(fixed, at)));
    let about = u32_at(fixed, 40) as usize;
    let count = u32_at(fixed, 44) as usize;
    if count > pieces_max || about > ABOUT_MAX_BYTES {
        return None;
    }
    let (list, mut rest) = own[48..].split_at_checked(16 * count)?;
    let pieces = list
        .chunks_exact(16)
        .map(|one| PieceRef { id: PieceId(u64_at(one, 0)), bytes: u32_at(one, 8), crc: u32_at(one, 12) })
        .collect();
    let mut take = |length: usize| {
        let (taken, left) = rest.split_at_checked(length)?;
        rest = left;
        Some(taken)
    };
    let namespace = Namespace::new(std::str::from_utf8(take(lengths[0])?).ok()?).ok()?;
    let bucket = BucketName::new(std::str::from_utf8(take(lengths[1])?).ok()?).ok()?;
    let key = ObjectKey::new(std::str::from_utf8(take(lengths[2])?).ok()?).ok()?;
    let about = Bytes::copy_from_slice(take(about)?);
    let change = match change {
        1 => Change::Put { about },
        2 => Change::Delete { about },
        3 => Change::Amend { about },
        4 => Change::Fence { about },
        5 => Change::Transaction { about },
        _ => return None,
    };
    let record = Record { request, namespace, bucket, key, change };
    Some(Commit { shard: ShardId(u16_at(fixed, 32)), version, record, pieces })
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

pub(crate) fn version_at(bytes: &[u8], at: usize) -> Version {
    Version { epoch: Epoch(u64_at(bytes, at)), sequence: Sequence(u64_at(bytes, at + 8)) }
}
