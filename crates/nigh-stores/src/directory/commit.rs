//! How a file becomes an object: written to the staging folder, synced, renamed, and its new folder synced.
//!
//! Before the rename the object's name has the old file or none; after it, the whole new file, whose bytes are on the disk
//! already. The write is acknowledged after the folder's sync, so it survives a power cut. Files that a crash leaves in
//! the staging folder are removed when the store is opened.

use std::fs::{self, File};
use std::io::{self, IoSlice, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use nigh_data::ObjectError;

use super::object_file::crc64;
use crate::Payload;
use crate::free_space::FreeSpace;

/// The steps of a commit, each named when it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// All bytes are written, but they may not be on the disk yet.
    Written,
    /// The file's bytes are on the disk.
    Synced,
    /// The file has the object's name, but the name may not be on the disk yet.
    Renamed,
    /// The name is on the disk.
    FolderSynced,
}

/// Called after each step with the file; an error stops the commit there, as a crash would.
pub(super) type StepHook = dyn Fn(Step, &Path) -> io::Result<()> + Send + Sync;

/// The staging folder, and the steps of a commit.
pub(super) struct StagingFolder {
    folder: PathBuf,
    next: AtomicU64,
    space: FreeSpace,
    hook: Option<Box<StepHook>>,
}

/// A file with all its bytes, not yet synced, not yet an object.
pub(super) struct StagedFile {
    path: PathBuf,
    file: File,
    /// The former length in bytes of a spooled file that was extended. None for a new file.
    taken_over: Option<u64>,
    /// True once the file is an object and must stay.
    committed: bool,
}

/// The error for a payload's file whose length differs from the metadata.
fn other_length(path: &Path, told: u64, found: u64) -> io::Error {
    io::Error::other(format!("the spooled file {} has {found} bytes, {told} were to be stored", path.display()))
}

impl StagingFolder {
    /// Creates or empties the staging folder.
    pub(super) fn open(folder: PathBuf, hook: Option<Box<StepHook>>) -> io::Result<Self> {
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => fs::create_dir(&folder)?,
        }
        let space = FreeSpace::of(folder.as_path());
        Ok(Self { folder, next: AtomicU64::new(0), space, hook })
    }

    /// An unused name in the staging folder.
    pub(super) fn fresh(&self) -> PathBuf {
        self.folder.join(self.next.fetch_add(1, Ordering::Relaxed).to_string())
    }

    /// `SlowDown` if the file system would be too full after `bytes` more.
    pub(super) fn admit(&self, bytes: u64) -> Result<(), ObjectError> {
        self.space.admit(bytes)
    }

    fn done(&self, step: Step, path: &Path) -> io::Result<()> {
        self.hook.as_ref().map_or(Ok(()), |hook| hook(step, path))
    }

    fn create(&self) -> io::Result<StagedFile> {
        let path = self.fresh();
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        Ok(StagedFile { path, file, taken_over: None, committed: false })
    }

    /// Writes `payload`, whose parts have the given `lengths`, and then what `tail` returns for its checksum.
    pub(super) fn stage(
        &self,
        payload: &Payload,
        lengths: &[u64],
        tail: impl FnOnce(Option<u64>) -> io::Result<Vec<u8>>,
    ) -> io::Result<StagedFile> {
        match payload {
            Payload::Segment(segment) => {
                let bytes = segment.as_slice();
                let tail = tail(Some(crc64(bytes)))?;
                let mut staged = self.create()?;
                staged.fill(|file| write_both(file, bytes, &tail))?;
                Ok(staged)
            }
            Payload::Files(files) => {
                // The checksum is unknown; reading gigabytes again would double the cost of the write.
                let tail = tail(None)?;
                self.stage_files(files, lengths, &tail)
            }
        }
    }

    /// Writes a file of `tail` alone, or of the first `length` bytes of `source` and `tail`.
    pub(super) fn stage_copy(&self, source: &File, length: u64, tail: &[u8]) -> io::Result<StagedFile> {
        let mut staged = self.create()?;
        staged.fill(|file| {
            append(file, source, length)?;
            file.write_all(tail)
        })?;
        Ok(staged)
    }

    /// Stages spooled files. If the first file is on this file system, it becomes the object without a copy of its
    /// bytes. Its spooled bytes stay unchanged, so after a crash before the rename the next attempt only cuts off the
    /// tail.
    fn stage_files(&self, files: &[PathBuf], lengths: &[u64], tail: &[u8]) -> io::Result<StagedFile> {
        if files.len() != lengths.len() {
            return Err(io::Error::other(format!(
                "{} files hold the body, but it has {} parts; this is a fault of Nigh",
                files.len(),
                lengths.len()
            )));
        }
        let here = fs::metadata(&self.folder)?.dev();
        let mut rest = files.iter().zip(lengths.iter().copied()).peekable();
        let first = rest.peek().map(|(path, length)| (*path, *length));
        let mut staged = match first {
            Some((path, length)) => {
                let file = File::options().read(true).write(true).open(path)?;
                let metadata = file.metadata()?;
                if metadata.dev() == here && metadata.nlink() == 1 {
                    rest.next();
                    if metadata.len() < length {
                        return Err(other_length(path, length, metadata.len()));
                    }
                    StagedFile { path: path.clone(), file, taken_over: Some(length), committed: false }
                } else {
                    self.create()?
                }
            }
            None => self.create()?,
        };
        staged.fill(|file| {
            for (path, length) in rest {
                append(file, &File::open(path)?, length)
                    .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
            }
            file.write_all(tail)
        })?;
        Ok(staged)
    }

    /// Syncs `staged` and renames it to `target` in `parent`. When this returns, the object is on the disk. The value
    /// that `landing` returns is held from before the object is visible until it is on the disk.
    pub(super) fn commit<L>(
        &self,
        mut staged: StagedFile,
        target: &Path,
        parent: &File,
        landing: impl FnOnce() -> L,
    ) -> Result<(), CommitError> {
        let before = || -> io::Result<L> {
            self.done(Step::Written, &staged.path)?;
            staged.file.sync_data()?;
            self.done(Step::Synced, &staged.path)?;
            let landing = landing();
            fs::rename(&staged.path, target)?;
            Ok(landing)
        };
        let _landing = before().map_err(CommitError::NotDone)?;
        staged.committed = true;
        let after = || -> io::Result<()> {
            self.done(Step::Renamed, target)?;
            parent.sync_all()?;
            self.done(Step::FolderSynced, target)
        };
        after().map_err(CommitError::InDoubt)
    }
}

/// Why a commit failed.
#[derive(Debug)]
pub(super) enum CommitError {
    /// The old object is unchanged.
    NotDone(io::Error),
    /// The new object is visible, but a power cut may bring back the old one.
    InDoubt(io::Error),
}

impl StagedFile {
    /// Fills the file by `write`, after its spooled bytes if it has some.
    fn fill(&mut self, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
        if let Some(start) = self.taken_over {
            // An interrupted attempt may have left a tail.
            self.file.set_len(start)?;
            self.file.seek(SeekFrom::Start(start))?;
        }
        write(&mut self.file)
    }
}

impl Drop for StagedFile {
    /// Restores the length of a spooled file and removes a file of our own. Errors do not matter: the next attempt or the
    /// next opening of the store repeats this.
    fn drop(&mut self) {
        if !self.committed {
            let _ = match self.taken_over {
                Some(length) => self.file.set_len(length),
                None => fs::remove_file(&self.path),
            };
        }
    }
}

/// Appends the first `length` bytes of `source`, within the kernel where possible (`io::copy` uses copy_file_range).
fn append(file: &mut File, source: &File, length: u64) -> io::Result<()> {
    let copied = io::copy(&mut source.take(length), file)?;
    if copied == length {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("only {copied} of {length} bytes are there")))
    }
}

/// Writes both, usually by one system call.
fn write_both(file: &mut File, payload: &[u8], tail: &[u8]) -> io::Result<()> {
    let mut slices = [IoSlice::new(payload), IoSlice::new(tail)];
    let mut slices = &mut slices[..];
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        match file.write_vectored(slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut slices, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
