//! The trace of an HTTP request: which it belongs to, and its span.

use http::{HeaderMap, HeaderName, HeaderValue, Response};
use nigh_terms::InvocationId;
use nigh_trace::{Incoming, OpenSpan, Span, SpanContext, SpanKind, running};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const XRAY: HeaderName = HeaderName::from_static("x-amzn-trace-id");

/// The span of a request. It belongs to the trace that its headers name; without one, to that of the invocation whose key
/// signed it, which `caller` finds; without that too, a trace begins. While nothing is recorded, only the trace of the
/// headers is passed on.
pub fn request_span(name: &'static str, headers: &HeaderMap, caller: impl FnOnce() -> Option<InvocationId>) -> Span {
    let named = Incoming::of(|header| headers.get(header).and_then(|value| value.to_str().ok()));
    let incoming = match named {
        None if nigh_trace::is_on() => caller().and_then(|id| running::context_of(id.as_bytes())).map(Incoming::from),
        named => named,
    };
    Span::of_request(name, SpanKind::Server, incoming)
}

/// Adds what an answer says. The client's errors are no failures of the server (OpenTelemetry's conventions for HTTP).
pub fn of_answer<B>(span: &mut OpenSpan, answer: &Response<B>) {
    let status = answer.status();
    span.set("http.response.status_code", u64::from(status.as_u16()));
    if status.is_server_error() {
        span.fail(status.as_str(), status.canonical_reason().unwrap_or("the request was not served"));
    } else if status.is_client_error() {
        span.set("error.type", status.as_str());
    }
}

/// Puts `context` into headers, in place of those that came.
pub fn pass_on(headers: &mut HeaderMap, context: &SpanContext) {
    for (name, value) in [(TRACEPARENT, context.traceparent()), (XRAY, context.xray())] {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trace_that_headers_name_is_passed_on_in_both_forms() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
        let mut headers = HeaderMap::new();
        headers.insert(TRACEPARENT, HeaderValue::from_static(parent));
        let span = request_span("request", &headers, || panic!("the headers name a trace"));
        let context = span.context().unwrap();
        assert_eq!(context.trace.to_string(), "0af7651916cd43dd8448eb211c80319c");
        pass_on(&mut headers, &context);
        assert_eq!(headers[TRACEPARENT], context.traceparent());
        assert!(headers[XRAY].to_str().unwrap().starts_with("Root=1-0af76519-16cd43dd8448eb211c80319c;Parent="));
        assert!(request_span("request", &HeaderMap::new(), || None).context().is_none(), "nothing is recorded");
    }
}
