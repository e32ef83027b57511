//! The end of an invocation's output, in bounded memory, between the lines that Lambda prints.
//!
//! A capture belongs to one sandbox. Output between two invocations, from a handler that continues after its response,
//! is the start of the next log, as on Lambda.

use std::collections::VecDeque;
use std::time::Duration;

use nigh_terms::{ByteSize, InvocationId};
use nigh_trace::SpanContext;
use parking_lot::Mutex;

use crate::client_lines::is_of_python_client;
use crate::sandbox::LogSink;

/// The bytes in `X-Amz-Log-Result` (Lambda API reference, Invoke).
pub const TAIL_BYTES: usize = 4096;

/// The log of one invocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedLog {
    /// The last bytes of the log.
    pub bytes: Vec<u8>,
    /// Number of bytes before `bytes` that were dropped.
    pub omitted: u64,
}

impl CapturedLog {
    /// The log as text. Invalid UTF-8 is replaced.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// The figures of Lambda's REPORT line.
#[derive(Clone, Copy, Debug)]
pub struct ReportLine {
    /// From the handler's start to its response.
    pub duration: Duration,
    /// The function's booking.
    pub booked: ByteSize,
    /// The most memory used; none if it was not measured.
    pub peak: Option<ByteSize>,
    /// The time to make the sandbox; none if the start was not cold.
    pub init: Option<Duration>,
    /// The handler's span, if its trace is recorded.
    pub trace: Option<SpanContext>,
}

/// The end of a sandbox's output.
#[derive(Debug)]
pub struct LogCapture {
    ring: Mutex<Ring>,
    limit: usize,
    /// True for a runtime whose client prints lines about itself (`client_lines`).
    has_python_client: bool,
}

#[derive(Debug, Default)]
struct Ring {
    bytes: VecDeque<u8>,
    omitted: u64,
}

impl Ring {
    fn push(&mut self, line: &[u8], limit: usize) {
        let kept = &line[line.len().saturating_sub(limit)..];
        let surplus = (self.bytes.len() + kept.len()).saturating_sub(limit);
        self.omitted += (line.len() - kept.len() + surplus) as u64;
        self.bytes.drain(..surplus);
        self.bytes.extend(kept);
    }
}

impl LogCapture {
    /// A capture that keeps the last `limit` bytes, at least the tail that callers may ask for.
    #[must_use]
    pub fn new(limit: ByteSize) -> Self {
        let limit = usize::try_from(limit.bytes()).unwrap_or(usize::MAX).max(TAIL_BYTES);
        Self { ring: Mutex::default(), limit, has_python_client: false }
    }

    /// The same, for a function that runs under the vendor's Python client.
    #[must_use]
    pub fn of_python_client(limit: ByteSize) -> Self {
        Self { has_python_client: true, ..Self::new(limit) }
    }

    fn write(&self, line: &[u8]) {
        let mut ring = self.ring.lock();
        ring.push(line, self.limit);
        ring.push(b"\n", self.limit);
    }

    /// An invocation begins.
    pub fn start(&self, id: InvocationId) {
        self.write(format!("START RequestId: {id} Version: $LATEST").as_bytes());
    }

    /// Adds a line of the platform between START and END.
    pub fn say(&self, line: &str) {
        self.write(line.as_bytes());
    }

    /// Ends the log of the invocation and returns it; an empty log begins.
    pub fn finish(&self, id: InvocationId, report: &ReportLine) -> CapturedLog {
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        let mut line = format!(
            "END RequestId: {id}\nREPORT RequestId: {id}\tDuration: {:.2} ms\tBilled Duration: {} ms\tMemory Size: {} MB",
            ms(report.duration),
            report.duration.as_micros().div_ceil(1000),
            report.booked.mib_ceil(),
        );
        if let Some(peak) = report.peak {
            line.push_str(&format!("\tMax Memory Used: {} MB", peak.mib_ceil()));
        }
        if let Some(init) = report.init {
            line.push_str(&format!("\tInit Duration: {:.2} ms", ms(init)));
        }
        if let Some(trace) = report.trace {
            line.push_str(&format!("\nXRAY TraceId: {}\tSegmentId: {}\tSampled: true", trace.xray_root(), trace.span));
        }
        self.write(line.as_bytes());
        let ring = std::mem::take(&mut *self.ring.lock());
        CapturedLog { bytes: ring.bytes.into(), omitted: ring.omitted }
    }
}

impl LogSink for LogCapture {
    fn line(&self, line: &[u8]) {
        if !(self.has_python_client && is_of_python_client(line)) {
            self.write(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_lines::PYTHON_WARNING;

    fn report() -> ReportLine {
        ReportLine {
            duration: Duration::from_micros(1234),
            booked: ByteSize::mib(128),
            peak: None,
            init: None,
            trace: None,
        }
    }

    #[test]
    fn a_log_is_framed_as_lambda_frames_it() {
        let (capture, id) = (LogCapture::new(ByteSize::kib(64)), InvocationId::now());
        capture.start(id);
        capture.line(b"hello");
        let report = ReportLine { peak: Some(ByteSize(1)), init: Some(Duration::from_millis(40)), ..report() };
        assert_eq!(
            capture.finish(id, &report).text(),
            format!(
                "START RequestId: {id} Version: $LATEST\nhello\nEND RequestId: {id}\nREPORT RequestId: {id}\t\
                 Duration: 1.23 ms\tBilled Duration: 2 ms\tMemory Size: 128 MB\tMax Memory Used: 1 MB\t\
                 Init Duration: 40.00 ms\n"
            )
        );
    }

    #[test]
    fn a_recorded_trace_is_named_below_the_report_as_lambda_names_it() {
        let (capture, id) = (LogCapture::new(ByteSize::kib(64)), InvocationId::now());
        let trace = SpanContext::of_traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        let text = capture.finish(id, &ReportLine { trace, ..report() }).text();
        let line = "\nXRAY TraceId: 1-0af76519-16cd43dd8448eb211c80319c\tSegmentId: b7ad6b7169203331\tSampled: true\n";
        assert!(text.ends_with(line), "{text}");
    }

    #[test]
    fn the_end_is_kept_and_what_came_before_is_counted() {
        let (capture, id) = (LogCapture::new(ByteSize::kib(8)), InvocationId::now());
        capture.start(id);
        let printed: usize = (0..10_000).map(|n| format!("line {n}\n").len()).sum();
        for n in 0..10_000 {
            capture.line(format!("line {n}").as_bytes());
        }
        let log = capture.finish(id, &report());
        assert_eq!(log.bytes.len(), 8192);
        assert!(log.omitted > 0 && log.omitted as usize + log.bytes.len() > printed);
        assert!(log.text().contains("line 9999\nEND RequestId"));
    }

    #[test]
    fn a_line_longer_than_the_limit_keeps_its_end() {
        let (capture, id) = (LogCapture::new(ByteSize::kib(4)), InvocationId::now());
        let mut line = vec![b'x'; 1 << 20];
        line.extend_from_slice(b"end");
        capture.line(&line);
        let log = capture.finish(id, &report());
        assert!(log.text().contains("xxend\nEND"));
        assert_eq!(log.bytes.len(), 4096);
    }

    #[test]
    fn what_pythons_client_says_of_itself_is_in_no_log_of_its_functions() {
        let warning = format!("[WARNING]\t2026-11-26T10:00:00.000Z\t\t{PYTHON_WARNING}\r");
        let logged = |capture: LogCapture| {
            capture.line(warning.as_bytes());
            capture.line(b"[ERROR] KeyError: 'x'");
            capture.finish(InvocationId::now(), &report()).text()
        };
        let python = logged(LogCapture::of_python_client(ByteSize::kib(4)));
        assert!(python.starts_with("[ERROR] KeyError") && !python.contains("LAMBDA_WARNING"), "{python}");
        assert!(logged(LogCapture::new(ByteSize::kib(4))).starts_with("[WARNING]"), "another program may print it");
    }

    #[test]
    fn what_is_printed_after_the_answer_opens_the_next_log() {
        let (capture, first, second) = (LogCapture::new(ByteSize::kib(4)), InvocationId::now(), InvocationId::now());
        capture.start(first);
        assert!(!capture.finish(first, &report()).text().contains("late"));
        capture.line(b"late");
        capture.start(second);
        assert!(capture.finish(second, &report()).text().starts_with("late\nSTART"));
    }
}
