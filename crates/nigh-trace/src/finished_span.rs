//! A span that has ended, as a sink gets it. Pure.

use std::borrow::Cow;

use crate::context::{SpanContext, SpanId};

/// The longest text of an attribute or a failure, in bytes: as long as an object's key.
pub(crate) const TEXT_BYTES_MAX: usize = 1024;

/// What a span is to its parent. The numbers are OTLP's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Work within the process.
    Internal = 1,
    /// Work for a caller elsewhere.
    Server = 2,
    /// The wait for an answer from elsewhere.
    Client = 3,
    /// Work was queued.
    Producer = 4,
    /// Queued work is done.
    Consumer = 5,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A text, cut after 1,024 bytes.
    Text(String),
    /// A number.
    Integer(i64),
    /// Yes or no.
    Flag(bool),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(cut(text).to_owned())
    }
}

impl From<String> for Value {
    fn from(mut text: String) -> Self {
        text.truncate(cut(&text).len());
        Self::Text(text)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Integer(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

/// The text, cut at a character.
pub(crate) fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

/// A span that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedSpan {
    /// Its trace and its id.
    pub context: SpanContext,
    /// The span above it, if there is one.
    pub parent: Option<SpanId>,
    /// What was done, in few words.
    pub name: Cow<'static, str>,
    /// What it is to its parent.
    pub kind: SpanKind,
    /// When it began, in nanoseconds since 1970.
    pub start_ns: u64,
    /// When it ended, likewise.
    pub end_ns: u64,
    /// What is known of it.
    pub attributes: Vec<(&'static str, Value)>,
    /// Why it failed; none if it did not.
    pub failure: Option<String>,
}
