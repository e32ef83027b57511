//! Ways of the last-level cache: how many an invocation needs (profiles, models), which classes of service there are
//! (layout), which class an invocation gets (placement), how many ways a latency-critical service needs (tail guard),
//! and the driver of the kernel's interface (resctrl).
//!
//! All decisions are pure; only [`resctrl`] touches the machine.

// The cost of a run by way count.
mod miss_curve;
mod occupancy;
mod time_curve;
// Learning a function's need.
mod counted_misses;
mod model_choice;
mod nearest_rows;
mod profile_outcome;
mod profiler;
mod repeated_timing;
mod row_interpolation;
mod sample_input;
mod sizing_model;
mod slowdown_margin;
mod training_rows;
mod way_search;
// Which classes there are.
mod chunk_split;
mod clos_layout;
mod clustering;
mod layout_fit;
mod mix_layout;
mod refit;
mod size_spread;
mod way_partition;
// Which class an invocation gets.
mod load;
mod placement;
mod shared_placement;
mod way_loads;
// A latency-critical service.
mod exported_histogram;
mod guard_settings;
mod latency_histogram;
mod tail_guard;

pub mod resctrl;

pub use chunk_split::{ChunkSplit, Demand, SplitDecision, SplitRules};
pub use clos_layout::{BeyondChunk, CLASSES_MAX, CacheShape, CasyRequest, Clos, ClosKind, ClosLayout, LayoutRefusal};
pub use clustering::{Clustering, EXACT_MAX, Group, cluster};
pub use counted_misses::CURVE_POINTS_MIN;
pub use exported_histogram::{ExportError, ExportedHistogram, HistogramChoice, SCRAPE_BYTES_MAX};
pub use guard_settings::{GuardMasks, GuardMode, GuardRefusal, GuardSettings, Objective};
pub use latency_histogram::{LatencyHistogram, NoPercentile, Percentile};
pub use layout_fit::fit_layout;
pub use load::Load;
pub use miss_curve::{CurveError, MissCurve, WAYS_MAX};
pub use mix_layout::{ChosenLayout, MIX_MAX, MixEntry, MixError, Slowdown, choose_layout};
pub use model_choice::{ModelScore, WRONG_CLASS};
pub use occupancy::SharingProfile;
pub use placement::{Casy, CasyLiteral, DefaultClassPlacement, PlacedBecause, Placement, PlacementDecision};
pub use profile_outcome::{BreakEven, InputOutcome, Measure, Observation, ProfileCost};
pub use profiler::{INPUTS_MAX, ProfileError, ProfileInput, Profiler, ProfilerSettings};
pub use refit::{Refit, RunningKind, refit};
pub use repeated_timing::{RepeatedTiming, Repetitions, TimingVerdict};
pub use sample_input::{SAMPLE_BYTES_MAX, SAMPLE_BYTES_MIN, SampleError, SampleKind};
pub use shared_placement::SharedPlacement;
pub use size_spread::Nesting;
pub use sizing_model::{
    ClassFrom, ModelError, ModelKind, Prediction, STORED_MAX, SizingModel, SizingRule, TrainedRange,
};
pub use tail_guard::{GuardDecision, GuardWindow, KeepReason, ResizeReason, SizeMemory, TailGuard};
pub use time_curve::{CacheClass, CpiModel, TimeCurve, Tolerance, Work};
pub use training_rows::{
    Axis, CodeVersion, FEATURES_MAX, OneRunRule, ROWS_MAX, RowError, RunCurves, SizingInput, TrainingRow, TrainingRows,
};
pub use way_loads::{LoadError, Need, PLACED_MAX, PlacedInvocation, PredictedNeed, Ticket, UnknownNeed, WayLoads};
pub use way_partition::{WayPartition, strict_partition};
pub use way_search::{FoundWays, SearchExit, SearchForm, SearchRule, SearchStep, TimedWays};
