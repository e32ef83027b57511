//! The functions of `functions/`, as their `function.toml` describes them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::LabError;
use crate::instrument::error::Tried;

/// The handler of a folder that `SampleFunction::measured` makes.
pub(crate) const MEASURED_HANDLER: &str = "measured.handler";
pub(crate) const MEASURED: &str = include_str!("../../peers/measured.py");

/// One sample function.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct SampleFunction {
    pub(crate) name: String,
    pub(crate) handler: String,
    pub(crate) memory_mb: u64,
    pub(crate) timeout_s: u64,
    input: Input,
    pub(crate) output: Output,
    #[serde(default)]
    pub(crate) arguments: toml::Table,
    pub(crate) demo: Demo,
    #[serde(skip)]
    pub(crate) folder: PathBuf,
}

/// What inputs it takes: a folder of the inputs' folder, and how their names may end.
#[derive(Clone, Debug, Deserialize)]
struct Input {
    kind: String,
    suffixes: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Output {
    pub(crate) suffix: String,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Demo {
    /// Paths below the inputs' folder, small to large; none: it is not part of the demonstration's mixture.
    pub(crate) inputs: Vec<String>,
}

impl SampleFunction {
    /// All functions below `folder`, by name.
    pub(crate) fn read_all(folder: &Path) -> Result<Vec<Self>, LabError> {
        let missing = |_| LabError::Missing {
            missing: folder.display().to_string(),
            hint: "run this in the project's folder, where the sample functions are",
        };
        let mut functions = BTreeMap::new();
        for entry in std::fs::read_dir(folder).map_err(missing)?.flatten() {
            let path = entry.path().join("function.toml");
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let mut function: Self = toml::from_str(&text).at(&path)?;
            function.folder = entry.path();
            functions.insert(function.name.clone(), function);
        }
        Ok(functions.into_values().collect())
    }

    /// All inputs in `folder` that it takes, as paths below it, small to large.
    pub(crate) fn sweep(&self, folder: &Path) -> Result<Vec<String>, LabError> {
        self.sweep_to(folder, u64::MAX)
    }

    /// Those of at most `bytes_max` bytes.
    pub(crate) fn sweep_to(&self, folder: &Path, bytes_max: u64) -> Result<Vec<String>, LabError> {
        let kind = folder.join(&self.input.kind);
        let missing = |_| LabError::Missing {
            missing: kind.display().to_string(),
            hint: "run `make deps` in the project's folder first",
        };
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&kind).map_err(missing)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if self.input.suffixes.first().is_some_and(|suffix| name.ends_with(suffix.as_str())) {
                let bytes = entry.metadata().at(entry.path())?.len();
                found.push((bytes, format!("{}/{name}", self.input.kind)));
            }
        }
        found.retain(|(bytes, _)| *bytes <= bytes_max);
        found.sort();
        Ok(found.into_iter().map(|(_, path)| path).collect())
    }

    /// The event for one input; the output's key is its own.
    pub(crate) fn event(&self, bucket: &str, input: &str) -> Vec<u8> {
        self.event_of(bucket, input, &format!("out/{}/{input}", self.name))
    }

    /// The event for one input, the output's key but for its suffix given.
    pub(crate) fn event_of(&self, bucket: &str, input: &str, output: &str) -> Vec<u8> {
        let mut event = serde_json::json!({
            "input": {"bucket": bucket, "key": input},
            "output": {"bucket": bucket, "key": format!("{output}{}", self.output.suffix)},
        });
        for (name, value) in &self.arguments {
            event[name] = serde_json::to_value(value).unwrap_or_default();
        }
        event.to_string().into_bytes()
    }

    /// Writes the code to `folder`, with the measure around it and, where the function is to use another client than
    /// boto3, that in its place.
    pub(crate) fn measured(&self, folder: &Path, client: Option<&str>) -> Result<(), LabError> {
        std::fs::create_dir_all(folder).at(folder)?;
        let own = self.folder.join("app.py");
        let own = std::fs::read_to_string(&own).at(&own)?;
        let files = [("app.py", Some(own.as_str())), ("measured.py", Some(MEASURED)), ("boto3.py", client)];
        for (name, text) in files {
            let Some(text) = text else { continue };
            std::fs::write(folder.join(name), text).at(folder.join(name))?;
        }
        Ok(())
    }

    /// Copies the code, with the instrument beside it, to `target`.
    pub(crate) fn instrumented(&self, instrument: &Path, target: &Path) -> Result<(), LabError> {
        let package = target.join("nigh_phases");
        std::fs::create_dir_all(&package).at(&package)?;
        let sources = [(self.folder.as_path(), target), (instrument, package.as_path())];
        for (from, to) in sources {
            let entries = std::fs::read_dir(from).at(from)?;
            for path in
                entries.flatten().map(|entry| entry.path()).filter(|path| path.extension() == Some("py".as_ref()))
            {
                let copy = to.join(path.file_name().unwrap_or_default());
                std::fs::copy(&path, &copy).at(&copy)?;
            }
        }
        Ok(())
    }
}
