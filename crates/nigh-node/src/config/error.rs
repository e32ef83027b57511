//! Why the settings cannot be used.

use std::path::PathBuf;

use figment::Figment;
use figment::error::Kind;
use thiserror::Error;

use super::shown::show;

/// Names that are less alike than this (Jaro-Winkler) are not suggested.
const ALIKE: f64 = 0.8;
/// The standard library's words for a text that is no address.
const NO_ADDRESS: &str = "invalid socket address syntax";

/// Why the settings cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The name of no setting.
    #[error("{origin}: there is no setting {key}{hint}")]
    Unknown {
        /// The file, variable or flag that has it.
        origin: String,
        /// The unknown key.
        key: String,
        /// The probable setting, as a hint.
        hint: String,
    },
    /// A value that its setting cannot have.
    #[error("{origin}: {key}: {why}")]
    Value {
        /// The file, variable or flag that has it.
        origin: String,
        /// The key of the setting.
        key: String,
        /// What is wrong.
        why: String,
    },
    /// A value that conflicts with others.
    #[error("setting {key}: {why}")]
    Rule {
        /// The key of the setting.
        key: String,
        /// What is wrong, and how to fix it.
        why: String,
    },
    /// The file cannot be read.
    #[error("configuration file {path}: {source}")]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("configuration file {path} is not TOML:\n{why}")]
    Syntax {
        /// The path of the file.
        path: PathBuf,
        /// The parser's words, in lines: they point at the place.
        why: String,
    },
    /// No place for the state folder is known.
    #[error("no folder for Nigh's state is known: HOME is not set; name one with --state or NIGH_STATE")]
    NoState,
}

impl ConfigError {
    pub(super) fn rule(key: &str, why: String) -> Self {
        Self::Rule { key: key.to_owned(), why }
    }
}

/// figment's error as one line that names the setting, its origin and the probable setting, one of `whole`.
pub(super) fn explain(error: figment::Error, whole: &Figment) -> ConfigError {
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
            let hint = match (best, section_of(name, whole).filter(|_| path.len() == 1)) {
                (Some((_, known)), _) => format!("; did you mean {known}?"),
                (None, Some(key)) => format!("; did you mean {key} (variable {})?", variable(&key)),
                (None, None) => format!("; the settings here are {}", known.join(", ")),
            };
            ConfigError::Unknown { origin, key: path.join("."), hint }
        }
        kind => ConfigError::Value { origin, key: path.join("."), why: told(kind) },
    }
}

/// What is wrong with a value, and what to write.
fn told(kind: &Kind) -> String {
    match kind {
        Kind::UnknownVariant(found, known) => format!("{found:?} is not one of {}", known.join(", ")),
        kind => match kind.to_string() {
            words if words == NO_ADDRESS => {
                format!("{words}; write an IP address and a port, for example \"127.0.0.1:9400\"")
            }
            words => words,
        },
    }
}

/// The setting of this name in a section.
fn section_of(name: &str, whole: &Figment) -> Option<String> {
    let mut keys = show(whole).into_iter().map(|shown| shown.key);
    keys.find(|key| key.rsplit_once('.').is_some_and(|(_, last)| last == name))
}

/// The variable of a setting.
fn variable(key: &str) -> String {
    format!("NIGH_{}", key.to_ascii_uppercase().replace('.', "__"))
}
