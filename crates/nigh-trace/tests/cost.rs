//! What a span costs that is not recorded: no allocation, whether traces are off or this one is sampled out.

use std::alloc::{GlobalAlloc, Layout, System};
use std::future::ready;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};

use nigh_trace::{FinishedSpan, Incoming, Sampling, Span, SpanContext, SpanKind, SpanSink, install, is_on, running};

/// The system's allocator, which counts.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Nobody;

impl SpanSink for Nobody {
    fn take(&self, _: FinishedSpan) {}
}

/// The spans of a request and of its work, as the doors and the object memory make them.
fn request(incoming: Option<Incoming>) {
    let mut request = Span::of_request("request", SpanKind::Server, incoming);
    let work = request.scope(async {
        let mut child = Span::child("child", SpanKind::Internal);
        let _running = running::begin(&[1; 16], child.context().filter(|context| context.sampled));
        child.record(|span| span.set("key", "a text that would be allocated"));
        nigh_trace::follow(ready(())).await;
    });
    let mut task = Context::from_waker(Waker::noop());
    assert!(pin!(work).as_mut().poll(&mut task).is_ready());
    request.record(|span| span.name("a name".to_owned()));
}

fn allocations(incoming: Option<Incoming>) -> usize {
    // The first request makes what the thread keeps: the source of random numbers.
    request(incoming);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..1000 {
        request(incoming);
    }
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

#[test]
fn spans_that_are_not_recorded_allocate_nothing() {
    let caller = |flags: &str| {
        let parent = format!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{flags}");
        SpanContext::of_traceparent(&parent).map(Incoming::from)
    };
    let (records, decides_not) = (caller("01"), caller("00"));
    assert!(!is_on());
    assert_eq!((allocations(None), allocations(records)), (0, 0), "traces are off");
    install(Arc::new(Nobody), Sampling::of_ratio(0.0));
    assert_eq!((allocations(None), allocations(decides_not)), (0, 0), "the trace is sampled out");
    assert!(allocations(records) > 0, "a recorded trace allocates: the counter works");
}
