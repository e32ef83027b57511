//! Stages as processes of their own under the vendor's runtime client, without a platform: against an S3 server, or Redis.

use std::collections::BTreeMap;
use std::path::Path;

use super::StageInvocation;
use super::pipeline::Pipeline;
use crate::LabError;
use crate::instrument::peer::bare_runtime::BareRuntime;

/// The stages' handler.
pub(super) const STAGE_HANDLER: &str = "measured.stage";

/// One workflow's processes: of each function as many as run at the same time.
pub(super) struct BareSide {
    processes: BTreeMap<String, Vec<BareRuntime>>,
}

impl BareSide {
    /// Starts them with the workflow's `code`.
    pub(super) fn start(
        python: &Path,
        pipeline: &Pipeline,
        code: &Path,
        environment: &BTreeMap<String, String>,
    ) -> Result<Self, LabError> {
        let mut processes = BTreeMap::new();
        for function in pipeline.functions() {
            let start = |_| BareRuntime::start(python, code, STAGE_HANDLER, environment);
            let started: Result<Vec<_>, _> = (0..pipeline.at_once(function)).map(start).collect();
            processes.insert(pipeline.deployed(function), started?);
        }
        Ok(Self { processes })
    }

    /// Gives each event to a process of its function, at the same time.
    pub(super) fn invoke(&mut self, calls: &[(String, Vec<u8>)]) -> Result<Vec<StageInvocation>, LabError> {
        let failure =
            |function: &str, reason| LabError::Function { function: function.to_owned(), input: String::new(), reason };
        let mut ready = Vec::new();
        for (function, event) in calls {
            let idle = self.processes.get_mut(function).and_then(Vec::pop);
            ready.push((function, idle.ok_or_else(|| failure(function, "no process is idle".to_owned()))?, event));
        }
        let played: Vec<_> = std::thread::scope(|scope| {
            let play = |(function, mut process, event): (_, BareRuntime, &Vec<u8>)| {
                let answer = process.invoke(event);
                (function, process, answer)
            };
            let calls: Vec<_> = ready.into_iter().map(|one| scope.spawn(move || play(one))).collect();
            calls.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
        });
        let mut answers = Vec::new();
        for ended in played {
            let (function, process, answer) =
                ended.map_err(|_| LabError::Node("an invocation's thread has ended".to_owned()))?;
            self.processes.entry(function.clone()).or_default().push(process);
            let answer = answer.map_err(|error| failure(function, error.to_string()))?;
            if !answer.succeeded {
                return Err(failure(function, String::from_utf8_lossy(&answer.payload).into_owned()));
            }
            answers.push(StageInvocation { payload: answer.payload, took: answer.took });
        }
        Ok(answers)
    }
}
