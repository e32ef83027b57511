//! What makes a function an OpenWhisk action: it is kept with the function, and changes with it.

use serde::{Deserialize, Serialize};

use super::names::EntityPath;
use super::parameters::Parameters;
use super::version::SemVer;

/// OpenWhisk's side of a function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    /// Its name and package.
    pub path: EntityPath,
    /// Its kind, as it was given: `python:3`.
    pub kind: String,
    /// The function in its code that is called; none for what its kind says.
    #[serde(default)]
    pub main: Option<String>,
    /// The version of the code that came as text: its archive was made here.
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
    /// Kept and given back.
    #[serde(default)]
    pub publish: bool,
    /// The megabytes of log that its owner wants kept; kept and given back.
    #[serde(default = "logs")]
    pub logs_mb: u64,
}

const fn logs() -> u64 {
    super::limits::LOGS_MB
}
