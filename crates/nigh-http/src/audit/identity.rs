//! On whose behalf a request acted, in CloudTrail's words. Pure.

use nigh_terms::{ACCOUNT, AccessKeyId, Principal};
use serde_json::{Map, Value, json};

/// On whose behalf a request acted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The owner of an access key, by whose secret the request was signed.
    Key {
        /// The key.
        access_key: AccessKeyId,
        /// Whom the key belongs to; none if it is gone by now.
        principal: Option<Principal>,
    },
    /// Somebody who named this access key and did not prove it.
    Claimed(String),
    /// A user of this machine, by the uid of a process at a Unix socket.
    LocalUser(u32),
    /// Somebody who signed in by a link that this caller made.
    Link(Box<Caller>),
    /// Somebody without a key.
    Anonymous,
}

impl Caller {
    /// Somebody who names `key`, if one is named.
    #[must_use]
    pub fn claimed(key: Option<&str>) -> Self {
        key.map_or(Self::Anonymous, |key| Self::Claimed(key.to_owned()))
    }

    /// CloudTrail's `userIdentity`.
    pub(super) fn identity(&self) -> Value {
        match self {
            Self::Key { access_key, principal } => {
                let key = access_key.as_str();
                let mut identity = json!({ "accountId": ACCOUNT, "accessKeyId": key, "principalId": key });
                let Some(who) = principal else {
                    identity["type"] = "Unknown".into();
                    return identity;
                };
                match &who.function {
                    // A key outside of sandboxes is its namespace's.
                    None => {
                        identity["type"] = "IAMUser".into();
                        identity["userName"] = who.namespace.as_str().into();
                        identity["arn"] = format!("arn:aws:iam::{ACCOUNT}:user/{}", who.namespace).into();
                    }
                    // A function acts in the role of its namespace.
                    Some(function) => {
                        identity["type"] = "AssumedRole".into();
                        identity["arn"] =
                            format!("arn:aws:sts::{ACCOUNT}:assumed-role/{}/{function}", who.namespace).into();
                    }
                }
                identity
            }
            Self::Claimed(key) => json!({ "type": "Unknown", "accessKeyId": key }),
            Self::LocalUser(uid) => json!({ "type": "LocalUser", "principalId": format!("uid:{uid}") }),
            Self::Link(maker) => {
                let maker = maker.identity();
                let principal = format!("link:{}", maker["principalId"].as_str().unwrap_or_default());
                json!({ "type": "SignInLink", "principalId": principal, "sessionContext": { "sessionIssuer": maker } })
            }
            Self::Anonymous => json!({ "type": "AWSAccount", "principalId": "", "accountId": "ANONYMOUS_PRINCIPAL" }),
        }
    }

    /// What CloudTrail has no field for: the namespace, and the invocation that a sandbox ran.
    pub(super) fn describe(&self, more: &mut Map<String, Value>) {
        if let Self::Link(maker) = self {
            return maker.describe(more);
        }
        let Self::Key { principal: Some(who), .. } = self else { return };
        more.insert("namespace".to_owned(), who.namespace.as_str().into());
        if let Some(invocation) = &who.invocation {
            more.insert("invocation".to_owned(), invocation.to_string().into());
        }
    }
}
