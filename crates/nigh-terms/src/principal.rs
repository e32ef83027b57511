//! Who asks.

use serde::{Deserialize, Serialize};

use crate::{FunctionName, InvocationId, Namespace, SandboxId};

/// Whether what is read on somebody's behalf is brought into the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Admission {
    /// It is, whatever has to make room.
    #[default]
    Always,
    /// While much of the cache is free: its reader gains little.
    Spare,
    /// It is not.
    Never,
}

/// The one answer of authorisation: on whose behalf a request acts.
///
/// Objects, functions and segments of `namespace` are reachable, of no other.
/// `function`, `sandbox` and `invocation` are set together, for a request from inside a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Principal {
    /// The tenant.
    pub namespace: Namespace,
    /// The function whose sandbox asks.
    pub function: Option<FunctionName>,
    /// The sandbox that asks.
    pub sandbox: Option<SandboxId>,
    /// The invocation it runs.
    pub invocation: Option<InvocationId>,
    /// Whether what it reads is brought into the cache.
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
