//! Numbers by chance that come again: of an execution's name and how many were drawn before. Pure.

use sha2::{Digest, Sha256};

/// The chance of one execution.
#[derive(Clone, Debug)]
pub(crate) struct Chance {
    seed: [u8; 16],
    drawn: u64,
}

impl Chance {
    pub(crate) const fn new(seed: [u8; 16]) -> Self {
        Self { seed, drawn: 0 }
    }

    /// The next sixteen bytes.
    pub(crate) fn draw(&mut self) -> [u8; 16] {
        self.drawn += 1;
        bytes_of(self.seed, self.drawn)
    }

    /// The next number from 0 up to, but not, 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        fraction_of(self.draw())
    }
}

/// Bytes that are always the same for the same seed and number.
pub(crate) fn bytes_of(seed: [u8; 16], number: u64) -> [u8; 16] {
    let digest = Sha256::new().chain_update(seed).chain_update(number.to_be_bytes()).finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    bytes
}

/// From 0 up to, but not, 1, by 53 bits: as many as such a number has.
pub(crate) fn fraction_of(bytes: [u8; 16]) -> f64 {
    let mut first = [0; 8];
    first.copy_from_slice(&bytes[..8]);
    (u64::from_be_bytes(first) >> 11) as f64 / (1_u64 << 53) as f64
}
