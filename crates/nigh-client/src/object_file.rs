//! An object as a file, read at any offset.
//!
//! If the node shares its memory, opening maps the whole object and reads need no request; else each read requests a range.
//! All reads are of the version at the time of opening: they fail when that version is gone, and never mix two.

use std::io::{self, Read, Seek, SeekFrom};

use crate::{Client, ClientError, Conditions, Headers, View};

/// The length of a requested range, whose answer fits into a packet.
const READ_AHEAD: usize = 48 * 1024;

/// An open object. It borrows its client, because a connection serves one call at a time.
#[derive(Debug)]
pub struct ObjectFile<'c> {
    client: &'c mut Client,
    bucket: String,
    key: String,
    etag: String,
    headers: Headers,
    length: u64,
    position: u64,
    /// The bytes that were read last, and their offset.
    window: Option<(u64, View)>,
}

impl<'c> ObjectFile<'c> {
    /// Opens the present version of a key.
    pub(crate) fn open(client: &'c mut Client, bucket: &str, key: &str) -> Result<Self, ClientError> {
        let (headers, whole) = match client.get(bucket, key, &Conditions::default()) {
            Ok(view) => (view.headers().clone(), Some(view)),
            // The node does not return the whole object, but its length and version.
            Err(ClientError::UseHttp(_)) => (client.head(bucket, key, &Conditions::default())?.headers, None),
            Err(error) => return Err(error),
        };
        let etag = headers.get("etag").cloned();
        let etag = etag.ok_or_else(|| ClientError::Protocol("an object without an entity tag".to_owned()))?;
        let length = headers.get("content-length").and_then(|text| text.parse().ok());
        let length = whole.as_ref().map(|view| view.len() as u64).or(length);
        let length = length.ok_or_else(|| ClientError::Protocol("an object without a length".to_owned()))?;
        let (bucket, key, window) = (bucket.to_owned(), key.to_owned(), whole.map(|view| (0, view)));
        Ok(Self { client, bucket, key, etag, headers, length, position: 0, window })
    }

    /// The length in bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.length
    }

    /// Whether it has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The headers at the time of opening.
    #[must_use]
    pub const fn headers(&self) -> &Headers {
        &self.headers
    }

    /// Whether its bytes are the node's own memory.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        self.window.as_ref().is_some_and(|(_, view)| view.is_mapped() && view.len() as u64 == self.length)
    }

    /// The bytes of the window from the position on.
    fn ahead(&self) -> Option<&[u8]> {
        let (begin, view) = self.window.as_ref()?;
        let skipped = usize::try_from(self.position.checked_sub(*begin)?).ok()?;
        view.get(skipped..).filter(|rest| !rest.is_empty())
    }

    /// Requests the bytes at the position.
    fn fetch(&mut self, wanted: usize) -> Result<(), ClientError> {
        let end = self.position.saturating_add(wanted.max(READ_AHEAD) as u64).min(self.length);
        // The old window is released first, because it counts as held.
        self.window = None;
        let range = |end: u64| Conditions {
            range: Some(format!("bytes={}-{}", self.position, end - 1)),
            if_match: Some(self.etag.clone()),
            ..Conditions::default()
        };
        let (long, short) = (range(end), range((self.position + READ_AHEAD as u64).min(self.length)));
        let mut got = self.client.get(&self.bucket, &self.key, &long);
        if matches!(got, Err(ClientError::UseHttp(_))) && long != short {
            got = self.client.get(&self.bucket, &self.key, &short);
        }
        let view = got?;
        if view.is_empty() {
            return Err(ClientError::Protocol("an answer without the bytes that were asked for".to_owned()));
        }
        self.window = Some((self.position, view));
        Ok(())
    }
}

impl Read for ObjectFile<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() || self.position >= self.length {
            return Ok(0);
        }
        if self.ahead().is_none() {
            self.fetch(buffer.len()).map_err(io::Error::other)?;
        }
        let ahead = self.ahead().unwrap_or_default();
        let count = ahead.len().min(buffer.len());
        buffer[..count].copy_from_slice(&ahead[..count]);
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for ObjectFile<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.position = place(to, self.position, self.length)?;
        Ok(self.position)
    }
}

/// Where `to` is; behind the end is allowed, and nothing is read there, as of files.
fn place(to: SeekFrom, position: u64, length: u64) -> io::Result<u64> {
    let place = match to {
        SeekFrom::Start(place) => Some(place),
        SeekFrom::End(offset) => length.checked_add_signed(offset),
        SeekFrom::Current(offset) => position.checked_add_signed(offset),
    };
    place.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a place before the beginning"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_counted_from_begin_end_and_position_and_never_before_the_begin() {
        let at = |to| place(to, 7, 10).ok();
        assert_eq!(at(SeekFrom::Start(3)), Some(3));
        assert_eq!(at(SeekFrom::Start(30)), Some(30));
        assert_eq!((at(SeekFrom::End(-10)), at(SeekFrom::End(5)), at(SeekFrom::End(-11))), (Some(0), Some(15), None));
        assert_eq!((at(SeekFrom::Current(-7)), at(SeekFrom::Current(-8))), (Some(0), None));
    }
}
