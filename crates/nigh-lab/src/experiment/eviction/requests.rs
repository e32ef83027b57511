//! A day of reads and writes: the recorded invocations, with objects made up for them.
//!
//! The trace has each function's invocations by the minute. Each function gets inputs, read by Zipf's law, and one output an
//! invocation; some outputs are read within a minute, most never. No public data set has such invocations and sizes of objects
//! together: sizes are drawn from those of other workflows (`measured_sizes`).

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use rand_distr::{Distribution as _, Zipf};

use crate::instrument::measured_sizes::size;

/// The report's description of the objects.
pub(super) const ABOUT: &str = "made up: 1 to 1000 inputs a function (log-uniform), read by Zipf 0.9; one output an \
                                invocation, of 30 % of functions read once or twice within a minute; sizes between \
                                measured deciles of public workflows, at most 10 MiB";

/// Inputs of a function at most.
const INPUTS_MAX: f64 = 1000.0;
const ZIPF: f64 = 0.9;
/// Functions whose outputs are read.
const STAGES: f64 = 0.3;
/// The seconds within which an output is read.
const READ_WITHIN_S: f64 = 60.0;

/// A read or a write of a whole object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) at_s: f64,
    pub(super) object: u64,
    pub(super) bytes: u64,
    pub(super) writes: bool,
}

#[derive(Debug)]
pub(super) struct Requests {
    /// The requests, in the order of time.
    pub(super) all: Vec<Request>,
    /// The bytes of all objects that are read, each once.
    pub(super) read_bytes: u64,
}

impl Requests {
    /// The day of `functions`, by `seed`.
    pub(super) fn make(functions: &[Vec<u32>], seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let mut sizes: Vec<u64> = Vec::new();
        let mut is_read: Vec<bool> = Vec::new();
        let mut new = |random: &mut StdRng, read: bool| {
            sizes.push(size(random));
            is_read.push(read);
            sizes.len() as u64 - 1
        };
        let mut all: Vec<Request> = Vec::new();
        let request = |at_s, object, writes| Request { at_s, object, bytes: 0, writes };
        for minutes in functions {
            let inputs = INPUTS_MAX.powf(random.random_range(0.0..1.0)).round();
            let inputs: Vec<u64> = (0..inputs as usize).map(|_| new(&mut random, false)).collect();
            let Ok(popular) = Zipf::new(inputs.len() as f64, ZIPF) else { continue };
            let is_stage = random.random_bool(STAGES);
            for (minute, count) in minutes.iter().enumerate() {
                for _ in 0..*count {
                    let at_s = 60.0 * (minute as f64 + random.random_range(0.0..1.0));
                    let input = inputs[popular.sample(&mut random) as usize - 1];
                    all.push(request(at_s, input, false));
                    let output = new(&mut random, is_stage);
                    all.push(request(at_s, output, true));
                    let reads = if is_stage { random.random_range(1..=2) } else { 0 };
                    for _ in 0..reads {
                        let later = random.random_range(0.0..READ_WITHIN_S);
                        all.push(request(at_s + later, output, false));
                    }
                }
            }
        }
        // A write comes before the reads that follow it: the sort is stable.
        all.sort_by(|one, other| one.at_s.total_cmp(&other.at_s));
        for request in &mut all {
            request.bytes = sizes[request.object as usize];
            is_read[request.object as usize] |= !request.writes;
        }
        let read_bytes = sizes.iter().zip(&is_read).filter_map(|(size, read)| read.then_some(*size)).sum();
        Self { all, read_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_made_of_its_seed_and_writes_come_before_reads_of_outputs() {
        let functions = vec![vec![3, 0, 5], vec![1, 1, 1], vec![20, 0, 0]];
        let day = Requests::make(&functions, 4);
        let again = Requests::make(&functions, 4);
        assert_eq!(format!("{day:?}"), format!("{again:?}"));
        assert_eq!(day.all.iter().filter(|request| request.writes).count(), 31);
        let mut written = std::collections::HashSet::new();
        let outputs: std::collections::HashSet<u64> =
            day.all.iter().filter(|request| request.writes).map(|request| request.object).collect();
        for request in &day.all {
            assert!(request.bytes >= 21 && request.bytes <= 10 << 20);
            if request.writes {
                written.insert(request.object);
            } else {
                assert!(!outputs.contains(&request.object) || written.contains(&request.object));
            }
        }
    }
}
