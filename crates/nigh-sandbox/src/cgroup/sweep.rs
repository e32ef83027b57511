//! Finds and ends the groups that an earlier process of this Nigh left.
//!
//! The earlier process may have been elsewhere in the tree (another session, another service), so the whole tree is
//! searched for the instance's name, which only this Nigh uses.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use super::SELF_SUFFIX;
use super::group::{end_folders, removed};
use super::layout::Layout;

/// The most groups visited in one tree; a machine has hundreds. Groups beyond the limit are not found.
const GROUPS_MAX: usize = 50_000;

/// See `CgroupHost::sweep`. `keep` are the parents of the caller's own groups.
pub(super) fn sweep(layout: &Layout, name: &str, keep: &[&PathBuf], living: &dyn Fn(&str) -> bool) -> usize {
    let (mounts, v2): (BTreeSet<&PathBuf>, bool) = match layout {
        Layout::V1 { memory, freezer, pids, cpu, cpuset, others } => {
            let controlled = [memory, freezer, pids, cpu, cpuset].into_iter().flatten();
            (controlled.chain(others).map(|place| &place.mount).collect(), false)
        }
        Layout::V2(place) => (BTreeSet::from([&place.mount]), true),
        Layout::Absent => return 0,
    };
    let parents: Vec<PathBuf> = mounts.iter().flat_map(|mount| find(mount, name)).collect();
    // One sandbox has a folder in each v1 tree: they are ended together.
    let mut sandboxes: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for folder in parents.iter().flat_map(|parent| children(parent)) {
        if let Some(sandbox) = folder.file_name().and_then(|name| name.to_str())
            && !living(sandbox)
        {
            sandboxes.entry(sandbox.to_owned()).or_default().push(folder);
        }
    }
    for (sandbox, folders) in &sandboxes {
        if !end_folders(folders, v2) {
            tracing::warn!(sandbox, "a cgroup of an earlier Nigh is still busy");
        }
    }
    for parent in parents.iter().filter(|parent| !keep.contains(parent)) {
        // The parent is busy if another process of this Nigh uses it, and stays then.
        removed(parent);
    }
    sandboxes.len()
}

/// The folders called `name` and the leaves beside them, level by level.
fn find(root: &Path, name: &str) -> Vec<PathBuf> {
    let leaf = format!("{name}{SELF_SUFFIX}");
    let mut found = Vec::new();
    let mut open = VecDeque::from([root.to_owned()]);
    let mut seen = 0;
    while let Some(group) = open.pop_front() {
        for child in children(&group) {
            seen += 1;
            if seen > GROUPS_MAX {
                tracing::warn!(root = %root.display(), "more than {GROUPS_MAX} cgroups: not all were searched");
                return found;
            }
            if child.ends_with(name) || child.ends_with(&leaf) {
                found.push(child);
            } else {
                open.push_back(child);
            }
        }
    }
    found
}

fn children(group: &Path) -> Vec<PathBuf> {
    // A group may be removed while the tree is read.
    let Ok(entries) = fs::read_dir(group) else { return Vec::new() };
    entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}
