//! Packs a function's code as Lambda expects it: a zip archive, with equal bytes for equal files.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Cursor, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use thiserror::Error;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// Folders that never hold code.
const SKIPPED: [&str; 7] = [".git", ".hg", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".venv"];
/// Lambda's limit of unpacked code: 250 MiB. Checked here so that a folder named by mistake is not packed.
const UNPACKED_MAX: u64 = 250 << 20;
/// The most files and folders of a function's code, so that a folder named by mistake is not walked to its end.
const FILES_MAX: usize = 65_536;

/// Why code cannot be packed.
#[derive(Debug, Error)]
pub(crate) enum ArchiveError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{0} is a link to a folder; archives hold files only, copy what is needed into the folder")]
    FolderLink(PathBuf),
    #[error("{0} has a name that is not UTF-8; rename it")]
    Name(PathBuf),
    #[error("{0} holds more than the 250 MiB that a function may have; is it the right folder?")]
    TooLarge(PathBuf),
    #[error("{0} holds more than {FILES_MAX} files; is it the right folder?")]
    TooMany(PathBuf),
    #[error("{0} holds no files")]
    Empty(PathBuf),
    #[error("there is no {name} in {folder}, which `files` in nigh.toml names")]
    Missing { folder: PathBuf, name: String },
    #[error("packing {path}: {source}")]
    Zip { path: PathBuf, source: zip::result::ZipError },
}

/// A file that goes into the archive.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CodeFile {
    /// Its name in the archive, with `/` between folders.
    pub(crate) name: String,
    /// Where it is.
    pub(crate) path: PathBuf,
    /// True if it may be executed.
    pub(crate) is_executable: bool,
}

/// Which files of a folder are code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileChoice {
    /// Files and folders, relative to the folder; empty: all.
    pub(crate) only: Vec<String>,
    /// Names of files at the top that are left out unless `only` names them.
    pub(crate) without: Vec<String>,
}

/// The files of the code in `folder`, or the one file that `folder` is, by name.
pub(crate) fn list(folder: &Path, choice: &FileChoice) -> Result<Vec<CodeFile>, ArchiveError> {
    list_without(folder, choice, &|_| false)
}

/// The same without files and folders that `left_out` names: nobody looks into these.
pub(crate) fn list_without(
    folder: &Path,
    choice: &FileChoice,
    left_out: &dyn Fn(&str) -> bool,
) -> Result<Vec<CodeFile>, ArchiveError> {
    let mut files = Vec::new();
    let metadata = folder.metadata().map_err(|source| ArchiveError::Io { path: folder.to_owned(), source })?;
    if metadata.is_file() {
        let root = folder.parent().unwrap_or(Path::new(""));
        return Ok(vec![code_file(root, folder.to_owned())?]);
    }
    if choice.only.is_empty() {
        collect(folder, folder, left_out, &mut files)?;
        files.retain(|file| !choice.without.contains(&file.name));
    }
    for name in &choice.only {
        let path = folder.join(name);
        if path.is_dir() {
            collect(folder, &path, left_out, &mut files)?;
        } else if path.is_file() {
            files.push(code_file(folder, path)?);
        } else {
            return Err(ArchiveError::Missing { folder: folder.to_owned(), name: name.clone() });
        }
    }
    if files.is_empty() {
        return Err(ArchiveError::Empty(folder.to_owned()));
    }
    files.sort();
    files.dedup();
    Ok(files)
}

/// Packs `files`, which are sorted. `what` names them in errors.
pub(crate) fn pack(what: &Path, files: &[CodeFile]) -> Result<Vec<u8>, ArchiveError> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    let mut unpacked = 0;
    for CodeFile { name, path, is_executable } in files {
        let failed = |source| ArchiveError::Io { path: path.clone(), source };
        let zipped = |source| ArchiveError::Zip { path: path.clone(), source };
        let file = fs::File::open(path).map_err(failed)?;
        // Without times and owners: equal files make an equal archive, whose hash names the version.
        let options = SimpleFileOptions::default().unix_permissions(if *is_executable { 0o755 } else { 0o644 });
        writer.start_file(name.as_str(), options).map_err(zipped)?;
        unpacked += io::copy(&mut file.take(UNPACKED_MAX + 1), &mut writer).map_err(failed)?;
        if unpacked > UNPACKED_MAX {
            return Err(ArchiveError::TooLarge(what.to_owned()));
        }
    }
    let finished = writer.finish().map_err(|source| ArchiveError::Zip { path: what.to_owned(), source })?;
    Ok(finished.into_inner())
}

/// True if `name` in `folder` never holds code: what tools leave behind, and what Cargo builds.
pub(crate) fn is_skipped(folder: &Path, name: &OsStr) -> bool {
    SKIPPED.iter().any(|skipped| name == *skipped) || (name == "target" && folder.join("Cargo.toml").is_file())
}

fn code_file(root: &Path, path: PathBuf) -> Result<CodeFile, ArchiveError> {
    let metadata = path.metadata().map_err(|source| ArchiveError::Io { path: path.clone(), source })?;
    let inside = path.strip_prefix(root).unwrap_or(&path);
    let name = inside.to_str().ok_or_else(|| ArchiveError::Name(path.clone()))?.to_owned();
    Ok(CodeFile { name, is_executable: metadata.permissions().mode() & 0o111 != 0, path })
}

fn collect(
    root: &Path,
    folder: &Path,
    left_out: &dyn Fn(&str) -> bool,
    files: &mut Vec<CodeFile>,
) -> Result<(), ArchiveError> {
    let failed = |source| ArchiveError::Io { path: folder.to_owned(), source };
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if is_skipped(folder, &entry.file_name()) {
            continue;
        }
        let path = entry.path();
        let inside = path.strip_prefix(root).unwrap_or(&path);
        if inside.to_str().is_some_and(left_out) {
            continue;
        }
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() {
            collect(root, &path, left_out, files)?;
        } else if kind.is_symlink() && path.is_dir() {
            return Err(ArchiveError::FolderLink(path));
        } else if path.is_file() {
            files.push(code_file(root, path)?);
        }
        if files.len() > FILES_MAX {
            return Err(ArchiveError::TooMany(root.to_owned()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(folder: &Path) -> Result<Vec<u8>, ArchiveError> {
        pack(folder, &list(folder, &FileChoice::default())?)
    }

    fn names(folder: &Path, choice: &FileChoice) -> Vec<String> {
        list(folder, choice).unwrap().into_iter().map(|file| file.name).collect()
    }

    #[test]
    fn the_same_files_make_the_same_archive_without_what_is_no_code() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("lib/__pycache__")).unwrap();
        fs::create_dir_all(root.join(".git")).unwrap();
        for (name, text) in
            [("app.py", "x = 1"), ("lib/b.py", ""), ("lib/__pycache__/b.pyc", "x"), (".git/config", "x")]
        {
            fs::write(root.join(name), text).unwrap();
        }
        fs::write(root.join("bootstrap"), "#!/bin/sh").unwrap();
        fs::set_permissions(root.join("bootstrap"), fs::Permissions::from_mode(0o755)).unwrap();
        let first = all(root).unwrap();
        fs::write(root.join("app.py"), "x = 1").unwrap();
        assert_eq!(first, all(root).unwrap());

        let mut archive = zip::ZipArchive::new(Cursor::new(first)).unwrap();
        let names: Vec<String> = archive.file_names().map(|name| name.unwrap().into_owned()).collect();
        assert_eq!(names, ["app.py", "bootstrap", "lib/b.py"]);
        assert_eq!(archive.by_name("bootstrap").unwrap().unix_mode().unwrap() & 0o777, 0o755);
    }

    #[test]
    fn the_files_that_are_named_are_packed_or_all_but_those_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir(root.join("lib")).unwrap();
        for name in ["main.py", "event.json", "lib/a.py", "lib/event.json"] {
            fs::write(root.join(name), "").unwrap();
        }
        let without = FileChoice { only: Vec::new(), without: vec!["event.json".to_owned()] };
        assert_eq!(names(root, &without), ["lib/a.py", "lib/event.json", "main.py"]);
        let only = FileChoice { only: vec!["lib".to_owned(), "lib/a.py".to_owned()], ..without };
        assert_eq!(names(root, &only), ["lib/a.py", "lib/event.json"]);
        let missing = FileChoice { only: vec!["nothing".to_owned()], ..FileChoice::default() };
        assert!(list(root, &missing).unwrap_err().to_string().starts_with("there is no nothing in "));
    }

    #[test]
    fn what_cargo_builds_is_left_out_and_another_folder_of_that_name_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir(root.join("target")).unwrap();
        for name in ["bootstrap", "target/large"] {
            fs::write(root.join(name), "").unwrap();
        }
        assert_eq!(names(root, &FileChoice::default()), ["bootstrap", "target/large"]);
        fs::write(root.join("Cargo.toml"), "").unwrap();
        assert_eq!(names(root, &FileChoice::default()), ["Cargo.toml", "bootstrap"]);
    }

    #[test]
    fn one_file_is_packed_by_its_own_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("main.py");
        fs::write(&file, "").unwrap();
        fs::write(folder.path().join("other.py"), "").unwrap();
        assert_eq!(names(&file, &FileChoice::default()), ["main.py"]);
        assert!(matches!(list(&folder.path().join("gone.py"), &FileChoice::default()), Err(ArchiveError::Io { .. })));
    }

    #[test]
    fn an_empty_folder_and_a_link_to_a_folder_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(all(folder.path()), Err(ArchiveError::Empty(_))));
        std::os::unix::fs::symlink("/usr", folder.path().join("usr")).unwrap();
        assert!(matches!(all(folder.path()), Err(ArchiveError::FolderLink(_))));
    }
}
