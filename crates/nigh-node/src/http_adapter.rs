//! Installs the adapter of `provided.http` in a folder of its own, which sandboxes see.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use nigh_terms::companion_programs;

use crate::status::Level;

/// The program's name.
pub(crate) const NAME: &str = "nigh-http-adapter";

/// Copies the adapter that is installed with this program to `folder`. Returns one line for the status, and the adapter if it
/// exists.
pub(crate) fn install(folder: &Path) -> (Level, Option<PathBuf>) {
    let level = |on, detail| Level { name: "http functions".to_owned(), on, detail };
    match copy(folder) {
        Ok(program) => (level(true, "provided.http".to_owned()), Some(program)),
        Err(error) => (level(false, format!("no provided.http: {NAME} beside nigh: {error}")), None),
    }
}

/// The adapter that is installed with this program.
pub(crate) fn find() -> io::Result<PathBuf> {
    let source = companion_programs(&std::env::current_exe()?, NAME).find(|path| path.is_file());
    source.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
}

fn copy(folder: &Path) -> io::Result<PathBuf> {
    let source = find()?;
    fs::create_dir_all(folder)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    let (target, half) = (folder.join(NAME), folder.join(format!("{NAME}.new")));
    fs::copy(&source, &half)?;
    fs::set_permissions(&half, fs::Permissions::from_mode(0o755))?;
    fs::rename(&half, &target)?;
    Ok(target)
}
