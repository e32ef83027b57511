//! Results of parts in files of one folder, so that parts of several runs, of several days or machines, add up.
//!
//! `seed-12-part-0007.json` has what a part found, and `seed-12-part-0007.history.gz` what its clients did and saw. A part
//! that is there is not played again. Parts add up only if all are of the same code (`built_from`) and seed.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use nigh_check::history::History;
use serde::{Deserialize, Serialize};

use super::part::PartOutcome;
use super::{ClusterFaultsParameters, history_file};
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::kept_progress::KeptProgress;
use crate::instrument::kept_progress::built_from::BuiltFrom;
use crate::instrument::machine::Machine;

const FORMAT: u32 = 1;
/// Bytes of a file that is read.
const BYTES_MAX: u64 = 16 << 20;
/// The most parts that are added up.
const PARTS_MAX: usize = 100_000;

/// What a part was played with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PlayedPart {
    /// The part's name: its number, or what it measures.
    pub(super) part: String,
    pub(super) seed: u64,
    /// The faults that were asked for.
    pub(super) faults: u32,
    pub(super) built_from: BuiltFrom,
}

/// A file as it is written. The machine is for readers: it decides nothing.
#[derive(Debug, Serialize)]
struct WrittenPart<'a> {
    machine: &'a Machine,
    format: u32,
    #[serde(flatten)]
    played: &'a PlayedPart,
    outcome: &'a PartOutcome,
}

/// The same as it is read.
#[derive(Debug, Deserialize)]
struct StoredPart {
    format: u32,
    #[serde(flatten)]
    played: PlayedPart,
    outcome: PartOutcome,
}

/// The sum of a folder's parts.
#[derive(Debug)]
pub(super) struct AddedParts {
    pub(super) seed: u64,
    pub(super) built_from: BuiltFrom,
    /// Clusters under faults.
    pub(super) parts: usize,
    pub(super) outcome: PartOutcome,
}

#[derive(Debug)]
pub(super) struct PartFiles<'a> {
    folder: PathBuf,
    machine: &'a Machine,
}

impl<'a> PartFiles<'a> {
    pub(super) fn open(folder: &Path, machine: &'a Machine) -> Result<Self, LabError> {
        fs::create_dir_all(folder).at(folder)?;
        Ok(Self { folder: folder.to_owned(), machine })
    }

    fn path(&self, played: &PlayedPart, ending: &str) -> PathBuf {
        let PlayedPart { part, seed, .. } = played;
        // Numbers sort as they count.
        let name = part.parse::<u32>().map_or_else(|_| part.clone(), |number| format!("{number:04}"));
        self.folder.join(format!("seed-{seed}-part-{name}.{ending}"))
    }

    /// The outcome of a part that was played so; none if it was not played.
    ///
    /// # Errors
    /// If the part that is there was played otherwise: it is not overwritten.
    pub(super) fn done(&self, played: &PlayedPart) -> Result<Option<PartOutcome>, LabError> {
        let path = self.path(played, "json");
        let Some(stored) = read(&path)? else { return Ok(None) };
        if stored.played == *played {
            return Ok(Some(stored.outcome));
        }
        let (theirs, ours) = (stored.played.built_from.in_words(), played.built_from.in_words());
        let PlayedPart { seed, faults, .. } = stored.played;
        let reason = format!(
            "this part is of {faults} faults, seed {seed} and commit {theirs}, not of {}, {} and {ours}; name another folder, \
             or delete the file",
            played.faults, played.seed
        );
        Err(LabError::file(path, &reason))
    }

    /// Stores what a part found, and what its clients did, if it had any.
    pub(super) fn add(
        &self,
        played: &PlayedPart,
        outcome: &PartOutcome,
        history: Option<(u32, &History)>,
    ) -> Result<(), LabError> {
        if let Some((part, history)) = history {
            history_file::write(&self.path(played, "history.gz"), part, history)?;
        }
        let path = self.path(played, "json");
        let fresh = path.with_extension("fresh");
        let written = WrittenPart { machine: self.machine, format: FORMAT, played, outcome };
        let text = serde_json::to_vec_pretty(&written).at(&path)?;
        // Renamed, so that a run cut off while it writes leaves no half of a result.
        fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, &path)).at(path)
    }
}

/// What a run has done so far.
pub(super) enum KeptParts<'a> {
    /// In one file, which is deleted at the end.
    Progress(KeptProgress<ClusterFaultsParameters, PartOutcome>),
    /// In files that stay.
    Files(PartFiles<'a>),
}

impl KeptParts<'_> {
    /// The outcome of a part: the one that is kept, else that of `play`, which is kept then, with its history.
    pub(super) fn part(
        &self,
        played: &PlayedPart,
        play: impl FnOnce() -> Result<(PartOutcome, Option<(u32, History)>), LabError>,
    ) -> Result<PartOutcome, LabError> {
        match self {
            Self::Progress(kept) => kept.part_now(&played.part, || play().map(|(outcome, _)| outcome)),
            Self::Files(files) => {
                if let Some(outcome) = files.done(played)? {
                    return Ok(outcome);
                }
                let (outcome, history) = play()?;
                files.add(played, &outcome, history.as_ref().map(|(part, history)| (*part, history)))?;
                Ok(outcome)
            }
        }
    }

    /// All is done and told.
    pub(super) fn finish(self) -> Result<(), LabError> {
        match self {
            Self::Progress(kept) => kept.finish(),
            Self::Files(_) => Ok(()),
        }
    }
}

/// Adds up all parts of a folder.
///
/// # Errors
/// If there is none, or if they are not all of one seed and the same code.
pub(super) fn added(folder: &Path) -> Result<AddedParts, LabError> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(folder).at(folder)?.take(PARTS_MAX) {
        let path = entry.at(folder)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        paths.extend((name.starts_with("seed-") && name.ends_with(".json")).then_some(path));
    }
    paths.sort();
    let mut sum: Option<AddedParts> = None;
    for path in paths {
        let Some(StoredPart { played: PlayedPart { part, seed, built_from, .. }, outcome, .. }) = read(&path)? else {
            continue;
        };
        let sum = sum.get_or_insert_with(|| AddedParts {
            seed,
            built_from: built_from.clone(),
            parts: 0,
            outcome: PartOutcome::default(),
        });
        if (sum.seed, &sum.built_from) != (seed, &built_from) {
            let (first, this) = (sum.built_from.in_words(), built_from.in_words());
            let reason = format!(
                "its seed is {seed} and its commit {this}, of the parts before it they are {} and {first}: parts of different \
                 code or seeds do not add up; put them into folders of their own",
                sum.seed
            );
            return Err(LabError::file(path, &reason));
        }
        // Others than those with a number are no clusters under faults.
        sum.parts += usize::from(part.parse::<u32>().is_ok());
        sum.outcome.add(outcome);
    }
    sum.ok_or_else(|| LabError::file(folder, &"no part is in it; play some with --parts"))
}

fn read(path: &Path) -> Result<Option<StoredPart>, LabError> {
    match fs::metadata(path) {
        Ok(file) if file.len() > BYTES_MAX => return Err(LabError::file(path, &"this is no part's result: too large")),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(LabError::file(path, &error)),
    }
    let stored: StoredPart = serde_json::from_slice(&fs::read(path).at(path)?).at(path)?;
    if stored.format == FORMAT {
        return Ok(Some(stored));
    }
    let reason = format!("its format is {}, and this program reads {FORMAT}", stored.format);
    Err(LabError::file(path, &reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn played(part: &str, commit: &str) -> PlayedPart {
        let built_from = BuiltFrom { commit: commit.to_owned(), ..BuiltFrom::default() };
        PlayedPart { part: part.to_owned(), seed: 12, faults: 20, built_from }
    }

    fn outcome(operations: u64) -> PartOutcome {
        let mut outcome = PartOutcome::default();
        outcome.totals.operations = operations;
        outcome
    }

    #[test]
    fn parts_add_up_if_they_are_of_the_same_code() {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine::read("nigh experiment cluster-faults".to_owned());
        let files = PartFiles::open(folder.path(), &machine).unwrap();
        assert!(added(folder.path()).unwrap_err().to_string().contains("no part"));
        let (first, second) = (played("0", "a1"), played("1", "a1"));
        assert!(files.done(&first).unwrap().is_none());
        files.add(&first, &outcome(3), Some((0, &History::default()))).unwrap();
        files.add(&second, &outcome(4), None).unwrap();
        assert_eq!(files.done(&first).unwrap().unwrap().totals.operations, 3);
        assert_eq!(history_file::read(&folder.path().join("seed-12-part-0000.history.gz")).unwrap().0, 0);
        files.add(&played("sharers", "a1"), &outcome(0), None).unwrap();
        let sum = added(folder.path()).unwrap();
        assert_eq!((sum.parts, sum.seed, sum.built_from.commit.as_str()), (2, 12, "a1"));
        assert_eq!(sum.outcome.totals.operations, 7);
        // The same part of other code is neither taken for done nor overwritten.
        let refused = files.done(&played("1", "b2")).unwrap_err().to_string();
        assert!(refused.contains("a1") && refused.contains("b2") && refused.contains("another folder"), "{refused}");
        files.add(&played("2", "b2"), &outcome(5), None).unwrap();
        let refused = added(folder.path()).unwrap_err().to_string();
        assert!(refused.contains("a1") && refused.contains("b2") && refused.contains("part-0002"), "{refused}");
    }
}
