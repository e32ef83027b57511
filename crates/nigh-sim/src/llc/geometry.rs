//! The shape of a last-level cache: slices, sets, ways, and which set a physical line belongs to.
//!
//! A hash of the whole line number chooses the slice, so any number of slices is possible; within a slice the low bits
//! choose the set. Intel's hash for ten slices is not published: this one spreads as evenly, but does not reproduce the
//! placement. Ten slices of 2048 sets are 1.25 MiB for each way, as in the Xeon Silver 4210R.

use nigh_terms::Ways;
use thiserror::Error;

use super::LINE_BYTES;
use super::address_space::PhysicalLine;
use super::sample_rate::SampleRate;

/// The most ways a cache may have: a way mask has as many bits.
pub const WAYS_MAX: u8 = 32;
/// The most slices a cache may have.
pub const SLICES_MAX: u32 = 256;
/// The most sets of all slices: 256 MiB a way.
pub const SETS_MAX: u32 = 1 << 22;

/// Sets of a slice in most of Intel's server processors.
const SLICE_SETS: u32 = 2048;
/// From so many slices on, rounding to a whole one changes a way by three parts in a hundred at most.
const SLICES_FOR_PRECISION: u32 = 16;

/// Why a geometry is not possible.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum GeometryError {
    /// No slice, or too many.
    #[error("a cache cannot have {slices} slices: give 1 to {SLICES_MAX}")]
    Slices {
        /// What was asked for.
        slices: u32,
    },
    /// The sets of a slice are no power of two.
    #[error("{sets} sets in a slice: the low address bits choose the set, so it must be a power of two")]
    SetsNotPowerOfTwo {
        /// What was asked for.
        sets: u32,
    },
    /// Too many sets in all.
    #[error("{slices} slices of {sets} sets are too many: at most {SETS_MAX} sets are simulated")]
    TooManySets {
        /// Slices asked for.
        slices: u32,
        /// Sets asked for, in each slice.
        sets: u32,
    },
    /// No way, or too many.
    #[error("a cache cannot have {ways} ways: give 1 to {WAYS_MAX}")]
    Ways {
        /// What was asked for.
        ways: u8,
    },
    /// The bytes are no whole number of sets.
    #[error(
        "{bytes} bytes in {ways} ways of one slice: a way must be a power-of-two number of {LINE_BYTES}-byte lines"
    )]
    Bytes {
        /// What was asked for.
        bytes: u64,
        /// Ways asked for.
        ways: u8,
    },
    /// Fewer sets in a slice than the sample rate would divide by.
    #[error("a slice of {sets} sets cannot stand for 1 in {rate} lines; sample at most 1 in {sets}")]
    TooFewSetsToScale {
        /// Sets in a slice.
        sets: u32,
        /// One line in this many is kept.
        rate: SampleRate,
    },
}

/// The shape of one last-level cache; always valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LlcGeometry {
    slices: u32,
    sets_per_slice: u32,
    ways: Ways,
    /// What the lines are a sample of: the bits below the index choose among lines of which one is left.
    sampled: SampleRate,
}

impl LlcGeometry {
    /// Intel Xeon Silver 4210R: 11 ways of 1.25 MiB (13.75 MiB), ten slices; the processor of the CASY paper.
    pub const XEON_SILVER_4210R: Self =
        Self { slices: 10, sets_per_slice: 2048, ways: Ways(11), sampled: SampleRate::ALL };

    /// An Intel Broadwell-EP of sixteen cores: 20 ways of 2 MiB (40 MiB), sixteen slices.
    pub const BROADWELL_EP_16: Self =
        Self { slices: 16, sets_per_slice: 2048, ways: Ways(20), sampled: SampleRate::ALL };

    /// `slices` slices of `sets_per_slice` sets (a power of two) of `ways` lines each.
    pub const fn new(slices: u32, sets_per_slice: u32, ways: Ways) -> Result<Self, GeometryError> {
        if slices == 0 || slices > SLICES_MAX {
            return Err(GeometryError::Slices { slices });
        }
        if !sets_per_slice.is_power_of_two() {
            return Err(GeometryError::SetsNotPowerOfTwo { sets: sets_per_slice });
        }
        if sets_per_slice > SETS_MAX / slices {
            return Err(GeometryError::TooManySets { slices, sets: sets_per_slice });
        }
        if ways.0 == 0 || ways.0 > WAYS_MAX {
            return Err(GeometryError::Ways { ways: ways.0 });
        }
        Ok(Self { slices, sets_per_slice, ways, sampled: SampleRate::ALL })
    }

    /// A cache whose ways have about `way_lines` lines, in slices of 2048 sets if that is a multiple, as in most
    /// processors: a machine reports the size and the ways of its cache, but not its slices. If it is not a multiple,
    /// the nearest number.
    pub fn of_way_lines(way_lines: u32, ways: Ways) -> Result<Self, GeometryError> {
        let mut sets = SLICE_SETS;
        while sets > 1 && !way_lines.is_multiple_of(sets) && way_lines / sets < SLICES_FOR_PRECISION {
            sets /= 2;
        }
        while way_lines / sets >= SLICES_MAX && sets < SETS_MAX {
            sets *= 2;
        }
        Self::new((way_lines + sets / 2) / sets, sets, ways)
    }

    /// A cache in one slice of `bytes` bytes, as cachegrind names its caches.
    pub fn of_bytes(bytes: u64, ways: Ways) -> Result<Self, GeometryError> {
        let refused = GeometryError::Bytes { bytes, ways: ways.0 };
        let way_bytes = u64::from(ways.0) * LINE_BYTES;
        if way_bytes == 0 {
            return Err(GeometryError::Ways { ways: ways.0 });
        }
        let sets = u32::try_from(bytes / way_bytes).map_err(|_| refused.clone())?;
        if !bytes.is_multiple_of(way_bytes) || !sets.is_power_of_two() {
            return Err(refused);
        }
        Self::new(1, sets, ways)
    }

    /// Slices.
    pub const fn slices(self) -> u32 {
        self.slices
    }

    /// Sets of all slices.
    pub const fn sets(self) -> usize {
        self.slices as usize * self.sets_per_slice as usize
    }

    /// Sets of one slice.
    pub const fn sets_per_slice(self) -> u32 {
        self.sets_per_slice
    }

    /// Ways of every set.
    pub const fn ways(self) -> Ways {
        self.ways
    }

    /// Bytes of one way over all slices.
    pub const fn way_bytes(self) -> u64 {
        self.sets() as u64 * LINE_BYTES
    }

    /// Bytes of the whole cache.
    pub const fn bytes(self) -> u64 {
        self.way_bytes() * self.ways.0 as u64
    }

    /// The same sets with another number of ways.
    pub const fn with_ways(self, ways: Ways) -> Result<Self, GeometryError> {
        match Self::new(self.slices, self.sets_per_slice, ways) {
            Ok(_) => Ok(Self { ways, ..self }),
            Err(refused) => Err(refused),
        }
    }

    /// The cache that 1 line in `rate` of this one's lines sees as those see this one: fewer sets, as many slices and
    /// ways.
    pub const fn scaled_down(self, rate: SampleRate) -> Result<Self, GeometryError> {
        let refused = GeometryError::TooFewSetsToScale { sets: self.sets_per_slice, rate };
        if rate.one_in() > self.sets_per_slice {
            return Err(refused);
        }
        match self.sampled.then(rate) {
            Ok(sampled) => Ok(Self { sets_per_slice: self.sets_per_slice / rate.one_in(), sampled, ..self }),
            Err(_) => Err(refused),
        }
    }

    /// The set of `line`, counted over all slices.
    #[inline]
    pub const fn set_of(self, line: PhysicalLine) -> usize {
        let slice = ((mix(line.number()) as u64 * self.slices as u64) >> 32) as usize;
        slice * self.sets_per_slice as usize
            + ((line.number() >> self.sampled.shift()) & (self.sets_per_slice - 1)) as usize
    }
}

/// Every bit of the result depends on every bit of `number`; one to one.
pub(super) const fn mix(number: u32) -> u32 {
    let mut mixed = number;
    mixed = (mixed ^ (mixed >> 16)).wrapping_mul(0x7feb_352d);
    mixed = (mixed ^ (mixed >> 15)).wrapping_mul(0x846c_a68b);
    mixed ^ (mixed >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_4210r_has_11_ways_of_1_25_mebibytes() {
        let geometry = LlcGeometry::XEON_SILVER_4210R;
        assert_eq!(geometry.way_bytes(), 1_310_720);
        assert_eq!(geometry.bytes(), 14_417_920);
        assert_eq!(Ok(geometry), LlcGeometry::new(10, 2048, Ways(11)));
    }

    #[test]
    fn every_set_gets_its_share_of_random_frames() {
        let geometry = LlcGeometry::XEON_SILVER_4210R;
        let mut lines = vec![0u32; geometry.sets()];
        let mut frames = super::super::FrameAllocator::new(3);
        let pages = 20_480;
        let space = frames.allocate(pages).unwrap();
        for page in 0..pages {
            for offset in 0..64 {
                lines[geometry.set_of(space.physical(super::super::PagedLine::new(page, offset)))] += 1;
            }
        }
        // 64 lines a set on average; binomial, so a deviation of 8: six of them over 20 480 sets are never passed.
        assert!(lines.iter().all(|&count| (16..=112).contains(&count)), "{:?}", lines.iter().max());
        let spread = lines.iter().map(|&count| (f64::from(count) - 64.0).powi(2)).sum::<f64>() / lines.len() as f64;
        assert!((40.0..80.0).contains(&spread), "variance {spread}");
    }

    #[test]
    fn a_geometry_that_cannot_be_is_refused_with_its_reason() {
        assert_eq!(LlcGeometry::new(0, 64, Ways(1)), Err(GeometryError::Slices { slices: 0 }));
        assert_eq!(LlcGeometry::new(1, 0, Ways(1)), Err(GeometryError::SetsNotPowerOfTwo { sets: 0 }));
        assert_eq!(LlcGeometry::new(1, 48, Ways(1)), Err(GeometryError::SetsNotPowerOfTwo { sets: 48 }));
        assert_eq!(LlcGeometry::new(1, 64, Ways(0)), Err(GeometryError::Ways { ways: 0 }));
        assert_eq!(LlcGeometry::new(1, 64, Ways(33)), Err(GeometryError::Ways { ways: 33 }));
        assert_eq!(
            LlcGeometry::new(256, 1 << 15, Ways(1)),
            Err(GeometryError::TooManySets { slices: 256, sets: 1 << 15 })
        );
        assert_eq!(LlcGeometry::of_bytes(5000, Ways(2)), Err(GeometryError::Bytes { bytes: 5000, ways: 2 }));
        assert_eq!(LlcGeometry::of_bytes(5000, Ways(0)), Err(GeometryError::Ways { ways: 0 }));
        let rate = SampleRate::new(4096).unwrap();
        let refused = LlcGeometry::XEON_SILVER_4210R.scaled_down(rate).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "a slice of 2048 sets cannot stand for 1 in 4096 lines; sample at most 1 in 2048"
        );
    }

    #[test]
    fn a_machine_that_says_only_how_large_a_way_is_gets_slices_that_make_it_up() {
        let of = |lines| LlcGeometry::of_way_lines(lines, Ways(11)).unwrap();
        assert_eq!(of(20_480), LlcGeometry::XEON_SILVER_4210R);
        assert_eq!((of(32_768).slices(), of(32_768).sets_per_slice()), (16, 2048));
        assert_eq!((of(64).slices(), of(64).sets_per_slice()), (1, 64));
        assert_eq!(of(1 << 21).sets(), 1 << 21);
        for lines in [1, 17, 3001, 99_999, 1_234_567] {
            let error = of(lines).sets() as f64 / f64::from(lines) - 1.0;
            assert!(error.abs() < 0.034, "{lines}: {error}");
        }
        assert_eq!(LlcGeometry::of_way_lines(0, Ways(11)), Err(GeometryError::Slices { slices: 0 }));
        assert!(LlcGeometry::of_way_lines(u32::MAX / 2, Ways(11)).is_err());
    }

    #[test]
    fn other_machines_can_be_described() {
        let small = LlcGeometry::of_bytes(2_621_440, Ways(20)).unwrap();
        assert_eq!((small.sets(), small.way_bytes()), (2048, 131_072));
        let scaled = LlcGeometry::XEON_SILVER_4210R.scaled_down(SampleRate::new(32).unwrap()).unwrap();
        assert_eq!((scaled.sets(), scaled.ways()), (640, Ways(11)));
    }
}
