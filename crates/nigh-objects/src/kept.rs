//! The metadata of a cached copy, packed: the metadata of a million small objects takes more memory than their bytes.
//!
//! The packed form is never stored, so any build may change it. Numbers are little endian, an entity tag that is an MD5
//! takes 16 bytes, and an absent field takes a bit.

use std::collections::BTreeMap;
use std::sync::Arc;

use nigh_data::{Attributes, Checksum, ChecksumAlgorithm, ETag, ObjectMeta, PartChecksums, Segment};
use nigh_protocol::Stamp;
use nigh_terms::hex;
use nigh_terms::{Epoch, Sequence, Timestamp, Token, Version};

use crate::stamps::Stamped as _;

/// One bit each: the entity tag is an MD5; there are attributes, tags, checksums, parts, a token.
const MD5: u8 = 1;
const ATTRIBUTES: u8 = 2;
const TAGS: u8 = 4;
const CHECKSUMS: u8 = 8;
const PARTS: u8 = 16;
const TOKEN: u8 = 32;

/// Set in the byte of a checksum's algorithm if the checksums of parts follow it.
const PART_CHECKSUMS: u8 = 128;

/// Where the version is: after the bits, the size and the time.
const VERSION_AT: usize = 1 + 8 + 8;

const ALGORITHMS: [ChecksumAlgorithm; 5] = [
    ChecksumAlgorithm::Crc32,
    ChecksumAlgorithm::Crc32c,
    ChecksumAlgorithm::Crc64Nvme,
    ChecksumAlgorithm::Sha1,
    ChecksumAlgorithm::Sha256,
];

/// An object's metadata, packed into one piece of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PackedMeta(Box<[u8]>);

/// A cached copy.
#[derive(Clone, Debug)]
pub(crate) struct CachedCopy {
    pub(crate) meta: PackedMeta,
    /// The object's bytes; none if the object is too large to be cached.
    pub(crate) segment: Option<Segment>,
}

struct Packer(Vec<u8>);

impl Packer {
    fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.counted(text.as_bytes());
    }

    fn counted(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    fn count(&mut self, count: usize) {
        self.0.extend_from_slice(&(count as u32).to_le_bytes());
    }

    fn texts(&mut self, texts: &BTreeMap<String, String>) {
        self.count(texts.len());
        for (name, value) in texts {
            self.text(name);
            self.text(value);
        }
    }
}

/// Reads what `Packer` wrote. Missing bytes read as zero; they cannot be missing, because this process wrote them.
struct Unpacker<'p>(&'p [u8]);

impl Unpacker<'_> {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let Some((first, rest)) = self.0.split_first_chunk() else { return [0; N] };
        self.0 = rest;
        *first
    }

    fn number(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }

    fn count(&mut self) -> usize {
        u32::from_le_bytes(self.bytes()) as usize
    }

    fn counted(&mut self) -> &[u8] {
        let length = self.count();
        let (bytes, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    fn text(&mut self) -> String {
        String::from_utf8_lossy(self.counted()).into_owned()
    }

    fn texts(&mut self) -> BTreeMap<String, String> {
        (0..self.count()).map(|_| (self.text(), self.text())).collect()
    }
}

/// The 16 bytes of an entity tag that is an MD5 in lower-case hexadecimal; none for any other.
fn md5_of(etag: &str) -> Option<[u8; 16]> {
    let digits = <[u8; 32]>::try_from(etag.as_bytes()).ok()?;
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut md5 = [0; 16];
    for (byte, pair) in md5.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(md5)
}

/// The texts of attributes, in a fixed order.
fn optional(attributes: &Attributes) -> [&Option<String>; 6] {
    let Attributes {
        content_type,
        cache_control,
        content_disposition,
        content_encoding,
        content_language,
        expires,
        user: _,
    } = attributes;
    [content_type, cache_control, content_disposition, content_encoding, content_language, expires]
}

impl PackedMeta {
    /// Packs `meta`.
    pub(crate) fn pack(meta: &ObjectMeta) -> Self {
        let ObjectMeta { size, etag, modified, attributes, tags, checksums, parts, version, token } = meta;
        let md5 = md5_of(&etag.0);
        let bits = [
            (MD5, md5.is_some()),
            (ATTRIBUTES, *attributes != Attributes::default()),
            (TAGS, !tags.is_empty()),
            (CHECKSUMS, !checksums.is_empty()),
            (PARTS, !parts.is_empty()),
            (TOKEN, !token.is_empty()),
        ];
        let bits: u8 = bits.into_iter().filter_map(|(bit, is_set)| is_set.then_some(bit)).sum();
        let has = |bit| bits & bit != 0;
        let mut packer = Packer(Vec::with_capacity(64));
        packer.0.push(bits);
        for number in [*size, modified.0, version.epoch.0, version.sequence.0] {
            packer.number(number);
        }
        match md5 {
            Some(md5) => packer.0.extend_from_slice(&md5),
            None => packer.text(&etag.0),
        }
        if has(ATTRIBUTES) {
            for text in optional(attributes) {
                packer.0.push(u8::from(text.is_some()));
                if let Some(text) = text {
                    packer.text(text);
                }
            }
            packer.texts(&attributes.user);
        }
        if has(TAGS) {
            packer.texts(tags);
        }
        if has(CHECKSUMS) {
            packer.count(checksums.len());
            for checksum in checksums {
                let has_parts = if checksum.parts.is_empty() { 0 } else { PART_CHECKSUMS };
                packer.0.push(checksum.algorithm as u8 | has_parts);
                packer.text(&checksum.value);
                if has_parts != 0 {
                    packer.counted(checksum.parts.as_bytes());
                }
            }
        }
        if has(PARTS) {
            packer.count(parts.len());
            for part in parts {
                packer.number(*part);
            }
        }
        if has(TOKEN) {
            // This cannot fail: a map of numbers always has a JSON text.
            packer.text(&serde_json::to_string(token).unwrap_or_default());
        }
        Self(packer.0.into_boxed_slice())
    }

    /// The version, without unpacking the rest.
    pub(crate) fn version(&self) -> Version {
        let mut packed = Unpacker(self.0.get(VERSION_AT..).unwrap_or_default());
        Version { epoch: Epoch(packed.number()), sequence: Sequence(packed.number()) }
    }

    /// The version and its token.
    pub(crate) fn stamp(&self) -> Stamp {
        let has_token = self.0.first().is_some_and(|bits| bits & TOKEN != 0);
        Stamp { version: self.version(), others: has_token.then(|| Arc::new(self.unpack().token.clone())) }
    }

    /// Returns the metadata with its stamp replaced by `stamp`.
    pub(crate) fn stamped(mut self, stamp: &Stamp) -> Self {
        if stamp.others.is_some() || self.0.first().is_some_and(|bits| bits & TOKEN != 0) {
            return Self::pack(&self.unpack().stamped(stamp));
        }
        let Version { epoch, sequence } = stamp.version;
        let numbers = [epoch.0.to_le_bytes(), sequence.0.to_le_bytes()];
        if let Some(place) = self.0.get_mut(VERSION_AT..VERSION_AT + 16) {
            place.copy_from_slice(numbers.as_flattened());
        }
        self
    }

    /// Unpacks the metadata.
    pub(crate) fn unpack(&self) -> Arc<ObjectMeta> {
        let mut packed = Unpacker(&self.0);
        let [bits] = packed.bytes();
        let has = |bit| bits & bit != 0;
        let size = packed.number();
        let modified = Timestamp(packed.number());
        let version = Version { epoch: Epoch(packed.number()), sequence: Sequence(packed.number()) };
        let etag = ETag(if has(MD5) { hex(&packed.bytes::<16>()) } else { packed.text() });
        let attributes = if has(ATTRIBUTES) {
            let mut text = || (packed.bytes() == [1]).then(|| packed.text());
            let [content_type, cache_control, content_disposition, content_encoding, content_language, expires] =
                std::array::from_fn(|_| text());
            Attributes {
                content_type,
                cache_control,
                content_disposition,
                content_encoding,
                content_language,
                expires,
                user: packed.texts(),
            }
        } else {
            Attributes::default()
        };
        let tags = if has(TAGS) { packed.texts() } else { BTreeMap::new() };
        let counted = if has(CHECKSUMS) { packed.count() } else { 0 };
        let checksums = (0..counted).filter_map(|_| {
            let ([algorithm], value) = (packed.bytes(), packed.text());
            let has_parts = algorithm & PART_CHECKSUMS != 0;
            let parts = if has_parts { packed.counted().to_vec().into() } else { PartChecksums::default() };
            Some(Checksum { algorithm: *ALGORITHMS.get(usize::from(algorithm & !PART_CHECKSUMS))?, value, parts })
        });
        let checksums = checksums.collect();
        let parts = if has(PARTS) { (0..packed.count()).map(|_| packed.number()).collect() } else { Vec::new() };
        let token = if has(TOKEN) { serde_json::from_str(&packed.text()).unwrap_or_default() } else { Token::empty() };
        Arc::new(ObjectMeta { size, etag, modified, attributes, tags, checksums, parts, version, token })
    }
}

impl CachedCopy {
    /// Packs `meta` with the bytes.
    pub(crate) fn new(meta: &ObjectMeta, segment: Option<Segment>) -> Self {
        Self { meta: PackedMeta::pack(meta), segment }
    }
}

#[cfg(test)]
mod tests {
    use nigh_terms::ShardId;
    use proptest::prelude::*;

    use super::*;

    fn texts() -> impl Strategy<Value = BTreeMap<String, String>> {
        prop::collection::btree_map(".{0,8}", ".{0,20}", 0..3)
    }

    fn attributes() -> impl Strategy<Value = Attributes> {
        let text = || prop::option::of(".{0,12}");
        (text(), text(), text(), text(), text(), text(), texts()).prop_map(|(a, b, c, d, e, f, user)| Attributes {
            content_type: a,
            cache_control: b,
            content_disposition: c,
            content_encoding: d,
            content_language: e,
            expires: f,
            user,
        })
    }

    prop_compose! {
        fn meta()(
            size in any::<u64>(),
            etag in prop_oneof!["[0-9a-f]{32}", "[0-9a-f]{32}-[0-9]{1,4}", ".{0,40}"],
            modified in any::<u64>(),
            attributes in prop_oneof![Just(Attributes::default()), attributes()],
            tags in texts(),
            checksums in prop::collection::vec(
                (0usize..5, "[A-Za-z0-9+/=-]{4,44}", prop::collection::vec(any::<u8>(), 0..9)), 0..3,
            ),
            parts in prop::collection::vec(any::<u64>(), 0..4),
            version in (any::<u64>(), any::<u64>()),
            seen in prop::collection::vec((any::<u16>(), any::<u64>(), any::<u64>()), 0..3),
        ) -> ObjectMeta {
            let mut token = Token::empty();
            for (shard, epoch, sequence) in seen {
                token.see(ShardId(shard), Version { epoch: Epoch(epoch), sequence: Sequence(sequence) });
            }
            ObjectMeta {
                size,
                etag: ETag(etag),
                modified: Timestamp(modified),
                attributes,
                tags,
                checksums: checksums
                    .into_iter()
                    .map(|(at, value, parts)| Checksum { algorithm: ALGORITHMS[at], value, parts: parts.into() })
                    .collect(),
                parts,
                version: Version { epoch: Epoch(version.0), sequence: Sequence(version.1) },
                token,
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_packed_comes_out_as_it_was(meta in meta()) {
            let packed = PackedMeta::pack(&meta);
            prop_assert_eq!(packed.version(), meta.version);
            prop_assert_eq!(&*packed.unpack(), &meta);
            let stamp = packed.stamp();
            prop_assert_eq!((stamp.version, stamp.others.is_none()), (meta.version, meta.token.is_empty()));
        }

        #[test]
        fn another_stamp_changes_the_version_and_its_token_alone(
            meta in meta(), epoch in any::<u64>(), sequence in any::<u64>(), seen in prop::option::of(any::<u64>()),
        ) {
            let version = Version { epoch: Epoch(epoch), sequence: Sequence(sequence) };
            let mut token = Token::empty();
            if let Some(seen) = seen {
                token.see(ShardId(7), Version { epoch: Epoch(1), sequence: Sequence(seen) });
            }
            let stamp = Stamp { version, others: seen.map(|_| Arc::new(token.clone())) };
            let stamped = PackedMeta::pack(&meta).stamped(&stamp);
            prop_assert_eq!(stamped.stamp(), stamp);
            prop_assert_eq!(&*stamped.unpack(), &ObjectMeta { version, token, ..meta });
        }
    }

    #[test]
    fn each_checksum_has_its_own_number() {
        for (number, algorithm) in ALGORITHMS.into_iter().enumerate() {
            assert_eq!(algorithm as usize, number);
        }
    }
}
