//! What the station of the last-level cache knows of this moment: who runs in which class, and which class each
//! sandbox's tasks are in.

use std::collections::HashMap;
use std::sync::Arc;

use nigh_functions::function::Function;
use nigh_llc::resctrl::Members;
use nigh_llc::{CacheClass, ChunkSplit, ClosLayout, Demand, PredictedNeed, WayLoads};
use nigh_terms::{ClosId, FunctionName, InvocationId, Monotonic, Namespace, SandboxId, Ways};

use super::in_course::InCourse;
use super::wanted_profiles::WantedProfiles;

/// Sandboxes whose class is remembered; beyond it all are forgotten and bound again when they next run.
const BOUND_MAX: usize = 4096;

/// Invocations of one function whose data is of about the same size share their curves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    namespace: Namespace,
    function: FunctionName,
    code_sha256: String,
    /// The power of two below its bytes of data.
    size_octave: u32,
}

impl Kind {
    pub(super) fn of(function: &Function, bytes: u64) -> Self {
        Self {
            namespace: function.namespace.clone(),
            function: function.name.clone(),
            code_sha256: function.code_sha256.clone(),
            size_octave: bytes.max(1).ilog2(),
        }
    }
}

/// What the classes are now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Classes {
    /// CASY's, for the share that the insensitive have.
    Casy,
    /// Fitted to what runs.
    Fitted,
}

/// The books.
pub(super) struct Books {
    pub(super) loads: WayLoads,
    pub(super) running: HashMap<InvocationId, InCourse>,
    /// By sandbox: its class, as far as it is known.
    pub(super) bound: HashMap<SandboxId, ClosId>,
    pub(super) suspended: bool,
    pub(super) classes: Classes,
    pub(super) split: ChunkSplit,
    /// Ways needed times microseconds, of what ended since `window`.
    pub(super) demand: Demand,
    pub(super) window: Monotonic,
    pub(super) wanted: WantedProfiles,
    /// What the last run of each function was predicted to need.
    pub(super) needs: HashMap<(Namespace, FunctionName), Ways>,
}

/// Functions whose last need is remembered; with one more all are forgotten.
const NEEDS_MAX: usize = 4096;

impl Books {
    /// A run of `function` was predicted to need so many ways.
    pub(super) fn needed(&mut self, function: &Function, predicted: PredictedNeed) {
        // One that is not sensitive may run anywhere.
        let ways = if predicted.class == CacheClass::Sensitive { predicted.ways } else { Ways(0) };
        let name = (function.namespace.clone(), function.name.clone());
        if self.needs.len() >= NEEDS_MAX && !self.needs.contains_key(&name) {
            self.needs.clear();
        }
        self.needs.insert(name, ways);
    }

    /// What the last run of a function was predicted to need; 0 if nothing is known.
    pub(super) fn ways_needed(&self, namespace: &Namespace, function: &FunctionName) -> u8 {
        self.needs.get(&(namespace.clone(), function.clone())).map_or(0, |ways| ways.0)
    }

    /// The ways that no sensitive invocation which runs needs.
    pub(super) fn ways_free(&self) -> Ways {
        let needs = self.loads.running().iter().filter_map(|running| running.need.predicted);
        let taken: u32 =
            needs.filter(|need| need.class == CacheClass::Sensitive).map(|need| u32::from(need.ways.0)).sum();
        let all = self.loads.layout().shape().ways.0;
        Ways(all.saturating_sub(u8::try_from(taken).unwrap_or(u8::MAX)))
    }

    /// Goes over to classes that the machine has already: whoever was in one that is gone is in the default now.
    pub(super) fn adopt(&mut self, layout: Arc<ClosLayout>) {
        for clos in self.bound.values_mut().filter(|clos| layout.class(**clos).is_none()) {
            *clos = ClosId::DEFAULT;
        }
        self.loads.change_layout(layout);
    }

    /// Whoever runs has gone along with classes that have changed: its record is to say so.
    pub(super) fn follow_classes(&mut self, now: Monotonic) {
        for course in self.running.values_mut() {
            if let Some(running) = self.loads.find(course.ticket) {
                course.stay.follow(self.loads.layout(), running.clos, now);
            }
        }
    }

    /// Running invocations whose tasks are not where they belong.
    pub(super) fn moves(&self) -> Vec<InvocationId> {
        self.running.keys().copied().filter(|invocation| self.move_of(*invocation).is_some()).collect()
    }

    /// The move that a running invocation's tasks are to make.
    pub(super) fn move_of(&self, invocation: InvocationId) -> Option<(SandboxId, Members, ClosId)> {
        let course = self.running.get(&invocation)?;
        let clos = self.loads.find(course.ticket)?.clos;
        let tasks = course.tasks.as_ref().filter(|_| self.bound.get(&course.sandbox) != Some(&clos))?;
        Some((course.sandbox, tasks.clone(), clos))
    }

    /// The class that a sandbox was bound to; none where that failed.
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
