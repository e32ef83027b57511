//! Spans: one piece of a request's work each, from its begin to its end, with what is known of it.

use std::borrow::Cow;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::context::{SpanContext, SpanId, TraceId, Trigger};
use crate::current::{Scoped, current, log_span, scope};
use crate::finished_span::{FinishedSpan, SpanKind, Value, cut};
use crate::propagation::Incoming;
use crate::recorder::{deliver, is_on, sampling};

/// A span under way that is recorded.
#[derive(Debug)]
pub struct OpenSpan {
    parent: Option<SpanId>,
    name: Cow<'static, str>,
    kind: SpanKind,
    start_ns: u64,
    began: Instant,
    attributes: Vec<(&'static str, Value)>,
    failure: Option<String>,
}

impl OpenSpan {
    /// Names it anew.
    pub fn name(&mut self, name: impl Into<Cow<'static, str>>) {
        self.name = name.into();
    }

    /// Adds an attribute.
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        self.attributes.push((key, value.into()));
    }

    /// Adds an attribute, if there is a value.
    pub fn set_some(&mut self, key: &'static str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.set(key, value);
        }
    }

    /// Says that it failed. `kind` is a word that errors of the same kind share (`error.type`).
    pub fn fail(&mut self, kind: impl Into<Value>, why: &str) {
        self.set("error.type", kind);
        self.failure = Some(cut(why).to_owned());
    }
}

/// A span under way. It ends when it is dropped. One that is not recorded has a context at most.
#[derive(Debug, Default)]
pub struct Span {
    context: Option<SpanContext>,
    open: Option<Box<OpenSpan>>,
}

impl Span {
    /// No span: the work belongs to no trace.
    #[must_use]
    pub const fn none() -> Self {
        Self { context: None, open: None }
    }

    /// The span of a request that came from outside, under the caller's span or as the first of a trace. While nothing is
    /// recorded here, the caller's context is only passed on.
    #[must_use]
    pub fn of_request(name: &'static str, kind: SpanKind, incoming: Option<Incoming>) -> Self {
        if !is_on() {
            let passed = incoming.map(|incoming| SpanContext {
                trace: incoming.trace,
                span: incoming.parent.unwrap_or_else(SpanId::random),
                sampled: incoming.sampled.unwrap_or(false),
                trigger: Trigger::Other,
            });
            return Self { context: passed, open: None };
        }
        let trace = incoming.map_or_else(TraceId::random, |incoming| incoming.trace);
        let decided = incoming.and_then(|incoming| incoming.sampled);
        let sampled = decided.unwrap_or_else(|| sampling().samples(trace));
        let context = SpanContext { trace, span: SpanId::random(), sampled, trigger: Trigger::Other };
        let parent = incoming.and_then(|incoming| incoming.parent);
        Self { context: Some(context), open: sampled.then(|| open(name, kind, parent)) }
    }

    /// The first span of a trace that begins in Nigh itself. No span while nothing is recorded.
    #[must_use]
    pub fn root(name: &'static str, kind: SpanKind) -> Self {
        Self::of_request(name, kind, None)
    }

    /// A span under `parent`. Without a parent there is no span; where the trace is not recorded, the parent's context is
    /// passed on.
    #[must_use]
    pub fn under(parent: Option<SpanContext>, name: &'static str, kind: SpanKind) -> Self {
        match parent {
            Some(parent) if parent.sampled && is_on() => {
                Self { context: Some(parent.below()), open: Some(open(name, kind, Some(parent.span))) }
            }
            context => Self { context, open: None },
        }
    }

    /// A span under the one of the work that runs now.
    #[must_use]
    pub fn child(name: &'static str, kind: SpanKind) -> Self {
        Self::under(current(), name, kind)
    }

    /// The context for work under this span.
    #[must_use]
    pub const fn context(&self) -> Option<SpanContext> {
        self.context
    }

    /// True if it is recorded.
    #[must_use]
    pub const fn is_recording(&self) -> bool {
        self.open.is_some()
    }

    /// Sets what triggers the invocations under it.
    #[must_use]
    pub fn triggered(mut self, trigger: Trigger) -> Self {
        self.context = self.context.map(|context| context.triggered(trigger));
        self
    }

    /// Runs `work` under this span.
    pub fn scope<F: Future>(&self, work: F) -> Scoped<F> {
        scope(self.context, work)
    }

    /// Runs `log`: the lines that it logs have the trace's id, as those of work under this span have.
    pub fn logged<T>(&self, log: impl FnOnce() -> T) -> T {
        log_span(self.context).in_scope(log)
    }

    /// Adds what is known of it; `add` is only called if the span is recorded.
    pub fn record(&mut self, add: impl FnOnce(&mut OpenSpan)) {
        if let Some(open) = &mut self.open {
            add(open);
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let (Some(open), Some(context)) = (self.open.take(), self.context) {
            let OpenSpan { parent, name, kind, start_ns, began, attributes, failure } = *open;
            let end_ns = start_ns.saturating_add(began.elapsed().as_nanos() as u64);
            deliver(FinishedSpan { context, parent, name, kind, start_ns, end_ns, attributes, failure });
        }
    }
}

fn open(name: &'static str, kind: SpanKind, parent: Option<SpanId>) -> Box<OpenSpan> {
    Box::new(OpenSpan {
        parent,
        name: Cow::Borrowed(name),
        kind,
        start_ns: unix_ns(),
        began: Instant::now(),
        attributes: Vec::new(),
        failure: None,
    })
}

/// Records a span under `parent` that is over: from `start_ns` to `end_ns`, nanoseconds since 1970. `add` is only called if
/// it is recorded.
pub fn past(
    parent: Option<SpanContext>,
    name: &'static str,
    kind: SpanKind,
    (start_ns, end_ns): (u64, u64),
    add: impl FnOnce(&mut OpenSpan),
) {
    let mut span = Span::under(parent, name, kind);
    span.record(add);
    span.ended_at(start_ns, end_ns);
}

impl Span {
    /// Ends it with these times instead of the clock's, in nanoseconds since 1970.
    pub fn ended_at(mut self, start_ns: u64, end_ns: u64) {
        if let (Some(open), Some(context)) = (self.open.take(), self.context) {
            let OpenSpan { parent, name, kind, attributes, failure, .. } = *open;
            let end_ns = end_ns.max(start_ns);
            deliver(FinishedSpan { context, parent, name, kind, start_ns, end_ns, attributes, failure });
        }
    }

    /// Gives it the ids that were fixed when its work began, perhaps in another process: its own, and its parent's.
    #[must_use]
    pub fn with_ids(context: SpanContext, parent: Option<SpanId>, name: &'static str, kind: SpanKind) -> Self {
        let open = (context.sampled && is_on()).then(|| open(name, kind, parent));
        Self { context: Some(context), open }
    }
}

/// The date now, in nanoseconds since 1970.
#[must_use]
pub fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests;
