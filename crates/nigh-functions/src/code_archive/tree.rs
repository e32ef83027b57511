//! Writes the entries of a plan into a new folder, and makes them durable.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use nigh_terms::ByteSize;
use zip::ZipArchive;

use super::plan::{Kind, Tree};
use super::source::Reader;
use super::{ArchiveError, malformed};

/// Up to so many files are synced one by one; with more, the whole file system is synced once.
const SYNC_EACH_MAX: usize = 64;
const COPY_BUFFER_BYTES: usize = 64 << 10;
const FILE_MODE: u32 = 0o644;
const EXECUTABLE_MODE: u32 = 0o755;
const FOLDER_MODE: u32 = 0o755;

/// Creates `into` with all of `tree`. Returns the bytes of all files, at most `limit`.
pub(super) fn write_tree(
    zip: &mut ZipArchive<Reader>,
    tree: &Tree,
    into: &Path,
    limit: ByteSize,
) -> Result<ByteSize, ArchiveError> {
    make_folder(into)?;
    let mut left = limit.bytes();
    let mut buffer = vec![0; COPY_BUFFER_BYTES];
    for (path, kind) in tree {
        let target = into.join(path);
        match *kind {
            Kind::Folder => make_folder(&target)?,
            Kind::File { index, executable } => {
                let mode = if executable { EXECUTABLE_MODE } else { FILE_MODE };
                let entry = zip.by_index(index).map_err(malformed)?;
                left = write_file(entry, &target, mode, left, &mut buffer)?
                    .ok_or(ArchiveError::Unpacked { limit: limit.bytes() })?;
            }
        }
    }
    Ok(ByteSize(limit.bytes() - left))
}

/// Copies `entry` and returns what is left of `left`; `None` if it was not enough.
fn write_file(
    mut entry: impl Read,
    target: &Path,
    mode: u32,
    mut left: u64,
    buffer: &mut [u8],
) -> Result<Option<u64>, ArchiveError> {
    let io = |source| ArchiveError::Io { path: target.to_owned(), source };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(target).map_err(io)?;
    file.set_permissions(Permissions::from_mode(mode)).map_err(io)?;
    loop {
        // The archive is at fault: its directory and its data differ.
        let read = entry.read(buffer).map_err(|error| ArchiveError::Malformed(error.to_string()))?;
        if read == 0 {
            return Ok(Some(left));
        }
        let Some(rest) = left.checked_sub(read as u64) else { return Ok(None) };
        left = rest;
        file.write_all(&buffer[..read]).map_err(io)?;
    }
}

fn make_folder(path: &Path) -> Result<(), ArchiveError> {
    let io = |source| ArchiveError::Io { path: path.to_owned(), source };
    fs::create_dir(path).map_err(io)?;
    fs::set_permissions(path, Permissions::from_mode(FOLDER_MODE)).map_err(io)
}

/// Makes all of `tree` durable, except `into`'s own name.
pub(super) fn sync_tree(tree: &Tree, into: &Path) -> Result<(), ArchiveError> {
    let each = tree.len() <= SYNC_EACH_MAX;
    let paths = tree.keys().map(|path| into.join(path)).filter(|_| each).chain([into.to_owned()]);
    for path in paths {
        let synced = File::open(&path)
            .and_then(|file| if each { file.sync_all() } else { rustix::fs::syncfs(&file).map_err(io::Error::from) });
        synced.map_err(|source| ArchiveError::Io { path, source })?;
    }
    Ok(())
}
