//! The bytes of a segment: its header and its records, as docs/design/journal.md draws them. Pure.
//!
//! A record's head (with its names and lists) and its body have a CRC-32C each, so a record with a damaged body still
//! names its object. Every head names the use of its file (generation, salt), its place, the record written before it,
//! and the place up to which everything was on the disk at that time: recovery needs no other source.

use nigh_terms::{Epoch, Version};

use crate::commit_format::{
    Commit, change_code, content_bytes, crc32c, decode_commit, encode_commit, encode_version, u32_at, u64_at,
    version_at,
};
use crate::ledger::{ABOUT_MAX_BYTES, PIECES_MAX, PieceId, Record};

/// The format version that this build writes; version 2 added records of transactions.
pub(super) const FORMAT: u32 = 2;
/// The oldest format version that this build reads. It writes only into segments of its own version.
const OLDEST_FORMAT: u32 = 1;
pub(super) const MAGIC: [u8; 8] = *b"NIGHJRNL";
/// The bytes that a disk writes atomically.
pub(super) const SECTOR: u32 = 512;
/// The place of the first record of a segment.
pub(super) const FIRST_RECORD: u32 = 4096;
/// The length of a segment's header, which is at the begin of its first and of its last sector.
pub(super) const HEADER_BYTES: usize = 64;
/// The length of the common part of all heads.
pub(super) const HEAD_BYTES: u32 = 64;
/// Records begin at multiples of this.
const ALIGN: u32 = 8;
/// The most versions in one notice of stored writes.
pub(super) const STORED_MAX: usize = 4000;
/// The longest head: the longest `about`, three names, the most pieces.
pub(super) const HEAD_MAX_BYTES: u32 = HEAD_BYTES + 64 + ABOUT_MAX_BYTES as u32 + 4096 + 16 * PIECES_MAX as u32;

const COMMIT: u8 = 1;
const PIECE: u8 = 2;
const STORED: u8 = 3;
const LIFE: u8 = 4;

/// The next place for a record at or after `offset`.
pub(super) const fn aligned(offset: u32) -> u32 {
    offset.next_multiple_of(ALIGN)
}

/// The next sector at or after `offset`.
pub(super) const fn next_sector(offset: u32) -> u32 {
    offset.next_multiple_of(SECTOR)
}

/// A place in the journal, in the order of writing: a generation and an offset in its segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Position(pub(super) u64);

impl Position {
    pub(super) const START: Self = Self(0);

    pub(super) const fn new(generation: u64, offset: u32) -> Self {
        Self(generation << 32 | offset as u64)
    }

    pub(super) const fn generation(self) -> u64 {
        self.0 >> 32
    }

    pub(super) const fn offset(self) -> u32 {
        self.0 as u32
    }
}

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    /// The number of this use of a file, counted over all files and never repeated.
    pub(super) generation: u64,
    /// A random number of this use, so that a client's bytes cannot pass for a record.
    pub(super) salt: u64,
    /// The oldest generation in use when this use began.
    pub(super) oldest: u64,
    /// The epoch at that time.
    pub(super) epoch: Epoch,
    /// The file's length.
    pub(super) bytes: u32,
}

/// Why a header is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadHeader {
    Damaged,
    Newer(u32),
}

impl SegmentHeader {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        out[16..24].copy_from_slice(&self.generation.to_le_bytes());
        out[24..32].copy_from_slice(&self.salt.to_le_bytes());
        out[32..40].copy_from_slice(&self.oldest.to_le_bytes());
        out[40..48].copy_from_slice(&self.epoch.0.to_le_bytes());
        out[48..52].copy_from_slice(&self.bytes.to_le_bytes());
        let crc = crc32c(&out[..60]);
        out[60..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, BadHeader> {
        let bytes = bytes.get(..HEADER_BYTES).ok_or(BadHeader::Damaged)?;
        if bytes[..8] != MAGIC {
            return Err(BadHeader::Damaged);
        }
        match u32_at(bytes, 8) {
            OLDEST_FORMAT..=FORMAT if u32_at(bytes, 60) == crc32c(&bytes[..60]) => {}
            format if format > FORMAT => return Err(BadHeader::Newer(format)),
            _ => return Err(BadHeader::Damaged),
        }
        let header = Self {
            generation: u64_at(bytes, 16),
            salt: u64_at(bytes, 24),
            oldest: u64_at(bytes, 32),
            epoch: Epoch(u64_at(bytes, 40)),
            bytes: u32_at(bytes, 48),
        };
        let possible = (1..=u64::from(u32::MAX)).contains(&header.generation) && header.bytes > FIRST_RECORD + SECTOR;
        if possible { Ok(header) } else { Err(BadHeader::Damaged) }
    }

    /// True if the header has an older format version.
    pub(super) fn is_older(bytes: &[u8]) -> bool {
        bytes.len() >= HEADER_BYTES && u32_at(bytes, 8) < FORMAT
    }

    /// The offset in bytes at which the records end. The last sector of the file has the second copy of the header.
    pub(super) const fn records_end(&self) -> u32 {
        self.bytes - SECTOR
    }
}

/// The common part of all heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) salt: u64,
    pub(super) position: Position,
    /// The epoch that wrote the record.
    pub(super) life: Epoch,
    /// The record written before it.
    pub(super) previous: Position,
    /// The place up to which everything was on the disk when the record was written.
    pub(super) durable: Position,
}

/// The content of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// A write. Its body is the record's, or that of the named pieces.
    Commit(Box<Commit>),
    /// A piece; the record's body.
    Piece(PieceId),
    /// The store has these versions.
    Stored(Vec<Version>),
    /// An epoch begins: records between the named predecessor and this one were never acknowledged. Within an epoch it is an
    /// end mark, which follows its predecessor: nothing is between them.
    Life,
}

/// The content of a record to write.
#[derive(Clone, Copy, Debug)]
pub(super) enum ContentRef<'a> {
    Commit(&'a Commit),
    Piece(PieceId),
    Stored(&'a [Version]),
    Life,
}

/// A record's body beside its head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BodyRef {
    pub(super) bytes: u32,
    pub(super) crc: u32,
}

/// A record whose head is whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DecodedRecord {
    pub(super) frame: Frame,
    pub(super) head_bytes: u32,
    pub(super) body: BodyRef,
    pub(super) content: Content,
}

impl DecodedRecord {
    /// Where the record ends.
    pub(super) const fn end(&self) -> u32 {
        self.frame.position.offset() + self.head_bytes + self.body.bytes
    }
}

/// The bytes that a head with `content` takes.
pub(super) fn head_bytes(content: ContentRef<'_>) -> u32 {
    let own = match content {
        ContentRef::Commit(commit) => return commit_bytes(&commit.record, commit.pieces.len()),
        ContentRef::Piece(_) => 8,
        ContentRef::Stored(versions) => 16 * versions.len(),
        ContentRef::Life => 0,
    };
    aligned(HEAD_BYTES + own as u32)
}

/// The bytes that the head of a commit takes.
pub(super) fn commit_bytes(record: &Record, pieces: usize) -> u32 {
    aligned(HEAD_BYTES + content_bytes(record, pieces) as u32)
}

/// Appends a head to `out`; its body follows it on the disk.
pub(super) fn encode(out: &mut Vec<u8>, frame: &Frame, content: ContentRef<'_>, body: BodyRef) {
    let start = out.len();
    let (kind, change) = match content {
        ContentRef::Commit(commit) => (COMMIT, change_code(&commit.record.change)),
        ContentRef::Piece(_) => (PIECE, 0),
        ContentRef::Stored(_) => (STORED, 0),
        ContentRef::Life => (LIFE, 0),
    };
    out.resize(start + HEAD_BYTES as usize, 0);
    out[start + 4] = kind;
    out[start + 5] = change;
    out[start + 36..start + 40].copy_from_slice(&head_bytes(content).to_le_bytes());
    out[start + 40..start + 44].copy_from_slice(&body.bytes.to_le_bytes());
    out[start + 44..start + 48].copy_from_slice(&body.crc.to_le_bytes());
    match content {
        ContentRef::Commit(commit) => encode_commit(out, commit),
        ContentRef::Piece(id) => out.extend_from_slice(&id.0.to_le_bytes()),
        ContentRef::Stored(versions) => versions.iter().for_each(|version| encode_version(out, *version)),
        ContentRef::Life => {}
    }
    out.resize(start + head_bytes(content) as usize, 0);
    set_frame(&mut out[start..], frame);
}

/// Writes the place, the predecessor and the checksum into `head`.
fn set_frame(head: &mut [u8], frame: &Frame) {
    head[8..16].copy_from_slice(&frame.position.generation().to_le_bytes());
    head[16..24].copy_from_slice(&frame.salt.to_le_bytes());
    head[24..32].copy_from_slice(&frame.life.0.to_le_bytes());
    head[32..36].copy_from_slice(&frame.position.offset().to_le_bytes());
    head[48..56].copy_from_slice(&frame.previous.0.to_le_bytes());
    head[56..64].copy_from_slice(&frame.durable.0.to_le_bytes());
    let crc = crc32c(&head[4..]);
    head[..4].copy_from_slice(&crc.to_le_bytes());
}

/// True if `head` is the complete head of the record at `position`.
pub(super) fn is_head(head: &[u8], position: Position) -> bool {
    head.len() >= HEAD_BYTES as usize
        && u64_at(head, 8) == position.generation()
        && u32_at(head, 32) == position.offset()
        && u32_at(head, 36) as usize == head.len()
        && u32_at(head, 0) == crc32c(&head[4..])
}

/// Appends a copy of a head to `out`, for its new place.
pub(super) fn encode_copy(out: &mut Vec<u8>, frame: &Frame, head: &[u8]) {
    let start = out.len();
    out.extend_from_slice(head);
    set_frame(&mut out[start..], frame);
}

/// True if a record of this generation and salt seems to begin at `offset`.
pub(super) fn begins(segment: &[u8], header: &SegmentHeader, offset: u32) -> bool {
    let at = offset as usize;
    segment.len().min(header.records_end() as usize) >= at + HEAD_BYTES as usize
        && (u64_at(segment, at + 16) == header.salt || u64_at(segment, at + 8) == header.generation)
}

/// The record at `offset` of `segment`; none if its head is damaged or belongs elsewhere.
pub(super) fn decode(segment: &[u8], header: &SegmentHeader, offset: u32) -> Option<DecodedRecord> {
    let end = segment.len().min(header.records_end() as usize);
    let head = segment.get(offset as usize..end)?;
    if head.len() < HEAD_BYTES as usize
        || u64_at(head, 8) != header.generation
        || u64_at(head, 16) != header.salt
        || u32_at(head, 32) != offset
    {
        return None;
    }
    let bytes = u32_at(head, 36);
    if !(HEAD_BYTES..=HEAD_MAX_BYTES).contains(&bytes) || !bytes.is_multiple_of(ALIGN) {
        return None;
    }
    let body = BodyRef { bytes: u32_at(head, 40), crc: u32_at(head, 44) };
    // A body that a truncated file lacks is damaged. A body beyond the segment's end means that there is no record.
    if u64::from(offset) + u64::from(bytes) + u64::from(body.bytes) > u64::from(header.records_end()) {
        return None;
    }
    let head = head.get(..bytes as usize)?;
    if u32_at(head, 0) != crc32c(&head[4..]) {
        return None;
    }
    let own = &head[HEAD_BYTES as usize..];
    let content = match (head[4], head[5]) {
        (COMMIT, change) => Content::Commit(Box::new(decode_commit(own, change, PIECES_MAX)?)),
        (PIECE, 0) => Content::Piece(PieceId(u64_at(own.get(..8)?, 0))),
        (STORED, 0) => Content::Stored(own.chunks_exact(16).map(|pair| version_at(pair, 0)).collect()),
        (LIFE, 0) => Content::Life,
        _ => return None,
    };
    let frame = Frame {
        salt: header.salt,
        position: Position::new(header.generation, offset),
        life: Epoch(u64_at(head, 24)),
        previous: Position(u64_at(head, 48)),
        durable: Position(u64_at(head, 56)),
    };
    Some(DecodedRecord { frame, head_bytes: bytes, body, content })
}
