//! What the admin API shows of the last-level cache.

use nigh_llc::{CacheShape, ClosKind};
use nigh_terms::{ClosId, FunctionName, Namespace, WayMask, Ways};
use nigh_ways::FunctionUse;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::status::Level;

/// One class of service, for `nigh llc layout`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClosStatus {
    /// The class's number; 0 is the default class.
    pub clos: ClosId,
    /// The class's kind.
    pub kind: ClosKind,
    /// The class's ways.
    pub mask: WayMask,
    /// Number of invocations in it now.
    pub running: usize,
    /// The mean load of its ways (CASY equation 4).
    pub load: f64,
}

/// A function's model, for `nigh llc status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelStatus {
    /// The function's namespace.
    pub namespace: Namespace,
    /// The name of the function.
    pub function: FunctionName,
    /// The version of its code.
    pub code_sha256: String,
    /// The kind of model.
    pub kind: String,
    /// The inputs that it was profiled with.
    pub rows: Vec<ModelRow>,
}

/// One profiled input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelRow {
    /// The input's size in bytes.
    pub bytes: u64,
    /// The number of ways that it needs.
    pub ways: Ways,
    /// The input's class.
    pub class: String,
}

/// The cache, for `nigh llc status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LlcStatus {
    /// On, or off with the reason.
    pub level: Level,
    /// The name of the policy; none if the cache is off.
    pub policy: Option<String>,
    /// The cache's shape, and the part that Nigh may use; none if unknown.
    pub shape: Option<CacheShape>,
    /// Number of cache lines of 64 bytes in one way; none if unknown.
    pub lines_per_way: Option<f64>,
    /// The classes.
    pub classes: Vec<ClosStatus>,
    /// The load of each way, way 0 first (CASY equation 3).
    pub way_loads: Vec<f64>,
    /// The models of functions.
    pub models: Vec<ModelStatus>,
    /// Each function's use of the cache now; none if the machine does not measure it.
    pub uses: Option<Vec<FunctionUse>>,
}
