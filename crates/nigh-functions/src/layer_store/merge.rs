//! Several layers merged into one tree, which their function finds at `/opt`.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::LayerError;

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LayerError {
    move |source| LayerError::Merge { what, path: path.to_owned(), source }
}

/// Removes merges that no function uses, and unfinished ones.
pub(super) fn sweep_merges(folder: &Path, live: &HashSet<String>) -> Result<(), LayerError> {
    fs::create_dir_all(folder).map_err(failed("making", folder))?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o711)).map_err(failed("opening", folder))?;
    for entry in fs::read_dir(folder).map_err(failed("reading", folder))? {
        let path = entry.map_err(failed("reading", folder))?.path();
        let is_live = path.file_name().and_then(|name| name.to_str()).is_some_and(|name| live.contains(name));
        if !is_live {
            fs::remove_dir_all(&path).map_err(failed("removing", &path))?;
        }
    }
    Ok(())
}

/// Merges `trees` into `target`, whole or not at all.
pub(super) fn merge(trees: &[PathBuf], target: &Path) -> Result<(), LayerError> {
    let half = target.with_extension(Uuid::new_v4().simple().to_string());
    make_folder(&half)?;
    let made = trees.iter().try_for_each(|tree| add_tree(tree, &half));
    let renamed = made.and_then(|()| fs::rename(&half, target).map_err(failed("renaming to", target)));
    renamed.inspect_err(|_| drop(fs::remove_dir_all(&half)))
}

fn make_folder(path: &Path) -> Result<(), LayerError> {
    fs::create_dir(path).map_err(failed("making", path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(failed("opening", path))
}

/// Adds `tree` to `to`: it replaces files of the same name, and joins folders.
fn add_tree(tree: &Path, to: &Path) -> Result<(), LayerError> {
    for entry in fs::read_dir(tree).map_err(failed("reading", tree))? {
        let entry = entry.map_err(failed("reading", tree))?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        let is_folder = entry.file_type().map_err(failed("reading", &from))?.is_dir();
        let there = fs::symlink_metadata(&to).map(|meta| meta.is_dir()).ok();
        match (is_folder, there) {
            (true, Some(true)) => {}
            (_, Some(true)) => fs::remove_dir_all(&to).map_err(failed("replacing", &to))?,
            (_, Some(false)) => fs::remove_file(&to).map_err(failed("replacing", &to))?,
            (_, None) => {}
        }
        if is_folder {
            if there != Some(true) {
                make_folder(&to)?;
            }
            add_tree(&from, &to)?;
        } else {
            fs::hard_link(&from, &to).map_err(failed("linking", &to))?;
        }
    }
    Ok(())
}
