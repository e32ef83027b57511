//! The entities of a namespace that are no functions: packages, triggers, rules and sequences.

use nigh_functions::action::names::{EntityName, EntityPath};
use nigh_functions::action::parameters::Parameters;
use nigh_functions::action::version::SemVer;
use nigh_terms::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The members that all entities have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EntityHeader {
    #[serde(default)]
    pub(super) parameters: Parameters,
    #[serde(default)]
    pub(super) annotations: Parameters,
    #[serde(default)]
    pub(super) version: SemVer,
    #[serde(default)]
    pub(super) publish: bool,
    pub(super) updated: Timestamp,
}

/// A package, or a binding of a package.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Package {
    #[serde(flatten)]
    pub(super) common: EntityHeader,
    /// The package that a binding binds.
    #[serde(default)]
    pub(super) binding: Option<EntityName>,
}

/// A trigger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Trigger {
    #[serde(flatten)]
    pub(super) common: EntityHeader,
}

/// A rule: a fired trigger invokes the action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Rule {
    #[serde(flatten)]
    pub(super) common: EntityHeader,
    pub(super) trigger: EntityName,
    pub(super) action: EntityPath,
    pub(super) active: bool,
}

/// A sequence of actions: each gets the answer of the one before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sequence {
    #[serde(flatten)]
    pub(super) common: EntityHeader,
    pub(super) components: Vec<EntityPath>,
    pub(super) timeout_ms: u64,
    pub(super) memory_mb: u64,
    pub(super) logs_mb: u64,
}

/// An entity in the store.
pub(super) trait Entity: Clone + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Its place in the registry.
    const COLLECTION: &'static str;
}

impl Entity for Package {
    const COLLECTION: &'static str = "packages";
}

impl Entity for Trigger {
    const COLLECTION: &'static str = "triggers";
}

impl Entity for Rule {
    const COLLECTION: &'static str = "rules";
}

impl Entity for Sequence {
    const COLLECTION: &'static str = "sequences";
}
