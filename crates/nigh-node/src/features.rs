//! What is known of stored objects, as the node wires it and the admin API tells it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use nigh_data::ObjectId;
use nigh_engine::{Registry, RegistryError};
use nigh_learn::FeatureValue;
use nigh_sizing::object_features::parser_process::ParserProgram;
use nigh_sizing::object_features::recorder::FeatureRecorder;
use nigh_terms::{BucketName, Namespace, ObjectKey, Version};
use serde::{Deserialize, Serialize};

pub use nigh_sizing::object_features::recorder::FeaturesStatus;

use crate::config::{MemorySettings, Switch};
use crate::status::Level;

/// How long somebody who asks for a look waits.
const LOOK_WITHIN: Duration = Duration::from_secs(5);

/// What is known of an object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShownFeatures {
    /// The bucket.
    pub bucket: BucketName,
    /// The key.
    pub key: ObjectKey,
    /// The version of which this is known; none if nothing is.
    pub version: Option<Version>,
    /// What is known, by name.
    pub features: BTreeMap<String, FeatureValue>,
}

/// Where the admin API has what is known of an object; with `look` it is looked at if nothing is.
#[must_use]
pub fn path(namespace: &Namespace, bucket: &BucketName, key: &ObjectKey, look: bool) -> String {
    let key = percent_encoding::utf8_percent_encode(key.as_str(), percent_encoding::NON_ALPHANUMERIC);
    format!("/features/{namespace}?bucket={bucket}&key={key}&look={look}")
}

/// What is known of an object, by `recorder`.
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

/// The recorder, and what to say of it; none where headers are not looked at. As root its processes run as `user`.
pub(crate) async fn open(
    settings: &MemorySettings,
    registry: Arc<dyn Registry>,
    user: u32,
) -> Result<(Option<FeatureRecorder>, Level), RegistryError> {
    let level = |on, detail| Level { name: "features".to_owned(), on, detail };
    if settings.features == Switch::Off {
        return Ok((None, level(false, "memory.features is off: of objects only sizes are known".to_owned())));
    }
    let Some(path) = settings.features_program.clone().or_else(ParserProgram::beside_this_one) else {
        let why = "of objects only sizes are known: nigh-features is missing; install it beside nigh, or name it in \
                   memory.features_program";
        return Ok((None, level(false, why.to_owned())));
    };
    let user = rustix::process::geteuid().is_root().then_some(user);
    let program = ParserProgram { path, user };
    if let Err(error) = program.check().await {
        return Ok((None, level(false, format!("of objects only sizes are known: {error}"))));
    }
    let recorder = FeatureRecorder::open(registry, program, settings.features_memory).await?;
    let detail = format!(
        "headers of objects are read by {}, one process a namespace; {} for what they say",
        recorder.program().display(),
        settings.features_memory
    );
    Ok((Some(recorder), level(true, detail)))
}
