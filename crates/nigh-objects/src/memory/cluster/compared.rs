//! Coherence protocols of other systems on the same nodes, homes and calls, so that a comparison with Nigh's differs in
//! the protocol alone. For experiments: docs/design/comparison.md.
//!
//! The machines of `nigh_protocol` stay as they are. What a protocol leaves out of the contract is left out here, in
//! the shell: what a reader does with its copy, whether homes remember readers, whether a write waits, and whether
//! anybody carries tokens. All nodes of a cluster must have the same.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use nigh_data::segment::SegmentWriter;
use nigh_data::{GetRequest, ObjectError, ObjectId};
use nigh_protocol::CopyStore;
use nigh_terms::{Epoch, Sequence, Token, Version};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::super::ObjectMemoryState;
use super::super::fetch::FetchGuard;
use super::super::reads::{CheckedRead, ReadSource};

/// How often a write that waits for sharers looks again unasked: a sharer that is declared dead tells nobody.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A coherence protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CoherenceProtocol {
    /// Nigh's own: copies are told of newer versions, writes wait for nobody, and invocations begin where they may.
    #[default]
    Nigh,
    /// Uncached shared memory: an object is in the memory of its home, from where each read of another node fetches it.
    None,
    /// As `Faa$T`: a copy is shown after its home has said that there is nothing newer; nobody is told of writes.
    VersionCheck,
    /// As hardware-coherent shared memory: a write is acknowledged when every sharer has dropped its copy.
    Synchronous,
}

/// What a reader does with a copy that its node has of an object whose home is elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::memory) enum CopyUse {
    /// It is shown.
    Shown,
    /// It is shown if the home says that it is the newest.
    Checked,
    /// There is none.
    Unused,
}

impl CoherenceProtocol {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Nigh, Self::None, Self::VersionCheck, Self::Synchronous];

    /// As settings have it.
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

    /// Whether homes remember who has fetched an object, to tell them of writes. Where they do not, an answer of a home
    /// binds nobody later, and homes are taken not to move: they do not ask the ledger whether they are still it.
    pub(in crate::memory) const fn tells_readers(self) -> bool {
        matches!(self, Self::Nigh | Self::Synchronous)
    }

    /// Whether a write waits until no copy older than it is left, and readers at the home wait with it.
    pub(in crate::memory) const fn waits_for_sharers(self) -> bool {
        matches!(self, Self::Synchronous)
    }

    /// Whether what was seen is carried along, and invocations wait at the gate. Under the others whatever is
    /// acknowledged is what every later read shows, wherever it is.
    pub(in crate::memory) const fn carries_tokens(self) -> bool {
        matches!(self, Self::Nigh)
    }

    /// What is carried of `token`.
    pub(in crate::memory) fn carried(self, token: Token) -> Token {
        if self.carries_tokens() { token } else { Token::empty() }
    }

    /// How far a node has come that has come as far as `token` says: beyond everything, where nobody has to catch up.
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

    /// What a reader here does with a copy of `object`. At its home nothing is asked: the home's memory is the
    /// object's.
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
        // What has come meanwhile was fetched after the question.
        if newest != Some(kept) && version(self) == Some(kept) {
            let dropped = CopyStore::remove(&mut *self.shelf(), object);
            self.settle(dropped.into_iter().collect());
        }
        Ok(())
    }

    /// Reads from the home elsewhere into memory that is the reader's alone: nothing of it is kept.
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

    /// Where writes wait for sharers: returns when every sharer of `object` has dropped its copy or was declared dead.
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
