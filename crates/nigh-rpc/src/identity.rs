//! Who a process of a cluster is, as its certificate says it: `nigh://CLUSTER/ROLE/NAME`. Pure.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

/// The longest name of a cluster or a process.
const NAME_MAX_BYTES: usize = 128;
const SCHEME: &str = "nigh://";

/// Why a name is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is no name: 1 to {NAME_MAX_BYTES} letters, digits, dots, dashes and underscores, not dots alone")]
pub struct NameError(String);

/// What a process is in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Runs functions and holds objects.
    Node,
    /// Schedules.
    Controller,
    /// A person, or a program of theirs.
    Operator,
}

impl Role {
    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Controller => "controller",
            Self::Operator => "operator",
        }
    }

    /// The role that is written so.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Node, Self::Controller, Self::Operator].into_iter().find(|role| role.as_str() == text)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Who a process is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    cluster: Arc<str>,
    role: Role,
    name: Arc<str>,
}

impl Identity {
    /// The process `name` of `cluster`.
    ///
    /// # Errors
    /// If one of the two is no name.
    pub fn new(cluster: &str, role: Role, name: &str) -> Result<Self, NameError> {
        Ok(Self { cluster: checked(cluster)?.into(), role, name: checked(name)?.into() })
    }

    /// The cluster.
    #[must_use]
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The role.
    #[must_use]
    pub const fn role(&self) -> Role {
        self.role
    }

    /// The name, which no other process of the cluster has.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// As a certificate says it.
    #[must_use]
    pub fn uri(&self) -> String {
        format!("{SCHEME}{}/{}/{}", self.cluster, self.role, self.name)
    }

    /// Reads what a certificate says.
    #[must_use]
    pub fn of_uri(uri: &str) -> Option<Self> {
        let mut parts = uri.strip_prefix(SCHEME)?.split('/');
        let (cluster, role, name) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() {
            return None;
        }
        Self::new(cluster, Role::parse(role)?, name).ok()
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.uri())
    }
}

/// `text`, if it may name a cluster or a process.
pub(crate) fn checked(text: &str) -> Result<&str, NameError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let named = (1..=NAME_MAX_BYTES).contains(&text.len()) && text.chars().all(allowed);
    if named && text.chars().any(|c| c != '.') {
        Ok(text)
    } else {
        Err(NameError(text.chars().take(NAME_MAX_BYTES).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_read_as_it_was_written() {
        let node = Identity::new("lab", Role::Node, "n-1.example").unwrap();
        assert_eq!(node.uri(), "nigh://lab/node/n-1.example");
        assert_eq!(Identity::of_uri(&node.uri()), Some(node));
    }

    #[test]
    fn what_is_no_identity_is_nobody() {
        for uri in
            ["nigh://lab/node", "nigh://lab/king/a", "nigh://lab/node/a/b", "nigh:///node/a", "https://lab/node/a"]
        {
            assert_eq!(Identity::of_uri(uri), None, "{uri}");
        }
        for name in ["", "..", "a/b", "ä", "a b"] {
            assert!(Identity::new("lab", Role::Node, name).is_err(), "{name}");
        }
    }
}
