//! The modes of writes, bucket by bucket: the shell around `policy`.

use std::sync::Arc;

use nigh_data::digest::TagDigest;
use nigh_data::{ObjectError, ObjectId, Tags};
use nigh_terms::{BucketName, Namespace};

use super::policy::{Access, BucketPolicy, EntityTag, WriteMode};
use super::{Freshness, WriteBack};

/// Segments of so many bytes get a composite entity tag, where their bucket's policy names none.
const COMPOSITE_FROM: u64 = 1 << 20;

impl WriteBack {
    fn policy(&self, object: &ObjectId) -> Option<Arc<BucketPolicy>> {
        self.policies.as_ref()?.of(&object.namespace, &object.bucket)
    }

    fn default_mode(&self, namespace: &Namespace) -> WriteMode {
        self.settings.modes.get(namespace).copied().unwrap_or(self.settings.mode)
    }

    /// The mode of a write of `object` with `tags`.
    pub(crate) fn mode(&self, object: &ObjectId, tags: &Tags) -> WriteMode {
        let default = self.default_mode(&object.namespace);
        self.policy(object).map_or(default, |policy| policy.mode_of(object.key.as_str(), tags, default))
    }

    /// True if the mode of writes of `object` depends on its tags.
    pub(crate) fn asks_tags(&self, object: &ObjectId) -> bool {
        self.policy(object).is_some_and(|policy| policy.rules.iter().any(|rule| rule.tag.is_some()))
    }

    pub(crate) fn is_shared(&self, object: &ObjectId) -> bool {
        self.policy(object).is_some_and(|policy| policy.access == Access::Shared)
    }

    /// How old a copy of `object` may be that serves without a question to the store; none if there is no bound.
    pub(crate) fn freshness(&self, object: &ObjectId) -> Option<Freshness> {
        self.policy(object)?.freshness
    }

    /// What the entity tag of a write of `object` in one piece is made of. `segment`: the length of the client's segment,
    /// if its bytes come in one.
    pub(crate) fn tag_digest(&self, object: &ObjectId, segment: Option<u64>) -> TagDigest {
        let is_large = || {
            segment.is_some_and(|length| length >= COMPOSITE_FROM) && self.store.abilities(&object.namespace).lists_tags
        };
        match self.policy(object).and_then(|policy| policy.etag) {
            Some(EntityTag::Composite) => TagDigest::Sha256,
            Some(EntityTag::Md5) => TagDigest::Md5,
            None => {
                if is_large() {
                    TagDigest::Sha256
                } else {
                    TagDigest::Md5
                }
            }
        }
    }

    /// A bucket's policy.
    pub(crate) fn bucket_policy(&self, namespace: &Namespace, bucket: &BucketName) -> BucketPolicy {
        let policy = self.policies.as_ref().and_then(|policies| policies.of(namespace, bucket));
        policy.map(|policy| BucketPolicy::clone(&policy)).unwrap_or_default()
    }

    /// Replaces a bucket's policy; the default one removes it. Earlier writes keep their modes.
    ///
    /// # Errors
    /// `InvalidArgument` for a policy that contradicts itself or that the store cannot support.
    pub(crate) async fn set_bucket_policy(
        &self,
        namespace: &Namespace,
        bucket: &BucketName,
        policy: BucketPolicy,
    ) -> Result<(), ObjectError> {
        let policies = self.policies.as_ref();
        let policies = policies
            .ok_or_else(|| ObjectError::InvalidRequest("this node has no registry for bucket policies".to_owned()))?;
        let mut abilities = self.store.abilities(namespace);
        if policy.access == Access::Shared && abilities.conditions {
            abilities.conditions = self.store.keeps_conditions(namespace, bucket).await?;
        }
        policy
            .check(self.default_mode(namespace), abilities)
            .map_err(|error| ObjectError::InvalidArgument(error.to_string()))?;
        policies.set(namespace, bucket, (policy != BucketPolicy::default()).then_some(policy)).await
    }
}
