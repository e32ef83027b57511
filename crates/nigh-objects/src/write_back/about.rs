//! What the ledger keeps of a write beside its bytes: the form of `about`. Pure.
//!
//! JSON, so that `nigh journal ls` and people can read it. The version of a write is the ledger's to give; it is added
//! when the record is read back.

use std::sync::Arc;

use bytes::Bytes;
use nigh_terms::Version;
use serde::{Deserialize, Serialize};

use super::dirty::{Base, Becomes};
use super::policy::WriteMode;
use crate::{ETag, ObjectMeta};

/// The form that this build writes.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct About {
    format: u32,
    mode: WriteMode,
    /// Absent for a deletion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    meta: Option<ObjectMeta>,
    /// What the store held before: absent if nobody had asked, empty if there was nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base: Option<String>,
}

/// A write read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) mode: WriteMode,
    pub(super) becomes: Becomes,
    pub(super) base: Base,
}

/// The bytes that keep `mode`, `becomes` and `base`.
pub(super) fn encode(mode: WriteMode, meta: Option<&ObjectMeta>, base: &Base) -> Result<Bytes, String> {
    let base = match base {
        Base::Unknown => None,
        Base::Absent => Some(String::new()),
        Base::Holds(etag) => Some(etag.0.clone()),
    };
    let about = About { format: FORMAT, mode, meta: meta.cloned(), base };
    serde_json::to_vec(&about).map(Bytes::from).map_err(|error| error.to_string())
}

/// Reads what `encode` has made of a write that stands at `version`.
pub(super) fn decode(bytes: &[u8], version: Version) -> Result<Written, String> {
    let about: About = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if about.format > FORMAT {
        return Err(format!("its format is {}, this build reads up to {FORMAT}", about.format));
    }
    let becomes = about.meta.map_or(Becomes::Gone, |meta| Becomes::Put(Arc::new(ObjectMeta { version, ..meta })));
    let base = match about.base {
        None => Base::Unknown,
        Some(none) if none.is_empty() => Base::Absent,
        Some(etag) => Base::Holds(ETag(etag)),
    };
    Ok(Written { mode: about.mode, becomes, base })
}

#[cfg(test)]
mod tests {
    use nigh_terms::{Epoch, Sequence, Timestamp, Token};

    use super::*;
    use crate::Attributes;

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
            let bytes = encode(WriteMode::Shadow, Some(&meta), &base).unwrap();
            let expected = Written {
                mode: WriteMode::Shadow,
                becomes: Becomes::Put(Arc::new(ObjectMeta { version, ..meta.clone() })),
                base: base.clone(),
            };
            assert_eq!(decode(&bytes, version), Ok(expected));
        }
        let gone = encode(WriteMode::Lazy, None, &Base::Absent).unwrap();
        assert_eq!(decode(&gone, version).unwrap().becomes, Becomes::Gone);
    }

    #[test]
    fn what_a_newer_nigh_has_written_is_refused() {
        let newer = br#"{"format":2,"mode":"lazy"}"#;
        assert!(decode(newer, Version::OUTSIDE).unwrap_err().contains("format is 2"));
        assert!(decode(b"{", Version::OUTSIDE).is_err());
    }
}
