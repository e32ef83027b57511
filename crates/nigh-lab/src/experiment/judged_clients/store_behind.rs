//! What the store behind the node holds in truth, read without Nigh: a directory's files by their documented form, a
//! service by its own protocol.

use std::path::{Path, PathBuf};

use super::BUCKET;
use super::body;
use super::client::path;
use super::history::ReadFinding;
use super::s3_calls::get;
use crate::LabError;
use crate::experiment::client_calls::{Caller, Door};

/// The end of an object's file; docs/design/directory-store.md draws it.
const FOOTER: usize = 40;
const MAGIC: &[u8; 8] = b"NIGHOBJ\n";

pub(crate) enum BackingStore {
    /// The folder of the bucket's objects. The node must have ended.
    Directory(PathBuf),
    /// A server's S3 API, past every proxy.
    Service(Box<Door>),
}

impl BackingStore {
    pub(crate) fn directory(state: &Path, namespace: &str) -> Self {
        Self::Directory(state.join("objects/namespaces").join(namespace).join(BUCKET).join("objects"))
    }

    /// What it holds under a key. Blocks.
    pub(crate) fn get(&self, key: &str) -> Result<ReadFinding, LabError> {
        match self {
            Self::Directory(folder) => of_file(&folder.join(key.replace('/', "+"))),
            Self::Service(door) => {
                let failed = |reason| LabError::Request { what: format!("{key} of the store"), reason };
                get(&mut Caller::new(door), &path(key))?.map_err(failed)
            }
        }
    }
}

fn of_file(path: &Path) -> Result<ReadFinding, LabError> {
    match std::fs::read(path) {
        Ok(file) => {
            Ok(of_bytes(&file).unwrap_or_else(|| ReadFinding::Torn(format!("{}: no object's file", path.display()))))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(ReadFinding::Absent),
        Err(error) => Err(LabError::file(path, &error)),
    }
}

fn of_bytes(file: &[u8]) -> Option<ReadFinding> {
    let footer = file.len().checked_sub(FOOTER).map(|at| &file[at..])?;
    let payload = u64::from_le_bytes(footer[..8].try_into().ok()?) as usize;
    let metadata = u32::from_le_bytes(footer[8..12].try_into().ok()?) as usize;
    if &footer[32..] != MAGIC || payload.checked_add(metadata)?.checked_add(FOOTER)? != file.len() {
        return None;
    }
    let known: serde_json::Value = serde_json::from_slice(&file[payload..payload + metadata]).ok()?;
    let user = &known["meta"]["attributes"]["user"];
    Some(body::seen(user["write"].as_str(), user["content"].as_str(), &file[..payload]))
}

#[cfg(test)]
mod tests {
    use super::super::body::Content;
    use super::super::history::WriteId;
    use super::*;

    #[test]
    fn an_objects_file_is_read_by_its_footer_and_another_is_none() {
        let content = Content { key: "k".to_owned(), client: 1, sequence: 2, bytes: 100 };
        let user = serde_json::json!({ "write": "1:2", "content": content.name() });
        let metadata = serde_json::json!({ "key": "k", "meta": { "attributes": { "user": user } } }).to_string();
        let mut file = content.body();
        file.extend_from_slice(metadata.as_bytes());
        file.extend_from_slice(&100_u64.to_le_bytes());
        file.extend_from_slice(&(metadata.len() as u32).to_le_bytes());
        file.extend_from_slice(&[0; 20]);
        file.extend_from_slice(MAGIC);
        let id = WriteId { client: 1, sequence: 2 };
        assert_eq!(of_bytes(&file), Some(ReadFinding::Whole { id, content }));
        assert_eq!(of_bytes(&file[1..]), None);
        assert_eq!(of_bytes(b""), None);
    }
}
