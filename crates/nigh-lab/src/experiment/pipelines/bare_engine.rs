//! A state machine over bare processes: what is to be done is decided by the code that decides it on a node, and done by the
//! vendor's runtime client, without sandboxes, doors or records.

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

use super::figures::Figures;
use crate::LabError;
use crate::instrument::peer::bare_runtime::BareRuntime;

/// How late what a process printed may come.
const LOG_WITHIN: Duration = Duration::from_secs(2);
/// Nothing happens for longer: an invocation's own limit is less.
const PATIENCE: Duration = Duration::from_secs(300);

/// The processes of one application against one store: as many of each function as ran at a time.
pub(super) struct BareEngine {
    pub(super) python: PathBuf,
    pub(super) code: PathBuf,
    pub(super) environment: BTreeMap<String, String>,
    /// The handler of each function.
    pub(super) handlers: BTreeMap<FunctionName, String>,
    pub(super) idle: Mutex<BTreeMap<FunctionName, Vec<BareRuntime>>>,
    /// What tasks of the execution under way have told.
    pub(super) told: Mutex<Vec<Figures>>,
}

/// An execution at its end.
pub(super) struct BareExecution {
    pub(super) output: Value,
    pub(super) took: Duration,
    pub(super) figures: Vec<Figures>,
}

impl BareEngine {
    /// Runs an execution of `definition` to its end.
    pub(super) fn execute(
        &self,
        definition: &Arc<Definition>,
        name: &str,
        input: Value,
    ) -> Result<BareExecution, LabError> {
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
                    // What nobody waits for any more goes on to its end.
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
            Outcome::Succeeded { output } => Ok(BareExecution { output, took, figures: self.printed(tasks) }),
            other => Err(failed(format!("{other:?}"))),
        }
    }

    /// Gives a task to an idle process of its function, or to one more.
    fn invoke(&self, task: &TaskRun) -> TaskEnd {
        let failed = |cause: String| TaskEnd::Failed { error: "Bare".to_owned(), cause };
        let idle = self.idle.lock().get_mut(&task.function).and_then(Vec::pop);
        let started = idle.map_or_else(|| self.start(&task.function), Ok);
        let mut process = match started {
            Ok(process) => process,
            Err(error) => return failed(error.to_string()),
        };
        let answer = process.invoke(task.payload.to_string().as_bytes());
        let ended = match answer {
            Ok(answer) => {
                self.told.lock().extend(Figures::read(answer.log.iter().map(String::as_str)));
                match serde_json::from_slice(&answer.payload) {
                    Ok(value) if answer.succeeded => TaskEnd::Answered(value),
                    _ => failed(String::from_utf8_lossy(&answer.payload).into_owned()),
                }
            }
            Err(error) => return failed(error.to_string()),
        };
        self.idle.lock().entry(task.function.clone()).or_default().push(process);
        ended
    }

    fn start(&self, function: &FunctionName) -> Result<BareRuntime, LabError> {
        let handler = self.handlers.get(function).ok_or_else(|| LabError::Function {
            function: function.to_string(),
            input: String::new(),
            reason: "the application has no such function".to_owned(),
        })?;
        Ok(BareRuntime::start(&self.python, &self.code, handler, &self.environment)?)
    }

    /// What the processes have printed of their `tasks`.
    fn printed(&self, tasks: usize) -> Vec<Figures> {
        let (begun, mut figures) = (Instant::now(), std::mem::take(&mut *self.told.lock()));
        loop {
            for process in self.idle.lock().values().flatten() {
                let lines = process.take_log();
                figures.extend(Figures::read(lines.iter().map(String::as_str)));
            }
            if figures.len() >= tasks || begun.elapsed() > LOG_WITHIN {
                return figures;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
