//! Which bytes of an object a `Range` asks for (RFC 9110 section 14, as S3 does it).

use crate::{ByteRange, ObjectError, ObjectMeta, RangeSpec};

/// The bytes of an object that `wanted` names; all of them if nothing is wanted in particular.
pub fn resolve(wanted: Option<RangeSpec>, meta: &ObjectMeta) -> Result<ByteRange, ObjectError> {
    let size = meta.size;
    match wanted {
        None => Ok(0..size),
        Some(RangeSpec::From { first, last }) => {
            let end = last.map_or(size, |last| last.saturating_add(1).min(size));
            if first < end { Ok(first..end) } else { Err(ObjectError::InvalidRange { size }) }
        }
        Some(RangeSpec::Suffix(length)) => {
            let first = size.saturating_sub(length);
            if first < size { Ok(first..size) } else { Err(ObjectError::InvalidRange { size }) }
        }
        Some(RangeSpec::Part(number)) => part(number, meta),
    }
}

/// An object that was not uploaded in parts is its own part 1.
fn part(number: u32, meta: &ObjectMeta) -> Result<ByteRange, ObjectError> {
    if number == 1 && meta.parts.is_empty() {
        return Ok(0..meta.size);
    }
    let before = (number as usize).checked_sub(1).and_then(|before| meta.parts.get(..before));
    match (before, before.and_then(|before| meta.parts.get(before.len()))) {
        (Some(before), Some(length)) => {
            let first: u64 = before.iter().sum();
            Ok(first..first + length)
        }
        _ => Err(ObjectError::InvalidPartNumber(number)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ETag;

    fn meta(size: u64, parts: &[u64]) -> ObjectMeta {
        ObjectMeta {
            size,
            etag: ETag(String::new()),
            modified: nigh_terms::Timestamp(0),
            attributes: crate::Attributes::default(),
            tags: crate::Tags::new(),
            checksums: Vec::new(),
            parts: parts.to_vec(),
            version: nigh_terms::Version::OUTSIDE,
            token: nigh_terms::Token::empty(),
        }
    }

    #[test]
    fn ranges_are_clipped_and_refused_as_s3_does() {
        let of = |wanted, size| resolve(Some(wanted), &meta(size, &[])).ok();
        assert_eq!(of(RangeSpec::From { first: 2, last: Some(4) }, 10), Some(2..5));
        assert_eq!(of(RangeSpec::From { first: 2, last: Some(u64::MAX) }, 10), Some(2..10));
        assert_eq!(of(RangeSpec::From { first: 9, last: None }, 10), Some(9..10));
        assert_eq!(of(RangeSpec::From { first: 10, last: None }, 10), None);
        assert_eq!(of(RangeSpec::Suffix(3), 10), Some(7..10));
        assert_eq!(of(RangeSpec::Suffix(30), 10), Some(0..10));
        assert_eq!(of(RangeSpec::Suffix(0), 10), None);
        assert_eq!(of(RangeSpec::From { first: 0, last: None }, 0), None);
        assert_eq!(of(RangeSpec::Suffix(1), 0), None);
        assert_eq!(resolve(None, &meta(0, &[])).ok(), Some(0..0));
    }

    #[test]
    fn a_part_number_names_the_bytes_of_that_part() {
        let of = |number, meta: &ObjectMeta| resolve(Some(RangeSpec::Part(number)), meta).ok();
        let parted = meta(10, &[4, 4, 2]);
        assert_eq!([of(1, &parted), of(2, &parted), of(3, &parted)], [Some(0..4), Some(4..8), Some(8..10)]);
        assert_eq!([of(0, &parted), of(4, &parted), of(u32::MAX, &parted)], [None, None, None]);
        let whole = meta(10, &[]);
        assert_eq!([of(0, &whole), of(1, &whole), of(2, &whole)], [None, Some(0..10), None]);
    }

    proptest! {
        #[test]
        fn a_range_names_exactly_the_bytes_a_filter_would(size in 0u64..40, first in 0u64..50, last in 0u64..50) {
            let model: Vec<u64> = (0..size).filter(|byte| (first..=last).contains(byte)).collect();
            let got = resolve(Some(RangeSpec::From { first, last: Some(last) }), &meta(size, &[]));
            prop_assert_eq!(got.map(Iterator::collect::<Vec<_>>).unwrap_or_default(), model);

            let model: Vec<u64> = (0..size).rev().take(first as usize).collect();
            let got = resolve(Some(RangeSpec::Suffix(first)), &meta(size, &[]));
            prop_assert_eq!(got.map(|range| range.rev().collect::<Vec<_>>()).unwrap_or_default(), model);
        }

        #[test]
        fn the_parts_follow_each_other_and_cover_the_object(parts in prop::collection::vec(0u64..9, 1..9)) {
            let whole = meta(parts.iter().sum(), &parts);
            let mut at = 0;
            for (number, length) in (1u32..).zip(&parts) {
                let range = resolve(Some(RangeSpec::Part(number)), &whole).unwrap();
                prop_assert_eq!(range.clone(), at..at + length);
                at = range.end;
            }
            prop_assert_eq!(at, whole.size);
        }
    }
}
