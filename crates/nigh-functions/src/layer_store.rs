//! Layers: archives that many functions share, published in numbered versions, shown together at `/opt`.
//!
//! A version's document is in the registry, its files are in a `code_store`. A function stores what it needs of its layers, so a
//! deleted version still serves the functions that use it, as on Lambda; unused files are removed at the next start. The layers
//! of a function are merged once, in order, by hard links: of two files with the same name the later layer's counts.

mod extensions;
mod merge;

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use nigh_engine::{Registry, RegistryError};
use nigh_terms::{ByteSize, Clock, FunctionName, Namespace, Timestamp};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

use self::merge::{merge, sweep_merges};
use crate::code_archive::{Archive, ArchiveLimits};
use crate::code_store::{CodeStore, CodeStoreError, CodeVersion};
use crate::function::{Function, LayerUse};
use crate::function_arn::ACCOUNT;

const TABLE: &str = "layers";
/// The format that this build writes.
const FORMAT: u32 = 1;
/// Layers of one function (Lambda quotas).
pub const LAYERS_MAX: usize = 5;
/// Versions of all layers of one namespace.
const VERSIONS_MAX: usize = 1000;
/// Layers merged, below the store's folder.
const MERGED: &str = "merged";

/// Why a request about a layer fails.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message says what the fields hold")]
pub enum LayerError {
    #[error("Layer version {0} does not exist.")]
    NotFound(String),
    #[error("{0:?} is no ARN of a layer version: arn:aws:lambda:REGION:000000000000:layer:NAME:VERSION")]
    Arn(String),
    #[error("the namespace has {VERSIONS_MAX} layer versions, which is the limit; delete some")]
    TooMany,
    #[error(
        "the layer {layer} has the Lambda extension {}, and Nigh starts no extensions: publish the layer without its \
         folder extensions/", .extension.display()
    )]
    Extension { layer: FunctionName, extension: PathBuf },
    #[error(transparent)]
    Code(#[from] CodeStoreError),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error("layer {0}: {1}; start the nigh that wrote it, or restore a backup")]
    Document(String, String),
    #[error("merging layers: {what} {path}: {source}")]
    Merge { what: &'static str, path: PathBuf, source: io::Error },
    #[error("the change was interrupted: {0}")]
    Aborted(String),
}

/// A layer's version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerVersion {
    /// The layer's name.
    pub name: FunctionName,
    /// Its number, from 1.
    pub version: u64,
    /// The owner's description.
    pub description: String,
    /// Lambda's `CompatibleRuntimes`; Nigh only returns them.
    pub runtimes: Vec<String>,
    /// Lambda's `LicenseInfo`; Nigh only returns it.
    pub license: String,
    /// The archive's SHA-256, base64.
    pub sha256: String,
    /// The archive's size.
    pub size: ByteSize,
    /// Its unpacked size.
    pub unpacked: ByteSize,
    /// When it was published.
    pub created: Timestamp,
}

/// A new version of a layer.
#[derive(Clone, Debug)]
pub struct NewLayer {
    /// The layer's name.
    pub name: FunctionName,
    /// The owner's description.
    pub description: String,
    /// Nigh only returns it.
    pub runtimes: Vec<String>,
    /// Nigh only returns it.
    pub license: String,
}

#[derive(Serialize, Deserialize)]
struct Document {
    format: u32,
    /// The number of the last version ever published: numbers are not used again.
    last: u64,
    versions: BTreeMap<u64, LayerVersion>,
}

/// The ARN of a layer.
#[must_use]
pub fn layer_arn(region: &str, name: &FunctionName) -> String {
    format!("arn:aws:lambda:{region}:{ACCOUNT}:layer:{name}")
}

/// The layer and version that an ARN names.
///
/// # Errors
/// If it names no layer version of this account.
pub fn parse_layer_arn(arn: &str) -> Result<(FunctionName, u64), LayerError> {
    let bad = || LayerError::Arn(arn.chars().take(200).collect());
    let ["arn", _, "lambda", _, ACCOUNT, "layer", name, version] = arn.split(':').collect::<Vec<_>>()[..] else {
        return Err(bad());
    };
    Ok((FunctionName::new(name).map_err(|_| bad())?, version.parse().map_err(|_| bad())?))
}

/// The layers of a node.
#[derive(Clone)]
pub struct LayerStore(Arc<LayerStoreState>);

type Index = BTreeMap<(Namespace, FunctionName), (Document, nigh_engine::Revision)>;

struct LayerStoreState {
    registry: Arc<dyn Registry>,
    code: CodeStore,
    merged: PathBuf,
    clock: Arc<dyn Clock>,
    index: RwLock<Index>,
    changing: tokio::sync::Mutex<()>,
    merging: tokio::sync::Mutex<()>,
}

fn code_version(namespace: &Namespace, name: &FunctionName, sha256: &str) -> CodeVersion {
    CodeVersion { namespace: namespace.clone(), function: name.clone(), sha256: sha256.to_owned() }
}

/// Names the merge of these layers of a namespace.
fn merge_name(namespace: &Namespace, layers: &[LayerUse]) -> String {
    let mut digest = Sha256::new();
    digest.update(namespace.as_str());
    for layer in layers {
        digest.update(format!("\0{}\0{}", layer.name, layer.sha256));
    }
    nigh_terms::Hex(&digest.finalize()).to_string()
}

impl LayerStore {
    /// Reads the published layers, and removes files that neither a version nor one of `functions` uses.
    ///
    /// # Errors
    /// If the registry or the disk cannot be read.
    #[boxed]
    pub async fn open(
        registry: Arc<dyn Registry>,
        root: &Path,
        clock: Arc<dyn Clock>,
        functions: &[Arc<Function>],
    ) -> Result<Self, LayerError> {
        let mut index = Index::new();
        for (key, stored) in registry.list(TABLE, "").await? {
            let unreadable = |why: String| LayerError::Document(key.clone(), why);
            let document: Document =
                serde_json::from_slice(&stored.value).map_err(|error| unreadable(error.to_string()))?;
            if document.format > FORMAT {
                return Err(unreadable(format!(
                    "its format is {}, and this build reads up to {FORMAT}",
                    document.format
                )));
            }
            let (namespace, name) = key.split_once('/').ok_or_else(|| unreadable("it has no namespace".to_owned()))?;
            let namespace = Namespace::new(namespace).map_err(|error| unreadable(error.to_string()))?;
            let name = FunctionName::new(name).map_err(|error| unreadable(error.to_string()))?;
            index.insert((namespace, name), (document, stored.revision));
        }
        let mut live: Vec<CodeVersion> = Vec::new();
        for ((namespace, name), (document, _)) in &index {
            live.extend(document.versions.values().map(|version| code_version(namespace, name, &version.sha256)));
        }
        let mut merges = HashSet::new();
        for function in functions {
            let used = function.layers.iter();
            live.extend(used.map(|layer| code_version(&function.namespace, &layer.name, &layer.sha256)));
            merges.insert(merge_name(&function.namespace, &function.layers));
        }
        let (root, merged) = (root.to_owned(), root.join(MERGED));
        let below = merged.clone();
        let code = blocking(move || {
            let code = CodeStore::open(&root, ArchiveLimits::LAMBDA)?;
            let folders: HashSet<PathBuf> = live.iter().map(|version| code.folder(version)).collect();
            code.sweep(|folder| folders.contains(folder))?;
            sweep_merges(&below, &merges)?;
            Ok(code)
        })
        .await?;
        Ok(Self(Arc::new(LayerStoreState {
            registry,
            code,
            merged,
            clock,
            index: RwLock::new(index),
            changing: tokio::sync::Mutex::default(),
            merging: tokio::sync::Mutex::default(),
        })))
    }

    /// Publishes the next version of a layer; durable when it returns.
    ///
    /// # Errors
    /// If the archive, a limit, the disk or the registry refuses.
    pub async fn publish(
        &self,
        namespace: &Namespace,
        new: NewLayer,
        archive: impl Into<Archive> + Send,
    ) -> Result<LayerVersion, LayerError> {
        let (store, namespace, archive) = (self.clone(), namespace.clone(), archive.into());
        // A task of its own: it goes on if the caller goes away.
        let done = tokio::spawn(async move { store.publish_now(&namespace, new, archive).await });
        done.await.unwrap_or_else(|join| Err(LayerError::Aborted(join.to_string())))
    }

    async fn publish_now(
        &self,
        namespace: &Namespace,
        new: NewLayer,
        archive: Archive,
    ) -> Result<LayerVersion, LayerError> {
        let _changing = self.0.changing.lock().await;
        if self.versions_of(namespace) >= VERSIONS_MAX {
            return Err(LayerError::TooMany);
        }
        let size = archive.size();
        let (code, tenant, name) = (self.0.code.clone(), namespace.clone(), new.name.clone());
        let (version, unpacked) = blocking(move || {
            if let Some(extension) = extensions::of_archive(&archive).map_err(CodeStoreError::from)? {
                return Err(LayerError::Extension { layer: name, extension });
            }
            let version = CodeVersion::of_archive(&tenant, &name, &archive)?;
            let unpacked = code.publish(&version, &archive)?;
            Ok((version, unpacked))
        })
        .await?;
        let (mut document, revision) = self.document(namespace, &new.name);
        document.last += 1;
        let published = LayerVersion {
            name: new.name.clone(),
            version: document.last,
            description: new.description,
            runtimes: new.runtimes,
            license: new.license,
            sha256: version.sha256,
            size,
            unpacked,
            created: self.0.clock.wall(),
        };
        document.versions.insert(published.version, published.clone());
        self.keep(namespace, &new.name, document, revision).await?;
        Ok(published)
    }

    /// Deletes a version, if there is one. Functions that use it keep it.
    ///
    /// # Errors
    /// If the registry refuses.
    #[boxed]
    pub async fn delete(&self, namespace: &Namespace, name: &FunctionName, version: u64) -> Result<(), LayerError> {
        let _changing = self.0.changing.lock().await;
        let (mut document, revision) = self.document(namespace, name);
        match document.versions.remove(&version) {
            Some(_) => self.keep(namespace, name, document, revision).await,
            None => Ok(()),
        }
    }

    fn document(&self, namespace: &Namespace, name: &FunctionName) -> (Document, Option<nigh_engine::Revision>) {
        let index = self.0.index.read();
        match index.get(&(namespace.clone(), name.clone())) {
            Some((document, revision)) => {
                let versions = document.versions.clone();
                (Document { format: FORMAT, last: document.last, versions }, Some(*revision))
            }
            None => (Document { format: FORMAT, last: 0, versions: BTreeMap::new() }, None),
        }
    }

    async fn keep(
        &self,
        namespace: &Namespace,
        name: &FunctionName,
        document: Document,
        expected: Option<nigh_engine::Revision>,
    ) -> Result<(), LayerError> {
        let key = format!("{namespace}/{name}");
        let encoded =
            serde_json::to_vec(&document).map_err(|error| LayerError::Document(key.clone(), error.to_string()))?;
        let revision = self.0.registry.put(TABLE, &key, encoded, expected).await?;
        self.0.index.write().insert((namespace.clone(), name.clone()), (document, revision));
        Ok(())
    }

    fn versions_of(&self, namespace: &Namespace) -> usize {
        let index = self.0.index.read();
        index.iter().filter(|((tenant, _), _)| tenant == namespace).map(|(_, (one, _))| one.versions.len()).sum()
    }

    /// A version.
    #[must_use]
    pub fn get(&self, namespace: &Namespace, name: &FunctionName, version: u64) -> Option<LayerVersion> {
        let index = self.0.index.read();
        index.get(&(namespace.clone(), name.clone()))?.0.versions.get(&version).cloned()
    }

    /// The archive of a version, as it was uploaded.
    #[must_use]
    pub fn archive(&self, namespace: &Namespace, version: &LayerVersion) -> PathBuf {
        self.0.code.archive(&code_version(namespace, &version.name, &version.sha256))
    }

    /// The versions of a layer, newest first.
    #[must_use]
    pub fn versions(&self, namespace: &Namespace, name: &FunctionName) -> Vec<LayerVersion> {
        let index = self.0.index.read();
        let found = index.get(&(namespace.clone(), name.clone()));
        found.into_iter().flat_map(|(document, _)| document.versions.values().rev().cloned()).collect()
    }

    /// The newest version of each layer of a namespace, by name.
    #[must_use]
    pub fn newest(&self, namespace: &Namespace) -> Vec<LayerVersion> {
        let index = self.0.index.read();
        let own = index.iter().filter(|((tenant, _), _)| tenant == namespace);
        own.filter_map(|(_, (document, _))| document.versions.values().next_back().cloned()).collect()
    }

    /// What a function stores of the version that an ARN names.
    ///
    /// # Errors
    /// If there is no such version in the namespace, or it has an extension: it is of a Nigh that passed over extensions.
    pub fn resolve(&self, namespace: &Namespace, arn: &str) -> Result<LayerUse, LayerError> {
        let (name, number) = parse_layer_arn(arn)?;
        let version = self.get(namespace, &name, number).ok_or_else(|| LayerError::NotFound(arn.to_owned()))?;
        let files = self.0.code.task_folder(&code_version(namespace, &name, &version.sha256));
        if let Some(extension) = extensions::of_files(&files) {
            return Err(LayerError::Extension { layer: name, extension });
        }
        Ok(LayerUse {
            arn: arn.to_owned(),
            name,
            sha256: version.sha256,
            size: version.size,
            unpacked: version.unpacked,
        })
    }

    /// The folder that a function with these layers finds at `/opt`, made if it is not there.
    ///
    /// # Errors
    /// If the disk refuses.
    #[boxed]
    pub async fn folder(&self, namespace: &Namespace, layers: &[LayerUse]) -> Result<PathBuf, LayerError> {
        let trees: Vec<PathBuf> = layers
            .iter()
            .map(|layer| self.0.code.task_folder(&code_version(namespace, &layer.name, &layer.sha256)))
            .collect();
        if let [one] = trees.as_slice() {
            return Ok(one.clone());
        }
        let target = self.0.merged.join(merge_name(namespace, layers));
        let _merging = self.0.merging.lock().await;
        let merged = target.clone();
        blocking(move || {
            if !merged.is_dir() {
                merge(&trees, &merged)?;
            }
            Ok(())
        })
        .await?;
        Ok(target)
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LayerError> + Send + 'static,
) -> Result<T, LayerError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|join| Err(LayerError::Aborted(join.to_string())))
}

#[cfg(test)]
mod tests;
