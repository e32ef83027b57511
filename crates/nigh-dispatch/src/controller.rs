//! What a controller keeps: the namespaces that it owns, the invocations that wait for a node, and how many run. No I/O.

pub(crate) mod cluster_view;
mod placement;

use std::collections::HashMap;
use std::time::Duration;

use nigh_functions::function::Function;
use nigh_invoke::invocation::InvokeError;
use nigh_schedule::scheduler::Weights;
use nigh_schedule::scheduler::dispatch_queue::{DispatchLimits, DispatchQueue, NewEntry, Turn};
use nigh_terms::{Monotonic, Namespace, Token, invariant};

use self::cluster_view::{FunctionKey, which};
use self::placement::PlacementState;
pub(crate) use self::placement::{DispatchPlacement, OwnedNamespace, WaitingInvocation};

/// How long a run counts of a function of which none has ended.
const RUN_UNKNOWN: Duration = Duration::from_millis(100);

/// What a controller keeps.
pub(super) struct ControllerState {
    pub(super) placing: PlacementState,
    pub(super) queue: DispatchQueue<WaitingInvocation>,
    reserved: HashMap<FunctionKey, usize>,
    running: HashMap<FunctionKey, usize>,
}

impl ControllerState {
    pub(super) fn new(weights: Weights, cold_start: Duration, limits: DispatchLimits) -> Self {
        let placing = PlacementState::new(weights, cold_start);
        Self { placing, queue: DispatchQueue::new(limits), reserved: HashMap::new(), running: HashMap::new() }
    }

    /// Adds to the frontier what an invocation or a writer had seen. False if this controller does not own the namespace, or
    /// not in `term`.
    pub(super) fn see(&mut self, namespace: &Namespace, term: Option<u64>, token: &Token) -> bool {
        let owned = self.placing.owned.get_mut(namespace).filter(|owned| term.is_none_or(|term| owned.term == term));
        let Some(owned) = owned else { return false };
        owned.see(token);
        true
    }

    /// The term in which this controller owns `namespace`.
    pub(super) fn term(&self, namespace: &Namespace) -> Option<u64> {
        self.placing.owned.get(namespace).map(|owned| owned.term)
    }

    /// An invocation of `function` begins: it waits or runs from now on.
    ///
    /// # Errors
    /// If as many run as are reserved for the function.
    pub(super) fn begins(&mut self, function: &Function) -> Result<(), InvokeError> {
        let key = which(function);
        let running = self.running.entry(key.clone()).or_default();
        match self.reserved.get(&key) {
            Some(&limit) if *running >= limit => {
                if *running == 0 {
                    self.running.remove(&key);
                }
                Err(InvokeError::ReservedConcurrency { function: key.1, limit })
            }
            _ => {
                *running += 1;
                Ok(())
            }
        }
    }

    /// An invocation of `function` has ended.
    pub(super) fn ends(&mut self, function: &Function) {
        let key = which(function);
        if let Some(running) = self.running.get_mut(&key) {
            // `begins` has counted it, and removes the entry of a function without invocations.
            invariant!(*running > 0, "{key:?} ends an invocation, and none was counted");
            *running -= 1;
            if *running == 0 {
                self.running.remove(&key);
            }
        }
    }

    pub(super) fn set_reserved(&mut self, function: FunctionKey, concurrency: Option<usize>) {
        let _before = match concurrency {
            Some(limit) => self.reserved.insert(function, limit),
            None => self.reserved.remove(&function),
        };
    }

    /// An invocation waits for a node.
    ///
    /// # Errors
    /// If as many wait as may.
    pub(super) fn waits(
        &mut self,
        waiting: WaitingInvocation,
        deadline: Monotonic,
        now: Monotonic,
    ) -> Result<(), InvokeError> {
        let run = self.placing.run(&waiting.function).unwrap_or(RUN_UNKNOWN);
        let (namespace, function) = which(&waiting.function);
        let entry = NewEntry { namespace, function, run, deadline, item: waiting };
        self.queue.push(entry, now).map(|_ticket| ()).map_err(|full| InvokeError::TooManyRequests(full.to_string()))
    }

    /// Tells each invocation whose turn has come where it goes.
    pub(super) fn pump(&mut self, now: Monotonic) {
        let Self { placing, queue, .. } = self;
        while let Some(turn) = queue.next(now, |waiting| placing.place(waiting, now)) {
            match turn {
                Turn::Placed(_, waiting, placed) => {
                    if let Err(Ok(DispatchPlacement::At { dispatch, .. })) = waiting.turn.send(Ok(placed)) {
                        placing.view.over(dispatch.to, &waiting.function, false);
                    }
                }
                Turn::Expired(_, waiting) => {
                    let why = "no node could take it in time; invoke again later, or add nodes".to_owned();
                    let _nobody_waits = waiting.turn.send(Err(InvokeError::TooManyRequests(why)));
                }
            }
        }
    }
}
