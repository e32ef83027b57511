//! The places of a process's pages in physical memory: a random 4 KiB frame for each page, determined by the seed.
//!
//! A last-level cache is indexed by physical addresses, so two runs of one program meet different conflicts. Frames
//! never repeat within one allocator, so that two address spaces share no line. Physical memory is 256 GiB, which lets
//! a line's whole number be its 32-bit tag: a tag is exact, never partial.

use thiserror::Error;

use super::split_mix::SplitMix64;

/// Lines of a 4 KiB page.
pub const PAGE_LINES: u32 = 64;
/// Frames of the simulated memory: 256 GiB less one frame, which keeps `u32::MAX` free to mean "no line".
pub const FRAMES_MAX: u32 = (1 << 26) - 1;

const FRAME_BITS: u32 = 26;
const HALF_BITS: u32 = FRAME_BITS / 2;
const HALF_MASK: u32 = (1 << HALF_BITS) - 1;

/// A line of physical memory: physical address / 64; never `u32::MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PhysicalLine(u32);

impl PhysicalLine {
    /// Line `number` of memory; none for numbers beyond the last frame.
    pub const fn new(number: u32) -> Option<Self> {
        if number / PAGE_LINES < FRAMES_MAX { Some(Self(number)) } else { None }
    }

    /// Its number: physical address / 64.
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// A line of one process, its pages numbered densely from 0 in order of first touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PagedLine(u32);

impl PagedLine {
    /// Line `offset` (below [`PAGE_LINES`]; higher bits are cut off) of the process's page `page`.
    pub const fn new(page: u32, offset: u32) -> Self {
        Self(page * PAGE_LINES + offset % PAGE_LINES)
    }

    /// The line whose [`Self::number`] this is.
    pub(super) const fn from_number(number: u32) -> Self {
        Self(number)
    }

    /// Page and offset as one number.
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// The simulated memory has no frame left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "the jobs need {pages} pages, and {left} of {FRAMES_MAX} frames are free; run fewer or smaller jobs in one simulation"
)]
pub struct OutOfFrames {
    /// Pages asked for.
    pub pages: u32,
    /// Frames not yet given out.
    pub left: u32,
}

/// Assigns each frame once, in an order determined by the seed.
#[derive(Debug, Clone)]
pub struct FrameAllocator {
    round_keys: [u32; 4],
    given: u32,
}

impl FrameAllocator {
    /// All frames free, in the order of `seed`.
    pub fn new(seed: u64) -> Self {
        let mut stream = SplitMix64::new(seed);
        Self { round_keys: std::array::from_fn(|_| stream.next_u64() as u32), given: 0 }
    }

    /// A frame for each of `pages` pages.
    pub fn allocate(&mut self, pages: u32) -> Result<AddressSpace, OutOfFrames> {
        let left = FRAMES_MAX - self.given;
        if pages > left {
            return Err(OutOfFrames { pages, left });
        }
        let first_lines = (self.given..self.given + pages).map(|index| self.frame(index) * PAGE_LINES).collect();
        self.given += pages;
        Ok(AddressSpace { first_lines })
    }

    /// The frame given out as number `index`: a permutation of the valid frames.
    fn frame(&self, index: u32) -> u32 {
        let mut frame = self.permute(index);
        // The one number that is no frame leads on to another (cycle walking), so that the rest stays one to one.
        while frame == FRAMES_MAX {
            frame = self.permute(frame);
        }
        frame
    }

    /// A balanced Feistel network over 26 bits.
    fn permute(&self, number: u32) -> u32 {
        let (mut left, mut right) = (number >> HALF_BITS, number & HALF_MASK);
        for key in self.round_keys {
            let round = right.wrapping_add(key).wrapping_mul(0x9e37_79b1);
            (left, right) = (right, left ^ (((round >> 7) ^ (round >> 19)) & HALF_MASK));
        }
        (left << HALF_BITS) | right
    }
}

/// The frames of one process.
#[derive(Debug, Clone, Default)]
pub struct AddressSpace {
    /// The first physical line of each page's frame.
    first_lines: Vec<u32>,
}

impl AddressSpace {
    /// Frames that keep the low `colour_bits` bits of each virtual page number: for a cache that is indexed by virtual
    /// addresses, as cachegrind's is, when its index reaches that far. `virtual_pages[i]` is the number of page `i`.
    pub fn coloured(virtual_pages: &[u64], colour_bits: u32) -> Result<Self, OutOfFrames> {
        let pages = virtual_pages.len() as u32;
        let colour_bits = colour_bits.min(FRAME_BITS);
        let left = (1 << (FRAME_BITS - colour_bits)) - 1;
        if pages > left {
            return Err(OutOfFrames { pages, left });
        }
        let colour_mask = (1u64 << colour_bits) - 1;
        let first_lines = (0..pages)
            .zip(virtual_pages)
            .map(|(index, page)| ((index << colour_bits) | (page & colour_mask) as u32) * PAGE_LINES)
            .collect();
        Ok(Self { first_lines })
    }

    /// Where `line` lies.
    ///
    /// # Panics
    /// When the line's page is not one of the process's.
    #[inline]
    pub fn physical(&self, line: PagedLine) -> PhysicalLine {
        PhysicalLine(self.first_lines[(line.0 / PAGE_LINES) as usize] + line.0 % PAGE_LINES)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_frame_is_given_out_twice() {
        let mut allocator = FrameAllocator::new(7);
        let mut seen = HashSet::new();
        for _ in 0..20 {
            let space = allocator.allocate(5000).unwrap();
            for page in 0..5000 {
                let line = space.physical(PagedLine::new(page, 63));
                assert!(PhysicalLine::new(line.number()).is_some());
                assert!(seen.insert(line));
            }
        }
    }

    #[test]
    fn the_permutation_is_one_to_one() {
        let allocator = FrameAllocator::new(11);
        let mut taken = vec![0u64; 1 << (FRAME_BITS - 6)];
        for index in (0..FRAMES_MAX).step_by(61) {
            let frame = allocator.frame(index) as usize;
            assert_eq!(taken[frame / 64] & 1 << (frame % 64), 0, "frame {frame} twice");
            taken[frame / 64] |= 1 << (frame % 64);
        }
    }

    #[test]
    fn equal_seeds_give_equal_frames_and_others_other_ones() {
        let lines = |seed| {
            let space = FrameAllocator::new(seed).allocate(64).unwrap();
            (0..64).map(|page| space.physical(PagedLine::new(page, 0))).collect::<Vec<_>>()
        };
        assert_eq!(lines(1), lines(1));
        assert_ne!(lines(1), lines(2));
    }

    #[test]
    fn memory_ends_with_a_reason() {
        let mut allocator = FrameAllocator { given: FRAMES_MAX - 3, ..FrameAllocator::new(0) };
        assert_eq!(allocator.allocate(4).unwrap_err(), OutOfFrames { pages: 4, left: 3 });
        assert!(allocator.allocate(3).is_ok());
    }

    #[test]
    fn coloured_frames_keep_the_low_bits_of_the_page() {
        let pages = [0x7ffe_1235, 0x40_0005, 0x1ffe_ffff_0005];
        let space = AddressSpace::coloured(&pages, 4).unwrap();
        let lines: Vec<u32> = (0..3).map(|page| space.physical(PagedLine::new(page, 9)).number()).collect();
        assert_eq!(lines.iter().map(|line| line & 0x3ff).collect::<Vec<_>>(), [5 * 64 + 9; 3]);
        assert_eq!(lines.iter().collect::<HashSet<_>>().len(), 3);
        assert_eq!(AddressSpace::coloured(&pages, 25).unwrap_err(), OutOfFrames { pages: 3, left: 1 });
    }
}
