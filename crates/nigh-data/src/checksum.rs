//! The additional checksums of S3 ("Checking object integrity", S3 User Guide).

use std::fmt;

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
}

impl Checksum {
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
