//! A payload as pieces to send: views of a segment or of mapped spool files, without a copy.

use std::path::Path;

use bytes::Bytes;
use nigh_data::{ObjectError, ObjectMeta, Segment};

use super::Payload;

/// A segment as one piece.
struct SegmentBytes(Segment);

impl AsRef<[u8]> for SegmentBytes {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice()
    }
}

/// The payload, one piece for each part that the object was uploaded in; one piece if it was not.
pub(super) fn pieces(store: &'static str, payload: &Payload, meta: &ObjectMeta) -> Result<Vec<Bytes>, ObjectError> {
    let failed = |reason: String| ObjectError::Store { store, operation: "put", reason };
    let one = [meta.size];
    let files = matches!(payload, Payload::Files(files) if files.len() != 1);
    let in_parts = meta.parts.len() > 1 && meta.parts.iter().sum::<u64>() == meta.size;
    let lengths = if files || in_parts { meta.parts.as_slice() } else { &one };
    if lengths.iter().sum::<u64>() != meta.size {
        return Err(failed("the parts are not as long as the object".to_owned()));
    }
    let cut = |mut rest: Bytes| lengths.iter().map(|length| rest.split_to(*length as usize)).collect();
    let map = |path: &Path, length| map_file(path, length).map_err(&failed);
    match payload {
        Payload::Segment(segment) if segment.as_slice().len() as u64 == meta.size => {
            Ok(cut(Bytes::from_owner(SegmentBytes(segment.clone()))))
        }
        Payload::Segment(segment) => {
            Err(failed(format!("the payload has {} bytes, not {}", segment.as_slice().len(), meta.size)))
        }
        // A single file of an object with parts is cut into the parts, as a segment is.
        Payload::Files(files) if files.len() == 1 => Ok(cut(map(&files[0], meta.size)?)),
        Payload::Files(files) if files.len() == lengths.len() => {
            files.iter().zip(lengths).map(|(path, length)| map(path, *length)).collect()
        }
        Payload::Files(files) => Err(failed(format!("{} spooled files, {} lengths", files.len(), lengths.len()))),
    }
}

/// The first `length` bytes of a spooled file, mapped: the kernel reads them when they are sent.
fn map_file(path: &Path, length: u64) -> Result<Bytes, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = std::fs::File::open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?.len();
    if found < length {
        return Err(format!("{} has {found} bytes, fewer than the {length} expected", path.display()));
    }
    if length == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: a spooled file belongs to the put that names it; no process writes or shortens it meanwhile.
    let map = unsafe { memmap2::MmapOptions::new().len(length as usize).map(&file) }.map_err(failed)?;
    Ok(Bytes::from_owner(map))
}
