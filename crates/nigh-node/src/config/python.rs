//! The setting `functions.python`: programs, or `auto`.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The word for a Python that Nigh finds itself.
const AUTO: &str = "auto";

/// The interpreters of Python functions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PythonChoice {
    /// Of each version one of this machine's Pythons (`python::candidates`).
    #[default]
    Auto,
    /// This program, or several separated like `PATH`.
    Program(PathBuf),
}

impl fmt::Display for PythonChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str(AUTO),
            Self::Program(program) => program.display().fmt(f),
        }
    }
}

impl Serialize for PythonChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PythonChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(if text == AUTO { Self::Auto } else { Self::Program(PathBuf::from(text)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_read_as_it_is_written_and_auto_is_none() {
        for (text, choice) in
            [("auto", PythonChoice::Auto), ("/opt/bin/python3", PythonChoice::Program("/opt/bin/python3".into()))]
        {
            let json = format!("{text:?}");
            assert_eq!(serde_json::from_str::<PythonChoice>(&json).unwrap(), choice);
            assert_eq!(serde_json::to_string(&choice).unwrap(), json);
        }
    }
}
