//! Sizes of objects as public serverless workflows have them (medical records, sentiment, finance, video), drawn between
//! their deciles and cut at what a cache takes.

use rand::Rng as _;
use rand::rngs::StdRng;

/// Deciles of the sizes of 66 objects that public workflows read and write, bytes.
const SIZE_DECILES: [f64; 11] = [
    21.0,
    19_905.0,
    24_891.0,
    29_723.0,
    206_971.0,
    329_300.0,
    828_674.0,
    1_204_391.0,
    3_145_728.0,
    31_726_403.0,
    238_896_207.0,
];
/// What the cache keeps at most.
const OBJECT_MAX: f64 = 10_485_760.0;

/// The size of an object, bytes.
pub(crate) fn size(random: &mut StdRng) -> u64 {
    let at: f64 = random.random_range(0.0..(SIZE_DECILES.len() - 1) as f64);
    let (low, high) = (SIZE_DECILES[at as usize], SIZE_DECILES[at as usize + 1]);
    // Between two deciles evenly by the logarithm: the sizes span seven orders of magnitude.
    (low * (high / low).powf(at.fract())).min(OBJECT_MAX) as u64
}
