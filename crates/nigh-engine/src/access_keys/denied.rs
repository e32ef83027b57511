//! Why a request is rejected.

use nigh_terms::{AccessKeyId, SandboxId};
use thiserror::Error;

use crate::namespaces::OverQuota;

/// Why a request is rejected.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AccessDenied {
    /// Nobody has this key, or its sandbox has ended.
    #[error("the access key {0} does not exist")]
    UnknownKey(AccessKeyId),
    /// The sandbox is between invocations.
    #[error("sandbox {0} runs no invocation; requests for data are rejected until the next one begins")]
    BetweenInvocations(SandboxId),
    /// An operator disabled the key.
    #[error("the access key {0} is disabled; ask the operator to enable it")]
    Disabled(AccessKeyId),
    /// The key has expired.
    #[error("the access key {key} expired at {expired}; ask the operator for its successor")]
    Expired {
        /// The key.
        key: AccessKeyId,
        /// When it expired.
        expired: String,
    },
    /// The key's scope does not have what the request is about to do.
    #[error("the access key {key} may not {action}; use a key whose scope has it")]
    OutOfScope {
        /// The key.
        key: AccessKeyId,
        /// What the request is about to do.
        action: String,
    },
    /// The namespace uses all that it may use.
    #[error(transparent)]
    OverQuota(#[from] OverQuota),
}
