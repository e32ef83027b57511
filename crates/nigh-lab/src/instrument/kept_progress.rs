//! What a long run has done so far, kept beside its output, so that one that was cut off goes on where it stopped.
//!
//! One file: what was asked for, and the outcome of each part that is done, by the part's name. It is taken up again only
//! by a program of the same code (`built_from`) for the same question; else it is begun anew. It is replaced as a whole after
//! every part, and deleted when all are done.

pub(crate) mod built_from;

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use self::built_from::BuiltFrom;
use crate::LabError;
use crate::instrument::error::Tried;

/// Bytes of a file that is taken up.
const KEPT_MAX: u64 = 64 << 20;

/// Documents of format 3 knew a program by its size and build time, which no other build has: they are begun anew.
const FORMAT: u32 = 4;

#[derive(Debug, Serialize, Deserialize)]
struct ProgressDocument<Q, T> {
    format: u32,
    program: BuiltFrom,
    asked: Q,
    done: BTreeMap<String, T>,
}

/// The file, and what it holds: what was asked (`Q`), and the outcomes (`T`). Without a file it holds them for this run alone.
#[derive(Debug)]
pub(crate) struct KeptProgress<Q, T> {
    path: Option<PathBuf>,
    kept: Mutex<ProgressDocument<Q, T>>,
}

impl<Q, T> KeptProgress<Q, T>
where
    Q: PartialEq + Serialize + DeserializeOwned,
    T: Clone + Serialize + DeserializeOwned,
{
    /// Takes up what is kept at `path` for what is asked, or begins anew.
    pub(crate) fn open(path: &Path, asked: Q) -> Result<Self, LabError> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).at(folder)?;
        }
        Self::of_program(path, asked, BuiltFrom::read()?)
    }

    /// Opens the file at `path`; without a path, nothing is kept.
    pub(crate) fn open_if(path: Option<&Path>, asked: Q) -> Result<Self, LabError> {
        let Some(path) = path else {
            let kept = ProgressDocument { format: FORMAT, program: BuiltFrom::default(), asked, done: BTreeMap::new() };
            return Ok(Self { path: None, kept: Mutex::new(kept) });
        };
        Self::open(path, asked)
    }

    fn of_program(path: &Path, asked: Q, program: BuiltFrom) -> Result<Self, LabError> {
        let known = match fs::metadata(path) {
            Ok(file) if file.len() > KEPT_MAX => {
                return Err(LabError::file(
                    path,
                    &"this is no kept progress: too large; delete it or name another file",
                ));
            }
            Ok(_) => Some(fs::read(path).at(path)?),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(LabError::file(path, &error)),
        };
        let known = known.and_then(|known| serde_json::from_slice::<ProgressDocument<Q, T>>(&known).ok());
        let same =
            |known: &ProgressDocument<Q, T>| known.format == FORMAT && known.program == program && known.asked == asked;
        let done = known.filter(same).map(|known| known.done).unwrap_or_default();
        let kept = ProgressDocument { format: FORMAT, program, asked, done };
        Ok(Self { path: Some(path.to_owned()), kept: Mutex::new(kept) })
    }

    /// The outcome kept of a part.
    pub(crate) fn done(&self, part: &str) -> Option<T> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).done.get(part).cloned()
    }

    /// Keeps one more.
    pub(crate) fn add(&self, part: &str, outcome: &T) -> Result<(), LabError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.done.insert(part.to_owned(), outcome.clone());
        let Some(path) = &self.path else { return Ok(()) };
        let fresh = path.with_extension("fresh");
        let text = serde_json::to_vec(&*kept).at(path)?;
        // Renamed, so that a run cut off while it writes leaves the state before.
        fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, path)).at(path)
    }

    /// The outcome of a part: the one that is kept, else that of `play`, which is kept then.
    pub(crate) async fn part(
        &self,
        part: &str,
        play: impl AsyncFnOnce() -> Result<T, LabError>,
    ) -> Result<T, LabError> {
        if let Some(outcome) = self.done(part) {
            return Ok(outcome);
        }
        let outcome = play().await?;
        self.add(part, &outcome)?;
        Ok(outcome)
    }

    /// The same for a part that is played without waiting for others.
    pub(crate) fn part_now(&self, part: &str, play: impl FnOnce() -> Result<T, LabError>) -> Result<T, LabError> {
        if let Some(outcome) = self.done(part) {
            return Ok(outcome);
        }
        let outcome = play()?;
        self.add(part, &outcome)?;
        Ok(outcome)
    }

    /// All is done and told.
    pub(crate) fn finish(self) -> Result<(), LabError> {
        let Some(path) = &self.path else { return Ok(()) };
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(LabError::file(path, &error)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Numbers = KeptProgress<String, f64>;

    fn open(path: &Path, asked: &str) -> Numbers {
        Numbers::open(path, asked.to_owned()).unwrap()
    }

    #[test]
    fn what_is_done_is_taken_up_again_for_the_same_run_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.state");
        let kept = open(&path, "seed 1");
        assert_eq!(kept.done("a"), None);
        kept.add("b", &0.04).unwrap();
        kept.add("a", &0.02).unwrap();
        let again = open(&path, "seed 1");
        assert_eq!((again.done("a"), again.done("b"), again.done("c")), (Some(0.02), Some(0.04), None));
        assert_eq!(open(&path, "seed 2").done("a"), None);
        let other = BuiltFrom { commit: "0123456".to_owned(), ..BuiltFrom::default() };
        let of_other = |other: &BuiltFrom| Numbers::of_program(&path, "seed 1".to_owned(), other.clone()).unwrap();
        assert_eq!(of_other(&other).done("a"), None);
        of_other(&other).add("a", &0.03).unwrap();
        // Another build of the same commit goes on.
        assert_eq!(of_other(&other).done("a"), Some(0.03));
        assert_eq!(of_other(&BuiltFrom { dirty: true, ..other }).done("a"), None);
        kept.finish().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_file_cut_off_begins_anew_and_one_that_cannot_be_read_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.state");
        fs::write(&path, "{\"format\":4,\"asked\":").unwrap();
        assert_eq!(open(&path, "seed 1").done("a"), None);
        let error = Numbers::open(folder.path(), "seed 1".to_owned()).unwrap_err().to_string();
        assert!(error.contains(&folder.path().display().to_string()), "{error}");
    }
}
