//! Packs a function's folder as Lambda expects it: a zip archive, with equal bytes for equal files.

use std::fs;
use std::io::{self, Cursor, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use thiserror::Error;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// Folders that never hold code.
const SKIPPED: [&str; 5] = [".git", ".hg", "__pycache__", ".mypy_cache", ".ruff_cache"];
/// Lambda's limit of unpacked code: 250 MiB. Checked here so that a folder named by mistake is not packed.
const UNPACKED_MAX: u64 = 250 << 20;

/// Why a folder cannot be packed.
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
    #[error("{0} holds no files")]
    Empty(PathBuf),
    #[error("packing {path}: {source}")]
    Zip { path: PathBuf, source: zip::result::ZipError },
}

/// Packs `folder`.
pub(crate) fn pack(folder: &Path) -> Result<Vec<u8>, ArchiveError> {
    let mut files = Vec::new();
    collect(folder, &mut files)?;
    if files.is_empty() {
        return Err(ArchiveError::Empty(folder.to_owned()));
    }
    files.sort();
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    let mut unpacked = 0;
    for path in files {
        let failed = |source| ArchiveError::Io { path: path.clone(), source };
        let zipped = |source| ArchiveError::Zip { path: path.clone(), source };
        let inside = path.strip_prefix(folder).unwrap_or(&path);
        let name = inside.to_str().ok_or_else(|| ArchiveError::Name(path.clone()))?;
        let file = fs::File::open(&path).map_err(failed)?;
        let executable = file.metadata().map_err(failed)?.permissions().mode() & 0o111 != 0;
        // Without times and owners: equal files make an equal archive, whose hash names the version.
        let options = SimpleFileOptions::default().unix_permissions(if executable { 0o755 } else { 0o644 });
        writer.start_file(name, options).map_err(zipped)?;
        unpacked += io::copy(&mut file.take(UNPACKED_MAX + 1), &mut writer).map_err(failed)?;
        if unpacked > UNPACKED_MAX {
            return Err(ArchiveError::TooLarge(folder.to_owned()));
        }
    }
    let finished = writer.finish().map_err(|source| ArchiveError::Zip { path: folder.to_owned(), source })?;
    Ok(finished.into_inner())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), ArchiveError> {
    let failed = |source| ArchiveError::Io { path: folder.to_owned(), source };
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if SKIPPED.iter().any(|skipped| entry.file_name() == *skipped) {
            continue;
        }
        let path = entry.path();
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() {
            collect(&path, files)?;
        } else if kind.is_symlink() && path.is_dir() {
            return Err(ArchiveError::FolderLink(path));
        } else if path.is_file() {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let first = pack(root).unwrap();
        fs::write(root.join("app.py"), "x = 1").unwrap();
        assert_eq!(first, pack(root).unwrap());

        let mut archive = zip::ZipArchive::new(Cursor::new(first)).unwrap();
        let names: Vec<String> = archive.file_names().map(|name| name.unwrap().into_owned()).collect();
        assert_eq!(names, ["app.py", "bootstrap", "lib/b.py"]);
        assert_eq!(archive.by_name("bootstrap").unwrap().unix_mode().unwrap() & 0o777, 0o755);
    }

    #[test]
    fn an_empty_folder_and_a_link_to_a_folder_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(pack(folder.path()), Err(ArchiveError::Empty(_))));
        std::os::unix::fs::symlink("/usr", folder.path().join("usr")).unwrap();
        assert!(matches!(pack(folder.path()), Err(ArchiveError::FolderLink(_))));
    }
}
