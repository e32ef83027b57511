//! The kernel's groups of processes: one for each sandbox, with its memory limit, its process limit, its processor
//! weight and its freezer.
//!
//! Groups are made as `<Nigh's own group>/nigh-<instance>/<sandbox>`, in each usable v1 tree or in the v2 tree. A
//! missing controller is reported with its reason. Groups with other names are never touched.

mod control_file;
mod cpu_weight;
pub mod cpuset;
mod group;
mod host;
mod layout;
mod parents;
mod peak;
mod pressure;
mod sweep;
pub mod v1;
pub mod v2;

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

pub use self::group::{Group, kill_members};
pub use self::host::CgroupHost;
pub use self::layout::{Layout, Place, locate};
pub use self::parents::{Controls, Trees};

/// The prefix of the folders of every Nigh.
const PREFIX: &str = "nigh-";
/// The v2 leaf that Nigh itself moves to: a v2 group that has groups below must have no processes.
const SELF_SUFFIX: &str = "-self";
const PROCS: &str = "cgroup.procs";

/// Why a group cannot be made or controlled.
#[derive(Debug, Error)]
#[error("cgroup {path}: cannot {what}: {source}")]
pub struct CgroupError {
    /// What was tried.
    pub what: &'static str,
    /// The path of the folder.
    pub path: PathBuf,
    /// The system's reason.
    #[source]
    pub source: io::Error,
}

fn because(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CgroupError {
    move |source| CgroupError { what, path: path.to_owned(), source }
}
