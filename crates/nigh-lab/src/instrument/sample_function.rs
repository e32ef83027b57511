//! The functions of `functions/`, as their `function.toml` describes them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::platform::Deployment;

/// The handler of a folder that `SampleFunction::measured` makes.
pub(crate) const MEASURED_HANDLER: &str = "measured.handler";
const MEASURED: &str = include_str!("../../peers/measured.py");

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
    /// Paths below the inputs' folder, small to large; none if the function is not in the demonstration's mixture.
    pub(crate) inputs: Vec<String>,
}

impl SampleFunction {
    /// All functions below `folder`, by name.
    pub(crate) fn read_all(folder: &Path) -> Result<Vec<Self>, LabError> {
        let described = read_described(folder, "function.toml")?;
        Ok(described.into_iter().map(|(folder, function)| Self { folder, ..function }).collect())
    }

    /// The function of this name among `all`.
    pub(crate) fn find<'a>(all: &'a [Self], name: &str) -> Result<&'a Self, LabError> {
        all.iter().find(|function| function.name == name).ok_or_else(|| LabError::Missing {
            missing: format!("the sample function {name}"),
            hint: "run this in the project's folder; each folder of functions/ is one",
        })
    }

    /// All inputs in `folder` that it takes, as paths below it, small to large.
    pub(crate) fn sweep(&self, folder: &Path) -> Result<Vec<String>, LabError> {
        self.sweep_to(folder, u64::MAX)
    }

    /// The inputs of `sweep` that have at most `bytes_max` bytes.
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

    /// The event for one input; the output's key is `output` with the function's suffix.
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

    /// Writes the code to `folder`, with the measuring handler around it, and with `client` in the place of boto3, if one is given.
    pub(crate) fn measured(&self, folder: &Path, client: Option<&str>) -> Result<(), LabError> {
        measured_code(&self.folder, folder, client)
    }

    /// The deployment of `measured` code under another name and with other memory.
    pub(crate) fn deployment<'a>(&self, name: &'a str, code: &'a Path, memory_mb: u64) -> Deployment<'a> {
        let (handler, timeout_s, environment) = (MEASURED_HANDLER, self.timeout_s, BTreeMap::new());
        Deployment { name, code, handler, memory_mb, timeout_s, environment }
    }

    /// Copies the code, with the instrument (`nigh_phases`) beside it, to `target`.
    pub(crate) fn instrumented(&self, instrument: &Path, target: &Path) -> Result<(), LabError> {
        copy_python(&self.folder, target)?;
        copy_python(instrument, &target.join("nigh_phases"))
    }
}

fn copy_python(from: &Path, folder: &Path) -> Result<(), LabError> {
    std::fs::create_dir_all(folder).at(folder)?;
    for path in std::fs::read_dir(from).at(from)?.flatten().map(|entry| entry.path()) {
        if path.extension() == Some("py".as_ref()) {
            let copy = folder.join(path.file_name().unwrap_or_default());
            std::fs::copy(&path, &copy).at(&copy)?;
        }
    }
    Ok(())
}

/// Writes the code in `from` to `folder`, with the measuring handler and the `client` that stands in for boto3, if one does.
pub(crate) fn measured_code(from: &Path, folder: &Path, client: Option<&str>) -> Result<(), LabError> {
    copy_python(from, folder)?;
    for (name, text) in [("measured.py", Some(MEASURED)), ("boto3.py", client)] {
        if let Some(text) = text {
            std::fs::write(folder.join(name), text).at(folder.join(name))?;
        }
    }
    Ok(())
}

/// The bytes of an input below the inputs' folder.
pub(crate) fn read_input(inputs: &Path, name: &str) -> Result<Vec<u8>, LabError> {
    let path = inputs.join(name);
    std::fs::read(&path).map_err(|_| LabError::Missing {
        missing: path.display().to_string(),
        hint: "run `make deps` in the project's folder first",
    })
}

/// All folders below `folder` that a file of this name describes, in the order of their names, each with its description.
pub(crate) fn read_described<T: DeserializeOwned>(folder: &Path, file: &str) -> Result<Vec<(PathBuf, T)>, LabError> {
    let missing = |_| LabError::Missing {
        missing: folder.display().to_string(),
        hint: "run this in the project's folder, where the functions are",
    };
    let mut described = BTreeMap::new();
    for entry in std::fs::read_dir(folder).map_err(missing)?.flatten() {
        let path = entry.path().join(file);
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        described.insert(entry.path(), toml::from_str(&text).at(&path)?);
    }
    Ok(described.into_iter().collect())
}
