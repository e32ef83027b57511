//! Sees when files of a folder are saved, by looking at their times and sizes again and again.
//!
//! A look at a function's folder takes a millisecond, works on every file system, and needs no library; on large folders
//! looks are so far apart that they take a twentieth of one processor at most.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use crate::archive::is_skipped;

/// The time between two looks, at least.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A look takes at most this part of the time.
const LOOKING_SHARE: u32 = 20;
/// The most files that are watched; others are not seen.
const FILES_MAX: usize = 20_000;
/// So many looks in which a file is empty that was not make it saved: a program may rest between emptying and writing it.
const EMPTY_LOOKS: u32 = 20;
/// Folders whose files are installed or built, and not written by hand.
const NOT_WATCHED: [&str; 3] = ["node_modules", "build", "dist"];

/// The files of a folder at one moment: when each was changed, and its size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Snapshot(BTreeMap<String, (Option<SystemTime>, u64)>);

/// Tells a file that is being written from one that is saved.
#[derive(Clone, Debug)]
pub(super) struct SaveDetector {
    /// What was told.
    told: Snapshot,
    /// The last look.
    seen: Snapshot,
    /// How many looks before it were the same.
    same: u32,
}

impl Snapshot {
    /// Looks at the files of `folder`; those of `ignored` names at its top do not count.
    pub(super) fn of(folder: &Path, ignored: &BTreeSet<String>) -> Self {
        let mut snapshot = Self::default();
        snapshot.look(folder, "", ignored);
        snapshot
    }

    /// A folder or file that vanishes meanwhile is not there.
    fn look(&mut self, folder: &Path, prefix: &str, ignored: &BTreeSet<String>) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let (file_name, Ok(kind)) = (entry.file_name(), entry.file_type()) else { continue };
            if is_skipped(folder, &file_name) || self.0.len() >= FILES_MAX {
                continue;
            }
            let name = format!("{prefix}{}", file_name.to_string_lossy());
            if kind.is_dir() {
                if !NOT_WATCHED.iter().any(|skipped| file_name == *skipped) {
                    self.look(&entry.path(), &format!("{name}/"), ignored);
                }
            } else if !ignored.contains(&name)
                && !is_editors(&name)
                && let Ok(metadata) = fs::metadata(entry.path())
            {
                self.0.insert(name, (metadata.modified().ok(), metadata.len()));
            }
        }
    }

    /// Whether a file is empty that was not in `before`.
    fn has_emptied(&self, before: &Self) -> bool {
        let was_full = |name: &String| before.0.get(name).is_some_and(|(_, bytes)| *bytes > 0);
        self.0.iter().any(|(name, (_, bytes))| *bytes == 0 && was_full(name))
    }

    /// The names of the files that are new, gone or changed since `before`.
    fn changed_since(&self, before: &Self) -> Vec<String> {
        let names: BTreeSet<&String> = self.0.keys().chain(before.0.keys()).collect();
        names.into_iter().filter(|name| self.0.get(*name) != before.0.get(*name)).cloned().collect()
    }
}

/// True for the files in which editors keep what is not saved, or with which they try the folder (Vim's `4913`).
fn is_editors(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name);
    file.ends_with('~') || file.ends_with(".swp") || file.ends_with(".swx") || file.starts_with(".#") || file == "4913"
}

impl SaveDetector {
    /// A detector that knows the folder as it is `now`.
    pub(super) fn new(now: Snapshot) -> Self {
        Self { told: now.clone(), seen: now, same: 0 }
    }

    /// The files that were saved. A file counts when it is the same at two looks: an editor may write in parts.
    pub(super) fn see(&mut self, now: Snapshot) -> Option<Vec<String>> {
        if now != self.seen {
            (self.seen, self.same) = (now, 0);
            return None;
        }
        self.same = self.same.saturating_add(1);
        if self.same < EMPTY_LOOKS && now.has_emptied(&self.told) {
            return None;
        }
        let changed = now.changed_since(&self.told);
        self.told = now;
        (!changed.is_empty()).then_some(changed)
    }
}

/// Watches `folder`, as it is `now`, until `saved` returns false.
pub(super) fn watch(folder: &Path, ignored: &BTreeSet<String>, now: Snapshot, saved: impl Fn(Vec<String>) -> bool) {
    let mut detector = SaveDetector::new(now);
    loop {
        let begin = Instant::now();
        let now = Snapshot::of(folder, ignored);
        if let Some(files) = detector.see(now)
            && !saved(files)
        {
            return;
        }
        std::thread::sleep(LOOK_EVERY.max(begin.elapsed() * LOOKING_SHARE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(files: &[(&str, u64)]) -> Snapshot {
        Snapshot(files.iter().map(|(name, size)| ((*name).to_owned(), (None, *size))).collect())
    }

    #[test]
    fn a_save_is_told_once_and_when_it_is_whole() {
        let mut detector = SaveDetector::new(snapshot(&[("a", 1), ("b", 1)]));
        assert_eq!(detector.see(snapshot(&[("a", 1), ("b", 1)])), None);
        assert_eq!(detector.see(snapshot(&[("a", 0), ("b", 1)])), None, "being written");
        assert_eq!(detector.see(snapshot(&[("a", 2), ("c", 1)])), None, "still");
        let told = detector.see(snapshot(&[("a", 2), ("c", 1)])).unwrap();
        assert_eq!(told, ["a", "b", "c"], "changed, gone, new");
        assert_eq!(detector.see(snapshot(&[("a", 2), ("c", 1)])), None);
    }

    #[test]
    fn a_file_that_is_emptied_is_saved_when_it_is_written_or_stays_empty() {
        let mut detector = SaveDetector::new(snapshot(&[("a", 1)]));
        let empty = || snapshot(&[("a", 0)]);
        assert!((0..EMPTY_LOOKS).all(|_| detector.see(empty()).is_none()), "being written");
        assert_eq!(detector.see(snapshot(&[("a", 2)])), None);
        assert_eq!(detector.see(snapshot(&[("a", 2)])).unwrap(), ["a"]);
        let looks = (0..=EMPTY_LOOKS).filter_map(|_| detector.see(empty())).collect::<Vec<_>>();
        assert_eq!(looks, [["a"]], "at the last");
        assert_eq!(detector.see(empty()), None);
    }

    #[test]
    fn a_save_that_is_taken_back_is_none() {
        let mut detector = SaveDetector::new(snapshot(&[("a", 1)]));
        assert_eq!(detector.see(snapshot(&[("a", 2)])), None);
        assert_eq!(detector.see(snapshot(&[("a", 1)])), None);
        assert_eq!(detector.see(snapshot(&[("a", 1)])), None);
    }

    #[test]
    fn what_is_installed_built_or_kept_by_editors_is_not_watched() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in ["lib", "node_modules", "__pycache__", ".git", "build"] {
            fs::create_dir(root.join(name)).unwrap();
            fs::write(root.join(name).join("file"), "").unwrap();
        }
        for name in ["main.py", "main.py~", ".main.py.swp", "event.json"] {
            fs::write(root.join(name), "").unwrap();
        }
        let seen = Snapshot::of(root, &BTreeSet::from(["event.json".to_owned()]));
        assert_eq!(seen.0.keys().collect::<Vec<_>>(), ["lib/file", "main.py"]);
        let mut detector = SaveDetector::new(seen);
        fs::write(root.join("main.py"), "x = 1").unwrap();
        assert_eq!(detector.see(Snapshot::of(root, &BTreeSet::from(["event.json".to_owned()]))), None);
        let told = detector.see(Snapshot::of(root, &BTreeSet::from(["event.json".to_owned()])));
        assert_eq!(told, Some(vec!["main.py".to_owned()]));
        assert_eq!(Snapshot::of(&root.join("gone"), &BTreeSet::new()), Snapshot::default());
    }
}
