//! The unpushed state of an object, and what the store may have below it.

use std::sync::Arc;

use nigh_data::{ETag, ObjectMeta};
use nigh_terms::Version;

use crate::write_back::policy::WriteMode;

/// What a write makes of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectState {
    /// An object with this metadata.
    Put(Arc<ObjectMeta>),
    /// The write deletes the object.
    Gone,
    /// Unknown: the bytes are damaged in the journal, or were ephemeral and evicted. It is never pushed.
    Lost,
}

impl ObjectState {
    /// The object's length in bytes; 0 if there is no object.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Put(meta) => meta.size,
            Self::Gone | Self::Lost => 0,
        }
    }

    /// What the store has once this is pushed.
    #[must_use]
    pub fn leaves(&self) -> Base {
        match self {
            Self::Put(meta) => Base::Holds(meta.etag.clone()),
            Self::Gone | Self::Lost => Base::Absent,
        }
    }
}

/// What the store has below an unpushed write, as far as is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Base {
    /// The store was not asked.
    #[default]
    Unknown,
    /// The store has no object.
    Absent,
    /// The store has an object with this entity tag.
    Holds(ETag),
}

/// What the store may have below a write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PossibleBases {
    /// What the write should replace.
    pub base: Base,
    /// What pushes of earlier writes have left, or may leave.
    pub attempts: Vec<Base>,
}

/// The newest state of an object that the store does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnpushedWrite {
    /// The write's version.
    pub version: Version,
    /// The mode of the write.
    pub mode: WriteMode,
    /// What the write makes of the object.
    pub becomes: ObjectState,
}

impl UnpushedWrite {
    /// True if it will be pushed to the store.
    #[must_use]
    pub fn is_pushed_at_last(&self) -> bool {
        self.mode != WriteMode::Ephemeral && self.becomes != ObjectState::Lost
    }
}
