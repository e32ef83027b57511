//! The last-level cache: a way-partitioned, set-associative cache shared by many cores.
//!
//! A [`ReplayTrace`] is what one function asked of it. [`WayPartitionedCache`] serves requests under masks of ways;
//! [`StackDistances`] and [`SampledCurve`] give the misses at every number of ways in one pass; [`alone_by_ways`] turns
//! them into times; [`simulate`] runs many jobs on many cores under a policy that is given from outside ([`Binder`]).
//!
//! Why to believe it: `tests/llc_oracles` holds misses to cachegrind and pycachesim, `tests/llc_machine.rs` and the
//! properties beside the code hold everything else to plain models.

mod access;
mod address_space;
mod alone;
mod cache;
mod core_timing;
mod geometry;
mod job;
mod lanes;
mod machine;
mod machine_config;
mod memory;
mod private_cache;
mod replacement;
mod replay_trace;
mod sample_rate;
mod sampled_curve;
mod set_array;
mod sim_time;
mod split_mix;
mod stack_distance;
mod throughput;
mod trace;

pub use access::{AccessKind, LINE_BYTES, LlcAccess};
pub use address_space::{AddressSpace, FRAMES_MAX, FrameAllocator, OutOfFrames, PAGE_LINES, PagedLine, PhysicalLine};
pub use alone::{AloneRun, Warmth, alone_by_ways};
pub use cache::{CLOS_MAX, LlcRequest, MaskError, Tally, WayPartitionedCache};
pub use core_timing::CoreTiming;
pub use geometry::{GeometryError, LlcGeometry, SETS_MAX, SLICES_MAX, WAYS_MAX};
pub use job::{Binder, Classes, Job, JobId, JobReport, Passes};
pub use machine::{MachineReport, simulate};
pub use machine_config::{ARRIVAL_MAX, CORES_MAX, JOBS_MAX, MachineConfig, MachineError};
pub use memory::{MemoryQueue, MemoryTiming};
pub use private_cache::{PrivateCache, PrivateHierarchy};
pub use replacement::ReplacementPolicy;
pub use replay_trace::{REPLAY_ACCESSES_MAX, ReplayTrace, ReplayTraceError};
pub use sample_rate::{SAMPLE_ONE_IN_MAX, SampleRate, SampleRateError};
pub use sampled_curve::SampledCurve;
pub use set_array::Access;
pub use sim_time::SimTime;
pub use split_mix::SplitMix64;
pub use stack_distance::{StackDistances, WayCurve};
pub use throughput::{MIX_CLASSES, MIX_GEOMETRY, mix_cache, mix_requests};
pub use trace::{
    PrivateCaches, RECORDS_MAX, RawError, Sampling, TEXT_BYTES_MAX, TRACE_BYTES_MAX, Trace, TraceError, TraceHeader,
};
