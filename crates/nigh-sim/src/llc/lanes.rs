//! The three inner steps of a cache set, 16 lanes at once: find a tag, find the oldest allowed way, age the others.
//!
//! The compiler makes scalar code of parts of the plain loops, which halves the simulator's speed; so x86-64, which
//! always has SSE2, gets the instructions by name. Everywhere else the plain loops serve, and the tests hold both
//! equal.

/// Lanes of a row.
pub(super) const LANES: usize = 16;

/// One bit a lane.
const LANE_BITS: [u16; LANES] = {
    let mut bits = [0; LANES];
    let mut lane = 0;
    while lane < LANES {
        bits[lane] = 1 << lane;
        lane += 1;
    }
    bits
};

/// The lanes that equal `tag`, as bits.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn equal(tags: &[u32; LANES], tag: u32) -> u32 {
    // SAFETY: every x86-64 processor has SSE2.
    unsafe { sse2::equal(tags, tag) }
}

/// The highest key of the lanes in `choice`; 0 for none. No key is negative.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn oldest(keys: &[i16; LANES], choice: u16) -> i16 {
    // SAFETY: every x86-64 processor has SSE2.
    unsafe { sse2::oldest(keys, choice) }
}

/// Adds `step` to every key below `oldest`, and makes `newest` of the key that equals it.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn age(keys: &mut [i16; LANES], oldest: i16, step: i16, newest: i16) {
    // SAFETY: every x86-64 processor has SSE2.
    unsafe { sse2::age(keys, oldest, step, newest) }
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) use plain::{age, equal, oldest};

#[cfg(any(test, not(target_arch = "x86_64")))]
mod plain {
    use super::{LANE_BITS, LANES};

    /// The lanes that equal `tag`, as bits.
    pub(in super::super) fn equal(tags: &[u32; LANES], tag: u32) -> u32 {
        tags.iter().zip(LANE_BITS).filter(|&(&held, _)| held == tag).map(|(_, bit)| u32::from(bit)).sum()
    }

    /// The highest key of the lanes in `choice`; 0 for none. No key is negative.
    pub(in super::super) fn oldest(keys: &[i16; LANES], choice: u16) -> i16 {
        keys.iter().zip(LANE_BITS).filter(|&(_, bit)| choice & bit != 0).map(|(&key, _)| key).max().unwrap_or(0)
    }

    /// Adds `step` to every key below `oldest`, and makes `newest` of the key that equals it.
    pub(in super::super) fn age(keys: &mut [i16; LANES], oldest: i16, step: i16, newest: i16) {
        for key in keys {
            *key = match (*key).cmp(&oldest) {
                std::cmp::Ordering::Less => *key + step,
                std::cmp::Ordering::Equal => newest,
                std::cmp::Ordering::Greater => *key,
            };
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod sse2 {
    use std::arch::x86_64::*;

    use super::{LANE_BITS, LANES};

    /// The `half`-th eight lanes.
    #[inline]
    #[target_feature(enable = "sse2")]
    fn load(lanes: &[i16; LANES], half: usize) -> __m128i {
        let eight: &[i16] = &lanes[half * 8..half * 8 + 8];
        // SAFETY: the slice is 16 bytes long, and the load asks for no alignment.
        unsafe { _mm_loadu_si128(eight.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    pub(super) fn equal(tags: &[u32; LANES], tag: u32) -> u32 {
        let wanted = _mm_set1_epi32(tag.cast_signed());
        let quarter = |index: usize| {
            let four: &[u32] = &tags[index * 4..index * 4 + 4];
            // SAFETY: the slice is 16 bytes long, and the load asks for no alignment.
            _mm_cmpeq_epi32(unsafe { _mm_loadu_si128(four.as_ptr().cast()) }, wanted)
        };
        let low = _mm_packs_epi32(quarter(0), quarter(1));
        let high = _mm_packs_epi32(quarter(2), quarter(3));
        _mm_movemask_epi8(_mm_packs_epi16(low, high)).cast_unsigned()
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    pub(super) fn oldest(keys: &[i16; LANES], choice: u16) -> i16 {
        const BITS: [i16; LANES] = {
            let mut bits = [0; LANES];
            let mut lane = 0;
            while lane < LANES {
                bits[lane] = LANE_BITS[lane].cast_signed();
                lane += 1;
            }
            bits
        };
        let choice = _mm_set1_epi16(choice.cast_signed());
        let chosen = |half| {
            let bits = load(&BITS, half);
            _mm_and_si128(load(keys, half), _mm_cmpeq_epi16(_mm_and_si128(choice, bits), bits))
        };
        let eight = _mm_max_epi16(chosen(0), chosen(1));
        let four = _mm_max_epi16(eight, _mm_srli_si128::<8>(eight));
        let two = _mm_max_epi16(four, _mm_srli_si128::<4>(four));
        let one = _mm_max_epi16(two, _mm_srli_si128::<2>(two));
        _mm_extract_epi16::<0>(one) as i16
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    pub(super) fn age(keys: &mut [i16; LANES], oldest: i16, step: i16, newest: i16) {
        let (oldest, step, newest) = (_mm_set1_epi16(oldest), _mm_set1_epi16(step), _mm_set1_epi16(newest));
        for half in 0..2 {
            let old = load(keys, half);
            let aged = _mm_add_epi16(old, _mm_and_si128(_mm_cmpgt_epi16(oldest, old), step));
            let is_oldest = _mm_cmpeq_epi16(old, oldest);
            let new = _mm_or_si128(_mm_and_si128(is_oldest, newest), _mm_andnot_si128(is_oldest, aged));
            let eight: &mut [i16] = &mut keys[half * 8..half * 8 + 8];
            // SAFETY: the slice is 16 bytes long, and the store asks for no alignment.
            unsafe { _mm_storeu_si128(eight.as_mut_ptr().cast(), new) };
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_vector_steps_do_what_the_plain_loops_do(
            tags in prop::array::uniform16(prop_oneof![0u32..4, Just(u32::MAX)]),
            keys in prop::array::uniform16(0i16..1024),
            choice: u16,
            lane in 0usize..LANES,
        ) {
            prop_assert_eq!(equal(&tags, tags[lane]), plain::equal(&tags, tags[lane]));
            prop_assert_eq!(equal(&tags, 7), 0);
            prop_assert_eq!(oldest(&keys, choice), plain::oldest(&keys, choice));
            let (mut vector, mut scalar) = (keys, keys);
            age(&mut vector, keys[lane], 32, lane as i16);
            plain::age(&mut scalar, keys[lane], 32, lane as i16);
            prop_assert_eq!(vector, scalar);
        }
    }
}
