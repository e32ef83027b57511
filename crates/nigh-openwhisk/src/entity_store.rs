//! Packages, triggers, rules and sequences: documents of the registry, read from memory.
//!
//! A change is acknowledged when the registry has it. Of two concurrent changes of one entity, one is rejected.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use nigh_engine::{Registry, RegistryChange, RegistryError, Revision};
use nigh_functions::action::names::EntityPath;
use nigh_terms::Namespace;
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;
use tokio::sync::Mutex;

use super::entities::{Entity, Package, Rule, Sequence, Trigger};

const TABLE: &str = "openwhisk";
/// The format of the documents.
const FORMAT: u32 = 1;
/// Entities of one kind in a namespace.
const ENTITIES_MAX: usize = 10_000;

/// Why an entity cannot be changed, or the store cannot be opened.
#[derive(Debug, Error)]
pub enum EntityStoreError {
    /// Another request changed the entity.
    #[error("Concurrent modification to resource detected.")]
    Conflict,
    /// The namespace is full.
    #[error("the namespace has {0} entities of this kind, which is the limit; delete some")]
    TooMany(usize),
    /// The registry's own reason.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The document cannot be read.
    #[error("the OpenWhisk entity {0} cannot be read: {1}; start the nigh that wrote it, or restore a backup")]
    Document(String, String),
}

/// An entity as it is now.
#[derive(Clone, Debug)]
pub(super) struct RevisedEntity<T> {
    pub(super) entity: Arc<T>,
    pub(super) revision: Revision,
}

/// The entities of one kind, by namespace and place.
type Table<T> = BTreeMap<Namespace, BTreeMap<EntityPath, RevisedEntity<T>>>;

#[derive(Default)]
struct Index {
    packages: Table<Package>,
    triggers: Table<Trigger>,
    rules: Table<Rule>,
    sequences: Table<Sequence>,
}

/// An entity whose kind the store can find.
pub(super) trait StoredEntity: Entity {
    #[doc(hidden)]
    fn table(index: &Tables) -> &Table<Self>;
    #[doc(hidden)]
    fn table_mut(index: &mut Tables) -> &mut Table<Self>;
}

/// All entities, for `StoredEntity` alone.
#[derive(Default)]
pub(super) struct Tables(Index);

macro_rules! kept {
    ($($kind:ident in $table:ident),*) => {
        $(impl StoredEntity for $kind {
            fn table(index: &Tables) -> &Table<Self> {
                &index.0.$table
            }
            fn table_mut(index: &mut Tables) -> &mut Table<Self> {
                &mut index.0.$table
            }
        })*

        /// Copies the registry's document at `key`, unless this build does not know its kind.
        fn take_over(tables: &mut Tables, key: &str, now: Option<(&[u8], Revision)>) -> Result<(), EntityStoreError> {
            let Some((namespace, collection, path)) = place_of(key) else { return Ok(()) };
            match collection {
                $($kind::COLLECTION => show::<$kind>(tables, &namespace, &path, now.map(|(document, revision)| {
                    Ok::<_, EntityStoreError>(RevisedEntity { entity: Arc::new(decode(key, document)?), revision })
                }).transpose()?),)*
                _ => {}
            }
            Ok(())
        }
    };
}

kept!(Package in packages, Trigger in triggers, Rule in rules, Sequence in sequences);

#[derive(Serialize)]
struct Document<'a, T> {
    format: u32,
    entity: &'a T,
}

#[derive(Deserialize)]
struct EntityDocument {
    format: u32,
    entity: Value,
}

fn decode<T: Entity>(key: &str, document: &[u8]) -> Result<T, EntityStoreError> {
    let unreadable = |why: String| EntityStoreError::Document(key.to_owned(), why);
    let EntityDocument { format, entity } =
        serde_json::from_slice(document).map_err(|error| unreadable(error.to_string()))?;
    if format > FORMAT {
        return Err(unreadable(format!("its format is {format}, and this build reads up to {FORMAT}")));
    }
    serde_json::from_value(entity).map_err(|error| unreadable(error.to_string()))
}

/// The key of an entity's document. The only `/` in a place is between package and name.
fn key<T: Entity>(namespace: &Namespace, path: &EntityPath) -> String {
    format!("{namespace}/{}/{path}", T::COLLECTION)
}

fn place_of(key: &str) -> Option<(Namespace, &str, EntityPath)> {
    let mut parts = key.splitn(3, '/');
    let namespace = Namespace::new(parts.next()?).ok()?;
    Some((namespace, parts.next()?, parts.next()?.parse().ok()?))
}

/// Replaces the copy by `now`, unless the copy is newer.
fn show<T: StoredEntity>(tables: &mut Tables, namespace: &Namespace, path: &EntityPath, now: Option<RevisedEntity<T>>) {
    let table = T::table_mut(tables);
    match now {
        Some(now) => {
            let entities = table.entry(namespace.clone()).or_default();
            if entities.get(path).is_none_or(|shown| shown.revision < now.revision) {
                entities.insert(path.clone(), now);
            }
        }
        None => {
            if let Some(entities) = table.get_mut(namespace) {
                entities.remove(path);
            }
        }
    }
}

/// The entities of all namespaces. A clone is another handle to them.
#[derive(Clone)]
pub struct EntityStore {
    registry: Arc<dyn Registry>,
    tables: Arc<RwLock<Tables>>,
    /// Held while the registry and the copy change together.
    changing: Arc<Mutex<()>>,
}

impl EntityStore {
    /// Reads all entities.
    ///
    /// # Errors
    /// If the registry cannot be read, or has a document of an unknown format.
    #[boxed]
    pub async fn open(registry: Arc<dyn Registry>) -> Result<Self, EntityStoreError> {
        let mut tables = Tables::default();
        for (key, stored) in registry.list(TABLE, "").await? {
            take_over(&mut tables, &key, Some((&stored.value, stored.revision)))?;
        }
        Ok(Self { registry, tables: Arc::new(RwLock::new(tables)), changing: Arc::default() })
    }

    /// Follows the changes of other nodes.
    ///
    /// # Errors
    /// If the watch cannot begin.
    #[boxed]
    pub async fn follow(&self) -> Result<(), EntityStoreError> {
        let mut changes = self.registry.watch(TABLE).await?;
        let tables = Arc::downgrade(&self.tables);
        tokio::spawn(async move {
            while let Some(RegistryChange { key, now }) = changes.recv().await {
                let Some(tables) = tables.upgrade() else { return };
                let now = now.as_ref().map(|now| (&*now.value, now.revision));
                if let Err(error) = take_over(&mut tables.write(), &key, now) {
                    tracing::error!(%error, "the change of another node cannot be read");
                }
            }
        });
        Ok(())
    }

    /// How many entities a namespace has.
    #[must_use]
    pub fn count(&self, namespace: &Namespace) -> usize {
        let tables = self.tables.read();
        let Index { packages, triggers, rules, sequences } = &tables.0;
        packages.get(namespace).map_or(0, BTreeMap::len)
            + triggers.get(namespace).map_or(0, BTreeMap::len)
            + rules.get(namespace).map_or(0, BTreeMap::len)
            + sequences.get(namespace).map_or(0, BTreeMap::len)
    }

    /// Removes all entities of a namespace.
    ///
    /// # Errors
    /// If the registry cannot be written, or another request changes an entity meanwhile; the rest stays.
    #[boxed]
    pub async fn clear(&self, namespace: &Namespace) -> Result<(), EntityStoreError> {
        self.clear_kind::<Rule>(namespace).await?;
        self.clear_kind::<Trigger>(namespace).await?;
        self.clear_kind::<Sequence>(namespace).await?;
        self.clear_kind::<Package>(namespace).await
    }

    async fn clear_kind<T: StoredEntity>(&self, namespace: &Namespace) -> Result<(), EntityStoreError> {
        for (path, held) in self.all::<T>(namespace) {
            self.delete::<T>(namespace, &path, held.revision).await?;
        }
        Ok(())
    }

    /// The entity.
    pub(super) fn get<T: StoredEntity>(&self, namespace: &Namespace, path: &EntityPath) -> Option<RevisedEntity<T>> {
        T::table(&self.tables.read()).get(namespace)?.get(path).cloned()
    }

    /// All entities of a namespace, by name.
    pub(super) fn all<T: StoredEntity>(&self, namespace: &Namespace) -> Vec<(EntityPath, RevisedEntity<T>)> {
        let tables = self.tables.read();
        let entities = T::table(&tables).get(namespace);
        entities.into_iter().flatten().map(|(path, held)| (path.clone(), held.clone())).collect()
    }

    /// Writes `entity` if the stored one is at `expected` (none: if there is none).
    pub(super) async fn put<T: StoredEntity>(
        &self,
        namespace: &Namespace,
        path: &EntityPath,
        entity: T,
        expected: Option<Revision>,
    ) -> Result<RevisedEntity<T>, EntityStoreError> {
        let (store, namespace, path) = (self.clone(), namespace.clone(), path.clone());
        to_the_end(async move {
            let _changing = store.changing.lock().await;
            let place = key::<T>(&namespace, &path);
            let is_full = T::table(&store.tables.read()).get(&namespace).is_some_and(|all| all.len() >= ENTITIES_MAX);
            if expected.is_none() && is_full {
                return Err(EntityStoreError::TooMany(ENTITIES_MAX));
            }
            let document = serde_json::to_vec(&Document { format: FORMAT, entity: &entity })
                .map_err(|error| EntityStoreError::Document(place.clone(), error.to_string()))?;
            let put = store.registry.put(TABLE, &place, document, expected).await;
            let revision = store.resolved(&place, put).await?;
            let held = RevisedEntity { entity: Arc::new(entity), revision };
            show(&mut store.tables.write(), &namespace, &path, Some(held.clone()));
            Ok(held)
        })
        .await
    }

    /// Removes the entity if it is at `expected`.
    pub(super) async fn delete<T: StoredEntity>(
        &self,
        namespace: &Namespace,
        path: &EntityPath,
        expected: Revision,
    ) -> Result<(), EntityStoreError> {
        let (store, namespace, path) = (self.clone(), namespace.clone(), path.clone());
        to_the_end(async move {
            let _changing = store.changing.lock().await;
            let place = key::<T>(&namespace, &path);
            let deleted = store.registry.delete(TABLE, &place, expected).await;
            store.resolved(&place, deleted).await?;
            show::<T>(&mut store.tables.write(), &namespace, &path, None);
            Ok(())
        })
        .await
    }

    /// After a conflict, copies what another node wrote.
    async fn resolved<R>(&self, place: &str, result: Result<R, RegistryError>) -> Result<R, EntityStoreError> {
        let Err(RegistryError::Conflict { .. }) = &result else { return Ok(result?) };
        let found = self.registry.get(TABLE, place).await?;
        let now = found.as_ref().map(|found| (&*found.value, found.revision));
        take_over(&mut self.tables.write(), place, now)?;
        Err(EntityStoreError::Conflict)
    }
}

/// Runs `change` to its end even if the caller is dropped, so that the copy equals the registry.
async fn to_the_end<R: Send + 'static>(
    change: impl Future<Output = Result<R, EntityStoreError>> + Send + 'static,
) -> Result<R, EntityStoreError> {
    let lost = |join: tokio::task::JoinError| RegistryError::Storage(join.to_string());
    tokio::spawn(change).await.map_err(lost)?
}

#[cfg(test)]
mod tests {
    use nigh_engine::{LocalRegistry, StateFile};
    use nigh_terms::Timestamp;

    use super::super::entities::EntityHeader;
    use super::*;
    use nigh_functions::action::parameters::Parameters;
    use nigh_functions::action::version::SemVer;

    fn trigger(publish: bool) -> Trigger {
        let (parameters, annotations) = (Parameters::default(), Parameters::default());
        let common =
            EntityHeader { parameters, annotations, version: SemVer::default(), publish, updated: Timestamp(1) };
        Trigger { common }
    }

    #[tokio::test]
    async fn entities_outlive_the_node_and_of_two_changes_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFile::open(&folder.path().join("state.redb")).unwrap();
        let registry: Arc<dyn Registry> = Arc::new(LocalRegistry::new(state));
        let (namespace, path) = (Namespace::new("tenant").unwrap(), "a b@c".parse().unwrap());
        let store = EntityStore::open(Arc::clone(&registry)).await.unwrap();
        let made = store.put(&namespace, &path, trigger(false), None).await.unwrap();
        let again = EntityStore::open(Arc::clone(&registry)).await.unwrap();
        let seen = again.get::<Trigger>(&namespace, &path).unwrap();
        assert_eq!((seen.entity, seen.revision), (made.entity, made.revision));
        assert!(again.get::<Package>(&namespace, &path).is_none(), "kinds do not meet");
        assert!(again.all::<Trigger>(&Namespace::new("other").unwrap()).is_empty(), "tenants do not meet");

        let changed = store.put(&namespace, &path, trigger(true), Some(made.revision)).await.unwrap();
        let late = again.put(&namespace, &path, trigger(false), Some(made.revision)).await;
        assert!(matches!(late, Err(EntityStoreError::Conflict)), "{late:?}");
        assert_eq!(again.get::<Trigger>(&namespace, &path).unwrap().revision, changed.revision, "it has seen why");
        store.delete::<Trigger>(&namespace, &path, changed.revision).await.unwrap();
        assert!(store.all::<Trigger>(&namespace).is_empty());
    }

    #[tokio::test]
    async fn what_a_newer_nigh_wrote_stops_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFile::open(&folder.path().join("state.redb")).unwrap();
        let registry: Arc<dyn Registry> = Arc::new(LocalRegistry::new(state));
        registry.put(TABLE, "tenant/rules/r", br#"{"format":2,"entity":{}}"#.to_vec(), None).await.unwrap();
        let refused = EntityStore::open(registry).await.err().unwrap().to_string();
        assert!(refused.contains("tenant/rules/r") && refused.contains("format is 2"), "{refused}");
    }
}
