//! The programs that this one starts, which lie beside it.

use std::path::PathBuf;

use crate::LabError;
use crate::instrument::error::Tried;

const HINT: &str = "it is installed beside nigh-lab; `cargo build --bins` builds both";

/// The command `nigh`.
pub(crate) fn nigh() -> Result<PathBuf, LabError> {
    beside("nigh")
}

/// The peers that are our own programs.
pub(crate) fn nigh_peer() -> Result<PathBuf, LabError> {
    beside("nigh-peer")
}

fn beside(name: &str) -> Result<PathBuf, LabError> {
    let own = std::env::current_exe().at("the program")?;
    let path = own.with_file_name(name);
    if path.is_file() { Ok(path) } else { Err(LabError::Node(format!("{} is not there; {HINT}", path.display()))) }
}
