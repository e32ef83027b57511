//! A set-associative last-level cache shared by classes of service, each with a mask of ways it may fill.
//!
//! As Cache Allocation Technology does (Intel SDM vol. 3, 19.19): a hit is served from any way, a miss fills only ways
//! of the class's mask, masks may overlap, and a change of masks moves no lines. Evictions by the upper levels are not
//! modelled: a line is filled at its request, as in an inclusive or non-inclusive cache, unlike a victim cache.

use nigh_terms::{ClosId, WayMask, Ways};
use thiserror::Error;

use super::address_space::PhysicalLine;
use super::geometry::LlcGeometry;
use super::lanes::LANES;
use super::replacement::{Lru, ReplacementPolicy, Srrip, TreePlru};
use super::set_array::{Access, SetArray};

/// The most classes of service a cache tells apart; the kernel's interface has at most as many.
pub const CLOS_MAX: u8 = 16;

/// How many requests ahead a replay prefetches the sets.
const REPLAY_BLOCK: usize = 32;

/// Why a mask cannot be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MaskError {
    /// A class of no ways could not fill anything.
    #[error("the mask of class {clos} is empty: give it at least one way")]
    Empty {
        /// The class.
        clos: ClosId,
    },
    /// A way that the cache does not have.
    #[error("mask {mask} of class {clos} does not fit: this cache has {ways} ways")]
    BeyondWays {
        /// The class.
        clos: ClosId,
        /// What was asked for.
        mask: WayMask,
        /// Ways of the cache.
        ways: Ways,
    },
    /// A class that the cache does not have.
    #[error("class {clos} does not exist: a cache has {CLOS_MAX} classes, 0 to {}", CLOS_MAX - 1)]
    NoSuchClos {
        /// The class.
        clos: ClosId,
    },
}

/// One request of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LlcRequest {
    /// The line asked for.
    pub line: PhysicalLine,
    /// The class of the requester; below [`CLOS_MAX`].
    pub clos: ClosId,
}

/// Hits and misses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Requests found in the cache.
    pub hits: u64,
    /// Requests not found.
    pub misses: u64,
}

impl Tally {
    /// All requests.
    pub const fn accesses(self) -> u64 {
        self.hits + self.misses
    }
}

/// Sets under each policy, of one row of tags or of two.
enum Sets {
    Lru16(SetArray<Lru<1>, 1>),
    Lru32(SetArray<Lru<2>, 2>),
    TreePlru16(SetArray<TreePlru, 1>),
    TreePlru32(SetArray<TreePlru, 2>),
    Srrip16(SetArray<Srrip, 1>),
    Srrip32(SetArray<Srrip, 2>),
}

/// Runs `$body` with `$sets` bound to the set array of whatever policy.
macro_rules! with_sets {
    ($self:expr, $sets:ident => $body:expr) => {
        match $self {
            Sets::Lru16($sets) => $body,
            Sets::Lru32($sets) => $body,
            Sets::TreePlru16($sets) => $body,
            Sets::TreePlru32($sets) => $body,
            Sets::Srrip16($sets) => $body,
            Sets::Srrip32($sets) => $body,
        }
    };
}

/// The cache.
pub struct WayPartitionedCache {
    geometry: LlcGeometry,
    policy: ReplacementPolicy,
    /// The mask of each class; at first all ways.
    masks: [WayMask; CLOS_MAX as usize],
    sets: Sets,
}

impl WayPartitionedCache {
    /// An empty cache in which every class may fill every way.
    pub fn new(geometry: LlcGeometry, policy: ReplacementPolicy) -> Self {
        let one_row = usize::from(geometry.ways().0) <= LANES;
        let tree = || TreePlru::new(geometry.ways().0);
        let sets = match (policy, one_row) {
            (ReplacementPolicy::Lru, true) => Sets::Lru16(SetArray::new(geometry, Lru)),
            (ReplacementPolicy::Lru, false) => Sets::Lru32(SetArray::new(geometry, Lru)),
            (ReplacementPolicy::TreePlru, true) => Sets::TreePlru16(SetArray::new(geometry, tree())),
            (ReplacementPolicy::TreePlru, false) => Sets::TreePlru32(SetArray::new(geometry, tree())),
            (ReplacementPolicy::Srrip, true) => Sets::Srrip16(SetArray::new(geometry, Srrip)),
            (ReplacementPolicy::Srrip, false) => Sets::Srrip32(SetArray::new(geometry, Srrip)),
        };
        let all = WayMask::contiguous(0, geometry.ways());
        Self { geometry, policy, masks: [all; CLOS_MAX as usize], sets }
    }

    /// Its shape.
    pub const fn geometry(&self) -> LlcGeometry {
        self.geometry
    }

    /// Its replacement policy.
    pub const fn policy(&self) -> ReplacementPolicy {
        self.policy
    }

    /// The ways that `clos` may fill.
    ///
    /// # Panics
    /// When `clos` is not below [`CLOS_MAX`].
    #[inline]
    pub const fn mask(&self, clos: ClosId) -> WayMask {
        self.masks[clos.0 as usize]
    }

    /// Sets the ways that `clos` fills from now on. Lines in other ways stay until they are evicted.
    pub const fn set_mask(&mut self, clos: ClosId, mask: WayMask) -> Result<(), MaskError> {
        if clos.0 >= CLOS_MAX {
            return Err(MaskError::NoSuchClos { clos });
        }
        if mask.is_empty() {
            return Err(MaskError::Empty { clos });
        }
        if !WayMask::contiguous(0, self.geometry.ways()).covers(mask) {
            return Err(MaskError::BeyondWays { clos, mask, ways: self.geometry.ways() });
        }
        self.masks[clos.0 as usize] = mask;
        Ok(())
    }

    /// `clos` asks for `line`.
    ///
    /// # Panics
    /// When `clos` is not below [`CLOS_MAX`].
    #[inline]
    pub fn access(&mut self, clos: ClosId, line: PhysicalLine) -> Access {
        let allowed = self.mask(clos).bits();
        let set = self.geometry.set_of(line);
        with_sets!(&mut self.sets, sets => sets.access(set, line, allowed))
    }

    /// Serves all of `requests` in order; faster than single calls for a known stream.
    ///
    /// # Panics
    /// When a request's class is not below [`CLOS_MAX`].
    pub fn replay(&mut self, requests: &[LlcRequest]) -> Tally {
        let (geometry, masks) = (self.geometry, self.masks);
        with_sets!(&mut self.sets, sets => replay_blocks(sets, geometry, &masks, requests))
    }

    /// Asks the host to bring near what an access to `line` will need.
    #[inline]
    pub fn prefetch(&self, line: PhysicalLine) {
        let set = self.geometry.set_of(line);
        with_sets!(&self.sets, sets => sets.prefetch(set));
    }

    /// The lines of one set by way; none where a way is empty.
    ///
    /// # Panics
    /// When the cache has no such set.
    pub fn lines_of_set(&self, set: usize) -> Vec<Option<PhysicalLine>> {
        let ways = usize::from(self.geometry.ways().0);
        with_sets!(&self.sets, sets => sets.lines(set).take(ways).collect())
    }

    /// Drops every line; masks stay.
    pub fn clear(&mut self) {
        with_sets!(&mut self.sets, sets => sets.clear());
    }
}

/// Finds the sets of one block, asks for them, and serves the block before meanwhile.
fn replay_blocks<P: super::replacement::Replacement, const ROWS: usize>(
    sets: &mut SetArray<P, ROWS>,
    geometry: LlcGeometry,
    masks: &[WayMask; CLOS_MAX as usize],
    requests: &[LlcRequest],
) -> Tally {
    let locate = |sets: &SetArray<P, ROWS>, block: &[LlcRequest], found: &mut [u32; REPLAY_BLOCK]| {
        for (request, set) in block.iter().zip(found) {
            *set = geometry.set_of(request.line) as u32;
            sets.prefetch(*set as usize);
        }
    };
    let mut blocks = requests.chunks(REPLAY_BLOCK).peekable();
    let mut located = [0; REPLAY_BLOCK];
    if let Some(first) = blocks.peek() {
        locate(sets, first, &mut located);
    }
    let mut hits = 0;
    while let Some(block) = blocks.next() {
        let current = located;
        if let Some(next) = blocks.peek() {
            locate(sets, next, &mut located);
        }
        for (request, set) in block.iter().zip(current) {
            let allowed = masks[usize::from(request.clos.0)].bits();
            hits += u64::from(sets.access(set as usize, request.line, allowed).is_hit());
        }
    }
    Tally { hits, misses: requests.len() as u64 - hits }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The plainest cache: a list of lines a set with the time of their last use, everything searched from end to end.
    struct PlainLru {
        geometry: LlcGeometry,
        sets: Vec<Vec<Option<(PhysicalLine, u64)>>>,
        now: u64,
    }

    impl PlainLru {
        fn new(geometry: LlcGeometry) -> Self {
            Self { geometry, sets: vec![vec![None; usize::from(geometry.ways().0)]; geometry.sets()], now: 0 }
        }

        fn access(&mut self, mask: WayMask, line: PhysicalLine) -> Access {
            self.now += 1;
            let set = &mut self.sets[self.geometry.set_of(line)];
            for (held, used) in set.iter_mut().flatten() {
                if *held == line {
                    *used = self.now;
                    return Access::Hit;
                }
            }
            let way = mask.ways().min_by_key(|&way| set[usize::from(way)].map_or(0, |(_, used)| used)).unwrap();
            let evicted = set[usize::from(way)].replace((line, self.now)).map(|(line, _)| line);
            Access::Miss { evicted }
        }
    }

    fn masks(ways: u8) -> impl Strategy<Value = Vec<u32>> {
        prop::collection::vec(1..=((1u64 << ways) - 1) as u32, usize::from(CLOS_MAX))
    }

    fn streams() -> impl Strategy<Value = (LlcGeometry, Vec<u32>, Vec<(u8, u32)>)> {
        (1u32..4, 0u32..3, prop::sample::select(vec![1u8, 2, 3, 8, 11, 16, 17, 20, 32])).prop_flat_map(
            |(slices, set_bits, ways)| {
                let geometry = LlcGeometry::new(slices, 1 << set_bits, Ways(ways)).unwrap();
                let lines = geometry.sets() as u32 * u32::from(ways) * 3 / 2 + 2;
                let requests = prop::collection::vec((0..CLOS_MAX, 0..lines), 0..600);
                (Just(geometry), masks(ways), requests)
            },
        )
    }

    fn set_masks(cache: &mut WayPartitionedCache, masks: &[u32]) {
        for (clos, &bits) in masks.iter().enumerate() {
            cache.set_mask(ClosId(clos as u8), WayMask::from_bits(bits)).unwrap();
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(96))]
        #[test]
        fn lru_under_any_masks_does_what_the_plain_model_does((geometry, masks, requests) in streams()) {
            let mut cache = WayPartitionedCache::new(geometry, ReplacementPolicy::Lru);
            set_masks(&mut cache, &masks);
            let mut plain = PlainLru::new(geometry);
            for &(clos, line) in &requests {
                let line = PhysicalLine::new(line).unwrap();
                let expected = plain.access(WayMask::from_bits(masks[usize::from(clos)]), line);
                prop_assert_eq!(cache.access(ClosId(clos), line), expected);
            }
            for set in 0..geometry.sets() {
                let expected: Vec<_> = plain.sets[set].iter().map(|held| held.map(|(line, _)| line)).collect();
                prop_assert_eq!(cache.lines_of_set(set), expected);
            }
        }

        #[test]
        fn a_replay_counts_what_single_accesses_count((geometry, masks, requests) in streams()) {
            for policy in [ReplacementPolicy::Lru, ReplacementPolicy::TreePlru, ReplacementPolicy::Srrip] {
                let (mut single, mut whole) =
                    (WayPartitionedCache::new(geometry, policy), WayPartitionedCache::new(geometry, policy));
                set_masks(&mut single, &masks);
                set_masks(&mut whole, &masks);
                let requests: Vec<_> = requests
                    .iter()
                    .map(|&(clos, line)| LlcRequest { line: PhysicalLine::new(line).unwrap(), clos: ClosId(clos) })
                    .collect();
                let hits = requests.iter().filter(|request| single.access(request.clos, request.line).is_hit()).count();
                let tally = whole.replay(&requests);
                prop_assert_eq!(tally, Tally { hits: hits as u64, misses: (requests.len() - hits) as u64 });
                for set in 0..geometry.sets() {
                    prop_assert_eq!(single.lines_of_set(set), whole.lines_of_set(set));
                }
            }
        }

        #[test]
        fn under_every_policy_a_miss_only_changes_a_way_of_its_mask((geometry, masks, requests) in streams()) {
            for policy in [ReplacementPolicy::TreePlru, ReplacementPolicy::Srrip] {
                let mut cache = WayPartitionedCache::new(geometry, policy);
                set_masks(&mut cache, &masks);
                for &(clos, line) in &requests {
                    let line = PhysicalLine::new(line).unwrap();
                    let set = geometry.set_of(line);
                    let before = cache.lines_of_set(set);
                    let access = cache.access(ClosId(clos), line);
                    let after = cache.lines_of_set(set);
                    let changed: Vec<usize> = (0..before.len()).filter(|&way| before[way] != after[way]).collect();
                    match access {
                        Access::Hit => prop_assert!(before.contains(&Some(line)) && changed.is_empty()),
                        Access::Miss { evicted } => {
                            prop_assert!(!before.contains(&Some(line)));
                            prop_assert_eq!(changed.len(), 1);
                            let way = changed[0];
                            prop_assert!(cache.mask(ClosId(clos)).holds(way as u8));
                            prop_assert_eq!((before[way], after[way]), (evicted, Some(line)));
                            let room = cache.mask(ClosId(clos)).ways().any(|way| before[usize::from(way)].is_none());
                            prop_assert_eq!(evicted.is_none(), room);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_hit_is_served_outside_the_mask_and_a_fill_is_not() {
        let geometry = LlcGeometry::new(1, 1, Ways(4)).unwrap();
        let mut cache = WayPartitionedCache::new(geometry, ReplacementPolicy::Lru);
        let line = |number| PhysicalLine::new(number).unwrap();
        cache.set_mask(ClosId(1), WayMask::from_bits(0b0011)).unwrap();
        cache.set_mask(ClosId(2), WayMask::from_bits(0b1100)).unwrap();
        assert!(!cache.access(ClosId(1), line(1)).is_hit());
        assert!(cache.access(ClosId(2), line(1)).is_hit());
        for number in 10..20 {
            cache.access(ClosId(2), line(number));
        }
        assert!(cache.access(ClosId(1), line(1)).is_hit());
        // A smaller mask moves no line.
        cache.set_mask(ClosId(2), WayMask::from_bits(0b1000)).unwrap();
        assert!(cache.access(ClosId(2), line(18)).is_hit());
    }

    #[test]
    fn a_mask_that_cannot_be_is_refused_with_its_reason() {
        let mut cache = WayPartitionedCache::new(LlcGeometry::XEON_SILVER_4210R, ReplacementPolicy::Lru);
        let (clos, beyond) = (ClosId(3), WayMask::from_bits(0x800));
        assert_eq!(cache.set_mask(clos, WayMask::EMPTY), Err(MaskError::Empty { clos }));
        assert_eq!(cache.set_mask(clos, beyond), Err(MaskError::BeyondWays { clos, mask: beyond, ways: Ways(11) }));
        assert_eq!(cache.set_mask(ClosId(16), WayMask::from_bits(1)), Err(MaskError::NoSuchClos { clos: ClosId(16) }));
        assert_eq!(cache.mask(clos), WayMask::from_bits(0x7ff));
    }

    #[test]
    fn a_cleared_cache_holds_nothing() {
        let mut cache = WayPartitionedCache::new(LlcGeometry::new(2, 4, Ways(3)).unwrap(), ReplacementPolicy::Srrip);
        for number in 0..100 {
            cache.access(ClosId::DEFAULT, PhysicalLine::new(number).unwrap());
        }
        cache.clear();
        assert!((0..8).all(|set| cache.lines_of_set(set) == [None; 3]));
    }
}
