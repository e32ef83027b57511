//! What is known of objects before they are read: the features of the data that an invocation names.

use std::sync::Arc;

use nigh_learn::FeatureRow;
use nigh_terms::{BucketName, Namespace, ObjectKey};

/// Features of stored objects, at hand without asking a store. It is on the path of an invocation.
pub trait ObjectFeatures: Send + Sync {
    /// `input_size` and what the header of the object says, as `in_...`; none if nothing is known of its present version.
    fn of(&self, namespace: &Namespace, bucket: &BucketName, key: &ObjectKey) -> Option<Arc<FeatureRow>>;
}
