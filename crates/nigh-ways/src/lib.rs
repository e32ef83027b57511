//! The cache ways of each invocation: predicted before it runs, its sandbox bound to a class of service, its load
//! released at its end.
//!
//! Here come together what `nigh_llc` decides (models, layout, placement), the features of the input, and the sandbox's
//! tasks. Where the machine cannot bind, everything is decided and recorded just the same, and nothing is bound.

mod books;
mod cache_use;
mod core_allocation;
mod core_binding;
mod fitted_classes;
mod in_course;
mod profile_run;
mod resctrl_classes;
mod sizing_models;
mod use_sampling;
mod wanted_profiles;

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;

use nigh_invoke::hooks::{InvocationHook, Run};
use nigh_llc::resctrl::Members;
use nigh_llc::{
    CasyRequest, ChunkSplit, ClosLayout, Demand, Need, Placement, PlacementDecision, Prediction, SharingProfile,
    SizingInput, SplitDecision, SplitRules, Tolerance, TrainedRange, UnknownNeed, WayLoads,
};
use nigh_schedule::activation::Activation;
use nigh_schedule::scheduler::vacancy::Vacancy;
use nigh_sizing::object_sizes::ObjectSizes;
use nigh_terms::{ByteSize, Clock, ClosId, InvocationId, Ways};
use parking_lot::Mutex;
use tokio::sync::Notify;

pub use cache_use::{FunctionUse, NoFigure, UseFigure};
pub use core_binding::CoreStation;
pub use fitted_classes::RefitResult;
pub use profile_run::{ProfileRunError, ProfileRuns, ProfileStation, WayAllocation};
pub use resctrl_classes::{ResctrlClasses, cache_shape};
pub use sizing_models::{FunctionModel, SizingModels, SizingModelsError};
pub use use_sampling::UseStation;
pub use wanted_profiles::WantedProfile;

use books::{Books, Classes, Kind};
use in_course::{CurrentClass, InCourse};
use wanted_profiles::WantedProfiles;

/// Before a profile it is not known which of the objects that an input names are read.
static NO_PATHS: BTreeSet<String> = BTreeSet::new();

/// Puts sandboxes into classes of service.
pub trait ClosBinder: Send + Sync {
    /// Makes the machine's classes those of `layout`.
    ///
    /// # Errors
    /// The system's reason; the classes are as they were.
    fn lay_out(&self, layout: &ClosLayout) -> Result<(), String>;
    /// Puts every task of a sandbox into a class. It is on the path of an invocation.
    ///
    /// # Errors
    /// The system's reason; some tasks may be in the class.
    fn bind(&self, tasks: &Members, clos: ClosId) -> Result<(), String>;
}

/// What a node's invocations run with.
pub struct CacheWaysParts {
    /// The models.
    pub models: Arc<SizingModels>,
    /// Sizes of objects.
    pub sizes: Arc<ObjectSizes>,
    /// Which class an invocation gets.
    pub policy: Box<dyn Placement>,
    /// The classes at the start: CASY's for so many insensitive ways. Already laid out where there is a binder.
    pub layout: Arc<ClosLayout>,
    /// The ways that layout gives the insensitive.
    pub insensitive: Ways,
    /// By how much anybody may be predicted slower than without partitioning when the classes are fitted to what runs.
    /// `None`: they stay CASY's.
    pub fit_guard: Option<Tolerance>,
    /// Lines of 64 bytes in one way.
    pub lines_per_way: f64,
    /// Binds, where the machine can.
    pub binder: Option<Arc<dyn ClosBinder>>,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

/// The station of the last-level cache in an invocation's path.
pub struct CacheWays {
    parts: CacheWaysParts,
    books: Mutex<Books>,
    /// Held while the machine's classes or a sandbox's class are changed, and taken before the books.
    gate: Mutex<()>,
    changed: Notify,
}

/// Why nothing is predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotPredicted {
    /// The function has no profile; the bytes of the data, if they are known.
    NoProfile(Option<ByteSize>),
    NoSize,
    OtherFeatures,
}

impl std::fmt::Display for NotPredicted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NoProfile(_) => "no profile of this version of its code",
            Self::NoSize => "the size of its data is not known",
            Self::OtherFeatures => "its model needs more than a size",
        })
    }
}

/// What happened to a sandbox's class.
enum Binding {
    /// It is in it now.
    Bound,
    /// It was in it already.
    Unchanged,
    /// The machine cannot.
    Absent,
    /// A profile has the cache to itself.
    Suspended,
    /// The system's reason.
    Failed(String),
}

impl CacheWays {
    /// The station, with no load yet.
    #[must_use]
    pub fn new(parts: CacheWaysParts) -> Self {
        let unknown = UnknownNeed::mean_of_table_3(parts.layout.shape().ways);
        let loads = WayLoads::new(Arc::clone(&parts.layout), unknown);
        let books = Books {
            loads,
            running: HashMap::new(),
            bound: HashMap::new(),
            suspended: false,
            classes: Classes::Casy,
            split: ChunkSplit::new(parts.insensitive),
            demand: Demand::default(),
            window: parts.clock.monotonic(),
            wanted: WantedProfiles::default(),
            needs: HashMap::new(),
        };
        Self { parts, books: Mutex::new(books), gate: Mutex::default(), changed: Notify::new() }
    }

    /// The loads as they are now.
    #[must_use]
    pub fn loads(&self) -> WayLoads {
        self.books.lock().loads.clone()
    }

    /// The policy's name.
    #[must_use]
    pub fn policy(&self) -> &'static str {
        self.parts.policy.name()
    }

    /// Lines of 64 bytes in one way.
    #[must_use]
    pub const fn lines_per_way(&self) -> f64 {
        self.parts.lines_per_way
    }

    /// The models it predicts by.
    #[must_use]
    pub const fn models(&self) -> &Arc<SizingModels> {
        &self.parts.models
    }

    /// Leaves the classes to a profile, if nothing runs; `false` if something does. `resume` ends it.
    #[must_use]
    pub fn suspend(&self) -> bool {
        let _gate = self.gate.lock();
        let mut books = self.books.lock();
        let idle = books.running.is_empty() && !books.suspended;
        if idle {
            books.suspended = true;
        }
        idle
    }

    /// Goes on after a profile.
    pub fn resume(&self) {
        let mut books = self.books.lock();
        books.suspended = false;
        books.bound.clear();
    }

    /// Takes the load since the last call as one window, and divides the ways anew between sensitive and insensitive
    /// functions when several windows in a row want that. Returns the new share of the insensitive.
    ///
    /// # Errors
    /// The machine's reason; the classes are as they were, and a later window tries again.
    pub fn follow_load(&self) -> Result<Option<Ways>, String> {
        let _gate = self.gate.lock();
        let (layout, from, to) = {
            let mut books = self.books.lock();
            let now = self.parts.clock.monotonic();
            let micros = now.since(std::mem::replace(&mut books.window, now)).as_micros().max(1) as f64;
            let demand = std::mem::take(&mut books.demand);
            let demand = Demand { insensitive: demand.insensitive / micros, sensitive: demand.sensitive / micros };
            if books.suspended {
                return Ok(None);
            }
            let shape = *books.loads.layout().shape();
            let SplitDecision::Change { from, to } = books.split.observe(&demand, &shape, &SplitRules::of(&shape))
            else {
                return Ok(None);
            };
            if books.classes == Classes::Fitted {
                // It holds when CASY's classes come back.
                return Ok(Some(to));
            }
            match ClosLayout::casy(&CasyRequest::of(shape, to)) {
                Ok(layout) => (Arc::new(layout), from, to),
                Err(refusal) => {
                    books.split = ChunkSplit::new(from);
                    return Err(refusal.to_string());
                }
            }
        };
        if let Err(reason) = self.lay_out(&layout) {
            self.books.lock().split = ChunkSplit::new(from);
            return Err(reason);
        }
        let mut books = self.books.lock();
        books.adopt(layout);
        books.follow_classes(self.parts.clock.monotonic());
        Ok(Some(to))
    }

    fn lay_out(&self, layout: &ClosLayout) -> Result<(), String> {
        self.parts.binder.as_ref().map_or(Ok(()), |binder| binder.lay_out(layout))
    }

    /// The bytes of the data that an input names, as far as they are known.
    fn data_size(&self, run: &Run<'_>, inputs: &BTreeSet<String>) -> Option<ByteSize> {
        let is_input = |path: &str| inputs.is_empty() || inputs.contains(path);
        let named = run.walk().objects.iter().filter(|object| is_input(object.path.as_str()));
        let namespace = &run.function.namespace;
        let known = named.filter_map(|object| self.parts.sizes.of(namespace, &object.bucket, &object.key));
        known.reduce(|sum, size| ByteSize(sum.0.saturating_add(size.0)))
    }

    fn predict(&self, run: &Run<'_>) -> Result<(ByteSize, Prediction), NotPredicted> {
        let function = run.function;
        let model = self.parts.models.find(function);
        let inputs = model.as_ref().map_or(&NO_PATHS, |model| &model.inputs);
        let size = self.data_size(run, inputs);
        let Some(model) = &model else { return Err(NotPredicted::NoProfile(size)) };
        let size = size.ok_or(NotPredicted::NoSize)?;
        let input = SizingInput { size, features: Vec::new() };
        let prediction = model.model.predict(&FunctionModel::version(function), &input);
        Ok((size, prediction.ok_or(NotPredicted::OtherFeatures)?))
    }

    /// A run of an input that no profile tells of is one to profile with.
    fn want_profile(&self, run: &Run<'_>, prediction: &Result<(ByteSize, Prediction), NotPredicted>) {
        let unprofiled = match prediction {
            Ok((size, prediction)) if prediction.range == TrainedRange::Extrapolated => Some(*size),
            Err(NotPredicted::NoProfile(size)) => *size,
            Ok(_) | Err(_) => None,
        };
        if let Some(size) = unprofiled {
            self.books.lock().wanted.add(run.function, size, run.payload);
        }
    }

    /// A function that should be profiled, if there is one.
    #[must_use]
    pub fn wanted_profile(&self) -> Option<WantedProfile> {
        self.books.lock().wanted.take()
    }

    /// It could not be profiled now; it may be wanted again.
    pub fn not_profiled(&self, wanted: &WantedProfile) {
        self.books.lock().wanted.put_back(wanted);
    }

    fn need(&self, prediction: Option<&(ByteSize, Prediction)>) -> Need {
        let sharing = prediction.and_then(|(_, prediction)| {
            let curves = prediction.curves.as_ref()?;
            SharingProfile::new(&curves.misses, &curves.times, self.parts.lines_per_way).ok()
        });
        Need {
            predicted: prediction.map(|(_, prediction)| prediction.predicted),
            sharing: sharing.map(Arc::new),
            at: self.parts.clock.monotonic(),
        }
    }

    fn place(&self, prediction: Option<&(ByteSize, Prediction)>, run: &Run<'_>) -> Option<PlacementDecision> {
        let need = self.need(prediction);
        let mut books = self.books.lock();
        let placed = self.parts.policy.place(&books.loads, &need);
        let stay = CurrentClass::new(&placed, need.at);
        // Full books: it runs in the default class and weighs nothing.
        let ticket = books.loads.commit(placed.clos, need).ok()?;
        let course = InCourse {
            ticket,
            sandbox: run.sandbox,
            tasks: run.tasks.clone(),
            kind: prediction.map(|(size, _)| Kind::of(run.function, size.0)),
            stay,
        };
        books.running.insert(run.invocation, course);
        self.tell_changed(&books);
        Some(placed)
    }

    /// Where nothing has curves there is nothing to fit, and nobody is woken but to bring CASY's classes back.
    fn tell_changed(&self, books: &Books) {
        let mut needs = books.loads.running().iter().map(|one| &one.need);
        let is_fitted = books.classes == Classes::Fitted;
        let matters = |need: &Need| need.sharing.is_some() || (is_fitted && need.predicted.is_some());
        if self.parts.fit_guard.is_some() && needs.any(matters) {
            self.changed.notify_one();
        }
    }

    fn bind(&self, run: &Run<'_>, clos: ClosId) -> Binding {
        let (Some(binder), Some(tasks)) = (&self.parts.binder, &run.tasks) else { return Binding::Absent };
        {
            let books = self.books.lock();
            if books.suspended {
                return Binding::Suspended;
            }
            if books.bound.get(&run.sandbox) == Some(&clos) {
                return Binding::Unchanged;
            }
        }
        let _gate = self.gate.lock();
        // A refit that came between may have given it another class, and a binding there.
        let wanted = self.books.lock().move_of(run.invocation);
        let Some((_, _, clos)) = wanted else { return Binding::Unchanged };
        let bound = binder.bind(tasks, clos);
        self.books.lock().record(run.sandbox, bound.is_ok().then_some(clos));
        bound.map_or_else(Binding::Failed, |()| Binding::Bound)
    }

    /// Where a run would be placed that does not weigh yet, once `after` has ended.
    fn place_ahead(&self, prediction: &(ByteSize, Prediction), after: Option<InvocationId>) -> PlacementDecision {
        let need = self.need(Some(prediction));
        let books = self.books.lock();
        let before = after.and_then(|after| books.running.get(&after)).map(|course| course.ticket);
        match before {
            Some(ticket) => {
                let mut loads = books.loads.clone();
                let _ended = loads.release(ticket);
                self.parts.policy.place(&loads, &need)
            }
            None => self.parts.policy.place(&books.loads, &need),
        }
    }

    /// Puts a sandbox that has no run into a class, if that is there.
    fn bind_ahead(&self, run: &Run<'_>, clos: ClosId) -> Binding {
        let (Some(binder), Some(tasks)) = (&self.parts.binder, &run.tasks) else { return Binding::Absent };
        let _gate = self.gate.lock();
        {
            let books = self.books.lock();
            if books.suspended {
                return Binding::Suspended;
            }
            if books.bound.get(&run.sandbox) == Some(&clos) || books.loads.layout().class(clos).is_none() {
                return Binding::Unchanged;
            }
        }
        let bound = binder.bind(tasks, clos);
        self.books.lock().record(run.sandbox, bound.is_ok().then_some(clos));
        bound.map_or_else(Binding::Failed, |()| Binding::Bound)
    }

    fn release(&self, invocation: InvocationId) {
        let mut books = self.books.lock();
        let Some(course) = books.running.remove(&invocation) else { return };
        let ended = match books.loads.release(course.ticket) {
            Ok(ended) => ended,
            Err(error) => return tracing::error!(%invocation, %error, "the loads of the cache ways are wrong"),
        };
        if let Some(predicted) = ended.need.predicted {
            let took = self.parts.clock.monotonic().since(ended.need.at).as_micros() as f64;
            let way_micros = f64::from(predicted.ways.0) * took;
            let demand = &mut books.demand;
            let of_class =
                if predicted.class.is_insensitive() { &mut demand.insensitive } else { &mut demand.sensitive };
            *of_class += way_micros;
        }
        self.tell_changed(&books);
    }
}

/// How the decision ends in words where the machine has no classes: all of it is what would have been done.
pub const NOT_BOUND_HERE: &str = "; not bound, this machine cannot";

/// The decision in words, as `nigh llc explain` shows it.
fn words(
    prediction: &Result<(ByteSize, Prediction), NotPredicted>,
    placed: &PlacementDecision,
    binding: &Binding,
) -> String {
    let mut text = String::new();
    // Writing to a text cannot fail.
    let _ = match prediction {
        Ok((size, prediction)) => {
            let beyond = match prediction.range {
                TrainedRange::Trained => "",
                TrainedRange::Extrapolated => ", beyond the profiled sizes",
            };
            let (ways, class) = (prediction.predicted.ways, prediction.predicted.class);
            write!(text, "{size} of data need {ways} ways ({class}{beyond}); ")
        }
        Err(reason) => write!(text, "no prediction, {reason}; "),
    };
    let _ = write!(text, "class {} (mask {}): {}", placed.clos, placed.mask, placed.because);
    let _ = match binding {
        Binding::Bound | Binding::Unchanged => Ok(()),
        Binding::Absent => write!(text, "{NOT_BOUND_HERE}"),
        Binding::Suspended => write!(text, "; not bound, a profile has the cache to itself"),
        Binding::Failed(reason) => write!(text, "; not bound: {reason}"),
    };
    text
}

impl InvocationHook for CacheWays {
    fn name(&self) -> &'static str {
        "cache ways"
    }

    fn before_run(&self, run: &mut Run<'_>) -> Option<String> {
        let prediction = self.predict(run);
        self.want_profile(run, &prediction);
        let placed = self.place(prediction.as_ref().ok(), run)?;
        if let Ok((_, prediction)) = &prediction {
            self.books.lock().needed(run.function, prediction.predicted);
        }
        let binding = self.bind(run, placed.clos);
        if let Binding::Failed(reason) = &binding {
            metrics::counter!("nigh_llc_bind_failures_total").increment(1);
            tracing::warn!(function = %run.function.name, reason, "a sandbox was not bound to its class of service");
        }
        Some(words(&prediction, &placed, &binding))
    }

    fn ahead(&self, run: &mut Run<'_>, after: Option<InvocationId>) -> Option<String> {
        let prediction = self.predict(run).ok()?;
        let placed = self.place_ahead(&prediction, after);
        let binding = self.bind_ahead(run, placed.clos);
        Some(words(&Ok(prediction), &placed, &binding))
    }

    fn has_run(&self, invocation: InvocationId) -> Option<String> {
        // Where nothing is bound nobody was moved.
        self.parts.binder.as_ref()?;
        let books = self.books.lock();
        books.running.get(&invocation)?.stay.words()
    }

    fn after_run(&self, activation: &Activation) {
        self.release(activation.id);
    }

    fn room(&self, vacancy: &mut Vacancy) {
        let books = self.books.lock();
        vacancy.ways_free = books.ways_free().0;
        for warm in &mut vacancy.warm {
            warm.ways = books.ways_needed(&warm.namespace, &warm.function);
        }
    }

    fn not_run(&self, invocation: InvocationId) {
        self.release(invocation);
    }
}

#[cfg(test)]
mod tests;
