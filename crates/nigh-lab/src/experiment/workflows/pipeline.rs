//! The pipelines of `functions/pipelines/`, as `pipeline.toml` describes them, and the events of their stages. Pure except for
//! reading the files.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::LabError;
use crate::instrument::sample_function::read_described;

/// A workflow: steps one after another, each of stages that run at the same time.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Pipeline {
    pub(super) name: String,
    pub(super) memory_mb: u64,
    pub(super) timeout_s: u64,
    #[serde(rename = "input")]
    pub(super) inputs: Vec<PipelineInput>,
    #[serde(rename = "step")]
    pub(super) steps: Vec<Step>,
    #[serde(skip)]
    pub(super) folder: PathBuf,
}

/// How durable intermediate objects are: those that one stage writes and another reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IntermediateMode {
    /// A crash may lose intermediate objects, where the side has such a mode.
    InMemory,
    /// Intermediate objects are as durable as all others.
    Durable,
}

/// The prefix of the keys of objects that a crash may lose.
pub(super) const IN_MEMORY: &str = "between/";

/// An object that is put before the first step.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct PipelineInput {
    pub(super) name: String,
    /// Below the folder of the inputs.
    pub(super) file: PathBuf,
    /// All runs share one object. If false, each run has its own.
    #[serde(default)]
    pub(super) shared: bool,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Step {
    #[serde(rename = "stage")]
    pub(super) stages: Vec<Stage>,
}

/// One invocation of a workflow.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Stage {
    /// The function of the pipeline's code.
    pub(super) name: String,
    #[serde(default)]
    read: Vec<String>,
    #[serde(default)]
    write: Vec<String>,
}

impl Pipeline {
    /// All of `folder`, by name.
    pub(super) fn read_all(folder: &Path) -> Result<Vec<Self>, LabError> {
        let described = read_described(folder, "pipeline.toml")?;
        Ok(described.into_iter().map(|(folder, pipeline)| Self { folder, ..pipeline }).collect())
    }

    /// The functions of the stages, each once, in the order of first use.
    pub(super) fn functions(&self) -> Vec<&str> {
        let mut functions = Vec::new();
        for stage in self.steps.iter().flat_map(|step| &step.stages) {
            if !functions.contains(&stage.name.as_str()) {
                functions.push(&stage.name);
            }
        }
        functions
    }

    /// The name under which a stage's function is deployed.
    pub(super) fn deployed(&self, function: &str) -> String {
        format!("{}-{function}", self.name).replace('_', "-")
    }

    pub(super) fn key(&self, (run, between): (&str, IntermediateMode), name: &str) -> String {
        let shared = self.inputs.iter().any(|input| input.name == name && input.shared);
        let run = if shared { "shared" } else { run };
        let in_memory = between == IntermediateMode::InMemory && self.is_between(name);
        format!("{}{}/{run}/{name}", if in_memory { IN_MEMORY } else { "" }, self.name)
    }

    /// A stage writes it and another reads it.
    fn is_between(&self, name: &str) -> bool {
        let stages = || self.steps.iter().flat_map(|step| &step.stages);
        let has = |names: &[String]| names.iter().any(|one| one == name);
        stages().any(|stage| has(&stage.write)) && stages().any(|stage| has(&stage.read))
    }

    /// The event of `stage` in one run, after a step that answered `previous`.
    pub(super) fn event(
        &self,
        bucket: &str,
        run: (&str, IntermediateMode),
        stage: &Stage,
        previous: &[Value],
    ) -> Vec<u8> {
        let keys = |names: &[String]| -> serde_json::Map<String, Value> {
            names.iter().map(|name| (name.clone(), self.key(run, name).into())).collect()
        };
        let (read, write) = (keys(&stage.read), keys(&stage.write));
        json!({"stage": stage.name, "bucket": bucket, "read": read, "write": write, "previous": previous})
            .to_string()
            .into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Pipeline> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../functions/pipelines");
        Pipeline::read_all(&folder).unwrap()
    }

    #[test]
    fn apta_s_six_workflows_are_described_and_what_a_stage_reads_was_there_or_written_before() {
        let all = all();
        let names: Vec<&str> = all.iter().map(|pipeline| pipeline.name.as_str()).collect();
        assert_eq!(names, ["finra", "image_prediction", "phi", "sentiment", "sparse_gemm", "video"]);
        for pipeline in &all {
            let mut there: Vec<&String> = pipeline.inputs.iter().map(|input| &input.name).collect();
            for step in &pipeline.steps {
                for stage in &step.stages {
                    assert!(stage.read.iter().all(|name| there.contains(&name)), "{} {stage:?}", pipeline.name);
                }
                there.extend(step.stages.iter().flat_map(|stage| &stage.write));
            }
        }
    }

    #[test]
    fn an_event_names_the_objects_of_its_run_and_what_all_runs_share() {
        let all = all();
        let image = all.iter().find(|pipeline| pipeline.name == "image_prediction").unwrap();
        let predict = &image.steps[1].stages[0];
        let event = |between| -> Value {
            serde_json::from_slice(&image.event("b", ("7", between), predict, &[json!({"bytes": 1})])).unwrap()
        };
        assert_eq!(event(IntermediateMode::InMemory)["read"]["small"], "between/image_prediction/7/small");
        let event = event(IntermediateMode::Durable);
        assert_eq!(event["read"]["small"], "image_prediction/7/small");
        assert_eq!(event["read"]["model"], "image_prediction/shared/model");
        assert_eq!(event["previous"][0]["bytes"], 1);
        assert_eq!(image.functions(), ["resize", "predict", "render"]);
    }

    #[test]
    fn a_function_is_deployed_under_the_name_of_its_workflow() {
        let all = all();
        let gemm = all.iter().find(|pipeline| pipeline.name == "sparse_gemm").unwrap();
        assert_eq!(gemm.deployed("mapper"), "sparse-gemm-mapper");
    }
}
