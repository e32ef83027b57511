//! What makes a function an OpenWhisk action: stored with the function, and changed with it.

pub mod names;
pub mod parameters;
pub mod version;

use serde::{Deserialize, Serialize};

use crate::action::names::EntityPath;
use crate::action::parameters::Parameters;
use crate::action::version::SemVer;

/// OpenWhisk's side of a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// Its name and package.
    pub path: EntityPath,
    /// Its kind, as it was given: `python:3`.
    pub kind: String,
    /// The function in its code that is called; None: the default of its kind.
    #[serde(default)]
    pub main: Option<String>,
    /// The version of code that was uploaded as text: Nigh made the archive.
    #[serde(default)]
    pub text_sha256: Option<String>,
    /// Its parameters.
    #[serde(default)]
    pub parameters: Parameters,
    /// Its annotations.
    #[serde(default)]
    pub annotations: Parameters,
    /// Its version.
    #[serde(default)]
    pub version: SemVer,
    /// Nigh only returns it.
    #[serde(default)]
    pub publish: bool,
    /// The megabytes of log that its owner asked for; Nigh only returns them.
    #[serde(default = "logs")]
    pub logs_mb: u64,
}

/// The megabytes of log that OpenWhisk keeps of an action that does not say otherwise.
pub const LOGS_MB: u64 = 10;

const fn logs() -> u64 {
    LOGS_MB
}
