//! The functions of a namespace with what they took in the last minutes on this node, and one function with its last runs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use nigh_functions::function::Function;
use nigh_functions::function_store::DeployedFunction;
use nigh_terms::{ByteSize, FunctionName, Namespace, Timestamp, Ways};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::AdminSource;
use super::super::refusal::Refusal;
use crate::llc::ModelStatus;
use crate::recent_invocations::EndedInvocation;
use crate::recent_invocations::figures::{FunctionFigures, WINDOW_S, by_function, window_start};

/// The most runs of one function's view, the newest.
const RUNS_MAX: usize = 400;

/// What stands first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::admin) enum FunctionOrder {
    /// Where the most time went.
    #[default]
    Time,
    /// What ran most often.
    Runs,
    /// What failed most often.
    Errors,
    /// What took longest (p99).
    Slowest,
    /// By name; the only order with further pages.
    Name,
}

/// The cache ways that a function needs, by the model of the last-level cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct WaysNeed {
    /// Of the profiled input that needs least, and of the one that needs most.
    least: Ways,
    most: Ways,
}

/// A function in the list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct ShownFunction {
    runtime: String,
    memory: ByteSize,
    timeout_ms: u64,
    modified: Timestamp,
    running: usize,
    /// None if this version of its code has not been profiled.
    ways: Option<WaysNeed>,
    #[serde(flatten)]
    figures: Option<FunctionFigures>,
}

/// The functions of a namespace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct FunctionList {
    namespace: Namespace,
    window_s: u64,
    /// How many functions the namespace has.
    total: usize,
    order: Vec<FunctionName>,
    functions: BTreeMap<FunctionName, ShownFunction>,
    /// Where the next page begins (`after`).
    next: Option<FunctionName>,
}

/// One function.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct FunctionPage {
    namespace: Namespace,
    name: FunctionName,
    window_s: u64,
    description: String,
    handler: String,
    /// The names of its variables; their values may be secret.
    environment: Vec<String>,
    layers: usize,
    code_sha256: String,
    code_size: ByteSize,
    ephemeral_storage: ByteSize,
    reserved: Option<usize>,
    url: Option<String>,
    #[serde(flatten)]
    shown: ShownFunction,
    /// The last runs by id and attempt.
    last_runs: BTreeMap<String, EndedInvocation>,
}

/// What `models` say of this version of the function's code.
fn ways(function: &Function, models: &[ModelStatus]) -> Option<WaysNeed> {
    let is_its = |model: &&ModelStatus| {
        model.function == function.name
            && model.namespace == function.namespace
            && model.code_sha256 == function.code_sha256
    };
    let rows = &models.iter().find(is_its)?.rows;
    let (least, most) = (rows.iter().map(|row| row.ways).min()?, rows.iter().map(|row| row.ways).max()?);
    Some(WaysNeed { least, most })
}

fn shown(
    deployed: &DeployedFunction,
    running: usize,
    models: &[ModelStatus],
    figures: Option<FunctionFigures>,
) -> ShownFunction {
    let function = &deployed.function;
    ShownFunction {
        runtime: function.runtime_name.clone(),
        memory: function.memory,
        timeout_ms: function.timeout.as_millis() as u64,
        modified: function.modified,
        running,
        ways: ways(function, models),
        figures,
    }
}

/// The names of functions with figures in `order`; those of equal rank by name.
fn ranked(figures: &HashMap<FunctionName, FunctionFigures>, order: FunctionOrder) -> Vec<FunctionName> {
    let rank = |figures: &FunctionFigures| match order {
        FunctionOrder::Time | FunctionOrder::Name => figures.total_us(),
        FunctionOrder::Runs => figures.runs,
        FunctionOrder::Errors => figures.errors,
        FunctionOrder::Slowest => figures.p99_us,
    };
    let mut names: Vec<(u64, &FunctionName)> = figures.iter().map(|(name, one)| (rank(one), name)).collect();
    names.sort_by_key(|(rank, name)| (Reverse(*rank), *name));
    names.into_iter().map(|(_, name)| name.clone()).collect()
}

fn since<N: AdminSource>(node: &N) -> Timestamp {
    window_start(node.recent().now())
}

/// How many invocations of each function run.
fn running<N: AdminSource>(node: &N, namespace: &Namespace) -> HashMap<FunctionName, usize> {
    let (running, _) = node.recent().running(usize::MAX);
    let mut counts = HashMap::new();
    for one in running.into_iter().filter(|one| one.namespace == *namespace) {
        *counts.entry(one.function).or_default() += 1;
    }
    counts
}

/// At most `limit` functions: in the order of their names those behind `after`; in another order first those that ran, then
/// others by name.
pub(super) fn functions<N: AdminSource>(
    node: &N,
    namespace: &Namespace,
    order: FunctionOrder,
    after: Option<&FunctionName>,
    limit: usize,
) -> FunctionList {
    let store = node.functions();
    let mut figures = by_function(node.recent().ended(since(node), |one| one.namespace == *namespace));
    let running = running(node, namespace);
    let mut listed: Vec<_> = match order {
        FunctionOrder::Name => Vec::new(),
        _ => ranked(&figures, order).iter().filter_map(|name| store.get(namespace, name)).take(limit).collect(),
    };
    let (by_name, more) = store.list(namespace, after, limit);
    let next = by_name.last().filter(|_| more && order == FunctionOrder::Name).map(|last| last.function.name.clone());
    for deployed in by_name {
        if listed.len() >= limit {
            break;
        }
        if !listed.iter().any(|one| one.function.name == deployed.function.name) {
            listed.push(deployed);
        }
    }
    let order = listed.iter().map(|one| one.function.name.clone()).collect();
    let models = node.llc().models;
    let functions = listed.iter().map(|one| {
        let name = &one.function.name;
        (name.clone(), shown(one, running.get(name).copied().unwrap_or(0), &models, figures.remove(name)))
    });
    FunctionList {
        namespace: namespace.clone(),
        window_s: WINDOW_S,
        total: store.totals(namespace).0,
        order,
        functions: functions.collect(),
        next,
    }
}

/// One function with its last runs.
pub(super) fn function<N: AdminSource>(
    node: &N,
    namespace: &Namespace,
    name: &FunctionName,
) -> Result<FunctionPage, Refusal> {
    let deployed = node.functions().get(namespace, name);
    let deployed = deployed.ok_or_else(|| Refusal::not_found(format!("there is no function {name}")))?;
    let ours = |one: &EndedInvocation| one.namespace == *namespace && one.function == *name;
    let mut runs = node.recent().ended(since(node), ours);
    let figures = (!runs.is_empty()).then(|| FunctionFigures::of(&runs));
    runs.drain(..runs.len().saturating_sub(RUNS_MAX));
    let running = running(node, namespace).get(name).copied().unwrap_or(0);
    let function = &deployed.function;
    Ok(FunctionPage {
        namespace: namespace.clone(),
        name: name.clone(),
        window_s: WINDOW_S,
        description: function.description.clone(),
        handler: function.handler.clone(),
        environment: function.environment.keys().cloned().collect(),
        layers: function.layers.len(),
        code_sha256: function.code_sha256.clone(),
        code_size: function.code_size,
        ephemeral_storage: function.ephemeral_storage,
        reserved: deployed.attached.reserved,
        url: deployed.attached.url.as_ref().map(|url| url.id.clone()),
        shown: shown(&deployed, running, &node.llc().models, figures),
        last_runs: runs.into_iter().map(|run| (format!("{}-{}", run.id, run.attempt), run)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llc::ModelRow;

    #[test]
    fn the_ways_that_a_function_needs_are_those_of_this_version_of_its_code() {
        let (namespace, name) = (Namespace::new("one").unwrap(), FunctionName::new("f").unwrap());
        let row = |ways| ModelRow { bytes: 1, ways: Ways(ways), class: "sensitive".to_owned() };
        let model = ModelStatus {
            namespace: namespace.clone(),
            function: name.clone(),
            code_sha256: "new".to_owned(),
            kind: "exact".to_owned(),
            rows: vec![row(4), row(2), row(7)],
        };
        let mut function = Function::made_up(namespace, name, ByteSize::mib(128));
        assert_eq!(ways(&function, std::slice::from_ref(&model)), None);
        function.code_sha256 = "new".to_owned();
        assert_eq!(ways(&function, &[model]), Some(WaysNeed { least: Ways(2), most: Ways(7) }));
        assert_eq!(ways(&function, &[]), None);
    }

    #[test]
    fn functions_are_ranked_by_what_is_asked_and_then_by_name() {
        let name = |text: &str| FunctionName::new(text).unwrap();
        let of = |runs, errors, transform_us| FunctionFigures { runs, errors, transform_us, ..Default::default() };
        let figures =
            HashMap::from([(name("often"), of(9, 0, 10)), (name("slow"), of(1, 0, 99)), (name("bad"), of(2, 2, 10))]);
        let first = |order| ranked(&figures, order)[0].clone();
        assert_eq!(first(FunctionOrder::Time), name("slow"));
        assert_eq!(first(FunctionOrder::Runs), name("often"));
        assert_eq!(first(FunctionOrder::Errors), name("bad"));
        assert_eq!(ranked(&figures, FunctionOrder::Time), [name("slow"), name("bad"), name("often")]);
    }
}
