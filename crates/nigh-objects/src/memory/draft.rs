//! A write that waits for the write lock: its body and its metadata.

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

/// A verified body, in a place from which the store can take it.
pub(super) struct ReceivedBody {
    pub(super) content: Content,
    pub(super) size: u64,
    pub(super) verified: VerifiedDigest,
    /// The body's pieces in the journal; none if it did not go there while it was received.
    pub(super) journal: Option<Vec<StagedPiece>>,
}

/// Bytes on their way into the store. Bytes that nobody takes are freed when this is dropped.
pub(super) enum Content {
    /// In memory, with room in the cache.
    Memory(Segment, Reservation),
    /// In a file of the spool.
    File(SpoolFile),
    /// In the files of an upload's parts. The store may take the first file, but only if it has made it the object.
    Parts(Vec<PathBuf>),
}

/// What a put says of its object's new bytes. If the home is elsewhere, the node sends this there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PutHead {
    pub(super) conditions: WriteConditions,
    pub(super) attributes: Attributes,
    pub(super) tags: Tags,
    pub(super) size: u64,
    pub(super) etag: ETag,
    pub(super) checksum: Option<Checksum>,
    pub(super) parts: Vec<u64>,
    /// What kind of change the put is.
    pub(super) change: ObjectChange,
    /// When the bytes were written, by the clock of the node that received them.
    pub(super) modified: Timestamp,
}

impl PutHead {
    /// The object's metadata, still without a version.
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

/// A put that waits for the write lock.
pub(super) struct Draft {
    pub(super) object: ObjectId,
    pub(super) head: PutHead,
    pub(super) content: Content,
    /// The body's pieces in the journal; none if it did not go there while it was received.
    pub(super) journal: Option<Vec<StagedPiece>>,
    /// The client's name for the request, the same when the client repeats the request.
    pub(super) request: Option<RequestId>,
}
