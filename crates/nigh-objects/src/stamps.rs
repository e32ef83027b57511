//! An object's metadata and the stamp that its home gives it.

use std::sync::Arc;

use nigh_data::ObjectMeta;
use nigh_protocol::Stamp;

/// Reads a stamp from metadata and writes it there.
pub(crate) trait Stamped {
    /// Returns the metadata with its stamp replaced by `stamp`, which the home gave.
    fn stamped(&self, stamp: &Stamp) -> Self;
    /// The stamp in the metadata.
    fn stamp(&self) -> Stamp;
}

impl Stamped for ObjectMeta {
    fn stamped(&self, stamp: &Stamp) -> Self {
        let token = stamp.others.as_deref().cloned().unwrap_or_default();
        Self { version: stamp.version, token, ..self.clone() }
    }

    fn stamp(&self) -> Stamp {
        let others = (!self.token.is_empty()).then(|| Arc::new(self.token.clone()));
        Stamp { version: self.version, others }
    }
}
