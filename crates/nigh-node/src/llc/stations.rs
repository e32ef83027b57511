//! The hooks of the last-level cache, and the measurement of its use.

use std::collections::HashMap;
use std::sync::Arc;

use nigh_invoke::hooks::InvocationHook;
use nigh_terms::{Clock, ClosId, InvocationId};
use nigh_ways::{CacheUseHook, CoreHook, FunctionUse};

use super::Llc;

impl Llc {
    /// The hooks in order: presence, class, core.
    pub(crate) fn hooks(&self) -> Vec<Arc<dyn InvocationHook>> {
        let Some(station) = &self.station else { return Vec::new() };
        let ways = Arc::clone(station) as Arc<dyn InvocationHook>;
        let Some(classes) = &self.classes else { return vec![ways] };
        vec![Arc::new(CacheUseHook(Arc::clone(classes))), ways, Arc::new(CoreHook(Arc::clone(classes)))]
    }

    /// True if `sample_use` has anything to do.
    pub(crate) fn wants_sampling(&self) -> bool {
        self.classes.as_ref().is_some_and(|classes| classes.has_sandboxes())
    }

    /// Reads every function's use of the cache. Blocks for a few system calls for each sandbox.
    pub(crate) fn sample_use(&self, clock: &dyn Clock) {
        if let Some(classes) = &self.classes {
            classes.sample_use(|| clock.monotonic());
        }
    }

    /// The class of each running invocation that has one.
    pub(crate) fn classes_of_running(&self) -> HashMap<InvocationId, ClosId> {
        self.station.as_ref().map(|station| station.classes_of_running()).unwrap_or_default()
    }

    /// Each function's use of the cache at the last reading; none if the machine does not measure it.
    pub(super) fn use_by_function(&self) -> Option<Vec<FunctionUse>> {
        let classes = self.classes.as_ref().filter(|classes| classes.counts_use())?;
        Some(classes.use_by_function())
    }
}
