//! Why the settings cannot be used.

use std::path::PathBuf;

use figment::error::Kind;
use thiserror::Error;

/// Names that are less alike than this (Jaro-Winkler) are not suggested.
const ALIKE: f64 = 0.8;

/// Why the settings cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// A name that is no setting.
    #[error("{origin}: there is no setting {key}{hint}")]
    Unknown {
        /// Where it was found.
        origin: String,
        /// The name.
        key: String,
        /// What may have been meant.
        hint: String,
    },
    /// A value that is none for its setting.
    #[error("{origin}: {key}: {why}")]
    Value {
        /// Where it was found.
        origin: String,
        /// The setting.
        key: String,
        /// What is wrong.
        why: String,
    },
    /// A value that does not go with others.
    #[error("setting {key}: {why}")]
    Rule {
        /// The setting.
        key: String,
        /// What is wrong, and how to mend it.
        why: String,
    },
    /// The file cannot be read.
    #[error("configuration file {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// There is no place for the state.
    #[error("no folder for Nigh's state is known: HOME is not set; name one with --state or NIGH_STATE")]
    NoState,
}

impl ConfigError {
    pub(super) fn rule(key: &str, why: String) -> Self {
        Self::Rule { key: key.to_owned(), why }
    }
}

/// figment's error as one line that names the setting, its origin and the setting that was probably meant.
pub(super) fn explain(error: figment::Error) -> ConfigError {
    let origin = error.metadata.as_ref().map_or_else(|| "settings".to_owned(), |metadata| metadata.name.to_string());
    let mut path = error.path.clone();
    match &error.kind {
        Kind::UnknownField(name, known) => {
            if path.last() != Some(name) {
                path.push(name.clone());
            }
            let best = known
                .iter()
                .map(|known| (strsim::jaro_winkler(name, known), known))
                .filter(|(alike, _)| *alike >= ALIKE)
                .max_by(|a, b| a.0.total_cmp(&b.0));
            let hint = match best {
                Some((_, known)) => format!("; did you mean {known}?"),
                None => format!("; the settings here are {}", known.join(", ")),
            };
            ConfigError::Unknown { origin, key: path.join("."), hint }
        }
        kind => ConfigError::Value { origin, key: path.join("."), why: kind.to_string() },
    }
}
