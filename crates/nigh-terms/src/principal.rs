//! On whose behalf a request acts.

use serde::{Deserialize, Serialize};

use crate::{FunctionName, InvocationId, Namespace, SandboxId};

/// The account in every ARN, and the owner of every bucket, since AWS's APIs know accounts. Namespaces share it: on whose
/// behalf a request acts is known from its signature.
pub const ACCOUNT: &str = "000000000000";

/// Whether objects that a principal reads are cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Admission {
    /// They are cached, even if others must be evicted.
    #[default]
    Always,
    /// They are cached while much of the cache is free: the reader benefits little.
    Spare,
    /// They are not cached.
    Never,
}

/// The result of authorisation: on whose behalf a request acts.
///
/// A principal reaches objects, functions and segments of `namespace` only.
/// `function`, `sandbox` and `invocation` are set together, for a request from inside a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Principal {
    /// The namespace that the request may reach.
    pub namespace: Namespace,
    /// The function whose sandbox sent the request.
    pub function: Option<FunctionName>,
    /// The sandbox that sent the request.
    pub sandbox: Option<SandboxId>,
    /// The invocation that the sandbox runs.
    pub invocation: Option<InvocationId>,
    /// Whether objects that it reads are cached.
    pub admission: Admission,
}

impl Principal {
    /// A client of `namespace` outside any invocation.
    #[must_use]
    pub const fn outside(namespace: Namespace) -> Self {
        Self { namespace, function: None, sandbox: None, invocation: None, admission: Admission::Always }
    }

    /// The invocation `invocation` of `function`, running in `sandbox`.
    #[must_use]
    pub const fn inside(
        namespace: Namespace,
        function: FunctionName,
        sandbox: SandboxId,
        invocation: InvocationId,
    ) -> Self {
        Self {
            namespace,
            function: Some(function),
            sandbox: Some(sandbox),
            invocation: Some(invocation),
            admission: Admission::Always,
        }
    }
}
