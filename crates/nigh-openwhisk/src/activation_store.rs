//! The activations of a node as OpenWhisk lists them: those of the OpenWhisk door with their answers, and those of other
//! doors.

use std::collections::BTreeMap;

use nigh_engine::{RecordLog, RegistryError};
use nigh_functions::action::names::EntityPath;
use nigh_functions::function_store::FunctionStore;
use nigh_invoke::activation_log::{ActivationLog, ActivationQuery};
use nigh_schedule::activation::Activation;
use nigh_terms::{FunctionName, InvocationId, Namespace};

use super::query::Page;
use super::record::Record;

/// Selects activations for a list.
#[derive(Clone, Debug, Default)]
pub(super) struct Filter {
    /// The action or trigger.
    pub(super) name: Option<EntityPath>,
    /// The earliest begin, in milliseconds.
    pub(super) since: Option<u64>,
    /// The latest begin, in milliseconds.
    pub(super) upto: Option<u64>,
}

/// The records of a node.
#[derive(Clone)]
pub struct ActivationStore {
    records: RecordLog,
    runs: ActivationLog,
    functions: FunctionStore,
}

impl ActivationStore {
    /// A store over `records`, which holds nothing else, and the `runs` of all doors.
    #[must_use]
    pub const fn new(records: RecordLog, runs: ActivationLog, functions: FunctionStore) -> Self {
        Self { records, runs, functions }
    }

    /// Adds a record without waiting for the disk.
    pub(super) fn keep(&self, record: &Record) {
        match serde_json::to_vec(record) {
            Ok(bytes) => self.records.append(*record.id.as_bytes(), &record.namespace, bytes),
            Err(error) => tracing::error!(%error, id = %record.id, "an activation cannot be written as JSON"),
        }
    }

    /// The record of `id`, if it belongs to the namespace.
    pub(super) async fn get(&self, namespace: &Namespace, id: InvocationId) -> Result<Option<Record>, RegistryError> {
        if let Some(bytes) = self.records.get(*id.as_bytes()).await? {
            return Ok(parse(&bytes).filter(|record| record.namespace == *namespace && record.id == id));
        }
        let run = self.runs.get(id).await?.filter(|run| run.namespace == *namespace);
        Ok(run.map(|run| self.shown(&run)))
    }

    /// The activations that match `filter`, newest first.
    pub(super) async fn list(
        &self,
        namespace: &Namespace,
        filter: &Filter,
        page: Page,
    ) -> Result<Vec<Record>, RegistryError> {
        // The first items of both lists together are among the first items of each.
        let most = if page.count { usize::MAX } else { page.skip.saturating_add(page.limit) };
        let before = filter.upto.map(|upto| first_of(upto.saturating_add(1)));
        let (asked, wanted) = (namespace.clone(), filter.clone());
        let own = self.records.newest(before, most, move |bytes| {
            parse(bytes).filter(|record| record.namespace == asked && wanted.wants(record))
        });
        let mut all: BTreeMap<InvocationId, Record> =
            own.await?.into_iter().map(|record| (record.id, record)).collect();
        for function in filter.functions() {
            let query = ActivationQuery {
                namespace: Some(namespace.clone()),
                function,
                before: before.map(InvocationId::of_bytes),
                ..ActivationQuery::default()
            };
            for run in self.runs.list(query, most).await? {
                let record = self.shown(&run);
                if filter.wants(&record) {
                    all.entry(run.id).or_insert(record);
                }
            }
        }
        Ok(all.into_values().rev().collect())
    }

    /// An activation of another door.
    fn shown(&self, run: &Activation) -> Record {
        let deployed = self.functions.get(&run.namespace, &run.function);
        let function = deployed.as_ref().map(|deployed| &deployed.function);
        let path = function.and_then(|function| function.action.as_ref()).map(|action| action.path.clone());
        let kind = function.map_or("", |function| function.runtime_name.as_str());
        Record::of_activation(run, &path.unwrap_or_else(|| path_of(&run.function)), kind)
    }
}

/// The name that a function of another door has as an action.
pub(super) fn path_of(function: &FunctionName) -> EntityPath {
    // Every function name is an action name, unless it begins with a hyphen.
    function.as_str().parse().unwrap_or_else(|_| {
        format!("_{function}").parse().unwrap_or_else(|_| unreachable!("a function's name has no other characters"))
    })
}

fn parse(bytes: &[u8]) -> Option<Record> {
    let record = serde_json::from_slice(bytes);
    record.inspect_err(|error| tracing::warn!(%error, "an OpenWhisk record cannot be read and is skipped")).ok()
}

/// The smallest id of activations that began at `millis` or later (UUID version 7).
fn first_of(millis: u64) -> [u8; 16] {
    let mut id = [0; 16];
    id[..6].copy_from_slice(&millis.min((1 << 48) - 1).to_be_bytes()[2..]);
    id
}

impl Filter {
    fn wants(&self, record: &Record) -> bool {
        let start = record.start.millis();
        self.since.is_none_or(|since| start >= since)
            && self.upto.is_none_or(|upto| start <= upto)
            && self.name.as_ref().is_none_or(|name| record.is_of(&name.to_string()))
    }

    /// The function whose activations may match; none means all functions.
    fn functions(&self) -> Vec<Option<FunctionName>> {
        let Some(name) = &self.name else { return vec![None] };
        let mut functions = vec![Some(name.function())];
        let plain = FunctionName::new(name.name.as_str()).ok().filter(|_| name.package.is_none());
        functions.extend(plain.filter(|plain| functions[0].as_ref() != Some(plain)).map(Some));
        functions
    }
}
