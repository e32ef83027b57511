//! What the admin API says of keys and namespaces.

use std::collections::BTreeSet;

use nigh_engine::{KeyDescription, KeyScope, NamespaceQuota};
use nigh_terms::{AccessKeyId, AdminRole, BucketName, ByteSize, FunctionName, Namespace, SecretKey, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A key that is to be created.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewKey {
    /// Its name.
    pub name: Option<String>,
    /// What it is for.
    #[serde(default)]
    pub description: String,
    /// Its namespace; none: the first of the settings.
    pub namespace: Option<Namespace>,
    /// It changes nothing and runs nothing.
    #[serde(default)]
    pub read_only: bool,
    /// The only buckets that it reaches.
    #[serde(default)]
    pub buckets: BTreeSet<BucketName>,
    /// The only functions that it may invoke and read.
    #[serde(default)]
    pub functions: BTreeSet<FunctionName>,
    /// What it may do at the admin API.
    pub role: Option<AdminRole>,
    /// It is refused after so many seconds.
    pub expires_s: Option<u64>,
}

/// A key that was created, with its secret: no other answer has it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CreatedKey {
    /// The key.
    pub key: ListedKey,
    /// Its secret.
    #[schemars(with = "String")]
    pub secret: SecretKey,
    /// The key that it replaces, if it comes of a rotation.
    pub replaces: Option<AccessKeyId>,
}

/// Whether a key is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum KeyState {
    /// It is accepted.
    Active,
    /// An operator disabled it.
    Disabled,
    /// It has expired.
    Expired,
}

/// A key without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListedKey {
    /// Its id.
    pub id: AccessKeyId,
    /// Its name.
    pub name: Option<String>,
    /// What it is for.
    pub description: String,
    /// Its namespace.
    pub namespace: Namespace,
    /// Whether it is accepted.
    pub state: KeyState,
    /// Nigh made it for a namespace of the settings.
    pub from_settings: bool,
    /// What it may do.
    pub scope: KeyScope,
    /// What it may do at the admin API.
    pub role: Option<AdminRole>,
    /// When it was created; none if it is from the settings.
    pub created: Option<String>,
    /// When it expires.
    pub expires: Option<String>,
    /// When it was last used, to the minute.
    pub last_used: Option<String>,
    /// The key that took its place.
    pub replaced_by: Option<AccessKeyId>,
}

impl ListedKey {
    /// The key as it is at `now`.
    pub(super) fn of(id: AccessKeyId, key: KeyDescription, used: Option<Timestamp>, now: Timestamp) -> Self {
        let state = if key.disabled {
            KeyState::Disabled
        } else if key.expires.is_some_and(|expires| now >= expires) {
            KeyState::Expired
        } else {
            KeyState::Active
        };
        let date = |date: Timestamp| date.rfc3339();
        Self {
            id,
            name: key.name,
            description: key.description,
            namespace: key.namespace,
            state,
            from_settings: key.created.is_none(),
            scope: key.scope,
            role: key.role,
            created: key.created.map(date),
            expires: key.expires.map(date),
            last_used: used.map(date),
            replaced_by: key.replaced_by,
        }
    }
}

/// A namespace that is to be created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewNamespace {
    /// Its name.
    pub name: Namespace,
}

/// A namespace, its quota, and what it uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListedNamespace {
    /// Its name.
    pub name: Namespace,
    /// It is in the settings.
    pub from_settings: bool,
    /// When an operator created it.
    pub created: Option<String>,
    /// What it may use at most.
    pub quota: NamespaceQuota,
    /// How many functions it has.
    pub functions: usize,
    /// How many keys act for it.
    pub keys: usize,
    /// The memory that its invocations book, if they are dispatched by this node; known of a namespace that has a quota or
    /// that an operator created.
    pub booked: Option<ByteSize>,
    /// The bytes of its objects, as this node counted them last; known of a namespace with a quota of them.
    pub stored: Option<ByteSize>,
}
