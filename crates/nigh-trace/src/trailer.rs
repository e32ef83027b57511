//! A context at the end of the head of a message between processes. Pure.
//!
//! ```text
//! head | "NIGHTRC1" | trace, 16 bytes, big endian | span, 8 bytes, big endian | flags
//! flags: bit 0 sampled, bits 1 to 3 the trigger
//! ```
//!
//! Most heads are MessagePack values, which end by themselves: a process that knows no trailer never reads so far, and one
//! that does need not cut it off. Readers of JSON refuse what follows a value, so a head of JSON carries none. A head that
//! happens to end like a trailer gives a call a wrong trace, and nothing else.

use crate::context::{SpanContext, SpanId, TraceId, Trigger};

const MAGIC: [u8; 8] = *b"NIGHTRC1";
/// The bytes of a trailer.
pub const BYTES: usize = 33;

/// Whether a trailer may stand behind `head`, which a process of an older release may read.
#[must_use]
pub fn may_follow(head: &[u8]) -> bool {
    !matches!(head.first(), None | Some(b'{' | b'[' | b'"'))
}

/// `head` with `context` behind it.
#[must_use]
pub fn with_trailer(head: &[u8], context: &SpanContext) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(head.len() + BYTES);
    bytes.extend_from_slice(head);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&context.trace.bits().to_be_bytes());
    bytes.extend_from_slice(&context.span.bits().to_be_bytes());
    bytes.push(u8::from(context.sampled) | context.trigger.code() << 1);
    bytes
}

/// The context at the end of `head`, if there is one.
#[must_use]
pub fn find(head: &[u8]) -> Option<SpanContext> {
    let trailer: &[u8; BYTES] = head.last_chunk()?;
    let rest = trailer.strip_prefix(&MAGIC)?;
    let (trace, rest) = rest.split_first_chunk()?;
    let (span, rest) = rest.split_first_chunk()?;
    let flags = rest.first()?;
    Some(SpanContext {
        trace: TraceId::of_bits(u128::from_be_bytes(*trace))?,
        span: SpanId::of_bits(u64::from_be_bytes(*span))?,
        sampled: flags & 1 == 1,
        trigger: Trigger::of_code(flags >> 1 & 7),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_trailer_is_found_behind_any_head(
            head in proptest::collection::vec(any::<u8>(), 0..80),
            trace in 1u128..,
            span in 1u64..,
            sampled in any::<bool>(),
        ) {
            let (trace, span) = (TraceId::of_bits(trace).unwrap(), SpanId::of_bits(span).unwrap());
            let context = SpanContext { trace, span, sampled, trigger: Trigger::Datasource };
            let bytes = with_trailer(&head, &context);
            prop_assert_eq!(bytes.len(), head.len() + BYTES);
            prop_assert!(bytes.starts_with(&head));
            prop_assert_eq!(find(&bytes), Some(context));
            prop_assert_eq!(find(&bytes[..bytes.len() - 1]), None);
        }

        #[test]
        fn json_carries_none(text in "[a-z]*") {
            let object = format!("{{\"{text}\":1}}");
            prop_assert!(!may_follow(object.as_bytes()));
            let list = format!("[\"{text}\"]");
            prop_assert!(!may_follow(list.as_bytes()));
            let map = format!("\u{1}{text}");
            prop_assert!(may_follow(map.as_bytes()));
        }

        #[test]
        fn a_head_without_one_has_none(head in proptest::collection::vec(any::<u8>(), 0..80)) {
            prop_assert_eq!(find(&head), None);
        }
    }
}
