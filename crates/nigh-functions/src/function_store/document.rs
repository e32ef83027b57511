//! A function's document in the registry: JSON, with the number of its format.

use std::collections::BTreeMap;
use std::sync::Arc;

use nigh_engine::Revision;
use nigh_terms::{ByteSize, FunctionName, Namespace};
use serde::{Deserialize, Serialize};

use super::{DeployedFunction, FunctionAttachments, FunctionStoreError};
use crate::function::Function;

/// The format that this build writes.
/// Format 2 added `attached`, format 3 actions: builds that know only earlier formats would lose them.
const FORMAT: u32 = 3;

#[derive(Serialize, Deserialize)]
pub(super) struct Document {
    format: u32,
    pub(super) function: Function,
    pub(super) tags: BTreeMap<String, String>,
    pub(super) unpacked: ByteSize,
    #[serde(default)]
    pub(super) attached: FunctionAttachments,
}

/// What every format of the document has.
#[derive(Deserialize)]
struct Format {
    format: u32,
}

/// The function that `document`, found at `key`, describes.
pub(super) fn decode(key: &str, document: &[u8], revision: Revision) -> Result<DeployedFunction, FunctionStoreError> {
    let unreadable = |why: String| FunctionStoreError::Document(key.to_owned(), why);
    let read = |error: serde_json::Error| unreadable(error.to_string());
    let Format { format } = serde_json::from_slice(document).map_err(read)?;
    if format > FORMAT {
        return Err(unreadable(format!("its format is {format}, and this build reads up to {FORMAT}")));
    }
    let Document { function, tags, unpacked, attached, .. } = serde_json::from_slice(document).map_err(read)?;
    Ok(DeployedFunction { function: Arc::new(function), tags, attached, unpacked, revision })
}

impl Document {
    /// The document of `function` in the format that this build writes.
    pub(super) const fn new(
        function: Function,
        tags: BTreeMap<String, String>,
        unpacked: ByteSize,
        attached: FunctionAttachments,
    ) -> Self {
        Self { format: FORMAT, function, tags, unpacked, attached }
    }
}

/// Where a function's document is.
pub(super) fn key(namespace: &Namespace, name: &FunctionName) -> String {
    format!("{namespace}/{name}")
}
