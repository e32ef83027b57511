use std::sync::Arc;

use futures::FutureExt as _;
use parking_lot::{Mutex, MutexGuard};

use super::*;
use crate::finished_span::TEXT_BYTES_MAX;
use crate::recorder::{SpanSink, install, remove};
use crate::running;
use crate::sampling::Sampling;

/// The recorder is the process's: one test at a time has it.
static ALONE: Mutex<()> = Mutex::new(());

#[derive(Default)]
struct Kept(Mutex<Vec<FinishedSpan>>);

impl SpanSink for Kept {
    fn take(&self, span: FinishedSpan) {
        self.0.lock().push(span);
    }
}

/// A recorder of these tests, removed when it is dropped.
struct Recording {
    kept: Arc<Kept>,
    sink: Arc<dyn SpanSink>,
    _alone: MutexGuard<'static, ()>,
}

impl Recording {
    fn of(ratio: f64) -> Self {
        let alone = ALONE.lock();
        let kept = Arc::new(Kept::default());
        let sink: Arc<dyn SpanSink> = Arc::clone(&kept) as Arc<dyn SpanSink>;
        install(Arc::clone(&sink), Sampling::of_ratio(ratio));
        Self { kept, sink, _alone: alone }
    }

    fn spans(&self) -> Vec<FinishedSpan> {
        std::mem::take(&mut *self.kept.0.lock())
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        remove(&self.sink);
    }
}

fn caller(sampled: Option<bool>) -> Incoming {
    Incoming { trace: TraceId::random(), parent: Some(SpanId::random()), sampled }
}

#[test]
fn a_request_s_spans_make_a_tree_under_the_caller_s() {
    let recording = Recording::of(0.0);
    let incoming = caller(Some(true));
    let mut request = Span::of_request("request", SpanKind::Server, Some(incoming)).triggered(Trigger::Http);
    request.record(|span| span.set("bytes", 7u64));
    let under = request.scope(async {
        let mut child = Span::child("child", SpanKind::Client);
        child.record(|span| span.fail("kind", "the reason"));
        child.context().unwrap()
    });
    let child = under.now_or_never().unwrap();
    let own = request.context().unwrap();
    past(Some(child), "queue", SpanKind::Internal, (5, 3), |span| span.set_some("absent", None::<u64>));
    drop(request);
    let spans = recording.spans();
    let names: Vec<_> = spans.iter().map(|span| (&*span.name, span.parent)).collect();
    assert_eq!(names, [("child", Some(own.span)), ("queue", Some(child.span)), ("request", incoming.parent)]);
    assert!(spans.iter().all(|span| span.context.trace == incoming.trace && span.end_ns >= span.start_ns));
    assert_eq!(spans[0].failure.as_deref(), Some("the reason"));
    assert_eq!(spans[0].attributes, [("error.type", Value::from("kind"))]);
    assert_eq!((spans[1].start_ns, spans[1].end_ns), (5, 5), "no span ends before it begins");
    assert_eq!(spans[2].attributes, [("bytes", Value::Integer(7))]);
    assert_eq!(child.trigger, Trigger::Http);
}

#[test]
fn the_caller_decides_and_else_the_share() {
    for (ratio, decided, expected) in [(0.0, Some(true), 1), (1.0, Some(false), 0), (1.0, None, 1), (0.0, None, 0)] {
        let recording = Recording::of(ratio);
        let span = Span::of_request("request", SpanKind::Server, Some(caller(decided)));
        let context = span.context().unwrap();
        let child = Span::under(Some(context), "child", SpanKind::Internal);
        assert_eq!(context.sampled, expected == 1);
        assert_eq!(child.context().unwrap().trace, context.trace, "ids go on though nothing is recorded");
        drop((child, span));
        assert_eq!(recording.spans().len(), 2 * expected, "{ratio} {decided:?}");
    }
}

#[test]
fn while_nothing_is_recorded_a_caller_s_context_is_passed_on_and_none_is_made() {
    let _alone = ALONE.lock();
    let incoming = caller(Some(true));
    let span = Span::of_request("request", SpanKind::Server, Some(incoming));
    assert_eq!(span.context().map(Incoming::from), Some(incoming));
    assert_eq!(Span::root("root", SpanKind::Internal).context(), None);
    assert_eq!(Span::child("child", SpanKind::Internal).context(), None);
    let id = [7; 16];
    let _running = running::begin(&id, span.context());
    assert_eq!(running::context_of(&id), None);
}

#[test]
fn a_running_invocation_is_found_by_its_id_until_it_ends() {
    let _recording = Recording::of(1.0);
    let (id, span) = ([3; 16], Span::root("invocation", SpanKind::Server));
    let running = running::begin(&id, span.context());
    assert_eq!(running::context_of(&id), span.context());
    drop(running);
    assert_eq!(running::context_of(&id), None);
}

#[test]
fn a_later_sink_is_not_removed_by_the_earlier_one_s_end() {
    let recording = Recording::of(1.0);
    let later = Arc::new(Kept::default());
    let sink: Arc<dyn SpanSink> = Arc::clone(&later) as Arc<dyn SpanSink>;
    install(Arc::clone(&sink), Sampling::ALL);
    remove(&recording.sink);
    drop(Span::root("one", SpanKind::Internal));
    assert_eq!((later.0.lock().len(), recording.spans().len()), (1, 0));
    remove(&sink);
    drop(Span::root("two", SpanKind::Internal));
    assert_eq!(later.0.lock().len(), 1);
}

#[test]
fn texts_are_cut_at_a_character() {
    let Value::Text(text) = Value::from("ü".repeat(1000)) else { panic!("not a text") };
    assert_eq!(text.len(), TEXT_BYTES_MAX);
    let Value::Text(text) = Value::from(format!("x{}", "ü".repeat(1000)).as_str()) else { panic!("not a text") };
    assert_eq!(text.len(), TEXT_BYTES_MAX - 1);
    assert_eq!(Value::from(u64::MAX), Value::Integer(i64::MAX));
}
