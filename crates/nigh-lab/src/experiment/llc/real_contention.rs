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
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::ProgressBar;
use parking_lot::{RwLock, RwLockWriteGuard};
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
        let noise = Noise::default();
        let others = others.iter().map(|other| other.start(1..processors)).collect::<Result<Vec<_>, _>>()?;
        let others =
            others.into_iter().map(|mut other| noise.repeat(move || other.run("a neighbour", "its input").map(drop)));
        let others: Vec<_> = others.collect();
        let (mut alone, mut together) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let hushed = noise.hush();
            alone.push(ready.run(&self.name, &self.input)?);
            drop(hushed);
            std::thread::sleep(LEAD);
            together.push(ready.run(&self.name, &self.input)?);
            progress.inc(1);
        }
        noise.end();
        for other in others {
            let panicked = |_| failed(&format!("what runs beside {}", self.name), &"its thread ended by a panic");
            other.join().map_err(panicked)??;
        }
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

/// Lets functions run again and again, except while they are hushed.
#[derive(Default)]
struct Noise {
    /// Whether it is over; whoever runs holds the lock to read it.
    is_over: Arc<RwLock<bool>>,
}

impl Noise {
    /// Runs again and again, in a thread of its own.
    fn repeat(
        &self,
        mut run: impl FnMut() -> Result<(), LabError> + Send + 'static,
    ) -> JoinHandle<Result<(), LabError>> {
        let is_over = Arc::clone(&self.is_over);
        std::thread::spawn(move || {
            loop {
                let is_over = is_over.read();
                if *is_over {
                    return Ok(());
                }
                run()?;
            }
        })
    }

    /// Waits until none runs, and lets none begin until the guard is dropped.
    fn hush(&self) -> RwLockWriteGuard<'_, bool> {
        self.is_over.write()
    }

    fn end(&self) {
        *self.is_over.write() = true;
    }
}

impl Drop for Noise {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::skipped::skip;

    #[test]
    fn the_four_run_on_this_machine_alone_and_together() {
        let test = "the_four_run_on_this_machine_alone_and_together";
        let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        match measure(&project, Inputs::Smallest, 1, &ProgressBar::hidden()) {
            Ok(rows) => {
                assert_eq!(rows.iter().map(|row| row.function.as_str()).collect::<Vec<_>>(), paper::FUNCTIONS);
                assert!(rows.iter().all(|row| row.alone.value > 0.0 && row.together.value > 0.0), "{rows:?}");
            }
            Err(LabError::Missing { missing, hint }) => skip(test, format_args!("{missing} is missing; {hint}")),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn what_is_hushed_does_not_run() {
        let (noise, runs) = (Noise::default(), Arc::<AtomicU32>::default());
        let counted = Arc::clone(&runs);
        let thread = noise.repeat(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            std::thread::yield_now();
            Ok(())
        });
        let mut before = 0;
        for _ in 0..2 {
            let hushed = noise.hush();
            let now = runs.load(Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(runs.load(Ordering::Relaxed), now);
            drop(hushed);
            std::thread::sleep(Duration::from_millis(20));
            before = now;
        }
        noise.end();
        thread.join().unwrap().unwrap();
        assert!(runs.load(Ordering::Relaxed) > before);
    }
}
