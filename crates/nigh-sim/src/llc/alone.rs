//! One job alone, at every number of ways: the sweep that sensitivity and the need of ways are read from.
//!
//! Without other jobs in the cache or at the memory, the misses determine a run's time. Under LRU one pass gives the
//! misses for all numbers of ways (stack distances); other policies are replayed once for each number.

use nigh_terms::{ClosId, WayMask, Ways};

use super::address_space::{AddressSpace, FrameAllocator};
use super::cache::{MaskError, WayPartitionedCache};
use super::geometry::LlcGeometry;
use super::job::JobId;
use super::machine_config::{MachineConfig, MachineError, check_trace};
use super::replacement::ReplacementPolicy;
use super::replay_trace::ReplayTrace;
use super::sim_time::SimTime;
use super::stack_distance::StackDistances;

/// The content of the cache before the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Warmth {
    /// Nothing.
    Cold,
    /// The lines of a previous run of the same job, as in a warm sandbox.
    Warm,
}

/// One run at one number of ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AloneRun {
    /// The ways the job had to itself.
    pub ways: Ways,
    /// How long it took.
    pub time: SimTime,
    /// Its misses; those of a sampled trace times what each stands for.
    pub misses: u64,
}

/// Runs `trace` alone on the machine at 1, 2, ... ways up to all; the machine's cores do not matter.
pub fn alone_by_ways(
    config: &MachineConfig,
    trace: &ReplayTrace,
    warmth: Warmth,
) -> Result<Vec<AloneRun>, MachineError> {
    check_trace(config, JobId(0), trace)?;
    let geometry = config.geometry;
    let space = FrameAllocator::new(config.seed).allocate(trace.pages())?;
    let misses = match config.policy {
        ReplacementPolicy::Lru => lru_misses(geometry, trace, &space, warmth),
        ReplacementPolicy::TreePlru | ReplacementPolicy::Srrip => {
            replayed_misses(geometry, config.policy, trace, &space, warmth)
                .map_err(|reason| MachineError::Refused { job: JobId(0), reason })?
        }
    };
    let weight = u64::from(config.rate.one_in());
    let run = |(ways, misses): (u8, Misses)| AloneRun {
        ways: Ways(ways),
        time: config.timing.run(trace, misses.others, misses.neighbours),
        misses: (misses.others + misses.neighbours) * weight,
    };
    Ok((1..).zip(misses).map(run).collect())
}

/// Misses on lines whose neighbour was asked for shortly before, and the others.
#[derive(Debug, Clone, Copy, Default)]
struct Misses {
    neighbours: u64,
    others: u64,
}

impl Misses {
    const fn count(&mut self, neighbour: bool) {
        if neighbour {
            self.neighbours += 1;
        } else {
            self.others += 1;
        }
    }
}

const fn passes(warmth: Warmth) -> usize {
    match warmth {
        Warmth::Cold => 1,
        Warmth::Warm => 2,
    }
}

fn lru_misses(geometry: LlcGeometry, trace: &ReplayTrace, space: &AddressSpace, warmth: Warmth) -> Vec<Misses> {
    let ways = usize::from(geometry.ways().0);
    let mut distances = StackDistances::new(geometry);
    // By the fewest ways that would hit, less one; the last place is for accesses that miss with all.
    let mut places = Vec::new();
    for _ in 0..passes(warmth) {
        places = vec![Misses::default(); ways + 1];
        for access in trace.accesses().iter().filter(|access| !access.is_pause()) {
            let found = distances.access(space.physical(access.line()));
            places[found.map_or(ways, |fewest| usize::from(fewest.0) - 1)].count(access.is_neighbour());
        }
    }
    let mut sum = Misses::default();
    let mut misses: Vec<Misses> = places[1..]
        .iter()
        .rev()
        .map(|place| {
            sum.neighbours += place.neighbours;
            sum.others += place.others;
            sum
        })
        .collect();
    misses.reverse();
    misses
}

fn replayed_misses(
    geometry: LlcGeometry,
    policy: ReplacementPolicy,
    trace: &ReplayTrace,
    space: &AddressSpace,
    warmth: Warmth,
) -> Result<Vec<Misses>, MaskError> {
    let mut cache = WayPartitionedCache::new(geometry, policy);
    let at = |ways| {
        cache.clear();
        cache.set_mask(ClosId::DEFAULT, WayMask::contiguous(0, Ways(ways)))?;
        let mut misses = Misses::default();
        for _ in 0..passes(warmth) {
            misses = Misses::default();
            for access in trace.accesses().iter().filter(|access| !access.is_pause()) {
                if !cache.access(ClosId::DEFAULT, space.physical(access.line())).is_hit() {
                    misses.count(access.is_neighbour());
                }
            }
        }
        Ok(misses)
    };
    (1..=geometry.ways().0).map(at).collect()
}
