//! The pool's reports, for people and for controllers. Pure.

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use nigh_functions::function::Function;
use nigh_terms::{ByteSize, Monotonic};

use super::SandboxPool;
use super::command::PoolUse;
use super::pool_state::{Record, State};
use super::room::RoomShortage;
use crate::scheduler::vacancy::{Vacancy, WarmFunction};

impl<S: Clone + Eq + Hash> SandboxPool<S> {
    /// The present counts of the pool.
    #[must_use]
    pub fn in_use(&self) -> PoolUse {
        let (state, idle) = (&self.state, self.idle());
        let resting = state.records.values().filter(|record| matches!(record.state, State::Resting(_)));
        PoolUse {
            sandboxes: state.room.sandboxes,
            idle: idle.len(),
            starting: state.starts.len(),
            idle_held: state.room.resting,
            idle_booked: resting.map(|record| record.function.memory).sum(),
            booked: state.room.busy,
            stems: self.stems,
            prewarmed: self.prewarmed,
            running: state.running.all(),
            waiting: self.queue.len(),
        }
    }

    /// The functions that have idle sandboxes, each version once.
    #[must_use]
    pub fn idle_functions(&self) -> Vec<Arc<Function>> {
        let mut functions: Vec<Arc<Function>> = Vec::new();
        for record in self.state.records.values().filter(|record| record.idle_since().is_some()) {
            if !functions.iter().any(|known| known.same_version(&record.function)) {
                functions.push(Arc::clone(&record.function));
            }
        }
        functions
    }

    /// The free capacity, and the functions with sandboxes, for controllers.
    #[must_use]
    pub fn vacancy(&self, now: Monotonic) -> Vacancy {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let (state, limits) = (&self.state, self.limits());
        let free = state.room.free(limits);
        Vacancy {
            idle: count(self.idle().len()),
            memory: limits.memory(),
            memory_free: free,
            memory_idle: limits.memory().saturating_sub(state.room.busy).saturating_sub(free),
            sandboxes_free: count(limits.sandboxes_max.saturating_sub(state.room.sandboxes)),
            running: count(state.running.all()),
            waiting: count(self.queue.len() + state.starts.len()),
            invocations_free: if self.closed {
                0
            } else {
                count(limits.invocations_max.saturating_sub(state.running.all()))
            },
            processors: 1,
            ways_free: 0,
            evict_us: self.loss_of_the_next(now),
            start_us: self.state.usual_start().as_micros() as u64,
            warm: self.warm(now),
        }
    }

    /// The restart cost of the idle sandbox that would end next, in microseconds.
    fn loss_of_the_next(&self, now: Monotonic) -> u64 {
        let lack = RoomShortage { memory: ByteSize(1), sandboxes: 0 };
        let victims = self.state.victims(lack, None, false, now);
        victims.map_or(0, |victims| (victims.loss_s * 1e6) as u64)
    }

    /// The sandboxes of each version of a function, and how long the one used last has been idle.
    fn warm(&self, now: Monotonic) -> Vec<WarmFunction> {
        let mut all: Vec<WarmFunction> = Vec::new();
        let mut records: Vec<&Record> = self.state.records.values().filter(|one| one.state != State::Ending).collect();
        // The sandbox that was used last represents its function.
        records.sort_unstable_by_key(|record| std::cmp::Reverse(record.idle_since()));
        for record in records {
            let Function { namespace, name, revision_id, memory, .. } = &*record.function;
            let is_known = |known: &&mut WarmFunction| {
                (&known.namespace, &known.function, &known.revision) == (namespace, name, revision_id)
            };
            let idle = record.idle_since();
            match all.iter_mut().find(is_known) {
                Some(known) => {
                    known.sandboxes += u32::from(idle.is_some());
                    known.busy += u32::from(idle.is_none());
                }
                None => all.push(WarmFunction {
                    namespace: namespace.clone(),
                    function: name.clone(),
                    revision: revision_id.clone(),
                    sandboxes: u32::from(idle.is_some()),
                    busy: u32::from(idle.is_none()),
                    granted: *memory,
                    idle_for: idle.map_or(Duration::ZERO, |since| now.since(since)),
                    ways: 0,
                }),
            }
        }
        all
    }
}
