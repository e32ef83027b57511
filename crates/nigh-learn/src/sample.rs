//! What a model is fitted to: encoded rows with the peaks that were seen.

use nigh_terms::ByteSize;

use crate::schema::EncodedRow;

/// One row of what a model is fitted to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Its features, by the schema that the model gets.
    pub features: EncodedRow,
    /// The peak; where `bound` is set the run touched its limit and needed at least this.
    pub peak: ByteSize,
    /// The peak is a lower bound.
    pub bound: bool,
    /// What it counts, above 0: misses count more.
    pub weight: f64,
    /// Rows of one input share it: they are never on both sides of a fold.
    pub group: u64,
}

/// Bytes of a megabyte as models count inside: numbers near one are what sums of squares like.
const MEGABYTE: f64 = 1e6;

pub(crate) fn megabytes(size: ByteSize) -> f64 {
    size.bytes() as f64 / MEGABYTE
}

pub(crate) fn of_megabytes(megabytes: f64) -> ByteSize {
    ByteSize((megabytes.max(0.0) * MEGABYTE).ceil() as u64)
}

/// The fold of rows of `group`, which are all in one.
#[must_use]
pub const fn fold_of(group: u64, folds: usize) -> usize {
    // Groups are hashes or counts: the high bits of a product spread either.
    ((group.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % folds as u64) as usize
}
