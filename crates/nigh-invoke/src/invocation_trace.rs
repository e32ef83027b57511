//! The span of an invocation (OpenTelemetry's conventions for FaaS), and those of its parts: the wait for a sandbox, the
//! sandbox's start, and the handler, under which its data calls and the invocations that it makes come.

use nigh_functions::function_arn::LATEST;
use nigh_schedule::activation::{Activation, Outcome};
use nigh_terms::{InvocationId, Monotonic};
use nigh_trace::running::{self, RunningInvocation};
use nigh_trace::{OpenSpan, Span, SpanContext, SpanKind, past, unix_ns};
use parking_lot::Mutex;

use crate::hooks::meter::outcome_name;
use crate::invocation::InvokeError;
use crate::sandboxes::cold_start::Init;

/// An invocation's span, which ends with this.
pub(crate) struct InvocationTrace {
    context: Option<SpanContext>,
    span: Mutex<Span>,
    /// One moment, when it was asked for: by the invoker's clock, and in nanoseconds since 1970.
    asked: (Monotonic, u64),
}

/// The handler's span. As long as this is there, calls with the sandbox's key belong under it.
pub(crate) struct HandlerTrace {
    span: Span,
    _running: RunningInvocation,
}

impl InvocationTrace {
    /// The span of an invocation that was asked for at `asked`, under its caller's.
    pub(crate) fn begin(asked: Monotonic) -> Self {
        let span = Span::child("invocation", SpanKind::Server);
        let now_ns = if span.is_recording() { unix_ns() } else { 0 };
        Self { context: span.context(), span: Mutex::new(span), asked: (asked, now_ns) }
    }

    /// The trace's id; none if the invocation belongs to no trace.
    pub(crate) fn id(&self) -> Option<String> {
        self.context.map(|context| context.trace.to_string())
    }

    /// The span, if it is recorded.
    pub(crate) fn recorded(&self) -> Option<SpanContext> {
        self.context.filter(|context| context.sampled && nigh_trace::is_on())
    }

    /// The handler begins.
    pub(crate) fn handler(&self, id: InvocationId) -> HandlerTrace {
        let span = Span::under(self.context, "handler", SpanKind::Internal);
        let running = running::begin(id.as_bytes(), span.context());
        HandlerTrace { span, _running: running }
    }

    /// A moment of the invoker's clock, in nanoseconds since 1970.
    fn date(&self, moment: Monotonic) -> u64 {
        let (asked, asked_ns) = self.asked;
        asked_ns + moment.since(asked).as_nanos() as u64
    }

    /// The invocation was refused: nothing of it has run.
    pub(crate) fn refused(&self, refusal: &InvokeError) {
        self.span.lock().record(|span| span.fail("refused", &refusal.to_string()));
    }

    /// The invocation has ended.
    pub(crate) fn concluded(&self, activation: &Activation, init: Option<&Init>) {
        let asked_ns = self.asked.1;
        let wait = (asked_ns, asked_ns + activation.wait_us * 1000);
        past(self.recorded(), "wait for a sandbox", SpanKind::Internal, wait, |span| {
            span.set("nigh.placement", activation.placement.as_str());
        });
        if let Some(init) = init {
            let times = (self.date(init.began), self.date(init.began.after(init.took)));
            past(self.recorded(), "sandbox start", SpanKind::Internal, times, |span| {
                span.set("nigh.sandbox.isolation_us", activation.making.walls_us);
                span.set("nigh.sandbox.mount_us", activation.making.mount_us);
                span.set("nigh.sandbox.launch_us", activation.making.launch_us);
            });
        }
        let trigger = self.context.map_or("other", |context| context.trigger.name());
        self.span.lock().record(|span| describe(span, activation, trigger));
    }
}

impl HandlerTrace {
    /// The context of what the handler does.
    pub(crate) const fn context(&self) -> Option<SpanContext> {
        self.span.context()
    }
}

fn describe(span: &mut OpenSpan, activation: &Activation, trigger: &'static str) {
    span.name(activation.function.to_string());
    span.set("faas.name", activation.function.as_str());
    span.set("faas.version", LATEST);
    span.set("faas.trigger", trigger);
    span.set("faas.invocation_id", activation.id.to_string());
    span.set("faas.coldstart", activation.cold);
    span.set_some("faas.instance", activation.sandbox.map(|sandbox| sandbox.to_string()));
    span.set("faas.max_memory", activation.booked.bytes());
    span.set("nigh.namespace", activation.namespace.as_str());
    span.set("nigh.attempt", u64::from(activation.attempt));
    span.set("nigh.memory.granted", activation.granted.bytes());
    span.set_some("nigh.memory.peak", activation.peak_memory.map(|peak| peak.bytes()));
    span.set("nigh.data.hits", activation.hits);
    span.set("nigh.data.misses", activation.misses);
    span.set("nigh.outcome", outcome_name(&activation.outcome));
    match &activation.outcome {
        Outcome::Answered => {}
        Outcome::HandlerError { error_type, message } | Outcome::InitError { error_type, message } => {
            span.fail(error_type.as_str(), message);
        }
        Outcome::TimedOut | Outcome::OutOfMemory | Outcome::Crashed { .. } | Outcome::Stopped => {
            let name = outcome_name(&activation.outcome);
            span.fail(name, name);
        }
    }
}
