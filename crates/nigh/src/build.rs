//! Makes a folder's code ready to be deployed.

use std::path::{Path, PathBuf};

use crate::error::CliError;

/// The folder whose files are the code of a function of `runtime` that is written in `folder`.
///
/// # Errors
/// If the code cannot be made ready.
pub(crate) async fn prepare(folder: &Path, _runtime: &str) -> Result<PathBuf, CliError> {
    Ok(folder.to_owned())
}
