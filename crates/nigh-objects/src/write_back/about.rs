//! The form of `about`: what a ledger's record says of a write beside its bytes. Pure.
//!
//! It is JSON, so that `nigh journal ls` and people can read it. The ledger gives a write its version, so the version
//! is added when the record is read back.

use std::sync::Arc;

use bytes::Bytes;
use nigh_data::{Checksum, ETag, ObjectMeta};
use nigh_engine::ABOUT_MAX_BYTES;
use nigh_protocol::{Member, RequestId};
use nigh_terms::{Token, Version};
use serde::{Deserialize, Serialize};

use super::dirty::{Base, ObjectState, PossibleBases};
use super::policy::WriteMode;

/// The format version that this build writes.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct WriteDescription {
    format: u32,
    mode: WriteMode,
    /// None for a deletion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    meta: Option<ObjectMeta>,
    /// The entity tag that the store had before: none if unknown, empty if there was no object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base: Option<String>,
    /// Other states of Nigh's own that the store may have had, from pushes under way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    attempts: Vec<String>,
    /// The writer; none if homes do not move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<WriteOrigin>,
    /// True if the record's body is the bytes of an ephemeral object, from a home that has left for the next one. To
    /// builds that do not know the field the object is lost, as after the home's end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    handed_over: bool,
}

/// The writer of a write, and the writer's token. Its node sends the write to the next home if this one has not
/// answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WriteOrigin {
    pub(crate) member: Member,
    pub(crate) request: RequestId,
    #[serde(default, skip_serializing_if = "Token::is_empty")]
    pub(crate) token: Token,
}

/// A write as it is read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DecodedWrite {
    pub(super) mode: WriteMode,
    pub(super) becomes: ObjectState,
    pub(super) below: PossibleBases,
    pub(super) by: Option<WriteOrigin>,
    pub(super) handed_over: bool,
}

fn text_of(base: &Base) -> Option<String> {
    match base {
        Base::Unknown => None,
        Base::Absent => Some(String::new()),
        Base::Holds(etag) => Some(etag.0.clone()),
    }
}

fn base_of(text: String) -> Base {
    if text.is_empty() { Base::Absent } else { Base::Holds(ETag(text)) }
}

/// Encodes `mode`, the object's metadata, and what the store may have below the write. If a record has no room for the
/// checksums of the object's parts, they are left out.
pub(super) fn encode(
    mode: WriteMode,
    meta: Option<&ObjectMeta>,
    below: &PossibleBases,
    by: Option<WriteOrigin>,
) -> Result<Bytes, String> {
    let (base, attempts) = (text_of(&below.base), below.attempts.iter().filter_map(text_of).collect());
    text_of_description(WriteDescription {
        format: FORMAT,
        mode,
        meta: meta.cloned(),
        base,
        attempts,
        by,
        handed_over: false,
    })
}

/// Encodes the metadata of an ephemeral object whose bytes are the record's body, for the next home.
pub(super) fn encode_handed_over(meta: &ObjectMeta) -> Result<Bytes, String> {
    let (meta, base, attempts, by) = (Some(meta.clone()), None, Vec::new(), None);
    let mode = WriteMode::Ephemeral;
    text_of_description(WriteDescription { format: FORMAT, mode, meta, base, attempts, by, handed_over: true })
}

fn text_of_description(mut about: WriteDescription) -> Result<Bytes, String> {
    let mut text = serde_json::to_vec(&about).map_err(|error| error.to_string())?;
    if text.len() > ABOUT_MAX_BYTES
        && let Some(meta) = &mut about.meta
    {
        meta.checksums = meta.checksums.iter().map(Checksum::without_parts).collect();
        text = serde_json::to_vec(&about).map_err(|error| error.to_string())?;
    }
    Ok(Bytes::from(text))
}

/// Decodes what `encode` has written about the write of `version`.
pub(super) fn decode(bytes: &[u8], version: Version) -> Result<DecodedWrite, String> {
    let about: WriteDescription = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if about.format > FORMAT {
        return Err(format!(
            "its format is {}, and this build reads up to {FORMAT}; start the newer nigh that wrote it",
            about.format
        ));
    }
    let becomes =
        about.meta.map_or(ObjectState::Gone, |meta| ObjectState::Put(Arc::new(ObjectMeta { version, ..meta })));
    let below = PossibleBases {
        base: about.base.map_or(Base::Unknown, base_of),
        attempts: about.attempts.into_iter().map(base_of).collect(),
    };
    Ok(DecodedWrite { mode: about.mode, becomes, below, by: about.by, handed_over: about.handed_over })
}

#[cfg(test)]
mod tests {
    use nigh_terms::{Epoch, Incarnation, Sequence, Timestamp};

    use super::*;
    use nigh_data::{Attributes, ChecksumAlgorithm, PartChecksums, Tags};
    use nigh_protocol::NodeNumber;

    #[test]
    fn a_write_is_read_back_as_it_was_with_the_ledgers_version() {
        let version = Version { epoch: Epoch(3), sequence: Sequence(7) };
        let meta = ObjectMeta {
            size: 5,
            etag: ETag("e".to_owned()),
            modified: Timestamp(9),
            attributes: Attributes { content_type: Some("text/plain".to_owned()), ..Attributes::default() },
            tags: [("a".to_owned(), "b".to_owned())].into(),
            checksums: Vec::new(),
            parts: Vec::new(),
            version: Version::OUTSIDE,
            token: Token::empty(),
        };
        for base in [Base::Unknown, Base::Absent, Base::Holds(ETag("before".to_owned()))] {
            let below = PossibleBases { base, attempts: vec![Base::Absent, Base::Holds(ETag("left".to_owned()))] };
            let member = Member { node: NodeNumber(3), incarnation: Incarnation(9) };
            let by = Some(WriteOrigin { member, request: RequestId(7), token: Token::empty() });
            let bytes = encode(WriteMode::Shadow, Some(&meta), &below, by.clone()).unwrap();
            let expected = DecodedWrite {
                mode: WriteMode::Shadow,
                becomes: ObjectState::Put(Arc::new(ObjectMeta { version, ..meta.clone() })),
                below,
                by,
                handed_over: false,
            };
            assert_eq!(decode(&bytes, version), Ok(expected));
        }
        let handed_over = decode(&encode_handed_over(&meta).unwrap(), version).unwrap();
        assert_eq!((handed_over.mode, handed_over.handed_over), (WriteMode::Ephemeral, true));
        assert_eq!(handed_over.becomes, ObjectState::Put(Arc::new(ObjectMeta { version, ..meta.clone() })));
        let mark = encode(WriteMode::Ephemeral, Some(&meta), &PossibleBases::default(), None).unwrap();
        assert!(!decode(&mark, version).unwrap().handed_over);
        let gone = encode(WriteMode::Lazy, None, &PossibleBases::default(), None).unwrap();
        assert_eq!(decode(&gone, version).unwrap().becomes, ObjectState::Gone);
    }

    #[test]
    fn a_record_has_room_for_the_checksums_of_parts_and_does_without_where_it_has_none() {
        let version = Version { epoch: Epoch(3), sequence: Sequence(7) };
        let of = |algorithm: ChecksumAlgorithm, bytes: usize, tags: Tags| ObjectMeta {
            size: 1025 * (5 << 20),
            etag: ETag("e".repeat(37)),
            modified: Timestamp(9),
            attributes: Attributes { user: [("n".to_owned(), "\"".repeat(2040))].into(), ..Attributes::default() },
            tags,
            checksums: vec![Checksum {
                parts: PartChecksums::new(&vec![vec![7; bytes]; 1025]),
                ..algorithm.checksum(&vec![7; bytes])
            }],
            parts: vec![5 << 20; 1025],
            version,
            token: Token::empty(),
        };
        let becomes = |meta: &ObjectMeta| {
            let bytes = encode(WriteMode::Lazy, Some(meta), &PossibleBases::default(), None).unwrap();
            assert!(bytes.len() <= ABOUT_MAX_BYTES);
            decode(&bytes, version).unwrap().becomes
        };
        let tags = |length: usize| (0..10).map(|n| (format!("{n}"), "\u{20000}".repeat(length))).collect::<Tags>();
        for (algorithm, bytes) in
            [(ChecksumAlgorithm::Crc64Nvme, 8), (ChecksumAlgorithm::Sha1, 20), (ChecksumAlgorithm::Sha256, 32)]
        {
            let meta = of(algorithm, bytes, tags(383));
            assert_eq!(becomes(&meta), ObjectState::Put(Arc::new(meta)));
        }
        let mut meta = of(ChecksumAlgorithm::Sha256, 32, tags(600));
        let becomes = becomes(&meta);
        meta.checksums[0] = meta.checksums[0].without_parts();
        assert_eq!(becomes, ObjectState::Put(Arc::new(meta)));
    }

    #[test]
    fn what_a_newer_nigh_has_written_is_refused() {
        let newer = br#"{"format":2,"mode":"lazy"}"#;
        assert!(decode(newer, Version::OUTSIDE).unwrap_err().contains("format is 2"));
        assert!(decode(b"{", Version::OUTSIDE).is_err());
    }
}
