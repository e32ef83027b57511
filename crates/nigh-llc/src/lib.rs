//! Ways of the last-level cache for every invocation: how many one needs (profiles, models), which classes of service
//! there are (layout), which one an invocation gets (placement), what a latency-critical service needs (tail guard),
//! and the driver of the kernel's interface (resctrl).
//!
//! Everything that decides is pure; only [`resctrl`] touches the machine.

mod chunk_split;
mod clos_layout;
mod miss_curve;
mod occupancy;
mod placement;
pub mod resctrl;
mod size_spread;
mod time_curve;
mod way_loads;

pub use chunk_split::{ChunkSplit, Demand, SplitDecision, SplitRules};
pub use clos_layout::{BeyondChunk, CLASSES_MAX, CacheShape, CasyRequest, Clos, ClosKind, ClosLayout, LayoutRefusal};
pub use miss_curve::{CurveError, MissCurve, WAYS_MAX};
pub use occupancy::SharingProfile;
pub use placement::{Casy, CasyLiteral, Placed, PlacedBecause, Placement, Unpartitioned};
pub use size_spread::Nesting;
pub use time_curve::{CacheClass, CalibrationError, CountedRun, CpiModel, TimeCurve, Tolerance, Work};
pub use way_loads::{
    DomainLoads, Load, LoadError, Need, PLACED_MAX, Predicted, Running, Ticket, UnknownNeed, WayLoads,
};
