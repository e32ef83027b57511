//! Reads the files of a journal: the segments, their headers and their records, and which of them is the youngest.

use std::io;
use std::sync::Arc;

use super::JournalError;
use super::disk::{Folder, SegmentFile};
use super::format::{BadHeader, FORMAT, HEADER_BYTES, SECTOR, SegmentHeader};
use super::newest::{self, FoundNewest, NEWEST, NEWEST_FORMAT};
use super::recovery::SegmentFound;
use super::report::{Damage, DamageKind};
use super::scan::scan;

/// The prefix of segment files.
const PREFIX: &str = "segment-";

/// A segment file.
pub(super) struct FoundFile {
    pub(super) name: String,
    pub(super) number: u32,
    pub(super) file: Arc<dyn SegmentFile>,
    pub(super) header: SegmentHeader,
    /// True if the file is shorter than it was.
    pub(super) truncated: bool,
    /// True if a copy of its header is damaged or of an older format version.
    pub(super) uneven: bool,
}

/// The content of a journal's folder.
#[derive(Default)]
pub(super) struct FoundFiles {
    /// The files, in the order of their generations.
    pub(super) files: Vec<FoundFile>,
    /// The records of the files, in the same order.
    pub(super) segments: Vec<SegmentFound>,
    /// What the file `newest` says.
    pub(super) newest: FoundNewest,
    /// All damage except that of records.
    pub(super) damage: Vec<Damage>,
    /// Files that cannot be read.
    pub(super) unusable: Vec<String>,
    pub(super) last_number: u32,
    pub(super) bytes: u64,
}

/// The name of a segment.
pub(super) fn file_name(number: u32) -> String {
    format!("{PREFIX}{number:06}")
}

/// The number in a segment's name.
pub(super) fn number_of(name: &str) -> Option<u32> {
    let digits = name.strip_prefix(PREFIX)?;
    digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Reads all segments. With `fresh` it reads from the disk, so that everything read is durable.
pub(super) fn read(folder: &dyn Folder, fresh: bool) -> Result<FoundFiles, JournalError> {
    let io = |name: &str| {
        let name = name.to_owned();
        move |source: io::Error| JournalError::Io { what: "reading", file: name, source }
    };
    let mut found = FoundFiles::default();
    for name in folder.names().map_err(io("the folder"))? {
        let number = number_of(&name);
        if number.is_none() && name != NEWEST {
            continue;
        }
        let file = folder.open(&name).map_err(io(&name))?;
        if fresh {
            file.sync().map_err(io(&name))?;
            file.drop_cache();
        }
        let Some(number) = number else {
            found.newest = newest::read(file).map_err(io(&name))?.map_err(|format| JournalError::Newer {
                file: name.clone(),
                found: format,
                known: NEWEST_FORMAT,
            })?;
            if let Some((offset, kind)) = found.newest.damage.clone() {
                if kind == DamageKind::Header {
                    found.unusable.push(name.clone());
                }
                found.damage.push(Damage { file: name, offset, kind });
            }
            continue;
        };
        found.last_number = found.last_number.max(number);
        let length = file.bytes().map_err(io(&name))?;
        match headers(&*file, length).map_err(io(&name))? {
            Headers::Newer(format) => return Err(JournalError::Newer { file: name, found: format, known: FORMAT }),
            Headers::Damaged => {
                found.damage.push(Damage { file: name.clone(), offset: 0, kind: DamageKind::Header });
                found.unusable.push(name);
            }
            Headers::Whole { header, uneven, damaged } => {
                let truncated = length < u64::from(header.bytes);
                if truncated {
                    found.damage.push(Damage { file: name.clone(), offset: length, kind: DamageKind::Truncated });
                } else if let Some(offset) = damaged {
                    found.damage.push(Damage { file: name.clone(), offset, kind: DamageKind::HeaderCopy });
                }
                found.files.push(FoundFile { name, number, file, header, truncated, uneven });
            }
        }
    }
    found.files.sort_by_key(|file| (file.header.generation, file.number));
    let oldest = found.files.last().map_or(0, |newest| newest.header.oldest);
    let mut last = None;
    let (files, stray): (Vec<_>, Vec<_>) = std::mem::take(&mut found.files).into_iter().partition(|file| {
        let generation = file.header.generation;
        generation >= oldest && last.replace(generation) != Some(generation)
    });
    for FoundFile { name, .. } in stray {
        found.damage.push(Damage { file: name.clone(), offset: 0, kind: DamageKind::Stray });
        found.unusable.push(name);
    }
    let mut buffer = Vec::new();
    for FoundFile { name, file, header, .. } in &files {
        let length = file.bytes().map_err(io(name))?.min(u64::from(header.bytes));
        buffer.resize(length as usize, 0);
        file.read_at(&mut buffer, 0).map_err(io(name))?;
        found.bytes += length;
        found.segments.push(SegmentFound { file: name.clone(), header: *header, scan: scan(&buffer, header) });
    }
    found.files = files;
    Ok(found)
}

enum Headers {
    Whole { header: SegmentHeader, uneven: bool, damaged: Option<u64> },
    Damaged,
    Newer(u32),
}

/// The header from its two copies.
fn headers(file: &dyn SegmentFile, length: u64) -> io::Result<Headers> {
    let mut is_older = false;
    let mut at = |offset: u64| {
        let mut bytes = [0; HEADER_BYTES];
        if offset + HEADER_BYTES as u64 > length {
            return io::Result::Ok(Err(BadHeader::Damaged));
        }
        file.read_at(&mut bytes, offset)?;
        is_older |= SegmentHeader::is_older(&bytes);
        Ok(SegmentHeader::decode(&bytes))
    };
    let first = at(0)?;
    let end = first.map_or(length.saturating_sub(u64::from(SECTOR)), |header| u64::from(header.records_end()));
    let second = at(end)?;
    Ok(match (first, second) {
        (Ok(first), Ok(second)) => {
            // A crash came while the segment was reused, so its old records were not needed.
            let header = if second.generation > first.generation { second } else { first };
            Headers::Whole { header, uneven: is_older || first != second, damaged: None }
        }
        (Ok(header), Err(_)) => Headers::Whole { header, uneven: true, damaged: Some(end) },
        (Err(_), Ok(header)) => Headers::Whole { header, uneven: true, damaged: Some(0) },
        (Err(BadHeader::Newer(format)), Err(_)) | (Err(_), Err(BadHeader::Newer(format))) => Headers::Newer(format),
        (Err(BadHeader::Damaged), Err(BadHeader::Damaged)) => Headers::Damaged,
    })
}
