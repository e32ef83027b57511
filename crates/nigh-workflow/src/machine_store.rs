//! The deployed state machines: in the registry, and in memory for starts of executions.
//!
//! The store follows what other nodes of a cluster deploy. If this build cannot read a document, the start fails: a
//! machine is never skipped.

mod machine;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use nigh_engine::{Registry, RegistryError, Revision};
use nigh_terms::{Clock, Namespace};
use parking_lot::RwLock;
use thiserror::Error;
use uuid::Uuid;

pub use self::machine::{Machine, MachineKind, NewMachine};
use crate::arn::WorkflowName;
use crate::scratch::ScratchFolder;
use crate::{Problem, read};

/// The registry's table of state machines.
pub const MACHINES_TABLE: &str = "state-machines";
/// The most state machines of one namespace (Step Functions quotas: 10,000).
const MACHINES_MAX: usize = 10_000;

/// Why a request about a state machine fails.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message says what the fields hold")]
pub enum MachineError {
    #[error("State Machine Does Not Exist: '{0}'")]
    NotFound(WorkflowName),
    #[error("State Machine Already Exists: '{0}', and differs")]
    Exists(WorkflowName),
    #[error("Invalid State Machine Definition: '{}'", problem_words(.0))]
    Invalid(Vec<Problem>),
    #[error("the namespace has {MACHINES_MAX} state machines, which is the limit; delete one first")]
    TooMany,
    #[error("another caller has just changed the state machine; try again")]
    Conflict,
    #[error("state machine {0}: {1}; start the nigh that wrote it, or restore a backup")]
    Document(String, String),
    #[error(transparent)]
    Registry(RegistryError),
}

impl From<RegistryError> for MachineError {
    fn from(error: RegistryError) -> Self {
        match error {
            RegistryError::Conflict { .. } => Self::Conflict,
            other => Self::Registry(other),
        }
    }
}

fn problem_words(problems: &[Problem]) -> String {
    let words = problems.iter().map(|problem| format!("{}: {} at {}", problem.code, problem, problem.location()));
    words.collect::<Vec<_>>().join("; ")
}

type Index = BTreeMap<Namespace, BTreeMap<WorkflowName, Arc<Machine>>>;

struct MachineStoreState {
    registry: Arc<dyn Registry>,
    clock: Arc<dyn Clock>,
    index: RwLock<Index>,
}

/// The state machines. A clone is another handle to them.
#[derive(Clone)]
pub struct MachineStore(Arc<MachineStoreState>);

fn key(namespace: &Namespace, name: &WorkflowName) -> String {
    format!("{namespace}/{name}")
}

fn place(key: &str) -> Option<(Namespace, WorkflowName)> {
    let (namespace, name) = key.split_once('/')?;
    Some((Namespace::new(namespace).ok()?, WorkflowName::new(name).ok()?))
}

impl MachineStore {
    /// Reads all state machines of the registry.
    ///
    /// # Errors
    /// If the registry cannot be read, or has a machine that this build cannot read.
    #[boxed]
    pub async fn open(registry: Arc<dyn Registry>, clock: Arc<dyn Clock>) -> Result<Self, MachineError> {
        let mut index = Index::new();
        for (key, stored) in registry.list(MACHINES_TABLE, "").await? {
            let machine = Machine::decode(&key, &stored.value, stored.revision)?;
            let unnamed = || MachineError::Document(key.clone(), "its key names nothing".to_owned());
            let (namespace, name) = place(&key).ok_or_else(unnamed)?;
            index.entry(namespace).or_default().insert(name, Arc::new(machine));
        }
        Ok(Self(Arc::new(MachineStoreState { registry, clock, index: RwLock::new(index) })))
    }

    /// Follows the changes by other nodes.
    ///
    /// # Errors
    /// If the registry cannot be watched.
    #[boxed]
    pub async fn follow(&self) -> Result<(), MachineError> {
        let mut changes = self.0.registry.watch(MACHINES_TABLE).await?;
        let weak = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            while let Some(change) = changes.recv().await {
                let Some(inner) = weak.upgrade() else { return };
                let Some((namespace, name)) = place(&change.key) else { continue };
                let Some(now) = change.now else {
                    if let Some(machines) = inner.index.write().get_mut(&namespace) {
                        machines.remove(&name);
                    }
                    continue;
                };
                match Machine::decode(&change.key, &now.value, now.revision) {
                    Ok(machine) => inner.take(&namespace, machine),
                    Err(error) => tracing::error!(%error, "a state machine that another node deployed cannot be read"),
                }
            }
        });
        Ok(())
    }

    /// The machine, if there is one.
    #[must_use]
    pub fn get(&self, namespace: &Namespace, name: &WorkflowName) -> Option<Arc<Machine>> {
        self.0.index.read().get(namespace)?.get(name).cloned()
    }

    /// Reads the machine with this name again, unless this store has `revision` or a later one.
    ///
    /// # Errors
    /// If the registry cannot be read, or has a machine that this build cannot read.
    #[boxed]
    pub async fn catch_up(&self, namespace: &Namespace, name: &str, revision: Revision) -> Result<(), MachineError> {
        let known = |name: &WorkflowName| self.get(namespace, name).is_some_and(|known| known.revision >= revision);
        let Ok(name) = WorkflowName::new(name) else { return Ok(()) };
        if known(&name) {
            return Ok(());
        }
        let place = key(namespace, &name);
        if let Some(stored) = self.0.registry.get(MACHINES_TABLE, &place).await? {
            self.0.take(namespace, Machine::decode(&place, &stored.value, stored.revision)?);
        }
        Ok(())
    }

    /// At most `limit` machines of `namespace` after `after`, and whether there are more.
    #[must_use]
    pub fn list(&self, namespace: &Namespace, after: Option<&WorkflowName>, limit: usize) -> (Vec<Arc<Machine>>, bool) {
        let index = self.0.index.read();
        let Some(machines) = index.get(namespace) else { return (Vec::new(), false) };
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut found: Vec<Arc<Machine>> = machines
            .range::<WorkflowName, _>((from, Bound::Unbounded))
            .take(limit + 1)
            .map(|(_, m)| m.clone())
            .collect();
        let more = found.len() > limit;
        found.truncate(limit);
        (found, more)
    }

    /// The functions that state machines of `namespace` name.
    #[must_use]
    pub fn functions(&self, namespace: &Namespace) -> BTreeSet<nigh_terms::FunctionName> {
        let index = self.0.index.read();
        let machines = index.get(namespace).into_iter().flat_map(BTreeMap::values);
        machines.flat_map(|machine| machine.definition.functions()).collect()
    }

    /// Creates a state machine; nothing changes if there is an equal one.
    ///
    /// # Errors
    /// If its definition is wrong, there is another of its name, or the registry refuses.
    #[boxed]
    pub async fn create(&self, namespace: &Namespace, new: NewMachine) -> Result<Arc<Machine>, MachineError> {
        let definition = read(&new.text).map_err(MachineError::Invalid)?;
        if let Some(there) = self.get(namespace, &new.name) {
            let same =
                *there.text == *new.text && (there.kind, &there.role, &there.tags) == (new.kind, &new.role, &new.tags);
            return if same { Ok(there) } else { Err(MachineError::Exists(new.name)) };
        }
        if self.0.index.read().get(namespace).is_some_and(|machines| machines.len() >= MACHINES_MAX) {
            return Err(MachineError::TooMany);
        }
        let now = self.0.clock.wall();
        let machine = Machine {
            name: new.name,
            kind: new.kind,
            text: new.text.into(),
            definition: Arc::new(definition),
            role: new.role,
            created: now,
            updated: now,
            revision_id: Uuid::new_v4().to_string(),
            tags: new.tags,
            scratch: new.scratch,
            revision: Revision(0),
        };
        self.write(namespace, machine, None).await
    }

    /// Changes the definition or the role of a machine; running executions keep theirs.
    ///
    /// # Errors
    /// If there is no such machine, the definition is wrong, or the registry refuses.
    #[boxed]
    pub async fn update(
        &self,
        namespace: &Namespace,
        name: &WorkflowName,
        text: Option<String>,
        role: Option<String>,
    ) -> Result<Arc<Machine>, MachineError> {
        let there = self.get(namespace, name).ok_or_else(|| MachineError::NotFound(name.clone()))?;
        let mut machine = Machine::clone(&there);
        if let Some(text) = text {
            machine.definition = Arc::new(read(&text).map_err(MachineError::Invalid)?);
            machine.text = text.into();
        }
        machine.role = role.unwrap_or(machine.role);
        machine.updated = self.0.clock.wall().max(there.updated);
        machine.revision_id = Uuid::new_v4().to_string();
        self.write(namespace, machine, Some(there.revision)).await
    }

    /// Gives a machine, which is as in `there`, these tags and the scratch folders that they declare; running executions
    /// keep theirs.
    ///
    /// # Errors
    /// If the machine is another by now, or the registry refuses.
    #[boxed]
    pub async fn set_tags(
        &self,
        namespace: &Namespace,
        there: &Machine,
        tags: BTreeMap<String, String>,
        scratch: Vec<ScratchFolder>,
    ) -> Result<Arc<Machine>, MachineError> {
        let machine = Machine { tags, scratch, ..there.clone() };
        self.write(namespace, machine, Some(there.revision)).await
    }

    async fn write(
        &self,
        namespace: &Namespace,
        mut machine: Machine,
        expected: Option<Revision>,
    ) -> Result<Arc<Machine>, MachineError> {
        let place = key(namespace, &machine.name);
        let stored = machine.encode(&place)?;
        machine.revision = self.0.registry.put(MACHINES_TABLE, &place, stored, expected).await?;
        let machine = Arc::new(machine);
        self.0.take(namespace, Machine::clone(&machine));
        Ok(machine)
    }

    /// Deletes a machine, if there is one; running executions continue.
    ///
    /// # Errors
    /// If the registry refuses.
    #[boxed]
    pub async fn delete(&self, namespace: &Namespace, name: &WorkflowName) -> Result<(), MachineError> {
        let Some(there) = self.get(namespace, name) else { return Ok(()) };
        self.0.registry.delete(MACHINES_TABLE, &key(namespace, name), there.revision).await?;
        if let Some(machines) = self.0.index.write().get_mut(namespace) {
            machines.remove(name);
        }
        Ok(())
    }
}

impl MachineStoreState {
    /// Adds `machine` to the index, unless a newer revision is there.
    fn take(&self, namespace: &Namespace, machine: Machine) {
        let mut index = self.index.write();
        let machines = index.entry(namespace.clone()).or_default();
        if machines.get(&machine.name).is_none_or(|shown| shown.revision <= machine.revision) {
            machines.insert(machine.name.clone(), Arc::new(machine));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nigh_engine::{LocalRegistry, StateFile};
    use nigh_terms::SystemClock;

    const PASS: &str = r#"{"StartAt":"A","States":{"A":{"Type":"Pass","End":true}}}"#;

    fn new(name: &str, text: &str) -> NewMachine {
        NewMachine {
            name: WorkflowName::new(name).unwrap(),
            kind: MachineKind::Standard,
            text: text.to_owned(),
            role: String::new(),
            tags: BTreeMap::new(),
            scratch: Vec::new(),
        }
    }

    #[tokio::test]
    async fn a_machine_is_kept_changed_and_deleted_and_one_of_a_newer_format_stops_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFile::open(&folder.path().join("state.redb")).unwrap();
        let registry: Arc<dyn Registry> = Arc::new(LocalRegistry::new(state));
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let open = || MachineStore::open(Arc::clone(&registry), Arc::clone(&clock));
        let (store, tenant) = (open().await.unwrap(), Namespace::new("tenant").unwrap());
        let one = store.create(&tenant, new("one", PASS)).await.unwrap();
        let again = store.create(&tenant, new("one", PASS)).await.unwrap();
        assert_eq!(one.revision_id, again.revision_id);
        let other = PASS.replace("Pass", "Succeed").replace(r#","End":true"#, "");
        assert!(matches!(store.create(&tenant, new("one", &other)).await, Err(MachineError::Exists(_))));
        let invalid = store.create(&tenant, new("two", "{}")).await.unwrap_err().to_string();
        assert!(invalid.contains("States: it is missing"), "{invalid}");
        let changed = store.update(&tenant, &one.name, Some(other.clone()), None).await.unwrap();
        assert_ne!(changed.revision_id, one.revision_id);
        let tags = BTreeMap::from([("team".to_owned(), "x".to_owned())]);
        let late = store.set_tags(&tenant, &one, tags.clone(), Vec::new()).await;
        assert!(matches!(late, Err(MachineError::Conflict)), "the machine has changed since");
        store.set_tags(&tenant, &changed, tags.clone(), ScratchFolder::of_tag("bucket/f/").unwrap()).await.unwrap();
        let kept = open().await.unwrap().get(&tenant, &one.name).unwrap();
        assert_eq!((&kept.tags, kept.scratch.len(), &*kept.text), (&tags, 1, &*other));
        store.create(&tenant, new("two", PASS)).await.unwrap();

        let (page, more) = open().await.unwrap().list(&tenant, None, 1);
        assert_eq!((page[0].name.as_str(), &*page[0].text, more), ("one", other.as_str(), true));
        assert!(open().await.unwrap().get(&Namespace::new("another").unwrap(), &one.name).is_none());
        store.delete(&tenant, &one.name).await.unwrap();
        store.delete(&tenant, &one.name).await.unwrap();
        assert!(open().await.unwrap().get(&tenant, &one.name).is_none());

        registry.put(MACHINES_TABLE, "tenant/new", br#"{"format":2}"#.to_vec(), None).await.unwrap();
        let error = open().await.err().unwrap().to_string();
        assert!(error.contains("tenant/new") && error.contains("reads up to 1"), "{error}");
    }
}
