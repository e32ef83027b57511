//! Contexts in headers: `traceparent` (W3C Trace Context) and `X-Amzn-Trace-Id` (AWS X-Ray developer guide, "Tracing
//! header"). Pure.

use crate::context::{SpanContext, SpanId, TraceId, Trigger};

const TRACEPARENT: &str = "traceparent";
const XRAY: &str = "x-amzn-trace-id";
/// The length of a `traceparent` of version 00.
const TRACEPARENT_BYTES: usize = 55;

/// What a request's headers say of its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// The trace.
    pub trace: TraceId,
    /// The caller's span; none where a load balancer has made up the trace.
    pub parent: Option<SpanId>,
    /// Whether the caller records the trace; none if it leaves that to others.
    pub sampled: Option<bool>,
}

impl Incoming {
    /// The trace of a request. `header` finds the value of a header by its name in lower case. A valid `traceparent`
    /// comes before `x-amzn-trace-id`; what is malformed counts as absent.
    pub fn of<'h>(header: impl Fn(&'static str) -> Option<&'h str>) -> Option<Self> {
        let parent = header(TRACEPARENT).and_then(SpanContext::of_traceparent);
        parent.map(Self::from).or_else(|| header(XRAY).and_then(Self::of_xray))
    }

    /// Parses X-Ray's header: `Root=1-8hex-24hex;Parent=16hex;Sampled=1`, in any order, with other fields between.
    #[must_use]
    pub fn of_xray(text: &str) -> Option<Self> {
        let field = |name: &str| {
            text.split(';').find_map(|field| {
                let (key, value) = field.split_once('=')?;
                key.trim().eq_ignore_ascii_case(name).then(|| value.trim())
            })
        };
        let (time, unique) = field("Root")?.strip_prefix("1-")?.split_once('-')?;
        let trace = TraceId::of_bits(hex(time, 8)? << 96 | hex(unique, 24)?)?;
        let parent = field("Parent").and_then(|parent| SpanId::of_bits(hex(parent, 16)? as u64));
        let sampled = match field("Sampled") {
            Some("1") => Some(true),
            Some("0") => Some(false),
            _ => None,
        };
        Some(Self { trace, parent, sampled })
    }
}

impl From<SpanContext> for Incoming {
    fn from(context: SpanContext) -> Self {
        Self { trace: context.trace, parent: Some(context.span), sampled: Some(context.sampled) }
    }
}

impl SpanContext {
    /// Parses a `traceparent`. A later version is read as far as version 00 goes.
    #[must_use]
    pub fn of_traceparent(text: &str) -> Option<Self> {
        let text = text.trim();
        let whole = text.get(..TRACEPARENT_BYTES)?;
        let mut fields = whole.split('-');
        let version = hex(fields.next()?, 2)?;
        let trace = TraceId::of_bits(hex(fields.next()?, 32)?)?;
        let span = SpanId::of_bits(hex(fields.next()?, 16)? as u64)?;
        let flags = hex(fields.next()?, 2)?;
        let rest = &text[TRACEPARENT_BYTES..];
        let is_whole = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.is_empty() || rest.starts_with('-'),
        };
        (is_whole && fields.next().is_none()).then_some(Self {
            trace,
            span,
            sampled: flags & 1 == 1,
            trigger: Trigger::Other,
        })
    }

    /// The value of `traceparent` for work under this span.
    #[must_use]
    pub fn traceparent(&self) -> String {
        format!("00-{}-{}-{:02x}", self.trace, self.span, u8::from(self.sampled))
    }

    /// The value of `X-Amzn-Trace-Id` for work under this span.
    #[must_use]
    pub fn xray(&self) -> String {
        format!("Root={};Parent={};Sampled={}", self.xray_root(), self.span, u8::from(self.sampled))
    }

    /// The trace's id in X-Ray's form.
    #[must_use]
    pub fn xray_root(&self) -> String {
        let trace = self.trace.to_string();
        let (time, unique) = trace.split_at(8);
        format!("1-{time}-{unique}")
    }
}

/// The number of exactly `digits` hexadecimal digits in lower case.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_hex = text.len() == digits && text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    is_hex.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn parsed(text: &str) -> Option<SpanContext> {
        SpanContext::of_traceparent(text)
    }

    #[test]
    fn a_traceparent_is_read_and_written_as_the_standard_says() {
        let context = parsed(PARENT).unwrap();
        assert_eq!(context.traceparent(), PARENT);
        assert_eq!(context.xray(), "Root=1-0af76519-16cd43dd8448eb211c80319c;Parent=b7ad6b7169203331;Sampled=1");
        assert_eq!(parsed(&format!("cc{}-what-comes-later", &PARENT[2..])), Some(context));
        assert!(!parsed(&PARENT.replace("-01", "-02")).unwrap().sampled);
        for bad in [
            "",
            "00",
            &PARENT[..54],
            &format!("{PARENT}-more"),
            &format!("{PARENT}0"),
            &format!("cc{}.", &PARENT[2..]),
            &format!("ff{}", &PARENT[2..]),
            &PARENT.to_uppercase(),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0x",
            "00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01",
        ] {
            assert_eq!(parsed(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_xray_header_may_leave_out_the_parent_and_the_decision() {
        let full = Incoming::of_xray("Root=1-0af76519-16cd43dd8448eb211c80319c;Parent=b7ad6b7169203331;Sampled=1");
        assert_eq!(full, parsed(PARENT).map(Incoming::from));
        let bare = Incoming::of_xray(" Self=1-2-3; Root = 1-0af76519-16cd43dd8448eb211c80319c ").unwrap();
        assert_eq!((bare.parent, bare.sampled), (None, None));
        assert_eq!(bare.trace, full.unwrap().trace);
        let asks = Incoming::of_xray("Root=1-0af76519-16cd43dd8448eb211c80319c;Sampled=?;Lineage=a:1").unwrap();
        assert_eq!(asks.sampled, None);
        for bad in
            ["", "Root=", "Root=1-0af76519", "Root=2-0af76519-16cd43dd8448eb211c80319c", "Parent=b7ad6b7169203331"]
        {
            assert_eq!(Incoming::of_xray(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_valid_traceparent_comes_before_the_header_of_xray() {
        let xray = "Root=1-11111111-111111111111111111111111;Parent=2222222222222222;Sampled=0";
        let of = |parent: &'static str| {
            Incoming::of(move |name| match name {
                "traceparent" => Some(parent),
                "x-amzn-trace-id" => Some(xray),
                _ => None,
            })
        };
        assert_eq!(of(PARENT), parsed(PARENT).map(Incoming::from));
        assert_eq!(of("00-nonsense"), Incoming::of_xray(xray));
        assert_eq!(Incoming::of(|_| None), None);
    }

    proptest! {
        #[test]
        fn no_header_makes_the_parsers_panic(text in ".*", cut in 0usize..80) {
            let _ = (parsed(&text), Incoming::of_xray(&text));
            let text: String = PARENT.chars().take(cut).chain(text.chars()).collect();
            let _ = (parsed(&text), Incoming::of_xray(&text));
        }
    }
}
