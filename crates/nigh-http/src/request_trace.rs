//! The trace of an HTTP request: which it belongs to, and its span.

use http::HeaderMap;
use nigh_terms::InvocationId;
use nigh_trace::{Incoming, Span, SpanKind, running};

/// The span of a request. It belongs to the trace that its headers name; without one, to that of the invocation whose key
/// signed it, which `caller` finds; without that too, a trace begins. While nothing is recorded, only the trace of the
/// headers is passed on.
pub fn request_span(
    name: &'static str,
    headers: &HeaderMap,
    caller: impl FnOnce() -> Option<InvocationId>,
) -> Span {
    let named = Incoming::of(|header| headers.get(header).and_then(|value| value.to_str().ok()));
    let incoming = match named {
        None if nigh_trace::is_on() => {
            caller().and_then(|id| running::context_of(id.as_bytes())).map(Incoming::from)
        }
        named => named,
    };
    Span::of_request(name, SpanKind::Server, incoming)
}
