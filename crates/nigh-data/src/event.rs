//! Events of data calls, for their observers: triggers, feature extraction, phase accounting.

use std::sync::Arc;

use nigh_terms::{BucketName, Clock, Monotonic, ObjectKey, Principal, Token, Version};
use nigh_trace::{Span, SpanContext, SpanKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a data call is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DataOperation {
    /// Read an object's bytes.
    Read,
    /// Read metadata, or list.
    Metadata,
    /// Write or delete an object.
    Write,
}

impl DataOperation {
    /// The name of its span.
    const fn span_name(self) -> &'static str {
        match self {
            Self::Read => "object read",
            Self::Metadata => "object metadata",
            Self::Write => "object write",
        }
    }
}

/// How a data call was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServeOutcome {
    /// From a segment in memory.
    Hit,
    /// From the store; the object is in memory now.
    Miss,
    /// From the store, past the cache: too large, or a range of an object that is not cached.
    Past,
    /// A read of metadata or a listing.
    Metadata,
    /// New bytes.
    Write,
    /// A deletion.
    Delete,
    /// It failed.
    Failed,
}

impl ServeOutcome {
    /// The outcome in records, metrics and traces.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Miss => "miss",
            Self::Past => "past",
            Self::Metadata => "metadata",
            Self::Write => "write",
            Self::Delete => "delete",
            Self::Failed => "failed",
        }
    }
}

/// One data call, from its request to its last byte.
#[derive(Clone, Debug)]
pub struct ObjectEvent {
    /// On whose behalf.
    pub principal: Principal,
    /// The bucket.
    pub bucket: BucketName,
    /// The key; absent for calls on a bucket.
    pub key: Option<ObjectKey>,
    /// What it was to do.
    pub operation: DataOperation,
    /// How it was served.
    pub served: ServeOutcome,
    /// The bytes that went to or came from the caller.
    pub bytes: u64,
    /// The whole object's size, where the call showed it.
    pub object_bytes: Option<u64>,
    /// When the request was taken up.
    pub began: Monotonic,
    /// When its last byte was taken or given.
    pub ended: Monotonic,
    /// The version read or written.
    pub version: Option<Version>,
    /// What that version's writer had seen.
    pub token: Token,
}

/// Takes events, in order of their ends within one invocation, on the thread of the call: it must not block.
pub trait ObjectObserver: Send + Sync {
    /// Called when a data call begins: `served` and what follows it in the event are not known yet.
    fn begins(&self, _event: &ObjectEvent) {}
    /// Called once for each data call.
    fn observe(&self, event: &ObjectEvent);
}

/// A data call under way. Its event is emitted when this is dropped.
pub struct DataCall {
    observers: Arc<[Arc<dyn ObjectObserver>]>,
    clock: Arc<dyn Clock>,
    event: Option<ObjectEvent>,
    span: Span,
}

impl DataCall {
    /// A call that begins now. It counts as failed until `succeeded` says otherwise.
    #[must_use]
    pub fn begin(
        observers: Arc<[Arc<dyn ObjectObserver>]>,
        clock: Arc<dyn Clock>,
        principal: Principal,
        operation: DataOperation,
        bucket: BucketName,
        key: Option<ObjectKey>,
    ) -> Self {
        let began = clock.monotonic();
        let event = ObjectEvent {
            principal,
            bucket,
            key,
            operation,
            served: ServeOutcome::Failed,
            bytes: 0,
            object_bytes: None,
            began,
            ended: began,
            version: None,
            token: Token::empty(),
        };
        for observer in observers.iter() {
            observer.begins(&event);
        }
        let span = Span::child(operation.span_name(), SpanKind::Internal);
        Self { observers, clock, event: Some(event), span }
    }

    /// The context of the work that the call causes.
    #[must_use]
    pub const fn trace(&self) -> Option<SpanContext> {
        self.span.context()
    }

    /// On whose behalf.
    #[must_use]
    pub fn principal(&self) -> Option<&Principal> {
        self.event.as_ref().map(|event| &event.principal)
    }

    /// Says how it was served.
    pub fn succeeded(&mut self, served: ServeOutcome, version: Option<Version>, token: Token) {
        if let Some(event) = &mut self.event {
            event.served = served;
            event.version = version;
            event.token = token;
        }
    }

    /// Says how large the whole object is.
    pub const fn of_object(&mut self, bytes: u64) {
        if let Some(event) = &mut self.event {
            event.object_bytes = Some(bytes);
        }
    }

    /// Says that it failed after all: its body broke off.
    pub const fn failed(&mut self) {
        if let Some(event) = &mut self.event {
            event.served = ServeOutcome::Failed;
        }
    }

    /// Counts bytes given or taken.
    pub const fn served(&mut self, bytes: u64) {
        if let Some(event) = &mut self.event {
            event.bytes += bytes;
        }
    }
}

impl Drop for DataCall {
    fn drop(&mut self) {
        if let Some(mut event) = self.event.take() {
            event.ended = self.clock.monotonic();
            for observer in self.observers.iter() {
                observer.observe(&event);
            }
            self.span.record(|span| {
                span.set("aws.s3.bucket", event.bucket.as_str());
                span.set_some("aws.s3.key", event.key.as_ref().map(ObjectKey::as_str));
                span.set("nigh.served", event.served.name());
                span.set("nigh.bytes", event.bytes);
                span.set_some("nigh.object.bytes", event.object_bytes);
                span.set_some("nigh.object.version", event.version.map(|version| version.to_string()));
            });
        }
    }
}
