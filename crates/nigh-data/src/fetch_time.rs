//! What bringing an object from a store takes, about.

/// What a store takes to answer at all, microseconds: object stores in the same building.
const FETCH_BEGINS_US: f64 = 3_000.0;
/// And for each byte: 100 MiB/s, what one stream of such a store gives.
const FETCH_US_PER_BYTE: f64 = 1e6 / (100 << 20) as f64;

/// What bringing so many bytes from a store takes, about, in microseconds.
#[must_use]
pub fn fetch_us(bytes: u64) -> f64 {
    FETCH_BEGINS_US + bytes as f64 * FETCH_US_PER_BYTE
}
