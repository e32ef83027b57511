//! The registry's document of one function: its rows, its model, and which arguments name inputs.
//!
//! One document for each function, for the version learned last; format 1 (docs/design/formats.md). The data is
//! derived: a damaged document, or one of a newer Nigh, is ignored with a message, and the function is learned again.

use std::sync::Arc;

use nigh_engine::{Registry, RegistryError};
use nigh_learn::{FunctionModel, ModelError, TrainingCsvError, TrainingSetError};
use nigh_terms::FunctionName;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::input_rules::InputRules;
use super::loaded_models::Name;

const TABLE: &str = "memory_models";
const FORMAT: u32 = 1;

/// Why a model cannot be stored or read.
#[derive(Debug, Error)]
pub enum MemorySizingError {
    /// The registry's reason.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The registry failed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// No document.
    #[error("memory models cannot be read or written: {0}")]
    Document(#[from] serde_json::Error),
    /// A newer Nigh's.
    #[error(
        "the stored memory model has format {format}, and this build reads {FORMAT}; learning of the function starts anew"
    )]
    OtherFormat {
        /// Its number.
        format: u32,
    },
    /// Damaged.
    #[error(
        "the stored memory model is damaged: it names more arguments as inputs than are possible; learning of the function starts anew"
    )]
    Unsound,
    /// The rows are invalid.
    #[error(transparent)]
    Csv(#[from] TrainingCsvError),
    /// The version is invalid.
    #[error(transparent)]
    Set(#[from] TrainingSetError),
    /// Nothing was learned.
    #[error(
        "the function {0} has no memory model or training rows yet: invoke it, or import a model (`nigh learn import`)"
    )]
    Nothing(FunctionName),
    /// The node is ending, or a fit has failed.
    #[error("models cannot be read or changed: the node is stopping; ask again when it has restarted")]
    Ended,
}

/// The stored state of a function.
#[derive(Debug, PartialEq)]
pub(super) struct StoredModel {
    pub(super) model: FunctionModel,
    pub(super) rules: InputRules,
}

#[derive(Serialize, Deserialize)]
struct Document {
    format: u32,
    inputs: InputRules,
    model: serde_json::Value,
}

#[derive(Deserialize)]
struct Header {
    format: u32,
}

impl StoredModel {
    pub(super) fn encode(&self) -> Result<Vec<u8>, MemorySizingError> {
        let model = serde_json::from_slice(&self.model.encode()?)?;
        Ok(serde_json::to_vec(&Document { format: FORMAT, inputs: self.rules.clone(), model })?)
    }

    pub(super) fn decode(stored: &[u8]) -> Result<Self, MemorySizingError> {
        let Header { format } = serde_json::from_slice(stored)?;
        if format != FORMAT {
            return Err(MemorySizingError::OtherFormat { format });
        }
        let Document { inputs, model, .. } = serde_json::from_slice(stored)?;
        if !inputs.is_sound() {
            return Err(MemorySizingError::Unsound);
        }
        Ok(Self { model: FunctionModel::decode(&serde_json::to_vec(&model)?)?, rules: inputs })
    }
}

/// The models in the registry.
pub(super) struct ModelShelf(Arc<dyn Registry>);

fn key((namespace, function): &Name) -> String {
    format!("{namespace}/{function}")
}

impl ModelShelf {
    pub(super) const fn new(registry: Arc<dyn Registry>) -> Self {
        Self(registry)
    }

    pub(super) async fn read(&self, name: &Name) -> Result<Option<Vec<u8>>, MemorySizingError> {
        Ok(self.0.get(TABLE, &key(name)).await?.map(|revised| revised.value))
    }

    /// Puts a document in the place of any before it.
    pub(super) async fn write(&self, name: &Name, document: Vec<u8>) -> Result<(), MemorySizingError> {
        let key = key(name);
        loop {
            let found = self.0.get(TABLE, &key).await?.map(|revised| revised.revision);
            match self.0.put(TABLE, &key, document.clone(), found).await {
                // Only this node's keeper writes here. A conflict is the last write of an earlier process.
                Err(RegistryError::Conflict { .. }) => {}
                outcome => return outcome.map(drop).map_err(Into::into),
            }
        }
    }

    /// True if there was one.
    pub(super) async fn remove(&self, name: &Name) -> Result<bool, MemorySizingError> {
        let key = key(name);
        let Some(found) = self.0.get(TABLE, &key).await? else { return Ok(false) };
        self.0.delete(TABLE, &key, found.revision).await?;
        Ok(true)
    }

    /// The functions that have one.
    pub(super) async fn names(&self) -> Result<Vec<Name>, MemorySizingError> {
        let keys = self.0.keys(TABLE, "").await?;
        let name = |key: String| {
            let (namespace, function) = key.split_once('/')?;
            Some((nigh_terms::Namespace::new(namespace).ok()?, FunctionName::new(function).ok()?))
        };
        Ok(keys.into_iter().filter_map(name).collect())
    }
}

#[cfg(test)]
mod tests {
    use nigh_learn::{FeatureRow, Interval, Learner, Start, TrainingRow};
    use nigh_terms::ByteSize;

    use super::*;

    #[test]
    fn what_is_learned_is_stored_and_read_back_and_a_newer_or_damaged_one_is_refused() {
        let mut model = FunctionModel::new("1", Learner::default(), Interval::OFC).unwrap();
        for at in 0..30_u32 {
            let mut features = FeatureRow::default();
            features.set_number("input_size", f64::from(at)).unwrap();
            let row = TrainingRow::new(features, ByteSize::mib(20 + u64::from(at)), Start::Warm).unwrap();
            model.ended("1", row).unwrap();
        }
        let stored = StoredModel { model: model.refitted(), rules: InputRules::default() };
        let document = stored.encode().unwrap();
        assert_eq!(StoredModel::decode(&document).unwrap(), stored);
        let text = String::from_utf8(document).unwrap();
        let newer = text.replacen("\"format\":1", "\"format\":9", 1);
        assert!(matches!(StoredModel::decode(newer.as_bytes()), Err(MemorySizingError::OtherFormat { format: 9 })));
        assert!(StoredModel::decode(&text.as_bytes()[..text.len() / 2]).is_err());
    }

    #[test]
    fn a_model_of_the_first_form_is_read() {
        let model = include_str!("../../../nigh-learn/tests/fixtures/function-model-1.json");
        let document = format!(r#"{{"format":1,"inputs":{{"read":["/input"],"keys":[]}},"model":{model}}}"#);
        let stored = StoredModel::decode(document.as_bytes()).unwrap();
        assert_eq!((stored.model.training_set().rows().len(), stored.rules.words()), (30, vec!["/input".to_owned()]));
    }
}
