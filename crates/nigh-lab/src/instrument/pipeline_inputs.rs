//! Inputs of the workflows and applications in `functions/pipelines/`.

use std::path::Path;

use crate::LabError;
use crate::instrument::error::Tried;

/// Makes the inputs of these names in `folder` by `functions/pipelines/inputs.py`; without names those of the workflows.
pub(crate) fn make_inputs(python: &Path, folder: &Path, names: &[&str]) -> Result<(), LabError> {
    let script = "functions/pipelines/inputs.py";
    let made = std::process::Command::new(python).arg(script).arg(folder).args(names).output();
    let made = made.at(python)?;
    if made.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&made.stderr);
    Err(LabError::Request { what: script.to_owned(), reason: said.trim().lines().next_back().unwrap_or("").to_owned() })
}
