//! A function as it is deployed: what the Lambda API calls its configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use nigh_terms::{ByteSize, FunctionName, Namespace, Timestamp};
use serde::{Deserialize, Serialize};

use crate::action::Action;

/// How a function's process is made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Runtime {
    /// `python3.x`: the vendor's runtime interface client imports the handler.
    Python {
        /// The `x`.
        minor: u8,
    },
    /// `provided.*`: the archive's `bootstrap` speaks the Runtime API itself.
    Provided,
    /// `provided.http`: the archive's `bootstrap` is an HTTP server, on `$PORT`; Nigh's adapter asks it.
    ProvidedHttp,
    /// `nodejsx.x`, or `nodejs:x` of an OpenWhisk action: Nigh's programs in `runtimes/node` call the handler.
    Node {
        /// The `x`.
        major: u8,
    },
    /// `native`: an OpenWhisk action whose archive brings the program `exec`; Nigh's adapter runs it.
    Native,
}

/// A layer's version, as a function has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerUse {
    /// The ARN, as it was given.
    pub arn: String,
    /// The layer.
    pub name: FunctionName,
    /// The SHA-256 of the version's archive, base64.
    pub sha256: String,
    /// The archive's size.
    pub size: ByteSize,
    /// What it unpacks to.
    pub unpacked: ByteSize,
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Python { minor } => write!(f, "python3.{minor}"),
            Self::Provided => f.write_str("provided"),
            Self::ProvidedHttp => f.write_str("provided.http"),
            Self::Node { major } => write!(f, "nodejs{major}"),
            Self::Native => f.write_str("native"),
        }
    }
}

/// A deployed function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// The tenant.
    pub namespace: Namespace,
    /// Its name.
    pub name: FunctionName,
    /// How its process is made.
    pub runtime: Runtime,
    /// The name of the runtime as it was given: `python3.12`, `provided.al2023`.
    pub runtime_name: String,
    /// `module.function` for Python; free for others.
    pub handler: String,
    /// What it is for, in its owner's words.
    #[serde(default)]
    pub description: String,
    /// The memory that its owner booked.
    pub memory: ByteSize,
    /// How long one invocation may run.
    pub timeout: Duration,
    /// The size of its /tmp.
    pub ephemeral_storage: ByteSize,
    /// Its own environment.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// The layers shown at /opt, the later ones on top.
    #[serde(default)]
    pub layers: Vec<LayerUse>,
    /// Lambda's `Role`, kept and given back.
    #[serde(default)]
    pub role: String,
    /// SHA-256 of the archive, base64: names the code version.
    pub code_sha256: String,
    /// The archive's size.
    pub code_size: ByteSize,
    /// When code or configuration changed last.
    pub modified: Timestamp,
    /// Changes with every change (Lambda's `RevisionId`).
    pub revision_id: String,
    /// What makes it an OpenWhisk action, if it is one.
    #[serde(default)]
    pub action: Option<Action>,
}

/// Where the invoker finds functions. `find` is on the path of every invocation: it must not wait for a disk.
#[async_trait]
pub trait FunctionSource: Send + Sync {
    /// The function as it is deployed now.
    async fn find(&self, namespace: &Namespace, name: &FunctionName) -> Option<Arc<Function>>;
    /// The folder of this version's code, unpacked; nobody writes to it. It is asked for at a cold start, and must stay
    /// whole until the version is replaced.
    async fn code_folder(&self, function: &Function) -> PathBuf;
    /// The folder of this version's layers, if it has any; like that of its code.
    ///
    /// # Errors
    /// Why they cannot be had.
    async fn layers_folder(&self, function: &Function) -> Result<Option<PathBuf>, String>;
    /// The runtimes that deployed functions use; asked for every second.
    fn runtimes(&self) -> BTreeSet<Runtime>;
}

impl Function {
    /// A function of which nothing else matters: for what simulates a node.
    #[must_use]
    pub const fn made_up(namespace: Namespace, name: FunctionName, memory: ByteSize) -> Self {
        Self {
            namespace,
            name,
            runtime: Runtime::Provided,
            runtime_name: String::new(),
            handler: String::new(),
            description: String::new(),
            memory,
            timeout: Duration::from_secs(3),
            ephemeral_storage: ByteSize::mib(512),
            environment: BTreeMap::new(),
            layers: Vec::new(),
            role: String::new(),
            code_sha256: String::new(),
            code_size: ByteSize(1),
            modified: Timestamp(1),
            revision_id: String::new(),
            action: None,
        }
    }

    /// True if `other` is the same function with the same code and configuration: only then may they share a sandbox.
    #[must_use]
    pub fn same_version(&self, other: &Self) -> bool {
        self.namespace == other.namespace
            && self.name == other.name
            && self.revision_id == other.revision_id
            && self.code_sha256 == other.code_sha256
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::function;

    #[test]
    fn a_change_of_code_or_configuration_is_another_version() {
        let one = function("f");
        assert!(one.same_version(&one.clone()));
        assert!(!one.same_version(&Function { code_sha256: "code-2".to_owned(), ..one.clone() }));
        assert!(!one.same_version(&Function { revision_id: "revision-2".to_owned(), ..one.clone() }));
        assert!(!one.same_version(&Function { namespace: Namespace::new("other").unwrap(), ..one.clone() }));
    }
}
