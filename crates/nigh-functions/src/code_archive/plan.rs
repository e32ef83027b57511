//! Which files and folders an archive makes: decided from its directory, before a byte is written. Pure.

use std::collections::BTreeMap;
use std::path::PathBuf;

use zip::ZipArchive;

use super::source::Reader;
use super::{ArchiveError, ArchiveLimits, malformed};

/// The longest path of an entry; with the folder's own it stays below Linux's PATH_MAX.
const PATH_BYTES_MAX: usize = 1024;
/// The longest name of one file or folder (Linux NAME_MAX).
const NAME_BYTES_MAX: usize = 255;

const EXECUTE_BITS: u32 = 0o111;
const TYPE_BITS: u32 = 0o170_000;
const TYPE_FILE: u32 = 0o100_000;
const TYPE_FOLDER: u32 = 0o040_000;

/// The entry at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Folder,
    File { index: usize, executable: bool },
}

/// The archive's files and folders by path, parents first. Nothing outside it can be named.
pub(super) type Tree = BTreeMap<PathBuf, Kind>;

/// Checks every entry's name and kind before a byte is written.
pub(super) fn plan(zip: &mut ZipArchive<Reader>, limits: ArchiveLimits) -> Result<Tree, ArchiveError> {
    if zip.has_duplicate_names() {
        return Err(ArchiveError::Malformed("two entries have the same name".to_owned()));
    }
    if zip.has_overlapping_entries().map_err(malformed)? {
        return Err(ArchiveError::Malformed("entries share bytes of the archive".to_owned()));
    }
    let mut tree = Tree::new();
    for index in 0..zip.len() {
        let entry = zip.by_index_raw(index).map_err(malformed)?;
        let name = entry.name_raw();
        let refused = |why| ArchiveError::Entry { name: String::from_utf8_lossy(name).into_owned(), why };
        let (path, names_folder) = entry_path(name).map_err(refused)?;
        if entry.encrypted() {
            return Err(refused("it is encrypted"));
        }
        let mode = entry.unix_mode().unwrap_or(0);
        let kind = match mode & TYPE_BITS {
            0 | TYPE_FILE if !names_folder => Kind::File { index, executable: mode & EXECUTE_BITS != 0 },
            0 | TYPE_FOLDER if names_folder => Kind::Folder,
            _ => return Err(refused("it is neither a file nor a folder; links and devices are not allowed")),
        };
        if path.as_os_str().is_empty() {
            continue;
        }
        for parent in path.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()) {
            match tree.get(parent) {
                Some(Kind::Folder) => break,
                Some(Kind::File { .. }) => {
                    return Err(refused("the archive has a file where the entry's folder should be"));
                }
                None => drop(tree.insert(parent.to_owned(), Kind::Folder)),
            }
        }
        match (tree.get(&path), kind) {
            (None, _) => drop(tree.insert(path, kind)),
            (Some(Kind::Folder), Kind::Folder) => {}
            (Some(_), _) => return Err(refused("another entry has the same path")),
        }
        if tree.len() > limits.entries {
            return Err(ArchiveError::Entries { limit: limits.entries });
        }
    }
    Ok(tree)
}

/// The path of an entry below the folder, empty for the folder itself; and whether its name says that it is a folder.
fn entry_path(name: &[u8]) -> Result<(PathBuf, bool), &'static str> {
    let name = std::str::from_utf8(name).map_err(|_| "its name is not UTF-8")?;
    if name.len() > PATH_BYTES_MAX {
        return Err("its path is longer than 1024 bytes");
    }
    if name.is_empty() || name.contains('\0') {
        return Err("its name is empty or has a zero byte");
    }
    if name.contains('\\') {
        return Err("its name has a backslash; separate folders with /");
    }
    if name.starts_with('/') {
        return Err("its path is absolute");
    }
    let (path, names_folder) = name.strip_suffix('/').map_or((name, false), |path| (path, true));
    let mut parts = PathBuf::new();
    for part in path.split('/') {
        match part {
            "" => return Err("its path has an empty part"),
            ".." => return Err("its path leads outside the archive"),
            "." => {}
            _ if part.len() > NAME_BYTES_MAX => return Err("a part of its path is longer than 255 bytes"),
            _ => parts.push(part),
        }
    }
    if parts.as_os_str().is_empty() && !names_folder {
        return Err("its name is no file's");
    }
    Ok((parts, names_folder))
}
