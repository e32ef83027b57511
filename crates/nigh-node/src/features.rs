//! Recorded features of stored objects, for the node and its admin API.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use nigh_data::ObjectId;
use nigh_engine::{Registry, RegistryError};
use nigh_learn::FeatureValue;
use nigh_sizing::object_features::parser_process::ParserProgram;
use nigh_sizing::object_features::recorder::FeatureRecorder;
use nigh_terms::{BucketName, Namespace, ObjectKey, Version};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use nigh_sizing::object_features::recorder::FeaturesStatus;

use crate::config::{MemorySettings, Switch};
use crate::status::Level;

/// How long a request waits for an object's header to be read.
const LOOK_WITHIN: Duration = Duration::from_secs(5);

/// The features of an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShownFeatures {
    /// The name of the bucket.
    pub bucket: BucketName,
    /// The key of the object.
    pub key: ObjectKey,
    /// The version with these features; none if nothing is recorded.
    pub version: Option<Version>,
    /// The features by name.
    pub features: BTreeMap<String, FeatureValue>,
}

/// The admin API's path for an object's features. With `look` the node reads the object's header if nothing is
/// recorded.
#[must_use]
pub fn path(namespace: &Namespace, bucket: &BucketName, key: &ObjectKey, look: bool) -> String {
    let key = percent_encoding::utf8_percent_encode(key.as_str(), percent_encoding::NON_ALPHANUMERIC);
    format!("/features/{namespace}?bucket={bucket}&key={key}&look={look}")
}

/// The features that `recorder` has of an object.
pub(crate) async fn shown(recorder: Option<&FeatureRecorder>, object: ObjectId, look: bool) -> ShownFeatures {
    let recorded = match recorder {
        Some(recorder) => {
            if look {
                recorder.await_looks(std::slice::from_ref(&object), LOOK_WITHIN).await;
            }
            recorder.recorded(&object)
        }
        None => None,
    };
    let (version, row) = recorded.unzip();
    let features = row.iter().flat_map(|row| row.iter());
    let features = features.map(|(name, value)| (name.to_string(), value.clone())).collect();
    ShownFeatures { bucket: object.bucket, key: object.key, version, features }
}

/// Opens the recorder, if headers are read. Returns it and one line for the status. If Nigh runs as root, its processes
/// run as `user`.
pub(crate) async fn open(
    settings: &MemorySettings,
    registry: Arc<dyn Registry>,
    user: u32,
) -> Result<(Option<FeatureRecorder>, Level), RegistryError> {
    let level = |on, detail| Level { name: "features".to_owned(), on, detail };
    if settings.features == Switch::Off {
        return Ok((None, level(false, "memory.features is off: only the sizes of objects are known".to_owned())));
    }
    let Some(path) = settings.features_program.clone().or_else(ParserProgram::installed) else {
        let why = "only the sizes of objects are known: nigh-features is missing; install it beside nigh, or name it in \
                   memory.features_program";
        return Ok((None, level(false, why.to_owned())));
    };
    let user = rustix::process::geteuid().is_root().then_some(user);
    let program = ParserProgram { path, user };
    if let Err(error) = program.check().await {
        return Ok((None, level(false, format!("only the sizes of objects are known: {error}"))));
    }
    let recorder = FeatureRecorder::open(registry, program, settings.features_memory).await?;
    let detail = format!(
        "headers of objects are read by {}, one process a namespace; features take up to {}",
        recorder.program().display(),
        settings.features_memory
    );
    Ok((Some(recorder), level(true, detail)))
}
