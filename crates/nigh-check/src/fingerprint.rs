//! A state's fingerprint of 128 bits: a collision among millions of states is negligible.

use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};

/// The fingerprint of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Print(pub(crate) u128);

impl Hash for Print {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0 as u64);
    }
}

impl Print {
    /// The fingerprint of a value.
    pub(crate) fn of<T: Hash + ?Sized>(value: &T) -> Self {
        let mut lanes = Lanes { first: 0x243f_6a88_85a3_08d3, second: 0x1319_8a2e_0370_7344 };
        value.hash(&mut lanes);
        Self((u128::from(lanes.first) << 64) | u128::from(lanes.second))
    }
}

/// Two 64-bit hashes at a time, each by folded multiplication.
struct Lanes {
    first: u64,
    second: u64,
}

fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

impl Hasher for Lanes {
    fn finish(&self) -> u64 {
        self.first
    }

    fn write_u64(&mut self, word: u64) {
        self.first =
            folded(self.first.rotate_left(29) ^ word, 0x9e37_79b9_7f4a_7c15).wrapping_add(0xa409_3822_299f_31d1);
        self.second = folded(self.second ^ word.rotate_left(32), 0xd6e8_feb8_6659_fd93).wrapping_sub(self.first);
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(u64::from(byte));
    }

    fn write_u16(&mut self, word: u16) {
        self.write_u64(u64::from(word));
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u128(&mut self, word: u128) {
        self.write_u64(word as u64);
        self.write_u64((word >> 64) as u64);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn write_isize(&mut self, word: isize) {
        self.write_u64(word as u64);
    }
}

/// Uses half of a fingerprint as its hash.
#[derive(Default)]
pub(crate) struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |sum, byte| sum.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }
}

/// Hashes fingerprints.
pub(crate) type OfPrints = BuildHasherDefault<AsItIs>;

/// A part of a state that most events do not change. States share it, and it is hashed once for all.
pub(crate) struct Part<T>(Arc<FingerprintedValue<T>>);

struct FingerprintedValue<T> {
    print: OnceLock<u128>,
    value: T,
}

impl<T: Clone> Clone for FingerprintedValue<T> {
    fn clone(&self) -> Self {
        Self { print: OnceLock::new(), value: self.value.clone() }
    }
}

impl<T> Part<T> {
    /// A new part.
    pub(crate) fn new(value: T) -> Self {
        Self(Arc::new(FingerprintedValue { print: OnceLock::new(), value }))
    }
}

impl<T: Clone> Part<T> {
    /// The value of the part.
    pub(crate) fn into_inner(self) -> T {
        Arc::try_unwrap(self.0).map_or_else(|shared| shared.value.clone(), |known| known.value)
    }
}

/// A change copies the part, so that other states keep theirs.
impl<T: Clone> DerefMut for Part<T> {
    fn deref_mut(&mut self) -> &mut T {
        let known = Arc::make_mut(&mut self.0);
        known.print = OnceLock::new();
        &mut known.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Part<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.value.fmt(formatter)
    }
}

impl<T> Clone for Part<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for Part<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T: Hash> Hash for Part<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u128(*self.0.print.get_or_init(|| Print::of(&self.0.value).0));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn values_that_differ_in_one_bit_or_in_their_order_have_other_prints_in_both_halves() {
        let words = (0..64).flat_map(|bit| [[1u64 << bit, 0], [0, 1u64 << bit]]).chain([[0, 0]]);
        let prints: Vec<u128> = words.map(|words| Print::of(&words).0).collect();
        for half in [0, 64] {
            let halves: HashSet<u64> = prints.iter().map(|print| (print >> half) as u64).collect();
            assert_eq!(halves.len(), prints.len());
        }
    }

    #[test]
    fn a_part_that_was_changed_has_another_print_and_the_one_it_was_copied_from_its_own() {
        let first = Part::new(vec![1u8, 2]);
        let known = Print::of(&first);
        let mut second = first.clone();
        second.push(3);
        assert_ne!(Print::of(&second), known);
        assert_eq!(Print::of(&first), known);
        second.pop();
        assert_eq!(Print::of(&second), known);
    }
}
