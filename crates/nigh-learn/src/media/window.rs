//! The bytes of an object that are at hand, as a parser asks for them: by place, or as a reader that goes on.
//!
//! A parser that needs missing bytes stops and asks for them. It runs again from the beginning when they are available.

use std::io::{BufRead, Error, ErrorKind, Read, Result as IoResult, Seek, SeekFrom};
use std::ops::Range;

use super::WANTED_BYTES_MAX;

/// Consecutive bytes of an object.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    /// Where in the object they begin.
    pub from: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

/// An object of which some bytes are at hand: its first ones, if any.
#[derive(Clone, Copy, Debug)]
pub struct ObjectHead<'a> {
    /// Its length.
    pub size: u64,
    /// Its bytes that are at hand.
    pub windows: &'a [Window<'a>],
    /// Its key or the end of it: letters behind the last dot tell apart what the bytes do not.
    pub name: &'a str,
    /// What its writer called it; empty if nothing.
    pub content_type: &'a str,
}

/// Why a parser ends before it has found all.
pub(super) enum Stop {
    /// These bytes are not at hand.
    Wants(Range<u64>),
    /// It is not what its first bytes say, or it is cut.
    Nonsense,
}

impl<'a> Window<'a> {
    fn end(&self) -> u64 {
        self.from.saturating_add(self.bytes.len() as u64)
    }

    /// Its bytes from `at` on.
    fn behind(&self, at: u64) -> Option<&'a [u8]> {
        let skipped = usize::try_from(at.checked_sub(self.from)?).ok()?;
        self.bytes.get(skipped..).filter(|rest| !rest.is_empty())
    }
}

impl<'a> ObjectHead<'a> {
    /// Its first bytes, as many as are at hand.
    pub(super) fn beginning(&self) -> &'a [u8] {
        self.behind(0).unwrap_or_default()
    }

    /// The longest run of bytes at hand from `at` on.
    fn behind(&self, at: u64) -> Option<&'a [u8]> {
        self.windows.iter().filter_map(|window| window.behind(at)).max_by_key(|rest| rest.len())
    }

    /// Its bytes from `from` on, `length` of them.
    pub(super) fn bytes(&self, from: u64, length: u64) -> Result<&'a [u8], Stop> {
        let to = from.checked_add(length).filter(|to| *to <= self.size).ok_or(Stop::Nonsense)?;
        let wanted = usize::try_from(length).map_err(|_| Stop::Nonsense)?;
        if wanted == 0 {
            return Ok(&[]);
        }
        self.behind(from).and_then(|rest| rest.get(..wanted)).ok_or(Stop::Wants(from..to))
    }

    pub(super) fn array<const N: usize>(&self, at: u64) -> Result<[u8; N], Stop> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(at, N as u64)?);
        Ok(array)
    }

    pub(super) fn byte(&self, at: u64) -> Result<u8, Stop> {
        self.array(at).map(|[byte]| byte)
    }

    pub(super) fn le16(&self, at: u64) -> Result<u64, Stop> {
        self.array(at).map(|bytes| u16::from_le_bytes(bytes).into())
    }

    pub(super) fn be16(&self, at: u64) -> Result<u64, Stop> {
        self.array(at).map(|bytes| u16::from_be_bytes(bytes).into())
    }

    pub(super) fn le32(&self, at: u64) -> Result<u64, Stop> {
        self.array(at).map(|bytes| u32::from_le_bytes(bytes).into())
    }

    pub(super) fn be32(&self, at: u64) -> Result<u64, Stop> {
        self.array(at).map(|bytes| u32::from_be_bytes(bytes).into())
    }

    pub(super) fn be64(&self, at: u64) -> Result<u64, Stop> {
        self.array(at).map(u64::from_be_bytes)
    }

    /// As a reader of the whole, which fails where nothing is at hand.
    pub(super) const fn reader(&self) -> SparseReader<'a> {
        SparseReader { object: *self, at: 0, missed: None }
    }

    /// What to wish for, where `range` is missing: as much as may be had at a time, of the end if it is near.
    pub(super) fn wish(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let near_end = self.size.saturating_sub(WANTED_BYTES_MAX);
        let from = if range.start >= near_end { near_end } else { range.start };
        let to = self.size.min(from.saturating_add(WANTED_BYTES_MAX));
        let is_new = !self.windows.iter().any(|window| window.from <= from && to <= window.end());
        (range.start < self.size && is_new).then_some(from..to)
    }
}

/// Reads an object of which some bytes are at hand.
pub(super) struct SparseReader<'a> {
    object: ObjectHead<'a>,
    at: u64,
    /// The first place that was asked for and is not at hand.
    missed: Option<u64>,
}

impl SparseReader<'_> {
    /// What came of reading: whatever the reader's user made of it, if something was not at hand that is why.
    pub(super) fn end(&self) -> Result<(), Stop> {
        match self.missed {
            Some(at) => Err(Stop::Wants(at..at.saturating_add(1))),
            None => Ok(()),
        }
    }
}

impl BufRead for SparseReader<'_> {
    fn fill_buf(&mut self) -> IoResult<&[u8]> {
        if self.at >= self.object.size {
            return Ok(&[]);
        }
        match self.object.behind(self.at) {
            Some(bytes) => Ok(bytes),
            None => {
                self.missed.get_or_insert(self.at);
                Err(Error::new(ErrorKind::UnexpectedEof, "these bytes are not at hand"))
            }
        }
    }

    fn consume(&mut self, bytes: usize) {
        self.at = self.at.saturating_add(bytes as u64);
    }
}

impl Read for SparseReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> IoResult<usize> {
        let bytes = self.fill_buf()?;
        let length = bytes.len().min(into.len());
        into[..length].copy_from_slice(&bytes[..length]);
        self.consume(length);
        Ok(length)
    }
}

impl Seek for SparseReader<'_> {
    fn seek(&mut self, to: SeekFrom) -> IoResult<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.object.size.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or_else(|| Error::new(ErrorKind::InvalidInput, "a place before the beginning"))?;
        Ok(self.at)
    }
}
