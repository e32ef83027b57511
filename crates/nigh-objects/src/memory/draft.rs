//! A write that waits for its turn: its body, and what is said of it.

use std::path::PathBuf;

use nigh_data::digest::VerifiedDigest;
use nigh_data::segment::Segment;
use nigh_data::{Attributes, Checksum, ETag, ObjectId, ObjectMeta, Tags, WriteConditions};
use nigh_engine::{RequestId, StagedPiece};
use nigh_terms::{Timestamp, Token, Version};
use serde::{Deserialize, Serialize};

use super::room::Reservation;
use crate::notification::ObjectChange;
use crate::spool::SpoolFile;

/// A body, verified, where the store can take it from.
pub(super) struct ReceivedBody {
    pub(super) content: Content,
    pub(super) size: u64,
    pub(super) verified: VerifiedDigest,
    /// Its pieces in the journal, if they went there as they came.
    pub(super) journal: Option<Vec<StagedPiece>>,
}

/// Bytes on their way into the store. What is not taken is freed when this is dropped.
pub(super) enum Content {
    /// In memory, with room to stay.
    Memory(Segment, Reservation),
    /// In a file of the spool.
    File(SpoolFile),
    /// In the files of an upload's parts. The store may take the first; only if it has made it the object.
    Parts(Vec<PathBuf>),
}

/// What a put says of its object's new bytes. A node whose object has its home elsewhere sends it there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PutHead {
    pub(super) conditions: WriteConditions,
    pub(super) attributes: Attributes,
    pub(super) tags: Tags,
    pub(super) size: u64,
    pub(super) etag: ETag,
    pub(super) checksum: Option<Checksum>,
    pub(super) parts: Vec<u64>,
    /// How the bytes came here.
    pub(super) change: ObjectChange,
    /// When they were written, by the clock of the node that received them.
    pub(super) modified: Timestamp,
}

impl PutHead {
    /// The object's metadata, without a version yet.
    pub(super) fn meta(&self) -> ObjectMeta {
        ObjectMeta {
            size: self.size,
            etag: self.etag.clone(),
            modified: self.modified,
            attributes: self.attributes.clone(),
            tags: self.tags.clone(),
            checksums: self.checksum.clone().into_iter().collect(),
            parts: self.parts.clone(),
            version: Version::OUTSIDE,
            token: Token::empty(),
        }
    }
}

/// A put that waits for its turn.
pub(super) struct Draft {
    pub(super) object: ObjectId,
    pub(super) head: PutHead,
    pub(super) content: Content,
    /// Its pieces in the journal, if they went there as they came.
    pub(super) journal: Option<Vec<StagedPiece>>,
    /// The client's name for the request, the same when the client repeats it.
    pub(super) request: Option<RequestId>,
}
