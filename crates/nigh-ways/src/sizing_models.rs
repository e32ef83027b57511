//! The models of how many cache ways each function's invocations need, kept in the registry.
//!
//! A model belongs to one version of a function's code; another version has none until it is profiled. The profile also
//! learns which objects named by an input are its data, and that is stored with the model.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use nigh_engine::{Registry, RegistryError};
use nigh_functions::function::Function;
use nigh_llc::{CodeVersion, ModelError, SizingModel};
use nigh_terms::{FunctionName, Namespace};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use thiserror::Error;

const TABLE: &str = "sizing_models";
/// Functions that may have a model.
const FUNCTIONS_MAX: usize = 10_000;

/// Why a model is not kept.
#[derive(Debug, Error)]
pub enum SizingModelsError {
    /// The registry's reason.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The model cannot be written.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The document cannot be written.
    #[error("a model cannot be stored: {0}")]
    Document(#[from] serde_json::Error),
    /// Too many.
    #[error("{FUNCTIONS_MAX} functions have models already; remove some of those functions first")]
    Full,
}

/// One function's model.
#[derive(Debug)]
pub struct FunctionModel {
    /// The need by size.
    pub model: SizingModel,
    /// The paths of the input that name its data (`nigh_schedule::inputs::named_objects`). If empty, all paths that name
    /// objects.
    pub inputs: BTreeSet<String>,
}

impl FunctionModel {
    /// The version of code that a function's deployment has.
    #[must_use]
    pub fn version(function: &Function) -> CodeVersion {
        CodeVersion(function.code_sha256.clone())
    }
}

/// What stands in the registry.
#[derive(Serialize, Deserialize)]
struct Document {
    inputs: BTreeSet<String>,
    model: serde_json::Value,
}

type Name = (Namespace, FunctionName);

/// The models of all functions of this node.
pub struct SizingModels {
    registry: Arc<dyn Registry>,
    models: RwLock<HashMap<Name, Arc<FunctionModel>>>,
}

fn key(namespace: &Namespace, function: &FunctionName) -> String {
    format!("{namespace}/{function}")
}

fn read(document: &[u8]) -> Result<FunctionModel, SizingModelsError> {
    let Document { inputs, model } = serde_json::from_slice(document)?;
    Ok(FunctionModel { model: SizingModel::decode(&serde_json::to_vec(&model)?)?, inputs })
}

impl SizingModels {
    /// Loads the models that earlier processes stored. A model that cannot be read is left out with a warning, and its
    /// function is profiled again.
    ///
    /// # Errors
    /// If the registry cannot be read.
    #[boxed]
    pub async fn open(registry: Arc<dyn Registry>) -> Result<Self, SizingModelsError> {
        let mut models = HashMap::new();
        for (key, revised) in registry.list(TABLE, "").await? {
            let Some((namespace, function)) = key.split_once('/') else { continue };
            let (Ok(namespace), Ok(function)) = (Namespace::new(namespace), FunctionName::new(function)) else {
                continue;
            };
            match read(&revised.value) {
                Ok(model) => drop(models.insert((namespace, function), Arc::new(model))),
                Err(error) => tracing::warn!(%key, %error, "a model of cache ways is left out"),
            }
        }
        Ok(Self { registry, models: RwLock::new(models) })
    }

    /// The model of a function as it is deployed now.
    #[must_use]
    pub fn find(&self, function: &Function) -> Option<Arc<FunctionModel>> {
        let models = self.models.read();
        // A map by a pair of owned names asks for one; two short copies cost less than a second level of maps.
        let model = models.get(&(function.namespace.clone(), function.name.clone()))?;
        (*model.model.rows().version() == FunctionModel::version(function)).then(|| Arc::clone(model))
    }

    /// Stores a function's model in place of its present one.
    ///
    /// # Errors
    /// If it cannot be stored, or there are too many.
    #[boxed]
    pub async fn keep(
        &self,
        namespace: &Namespace,
        function: &FunctionName,
        model: FunctionModel,
    ) -> Result<(), SizingModelsError> {
        let name = (namespace.clone(), function.clone());
        {
            let models = self.models.read();
            if models.len() >= FUNCTIONS_MAX && !models.contains_key(&name) {
                return Err(SizingModelsError::Full);
            }
        }
        let stored = serde_json::from_slice(&model.model.encode()?)?;
        let document = serde_json::to_vec(&Document { inputs: model.inputs.clone(), model: stored })?;
        let key = key(namespace, function);
        loop {
            let found = self.registry.get(TABLE, &key).await?.map(|revised| revised.revision);
            match self.registry.put(TABLE, &key, document.clone(), found).await {
                Ok(_) => break,
                // The last profile wins over a concurrent one.
                Err(RegistryError::Conflict { .. }) => {}
                Err(other) => return Err(other.into()),
            }
        }
        self.models.write().insert(name, Arc::new(model));
        Ok(())
    }

    /// Every model, by namespace and function.
    #[must_use]
    pub fn all(&self) -> Vec<(Namespace, FunctionName, Arc<FunctionModel>)> {
        let models = self.models.read();
        let mut all: Vec<_> = models
            .iter()
            .map(|((namespace, function), model)| (namespace.clone(), function.clone(), Arc::clone(model)))
            .collect();
        all.sort_by(|one, other| (&one.0, &one.1).cmp(&(&other.0, &other.1)));
        all
    }
}
