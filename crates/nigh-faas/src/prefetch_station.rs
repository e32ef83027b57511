//! On a node alone: what an application reads is learned from its invocations, and brought into memory when it starts.
//!
//! In a cluster whoever dispatches does this, for it sees all invocations of a namespace, wherever they run.

use std::collections::HashMap;
use std::sync::Arc;

use nigh_objects::ObjectMemory;
use nigh_terms::{Clock, InvocationId};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::activation::Activation;
use crate::applications::{Applications, Foreseen, KnownInput};
use crate::hooks::{InvocationHook, Run};
use crate::touched::Touched;

/// Invocations that run, whose inputs are remembered; of more nothing is learned.
const RUNNING_MAX: usize = 16_384;

/// The station in an invocation's path.
pub struct PrefetchStation {
    applications: Applications,
    /// Where objects are brought; none where that is off, and it is only learned.
    memory: Option<ObjectMemory>,
    clock: Arc<dyn Clock>,
    running: Mutex<HashMap<InvocationId, KnownInput>>,
    /// It is called from whatever thread.
    runtime: Handle,
}

impl PrefetchStation {
    /// A station; to be made within a runtime.
    #[must_use]
    pub fn new(applications: Applications, memory: Option<ObjectMemory>, clock: Arc<dyn Clock>) -> Self {
        Self { applications, memory, clock, running: Mutex::default(), runtime: Handle::current() }
    }
}

impl InvocationHook for PrefetchStation {
    fn name(&self) -> &'static str {
        "prefetch"
    }

    fn before_run(&self, run: &mut Run<'_>) -> Option<String> {
        let input = self.applications.input(&run.function.namespace, &run.function.name, run.walk());
        let foreseen = self.memory.as_ref().and_then(|_| self.applications.starts(&input, self.clock.monotonic()));
        let mut running = self.running.lock();
        if running.len() < RUNNING_MAX {
            running.insert(run.invocation, input.clone());
        }
        drop(running);
        let (Foreseen { next, objects }, memory) = (foreseen?, self.memory.clone()?);
        let note = format!("prefetch: {} objects that {next} will probably read", objects.len());
        let (applications, clock) = (self.applications.clone(), Arc::clone(&self.clock));
        self.runtime.spawn(async move {
            let brought = memory.bring(&objects).await;
            applications.brought(&input, &objects, &brought, clock.monotonic());
        });
        Some(note)
    }

    fn after_run(&self, activation: &Activation) {
        let Some(input) = self.running.lock().remove(&activation.id) else { return };
        self.applications.ended(&input, &Touched::of(&activation.data_calls), self.clock.monotonic());
    }

    fn not_run(&self, invocation: InvocationId) {
        self.running.lock().remove(&invocation);
    }
}
