//! Reads records and bodies, and verifies their checksums.

use std::io;

use bytes::Bytes;

use super::disk::SegmentFile;
use super::format::is_head;
use super::live::Place;
use crate::commit_format::crc32c;

/// A record as on the disk.
pub(super) struct Copy {
    pub(super) head: Vec<u8>,
    pub(super) body: Bytes,
    pub(super) crc: u32,
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("its {what} is not what was written"))
}

/// The body of the record at `place`.
pub(super) fn body(file: &dyn SegmentFile, place: &Place) -> io::Result<Bytes> {
    let mut body = vec![0; place.body.bytes as usize];
    file.read_at(&mut body, place.body_at())?;
    if crc32c(&body) == place.body.crc { Ok(body.into()) } else { Err(damaged("body")) }
}

/// The record at `place`.
pub(super) fn copy(file: &dyn SegmentFile, place: &Place) -> io::Result<Copy> {
    let mut head = vec![0; place.head_bytes as usize];
    file.read_at(&mut head, u64::from(place.position.offset()))?;
    if !is_head(&head, place.position) {
        return Err(damaged("head"));
    }
    Ok(Copy { head, body: body(file, place)?, crc: place.body.crc })
}
