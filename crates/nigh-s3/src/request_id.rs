//! The id of one request, for the answer's `x-amz-request-id` and for error documents.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderValue;

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// The counter behind the ids. It starts at a random number, so that two processes give different ids and an id does
/// not tell how many requests there were.
static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(RandomState::new().hash_one("request id")));

/// Sixteen upper-case hexadecimal digits, as in AWS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RequestId([u8; 16]);

impl RequestId {
    /// Returns a new id.
    pub(crate) fn next() -> Self {
        // This is splitmix64. It is a bijection, so no id is returned twice.
        let mut z = NEXT.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        Self(std::array::from_fn(|digit| HEX[(z >> (60 - 4 * digit)) as usize & 15]))
    }

    /// The id as a header's value.
    pub(crate) fn header(&self) -> HeaderValue {
        HeaderValue::from_bytes(&self.0).unwrap_or(HeaderValue::from_static("0000000000000000"))
    }

    /// The id as text.
    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_requests_have_the_same_name() {
        let names: std::collections::HashSet<_> = (0..10_000).map(|_| RequestId::next()).collect();
        assert_eq!(names.len(), 10_000);
        assert!(names.iter().all(|name| name.as_str().len() == 16 && name.header() == name.as_str()));
    }
}
