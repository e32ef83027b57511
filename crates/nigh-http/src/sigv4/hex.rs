//! Digests from their hexadecimal digits.

/// The 32 octets of 64 hex digits in either case.
pub(super) fn hex_digest(text: &str) -> Option<[u8; 32]> {
    let nibble = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let mut digest = [0; 32];
    if text.len() != 64 {
        return None;
    }
    for (octet, pair) in digest.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *octet = nibble(pair[0])? << 4 | nibble(pair[1])?;
    }
    Some(digest)
}

#[cfg(test)]
mod tests {
    use nigh_terms::Hex;

    use super::*;

    #[test]
    fn a_digest_is_read_back_from_its_digits_and_from_nothing_else() {
        let digest: [u8; 32] = std::array::from_fn(|place| place as u8 * 8 + 7);
        let digits = Hex(&digest).to_string();
        assert_eq!(hex_digest(&digits), Some(digest));
        assert_eq!(hex_digest(&digits.to_uppercase()), Some(digest));
        for bad in ["", &digits[1..], &digits.replace('7', "g"), &format!("{digits}00")] {
            assert_eq!(hex_digest(bad), None, "{bad}");
        }
    }
}
