//! The bytes of a document's message, as docs/design/cluster-engine.md draws them. Pure.

use bytes::Bytes;

use crate::commit_format::{crc32c, u16_at, u32_at, u64_at};

/// The format version that this build writes.
const FORMAT: u16 = 1;
const MAGIC: [u8; 4] = *b"NGDC";
const HEAD_BYTES: usize = 40;
/// The most bytes of a value in a document's own message, and of a chunk of a longer value.
pub(super) const CHUNK_MAX_BYTES: usize = 512 << 10;
/// The most bytes of a value; a document with a longer length is damaged.
pub(super) const VALUE_MAX_BYTES: usize = 64 << 20;

const INLINE: u16 = 1;
const CHUNKED: u16 = 2;
const DELETED: u16 = 3;

/// The description of a value in chunks, which are right before the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) chunks: u32,
    pub(super) bytes: u64,
    crc: u32,
}

impl Head {
    /// True if a value of this length has this number of chunks.
    const fn is_possible(&self) -> bool {
        let (chunk, most) = (CHUNK_MAX_BYTES as u64, VALUE_MAX_BYTES as u64);
        chunk < self.bytes && self.bytes <= most && self.bytes.div_ceil(chunk) == self.chunks as u64
    }

    /// True if `value` has the described length and checksum.
    pub(super) fn is_of(&self, value: &[u8]) -> bool {
        value.len() as u64 == self.bytes && crc32c(value) == self.crc
    }
}

/// A document's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Document {
    Inline(Bytes),
    Chunked(Head),
    Deleted,
}

/// The message of a document with `value`, or of a deletion without one, and the chunks that are published before it.
/// `nonce` distinguishes messages with the same value.
pub(super) fn encode(value: Option<&[u8]>, nonce: u64) -> (Bytes, Vec<Bytes>) {
    let (kind, bytes) = match value {
        Some(value) if value.len() <= CHUNK_MAX_BYTES => (INLINE, value),
        Some(value) => (CHUNKED, value),
        None => (DELETED, &[][..]),
    };
    let chunks: Vec<Bytes> =
        if kind == CHUNKED { bytes.chunks(CHUNK_MAX_BYTES).map(Bytes::copy_from_slice).collect() } else { Vec::new() };
    let mut out = vec![0; 4];
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&FORMAT.to_le_bytes());
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&(chunks.len() as u32).to_le_bytes());
    out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
    out.extend_from_slice(&crc32c(bytes).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&nonce.to_le_bytes());
    let crc = crc32c(&out[4..]);
    out[..4].copy_from_slice(&crc.to_le_bytes());
    if kind == INLINE {
        out.extend_from_slice(bytes);
    }
    (out.into(), chunks)
}

/// Parses a document's message.
///
/// # Errors
/// Why it cannot be read.
pub(super) fn decode(message: &Bytes) -> Result<Document, String> {
    // An empty message is a deletion by an operator's `nats kv del`.
    if message.is_empty() {
        return Ok(Document::Deleted);
    }
    let damaged = || "it is not as it was written".to_owned();
    if message.len() < HEAD_BYTES || message[4..8] != MAGIC || u32_at(message, 0) != crc32c(&message[4..HEAD_BYTES]) {
        return Err(damaged());
    }
    let format = u16_at(message, 8);
    if format != FORMAT {
        return Err(format!("it has format {format}, and this build reads {FORMAT}: start the newer Nigh"));
    }
    let head = Head { chunks: u32_at(message, 12), bytes: u64_at(message, 16), crc: u32_at(message, 24) };
    let value = message.slice(HEAD_BYTES..);
    match u16_at(message, 10) {
        INLINE if head.is_of(&value) => Ok(Document::Inline(value)),
        CHUNKED if value.is_empty() && head.is_possible() => Ok(Document::Chunked(head)),
        DELETED if value.is_empty() => Ok(Document::Deleted),
        _ => Err(damaged()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_short_long_and_deleted() {
        let long = vec![7; CHUNK_MAX_BYTES + 1];
        for value in [&b""[..], b"short", &long[..CHUNK_MAX_BYTES]] {
            let (message, chunks) = encode(Some(value), 1);
            assert!(chunks.is_empty());
            assert_eq!(decode(&message), Ok(Document::Inline(Bytes::copy_from_slice(value))));
        }
        let (message, chunks) = encode(Some(&long), 1);
        let Ok(Document::Chunked(head)) = decode(&message) else { panic!("{message:?}") };
        assert_eq!((head.chunks, chunks.len()), (2, 2));
        assert!(head.is_of(&chunks.concat()) && !head.is_of(&long[1..]));
        assert_eq!(decode(&encode(None, 1).0), Ok(Document::Deleted));
        assert_eq!(decode(&Bytes::new()), Ok(Document::Deleted), "by NATS' own tool");
        assert_ne!(encode(None, 1), encode(None, 2));
    }

    #[test]
    fn a_length_that_no_document_has_is_not_believed() {
        let (message, _) = encode(Some(&vec![7; CHUNK_MAX_BYTES + 1]), 1);
        for (chunks, bytes) in [(2, u64::MAX), (u32::MAX, CHUNK_MAX_BYTES as u64 + 1), (1, 1), (0, 0)] {
            let mut claimed = message.to_vec();
            claimed[12..16].copy_from_slice(&u32::to_le_bytes(chunks));
            claimed[16..24].copy_from_slice(&u64::to_le_bytes(bytes));
            let crc = crc32c(&claimed[4..HEAD_BYTES]);
            claimed[..4].copy_from_slice(&crc.to_le_bytes());
            assert!(decode(&claimed.into()).is_err(), "{bytes} bytes in {chunks} chunks");
        }
    }

    #[test]
    fn a_flipped_bit_is_found_and_a_newer_format_told() {
        let (message, _) = encode(Some(b"short"), 1);
        for at in 0..message.len() {
            let mut flipped = message.to_vec();
            flipped[at] ^= 4;
            assert!(decode(&flipped.into()).is_err(), "{at}");
        }
        let mut newer = message.to_vec();
        newer[8] += 1;
        let crc = crc32c(&newer[4..HEAD_BYTES]);
        newer[..4].copy_from_slice(&crc.to_le_bytes());
        assert!(decode(&newer.into()).unwrap_err().contains("format 2"));
    }
}
