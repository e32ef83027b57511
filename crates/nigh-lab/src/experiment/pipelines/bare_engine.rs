//! A state machine over bare processes: the code that decides on a node decides here, and the vendor's runtime client runs the
//! tasks, without sandboxes, doors or records.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use nigh_terms::{Clock as _, FunctionName, InvocationId, SystemClock, Token};
use nigh_workflow::Definition;
use nigh_workflow::event::{Command, Event, ExecutionEvent, Facts, Outcome, TaskEnd, TaskRun};
use nigh_workflow::run::Run;
use parking_lot::Mutex;
use serde_json::Value;

use super::stage::{Execution, Figures};
use crate::LabError;
use crate::instrument::bare_pool::BarePool;

/// How late a process's output may come.
const LOG_WITHIN: Duration = Duration::from_secs(2);
/// The longest wait for an event: an invocation's own limit is less.
const PATIENCE: Duration = Duration::from_secs(300);

/// The processes of one application against one store.
pub(super) struct BareEngine {
    pub(super) pool: BarePool,
    pub(super) code: PathBuf,
    pub(super) handlers: BTreeMap<FunctionName, String>,
    /// The times of the tasks of the execution under way.
    pub(super) figures: Mutex<Vec<Figures>>,
}

impl BareEngine {
    /// Runs an execution of `definition` to its end.
    pub(super) fn execute(
        &self,
        definition: &Arc<Definition>,
        name: &str,
        input: &Value,
    ) -> Result<Execution, LabError> {
        let clock = SystemClock::new();
        let facts = Facts {
            id: *InvocationId::now().as_bytes(),
            arn: format!("arn:aws:states:us-east-1:000000000000:execution:bare:{name}"),
            name: name.to_owned(),
            machine_arn: "arn:aws:states:us-east-1:000000000000:stateMachine:bare".to_owned(),
            machine: "bare".to_owned(),
            role: String::new(),
            started: clock.wall(),
        };
        let failed =
            |reason: String| LabError::Function { function: name.to_owned(), input: input.to_string(), reason };
        let (began, mut tasks) = (Instant::now(), 0);
        let (mut run, mut commands) = Run::start(Arc::clone(definition), facts, input.clone(), Token::empty(), false);
        let (tell, ended) = channel();
        let outcome = std::thread::scope(|scope| {
            loop {
                for command in commands {
                    // A task that nobody waits for runs to its end.
                    let Command::Invoke(task) = command else { continue };
                    tasks += 1;
                    let tell = tell.clone();
                    scope.spawn(move || {
                        let end = self.invoke(&task);
                        // Nobody listens when the execution has ended.
                        let _ = tell.send(ExecutionEvent::Ended { task: task.task, end, token: Token::empty() });
                    });
                }
                if let Some(outcome) = run.outcome() {
                    return Ok(outcome.clone());
                }
                let wait = run.wake_at().map(|at| Duration::from_millis(at.0.saturating_sub(clock.wall().0)));
                let what = match ended.recv_timeout(wait.unwrap_or(PATIENCE)) {
                    Ok(what) => what,
                    Err(RecvTimeoutError::Timeout) if wait.is_some() => ExecutionEvent::Time,
                    Err(error) => return Err(failed(error.to_string())),
                };
                commands = run.apply(&Event { at: clock.wall(), what });
            }
        })?;
        let took = began.elapsed();
        match outcome {
            Outcome::Succeeded { output } => Ok(Execution { output, took, figures: self.printed(tasks), misses: 0 }),
            other => Err(failed(format!("{other:?}"))),
        }
    }

    fn invoke(&self, task: &TaskRun) -> TaskEnd {
        let handler = self.handlers.get(&task.function).map_or("", String::as_str);
        let event = task.payload.to_string();
        let answer = self.pool.invoke(task.function.as_str(), (&self.code, handler), event.as_bytes());
        let answered = answer.and_then(|(answer, _)| {
            self.figures.lock().extend(Figures::read(answer.log.iter().map(String::as_str)));
            serde_json::from_slice(&answer.payload).map_err(|error| error.to_string())
        });
        answered.map_or_else(|cause| TaskEnd::Failed { error: "Bare".to_owned(), cause }, TaskEnd::Answered)
    }

    /// The figures that the processes have printed of their `tasks`.
    fn printed(&self, tasks: usize) -> Vec<Figures> {
        let (begun, mut figures) = (Instant::now(), std::mem::take(&mut *self.figures.lock()));
        while figures.len() < tasks && begun.elapsed() <= LOG_WITHIN {
            std::thread::sleep(Duration::from_millis(1));
            figures.extend(Figures::read(self.pool.take_logs().iter().map(String::as_str)));
        }
        figures
    }
}
