//! Inputs and code of the workflows and applications in `functions/pipelines/`.

use std::path::Path;

use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::sample_function::MEASURED;

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

/// Writes the code in `from` to `folder`, with the measure and the `client` that stands in for boto3, if one does.
pub(crate) fn measured_code(from: &Path, folder: &Path, client: Option<&str>) -> Result<(), LabError> {
    let write = |name: &str, text: &[u8]| std::fs::write(folder.join(name), text).at(folder.join(name));
    std::fs::create_dir_all(folder).at(folder)?;
    for entry in std::fs::read_dir(from).at(from)?.flatten() {
        let path = entry.path();
        if path.extension() == Some("py".as_ref()) {
            let text = std::fs::read(&path).at(&path)?;
            write(&entry.file_name().to_string_lossy(), &text)?;
        }
    }
    write("measured.py", MEASURED.as_bytes())?;
    client.map_or(Ok(()), |client| write("boto3.py", client.as_bytes()))
}
