//! A state machine, and its document in the registry.

use std::collections::BTreeMap;
use std::sync::Arc;

use nigh_engine::Revision;
use nigh_terms::Timestamp;
use serde::{Deserialize, Serialize};

use super::{MachineError, problem_words};
use crate::arn::WorkflowName;
use crate::scratch::ScratchFolder;
use crate::{Definition, read};

/// The format version that this build writes.
const FORMAT: u32 = 1;

/// How a machine's executions are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum MachineKind {
    /// On the disk with all their events: they survive a crash.
    Standard,
    /// In memory only.
    Express,
}

impl MachineKind {
    /// The kind's name in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Standard => "STANDARD",
            Self::Express => "EXPRESS",
        }
    }
}

/// A state machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The machine's name.
    pub name: WorkflowName,
    /// How its executions are stored.
    pub kind: MachineKind,
    /// The text of its definition.
    pub text: Arc<str>,
    /// The parsed definition.
    pub definition: Arc<Definition>,
    /// The machine's role; Nigh only returns it.
    pub role: String,
    /// When it was created.
    pub created: Timestamp,
    /// When it was last changed.
    pub updated: Timestamp,
    /// An id that changes with every change.
    pub revision_id: String,
    /// The machine's tags.
    pub tags: BTreeMap<String, String>,
    /// The scratch folders of its executions.
    pub scratch: Vec<ScratchFolder>,
    /// The registry's revision of the document, which grows with every change.
    pub revision: Revision,
}

/// A new state machine.
#[derive(Clone, Debug)]
pub struct NewMachine {
    /// The machine's name.
    pub name: WorkflowName,
    /// How its executions are stored.
    pub kind: MachineKind,
    /// The text of its definition.
    pub text: String,
    /// The machine's role; Nigh only returns it.
    pub role: String,
    /// The machine's tags.
    pub tags: BTreeMap<String, String>,
    /// The scratch folders of its executions.
    pub scratch: Vec<ScratchFolder>,
}

#[derive(Serialize, Deserialize)]
struct Document {
    format: u32,
    name: WorkflowName,
    kind: MachineKind,
    definition: String,
    role: String,
    created: Timestamp,
    updated: Timestamp,
    revision_id: String,
    tags: BTreeMap<String, String>,
    scratch: Vec<ScratchFolder>,
}

/// The field that every version of the document has.
#[derive(Deserialize)]
struct Format {
    format: u32,
}

impl Machine {
    /// Reads a document.
    pub(super) fn decode(key: &str, stored: &[u8], revision: Revision) -> Result<Self, MachineError> {
        let unreadable = |why: String| MachineError::Document(key.to_owned(), why);
        let Format { format } = serde_json::from_slice(stored).map_err(|error| unreadable(error.to_string()))?;
        if format > FORMAT {
            return Err(unreadable(format!("its format is {format}, and this build reads up to {FORMAT}")));
        }
        let document: Document = serde_json::from_slice(stored).map_err(|error| unreadable(error.to_string()))?;
        let definition = read(&document.definition).map_err(|problems| unreadable(problem_words(&problems)))?;
        Ok(Self {
            name: document.name,
            kind: document.kind,
            text: document.definition.into(),
            definition: Arc::new(definition),
            role: document.role,
            created: document.created,
            updated: document.updated,
            revision_id: document.revision_id,
            tags: document.tags,
            scratch: document.scratch,
            revision,
        })
    }

    /// The document of this machine.
    pub(super) fn encode(&self, key: &str) -> Result<Vec<u8>, MachineError> {
        let document = Document {
            format: FORMAT,
            name: self.name.clone(),
            kind: self.kind,
            definition: self.text.to_string(),
            role: self.role.clone(),
            created: self.created,
            updated: self.updated,
            revision_id: self.revision_id.clone(),
            tags: self.tags.clone(),
            scratch: self.scratch.clone(),
        };
        serde_json::to_vec(&document).map_err(|error| MachineError::Document(key.to_owned(), error.to_string()))
    }
}
