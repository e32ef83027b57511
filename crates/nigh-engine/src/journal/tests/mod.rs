//! The journal on a disk that cuts, tears and fails.

mod crash;
mod damage;
mod faults;
mod fixture;
mod image;
mod interleavings;
mod limits;
mod model;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nigh_terms::{BucketName, ByteSize, Epoch, Namespace, ObjectKey, ShardId, Version};

use self::image::MemoryFolder;
use super::open::JournalOpenOptions;
use super::shared::Limits;
use super::writer::END_MARK_DELAY;
use super::{
    InspectedRecord, Journal, JournalError, JournalInspection, JournalRecovery, JournalSettings, OnDamage,
    RecoveredRecord, inspect,
};
use crate::ledger::{
    ABOUT_MAX_BYTES, AppendResult, Body, Change, Ledger as _, LedgerError, PIECE_MAX_BYTES, Record, RequestId,
};

const SHARD: ShardId = ShardId(3);
/// A small segment: a few dozen writes reuse them all.
const SEGMENT: u32 = 32 << 10;

fn opening(segment_bytes: u32, files_max: u32) -> JournalOpenOptions {
    JournalOpenOptions {
        limits: Limits::new(segment_bytes, files_max),
        epoch_min: Epoch(1),
        on_damage: OnDamage::Refuse,
        salt: rand::random,
        end_mark_delay: END_MARK_DELAY,
    }
}

fn open(folder: &Arc<MemoryFolder>, files_max: u32) -> Result<(Journal, JournalRecovery), JournalError> {
    Journal::open_in(Arc::clone(folder) as _, &opening(SEGMENT, files_max))
}

fn record(request: u128, key: &str, change: Change) -> Record {
    Record {
        request: RequestId(request),
        namespace: Namespace::new("tenant").unwrap(),
        bucket: BucketName::new("bucket").unwrap(),
        key: ObjectKey::new(key).unwrap(),
        change,
    }
}

fn put(request: u128, key: &str) -> Record {
    record(request, key, Change::Put { about: Bytes::from(format!("about {request}")) })
}

/// Bytes that differ between seeds, and between offsets.
fn content(seed: u128, bytes: usize) -> Bytes {
    let mut state = seed as u64 | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..bytes).map(|_| next()).collect::<Vec<u8>>().into()
}

async fn append(journal: &Journal, record: Record, body: Bytes) -> Result<AppendResult, LedgerError> {
    journal.append(SHARD, record, Body::Inline(body)).await
}

/// Appends with `body` in pieces of this many bytes.
async fn append_pieces(
    journal: &Journal,
    record: Record,
    body: Bytes,
    piece: usize,
) -> Result<AppendResult, LedgerError> {
    let mut staged = Vec::new();
    let mut left = body;
    while !left.is_empty() {
        staged.push(journal.stage(SHARD, left.split_to(piece.min(left.len()))).await?);
    }
    journal.append(SHARD, record, Body::Staged(staged)).await
}

/// Reads the whole body of a record.
async fn read(journal: &Journal, version: Version) -> Result<Bytes, LedgerError> {
    let mut whole = Vec::new();
    loop {
        let part = journal.read(SHARD, version, whole.len() as u64).await?;
        if part.is_empty() {
            return Ok(whole.into());
        }
        whole.extend_from_slice(&part);
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}
