//! Octets as lower-case hexadecimal digits.

use std::fmt::{self, Display, Formatter, Write as _};

/// Displays octets as lower-case hexadecimal digits.
pub struct Hex<'a>(pub &'a [u8]);

impl Display for Hex<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        self.0.iter().try_for_each(|octet| {
            f.write_char(char::from(DIGITS[usize::from(octet >> 4)]))?;
            f.write_char(char::from(DIGITS[usize::from(octet & 15)]))
        })
    }
}

/// `bytes` in lower-case hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [char::from(DIGITS[usize::from(byte >> 4)]), char::from(DIGITS[usize::from(byte & 15)])])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_octet_is_two_digits() {
        assert_eq!(Hex(&[0, 1, 0x9f, 0xff]).to_string(), "00019fff");
        assert_eq!(hex(&[0, 1, 0x9f, 0xff]), "00019fff");
    }
}
