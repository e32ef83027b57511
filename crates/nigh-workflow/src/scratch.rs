//! Scratch folders: objects of one execution, in memory only, which are dropped when the execution ends.
//!
//! A state machine declares them by its tag `nigh:scratch`: `bucket/folder/`, several separated by blanks. Each
//! execution uses a folder of its own name below; tasks get that name as `$$.Execution.Name`. An OpenWhisk sequence
//! declares them by an annotation of the same name.

mod objects;

use async_trait::async_trait;
use nigh_terms::{BucketName, Namespace};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The tag that declares scratch folders.
pub const SCRATCH_TAG: &str = "nigh:scratch";
/// The most folders of one machine.
const FOLDERS_MAX: usize = 8;

/// The value of the tag is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{SCRATCH_TAG} has {0:?}; it can have up to {FOLDERS_MAX} of the form bucket/folder/, separated by blanks")]
pub struct ScratchTagError(String);

/// A folder of a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScratchFolder {
    /// The name of the bucket.
    pub bucket: BucketName,
    /// The prefix of its keys, which ends in `/`.
    pub prefix: String,
}

impl ScratchFolder {
    /// The folders in a tag's value.
    ///
    /// # Errors
    /// If a part of the value is no folder.
    pub fn of_tag(value: &str) -> Result<Vec<Self>, ScratchTagError> {
        let wrong = || ScratchTagError(value.to_owned());
        let folders: Result<Vec<Self>, ScratchTagError> = value
            .split_whitespace()
            .map(|text| {
                let (bucket, prefix) = text.split_once('/').ok_or_else(wrong)?;
                if !prefix.ends_with('/') || prefix.starts_with('/') {
                    return Err(wrong());
                }
                Ok(Self { bucket: BucketName::new(bucket).map_err(|_| wrong())?, prefix: prefix.to_owned() })
            })
            .collect();
        folders.and_then(|folders| if folders.len() <= FOLDERS_MAX { Ok(folders) } else { Err(wrong()) })
    }

    /// The subfolder of the execution `name`.
    #[must_use]
    pub fn of_run(&self, name: &str) -> Self {
        Self { bucket: self.bucket.clone(), prefix: format!("{}{name}/", self.prefix) }
    }
}

impl std::fmt::Display for ScratchFolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.bucket, self.prefix)
    }
}

/// The objects in such folders.
#[async_trait]
pub trait ScratchObjects: Send + Sync {
    /// Keeps the objects of `folder` in memory only from now on.
    ///
    /// # Errors
    /// Why the bucket refuses that.
    async fn declare(&self, namespace: &Namespace, folder: &ScratchFolder) -> Result<(), String>;

    /// Removes all objects of `folder`. Returns their number.
    ///
    /// # Errors
    /// Why some objects remain.
    async fn drop_all(&self, namespace: &Namespace, folder: &ScratchFolder) -> Result<usize, String>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_names_folders_of_buckets() {
        let folders = ScratchFolder::of_tag("bucket/between/ other/a/b/").unwrap();
        assert_eq!((folders[0].bucket.as_str(), folders[1].prefix.as_str()), ("bucket", "a/b/"));
        let own = folders[0].of_run("run");
        assert_eq!(own.prefix, "between/run/");
        for no in ["bucket", "bucket/a", "bucket//a/", "B/a/", &"bucket/a/ ".repeat(9)] {
            assert!(ScratchFolder::of_tag(no).is_err(), "{no}");
        }
        assert!(ScratchFolder::of_tag("").unwrap().is_empty());
    }
}
