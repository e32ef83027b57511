//! Sends ended spans to a collector by OTLP over HTTP as JSON (OpenTelemetry protocol 1.x).
//!
//! A request never waits for any of this: spans go into a bounded queue, and what finds it full is dropped and counted. One
//! task takes them from there in batches. A batch is sent again only if the collector asks for that (429, 502, 503, 504) or
//! was not reached; a collector that hangs costs that batch.

mod exporter;
mod otlp;
mod verdict;

use std::sync::Arc;
use std::time::Duration;

use nigh_trace::{FinishedSpan, SpanSink};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::exporter::{Exporter, Target};
use crate::config::{Collector, TraceSettings};

/// The most spans that wait to be sent: some 10 MB.
const QUEUE_MAX: usize = 8192;

/// How many spans had an end of this kind.
fn count(outcome: &'static str, spans: usize) {
    metrics::counter!("nigh_trace_spans_total", "outcome" => outcome).increment(spans as u64);
}

/// The queue of ended spans.
struct SpanQueue(mpsc::Sender<FinishedSpan>);

impl SpanSink for SpanQueue {
    fn take(&self, span: FinishedSpan) {
        if self.0.try_send(span).is_err() {
            count("dropped", 1);
        }
    }
}

/// The export of a node's traces. When this is dropped, nothing more is recorded.
pub(crate) struct Traces {
    node: String,
    sink: Arc<dyn SpanSink>,
    known: Mutex<Option<Collector>>,
    target: watch::Sender<Option<Arc<Target>>>,
    ending: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Traces {
    /// Begins to record and to send spans, if the settings name a collector. To be called within a runtime.
    ///
    /// # Errors
    /// If a setting is wrong, or TLS cannot be set up.
    pub(crate) fn open(settings: &TraceSettings, node: &str) -> Result<Self, String> {
        let (queue, spans) = mpsc::channel(QUEUE_MAX);
        let (target, targets) = watch::channel(None);
        let ending = CancellationToken::new();
        let task = tokio::spawn(Exporter::new(spans, targets, ending.clone()).run());
        let traces = Self {
            node: node.to_owned(),
            sink: Arc::new(SpanQueue(queue)),
            known: Mutex::new(None),
            target,
            ending,
            task: Mutex::new(Some(task)),
        };
        traces.reload(settings)?;
        Ok(traces)
    }

    /// Checks settings; nothing changes.
    ///
    /// # Errors
    /// If a setting is wrong, or TLS cannot be set up.
    pub(crate) fn check(&self, settings: &TraceSettings) -> Result<(), String> {
        let collector = settings.collector().map_err(|error| error.to_string())?;
        collector.map_or(Ok(()), |collector| Target::new(&collector, &self.node).map(drop))
    }

    /// Takes over changed settings; true if any had changed.
    ///
    /// # Errors
    /// If a setting is wrong, or TLS cannot be set up: then the earlier settings stay.
    pub(crate) fn reload(&self, settings: &TraceSettings) -> Result<bool, String> {
        let collector = settings.collector().map_err(|error| error.to_string())?;
        let mut known = self.known.lock();
        if *known == collector {
            return Ok(false);
        }
        match &collector {
            Some(collector) => {
                let target = Target::new(collector, &self.node)?;
                self.target.send_replace(Some(Arc::new(target)));
                nigh_trace::install(Arc::clone(&self.sink), collector.sampling);
                tracing::info!(collector = %collector.uri, "traces are recorded");
            }
            None => {
                nigh_trace::remove(&self.sink);
                self.target.send_replace(None);
            }
        }
        *known = collector;
        Ok(true)
    }

    /// Records nothing more, and sends what is queued, for `within` at most.
    pub(crate) async fn close(&self, within: Duration) {
        nigh_trace::remove(&self.sink);
        self.ending.cancel();
        let task = self.task.lock().take();
        if let Some(task) = task
            && tokio::time::timeout(within, task).await.is_err()
        {
            tracing::warn!("the collector of traces is slow: the last spans are lost");
        }
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        nigh_trace::remove(&self.sink);
        self.ending.cancel();
    }
}

#[cfg(test)]
mod tests;
