//! Ways of the last-level cache for every invocation: how many one needs (profiles, models), which classes of service
//! there are (layout), which one an invocation gets (placement), what a latency-critical service needs (tail guard),
//! and the driver of the kernel's interface (resctrl).
//!
//! Everything that decides is pure; only [`resctrl`] touches the machine.

mod chunk_split;
mod clos_layout;
mod clustering;
mod domain_loads;
mod load_bound;
mod miss_curve;
mod mix_layout;
mod occupancy;
mod placement;
pub mod resctrl;
mod shared_placement;
mod size_spread;
mod time_curve;
mod way_loads;
mod way_partition;

pub use chunk_split::{ChunkSplit, Demand, SplitDecision, SplitRules};
pub use clos_layout::{BeyondChunk, CLASSES_MAX, CacheShape, CasyRequest, Clos, ClosKind, ClosLayout, LayoutRefusal};
pub use clustering::{Clustering, EXACT_MAX, Group, cluster, cluster_misses};
pub use domain_loads::DomainLoads;
pub use load_bound::{LoadBound, load_bound};
pub use miss_curve::{CurveError, MissCurve, WAYS_MAX};
pub use mix_layout::{ChosenLayout, MIX_MAX, MixEntry, MixError, Slowdown, choose_layout};
pub use occupancy::SharingProfile;
pub use placement::{Casy, CasyLiteral, Placed, PlacedBecause, Placement, Unpartitioned};
pub use shared_placement::SharedPlacement;
pub use size_spread::Nesting;
pub use time_curve::{CacheClass, CalibrationError, CountedRun, CpiModel, TimeCurve, Tolerance, Work};
pub use way_loads::{Load, LoadError, Need, PLACED_MAX, Predicted, Running, Ticket, UnknownNeed, WayLoads};
pub use way_partition::{WayPartition, lookahead, strict_misses, strict_partition};
