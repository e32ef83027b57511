//! The identity of a process, as in its certificate: `nigh://CLUSTER/ROLE/NAME`. Pure.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

/// The longest name of a cluster or a process.
const NAME_MAX_BYTES: usize = 128;
const SCHEME: &str = "nigh://";

/// Why a name is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is no name: use 1 to {NAME_MAX_BYTES} letters, digits, dots, dashes and underscores, not only dots")]
pub struct NameError(String);

/// The role of a process in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Runs functions and holds objects.
    Node,
    /// Places invocations.
    Controller,
    /// A person, or a person's program.
    Operator,
}

impl Role {
    /// The role's text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Controller => "controller",
            Self::Operator => "operator",
        }
    }

    /// The role with this text.
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

/// The identity of a process.
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
    /// If the cluster or the process has an invalid name.
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

    /// The URI in the certificate.
    #[must_use]
    pub fn uri(&self) -> String {
        format!("{SCHEME}{}/{}/{}", self.cluster, self.role, self.name)
    }

    /// The identity of a certificate's URI.
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

/// A peer and its address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddress {
    /// Its name in the cluster. A process of another name at the address is not called.
    pub name: Arc<str>,
    /// `host:port`.
    pub address: Arc<str>,
    /// Its incarnation, if only that one may be called.
    pub incarnation: Option<u64>,
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
