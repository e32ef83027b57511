//! Which invocation runs in which class, and in which class each sandbox's tasks are.

use std::collections::HashMap;
use std::sync::Arc;

use nigh_functions::function::Function;
use nigh_llc::resctrl::Members;
use nigh_llc::{CacheClass, ChunkSplit, ClosLayout, Demand, PredictedNeed, WayLoads};
use nigh_terms::{ClosId, FunctionName, InvocationId, Monotonic, Namespace, SandboxId, Ways, invariant};

use super::running_invocation::RunningInvocation;
use super::wanted_profiles::WantedProfiles;

/// Sandboxes whose class is remembered. At the limit all are forgotten, and each is bound again at its next run.
const BOUND_MAX: usize = 4096;

/// Which classes the machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Classes {
    /// CASY's, for the present share of the insensitive functions.
    Casy,
    /// Fitted to the running invocations.
    Fitted,
}

/// The invocations, sandboxes and classes of one moment.
pub(super) struct Books {
    pub(super) loads: WayLoads,
    pub(super) running: HashMap<InvocationId, RunningInvocation>,
    /// The class of each sandbox whose class is known.
    pub(super) bound: HashMap<SandboxId, ClosId>,
    pub(super) suspended: bool,
    pub(super) classes: Classes,
    pub(super) split: ChunkSplit,
    /// Ways needed times microseconds, of the invocations that ended since `window`.
    pub(super) demand: Demand,
    pub(super) window: Monotonic,
    pub(super) wanted: WantedProfiles,
    /// The predicted need of each function's last run.
    pub(super) needs: HashMap<(Namespace, FunctionName), Ways>,
}

/// Functions whose last need is remembered. At the limit all are forgotten.
const NEEDS_MAX: usize = 4096;

impl Books {
    /// Remembers the predicted need of a run of `function`.
    pub(super) fn needed(&mut self, function: &Function, predicted: PredictedNeed) {
        // An insensitive function may run anywhere.
        let ways = if predicted.class == CacheClass::Sensitive { predicted.ways } else { Ways(0) };
        let name = (function.namespace.clone(), function.name.clone());
        if self.needs.len() >= NEEDS_MAX && !self.needs.contains_key(&name) {
            self.needs.clear();
        }
        self.needs.insert(name, ways);
    }

    /// The predicted need of a function's last run, in ways; 0 if there was no prediction.
    pub(super) fn ways_needed(&self, namespace: &Namespace, function: &FunctionName) -> u8 {
        self.needs.get(&(namespace.clone(), function.clone())).map_or(0, |ways| ways.0)
    }

    /// The ways that no running sensitive invocation needs.
    pub(super) fn ways_free(&self) -> Ways {
        let needs = self.loads.running().iter().filter_map(|running| running.need.predicted);
        let taken: u32 =
            needs.filter(|need| need.class == CacheClass::Sensitive).map(|need| u32::from(need.ways.0)).sum();
        let all = self.loads.layout().shape().ways.0;
        Ways(all.saturating_sub(u8::try_from(taken).unwrap_or(u8::MAX)))
    }

    /// Takes over the layout that the machine has now. Sandboxes of removed classes are in the default class.
    pub(super) fn adopt(&mut self, layout: Arc<ClosLayout>) {
        let cache = self.loads.layout().shape();
        invariant!(layout.shape() == cache, "a layout for {:?} on a cache of {cache:?}", layout.shape());
        for clos in self.bound.values_mut().filter(|clos| layout.class(**clos).is_none()) {
            *clos = ClosId::DEFAULT;
        }
        self.loads.change_layout(layout);
    }

    /// After a change of the classes: notes each running invocation's present class for its record.
    pub(super) fn follow_classes(&mut self, now: Monotonic) {
        for running in self.running.values_mut() {
            if let Some(placed) = self.loads.find(running.ticket) {
                running.class.follow(self.loads.layout(), placed.clos, now);
            }
        }
    }

    /// Running invocations whose tasks are not in the class they belong to.
    pub(super) fn moves(&self) -> Vec<InvocationId> {
        self.running.keys().copied().filter(|invocation| self.move_of(*invocation).is_some()).collect()
    }

    /// The move that a running invocation's tasks must make; none if they are in their class.
    pub(super) fn move_of(&self, invocation: InvocationId) -> Option<(SandboxId, Members, ClosId)> {
        let running = self.running.get(&invocation)?;
        let clos = self.loads.find(running.ticket)?.clos;
        let tasks = running.tasks.as_ref().filter(|_| self.bound.get(&running.sandbox) != Some(&clos))?;
        Some((running.sandbox, tasks.clone(), clos))
    }

    /// Remembers the class that a sandbox was bound to; none after a failed binding.
    pub(super) fn record(&mut self, sandbox: SandboxId, clos: Option<ClosId>) {
        match clos {
            Some(clos) => {
                if self.bound.len() >= BOUND_MAX {
                    self.bound.clear();
                }
                self.bound.insert(sandbox, clos);
            }
            None => drop(self.bound.remove(&sandbox)),
        }
    }
}
