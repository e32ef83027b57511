//! The last-level cache: a way-partitioned, set-associative cache shared by many cores.

mod access;
mod address_space;
mod cache;
mod geometry;
mod lanes;
mod replacement;
mod sample_rate;
mod set_array;
mod split_mix;
mod throughput;

pub use access::{AccessKind, LINE_BYTES, LlcAccess};
pub use address_space::{AddressSpace, FRAMES_MAX, FrameAllocator, OutOfFrames, PAGE_LINES, PagedLine, PhysicalLine};
pub use cache::{CLOS_MAX, LlcRequest, MaskError, Tally, WayPartitionedCache};
pub use geometry::{GeometryError, LlcGeometry, SETS_MAX, SLICES_MAX, WAYS_MAX};
pub use replacement::ReplacementPolicy;
pub use sample_rate::{SAMPLE_ONE_IN_MAX, SampleRate, SampleRateError};
pub use set_array::Access;
pub use split_mix::SplitMix64;
pub use throughput::{MIX_CLASSES, MIX_GEOMETRY, mix_cache, mix_requests};
