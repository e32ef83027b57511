//! Memory models on this node: whether they set grants, and what `nigh learn` shows, imports and exports. A model
//! belongs to the deployed code of a function.

use std::sync::Arc;
use std::time::Duration;

use nigh_engine::Registry;
use nigh_functions::function::Function;
use nigh_functions::function_store::FunctionStore;
use nigh_invoke::hooks::InvocationHook;
pub use nigh_sizing::memory_sizing::LearnedStatus;
use nigh_sizing::memory_sizing::{MemorySizing, MemorySizingError, MemorySizingParts, SizingMode};
use nigh_sizing::object_features::ObjectFeatures;
use nigh_terms::{Clock, FunctionName, Namespace};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::config::{MemorySettings, Sizing, Switch};
use crate::status::Level;

/// The most functions in one answer.
pub(crate) const LISTED_MAX: usize = 1000;

/// The memory models of a node's functions.
pub(crate) struct MemoryModels {
    sizing: Option<Arc<MemorySizing>>,
    functions: FunctionStore,
}

/// Training rows for a function, from `nigh learn import`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportedRows {
    /// The rows as CSV (docs/design/learning.md).
    pub csv: String,
}

/// Why there is no model to show, or an import failed.
#[derive(Debug, Error)]
pub enum LearningError {
    /// Models are off by the settings.
    #[error(
        "no memory model is learned because memory.sizing is off; set it to \"on\" or \"watch\" and restart the node"
    )]
    Off,
    /// The function is not deployed.
    #[error("there is no function {0}")]
    NoFunction(FunctionName),
    /// The models reject the request, or cannot be stored.
    #[error(transparent)]
    Sizing(#[from] MemorySizingError),
}

impl MemoryModels {
    /// Starts learning. Needs a tokio runtime.
    pub(crate) fn open(
        settings: &MemorySettings,
        registry: Arc<dyn Registry>,
        functions: FunctionStore,
        objects: Arc<dyn ObjectFeatures>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        // Without grants no run can grow, so a prediction that is too low would kill a function.
        let mode = match (settings.sizing, settings.grants) {
            (Sizing::Off, _) => return Self { sizing: None, functions },
            (Sizing::On, Switch::On) => SizingMode::Grants,
            (Sizing::Watch, _) | (Sizing::On, Switch::Off) => SizingMode::Watches,
        };
        let sizing = MemorySizing::new(MemorySizingParts {
            registry,
            functions: Arc::new(functions.clone()),
            objects,
            learner: settings.learner.learner(),
            mode,
            clock,
        });
        Self { sizing: Some(Arc::new(sizing)), functions }
    }

    /// One line for the status.
    pub(crate) fn level(&self) -> Level {
        let (on, detail) = match &self.sizing {
            Some(sizing) => (true, sizing.words()),
            None => (false, "memory.sizing is off; each run is granted its whole booking".to_owned()),
        };
        Level { name: "sizing".to_owned(), on, detail }
    }

    /// The hook of each run.
    pub(crate) fn hook(&self) -> Option<Arc<dyn InvocationHook>> {
        self.sizing.clone().map(|sizing| sizing as Arc<dyn InvocationHook>)
    }

    fn sizing(&self) -> Result<&MemorySizing, LearningError> {
        self.sizing.as_deref().ok_or(LearningError::Off)
    }

    fn function(&self, namespace: &Namespace, name: &FunctionName) -> Result<Arc<Function>, LearningError> {
        let deployed = self.functions.get(namespace, name).ok_or_else(|| LearningError::NoFunction(name.clone()))?;
        Ok(Arc::clone(&deployed.function))
    }

    /// The models of a namespace's functions, by name.
    pub(crate) async fn list(&self, namespace: &Namespace, limit: usize) -> Result<Vec<LearnedStatus>, LearningError> {
        let sizing = self.sizing()?;
        let (deployed, _) = self.functions.list(namespace, None, limit.min(LISTED_MAX));
        let mut found = Vec::new();
        for one in deployed {
            match sizing.show(&one.function).await {
                Ok(status) => found.push(status),
                Err(MemorySizingError::Nothing(_)) => {}
                Err(other) => return Err(other.into()),
            }
        }
        Ok(found)
    }

    pub(crate) async fn show(
        &self,
        namespace: &Namespace,
        name: &FunctionName,
    ) -> Result<LearnedStatus, LearningError> {
        Ok(self.sizing()?.show(&*self.function(namespace, name)?).await?)
    }

    pub(crate) async fn export(&self, namespace: &Namespace, name: &FunctionName) -> Result<String, LearningError> {
        Ok(self.sizing()?.export(&*self.function(namespace, name)?).await?)
    }

    pub(crate) async fn import(
        &self,
        namespace: &Namespace,
        name: &FunctionName,
        rows: ImportedRows,
    ) -> Result<(), LearningError> {
        self.sizing()?.import(&*self.function(namespace, name)?, rows.csv).await?;
        Ok(())
    }

    pub(crate) async fn forget(&self, namespace: &Namespace, name: &FunctionName) -> Result<(), LearningError> {
        match self.sizing()?.forget(namespace, name).await? {
            true => Ok(()),
            false => Err(MemorySizingError::Nothing(name.clone()).into()),
        }
    }

    /// Returns when all models are stored, or after `patience`.
    pub(crate) async fn close(&self, patience: Duration) {
        let Some(sizing) = &self.sizing else { return };
        if tokio::time::timeout(patience, sizing.flush()).await.is_err() {
            tracing::warn!("some memory models are not stored; Nigh learns them again");
        }
    }
}
