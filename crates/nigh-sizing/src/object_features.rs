//! What is known of objects before they are read: the features of the data that an invocation names.
//!
//! Recorded in the background when an object is stored (`recorder`), out of its header, by a process a namespace that can
//! do nothing else (`parser_process`); kept in the registry (`stored_rows`) and, for the path of invocations, in a bounded
//! table (`known_objects`). Never in the tenant's own metadata. OFC does the same (EuroSys 2021, section 5.1.1).

pub mod frames;
pub mod known_objects;
pub mod look_queue;
mod object_bytes;
pub mod parser_process;
pub mod recorder;
mod stored_rows;
pub mod trigger_features;

use std::sync::Arc;

use nigh_learn::FeatureRow;
use nigh_terms::{BucketName, Namespace, ObjectKey};

use crate::object_sizes::ObjectSizes;

/// The feature that every known object has: its bytes.
pub const INPUT_SIZE: &str = "input_size";

/// Features of stored objects, at hand without asking a store. It is on the path of an invocation.
pub trait ObjectFeatures: Send + Sync {
    /// `input_size` and what the header of the object says, as `in_...`; none if nothing is known of its present version.
    fn of(&self, namespace: &Namespace, bucket: &BucketName, key: &ObjectKey) -> Option<Arc<FeatureRow>>;
}

/// What was looked at, and the size of what was not, or where nothing is.
pub struct LookedAtOrSized {
    /// What was looked at.
    pub looked_at: Option<recorder::FeatureRecorder>,
    /// Sizes of all that went by.
    pub sizes: Arc<ObjectSizes>,
}

impl ObjectFeatures for LookedAtOrSized {
    fn of(&self, namespace: &Namespace, bucket: &BucketName, key: &ObjectKey) -> Option<Arc<FeatureRow>> {
        let looked_at = self.looked_at.as_ref().and_then(|recorder| recorder.of(namespace, bucket, key));
        looked_at.or_else(|| ObjectFeatures::of(&*self.sizes, namespace, bucket, key))
    }
}
