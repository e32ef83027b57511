//! Loads, fits and stores models, one after the other, in the background.
//!
//! One task behind a bounded queue. If the queue is full, the next invocation asks again. Fits and reads of documents
//! run on a blocking thread, and the new model replaces the old one at once. Changes without a fit are stored
//! periodically, when a model is dropped, and at the end. A crash loses the last half minute.

use std::sync::Arc;
use std::time::Duration;

use nigh_functions::function::{Function, FunctionSource};
use nigh_learn::{FunctionModel, Interval, Learner, TrainingRow, TrainingSet};
use nigh_terms::{Clock, Timestamp};
use tokio::sync::{mpsc, oneshot};

use super::code_version::version;
use super::input_rules::InputRules;
use super::learned_status::LearnedStatus;
use super::loaded_models::{CachedModel, LoadedModels, Name, Slot};
use super::stored_model::{MemorySizingError, ModelShelf, StoredModel};

/// The most queued jobs.
pub(super) const JOBS_MAX: usize = 1024;
/// How often changes are stored.
const STORE_EVERY: Duration = Duration::from_secs(30);
/// And how many functions of it each time.
const STORED_AT_ONCE: usize = 256;
/// After this many stores, the documents of removed functions are deleted.
const SWEEP_AFTER: u32 = 120;

/// A version of a function's code, and when it was deployed.
#[derive(Clone, Debug)]
pub(super) struct Deployment {
    pub(super) name: Name,
    pub(super) version: String,
    pub(super) deployed: Timestamp,
}

impl Deployment {
    /// The deployed version of `function`.
    pub(super) fn of(function: &Function) -> Self {
        Self {
            name: (function.namespace.clone(), function.name.clone()),
            version: version(function).into_owned(),
            deployed: function.modified,
        }
    }
}

type Reply<T> = oneshot::Sender<Result<T, MemorySizingError>>;

/// A job of the keeper.
pub(super) enum Job {
    /// An invocation found no model of its code.
    Load(Deployment),
    /// Fit a function's model to its rows.
    Fit(Name),
    /// Show a function's status.
    Show(Deployment, Reply<LearnedStatus>),
    /// Export its rows as CSV.
    Export(Deployment, Reply<String>),
    /// Rows in the place of those that it has.
    Import(Deployment, String, Reply<LearnedStatus>),
    /// Remove its model and rows.
    Forget(Name, Reply<bool>),
    /// Store everything.
    Flush(oneshot::Sender<()>),
}

/// The keeper.
pub(super) struct Keeper {
    pub(super) shelf: ModelShelf,
    pub(super) models: Arc<LoadedModels>,
    pub(super) functions: Arc<dyn FunctionSource>,
    pub(super) learner: Learner,
    pub(super) clock: Arc<dyn Clock>,
}

impl Keeper {
    /// Works until all senders are dropped, then stores everything.
    pub(super) async fn keep(self, mut jobs: mpsc::Receiver<Job>) {
        let mut tick = tokio::time::interval(STORE_EVERY);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut ticks = 0;
        loop {
            tokio::select! {
                job = jobs.recv() => match job {
                    Some(job) => self.run(job).await,
                    None => break,
                },
                _ = tick.tick() => {
                    self.store_dirty(STORED_AT_ONCE).await;
                    if ticks % SWEEP_AFTER == 0 {
                        warn("what is stored of functions that are gone is not removed", self.sweep().await);
                    }
                    ticks += 1;
                }
            }
        }
        self.store_dirty(usize::MAX).await;
    }

    async fn run(&self, job: Job) {
        // A caller that has stopped waiting needs no answer.
        match job {
            Job::Load(deployment) => {
                warn("what is learned of a function's memory is not at hand", self.load(&deployment).await.map(drop));
            }
            Job::Fit(name) => warn("a model of memory is not fitted", self.store(&name, true).await),
            Job::Show(deployment, reply) => drop(reply.send(self.show(&deployment).await)),
            Job::Export(deployment, reply) => drop(reply.send(self.export(&deployment).await)),
            Job::Import(deployment, csv, reply) => drop(reply.send(self.import(&deployment, csv).await)),
            Job::Forget(name, reply) => drop(reply.send(self.forget(&name).await)),
            Job::Flush(reply) => {
                self.store_dirty(usize::MAX).await;
                let _nobody_waits = reply.send(());
            }
        }
    }

    /// Brings a function's model to hand: the stored one if it is of this version, else one that knows nothing.
    async fn load(&self, deployment: &Deployment) -> Result<Arc<Slot>, MemorySizingError> {
        if let Some(slot) = self.models.peek(&deployment.name) {
            let stays = {
                let loaded = slot.loaded.lock();
                loaded.predictor.version() == deployment.version || loaded.deployed > deployment.deployed
            };
            if stays {
                return Ok(slot);
            }
        }
        let stored = match self.stored(deployment).await {
            Ok(Some(stored)) => stored,
            Ok(None) => self.nothing(deployment)?,
            Err(error) => {
                let (_, function) = &deployment.name;
                tracing::warn!(%function, %error, "what was learned of a function's memory is left out");
                self.nothing(deployment)?
            }
        };
        Ok(self.take(deployment, &stored).await)
    }

    fn nothing(&self, deployment: &Deployment) -> Result<StoredModel, MemorySizingError> {
        let model = FunctionModel::new(deployment.version.as_str(), self.learner, Interval::OFC)?;
        Ok(StoredModel { model, rules: InputRules::default() })
    }

    /// The stored state of this version, with this node's learner.
    async fn stored(&self, deployment: &Deployment) -> Result<Option<StoredModel>, MemorySizingError> {
        let Some(document) = self.shelf.read(&deployment.name).await? else { return Ok(None) };
        let (version, learner) = (deployment.version.clone(), self.learner);
        blocking(move || {
            let StoredModel { model, rules } = StoredModel::decode(&document)?;
            if model.version() != version {
                return Ok(None);
            }
            Ok(Some(StoredModel { model: model.with_learner(learner)?, rules }))
        })
        .await
    }

    /// Puts what is known to hand; what has to go for it is stored.
    async fn take(&self, deployment: &Deployment, stored: &StoredModel) -> Arc<Slot> {
        let loaded = CachedModel::new(stored.model.predictor(), stored.rules.clone(), deployment.deployed);
        let (slot, gone) = self.models.put(deployment.name.clone(), loaded);
        for (name, loaded) in gone {
            let outcome = self.write(&name, &loaded, loaded.pending.clone(), false).await;
            warn("what was learned of a function's memory is not stored", outcome.map(drop));
        }
        slot
    }

    /// Stores a function's changes; with `fit`, after fitting its model.
    async fn store(&self, name: &Name, fit: bool) -> Result<(), MemorySizingError> {
        let Some(slot) = self.models.peek(name) else { return Ok(()) };
        let (snapshot, rows) = {
            let mut loaded = slot.loaded.lock();
            (loaded.dirty, loaded.queued) = (false, false);
            let rows = std::mem::take(&mut loaded.pending);
            (loaded.clone(), rows)
        };
        let outcome = self.write(name, &snapshot, rows.clone(), fit).await;
        let mut loaded = slot.loaded.lock();
        match outcome {
            Ok(newer) => {
                if fit {
                    let fresh = loaded.pending.len();
                    loaded.predictor.take_model_of(&newer.predictor(), fresh);
                    loaded.model_bytes = loaded.predictor.bytes();
                    loaded.fitted_at = self.clock.monotonic();
                }
                self.models.recount(&slot, &loaded);
                Ok(())
            }
            Err(error) => {
                // They are stored later.
                let came_meanwhile = std::mem::replace(&mut loaded.pending, rows);
                for row in came_meanwhile {
                    loaded.keep(row);
                }
                loaded.dirty = true;
                self.models.recount(&slot, &loaded);
                Err(error)
            }
        }
    }

    /// Brings `rows` and what was learned beside them together with what is stored, and stores that.
    async fn write(
        &self,
        name: &Name,
        loaded: &CachedModel,
        rows: Vec<TrainingRow>,
        fit: bool,
    ) -> Result<FunctionModel, MemorySizingError> {
        let version = loaded.predictor.version().to_owned();
        let deployment = Deployment { name: name.clone(), version, deployed: loaded.deployed };
        // The failed read was reported when the model was loaded.
        let before = match self.stored(&deployment).await {
            Ok(Some(stored)) => stored,
            Err(MemorySizingError::Registry(error)) => return Err(error.into()),
            Ok(None) | Err(_) => self.nothing(&deployment)?,
        };
        let (predictor, rules) = (loaded.predictor.clone(), loaded.rules.clone());
        let (model, document) = blocking(move || {
            let model = before.model.resumed(&predictor, rows);
            let stored = StoredModel { model: if fit { model.refitted() } else { model }, rules };
            let document = stored.encode()?;
            Ok((stored.model, document))
        })
        .await?;
        self.shelf.write(name, document).await?;
        Ok(model)
    }

    async fn store_dirty(&self, max: usize) {
        for name in self.models.dirty(max) {
            warn("what was learned of a function's memory is not stored", self.store(&name, false).await);
        }
    }

    /// Removes what is stored of functions that are not deployed any more.
    async fn sweep(&self) -> Result<(), MemorySizingError> {
        for name in self.shelf.names().await? {
            if self.functions.find(&name.0, &name.1).await.is_none() {
                self.forget(&name).await?;
            }
        }
        Ok(())
    }

    async fn show(&self, deployment: &Deployment) -> Result<LearnedStatus, MemorySizingError> {
        let at_hand = self.models.peek(&deployment.name).map(|slot| slot.loaded.lock().clone());
        if let Some(loaded) = at_hand.filter(|loaded| loaded.predictor.version() == deployment.version) {
            return Ok(LearnedStatus::of(&deployment.name, self.learner, &loaded.predictor, &loaded.rules));
        }
        let nothing = || MemorySizingError::Nothing(deployment.name.1.clone());
        let StoredModel { model, rules } = self.stored(deployment).await?.ok_or_else(nothing)?;
        Ok(LearnedStatus::of(&deployment.name, self.learner, &model.predictor(), &rules))
    }

    async fn export(&self, deployment: &Deployment) -> Result<String, MemorySizingError> {
        self.store(&deployment.name, false).await?;
        let nothing = || MemorySizingError::Nothing(deployment.name.1.clone());
        let stored = self.stored(deployment).await?.ok_or_else(nothing)?;
        Ok(stored.model.training_set().to_csv())
    }

    async fn import(&self, deployment: &Deployment, csv: String) -> Result<LearnedStatus, MemorySizingError> {
        let (version, learner) = (deployment.version.clone(), self.learner);
        let model = blocking(move || {
            let set = TrainingSet::from_csv(&version, &csv)?;
            Ok(FunctionModel::replayed(&set, learner, Interval::OFC)?)
        })
        .await?;
        // The rules for its inputs stay.
        let rules = self.load(deployment).await?.loaded.lock().rules.clone();
        let stored = StoredModel { model, rules };
        self.shelf.write(&deployment.name, stored.encode()?).await?;
        self.take(deployment, &stored).await;
        Ok(LearnedStatus::of(&deployment.name, learner, &stored.model.predictor(), &stored.rules))
    }

    async fn forget(&self, name: &Name) -> Result<bool, MemorySizingError> {
        let was_at_hand = self.models.remove(name);
        Ok(self.shelf.remove(name).await? || was_at_hand)
    }
}

/// Does what takes milliseconds on a thread that may.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, MemorySizingError> + Send + 'static,
) -> Result<T, MemorySizingError> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(MemorySizingError::Ended))
}

fn warn(what: &'static str, outcome: Result<(), MemorySizingError>) {
    if let Err(error) = outcome {
        tracing::warn!(%error, "{what}");
    }
}
