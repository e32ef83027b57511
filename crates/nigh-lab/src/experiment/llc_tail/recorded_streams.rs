//! The accesses of the store and the training job to the last-level cache: their own code runs under the recorder, and a
//! simulation of a core's private caches removes the accesses that those serve.
//!
//! The store is recorded over its whole size, however large, then given up; only the lines of its requests are kept. One
//! training thread is recorded; on the machine every thread runs its steps from another one on, over velocities of its own.

use nigh_sim::llc::{AccessKind, LINE_BYTES, PAGE_LINES, PrivateHierarchy};

use super::kv_store::{BUCKET_BYTES, Entries, ITEM_BYTES, KvStore};
use super::request_mix::RequestMix;
use super::simulated_server::SEED;
use super::touch::{Recorder, Region, Run};
use super::training_job::{DIGIT_BYTES, Digits, Network, Trainer};
use crate::LabError;
use crate::instrument::made_up::failed;

/// Requests that run before the recorded ones, to fill the private caches.
const WARMING_REQUESTS: usize = 100_000;
const WARMING_STEPS: usize = 2;
const PAGE_BYTES: u64 = PAGE_LINES as u64 * LINE_BYTES;

fn private_caches() -> Result<PrivateHierarchy, LabError> {
    PrivateHierarchy::broadwell().map_err(|error| failed("a core's private caches", &error))
}

const fn pages(bytes: u64) -> u32 {
    bytes.div_ceil(PAGE_BYTES) as u32
}

pub(super) struct Streams {
    pub(super) service: ServiceStream,
    pub(super) training: TrainingStream,
}

pub(super) struct ServiceStream {
    pub(super) pages: u32,
    /// For each request, the index in `lines` at which its lines begin; the last entry is the length of `lines`.
    starts: Vec<u32>,
    /// Numbers of the store's cache lines that requests read and the private caches do not hold.
    lines: Vec<u32>,
    /// For each request, how many of its lines the private caches hold.
    near: Vec<u8>,
}

impl ServiceStream {
    /// Records `count` requests to a full store.
    pub(super) fn record(entries: Entries, count: usize) -> Result<Self, LabError> {
        let mut store = KvStore::filled(entries);
        let mut mix = RequestMix::new(entries, SEED)?;
        let mut caches = private_caches()?;
        let index_pages = pages(u64::from(entries.buckets()) * BUCKET_BYTES);
        let items_pages = pages(u64::from(entries.get()) * ITEM_BYTES);
        let items = u64::from(index_pages) * u64::from(PAGE_LINES);
        let (mut starts, mut lines, mut near) = (Vec::with_capacity(count + 1), Vec::new(), Vec::with_capacity(count));
        let mut recorder = Recorder::default();
        for request in 0..WARMING_REQUESTS + count {
            recorder.runs.clear();
            mix.next().serve(&mut store, &mut recorder);
            let touched =
                recorder.runs.iter().map(|run| run.first_line + if run.region == Region::Items { items } else { 0 });
            let far: Vec<u32> =
                touched.filter(|&line| caches.passes_on(line, AccessKind::Load)).map(|line| line as u32).collect();
            if request >= WARMING_REQUESTS {
                starts.push(lines.len() as u32);
                near.push((recorder.runs.len() - far.len()).min(255) as u8);
                lines.extend(far);
            }
        }
        starts.push(lines.len() as u32);
        Ok(Self { pages: index_pages + items_pages, starts, lines, near })
    }

    pub(super) fn len(&self) -> usize {
        self.near.len()
    }

    pub(super) fn lines(&self, at: usize) -> &[u32] {
        &self.lines[self.starts[at] as usize..self.starts[at + 1] as usize]
    }

    /// How many lines of request `at` the private caches hold.
    pub(super) fn near(&self, at: usize) -> u32 {
        u32::from(self.near[at])
    }

    pub(super) fn all_lines(&self) -> &[u32] {
        &self.lines
    }
}

/// Adjacent cache lines that the training job reads, and which of them the private caches lack.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrainingRun {
    /// The index of the first line in the shared arrays, or in the thread's own arrays.
    pub(super) first_line: u32,
    /// Whether the array is the thread's own.
    pub(super) own: bool,
    /// Bit i is set if the access to line i reaches the last-level cache.
    pub(super) far: u64,
    pub(super) store: bool,
    pub(super) multiply_adds: u32,
}

pub(super) struct TrainingStream {
    /// Pages that all threads share: weights, then digits.
    pub(super) shared_pages: u32,
    pub(super) own_pages: u32,
    pub(super) runs: Vec<TrainingRun>,
}

impl TrainingStream {
    /// Records `count` steps of a network of `hidden` units over `digits` digits.
    pub(super) fn record(count: usize, hidden: usize, digits: usize) -> Result<Self, LabError> {
        let (network, made_up) = (Network::new(hidden, SEED), Digits::made_up(digits, SEED));
        let mut trainer = Trainer::new(&network, SEED);
        let mut caches = private_caches()?;
        let weight_pages = pages(network.weight_bytes());
        let shared_pages = weight_pages + pages(digits as u64 * DIGIT_BYTES);
        let mut runs = Vec::new();
        let mut recorder = Recorder::default();
        for step in 0..WARMING_STEPS + count {
            recorder.runs.clear();
            trainer.step(&network, &made_up, &mut recorder);
            let filtered = recorder.runs.iter().map(|run| filter(run, weight_pages, shared_pages, &mut caches));
            if step < WARMING_STEPS {
                filtered.for_each(drop);
            } else {
                runs.extend(filtered);
            }
        }
        Ok(Self { shared_pages, own_pages: weight_pages, runs })
    }
}

fn filter(run: &Run, weight_pages: u32, shared_pages: u32, caches: &mut PrivateHierarchy) -> TrainingRun {
    let own = run.region == Region::Velocity;
    let before = if run.region == Region::Digits { u64::from(weight_pages) * u64::from(PAGE_LINES) } else { 0 };
    let first_line = run.first_line + before;
    // The private caches see one address space: the thread's own arrays behind the shared ones.
    let seen = first_line + if own { u64::from(shared_pages) * u64::from(PAGE_LINES) } else { 0 };
    let kind = if run.store { AccessKind::Store } else { AccessKind::Load };
    let far = (0..run.lines).filter(|&line| caches.passes_on(seen + u64::from(line), kind));
    TrainingRun {
        first_line: first_line as u32,
        own,
        far: far.fold(0, |bits, line| bits | 1 << line),
        store: run.store,
        multiply_adds: run.multiply_adds as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_fits_its_core_asks_the_last_level_for_little() {
        let far_of = |entries| {
            let stream = ServiceStream::record(Entries::new(entries).unwrap(), 20_000).unwrap();
            assert_eq!(stream.len(), 20_000);
            assert!((0..20_000).all(|at| stream.lines(at).iter().all(|&line| line < stream.pages * PAGE_LINES)));
            stream.all_lines().len() as f64 / 20_000.0
        };
        // 192 KiB of index and items, then 3 MiB, of which the core's caches hold 256 KiB.
        let (small, large) = (far_of(8192), far_of(131_072));
        assert!(small < 0.02 && large > 0.2, "{small} {large}");
    }

    #[test]
    fn training_passes_its_velocities_through_the_private_caches() {
        let stream = TrainingStream::record(3, 256, 64).unwrap();
        let lines = |own| {
            let runs = stream.runs.iter().filter(|run| run.own == own);
            runs.map(|run| u64::from(run.far.count_ones())).sum::<u64>()
        };
        assert!(lines(true) > 3000, "{}", lines(true));
        let own_lines = stream.own_pages * PAGE_LINES;
        assert!(
            stream
                .runs
                .iter()
                .filter(|run| run.own)
                .all(|run| run.first_line + 64 - run.far.leading_zeros() <= own_lines)
        );
    }
}
