//! Lambda's extensions: programs in a folder of a layer, which Lambda starts beside the function. Nigh starts none, so it
//! refuses a layer with one.

use std::fs;
use std::path::{Path, PathBuf};

use crate::code_archive::{Archive, ArchiveError, ArchiveLimits, file_directly_in};

/// The folder of a layer in which they lie.
const FOLDER: &str = "extensions";

/// The path of an extension in a layer's archive; none if it has none.
///
/// # Errors
/// If the archive breaks a rule or a limit, or cannot be read.
pub(super) fn of_archive(archive: &Archive) -> Result<Option<PathBuf>, ArchiveError> {
    file_directly_in(Path::new(FOLDER), archive, ArchiveLimits::LAMBDA)
}

/// The path of an extension among the files of a layer; none if there is none.
pub(super) fn of_files(layer: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(layer.join(FOLDER)).ok()?.filter_map(Result::ok);
    let name = entries.filter(|entry| entry.path().is_file()).map(|entry| entry.file_name()).min()?;
    Some(Path::new(FOLDER).join(name))
}
