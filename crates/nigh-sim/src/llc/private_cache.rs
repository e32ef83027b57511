//! The caches above the last level, which belong to one core: they take out of a stream what never reaches it.
//!
//! For streams that are not filtered yet. Exact LRU over whole line numbers, which also index the sets (virtual numbers
//! for a traced program, as in cachegrind). The caches are small, so each set is a list in order of use. Only requests
//! are passed on: evictions do not matter, since only requests fill the last level.

use nigh_terms::Ways;

use super::access::AccessKind;
use super::geometry::GeometryError;
use super::geometry::{LlcGeometry, WAYS_MAX};

/// An LRU cache of one core.
#[derive(Debug, Clone)]
pub struct PrivateCache {
    /// Lines of every set, newest first; at most `ways` each.
    sets: Vec<Vec<u64>>,
    ways: usize,
}

impl PrivateCache {
    /// An empty cache of `bytes` bytes: a power-of-two number of sets of `ways` lines.
    pub fn new(bytes: u64, ways: Ways) -> Result<Self, GeometryError> {
        let geometry = LlcGeometry::of_bytes(bytes, ways)?;
        debug_assert!(ways.0 <= WAYS_MAX);
        let ways = usize::from(ways.0);
        Ok(Self { sets: vec![Vec::with_capacity(ways); geometry.sets()], ways })
    }

    /// Asks for line `line` (address / 64); whether it was there. It is there afterwards.
    pub fn access(&mut self, line: u64) -> bool {
        let index = line & (self.sets.len() as u64 - 1);
        let set = &mut self.sets[index as usize];
        let found = set.iter().position(|&held| held == line);
        match found {
            Some(place) => set[..=place].rotate_right(1),
            None => {
                set.truncate(self.ways - 1);
                set.insert(0, line);
            }
        }
        found.is_some()
    }
}

/// The caches of one core: instructions and data apart at the first level, together at the second.
#[derive(Debug, Clone)]
pub struct PrivateHierarchy {
    /// First level, instructions.
    pub instructions: PrivateCache,
    /// First level, data.
    pub data: PrivateCache,
    /// Second level; none where the last level follows at once.
    pub second: Option<PrivateCache>,
}

impl PrivateHierarchy {
    /// A core of Intel Cascade Lake: 32 KiB of 8 ways for instructions and for data, 1 MiB of 16 ways behind them.
    pub fn cascade_lake() -> Result<Self, GeometryError> {
        Ok(Self {
            instructions: PrivateCache::new(32 << 10, Ways(8))?,
            data: PrivateCache::new(32 << 10, Ways(8))?,
            second: Some(PrivateCache::new(1 << 20, Ways(16))?),
        })
    }

    /// A core of Intel Broadwell: the same first level, 256 KiB of 8 ways behind it.
    pub fn broadwell() -> Result<Self, GeometryError> {
        Ok(Self { second: Some(PrivateCache::new(256 << 10, Ways(8))?), ..Self::cascade_lake()? })
    }

    /// Asks for a line; whether the request goes on to the last level. What the second level gives up never reaches
    /// these caches, so [`AccessKind::CleanEviction`] and [`AccessKind::DirtyEviction`] always go on.
    pub fn passes_on(&mut self, line: u64, kind: AccessKind) -> bool {
        let first = match kind {
            AccessKind::Fetch => &mut self.instructions,
            AccessKind::Load | AccessKind::Store => &mut self.data,
            AccessKind::CleanEviction | AccessKind::DirtyEviction => return true,
        };
        if first.access(line) {
            return false;
        }
        !self.second.as_mut().is_some_and(|second| second.access(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_used_longest_ago_goes_first() {
        let mut cache = PrivateCache::new(4 * 64, Ways(2)).unwrap();
        // Even lines share a set of two.
        let hits: Vec<bool> = [0, 2, 0, 4, 2, 0, 1, 1].map(|line| cache.access(line)).to_vec();
        assert_eq!(hits, [false, false, true, false, false, false, false, true]);
    }

    #[test]
    fn only_what_both_levels_miss_is_passed_on() {
        let mut caches = PrivateHierarchy {
            instructions: PrivateCache::new(64, Ways(1)).unwrap(),
            data: PrivateCache::new(64, Ways(1)).unwrap(),
            second: Some(PrivateCache::new(256, Ways(4)).unwrap()),
        };
        assert!(caches.passes_on(7, AccessKind::Fetch));
        assert!(!caches.passes_on(7, AccessKind::Load), "the second level has it");
        assert!(caches.passes_on(8, AccessKind::Store));
        assert!(!caches.passes_on(8, AccessKind::Load), "the first level has it");
        assert!(!caches.passes_on(7, AccessKind::Fetch), "data does not push instructions out of their first level");
        assert!(caches.passes_on(7, AccessKind::CleanEviction));
    }

    #[test]
    fn a_core_keeps_its_second_level_to_itself_and_no_more() {
        for (caches, bytes) in [(PrivateHierarchy::cascade_lake(), 1 << 20), (PrivateHierarchy::broadwell(), 256 << 10)]
        {
            let mut caches = caches.unwrap();
            let lines = bytes / 64;
            let mut passed =
                |lines: u64| (0..lines).filter(|&line| caches.passes_on(line, AccessKind::Load)).count() as u64;
            assert_eq!([passed(lines), passed(lines)], [lines, 0]);
            assert_eq!(
                [passed(2 * lines), passed(2 * lines)],
                [lines, 2 * lines],
                "in order, twice as much is never there"
            );
        }
    }
}
