//! Whether spans are recorded in this process, how many, and where ended ones go. One sink per process, like the recorder
//! of the metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::finished_span::FinishedSpan;
use crate::sampling::Sampling;

static IS_ON: AtomicBool = AtomicBool::new(false);
static THRESHOLD: AtomicU64 = AtomicU64::new(0);
static SINK: RwLock<Option<Arc<dyn SpanSink>>> = RwLock::new(None);

/// Takes ended spans, on the thread of the request: it must not block.
pub trait SpanSink: Send + Sync {
    /// Takes a span, or drops it.
    fn take(&self, span: FinishedSpan);
}

/// Records spans from now on, in place of an earlier sink.
pub fn install(sink: Arc<dyn SpanSink>, sampling: Sampling) {
    THRESHOLD.store(sampling.threshold(), Ordering::Relaxed);
    *SINK.write() = Some(sink);
    IS_ON.store(true, Ordering::Relaxed);
}

/// Records nothing more, unless another sink has replaced `sink`.
pub fn remove(sink: &Arc<dyn SpanSink>) {
    let mut installed = SINK.write();
    if installed.as_ref().is_some_and(|installed| Arc::ptr_eq(installed, sink)) {
        IS_ON.store(false, Ordering::Relaxed);
        *installed = None;
    }
}

/// True if spans of sampled traces are recorded.
#[must_use]
pub fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

pub(crate) fn sampling() -> Sampling {
    Sampling::of_threshold(THRESHOLD.load(Ordering::Relaxed))
}

pub(crate) fn deliver(span: FinishedSpan) {
    let sink = SINK.read().clone();
    if let Some(sink) = sink {
        sink.take(span);
    }
}
