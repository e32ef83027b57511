//! Makes a folder's code ready to be deployed: its dependencies are installed, or its program is built, by the language's
//! own tool. What was built lies in the user's cache, not in the folder.
//!
//! | file | tool | what is packed beside the folder's files |
//! |---|---|---|
//! | `requirements.txt`, `pyproject.toml` | uv, else pip of the runtime's Python | the packages |
//! | `package.json` | npm | `node_modules` |
//! | `go.mod` | go | `bootstrap` in place of the sources |
//! | `Cargo.toml` | cargo | `bootstrap` in place of the sources |
//!
//! A folder that has these already is packed as it is. Packages are installed once for the same lock file, tool and
//! runtime. Compilers are run each time, since they know best what has changed.

mod cache;
mod compiled;
mod hint;
mod node;
mod package_json;
mod progress;
mod python;
mod requirements;
mod tool;

use std::path::{Path, PathBuf};

use nigh_node::config::FunctionSettings;

pub(crate) use self::progress::{Progress, StderrProgress};

use self::cache::Cache;
use crate::archive::{self, ArchiveError, CodeFile, FileChoice};
use crate::build_error::BuildError;

/// A folder whose code is ready.
#[derive(Debug, Default)]
pub(crate) struct PreparedFolder {
    /// The folder with what was built; none: the folder is deployed as it is.
    built: Option<PathBuf>,
    /// The folder's own files that are not packed.
    left_out: LeftOut,
}

/// Which files of a folder are no code once it is built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LeftOut {
    /// None.
    #[default]
    Nothing,
    /// The packages for development.
    NodeModules,
    /// Go's sources, and an older program.
    GoSources,
    /// Rust's sources, and an older program.
    RustSources,
}

impl LeftOut {
    fn has(self, name: &str) -> bool {
        let top = name.split('/').next().unwrap_or(name);
        match self {
            Self::Nothing => false,
            Self::NodeModules => top == "node_modules",
            Self::GoSources => {
                name.ends_with(".go")
                    || ["go.mod", "go.sum", "go.work", "go.work.sum", "vendor", "bootstrap"].contains(&top)
            }
            Self::RustSources => [
                "Cargo.toml",
                "Cargo.lock",
                "rust-toolchain",
                "rust-toolchain.toml",
                "build.rs",
                ".cargo",
                "src",
                "tests",
                "benches",
                "examples",
                "target",
                "bootstrap",
            ]
            .contains(&top),
        }
    }
}

impl PreparedFolder {
    /// The files to pack: those of `folder` that `choice` names, and all that was built. The folder's own come before
    /// built ones of the same name.
    ///
    /// # Errors
    /// If a file cannot be read, or `choice` names one that is not there.
    pub(crate) fn files(&self, folder: &Path, choice: &FileChoice) -> Result<Vec<CodeFile>, ArchiveError> {
        let Some(built) = &self.built else { return archive::list(folder, choice) };
        let built = match archive::list(built, &FileChoice::default()) {
            // All packages were optional, and none is for this machine.
            Err(ArchiveError::Empty(_)) => Vec::new(),
            listed => listed?,
        };
        let below =
            |name: &str| built.iter().any(|file| file.name == name || file.name.starts_with(&format!("{name}/")));
        let is_own = |name: &str| folder.join(name).exists() && !self.left_out.has(name);
        let only: Vec<String> = choice.only.iter().filter(|name| is_own(name) || !below(name)).cloned().collect();
        let mut files = if choice.only.is_empty() {
            match archive::list_without(folder, choice, &|name| self.left_out.has(name)) {
                // Sources alone.
                Err(ArchiveError::Empty(_)) => Vec::new(),
                listed => listed?,
            }
        } else if only.is_empty() {
            Vec::new()
        } else {
            archive::list(folder, &FileChoice { only, ..choice.clone() })?
        };
        files.extend(built);
        // Stable: the folder's own file stays first.
        files.sort_by(|one: &CodeFile, other| one.name.cmp(&other.name));
        files.dedup_by(|later, first| later.name == first.name);
        Ok(files)
    }
}

/// Makes the code in `folder` ready for a function of `runtime`. `functions` name the interpreters of functions.
///
/// # Errors
/// If a tool is missing or fails: its words, and what to do.
pub(crate) async fn prepare(
    folder: &Path,
    runtime: &str,
    functions: &FunctionSettings,
    progress: &mut dyn Progress,
) -> Result<PreparedFolder, BuildError> {
    if !folder.is_dir() {
        return Ok(PreparedFolder::default());
    }
    let cache = Cache::of_user();
    if let Some(minor) = runtime.strip_prefix("python3.").and_then(|minor| minor.parse().ok()) {
        let built = python::packages(folder, minor, &functions.python, &cache, progress).await?;
        return Ok(PreparedFolder { built, left_out: LeftOut::Nothing });
    }
    if runtime.starts_with("nodejs") {
        let built = node::packages(folder, runtime, &functions.node, &cache, progress).await?;
        let left_out = if built.is_some() { LeftOut::NodeModules } else { LeftOut::Nothing };
        return Ok(PreparedFolder { built, left_out });
    }
    if !runtime.starts_with("provided") {
        return Ok(PreparedFolder::default());
    }
    let (built, left_out) = if folder.join("go.mod").is_file() {
        (compiled::go(folder, &cache, progress).await?, LeftOut::GoSources)
    } else if folder.join("Cargo.toml").is_file() {
        (compiled::rust(folder, &cache, progress).await?, LeftOut::RustSources)
    } else {
        (None, LeftOut::Nothing)
    };
    let left_out = if built.is_some() { left_out } else { LeftOut::Nothing };
    Ok(PreparedFolder { built, left_out })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, files: &[&str]) {
        for file in files {
            let path = folder.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, file).unwrap();
        }
    }

    #[test]
    fn what_was_built_is_packed_beside_the_folders_own_files_which_come_first() {
        let root = tempfile::tempdir().unwrap();
        let (own, built) = (root.path().join("own"), root.path().join("built"));
        write(&own, &["main.py", "both.py", "data/a.txt", "requirements.txt"]);
        write(&built, &["both.py", "dep/__init__.py"]);
        let prepared = PreparedFolder { built: Some(built.clone()), left_out: LeftOut::Nothing };
        let of = |choice: &FileChoice| {
            let files = prepared.files(&own, choice).unwrap();
            let from_own = |file: &CodeFile| if file.path.starts_with(&own) { "own" } else { "built" };
            files.iter().map(|file| format!("{} {}", file.name, from_own(file))).collect::<Vec<_>>()
        };
        let all = ["both.py own", "data/a.txt own", "dep/__init__.py built", "main.py own", "requirements.txt own"];
        assert_eq!(of(&FileChoice::default()), all);
        let only = FileChoice { only: vec!["main.py".to_owned(), "dep".to_owned()], ..FileChoice::default() };
        assert_eq!(of(&only), ["both.py built", "dep/__init__.py built", "main.py own"]);
        let absent = FileChoice { only: vec!["absent.py".to_owned()], ..FileChoice::default() };
        assert!(matches!(prepared.files(&own, &absent), Err(ArchiveError::Missing { .. })));
        assert_eq!(PreparedFolder::default().files(&own, &FileChoice::default()).unwrap().len(), 4);
    }

    #[test]
    fn a_built_program_takes_the_place_of_its_sources() {
        let root = tempfile::tempdir().unwrap();
        let (own, built) = (root.path().join("own"), root.path().join("built"));
        write(&own, &["main.go", "lib/a.go", "go.mod", "vendor/x/y.s", "bootstrap", "words.txt", "lib/page.html"]);
        write(&built, &["bootstrap"]);
        let prepared = PreparedFolder { built: Some(built.clone()), left_out: LeftOut::GoSources };
        let names = |choice: &FileChoice| -> Vec<String> {
            prepared.files(&own, choice).unwrap().into_iter().map(|file| file.name).collect()
        };
        assert_eq!(names(&FileChoice::default()), ["bootstrap", "lib/page.html", "words.txt"]);
        let files = prepared.files(&own, &FileChoice::default()).unwrap();
        assert_eq!(files[0].path, built.join("bootstrap"), "the older program is left out");
        let only = FileChoice { only: vec!["bootstrap".to_owned()], ..FileChoice::default() };
        assert_eq!(names(&only), ["bootstrap"]);
        for file in ["words.txt", "lib/page.html"] {
            std::fs::remove_file(own.join(file)).unwrap();
        }
        assert_eq!(names(&FileChoice::default()), ["bootstrap"], "sources alone");
        assert!(LeftOut::RustSources.has("src/main.rs") && !LeftOut::RustSources.has("assets/src"));
        assert!(LeftOut::NodeModules.has("node_modules/a/b.js") && !LeftOut::NodeModules.has("lib/node_modules.js"));
    }
}
