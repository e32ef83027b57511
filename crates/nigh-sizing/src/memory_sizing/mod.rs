//! Sizes each run: foretells the memory that it needs and whether caching pays, and learns from its end (OFC section 5).
//!
//! Before a run the features of the invocation are looked up and its function's model is asked; while that is not mature,
//! or not at hand, all that is booked is granted and what is read feeds the cache. After it the record becomes a row, a
//! miss a floor at once, and the keeper is told when it is time to fit again. Nothing here waits for anything, and no
//! invocation fails by it: what cannot be known is left out. What the kernel does about a grant is not decided here.

mod input_rules;
mod invocation_features;
mod learned_status;
mod loaded_models;
mod model_keeper;
mod observed_need;
mod store_costs;
mod stored_model;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

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

use self::invocation_features::features;
use self::loaded_models::{LoadedModels, Name, Slot};
use self::model_keeper::{Deployment, JOBS_MAX, Job, Keeper};
use self::store_costs::StoreCosts;
use self::stored_model::ModelShelf;
use crate::object_features::ObjectFeatures;

/// No sandbox is granted less: what a runtime takes by itself.
const RUNTIME_FLOOR: ByteSize = ByteSize::mib(16);
/// What a warm sandbox is granted at least beyond what it uses already: a limit below that would cost the kernel a search.
const BEYOND_USED: ByteSize = ByteSize::mib(4);
/// Grants are whole multiples of this.
const GRANT_STEP: u64 = 1 << 20;
/// The model of a function that may be believed is fitted anew this often at most.
const REFIT_EVERY: Duration = Duration::from_secs(1);
/// Runs whose ends are awaited; further ones are not learned from.
const RUNNING_MAX: usize = 16_384;
/// A version's name in models: that of its archive, and what its layers are.
const VERSION_BYTES_MAX: usize = 100;

/// What is done with what is foretold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizingMode {
    /// It is granted.
    Grants,
    /// It is said, and all that is booked is granted.
    Watches,
}

/// What sizing stands on.
pub struct MemorySizingParts {
    /// Keeps what is learned.
    pub registry: Arc<dyn Registry>,
    /// Which functions there are.
    pub functions: Arc<dyn FunctionSource>,
    /// What is known of objects.
    pub objects: Arc<dyn ObjectFeatures>,
    /// How models are fitted.
    pub learner: Learner,
    /// Whether runs are sized by them.
    pub mode: SizingMode,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

/// A run whose end is awaited.
struct InCourse {
    slot: Option<Arc<Slot>>,
    name: Name,
    version: String,
    features: FeatureRow,
    /// What its input says, for learning which of it names inputs.
    arguments: FeatureRow,
    named: Vec<NamedObject>,
    /// Its function says itself where its inputs stand.
    declared: bool,
    said: Option<ByteSize>,
}

/// What is foretold of a run.
struct SizedRun {
    slot: Option<Arc<Slot>>,
    name: Name,
    version: String,
    features: FeatureRow,
    foreseen: RunPrediction,
    /// In words, why.
    words: String,
}

/// The station that sizes runs.
pub struct MemorySizing {
    models: Arc<LoadedModels>,
    jobs: mpsc::Sender<Job>,
    objects: Arc<dyn ObjectFeatures>,
    learner: Learner,
    mode: SizingMode,
    clock: Arc<dyn Clock>,
    running: Mutex<HashMap<InvocationId, InCourse>>,
    costs: Mutex<StoreCosts>,
}

impl MemorySizing {
    /// The station, and its keeper, a task of the runtime that this is called in; it ends when the station is dropped.
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

    /// What is learned of a function as it is deployed.
    ///
    /// # Errors
    /// If nothing is, or it cannot be read.
    pub async fn show(&self, function: &Function) -> Result<LearnedStatus, MemorySizingError> {
        self.ask(|reply| Job::Show(deployment(function), reply)).await
    }

    /// The rows of a function as it is deployed, as CSV.
    ///
    /// # Errors
    /// If there are none, or they cannot be read.
    pub async fn export(&self, function: &Function) -> Result<String, MemorySizingError> {
        self.ask(|reply| Job::Export(deployment(function), reply)).await
    }

    /// Learns rows, of a function as it is deployed, in the place of those that it has.
    ///
    /// # Errors
    /// If they are no rows, or cannot be stored.
    pub async fn import(&self, function: &Function, csv: String) -> Result<LearnedStatus, MemorySizingError> {
        self.ask(|reply| Job::Import(deployment(function), csv, reply)).await
    }

    /// Forgets what is learned of a function; false if nothing was.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub async fn forget(&self, namespace: &Namespace, function: &FunctionName) -> Result<bool, MemorySizingError> {
        let name = (namespace.clone(), function.clone());
        self.ask(|reply| Job::Forget(name, reply)).await
    }

    /// Returns when all that was learned is stored.
    pub async fn flush(&self) {
        let (reply, stored) = oneshot::channel();
        if self.jobs.send(Job::Flush(reply)).await.is_ok() {
            // A keeper that has ended has stored it.
            let _ended = stored.await;
        }
    }

    /// How many models are at hand, and what they take, about.
    #[must_use]
    pub fn at_hand(&self) -> (usize, ByteSize) {
        let (count, bytes) = self.models.taken();
        (count, ByteSize(bytes as u64))
    }

    /// How runs are sized, in one line for people.
    #[must_use]
    pub fn words(&self) -> String {
        let what = match self.mode {
            SizingMode::Grants => "runs are granted what models say",
            SizingMode::Watches => "models only watch, runs are granted what is booked",
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

    /// The model of this version, if it is at hand; else the keeper is asked for it.
    fn model(&self, name: &Name, version: &str, function: &Function) -> Option<Arc<Slot>> {
        if let Some(slot) = self.models.find(name) {
            let is_it = slot.loaded.lock().predictor.version() == version;
            if is_it {
                return Some(slot);
            }
        }
        // Where many ask, a later invocation asks again.
        let _asked_again_later = self.jobs.try_send(Job::Load(deployment(function)));
        None
    }

    /// What is foretold of `run`, with its features.
    fn foresee(
        &self,
        run: &Run<'_>,
        slot: Option<&Arc<Slot>>,
        version: &str,
    ) -> (FeatureRow, Option<RunPrediction>, String) {
        // A word that the door would refuse says nothing.
        let declared = InputRules::declared(&run.function.environment).ok().flatten();
        let Some(slot) = slot else {
            let row = features(run, &declared.unwrap_or_default(), &*self.objects);
            return (row, None, "all booked: what is learned of its code is not at hand yet".to_owned());
        };
        let loaded = slot.loaded.lock();
        let row = features(run, declared.as_ref().unwrap_or(&loaded.rules), &*self.objects);
        let used = run.used_before.map_or(ByteSize::ZERO, |used| used + BEYOND_USED);
        let foreseen = loaded.predictor.foresee(version, &row, RUNTIME_FLOOR.max(used), run.function.memory);
        let words = self.words_of(&foreseen, &loaded.predictor);
        (row, Some(foreseen), words)
    }

    /// What is foretold, and why, in words.
    fn words_of(&self, foreseen: &RunPrediction, predictor: &Predictor) -> String {
        let mut text = String::new();
        let (rows, _, _) = predictor.rows();
        // Writing to a text cannot fail.
        let _ = match (foreseen.need, foreseen.said) {
            (Need::Booked(_), None) => write!(text, "all booked: {rows} runs are known, too few for a model"),
            (Need::Booked(_), Some(said)) => {
                let judged = predictor.maturity().judged();
                write!(text, "all booked: the model is not mature after {judged} runs that it foretold; it says {said}")
            }
            (Need::Learned(need), said) => {
                let (verb, said) = match self.mode {
                    SizingMode::Grants => ("granted", said.unwrap_or(need)),
                    SizingMode::Watches => ("watched only; would be granted", said.unwrap_or(need)),
                };
                write!(text, "{verb} {}: {} of {rows} runs says {said}", whole_steps(need), self.learner)
            }
            (Need::Beyond { booked, needed }, _) => write!(
                text,
                "all booked: {} of {rows} runs says {needed}, more than the {booked} booked; book {} MiB",
                self.learner,
                needed.mib_ceil()
            ),
        };
        text
    }

    /// Has `run` granted what is foretold of it.
    fn size(&self, run: &mut Run<'_>) -> SizedRun {
        let function = run.function;
        let (name, version) = ((function.namespace.clone(), function.name.clone()), version(function));
        let slot = self.model(&name, &version, function);
        let (features, foreseen, words) = self.foresee(run, slot.as_ref(), &version);
        let foreseen =
            foreseen.unwrap_or(RunPrediction { need: Need::Booked(function.memory), said: None, benefits: None });
        if let (SizingMode::Grants, Need::Learned(need)) = (self.mode, foreseen.need) {
            run.grant = Grant { memory: whole_steps(need).min(run.grant.booked), ..run.grant };
        }
        SizedRun { slot, name, version: version.into_owned(), features, foreseen, words }
    }

    fn learn(&self, course: InCourse, activation: &Activation) {
        let Some(slot) = course.slot.or_else(|| self.models.peek(&course.name)) else { return };
        let times = {
            let mut costs = self.costs.lock();
            costs.learn(&activation.namespace, &activation.data_calls);
            costs.times(activation)
        };
        let mut loaded = slot.loaded.lock();
        if loaded.predictor.version() != course.version {
            return;
        }
        if !course.declared && loaded.rules.learn(&course.named, &course.arguments, &activation.data_calls) {
            loaded.dirty = true;
        }
        if activation.outcome == Outcome::OutOfMemory && activation.granted < activation.booked {
            loaded.predictor.set_floor(&course.features, activation.booked);
            loaded.dirty = true;
        }
        let Some(row) = observed_need::row(activation, course.features, times, course.said) else { return };
        let Ok((learned, row)) = loaded.predictor.ended(&course.version, row) else { return };
        loaded.dirty = true;
        if let Some(row) = row {
            loaded.keep(row);
        }
        let now = self.clock.monotonic();
        let rests = loaded.predictor.maturity().is_mature() && now.since(loaded.fitted_at) < REFIT_EVERY;
        if learned.refit && !loaded.queued && !rests {
            loaded.queued = self.jobs.try_send(Job::Fit(course.name)).is_ok();
        }
        self.models.recount(&slot, &loaded);
        drop(loaded);
        if learned.missed && course.said.is_some() {
            metrics::counter!("nigh_memory_missed_total").increment(1);
        }
        match learned.maturity {
            MaturityChange::None => {}
            MaturityChange::Matured => metrics::counter!("nigh_memory_models_matured_total").increment(1),
            MaturityChange::Unmatured => metrics::counter!("nigh_memory_models_unlearned_total").increment(1),
        }
    }

    fn take_course(&self, invocation: InvocationId) -> Option<InCourse> {
        self.running.lock().remove(&invocation)
    }
}

/// A grant as it is written: whole steps, upward.
fn whole_steps(need: ByteSize) -> ByteSize {
    ByteSize(need.bytes().div_ceil(GRANT_STEP).saturating_mul(GRANT_STEP))
}

/// The version of a function's code that models know: its archive and its layers.
fn version(function: &Function) -> Cow<'_, str> {
    let is_name = (1..=VERSION_BYTES_MAX).contains(&function.code_sha256.len());
    if function.layers.is_empty() && is_name {
        return Cow::Borrowed(&function.code_sha256);
    }
    let layers: Vec<&str> = function.layers.iter().map(|layer| layer.sha256.as_str()).collect();
    let code: String = function.code_sha256.chars().take(VERSION_BYTES_MAX / 4).collect();
    Cow::Owned(format!(
        "{code}+{:016x}",
        hash_bytes(format!("{} {}", function.code_sha256, layers.join(" ")).as_bytes())
    ))
}

fn deployment(function: &Function) -> Deployment {
    Deployment {
        name: (function.namespace.clone(), function.name.clone()),
        version: version(function).into_owned(),
        deployed: function.modified,
    }
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
        // What a function says of itself counts.
        let says = function_caching::said(&function.environment).ok().flatten();
        if let (SizingMode::Grants, Some(false), None) = (self.mode, foreseen.benefits, says) {
            let (admission, said) = if Benefit::explores(hash_bytes(run.invocation.as_bytes())) {
                (Admission::Always, "; caching should not pay, and is tried")
            } else {
                (Admission::Spare, "; caching does not pay: only into memory that is free")
            };
            run.admission = admission;
            words.push_str(said);
        }
        let walk = run.walk();
        let course = InCourse {
            slot,
            name,
            version,
            features,
            arguments: walk.arguments.clone(),
            named: walk.objects.clone(),
            declared: function.environment.contains_key(INPUTS_VARIABLE),
            said: foreseen.said,
        };
        let mut running = self.running.lock();
        if running.len() < RUNNING_MAX {
            running.insert(run.invocation, course);
        }
        Some(words)
    }

    fn after_run(&self, activation: &Activation) {
        if let Some(course) = self.take_course(activation.id) {
            self.learn(course, activation);
        }
    }

    fn not_run(&self, invocation: InvocationId) {
        drop(self.take_course(invocation));
    }
}

#[cfg(test)]
mod tests;
