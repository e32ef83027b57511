//! The additional checksums of S3 ("Checking object integrity", S3 User Guide).

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

/// Which function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ChecksumAlgorithm {
    /// CRC-32/ISO-HDLC.
    Crc32,
    /// CRC-32C (Castagnoli).
    Crc32c,
    /// CRC-64/NVME.
    Crc64Nvme,
    /// SHA-1.
    Sha1,
    /// SHA-256.
    Sha256,
}

/// What the checksum of an object uploaded in parts is taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ChecksumType {
    /// The checksums of its parts; its value ends in `-N`.
    Composite,
    /// All its bytes.
    FullObject,
}

/// A checksum's value, base64 of its big-endian bytes; with `-N` behind it if it is a checksum of N parts' checksums.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checksum {
    /// Which function.
    pub algorithm: ChecksumAlgorithm,
    /// Its value.
    pub value: String,
    /// The checksums of the object's parts by the same function; empty if there are no parts, or they are not known.
    /// Builds that do not know this field ignore it.
    #[serde(default, skip_serializing_if = "PartChecksums::is_empty")]
    pub parts: PartChecksums,
}

/// The checksums of an object's parts by one function: their bytes, one behind the other, in the order of the parts.
/// Stored as the base64 of these bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct PartChecksums(Vec<u8>);

/// The most bytes of the parts' checksums of one object; those of the last parts are left out. With it the metadata of
/// an object of 1,025 parts, the most below 5 GiB, fits a record of the ledger (64 KiB). 768 of SHA-256 fit, 1,228 of
/// SHA-1, 3,072 or more of the others.
const PART_CHECKSUMS_MAX_BYTES: usize = 24 << 10;

impl PartChecksums {
    /// Of the first parts, whose checksums are `values` before base64, as many as are kept. All have the same length.
    #[must_use]
    pub fn new(values: &[Vec<u8>]) -> Self {
        let each = values.first().map_or(1, |first| first.len().max(1));
        Self(values.iter().take(PART_CHECKSUMS_MAX_BYTES / each).flatten().copied().collect())
    }

    /// Whether none is known.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes of all.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for PartChecksums {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl From<PartChecksums> for String {
    fn from(parts: PartChecksums) -> Self {
        STANDARD.encode(parts.0)
    }
}

impl TryFrom<String> for PartChecksums {
    type Error = base64::DecodeError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        STANDARD.decode(text).map(Self)
    }
}

impl Checksum {
    /// The checksum of part `number`, which is 1 or more. None if it is not known.
    #[must_use]
    pub fn part(&self, number: u32) -> Option<Self> {
        let each = self.algorithm.bytes();
        let value = self.parts.0.chunks_exact(each).nth((number as usize).checked_sub(1)?)?;
        Some(self.algorithm.checksum(value))
    }

    /// This checksum without those of the parts.
    #[must_use]
    pub fn without_parts(&self) -> Self {
        Self { algorithm: self.algorithm, value: self.value.clone(), parts: PartChecksums::default() }
    }

    /// This checksum with those of the first parts, as many as `bytes` bytes hold before base64.
    #[must_use]
    pub fn with_parts_within(&self, bytes: usize) -> Self {
        let each = self.algorithm.bytes();
        let kept = (bytes / each * each).min(self.parts.0.len());
        Self { parts: PartChecksums(self.parts.0[..kept].to_vec()), ..self.without_parts() }
    }

    /// What it was taken over.
    #[must_use]
    pub fn covers(&self) -> ChecksumType {
        if self.value.contains('-') { ChecksumType::Composite } else { ChecksumType::FullObject }
    }
}

/// Where the value that a writer claims is to be found.
pub enum ClaimedValue {
    /// Known before the bytes.
    Given(String),
    /// In the trailer, which can be asked for once the body has ended.
    Trailer(Box<dyn FnOnce() -> Option<String> + Send>),
    /// Nowhere: compute it and keep it.
    Compute,
}

impl fmt::Debug for ClaimedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given(value) => write!(f, "Given({value})"),
            Self::Trailer(_) => f.write_str("Trailer"),
            Self::Compute => f.write_str("Compute"),
        }
    }
}

/// A checksum to verify, or to compute, while the bytes come in.
#[derive(Debug)]
pub struct ChecksumClaim {
    /// Which function.
    pub algorithm: ChecksumAlgorithm,
    /// What it should give.
    pub value: ClaimedValue,
}

impl Default for ChecksumClaim {
    /// What S3 computes and keeps if the writer claims nothing.
    fn default() -> Self {
        Self { algorithm: ChecksumAlgorithm::Crc64Nvme, value: ClaimedValue::Compute }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_each_part_is_known_up_to_a_limit() {
        for algorithm in [ChecksumAlgorithm::Crc32, ChecksumAlgorithm::Crc64Nvme, ChecksumAlgorithm::Sha256] {
            let values: Vec<Vec<u8>> = (0..1025u32)
                .map(|part| part.to_be_bytes().into_iter().cycle().take(algorithm.bytes()).collect())
                .collect();
            let whole = Checksum { parts: PartChecksums::new(&values), ..algorithm.checksum(&values[0]) };
            let kept = if algorithm == ChecksumAlgorithm::Sha256 { 768 } else { 1025 };
            assert_eq!(whole.part(1), Some(algorithm.checksum(&values[0])));
            assert_eq!(whole.part(kept), Some(algorithm.checksum(&values[kept as usize - 1])));
            assert_eq!((whole.part(0), whole.part(kept + 1), whole.part(u32::MAX)), (None, None, None));
            let few = whole.with_parts_within(3 * algorithm.bytes() + 1);
            assert_eq!((few.part(3), few.part(4)), (whole.part(3), None));
            assert_eq!(whole.with_parts_within(usize::MAX), whole);
            assert_eq!(whole.without_parts(), algorithm.checksum(&values[0]));
        }
    }

    #[test]
    fn parts_are_base64_in_what_is_stored() {
        let parts = PartChecksums::new(&[vec![1, 2, 3, 4], vec![5, 6, 7, 8]]);
        let text = String::from(parts.clone());
        assert_eq!(text, "AQIDBAUGBwg=");
        assert_eq!(PartChecksums::try_from(text).unwrap(), parts);
        assert!(PartChecksums::try_from("?".to_owned()).is_err());
    }
}
