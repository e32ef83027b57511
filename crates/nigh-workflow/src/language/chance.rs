//! Reproducible random numbers: each depends on the execution's name and on the number of earlier draws. Pure.

use sha2::{Digest, Sha256};

/// The random numbers of one execution.
#[derive(Clone, Debug)]
pub(crate) struct Chance {
    seed: [u8; 16],
    drawn: u64,
}

impl Chance {
    pub(crate) const fn new(seed: [u8; 16]) -> Self {
        Self { seed, drawn: 0 }
    }

    /// Draws the next sixteen bytes.
    pub(crate) fn draw(&mut self) -> [u8; 16] {
        self.drawn += 1;
        bytes_of(self.seed, self.drawn)
    }

    /// Draws the next number from 0 to below 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        fraction_of(self.draw())
    }
}

/// The bytes for a seed and a number: always the same.
pub(crate) fn bytes_of(seed: [u8; 16], number: u64) -> [u8; 16] {
    let digest = Sha256::new().chain_update(seed).chain_update(number.to_be_bytes()).finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    bytes
}

/// A number from 0 to below 1, from 53 bits: as many as a float has.
pub(crate) fn fraction_of(bytes: [u8; 16]) -> f64 {
    let mut first = [0; 8];
    first.copy_from_slice(&bytes[..8]);
    (u64::from_be_bytes(first) >> 11) as f64 / (1_u64 << 53) as f64
}
