//! What a namespace may have at most, and the refusal of more. Pure.

use nigh_terms::{ByteSize, Namespace};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What a namespace may have at most. None: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NamespaceQuota {
    /// Deployed functions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub functions: Option<u64>,
    /// Memory that its invocations book at once, those that wait for a sandbox included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<ByteSize>,
    /// Bytes of its objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<ByteSize>,
    /// Requests a second of its clients, at all doors of all nodes together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<u32>,
}

impl NamespaceQuota {
    /// True if it limits nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Why a request of a namespace is refused now.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OverQuota {
    /// Too many requests in this second.
    #[error("namespace {namespace} may send {limit} requests a second; send fewer, or ask the operator for more")]
    Requests {
        /// The namespace.
        namespace: Namespace,
        /// Its quota.
        limit: u32,
    },
    /// Its invocations book too much memory.
    #[error(
        "the invocations of namespace {namespace} book {booked}, this one {wanted}, and {limit} are \
         allowed; invoke again when some have ended"
    )]
    Memory {
        /// The namespace.
        namespace: Namespace,
        /// Its quota.
        limit: ByteSize,
        /// What its invocations book.
        booked: ByteSize,
        /// What this one would book.
        wanted: ByteSize,
    },
    /// Its objects would have too many bytes.
    #[error(
        "namespace {namespace} stores {used}, and {limit} are allowed; remove objects, or ask the operator for more"
    )]
    Stored {
        /// The namespace.
        namespace: Namespace,
        /// Its quota.
        limit: ByteSize,
        /// What its objects have.
        used: ByteSize,
    },
    /// It has as many functions as it may have.
    #[error(
        "namespace {namespace} has {limit} functions, which is its quota; remove one, or ask the operator for more"
    )]
    Functions {
        /// The namespace.
        namespace: Namespace,
        /// Its quota.
        limit: u64,
    },
}
