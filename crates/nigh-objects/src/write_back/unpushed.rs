//! Unpushed writes as an operator sees them, and the way to drop one that can never be pushed.

use nigh_data::ObjectId;
use nigh_terms::{BucketName, Namespace, Version};

use super::WriteBack;
use super::dirty::{ObjectState, TrimmableVersions, WriteBackQueue};
use super::policy::WriteMode;

/// An unpushed write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnpushedObject {
    /// The object.
    pub object: ObjectId,
    /// The write's version.
    pub version: Version,
    /// The mode of the write.
    pub mode: WriteMode,
    /// The object's size in bytes. None for a deletion, and for a write that is damaged in the journal.
    pub size: Option<u64>,
    /// True if the journal's record is damaged: the write is never pushed.
    pub is_damaged: bool,
    /// Number of failed pushes in a row.
    pub failures: u32,
    /// True if the store no longer has the bucket.
    pub is_homeless: bool,
}

impl WriteBack {
    /// Up to `limit` unpushed writes, by name.
    pub(crate) fn unpushed(
        &self,
        of: &Namespace,
        in_bucket: Option<&BucketName>,
        prefix: &str,
        limit: usize,
    ) -> Vec<UnpushedObject> {
        let missing = self.buckets.missing();
        let dirty = self.dirty.lock();
        let all = dirty.all().filter(|(namespace, bucket, key, ..)| {
            let is_of = *namespace == of && in_bucket.is_none_or(|wanted| wanted == *bucket);
            is_of && key.as_str().starts_with(prefix)
        });
        let waiting = all.filter(|(.., newest, _)| newest.mode != WriteMode::Ephemeral);
        let shown = waiting.map(|(namespace, bucket, key, newest, failures)| UnpushedObject {
            object: ObjectId { namespace: namespace.clone(), bucket: bucket.clone(), key: key.clone() },
            version: newest.version,
            mode: newest.mode,
            size: match &newest.becomes {
                ObjectState::Put(meta) => Some(meta.size),
                ObjectState::Gone | ObjectState::Lost => None,
            },
            is_damaged: newest.becomes == ObjectState::Lost,
            failures,
            is_homeless: missing.iter().any(|(of, missing)| of == namespace && missing == bucket),
        });
        shown.take(limit).collect()
    }

    /// Drops `version` of `object`, which nobody can read any more. False if it is not the newest, or is being pushed.
    pub(crate) async fn drop_unpushed(&self, object: &ObjectId, version: Version) -> bool {
        let mut fits = false;
        let give_up = |dirty: &mut WriteBackQueue| {
            fits = dirty.is_idle(object)
                && dirty
                    .get(object)
                    .is_some_and(|newest| newest.version == version && newest.mode != WriteMode::Ephemeral);
            if fits { dirty.drop_newest(object, version) } else { TrimmableVersions::new() }
        };
        self.let_go(object, give_up).await;
        if !fits {
            return false;
        }
        tracing::warn!(%object, %version, "an acknowledged write was given up, as an operator asked");
        self.pushes.send_modify(|pushes| *pushes += 1);
        true
    }
}
