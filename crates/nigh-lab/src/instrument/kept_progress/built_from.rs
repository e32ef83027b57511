//! What the programs of this run were built from: a run goes on, and results add up, only where the code is the same.
//!
//! A build leaves beside each program the list of its sources (`nigh.d`, by Cargo). If no source is newer than the program,
//! and the clone around the sources has no changes, the program was built from the clone's commit. Then the commit is all
//! that counts: another build of it, in another clone or after a restart of the machine, is the same code. Results are no
//! code (`experiments/`), so a commit of results alone changes nothing. In all other cases the program is known by its size
//! and build time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::programs;

/// The code of `nigh-lab`, and of the `nigh` that it starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BuiltFrom {
    /// The last commit that changed more than results; `unknown` outside a clone.
    pub(crate) commit: String,
    /// The programs have changes that are in no commit, or may have some.
    pub(crate) dirty: bool,
    /// They are not optimized: their times are no others'.
    pub(crate) debug: bool,
    /// If dirty: size and build time (ns) of `nigh-lab`, and of `nigh` if it is there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) files: Vec<(u64, u64)>,
}

impl BuiltFrom {
    /// The programs of this run.
    pub(crate) fn read() -> Result<Self, LabError> {
        let own = std::env::current_exe().at("the program")?;
        // A bench that starts no node needs no `nigh`.
        let programs: Vec<PathBuf> = [Some(own), programs::nigh().ok()].into_iter().flatten().collect();
        Self::of(&programs)
    }

    fn of(programs: &[PathBuf]) -> Result<Self, LabError> {
        let debug = cfg!(debug_assertions);
        let commits: Vec<Option<String>> = programs.iter().map(|program| commit_of(program)).collect();
        if let Some(Some(commit)) = commits.first()
            && commits.iter().all(|one| one.as_ref() == Some(commit))
        {
            return Ok(Self { commit: commit.clone(), dirty: false, debug, files: Vec::new() });
        }
        let known = programs.first().and_then(|own| sources(own)).and_then(|sources| last_commit(&sources));
        let files = programs.iter().map(|program| {
            let known = fs::metadata(program).and_then(|known| Ok((known.len(), known.modified()?)));
            let (bytes, built) = known.at(program)?;
            Ok((bytes, built.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)))
        });
        let files = files.collect::<Result<Vec<_>, LabError>>()?;
        Ok(Self { commit: known.unwrap_or_else(|| "unknown".to_owned()), dirty: true, debug, files })
    }

    /// The commit, and how the build differs from a release of it, for messages.
    pub(crate) fn in_words(&self) -> String {
        let of = |is: bool, words: &'static str| if is { words } else { "" };
        format!("{}{}{}", self.commit, of(self.dirty, " with changes"), of(self.debug, ", a debug build"))
    }
}

/// The commit that a program was built from; none if that is not certain.
fn commit_of(program: &Path) -> Option<String> {
    let sources = sources(program)?;
    let modified = |path: &Path| -> Option<SystemTime> { fs::metadata(path).ok()?.modified().ok() };
    let built = modified(program)?;
    if sources.iter().any(|source| modified(source).is_none_or(|changed| changed > built)) {
        return None;
    }
    let changes = git(sources.first()?, &["status", "--porcelain", "--", ":/", ":(top,exclude)experiments"])?;
    if changes.is_empty() { last_commit(&sources) } else { None }
}

/// The sources of a program, as Cargo lists them; none without a list.
fn sources(program: &Path) -> Option<Vec<PathBuf>> {
    let list = fs::read_to_string(program.with_extension("d")).ok()?;
    // `program: source source ...`, where a blank within a name has a backslash before it.
    let (_, sources) = list.lines().next()?.split_once(": ")?;
    let sources = sources.replace("\\ ", "\0");
    let paths: Vec<PathBuf> = sources.split_whitespace().map(|path| PathBuf::from(path.replace('\0', " "))).collect();
    // A list of relative names is of no use in another folder.
    (!paths.is_empty() && paths.iter().all(|path| path.is_absolute())).then_some(paths)
}

fn last_commit(sources: &[PathBuf]) -> Option<String> {
    let log = ["log", "-1", "--format=%h", "HEAD", "--", ":/", ":(top,exclude)experiments"];
    git(sources.first()?, &log).filter(|commit| !commit.is_empty())
}

/// What git says in the folder of `file`; none if it fails.
fn git(file: &Path, arguments: &[&str]) -> Option<String> {
    let answer = Command::new("git").arg("-C").arg(file.parent()?).args(arguments).output().ok()?;
    answer.status.success().then(|| String::from_utf8_lossy(&answer.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A clone with one source of two programs, and the programs.
    struct Clone {
        folder: tempfile::TempDir,
        programs: Vec<PathBuf>,
    }

    impl Clone {
        fn make() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let clone =
                Self { programs: ["lab", "nigh"].map(|name| folder.path().join("target").join(name)).into(), folder };
            clone.git("init -q");
            fs::create_dir_all(clone.path("target")).unwrap();
            fs::write(clone.path(".gitignore"), "target\n").unwrap();
            fs::write(clone.path("a source.rs"), "").unwrap();
            clone.commit();
            clone.build();
            clone
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn git(&self, words: &str) {
            let arguments = ["-c", "user.name=a", "-c", "user.email=a@b"].into_iter().chain(words.split(' '));
            let done = Command::new("git").arg("-C").arg(self.folder.path()).args(arguments).output().unwrap();
            assert!(done.status.success(), "{done:?}");
        }

        fn commit(&self) {
            self.git("add .");
            self.git("commit -q -m change");
        }

        fn build(&self) {
            let source = self.path("a source.rs").display().to_string().replace(' ', "\\ ");
            for program in &self.programs {
                fs::write(program, "code").unwrap();
                fs::write(program.with_extension("d"), format!("{}: {source}\n", program.display())).unwrap();
            }
        }

        /// The source is saved after the build.
        fn touch(&self) {
            let later = SystemTime::now() + Duration::from_secs(60);
            fs::File::options().append(true).open(self.path("a source.rs")).unwrap().set_modified(later).unwrap();
        }

        fn built_from(&self) -> BuiltFrom {
            BuiltFrom::of(&self.programs).unwrap()
        }
    }

    #[test]
    fn a_program_is_known_by_the_commit_that_it_was_built_from() {
        let clone = Clone::make();
        let first = clone.built_from();
        assert!(first.commit.len() >= 7 && !first.dirty && first.files.is_empty(), "{first:?}");
        // Built again, and with results committed: the same code.
        clone.build();
        fs::create_dir_all(clone.path("experiments")).unwrap();
        fs::write(clone.path("experiments/result.json"), "{}").unwrap();
        assert_eq!(clone.built_from(), first);
        clone.commit();
        assert_eq!(clone.built_from(), first);
        // Other code, in the clone or in another commit.
        fs::write(clone.path("more.rs"), "").unwrap();
        let changed = clone.built_from();
        assert!(changed.dirty && changed.files.len() == 2, "{changed:?}");
        assert!(changed.in_words().starts_with(&format!("{} with changes", first.commit)), "{changed:?}");
        clone.commit();
        let second = clone.built_from();
        assert!(!second.dirty && second.commit != first.commit, "{second:?}");
    }

    #[test]
    fn a_program_that_is_older_than_its_sources_or_has_no_list_of_them_is_known_by_its_files() {
        let clone = Clone::make();
        clone.touch();
        assert!(clone.built_from().dirty, "a commit says nothing of a program that was built before");
        let clone = Clone::make();
        fs::remove_file(clone.programs[1].with_extension("d")).unwrap();
        let of_files = clone.built_from();
        assert!(of_files.dirty && of_files.files.len() == 2, "{of_files:?}");
        assert_eq!(clone.built_from(), of_files);
    }
}
