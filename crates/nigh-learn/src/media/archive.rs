//! Archives and packed files: entries, and the bytes that they say they unpack to. Nothing is unpacked.

use zip::ZipArchive;

use super::facts::Facts;
use super::window::{ObjectHead, Stop};

/// Entries of a tar that are counted; more are taken in proportion.
const ENTRIES_MAX: u64 = 4096;
/// A block of tar.
const BLOCK: u64 = 512;

/// The central directory, which stands at the end.
pub(super) fn zip(object: &ObjectHead<'_>, facts: &mut Facts) -> Result<(), Stop> {
    facts.word("in_format", "zip");
    let mut reader = object.reader();
    if let Ok(archive) = ZipArchive::new(&mut reader) {
        facts.count("in_entries", archive.len() as u64);
        if let Some(bytes) = archive.decompressed_size() {
            facts.number("in_decoded_bytes", bytes as f64);
        }
        return Ok(());
    }
    reader.end()
}

/// The header of each file (POSIX.1, ustar), as far as they are at hand.
pub(super) fn tar(object: &ObjectHead<'_>, facts: &mut Facts) -> Result<(), Stop> {
    facts.word("in_format", "tar");
    let (mut at, mut entries, mut bytes) = (0, 0, 0_f64);
    while at + BLOCK <= object.size && entries < ENTRIES_MAX {
        let Ok(header) = object.bytes(at, BLOCK) else { break };
        // Two empty blocks end it.
        if header.iter().all(|byte| *byte == 0) {
            at = object.size;
            break;
        }
        let digits = std::str::from_utf8(&header[124..136]).map_err(|_| Stop::Nonsense)?;
        let length = u64::from_str_radix(digits.trim_matches(['\0', ' ']), 8).map_err(|_| Stop::Nonsense)?;
        // What describes another entry is none.
        if !matches!(header[156], b'x' | b'g' | b'L' | b'K') {
            entries += 1;
            bytes += length as f64;
        }
        at += BLOCK + length.next_multiple_of(BLOCK);
    }
    let scale = if at == 0 || at >= object.size { 1.0 } else { object.size as f64 / at as f64 };
    facts.number("in_entries", (entries as f64 * scale).round());
    facts.number("in_decoded_bytes", (bytes * scale).round());
    Ok(())
}

/// RFC 1952: the last four bytes are the length before packing, modulo 2^32.
pub(super) fn gzip(object: &ObjectHead<'_>, facts: &mut Facts) -> Result<(), Stop> {
    facts.word("in_format", "gzip");
    let length = object.le32(object.size.checked_sub(4).ok_or(Stop::Nonsense)?)?;
    facts.count("in_decoded_bytes", length);
    Ok(())
}

/// RFC 8878, 3.1.1: the frame's header may say how much it unpacks to.
pub(super) fn zstd(object: &ObjectHead<'_>, facts: &mut Facts) -> Result<(), Stop> {
    facts.word("in_format", "zstd");
    let descriptor = object.byte(4)?;
    let is_single = descriptor & 0x20 != 0;
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let at = 5 + u64::from(!is_single) + dictionary;
    let length = match descriptor >> 6 {
        0 if is_single => object.byte(at)?.into(),
        0 => return Ok(()),
        1 => object.le16(at)? + 256,
        2 => object.le32(at)?,
        _ => u64::from_le_bytes(object.array(at)?),
    };
    facts.count("in_decoded_bytes", length);
    Ok(())
}
