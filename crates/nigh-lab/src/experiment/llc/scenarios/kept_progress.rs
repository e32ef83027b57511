//! What a long run has done so far, kept beside its output, so that one that was cut off goes on where it stopped.
//!
//! One file: what was asked for, and the outcome of each scenario that is done. It is taken up again only by the same
//! program for the same plan, seed, guard and search; else it is begun anew. It is replaced as a whole after every scenario,
//! and deleted when all are done.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use super::outcome::ScenarioOutcome;
use super::plan::Plan;
use crate::LabError;

/// Bytes of a file that is taken up.
const KEPT_MAX: u64 = 64 << 20;

const FORMAT: u32 = 1;

/// What decides about the outcomes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Asked {
    pub(super) plan: Plan,
    pub(super) traces: PathBuf,
    pub(super) guard: f64,
    pub(super) search: usize,
    /// The program's size and the nanosecond it was built in: other code may decide otherwise.
    pub(super) program: (u64, u128),
}

/// This program, as [`Asked::program`] has it.
pub(super) fn this_program() -> Result<(u64, u128), LabError> {
    let path = std::env::current_exe().map_err(|error| LabError::file("the program", &error))?;
    let known = fs::metadata(&path).and_then(|known| Ok((known.len(), known.modified()?)));
    let (bytes, built) = known.map_err(|error| LabError::file(&path, &error))?;
    Ok((bytes, built.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos())))
}

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    format: u32,
    asked: Asked,
    /// By the scenario's place in the plan.
    done: BTreeMap<usize, ScenarioOutcome>,
}

/// The file, and what it holds.
#[derive(Debug)]
pub(super) struct KeptProgress {
    path: PathBuf,
    kept: Mutex<Kept>,
}

impl KeptProgress {
    /// Takes up what is kept at `path` for what is asked, or begins anew.
    pub(super) fn open(path: &Path, asked: Asked) -> Result<Self, LabError> {
        let known = match fs::metadata(path) {
            Ok(file) if file.len() > KEPT_MAX => {
                return Err(LabError::file(
                    path,
                    &"this is no kept progress: too large; delete it or name another file",
                ));
            }
            Ok(_) => Some(fs::read(path).map_err(|error| LabError::file(path, &error))?),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(LabError::file(path, &error)),
        };
        let known = known.and_then(|known| serde_json::from_slice::<Kept>(&known).ok());
        let known = known.filter(|known| known.format == FORMAT && known.asked == asked);
        let kept = known.unwrap_or_else(|| Kept { format: FORMAT, asked, done: BTreeMap::new() });
        Ok(Self { path: path.to_owned(), kept: Mutex::new(kept) })
    }

    /// The outcomes kept so far.
    pub(super) fn done(&self) -> BTreeMap<usize, ScenarioOutcome> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).done.clone()
    }

    /// Keeps one more.
    pub(super) fn add(&self, at: usize, outcome: &ScenarioOutcome) -> Result<(), LabError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.done.insert(at, outcome.clone());
        let fresh = self.path.with_extension("fresh");
        let text = serde_json::to_vec(&*kept).map_err(|error| LabError::file(&self.path, &error))?;
        // Renamed, so that a run cut off while it writes leaves the state before.
        let written = fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, &self.path));
        written.map_err(|error| LabError::file(&self.path, &error))
    }

    /// All is done and told.
    pub(super) fn finish(self) -> Result<(), LabError> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(LabError::file(&self.path, &error)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::made_up;
    use super::super::plan::tests::kept as plan;
    use super::*;

    fn asked() -> Asked {
        Asked { plan: plan(), traces: "traces".into(), guard: 0.95, search: 24, program: this_program().unwrap() }
    }

    #[test]
    fn what_is_done_is_taken_up_again_for_the_same_run_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("scenarios.state");
        let kept = KeptProgress::open(&path, asked()).unwrap();
        assert!(kept.done().is_empty());
        kept.add(3, &made_up("a", 0.04)).unwrap();
        kept.add(1, &made_up("b", 0.02)).unwrap();
        let again = KeptProgress::open(&path, asked()).unwrap().done();
        assert_eq!(again.keys().copied().collect::<Vec<_>>(), [1, 3]);
        assert_eq!(again[&3].gain.nigh, 0.04);
        let mut other_seed = asked();
        other_seed.plan.draw_others(1);
        for other in [other_seed, Asked { guard: 1.0, ..asked() }, Asked { program: (1, 1), ..asked() }] {
            assert!(KeptProgress::open(&path, other).unwrap().done().is_empty());
        }
        kept.finish().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_file_cut_off_begins_anew_and_one_that_cannot_be_read_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("scenarios.state");
        fs::write(&path, "{\"format\":1,\"asked\":").unwrap();
        assert!(KeptProgress::open(&path, asked()).unwrap().done().is_empty());
        let error = KeptProgress::open(folder.path(), asked()).unwrap_err().to_string();
        assert!(error.contains(&folder.path().display().to_string()), "{error}");
    }
}
