//! The context of the task that runs: set while its future is polled, whatever thread does that.

use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::context::SpanContext;
use crate::recorder::is_on;

thread_local! {
    static CURRENT: Cell<Option<SpanContext>> = const { Cell::new(None) };
}

/// The context of the work that runs now, if it belongs to a trace.
#[must_use]
pub fn current() -> Option<SpanContext> {
    CURRENT.get()
}

pin_project! {
    /// Work in a context.
    pub struct Scoped<F> {
        #[pin]
        work: F,
        context: Option<SpanContext>,
        // Gives the lines that the work logs the trace's id.
        log: tracing::Span,
    }
}

/// Runs `work` in `context`; without one, in the context that runs it.
pub fn scope<F: Future>(context: Option<SpanContext>, work: F) -> Scoped<F> {
    let is_named = context.is_some_and(|context| current().is_some_and(|outer| outer.trace == context.trace));
    let log = if is_named { tracing::Span::none() } else { log_span(context) };
    Scoped { work, context, log }
}

/// `work` in the context of its maker. For work that is spawned as a task of its own.
pub fn follow<F: Future>(work: F) -> Scoped<F> {
    let context = current();
    Scoped { work, context, log: log_span(context) }
}

/// Gives lines that are logged in it the ids of `context`, if that is recorded.
pub(crate) fn log_span(context: Option<SpanContext>) -> tracing::Span {
    match context {
        Some(context) if context.sampled && is_on() => {
            tracing::error_span!("trace", trace_id = %context.trace, span_id = %context.span)
        }
        _ => tracing::Span::none(),
    }
}

impl<F: Future> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let Some(context) = *this.context else { return this.work.poll(task) };
        let _outer = Outer(CURRENT.replace(Some(context)));
        let _logged = this.log.enter();
        this.work.poll(task)
    }
}

/// Sets the context back when it is dropped.
struct Outer(Option<SpanContext>);

impl Drop for Outer {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;
    use crate::context::{SpanId, TraceId, Trigger};

    fn context() -> SpanContext {
        SpanContext { trace: TraceId::random(), span: SpanId::random(), sampled: true, trigger: Trigger::Other }
    }

    fn done<T>(work: impl Future<Output = T>) -> T {
        work.now_or_never().unwrap()
    }

    #[test]
    fn work_sees_the_innermost_context_and_its_caller_sees_his_own_again() {
        let (outer, inner) = (context(), context());
        done(scope(Some(outer), async move {
            assert_eq!(current(), Some(outer));
            scope(Some(inner), async move { assert_eq!(current(), Some(inner)) }).await;
            scope(None, async move { assert_eq!(current(), Some(outer), "no context changes nothing") }).await;
            assert_eq!(current(), Some(outer));
        }));
        assert_eq!(current(), None);
    }

    #[test]
    #[expect(clippy::async_yields_async, reason = "the future is polled outside of the scope in which it was made")]
    fn a_task_of_its_own_follows_its_maker_on_any_thread() {
        let outer = context();
        let made = done(scope(Some(outer), async { follow(async { current() }) }));
        assert_eq!(std::thread::spawn(move || done(made)).join().unwrap(), Some(outer));
        assert_eq!(done(follow(async { current() })), None);
    }

    #[test]
    fn a_context_is_current_only_while_its_work_is_polled() {
        let mut waits = Box::pin(scope(Some(context()), std::future::pending::<()>()));
        assert!(waits.as_mut().now_or_never().is_none());
        assert_eq!(current(), None);
        let fails = || {
            done(scope(Some(context()), async {
                if current().is_some() {
                    panic!("on purpose");
                }
            }));
        };
        assert!(std::panic::catch_unwind(fails).is_err());
        assert_eq!(current(), None);
    }
}
