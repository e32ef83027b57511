//! The last step of a restore: what was made aside takes the place of what was there; crash-safe.
//!
//! ```text
//! restore.partial/    being made; a crash here leaves the state as it was, and the next start removes this
//! restore.moving/     whole, and on the disk: from this rename on the restore is done, whatever crashes
//!   plan.json         `Plan`
//!   new/              what is to stand in the state folder
//! restore.placing/    the same, when all that was there before has been moved away
//! before-restore-*/   what was there before; never deleted
//! ```
//!
//! Every start of a node ends a restore that a crash cut off in the two later states, by the same steps. All of it is
//! renames within the state folder, which may be a mount point.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::state_folder::StateFolderError;

const PARTIAL: &str = "restore.partial";
const MOVING: &str = "restore.moving";
const PLACING: &str = "restore.placing";
const PLAN: &str = "plan.json";
const NEW: &str = "new";
const ASIDE_PREFIX: &str = "before-restore-";
const FORMAT: u32 = 1;
/// What stays where it is: the lock is held, and the machine's sandboxes go by the instance's number.
const ALWAYS_KEPT: [&str; 6] = ["lock", "instance", "lost+found", PARTIAL, MOVING, PLACING];

/// What of the state folder is to be replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    format: u32,
    /// The folder for what was there.
    aside: String,
    /// What stays.
    keep: Vec<String>,
}

/// The steps, each named when it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Decided,
    MovedOne,
    Emptied,
    PlacedOne,
}

/// Told of each step; an error stops there, as a crash would.
type Hook<'a> = &'a mut dyn FnMut(Step) -> io::Result<()>;

fn failed(path: &Path) -> impl FnOnce(io::Error) -> StateFolderError {
    move |source| StateFolderError::Io { path: path.to_owned(), source }
}

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
    /// Keeps `keep`, and moves all else into a folder named by `now`.
    pub(super) fn new(now: &str, keep: &[&str]) -> Self {
        let aside = format!("{ASIDE_PREFIX}{}", now.replace(':', "-"));
        Self { format: FORMAT, aside, keep: keep.iter().map(|name| (*name).to_owned()).collect() }
    }

    /// Where what was there goes.
    pub(super) fn aside(&self, root: &Path) -> PathBuf {
        root.join(&self.aside)
    }
}

/// What of `root` would have to make room, if `keep` may stay.
pub(super) fn in_the_way<S: AsRef<str>>(root: &Path, keep: &[S]) -> Result<Vec<String>, StateFolderError> {
    let mut found = names(root)?;
    found.retain(|name| {
        !ALWAYS_KEPT.contains(&name.as_str())
            && !name.starts_with(ASIDE_PREFIX)
            && !keep.iter().any(|kept| kept.as_ref() == name)
    });
    Ok(found)
}

/// An empty folder in `root` for what is to be; what an earlier attempt left goes.
pub(super) fn begin(root: &Path) -> Result<PathBuf, StateFolderError> {
    discard(root)?;
    let new = root.join(PARTIAL).join(NEW);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&new).map_err(failed(&new))?;
    Ok(new)
}

/// Removes what was begun and not decided.
pub(crate) fn discard(root: &Path) -> Result<(), StateFolderError> {
    let partial = root.join(PARTIAL);
    match fs::remove_dir_all(&partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(&partial)(error)),
        _ => Ok(()),
    }
}

/// Makes what was begun the state, by `plan`.
pub(super) fn commit(root: &Path, plan: &Plan) -> Result<(), StateFolderError> {
    decide(root, plan, &mut |_| Ok(()))
}

fn decide(root: &Path, plan: &Plan, hook: Hook<'_>) -> Result<(), StateFolderError> {
    let partial = root.join(PARTIAL);
    let text = serde_json::to_vec(plan).map_err(|error| failed(&partial)(error.into()))?;
    crate::state_folder::write_private(&partial.join(PLAN), &text)?;
    // All that was made is in this file system.
    let folder = File::open(root).map_err(failed(root))?;
    rustix::fs::syncfs(&folder).map_err(|errno| failed(root)(errno.into()))?;
    fs::rename(&partial, root.join(MOVING)).map_err(failed(&partial))?;
    sync(root)?;
    hook(Step::Decided).map_err(failed(root))?;
    go_on(root, hook).map(drop)
}

/// Ends a restore that a crash has cut off behind its decision; true if there was one. The caller holds the folder.
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
        // Decided, two moved, emptied, two placed.
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
