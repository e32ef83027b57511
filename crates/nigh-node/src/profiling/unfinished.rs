//! Profiles that a crash or an error interrupted, each in a file, so that they continue where they were stored. A function
//! has one at most, and a namespace so many; beyond that its oldest is removed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nigh_terms::{FunctionName, Namespace};

/// Unfinished profiles of one namespace.
const NAMESPACE_MAX: usize = 100;

/// The file of one function's unfinished profile.
pub(super) struct UnfinishedProfile {
    folder: PathBuf,
    /// How the names of the namespace's files begin.
    namespace: String,
    /// How the names of the function's files begin.
    function: String,
    file: PathBuf,
}

impl UnfinishedProfile {
    /// The file of this revision of a function in `folder`.
    pub(super) fn new(
        folder: &Path,
        namespace: &Namespace,
        name: &FunctionName,
        revision: impl std::fmt::Display,
    ) -> Self {
        // Neither name has a dot.
        let (namespace, function) = (format!("{namespace}."), format!("{namespace}.{name}."));
        Self { folder: folder.to_owned(), file: folder.join(format!("{function}{revision}.json")), namespace, function }
    }

    /// Where it is stored.
    pub(super) fn path(&self) -> &Path {
        &self.file
    }

    /// What was stored last, if there is any.
    pub(super) fn read(&self) -> Option<String> {
        fs::read_to_string(&self.file).ok()
    }

    /// Stores the profile as it is now.
    pub(super) fn write(&self, profile: &str) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        if !self.file.exists() {
            self.make_room()?;
        }
        fs::write(&self.file, profile)
    }

    /// Removes it: it is finished.
    pub(super) fn remove(&self) -> io::Result<()> {
        fs::remove_file(&self.file)
    }

    /// Removes those of the function's other revisions, and the namespace's oldest ones beyond the limit.
    fn make_room(&self) -> io::Result<()> {
        let mut others = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if name.starts_with(&self.function) {
                fs::remove_file(entry.path())?;
            } else if name.starts_with(&self.namespace) {
                others.push((entry.metadata()?.modified()?, entry.path()));
            }
        }
        others.sort();
        for (_, oldest) in others.iter().take((others.len() + 1).saturating_sub(NAMESPACE_MAX)) {
            fs::remove_file(oldest)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn a_namespace_that_leaves_many_profiles_unfinished_loses_its_own_oldest_only() {
        let folder = tempfile::tempdir().unwrap();
        let profile = |namespace: &str, function: &str, revision: u32| {
            let names = (Namespace::new(namespace).unwrap(), FunctionName::new(function).unwrap());
            UnfinishedProfile::new(&folder.path().join("profiles"), &names.0, &names.1, revision)
        };
        profile("quiet", "f0", 1).write("quiet").unwrap();
        let begun = SystemTime::now() - Duration::from_secs(1000);
        for n in 0..105 {
            let one = profile("busy", &format!("f{n}"), 1);
            one.write("busy").unwrap();
            let file = fs::File::options().write(true).open(one.path()).unwrap();
            file.set_modified(begun + Duration::from_secs(n)).unwrap();
        }
        let there = |n: usize| profile("busy", &format!("f{n}"), 1).read().is_some();
        assert_eq!((0..105).filter(|n| !there(*n)).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert_eq!(profile("quiet", "f0", 1).read().as_deref(), Some("quiet"));
        // It is stored again and again while it goes on; a newer revision replaces it.
        profile("busy", "f5", 1).write("further").unwrap();
        assert!(there(5) && there(6));
        profile("busy", "f5", 2).write("newer").unwrap();
        assert!(!there(5) && there(6));
        profile("busy", "f5", 2).remove().unwrap();
        assert_eq!(fs::read_dir(folder.path().join("profiles")).unwrap().count(), 100);
    }
}
