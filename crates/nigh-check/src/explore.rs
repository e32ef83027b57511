//! The results of a search: broken promises, and states from which work cannot be finished.

use std::time::{Duration, Instant};

use crate::configuration::Configuration;
use crate::events::Event;
use crate::ghost::Promise;
use crate::search::{Limits, Number, SearchLimit, SearchResult, Space, search};
use crate::world::World;

/// One of the shortest paths to a broken promise.
#[derive(Clone, Debug)]
pub struct Counterexample {
    /// The promise.
    pub promise: Promise,
    /// The events, in order.
    pub events: Vec<String>,
}

/// The states from which started work cannot finish even without further faults: the formula AG EF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StuckStates {
    /// States from which a live node's put cannot end (L1).
    pub writes: usize,
    /// States from which a live node's other started work cannot end (L2).
    pub work: usize,
    /// The number of events that lead to the nearest stuck state; none if there is no such state.
    pub nearest: Option<usize>,
}

/// The result of an exploration.
#[derive(Clone, Debug)]
pub struct ExplorationResult {
    /// Number of different states.
    pub states: usize,
    /// The longest of the shortest paths to a state, in events.
    pub depth: usize,
    /// True if the whole bounded space was seen.
    pub complete: bool,
    /// The limit that ended the search early; none if no limit did.
    pub cut: Option<SearchLimit>,
    /// The broken promises that take the fewest events.
    pub violations: Vec<Counterexample>,
    /// The states that cannot finish; none if not all states were seen.
    pub stuck: Option<StuckStates>,
    /// How long it took.
    pub took: Duration,
}

/// Explores `config` until all states are seen, a promise is broken, or one of `limits` is reached.
#[must_use]
pub fn explore(config: &Configuration, limits: &Limits) -> ExplorationResult {
    explore_space::<World>(config, limits)
}

/// Explores `config` as `explore` does, for any type of world.
pub(crate) fn explore_space<S: Space<Event: std::fmt::Debug>>(
    config: &S::Config,
    limits: &Limits,
) -> ExplorationResult {
    let began = Instant::now();
    let found = search::<S>(config, limits);
    let violations = found.broken.iter().map(|&(promise, state)| Counterexample {
        promise,
        events: found.way_to::<S>(config, state).iter().map(|(event, _)| format!("{event:?}")).collect(),
    });
    ExplorationResult {
        states: found.states.len(),
        depth: found.layers.len() - 1,
        complete: found.complete,
        cut: found.cut,
        violations: violations.collect(),
        stuck: found.complete.then(|| stuck(&found)),
        took: began.elapsed(),
    }
}

/// The events that lead to the first broken promise, each with the world before it.
#[must_use]
pub fn retell(config: &Configuration, limits: &Limits) -> Option<Vec<(Event, World)>> {
    let found = search::<World>(config, limits);
    let (_, state) = *found.broken.iter().min()?;
    Some(found.way_to::<World>(config, state))
}

fn stuck(found: &SearchResult) -> StuckStates {
    let before = Predecessors::of(found.states.len(), &found.leads);
    let writes = before.cut_off(found.states.iter().map(|state| state.written).collect());
    let work = before.cut_off(found.states.iter().map(|state| state.finished).collect());
    let nearest = writes.first().into_iter().chain(work.first()).min().map(|state| found.depth_of(*state));
    StuckStates { writes: writes.len(), work: work.len(), nearest }
}

/// For each state, the states that lead to it without a fault.
struct Predecessors {
    states: Vec<Number>,
    /// Where the predecessors of each state begin; one more at the end.
    begins: Vec<Number>,
}

impl Predecessors {
    fn of(states: usize, leads: &[(Number, Number)]) -> Self {
        let mut begins = vec![0; states + 1];
        for &(_, to) in leads {
            begins[to as usize + 1] += 1;
        }
        for at in 1..begins.len() {
            begins[at] += begins[at - 1];
        }
        let mut open = begins.clone();
        let mut states = vec![0; leads.len()];
        for &(from, to) in leads {
            states[open[to as usize] as usize] = from;
            open[to as usize] += 1;
        }
        Self { states, begins }
    }

    /// The states from which no state of `goals` can be reached, in the order of their numbers.
    fn cut_off(&self, goals: Vec<bool>) -> Vec<Number> {
        let all = 0..goals.len() as Number;
        let mut open: Vec<Number> = all.clone().filter(|at| goals[*at as usize]).collect();
        let mut reaches = goals;
        while let Some(at) = open.pop() {
            let (begin, end) = (self.begins[at as usize] as usize, self.begins[at as usize + 1] as usize);
            for &earlier in &self.states[begin..end] {
                if !std::mem::replace(&mut reaches[earlier as usize], true) {
                    open.push(earlier);
                }
            }
        }
        all.filter(|at| !reaches[*at as usize]).collect()
    }
}

impl Space for World {
    type Config = Configuration;
    type Event = Event;

    fn begin(config: &Configuration) -> Self {
        Self::begin(config)
    }

    fn events(&self, config: &Configuration, events: &mut Vec<Event>) {
        self.events(config, events);
    }

    fn happen(&mut self, config: &Configuration, event: Event) {
        self.happen(config, event);
    }

    fn finishes(event: Event) -> bool {
        event.finishes()
    }

    fn broken(&self) -> Option<Promise> {
        self.broken
    }

    fn is_written(&self) -> bool {
        self.is_written()
    }

    fn is_finished(&self) -> bool {
        self.is_finished()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_to_no_goal_is_cut_off_also_where_it_goes_round() {
        // 0 leads to 1 and 2, 1 to the goal 3; 2 and 4 lead to each other.
        let before = Predecessors::of(5, &[(0, 1), (0, 2), (1, 3), (2, 4), (4, 2)]);
        assert_eq!(before.cut_off(vec![false, false, false, true, false]), [2, 4]);
        assert!(before.cut_off(vec![false, false, true, true, false]).is_empty());
    }
}
