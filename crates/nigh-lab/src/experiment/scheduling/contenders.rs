//! The weightings that are played against each other.

use nigh_schedule::scheduler::Weights;

#[derive(Clone, Copy, Debug)]
pub(super) struct Contender {
    pub(super) name: &'static str,
    pub(super) weights: Weights,
}

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

/// What schedulers of others decide by; then ours; then ours with one weight another, which shows what each is for.
pub(super) const CONTENDERS: &[Contender] = &[
    Contender { name: "least loaded", weights: Weights { spread_us: 1_000_000, ..NOTHING } },
    Contender { name: "hash only", weights: NOTHING },
    Contender { name: "locality only", weights: Weights { fetch_object_us: 200, fetch_mib_us: 1_000, ..NOTHING } },
    Contender {
        name: "warm, then least loaded",
        weights: Weights { new_sandbox_us: 10_000_000, spread_us: 10_000, ..NOTHING },
    },
    Contender { name: SETTLED, weights: OURS },
    Contender { name: "a new sandbox at what it takes", weights: Weights { new_sandbox_us: 0, ..OURS } },
    Contender { name: "a new sandbox at 0.1 s more", weights: Weights { new_sandbox_us: 100_000, ..OURS } },
    Contender { name: "a new sandbox at 1 s more", weights: Weights { new_sandbox_us: 1_000_000, ..OURS } },
    Contender { name: "no locality", weights: Weights { fetch_object_us: 0, fetch_mib_us: 0, ..OURS } },
    Contender { name: "locality by a quarter", weights: Weights { fetch_object_us: 50, fetch_mib_us: 250, ..OURS } },
    Contender { name: "locality by four", weights: Weights { fetch_object_us: 800, fetch_mib_us: 4_000, ..OURS } },
    Contender {
        name: "locality by sixteen",
        weights: Weights { fetch_object_us: 3_200, fetch_mib_us: 16_000, ..OURS },
    },
    Contender { name: "locality without bound", weights: Weights { overload_percent: 1_000_000, ..OURS } },
    Contender { name: "no slowdown", weights: Weights { slowdown_percent: 0, ..OURS } },
    Contender { name: "no spread", weights: Weights { spread_us: 0, ..OURS } },
    Contender { name: "spread by five", weights: Weights { spread_us: 10_000, ..OURS } },
    Contender { name: "no memory", weights: Weights { memory_us: 0, ..OURS } },
    Contender { name: "memory by ten", weights: Weights { memory_us: 20_000, ..OURS } },
    Contender { name: "equal within 0", weights: Weights { equal_within_us: 0, ..OURS } },
    Contender { name: "equal within 2 ms", weights: Weights { equal_within_us: 2_000, ..OURS } },
    Contender { name: "equal within 10 ms", weights: Weights { equal_within_us: 10_000, ..OURS } },
];
