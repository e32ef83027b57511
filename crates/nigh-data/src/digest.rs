//! Digests of bytes as they pass: the one that the entity tag is made of, and at most one further checksum; of an
//! upload's part the CRC-64/NVME too.
//!
//! It computes and compares; it never holds or moves the bytes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use crc_fast::CrcAlgorithm;
use sha1::Sha1;
use sha2::{Digest as _, Sha256};

use nigh_terms::hex;

use crate::md5::Md5;
use crate::{Checksum, ChecksumAlgorithm, ChecksumClaim, ClaimedValue, ETag, ObjectError, PartChecksums};

/// Bytes hashed in one go by a task that shares its thread with others: about a millisecond.
pub const PIECE_BYTES: usize = 1 << 20;

impl ChecksumAlgorithm {
    /// The request header that carries it.
    #[must_use]
    pub const fn header(self) -> &'static str {
        match self {
            Self::Crc32 => "x-amz-checksum-crc32",
            Self::Crc32c => "x-amz-checksum-crc32c",
            Self::Crc64Nvme => "x-amz-checksum-crc64nvme",
            Self::Sha1 => "x-amz-checksum-sha1",
            Self::Sha256 => "x-amz-checksum-sha256",
        }
    }

    /// The length of its value before base64.
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::Crc32 | Self::Crc32c => 4,
            Self::Crc64Nvme => 8,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    /// The cyclic code, if this is one: the codes of parts can be combined into the code of the whole.
    pub const fn crc(self) -> Option<CrcAlgorithm> {
        match self {
            Self::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
            Self::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
            Self::Crc64Nvme => Some(CrcAlgorithm::Crc64Nvme),
            Self::Sha1 | Self::Sha256 => None,
        }
    }

    /// The checksum whose value is `raw`.
    pub fn checksum(self, raw: &[u8]) -> Checksum {
        Checksum { algorithm: self, value: STANDARD.encode(raw), parts: PartChecksums::default() }
    }

    /// A cyclic code's value as bytes.
    pub fn crc_bytes(self, value: u64) -> Vec<u8> {
        value.to_be_bytes()[8 - self.bytes().min(8)..].to_vec()
    }

    /// The bytes that `text` says.
    ///
    /// # Errors
    /// If they are no value of this function.
    pub fn decode(self, text: &str) -> Result<Vec<u8>, ObjectError> {
        match STANDARD.decode(text) {
            Ok(raw) if raw.len() == self.bytes() => Ok(raw),
            _ => Err(ObjectError::InvalidRequest(format!("Value for {} header is invalid.", self.header()))),
        }
    }
}

/// A checksum in the making.
pub enum Hasher {
    /// One of the CRCs.
    Crc(ChecksumAlgorithm, crc_fast::Digest),
    /// SHA-1.
    Sha1(Sha1),
    /// SHA-256.
    Sha256(Sha256),
}

impl Hasher {
    /// Of no bytes.
    #[must_use]
    pub fn new(algorithm: ChecksumAlgorithm) -> Self {
        match (algorithm, algorithm.crc()) {
            (_, Some(crc)) => Self::Crc(algorithm, crc_fast::Digest::new(crc)),
            (ChecksumAlgorithm::Sha1, None) => Self::Sha1(Sha1::new()),
            (_, None) => Self::Sha256(Sha256::new()),
        }
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc(_, digest) => digest.update(bytes),
            Self::Sha1(digest) => digest.update(bytes),
            Self::Sha256(digest) => digest.update(bytes),
        }
    }

    /// The checksum, most significant byte first.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        match self {
            Self::Crc(algorithm, digest) => algorithm.crc_bytes(digest.finalize()),
            Self::Sha1(digest) => digest.finalize().to_vec(),
            Self::Sha256(digest) => digest.finalize().to_vec(),
        }
    }
}

/// What the entity tag of an object in one piece is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TagDigest {
    /// The MD5 of its bytes, as of a plain PutObject (AWS).
    #[default]
    Md5,
    /// The first half of their SHA-256, with `-1` behind it: the form that S3 clients know from multipart uploads, and do
    /// not take for an MD5. It takes less than half of the time.
    Sha256,
}

/// The digests of all the bytes, which match what was stated for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedDigest {
    /// The entity tag of an object written in one piece.
    pub etag: ETag,
    /// The checksum that was claimed, or asked for.
    pub checksum: Option<Checksum>,
    /// The CRC-64/NVME, if the digest was made `with_crc64`.
    pub crc64: Option<u64>,
}

/// All digests of one body.
pub struct Digest {
    tag: TagHasher,
    /// Beside a tag that is none: an MD5 that is stated.
    md5: Option<Md5>,
    /// None if there is none, and if it is the tag's SHA-256.
    further: Option<Hasher>,
    /// In memory of its own: only parts have it, and every write's future has room for a digest.
    crc64: Option<Box<crc_fast::Digest>>,
}

enum TagHasher {
    Md5(Md5),
    Sha256(Sha256),
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Digest").finish_non_exhaustive()
    }
}

impl Digest {
    /// The digests of no bytes: MD5, and `further` if given.
    #[must_use]
    pub fn new(further: Option<ChecksumAlgorithm>) -> Self {
        Self { tag: TagHasher::Md5(Md5::new()), md5: None, further: further.map(Hasher::new), crc64: None }
    }

    /// The digests of no bytes: the one of the entity tag, `further` if given, and MD5 if one `is_stated`.
    #[must_use]
    pub fn tagged(tag: TagDigest, further: Option<ChecksumAlgorithm>, is_stated: bool) -> Self {
        if tag == TagDigest::Md5 {
            return Self::new(further);
        }
        let further = further.filter(|further| *further != ChecksumAlgorithm::Sha256);
        Self {
            tag: TagHasher::Sha256(Sha256::new()),
            md5: is_stated.then(Md5::new),
            further: further.map(Hasher::new),
            crc64: None,
        }
    }

    /// This digest, which computes the CRC-64/NVME beside the further checksum.
    #[must_use]
    pub fn with_crc64(self) -> Self {
        Self { crc64: Some(Box::new(crc_fast::Digest::new(CrcAlgorithm::Crc64Nvme))), ..self }
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.tag {
            TagHasher::Md5(md5) => md5.update(bytes),
            TagHasher::Sha256(sha256) => sha256.update(bytes),
        }
        if let Some(md5) = &mut self.md5 {
            md5.update(bytes);
        }
        if let Some(further) = &mut self.further {
            further.update(bytes);
        }
        if let Some(crc64) = &mut self.crc64 {
            crc64.update(bytes);
        }
    }

    /// Compares with the digests that were stated for bytes that are not kept. `claim` has the function of `further`.
    ///
    /// # Errors
    /// `BadDigest`, or `InvalidRequest` if a stated digest is malformed or did not come.
    pub fn check(self, md5: Option<[u8; 16]>, claim: Option<ChecksumClaim>) -> Result<(), ObjectError> {
        self.verify(md5, claim).map(drop)
    }

    /// Compares with the digests that were stated. `claim` has the function of `further`.
    ///
    /// # Errors
    /// `BadDigest`, or `InvalidRequest` if a stated digest is malformed or did not come.
    pub fn verify(self, md5: Option<[u8; 16]>, claim: Option<ChecksumClaim>) -> Result<VerifiedDigest, ObjectError> {
        let (etag, computed, sha256) = match self.tag {
            TagHasher::Md5(md5) => {
                let md5 = md5.finish();
                (hex(&md5), Some(md5), None)
            }
            TagHasher::Sha256(sha256) => {
                let sha256 = sha256.finalize();
                (format!("{}-1", hex(&sha256[..16])), self.md5.map(Md5::finish), Some(sha256.to_vec()))
            }
        };
        if md5.is_some() && md5 != computed {
            return Err(ObjectError::BadDigest { claim: "Content-MD5" });
        }
        let checksum = match (self.further.map(Hasher::finish).or(sha256), claim) {
            (Some(raw), Some(ChecksumClaim { algorithm, value })) => {
                let claimed = match value {
                    ClaimedValue::Compute => None,
                    ClaimedValue::Given(text) => Some(algorithm.decode(&text)?),
                    ClaimedValue::Trailer(take) => match take() {
                        Some(text) => Some(algorithm.decode(&text)?),
                        None => {
                            let missing = format!("the trailer {} was announced and did not come", algorithm.header());
                            return Err(ObjectError::InvalidRequest(missing));
                        }
                    },
                };
                if claimed.is_some_and(|claimed| claimed != raw) {
                    return Err(ObjectError::BadDigest { claim: algorithm.header() });
                }
                Some(algorithm.checksum(&raw))
            }
            _ => None,
        };
        let crc64 = self.crc64.map(|crc64| crc64.finalize());
        Ok(VerifiedDigest { etag: ETag(etag), checksum, crc64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the nine bytes "123456789": the check values of the catalogues, and of RFC 3174's and FIPS 180's tools.
    const CHECKS: [(ChecksumAlgorithm, &str); 5] = [
        (ChecksumAlgorithm::Crc32, "cbf43926"),
        (ChecksumAlgorithm::Crc32c, "e3069283"),
        (ChecksumAlgorithm::Crc64Nvme, "ae8b14860a799888"),
        (ChecksumAlgorithm::Sha1, "f7c3bc1d808e04732adf679965ccc34ca7ae3441"),
        (ChecksumAlgorithm::Sha256, "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"),
    ];

    fn verify(algorithm: ChecksumAlgorithm, value: ClaimedValue) -> Result<VerifiedDigest, ObjectError> {
        let mut digest = Digest::new(Some(algorithm));
        digest.update(b"1234");
        digest.update(b"56789");
        digest.verify(None, Some(ChecksumClaim { algorithm, value }))
    }

    #[test]
    fn each_function_gives_its_published_check_value() {
        for (algorithm, expected) in CHECKS {
            let verified = verify(algorithm, ClaimedValue::Compute).unwrap();
            let raw = algorithm.decode(&verified.checksum.unwrap().value).unwrap();
            assert_eq!(hex(&raw), expected, "{algorithm:?}");
            assert_eq!(verified.etag.0, "25f9e794323b453885f5181f1b624d0b");
        }
    }

    #[test]
    fn a_wrong_claim_is_refused_wherever_it_stands() {
        for (algorithm, _) in CHECKS {
            let right = verify(algorithm, ClaimedValue::Compute).unwrap().checksum.unwrap().value;
            let wrong = STANDARD.encode(vec![0; algorithm.bytes()]);
            assert!(verify(algorithm, ClaimedValue::Given(right.clone())).is_ok());
            assert!(verify(algorithm, ClaimedValue::Trailer(Box::new(|| Some(right)))).is_ok());
            for value in [ClaimedValue::Given(wrong.clone()), ClaimedValue::Trailer(Box::new(|| Some(wrong)))] {
                assert!(matches!(verify(algorithm, value), Err(ObjectError::BadDigest { .. })));
            }
            for text in ["", "?", "AAA="] {
                let value = ClaimedValue::Given(text.to_owned());
                assert!(matches!(verify(algorithm, value), Err(ObjectError::InvalidRequest(_))));
            }
            let missing = ClaimedValue::Trailer(Box::new(|| None));
            assert!(matches!(verify(algorithm, missing), Err(ObjectError::InvalidRequest(_))));
        }
    }

    #[test]
    fn the_crc64_of_a_part_is_computed_beside_its_own_checksum() {
        for further in [None, Some(ChecksumAlgorithm::Crc32), Some(ChecksumAlgorithm::Crc64Nvme)] {
            let mut digest = Digest::new(further).with_crc64();
            digest.update(b"1234");
            digest.update(b"56789");
            let claim = further.map(|algorithm| ChecksumClaim { algorithm, value: ClaimedValue::Compute });
            let verified = digest.verify(None, claim).unwrap();
            assert_eq!(verified.crc64, Some(0xae8b_1486_0a79_9888));
            assert_eq!(verified.checksum.map(|checksum| checksum.algorithm), further);
        }
    }

    #[test]
    fn a_wrong_md5_is_refused() {
        let digest = Digest::new(None);
        assert!(matches!(digest.verify(Some([0; 16]), None), Err(ObjectError::BadDigest { claim: "Content-MD5" })));
    }

    #[test]
    fn a_tag_of_sha256_is_no_md5_and_the_claims_beside_it_are_compared() {
        let right = {
            let mut md5 = Md5::new();
            md5.update(b"123456789");
            md5.finish()
        };
        for (algorithm, expected) in CHECKS {
            let verify = |md5: Option<[u8; 16]>| {
                let mut digest = Digest::tagged(TagDigest::Sha256, Some(algorithm), md5.is_some());
                digest.update(b"1234");
                digest.update(b"56789");
                digest.verify(md5, Some(ChecksumClaim { algorithm, value: ClaimedValue::Compute }))
            };
            assert!(matches!(verify(Some([0; 16])), Err(ObjectError::BadDigest { claim: "Content-MD5" })));
            for md5 in [None, Some(right)] {
                let verified = verify(md5).unwrap();
                assert_eq!(verified.etag.0, "15e2b0d3c33891ebb0f1ef609ec41942-1");
                let raw = algorithm.decode(&verified.checksum.unwrap().value).unwrap();
                assert_eq!(hex(&raw), expected, "{algorithm:?}");
            }
        }
    }
}
