//! Features of the objects that an invocation names, known before the run reads the objects.
//!
//! When an object is stored, the recorder (`recorder`) lets a process (`parser_process`) read the features from its
//! header in the background. Each namespace has its own process, which can do nothing else. Features are kept in the
//! registry (`stored_rows`) and in a bounded table for invocations (`known_objects`), never in the namespace's own
//! metadata. OFC does the same (EuroSys 2021, section 5.1.1).

pub mod frames;
pub mod known_objects;
mod lanes;
pub mod look_queue;
mod object_bytes;
pub mod parser_process;
pub mod recorder;
mod stored_rows;
pub mod trigger_features;

use std::sync::Arc;

use nigh_learn::FeatureRow;
use nigh_terms::{BucketName, Namespace, ObjectKey};

/// The name of the feature that every known object has: its size in bytes.
pub const INPUT_SIZE: &str = "input_size";

/// Features of stored objects, found without asking a store. Called during an invocation.
pub trait ObjectFeatures: Send + Sync {
    /// `input_size`, and the features in the object's header as `in_...`; none if no features of the present version
    /// are known.
    fn of(&self, namespace: &Namespace, bucket: &BucketName, key: &ObjectKey) -> Option<Arc<FeatureRow>>;
}
