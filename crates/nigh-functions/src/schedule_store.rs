//! The schedules: in the registry, and in memory for the runner.
//!
//! A schedule is one document: what its owner says of it and what came of its runs change by compare-and-set of the same
//! document, so that no run begins after a pause, a change or a removal was acknowledged. If this build cannot read a
//! document, the start fails: a schedule is never skipped.

mod document;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use nigh_engine::{Registry, RegistryError, Revision};
use nigh_terms::{Clock, FunctionName, Namespace};
use parking_lot::{Mutex, RwLock};
use thiserror::Error;
use tokio::sync::Notify;

use self::document::{decode, encode};
use crate::schedule::{ExpressionError, GROUP, Schedule, ScheduleName, ScheduleProgress, ScheduleSettings};

/// The registry's table of schedules.
pub const SCHEDULES_TABLE: &str = "schedules";
/// The most schedules of one namespace.
pub const SCHEDULES_MAX: usize = 10_000;
/// A change by its owner is tried so often while runs change the document.
const CHANGES_MAX: usize = 64;

/// Why a request about a schedule fails.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message says what the fields hold")]
pub enum ScheduleError {
    #[error("Schedule {0} does not exist.")]
    NotFound(ScheduleName),
    #[error("Schedule {0} already exists.")]
    Exists(ScheduleName),
    #[error("Invalid Schedule Expression: {0}")]
    Expression(#[from] ExpressionError),
    #[error("the namespace has {SCHEDULES_MAX} schedules, which is the limit; delete some")]
    TooMany,
    #[error("others keep changing the schedule; try again")]
    Busy,
    #[error("schedule {0}: {1}; start the nigh that wrote it, or restore a backup")]
    Document(String, String),
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

/// Which schedule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScheduleKey {
    /// The tenant.
    pub namespace: Namespace,
    /// The schedule's name.
    pub name: ScheduleName,
}

/// A schedule as the registry has it.
#[derive(Clone, Debug)]
pub struct StoredSchedule {
    /// The schedule.
    pub schedule: Schedule,
    /// The revision of its document.
    pub revision: Revision,
}

type Index = BTreeMap<Namespace, BTreeMap<ScheduleName, Arc<StoredSchedule>>>;

struct ScheduleStoreState {
    registry: Arc<dyn Registry>,
    clock: Arc<dyn Clock>,
    index: RwLock<Index>,
    /// Schedules that have changed since the runner looked.
    changed: Mutex<BTreeSet<ScheduleKey>>,
    notify: Notify,
}

/// The schedules. A clone is another handle to them.
#[derive(Clone)]
pub struct ScheduleStore(Arc<ScheduleStoreState>);

impl ScheduleKey {
    fn place(&self) -> String {
        // Where the group of the schedule is named, if there will be others.
        format!("{}/{}/{}", self.namespace, GROUP, self.name)
    }

    fn of_place(place: &str) -> Option<Self> {
        let mut parts = place.splitn(3, '/');
        let (namespace, group, name) = (parts.next()?, parts.next()?, parts.next()?);
        let (namespace, name) = (Namespace::new(namespace).ok()?, ScheduleName::new(name).ok()?);
        (group == GROUP).then_some(Self { namespace, name })
    }
}

impl ScheduleStore {
    /// Reads all schedules of the registry.
    ///
    /// # Errors
    /// If the registry cannot be read, or has a schedule that this build cannot read.
    #[boxed]
    pub async fn open(registry: Arc<dyn Registry>, clock: Arc<dyn Clock>) -> Result<Self, ScheduleError> {
        let mut index = Index::new();
        for (place, found) in registry.list(SCHEDULES_TABLE, "").await? {
            let unnamed = || ScheduleError::Document(place.clone(), "its key names no schedule".to_owned());
            let key = ScheduleKey::of_place(&place).ok_or_else(unnamed)?;
            let stored =
                StoredSchedule { schedule: decode(&key.name, &place, &found.value)?, revision: found.revision };
            index.entry(key.namespace).or_default().insert(key.name, Arc::new(stored));
        }
        let (index, changed, notify) = (RwLock::new(index), Mutex::default(), Notify::new());
        Ok(Self(Arc::new(ScheduleStoreState { registry, clock, index, changed, notify })))
    }

    /// Follows the changes by other nodes.
    ///
    /// # Errors
    /// If the registry cannot be watched.
    #[boxed]
    pub async fn follow(&self) -> Result<(), ScheduleError> {
        let mut changes = self.0.registry.watch(SCHEDULES_TABLE).await?;
        let weak = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            while let Some(change) = changes.recv().await {
                let Some(inner) = weak.upgrade() else { return };
                let Some(key) = ScheduleKey::of_place(&change.key) else { continue };
                let Some(now) = change.now else {
                    inner.hide(&key);
                    continue;
                };
                match decode(&key.name, &change.key, &now.value) {
                    Ok(schedule) => drop(inner.show(&key, schedule, now.revision)),
                    Err(error) => tracing::error!(%error, "a schedule that another node wrote cannot be read"),
                }
            }
        });
        Ok(())
    }

    /// The schedule, as this node knows it.
    #[must_use]
    pub fn get(&self, key: &ScheduleKey) -> Option<Arc<StoredSchedule>> {
        self.0.index.read().get(&key.namespace)?.get(&key.name).cloned()
    }

    /// At most `limit` schedules of `namespace` behind `after` that `wanted` chooses, by name; and whether there are more.
    #[must_use]
    pub fn list(
        &self,
        namespace: &Namespace,
        after: Option<&ScheduleName>,
        limit: usize,
        wanted: impl Fn(&Schedule) -> bool,
    ) -> (Vec<Arc<StoredSchedule>>, bool) {
        let index = self.0.index.read();
        let Some(schedules) = index.get(namespace) else { return (Vec::new(), false) };
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut behind = schedules
            .range::<ScheduleName, _>((from, Bound::Unbounded))
            .map(|(_, stored)| stored)
            .filter(|stored| wanted(&stored.schedule));
        let page = behind.by_ref().take(limit).cloned().collect();
        (page, behind.next().is_some())
    }

    /// All schedules of all namespaces.
    #[must_use]
    pub fn keys(&self) -> Vec<ScheduleKey> {
        let index = self.0.index.read();
        let all = index.iter().flat_map(|(namespace, schedules)| schedules.keys().map(move |name| (namespace, name)));
        all.map(|(namespace, name)| ScheduleKey { namespace: namespace.clone(), name: name.clone() }).collect()
    }

    /// Returns when a schedule has changed since `take_changed`.
    pub async fn changed(&self) {
        self.0.notify.notified().await;
    }

    /// The schedules that have changed since the last call. For the one runner.
    #[must_use]
    pub fn take_changed(&self) -> BTreeSet<ScheduleKey> {
        std::mem::take(&mut *self.0.changed.lock())
    }

    /// Makes a schedule. The same request again gives the same schedule.
    ///
    /// # Errors
    /// If there is another of its name, its times cannot be read, or the registry refuses.
    #[boxed]
    pub async fn create(
        &self,
        key: &ScheduleKey,
        settings: ScheduleSettings,
        client_token: Option<String>,
    ) -> Result<Arc<StoredSchedule>, ScheduleError> {
        if self.0.index.read().get(&key.namespace).is_some_and(|schedules| schedules.len() >= SCHEDULES_MAX) {
            return Err(ScheduleError::TooMany);
        }
        let schedule = Schedule::new(key.name.clone(), settings, client_token, self.0.clock.wall())?;
        match self.0.write(key, schedule.clone(), None).await {
            Err(ScheduleError::Registry(RegistryError::Conflict { .. })) => {}
            written => return written,
        }
        let there = self.read(key).await?.ok_or(ScheduleError::Busy)?;
        let token = &schedule.client_token;
        let is_same = token.is_some() && there.schedule.client_token == *token;
        if is_same { Ok(there) } else { Err(ScheduleError::Exists(key.name.clone())) }
    }

    /// Replaces what the owner says of a schedule.
    ///
    /// # Errors
    /// If there is none of its name, the times cannot be read, or the registry refuses.
    #[boxed]
    pub async fn update(
        &self,
        key: &ScheduleKey,
        settings: ScheduleSettings,
    ) -> Result<Arc<StoredSchedule>, ScheduleError> {
        for _ in 0..CHANGES_MAX {
            let there = self.read(key).await?.ok_or_else(|| ScheduleError::NotFound(key.name.clone()))?;
            let schedule = there.schedule.with_settings(settings.clone(), self.0.clock.wall())?;
            match self.0.write(key, schedule, Some(there.revision)).await {
                Err(ScheduleError::Registry(RegistryError::Conflict { .. })) => {}
                written => return written,
            }
        }
        Err(ScheduleError::Busy)
    }

    /// Removes a schedule: no run of it begins any more.
    ///
    /// # Errors
    /// If there is none of its name, or the registry refuses.
    #[boxed]
    pub async fn delete(&self, key: &ScheduleKey) -> Result<(), ScheduleError> {
        for _ in 0..CHANGES_MAX {
            let there = self.read(key).await?.ok_or_else(|| ScheduleError::NotFound(key.name.clone()))?;
            match self.delete_known(key, &there).await {
                Err(ScheduleError::Registry(RegistryError::Conflict { .. })) => {}
                deleted => return deleted,
            }
        }
        Err(ScheduleError::Busy)
    }

    /// Removes a schedule as it is known.
    ///
    /// # Errors
    /// `Conflict` of the registry if the schedule was changed after `known`; if the registry refuses.
    #[boxed]
    pub async fn delete_known(&self, key: &ScheduleKey, known: &StoredSchedule) -> Result<(), ScheduleError> {
        self.0.registry.delete(SCHEDULES_TABLE, &key.place(), known.revision).await?;
        self.0.hide(key);
        Ok(())
    }

    /// The schedule as the registry has it now.
    ///
    /// # Errors
    /// If the registry cannot be read, or has a schedule that this build cannot read.
    #[boxed]
    pub async fn read(&self, key: &ScheduleKey) -> Result<Option<Arc<StoredSchedule>>, ScheduleError> {
        let place = key.place();
        let Some(found) = self.0.registry.get(SCHEDULES_TABLE, &place).await? else {
            self.0.hide(key);
            return Ok(None);
        };
        let schedule = decode(&key.name, &place, &found.value)?;
        Ok(Some(self.0.show(key, schedule, found.revision)))
    }

    /// Writes what came of a schedule's runs.
    ///
    /// # Errors
    /// `Conflict` of the registry if the schedule was changed after `known`; if the registry refuses.
    #[boxed]
    pub async fn advance(
        &self,
        key: &ScheduleKey,
        known: &StoredSchedule,
        progress: ScheduleProgress,
    ) -> Result<(), ScheduleError> {
        let schedule = Schedule { progress, ..known.schedule.clone() };
        self.0.write(key, schedule, Some(known.revision)).await.map(drop)
    }

    /// Removes all schedules of a function.
    ///
    /// # Errors
    /// If the registry refuses.
    #[boxed]
    pub(crate) async fn delete_of(&self, namespace: &Namespace, function: &FunctionName) -> Result<(), ScheduleError> {
        let (own, _) = self.list(namespace, None, usize::MAX, |schedule| schedule.settings.function == *function);
        for stored in own {
            let key = ScheduleKey { namespace: namespace.clone(), name: stored.schedule.name.clone() };
            match self.delete(&key).await {
                Ok(()) | Err(ScheduleError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Removes the schedules of functions that are not `deployed`.
    ///
    /// # Errors
    /// If the registry refuses.
    pub(crate) async fn sweep(
        &self,
        deployed: impl Fn(&Namespace, &FunctionName) -> bool + Send + Sync,
    ) -> Result<(), ScheduleError> {
        for key in self.keys() {
            let function = self.get(&key).map(|stored| stored.schedule.settings.function.clone());
            if function.is_some_and(|function| !deployed(&key.namespace, &function)) {
                tracing::info!(namespace = %key.namespace, schedule = %key.name, "removing a schedule of a function that was deleted");
                match self.delete(&key).await {
                    Ok(()) | Err(ScheduleError::NotFound(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

impl ScheduleStoreState {
    async fn write(
        &self,
        key: &ScheduleKey,
        schedule: Schedule,
        expected: Option<Revision>,
    ) -> Result<Arc<StoredSchedule>, ScheduleError> {
        let place = key.place();
        let encoded = encode(&schedule).map_err(|why| ScheduleError::Document(place.clone(), why))?;
        let revision = self.registry.put(SCHEDULES_TABLE, &place, encoded, expected).await?;
        Ok(self.show(key, schedule, revision))
    }

    /// Shows the schedule, unless a newer revision is shown.
    fn show(&self, key: &ScheduleKey, schedule: Schedule, revision: Revision) -> Arc<StoredSchedule> {
        let stored = Arc::new(StoredSchedule { schedule, revision });
        {
            let mut index = self.index.write();
            let schedules = index.entry(key.namespace.clone()).or_default();
            if schedules.get(&key.name).is_some_and(|shown| shown.revision >= revision) {
                return stored;
            }
            schedules.insert(key.name.clone(), Arc::clone(&stored));
        }
        self.tell(key);
        stored
    }

    fn hide(&self, key: &ScheduleKey) {
        let hidden = self.index.write().get_mut(&key.namespace).and_then(|schedules| schedules.remove(&key.name));
        if hidden.is_some() {
            self.tell(key);
        }
    }

    fn tell(&self, key: &ScheduleKey) {
        self.changed.lock().insert(key.clone());
        self.notify.notify_one();
    }
}
