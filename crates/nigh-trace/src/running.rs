//! The invocations that run in this process, by their ids: a call with a sandbox's key belongs to the invocation that runs
//! there, though its program may send no header of a trace.

use std::sync::LazyLock;

use crate::context::SpanContext;
use crate::context_map::ContextMap;
use crate::recorder::is_on;

/// More invocations than any node runs at once.
const INVOCATIONS_MAX: usize = 65_536;

/// The bytes of an invocation's id.
type InvocationBytes = [u8; 16];

static RUNNING: LazyLock<ContextMap<InvocationBytes>> = LazyLock::new(|| ContextMap::new(INVOCATIONS_MAX));

/// An invocation whose calls belong to its trace until this is dropped.
#[derive(Debug)]
pub struct RunningInvocation(Option<InvocationBytes>);

/// From now on calls of the invocation `id` belong under `context`.
#[must_use]
pub fn begin(id: &InvocationBytes, context: Option<SpanContext>) -> RunningInvocation {
    let context = context.filter(|_| is_on());
    if let Some(context) = context {
        RUNNING.insert(*id, context);
    }
    RunningInvocation(context.map(|_| *id))
}

/// The context of a running invocation.
#[must_use]
pub fn context_of(id: &InvocationBytes) -> Option<SpanContext> {
    is_on().then(|| RUNNING.get(id)).flatten()
}

impl Drop for RunningInvocation {
    fn drop(&mut self) {
        if let Some(id) = &self.0 {
            RUNNING.take(id);
        }
    }
}
