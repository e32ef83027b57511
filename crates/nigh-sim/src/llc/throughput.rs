//! The stream that the simulator's speed is measured on: eight classes with masks of their own, half of the requests to
//! hot lines that fit, half spread over four times the cache, so that hits, misses and masked victims are all frequent.
//!
//! It is made beforehand; who measures times [`WayPartitionedCache::replay`] alone.

use nigh_terms::{ClosId, WayMask, Ways};

use super::address_space::PhysicalLine;
use super::cache::{LlcRequest, WayPartitionedCache};
use super::geometry::LlcGeometry;
use super::replacement::ReplacementPolicy;
use super::split_mix::SplitMix64;

/// Classes of the stream.
pub const MIX_CLASSES: u8 = 8;

/// 32 768 sets of 11 ways in one slice: the shape that peers were measured with.
pub const MIX_GEOMETRY: LlcGeometry = match LlcGeometry::new(1, 32_768, Ways(11)) {
    Ok(geometry) => geometry,
    Err(_) => panic!("a constant of a valid shape"),
};

/// An empty LRU cache of [`MIX_GEOMETRY`] whose classes have eight masks: overlapping runs of 2 to 9 ways.
pub fn mix_cache() -> WayPartitionedCache {
    let mut cache = WayPartitionedCache::new(MIX_GEOMETRY, ReplacementPolicy::Lru);
    for class in 0..MIX_CLASSES {
        let ways = 2 + class;
        let first = (class * 5) % (MIX_GEOMETRY.ways().0 - ways + 1);
        let set = cache.set_mask(ClosId(class), WayMask::contiguous(first, Ways(ways)));
        debug_assert_eq!(set, Ok(()));
    }
    cache
}

/// `count` requests of the mix; equal seeds give equal streams.
pub fn mix_requests(seed: u64, count: usize) -> Vec<LlcRequest> {
    let cache_lines = (MIX_GEOMETRY.sets() as u32) * u32::from(MIX_GEOMETRY.ways().0);
    let (hot_lines, cold_lines) = (cache_lines / 2, cache_lines * 4);
    let mut stream = SplitMix64::new(seed);
    let mut requests = Vec::with_capacity(count);
    while requests.len() < count {
        let class = stream.below(u32::from(MIX_CLASSES)) as u8;
        let number = if stream.below(2) == 0 { stream.below(hot_lines) } else { hot_lines + stream.below(cold_lines) };
        if let Some(line) = PhysicalLine::new(number) {
            requests.push(LlcRequest { line, clos: ClosId(class) });
        }
    }
    requests
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_mix_has_hits_misses_and_all_classes() {
        let requests = mix_requests(1, 300_000);
        let mut cache = mix_cache();
        cache.replay(&requests[..200_000]);
        let tally = cache.replay(&requests[200_000..]);
        assert_eq!(tally.accesses(), 100_000);
        assert!(tally.hits > 10_000 && tally.misses > 10_000, "{tally:?}");
        assert!((0..MIX_CLASSES).all(|class| requests.iter().any(|request| request.clos == ClosId(class))));
        assert_eq!(requests, mix_requests(1, 300_000));
        let masks: HashSet<_> = (0..MIX_CLASSES).map(|class| cache.mask(ClosId(class))).collect();
        assert_eq!(masks.len(), usize::from(MIX_CLASSES));
        assert!(masks.iter().all(|mask| mask.is_contiguous() && mask.count() < MIX_GEOMETRY.ways()));
    }
}
