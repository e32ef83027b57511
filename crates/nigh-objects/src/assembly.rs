//! Assembles an object from the parts of an upload, by the rules of CompleteMultipartUpload (AWS).
//!
//! The named parts are checked against the uploaded parts. The object's entity tag and checksum are computed from those
//! of the parts, so no byte of the parts is read.

use crc_fast::CrcAlgorithm;
use nigh_data::digest::Hasher;
use nigh_data::md5::Md5;
use nigh_data::{Checksum, ChecksumAlgorithm, ChecksumType, CompletedPart, ETag, ObjectError, PartChecksums, PartInfo};
use nigh_terms::hex;

/// The least length of every part but the last.
pub(crate) const PART_MIN_BYTES: u64 = 5 << 20;
/// The greatest length of a part.
pub(crate) const PART_MAX_BYTES: u64 = 5 << 30;
/// The greatest part number.
pub(crate) const PARTS_MAX: u32 = 10_000;

/// The assembled object: its parts, entity tag and checksum.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AssembledObject {
    pub(crate) etag: ETag,
    pub(crate) checksum: Option<Checksum>,
    /// The numbers of the parts, in order.
    pub(crate) numbers: Vec<u32>,
    /// The lengths of the parts in bytes, in the same order.
    pub(crate) lengths: Vec<u64>,
    pub(crate) size: u64,
}

/// The checksum's type if the upload does not name one.
pub(crate) const fn default_type(algorithm: ChecksumAlgorithm) -> ChecksumType {
    match algorithm {
        ChecksumAlgorithm::Crc64Nvme => ChecksumType::FullObject,
        _ => ChecksumType::Composite,
    }
}

/// The checksum algorithm and type that an upload asks for.
///
/// # Errors
/// `InvalidRequest` for a combination that AWS does not have.
pub(crate) fn wanted_checksum(
    algorithm: Option<ChecksumAlgorithm>,
    over: Option<ChecksumType>,
) -> Result<Option<(ChecksumAlgorithm, ChecksumType)>, ObjectError> {
    let Some(algorithm) = algorithm else { return Ok(None) };
    let over = over.unwrap_or(default_type(algorithm));
    let possible = match over {
        ChecksumType::FullObject => algorithm.crc().is_some(),
        ChecksumType::Composite => algorithm != ChecksumAlgorithm::Crc64Nvme,
    };
    if possible {
        Ok(Some((algorithm, over)))
    } else {
        let name = match over {
            ChecksumType::FullObject => "FULL_OBJECT",
            ChecksumType::Composite => "COMPOSITE",
        };
        Err(ObjectError::InvalidRequest(format!("{name} is not a checksum type of {}", algorithm.header())))
    }
}

/// Refuses a number that no part can have.
pub(crate) fn check_number(number: u32) -> Result<(), ObjectError> {
    if (1..=PARTS_MAX).contains(&number) {
        Ok(())
    } else {
        Err(ObjectError::InvalidArgument(format!(
            "Part number must be an integer between 1 and {PARTS_MAX}, inclusive"
        )))
    }
}

/// Assembles the parts `named`. `uploaded` finds a part by its number.
pub(crate) fn assemble(
    named: &[CompletedPart],
    uploaded: impl Fn(u32) -> Option<PartInfo>,
    checksum: Option<(ChecksumAlgorithm, ChecksumType)>,
    object_max: u64,
) -> Result<AssembledObject, ObjectError> {
    if named.is_empty() {
        return Err(ObjectError::InvalidRequest("You must specify at least one part".to_owned()));
    }
    if named.windows(2).any(|pair| pair[0].number >= pair[1].number) {
        return Err(ObjectError::InvalidPartOrder);
    }
    let parts = named.iter().map(|part| matching(part, &uploaded)).collect::<Result<Vec<_>, _>>()?;
    if let Some(part) = parts[..parts.len() - 1].iter().find(|part| part.size < PART_MIN_BYTES) {
        return Err(ObjectError::EntityTooSmall { part: part.number, size: part.size });
    }
    let size = parts.iter().map(|part| part.size).sum();
    if size > object_max {
        return Err(ObjectError::EntityTooLarge { limit: object_max });
    }
    Ok(AssembledObject {
        etag: etag_of(&parts)?,
        checksum: checksum.map(|(algorithm, over)| checksum_of(&parts, algorithm, over)).transpose()?,
        numbers: parts.iter().map(|part| part.number).collect(),
        lengths: parts.iter().map(|part| part.size).collect(),
        size,
    })
}

fn matching(named: &CompletedPart, uploaded: impl Fn(u32) -> Option<PartInfo>) -> Result<PartInfo, ObjectError> {
    let part = uploaded(named.number).filter(|part| part.etag == named.etag);
    let part = part.ok_or(ObjectError::InvalidPart(named.number))?;
    if named.checksum.as_ref().is_some_and(|claimed| part.checksum.as_ref() != Some(claimed)) {
        return Err(ObjectError::InvalidPart(named.number));
    }
    Ok(part)
}

/// The MD5 of the parts' MD5s, and the number of parts.
fn etag_of(parts: &[PartInfo]) -> Result<ETag, ObjectError> {
    let mut digest = Md5::new();
    for part in parts {
        digest.update(&unhex(&part.etag.0).ok_or(ObjectError::InvalidPart(part.number))?);
    }
    Ok(ETag(format!("{}-{}", hex(&digest.finish()), parts.len())))
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    text.as_bytes().chunks(2).map(|pair| Some((digit(pair[0])? << 4 | digit(*pair.get(1)?)?) as u8)).collect()
}

/// The code of bytes whose pieces have the codes `pieces`, each with the length of its piece.
fn combined(crc: CrcAlgorithm, pieces: impl Iterator<Item = (u64, u64)>) -> u64 {
    let whole = pieces.reduce(|(head, _), (tail, length)| (crc_fast::checksum_combine(crc, head, tail, length), 0));
    whole.map_or(0, |(whole, _)| whole)
}

/// The checksum of an object whose upload was begun without one: the CRC-64/NVME of its bytes, which is S3's default.
/// `codes` are those of its parts, whose lengths are `lengths`.
pub(crate) fn default_checksum(codes: &[u64], lengths: &[u64]) -> Checksum {
    let algorithm = ChecksumAlgorithm::Crc64Nvme;
    let whole = combined(CrcAlgorithm::Crc64Nvme, codes.iter().copied().zip(lengths.iter().copied()));
    let values: Vec<_> = codes.iter().map(|code| algorithm.crc_bytes(*code)).collect();
    Checksum { parts: PartChecksums::new(&values), ..algorithm.checksum(&algorithm.crc_bytes(whole)) }
}

fn checksum_of(parts: &[PartInfo], algorithm: ChecksumAlgorithm, over: ChecksumType) -> Result<Checksum, ObjectError> {
    let mut raws = Vec::with_capacity(parts.len());
    for part in parts {
        let carried = part.checksum.as_ref().filter(|checksum| checksum.algorithm == algorithm);
        raws.push(algorithm.decode(&carried.ok_or(ObjectError::InvalidPart(part.number))?.value)?);
    }
    let whole = match (over, algorithm.crc()) {
        (ChecksumType::FullObject, Some(crc)) => {
            let value = |raw: &[u8]| raw.iter().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
            let whole = combined(crc, raws.iter().zip(parts).map(|(raw, part)| (value(raw), part.size)));
            algorithm.checksum(&algorithm.crc_bytes(whole))
        }
        _ => {
            let mut hasher = Hasher::new(algorithm);
            for raw in &raws {
                hasher.update(raw);
            }
            let composite = algorithm.checksum(&hasher.finish());
            Checksum { value: format!("{}-{}", composite.value, parts.len()), ..composite }
        }
    };
    Ok(Checksum { parts: PartChecksums::new(&raws), ..whole })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use nigh_terms::Timestamp;

    use super::*;
    use nigh_data::digest::Digest;
    use nigh_data::{ChecksumClaim, ClaimedValue};

    const MIN: usize = PART_MIN_BYTES as usize;

    fn part(number: u32, bytes: &[u8], algorithm: ChecksumAlgorithm) -> PartInfo {
        let mut digest = Digest::new(Some(algorithm));
        digest.update(bytes);
        let verified = digest.verify(None, Some(ChecksumClaim { algorithm, value: ClaimedValue::Compute })).unwrap();
        PartInfo {
            number,
            size: bytes.len() as u64,
            etag: verified.etag,
            modified: Timestamp(0),
            checksum: verified.checksum,
        }
    }

    fn named(parts: &[PartInfo]) -> Vec<CompletedPart> {
        parts
            .iter()
            .map(|part| CompletedPart { number: part.number, etag: part.etag.clone(), checksum: part.checksum.clone() })
            .collect()
    }

    fn put(
        named: &[CompletedPart],
        parts: &[PartInfo],
        checksum: Option<(ChecksumAlgorithm, ChecksumType)>,
    ) -> Result<AssembledObject, ObjectError> {
        let parts: BTreeMap<u32, PartInfo> = parts.iter().map(|part| (part.number, part.clone())).collect();
        assemble(named, |number| parts.get(&number).cloned(), checksum, 5 << 30)
    }

    #[test]
    fn the_entity_tag_is_the_md5_of_md5s() {
        // Computed by Python's hashlib: md5(md5(b"a" * 5 MiB).digest() + md5(b"b").digest()).
        let parts = [part(1, &vec![b'a'; MIN], ChecksumAlgorithm::Sha256), part(7, b"b", ChecksumAlgorithm::Sha256)];
        let whole = put(&named(&parts), &parts, None).unwrap();
        assert_eq!(whole.etag.0, "e5a8c5272b26fc10581a21089559b006-2");
        assert_eq!((whole.numbers, whole.lengths, whole.size), (vec![1, 7], vec![MIN as u64, 1], MIN as u64 + 1));
        let composite = Some((ChecksumAlgorithm::Sha256, ChecksumType::Composite));
        let checksum = put(&named(&parts), &parts, composite).unwrap().checksum.unwrap();
        assert_eq!(checksum.value, "tfmzeY9XeH2OXmxrtS4iDWlNIKUTAFv0/csHs2lsoD8=-2");
        assert_eq!(checksum.covers(), ChecksumType::Composite);
        assert_eq!([checksum.part(1), checksum.part(2)], parts.map(|part| part.checksum));
    }

    #[test]
    fn the_codes_of_parts_combine_into_that_of_the_whole() {
        for algorithm in [ChecksumAlgorithm::Crc32, ChecksumAlgorithm::Crc32c, ChecksumAlgorithm::Crc64Nvme] {
            let bytes = [vec![1; MIN], vec![2; MIN + 3], b"end".to_vec()];
            let parts: Vec<PartInfo> =
                (1..).zip(&bytes).map(|(number, bytes)| part(number, bytes, algorithm)).collect();
            let whole = put(&named(&parts), &parts, Some((algorithm, ChecksumType::FullObject))).unwrap();
            let checksum = whole.checksum.unwrap();
            assert_eq!(Some(checksum.without_parts()), part(1, &bytes.concat(), algorithm).checksum, "{algorithm:?}");
            for part in &parts {
                assert_eq!(checksum.part(part.number), part.checksum, "{algorithm:?}");
            }
            if algorithm == ChecksumAlgorithm::Crc64Nvme {
                let code = |bytes: &Vec<u8>| crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes);
                let codes: Vec<u64> = bytes.iter().map(code).collect();
                assert_eq!(default_checksum(&codes, &whole.lengths), checksum);
            }
        }
    }

    #[test]
    fn parts_that_were_not_uploaded_so_are_refused() {
        let algorithm = ChecksumAlgorithm::Crc32;
        let parts = [part(1, &vec![1; MIN], algorithm), part(2, b"b", algorithm), part(3, b"c", algorithm)];
        let all = named(&parts);
        let refused = |named: &[CompletedPart]| put(named, &parts, None).unwrap_err();
        assert!(matches!(refused(&[]), ObjectError::InvalidRequest(_)));
        assert!(matches!(refused(&[all[1].clone(), all[0].clone()]), ObjectError::InvalidPartOrder));
        assert!(matches!(refused(&[all[0].clone(), all[0].clone()]), ObjectError::InvalidPartOrder));
        assert!(matches!(refused(&all), ObjectError::EntityTooSmall { part: 2, size: 1 }));
        let other = CompletedPart { number: 9, ..all[0].clone() };
        assert!(matches!(refused(&[other]), ObjectError::InvalidPart(9)));
        let other = CompletedPart { etag: all[1].etag.clone(), ..all[0].clone() };
        assert!(matches!(refused(&[other]), ObjectError::InvalidPart(1)));
        let other = CompletedPart { checksum: all[1].checksum.clone(), ..all[0].clone() };
        assert!(matches!(refused(&[other]), ObjectError::InvalidPart(1)));
        assert!(assemble(&all[..1], |_| Some(parts[0].clone()), None, 100).is_err());
    }

    #[test]
    fn checksum_types_are_those_of_aws() {
        use ChecksumAlgorithm::{Crc32, Crc64Nvme, Sha1};
        use ChecksumType::{Composite, FullObject};
        assert_eq!(wanted_checksum(None, Some(FullObject)).unwrap(), None);
        assert_eq!(wanted_checksum(Some(Crc32), None).unwrap(), Some((Crc32, Composite)));
        assert_eq!(wanted_checksum(Some(Crc64Nvme), None).unwrap(), Some((Crc64Nvme, FullObject)));
        assert!(wanted_checksum(Some(Crc64Nvme), Some(Composite)).is_err());
        assert!(wanted_checksum(Some(Sha1), Some(FullObject)).is_err());
        assert!([0, PARTS_MAX + 1].into_iter().all(|number| check_number(number).is_err()));
        assert!([1, PARTS_MAX].into_iter().all(|number| check_number(number).is_ok()));
    }
}
