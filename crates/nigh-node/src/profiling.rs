//! `nigh llc profile` on the node: measures a function with fewer and fewer cache ways, and stores the model.
//!
//! The runs have their own invoker and sandboxes. They read the real objects and write into a scratch store that is
//! dropped afterwards; they affect no triggers, records or other runs. A profile has the cache to itself: it begins
//! only when nothing runs, and invocations meanwhile run in the default class.

mod report;
mod unfinished;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use nigh_data::{GetRequest, ObjectError};
use nigh_engine::{AccessKeys, RecordLog, Retention, StateFile};
use nigh_functions::function::{Function, FunctionSource};
use nigh_functions::function_network::FunctionNetwork;
use nigh_functions::function_store::FunctionStore;
use nigh_invoke::activation_log::ActivationLog;
use nigh_invoke::invocation::phase_accountant::PhaseAccountant;
use nigh_invoke::invoker::InvokerSettings;
use nigh_invoke::invoker::{Invoker, InvokerParts};
use nigh_invoke::node_memory::NodeMemory;
use nigh_llc::{
    CacheShape, ProfileError, ProfileInput, Profiler, ProfilerSettings, SearchRule, SizingModel, SizingRule, Tolerance,
    TrainingRow, TrainingRows,
};
use nigh_objects::{MemoryLimits, ObjectMemory, Writes};
use nigh_s3::{DoorLimits, FastPath, FastPathLimits, S3Door};
use nigh_sandbox::sandbox::SandboxEngine;
use nigh_schedule::activation::Activation;
use nigh_schedule::activation::idempotence::{self, IDEMPOTENT_VARIABLE};
use nigh_schedule::inputs::named_objects::input_paths;
use nigh_schedule::inputs::payload_walk::PayloadWalk;
use nigh_stores::Store;
use nigh_stores::directory::{DirectoryError, DirectoryStore};
use nigh_stores::overlay::OverlayStore;
use nigh_terms::{ByteSize, Clock, Epoch, FunctionName, Incarnation, Namespace, NodeId, Principal};
use nigh_ways::{
    CacheWays, FunctionModel, ProfileHook, ProfileRunError, ProfileRuns, SizingModelsError, WayAllocation,
};
use thiserror::Error;

use crate::data_door::SandboxDataDoor;

use self::unfinished::UnfinishedProfile;

pub use self::report::{ModelRows, ProfileReport, ProfileRequest, ProfiledInput};

/// The most bytes that all runs of a profile may write.
const SCRATCH_MAX: ByteSize = ByteSize::gib(4);
/// How long invocations of a profile that still run may take to end after it.
const DRAIN: std::time::Duration = std::time::Duration::from_secs(5);
/// The records of runs that a profile keeps, and their bytes.
const RECORDS_MAX: u64 = 100;
const RECORDS_BYTES_MAX: ByteSize = ByteSize::mib(64);
/// The most data calls in the record of a run.
const DATA_CALLS_MAX: usize = 1000;

/// Why no profile can be made.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message says what the fields hold")]
pub enum ProfilingError {
    #[error("the machine cannot allocate cache ways ({0}); learn from memory traces instead: nigh llc learn")]
    NoAllocation(String),
    #[error("there is no function {0}")]
    NoFunction(FunctionName),
    #[error(
        "{0} is declared not idempotent ({IDEMPOTENT_VARIABLE}=false), or has an outbound network and is not declared \
         idempotent ({IDEMPOTENT_VARIABLE}=true): each run may have effects outside; --force runs it anyway"
    )]
    NotIdempotent(FunctionName),
    #[error("invocations or another profile are running: try again when the node is idle")]
    Busy,
    #[error("{0}: the handler read none of the objects that this event names; give an event whose objects it reads")]
    NoInput(String),
    #[error("the first run of {name} failed: {reason}")]
    FirstRun { name: String, reason: String },
    #[error(transparent)]
    Scratch(#[from] DirectoryError),
    #[error(transparent)]
    Objects(#[from] ObjectError),
    #[error(transparent)]
    Profile(#[from] ProfileError),
    #[error(transparent)]
    Run(#[from] ProfileRunError),
    #[error(transparent)]
    Models(#[from] SizingModelsError),
    #[error("{what}: {reason}")]
    Io { what: String, reason: String },
}

/// The parts of the node that profiles need.
pub(crate) struct ProfilingParts {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) engine: Arc<dyn SandboxEngine>,
    pub(crate) keys: AccessKeys,
    pub(crate) functions: FunctionStore,
    pub(crate) invoker: InvokerSettings,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) memory: NodeMemory,
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    pub(crate) object_max: ByteSize,
    /// The node's limits of the fast path; none if it is off.
    pub(crate) fast_path: Option<FastPathLimits>,
    /// Where unfinished profiles are stored.
    pub(crate) folder: PathBuf,
}

/// Profiles functions of this node.
pub(crate) struct FunctionProfiler(pub(crate) ProfilingParts);

/// The cache while a profile has it to itself.
pub(crate) struct IdleCache<'a> {
    pub(crate) station: &'a CacheWays,
    pub(crate) allocation: Arc<dyn WayAllocation>,
    pub(crate) shape: CacheShape,
}

/// The invoker of one profile, with its scratch store.
struct Bench {
    invoker: Invoker,
    station: Arc<ProfileHook>,
    memory: ObjectMemory,
    who: Principal,
    _scratch: tempfile::TempDir,
}

/// True if the function may run once more: its owner declares it idempotent, or declares nothing and it has no outbound
/// network. The scratch store undoes only writes to objects.
fn may_run_again(environment: &BTreeMap<String, String>) -> bool {
    let says = idempotence::says(environment).ok().flatten();
    says.unwrap_or_else(|| FunctionNetwork::asked(environment) == Ok(FunctionNetwork::None))
}

impl FunctionProfiler {
    /// Profiles one function. `tell` gets a report after each run.
    pub(crate) async fn profile(
        &self,
        request: &ProfileRequest,
        cache: &IdleCache<'_>,
        mut tell: impl FnMut(&ProfileReport),
    ) -> Result<ProfileReport, ProfilingError> {
        let name = &request.function;
        let function = self.0.functions.find(&request.namespace, name).await;
        let function = function.ok_or_else(|| ProfilingError::NoFunction(name.clone()))?;
        if !may_run_again(&function.environment) && !request.force {
            return Err(ProfilingError::NotIdempotent(name.clone()));
        }
        let bench = self.bench(&request.namespace, Arc::clone(&cache.allocation)).await?;
        let profiled = self.runs(&bench, &function, request, cache, &mut tell).await;
        bench.invoker.drain(DRAIN).await;
        let (profiler, inputs) = profiled?;
        keep_model(cache.station, &function, profiler.training_rows(), inputs).await?;
        Ok(ProfileReport { done: true, ..report(&profiler) })
    }

    /// Makes a function's model from rows that were measured elsewhere.
    pub(crate) async fn learn(&self, station: &CacheWays, rows: ModelRows) -> Result<(), ProfilingError> {
        let function = self.0.functions.find(&rows.namespace, &rows.function).await;
        let function = function.ok_or(ProfilingError::NoFunction(rows.function))?;
        keep_model(station, &function, rows.rows.into_iter(), BTreeSet::new()).await
    }

    async fn runs(
        &self,
        bench: &Bench,
        function: &Function,
        request: &ProfileRequest,
        cache: &IdleCache<'_>,
        tell: &mut impl FnMut(&ProfileReport),
    ) -> Result<(Profiler, BTreeSet<String>), ProfilingError> {
        let whole = cache.shape.ways;
        cache.allocation.allocate(whole).map_err(|reason| ProfileRunError::Allocation { ways: whole, reason })?;
        let payloads: Vec<_> = request.events.iter().map(|event| Bytes::from(event.to_string())).collect();
        let runs = ProfileRuns {
            invoke: &bench.invoker,
            station: &bench.station,
            who: bench.who.clone(),
            function: function.name.clone(),
            payloads: &payloads,
        };
        let (mut inputs, mut paths) = (Vec::new(), BTreeSet::new());
        for payload in &payloads {
            let (input, of_input) = self.input(bench, &runs, payload).await?;
            inputs.push(input);
            paths.extend(of_input);
        }
        let rule =
            SearchRule { form: request.form, whole, fewest: cache.shape.min_ways, threshold: Tolerance::FIVE_PERCENT };
        let fresh = Profiler::new(ProfilerSettings::of(rule), inputs)?;
        let stored = UnfinishedProfile::new(&self.0.folder, &function.namespace, &function.name, &function.revision_id);
        let mut profiler = taken_up(&stored, fresh);
        let keep = |profiler: &Profiler| {
            tell(&report(profiler));
            if let Err(error) = stored.write(&profiler.store()) {
                let file = stored.path().display();
                tracing::warn!(%file, %error, "an unfinished profile is not stored; after a crash it starts over");
            }
        };
        runs.complete(&mut profiler, keep).await?;
        if let Err(error) = stored.remove() {
            tracing::debug!(file = %stored.path().display(), %error, "there is no unfinished profile to remove");
        }
        Ok((profiler, paths))
    }

    /// The objects of an event that the handler reads; one run finds out which.
    async fn input(
        &self,
        bench: &Bench,
        runs: &ProfileRuns<'_>,
        payload: &Bytes,
    ) -> Result<(ProfileInput, BTreeSet<String>), ProfilingError> {
        let named = PayloadWalk::of(payload).objects;
        let names: Vec<_> = named.iter().map(|object| format!("{}/{}", object.bucket, object.key)).collect();
        let name = names.join(" ");
        let record: Activation = runs
            .trial(payload.clone())
            .await?
            .map_err(|reason| ProfilingError::FirstRun { name: name.clone(), reason })?;
        let paths = input_paths(&named, &record.data_calls);
        let mut size = 0_u64;
        for object in named.iter().filter(|object| paths.contains(object.path.as_str())) {
            let meta = bench.memory.head(&bench.who, &object.bucket, &object.key, GetRequest::default()).await?;
            size = size.saturating_add(meta.size);
        }
        if paths.is_empty() {
            return Err(ProfilingError::NoInput(name));
        }
        Ok((ProfileInput { name, size: ByteSize(size), features: Vec::new() }, paths))
    }

    async fn bench(&self, namespace: &Namespace, allocation: Arc<dyn WayAllocation>) -> Result<Bench, ProfilingError> {
        let parts = &self.0;
        let scratch = tempfile::tempdir_in(parts.folder.parent().unwrap_or(&parts.folder))
            .map_err(|error| io("a folder for what the profile writes", error))?;
        let upper = scratch.path().join("objects");
        let clock = Arc::clone(&parts.clock);
        let upper = tokio::task::spawn_blocking(move || DirectoryStore::open(&upper, clock))
            .await
            .map_err(|error| io("opening the scratch store", error))??;
        let overlay = OverlayStore::new(Arc::new(upper), Arc::clone(&parts.store), SCRATCH_MAX);
        let accountant = Arc::new(PhaseAccountant::new(DATA_CALLS_MAX));
        let observer = Arc::clone(&accountant) as Arc<dyn nigh_data::ObjectObserver>;
        let limits = MemoryLimits { cache: ByteSize::ZERO, cached_object: ByteSize::ZERO, object: parts.object_max };
        let memory = ObjectMemory::open(
            Arc::new(overlay),
            Writes::through(Epoch(parts.incarnation.0)),
            Arc::clone(&parts.clock),
            vec![observer],
            scratch.path().join("spool"),
            limits,
        )
        .await?;
        let door = S3Door::new(Arc::new(memory.clone()), parts.keys.clone(), DoorLimits::default())
            .map_err(|error| io("the threads of the profile's data door", error))?;
        let records = StateFile::open(&scratch.path().join("records.redb"))
            .map_err(|error| io("records of the profile", error))?;
        let retention = Retention {
            records_max: RECORDS_MAX,
            bytes_max: RECORDS_BYTES_MAX,
            namespace_bytes_max: RECORDS_BYTES_MAX,
        };
        let records = RecordLog::open(records, retention).map_err(|error| io("records of the profile", error))?;
        let station = Arc::new(ProfileHook::new(allocation));
        let invoker = Invoker::new(
            InvokerParts {
                functions: Arc::new(parts.functions.clone()),
                engine: Arc::clone(&parts.engine),
                data_door: Arc::new(SandboxDataDoor {
                    fast: parts.fast_path.map(|limits| FastPath::new(&door, limits)),
                    http: door,
                    // What is run to be measured has no effects but on its own objects.
                    lambda: None,
                }),
                keys: parts.keys.clone(),
                gate: Arc::new(memory.clone()),
                accountant,
                activations: ActivationLog::new(records),
                hooks: vec![Arc::clone(&station) as Arc<dyn nigh_invoke::hooks::InvocationHook>],
                clock: Arc::clone(&parts.clock),
                memory: parts.memory.clone(),
                node: parts.node.clone(),
                incarnation: parts.incarnation,
            },
            parts.invoker.clone(),
        );
        Ok(Bench { invoker, station, memory, who: Principal::outside(namespace.clone()), _scratch: scratch })
    }
}

/// Chooses the model that fits the rows best, and stores it.
async fn keep_model(
    station: &CacheWays,
    function: &Function,
    rows: impl Iterator<Item = TrainingRow>,
    inputs: BTreeSet<String>,
) -> Result<(), ProfilingError> {
    let version = FunctionModel::version(function);
    let mut all = TrainingRows::new(version.clone());
    for row in rows {
        let row = row.told_apart(station.lines_per_way());
        all.add(&version, row).map_err(|error| io("a profiled row", error))?;
    }
    let rule = SizingRule { threshold: Tolerance::FIVE_PERCENT, lines_per_way: station.lines_per_way() };
    if let Some(model) = SizingModel::choose(all, rule) {
        station.models().keep(&function.namespace, &function.name, FunctionModel { model, inputs }).await?;
    }
    Ok(())
}

fn io(what: &str, reason: impl std::fmt::Display) -> ProfilingError {
    ProfilingError::Io { what: what.to_owned(), reason: reason.to_string() }
}

/// The profile that a crash interrupted, if it has the same inputs; else `fresh`.
fn taken_up(unfinished: &UnfinishedProfile, fresh: Profiler) -> Profiler {
    let same_inputs = |stored: &Profiler| {
        let inputs = |profiler: &Profiler| profiler.outcomes().map(|(input, _)| input.clone()).collect::<Vec<_>>();
        inputs(stored) == inputs(&fresh) && stored.settings() == fresh.settings()
    };
    let stored = unfinished.read().and_then(|text| Profiler::resume(&text).ok());
    stored.filter(same_inputs).unwrap_or(fresh)
}

fn report(profiler: &Profiler) -> ProfileReport {
    let inputs = profiler.outcomes().map(|(input, outcome)| ProfiledInput {
        name: input.name.clone(),
        bytes: input.size.0,
        outcome: outcome.cloned(),
    });
    let (cost, saved) = (profiler.cost(), profiler.saved_per_invocation());
    ProfileReport {
        inputs: inputs.collect(),
        runs: cost.runs,
        seconds: cost.time.as_secs_f64(),
        saved_seconds: saved.as_secs_f64(),
        break_even: cost.break_even(saved),
        error: None,
        done: false,
    }
}

#[cfg(test)]
mod tests {
    use nigh_functions::function_network::NETWORK_VARIABLE;

    use super::*;

    #[test]
    fn a_run_more_is_the_owners_choice_and_with_a_way_out_it_must_be_said() {
        let runs = |pairs: &[(&str, &str)]| {
            may_run_again(&pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
        };
        let network = (NETWORK_VARIABLE, "outbound");
        assert!(runs(&[]) && runs(&[(IDEMPOTENT_VARIABLE, "true")]) && !runs(&[(IDEMPOTENT_VARIABLE, "false")]));
        assert!(
            !runs(&[network])
                && runs(&[network, (IDEMPOTENT_VARIABLE, "true")])
                && !runs(&[network, (IDEMPOTENT_VARIABLE, "false")])
        );
        assert!(runs(&[(NETWORK_VARIABLE, "none")]));
    }
}
