//! The last step of a restore: the new state replaces the old one, by renames within the state folder.
//!
//! ```text
//! restore.partial/    the new state while it is made; after a crash the old state stays, and the next start removes this
//! restore.moving/     the new state, whole and synced: after this rename the restore happens, whatever crashes
//!   plan.json         `Plan`
//!   new/              the new content of the state folder
//! restore.placing/    the same, when the old state has been moved away
//! before-restore-*/   the old state; never deleted
//! ```
//!
//! After a crash in one of the two later states, the next start of a node finishes the restore by the same steps. The
//! state folder may be a mount point: nothing outside it is renamed.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{StateFolderError, failed, write_private};

const PARTIAL: &str = "restore.partial";
const MOVING: &str = "restore.moving";
const PLACING: &str = "restore.placing";
const PLAN: &str = "plan.json";
const NEW: &str = "new";
const ASIDE_PREFIX: &str = "before-restore-";
const FORMAT: u32 = 1;
/// Names that are never replaced: this process holds the lock, and sandboxes of this machine carry the number in
/// `instance`.
const ALWAYS_KEPT: [&str; 6] = ["lock", "instance", "lost+found", PARTIAL, MOVING, PLACING];

/// What a restore replaces in the state folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    format: u32,
    /// The folder that gets the old state.
    aside: String,
    /// Names that stay.
    keep: Vec<String>,
}

/// A step of a restore that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Decided,
    MovedOne,
    Emptied,
    PlacedOne,
}

/// Called after each step. An error stops the restore there, like a crash.
type Hook<'a> = &'a mut dyn FnMut(Step) -> io::Result<()>;

fn sync(folder: &Path) -> Result<(), StateFolderError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed(folder))
}

fn names(folder: &Path) -> Result<Vec<String>, StateFolderError> {
    let entries = fs::read_dir(folder).map_err(failed(folder))?;
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry.map_err(failed(folder))?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

impl Plan {
    /// Keeps `keep`, and moves the rest into a folder named after `now`.
    pub(crate) fn new(now: &str, keep: &[&str]) -> Self {
        let aside = format!("{ASIDE_PREFIX}{}", now.replace(':', "-"));
        Self { format: FORMAT, aside, keep: keep.iter().map(|name| (*name).to_owned()).collect() }
    }

    /// The folder that gets the old state.
    pub(crate) fn aside(&self, root: &Path) -> PathBuf {
        root.join(&self.aside)
    }
}

/// The names in `root` that a restore moves away if it keeps `keep`.
pub(crate) fn in_the_way<S: AsRef<str>>(root: &Path, keep: &[S]) -> Result<Vec<String>, StateFolderError> {
    let mut found = names(root)?;
    found.retain(|name| {
        !ALWAYS_KEPT.contains(&name.as_str())
            && !name.starts_with(ASIDE_PREFIX)
            && !keep.iter().any(|kept| kept.as_ref() == name)
    });
    Ok(found)
}

/// An empty folder in `root` for the new state. The leavings of an earlier attempt are removed.
pub(crate) fn begin(root: &Path) -> Result<PathBuf, StateFolderError> {
    discard(root)?;
    let new = root.join(PARTIAL).join(NEW);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&new).map_err(failed(&new))?;
    Ok(new)
}

/// Removes a new state that is not committed.
pub(crate) fn discard(root: &Path) -> Result<(), StateFolderError> {
    let partial = root.join(PARTIAL);
    match fs::remove_dir_all(&partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(&partial)(error)),
        _ => Ok(()),
    }
}

/// Replaces the old state by the new one, as `plan` says.
pub(crate) fn commit(root: &Path, plan: &Plan) -> Result<(), StateFolderError> {
    decide(root, plan, &mut |_| Ok(()))
}

fn decide(root: &Path, plan: &Plan, hook: Hook<'_>) -> Result<(), StateFolderError> {
    let partial = root.join(PARTIAL);
    let text = serde_json::to_vec(plan).map_err(|error| failed(&partial)(error.into()))?;
    write_private(&partial.join(PLAN), &text)?;
    // The new state is on the file system of `root`.
    let folder = File::open(root).map_err(failed(root))?;
    rustix::fs::syncfs(&folder).map_err(|errno| failed(root)(errno.into()))?;
    fs::rename(&partial, root.join(MOVING)).map_err(failed(&partial))?;
    sync(root)?;
    hook(Step::Decided).map_err(failed(root))?;
    go_on(root, hook).map(drop)
}

/// Finishes a committed restore that a crash interrupted; true if there was one. The caller holds the folder's lock.
pub(crate) fn complete(root: &Path) -> Result<bool, StateFolderError> {
    go_on(root, &mut |_| Ok(()))
}

fn go_on(root: &Path, hook: Hook<'_>) -> Result<bool, StateFolderError> {
    let (moving, placing) = (root.join(MOVING), root.join(PLACING));
    if moving.exists() {
        let plan = read_plan(&moving.join(PLAN))?;
        let (old, aside) = (in_the_way(root, &plan.keep)?, plan.aside(root));
        if !old.is_empty() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&aside).map_err(failed(&aside))?;
            for name in old {
                fs::rename(root.join(&name), aside.join(&name)).map_err(failed(&root.join(&name)))?;
                hook(Step::MovedOne).map_err(failed(root))?;
            }
            sync(&aside)?;
        }
        sync(root)?;
        fs::rename(&moving, &placing).map_err(failed(&moving))?;
        sync(root)?;
        hook(Step::Emptied).map_err(failed(root))?;
    }
    if !placing.exists() {
        return Ok(false);
    }
    let new = placing.join(NEW);
    if new.exists() {
        for name in names(&new)? {
            fs::rename(new.join(&name), root.join(&name)).map_err(failed(&root.join(&name)))?;
            hook(Step::PlacedOne).map_err(failed(root))?;
        }
        sync(root)?;
    }
    fs::remove_dir_all(&placing).map_err(failed(&placing))?;
    sync(root)?;
    Ok(true)
}

fn read_plan(path: &Path) -> Result<Plan, StateFolderError> {
    let text = fs::read(path).map_err(failed(path))?;
    let plan: Plan = serde_json::from_slice(&text).map_err(|error| failed(path)(error.into()))?;
    if plan.format > FORMAT {
        let words = format!("has format {}, this build reads up to {FORMAT}; start the newer nigh", plan.format);
        return Err(failed(path)(io::Error::new(io::ErrorKind::InvalidData, words)));
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn old_state(root: &Path) {
        fs::create_dir(root.join("functions")).unwrap();
        for name in ["state.redb", "functions/old", "nigh.toml", "lock", "instance"] {
            fs::write(root.join(name), "old").unwrap();
        }
    }

    fn new_state(root: &Path) {
        let new = begin(root).unwrap();
        fs::create_dir(new.join("functions")).unwrap();
        for name in ["state.redb", "functions/new"] {
            fs::write(new.join(name), "new").unwrap();
        }
    }

    fn says(root: &Path, name: &str) -> String {
        fs::read_to_string(root.join(name)).unwrap_or_else(|error| error.kind().to_string())
    }

    #[test]
    fn a_crash_after_any_step_leaves_the_old_state_or_the_next_start_ends_the_restore() {
        let plan = Plan::new("2026-01-31T09:30:00.000Z", &["nigh.toml"]);
        // The steps: decided, two moved, emptied, two placed.
        for crash_after in 0..=6 {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path();
            old_state(root);
            new_state(root);
            let mut steps = 0;
            let ended = decide(root, &plan, &mut |_| {
                steps += 1;
                if steps > crash_after { Err(io::Error::other("crash")) } else { Ok(()) }
            });
            assert_eq!(ended.is_ok(), crash_after == 6, "{crash_after}");
            assert_eq!(complete(root).unwrap(), crash_after < 6, "{crash_after}");
            assert!(!complete(root).unwrap());
            let aside = plan.aside(root);
            assert_eq!((says(root, "state.redb"), says(root, "functions/new")), ("new".to_owned(), "new".to_owned()));
            assert_eq!(says(&aside, "state.redb"), "old");
            assert_eq!(says(&aside, "functions/old"), "old");
            for kept in ["nigh.toml", "lock", "instance"] {
                assert_eq!(says(root, kept), "old", "{kept}");
            }
            let left: Vec<String> = names(root).unwrap().into_iter().filter(|name| name.contains("restore.")).collect();
            assert_eq!(left, Vec::<String>::new());
        }
    }

    #[test]
    fn what_was_not_decided_is_removed_and_the_state_stays() {
        let folder = tempfile::tempdir().unwrap();
        old_state(folder.path());
        new_state(folder.path());
        assert!(!complete(folder.path()).unwrap());
        discard(folder.path()).unwrap();
        assert_eq!(names(folder.path()).unwrap(), ["functions", "instance", "lock", "nigh.toml", "state.redb"]);
        assert_eq!(in_the_way(folder.path(), &["nigh.toml"]).unwrap(), ["functions", "state.redb"]);
    }
}
