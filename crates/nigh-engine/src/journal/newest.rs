//! The file `newest`, which names the youngest segment that may have records. A segment names the older ones alone, so
//! without this file nobody would notice that the youngest one is missing.
//!
//! It is written before a segment is used, by the thread that prepares segments: no commit waits for it. Journals of older
//! builds do not have it; then the youngest segment is unknown until this build has opened the journal once.

use std::io::{self, IoSlice};
use std::sync::Arc;

use super::disk::{Folder, SegmentFile};
use super::format::SECTOR;
use super::prepare::UNFINISHED;
use super::report::DamageKind;
use crate::commit_format::{crc32c, u32_at, u64_at};

/// The name of the file.
pub(super) const NEWEST: &str = "newest";
/// The format that this build writes and reads.
pub(super) const NEWEST_FORMAT: u32 = 1;
const MAGIC: [u8; 8] = *b"NIGHLAST";
/// The bytes of a copy.
const COPY_BYTES: usize = 32;
/// Where the two copies are: a crash tears no sector.
const COPIES: [u64; 2] = [0, SECTOR as u64];
const FILE_BYTES: usize = 2 * SECTOR as usize;

/// The file as it was found.
#[derive(Default)]
pub(super) struct FoundNewest {
    /// None if it is not there, or unreadable.
    pub(super) file: Option<Arc<dyn SegmentFile>>,
    /// The youngest generation that may have records; 0: unknown.
    pub(super) generation: u64,
    /// What is damaged, and where.
    pub(super) damage: Option<(u64, DamageKind)>,
}

/// Why a copy is not valid.
enum BadCopy {
    Damaged,
    Newer(u32),
}

fn encode(generation: u64) -> [u8; COPY_BYTES] {
    let mut out = [0; COPY_BYTES];
    out[..8].copy_from_slice(&MAGIC);
    out[8..12].copy_from_slice(&NEWEST_FORMAT.to_le_bytes());
    out[16..24].copy_from_slice(&generation.to_le_bytes());
    let crc = crc32c(&out[..28]);
    out[28..].copy_from_slice(&crc.to_le_bytes());
    out
}

fn decode(bytes: &[u8; COPY_BYTES]) -> Result<u64, BadCopy> {
    if bytes[..8] != MAGIC {
        return Err(BadCopy::Damaged);
    }
    match u32_at(bytes, 8) {
        NEWEST_FORMAT if u32_at(bytes, 28) == crc32c(&bytes[..28]) => Ok(u64_at(bytes, 16)),
        format if format > NEWEST_FORMAT => Err(BadCopy::Newer(format)),
        _ => Err(BadCopy::Damaged),
    }
}

/// Reads the file. The error is the format of a newer build.
pub(super) fn read(file: Arc<dyn SegmentFile>) -> io::Result<Result<FoundNewest, u32>> {
    let length = file.bytes()?;
    let mut copies = Vec::with_capacity(COPIES.len());
    for at in COPIES {
        let mut bytes = [0; COPY_BYTES];
        // A copy that a cut file lacks is as damaged as one with other bytes.
        if at + COPY_BYTES as u64 <= length {
            file.read_at(&mut bytes, at)?;
        }
        copies.push((at, decode(&bytes)));
    }
    let newer = copies.iter().find_map(|(_, copy)| match copy {
        Err(BadCopy::Newer(format)) => Some(*format),
        _ => None,
    });
    let damaged = copies.iter().find(|(_, copy)| copy.is_err()).map(|(at, _)| *at);
    // A crash may have come between the two: the younger one counts.
    let generation = copies.iter().filter_map(|(_, copy)| copy.as_ref().ok()).max().copied();
    Ok(match (generation, damaged, newer) {
        (None, _, Some(format)) => Err(format),
        (None, ..) => Ok(FoundNewest { damage: Some((0, DamageKind::Header)), ..FoundNewest::default() }),
        (Some(generation), damaged, _) => {
            Ok(FoundNewest { file: Some(file), generation, damage: damaged.map(|at| (at, DamageKind::HeaderCopy)) })
        }
    })
}

/// The file, to be written.
pub(super) struct NewestFile {
    folder: Arc<dyn Folder>,
    file: Option<Arc<dyn SegmentFile>>,
    /// What both copies name; 0 if they do not agree, or are not there.
    generation: u64,
}

impl NewestFile {
    pub(super) fn new(folder: Arc<dyn Folder>, found: FoundNewest) -> Self {
        let generation = if found.damage.is_none() { found.generation } else { 0 };
        Self { folder, file: found.file, generation }
    }

    /// Notes durably that the segment of `generation` may have records from now on.
    ///
    /// # Errors
    /// If the file cannot be written. That it cannot be made, on a full disk, is logged and tried again with the next
    /// segment: until then a missing youngest segment is not noticed, as with an older build.
    pub(super) fn raise(&mut self, generation: u64) -> io::Result<()> {
        if generation <= self.generation {
            return Ok(());
        }
        match &self.file {
            Some(file) => write(&**file, generation)?,
            None => match self.make(generation) {
                Ok(file) => self.file = Some(file),
                Err(error) => {
                    tracing::warn!(%error, "the journal's file `{NEWEST}` cannot be made: free space on its disk");
                    return Ok(());
                }
            },
        }
        self.generation = generation;
        Ok(())
    }

    fn make(&self, generation: u64) -> io::Result<Arc<dyn SegmentFile>> {
        let unfinished = format!("{NEWEST}{UNFINISHED}");
        let made = (|| {
            let file = self.folder.create(&unfinished)?;
            write(&*file, generation)?;
            self.folder.rename(&unfinished, NEWEST)?;
            Ok(file)
        })();
        if made.is_err() {
            // The next start removes it, if this does not.
            let _ = self.folder.remove(&unfinished);
        }
        made
    }
}

/// Writes both copies durably.
fn write(file: &dyn SegmentFile, generation: u64) -> io::Result<()> {
    if file.bytes()? < FILE_BYTES as u64 {
        file.extend(FILE_BYTES as u64)?;
    }
    let mut sectors = [0; FILE_BYTES];
    for at in COPIES {
        sectors[at as usize..][..COPY_BYTES].copy_from_slice(&encode(generation));
    }
    file.write_at(&[IoSlice::new(&sectors)], 0)?;
    file.sync()
}
