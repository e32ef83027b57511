//! Coherence protocols of other systems on the same nodes, homes and calls, so that a comparison with Nigh's differs in
//! the protocol alone. For experiments: docs/design/comparison.md.
//!
//! The machines of `nigh_protocol` do not change. The shell leaves out the parts of the contract that a protocol lacks:
//! what a reader does with its copy, whether homes remember readers, whether a write waits, and whether tokens are
//! carried. All nodes of a cluster must have the same protocol.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use nigh_data::segment::SegmentWriter;
use nigh_data::{GetRequest, ObjectError, ObjectId};
use nigh_protocol::CopyStore;
use nigh_terms::{Epoch, Sequence, Token, Version};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::super::ObjectMemoryState;
use super::super::fetch::FetchGuard;
use super::super::reads::{CheckedRead, ReadSource};

/// How often a waiting write checks the sharers again: a sharer that is declared dead wakes nobody.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A coherence protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CoherenceProtocol {
    /// Nigh's own: sharers are told of newer versions, writes do not wait for them, and the gate delays invocations.
    #[default]
    Nigh,
    /// Uncached shared memory: an object is only in its home's memory, and each read of another node fetches it.
    None,
    /// Like `Faa$T`, but a copy is shown after its home has confirmed that it is the newest, and nobody is told of
    /// writes.
    VersionCheck,
    /// As hardware-coherent shared memory: a write is acknowledged when every sharer has dropped its copy.
    Synchronous,
}

/// What a reader does with its node's copy of an object whose home is elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::memory) enum CopyUse {
    /// The reader gets the copy.
    Shown,
    /// The reader gets the copy if the home confirms that the copy is the newest.
    Checked,
    /// The reader ignores the copy and fetches the object from its home.
    Unused,
}

impl CoherenceProtocol {
    /// Every protocol.
    pub const ALL: [Self; 4] = [Self::Nigh, Self::None, Self::VersionCheck, Self::Synchronous];

    /// The name in settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nigh => "nigh",
            Self::None => "none",
            Self::VersionCheck => "version-check",
            Self::Synchronous => "synchronous",
        }
    }

    pub(in crate::memory) const fn copies_are(self) -> CopyUse {
        match self {
            Self::Nigh | Self::Synchronous => CopyUse::Shown,
            Self::VersionCheck => CopyUse::Checked,
            Self::None => CopyUse::Unused,
        }
    }

    /// True if homes remember who has fetched an object, and tell them of writes. If not, an answer of a home binds
    /// nobody later, and homes are assumed not to move: they do not ask the ledger whether their epoch is over.
    pub(in crate::memory) const fn tells_readers(self) -> bool {
        matches!(self, Self::Nigh | Self::Synchronous)
    }

    /// True if a write waits until no older copy is left, and readers at the home wait with it.
    pub(in crate::memory) const fn waits_for_sharers(self) -> bool {
        matches!(self, Self::Synchronous)
    }

    /// True if tokens are carried and invocations wait at the gate. Under the other protocols every read shows what was
    /// acknowledged before, on every node.
    pub(in crate::memory) const fn carries_tokens(self) -> bool {
        matches!(self, Self::Nigh)
    }

    /// The part of `token` that is carried: all or nothing.
    pub(in crate::memory) fn carried(self, token: Token) -> Token {
        if self.carries_tokens() { token } else { Token::empty() }
    }

    /// The token that a node with `token` covers: everything, if the protocol carries no tokens.
    pub(in crate::memory) fn caught_up(self, token: Token) -> Token {
        if self.carries_tokens() {
            return token;
        }
        let mut all = Token::empty();
        let last = Version { epoch: Epoch(u64::MAX), sequence: Sequence(u64::MAX) };
        token.iter().for_each(|(shard, _)| all.see(shard, last));
        all
    }
}

impl fmt::Display for CoherenceProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl ObjectMemoryState {
    pub(in crate::memory) const fn compared(&self) -> CoherenceProtocol {
        self.coherence.compared
    }

    /// What a reader here does with a copy of `object`. If the home is here, the copy is shown without a question: the
    /// home's memory is the object's.
    pub(in crate::memory) fn copies_are(&self, object: &ObjectId) -> CopyUse {
        match self.compared().copies_are() {
            CopyUse::Shown => CopyUse::Shown,
            _ if self.coherence.is_home(self.coherence.shards.of(object)) => CopyUse::Shown,
            other => other,
        }
    }

    /// Drops the copy of `object`, if there is one, unless its home says that there is nothing newer.
    pub(in crate::memory) async fn check_copy(self: &Arc<Self>, object: &ObjectId) -> Result<(), ObjectError> {
        let version = |inner: &Self| inner.shelf().peek(object).map(|kept| kept.meta.version());
        let Some(kept) = version(self) else { return Ok(()) };
        let newest = match self.look(object).await {
            Ok(meta) => Some(meta.version),
            Err(ObjectError::NoSuchKey(_)) => None,
            Err(error) => return Err(error),
        };
        // A copy of another version was fetched after the question.
        if newest != Some(kept) && version(self) == Some(kept) {
            let dropped = CopyStore::remove(&mut *self.shelf(), object);
            self.settle(dropped.into_iter().collect());
        }
        Ok(())
    }

    /// Reads from the home elsewhere into memory of this reader alone; nothing is cached.
    pub(in crate::memory) async fn read_from_home(
        self: &Arc<Self>,
        object: &ObjectId,
        request: &GetRequest,
    ) -> Result<CheckedRead, ObjectError> {
        let asked = self.coherence.ask(self.now(), object)?;
        let CheckedRead { meta, range, source, served } =
            self.read_past(FetchGuard::new(self, object, asked), request).await?;
        let length = range.end - range.start;
        let source = match source {
            ReadSource::Stream(mut bytes) if length <= self.limits.cached_object.bytes() => {
                let mut filling = SegmentWriter::new(&self.account, length)?;
                while let Some(piece) = bytes.next().await {
                    filling.append(&piece?)?;
                }
                ReadSource::Segment(filling.seal()?.slice(0..length))
            }
            other => other,
        };
        Ok(CheckedRead { meta, range, source, served })
    }

    /// If the protocol lets writes wait for sharers: returns when each sharer of `object` has dropped its copy or was
    /// declared dead.
    pub(in crate::memory) async fn until_dropped(&self, object: &ObjectId) {
        if !self.compared().waits_for_sharers() {
            return;
        }
        loop {
            let more = self.coherence.more_decided();
            if !self.coherence.is_pending(object) {
                return;
            }
            let _told_or_looked_at_again = timeout(LOOK_AGAIN, more).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_is_read_as_it_is_written() {
        for protocol in CoherenceProtocol::ALL {
            assert_eq!(serde_json::to_value(protocol).unwrap(), protocol.to_string());
            assert_eq!(serde_json::from_value::<CoherenceProtocol>(protocol.name().into()).unwrap(), protocol);
        }
    }

    #[test]
    fn only_who_carries_tokens_has_to_catch_up() {
        let mut token = Token::empty();
        token.see(nigh_terms::ShardId(3), Version { epoch: Epoch(1), sequence: Sequence(7) });
        assert_eq!(CoherenceProtocol::Nigh.caught_up(token.clone()), token);
        for other in [CoherenceProtocol::None, CoherenceProtocol::VersionCheck, CoherenceProtocol::Synchronous] {
            let all = other.caught_up(token.clone());
            assert!(token.iter().all(|(shard, version)| all.iter().any(|(of, last)| of == shard && last > version)));
            assert!(other.carried(token.clone()).is_empty());
        }
    }
}
