//! S3's additional checksums, as headers, trailers and document fields carry them.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use nigh_data::{
    Checksum, ChecksumAlgorithm, ChecksumClaim, ChecksumType, ClaimedValue, ObjectMeta, PartChecksums, RangeSpec,
};
use s3s::{S3Error, S3ErrorCode, S3Result, TrailingHeaders};

use crate::error::invalid_request;

const ALGORITHMS: [ChecksumAlgorithm; 5] = [
    ChecksumAlgorithm::Crc32,
    ChecksumAlgorithm::Crc32c,
    ChecksumAlgorithm::Crc64Nvme,
    ChecksumAlgorithm::Sha1,
    ChecksumAlgorithm::Sha256,
];

static CHECKSUM_TYPE: HeaderName = HeaderName::from_static("x-amz-checksum-type");
static SDK_ALGORITHM: HeaderName = HeaderName::from_static("x-amz-sdk-checksum-algorithm");
static TRAILER: HeaderName = HeaderName::from_static("x-amz-trailer");

/// The header or trailer that carries a checksum of `algorithm`.
pub(crate) const fn header_name(algorithm: ChecksumAlgorithm) -> HeaderName {
    HeaderName::from_static(algorithm.header())
}

/// The name of `algorithm` in S3's documents and headers.
pub(crate) const fn wire_name(algorithm: ChecksumAlgorithm) -> &'static str {
    match algorithm {
        ChecksumAlgorithm::Crc32 => "CRC32",
        ChecksumAlgorithm::Crc32c => "CRC32C",
        ChecksumAlgorithm::Crc64Nvme => "CRC64NVME",
        ChecksumAlgorithm::Sha1 => "SHA1",
        ChecksumAlgorithm::Sha256 => "SHA256",
    }
}

/// The algorithm that S3 calls `name`. An unknown name is an error.
pub(crate) fn algorithm(name: &str) -> S3Result<ChecksumAlgorithm> {
    ALGORITHMS.into_iter().find(|&algorithm| wire_name(algorithm).eq_ignore_ascii_case(name)).ok_or_else(|| {
        invalid_request(format!(
            "the checksum algorithm {name:?} is not known; use CRC32, CRC32C, CRC64NVME, SHA1 or SHA256"
        ))
    })
}

/// Refuses a header of the name `x-amz-` and `name`, or a trailer that it announces, if it states a checksum of an
/// algorithm that is not computed here: nothing may be stored whose checksum nobody has compared.
pub(crate) fn screen_checksum(name: &str, value: &str) -> S3Result<()> {
    let unknown = match name {
        "trailer" => value.split(',').find_map(|trailer| {
            let trailer = trailer.trim().to_ascii_lowercase();
            trailer.strip_prefix("x-amz-").filter(|trailer| states_unknown_checksum(trailer)).map(str::to_owned)
        }),
        name => states_unknown_checksum(name).then(|| name.to_owned()),
    };
    match unknown {
        None => Ok(()),
        Some(unknown) => Err(S3Error::with_message(
            S3ErrorCode::NotImplemented,
            format!(
                "x-amz-{unknown} states a checksum that is not verified here; use CRC32, CRC32C, CRC64NVME, SHA1 or \
                 SHA256"
            ),
        )),
    }
}

/// Whether a header or trailer, whose name is given without its `x-amz-`, states a checksum that is not computed here.
fn states_unknown_checksum(name: &str) -> bool {
    name.strip_prefix("checksum-").is_some_and(|checksum| {
        let is_of = |algorithm: ChecksumAlgorithm| wire_name(algorithm).eq_ignore_ascii_case(checksum);
        !matches!(checksum, "algorithm" | "mode" | "type") && !ALGORITHMS.into_iter().any(is_of)
    })
}

/// The length of a checksum of `algorithm`, in bytes.
const fn value_length(algorithm: ChecksumAlgorithm) -> usize {
    match algorithm {
        ChecksumAlgorithm::Crc32 | ChecksumAlgorithm::Crc32c => 4,
        ChecksumAlgorithm::Crc64Nvme => 8,
        ChecksumAlgorithm::Sha1 => 20,
        ChecksumAlgorithm::Sha256 => 32,
    }
}

/// The checksum that an upload claims for its bytes, in a header or in a trailer. None if it claims no checksum.
pub(crate) fn claim(headers: &HeaderMap, trailers: Option<TrailingHeaders>) -> S3Result<Option<ChecksumClaim>> {
    let mut given =
        ALGORITHMS.into_iter().filter_map(|algorithm| Some((algorithm, headers.get(header_name(algorithm))?)));
    let first = given.next();
    let announced = headers.get(&TRAILER).map(|value| value.to_str().unwrap_or_default().trim());
    if given.next().is_some() || (first.is_some() && announced.is_some()) {
        return Err(invalid_request("expecting a single x-amz-checksum- header or trailer"));
    }
    if let Some((algorithm, value)) = first {
        let value = value.to_str().unwrap_or_default();
        let decoded = BASE64_STANDARD.decode(value).ok();
        if decoded.is_none_or(|decoded| decoded.len() != value_length(algorithm)) {
            return Err(invalid_request(format!("the value of {} is invalid", header_name(algorithm))));
        }
        return Ok(Some(ChecksumClaim { algorithm, value: ClaimedValue::Given(value.to_owned()) }));
    }
    if let Some(announced) = announced {
        return trailer_claim(announced, trailers).map(Some);
    }
    if headers.contains_key(&SDK_ALGORITHM) {
        return Err(invalid_request(
            "x-amz-sdk-checksum-algorithm is given, but no x-amz-checksum- header and no x-amz-trailer",
        ));
    }
    Ok(None)
}

/// The algorithm of the checksum that a header claims, so that the checksum is computed while the bytes arrive. None if
/// no header claims one.
pub(crate) fn claimed_algorithm(headers: &HeaderMap) -> Option<ChecksumAlgorithm> {
    ALGORITHMS.into_iter().find(|&algorithm| headers.contains_key(header_name(algorithm)))
}

fn trailer_claim(announced: &str, trailers: Option<TrailingHeaders>) -> S3Result<ChecksumClaim> {
    let algorithm = ALGORITHMS
        .into_iter()
        .find(|&algorithm| announced.eq_ignore_ascii_case(header_name(algorithm).as_str()))
        .ok_or_else(|| invalid_request(format!("x-amz-trailer names {announced:?}, which is no checksum")))?;
    let trailers = trailers
        .ok_or_else(|| invalid_request("x-amz-trailer is given, but x-amz-content-sha256 announces no trailer"))?;
    let value =
        move || trailers.read(|trailers| Some(trailers.get(header_name(algorithm))?.to_str().ok()?.to_owned()))?;
    Ok(ChecksumClaim { algorithm, value: ClaimedValue::Trailer(Box::new(value)) })
}

/// The name of `covers` in headers and documents.
pub(crate) const fn type_name(covers: ChecksumType) -> &'static str {
    match covers {
        ChecksumType::Composite => "COMPOSITE",
        ChecksumType::FullObject => "FULL_OBJECT",
    }
}

/// The name, in headers and documents, of what `checksum` covers.
pub(crate) fn kind(checksum: &Checksum) -> &'static str {
    type_name(checksum.covers())
}

/// Inserts the checksum of the bytes that a read answers: those of the object, or of one part of its upload. There is no
/// checksum of another range.
pub(crate) fn insert_checksum(headers: &mut HeaderMap, meta: &ObjectMeta, range: Option<RangeSpec>) {
    for checksum in &meta.checksums {
        let value = match range {
            None => HeaderValue::try_from(&checksum.value).ok(),
            // An object that was not uploaded in parts is its own part 1.
            Some(RangeSpec::Part(1)) if meta.parts.is_empty() => HeaderValue::try_from(&checksum.value).ok(),
            Some(RangeSpec::Part(number)) => {
                checksum.part(number).and_then(|part| HeaderValue::try_from(part.value).ok())
            }
            Some(RangeSpec::From { .. } | RangeSpec::Suffix(_)) => None,
        };
        if let Some(value) = value {
            headers.insert(header_name(checksum.algorithm), value);
            headers.insert(CHECKSUM_TYPE.clone(), HeaderValue::from_static(kind(checksum)));
        }
    }
}

/// Writes a checksum into one of the five checksum fields of a document of `s3s`.
macro_rules! fill_checksum {
    ($document:expr, $checksum:expr) => {
        if let Some(checksum) = $checksum {
            let value = Some(checksum.value.clone());
            match checksum.algorithm {
                nigh_data::ChecksumAlgorithm::Crc32 => $document.checksum_crc32 = value,
                nigh_data::ChecksumAlgorithm::Crc32c => $document.checksum_crc32c = value,
                nigh_data::ChecksumAlgorithm::Crc64Nvme => $document.checksum_crc64nvme = value,
                nigh_data::ChecksumAlgorithm::Sha1 => $document.checksum_sha1 = value,
                nigh_data::ChecksumAlgorithm::Sha256 => $document.checksum_sha256 = value,
            }
        }
    };
}
pub(crate) use fill_checksum;

/// Reads the checksum from the five checksum fields of a document of `s3s`. At most one field may have a value.
macro_rules! stated_checksum {
    ($document:expr) => {
        $crate::checksum_headers::one_of([
            (nigh_data::ChecksumAlgorithm::Crc32, &$document.checksum_crc32),
            (nigh_data::ChecksumAlgorithm::Crc32c, &$document.checksum_crc32c),
            (nigh_data::ChecksumAlgorithm::Crc64Nvme, &$document.checksum_crc64nvme),
            (nigh_data::ChecksumAlgorithm::Sha1, &$document.checksum_sha1),
            (nigh_data::ChecksumAlgorithm::Sha256, &$document.checksum_sha256),
        ])
    };
}
pub(crate) use stated_checksum;

/// The checksum of the only field that has a value. None if no field has one; two values are an error.
pub(crate) fn one_of(fields: [(ChecksumAlgorithm, &Option<String>); 5]) -> S3Result<Option<Checksum>> {
    let mut stated = fields.into_iter().filter_map(|(algorithm, value)| {
        Some(Checksum { algorithm, value: value.clone()?, parts: PartChecksums::default() })
    });
    let first = stated.next();
    match stated.next() {
        None => Ok(first),
        Some(_) => Err(invalid_request("expecting a single checksum of one object or part")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn one_checksum_of_the_right_length_is_taken() {
        let claimed = claim(&headers(&[("x-amz-checksum-crc32", "AAAAAA==")]), None).unwrap().unwrap();
        assert_eq!(claimed.algorithm, ChecksumAlgorithm::Crc32);
        assert!(matches!(claimed.value, ClaimedValue::Given(value) if value == "AAAAAA=="));
        assert!(claim(&HeaderMap::new(), None).unwrap().is_none());
    }

    #[test]
    fn contradictory_or_malformed_claims_are_refused() {
        for bad in [
            headers(&[("x-amz-checksum-crc32", "AAAA")]),
            headers(&[("x-amz-checksum-sha256", "not base64")]),
            headers(&[("x-amz-checksum-crc32", "AAAAAA=="), ("x-amz-checksum-crc32c", "AAAAAA==")]),
            headers(&[("x-amz-checksum-crc32", "AAAAAA=="), ("x-amz-trailer", "x-amz-checksum-crc32")]),
            headers(&[("x-amz-trailer", "x-amz-meta-a")]),
            headers(&[("x-amz-trailer", "x-amz-checksum-crc32")]),
            headers(&[("x-amz-sdk-checksum-algorithm", "CRC32")]),
        ] {
            assert_eq!(claim(&bad, None).unwrap_err().code().as_str(), "InvalidRequest", "{bad:?}");
        }
    }

    #[test]
    fn a_checksum_that_is_not_computed_here_is_refused_by_name() {
        for name in ["checksum-md5", "checksum-sha512", "checksum-xxhash64", "checksum-foo", "checksum-"] {
            for (name, value) in [(name, "AAAA"), ("trailer", &*format!("x-amz-checksum-crc32, X-Amz-{name}"))] {
                let refused = screen_checksum(name, value).unwrap_err();
                assert_eq!(refused.code().as_str(), "NotImplemented", "{name}: {value}");
                assert!(refused.message().unwrap().contains("SHA256"), "{name}: {value}");
            }
        }
        for known in ALGORITHMS.map(ChecksumAlgorithm::header) {
            assert!(screen_checksum(known.strip_prefix("x-amz-").unwrap(), "AAAA").is_ok(), "{known}");
            assert!(screen_checksum("trailer", known).is_ok(), "{known}");
        }
        for (name, value) in [
            ("checksum-algorithm", "CRC32"),
            ("checksum-mode", "ENABLED"),
            ("checksum-type", "FULL_OBJECT"),
            ("trailer", "x-amz-meta-a"),
            ("meta-checksum-md5", "a user's own"),
        ] {
            assert!(screen_checksum(name, value).is_ok(), "{name}: {value}");
        }
    }

    #[test]
    fn algorithms_are_found_by_the_names_of_s3() {
        for known in ALGORITHMS {
            assert_eq!(algorithm(wire_name(known)).unwrap(), known);
        }
        assert!(algorithm("MD5").is_err());
    }
}
