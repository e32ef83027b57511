//! What waits of an object, and what the store may hold below it.

use std::sync::Arc;

use nigh_data::{ETag, ObjectMeta};
use nigh_terms::Version;

use crate::write_back::policy::WriteMode;

/// What an object becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectState {
    /// An object of which this is known.
    Put(Arc<ObjectMeta>),
    /// Nothing.
    Gone,
    /// Nobody knows: its bytes are damaged in the journal, or it was ephemeral and its memory was needed. It is not
    /// pushed.
    Lost,
}

impl ObjectState {
    /// Its length; 0 where there is none.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Put(meta) => meta.size,
            Self::Gone | Self::Lost => 0,
        }
    }

    /// What the store holds once it has this.
    #[must_use]
    pub fn leaves(&self) -> Base {
        match self {
            Self::Put(meta) => Base::Holds(meta.etag.clone()),
            Self::Gone | Self::Lost => Base::Absent,
        }
    }
}

/// What the store holds below what was not pushed, as far as is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Base {
    /// Nobody has asked.
    #[default]
    Unknown,
    /// No object.
    Absent,
    /// An object with this entity tag.
    Holds(ETag),
}

/// What the store may hold below a write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PossibleBases {
    /// What the write is to replace.
    pub base: Base,
    /// What pushes of earlier writes have left, or may leave.
    pub attempts: Vec<Base>,
}

/// The newest state of an object that the store does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnpushedWrite {
    /// Its place in the order of writes.
    pub version: Version,
    /// How it was acknowledged.
    pub mode: WriteMode,
    /// What the object is.
    pub becomes: ObjectState,
}

impl UnpushedWrite {
    /// Whether it comes to the store at some time.
    #[must_use]
    pub fn is_pushed_at_last(&self) -> bool {
        self.mode != WriteMode::Ephemeral && self.becomes != ObjectState::Lost
    }
}
