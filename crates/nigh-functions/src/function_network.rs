//! Whether a function has an outbound network: what it asks for, and whether it may have it.
//!
//! It asks by a variable of its environment, as it says all that is Nigh's alone (`NIGH_IDEMPOTENT`); the node's operator
//! permits it (`functions.network`). Pure: the door, the invoker and the profiler ask the same question here.

use std::collections::{BTreeMap, BTreeSet};

use nigh_terms::Namespace;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The variable by which a function asks.
pub const NETWORK_VARIABLE: &str = "NIGH_NETWORK";
/// The value that asks for an outbound network.
pub const OUTBOUND: &str = "outbound";
/// Its word for none, which is the same as no variable.
pub const NONE: &str = "none";

/// What of the network a function has, beside Nigh's two doors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FunctionNetwork {
    /// Nothing.
    #[default]
    None,
    /// It may connect to others; nobody may connect to it.
    Outbound,
}

impl FunctionNetwork {
    /// What a function with this environment asks for.
    ///
    /// # Errors
    /// If it says a word that is none.
    pub fn asked(environment: &BTreeMap<String, String>) -> Result<Self, NetworkRefusal> {
        match environment.get(NETWORK_VARIABLE).map(String::as_str) {
            None | Some(NONE) => Ok(Self::None),
            Some(OUTBOUND) => Ok(Self::Outbound),
            Some(other) => Err(NetworkRefusal::Unknown(other.to_owned())),
        }
    }
}

/// Why a function cannot have what it asks for.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum NetworkRefusal {
    /// It is not known what it asks for.
    #[error("{NETWORK_VARIABLE} is {0:?}; it can be \"{OUTBOUND}\" or \"{NONE}\"")]
    Unknown(String),
    /// Functions of this node have none.
    #[error(
        "{NETWORK_VARIABLE} is \"{OUTBOUND}\", and functions have no network here: {0}; or leave {NETWORK_VARIABLE} out"
    )]
    NotHere(String),
    /// Functions of this namespace have none.
    #[error(
        "{NETWORK_VARIABLE} is \"{OUTBOUND}\", and functions of the namespace {0} have no network here: the node's \
         operator can add it to functions.network_namespaces; or leave {NETWORK_VARIABLE} out"
    )]
    NotThisNamespace(Namespace),
}

/// Which functions may have an outbound network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkPermission {
    given: Result<(), String>,
    /// Empty: all.
    namespaces: BTreeSet<Namespace>,
}

impl Default for NetworkPermission {
    /// Nobody: the operator has not permitted it.
    fn default() -> Self {
        let why = "the node's operator can permit it with functions.network = \"permitted\"";
        Self { given: Err(why.to_owned()), namespaces: BTreeSet::new() }
    }
}

impl NetworkPermission {
    /// The operator permits it to functions of `namespaces`, of all if it is empty. `given`: whether the machine can
    /// give it, or what keeps it from that.
    #[must_use]
    pub fn new(given: Result<(), String>, namespaces: BTreeSet<Namespace>) -> Self {
        Self { given, namespaces }
    }

    /// What a function of `namespace` with this environment gets.
    ///
    /// # Errors
    /// Why it cannot have what it asks for, and what helps.
    pub fn check(
        &self,
        namespace: &Namespace,
        environment: &BTreeMap<String, String>,
    ) -> Result<FunctionNetwork, NetworkRefusal> {
        let asked = FunctionNetwork::asked(environment)?;
        if asked == FunctionNetwork::None {
            return Ok(asked);
        }
        if let Err(why) = &self.given {
            return Err(NetworkRefusal::NotHere(why.clone()));
        }
        match self.namespaces.is_empty() || self.namespaces.contains(namespace) {
            true => Ok(asked),
            false => Err(NetworkRefusal::NotThisNamespace(namespace.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(word: &str) -> BTreeMap<String, String> {
        [(NETWORK_VARIABLE.to_owned(), word.to_owned())].into()
    }

    fn namespace(name: &str) -> Namespace {
        Namespace::new(name).unwrap()
    }

    #[test]
    fn who_does_not_ask_is_never_refused_and_gets_nothing() {
        for permission in [NetworkPermission::default(), NetworkPermission::new(Ok(()), BTreeSet::new())] {
            for environment in [BTreeMap::new(), asking("none")] {
                assert_eq!(permission.check(&namespace("a"), &environment), Ok(FunctionNetwork::None));
            }
        }
    }

    #[test]
    fn who_asks_gets_it_where_it_is_permitted_and_is_told_what_helps_elsewhere() {
        let check = |permission: &NetworkPermission, name| permission.check(&namespace(name), &asking("outbound"));
        let all = NetworkPermission::new(Ok(()), BTreeSet::new());
        assert_eq!(check(&all, "a"), Ok(FunctionNetwork::Outbound));
        let one = NetworkPermission::new(Ok(()), [namespace("a")].into());
        assert_eq!(check(&one, "a"), Ok(FunctionNetwork::Outbound));
        assert!(check(&one, "b").unwrap_err().to_string().contains("functions.network_namespaces"));
        let none = check(&NetworkPermission::default(), "a").unwrap_err().to_string();
        assert!(none.contains("functions.network = \"permitted\""), "{none}");
        let missing = NetworkPermission::new(Err("slirp4netns is not installed".to_owned()), BTreeSet::new());
        assert!(check(&missing, "a").unwrap_err().to_string().contains("not installed"));
    }

    #[test]
    fn a_word_that_is_none_is_refused_everywhere() {
        let refused = NetworkPermission::default().check(&namespace("a"), &asking("inbound")).unwrap_err();
        assert!(refused.to_string().contains("\"inbound\""), "{refused}");
    }
}
