//! The simulated server: a store on one core, training threads on the others, one last level and one memory for all.
//!
//! Events in order of time: a request arrives (its packet is written into the cache by the device, in the device's ways), the
//! store asks the last level for a line, a training thread goes on to its next line. The store serves one request at a
//! time, in the order they came, its lines one after the other; a ring that is full drops what arrives. A training thread's
//! prefetcher runs ahead within a row, so that it waits for the first line of a row and for a memory that cannot keep up.
//! Lines that it writes go back to memory some time, so that each of their misses occupies the memory twice.
//! Not modelled: coherence, the operating system, hyper-threads.

use std::collections::VecDeque;
use std::time::Duration;

use nigh_llc::{GuardMasks, LatencyHistogram};
use nigh_sim::llc::{
    AddressSpace, FrameAllocator, MemoryQueue, MemoryTiming, OutOfFrames, PAGE_LINES, PagedLine, PhysicalLine,
    ReplacementPolicy, SimTime, SplitMix64, WayPartitionedCache,
};
use nigh_terms::{ClosId, WayMask};

use super::recorded_streams::{ServiceStream, Streams, TrainingRun};
use super::server_machine::{BATCH_THREADS, DEVICE_WAYS, GEOMETRY, HERTZ, MEMORY_GB_PER_S, TIMING};
use crate::LabError;
use crate::instrument::made_up::failed;

/// Cycles of a request besides its lines: network stack in user space, hash, compare, reply.
pub(super) const REQUEST_CYCLES: u64 = 360;
/// Cycles for a line that the core's own second level holds.
const NEAR_CYCLES: u64 = 14;
/// From the client to the ring and back, without any queue.
pub(super) const NETWORK: Duration = Duration::from_micros(10);
/// Decides arrivals, keys, digits and where pages lie.
pub(super) const SEED: u64 = 1;
/// Requests that the ring holds; further ones are dropped.
pub(super) const RING: usize = 1024;
/// Multiply-adds of the training loops a cycle: four-wide vectors.
pub(super) const MULTIPLY_ADDS_PER_CYCLE: u64 = 4;
/// Lines that a thread's prefetcher is ahead.
const PREFETCH_LINES: usize = 8;
/// Lines of the store's requests that warm the cache before time begins.
const WARMING_LINES: usize = 400_000;

const SERVICE: ClosId = ClosId(1);
const BATCH: ClosId = ClosId(2);
const DEVICE: ClosId = ClosId(3);
const NEVER: u64 = u64::MAX;

const fn millicycles(cycles: u64) -> u64 {
    SimTime::from_cycles(cycles).millicycles()
}

fn duration(millicycles: u64) -> Duration {
    Duration::from_secs_f64(SimTime::from_millicycles(millicycles).seconds(HERTZ))
}

/// The line that a stream names by its number.
const fn paged(line: u32) -> PagedLine {
    PagedLine::new(line / PAGE_LINES, line % PAGE_LINES)
}

#[derive(Clone, Debug, Default)]
pub(super) struct Stretch {
    /// From a request's arrival at the client's network card to its answer there.
    pub(super) latency: LatencyHistogram,
    pub(super) arrived: u64,
    /// Those of them that found the ring full.
    pub(super) dropped: u64,
    /// Training cycles done, waiting not counted.
    pub(super) batch_work: f64,
    /// Time of serving, all requests.
    pub(super) serving: Duration,
    /// Lines the store asked the last level for, packets included.
    pub(super) service_lines: u64,
    /// Those of them that it had to fetch.
    pub(super) service_misses: u64,
    /// The part of the time for which the memory was occupied.
    pub(super) memory_load: f64,
    /// What a core could have done meanwhile, in the units of `batch_work`.
    pub(super) core_work: f64,
}

impl Stretch {
    /// Training work a thread, as a part of what its core could have done; 0 for a store alone.
    pub(super) fn batch_progress(&self) -> f64 {
        self.batch_work / (BATCH_THREADS as f64 * self.core_work)
    }
}

struct Arrival {
    at: u64,
    slot: u32,
}

struct Service<'s> {
    stream: &'s ServiceStream,
    space: AddressSpace,
    packets: AddressSpace,
    queue: VecDeque<Arrival>,
    /// The request in service: when its service began, and its next line; none while it is idle.
    serving: Option<(u64, usize)>,
    request: usize,
    slot: u32,
}

struct Thread<'s> {
    runs: &'s [TrainingRun],
    own: AddressSpace,
    at: usize,
    /// Lines of the present run that were not asked for yet.
    unasked: u64,
    /// When those asked for and not yet used are there.
    ready: VecDeque<u64>,
    /// Thousandths of a cycle of work on each line.
    line_work: u64,
}

pub(super) struct SimulatedServer<'s> {
    cache: WayPartitionedCache,
    memory: MemoryQueue,
    random: SplitMix64,
    now: u64,
    /// By core: when it goes on; the store's first.
    due: Vec<u64>,
    next_arrival: u64,
    mean_gap: f64,
    service: Service<'s>,
    shared: AddressSpace,
    threads: Vec<Thread<'s>>,
    stretch: Stretch,
}

impl<'s> SimulatedServer<'s> {
    /// A machine whose cache holds what the store used last; the training threads run beside the store if it is shared.
    pub(super) fn new(streams: &'s Streams, is_shared: bool, masks: Option<GuardMasks>) -> Result<Self, LabError> {
        let refused = |error: OutOfFrames| failed("simulated memory", &error);
        let mut frames = FrameAllocator::new(SEED);
        let mut allocate = |pages| frames.allocate(pages).map_err(refused);
        let service = Service {
            stream: &streams.service,
            space: allocate(streams.service.pages)?,
            packets: allocate((RING as u32).div_ceil(PAGE_LINES))?,
            queue: VecDeque::with_capacity(RING),
            serving: None,
            request: 0,
            slot: 0,
        };
        let shared = allocate(streams.training.shared_pages)?;
        // Threads begin all over the stream, within steps too: in step with each other they would crowd the memory together.
        let runs = &streams.training.runs[..];
        let thread = |thread: usize| {
            Ok(Thread {
                runs,
                own: allocate(streams.training.own_pages)?,
                at: thread * runs.len() / BATCH_THREADS,
                unasked: 0,
                ready: VecDeque::with_capacity(PREFETCH_LINES),
                line_work: 0,
            })
        };
        let count = if is_shared { BATCH_THREADS } else { 0 };
        let threads = (0..count).map(thread).collect::<Result<Vec<_>, LabError>>()?;
        let memory = MemoryTiming::of_bandwidth(MEMORY_GB_PER_S * 1e9, HERTZ);
        let mut server = Self {
            cache: WayPartitionedCache::new(GEOMETRY, ReplacementPolicy::Lru),
            memory: MemoryQueue::new(memory, 1),
            random: SplitMix64::new(SEED),
            now: 0,
            due: vec![0; count + 1],
            next_arrival: NEVER,
            mean_gap: f64::INFINITY,
            service,
            shared,
            threads,
            stretch: Stretch::default(),
        };
        server.due[0] = NEVER;
        server.apply(masks)?;
        server.warm();
        Ok(server)
    }

    /// Sets the masks of service and batch side; none for no partition.
    pub(super) fn apply(&mut self, masks: Option<GuardMasks>) -> Result<(), LabError> {
        let all = WayMask::contiguous(0, GEOMETRY.ways());
        let masks = masks.unwrap_or(GuardMasks { service: all, batch: all });
        for (clos, mask) in [(SERVICE, masks.service), (BATCH, masks.batch), (DEVICE, DEVICE_WAYS)] {
            self.cache.set_mask(clos, mask).map_err(|error| failed("a mask", &error))?;
        }
        Ok(())
    }

    fn warm(&mut self) {
        let lines = self.service.stream.all_lines();
        for &line in &lines[lines.len().saturating_sub(WARMING_LINES)..] {
            self.cache.access(SERVICE, self.service.physical(line));
        }
    }

    /// Lets `length` pass with `load` requests a second.
    pub(super) fn run(&mut self, load: f64, length: Duration) -> Stretch {
        self.mean_gap = HERTZ * 1e3 / load;
        self.next_arrival = self.now.saturating_add(self.gap());
        let (begin, busy) = (self.now, self.memory.busy());
        let end = begin + (length.as_secs_f64() * HERTZ * 1e3) as u64;
        self.stretch = Stretch::default();
        loop {
            let (core, due) = self.earliest();
            if due.min(self.next_arrival) >= end {
                break;
            }
            if self.next_arrival <= due {
                self.now = self.next_arrival;
                self.arrive();
            } else {
                self.now = due;
                self.due[core] = if core == 0 { self.serve(due) } else { self.train(core - 1, due) };
            }
        }
        self.now = end;
        self.stretch.core_work = (end - begin) as f64;
        self.stretch.memory_load = self.memory.busy().since(busy).millicycles() as f64 / (end - begin) as f64;
        std::mem::take(&mut self.stretch)
    }

    fn earliest(&self) -> (usize, u64) {
        let mut earliest = (0, NEVER);
        for (core, &due) in self.due.iter().enumerate() {
            if due < earliest.1 {
                earliest = (core, due);
            }
        }
        earliest
    }

    /// The time to the next arrival: exponential.
    fn gap(&mut self) -> u64 {
        let uniform = ((self.random.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        (-uniform.ln() * self.mean_gap) as u64
    }

    fn arrive(&mut self) {
        let now = self.now;
        self.next_arrival = now.saturating_add(self.gap());
        self.stretch.arrived += 1;
        if self.service.queue.len() >= RING {
            self.stretch.dropped += 1;
            return;
        }
        let slot = self.service.slot;
        self.service.slot = (slot + 1) % RING as u32;
        self.cache.access(DEVICE, self.service.packet(slot));
        self.service.queue.push_back(Arrival { at: now, slot });
        if self.service.serving.is_none() {
            self.due[0] = now;
        }
    }

    /// The store goes on at `now`; when it next does.
    fn serve(&mut self, now: u64) -> u64 {
        if let Some((began, next)) = self.service.serving {
            if let Some(&line) = self.service.stream.lines(self.service.request).get(next) {
                self.service.serving = Some((began, next + 1));
                return now + self.fetch(now, self.service.physical(line));
            }
            self.finish(now, began);
        }
        let Some(arrival) = self.service.queue.front() else { return NEVER };
        let packet = self.service.packet(arrival.slot);
        self.service.serving = Some((now, 0));
        let near = u64::from(self.service.stream.near(self.service.request));
        now + millicycles(REQUEST_CYCLES + near * NEAR_CYCLES) + self.fetch(now, packet)
    }

    fn finish(&mut self, now: u64, began: u64) {
        self.service.serving = None;
        self.service.request = (self.service.request + 1) % self.service.stream.len();
        self.stretch.serving += duration(now - began);
        if let Some(arrival) = self.service.queue.pop_front() {
            self.stretch.latency.record(NETWORK + duration(now - arrival.at));
        }
    }

    /// The stall of a line that the store asks for.
    fn fetch(&mut self, now: u64, line: PhysicalLine) -> u64 {
        self.stretch.service_lines += 1;
        if self.cache.access(SERVICE, line).is_hit() {
            return TIMING.hit().millicycles();
        }
        self.stretch.service_misses += 1;
        TIMING.miss(false).millicycles() + self.memory.request(SimTime::from_millicycles(now)).millicycles()
    }

    /// A training thread goes on at `now`; when it next does.
    fn train(&mut self, thread: usize, now: u64) -> u64 {
        let thread = &mut self.threads[thread];
        let run = &thread.runs[thread.at];
        if thread.unasked == 0 && thread.ready.is_empty() {
            let work = millicycles(u64::from(run.multiply_adds) / MULTIPLY_ADDS_PER_CYCLE).max(1);
            if run.far == 0 {
                // What the private caches hold takes its time and nothing else.
                thread.at = (thread.at + 1) % thread.runs.len();
                self.stretch.batch_work += work as f64;
                return now + work;
            }
            thread.unasked = run.far;
            thread.line_work = work / u64::from(run.far.count_ones());
        }
        while thread.unasked != 0 && thread.ready.len() < PREFETCH_LINES {
            let line = paged(run.first_line + thread.unasked.trailing_zeros());
            thread.unasked &= thread.unasked - 1;
            let line = if run.own { thread.own.physical(line) } else { self.shared.physical(line) };
            let stall = if self.cache.access(BATCH, line).is_hit() {
                TIMING.hit().millicycles()
            } else {
                let at = SimTime::from_millicycles(now);
                let wait = self.memory.request(at).millicycles();
                if run.store {
                    self.memory.request(at);
                }
                TIMING.miss(false).millicycles() + wait
            };
            thread.ready.push_back(now + stall);
        }
        let there = thread.ready.pop_front().unwrap_or(now);
        if thread.unasked == 0 && thread.ready.is_empty() {
            thread.at = (thread.at + 1) % thread.runs.len();
        }
        self.stretch.batch_work += thread.line_work as f64;
        there.max(now) + thread.line_work
    }
}

impl Service<'_> {
    fn physical(&self, line: u32) -> PhysicalLine {
        self.space.physical(paged(line))
    }

    fn packet(&self, slot: u32) -> PhysicalLine {
        self.packets.physical(paged(slot))
    }
}
