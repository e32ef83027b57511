//! The features of objects as the registry keeps them: one document an object, in the place of the version before.
//!
//! The rows are derived data. A document in another format is ignored and removed, and an object lost in a crash is
//! looked at again at its next read. Changes are collected and written periodically in one transaction; only the last
//! change of an object counts.

use std::collections::HashMap;
use std::sync::Arc;

use nigh_data::ObjectId;
use nigh_engine::{Registry, RegistryError};
use nigh_learn::FeatureRow;
use nigh_terms::{BucketName, Namespace, ObjectKey, Version};
use serde::{Deserialize, Serialize};

use super::known_objects::{KnownObject, KnownObjects, OBJECTS_MAX};

/// The registry table of the rows.
const TABLE: &str = "object-features";
/// The format that this build writes.
const FORMAT: u32 = 1;
/// Changes that wait to be written at most: those of every object that may be known, and as many that are gone.
const CHANGES_MAX: usize = 2 * OBJECTS_MAX;

#[derive(Serialize, Deserialize)]
struct Document {
    format: u32,
    version: Version,
    row: FeatureRow,
}

/// Unwritten changes.
#[derive(Default)]
pub(super) struct Changes(HashMap<ObjectId, Option<KnownObject>>);

impl Changes {
    /// The number of changed objects.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Sets or removes an object's features. The size alone is not stored.
    pub(super) fn set(&mut self, object: &ObjectId, known: Option<KnownObject>) {
        if self.0.len() < CHANGES_MAX || self.0.contains_key(object) {
            self.0.insert(object.clone(), known.filter(KnownObject::tells_more_than_size));
        }
    }
}

fn place(object: &ObjectId) -> String {
    format!("{}/{}/{}", object.namespace, object.bucket, object.key)
}

fn known_of(place: &str, document: &[u8]) -> Option<KnownObject> {
    let Document { format, version, row } = serde_json::from_slice(document).ok()?;
    let (namespace, rest) = place.split_once('/')?;
    let (bucket, key) = rest.split_once('/')?;
    let object = ObjectId {
        namespace: Namespace::new(namespace).ok()?,
        bucket: BucketName::new(bucket).ok()?,
        key: ObjectKey::new(key).ok()?,
    };
    (format == FORMAT).then(|| KnownObject { object, version, row: Arc::new(row) })
}

/// Adds the registry's rows to `known` up to its limit, and removes the rest from the registry.
///
/// # Errors
/// If it cannot be read or written.
pub(super) async fn load(registry: &dyn Registry, known: &mut KnownObjects) -> Result<(), RegistryError> {
    let mut removed = Vec::new();
    for (place_of, stored) in registry.list(TABLE, "").await? {
        match known_of(&place_of, &stored.value) {
            Some(one) => removed.extend(known.keep(one).iter().map(|gone| (place(gone), None))),
            None => removed.push((place_of, None)),
        }
    }
    if removed.is_empty() { Ok(()) } else { registry.apply(TABLE, removed).await }
}

/// Writes the waiting changes.
///
/// # Errors
/// If they cannot be written. They are lost then, and the objects are looked at again at their next read after a
/// restart.
pub(super) async fn write(registry: &dyn Registry, changes: Changes) -> Result<(), RegistryError> {
    if changes.0.is_empty() {
        return Ok(());
    }
    let document = |known: KnownObject| {
        let document = Document { format: FORMAT, version: known.version, row: FeatureRow::clone(&known.row) };
        serde_json::to_vec(&document).map_err(|error| RegistryError::Storage(error.to_string()))
    };
    let changes = changes
        .0
        .into_iter()
        .map(|(object, known)| Ok::<_, RegistryError>((place(&object), known.map(document).transpose()?)));
    registry.apply(TABLE, changes.collect::<Result<_, RegistryError>>()?).await
}
