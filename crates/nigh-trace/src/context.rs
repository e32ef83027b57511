//! Who a span is: its trace, its id, whether the trace is recorded, and what triggered the work.

use std::fmt::{self, Display, Formatter};
use std::num::{NonZeroU64, NonZeroU128};
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

/// The id of a trace: 128 bits, not all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceId(NonZeroU128);

/// The id of a span within its trace: 64 bits, not all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanId(NonZeroU64);

/// What caused an invocation (OpenTelemetry's `faas.trigger`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// A direct call of an API, or a state of a workflow.
    #[default]
    Other,
    /// A function's URL or a web action.
    Http,
    /// An event of the queue.
    PubSub,
    /// A schedule.
    Timer,
    /// A change in a bucket.
    Datasource,
}

/// The context that a span gives to the work under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanContext {
    /// The trace.
    pub trace: TraceId,
    /// The span, which is the parent of spans under it.
    pub span: SpanId,
    /// True if the trace is recorded.
    pub sampled: bool,
    /// What triggered the invocation that runs under it.
    pub trigger: Trigger,
}

impl TraceId {
    /// A fresh id. It begins with the seconds since 1970, as X-Ray requires; the other 96 bits are random.
    #[must_use]
    pub fn random() -> Self {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs() as u32);
        Self::of_parts(seconds, rand::random())
    }

    /// The id with these seconds and the low 96 bits of `random`.
    const fn of_parts(seconds: u32, random: u128) -> Self {
        match NonZeroU128::new((seconds as u128) << 96 | random & (u128::MAX >> 32)) {
            Some(bits) => Self(bits),
            None => Self(NonZeroU128::MIN),
        }
    }

    /// The id of these bits; none if they are zero.
    #[must_use]
    pub const fn of_bits(bits: u128) -> Option<Self> {
        match NonZeroU128::new(bits) {
            Some(bits) => Some(Self(bits)),
            None => None,
        }
    }

    /// The bits.
    #[must_use]
    pub const fn bits(self) -> u128 {
        self.0.get()
    }
}

impl SpanId {
    /// A fresh id.
    #[must_use]
    pub fn random() -> Self {
        Self(NonZeroU64::new(rand::random()).unwrap_or(NonZeroU64::MIN))
    }

    /// The id of these bits; none if they are zero.
    #[must_use]
    pub const fn of_bits(bits: u64) -> Option<Self> {
        match NonZeroU64::new(bits) {
            Some(bits) => Some(Self(bits)),
            None => None,
        }
    }

    /// The bits.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0.get()
    }
}

impl Display for TraceId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl Display for SpanId {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Trigger {
    const ALL: [Self; 5] = [Self::Other, Self::Http, Self::PubSub, Self::Timer, Self::Datasource];

    /// The value of `faas.trigger`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Other => "other",
            Self::Http => "http",
            Self::PubSub => "pubsub",
            Self::Timer => "timer",
            Self::Datasource => "datasource",
        }
    }

    pub(crate) const fn code(self) -> u8 {
        self as u8
    }

    /// The trigger of this code; `Other` for one that a later release may send.
    pub(crate) fn of_code(code: u8) -> Self {
        Self::ALL.get(usize::from(code)).copied().unwrap_or_default()
    }
}

impl SpanContext {
    /// The same, for work that `trigger` caused.
    #[must_use]
    pub const fn triggered(self, trigger: Trigger) -> Self {
        Self { trigger, ..self }
    }

    /// The context of a new span under this one.
    #[must_use]
    pub fn below(self) -> Self {
        Self { span: SpanId::random(), ..self }
    }
}

/// The text that is stored with queued work: the `traceparent`, a semicolon, and the trigger.
impl Display for SpanContext {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{};{}", self.traceparent(), self.trigger.name())
    }
}

/// The text is no context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoContext;

impl FromStr for SpanContext {
    type Err = NoContext;

    fn from_str(text: &str) -> Result<Self, NoContext> {
        let (parent, trigger) = text.split_once(';').unwrap_or((text, ""));
        let context = Self::of_traceparent(parent).ok_or(NoContext)?;
        let trigger = Trigger::ALL.into_iter().find(|known| known.name() == trigger).unwrap_or_default();
        Ok(context.triggered(trigger))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_fixed_numbers_of_hexadecimal_digits() {
        assert_eq!(TraceId::of_bits(0xff).unwrap().to_string(), format!("{:0>32}", "ff"));
        assert_eq!(SpanId::of_bits(0xabc).unwrap().to_string(), "0000000000000abc");
        assert_eq!((TraceId::of_bits(0), SpanId::of_bits(0)), (None, None));
        assert_eq!(TraceId::of_parts(0x6500_0000, u128::MAX).to_string(), format!("65000000{}", "f".repeat(24)));
        assert_ne!(TraceId::random(), TraceId::random());
    }

    #[test]
    fn a_stored_context_is_read_as_it_was_written_and_a_trigger_of_a_later_release_is_other() {
        for trigger in Trigger::ALL {
            let context = SpanContext { trace: TraceId::random(), span: SpanId::random(), sampled: true, trigger };
            assert_eq!(context.to_string().parse(), Ok(context));
            assert_eq!(Trigger::of_code(trigger.code()), trigger);
        }
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
        let context: SpanContext = text.parse().unwrap();
        assert_eq!((context.sampled, context.trigger), (false, Trigger::Other));
        assert_eq!(format!("{text};carrier-pigeon").parse(), Ok(context));
        assert_eq!(Trigger::of_code(7), Trigger::Other);
        assert_eq!("".parse::<SpanContext>(), Err(NoContext));
    }
}
