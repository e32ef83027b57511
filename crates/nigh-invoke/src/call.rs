//! An invocation on its way, and what came of an attempt to run it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use nigh_functions::function::Function;
use nigh_terms::{InvocationId, Timestamp};

use crate::invocation::InvocationResult;
use crate::invocation::gate::Entrance;
use crate::invocation_trace::InvocationTrace;

/// An invocation on its way.
pub(crate) struct Call {
    pub(crate) id: InvocationId,
    /// Which attempt of an event, from 1.
    pub(crate) attempt: u32,
    pub(crate) function: Arc<Function>,
    pub(crate) payload: Bytes,
    pub(crate) client_context: Option<HeaderValue>,
    pub(crate) entrance: Entrance,
    /// When the caller asked for it.
    pub(crate) start: Timestamp,
    /// How long it waited for a sandbox.
    pub(crate) wait: Duration,
    /// Why this sandbox.
    pub(crate) placement: String,
    /// Notes about earlier runs of this invocation. If there was one, this run is granted all that the function booked.
    pub(crate) earlier: Vec<String>,
    /// Its span.
    pub(crate) trace: InvocationTrace,
}

/// What came of an attempt to run.
pub(crate) enum Attempt {
    /// The invocation ran to its end.
    Done(Box<InvocationResult>),
    /// The sandbox ended before it took the input: nothing has run.
    NotTaken,
    /// The run failed, perhaps for want of memory that its function booked, and may be repeated. The note says so.
    Again(String),
}
