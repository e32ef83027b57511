//! A function as it is deployed: what the Lambda API calls its configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use nigh_terms::{ByteSize, FunctionName, Namespace, Timestamp};
use serde::{Deserialize, Serialize};

/// How a function's process is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Runtime {
    /// `python3.x`: the vendor's runtime interface client imports the handler.
    Python {
        /// The `x`.
        minor: u8,
    },
    /// `provided.*`: the archive's `bootstrap` speaks the Runtime API itself.
    Provided,
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
}

/// Where the invoker finds functions. `find` is on the path of every invocation: it must not wait for a disk.
#[async_trait]
pub trait FunctionSource: Send + Sync {
    /// The function as it is deployed now.
    async fn find(&self, namespace: &Namespace, name: &FunctionName) -> Option<Arc<Function>>;
    /// The folder of this version's code, unpacked; nobody writes to it. It is asked for at a cold start, and must stay
    /// whole until the version is replaced.
    async fn code_folder(&self, function: &Function) -> PathBuf;
}
