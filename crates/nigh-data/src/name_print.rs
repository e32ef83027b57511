//! The fingerprint of an object's name.

use crc_fast::{CrcAlgorithm, Digest};

use crate::ObjectId;

/// An object's full name in 64 bits, the same at every node and in every build: its CRC-64/NVME. Two names may have
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamePrint(pub u64);

impl NamePrint {
    /// That of `object`.
    #[must_use]
    pub fn of(object: &ObjectId) -> Self {
        // Neither of the first two parts has a zero byte.
        let parts = [object.namespace.as_str(), "\0", object.bucket.as_str(), "\0", object.key.as_str()];
        Self::of_text(parts)
    }

    /// That of the name which these texts are one after the other.
    pub fn of_text<'t>(parts: impl IntoIterator<Item = &'t str>) -> Self {
        let mut name = Digest::new(CrcAlgorithm::Crc64Nvme);
        parts.into_iter().for_each(|part| name.update(part.as_bytes()));
        Self(name.finalize())
    }
}
