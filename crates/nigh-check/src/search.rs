//! Searches all states of a configuration in the order of their distance from the start.
//!
//! One layer at a time. Threads compute the successors of the layer's states while the set of seen states is only read;
//! then new states get their numbers, in an order independent of the threads. So states have the same numbers in each
//! run, each path is one of the shortest, and states need no locks. Of a state, the search keeps its fingerprint, the
//! event that first reached it, and the states that lead to it without a fault.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nigh_terms::ByteSize;

use crate::fingerprint::{OfPrints, Print};
use crate::ghost::Promise;

/// The states that a thread takes at a time.
const CHUNK: usize = 128;
/// The chunks between two checks of the limits. Their successors are in memory beside the layers.
const BLOCK: usize = 64;

/// The limits of a search.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The longest duration.
    pub time: Duration,
    /// The most memory of this process. Tables grow by doubling, so it may take somewhat more.
    pub memory: ByteSize,
}

/// The limit that a search has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchLimit {
    /// The time limit.
    Time,
    /// The memory limit.
    Memory,
}

/// What is left of a search's limits.
struct RemainingBudget {
    until: Instant,
    /// The process's memory at the limit, in bytes.
    resident: u64,
}

impl RemainingBudget {
    fn of(limits: &Limits) -> Self {
        let memory = limits.memory.bytes();
        // The allocator keeps the memory that an earlier search has freed, and reuses it before it asks for more.
        Self { until: Instant::now() + limits.time, resident: memory.max(resident() + memory / 16) }
    }

    fn cut(&self) -> Option<SearchLimit> {
        if Instant::now() >= self.until {
            return Some(SearchLimit::Time);
        }
        (resident() >= self.resident).then_some(SearchLimit::Memory)
    }
}

/// The memory of this process in bytes: `VmRSS` of proc(5); 0 if the system does not tell.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    kib.map_or(0, |kib: u64| 1024 * kib)
}

/// A space to search: states and their events.
pub(crate) trait Space: Clone + Hash + Send + Sync {
    /// The bounds of the space.
    type Config: Sync;
    /// An event.
    type Event: Copy + Send;
    /// The first state.
    fn begin(config: &Self::Config) -> Self;
    /// The possible events, always in the same order.
    fn events(&self, config: &Self::Config, events: &mut Vec<Self::Event>);
    /// Applies an event.
    fn happen(&mut self, config: &Self::Config, event: Self::Event);
    /// True for an event that is neither a fault nor new work.
    fn finishes(event: Self::Event) -> bool;
    /// The promise that is broken in this state; none if none is.
    fn broken(&self) -> Option<Promise>;
    /// True if all puts of live nodes are answered.
    fn is_written(&self) -> bool;
    /// True if all started work is finished.
    fn is_finished(&self) -> bool;
}

/// The number of a state, in the order of discovery.
pub(crate) type Number = u32;

/// The stored part of a state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReachedState {
    /// The state from which it was first reached.
    from: Number,
    /// The index of the event among that state's events.
    event: u16,
    /// True if no put of a live node is unanswered.
    pub(crate) written: bool,
    /// True if nothing that a live node has begun is unfinished.
    pub(crate) finished: bool,
}

/// The result of a search.
#[derive(Debug, Default)]
pub(crate) struct SearchResult {
    pub(crate) states: Vec<ReachedState>,
    /// The number of the first state of each layer.
    pub(crate) layers: Vec<Number>,
    /// The transitions without a fault, by their first state.
    pub(crate) leads: Vec<(Number, Number)>,
    /// Each broken promise, with the first state of the nearest layer in which it is broken.
    pub(crate) broken: Vec<(Promise, Number)>,
    /// True if all states were seen.
    pub(crate) complete: bool,
    /// The limit that ended the search; none if a broken promise did, or nothing.
    pub(crate) cut: Option<SearchLimit>,
}

/// The successor of a state after an event.
enum EventTarget {
    Known(Number),
    /// A state not seen before this block: the first time in its chunk, or again.
    New(Print),
    Again(Print),
}

struct Step {
    from: Number,
    event: u16,
    finishes: bool,
    to: EventTarget,
}

struct Chunk<S> {
    steps: Vec<Step>,
    /// The states of the chunk's new steps, in order.
    fresh: Vec<S>,
}

impl<S> Default for Chunk<S> {
    fn default() -> Self {
        Self { steps: Vec::new(), fresh: Vec::new() }
    }
}

type SeenStates = HashMap<Print, Number, OfPrints>;

/// Follows all events of all states until there is no new state, a promise is broken, or a limit is reached.
pub(crate) fn search<S: Space>(config: &S::Config, limits: &Limits) -> SearchResult {
    let left = RemainingBudget::of(limits);
    let mut seen = SeenStates::default();
    let mut found = SearchResult::default();
    let begin = S::begin(config);
    seen.insert(Print::of(&begin), 0);
    found.layers.push(0);
    found.meet(&begin, 0, 0);
    let mut layer = vec![begin];
    while !layer.is_empty() {
        let mut next = Vec::new();
        let mut first = found.layers.last().copied().unwrap_or_default();
        found.layers.push(found.states.len() as Number);
        while !layer.is_empty() {
            let rest = layer.split_off(layer.len().min(CHUNK * BLOCK));
            let block = std::mem::replace(&mut layer, rest);
            let many = block.len() as Number;
            for chunk in follow(config, &seen, block, first) {
                found.admit(chunk, &mut seen, &mut next);
            }
            first += many;
            found.cut = left.cut();
            if found.cut.is_some() {
                return found;
            }
        }
        if !found.broken.is_empty() {
            return found;
        }
        layer = next;
    }
    found.layers.pop();
    found.complete = true;
    found
}

/// The successors of the states of a block, one chunk after the other. The block's first state has the number `first`.
fn follow<S: Space>(config: &S::Config, seen: &SeenStates, block: Vec<S>, first: Number) -> Vec<Chunk<S>> {
    let mut block = block.into_iter().peekable();
    let mut open: Vec<Mutex<Vec<S>>> = Vec::new();
    while block.peek().is_some() {
        open.push(Mutex::new(block.by_ref().take(CHUNK).collect()));
    }
    let done: Vec<Mutex<Chunk<S>>> = open.iter().map(|_| Mutex::default()).collect();
    let taken = AtomicUsize::new(0);
    let work = || {
        loop {
            let at = taken.fetch_add(1, Ordering::Relaxed);
            let Some(states) = open.get(at) else { return };
            let states = std::mem::take(&mut *states.lock().unwrap_or_else(PoisonError::into_inner));
            let chunk = follow_chunk(config, seen, states, first + (at * CHUNK) as Number);
            *done[at].lock().unwrap_or_else(PoisonError::into_inner) = chunk;
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(open.len());
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    done.into_iter().map(|chunk| chunk.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
}

fn follow_chunk<S: Space>(config: &S::Config, seen: &SeenStates, states: Vec<S>, first: Number) -> Chunk<S> {
    let mut chunk = Chunk::default();
    let mut met: HashSet<Print, OfPrints> = HashSet::default();
    let mut events = Vec::new();
    for (from, state) in (first..).zip(states) {
        events.clear();
        state.events(config, &mut events);
        for (event, &happens) in (0u16..).zip(&events) {
            let mut reached = state.clone();
            reached.happen(config, happens);
            let print = Print::of(&reached);
            let to = match seen.get(&print) {
                Some(number) => EventTarget::Known(*number),
                None if met.insert(print) => {
                    chunk.fresh.push(reached);
                    EventTarget::New(print)
                }
                None => EventTarget::Again(print),
            };
            chunk.steps.push(Step { from, event, finishes: S::finishes(happens), to });
        }
    }
    chunk
}

impl SearchResult {
    fn meet<S: Space>(&mut self, world: &S, from: Number, event: u16) {
        if let Some(promise) = world.broken()
            && !self.broken.iter().any(|(one, _)| *one == promise)
        {
            self.broken.push((promise, self.states.len() as Number));
        }
        self.states.push(ReachedState { from, event, written: world.is_written(), finished: world.is_finished() });
    }

    /// Gives numbers to the new states of a chunk.
    fn admit<S: Space>(&mut self, chunk: Chunk<S>, seen: &mut SeenStates, next: &mut Vec<S>) {
        let mut fresh = chunk.fresh.into_iter();
        for Step { from, event, finishes, to } in chunk.steps {
            let number = match to {
                EventTarget::Known(number) => Some(number),
                EventTarget::Again(print) => seen.get(&print).copied(),
                EventTarget::New(print) => {
                    let number = self.states.len() as Number;
                    let world = fresh.next();
                    let known = *seen.entry(print).or_insert(number);
                    if let Some(world) = world.filter(|_| known == number) {
                        self.meet(&world, from, event);
                        next.push(world);
                    }
                    Some(known)
                }
            };
            self.leads.extend(number.filter(|_| finishes).map(|number| (from, number)));
        }
    }

    /// The number of events on the shortest path to a state.
    pub(crate) fn depth_of(&self, state: Number) -> usize {
        self.layers.partition_point(|first| *first <= state) - 1
    }

    /// The shortest path to a state: its events, each with the state before it.
    pub(crate) fn way_to<S: Space>(&self, config: &S::Config, state: Number) -> Vec<(S::Event, S)> {
        let mut places = Vec::new();
        let mut at = state;
        while at != 0 {
            let ReachedState { from, event, .. } = self.states[at as usize];
            places.push(usize::from(event));
            at = from;
        }
        let mut world = S::begin(config);
        let mut way = Vec::new();
        for place in places.into_iter().rev() {
            let mut events = Vec::new();
            world.events(config, &mut events);
            let before = world.clone();
            world.happen(config, events[place]);
            way.push((events[place], before));
        }
        way
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::World;
    use crate::{configurations, weakenings};

    const LIMITS: Limits = Limits { time: Duration::from_secs(300), memory: ByteSize::gib(4) };

    #[test]
    fn the_same_states_have_the_same_numbers_in_every_run_and_their_ways_lead_to_them() {
        let config = configurations().into_iter().find(|config| config.name == "eviction").unwrap();
        let (once, again) = (search::<World>(&config, &LIMITS), search::<World>(&config, &LIMITS));
        assert!(once.complete && once.states.len() > CHUNK * 10, "{} states", once.states.len());
        assert_eq!((&once.layers, &once.leads), (&again.layers, &again.leads));
        let last = once.states.len() as Number - 1;
        let way = once.way_to::<World>(&config, last);
        assert_eq!(way.len(), once.depth_of(last));
        let (event, mut world) = way.into_iter().next_back().unwrap();
        let ReachedState { from, .. } = once.states[last as usize];
        assert_eq!(once.depth_of(from) + 1, once.depth_of(last));
        world.happen(&config, event);
        assert_eq!((world.is_written(), world.is_finished()), {
            let met = once.states[last as usize];
            (met.written, met.finished)
        });
    }

    #[test]
    fn a_search_ends_at_a_broken_promise_and_when_its_time_or_its_memory_is_used_up() {
        let config = weakenings().swap_remove(0).configuration;
        let found = search::<World>(&config, &LIMITS);
        let (promise, state) = found.broken[0];
        assert!(!found.complete && found.cut.is_none());
        let (event, mut world) = found.way_to::<World>(&config, state).pop().unwrap();
        world.happen(&config, event);
        assert_eq!(world.broken, Some(promise));
        let no_time = search::<World>(&configurations()[0], &Limits { time: Duration::ZERO, ..LIMITS });
        assert_eq!((no_time.complete, no_time.cut), (false, Some(SearchLimit::Time)));
        let left = RemainingBudget::of(&LIMITS);
        assert_eq!((left.cut(), left.resident), (None, 4 << 30));
        assert_eq!(RemainingBudget { resident: 1, ..left }.cut(), Some(SearchLimit::Memory));
    }
}
