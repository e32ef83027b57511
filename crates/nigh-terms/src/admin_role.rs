//! What a key may do at the admin API.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a key may do at the admin API. A higher role includes the lower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AdminRole {
    /// Read: status, metrics, records, logs.
    View,
    /// Also change: drain, keys, namespaces, policies.
    Operate,
}

impl AdminRole {
    /// The word in settings, commands and documents.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::View => "view",
            Self::Operate => "operate",
        }
    }
}

impl fmt::Display for AdminRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
