//! The stored form of a client's key.
//!
//! Format 1 has the namespace and the secret; a document without a number is of format 1. Format 2 adds what
//! `KeyDescription` says. A key that says nothing more is written as format 1, so that an earlier Nigh reads it; an
//! earlier Nigh refuses to start with one of format 2, rather than let a disabled or limited key do everything.

use nigh_terms::SecretKey;
use serde::{Deserialize, Serialize};

use super::description::KeyDescription;
use crate::RegistryError;

/// The highest format version that this build writes.
const FORMAT: u32 = 2;

/// The format version of documents without a number.
const fn first() -> u32 {
    1
}

/// The part that every format of the document has.
#[derive(Deserialize)]
struct Format {
    #[serde(default = "first")]
    format: u32,
}

/// A key's document.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredKey {
    #[serde(default = "first")]
    format: u32,
    pub(super) secret: SecretKey,
    #[serde(flatten)]
    pub(super) key: KeyDescription,
}

impl StoredKey {
    pub(super) fn new(secret: SecretKey, key: KeyDescription) -> Self {
        let format = if key.is_plain() { first() } else { FORMAT };
        Self { format, secret, key }
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>, RegistryError> {
        serde_json::to_vec(self).map_err(|error| RegistryError::Storage(format!("access key: {error}")))
    }
}

/// Reads a key's document; none if it is damaged.
pub(super) fn decode(id: &str, document: &[u8]) -> Result<Option<StoredKey>, RegistryError> {
    if let Ok(Format { format }) = serde_json::from_slice(document)
        && format > FORMAT
    {
        return Err(RegistryError::Storage(format!(
            "access key {id} has format {format}, this build reads up to {FORMAT}; start the newer nigh that wrote it"
        )));
    }
    match serde_json::from_slice(document) {
        Ok(stored) => Ok(Some(stored)),
        Err(error) => {
            // The log must not have the document, because that may have the secret.
            tracing::warn!(
                id,
                line = error.line(),
                column = error.column(),
                "an access key cannot be read; it is refused"
            );
            Ok(None)
        }
    }
}
