//! Where looks come from: a node's admin API, or a file of looks that `nigh --json top` has printed. Pages for one row come
//! from a node alone.

use std::collections::VecDeque;
use std::path::Path;

use nigh_node::client::{AdminClient, ClientError};
use nigh_terms::Namespace;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::frame::Sort;
use super::page::{self, PageRequest};
use super::row::{Row, Target};
use crate::context::Globals;
use crate::error::CliError;

/// Functions of one look, and of one whose rows are filtered: then all that a node gives.
const FUNCTIONS: usize = 100;
const FUNCTIONS_FILTERED: usize = 500;
/// Objects and events of one look.
const OBJECTS: usize = 50;
const EVENTS: usize = 100;
/// Invocations whose logs a page has.
const LOGS: usize = 20;

/// What a look brings: the documents of the views. A recording of an earlier version has no objects and no events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Look {
    pub(super) hierarchy: Value,
    pub(super) functions: Value,
    #[serde(default)]
    pub(super) objects: Value,
    #[serde(default)]
    pub(super) events: Value,
}

/// What a look is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LookRequest {
    pub(super) sort: Sort,
    /// True if rows are filtered.
    pub(super) is_filtered: bool,
    /// Whether the objects are wanted: the node walks over all its copies for them.
    pub(super) with_objects: bool,
}

/// Where looks come from.
pub(super) enum Source {
    Node { admin: AdminClient, namespace: Namespace },
    Recorded(VecDeque<Look>),
}

fn encoded(text: &str) -> impl std::fmt::Display {
    utf8_percent_encode(text, NON_ALPHANUMERIC)
}

/// The document at `path`; if the node refuses it, its reason. An older node does not know all views.
async fn document(admin: &AdminClient, path: &str) -> Result<Value, CliError> {
    match admin.get(path).await {
        Err(ClientError::Refused { message, .. }) => Ok(json!({ "refused": message })),
        answer => Ok(answer?),
    }
}

impl Source {
    pub(super) async fn open(replay: Option<&Path>, globals: &Globals) -> Result<Self, CliError> {
        match replay {
            None => Ok(Self::Node { admin: globals.admin()?, namespace: globals.namespace().await? }),
            Some(file) => Ok(Self::Recorded(recorded(file)?)),
        }
    }

    /// True if a look shows what is now.
    pub(super) const fn is_node(&self) -> bool {
        matches!(self, Self::Node { .. })
    }

    /// The next look; none if a recording is over.
    pub(super) async fn next(&mut self, asked: LookRequest) -> Result<Option<Look>, CliError> {
        let (admin, namespace) = match self {
            Self::Recorded(looks) => return Ok(looks.pop_front()),
            Self::Node { admin, namespace } => (admin, namespace),
        };
        let (sort, limit) = (asked.sort.name(), if asked.is_filtered { FUNCTIONS_FILTERED } else { FUNCTIONS });
        let objects = if asked.with_objects {
            document(admin, &format!("/views/cached?namespace={namespace}&limit={OBJECTS}")).await?
        } else {
            Value::Null
        };
        Ok(Some(Look {
            hierarchy: admin.get("/views/hierarchy").await?,
            functions: document(admin, &format!("/views/functions?namespace={namespace}&sort={sort}&limit={limit}"))
                .await?,
            objects,
            events: document(admin, &format!("/views/events?namespace={namespace}&limit={EVENTS}")).await?,
        }))
    }

    /// The rows of a page, in `width` columns.
    pub(super) async fn page(&self, asked: &PageRequest, width: usize) -> Result<Vec<Row>, CliError> {
        let Self::Node { admin, namespace } = self else {
            return Err(CliError::Failed("a recording has lists only".to_owned()));
        };
        let explain = |id: &str| format!("/explain/{}", encoded(id));
        match (&asked.target, asked.is_log) {
            (Target::Function(name), true) => logs(admin, namespace, name).await,
            (Target::Function(name), false) => {
                let path = format!("/views/function?namespace={namespace}&function={}", encoded(name));
                Ok(page::function(&document(admin, &path).await?))
            }
            (Target::Object { .. }, true) => Err(CliError::Failed("an object has no log".to_owned())),
            (Target::Object { bucket, key }, false) => {
                let (bucket, key) = (encoded(bucket), encoded(key));
                let path = format!("/views/objects?namespace={namespace}&bucket={bucket}&key={key}");
                Ok(page::object(&document(admin, &path).await?))
            }
            (Target::Invocation(id) | Target::Event(id), true) => Ok(page::log(&document(admin, &explain(id)).await?)),
            (Target::Invocation(id), false) => Ok(page::explanation(&document(admin, &explain(id)).await?, width)),
            (Target::Event(id), false) => {
                let event = document(admin, &format!("/events/{namespace}/{}", encoded(id))).await?;
                let mut rows = page::event(&event);
                rows.extend(page::explanation(&document(admin, &explain(id)).await?, width));
                Ok(rows)
            }
        }
    }
}

/// The logs of a function's last invocations, at any member, the newest first.
async fn logs(admin: &AdminClient, namespace: &Namespace, function: &str) -> Result<Vec<Row>, CliError> {
    let function = encoded(function);
    let path = format!("/logs?cluster=true&namespace={namespace}&function={function}&limit={LOGS}");
    let mut lines = admin.lines(&path).await?;
    let mut entries = Vec::new();
    while let Some(entry) = lines.next::<Value>().await? {
        entries.push(entry);
    }
    entries.reverse();
    Ok(page::logs(&entries))
}

/// The looks in a file, a line each.
fn recorded(file: &Path) -> Result<VecDeque<Look>, CliError> {
    let text = std::fs::read_to_string(file)
        .map_err(|source| CliError::Local { what: format!("reading {}", file.display()), source })?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let read = lines.map(|(at, line)| {
        serde_json::from_str::<Look>(line).map_err(|error| {
            let (file, line) = (file.display(), at + 1);
            CliError::Usage(format!("{file}:{line} is no look that `nigh --json top` has printed: {error}"))
        })
    });
    read.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_read_as_it_was_printed_and_a_wrong_line_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let look = Look { hierarchy: json!({"at": 1}), functions: json!({}), ..Look::default() };
        let line = serde_json::to_string(&look).unwrap();
        std::fs::write(file.path(), format!("{line}\n\n{line}\n")).unwrap();
        assert_eq!(recorded(file.path()).unwrap(), [look.clone(), look]);
        std::fs::write(file.path(), format!("{line}\nnothing\n")).unwrap();
        let error = recorded(file.path()).unwrap_err().to_string();
        assert!(error.contains(":2 is no look"), "{error}");
    }

    #[test]
    fn a_recording_of_an_earlier_version_has_no_objects_and_no_events() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "{\"hierarchy\": {\"at\": 1}, \"functions\": {}}\n").unwrap();
        let looks = recorded(file.path()).unwrap();
        assert_eq!((&looks[0].objects, &looks[0].events), (&Value::Null, &Value::Null));
    }
}
