//! A small seeded generator of 64-bit numbers (SplitMix64: Steele, Lea, Flood, OOPSLA 2014): equal seeds give equal
//! runs.
//!
//! For keys and for made-up streams; never for secrets.

/// A stream of 64-bit numbers that its seed decides.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The stream of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number of all 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The next number below `bound`; 0 where `bound` is 0. Its bias is below `bound` / 2^32.
    pub const fn below(&mut self, bound: u32) -> u32 {
        (((self.next_u64() >> 32) * bound as u64) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_numbers_of_seed_1234567_come_out() {
        let mut stream = SplitMix64::new(1_234_567);
        let first = [stream.next_u64(), stream.next_u64(), stream.next_u64()];
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn a_bounded_number_stays_below_its_bound_and_reaches_all_values() {
        let mut stream = SplitMix64::new(1);
        let mut seen = [false; 11];
        for _ in 0..1000 {
            seen[stream.below(11) as usize] = true;
        }
        assert_eq!(seen, [true; 11]);
    }
}
