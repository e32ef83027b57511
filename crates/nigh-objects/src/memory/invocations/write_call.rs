//! A call that writes, and whose write it is: the end of an invocation waits for the outcome of its writes.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use nigh_data::{DataCall, DataOperation};
use nigh_protocol::{PutFailure, Stamp};
use nigh_terms::{BucketName, InvocationId, Namespace, ObjectKey, Principal, ShardId, Token};

use crate::memory::{ObjectMemoryState, object};

/// The writer of a write, until the write's outcome is final.
struct Writer {
    inner: Arc<ObjectMemoryState>,
    namespace: Namespace,
    shard: ShardId,
    /// The invocation whose end waits for this write; none for a client, or for an invocation that the gate does not
    /// know.
    invocation: Option<InvocationId>,
    wrote: Option<Stamp>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        let coherence = &self.inner.coherence;
        match (self.invocation, &self.wrote) {
            (None, None) => {}
            (None, Some(stamp)) => {
                let mut token = Token::empty();
                stamp.join_into(self.shard, &mut token);
                coherence.invocations.lock().hand_over(&self.namespace, &token);
            }
            (Some(invocation), wrote) => {
                // A refusal has shown the writer the newest version, or the outcome is unknown.
                let through = coherence.newest(self.shard);
                let mut invocations = coherence.invocations.lock();
                let mut told = Vec::new();
                let outcome = wrote.as_ref().ok_or(PutFailure::GivenUp { through });
                invocations.gate.has_put(invocation, self.shard, outcome, &mut told);
                invocations.hear(told);
            }
        }
    }
}

/// A call that writes. Its drop tells the gate whether the writer has written; answer the client after that.
pub(in crate::memory) struct WriteCall {
    // Dropped in this order: the event first.
    call: DataCall,
    writer: Writer,
}

impl Deref for WriteCall {
    type Target = DataCall;

    fn deref(&self) -> &DataCall {
        &self.call
    }
}

impl DerefMut for WriteCall {
    fn deref_mut(&mut self) -> &mut DataCall {
        &mut self.call
    }
}

impl WriteCall {
    /// What the writer has seen.
    pub(in crate::memory) fn seen(&self) -> Arc<Token> {
        let inner = &self.writer.inner;
        let seen = self.writer.invocation.map_or_else(Token::empty, |id| inner.coherence.seen_by(id));
        Arc::new(inner.compared().carried(seen))
    }

    /// Records that the write has taken place, as this version.
    pub(in crate::memory) fn wrote(&mut self, stamp: Stamp) {
        self.writer.wrote = Some(stamp);
    }
}

impl ObjectMemoryState {
    /// Begins a call as `begin` does, for a write.
    pub(in crate::memory) fn begin_write(
        self: &Arc<Self>,
        who: &Principal,
        bucket: &BucketName,
        key: &ObjectKey,
    ) -> WriteCall {
        let known = |invocation: &InvocationId| {
            let mut invocations = self.coherence.invocations.lock();
            let runs = invocations.gate.token(*invocation).is_some();
            invocations.gate.begins_put(*invocation);
            runs
        };
        let writer = Writer {
            inner: Arc::clone(self),
            namespace: who.namespace.clone(),
            shard: self.coherence.shards.of(&object(who, bucket, key)),
            invocation: who.invocation.filter(known),
            wrote: None,
        };
        WriteCall { call: self.begin(who, DataOperation::Write, bucket, Some(key)), writer }
    }
}
