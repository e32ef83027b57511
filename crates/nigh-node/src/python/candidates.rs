//! Where this machine's Pythons are looked for, in the order in which they are tried.
//!
//! Nothing is started here: only names of files are compared. A virtual environment of the working folder counts only if
//! its files belong to root or to this user: whoever starts Nigh as root in a folder of others must not run their program.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The most candidates: each takes some hundredths of a second to ask.
const CANDIDATES_MAX: usize = 24;
/// The minor versions that are looked for by name in `PATH`, the newest first.
const MINORS: std::ops::RangeInclusive<u8> = 9..=14;
/// The link beside `nigh` to the interpreter that was installed with it.
const INSTALLED: &str = "nigh-python";

/// The places.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// The running program.
    program: Option<PathBuf>,
    /// The environments in use: `VIRTUAL_ENV`, `CONDA_PREFIX`.
    environments: Vec<PathBuf>,
    working_folder: Option<PathBuf>,
    /// The environment that Nigh's own messages tell to make.
    own: Option<PathBuf>,
    path: Vec<PathBuf>,
    /// The folder in which uv keeps its Pythons.
    uv: Option<PathBuf>,
    /// The folder in which pyenv keeps its Pythons.
    pyenv: Option<PathBuf>,
}

impl Places {
    /// Those of this process.
    #[must_use]
    pub fn of_process() -> Self {
        let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = folder("HOME");
        let below_home = |path: &str| home.as_ref().map(|home| home.join(path));
        let data = folder("XDG_DATA_HOME").or_else(|| below_home(".local/share"));
        let below_data = |path: &str| data.as_ref().map(|data| data.join(path));
        Self {
            program: std::env::current_exe().ok(),
            environments: ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(folder).collect(),
            working_folder: std::env::current_dir().ok(),
            own: below_data("nigh/python"),
            path: std::env::var_os("PATH").iter().flat_map(std::env::split_paths).collect(),
            uv: folder("UV_PYTHON_INSTALL_DIR").or_else(|| below_data("uv/python")),
            pyenv: folder("PYENV_ROOT").or_else(|| below_home(".pyenv")).map(|root| root.join("versions")),
        }
    }

    /// The folders of `PATH` alone.
    #[cfg(test)]
    pub(super) fn of_path(path: Vec<PathBuf>) -> Self {
        Self { path, ..Self::default() }
    }

    /// The environment in which Nigh's messages tell to install what functions need.
    #[must_use]
    pub fn own(&self) -> Option<&Path> {
        self.own.as_deref()
    }

    /// The interpreters that are there, those first that were meant for this most probably.
    #[must_use]
    pub fn candidates(&self) -> Vec<PathBuf> {
        let in_environment = |folder: &PathBuf| folder.join("bin/python3");
        let here = self.working_folder.iter().flat_map(|folder| [folder.join(".venv"), folder.join("venv")]);
        let here = here.filter(|environment| is_own(environment)).map(|environment| in_environment(&environment));
        let minors = MINORS.rev().map(|minor| format!("python3.{minor}"));
        let names: Vec<String> = std::iter::once("python3".to_owned()).chain(minors).collect();
        let of_path = names.iter().flat_map(|name| self.path.iter().map(move |folder| folder.join(name)));
        let kept = [&self.uv, &self.pyenv].into_iter().flatten().flat_map(|folder| newest_first(folder));
        let all = self
            .environments
            .iter()
            .map(in_environment)
            .chain(here)
            .chain(self.own.iter().map(in_environment))
            .chain(self.program.iter().flat_map(|program| beside(program)))
            .chain(of_path)
            .chain(kept.map(|folder| in_environment(&folder)));
        let mut seen: Vec<(Option<PathBuf>, PathBuf)> = Vec::new();
        let mut candidates = Vec::new();
        for candidate in all.filter(|candidate| is_program(candidate)) {
            // `python3` and `python3.11` of one folder are one program; an environment's link to it is another.
            let identity = (candidate.parent().map(Path::to_owned), candidate.canonicalize().unwrap_or_default());
            if !seen.contains(&identity) {
                seen.push(identity);
                candidates.push(candidate);
            }
        }
        candidates.truncate(CANDIDATES_MAX);
        candidates
    }
}

/// The interpreters that are installed with the program: the one to which a link beside it points, the one beside it (a
/// virtual environment into which Nigh was installed), and that of its library folder.
fn beside(program: &Path) -> Vec<PathBuf> {
    // An environment is known by the place of its interpreter, so the link is followed here, by one step.
    let installed = fs::read_link(program.with_file_name(INSTALLED)).ok();
    let library = program.parent().and_then(Path::parent).map(|folder| folder.join("lib/nigh/python/bin/python3"));
    installed.into_iter().chain([program.with_file_name("python3")]).chain(library).collect()
}

/// The folders in `folder`, by the numbers in their names, the newest version first.
fn newest_first(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    folders.sort_by_cached_key(|folder| std::cmp::Reverse(numbers(folder)));
    folders
}

/// The numbers of a version: of `3.11.9` and of `cpython-3.11.9-linux-x86_64-gnu` 3, 11 and 9.
fn numbers(folder: &Path) -> Vec<u32> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let version = name.split('-').find(|part| part.starts_with(|c: char| c.is_ascii_digit())).unwrap_or_default();
    version.split('.').map_while(|part| part.parse().ok()).collect()
}

fn is_program(file: &Path) -> bool {
    rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file()
}

/// True if the environment and its interpreter belong to root or to this user.
fn is_own(environment: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    let is_own = |path: &Path| path.symlink_metadata().is_ok_and(|found| [0, user].contains(&found.uid()));
    is_own(environment) && is_own(&environment.join("bin")) && is_own(&environment.join("bin/python3"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn program(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn the_environment_in_use_comes_first_then_those_near_then_path_then_uvs_and_pyenvs_newest() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        let order = [
            "active/bin/python3",
            "here/.venv/bin/python3",
            "data/nigh/python/bin/python3",
            "installed/bin/python3",
            "bin/lib/nigh/python/bin/python3",
            "path-1/python3",
            "path-2/python3",
            "path-2/python3.12",
            "data/uv/python/cpython-3.13.1-linux-x86_64-gnu/bin/python3",
            "data/uv/python/cpython-3.9.20-linux-x86_64-gnu/bin/python3",
            "pyenv/versions/3.11.10/bin/python3",
            "pyenv/versions/3.11.9/bin/python3",
        ];
        for path in order {
            program(&at(path));
        }
        program(&at("bin/bin/nigh"));
        symlink(at("installed/bin/python3"), at("bin/bin/nigh-python")).unwrap();
        symlink("python3", at("path-1/python3.11")).unwrap();
        fs::write(at("path-1/python3.10"), "not executable").unwrap();
        let places = Places {
            program: Some(at("bin/bin/nigh")),
            environments: vec![at("active"), at("absent")],
            working_folder: Some(at("here")),
            own: Some(at("data/nigh/python")),
            path: vec![at("path-1"), at("path-2"), at("path-1")],
            uv: Some(at("data/uv/python")),
            pyenv: Some(at("pyenv/versions")),
        };
        assert_eq!(places.candidates(), order.map(at));
    }

    #[test]
    fn a_version_is_the_numbers_in_a_name() {
        assert_eq!(numbers(Path::new("/x/3.11.9")), [3, 11, 9]);
        assert_eq!(numbers(Path::new("cpython-3.13.1-linux-x86_64-gnu")), [3, 13, 1]);
        assert_eq!(numbers(Path::new("cpython-3.14.0rc2-linux")), [3, 14]);
        assert!(numbers(Path::new("pypy")).is_empty());
    }

    #[test]
    fn without_any_python_there_is_no_candidate() {
        assert!(Places::default().candidates().is_empty());
    }
}
