//! CASY's figure 1 on this very machine: its four functions on real inputs, alone, and each while the three others run
//! without end on the other processors. It needs no cache allocation.
//!
//! Alone and together take turns, so that what else the machine does meets both. What is compared is the handler's
//! processor time, its input in memory: waiting for a processor is no matter of the cache. Where two processors are
//! threads of one core they share more than the last-level cache, and where the machine is a guest the host's other
//! guests share it too; the report says how many processors there were.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::ProgressBar;
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};

use super::{failed, paper};
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::peer::bare_runtime::BareRuntime;
use crate::instrument::sample_function::SampleFunction;
use crate::instrument::stats::{Estimate, Sample};

/// What stands between the runtime client and a sample function.
const HANDLER: &str = include_str!("local_handler.py");

/// How long the others run before a run beside them counts.
const LEAD: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inputs {
    Smallest,
    Largest,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct RealRuns {
    #[serde(skip)]
    pub(super) function: String,
    /// Below the folder of inputs.
    pub(super) input: String,
    /// Seconds of processor time, the median.
    pub(super) alone: Estimate,
    pub(super) together: Estimate,
    /// Time together over time alone.
    pub(super) ratio: f64,
}

/// What the handler answers with.
#[derive(Deserialize)]
struct HandlerTime {
    processor_s: f64,
}

struct ReadyFunction {
    runtime: BareRuntime,
    event: Vec<u8>,
}

/// Runs them all on this machine, so many rounds each.
pub(super) fn measure(
    project: &Path,
    which: Inputs,
    rounds: usize,
    progress: &ProgressBar,
) -> Result<Vec<RealRuns>, LabError> {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if processors < 2 {
        return Err(LabError::Missing {
            missing: "a second processor".to_owned(),
            hint: "on one processor functions take turns and do not meet in its cache",
        });
    }
    let python = project.join(".deps/python/bin/python3");
    if !python.exists() {
        return Err(LabError::Missing { missing: python.display().to_string(), hint: "run `make deps` first" });
    }
    let functions = SampleFunction::read_all(&project.join("functions"))?;
    let inputs = project.join(".deps/inputs");
    let codes = tempfile::tempdir().at(std::env::temp_dir())?;
    let mut stage = Vec::new();
    for name in paper::FUNCTIONS {
        let found = functions.iter().find(|function| function.name == name);
        let function = found.ok_or_else(|| LabError::Missing {
            missing: format!("the sample function {name}"),
            hint: "run this in the project's folder",
        })?;
        stage.push(Part::of(function, which, &inputs, codes.path(), &python)?);
    }
    progress.set_length((stage.len() * rounds) as u64);
    let mut found = Vec::new();
    for at in 0..stage.len() {
        let others: Vec<_> = (0..stage.len()).filter(|&other| other != at).map(|other| &stage[other]).collect();
        found.push(stage[at].beside(&others, processors, rounds, progress)?);
    }
    Ok(found)
}

struct Part {
    name: String,
    code: PathBuf,
    python: PathBuf,
    input: String,
    file: PathBuf,
    event: Vec<u8>,
}

impl Part {
    fn of(
        function: &SampleFunction,
        which: Inputs,
        inputs: &Path,
        codes: &Path,
        python: &Path,
    ) -> Result<Self, LabError> {
        let input = match which {
            Inputs::Smallest => function.demo.inputs.first(),
            Inputs::Largest => function.demo.inputs.last(),
        };
        let input = input.cloned().unwrap_or_default();
        let file = inputs.join(&input);
        if !file.is_file() {
            return Err(LabError::Missing {
                missing: file.display().to_string(),
                hint: "run `make deps` in the project's folder first",
            });
        }
        let code = codes.join(&function.name);
        std::fs::create_dir(&code)
            .and_then(|()| std::fs::copy(function.folder.join("app.py"), code.join("app.py")))
            .and_then(|_| std::fs::write(code.join("local_handler.py"), HANDLER))
            .at(&code)?;
        let event = function.event("local", &input);
        Ok(Self { name: function.name.clone(), code, python: python.to_owned(), input, file, event })
    }

    /// Stands ready on these processors, warm.
    fn start(&self, processors: std::ops::Range<usize>) -> Result<ReadyFunction, LabError> {
        let cores: Vec<String> = processors.map(|processor| processor.to_string()).collect();
        let environment = BTreeMap::from([
            ("LAB_CORES".to_owned(), cores.join(",")),
            ("LAB_INPUT".to_owned(), self.file.display().to_string()),
            ("AWS_DEFAULT_REGION".to_owned(), "us-east-1".to_owned()),
            ("AWS_ACCESS_KEY_ID".to_owned(), "none".to_owned()),
            ("AWS_SECRET_ACCESS_KEY".to_owned(), "none".to_owned()),
            ("OMP_NUM_THREADS".to_owned(), "1".to_owned()),
        ]);
        let runtime = BareRuntime::start(&self.python, &self.code, "local_handler.handler", &environment)?;
        let mut ready = ReadyFunction { runtime, event: self.event.clone() };
        ready.run(&self.name, &self.input)?;
        Ok(ready)
    }

    /// Its runs alone and beside the others, in turns. It has the first processor, they have the rest.
    fn beside(
        &self,
        others: &[&Self],
        processors: usize,
        rounds: usize,
        progress: &ProgressBar,
    ) -> Result<RealRuns, LabError> {
        progress.set_message(self.name.clone());
        let mut ready = self.start(0..1)?;
        let noise = Noise::of(others.iter().map(|other| other.start(1..processors)).collect::<Result<_, _>>()?);
        let (mut alone, mut together) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            noise.hush();
            alone.push(ready.run(&self.name, &self.input)?);
            noise.sound();
            std::thread::sleep(LEAD);
            together.push(ready.run(&self.name, &self.input)?);
            progress.inc(1);
        }
        noise.end(&self.name)?;
        let (alone, together) = (Sample::new(alone).median_estimate(1), Sample::new(together).median_estimate(2));
        let ratio = together.value / alone.value;
        Ok(RealRuns { function: self.name.clone(), input: self.input.clone(), alone, together, ratio })
    }
}

impl ReadyFunction {
    fn run(&mut self, function: &str, input: &str) -> Result<f64, LabError> {
        let failed =
            |reason: String| LabError::Function { function: function.to_owned(), input: input.to_owned(), reason };
        let answer = self.runtime.invoke(&self.event).map_err(|error| failed(error.to_string()))?;
        let text = String::from_utf8_lossy(&answer.payload).into_owned();
        if !answer.succeeded {
            return Err(failed(text));
        }
        let answer: HandlerTime = serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?;
        Ok(answer.processor_s)
    }
}

/// Functions that run again and again while they are let.
struct Noise {
    may_run: Arc<Gate>,
    threads: Vec<JoinHandle<Result<(), LabError>>>,
}

#[derive(Default)]
struct Gate {
    /// Whether they may run, and how many do.
    state: Mutex<(bool, usize)>,
    changed: Condvar,
    is_over: AtomicBool,
}

impl Noise {
    fn of(ready: Vec<ReadyFunction>) -> Self {
        let may_run = Arc::<Gate>::default();
        let threads = ready.into_iter().map(|mut ready| {
            let gate = Arc::clone(&may_run);
            std::thread::spawn(move || {
                while gate.enter() {
                    let ran = ready.run("a neighbour", "its input");
                    gate.leave();
                    ran?;
                }
                Ok(())
            })
        });
        Self { threads: threads.collect(), may_run }
    }

    /// Returns when none runs.
    fn hush(&self) {
        let mut state = self.may_run.state.lock();
        state.0 = false;
        while state.1 > 0 {
            self.may_run.changed.wait(&mut state);
        }
    }

    fn sound(&self) {
        self.may_run.state.lock().0 = true;
        self.may_run.changed.notify_all();
    }

    /// Ends them; an error if one could not run.
    fn end(mut self, beside: &str) -> Result<(), LabError> {
        self.may_run.end();
        for thread in self.threads.drain(..) {
            let panicked = |_| failed(&format!("what runs beside {beside}"), &"its thread ended by a panic");
            thread.join().map_err(panicked)??;
        }
        Ok(())
    }
}

impl Drop for Noise {
    fn drop(&mut self) {
        self.may_run.end();
    }
}

impl Gate {
    /// Waits until it may run; `false` if it is over.
    fn enter(&self) -> bool {
        let mut state = self.state.lock();
        loop {
            if self.is_over.load(Ordering::Relaxed) {
                return false;
            }
            if state.0 {
                state.1 += 1;
                return true;
            }
            self.changed.wait(&mut state);
        }
    }

    fn leave(&self) {
        self.state.lock().1 -= 1;
        self.changed.notify_all();
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Whoever is about to wait holds the lock: it sees the end or is woken.
        drop(self.state.lock());
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_four_run_on_this_machine_alone_and_together() {
        let test = "the_four_run_on_this_machine_alone_and_together";
        let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        match measure(&project, Inputs::Smallest, 1, &ProgressBar::hidden()) {
            Ok(rows) => {
                assert_eq!(rows.iter().map(|row| row.function.as_str()).collect::<Vec<_>>(), paper::FUNCTIONS);
                assert!(rows.iter().all(|row| row.alone.value > 0.0 && row.together.value > 0.0), "{rows:?}");
            }
            Err(LabError::Missing { missing, hint }) => println!("SKIPPED: {test}: {missing} is missing; {hint}"),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn what_is_hushed_does_not_run() {
        let gate = Arc::<Gate>::default();
        let runs = {
            let gate = Arc::clone(&gate);
            std::thread::spawn(move || {
                let mut runs = 0;
                while gate.enter() {
                    runs += 1;
                    gate.leave();
                    std::thread::yield_now();
                }
                runs
            })
        };
        let noise = Noise { may_run: gate, threads: Vec::new() };
        noise.hush();
        assert_eq!(noise.may_run.state.lock().1, 0);
        noise.sound();
        std::thread::sleep(Duration::from_millis(20));
        noise.hush();
        assert_eq!(noise.may_run.state.lock().1, 0);
        noise.end("nobody").unwrap();
        assert!(runs.join().unwrap() > 0);
    }
}
