//! The interface of stores that show placeholders to outsiders (OFC, section 6.2).
//!
//! A *shadow* is an acknowledged version whose payload the store does not have. An outsider's read waits for its push, and
//! this node learns of an outsider's write first. Swift with Nigh's middleware is the only such store;
//! `integrations/swift/README.md` has the protocol.

use async_trait::async_trait;
use nigh_data::{ObjectError, ObjectId, ObjectMeta};
use nigh_terms::Version;

use super::Payload;
use super::swift::shadow::{ShadowError, SwiftTimestamp};

/// Nigh's versions of an object in the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShadowVersions {
    /// The version of the placeholder. None if there is no placeholder.
    pub shadow: Option<Version>,
    /// The version of the payload. None if Nigh did not write the payload.
    pub payload: Option<Version>,
}

/// Placeholders and their pushes. The object memory orders the writes of an object, as for a `Store`.
#[async_trait]
pub trait Shadows: Send + Sync {
    /// Returns true if an object can be a shadow. If false, the caller must write the object through.
    fn fits(&self, object: &ObjectId, meta: &ObjectMeta) -> bool;
    /// Writes the placeholder of `meta`, whatever object the store has. May be repeated.
    ///
    /// # Errors
    /// `Newer` if the store has a newer version that Nigh wrote, `NotSent` if the request was not sent. After any other
    /// error the outcome is unknown.
    async fn place(&self, object: &ObjectId, meta: &ObjectMeta) -> Result<(), ShadowError>;
    /// Replaces the placeholder of `meta`'s version, and nothing else, by its payload. May be repeated.
    ///
    /// # Errors
    /// `Outside` or `Newer` if the store has another object, `Raced` if one is being written.
    async fn push(&self, object: &ObjectId, payload: &Payload, meta: &ObjectMeta) -> Result<(), ShadowError>;
    /// Nigh's versions of the object in the store.
    ///
    /// # Errors
    /// If the store cannot be read.
    async fn standing(&self, object: &ObjectId) -> Result<ShadowVersions, ObjectError>;
    /// The position of this node's newest write since its start, in the store's order; later writes must have a higher
    /// position. None if this node has not written yet.
    fn newest(&self) -> Option<SwiftTimestamp>;
}
