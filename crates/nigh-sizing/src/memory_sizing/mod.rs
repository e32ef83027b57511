//! The hook that sizes runs: predicts the memory of each run and whether caching pays, and learns from the run's end
//! (OFC section 5).
//!
//! Before a run, the invocation's features go to its function's model. While the model is not mature or not loaded, the
//! run is granted its booking, and its reads feed the cache. After the run, its record becomes a training row, an
//! under-prediction becomes a floor at once, and the keeper is told when to fit again. Nothing here waits, and no
//! invocation fails because of it: unknown features are left out. How the kernel enforces a grant is decided elsewhere.

mod code_version;
mod input_rules;
mod invocation_features;
mod learned_status;
mod loaded_models;
mod model_keeper;
mod observed_need;
mod store_costs;
mod stored_model;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use nigh_engine::Registry;
use nigh_functions::function::{Function, FunctionSource};
use nigh_functions::function_caching;
use nigh_invoke::hooks::{InvocationHook, Run};
use nigh_learn::{Benefit, FeatureRow, Learner, MaturityChange, Need, Predictor, RunPrediction, hash_bytes};
use nigh_schedule::activation::{Activation, Outcome};
use nigh_schedule::inputs::named_objects::NamedObject;
use nigh_schedule::memory::grant::Grant;
use nigh_terms::{Admission, ByteSize, Clock, FunctionName, InvocationId, Namespace};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

pub use self::input_rules::{INPUTS_VARIABLE, InputRules, UnknownInputs};
pub use self::learned_status::LearnedStatus;
pub use self::loaded_models::{LOADED_BYTES_MAX, LOADED_MAX};
pub use self::stored_model::MemorySizingError;

use self::code_version::version;
use self::invocation_features::features;
use self::loaded_models::{LoadedModels, Name, Slot};
use self::model_keeper::{Deployment, JOBS_MAX, Job, Keeper};
use self::store_costs::StoreCosts;
use self::stored_model::ModelShelf;
use crate::object_features::ObjectFeatures;

/// The least grant: the memory of a runtime alone.
const RUNTIME_FLOOR: ByteSize = ByteSize::mib(16);
/// A warm sandbox is granted at least this much above its present use. With a lower limit the kernel would have to
/// search for memory to reclaim.
const BEYOND_USED: ByteSize = ByteSize::mib(4);
/// The unit of grants, in bytes.
const GRANT_STEP: u64 = 1 << 20;
/// The least time between two fits of a mature model.
const REFIT_EVERY: Duration = Duration::from_secs(1);
/// The most running invocations that are tracked. Further ones are not learned from.
const RUNNING_MAX: usize = 16_384;
/// How predictions are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizingMode {
    /// Runs are granted the prediction.
    Grants,
    /// Predictions are reported, and runs are granted their booking.
    Watches,
}

/// What [`MemorySizing`] is made of.
pub struct MemorySizingParts {
    /// Stores models and rows.
    pub registry: Arc<dyn Registry>,
    /// The deployed functions.
    pub functions: Arc<dyn FunctionSource>,
    /// Features of objects.
    pub objects: Arc<dyn ObjectFeatures>,
    /// Fits models.
    pub learner: Learner,
    /// How predictions are used.
    pub mode: SizingMode,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

/// A run that has not ended.
struct RunningInvocation {
    slot: Option<Arc<Slot>>,
    name: Name,
    version: String,
    features: FeatureRow,
    /// The fields of its input, for learning which of them name objects.
    arguments: FeatureRow,
    named: Vec<NamedObject>,
    /// Whether the function declares which fields name objects.
    declared: bool,
    said: Option<ByteSize>,
}

/// A run with its prediction.
struct SizedRun {
    slot: Option<Arc<Slot>>,
    name: Name,
    version: String,
    features: FeatureRow,
    foreseen: RunPrediction,
    /// The prediction and its reason, in words.
    words: String,
}

/// The hook that sizes runs.
pub struct MemorySizing {
    models: Arc<LoadedModels>,
    jobs: mpsc::Sender<Job>,
    objects: Arc<dyn ObjectFeatures>,
    learner: Learner,
    mode: SizingMode,
    clock: Arc<dyn Clock>,
    running: Mutex<HashMap<InvocationId, RunningInvocation>>,
    costs: Mutex<StoreCosts>,
}

impl MemorySizing {
    /// Starts the keeper as a task of the current async runtime. The keeper ends when this hook is dropped.
    #[must_use]
    pub fn new(parts: MemorySizingParts) -> Self {
        Self::bounded(parts, LoadedModels::new(LOADED_MAX, LOADED_BYTES_MAX))
    }

    fn bounded(parts: MemorySizingParts, models: LoadedModels) -> Self {
        let MemorySizingParts { registry, functions, objects, learner, mode, clock } = parts;
        let (jobs, asked) = mpsc::channel(JOBS_MAX);
        let models = Arc::new(models);
        let keeper = Keeper {
            shelf: ModelShelf::new(registry),
            models: Arc::clone(&models),
            functions,
            learner,
            clock: Arc::clone(&clock),
        };
        tokio::spawn(keeper.keep(asked));
        let (running, costs) = (Mutex::default(), Mutex::default());
        Self { models, jobs, objects, learner, mode, clock, running, costs }
    }

    /// The model of a function's deployed version.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    #[boxed]
    pub async fn show(&self, function: &Function) -> Result<LearnedStatus, MemorySizingError> {
        self.ask(|reply| Job::Show(Deployment::of(function), reply)).await
    }

    /// The rows of a function's deployed version, as CSV.
    ///
    /// # Errors
    /// If there are none, or they cannot be read.
    #[boxed]
    pub async fn export(&self, function: &Function) -> Result<String, MemorySizingError> {
        self.ask(|reply| Job::Export(Deployment::of(function), reply)).await
    }

    /// Replaces the rows of a function's deployed version.
    ///
    /// # Errors
    /// If `csv` has no valid rows, or they cannot be stored.
    #[boxed]
    pub async fn import(&self, function: &Function, csv: String) -> Result<LearnedStatus, MemorySizingError> {
        self.ask(|reply| Job::Import(Deployment::of(function), csv, reply)).await
    }

    /// Removes a function's model and rows. False if there were none.
    ///
    /// # Errors
    /// If they cannot be removed.
    #[boxed]
    pub async fn forget(&self, namespace: &Namespace, function: &FunctionName) -> Result<bool, MemorySizingError> {
        let name = (namespace.clone(), function.clone());
        self.ask(|reply| Job::Forget(name, reply)).await
    }

    /// Waits until all models and rows are stored.
    #[boxed]
    pub async fn flush(&self) {
        let (reply, stored) = oneshot::channel();
        if self.jobs.send(Job::Flush(reply)).await.is_ok() {
            // A keeper that has ended has stored everything.
            let _ended = stored.await;
        }
    }

    /// The number of loaded models and their approximate memory.
    #[must_use]
    pub fn at_hand(&self) -> (usize, ByteSize) {
        let (count, bytes) = self.models.taken();
        (count, ByteSize(bytes as u64))
    }

    /// The mode and the learner, in one line for people.
    #[must_use]
    pub fn words(&self) -> String {
        let what = match self.mode {
            SizingMode::Grants => "runs are granted what models predict",
            SizingMode::Watches => "models are only watched, runs are granted what is booked",
        };
        format!("{what}, learned by {}", self.learner)
    }

    async fn ask<T>(
        &self,
        job: impl FnOnce(oneshot::Sender<Result<T, MemorySizingError>>) -> Job,
    ) -> Result<T, MemorySizingError> {
        let (reply, answer) = oneshot::channel();
        self.jobs.send(job(reply)).await.map_err(|_| MemorySizingError::Ended)?;
        answer.await.unwrap_or(Err(MemorySizingError::Ended))
    }

    /// The model of this version if it is loaded. If not, the keeper is asked to load it.
    fn model(&self, name: &Name, version: &str, function: &Function) -> Option<Arc<Slot>> {
        if let Some(slot) = self.models.find(name) {
            let is_it = slot.loaded.lock().predictor.version() == version;
            if is_it {
                return Some(slot);
            }
        }
        // If the keeper's queue is full, a later invocation asks again.
        let _asked_again_later = self.jobs.try_send(Job::Load(Deployment::of(function)));
        None
    }

    /// The features of `run`, its prediction, and the reason in words.
    fn predict(
        &self,
        run: &Run<'_>,
        slot: Option<&Arc<Slot>>,
        version: &str,
    ) -> (FeatureRow, Option<RunPrediction>, String) {
        // A declaration that the door would reject is ignored.
        let declared = InputRules::declared(&run.function.environment).ok().flatten();
        let Some(slot) = slot else {
            let row = features(run, &declared.unwrap_or_default(), &*self.objects);
            return (row, None, "all booked: the model of this code is not loaded yet".to_owned());
        };
        let loaded = slot.loaded.lock();
        let row = features(run, declared.as_ref().unwrap_or(&loaded.rules), &*self.objects);
        let used = run.used_before.map_or(ByteSize::ZERO, |used| used + BEYOND_USED);
        let foreseen = loaded.predictor.foresee(version, &row, RUNTIME_FLOOR.max(used), run.function.memory);
        let words = self.words_of(&foreseen, &loaded.predictor);
        (row, Some(foreseen), words)
    }

    /// A prediction and its reason, in words.
    fn words_of(&self, foreseen: &RunPrediction, predictor: &Predictor) -> String {
        let mut text = String::new();
        let (rows, _, _) = predictor.rows();
        // Writing to a String cannot fail.
        let _ = match (foreseen.need, foreseen.said) {
            (Need::Booked(_), None) => write!(text, "all booked: {rows} runs are known, too few for a model"),
            (Need::Booked(_), Some(said)) => {
                let judged = predictor.maturity().judged();
                write!(text, "all booked: the model is not mature after {judged} predicted runs; it predicts {said}")
            }
            (Need::Learned(need), said) => {
                let (verb, said) = match self.mode {
                    SizingMode::Grants => ("granted", said.unwrap_or(need)),
                    SizingMode::Watches => ("watched only; would be granted", said.unwrap_or(need)),
                };
                write!(text, "{verb} {}: {} of {rows} runs predicts {said}", whole_steps(need), self.learner)
            }
            (Need::Beyond { booked, needed }, _) => write!(
                text,
                "all booked: {} of {rows} runs predicts {needed}, more than the {booked} booked; book {} MiB",
                self.learner,
                needed.mib_ceil()
            ),
        };
        text
    }

    /// Predicts the need of `run` and sets its grant.
    fn size(&self, run: &mut Run<'_>) -> SizedRun {
        let function = run.function;
        let (name, version) = ((function.namespace.clone(), function.name.clone()), version(function));
        let slot = self.model(&name, &version, function);
        let (features, foreseen, words) = self.predict(run, slot.as_ref(), &version);
        let foreseen =
            foreseen.unwrap_or(RunPrediction { need: Need::Booked(function.memory), said: None, benefits: None });
        if let (SizingMode::Grants, Need::Learned(need)) = (self.mode, foreseen.need) {
            run.grant = Grant { memory: whole_steps(need).min(run.grant.booked), ..run.grant };
        }
        run.predicted = foreseen.predicted();
        SizedRun { slot, name, version: version.into_owned(), features, foreseen, words }
    }

    fn learn(&self, running: RunningInvocation, activation: &Activation) {
        let Some(slot) = running.slot.or_else(|| self.models.peek(&running.name)) else { return };
        let times = {
            let mut costs = self.costs.lock();
            costs.learn(&activation.namespace, &activation.data_calls);
            costs.times(activation)
        };
        let mut loaded = slot.loaded.lock();
        if loaded.predictor.version() != running.version {
            return;
        }
        if !running.declared && loaded.rules.learn(&running.named, &running.arguments, &activation.data_calls) {
            loaded.dirty = true;
        }
        if activation.outcome == Outcome::OutOfMemory && activation.granted < activation.booked {
            loaded.predictor.set_floor(&running.features, activation.booked);
            loaded.dirty = true;
        }
        let Some(row) = observed_need::row(activation, running.features, times, running.said) else { return };
        let Ok((learned, row)) = loaded.predictor.ended(&running.version, row) else { return };
        loaded.dirty = true;
        if let Some(row) = row {
            loaded.keep(row);
        }
        let now = self.clock.monotonic();
        let rests = loaded.predictor.maturity().is_mature() && now.since(loaded.fitted_at) < REFIT_EVERY;
        if learned.refit && !loaded.queued && !rests {
            loaded.queued = self.jobs.try_send(Job::Fit(running.name)).is_ok();
        }
        self.models.recount(&slot, &loaded);
        drop(loaded);
        if learned.missed && running.said.is_some() {
            metrics::counter!("nigh_memory_under_predictions_total").increment(1);
        }
        match learned.maturity {
            MaturityChange::None => {}
            MaturityChange::Matured => metrics::counter!("nigh_memory_models_matured_total").increment(1),
            MaturityChange::Unmatured => metrics::counter!("nigh_memory_models_unlearned_total").increment(1),
        }
    }

    fn take_running(&self, invocation: InvocationId) -> Option<RunningInvocation> {
        self.running.lock().remove(&invocation)
    }
}

/// Rounds a grant up to whole steps.
fn whole_steps(need: ByteSize) -> ByteSize {
    ByteSize(need.bytes().div_ceil(GRANT_STEP).saturating_mul(GRANT_STEP))
}

impl InvocationHook for MemorySizing {
    fn name(&self) -> &'static str {
        "sizing"
    }

    fn ahead(&self, run: &mut Run<'_>, _after: Option<InvocationId>) -> Option<String> {
        Some(self.size(run).words)
    }

    fn before_run(&self, run: &mut Run<'_>) -> Option<String> {
        let function = run.function;
        let SizedRun { slot, name, version, features, foreseen, mut words } = self.size(run);
        // A function's own setting overrides the prediction.
        let says = function_caching::said(&function.environment).ok().flatten();
        if let (SizingMode::Grants, Some(false), None) = (self.mode, foreseen.benefits, says) {
            let (admission, said) = if Benefit::explores(hash_bytes(run.invocation.as_bytes())) {
                (Admission::Always, "; caching is not expected to pay, and is tried")
            } else {
                (Admission::Spare, "; caching does not pay: objects go only into free memory")
            };
            run.admission = admission;
            words.push_str(said);
        }
        let walk = run.walk();
        let running = RunningInvocation {
            slot,
            name,
            version,
            features,
            arguments: walk.arguments.clone(),
            named: walk.objects.clone(),
            declared: function.environment.contains_key(INPUTS_VARIABLE),
            said: foreseen.said,
        };
        let mut all = self.running.lock();
        if all.len() < RUNNING_MAX {
            all.insert(run.invocation, running);
        }
        Some(words)
    }

    fn after_run(&self, activation: &Activation) {
        if let Some(running) = self.take_running(activation.id) {
            self.learn(running, activation);
        }
    }

    fn not_run(&self, invocation: InvocationId) {
        drop(self.take_running(invocation));
    }
}

#[cfg(test)]
mod tests;
