//! What lies between the components of a sequence: objects in folders that it declares by its annotation `nigh:scratch`,
//! in memory alone, and gone with its activation.

use nigh_terms::{InvocationId, Namespace};
use nigh_workflow::scratch::{SCRATCH_TAG, ScratchFolder};
use serde_json::Value;

use super::super::entities::Sequence;
use super::super::error::WhiskError;
use super::super::record::written;
use super::OpenWhiskDoor;
use super::invocation::Input;

/// The parameter by which components are told the folders of their sequence's activation.
const PARAMETER: &str = "__nigh_scratch";

/// The folders of one activation.
pub(super) struct SequenceScratch(Vec<ScratchFolder>);

/// The folders that a sequence declares.
fn declared(sequence: &Sequence) -> Result<Vec<ScratchFolder>, WhiskError> {
    let wrong = |words: String| WhiskError::bad_request(words);
    match sequence.common.annotations.get(SCRATCH_TAG) {
        None => Ok(Vec::new()),
        Some(Value::String(folders)) => ScratchFolder::of_tag(folders).map_err(|error| wrong(error.to_string())),
        Some(other) => Err(wrong(format!("{SCRATCH_TAG} has {other}, which is no text"))),
    }
}

impl SequenceScratch {
    /// Those of the activation `id` of `sequence`.
    pub(super) fn of(sequence: &Sequence, id: InvocationId) -> Self {
        // What was taken when the sequence was put is read.
        let folders = declared(sequence).unwrap_or_default();
        Self(folders.iter().map(|folder| folder.of_run(&written(id))).collect())
    }

    /// `input`, with their names.
    pub(super) fn named_in(&self, mut input: Input) -> Input {
        if let (Input::Object(members), false) = (&mut input, self.0.is_empty()) {
            let names: Vec<String> = self.0.iter().map(ToString::to_string).collect();
            members.insert(PARAMETER.to_owned(), names.join(" ").into());
        }
        input
    }
}

impl OpenWhiskDoor {
    /// Has what components leave in the folders of `sequence` kept in memory alone.
    pub(super) async fn declare_scratch(&self, namespace: &Namespace, sequence: &Sequence) -> Result<(), WhiskError> {
        for folder in declared(sequence)? {
            let taken = self.0.parts.scratch.declare(namespace, &folder).await;
            taken.map_err(|why| WhiskError::bad_request(format!("{SCRATCH_TAG}: {why}")))?;
        }
        Ok(())
    }

    /// The activation has ended: removes what was left.
    pub(super) async fn drop_scratch(&self, namespace: &Namespace, scratch: &SequenceScratch) {
        for folder in &scratch.0 {
            if let Err(error) = self.0.parts.scratch.drop_all(namespace, folder).await {
                tracing::warn!(%error, %folder, "scratch objects of a sequence are left behind");
            }
        }
    }
}
