//! What a client's key is for and what it may do. Pure.

use std::collections::BTreeSet;
use std::fmt;

use nigh_terms::{AccessKeyId, AdminRole, BucketName, FunctionName, Namespace, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::AccessDenied;

/// What a request is about to do, as far as a key's scope distinguishes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// List the buckets.
    ListBuckets,
    /// Read a bucket's objects, or what is known of them.
    ReadBucket(&'a str),
    /// Change a bucket or its objects, without storing bytes.
    WriteBucket(&'a str),
    /// Store so many bytes in a bucket.
    Store {
        /// The bucket.
        bucket: &'a str,
        /// The bytes of the object or part.
        bytes: u64,
    },
    /// Begin or end a transaction: its reads and writes are requests of their own.
    Transaction,
    /// Run a function.
    Invoke(&'a str),
    /// Read a function's description.
    ReadFunction(&'a str),
    /// Read something else of the namespace.
    Read,
    /// Change something else of the namespace: functions, workflows, schedules, notifications.
    Change,
}

impl fmt::Display for Action<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ListBuckets => f.write_str("list buckets"),
            Self::ReadBucket(bucket) => write!(f, "read bucket {bucket}"),
            Self::WriteBucket(bucket) | Self::Store { bucket, .. } => write!(f, "write to bucket {bucket}"),
            Self::Transaction => f.write_str("use transactions"),
            Self::Invoke(function) => write!(f, "invoke {function}"),
            Self::ReadFunction(function) => write!(f, "read function {function}"),
            Self::Read => f.write_str("read this"),
            Self::Change => f.write_str("change this"),
        }
    }
}

/// What a key may do in its namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyScope {
    /// It changes nothing and runs nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// If this or `functions` is not empty: the only buckets that it reaches.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub buckets: BTreeSet<BucketName>,
    /// If this or `buckets` is not empty: the only functions that it may invoke and read.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub functions: BTreeSet<FunctionName>,
}

impl KeyScope {
    /// True if the key may do everything in its namespace.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a key of this scope may do `action`.
    #[must_use]
    pub fn allows(&self, action: Action<'_>) -> bool {
        let reads =
            matches!(action, Action::ListBuckets | Action::ReadBucket(_) | Action::ReadFunction(_) | Action::Read);
        if self.read_only && !reads {
            return false;
        }
        if self.buckets.is_empty() && self.functions.is_empty() {
            return true;
        }
        match action {
            Action::ReadBucket(bucket) | Action::WriteBucket(bucket) | Action::Store { bucket, .. } => {
                self.buckets.contains(bucket)
            }
            Action::Transaction => !self.buckets.is_empty(),
            Action::Invoke(function) | Action::ReadFunction(function) => self.functions.contains(function),
            Action::ListBuckets | Action::Read | Action::Change => false,
        }
    }
}

/// A client's key without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyDescription {
    /// The namespace for which it acts.
    pub namespace: Namespace,
    /// A name that its operator chose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// When an operator created it; none if Nigh made it for a namespace of the settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// It is refused from then on; none: it does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// It is refused until it is enabled again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disabled: bool,
    /// What it may do.
    #[serde(default, skip_serializing_if = "KeyScope::is_whole")]
    pub scope: KeyScope,
    /// What it may do at the admin API; none: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<AdminRole>,
    /// The key that took its place in a rotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_by: Option<AccessKeyId>,
}

impl KeyDescription {
    /// A key that Nigh makes for `namespace`: it may do everything there, does not expire, and has no role.
    #[must_use]
    pub fn of_settings(namespace: Namespace) -> Self {
        Self {
            namespace,
            name: None,
            description: String::new(),
            created: None,
            expires: None,
            disabled: false,
            scope: KeyScope::default(),
            role: None,
            replaced_by: None,
        }
    }

    /// True if an earlier Nigh knows all that this says.
    pub(super) fn is_plain(&self) -> bool {
        *self == Self::of_settings(self.namespace.clone())
    }

    /// Refuses a key that is disabled or has expired.
    pub(super) fn check_use(&self, id: &AccessKeyId, now: impl FnOnce() -> Timestamp) -> Result<(), AccessDenied> {
        if self.disabled {
            return Err(AccessDenied::Disabled(id.clone()));
        }
        match self.expires {
            Some(expires) if now() >= expires => {
                Err(AccessDenied::Expired { key: id.clone(), expired: expires.rfc3339() })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACTIONS: [Action<'static>; 12] = [
        Action::ListBuckets,
        Action::ReadBucket("pictures"),
        Action::ReadBucket("others"),
        Action::WriteBucket("pictures"),
        Action::WriteBucket("others"),
        Action::Store { bucket: "pictures", bytes: 1 },
        Action::Store { bucket: "others", bytes: 1 },
        Action::Transaction,
        Action::Invoke("blur"),
        Action::Invoke("other"),
        Action::ReadFunction("blur"),
        Action::Change,
    ];

    fn allowed(scope: &KeyScope) -> Vec<String> {
        ACTIONS.iter().filter(|action| scope.allows(**action)).map(ToString::to_string).collect()
    }

    #[test]
    fn a_key_does_what_its_scope_says_and_nothing_else() {
        assert_eq!(allowed(&KeyScope::default()).len(), ACTIONS.len());
        let read_only = KeyScope { read_only: true, ..KeyScope::default() };
        assert_eq!(
            allowed(&read_only),
            ["list buckets", "read bucket pictures", "read bucket others", "read function blur"]
        );
        assert!(read_only.allows(Action::Read));
        let buckets = BTreeSet::from([BucketName::new("pictures").unwrap()]);
        let one_bucket = KeyScope { buckets, ..KeyScope::default() };
        assert_eq!(
            allowed(&one_bucket),
            ["read bucket pictures", "write to bucket pictures", "write to bucket pictures", "use transactions",]
        );
        let read_only_bucket = KeyScope { read_only: true, ..one_bucket };
        assert_eq!(allowed(&read_only_bucket), ["read bucket pictures"]);
        let functions = BTreeSet::from([FunctionName::new("blur").unwrap()]);
        let one_function = KeyScope { functions, ..KeyScope::default() };
        assert_eq!(allowed(&one_function), ["invoke blur", "read function blur"]);
        assert!(!one_function.allows(Action::Read));
    }

    #[test]
    fn a_key_is_refused_from_the_moment_of_its_expiry_and_while_it_is_disabled() {
        let id = AccessKeyId::new("NIGHTEST");
        let mut key = KeyDescription::of_settings(Namespace::new("tenant").unwrap());
        assert_eq!(key.check_use(&id, || Timestamp(u64::MAX)), Ok(()));
        key.expires = Some(Timestamp(1000));
        assert_eq!(key.check_use(&id, || Timestamp(999)), Ok(()));
        assert!(matches!(key.check_use(&id, || Timestamp(1000)), Err(AccessDenied::Expired { .. })));
        key.disabled = true;
        assert!(matches!(key.check_use(&id, || Timestamp(0)), Err(AccessDenied::Disabled(_))));
    }
}
