//! How a file becomes an object: written aside, synced, renamed into place, its folder synced.
//!
//! Until the rename the object's name shows the old file or none; after it the whole new one, whose bytes were on
//! the disk before. The answer comes after the folder's sync, so an acknowledged write survives a power cut. What
//! is left aside by a crash is removed when the store is opened.

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
    /// All bytes are written, none need be on the disk.
    Written,
    /// The file's bytes are on the disk.
    Synced,
    /// The file has the object's name; the disk need not know.
    Renamed,
    /// The disk knows the name.
    FolderSynced,
}

/// Told of each step and of the file it was done to; an error stops the commit there, as a crash would.
pub(super) type StepHook = dyn Fn(Step, &Path) -> io::Result<()> + Send + Sync;

/// The folder where files are made, and the steps from there.
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
    /// How long the file was before, if it is a spooled file that was extended.
    taken_over: Option<u64>,
    /// Set once it is an object: then it stays.
    committed: bool,
}

/// A payload's file is not as its metadata says.
fn other_length(path: &Path, told: u64, found: u64) -> io::Error {
    io::Error::other(format!("the spooled file {} has {found} bytes, {told} were to be stored", path.display()))
}

impl StagingFolder {
    /// The staging area `folder`, made or emptied.
    pub(super) fn open(folder: PathBuf, hook: Option<Box<StepHook>>) -> io::Result<Self> {
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => fs::create_dir(&folder)?,
        }
        let space = FreeSpace::of(folder.as_path());
        Ok(Self { folder, next: AtomicU64::new(0), space, hook })
    }

    /// A name in the staging area that nothing has.
    pub(super) fn fresh(&self) -> PathBuf {
        self.folder.join(self.next.fetch_add(1, Ordering::Relaxed).to_string())
    }

    /// `SlowDown` if the file system would be too full after another `bytes`.
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

    /// Writes `payload`, whose parts have the given `lengths`, and behind it what `tail` gives for its checksum.
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
                // Nobody has seen these bytes go by; reading gigabytes again for a checksum would double the write.
                let tail = tail(None)?;
                self.stage_files(files, lengths, &tail)
            }
        }
    }

    /// A file that is only `tail`, or `source`'s first `length` bytes and `tail`.
    pub(super) fn stage_copy(&self, source: &File, length: u64, tail: &[u8]) -> io::Result<StagedFile> {
        let mut staged = self.create()?;
        staged.fill(|file| {
            append(file, source, length)?;
            file.write_all(tail)
        })?;
        Ok(staged)
    }

    /// The first file becomes the object if it lies on this file system: its bytes are not moved. Its spooled bytes
    /// stay as they are, so that a crash before the rename costs nothing but a tail, which the next attempt cuts off.
    fn stage_files(&self, files: &[PathBuf], lengths: &[u64], tail: &[u8]) -> io::Result<StagedFile> {
        if files.len() != lengths.len() {
            return Err(io::Error::other(format!("{} spooled files for {} parts", files.len(), lengths.len())));
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

    /// Syncs `staged` and gives it the name `target`, whose folder is `parent`. When it returns the disk has it.
    /// What `landing` gives is held from before the object can be seen until the disk has it.
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
    /// The old object is there, untouched.
    NotDone(io::Error),
    /// The new object is there, but a power cut may bring back the old one.
    InDoubt(io::Error),
}

impl StagedFile {
    /// Fills the file by `write`, behind the spooled bytes if it has some.
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
    /// What is no object does not stay: a spooled file gets its old length back, one of our own goes. What cannot
    /// be undone now is undone by the next attempt or at the next opening, so errors do not matter.
    fn drop(&mut self) {
        if !self.committed {
            let _ = match self.taken_over {
                Some(length) => self.file.set_len(length),
                None => fs::remove_file(&self.path),
            };
        }
    }
}

/// Appends the first `length` bytes of `source`; in the kernel, where it can (`io::copy` uses copy_file_range).
fn append(file: &mut File, source: &File, length: u64) -> io::Result<()> {
    let copied = io::copy(&mut source.take(length), file)?;
    if copied == length {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("only {copied} of {length} bytes are there")))
    }
}

/// One system call for both, as a rule.
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
