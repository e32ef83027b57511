//! Distributed traces (W3C Trace Context, OpenTelemetry's span model), without any export.
//!
//! A request's context travels in three ways: within a task as the current one (`current`, `scope`, `follow`), between
//! processes in headers and at the end of peers' messages (`propagation`, `trailer`), and into a sandbox by the id of its
//! invocation (`running`). Ended spans of sampled traces go to the installed sink. While no sink is installed nothing is
//! recorded: each span costs one load of an atomic flag.
//!
//! Contexts, headers and sampling are pure. Spans read the system's clocks.

mod context;
mod context_map;
mod current;
mod finished_span;
mod propagation;
mod recorder;
pub mod running;
mod sampling;
mod span;
pub mod trailer;

pub use context::{SpanContext, SpanId, TraceId, Trigger};
pub use context_map::ContextMap;
pub use current::{Scoped, current, follow, scope};
pub use finished_span::{FinishedSpan, SpanKind, Value};
pub use propagation::Incoming;
pub use recorder::{SpanSink, install, is_on, remove};
pub use sampling::Sampling;
pub use span::{OpenSpan, Span, past, unix_ns};
