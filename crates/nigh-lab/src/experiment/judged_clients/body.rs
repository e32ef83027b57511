//! Objects that tell which write they are of: all bytes follow from the key, the client, its sequence number and the
//! length, so that bytes of another write, wherever they stand, are found.

use super::history::{ReadFinding, WriteId};

/// The metadata that names the write; after a copy another one than that of the content.
pub(crate) const WRITE_HEADER: &str = "x-amz-meta-write";
/// The metadata that names the content, which an object shorter than its own head cannot.
pub(crate) const CONTENT_HEADER: &str = "x-amz-meta-content";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    /// The key that it was written to first.
    pub(crate) key: String,
    pub(crate) client: u32,
    pub(crate) sequence: u64,
    pub(crate) bytes: usize,
}

impl Content {
    pub(crate) fn name(&self) -> String {
        format!("{}:{}:{}:{}", self.key, self.client, self.sequence, self.bytes)
    }

    fn of_name(name: &str) -> Option<Self> {
        let mut words = name.split(':');
        let key = words.next()?.to_owned();
        let (client, sequence) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Self { key, client, sequence, bytes: words.next()?.parse().ok()? })
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        let mut body = self.name().into_bytes();
        body.push(b'\n');
        // FNV-1a of the head begins a splitmix64: neither is secret, both are quick.
        let mut state = body
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        body.reserve(self.bytes + 8);
        while body.len() < self.bytes {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            body.extend_from_slice(&(word ^ (word >> 31)).to_le_bytes());
        }
        body.truncate(self.bytes);
        body
    }
}

pub(crate) fn write_name(id: WriteId) -> String {
    format!("{}:{}", id.client, id.sequence)
}

/// What an object is, by its metadata and bytes.
pub(crate) fn seen(write: Option<&str>, content: Option<&str>, body: &[u8]) -> ReadFinding {
    let id = write.and_then(|text| text.split_once(':')).and_then(|(client, sequence)| {
        Some(WriteId { client: client.parse().ok()?, sequence: sequence.parse().ok()? })
    });
    let (Some(id), Some(known)) = (id, content.and_then(Content::of_name)) else {
        return ReadFinding::Torn(format!("the metadata names no write: {write:?}, {content:?}"));
    };
    if known.bytes != body.len() {
        return ReadFinding::Torn(format!("{} bytes, by its metadata {known:?}", body.len()));
    }
    match known.body().iter().zip(body).position(|(expected, byte)| expected != byte) {
        None => ReadFinding::Whole { id, content: known },
        Some(at) => ReadFinding::Torn(format!("byte {at} is not of {known:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_an_object_is_of_its_write() {
        for bytes in [0, 1, 40, 5000] {
            let content = Content { key: "a/b".to_owned(), client: 3, sequence: 7, bytes };
            let id = WriteId { client: 1, sequence: 9 };
            let (write, name) = (write_name(id), content.name());
            let read = |body: &[u8]| seen(Some(&write), Some(&name), body);
            let mut body = content.body();
            assert_eq!(read(&body), ReadFinding::Whole { id, content: content.clone() });
            if let Some(last) = body.last_mut() {
                *last ^= 1;
                assert!(matches!(read(&body), ReadFinding::Torn(_)), "{bytes}");
            }
            let other = Content { sequence: 8, ..content.clone() };
            assert_eq!(other.body().len(), bytes);
            assert!(bytes < 7 || other.body() != content.body(), "{bytes}");
            body.push(0);
            assert!(matches!(read(&body), ReadFinding::Torn(_)));
        }
        assert!(matches!(seen(None, None, b""), ReadFinding::Torn(_)));
    }
}
