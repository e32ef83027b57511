//! The format of an object's file: payload, metadata and footer in one file, so that one rename commits all three. Pure.
//!
//! ```text
//! offset          bytes  content (integers little-endian)
//! 0               P      payload: the object's bytes, as they are
//! P               M      metadata: JSON {"key": ..., "meta": ...}
//! P + M           8      P
//! P + M +  8      4      M, at most METADATA_MAX
//! P + M + 12      4      CRC-32C of the metadata
//! P + M + 16      8      CRC-64/NVME of the payload, 0 if flag bit 0 is clear
//! P + M + 24      2      format version, 1
//! P + M + 26      2      flags: bit 0 = the payload's CRC is known; the others are 0
//! P + M + 28      4      CRC-32C of the footer's first 28 bytes
//! P + M + 32      8      magic "NIGHOBJ\n"
//! P + M + 40             end of file
//! ```
//!
//! The footer is last, so that a spooled upload becomes an object by appending to its file. A file whose lengths, checksums
//! or key do not agree is rejected as a whole.

use crc_fast::CrcAlgorithm;
use nigh_data::ObjectMeta;
use nigh_terms::ObjectKey;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The footer's length in bytes.
pub const FOOTER: usize = 40;
/// The longest metadata in bytes: 10,000 part lengths, the checksums of parts (32 KiB of base64), 2 KiB of user metadata
/// and ten tags fit.
pub const METADATA_MAX: usize = 256 * 1024;

const MAGIC: &[u8; 8] = b"NIGHOBJ\n";
const VERSION: u16 = 1;
const FLAG_PAYLOAD_CRC: u16 = 1;

/// Why a file is not a valid object.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "each message says what the fields hold")]
pub enum FormatError {
    #[error("has {length} bytes, fewer than a footer; it was cut off")]
    Short { length: u64 },
    #[error("does not end in an object's footer; it was cut off or is not an object")]
    Magic,
    #[error("has format version {found}, this build reads {VERSION}; start the newer nigh that wrote it")]
    Version { found: u16 },
    #[error("{part} does not match its checksum; the file is corrupt")]
    Checksum { part: &'static str },
    #[error("the footer says {told} bytes, but the file has {length}; it was cut off or extended")]
    Length { told: u64, length: u64 },
    #[error("the metadata would have {length} bytes, more than {METADATA_MAX}")]
    MetadataTooLong { length: u64 },
    #[error("the metadata cannot be read: {reason}")]
    Metadata { reason: String },
    #[error("contains the object {found:?}, which belongs at another path")]
    WrongKey { found: String },
}

/// The content of a footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    /// The payload's length in bytes.
    pub payload: u64,
    /// The metadata's length in bytes.
    pub metadata: u32,
    /// The metadata's CRC-32C.
    pub metadata_crc: u32,
    /// The payload's CRC-64/NVME. None if the writer did not see the bytes.
    pub payload_crc: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct Record {
    key: ObjectKey,
    meta: ObjectMeta,
}

/// The bytes behind the payload: metadata and footer.
///
/// # Errors
/// If the metadata is longer than `METADATA_MAX`.
pub fn encode_tail(key: &ObjectKey, meta: &ObjectMeta, payload_crc: Option<u64>) -> Result<Vec<u8>, FormatError> {
    let record = Record { key: key.clone(), meta: meta.clone() };
    let mut tail = serde_json::to_vec(&record).map_err(|e| FormatError::Metadata { reason: e.to_string() })?;
    if tail.len() > METADATA_MAX {
        return Err(FormatError::MetadataTooLong { length: tail.len() as u64 });
    }
    let footer = Footer { payload: meta.size, metadata: tail.len() as u32, metadata_crc: crc32c(&tail), payload_crc };
    tail.extend_from_slice(&footer.encode());
    Ok(tail)
}

/// Reads a footer from the last `FOOTER` bytes of a file of `length` bytes.
///
/// # Errors
/// The first part of the footer that is invalid.
pub fn parse_footer(bytes: &[u8; FOOTER], length: u64) -> Result<Footer, FormatError> {
    let word = |at: usize| bytes[at..at + 8].iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte));
    let half = |at: usize| word(at) as u32;
    if &bytes[32..] != MAGIC {
        return Err(FormatError::Magic);
    }
    if half(28) != crc32c(&bytes[..28]) {
        return Err(FormatError::Checksum { part: "the footer" });
    }
    let version = half(24) as u16;
    if version != VERSION {
        return Err(FormatError::Version { found: version });
    }
    let flags = u16::from_le_bytes([bytes[26], bytes[27]]);
    let footer = Footer {
        payload: word(0),
        metadata: half(8),
        metadata_crc: half(12),
        payload_crc: (flags & FLAG_PAYLOAD_CRC != 0).then(|| word(16)),
    };
    if footer.metadata as usize > METADATA_MAX {
        return Err(FormatError::MetadataTooLong { length: footer.metadata.into() });
    }
    let told = footer.payload.saturating_add(footer.tail() as u64);
    if told != length {
        return Err(FormatError::Length { told, length });
    }
    Ok(footer)
}

impl Footer {
    /// The bytes of metadata and footer together.
    #[must_use]
    pub const fn tail(&self) -> usize {
        self.metadata as usize + FOOTER
    }

    /// Parses the metadata that this footer describes. `key` is the object's key according to the file's name.
    ///
    /// # Errors
    /// If the bytes do not match their checksum, are not metadata, or belong to another object.
    pub fn parse_metadata(&self, bytes: &[u8], key: &ObjectKey) -> Result<ObjectMeta, FormatError> {
        let record = self.parse_record(bytes)?;
        if record.key != *key {
            return Err(FormatError::WrongKey { found: record.key.as_str().chars().take(64).collect() });
        }
        Ok(record.meta)
    }

    /// Parses the key of the object that the metadata describes, for a file that has no name yet.
    ///
    /// # Errors
    /// If the bytes do not match their checksum, or are not metadata.
    pub fn parse_key(&self, bytes: &[u8]) -> Result<ObjectKey, FormatError> {
        self.parse_record(bytes).map(|record| record.key)
    }

    fn parse_record(&self, bytes: &[u8]) -> Result<Record, FormatError> {
        if bytes.len() != self.metadata as usize || crc32c(bytes) != self.metadata_crc {
            return Err(FormatError::Checksum { part: "the metadata" });
        }
        let record: Record =
            serde_json::from_slice(bytes).map_err(|e| FormatError::Metadata { reason: e.to_string() })?;
        if record.meta.size != self.payload {
            return Err(FormatError::Length { told: record.meta.size, length: self.payload });
        }
        Ok(record)
    }

    fn encode(&self) -> [u8; FOOTER] {
        let mut bytes = [0; FOOTER];
        bytes[..8].copy_from_slice(&self.payload.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.metadata.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.metadata_crc.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.payload_crc.unwrap_or_default().to_le_bytes());
        bytes[24..26].copy_from_slice(&VERSION.to_le_bytes());
        let flags = if self.payload_crc.is_some() { FLAG_PAYLOAD_CRC } else { 0 };
        bytes[26..28].copy_from_slice(&flags.to_le_bytes());
        let crc = crc32c(&bytes[..28]);
        bytes[28..32].copy_from_slice(&crc.to_le_bytes());
        bytes[32..].copy_from_slice(MAGIC);
        bytes
    }
}

/// Parses a whole file at once, for a fuzzer and for inspection.
///
/// # Errors
/// The first part that is invalid, including a payload that does not match its checksum.
pub fn parse_file<'a>(file: &'a [u8], key: &ObjectKey) -> Result<(&'a [u8], ObjectMeta), FormatError> {
    let length = file.len() as u64;
    let Some((rest, footer)) = file.split_last_chunk::<FOOTER>() else {
        return Err(FormatError::Short { length });
    };
    let footer = parse_footer(footer, length)?;
    let (payload, metadata) = rest.split_at(rest.len() - footer.metadata as usize);
    let meta = footer.parse_metadata(metadata, key)?;
    if footer.payload_crc.is_some_and(|crc| crc != crc64(payload)) {
        return Err(FormatError::Checksum { part: "the payload" });
    }
    Ok((payload, meta))
}

fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// The CRC-64/NVME of a payload.
#[must_use]
pub fn crc64(bytes: &[u8]) -> u64 {
    crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes)
}

#[cfg(test)]
mod tests {
    use nigh_terms::{Timestamp, Token, Version};
    use proptest::prelude::*;

    use super::*;
    use nigh_data::{Attributes, Checksum, ChecksumAlgorithm, ETag, PartChecksums};

    fn key() -> ObjectKey {
        ObjectKey::new("a/key").unwrap()
    }

    fn meta(size: u64) -> ObjectMeta {
        ObjectMeta {
            size,
            etag: ETag("0".repeat(32)),
            modified: Timestamp(1_700_000_000_123),
            attributes: Attributes { content_type: Some("text/plain".to_owned()), ..Attributes::default() },
            tags: [("k".to_owned(), "v".to_owned())].into(),
            checksums: Vec::new(),
            parts: vec![size],
            version: Version::OUTSIDE,
            token: Token::empty(),
        }
    }

    /// A checksum of `count` parts' SHA-256, with those of the parts.
    fn composite(count: usize) -> Checksum {
        let whole = ChecksumAlgorithm::Sha256.checksum(&[7; 32]);
        let parts = PartChecksums::new(&vec![vec![9; 32]; count]);
        Checksum { algorithm: whole.algorithm, value: format!("{}-{count}", whole.value), parts }
    }

    fn file(payload: &[u8], crc: bool) -> Vec<u8> {
        let tail = encode_tail(&key(), &meta(payload.len() as u64), crc.then(|| crc64(payload))).unwrap();
        [payload, &tail].concat()
    }

    #[test]
    fn a_file_gives_back_what_went_in() {
        for payload in [&b""[..], b"x", &[7; 5000]] {
            for crc in [true, false] {
                let file = file(payload, crc);
                assert_eq!(parse_file(&file, &key()).unwrap(), (payload, meta(payload.len() as u64)));
            }
        }
    }

    #[test]
    fn a_file_of_another_format_version_says_so() {
        let mut newer = file(b"x", true);
        let at = newer.len() - FOOTER;
        newer[at + 24] = 2;
        let crc = crc32c(&newer[at..at + 28]).to_le_bytes();
        newer[at + 28..at + 32].copy_from_slice(&crc);
        assert_eq!(parse_file(&newer, &key()), Err(FormatError::Version { found: 2 }));
    }

    #[test]
    fn the_checksums_of_parts_come_back_and_files_without_them_are_read() {
        let with_parts = ObjectMeta { parts: vec![3, 4], checksums: vec![composite(2)], ..meta(7) };
        let tail = encode_tail(&key(), &with_parts, None).unwrap();
        let file = [&b"payload"[..], &tail].concat();
        assert_eq!(parse_file(&file, &key()).unwrap().1, with_parts);
        // What builds write and read that do not know the checksums of parts.
        #[derive(Deserialize)]
        struct Old {
            algorithm: ChecksumAlgorithm,
            value: String,
        }
        let old: Old = serde_json::from_value(serde_json::to_value(composite(2)).unwrap()).unwrap();
        assert_eq!((old.algorithm, &old.value), (ChecksumAlgorithm::Sha256, &composite(2).value));
        let text = format!(r#"{{"algorithm":"Sha256","value":"{}"}}"#, old.value);
        let read: Checksum = serde_json::from_str(&text).unwrap();
        assert_eq!(read, composite(2).without_parts());
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
    }

    #[test]
    fn a_file_under_another_keys_name_is_refused() {
        let other = ObjectKey::new("another").unwrap();
        assert!(matches!(parse_file(&file(b"x", true), &other), Err(FormatError::WrongKey { .. })));
    }

    #[test]
    fn metadata_has_a_limit() {
        let mut long = meta(0);
        long.attributes.user.insert("k".to_owned(), "v".repeat(METADATA_MAX));
        assert!(matches!(encode_tail(&key(), &long, None), Err(FormatError::MetadataTooLong { .. })));
        long.attributes.user.clear();
        long.parts = vec![5 << 30; 10_000];
        long.checksums = vec![composite(10_000)];
        assert!(encode_tail(&key(), &long, None).is_ok());
    }

    proptest! {
        #[test]
        fn every_cut_is_noticed(payload in proptest::collection::vec(any::<u8>(), 0..200), part in 0.0..1.0f64) {
            let file = file(&payload, false);
            let cut = (file.len() as f64 * part) as usize;
            prop_assert!(parse_file(&file[..cut], &key()).is_err());
        }

        #[test]
        fn every_flipped_bit_is_noticed(payload in proptest::collection::vec(any::<u8>(), 0..200), at in any::<prop::sample::Index>(), bit in 0..8u8) {
            let mut file = file(&payload, true);
            let at = at.index(file.len());
            file[at] ^= 1 << bit;
            prop_assert!(parse_file(&file, &key()).is_err());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(parse_file(&bytes, &key()).is_err());
        }
    }
}
