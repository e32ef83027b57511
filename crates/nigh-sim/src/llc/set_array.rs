//! The sets of a cache under one replacement policy: tags and policy states as arrays, one access at a time.
//!
//! A tag is the whole physical line number, so that a match is exact. The 16 tags of a row fill one line of the host's
//! cache and are compared at once; caches of more than 16 ways have two rows a set.

use super::address_space::PhysicalLine;
use super::geometry::LlcGeometry;
use super::lanes::{self, LANES};
use super::replacement::Replacement;

/// No line: no physical line has this number.
const NO_LINE: u32 = u32::MAX;

/// One row of tags, on a line of its own.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct TagRow([u32; LANES]);

/// What an access did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The line was there, in whatever way.
    Hit,
    /// It was not, and is now; `evicted` went for it.
    Miss {
        /// The evicted line; none if a way was empty.
        evicted: Option<PhysicalLine>,
    },
}

impl Access {
    /// Whether the line was there.
    pub const fn is_hit(self) -> bool {
        matches!(self, Self::Hit)
    }
}

/// All sets of one cache, of at most `ROWS` * 16 ways.
pub(super) struct SetArray<P: Replacement, const ROWS: usize> {
    policy: P,
    tags: Vec<[TagRow; ROWS]>,
    states: Vec<P::State>,
}

impl<P: Replacement, const ROWS: usize> SetArray<P, ROWS> {
    /// Empty sets.
    pub(super) fn new(geometry: LlcGeometry, policy: P) -> Self {
        assert!(usize::from(geometry.ways().0) <= ROWS * LANES);
        let tags = vec![[TagRow([NO_LINE; LANES]); ROWS]; geometry.sets()];
        let states = vec![policy.empty(); geometry.sets()];
        Self { policy, tags, states }
    }

    /// Looks `line` up in `set` and, where it is absent, puts it into one of the `allowed` ways.
    #[inline]
    pub(super) fn access(&mut self, set: usize, line: PhysicalLine, allowed: u32) -> Access {
        debug_assert_ne!(allowed, 0);
        let tags = &mut self.tags[set];
        let state = &mut self.states[set];
        let found = ways_with(tags, line.number());
        let way = self.policy.serve(state, found, || ways_with(tags, NO_LINE), allowed);
        let tag = &mut tags[way as usize / LANES].0[way as usize % LANES];
        let held = std::mem::replace(tag, line.number());
        if held == line.number() { Access::Hit } else { Access::Miss { evicted: PhysicalLine::new(held) } }
    }

    /// Asks the host to bring the tags and the state of `set` near.
    #[inline]
    pub(super) fn prefetch(&self, set: usize) {
        prefetch_line(&self.tags[set]);
        prefetch_line(&self.states[set]);
    }

    /// The lines of `set`, by way; none where a way is empty.
    pub(super) fn lines(&self, set: usize) -> impl Iterator<Item = Option<PhysicalLine>> {
        self.tags[set].iter().flat_map(|row| row.0).map(PhysicalLine::new)
    }

    /// Empties every set.
    pub(super) fn clear(&mut self) {
        self.tags.fill([TagRow([NO_LINE; LANES]); ROWS]);
        self.states.fill(self.policy.empty());
    }
}

/// The ways whose tag is `tag`, as bits.
#[inline]
fn ways_with<const ROWS: usize>(tags: &[TagRow; ROWS], tag: u32) -> u32 {
    let mut ways = 0;
    for (row, tags) in tags.iter().enumerate() {
        ways |= lanes::equal(&tags.0, tag) << (row * LANES);
    }
    ways
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn prefetch_line<T>(target: &T) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch is a hint; it reads nothing into the program and cannot fault, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(target).cast()) };
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn prefetch_line<T>(_: &T) {}
