//! The high-water mark of a shard's stream, stored in another stream: it reveals a stream that comes back shorter, or
//! not at all.
//!
//! The mark is written when a shard is taken and then about once a second, so it does not cover the acknowledged writes
//! of the last second. An outdated read of the mark finds a lower value and raises no false alarm.

use std::time::Duration;

use nigh_terms::ShardId;
use tokio::sync::Mutex;

use super::documents::{Documents, NotWritten};
use super::{Cluster, ClusterError};

/// The last known position of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HighWaterMark {
    /// The highest place that was written to the mark.
    pub(super) place: u64,
    /// The place where the stream was once found to end before `place`; 0 if never. It stays until an operator deletes
    /// the entry, because each attempt to take the shard makes the stream longer.
    pub(super) went_back_to: u64,
}

impl HighWaterMark {
    fn encode(self) -> [u8; 16] {
        (u128::from(self.place) | u128::from(self.went_back_to) << 64).to_le_bytes()
    }

    fn decode(value: &[u8]) -> Option<Self> {
        let both = u128::from_le_bytes(value.try_into().ok()?);
        Some(Self { place: both as u64, went_back_to: (both >> 64) as u64 })
    }
}

/// Stores the high-water mark of one shard.
pub(super) struct Witness {
    documents: Documents,
    subject: String,
    /// The place of the mark's document, and the mark; none once another home writes it.
    told: Mutex<Option<(u64, HighWaterMark)>>,
}

impl Witness {
    /// Opens the high-water mark of `shard`. Returns it too, if there was one.
    pub(super) async fn open(cluster: Cluster, shard: ShardId) -> Result<(Self, Option<HighWaterMark>), ClusterError> {
        let documents = Documents::open(cluster, "reached", Duration::ZERO).await?;
        let subject = documents.subject(&[&shard.to_string()])?;
        let found = documents.get(&subject).await?;
        let revision = found.as_ref().map_or(0, |found| found.place);
        let reached = found.and_then(|found| found.value).and_then(|value| HighWaterMark::decode(&value));
        let told = Mutex::new(Some((revision, reached.unwrap_or_default())));
        Ok((Self { documents, subject, told }, reached))
    }

    /// Records that the stream has reached `place`.
    pub(super) async fn tell(&self, place: u64) -> Result<(), ClusterError> {
        self.write(|known| (known.place < place).then_some(HighWaterMark { place, ..known })).await
    }

    /// Records that the stream ends at `place`, before its mark.
    pub(super) async fn went_back(&self, place: u64) -> Result<(), ClusterError> {
        self.write(|known| Some(HighWaterMark { went_back_to: place, ..known })).await
    }

    async fn write(&self, change: impl FnOnce(HighWaterMark) -> Option<HighWaterMark>) -> Result<(), ClusterError> {
        let mut told = self.told.lock().await;
        let Some((revision, known)) = *told else { return Ok(()) };
        let Some(reached) = change(known) else { return Ok(()) };
        match self.documents.write(&self.subject, Some(&reached.encode()), revision).await {
            Ok(revision) => *told = Some((revision, reached)),
            // Another home writes the mark now.
            Err(NotWritten::Conflict) => *told = None,
            Err(NotWritten::Other(error)) => return Err(error),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_comes_back_and_nothing_else_is_taken_for_it() {
        let reached = HighWaterMark { place: 7, went_back_to: 5 };
        assert_eq!(reached.encode(), [7, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(HighWaterMark::decode(&reached.encode()), Some(reached));
        assert_eq!(HighWaterMark::decode(b"short"), None);
    }
}
