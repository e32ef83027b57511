//! The state of the cache ways of a node, and what is decided from it: predictions, placements, bindings, and how the
//! ways are divided between sensitive and insensitive functions.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use nigh_invoke::hooks::Run;
use nigh_llc::resctrl::Members;
use nigh_llc::{
    CasyRequest, ChunkSplit, ClosLayout, Demand, Need, PlacementDecision, Prediction, SharingProfile, SizingInput,
    SplitDecision, SplitRules, TrainedRange, UnknownNeed, WayLoads,
};
use nigh_terms::{ByteSize, ClosId, InvocationId, Ways};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::books::{Books, Classes};
use super::running_invocation::{CurrentClass, InvocationKind, RunningInvocation};
use super::wanted_profiles::WantedProfiles;
use super::{CacheWaysParts, ClosBinder, FunctionModel, SizingModels, WantedProfile};

/// Before a profile it is not known which of the objects that an input names are read.
static NO_PATHS: BTreeSet<String> = BTreeSet::new();

/// The ways of the last-level cache on one node. It is a hook of each invocation (`hook`).
pub struct CacheWays {
    pub(super) parts: CacheWaysParts,
    pub(super) books: Mutex<Books>,
    /// Locked during each change of the machine's classes or of a sandbox's class. Lock order: `gate`, then `books`.
    pub(super) gate: Mutex<()>,
    /// Notified when an invocation starts or ends that the classes may be fitted to.
    pub(super) changed: Notify,
}

/// Why there is no prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotPredicted {
    /// The function has no profile. Holds the size of the data if it is known.
    NoProfile(Option<ByteSize>),
    NoSize,
    OtherFeatures,
}

/// The result of binding a sandbox to its class.
pub(super) enum Binding {
    /// The sandbox is in the class now.
    Bound,
    /// The sandbox was in the class before.
    Unchanged,
    /// The machine has no classes.
    Absent,
    /// A profile uses the whole cache.
    Suspended,
    /// The binding failed, for the system's reason.
    Failed(String),
}

impl CacheWays {
    /// Without any running invocation.
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

    /// The present loads of the classes.
    #[must_use]
    pub fn loads(&self) -> WayLoads {
        self.books.lock().loads.clone()
    }

    /// The class of each running invocation that has one.
    #[must_use]
    pub fn classes_of_running(&self) -> HashMap<InvocationId, ClosId> {
        let books = self.books.lock();
        let placed = books.running.iter();
        placed.filter_map(|(id, running)| Some((*id, books.loads.find(running.ticket)?.clos))).collect()
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

    /// The models that predict needs.
    #[must_use]
    pub const fn models(&self) -> &Arc<SizingModels> {
        &self.parts.models
    }

    /// Gives the whole cache to a profile until `resume`. Returns `false`, and does nothing, if an invocation runs or
    /// another profile has the cache.
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

    /// Takes the cache back from a profile.
    pub fn resume(&self) {
        let mut books = self.books.lock();
        books.suspended = false;
        books.bound.clear();
    }

    /// Ends a window of load. When several windows in a row ask for it, changes how the ways are divided between
    /// sensitive and insensitive functions, and returns the new share of the insensitive functions.
    ///
    /// # Errors
    /// The system's reason. The classes are unchanged, and a later window tries again.
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
                // The new share is used when CASY's classes come back.
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

    pub(super) fn lay_out(&self, layout: &ClosLayout) -> Result<(), String> {
        self.parts.binder.as_ref().map_or(Ok(()), |binder| binder.lay_out(layout))
    }

    /// The total size of the objects that an input names, counting those whose size is known. None if no size is known.
    fn data_size(&self, run: &Run<'_>, inputs: &BTreeSet<String>) -> Option<ByteSize> {
        let is_input = |path: &str| inputs.is_empty() || inputs.contains(path);
        let named = run.walk().objects.iter().filter(|object| is_input(object.path.as_str()));
        let namespace = &run.function.namespace;
        let known = named.filter_map(|object| self.parts.sizes.of(namespace, &object.bucket, &object.key));
        known.reduce(|sum, size| ByteSize(sum.0.saturating_add(size.0)))
    }

    pub(super) fn predict(&self, run: &Run<'_>) -> Result<(ByteSize, Prediction), NotPredicted> {
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

    /// Remembers an input outside the profiled sizes, so that the function is profiled with it.
    pub(super) fn want_profile(&self, run: &Run<'_>, prediction: &Result<(ByteSize, Prediction), NotPredicted>) {
        let unprofiled = match prediction {
            Ok((size, prediction)) if prediction.range == TrainedRange::Extrapolated => Some(*size),
            Err(NotPredicted::NoProfile(size)) => *size,
            Ok(_) | Err(_) => None,
        };
        if let Some(size) = unprofiled {
            self.books.lock().wanted.add(run.function, size, run.payload);
        }
    }

    /// Takes the next function that should be profiled.
    #[must_use]
    pub fn wanted_profile(&self) -> Option<WantedProfile> {
        self.books.lock().wanted.take()
    }

    /// The profile was not possible now. The function may be profiled later.
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

    pub(super) fn place(
        &self,
        prediction: Option<&(ByteSize, Prediction)>,
        run: &Run<'_>,
    ) -> Option<PlacementDecision> {
        let need = self.need(prediction);
        let mut books = self.books.lock();
        let placed = self.parts.policy.place(&books.loads, &need);
        let class = CurrentClass::new(&placed, need.at);
        // At the limit of placed invocations this one runs in the default class and is not counted.
        let ticket = books.loads.commit(placed.clos, need).ok()?;
        let running = RunningInvocation {
            ticket,
            sandbox: run.sandbox,
            tasks: run.tasks.clone(),
            kind: prediction.map(|(size, _)| InvocationKind::of(run.function, size.0)),
            class,
        };
        books.running.insert(run.invocation, running);
        self.tell_changed(&books);
        Some(placed)
    }

    /// Wakes the refit if it has work: an invocation with curves runs, or CASY's classes must come back.
    fn tell_changed(&self, books: &Books) {
        let mut needs = books.loads.running().iter().map(|one| &one.need);
        let is_fitted = books.classes == Classes::Fitted;
        let matters = |need: &Need| need.sharing.is_some() || (is_fitted && need.predicted.is_some());
        if self.parts.fit_guard.is_some() && needs.any(matters) {
            self.changed.notify_one();
        }
    }

    pub(super) fn bind(&self, run: &Run<'_>, clos: ClosId) -> Binding {
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
        // A refit in between may have moved the invocation to another class and bound its sandbox there.
        let wanted = self.books.lock().move_of(run.invocation);
        let Some((_, _, clos)) = wanted else { return Binding::Unchanged };
        self.bind_now(&**binder, run, tasks, clos)
    }

    fn bind_now(&self, binder: &dyn ClosBinder, run: &Run<'_>, tasks: &Members, clos: ClosId) -> Binding {
        let bound = binder.bind(tasks, clos);
        self.books.lock().record(run.sandbox, bound.is_ok().then_some(clos));
        bound.map_or_else(Binding::Failed, |()| Binding::Bound)
    }

    /// Predicts the class of a later run, which starts when the invocation `after` has ended. The run is not counted yet.
    pub(super) fn place_ahead(
        &self,
        prediction: &(ByteSize, Prediction),
        after: Option<InvocationId>,
    ) -> PlacementDecision {
        let need = self.need(Some(prediction));
        let books = self.books.lock();
        let before = after.and_then(|after| books.running.get(&after)).map(|running| running.ticket);
        match before {
            Some(ticket) => {
                let mut loads = books.loads.clone();
                let _ended = loads.release(ticket);
                self.parts.policy.place(&loads, &need)
            }
            None => self.parts.policy.place(&books.loads, &need),
        }
    }

    /// Puts a sandbox without a run into a class, if the class exists.
    pub(super) fn bind_ahead(&self, run: &Run<'_>, clos: ClosId) -> Binding {
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
        self.bind_now(&**binder, run, tasks, clos)
    }

    pub(super) fn release(&self, invocation: InvocationId) {
        let mut books = self.books.lock();
        let Some(running) = books.running.remove(&invocation) else { return };
        let ended = match books.loads.release(running.ticket) {
            Ok(ended) => ended,
            Err(error) => {
                return tracing::error!(%invocation, %error, "an ended invocation is missing in the loads of the cache ways");
            }
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
