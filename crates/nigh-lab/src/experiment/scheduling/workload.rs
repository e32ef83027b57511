//! What is invoked when, and what it reads: one recorded workload and three made up.
//!
//! Recorded are how often each of 200 functions ran in each minute of a day, how long, and with what memory (Azure, 2019;
//! joined by line, for the sample's names are not those of one function). What they read is made up in all: inputs by
//! Zipf's law, of measured sizes. Each workload asks of a cluster the same part of its processors, whatever its size.

use nigh_terms::ByteSize;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use rand_distr::{Distribution as _, Exp, Zipf};

use super::recorded_runs::RecordedRun;
use crate::instrument::measured_sizes::size;

/// The part of a cluster's processors that runs take; starts, fetches and bursts come on top.
const LOAD: f64 = 0.6;
/// Runs are cut there, so that a minute of load has ends in it.
pub(super) const RUN_MAX_MS: f64 = 3000.0;
/// The popularity of a function's inputs.
const ZIPF: f64 = 0.9;
pub(super) const TENANTS: usize = 16;
/// Minutes of the recorded day that are played, from the busiest on.
pub(super) const BUSIEST_MINUTE: usize = 830;

#[derive(Clone, Copy, Debug)]
pub(super) struct SimulatedFunction {
    pub(super) tenant: usize,
    pub(super) booked: ByteSize,
    /// The median, which the scheduler knows.
    pub(super) run_us: u64,
    /// Whose runs its output starts, if any's.
    pub(super) next: Option<usize>,
}

#[derive(Clone, Debug)]
pub(super) struct Arrival {
    pub(super) at_us: u64,
    pub(super) function: usize,
    pub(super) run_us: u64,
    pub(super) inputs: Vec<u64>,
}

#[derive(Debug)]
pub(super) struct Workload {
    pub(super) name: &'static str,
    pub(super) functions: Vec<SimulatedFunction>,
    /// In the order of time.
    pub(super) arrivals: Vec<Arrival>,
    pub(super) sizes: Vec<u64>,
}

#[derive(Default)]
struct Inputs {
    sizes: Vec<u64>,
    /// Of each function: where its inputs begin, and how popular they are.
    by_function: Vec<(u64, Zipf<f64>)>,
}

impl Inputs {
    /// One function more, with so many inputs.
    fn add(&mut self, count: usize, random: &mut StdRng, mut size: impl FnMut(&mut StdRng) -> u64) {
        let Ok(popular) = Zipf::new(count.max(1) as f64, ZIPF) else { return };
        self.by_function.push((self.sizes.len() as u64, popular));
        self.sizes.extend((0..count.max(1)).map(|_| size(random)));
    }

    fn draw(&self, function: usize, random: &mut StdRng) -> u64 {
        let Some((first, popular)) = self.by_function.get(function) else { return 0 };
        first + popular.sample(random) as u64 - 1
    }
}

impl Workload {
    /// All of them, for a cluster of so many processors.
    pub(super) fn all(minutes: &[Vec<u32>], runs: &[RecordedRun], processors: f64, seconds: u64) -> Vec<Self> {
        let made = MADE_UP.iter().map(|made| Self::made(made, processors, seconds));
        std::iter::once(Self::recorded(minutes, runs, processors, seconds)).chain(made).collect()
    }

    fn recorded(minutes: &[Vec<u32>], runs: &[RecordedRun], processors: f64, seconds: u64) -> Self {
        let mut random = StdRng::seed_from_u64(1);
        let (mut functions, mut arrivals, mut inputs) = (Vec::new(), Vec::new(), Inputs::default());
        // Whole minutes, as they were recorded.
        let played = seconds.div_ceil(60);
        let wanted_us = processors * played as f64 * 60e6 * LOAD;
        let mut work_us = 0.0;
        // The day again and again, each time by other tenants and another part of an hour earlier, until it is enough.
        'enough: for copy in 0.. {
            for (line, (counts, run)) in minutes.iter().zip(runs).enumerate() {
                let function = functions.len();
                functions.push(SimulatedFunction {
                    tenant: (line + copy) % TENANTS,
                    booked: ByteSize::mib(run.memory_mib),
                    run_us: (run.median_ms.clamp(1.0, RUN_MAX_MS) * 1000.0) as u64,
                    next: None,
                });
                let count = 1000_f64.powf(random.random_range(0.0..1.0)) as usize;
                inputs.add(count, &mut random, size);
                for minute in 0..played as usize {
                    let recorded = counts.get((BUSIEST_MINUTE + minute + 1440 - copy * 7 % 1440) % 1440).copied();
                    for _ in 0..recorded.unwrap_or_default() {
                        let run_us = (run.draw(&mut random).clamp(1.0, RUN_MAX_MS) * 1000.0) as u64;
                        let at_us = (minute as u64 * 60 + random.random_range(0..60)) * 1_000_000
                            + random.random_range(0..1_000_000);
                        let inputs = vec![inputs.draw(function, &mut random)];
                        arrivals.push(Arrival { at_us, function, run_us, inputs });
                        work_us += run_us as f64;
                    }
                }
                if work_us > wanted_us {
                    break 'enough;
                }
            }
        }
        Self::in_order("recorded", functions, arrivals, inputs)
    }

    fn made(made: &MadeUpWorkload, processors: f64, seconds: u64) -> Self {
        let mut random = StdRng::seed_from_u64(2);
        let (mut functions, mut arrivals, mut inputs) = (Vec::new(), Vec::new(), Inputs::default());
        let chains = made.functions.max((processors / 8.0) as usize);
        for chain in 0..chains {
            let median_ms = made.median_ms * 4_f64.powf(random.random_range(-1.0..1.0));
            for stage in 0..made.stages {
                let next = (stage + 1 < made.stages).then_some(functions.len() + 1);
                let booked = ByteSize::mib([128, 128, 256, 512][random.random_range(0..4)]);
                let run_us = (median_ms * 1000.0) as u64;
                functions.push(SimulatedFunction { tenant: chain % TENANTS, booked, run_us, next });
                inputs.add(made.inputs, &mut random, |random| {
                    if made.bytes > 0 { random.random_range(made.bytes / 2..made.bytes * 2) } else { size(random) }
                });
            }
        }
        let Ok(popular) = Zipf::new(chains as f64, made.skew) else {
            return Self::in_order(made.name, functions, arrivals, inputs);
        };
        // The mean of a run by the popularity of its function, a burst being as many of one.
        let draw = |random: &mut StdRng| (popular.sample(random) as usize - 1) * made.stages;
        let mean_us = (0..10_000).map(|_| functions[draw(&mut random)].run_us as f64).sum::<f64>() / 10_000.0;
        let rate = processors * LOAD / (mean_us * made.stages as f64 * f64::from(made.burst));
        let Ok(pause) = Exp::new(rate) else { return Self::in_order(made.name, functions, arrivals, inputs) };
        let mut at_us = 0.0;
        while at_us < seconds as f64 * 1e6 {
            at_us += pause.sample(&mut random);
            let function = draw(&mut random);
            for _ in 0..made.burst {
                let run_ms = functions[function].run_us as f64 / 1000.0 * 1.5_f64.powf(random.random_range(-1.0..1.0));
                let run_us = (run_ms.clamp(1.0, RUN_MAX_MS) * 1000.0) as u64;
                let inputs = vec![inputs.draw(function, &mut random)];
                let within = if made.burst > 1 { random.random_range(0..200_000) } else { 0 };
                arrivals.push(Arrival { at_us: at_us as u64 + within, function, run_us, inputs });
            }
        }
        Self::in_order(made.name, functions, arrivals, inputs)
    }

    fn in_order(
        name: &'static str,
        functions: Vec<SimulatedFunction>,
        mut arrivals: Vec<Arrival>,
        inputs: Inputs,
    ) -> Self {
        arrivals.sort_by_key(|arrival| arrival.at_us);
        Self { name, functions, arrivals, sizes: inputs.sizes }
    }
}

struct MadeUpWorkload {
    name: &'static str,
    median_ms: f64,
    functions: usize,
    /// Zipf's exponent of the functions' popularity.
    skew: f64,
    inputs: usize,
    /// About the size of each; measured sizes if 0.
    bytes: u64,
    /// Invocations of one function that come within a fifth of a second.
    burst: u32,
    /// Functions of a chain, each of which reads what the one before has written.
    stages: usize,
}

const COMMON: MadeUpWorkload =
    MadeUpWorkload { name: "", median_ms: 50.0, functions: 60, skew: 1.0, inputs: 200, bytes: 0, burst: 1, stages: 1 };

const MADE_UP: [MadeUpWorkload; 4] = [
    MadeUpWorkload { name: "skewed", median_ms: 100.0, functions: 100, skew: 1.2, ..COMMON },
    MadeUpWorkload {
        name: "data-bound",
        median_ms: 40.0,
        functions: 40,
        skew: 0.8,
        inputs: 400,
        bytes: 2 << 20,
        ..COMMON
    },
    MadeUpWorkload { name: "bursts", burst: 20, ..COMMON },
    MadeUpWorkload { name: "pipelines", stages: 3, ..COMMON },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_workload_asks_the_same_of_its_cluster_and_is_made_of_its_seed() {
        let minutes = vec![vec![30; 1440]; 20];
        let runs =
            vec![RecordedRun { quartiles_ms: [50.0, 100.0, 150.0, 400.0], median_ms: 100.0, memory_mib: 128 }; 20];
        let all = Workload::all(&minutes, &runs, 40.0, 60);
        assert_eq!(format!("{all:?}"), format!("{:?}", Workload::all(&minutes, &runs, 40.0, 60)));
        for workload in &all {
            let mut work: f64 = workload.arrivals.iter().map(|arrival| arrival.run_us as f64).sum();
            if workload.name == "pipelines" {
                work *= 3.0;
            }
            let part = work / (40.0 * 60.0 * 1e6);
            assert!((0.4..0.9).contains(&part), "{}: {part}", workload.name);
            assert!(workload.arrivals.is_sorted_by_key(|arrival| arrival.at_us));
            let known = |arrival: &Arrival| arrival.inputs.iter().all(|input| *input < workload.sizes.len() as u64);
            assert!(workload.arrivals.iter().all(known));
        }
    }
}
