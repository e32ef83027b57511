//! What a long run has done so far, kept beside its output, so that one that was cut off goes on where it stopped.
//!
//! One file: what was asked for, and the outcome of each part that is done, by the part's name. It is taken up again only
//! by the same program for the same question; else it is begun anew. It is replaced as a whole after every part, and deleted
//! when all are done.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::programs;

/// Bytes of a file that is taken up.
const KEPT_MAX: u64 = 64 << 20;

const FORMAT: u32 = 3;

/// Size and build time (ns) of nigh-lab and of the `nigh` that nigh-lab starts, if there is one. Other code may measure
/// otherwise.
type Program = [(u64, u128); 2];

fn this_program() -> Result<Program, LabError> {
    let built = |path: &Path| -> Result<(u64, u128), LabError> {
        let known = fs::metadata(path).and_then(|known| Ok((known.len(), known.modified()?)));
        let (bytes, built) = known.at(path)?;
        Ok((bytes, built.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos())))
    };
    let own = std::env::current_exe().at("the program")?;
    Ok([built(&own)?, programs::nigh().map_or(Ok((0, 0)), |nigh| built(&nigh))?])
}

#[derive(Debug, Serialize, Deserialize)]
struct ProgressDocument<Q, T> {
    format: u32,
    program: Program,
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
        Self::of_program(path, asked, this_program()?)
    }

    /// Opens the file at `path`; without a path, nothing is kept.
    pub(crate) fn open_if(path: Option<&Path>, asked: Q) -> Result<Self, LabError> {
        let Some(path) = path else {
            let kept = ProgressDocument { format: FORMAT, program: Program::default(), asked, done: BTreeMap::new() };
            return Ok(Self { path: None, kept: Mutex::new(kept) });
        };
        Self::open(path, asked)
    }

    fn of_program(path: &Path, asked: Q, program: Program) -> Result<Self, LabError> {
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
        assert_eq!(Numbers::of_program(&path, "seed 1".to_owned(), [(1, 1); 2]).unwrap().done("a"), None);
        kept.finish().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_file_cut_off_begins_anew_and_one_that_cannot_be_read_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.state");
        fs::write(&path, "{\"format\":3,\"asked\":").unwrap();
        assert_eq!(open(&path, "seed 1").done("a"), None);
        let error = Numbers::open(folder.path(), "seed 1".to_owned()).unwrap_err().to_string();
        assert!(error.contains(&folder.path().display().to_string()), "{error}");
    }
}
