//! Numbers of variable length: seven bits a byte, low ones first, the highest bit set on all but the last (LEB128).
//! Each number has one form: one that ends in a needless zero byte is refused.

/// Bytes of the longest number.
const BYTES_MAX: u32 = 10;

/// Appends `value`.
pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a number from the front of `bytes`; `None` if there is none that is well formed.
pub(super) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for index in 0..BYTES_MAX {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        if index == BYTES_MAX - 1 && bits > 1 {
            return None;
        }
        value |= bits << (7 * index);
        if byte & 0x80 == 0 {
            return (byte != 0 || index == 0).then_some(value);
        }
    }
    None
}

/// A difference as a number that is small where the difference is: 0, -1, 1, -2, 2, ...
pub(super) const fn fold(difference: i64) -> u64 {
    (difference << 1 ^ difference >> 63) as u64
}

/// The difference that `fold` made `folded` of.
pub(super) const fn unfold(folded: u64) -> i64 {
    (folded >> 1) as i64 ^ -((folded & 1) as i64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_number_is_read_as_written_and_leaves_what_follows(value: u64, shift in 0u32..64) {
            let value = value >> shift;
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            bytes.push(7);
            let mut rest = &bytes[..];
            prop_assert_eq!(take(&mut rest), Some(value));
            prop_assert_eq!(rest, &[7][..]);
            prop_assert_eq!(take(&mut &bytes[..bytes.len() - 2]), None);
        }

        #[test]
        fn every_difference_is_unfolded_as_folded(difference: i64) {
            prop_assert_eq!(unfold(fold(difference)), difference);
        }
    }

    #[test]
    fn small_differences_of_either_sign_fold_to_small_numbers() {
        assert_eq!([0, -1, 1, -2, 2].map(fold), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_second_form_of_a_number_and_one_above_64_bits_are_refused() {
        assert_eq!(take(&mut &[0x85, 0x00][..]), None);
        assert_eq!(take(&mut &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02][..]), None);
        assert_eq!(take(&mut &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01][..]), Some(u64::MAX));
    }
}
