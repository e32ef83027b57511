//! Exploration: every state of a configuration, by stateright, and which of them cannot finish, by a search of
//! our own backwards from those that have.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::configuration::Configuration;
use crate::events::Event;
use crate::ghost::Promise;
use crate::world::World;

/// Threads that explore: counterexamples are shortest with one.
const THREADS: usize = 2;

/// A configuration as stateright sees it.
struct Bounded(Configuration);

impl Model for Bounded {
    type State = World;
    type Action = Event;

    fn init_states(&self) -> Vec<World> {
        vec![World::begin(&self.0)]
    }

    fn actions(&self, world: &World, events: &mut Vec<Event>) {
        world.events(&self.0, events);
    }

    fn next_state(&self, world: &World, event: Event) -> Option<World> {
        let mut next = world.clone();
        next.happen(&self.0, event);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("P1", |_, world: &World| world.broken != Some(Promise::P1)),
            Property::always("P2", |_, world: &World| world.broken != Some(Promise::P2)),
            Property::always("P3", |_, world: &World| world.broken != Some(Promise::P3)),
            Property::always("P4", |_, world: &World| world.broken != Some(Promise::P4)),
            Property::always("P5", |_, world: &World| world.broken != Some(Promise::P5)),
            Property::always("P6", |_, world: &World| world.broken != Some(Promise::P6)),
        ]
    }
}

/// A way to a broken promise.
#[derive(Clone, Debug)]
pub struct Counterexample {
    /// The promise.
    pub promise: &'static str,
    /// What happened, in order.
    pub events: Vec<String>,
}

/// What an exploration found.
#[derive(Clone, Debug)]
pub struct Explored {
    /// Different states.
    pub states: usize,
    /// The longest of the shortest ways to a state.
    pub depth: usize,
    /// The whole bounded space was seen.
    pub complete: bool,
    /// Broken promises.
    pub violations: Vec<Counterexample>,
    /// How long it took.
    pub took: Duration,
}

/// Explores `config` until all of it is seen, a promise is broken, or `limit` has passed. With `shortest` the
/// counterexample is one of the shortest.
#[must_use]
pub fn explore(config: &Configuration, limit: Duration, shortest: bool) -> Explored {
    let began = Instant::now();
    let threads = if shortest { 1 } else { THREADS };
    let builder = Bounded(config.clone()).checker().threads(threads).timeout(limit).finish_when(HasDiscoveries::Any);
    let checker = builder.spawn_bfs().join();
    let found = checker.discoveries();
    let violations = found.into_iter().map(|(promise, path)| Counterexample {
        promise,
        events: path.into_actions().iter().map(|event| format!("{event:?}")).collect(),
    });
    let violations: Vec<Counterexample> = violations.collect();
    Explored {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        complete: violations.is_empty() && began.elapsed() < limit,
        violations,
        took: began.elapsed(),
    }
}

/// The events that led to the first broken promise, each with the world before it.
#[must_use]
pub fn retell(config: &Configuration, limit: Duration) -> Option<Vec<(Event, World)>> {
    let model = Bounded(config.clone());
    let checker = model.checker().threads(1).timeout(limit).finish_when(HasDiscoveries::Any).spawn_bfs().join();
    let (_, path) = checker.discoveries().into_iter().next()?;
    Some(path.into_vec().into_iter().filter_map(|(world, event)| Some((event?, world))).collect())
}

/// Which states cannot finish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// All states.
    pub states: usize,
    /// States from which a live node's put cannot end (L1).
    pub writes: usize,
    /// States from which what a live node has begun cannot end (L2).
    pub work: usize,
    /// The events that lead to the nearest of either.
    pub nearest: Option<usize>,
}

fn print_of(world: &World) -> u128 {
    // Two hashes of 64 bits: a chance meeting of two states among millions would hide one of them.
    let mut first = std::hash::DefaultHasher::new();
    let mut second = std::hash::DefaultHasher::new();
    world.hash(&mut first);
    second.write_u8(1);
    world.hash(&mut second);
    (u128::from(first.finish()) << 64) | u128::from(second.finish())
}

/// Searches `config` for states from which, though no fault strikes any more, work cannot be finished: AG EF of
/// what is asked. None if there are more than `states_max`.
#[must_use]
pub fn find_stuck(config: &Configuration, states_max: usize) -> Option<Stuck> {
    let mut numbers: HashMap<u128, u32> = HashMap::new();
    // For each state those that lead to it without a fault.
    let mut before: Vec<Vec<u32>> = Vec::new();
    let (mut written, mut finished, mut depths) = (Vec::new(), Vec::new(), Vec::new());
    let mut frontier = vec![World::begin(config)];
    numbers.insert(print_of(&frontier[0]), 0);
    let mut admit = |world: &World, depth: usize, before: &mut Vec<Vec<u32>>| {
        before.push(Vec::new());
        depths.push(depth);
        written.push(world.is_written());
        finished.push(world.is_finished());
    };
    admit(&frontier[0], 0, &mut before);
    let mut events = Vec::new();
    let (mut at, mut depth) = (0u32, 0);
    while !frontier.is_empty() {
        depth += 1;
        let mut next = Vec::new();
        for world in &frontier {
            events.clear();
            world.events(config, &mut events);
            for &event in &events {
                let mut reached = world.clone();
                reached.happen(config, event);
                let fresh = numbers.len() as u32;
                let number = *numbers.entry(print_of(&reached)).or_insert(fresh);
                if number == fresh {
                    if numbers.len() > states_max {
                        return None;
                    }
                    admit(&reached, depth, &mut before);
                    next.push(reached);
                }
                if event.finishes() {
                    before[number as usize].push(at);
                }
            }
            at += 1;
        }
        frontier = next;
    }
    let (writes, work) = (cut_off(&before, &written), cut_off(&before, &finished));
    let nearest = writes.iter().chain(&work).map(|at| depths[*at as usize]).min();
    Some(Stuck { states: numbers.len(), writes: writes.len(), work: work.len(), nearest })
}

/// The states that do not reach one of `goals`.
fn cut_off(before: &[Vec<u32>], goals: &[bool]) -> Vec<u32> {
    let mut reaches = goals.to_vec();
    let all = 0..goals.len() as u32;
    let mut open: Vec<u32> = all.clone().filter(|at| goals[*at as usize]).collect();
    while let Some(at) = open.pop() {
        for &earlier in &before[at as usize] {
            if !std::mem::replace(&mut reaches[earlier as usize], true) {
                open.push(earlier);
            }
        }
    }
    all.filter(|at| !reaches[*at as usize]).collect()
}
