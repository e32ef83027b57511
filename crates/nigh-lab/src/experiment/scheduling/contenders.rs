//! The weightings that are played against each other.

use nigh_schedule::scheduler::Weights;

/// Nothing weighs: the function's order of nodes alone decides.
const NOTHING: Weights = Weights {
    start_percent: 0,
    new_sandbox_us: 0,
    evict_us: 0,
    fetch_object_us: 0,
    fetch_mib_us: 0,
    slowdown_percent: 0,
    spread_us: 0,
    memory_us: 0,
    misfit_us: 0,
    staleness_us: 0,
    ways_us: 0,
    equal_within_us: 0,
    overload_percent: 1_000_000,
};

const OURS: Weights = Weights::SETTLED;

pub(super) const SETTLED: &str = "nigh";

/// By name: what schedulers of others decide by; then ours; then ours with one weight another, which shows what each is for.
pub(super) const CONTENDERS: &[(&str, Weights)] = &[
    ("least loaded", Weights { spread_us: 1_000_000, ..NOTHING }),
    ("hash only", NOTHING),
    ("locality only", Weights { fetch_object_us: 200, fetch_mib_us: 1_000, ..NOTHING }),
    ("warm, then least loaded", Weights { new_sandbox_us: 10_000_000, spread_us: 10_000, ..NOTHING }),
    (SETTLED, OURS),
    ("a new sandbox at what it takes", Weights { new_sandbox_us: 0, ..OURS }),
    ("a new sandbox at 0.1 s more", Weights { new_sandbox_us: 100_000, ..OURS }),
    ("a new sandbox at 1 s more", Weights { new_sandbox_us: 1_000_000, ..OURS }),
    ("no locality", Weights { fetch_object_us: 0, fetch_mib_us: 0, ..OURS }),
    ("locality by a quarter", Weights { fetch_object_us: 50, fetch_mib_us: 250, ..OURS }),
    ("locality by four", Weights { fetch_object_us: 800, fetch_mib_us: 4_000, ..OURS }),
    ("locality by sixteen", Weights { fetch_object_us: 3_200, fetch_mib_us: 16_000, ..OURS }),
    ("locality without bound", Weights { overload_percent: 1_000_000, ..OURS }),
    ("no slowdown", Weights { slowdown_percent: 0, ..OURS }),
    ("no spread", Weights { spread_us: 0, ..OURS }),
    ("spread by five", Weights { spread_us: 10_000, ..OURS }),
    ("no memory", Weights { memory_us: 0, ..OURS }),
    ("memory by ten", Weights { memory_us: 20_000, ..OURS }),
    ("equal within 0", Weights { equal_within_us: 0, ..OURS }),
    ("equal within 2 ms", Weights { equal_within_us: 2_000, ..OURS }),
    ("equal within 10 ms", Weights { equal_within_us: 10_000, ..OURS }),
];
