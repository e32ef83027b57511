//! The applications of `functions/pipelines/`: a state machine, its input, and objects by size, as `application.toml` describes
//! them. Pure except for reading the files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use nigh_terms::FunctionName;
use nigh_workflow::{self, Definition};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::sample_function::read_described;

/// The folder of a bucket for intermediate objects; the machines name it.
pub(super) const SCRATCH: &str = "scratch";

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Application {
    pub(super) name: String,
    pub(super) memory_mb: u64,
    pub(super) timeout_s: u64,
    #[serde(rename = "size")]
    pub(super) sizes: Vec<Size>,
    #[serde(default)]
    pub(super) shared: Vec<SharedObject>,
    /// Fields of an execution's input beside the objects' keys.
    #[serde(default)]
    input: toml::Table,
    #[serde(skip)]
    pub(super) folder: PathBuf,
    /// The text of `machine.asl.json`.
    #[serde(skip)]
    pub(super) machine: String,
}

/// An input.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Size {
    pub(super) name: String,
    /// Below the folder of the inputs.
    pub(super) file: String,
    /// Taken in the short form.
    #[serde(default)]
    pub(super) quick: bool,
}

/// An object that all executions read.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct SharedObject {
    /// The object's name in the machine's input.
    pub(super) name: String,
    pub(super) file: String,
}

impl Application {
    /// All of `folder`, by name.
    pub(super) fn read_all(folder: &Path) -> Result<Vec<Self>, LabError> {
        let mut applications: Vec<Self> = Vec::new();
        for (folder, application) in read_described::<Self>(folder, "application.toml")? {
            let path = folder.join("machine.asl.json");
            let machine = std::fs::read_to_string(&path).at(&path)?;
            applications.push(Self { folder, machine, ..application });
        }
        Ok(applications)
    }

    pub(super) fn definition(&self) -> Result<Arc<Definition>, LabError> {
        let wrong = |problems: Vec<nigh_workflow::Problem>| {
            let reason = problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            LabError::file(self.folder.join("machine.asl.json"), &reason)
        };
        nigh_workflow::read(&self.machine).map(Arc::new).map_err(wrong)
    }

    /// The state machine's name.
    pub(super) fn deployed(&self) -> String {
        self.name.replace('_', "-")
    }

    /// The function of its code that is deployed as `function`: `extract_metadata` of `thumbnails-extract-metadata`.
    pub(super) fn stage(&self, function: &FunctionName) -> String {
        let own = function.as_str();
        own.strip_prefix(&format!("{}-", self.deployed())).unwrap_or(own).replace('-', "_")
    }

    pub(super) fn input(&self, bucket: &str, input: &str, at_once: usize) -> Value {
        let mut given = json!({
            "bucket": bucket, "input": input, "output": format!("out/{}", self.name), "at_once": at_once,
        });
        for (name, value) in &self.input {
            given[name] = serde_json::to_value(value).unwrap_or_default();
        }
        for shared in &self.shared {
            given[&shared.name] = self.shared_key(shared).into();
        }
        given
    }

    /// The key of an object that all executions read.
    pub(super) fn shared_key(&self, shared: &SharedObject) -> String {
        format!("in/{}/{}", self.name, shared.name)
    }

    /// The key of the input of a size that all scenarios but `nigh_miss` read.
    pub(super) fn input_key(&self, size: &Size) -> String {
        format!("in/{}/{}", self.name, size.name)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn all() -> Vec<Application> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../functions/pipelines");
        Application::read_all(&folder).unwrap()
    }

    #[test]
    fn ofc_s_four_applications_have_machines_whose_tasks_are_functions_of_their_code() {
        let all = all();
        let names: Vec<&str> = all.iter().map(|application| application.name.as_str()).collect();
        assert_eq!(names, ["image_classification", "thumbnails", "video_analysis", "word_count"]);
        for application in &all {
            let functions = application.definition().unwrap().functions();
            let code = std::fs::read_to_string(application.folder.join("app.py")).unwrap();
            assert!(functions.len() >= 3, "{}", application.name);
            for function in &functions {
                let stage = format!("def {}(event, context):", application.stage(function));
                assert!(code.contains(&stage), "{}: {stage}", application.name);
            }
            assert!(application.machine.contains(&format!("'{SCRATCH}/{{}}")), "{}", application.name);
            assert_eq!(application.sizes.iter().filter(|size| size.quick).count(), 1, "{}", application.name);
        }
    }

    #[test]
    fn an_execution_is_given_its_objects_and_what_all_share() {
        let all = all();
        let given = all[0].input("b", "in/x", 2);
        assert_eq!((&given["input"], &given["batch"]), (&Value::from("in/x"), &Value::from(8)));
        assert_eq!(
            (&given["model"], &given["at_once"]),
            (&Value::from("in/image_classification/model"), &Value::from(2))
        );
    }
}
