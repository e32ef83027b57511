//! What a store can do that shows outsiders what is coming (OFC, section 6.2).
//!
//! A *shadow* is a version that was acknowledged and whose payload the store does not have. Who reads the store waits for
//! its push; who writes there is told to this node first. `integrations/swift/README.md` is the protocol; Swift with
//! Nigh's middleware is the one store that speaks it.

use async_trait::async_trait;
use nigh_data::{ObjectError, ObjectId, ObjectMeta};
use nigh_terms::Version;

use super::Payload;
use super::swift::shadow::{ShadowError, SwiftTimestamp};

/// Nigh's versions of an object in the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShadowVersions {
    /// Of a shadow, if one stands.
    pub shadow: Option<Version>,
    /// Of the payload, if it was pushed or put as one.
    pub payload: Option<Version>,
}

/// Placeholders and their pushes. The memory orders the writes of an object, as for a `Store`.
#[async_trait]
pub trait Shadows: Send + Sync {
    /// Whether an object can be a shadow; else it is written through.
    fn fits(&self, object: &ObjectId, meta: &ObjectMeta) -> bool;
    /// Shows that `meta` is coming, over whatever is there. May be repeated.
    ///
    /// # Errors
    /// `Newer` if a newer version of Nigh's is there; `NotSent` if nothing has happened; others if that is not known.
    async fn place(&self, object: &ObjectId, meta: &ObjectMeta) -> Result<(), ShadowError>;
    /// Replaces the placeholder of `meta`'s version by its payload, and nothing else. May be repeated.
    ///
    /// # Errors
    /// `Outside` or `Newer` if something else is there, `Raced` if it comes there now.
    async fn push(&self, object: &ObjectId, payload: &Payload, meta: &ObjectMeta) -> Result<(), ShadowError>;
    /// What of Nigh's stands there now.
    ///
    /// # Errors
    /// The store's.
    async fn standing(&self, object: &ObjectId) -> Result<ShadowVersions, ObjectError>;
    /// The place in the store's own order of the newest that this node has written there since it started; whoever
    /// writes later must be above.
    fn newest(&self) -> Option<SwiftTimestamp>;
}
